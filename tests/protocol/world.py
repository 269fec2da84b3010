"""A small world for `blind`: agents that vanish, return, restart and are killed, and a transport that forgets nothing.

Everything that leaves an agent passes `World.hand_out`, which checks what must hold for every message ever sent.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from atdm.crypto.keys import SigningKey
from atdm.data import Cluster
from atdm.data.clock import seconds
from atdm.data.readings import Readings
from atdm.errors import PeerError
from atdm.options import ProtocolName, fit_options
from atdm.protocol.account import Account, company_hash
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.collect import Collected
from atdm.protocol.desk import Outcome, Outgoing
from atdm.protocol.messages import Masked, Ready, Refuse, Release
from atdm.protocol.plan import DAY, AnyPlan, Collect, Plan
from atdm.protocol.registry import OFFERED
from atdm.protocol.roster import Member, Roster, sign_roster
from atdm.protocol.rules import Rules, least_owners
from atdm.protocol.store import Entry, Memory, Snapshot, Store, disclose, enclose
from atdm.run import make_plan, weather_of
from tests.protocol.drive import decoded, said

LOOSE = Rules(
    protocols=OFFERED, weights="fitted", least_agents=3, rows_per_parameter=1, totals=40, agents_per_total=1,
    colluders=0, clip=1e9, dither=0, solver_tolerance=1e-9, ridge=(1e-3, 100.0), least_days=0.0,
)  # fmt: skip
Deaf = Callable[[int, bytes], bool]  # whether an agent does not hear a message
PATIENCE = 400  # deliveries without progress after which the run's deadline is taken to have passed


class Killed(Exception):
    """The process ended here."""


@dataclass
class Ram(Store):
    """A store that survives its agent. `die` counts down writes; at the last one the process is killed, just before
    the write or just after it."""

    snapshot: bytes | None = None
    entries: list[bytes] = field(default_factory=list)
    die: int = 0
    after: bool = False

    def read(self) -> tuple[bytes | None, list[bytes]]:
        return self.snapshot, list(self.entries)

    def replace(self, snapshot: bytes) -> None:
        self._write(lambda: (setattr(self, "snapshot", snapshot), self.entries.clear()))

    def append(self, entry: bytes) -> None:
        self._write(lambda: self.entries.append(entry))

    def _write(self, write: Callable[[], Any]) -> None:
        self.die -= 1
        if self.die != 0 or self.after:
            write()
        if self.die == 0:
            raise Killed


def after(who: int, messages: int) -> Deaf:
    """For `World.run`: an agent that hears so many messages, and then nothing."""
    heard: list[bytes] = []

    def deaf(i: int, data: bytes) -> bool:
        heard.extend([data] if i == who and len(heard) < messages and data not in heard else [])
        return i == who and data not in heard

    return deaf


def saved(account: Account) -> bytes:
    return enclose(Snapshot(b"", Memory(account)))


def written(store: Store) -> Memory:
    """What is written down, without playing anything again."""
    snapshot, entries = store.read()
    memory = disclose(snapshot, Snapshot).memory
    for entry in entries:
        memory.account.apply(disclose(entry, Entry).bookings)
    return memory


class World:
    def __init__(self, cluster: Cluster, seed: int = 0, rules: Rules = LOOSE) -> None:
        self.rng = random.Random(seed)
        self.cluster, self.rules = cluster, rules
        draw = self.rng.randbytes
        self.authority = SigningKey(draw(32))
        self.keys = {name: SigningKey(draw(32)) for name in cluster.agents}
        self.secrets = {name: draw(32) for name in cluster.agents}
        self.roster = self.signed(cluster.agents)
        self.stores: list[Store] = [Ram() for _ in self.keys]
        self.agents: list[Agent | None] = [None] * len(self.keys)
        self.built: dict[str, Any] = {}  # what else agents are built with
        self.sent: dict[tuple, bytes] = {}  # agent, run, step → the one message
        self.answered: Counter[int] = Counter()  # agent → messages with numbers of a fit
        self.shown: Counter[int] = Counter()  # agent → rows whose state and load left
        self.under: dict[int, tuple] = {}  # stamp → the company and the weights it was opened under
        self.reasons: list[str] = []
        self.attempts = 0
        self.restarts = 0

    def signed(self, names: Collection[str], serial: int = 1, since: int = 0) -> Roster:
        """A roster of these agents, enrolled from that day on; places in it are the agents' numbers."""
        members = [(name, str(self.cluster.owner[name]), self.keys[name].public) for name in names]
        return sign_roster(self.authority, members, serial, {key: since for _, _, key in members})

    def readings(self, i: int) -> Readings:
        name = self.roster.members[i].name
        columns = (self.cluster.temperature[name], self.cluster.load[name])
        return Readings(seconds(self.cluster.time), *(column.to_numpy(float) for column in columns))

    def agent(self, i: int) -> Agent:
        """The running agent; built from its store where there is none."""
        if self.agents[i] is None:
            name = self.roster.members[i].name
            self.restarts += 1
            self.agents[i] = Agent(
                identity=self.keys[name], secret=self.secrets[name], roster=self.roster,
                authority=self.authority.public, readings=self.readings(i), weather=weather_of(self.cluster),
                rules=self.rules, random_bytes=self.rng.randbytes, store=self.stores[i], **self.built,
            )  # fmt: skip
        return self.agents[i]

    def restart(self, i: int) -> None:
        self.agents[i] = None

    def hold(self, i: int, temperature: np.ndarray | None = None, without: Collection[int] = ()) -> None:
        """From now on agent i has this series, or lacks these rows; what it kept by itself stays."""
        own = self.readings(i) if temperature is None else replace(self.readings(i), temperature=temperature)
        there = np.delete(np.arange(len(own.time)), list(without))
        self.agent(i).own = replace(self.agent(i).own, readings=own.at(there))

    def plan(self, *, protocol: ProtocolName = "blind", rows: slice = slice(None), **options: Any) -> Plan:
        """A fit over some rows of what the agents have."""
        options = {"order": 1, "ridge": 20.0, "nonnegative": False, "solver_tolerance": 5e-5, **options}
        return make_plan(self.window(rows), fit_options(protocol=protocol, **options), self.rules)

    def collect(self, first: int = 0, length: int = 8, fit: Aggregator | None = None, **change: Any) -> Collect:
        """Rows from a number on, under equal weights or under those of a fit."""
        start, step = int(seconds(self.cluster.time)[0]), int(self.cluster.step.total_seconds())
        options = {"step_seconds": step, "start": start + first * step, "length": length, **change}
        return Collect(fit=b"" if fit is None else fit.run.id, **options)

    def window(self, rows: slice = slice(None), members: tuple[Member, ...] | None = None) -> Cluster:
        """The same rows as a cluster of its own, for an independent fit; all agents, or those of a company."""
        c = self.cluster
        whole = Cluster.from_frames(
            c.temperature.iloc[rows], c.load.iloc[rows], c.outdoor.iloc[rows], c.solar.iloc[rows], owner=c.owner
        )
        return whole if members is None else whole.select([m.name for m in members])

    def aggregator(self, plan: AnyPlan, **options: Any) -> Aggregator:
        self.attempts += 1
        least = least_owners(self.rules, plan.protocol)
        options = {"least": least, "attempt": self.attempts, "roster": self.roster, **options}
        self.role = Aggregator(plan=plan, weather=weather_of(self.cluster), **options)
        return self.role

    def announce(self, plan: AnyPlan, **options: Any) -> bytes:
        """The first message of one more run."""
        return self.aggregator(plan, **options).start()[0].data

    def answer(self, plan: AnyPlan, i: int = 1) -> Ready | Refuse:
        (reply,) = said(self.agent(i), self.announce(plan))
        assert isinstance(reply, Ready | Refuse), reply
        return reply

    def deliver(self, i: int, data: bytes) -> list[bytes]:
        """One message to one agent; what it hands out is checked here and nowhere else."""
        if self.deaf is not None and self.deaf(i, data):
            raise Killed
        try:
            replies = self.agent(i).receive(data)
        except Killed:
            self.restart(i)
            raise
        for reply in replies:
            self.hand_out(i, reply)
        return replies

    def hand_out(self, i: int, reply: bytes) -> None:
        """One message for each place of a run, and whatever it gives away is on the account that is written down."""
        message = decoded(reply)
        if isinstance(message, Ready):
            key: tuple = (i, "ready", self.attempts)
        elif isinstance(message, Masked | Release):
            key = (i, message.run, message.step)
        else:
            return
        again = key in self.sent
        assert self.sent.setdefault(key, reply) == reply, f"agent {i} sent two different messages under one context"
        if again or isinstance(message, Ready) or self.role.run is None:
            return
        account, phase = written(self.stores[i]).account, getattr(message, "phase", "release")
        if phase in ("open", "step", "signs", "release") and self.role.run.announced.protocol == "blind":
            self.answered[i] += 1
            assert sum(account.questions.values()) >= self.answered[i], "numbers left before they were booked"
            given = set((account.time // DAY).tolist()) & set(self.role.run.days)
            companies = {account.days[day].company for day in given}
            assert companies == {company_hash(self.role.run.company)}, "readings left before their days were settled"
        elif phase == "show":
            self.shown[i] += int(self.role.desk.offered.size)
            assert int(account.shown.sum()) >= self.shown[i], "rows left before they were counted"

    def run(
        self, aggregator: Aggregator, chaos: float = 0.0, gone: set[int] | None = None, deaf: Deaf | None = None
    ) -> Outcome | Collected | None:
        """Carry messages until the run is over. chaos: share of deliveries at which something happens to an agent;
        gone: agents that do not answer any more; deaf: who does not hear what. An agent's message stays in its queue
        until it was answered."""
        self.deaf = deaf
        inbox: dict[int, deque[bytes]] = {i: deque() for i in range(len(self.roster))}
        away: dict[int, int] = {i: 10**9 for i in gone or ()}  # agent → deliveries until it is back
        self._post(aggregator.start(), inbox)
        idle = 0
        while any(inbox.values()):
            away = {i: left - 1 for i, left in away.items() if left > 1}
            idle += 1
            if idle > PATIENCE:
                if aggregator.state is not AggregatorState.GATHERING:
                    break
                self._post(aggregator.close(), inbox)  # who has not answered is out
                idle = 0
            waiting = [i for i in inbox if inbox[i] and i not in away]
            if not waiting:
                continue
            i = self.rng.choice(waiting)
            if self.rng.random() < chaos:
                self._mischief(i, away)
                continue
            try:
                replies = self.deliver(i, inbox[i][0])
            except Killed:
                continue  # the message was not answered: it comes again
            except PeerError:
                replies = []
            if self.rng.random() >= chaos:  # else the transport did not hear that it was delivered
                inbox[i].popleft()
            idle = 0
            for reply in replies:
                with suppress(PeerError):
                    self._post(aggregator.receive(i, reply), inbox)
        if aggregator.state not in (AggregatorState.DONE, AggregatorState.ABORTED):
            self._post(aggregator.abort("the deadline of the run passed"), inbox)
            for i in inbox:  # whoever is there hears of it
                while inbox[i] and i not in away:
                    with suppress(Killed, PeerError):
                        self.deliver(i, inbox[i].popleft())
        return self._conclude(aggregator)

    def _mischief(self, i: int, away: dict[int, int]) -> None:
        kind = self.rng.randrange(5)
        if kind == 0:
            self.restart(i)
        elif kind in (1, 2):
            self.stores[i].die, self.stores[i].after = self.rng.randint(1, 3), kind == 2
        else:
            away[i] = 10**9 if kind == 3 and self.rng.random() < 0.1 else self.rng.randint(1, 30)

    def _post(self, out: list[Outgoing], inbox: dict[int, deque[bytes]]) -> None:
        for to, data in out:
            for i in inbox if to is None else (to,):
                inbox[i].append(data)

    def _conclude(self, aggregator: Aggregator) -> Outcome | Collected | None:
        """A result, where there is one, is on every member's account, each stamp under one company and weighting."""
        desk, run = aggregator.desk, aggregator.run
        if aggregator.state is AggregatorState.ABORTED:
            assert desk is None or desk.outcome is None and getattr(desk, "collected", None) is None
            self.reasons += aggregator.reasons
            return None
        assert aggregator.state is AggregatorState.DONE and len(run.members) >= self.rules.least_agents
        outcome = desk.outcome or desk.collected
        if run.announced.protocol not in ("blind", "collect"):
            return outcome
        rows, model = (outcome.kept, outcome.estimate.coefficients.alpha.tobytes()) if desk.outcome else (
            outcome.time, run.announced.fit)  # fmt: skip
        for stamp in rows.tolist():
            under = self.under.setdefault(stamp, (run.company, model))
            assert under == (run.company, model), "a row was opened under two companies or weightings"
        for i, member in enumerate(self.roster.members):
            if member in run.members:
                assert (written(self.stores[i]).account.asked(rows) > 0).all(), "a row opened that is not booked"
        return outcome
