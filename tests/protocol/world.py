"""A small world for `blind`: agents that vanish, return, restart and are killed, and a transport that forgets nothing.

Everything that leaves an agent passes `World.hand_out`, which checks what must hold for every message ever sent.
"""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from atdm.crypto.keys import SigningKey
from atdm.crypto.ring import WORD_BYTES
from atdm.data import Cluster
from atdm.errors import PeerError
from atdm.kernel.estimate import Nonnegative
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, State
from atdm.protocol.blind import Phase
from atdm.protocol.desk import Outcome, Outgoing
from atdm.protocol.exposure import stamps
from atdm.protocol.messages import Masked, Ready, ToAggregator
from atdm.protocol.observe import OUTSIDE_BASIS, Observed
from atdm.protocol.observe import Phase as Seen
from atdm.protocol.plan import AnyPlan, Candidate, ObservePlan, Plan, ProtocolName
from atdm.protocol.readings import Readings, seconds, window
from atdm.protocol.release import release_layout
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import OFFERED, Rules
from atdm.protocol.store import Memory, Store, decode_entry, decode_snapshot
from atdm.run import make_plan, weather_of

LOOSE = Rules(
    protocols=OFFERED, least_agents=3, rows_per_parameter=1, agents_per_total=1, leverage=1.0, colluders=0, dither=0
)
PATIENCE = 400  # deliveries without progress after which the run's deadline is taken to have passed
_decoder = msgspec.msgpack.Decoder(ToAggregator)


class Killed(Exception):
    """The process ended here."""


@dataclass
class Ram(Store):
    """A store that survives its agent. `die` counts down writes; at the last one the process is killed, just before
    the write or just after it."""

    snapshot: bytes | None = None
    entries: list[bytes] = field(default_factory=list)
    writes: int = 0
    die: int = 0
    after: bool = False

    def read(self) -> tuple[bytes | None, list[bytes]]:
        return self.snapshot, list(self.entries)

    def replace(self, snapshot: bytes) -> None:
        self._write(lambda: (setattr(self, "snapshot", snapshot), self.entries.clear()))

    def append(self, entry: bytes) -> None:
        self._write(lambda: self.entries.append(entry))

    def _write(self, write) -> None:
        self.writes += 1
        self.die -= 1
        if self.die != 0 or self.after:
            write()
        if self.die == 0:
            raise Killed


def with_candidates(plan: Plan, *models: tuple[int, float], horizon: int = 4, every: int = 4) -> Plan:
    """The same plan with these orders and ridges to choose from."""
    candidates = tuple(Candidate(order, ridge, plan.period) for order, ridge in models)
    return msgspec.structs.replace(plan, candidates=candidates, horizon=horizon, every=every)


def written(store: Store) -> Memory:
    """What is written down, without playing anything again."""
    snapshot, entries = store.read()
    memory = decode_snapshot(snapshot).memory
    for entry in entries:
        memory.exposure.apply(decode_entry(entry).bookings)
    return memory


