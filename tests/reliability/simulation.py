"""Whole deployments in one loop, driven by a seed: messages are delayed, reordered, sent twice, lost, altered, sent to
the wrong party or again from an earlier run; agents are away, lack readings, are killed at a write, restarted or lose
their disk; the aggregator is restarted, chooses companies, and asks the same or something else over the same days.
In worlds of months the fleet changes as well, runs of all kinds follow each other over three blocks of days, and in
most of them one party lies (lies.py).

    python -m tests.reliability.simulation SEED [SEED …]     replays runs and says how each ended
    python -m tests.reliability.simulation --runs 1000 [--from SEED] [--processes 2] [--record FILE]
                                                             a series; with a record it goes on where it was stopped

Every run either ends with the right numbers of its company (`_check_fit`, `_check_rows`) or without a result. Whatever
an agent hands out is judged where it is handed out (homes.py: `Witness`; here: `hand_out`), its account after every run
(`_check_accounts`), and its conduct at the end, by a twin with other readings (homes.py: `conduct`).

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
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import atdm
from atdm.crypto import ring
from atdm.crypto.keys import SigningKey
from atdm.data import Cluster
from atdm.data.clock import seconds
from atdm.data.readings import Readings, positions
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.kernel.descent import Status
from atdm.options import fit_options
from atdm.protocol.account import MOST_ASKINGS, Answered, Settled, Shown
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.blind.layouts import LOAD_BOUND, TEMP_BOUND, TOTAL_BITS
from atdm.protocol.collect import Collected
from atdm.protocol.desk import Outcome, Outgoing
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import Answer, Consent, Masked, Ready, Release, Total, encode
from atdm.protocol.part import Host
from atdm.protocol.plain import fit_plain
from atdm.protocol.plan import BLIND_BUDGET, DAY, MOST_SIGNS, OPEN_BUDGET, AnyPlan, Collect, Plan
from atdm.protocol.readings import weather_hash, window
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import Rules, least_owners
from atdm.protocol.store import Entry, Snapshot, answer_hash, disclose
from atdm.run import make_plan, weather_of
from tests.clusters import tiny
from tests.protocol.world import Killed, written
from tests.reliability.homes import Home, Wrong, conduct, listening, need, to_agent, to_aggregator
from tests.reliability.lies import LIES, Lie

DAYS, STEP = 12, 6 * 3600  # s; four rows a day
FITTED = 9  # days of a fit
FIRST_DAY = 19740 - 5  # a block of companies ends after five of them
MONTHS, WINDOW = 40, 6  # days of a world of months; of a fit in it, where five would do
LEAST_DAYS = 3.0  # of rows that everybody has, for a fit
FAULTS = (
    "delay", "duplicate", "drop", "alter", "misdeliver", "replay", "kill", "restart", "lose disk", "aggregator", "away",
)  # fmt: skip
ENDS = ("converged", "capped", "rows", "rows of a fit", "no rows", "no result")
KINDS = ("fitted", "fitted", "fitted", "equal", "equal", "moments", "paper")  # of even seeds; odd ones are months
HONEST = 0.1  # share of worlds of months in which nobody lies
LYING = 0.5  # of the sums of a fit at which a lie could be told; whatever comes once in a run is always lied about
TRIES = 8  # of one message
MOST_STEPS = 20_000  # events of one attempt; a run takes a few hundred
CLUSTERS = 4  # for each number of agents, so that plain fits are found once
FEW = (3, *[4] * 6, *[5] * 7, *[6] * 6, 7, 7, 8, 9)  # agents of most runs
OF_MONTHS = (4, 5, 6, 6)
MANY = range(10, 65)  # of every 40th: one of 64 agents costs as much as twenty of 5
MANY_EVERY = 40
LONG = 1_000_000  # the first seed of `make soak`
CHUNK = 100  # seeds that a process takes at a time
ROOMS = ("crypto", "data", "kernel", "protocol")  # whose code a simulated run is made of
# Of coefficients against a plain fit, where the agents' limits are lifted; docs/spec.md. Ten times as much for θ, whose
# input is a tenth of the others: a few rows hardly determine it. `paper` keeps 1e-6 unless an agent's random matrix is
# nearly singular, which happens: 1.7e-6 once in 7000 runs of a few agents.
TOLERANCE = {"blind": 3e-4, "moments": 1e-6, "paper": 1e-5}


@cache
def cluster_of(agents: int, number: int, days: int = DAYS) -> Cluster:
    made = tiny(100 * agents + number, agents=agents, rows=days * DAY // STEP)
    moved = made.time[0].normalize() + (made.time - made.time[0]) + np.timedelta64(FIRST_DAY - 19723, "D")
    frames = [frame.set_axis(moved.rename("time")) for frame in (made.temperature, made.load, made.outdoor, made.solar)]
    return Cluster.from_frames(*frames, owner=made.owner)


@dataclass(slots=True, eq=False)
class Letter:
    """A message under way. to: a home, or −1−home for what a home sent to the aggregator."""

    to: int
    data: bytes
    attempt: int
    tries: int = 0


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.months = bool(seed % 2)
        self.kind = "months" if self.months else rng.choice(KINDS)
        sizes = OF_MONTHS if self.months else FEW if seed % MANY_EVERY else MANY
        self.size, self.number = rng.choice(sizes), rng.randrange(CLUSTERS)
        self.nonnegative = self.kind in ("fitted", "moments", "months") and rng.random() < 0.1
        self.lifted = not self.months and rng.random() < 0.6  # the agents' limits, so that the result is the plain fit
        few = self.kind in ("fitted", "equal") and rng.random() < 0.03
        self.rate = rng.choice((0.0, 0.002, 0.005, 0.01, 0.03, 0.1) if not self.months else (0.0, 0.0, 0.005, 0.02))
        self.faults = rng.sample(FAULTS, rng.randint(1, len(FAULTS)))
        self.patient = rng.random() < 0.8  # whether what was lost is sent again
        self.careless = rng.random() < 0.1  # whether the operator's companies follow no policy
        spare = 2 if self.months else 0  # homes that come later
        self.cluster = cluster_of(self.size + spare, self.number, MONTHS if self.months else DAYS)
        self.weather, self.time = weather_of(self.cluster), seconds(self.cluster.time)
        limits = dict(totals=40, agents_per_total=1, clip=1e9) if self.lifted else dict(agents_per_total=2)
        limits |= dict(solver_tolerance=0.0, least_days=LEAST_DAYS, ridge=(1e-3, 100.0))
        self.rules = Rules(
            protocols=(self.kind,) if self.kind in ("moments", "paper") else ("blind",), weights="fitted",
            least_agents=self.size + 1 if few else 3, rows_per_parameter=1, colluders=0, dither=0, **limits,
        )  # fmt: skip
        self.authority, self.rogue = SigningKey(rng.randbytes(32)), SigningKey(rng.randbytes(32))
        shared = Host() if rng.random() < 0.5 else None
        keys = sorted((SigningKey(rng.randbytes(32)) for _ in self.cluster.agents), key=lambda key: key.public)
        self.homes = [
            Home(key, f"{seed} {i}", self._readings(i), self.weather, self.rules, shared) for i, key in enumerate(keys)
        ]
        self.home = {key.public: i for i, key in enumerate(keys)}
        later = rng.sample(range(len(keys)), spare)
        self.members = [i for i in range(len(keys)) if i not in later]
        self.later, self.since = later, {}
        self.until = int(self.time[-1]) + 1  # s, up to which there are readings
        self.rosters: list[Any] = []
        self._enrol()
        self.lie: Lie | None = None
        self.lie_name, self.liar = "", -1  # −1: the aggregator
        if self.months and rng.random() >= HONEST:
            self.lie_name = list(LIES)[seed // 2 % len(LIES)]  # each equally often
            self.lie = LIES[self.lie_name]
            self.liar = {"aggregator": -1, "leader": self.members[0]}.get(self.lie.liar, rng.choice(self.members))
        self.watched = self.homes[rng.choice([i for i in self.members if i != self.liar])]
        self.past: list[Any] = []  # messages to agents as they should have been
        self.own_past: list[Any] = []  # of a liar
        self.sums: dict[tuple[bytes, int], list[bytes]] = {}
        self.answers: dict[int, Ready] = {}
        self.kept: dict[str, Any] = {}
        self.asked: list[AnyPlan] = []
        self.asked_to = self.fitted_to = 0  # days of the months that are over
        self.false: dict[tuple[bytes, int], float] = {}  # run, stamp → what the liar adds to its load [kW]
        self.sent: dict[tuple, bytes] = {}
        self.masked: dict[tuple[bytes, int], set[int]] = {}  # run, step → homes whose words left
        self.showing: dict[bytes, set[int]] = {}  # run → homes whose last words left
        self.openings: dict[int, set[frozenset[bytes]]] = {}  # stamp → companies under which it can be opened
        self.fits: list[tuple[bytes, frozenset[int], dict[int, float]]] = []  # run, company, weights by home
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
        name, rng, count, often = self.cluster.agents[i], self.rng, len(self.time), 0.2 if self.months else 0.05
        rows = np.arange(count)
        if rng.random() < often:
            rows = np.delete(rows, rng.sample(range(count), 2))
        if rng.random() < often:
            first = rng.randrange(count - 6)
            rows = np.setdiff1d(rows, np.arange(first, first + 6))
        columns = (self.cluster.temperature[name].to_numpy(float), self.cluster.load[name].to_numpy(float))
        return Readings(self.time, *columns).at(rows)

    def _enrol(self) -> None:
        """A roster of those who are members now; the owner of a home is the home."""
        entries = [(f"zone{i:02d}", f"home{i}", self.homes[i].key.public) for i in self.members]
        since = {self.homes[i].key.public: day for i, day in self.since.items()}
        self.roster = sign_roster(self.authority, entries, len(self.rosters) + 1, since)
        self.rosters.append(self.roster)
        self._renew()

    def _renew(self) -> None:
        for i in self.members:
            self.homes[i].renew(self.roster, self.until)

    def enrolled(self) -> list[int]:
        """Homes by their place in the roster of the run."""
        return [self.home[member.identity] for member in self.role.roster.members]

    # What is asked, and of whom

    def _plan(self, days: range, ridge: float = 20.0) -> Plan:
        """A fit over days of the cluster."""
        protocol = self.kind if self.kind in ("moments", "paper") else "blind"
        nonnegative = "ridge" if self.nonnegative else False
        options = dict(order=1, ridge=ridge, nonnegative=nonnegative, solver_tolerance=5e-5)
        plan = make_plan(self.cluster, fit_options(protocol=protocol, **options), self.rules)
        plan = msgspec.structs.replace(plan, start=plan.start + days.start * DAY, length=len(days) * DAY // STEP)
        rows = window(plan)
        return msgspec.structs.replace(plan, weather=weather_hash(self.weather, int(rows[0]), int(rows[-1])))

    def fit_over(self, day: int, days: int) -> Plan:
        """A fit over so many days from a UTC day on."""
        first = day - FIRST_DAY
        return self._plan(range(first, first + days))

    def _rows(self, days: range, fit: bytes = b"") -> Collect:
        start = int(self.time[0]) + days.start * DAY
        return Collect(step_seconds=STEP, start=start, length=len(days) * DAY // STEP, fit=fit)

    def askings(self) -> list[AnyPlan]:
        """What is asked first; more depends on what came of it."""
        if self.months:
            return [self._of_a_month()]
        if self.kind == "equal":
            cuts = sorted({0, DAYS, *self.rng.sample(range(1, DAYS), self.rng.randint(0, 3))})
            stretches = [range(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
            self.rng.shuffle(stretches)
            return [self._rows(days) for days in stretches]
        return [self._plan(range(0, DAYS if self.kind in ("moments", "paper") else FITTED))]

    def _another(self, plan: AnyPlan) -> AnyPlan:
        """The same question, or one that the agents' accounts have to judge."""
        rng = self.rng
        if self.kind in ("moments", "paper") or rng.random() < (0.15 if self.months else 0.35):
            return plan
        if self.months:
            return self._of_a_month()
        if self.kind == "equal":
            return self._rows(range(rng.randrange(6), rng.randint(7, DAYS)))
        if self.fits and rng.random() < 0.6:
            return self._rows(range(FITTED, rng.randint(FITTED + 1, DAYS)), rng.choice(self.fits)[0])
        return rng.choice((
            self._plan(range(0, FITTED), ridge=21.0),
            self._plan(range(rng.randrange(3), DAYS)),
            self._rows(range(rng.randrange(DAYS), DAYS)),
        ))  # fmt: skip

    def _of_a_month(self) -> AnyPlan:
        """Time goes on and the fleet may change; then a fit, rows with equal weights, or rows that follow a fit, mostly
        over days that nobody asked for yet."""
        rng, back = self.rng, self.rng.choice([0] * 5 + [1, 3])
        after_fit = bool(self.fits) and self.asked_to == self.fitted_to
        way = rng.choice(("fit", "fit", "rows", "under" if after_fit else "fit"))
        first = max(self.asked_to - (0 if way == "under" else back), 0)
        last = min(first + (WINDOW if way == "fit" else rng.randint(1, 4)), MONTHS)
        first = min(first, last - 1)
        if self.asked and rng.random() < 0.25:
            self._change(FIRST_DAY + first)
        self.until = max(self.until if self.asked else 0, int(self.time[0]) + last * DAY)
        self._renew()
        self.asked_to = last
        if way == "fit":
            self.fitted_to = last
            return self._plan(range(first, last))
        return self._rows(range(first, last), self.fits[-1][0] if way == "under" else b"")

    def _change(self, today: int) -> None:
        """Somebody enrols, leaves for good, returns with a new key, corrects its file, pauses or goes on."""
        rng, honest = self.rng, [i for i in self.members if i != self.liar]
        what = rng.choice(("enrol", "replace", "retire", "correct", "pause"))
        if what == "pause":
            home = self.homes[rng.choice(honest)]
            home.decide("paused" if home.choice == "takes part" else "takes part")
        elif what == "correct":
            self.homes[rng.choice(honest)].correct(0.25)
        elif what == "retire" and len(self.members) > 3:
            self.members.remove(rng.choice(honest))
            self._enrol()
        elif self.later and what in ("enrol", "replace"):
            new = self.later.pop()
            if what == "replace":  # the same readings under a new key
                old = rng.choice(honest)
                self.members.remove(old)
                self.homes[new].readings = self.homes[old].readings
                self.homes[new].log.clear()
                self.homes[new].wipe()
            self.members = sorted([*self.members, new])
            self.since[new] = today
            self._enrol()

    def _careless(self, answers: Mapping[int, np.ndarray], *_) -> tuple[list[int], np.ndarray]:
        """An operator's choice that follows no policy."""
        company = sorted(self.rng.sample(sorted(answers), self.rng.randint(-(-len(answers) // 2), len(answers))))
        if len(company) < 2:
            raise RunAborted("nobody to sum with")
        return company, np.logical_and.reduce([answers[place] for place in company])

    def _lied(self, hook: str, *given: Any) -> Any:
        """What the liar does here; None: the truth."""
        lie = getattr(self.lie, hook) if self.lie is not None else None
        summed = bool(given) and isinstance(given[0], Masked | Total)
        often = summed and self.role._announce.plan.protocol == "blind"
        if lie is None or (often and self.rng.random() >= LYING):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            told = lie(self, *given)
        self.seen[f"lie: {self.lie_name}"] += told is not None
        return told

    # What must hold for whatever an agent hands out

    def hand_out(self, i: int, replies: list[bytes]) -> None:
        said = [to_aggregator.decode(reply) for reply in replies]
        for message, reply in zip(said, replies, strict=True):
            if isinstance(message, Ready):
                self.seen["ready"] += 1
            elif isinstance(message, Masked | Release | Consent | Answer):
                key = (i, type(message), message.run, message.step)
                need(self.sent.setdefault(key, reply) == reply, f"home {i} sent two messages under one context")
            if isinstance(message, Masked | Release):
                self.masked.setdefault((message.run, message.step), set()).add(i)
                self._journalled(i, message, replies)
            if isinstance(message, Consent):
                there = self.masked[message.run, message.step] | {i}  # it may have died before sending its own
                missing = self.size_of(message.run) - len(there)
                need(missing == 0, f"home {i} consented while {missing} had sent nothing")
        self._could_open(i)
        self._opened_truly(i)

    def size_of(self, run: bytes) -> int:
        return len(self.role.run.members) if self.role.run is not None and self.role.run.id == run else 0

    def _journalled(self, i: int, message: Masked | Release, replies: list[bytes]) -> None:
        """Words leave: written down first, with what they cost."""
        store = self.homes[i].store
        if not store.entries and store.snapshot and list(disclose(store.snapshot, Snapshot).replies) == replies:
            return  # sent again: killed while joining the next run, it still has the last answer of the one before
        need(bool(store.entries), "words left before anything was written down")
        entry = disclose(store.entries[-1], Entry)
        need(entry.answer == answer_hash(replies), "words left that are not the ones written down")
        phase, booked = getattr(message, "phase", "release"), {type(b): b for b in entry.bookings}
        shows = self.homes[i].witness.shows
        if phase == "show" and shows and shows[-1][2]:
            need(Shown in booked and Settled in booked, "rows left before they were booked")
        kinds = {"open": "open", "step": "total", "signs": "signs", "release": "release"}
        if phase in kinds:
            need(Answered in booked and booked[Answered].kind == kinds[phase], f"{phase} left before it was booked")
            need(phase != "open" or Settled in booked, "readings left before their days were settled")
            need(phase != "release" or Shown in booked, "a release left before it was booked")

    def _could_open(self, i: int) -> None:
        """What two sums of one stamp differ by, once everybody's words of both left: nobody, or whole companies."""
        for run, company, stamps in self.homes[i].witness.shows:
            there = self.showing.setdefault(run, set())
            there.add(i)
            if {self.homes[j].key.public for j in there} != company:
                continue
            for stamp in stamps:
                known = self.openings.setdefault(stamp, set())
                known.add(company)
                lives = [each - {self.homes[j].key.public for j in self.wiped} for each in known]
                apart = all(one == other or not one & other for one in lives for other in lives)
                need(apart, "a stamp can be opened under two companies that share a home")
        self.homes[i].witness.shows.clear()

    def _opened_truly(self, i: int) -> None:
        """A total that an agent took is the sum of what everybody put in, unless one of them lies."""
        witness, honest = self.homes[i].witness, self.lie is None or self.lie.liar == "aggregator"
        for run, step, words in witness.opened if honest else ():
            parts = [w.plain[run, step] for w in (home.witness for home in self.homes) if (run, step) in w.plain]
            if len(parts) == len(witness.ids) and step:
                need(np.array_equal(sum(parts), words), f"home {i} took a total that is not the sum")
        witness.opened.clear()

    # The loop

    def run(self) -> Counter:
        """A few askings, one after the other; returns what was seen."""
        with listening():
            self._lied("begin")
            self._run()
            if self.kind not in ("moments", "paper"):
                self._check_conduct()
        return self.seen

    def _run(self) -> None:
        plans, most = self.askings(), {"equal": 6, "fitted": 3, "months": 6}.get(self.kind, 2)
        while plans and self.attempt < most:
            plan = plans.pop(0)
            made = self._lied("ask", plan) or {"plan": plan}
            plan = made.get("plan", plan)
            outcome = self._attempt({"plan": plan, **made})
            self.asked.append(plan)
            self.seen["attempts"] += 1
            if outcome is None:
                self.seen["no result"] += 1
            elif isinstance(outcome, Collected):
                self.seen["no rows" if not len(outcome.time) else "rows of a fit" if plan.fit else "rows"] += 1
                self._check_rows(outcome, plan)
            else:
                self._check_fit(outcome, plan)
            self._check_accounts()
            if not plans and (outcome is None or self.months or self.rng.random() < 0.7):
                plans.append(self._another(plan))

    def _attempt(self, made: dict[str, Any]) -> Outcome | Collected | None:
        self.attempt += 1
        self.answers.clear()
        self.absent = {i for i in self.members if "away" in self.faults and self.rng.random() < 0.1}
        self.seen["away"] += len(self.absent)
        policy = dict(choose=self._careless) if self.careless else {}
        if self.lie is not None and self.lie.choose is not None:
            policy = dict(choose=lambda answers, *_: self._lied("choose", answers))
        self.role = Aggregator(**{
            "roster": self.roster, "weather": self.weather, "attempt": self.attempt, "least": 3, **policy, **made
        })  # fmt: skip
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
        victim = rng.choice(self.members)
        if fault == "duplicate":
            self.air.append(Letter(letter.to, letter.data, letter.attempt))
        elif fault == "drop":
            self.air.remove(letter)
            self.lost.append(letter)
        elif fault == "alter":
            self._deliver(Letter(letter.to, self._altered(letter), letter.attempt), true=False)
        elif fault == "misdeliver":
            to = rng.choice(self.members)
            self._deliver(Letter(to if letter.to >= 0 else -1 - to, letter.data, letter.attempt), true=letter.to >= 0)
        elif fault == "replay" and self.old:
            self._deliver(rng.choice(self.old))
        elif fault == "kill":
            self.homes[victim].kill(rng.randint(1, 2), rng.random() < 0.5)
        elif fault == "restart":
            self.homes[victim].restart()
        elif fault == "away":
            self.absent.add(victim)
        elif fault == "lose disk" and rng.random() < 0.2:
            self.homes[victim].wipe()
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
            if isinstance(to_aggregator.decode(data), Masked | Answer):
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
        if i in self.absent or i not in self.members:
            return
        try:
            replies = self.homes[i].hear(letter.data)
        except (PeerError, Killed):
            self._send_again(letter, true)
            return
        self.hand_out(i, replies)
        self.air += [Letter(-1 - i, reply, self.attempt) for reply in self._sent_by(i, replies)]

    def _sent_by(self, i: int, replies: list[bytes]) -> list[bytes]:
        """What goes on of what a home handed out: the same, unless the home lies."""
        out: list[bytes] = []
        for reply in replies:
            message = to_aggregator.decode(reply)
            if isinstance(message, Masked) and self.lie is not None:
                self.sums.setdefault((message.run, message.step), []).append(message.words)
            told = self._lied("up", message) if i == self.liar else None
            if i == self.liar:
                self.own_past.append(message)
            out += [reply] if told is None else [encode(each) for each in told]
            if isinstance(message, Ready):
                self.answers[i] = message
        return out

    def _to_aggregator(self, letter: Letter, true: bool) -> None:
        if letter.attempt != self.attempt and self.rng.random() < 0.5:
            return  # most transports drop what belongs to a connection that is gone
        places = {home: place for place, home in enumerate(self.enrolled())}
        try:
            self._post(self.role.receive(places.get(-1 - letter.to, -1), letter.data))
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
        everybody = self.enrolled()
        letters: dict[bytes, list[int]] = {}
        for to, data in out:
            letters.setdefault(data, []).extend(everybody if to is None else [everybody[to]])
        for data, homes in letters.items():
            posted = [(i, data) for i in homes]
            if self.lie is not None:
                message = to_agent.decode(data)
                told = self._lied("down", message, homes)
                posted = posted if told is None else [(i, encode(each)) for i, each in told]
                self.past.append(message)
            self.air += [Letter(i, each, self.attempt) for i, each in posted]

    # The oracle

    def _company(self) -> list[int]:
        company = [self.home[member.identity] for member in self.role.members]
        need(len(company) >= least_owners(self.rules, self.role.run.announced.protocol), "a result of too few agents")
        return company

    def _columns(self, company: list[int], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Temperature and load as they were measured when they first left, by row and member."""
        known = [self.homes[i].truth for i in company]
        at = [positions(each.time, rows) for each in known]
        need(all((each >= 0).all() for each in at), "a row that a member lacks")
        temperature = [each.temperature[own] for each, own in zip(known, at, strict=True)]
        load = [each.load[own] for each, own in zip(known, at, strict=True)]
        return np.array(temperature).T, np.array(load).T

    def _load(self, load: np.ndarray, rows: np.ndarray, budget: int) -> np.ndarray:
        """The exact total, with what a liar added to its own."""
        false = [self.false.get((self.role.run.id, stamp), 0.0) for stamp in rows.tolist()]
        return exact_sum(load, LOAD_BOUND, budget) + np.array(false)

    def _same_as_before(self, rows: np.ndarray, numbers: np.ndarray, company: list[int]) -> None:
        """A stamp that opens again opens to the same numbers, unless every member of then and now lost its disk."""
        if self.false:
            return  # a liar may say something else of its own reading each time
        for stamp, *found in zip(rows.tolist(), *numbers, strict=True):
            members, known = self.opened.setdefault(stamp, (frozenset(company), found))
            remember = (members | frozenset(company)) - self.wiped
            need(known == found or not remember & members, f"stamp {stamp} opened to other numbers than before")

    def _check_rows(self, outcome: Collected, plan: Collect) -> None:
        company = self._company()
        if self.lie is not None and self.lie.spoils:
            return  # rows carry no check words: what a liar spoils is its own result, or its own part of one
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
        total = self._load(load, outcome.time, BLIND_BUDGET)
        need(np.array_equal(outcome.load, total), "the load is not the exact sum over the company")
        self._same_as_before(outcome.time, (outcome.state, outcome.load), company)

    def _check_fit(self, outcome: Outcome, plan: Plan) -> None:
        company, blind = self._company(), plan.protocol == "blind"
        estimate = outcome.estimate
        self.seen[str(estimate.status)] += 1
        if self.lie is not None and self.lie.spoils and self.lie.liar != "aggregator":  # who cannot alter veiled sums
            self.fits.append((self.role.run.id, frozenset(company), {}))
            self._check_model(outcome, plan, company)
            return
        temperature, load = self._columns(company, outcome.kept)
        exact = self._load(load, outcome.kept, BLIND_BUDGET if blind else OPEN_BUDGET)
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
        """The state is that of the agents' weights, the model that of the state, and the only one over its days, also
        where a member makes up words of its own."""
        run, estimate = self.role.run.id, outcome.estimate
        weights = {i: weight for i in company if (weight := self._weight(i, run)) is not None}
        self.fits.append((run, frozenset(company), weights))
        if len(weights) == len(company):
            own = np.array([weights[i] for i in company])
            need(abs(own.sum() - 1.0) < 1e-6, "the weights do not add up to one")
            off = np.abs(temperature @ own - estimate.state).max()
            need(off < 2e-3, f"the state is not that of the weights: {off:.1e} K off")
        self._check_model(outcome, plan, company)
        self._same_as_before(outcome.kept, (estimate.state, outcome.load), company)

    def _check_model(self, outcome: Outcome, plan: Plan, company: list[int]) -> None:
        estimate = outcome.estimate
        for rss in regression_rss(plan, outcome, self.weather):
            need(abs(rss - estimate.rss) <= 1e-8 * (1 + rss), "the model is not that of the state")
        numbers = tuple(p.tobytes() for p in (outcome.kept, estimate.state, *estimate.coefficients.parts()))
        for day in np.unique(outcome.kept // DAY).tolist():
            members, known = self.models.setdefault(day, (frozenset(company), numbers))
            need(known == numbers or members <= self.wiped, "two models were released over one day")

    def _weight(self, i: int, run: bytes) -> float | None:
        """The agent's own weight in a fit; None where it lost its disk."""
        agent = self.homes[i].look()
        if agent.part is not None and agent.part.session.run.id == run:
            return agent.part.weight
        return agent.own.memory.fits[run].weight if run in agent.own.memory.fits else None

    def _check_accounts(self) -> None:
        """No account is beyond a limit, and each has at least what the simulation saw its agent give."""
        for i, home in enumerate(self.homes):
            if home.store.snapshot is None:
                continue
            account = written(home.store).account
            most = self.rules.totals_for(len(self.homes))
            for fit in account.fits.values():
                need(fit.totals <= most and fit.signs <= MOST_SIGNS, f"home {i} gave more than a day has room for")
            fitted = [day for fit in account.fits.values() for day in fit.days]
            need(len(set(fitted)) == len(fitted), f"home {i} gave a day to two fits")
            settled = {day for day, known in account.days.items() if known.company}
            need(set(home.witness.company) <= settled, f"home {i} gave a day that is not settled")
            need(max(account.questions.values(), default=0) <= MOST_ASKINGS, f"home {i} answered a question too often")
            need(int(account.shown.max(initial=0)) <= MOST_ASKINGS, f"home {i} showed a stamp too often")

    def _check_conduct(self) -> None:
        """One honest home and its twin, whose readings are noise, extremes, a constant or nearly the same."""
        noise, time = np.random.default_rng(self.seed), self.watched.readings.time
        temperature, size = self.watched.readings.temperature, len(time)
        others = (noise.normal(20, 3, size).round(2), noise.choice([-30.0, 70.0], size), np.full(size, 69.9),
                  temperature + 1e-3 * noise.normal(size=size))  # fmt: skip
        load = noise.choice([np.zeros(size), np.full(size, 900.0), noise.gamma(2.0, 2.0, size)])
        with np.errstate(all="ignore"):
            told = conduct(self.watched, Readings(time, self.rng.choice(others).clip(-29.0, 69.0), load))
        self.seen["twins"] += 1
        need(told is None, f"an honest home shows its readings by what it does: {told}")

    def offered(self, part: Any) -> np.ndarray:
        """Which rows of a run everybody offered, for the liar in it."""
        return np.isin(part.times, self.role.desk.offered)


def exact_sum(values: np.ndarray, bound: float, budget: int, most: int = 63) -> np.ndarray:
    """Σ over the columns as fixed point gives it, in Python's integers."""
    bits = min(most, ring.fractional_bits(values.shape[1], bound, budget))
    return np.array([sum(round(value * 2**bits) for value in row) / 2**bits for row in values.tolist()])


def regression_rss(plan: Plan, outcome: Outcome, weather) -> tuple[float, float]:
    """What least squares of s_t − α s_{t−1} on lags of h, o, r and the season leaves over the training rows, and what
    the released coefficients leave."""
    rows, s = outcome.kept, outcome.estimate.state
    at = positions(weather.time, rows)
    inputs = (outcome.load, weather.outdoor[at], weather.solar[at])
    used = [t for t in range(1, int(round(len(rows) * plan.train, 9))) if rows[t] - rows[t - 1] == plan.step_seconds]
    season = [[float(rows[t] // plan.step_seconds % plan.period == k) for k in range(plan.period)] for t in used]
    design = np.hstack([np.array([[each[t - m] for each in inputs for m in (0, 1)] for t in used]), season])
    target = np.array([s[t] - outcome.estimate.coefficients.alpha[0] * s[t - 1] for t in used])
    best, released = np.linalg.lstsq(design, target, rcond=None)[0], outcome.estimate.coefficients
    told = np.concatenate([released.beta, released.gamma, released.theta, released.occupancy])
    one, other = (target - design @ each for each in (best, told))
    return float(one @ one), float(other @ other)


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
    own = (Path(__file__).with_name(name) for name in ("simulation.py", "homes.py", "lies.py"))
    files = sorted([*(f for room in ROOMS for f in (package / room).rglob("*.py")), package / "run.py", *own])
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
    faults = ", ".join(f"{seen[fault]} {fault}" for fault in FAULTS)
    told = [seen[f"lie: {name}"] for name in LIES]
    lies = f"{sum(told)} lies of {sum(map(bool, told))} of {len(LIES)} kinds, each {min(told)} times or more"
    return (f"{wrong} wrong of {runs} runs; {seen['attempts']} attempts: {ends}; faults: {faults}; {lies}; "
            f"{seen['twins']} twins")  # fmt: skip


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
        lie = f", lie: {one.lie_name}" if one.lie_name else ""
        print(f"seed {seed}: {one.kind}, {one.size} agents, rate {one.rate}, {', '.join(one.faults)}{lie}")
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
