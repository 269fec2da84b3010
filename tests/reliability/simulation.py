"""A whole deployment in one loop, driven by a seed: messages are delayed, reordered, sent twice, lost, altered, sent to
the wrong party or again from an earlier run; agents are away, lack readings, are killed at a write, restarted or lose
their disk; the aggregator is restarted, chooses companies, and asks the same or something else over the same days.

    python -m tests.reliability.simulation SEED [SEED …]     replays runs and says how each ended
    python -m tests.reliability.simulation --runs 1000 [--from SEED] [--processes 2] [--record FILE]
                                                             a series; with a record it goes on where it was stopped

Every run either ends with the right numbers of its company (`_check_fit`, `_check_rows`) or without a result. What must
hold for every message ever handed out is checked where it is handed out (`hand_out`), from what the simulation itself
knows of companies and days, and what must hold for an account after every run (`_check_accounts`).

Words of `moments`, of `paper` and of collected rows carry no check words: an altered one would be an altered reading of
that agent. The channel protects them (TLS): here they are lost, cut or replaced by garbage, but no bit is flipped.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import msgspec
import numpy as np

import atdm
from atdm.crypto import ring
from atdm.crypto.keys import SigningKey
from atdm.data import Cluster
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.kernel.descent import Status
from atdm.protocol.account import BLOCK, HOLE, MOST_ASKINGS, Answered, Settled, Shown
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.blind.layouts import LOAD_BOUND, TEMP_BOUND, TOTAL_BITS
from atdm.protocol.collect import Collected
from atdm.protocol.desk import Outcome, Outgoing
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import Answer, Consent, Masked, Ready, Release, ToAggregator
from atdm.protocol.options import fit_options
from atdm.protocol.part import Host
from atdm.protocol.plain import fit_plain
from atdm.protocol.plan import DAY, MOST_SIGNS, AnyPlan, Collect, Plan
from atdm.protocol.readings import Readings, positions, seconds, window
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import Rules
from atdm.protocol.store import answer_hash, decode_entry, decode_snapshot
from atdm.protocol.sums import BLIND_BUDGET, OPEN_BUDGET
from atdm.run import make_plan, weather_of
from tests.clusters import tiny
from tests.protocol.world import Killed, Ram, written

DAYS, STEP = 12, 6 * 3600  # s; four rows a day
ROWS = DAYS * DAY // STEP
FITTED = 9  # days of a fit
FIRST_DAY = 19740 - 5  # a block of companies ends after five of them
FAULTS = (
    "delay", "duplicate", "drop", "alter", "misdeliver", "replay", "kill", "restart", "lose disk", "aggregator", "away",
)  # fmt: skip
ENDS = ("converged", "capped", "rows", "rows of a fit", "no rows", "no result")
KINDS = ("fitted", "fitted", "fitted", "equal", "equal", "moments", "paper")
TRIES = 8  # of one message
MOST_STEPS = 20_000  # events of one attempt; a run takes a few hundred
CLUSTERS = 4  # for each number of agents, so that plain fits are found once
FEW = (3, *[4] * 6, *[5] * 7, *[6] * 6, 7, 7, 8, 9)  # agents of most runs
MANY = range(10, 65)  # of every 40th: one of 64 agents costs as much as twenty of 5
MANY_EVERY = 40
LONG = 1_000_000  # the first seed of `make soak`
CHUNK = 100  # seeds that a process takes at a time
ROOMS = ("crypto", "data", "kernel", "protocol")  # whose code a simulated run is made of
# Of coefficients against a plain fit, where the agents' limits are lifted; docs/spec.md. Ten times as much for θ, whose
# input is a tenth of the others: a few rows hardly determine it. `paper` keeps 1e-6 unless an agent's random matrix is
# nearly singular, which happens: 1.7e-6 once in 7000 runs of a few agents.
TOLERANCE = {"blind": 3e-4, "moments": 1e-6, "paper": 1e-5}
_decoder = msgspec.msgpack.Decoder(ToAggregator)
Company = frozenset[int]  # places in the roster


class Wrong(AssertionError):
    """Something that must never happen did."""


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


@cache
def cluster_of(agents: int, number: int) -> Cluster:
    made = tiny(100 * agents + number, agents=agents, rows=ROWS)
    moved = made.time[0].normalize() + (made.time - made.time[0]) + np.timedelta64(FIRST_DAY - 19723, "D")
    frames = [frame.set_axis(moved.rename("time")) for frame in (made.temperature, made.load, made.outdoor, made.solar)]
    return Cluster.from_frames(*frames, owner=made.owner)


@dataclass(slots=True, eq=False)
class Letter:
    """A message under way. to: an agent's place, or −1−place for what an agent sent to the aggregator."""

    to: int
    data: bytes
    attempt: int
    tries: int = 0