class World:
    def __init__(self, cluster: Cluster, seed: int = 0, rules: Rules = LOOSE) -> None:
        self.rng = random.Random(seed)
        self.cluster, self.rules = cluster, rules
        draw = self.rng.randbytes
        self.authority = SigningKey(draw(32))
        keys = {name: SigningKey(draw(32)) for name in cluster.agents}
        self.roster = sign_roster(self.authority, [(n, str(cluster.owner[n]), keys[n].public) for n in cluster.agents])
        self.identities = [keys[member.name] for member in self.roster.members]
        self.secrets = [draw(32) for _ in keys]
        self.stores: list[Store] = [Ram() for _ in keys]
        self.agents: list[Agent | None] = [None] * len(keys)
        self.sent: dict[tuple, bytes] = {}  # agent, run, step → the one message
        self.totals_sent: dict[int, set[tuple]] = {}  # agent → messages with a total
        self.outcomes: list[tuple[set[int], Outcome | Observed]] = []
        self.reasons: list[str] = []
        self.attempts = 0
        self.restarts = 0
        self.renew: dict[int, Callable[[], Readings]] = {}  # agent → how it reads on

    def agent(self, i: int) -> Agent:
        """The running agent; built from its store where there is none."""
        if self.agents[i] is None:
            name = self.roster.members[i].name
            time = seconds(self.cluster.time)
            columns = (self.cluster.temperature[name].to_numpy(float), self.cluster.load[name].to_numpy(float))
            self.restarts += 1
            self.agents[i] = Agent(
                identity=self.identities[i], secret=self.secrets[i], roster=self.roster,
                authority=self.authority.public, readings=Readings(time, *columns),
                weather=weather_of(self.cluster), rules=self.rules, random_bytes=self.rng.randbytes,
                store=self.stores[i], renew=self.renew.get(i),
            )  # fmt: skip
        return self.agents[i]

    def restart(self, i: int) -> None:
        self.agents[i] = None

    def lose(self, i: int) -> None:
        """The agent's state is gone, and with it all it knows about what it has sent."""
        self.stores[i] = Ram()
        self.totals_sent.pop(i, None)
        self.restart(i)

    def plan(
        self, *, protocol: ProtocolName = "blind", rows: slice = slice(None), order: int = 1, ridge: float = 20.0,
        train: float = 0.75, nonnegative: Nonnegative = False,
    ) -> Plan:  # fmt: skip
        """A plan over some rows of what the agents have."""
        plan = make_plan(self.cluster, protocol, order=order, ridge=ridge, nonnegative=nonnegative, train=train)
        time = seconds(self.cluster.time)[rows]
        return msgspec.structs.replace(plan, start=int(time[0]), length=len(time))

    def observe_plan(self, fit: Aggregator, *, first: int = 0, length: int = 8) -> ObservePlan:
        """Rows after a fit, `first` of them left out."""
        plan = fit.run.plan
        start = plan.start + (plan.length + first) * plan.step_seconds
        return ObservePlan(fit=fit.run.id, step_seconds=plan.step_seconds, start=start, length=length)

    def window(self, rows: slice, cohorts: set[int] | None = None) -> Cluster:
        """The same rows as a cluster of its own, for an independent fit; all agents, or those of some cohorts."""
        c = self.cluster
        whole = Cluster.from_frames(
            c.temperature.iloc[rows], c.load.iloc[rows], c.outdoor.iloc[rows], c.solar.iloc[rows], owner=c.owner
        )
        return whole.select([m.name for m in self.roster.members if cohorts is None or m.cohort in cohorts])

    def aggregator(self, plan: AnyPlan, cohorts: set[int] | None = None) -> Aggregator:
        everybody = {member.cohort for member in self.roster.members}
        self.attempts += 1
        self.last_plan = plan
        return Aggregator(
            plan=plan, roster=self.roster, cohorts=cohorts or everybody, weather=weather_of(self.cluster),
            attempt=self.attempts,
        )  # fmt: skip

    def deliver(self, i: int, data: bytes) -> list[bytes]:
        """One message to one agent; what it hands out is checked here and nowhere else."""
        try:
            replies = self.agent(i).receive(data)
        except Killed:
            self.restart(i)
            raise
        for reply in replies:
            self.hand_out(i, reply)
        return replies

    def hand_out(self, i: int, reply: bytes) -> None:
        message = _decoder.decode(reply)
        if isinstance(message, Ready):
            key: tuple = (i, "ready", self.attempts)
        elif isinstance(message, Masked):
            key = (i, message.run, message.step)
        else:
            return
        known = self.sent.setdefault(key, reply)
        assert known == reply, f"agent {i} sent two different messages under one context"
        if isinstance(message, Masked):
            self._charged_first(i, key, message)

    def _charged_first(self, i: int, key: tuple, message: Masked) -> None:
        exposure = written(self.stores[i]).exposure
        if message.phase == Phase.BASIS:  # covers all rows of the plan
            self.totals_sent.setdefault(i, set()).add((key, self.last_plan))
        sent = self.totals_sent.get(i, set())
        seen = Counter(stamp for _, plan in sent for stamp in window(plan).tolist())
        totals = dict(zip(exposure.time.tolist(), exposure.totals.tolist(), strict=True))
        assert all(totals[stamp] >= times for stamp, times in seen.items()), "a total left before it was charged"
        assert len(exposure.book) >= len(sent) + (message.phase == Phase.EXTEND), "a total left before it was charged"
        if message.phase == Phase.RELEASE:
            rows = (len(message.words) // WORD_BYTES - release_layout(self.last_plan, 0).words) // 2
            assert len(exposure.released) >= rows, "consent to a release left before it was booked"
        if message.phase == Seen.SHOW:
            last = exposure.book[-1] if exposure.book else None
            assert last is not None and last.rank == OUTSIDE_BASIS, "a row left before it was charged"
            assert set(stamps(last.rows).tolist()) <= set(exposure.released.tolist()), "a row left before it was booked"

    def run(
        self, aggregator: Aggregator, chaos: float = 0.0, gone: set[int] | None = None
    ) -> Outcome | Observed | None:
        """Carry messages until the run is over. chaos: share of deliveries at which something happens to an agent;
        gone: agents that do not answer any more. An agent's message stays in its queue until it was answered."""
        place = {member.name: i for i, member in enumerate(self.roster.members)}
        members = [place[member.name] for member in aggregator.members]
        inbox: dict[int, deque[bytes]] = {i: deque() for i in range(len(self.roster))}
        away: dict[int, int] = {i: 10**9 for i in gone or ()}  # agent → deliveries until it is back
        self._post(aggregator.start(), members, inbox)
        idle = 0
        while any(inbox[i] for i in members) and idle < PATIENCE:
            away = {i: left - 1 for i, left in away.items() if left > 1}
            idle += 1
            waiting = [i for i in members if inbox[i] and i not in away]
            if not waiting:
                continue
            i = self.rng.choice(waiting)
            if self.rng.random() < chaos:
                self._mischief(i, away, aggregator)
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
                self._post(self._to_aggregator(aggregator, members.index(i), reply), members, inbox)
        if aggregator.state not in (State.DONE, State.ABORTED):
            self._post(aggregator.abort("the deadline of the run passed"), members, inbox)
            for i in members:  # whoever is there hears of it
                while inbox[i] and i not in away:
                    self._last_words(i, inbox[i].popleft())
        return self._conclude(aggregator)

    def _mischief(self, i: int, away: dict[int, int], aggregator: Aggregator) -> None:
        kind = self.rng.randrange(5)
        if kind == 0:
            self.restart(i)
        elif kind in (1, 2):
            self.stores[i].die, self.stores[i].after = self.rng.randint(1, 3), kind == 2
        else:
            away[i] = 10**9 if kind == 3 and self.rng.random() < 0.1 else self.rng.randint(1, 30)

    def _to_aggregator(self, aggregator: Aggregator, sender: int, reply: bytes) -> list[Outgoing]:
        try:
            return aggregator.receive(sender, reply)
        except PeerError:
            return []

    def _last_words(self, i: int, data: bytes) -> None:
        try:
            self.deliver(i, data)
        except (Killed, PeerError):
            pass

    def _post(self, out: list[Outgoing], members: list[int], inbox: dict[int, deque[bytes]]) -> None:
        for to, data in out:
            for i in members if to is None else (members[to],):
                inbox[i].append(data)

    def _conclude(self, aggregator: Aggregator) -> Outcome | Observed | None:
        cohorts = {member.cohort for member in aggregator.members}
        assert {m for m in self.roster.members if m.cohort in cohorts} == set(aggregator.members), "a split cohort"
        if aggregator.state is State.ABORTED:
            assert aggregator.desk is None or aggregator.desk.outcome is None
            assert getattr(aggregator.desk, "observed", None) is None
            self.reasons += aggregator.reasons
            return None
        assert aggregator.state is State.DONE and len(aggregator.members) >= self.rules.least_agents
        outcome = aggregator.desk.outcome or aggregator.desk.observed
        self.outcomes.append((cohorts, outcome))
        for i, member in enumerate(self.roster.members):
            if member.cohort in cohorts and self.last_plan.protocol in ("blind", "observe"):
                assert set(outcome.time.tolist()) <= set(written(self.stores[i]).exposure.released.tolist())
        shown = [stamp for _, each in self.outcomes for stamp in each.time.tolist()]
        assert len(shown) == len(set(shown)), "a row was released twice"
        return outcome

    def charges(self, i: int) -> list[tuple[int, int]]:
        """(rank, number of rows) of every total an agent has on its account."""
        return [(c.rank, len(stamps(c.rows))) for c in written(self.stores[i]).exposure.book]