@dataclass(slots=True)
class Life:
    """What the simulation knows an agent to have given since it last lost its disk, whatever its account says."""

    company: dict[int, Company] = field(default_factory=dict)  # by day
    ways: dict[int, str] = field(default_factory=dict)  # of weighting, by day
    runs: dict[int, set[bytes]] = field(default_factory=dict)  # by stamp: in which its row was shown


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.kind = rng.choice(KINDS)
        self.size, self.number = rng.choice(FEW if seed % MANY_EVERY else MANY), rng.randrange(CLUSTERS)
        self.nonnegative = self.kind in ("fitted", "moments") and rng.random() < 0.1
        self.lifted = rng.random() < 0.6  # the agents' limits, so that the result is the plain fit
        few = self.kind in ("fitted", "equal") and rng.random() < 0.03
        self.rate = rng.choice((0.0, 0.002, 0.005, 0.01, 0.03, 0.1))
        self.faults = rng.sample(FAULTS, rng.randint(1, len(FAULTS)))
        self.patient = rng.random() < 0.8  # whether what was lost is sent again
        self.careless = rng.random() < 0.1  # whether the operator's companies follow no policy
        self.cluster = cluster_of(self.size, self.number)
        self.weather, self.time = weather_of(self.cluster), seconds(self.cluster.time)
        limits = dict(totals=40, agents_per_total=1, clip=1e9) if self.lifted else dict(agents_per_total=2)
        limits["solver_tolerance"] = 0.0
        self.rules = Rules(
            protocols=(self.kind,) if self.kind in ("moments", "paper") else ("blind",), weights="fitted",
            least_agents=self.size + 1 if few else 3, rows_per_parameter=1, colluders=0, dither=0, **limits,
        )  # fmt: skip
        authority = SigningKey(rng.randbytes(32))
        keys = {name: SigningKey(rng.randbytes(32)) for name in self.cluster.agents}
        self.roster = sign_roster(authority, [(n, n, keys[n].public) for n in keys])
        self.keys = [keys[member.name] for member in self.roster.members]
        self.place = {key.public: i for i, key in enumerate(self.keys)}
        self.secrets = [rng.randbytes(32) for _ in keys]
        self.stores = [Ram() for _ in keys]
        self.agents: list[Agent | None] = [None] * len(keys)
        self.readings = [self._readings(i) for i in range(self.size)]
        shared = Host() if rng.random() < 0.5 else None
        self.hosts = [shared if shared is not None else Host() for _ in keys]
        self.sent: dict[tuple, bytes] = {}
        self.masked: dict[tuple[bytes, int], set[int]] = {}  # run, step → agents whose words left
        self.lives = [Life() for _ in keys]
        self.fits: list[tuple[bytes, Company, dict[int, float]]] = []  # run, company, weights by place
        self.opened: dict[int, tuple] = {}  # stamp → company and numbers it was opened with
        self.models: dict[int, tuple] = {}  # day → numbers released over it
        self.air: list[Letter] = []
        self.lost: list[Letter] = []
        self.old: list[Letter] = []
        self.wiped: set[int] = set()
        self.attempt = 0
        self.seen: Counter = Counter()

    def _readings(self, i: int) -> Readings:
        """All rows, or without some: single ones, or a day and a half."""
        name, rng, rows = self.roster.members[i].name, self.rng, np.arange(ROWS)
        if rng.random() < 0.05:
            rows = np.delete(rows, rng.sample(range(ROWS), 2))
        if rng.random() < 0.05:
            first = rng.randrange(ROWS - 6)
            rows = np.setdiff1d(rows, np.arange(first, first + 6))
        columns = (self.cluster.temperature[name].to_numpy(float), self.cluster.load[name].to_numpy(float))
        return Readings(self.time, *columns).at(rows)

    def agent(self, i: int) -> Agent:
        if self.agents[i] is None:
            self.agents[i] = Agent(
                identity=self.keys[i], secret=self.secrets[i], roster=self.roster, authority=self.roster.authority,
                readings=self.readings[i], weather=self.weather, rules=self.rules, random_bytes=self.rng.randbytes,
                store=self.stores[i], host=self.hosts[i],
            )  # fmt: skip
        return self.agents[i]

    # What is asked, and of whom

    def _plan(self, days: range, ridge: float = 20.0) -> Plan:
        """A fit over days of the cluster."""
        protocol = self.kind if self.kind in ("moments", "paper") else "blind"
        nonnegative = "ridge" if self.nonnegative else False
        options = dict(order=1, ridge=ridge, nonnegative=nonnegative, solver_tolerance=5e-5)
        plan = make_plan(self.cluster, fit_options(protocol=protocol, **options), self.rules)
        plan = msgspec.structs.replace(plan, start=plan.start + days.start * DAY, length=len(days) * DAY // STEP)
        rows = window(plan)
        return msgspec.structs.replace(plan, weather=self.weather.hash(int(rows[0]), int(rows[-1])))

    def _rows(self, days: range, fit: bytes = b"") -> Collect:
        start = int(self.time[0]) + days.start * DAY
        return Collect(step_seconds=STEP, start=start, length=len(days) * DAY // STEP, fit=fit)

    def askings(self) -> list[AnyPlan]:
        """What is asked first; more depends on what came of it."""
        if self.kind == "equal":
            cuts = sorted({0, DAYS, *self.rng.sample(range(1, DAYS), self.rng.randint(0, 3))})
            stretches = [range(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
            self.rng.shuffle(stretches)
            return [self._rows(days) for days in stretches]
        return [self._plan(range(0, DAYS if self.kind in ("moments", "paper") else FITTED))]

    def _another(self, plan: AnyPlan) -> AnyPlan:
        """The same question, or one that the agents' accounts have to judge."""
        rng = self.rng
        if self.kind in ("moments", "paper") or rng.random() < 0.35:
            return plan
        if self.kind == "equal":
            return self._rows(range(rng.randrange(6), rng.randint(7, DAYS)))
        if self.fits and rng.random() < 0.6:
            return self._rows(range(FITTED, rng.randint(FITTED + 1, DAYS)), rng.choice(self.fits)[0])
        return rng.choice((
            self._plan(range(0, FITTED), ridge=21.0),
            self._plan(range(rng.randrange(3), DAYS)),
            self._rows(range(rng.randrange(DAYS), DAYS)),
        ))  # fmt: skip

    def _careless(self, answers: Mapping[int, np.ndarray], *_) -> tuple[list[int], np.ndarray]:
        """An operator's choice that follows no policy."""
        company = sorted(self.rng.sample(sorted(answers), self.rng.randint(-(-len(answers) // 2), len(answers))))
        if len(company) < 2:
            raise RunAborted("nobody to sum with")
        return company, np.logical_and.reduce([answers[place] for place in company])

    # What must hold for whatever an agent hands out

    def hand_out(self, i: int, replies: list[bytes]) -> None:
        for reply in replies:
            message = _decoder.decode(reply)
            if isinstance(message, Ready):
                self.seen["ready"] += 1
            elif isinstance(message, Masked | Release | Consent | Answer):
                key = (i, type(message), message.run, message.step)
                need(self.sent.setdefault(key, reply) == reply, f"agent {i} sent two messages under one context")
            if isinstance(message, Masked | Release):
                self.masked.setdefault((message.run, message.step), set()).add(i)
                self._words(i, message, replies)
            if isinstance(message, Consent):
                there = self.masked[message.run, message.step] | {i}  # it may have died before sending its own
                missing = self.size_of(message.run) - len(there)
                need(missing == 0, f"agent {i} consented while {missing} had sent nothing")

    def size_of(self, run: bytes) -> int:
        return len(self.role.run.members) if self.role.run is not None and self.role.run.id == run else 0

    def _words(self, i: int, message: Masked | Release, replies: list[bytes]) -> None:
        """Words leave: written down first, with what they cost; to a company and on days that this agent may give."""
        store = self.stores[i]
        if not store.entries and store.snapshot and list(decode_snapshot(store.snapshot).replies) == replies:
            return  # sent again: killed while joining the next run, it still has the last answer of the one before
        need(bool(store.entries), "words left before anything was written down")
        entry = decode_entry(store.entries[-1])
        need(entry.answer == answer_hash(replies), "words left that are not the ones written down")
        run = self.role.run
        if run is None or run.id != message.run:
            return  # of a run whose aggregator is gone
        company = frozenset(self.place[member.identity] for member in run.members)
        need(len(company) >= self.rules.least(run.announced.protocol), "words left in a run of too few agents")
        need(3 * len(company) >= 2 * self.size, "words left in a run of less than two thirds")
        phase = getattr(message, "phase", "release")
        booked = {type(booking): booking for booking in entry.bookings}
        if run.announced.protocol == "collect":
            if phase == "show":
                need(Shown in booked and Settled in booked, "rows left before they were booked")
                self._given(i, run.id, self.role.desk._rows, company, run.announced.fit.hex() or "equal")
        elif run.announced.protocol == "blind" and phase not in ("rows",):
            kinds = {"open": "open", "step": "total", "signs": "signs", "release": "release"}
            need(Answered in booked and booked[Answered].kind == kinds[phase], f"{phase} left before it was booked")
            if phase == "open":
                need(Settled in booked, "readings left before their days were settled")
                self._given(i, b"", self.agent(i).part.kept, company, "fitted")
            if phase == "release":
                need(Shown in booked, "a release left before it was booked")
                self._given(i, run.id, self.agent(i).part.kept, company, "fitted")

    def _given(self, i: int, run: bytes, rows: np.ndarray, company: Company, way: str) -> None:
        """The rules of companies and days, written down a second time."""
        life = self.lives[i]
        for day in np.unique(rows // DAY).tolist():
            need(life.company.setdefault(day, company) == company, f"agent {i} summed a day with two companies")
            need(life.ways.setdefault(day, way) == way, f"agent {i} showed a day under two weightings")
            for other, known in life.company.items():
                if other // BLOCK == day // BLOCK:
                    larger, smaller = (known, company) if other < day else (company, known)
                    need(smaller <= larger, f"companies of agent {i} grew within a block")
            for beside, near in ((day - 1, day * DAY - rows), (day + 1, rows - (day + 1) * DAY)):
                if life.company.get(beside, company) != company and not self._before(life, day, beside):
                    own = rows // DAY == day
                    need(bool((np.abs(near[own]) >= HOLE).all()), f"agent {i} gave a row beside a change of company")
        for stamp in rows.tolist() if run else ():
            life.runs.setdefault(stamp, set()).add(run)
            need(len(life.runs[stamp]) <= MOST_ASKINGS, f"agent {i} showed a stamp too often")

    @staticmethod
    def _before(life: Life, day: int, other: int) -> bool:
        """Whether a day was settled before the other: then its rows were given when there was no change to see."""
        order = list(life.company)
        return order.index(day) < order.index(other)

    # The loop

    def run(self) -> Counter:
        """A few askings, one after the other; returns what was seen."""
        plans, most = self.askings(), 6 if self.kind == "equal" else 3 if self.kind == "fitted" else 2
        while plans and self.attempt < most:
            plan = plans.pop(0)
            outcome = self._attempt(plan)
            self.seen["attempts"] += 1
            if outcome is None:
                self.seen["no result"] += 1
            elif isinstance(outcome, Collected):
                self.seen["no rows" if not len(outcome.time) else "rows of a fit" if plan.fit else "rows"] += 1
                self._check_rows(outcome, plan)
            else:
                self._check_fit(outcome, plan)
            self._check_accounts()
            if not plans and (outcome is None or self.rng.random() < 0.7):
                plans.append(self._another(plan))
        return self.seen

    def _attempt(self, plan: AnyPlan) -> Outcome | Collected | None:
        self.attempt += 1
        self.absent = {i for i in range(self.size) if "away" in self.faults and self.rng.random() < 0.1}
        self.seen["away"] += len(self.absent)
        policy = dict(choose=self._careless) if self.careless else {}
        self.role = Aggregator(
            plan=plan, roster=self.roster, weather=self.weather, attempt=self.attempt, least=3, **policy
        )
        self._post(self.role.start())
        resent, steps = 0, 0
        while self.role.state in (AggregatorState.GATHERING, AggregatorState.RUNNING):
            steps += 1
            need(steps < MOST_STEPS, "the run does not end")
            if not self.air:
                if self.lost and self.patient and resent <= 200:
                    self.air, self.lost, resent = self.lost, [], resent + 1
                elif self.role.state is AggregatorState.GATHERING:
                    self._post(self.role.close())  # who has not answered is out
                    continue
                else:
                    self._post(self.role.abort("the deadline passed"))
                    break
            if not self._event():
                break
        for letter in [one for one in self.air if one.to >= 0]:  # whoever is there hears the end
            self.air.remove(letter)
            self._deliver(letter)
        if self.role.state is not AggregatorState.DONE:
            return None
        return self.role.desk.outcome or self.role.desk.collected

    def _event(self) -> bool:
        """One thing happens. False: the aggregator is gone."""
        rng = self.rng
        letter = self.air[rng.randrange(len(self.air))] if "delay" in self.faults else self.air[0]
        if rng.random() >= self.rate:
            self.air.remove(letter)
            self._deliver(letter)
            return True
        fault = rng.choice(self.faults)
        self.seen[fault] += 1
        if fault == "aggregator":
            self.role.state = AggregatorState.ABORTED  # its process is gone: agents hear nothing more of this run
            return rng.random() < 0.8
        victim = rng.randrange(self.size)
        if fault == "duplicate":
            self.air.append(Letter(letter.to, letter.data, letter.attempt))
        elif fault == "drop":
            self.air.remove(letter)
            self.lost.append(letter)
        elif fault == "alter":
            self._deliver(Letter(letter.to, self._altered(letter), letter.attempt), true=False)
        elif fault == "misdeliver":
            to = rng.randrange(self.size)
            self._deliver(Letter(to if letter.to >= 0 else -1 - to, letter.data, letter.attempt), true=letter.to >= 0)
        elif fault == "replay" and self.old:
            self._deliver(rng.choice(self.old))
        elif fault == "kill":
            self.stores[victim].die, self.stores[victim].after = rng.randint(1, 2), rng.random() < 0.5
        elif fault == "restart":
            self.agents[victim] = None
        elif fault == "away":
            self.absent.add(victim)
        elif fault == "lose disk" and rng.random() < 0.2:
            self.stores[victim], self.agents[victim], self.lives[victim] = Ram(), None, Life()
            self.wiped.add(victim)
        return True

    def _altered(self, letter: Letter) -> bytes:
        data, rng = letter.data, self.rng
        way = rng.randrange(4)
        if way == 0:
            return data[: rng.randrange(len(data) + 1)]
        if way == 1:
            return rng.randbytes(rng.randrange(1, 200))
        if way == 2:
            return data + rng.randbytes(rng.randint(1, 9))
        if letter.to < 0 and self.role._announce.plan.protocol != "blind":
            if isinstance(_decoder.decode(data), Masked | Answer):
                return data[:-1]
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]

    def _deliver(self, letter: Letter, *, true: bool = True) -> None:
        if len(self.old) < 400:
            self.old.append(letter)
        if letter.to < 0:
            self._to_aggregator(letter, true)
            return
        i = letter.to
        if i in self.absent:
            return
        try:
            replies = self.agent(i).receive(letter.data)
        except PeerError:
            self._send_again(letter, true)
            return
        except Killed:
            self.agents[i] = None
            self._send_again(letter, true)
            return
        self.hand_out(i, replies)
        self.air += [Letter(-1 - i, reply, self.attempt) for reply in replies]

    def _to_aggregator(self, letter: Letter, true: bool) -> None:
        if letter.attempt != self.attempt and self.rng.random() < 0.5:
            return  # most transports drop what belongs to a connection that is gone
        try:
            self._post(self.role.receive(-1 - letter.to, letter.data))
        except PeerError:
            self._send_again(letter, true)
        except UsageError as error:  # too few rows for the model of moments or paper: the operator is told
            need(self.kind in ("moments", "paper") and "training rows" in str(error), str(error))
            self._post(self.role.abort(str(error)))

    def _send_again(self, letter: Letter, true: bool) -> None:
        """What was not taken comes again, as from transport/nats.py, until it is taken or the run is another."""
        letter.tries += 1
        if true and letter.attempt == self.attempt and letter.tries < TRIES:
            self.lost.append(letter)

    def _post(self, out: list[Outgoing]) -> None:
        for to, data in out:
            self.air += [Letter(i, data, self.attempt) for i in (range(self.size) if to is None else (to,))]

    # The oracle

    def _company(self) -> list[int]:
        company = [self.place[member.identity] for member in self.role.members]
        need(len(company) >= self.rules.least(self.role.run.announced.protocol), "a result of too few agents")
        return company

    def _columns(self, company: list[int], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Temperature and load as they were measured, by row and member."""
        at = [positions(self.readings[i].time, rows) for i in company]
        need(all((each >= 0).all() for each in at), "a row that a member lacks")
        temperature = [self.readings[i].temperature[each] for i, each in zip(company, at, strict=True)]
        load = [self.readings[i].load[each] for i, each in zip(company, at, strict=True)]
        return np.array(temperature).T, np.array(load).T

    def _same_as_before(self, rows: np.ndarray, numbers: np.ndarray, company: list[int]) -> None:
        """A stamp that opens again opens to the same numbers, unless every member of then and now lost its disk."""
        for stamp, *found in zip(rows.tolist(), *numbers, strict=True):
            members, known = self.opened.setdefault(stamp, (frozenset(company), found))
            remember = (members | frozenset(company)) - self.wiped
            need(known == found or not remember & members, f"stamp {stamp} opened to other numbers than before")

    def _check_rows(self, outcome: Collected, plan: Collect) -> None:
        company = self._company()
        temperature, load = self._columns(company, outcome.time)
        weights = np.ones(len(company))
        if plan.fit:
            known = next(found for run, _, found in self.fits if run == plan.fit)
            if set(known) != set(company):
                return  # somebody lost its disk, and its weight with it
            weights = np.array([known[i] for i in company])
        state = exact_sum(weights * (temperature - 20.0), TEMP_BOUND, BLIND_BUDGET, TOTAL_BITS if plan.fit else 63)
        state = state + 20.0 if plan.fit else state / len(company) + 20.0
        need(np.array_equal(outcome.state, state), "the state is not the weighted sum over the company")
        total = exact_sum(load, LOAD_BOUND, BLIND_BUDGET)
        need(np.array_equal(outcome.load, total), "the load is not the exact sum over the company")
        self._same_as_before(outcome.time, (outcome.state, outcome.load), company)

    def _check_fit(self, outcome: Outcome, plan: Plan) -> None:
        company, blind = self._company(), plan.protocol == "blind"
        temperature, load = self._columns(company, outcome.kept)
        estimate = outcome.estimate
        self.seen[str(estimate.status)] += 1
        exact = exact_sum(load, LOAD_BOUND, BLIND_BUDGET if blind else OPEN_BUDGET)
        need(np.array_equal(outcome.load, exact), "the load is not the exact sum over the company")
        if blind:
            self._check_released(outcome, plan, company, temperature)
        if estimate.status is not Status.CONVERGED:
            need(blind and estimate.status is Status.CAPPED, f"status {estimate.status}")
            return
        if blind and not self.lifted:
            return
        found, _ = fit_plain(plan, outcome.kept, temperature, load, self.weather, Notebook("aggregator"))
        for name, size in (("alpha", 1), ("beta", 1), ("gamma", 1), ("theta", 10)):
            mine, theirs = (getattr(each.estimate.coefficients, name) for each in (outcome, found))
            near = np.abs(mine - theirs).max() <= size * TOLERANCE[plan.protocol]
            need(near, f"{name} is not that of the plain fit")
        need(estimate.ridge == found.estimate.ridge, "another ridge than the plain fit")

    def _check_released(self, outcome: Outcome, plan: Plan, company: list[int], temperature: np.ndarray) -> None:
        """The state is that of the agents' weights, the model that of the state, and the only one over its days."""
        run, estimate = self.role.run.id, outcome.estimate
        weights = {i: weight for i in company if (weight := self._weight(i, run)) is not None}
        self.fits.append((run, frozenset(company), weights))
        if len(weights) == len(company):
            own = np.array([weights[i] for i in company])
            need(abs(own.sum() - 1.0) < 1e-6, "the weights do not add up to one")
            need(np.abs(temperature @ own - estimate.state).max() < 2e-3, "the state is not that of the weights")
        rss = regression_rss(plan, outcome, self.weather)
        need(abs(rss - estimate.rss) <= 1e-8 * (1 + rss), "the model is not that of the state")
        numbers = tuple(p.tobytes() for p in (outcome.kept, estimate.state, *estimate.coefficients.parts()))
        for day in np.unique(outcome.kept // DAY).tolist():
            members, known = self.models.setdefault(day, (frozenset(company), numbers))
            need(known == numbers or members <= self.wiped, "two models were released over one day")
        self._same_as_before(outcome.kept, (estimate.state, outcome.load), company)

    def _weight(self, i: int, run: bytes) -> float | None:
        """The agent's own weight in a fit; None where it lost its disk."""
        agent = self.agent(i)
        if agent.part is not None and agent.part.session.run.id == run:
            return agent.part.weight
        return agent.own.memory.fits[run].weight if run in agent.own.memory.fits else None

    def _check_accounts(self) -> None:
        """No account is beyond a limit, and each has at least what the simulation saw its agent give."""
        for i, (store, life) in enumerate(zip(self.stores, self.lives, strict=True)):
            if store.snapshot is None:
                continue
            account = written(store).account
            most = self.rules.totals_for(self.size)
            for known in account.days.values():
                need(known.totals <= most and known.signs <= MOST_SIGNS, f"agent {i} gave more than a day has room for")
            need(set(life.company) <= {day for day, known in account.days.items() if known.company}, "not settled")
            need(max(account.questions.values(), default=0) <= MOST_ASKINGS, f"agent {i} answered a question too often")
            need(int(account.shown.max(initial=0)) <= MOST_ASKINGS, f"agent {i} showed a stamp too often")


def exact_sum(values: np.ndarray, bound: float, budget: int, most: int = 63) -> np.ndarray:
    """Σ over the columns as fixed point gives it, in Python's integers."""
    bits = min(most, ring.fractional_bits(values.shape[1], bound, budget))
    return np.array([sum(round(value * 2**bits) for value in row) / 2**bits for row in values.tolist()])


def regression_rss(plan: Plan, outcome: Outcome, weather) -> float:
    """What least squares of s_t − α s_{t−1} on lags of h, o, r and the season leaves over the training rows."""
    rows, s = outcome.kept, outcome.estimate.state
    at = positions(weather.time, rows)
    inputs = (outcome.load, weather.outdoor[at], weather.solar[at])
    used = [t for t in range(1, int(round(len(rows) * plan.train, 9))) if rows[t] - rows[t - 1] == plan.step_seconds]
    season = [[float(rows[t] // plan.step_seconds % plan.period == k) for k in range(plan.period)] for t in used]
    design = np.hstack([np.array([[each[t - m] for each in inputs for m in (0, 1)] for t in used]), season])
    target = np.array([s[t] - outcome.estimate.coefficients.alpha[0] * s[t - 1] for t in used])
    left = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(left @ left)


def simulate(seed: int) -> Counter:
    """One seed; a failure carries the command that replays it."""
    try:
        return Simulation(seed).run()
    except Exception as error:
        command = f"python -m tests.reliability.simulation {seed}"
        raise Wrong(f"seed {seed}: {type(error).__name__}: {error}\nreplay: {command}") from error


@dataclass(frozen=True)
class Chunk:
    """What was seen in some seeds after another, and which of them went wrong."""

    first: int
    runs: int
    seen: Counter
    wrong: tuple[str, ...] = ()


def simulate_many(first: int, runs: int = CHUNK) -> Chunk:
    seen, wrong = Counter(), []
    for seed in range(first, first + runs):
        try:
            seen += simulate(seed)
        except Wrong as error:
            wrong.append(str(error))
    return Chunk(first, runs, seen, tuple(wrong))


def source_hash() -> str:
    """A series is one of one source, as far as it runs here: a record of another is not gone on with."""
    package = Path(atdm.__file__).parent
    files = sorted([*(f for room in ROOMS for f in (package / room).rglob("*.py")), package / "run.py", Path(__file__)])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def recorded(record: Path, source: str) -> dict[int, Chunk]:
    """Chunks of this source that a record holds, by their first seed. A line cut short is not there."""
    known: dict[int, Chunk] = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        with suppress(ValueError):
            found = json.loads(line)
            if found.pop("source") == source:
                known[found["first"]] = Chunk(**{**found, "seen": Counter(found["seen"])})
    return known


def series(first: int, runs: int, processes: int = 1, record: Path | None = None) -> list[Chunk]:
    """Chunk after chunk in processes of their own; each is recorded as it ends and, in the next call, not run again."""
    source = source_hash()
    known = recorded(record, source) if record is not None else {}
    starts = range(first, first + runs, CHUNK)
    done = [known[start] for start in starts if start in known]
    left = [(start, min(CHUNK, first + runs - start)) for start in starts if start not in known]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for task in as_completed([pool.submit(simulate_many, *each) for each in left]):
            chunk = task.result()
            done.append(chunk)
            for failure in chunk.wrong:
                print(failure, flush=True)
            if record is not None:
                record.parent.mkdir(parents=True, exist_ok=True)
                with record.open("a") as file:  # a line of its own, also after one that was cut short
                    file.write("\n" + json.dumps({"source": source, **vars(chunk)}))
    return done


def summary(chunks: list[Chunk]) -> str:
    """The figures of docs/reliability.md."""
    seen = sum((chunk.seen for chunk in chunks), Counter())
    runs, wrong = sum(chunk.runs for chunk in chunks), sum(len(chunk.wrong) for chunk in chunks)
    ends = ", ".join(f"{seen[key]} {key}" for key in ENDS)
    return f"{wrong} wrong of {runs} runs; {seen['attempts']} attempts: {ends}; faults: " + ", ".join(
        f"{seen[fault]} {fault}" for fault in FAULTS
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    for seed in args.seeds:
        one = Simulation(seed)
        print(f"seed {seed}: {one.kind}, {one.size} agents, rate {one.rate}, {', '.join(one.faults)}")
        print(dict(one.run()))
    if not args.runs:
        return 0
    began = time.monotonic()
    chunks = series(args.first, args.runs, args.processes, args.record)
    print(f"seeds from {args.first}: {summary(chunks)}")
    print(f"{time.monotonic() - began:.0f} s in {args.processes} processes")
    return int(any(chunk.wrong for chunk in chunks))


if __name__ == "__main__":
    sys.exit(main())
