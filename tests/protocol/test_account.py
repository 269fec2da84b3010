"""The rules of the account and of companies (DESIGN §5.4): at their edges, against a model of them, and by what an
adversary could subtract after months of lies."""

import random
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations

import msgspec
import numpy as np
import pytest

from atdm.crypto import ring
from atdm.crypto.keys import SigningKey
from atdm.errors import PeerError
from atdm.protocol import agent as agent_module
from atdm.protocol.account import (
    ASKED_TOO_OFTEN,
    GROWN,
    NO_ROOM,
    OTHER_COMPANY,
    OTHER_GRID,
    OTHER_WEIGHTING,
    SPENT,
    TOO_MANY_DAYS,
    Account,
    Answered,
    Judged,
    Sent,
    Settled,
    Shown,
    identities_in,
)  # fmt: skip
from atdm.protocol.agent import Agent
from atdm.protocol.blind import veil as veil_module
from atdm.protocol.company import TOO_FEW, Verdict, large_enough
from atdm.protocol.messages import (
    Abort,
    Announce,
    Finished,
    Masked,
    Ready,
    Refuse,
    Seal,
    Secret,
    Secrets,
    ToAggregator,
    Total,
    encode,
)  # fmt: skip
from atdm.protocol.plan import DAY, Collect, Plan
from atdm.protocol.readings import Readings, Weather
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import Rules
from atdm.protocol.session import Run, make_keys, make_ready
from atdm.protocol.store import Memory, Snapshot, decode_snapshot, encode_snapshot
from tests.protocol.world import Ram

# The model: what DESIGN §5.4 says of one home, in sets and dictionaries


@dataclass
class Record:
    """What one home must remember, and what it may do then."""

    judged: dict = field(default_factory=dict)  # day → in or out, for good
    company: dict = field(default_factory=dict)  # day → set of identities
    way: dict = field(default_factory=dict)  # day → equal or fitted
    grid: dict = field(default_factory=dict)  # day → step
    plan: dict = field(default_factory=dict)  # day → the fit that asked last
    model: dict = field(default_factory=dict)  # day → the fit it was released or is shown under
    totals: Counter = field(default_factory=Counter)  # day → different totals answered
    signs: Counter = field(default_factory=Counter)
    questions: Counter = field(default_factory=Counter)
    shown: Counter = field(default_factory=Counter)  # stamp → times
    fits: dict = field(default_factory=dict)  # run → (what was released, its last stamp, its company, its step)

    def inside(self, plan, day: int, readings: set, newest: int, owners: int) -> bool:
        """At least half of the day's rows from midnight to the announcement's last row, judged once; and room."""
        midnight, last = day * DAY, plan.start + (plan.length - 1) * plan.step_seconds
        if day not in self.judged and newest >= max(midnight, plan.start):
            rows = range(midnight, min(last, midnight + DAY - 1) + 1, plan.step_seconds)
            self.judged[day] = 2 * sum(t in readings for t in rows) >= len(rows)
        return self.judged.get(day, False) and self.allows(plan, day, owners)

    def refuses(self, plan) -> bool:
        """The whole plan, whatever the day."""
        if isinstance(plan, Collect):
            if not plan.fit:
                return False
            if plan.fit not in self.fits:
                return True
            _, end, _, step = self.fits[plan.fit]
            last = plan.start + (plan.length - 1) * plan.step_seconds
            return plan.start <= end or plan.step_seconds != step or last > end + 92 * DAY
        touched = {d for d in self.totals if self.totals[d]} | set(days_of(plan))
        return any(sum(d <= e < d + 365 for e in touched) > 120 for d in touched)

    def allows(self, plan, day: int, owners: int) -> bool:
        if self.way.get(day, plan.weights) != plan.weights:
            return False
        if self.grid.get(day, plan.step_seconds) != plan.step_seconds:
            return False
        if isinstance(plan, Collect):
            meant = self.fits[plan.fit][0] if plan.fit else None
            return not plan.fit or self.model.get(day) == meant or (day not in self.model and not self.totals[day])
        if self.plan.get(day) == plan:
            return True
        most = limit(owners)
        return day not in self.model and not self.signs[day] and self.totals[day] + min(most, plan.totals) <= most

    def accepts(self, days, company: frozenset, owner_of: dict, enrolled: int) -> bool:
        owners = len({owner_of[i] for i in company})
        return owners >= 10 and 3 * owners >= 2 * enrolled and all(self.fits_in(day, company) for day in days)

    def fits_in(self, day: int, company: frozenset) -> bool:
        """A day has one company, and company(d′) ⊆ company(d) for d < d′ of one block."""
        if self.company.get(day, company) != company:
            return False
        block = [d for d in self.company if d // 28 == day // 28]
        return all(company <= self.company[d] for d in block if d < day) and all(
            self.company[d] <= company for d in block if d > day
        )

    def gives(self, stamp: int, company: frozenset, readings: set) -> bool:
        """It has the reading, and no row within six hours of a midnight at which the company changed goes out."""
        day, second = divmod(stamp, DAY)
        before, after = self.company.get(day - 1, company), self.company.get(day + 1, company)
        beside = (second < 6 * 3600 and before != company) or (second >= 18 * 3600 and after != company)
        return stamp in readings and not beside

    def settle(self, days, company: frozenset, plan) -> None:
        for day in days:
            assert self.fits_in(day, company)
            self.company[day], self.way[day], self.grid[day] = company, plan.weights, plan.step_seconds

    def answers(self, question, kind: str, days, owners: int) -> bool:
        """The same again is free, four times in all; else there must be room on every day."""
        if self.questions[question]:
            return self.questions[question] < 4
        room = {"total": lambda d: self.totals[d] < limit(owners), "signs": lambda d: self.signs[d] < 3,
                "release": lambda d: d not in self.model}[kind]  # fmt: skip
        return all(room(day) for day in days)

    def book(self, question, kind: str, days, plan) -> None:
        for day in days if not self.questions[question] else ():
            self.plan[day] = plan
            self.totals[day] += kind == "total"
            self.signs[day] += kind == "signs"
            if kind == "release":
                self.model[day] = question
        self.questions[question] += 1


def limit(owners: int) -> int:
    return min((owners - 1) // 3, 5)


def days_of(plan) -> range:
    return range(plan.start // DAY, (plan.start + (plan.length - 1) * plan.step_seconds) // DAY + 1)


# The replay: real agents without masks, and an aggregator that lies

STEP, FIRST, AGENTS, COLLUDERS = 7200, 28 * 700 + 3, 15, 2
RULES = Rules(weights="fitted", rows_per_parameter=1.0)
KINDS = {"open": "total", "step": "total", "signs": "signs", "release": "release"}


class Unmasked:
    """A session whose masks are zero: everything that is summed can be read."""

    def __init__(self, run: Run, index: int, exchange, seed: bytes) -> None:
        self.run, self.index, self.seed, self.leads, self.neighbours = run, index, seed, index == 0, ()

    def pair_key(self, peer: int) -> bytes:
        return bytes(32)

    def forget_pairs(self) -> None: ...

    def mask(self, words, nonce) -> None: ...


class NoVeil:
    def __init__(self, key: bytes) -> None: ...

    def words(self, count: int, nonce: bytes) -> np.ndarray:
        return np.zeros(count, dtype=np.uint64)


class Home:
    """One identity of one home, with what it measured; its file may be corrected later."""

    def __init__(self, replay: "Replay", name: str, owner: str, colludes: bool, like: "Home | None" = None) -> None:
        rng = replay.rng
        while True:  # colluders come last, so that an honest home leads
            self.key = SigningKey(rng.randbytes(32))
            if (self.key.public[0] >= 0xF0) == colludes:
                break
        self.replay, self.name, self.owner, self.colludes = replay, name, owner, colludes
        self.store, self.record, self.agent, self.secret = Ram(), Record(), None, rng.randbytes(32)
        noise, count = np.random.default_rng(rng.randrange(2**32)), replay.days * DAY // STEP
        self.time = FIRST * DAY + STEP * np.arange(count)
        self.temperature = 20 + noise.normal(0, 0.3, count).cumsum() * 0.05 + np.sin(np.arange(count) / 3)
        self.load = noise.gamma(2, 1, count)
        self.there = noise.random(count) > 0.002
        for day in noise.integers(0, replay.days, replay.days // 40):  # outages of half a day and more
            self.there[12 * day : 12 * day + noise.integers(4, 30)] = False
        if like is not None:
            self.temperature, self.load, self.there = like.temperature, like.load, like.there

    def readings(self) -> Readings:
        known = self.there & (self.time < self.replay.now)
        return Readings(self.time[known], self.temperature[known], self.load[known])

    def hear(self, message) -> list:
        if self.agent is None:
            self.agent = Agent(
                identity=self.key, secret=self.secret, roster=self.replay.roster, readings=self.readings(),
                authority=self.replay.authority.public, weather=self.replay.weather, rules=RULES, store=self.store,
                random_bytes=self.replay.rng.randbytes, renew=self.readings, renew_roster=lambda: self.replay.roster,
            )  # fmt: skip
        try:
            replies = [msgspec.msgpack.decode(data, type=ToAggregator) for data in self.agent.receive(encode(message))]
        except PeerError as error:
            return [error]
        self.replay.seen.update(re.sub(r"home\d+|key \w+", "…", reply.reason) for reply in replies if getattr(reply, "reason", ""))
        return replies


class Replay:
    """Days go by; the aggregator asks for what it likes. Every answer must be what the model says."""

    def __init__(self, seed: int, days: int) -> None:
        self.rng, self.days, self.serial, self.attempt = random.Random(seed), days, 0, 0
        self.authority, self.now, self.born = SigningKey(self.rng.randbytes(32)), FIRST * DAY, 0
        noise, span = np.random.default_rng(seed), np.arange(FIRST * DAY, (FIRST + days) * DAY, STEP)
        self.weather = Weather(span, noise.normal(5, 4, len(span)), noise.uniform(0, 0.4, len(span)))
        self.homes: list[Home] = []
        self.owner: dict[bytes, str] = {}
        for k in range(AGENTS + COLLUDERS):
            self.join(colludes=k < COLLUDERS)
        self.enrol()
        self.seen = Counter()  # what happened, so that nothing goes untried
        self.openings: list[tuple] = []  # (company, honest members, weighting, stamps), in order
        self.totals, self.models = defaultdict(set), defaultdict(set)  # (identity, day) → what opened over it
        self.words: dict[tuple, tuple] = {}  # (identity, stamp, what) → the words that left
        self.asked = Counter()  # (identity, stamp) → times its state left
        self.settled: dict[int, frozenset] = {}  # day → the company it was last summed with
        self.fits: list[Plan] = []
        self.released: list[tuple[bytes, Plan]] = []

    # Who is there

    def join(self, colludes: bool = False, like: Home | None = None) -> None:
        self.born += 1
        owner = like.owner if like else "shared" if self.born in (5, 6) else f"owner{self.born}"
        self.homes.append(Home(self, f"home{self.born}", owner, colludes, like))

    def enrol(self) -> None:
        self.serial += 1
        self.homes.sort(key=lambda home: home.key.public)
        self.owner |= {h.key.public: h.owner for h in self.homes}
        members = [(h.name, h.owner, h.key.public) for h in self.homes]
        self.roster = sign_roster(self.authority, members, self.serial)

    def change(self) -> None:
        """Somebody joins, dies, gets a new identity, corrects its file or restarts."""
        what, honest = self.rng.random(), [home for home in self.homes if not home.colludes]
        home = self.rng.choice(honest)
        if what < 0.03:
            self.join()
        elif what < 0.05 and len(honest) > 13:
            self.homes.remove(home)
        elif what < 0.07:
            self.homes.remove(home)
            self.join(like=home)
        elif what < 0.20:
            home.temperature = home.temperature + 0.25
        elif what < 0.30:
            home.agent = None
        if what < 0.07:
            self.enrol()

    # One run

    def run(self, plan, choose, broken: int = 99, lie: str = "") -> None:
        """Announce, name a company, sum; stop after so many rounds."""
        self.attempt += 1
        announce = Announce(plan=plan, roster=self.roster.hash(), attempt=self.attempt)
        answers = {i: self.answer(home, announce) for i, home in enumerate(self.homes)}
        days = list(days_of(plan))
        inside = {i: {d for d, bit in zip(days, bits_in(a.days), strict=False) if bit} for i, a in answers.items()}
        company, touched = choose(inside, days)
        if len(company) < 3 or not touched or broken == 0:
            return
        if lie == "two in flight":  # the keys of an announcement after a newer one
            self.attempt += 1
            for home in self.homes:
                home.colludes or home.hear(msgspec.structs.replace(announce, attempt=self.attempt))
        flags = np.packbits([day in touched for day in days], bitorder="little").tobytes()
        keys = make_keys(self.roster, flags, {i: answers[i] for i in company})
        members = [self.homes[i] for i in company]
        ids = frozenset(home.key.public for home in members)
        honest = {k: home for k, home in enumerate(members) if not home.colludes}
        fine = lie != "two in flight" and all(touched <= inside[i] for i in company)
        replies = {}
        for k, home in honest.items():
            may = fine and home.record.accepts(touched, ids, self.owner, self.roster.owners())
            if isinstance(plan, Plan):
                may = may and min(limit(self.owners(ids)), plan.totals) >= 2
            elif plan.fit:
                may = may and home.record.fits[plan.fit][2] == ids
            replies[k] = home.hear(keys)
            assert (self.left(replies[k]) is None) == may, (home.name, replies[k], may)
        if any(self.left(each) for each in replies.values()) or broken == 1:
            return self.abandon(honest)
        rows = range(plan.start, plan.start + plan.length * plan.step_seconds, plan.step_seconds)
        sums = self.collect if isinstance(plan, Collect) else self.fit
        sums(plan, [t for t in rows if t // DAY in touched], ids, honest, replies, broken, lie)

    def owners(self, ids: frozenset) -> int:
        return len({self.owner[i] for i in ids})

    def left(self, replies: list) -> str | None:
        """The words with which an agent left the run, if it did."""
        reasons = [reply.reason.split(": ", 1)[1] for reply in replies if isinstance(reply, Refuse)]
        return reasons[0] if reasons else None

    def abandon(self, honest: dict[int, Home]) -> None:
        """Some hear of the end, some crash, some hear nothing."""
        for home in honest.values():
            if self.rng.random() < 0.2:
                home.agent = None
            elif home.agent.part is not None and self.rng.random() < 0.5:
                home.hear(Abort(run=home.agent.part.session.run.id, reason="broke off"))

    def answer(self, home: Home, announce: Announce) -> Ready:
        plan, days = announce.plan, days_of(announce.plan)
        if home.colludes:
            verdict = Verdict(np.ones(len(days), dtype=bool), "")
            return make_ready(home.key, announce, self.rng.randbytes(32), verdict)[0]
        (ready,) = home.hear(announce)
        stamps, record = set(home.readings().time.tolist()), home.record
        newest, owners, out = max(stamps, default=-1), self.roster.owners(), record.refuses(plan)
        expected = [not out and record.inside(plan, day, stamps, newest, owners) for day in days]
        assert ready.days == np.packbits(expected, bitorder="little").tobytes(), (home.name, plan, ready.reason)
        return ready

    def collect(self, plan, rows, ids, honest, replies, broken, lie) -> None:
        offers = {k: ring.from_bytes(replies[k][0].words, len(rows) + 1) for k in honest}
        gives = {}
        for k, home in honest.items():
            stamps, record = set(home.readings().time.tolist()), home.record
            gives[k] = np.array([record.gives(t, ids, stamps) and record.shown[t] < 4 for t in rows])
            assert ((offers[k][:-1] == 0) == gives[k]).all(), home.name
        total = sum(offers.values())
        total[-1] = len(ids)
        if lie == "claims":
            total[:-1][np.array([self.rng.random() < 0.3 for _ in rows])] = 0
        everybody = total[:-1] == 0
        message = Total(run=replies[0][0].run, step=0, words=ring.to_bytes(total))
        heard = list(honest)[: len(honest) // 2] if broken == 2 else list(honest)
        opened = [t for t, every in zip(rows, everybody, strict=True) if every]
        self.settled |= {t // DAY: ids for t in opened}
        for k in heard:
            home, record = honest[k], honest[k].record
            (reply,) = home.hear(message)
            if self.left([reply]):
                assert not opened
                continue
            given = [t for t, give in zip(opened, gives[k][everybody], strict=True) if give]
            record.settle({t // DAY for t in given}, ids, plan)
            record.shown.update(given)
            if plan.fit:
                record.model.update({t // DAY: record.fits[plan.fit][0] for t in given})
            words = ring.from_bytes(reply.words, 2 * len(opened) + 1)[:-1].reshape(2, -1).T.tolist()
            self.left_home(home, [(t, "state", *w) for t, w in zip(opened, words, strict=True) if t in given])
            self.asked.update((home.key.public, t) for t in given)
        if opened and len(heard) == len(honest):
            common = [t for t, every in zip(rows, np.logical_and.reduce(list(gives.values())), strict=True)
                      if every and t in opened]  # fmt: skip
            self.opened(ids, honest, plan.fit and next(iter(honest.values())).record.fits[plan.fit][0], common)
        if broken == 2 or self.rng.random() < 0.2:
            return self.abandon(honest)
        for home in honest.values():
            home.hear(Finished(run=message.run))

    def left_home(self, home: Home, words: list[tuple]) -> None:
        """A stamp's words never change, whatever its file says later."""
        for stamp, *rest in words:
            assert self.words.setdefault((home.key.public, stamp, rest[0]), rest) == rest, "another number for a stamp"

    def opened(self, ids, honest, weighting, stamps) -> None:
        self.openings.append((ids, frozenset(h.key.public for h in honest.values()), weighting, tuple(stamps)))

    def fit(self, plan, rows, ids, honest, replies, broken, lie) -> None:
        secrets, first = replies[0]
        pending = {0: first}
        for k in list(honest)[1:]:
            (pending[k],) = honest[k].hear(Secret(run=secrets.run, box=secrets.boxes[48 * (k - 1) : 48 * k]))
        for k, home in honest.items():
            stamps = set(home.readings().time.tolist())
            lacking = [not home.record.gives(t, ids, stamps) for t in rows]
            assert numbers(pending[k])[: len(rows)].astype(bool).tolist() == lacking, home.name
        question, days, kept, rounds, last = None, set(), [], 1, None
        while True:
            total = sum(numbers(message) for message in pending.values())
            total[-1 - ring.CHECK_WORDS] = len(ids)
            phase, rounds = first.phase, rounds + 1
            if phase == "rows":
                kept = [t for t, missing in zip(rows, total, strict=False) if missing == 0]
                days, question = {t // DAY for t in kept}, (ids, plan, tuple(kept))
                self.settled |= dict.fromkeys(days, ids)
            else:
                if lie == "forges" and phase == "step":
                    total[: len(kept)] += np.uint64(self.rng.randrange(1, 2**16))
                question = (question, total.tobytes())
                for home in honest.values() if KINDS[phase] == "total" else ():
                    for day in days:
                        self.totals[home.key.public, day].add(total.tobytes())
            if broken == rounds:
                return self.abandon(honest)
            message = Total(run=first.run, step=first.step, words=ring.to_bytes(total))
            answers = {k: home.hear(message) for k, home in honest.items()}
            if not self.left(answers[0]) and isinstance(answers[0][0], Seal):
                sealed = answers[0][0]
                answers = {0: answers[0][1:]} | {k: home.hear(sealed) for k, home in list(honest.items())[1:]}
            if (short := len(kept) * plan.train < RULES.rows_per_parameter * (1 + 6 + plan.period)) or not kept:
                assert all("too few rows" in self.left(each) for each in answers.values()) and short
                return
            answers = {k: each for k, each in answers.items() if each}  # all, or the leader who would not seal
            phases = {getattr(each[0], "phase", "release") for each in answers.values() if not self.left(each)}
            assert len(phases) <= 1
            for k, home in honest.items() if len(answers) > 1 else [(0, honest[0])]:
                record, why = home.record, self.left(answers[k])
                if question == (ids, plan, tuple(kept)):
                    record.settle(days, ids, plan)
                for name in phases or KINDS:
                    may = record.answers((question, name), KINDS[name], days, self.owners(ids))
                    if phases:
                        assert may == (why is None), (home.name, name, why)
                if why is None:
                    record.book((question, name), KINDS[name], days, plan)
                else:
                    assert lie == "forges" or not may or not phases, why
            if any(self.left(each) for each in answers.values()):
                return self.abandon(honest)
            (name,), first = phases, answers[0][0]
            if name == "release":
                break
            pending = {k: each[0] for k, each in answers.items()}
            if name == "open":
                for k, home in honest.items():
                    words = numbers(pending[k])[: 2 * len(kept)].reshape(2, -1).T.tolist()
                    self.left_home(home, [(t, "open", *w) for t, w in zip(kept, words, strict=True)])
        for home in honest.values():
            home.record.shown.update(kept)
            self.asked.update((home.key.public, t) for t in kept)
            home.record.fits[first.run] = ((question, "release"), rows[-1], ids, plan.step_seconds)
            while len(home.record.fits) > 4:  # the weights of the last four fits are kept
                del home.record.fits[next(iter(home.record.fits))]
            for day in days:
                self.models[home.key.public, day].add(question)
        self.opened(ids, honest, (question, "release"), kept)
        self.released.append((first.run, plan))
        for home in honest.values() if self.rng.random() < 0.8 else ():
            home.hear(Finished(run=first.run))


def bits_in(data: bytes) -> list[bool]:
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool).tolist()


def numbers(message: Masked) -> np.ndarray:
    return ring.from_bytes(message.words, len(message.words) // 8)


# The aggregator's lies, and what it may never have


def chosen(replay: Replay, way: str):
    """A company from everybody's answers, in good faith or not."""
    rng = replay.rng

    def choose(inside: dict[int, set], days: list[int]) -> tuple[list[int], set]:
        company = [i for i, bits in inside.items() if bits]
        settled = [d for d in replay.settled if d // 28 == days[-1] // 28 and d <= days[-1]]
        known = replay.settled[max(settled)] if settled else {home.key.public for home in replay.homes}
        if way in ("good", "more"):  # those of the latest day before
            company = [i for i in company if replay.homes[i].key.public in known]
        if way == "fewer":  # answers dropped, down to companies that are too small
            company = sorted(rng.sample(company, max(1, len(company) - rng.choice([1, 1, 2, 3, 6]))))
        elif way == "more":
            others = [i for i in inside if replay.homes[i].key.public not in known]
            company = sorted(company + rng.sample(others, min(1, len(others))))
        elif way in ("one", "other"):  # two groups of witnesses, most of them in both
            company = [i for n, i in enumerate(company) if n % 4 != (way == "one")]
        touched = set(days).intersection(*(inside[i] for i in company)) if company else set()
        return company, set(days) if way == "all days" else touched

    return choose


def live(replay: Replay, day: int) -> None:
    """One day of the aggregator's life: mostly what it should do, often enough what it should not."""
    rng = replay.rng
    replay.now = (FIRST + day + 1) * DAY
    replay.change()
    for _ in range(rng.choice([1, 1, 2, 3])):
        way = rng.choice(["good"] * 12 + ["everybody"] * 2 + ["fewer", "more", "all days", "one"])
        lie = rng.choice([""] * 16 + ["claims", "claims", "forges", "two in flight"])
        broken = rng.choice([99] * 16 + [0, 1, 2, 2, 3, 4, 5, 6])
        back = rng.choice([0, 0, 0, 1, 2, rng.randrange(35)])
        start = (FIRST + max(day - back, 0)) * DAY
        kinds = ["day", "day", "days", "day", "grid", "fit"] if day // 14 % 2 else ["fit", "again", "observe", "again"]
        kind = rng.choice(kinds)
        if kind == "day":  # or a portion of it
            first = rng.choice([0, 0, rng.randrange(12)])
            plan = Collect(step_seconds=STEP, start=start + first * STEP, length=rng.randint(1, 12 - first))
        elif kind == "days":
            plan = Collect(step_seconds=STEP, start=start, length=12 * rng.randint(1, 4))
        elif kind == "grid":
            plan = Collect(step_seconds=2 * STEP, start=start, length=6)
        elif kind == "observe" and replay.released:
            run, fitted = rng.choice(replay.released[-3:])
            end = fitted.start + (fitted.length + rng.choice([0, 12])) * STEP
            plan = Collect(step_seconds=STEP, start=end, length=rng.randint(1, 18), fit=run)
        elif kind == "again" and replay.fits:  # the same fit, or nearly
            plan = rng.choice(replay.fits[-2:])
            if rng.random() < 0.2:
                plan = msgspec.structs.replace(plan, ridge=plan.ridge + 1, totals=rng.choice([2, 3, 5]))
        elif day < 3:
            continue
        else:
            plan = fit_plan(replay, FIRST + max(day - rng.choice([4, 6, 12]), 0), FIRST + day)
            replay.fits.append(plan)
        replay.run(plan, chosen(replay, way), broken, lie)
        if way == "one":
            replay.run(plan, chosen(replay, "other"))


def fit_plan(replay: Replay, first: int, last: int) -> Plan:
    start, length = first * DAY, (last - first + 1) * DAY // STEP
    return Plan(
        protocol="blind", order=1, ridge=1000.0, period=12, step_seconds=STEP, timezone="UTC", start=start,
        length=length, train=0.75, nonnegative="free", tolerance=1e-12, solver_tolerance=0.03,
        weather=replay.weather.hash(start, start + (length - 1) * STEP),
    )  # fmt: skip


def audit(replay: Replay) -> None:
    """From what opened alone: which differences could an adversary form?"""
    settled: dict[tuple, frozenset] = {}  # (honest identity, day) → company
    order: dict[tuple, int] = {}  # and when it was first summed
    under: dict[tuple, object] = {}  # (honest identity, day) → weighting
    for number, (company, honest, weighting, stamps) in enumerate(replay.openings):
        assert replay.owners(company) >= 10 and replay.owners(honest) >= 10 - COLLUDERS
        for i in honest:
            for day in sorted({t // DAY for t in stamps}):
                assert settled.setdefault((i, day), company) == company, "a day summed with two companies"
                assert under.setdefault((i, day), weighting) == weighting, "a day shown under two weightings"
                order.setdefault((i, day), number)
            for t in stamps:  # beside a neighbour that was settled before with others
                day, second = divmod(t, DAY)
                for other, near in ((day - 1, second < 6 * 3600), (day + 1, second >= 18 * 3600)):
                    if near and order.get((i, other), number) < number:
                        assert settled[i, other] == company, "a row within six hours of a change"
    for i in {i for i, _ in settled}:
        days = sorted(day for who, day in settled if who == i)
        for one, other in combinations(days, 2):
            if one // 28 == other // 28:
                assert settled[i, other] <= settled[i, one], "companies grew within a block"
    by_stamp = defaultdict(set)
    for _, honest, _, stamps in replay.openings:
        for t in stamps:
            by_stamp[t].add(honest)
    for parts in by_stamp.values():  # what two sums of one stamp differ by: nobody, or whole companies
        assert all(not one & other for one, other in combinations(parts, 2))
    assert max(replay.asked.values()) <= 4
    assert max(len(each) for each in replay.totals.values()) <= 5
    assert max(len(each) for each in replay.models.values()) == 1
    for i in {i for i, _ in replay.totals}:
        days = sorted(day for who, day in replay.totals if who == i)
        assert all(days[k + 120] - days[k] >= 365 for k in range(len(days) - 120)), "too many days of fitted weights"


def accounts_agree(home: Home) -> None:
    """The real account against the model's."""
    account, record = home.agent.own.memory.account, home.record
    days = account.days
    assert {d for d in days if days[d].company} == set(record.company)
    for day, known in days.items():
        ids = frozenset() if not known.company else identities_in(account.companies[known.company])
        assert ids == record.company.get(day, frozenset()) and known.judged == record.judged.get(day)
        assert (known.totals, known.signs) == (record.totals[day], record.signs[day])
        assert (known.weights, known.step or None) == (record.way.get(day), record.grid.get(day))
        assert bool(known.fit) == (day in record.model)
    assert sorted(account.questions.values()) == sorted(n for n in record.questions.values() if n)
    assert dict(zip(account.time.tolist(), account.shown.tolist(), strict=True)).items() >= dict(record.shown).items()


@pytest.fixture
def clear(monkeypatch):
    """Neither masks nor veil: the rules alone."""
    monkeypatch.setattr(agent_module, "Session", Unmasked)
    monkeypatch.setattr(veil_module, "Stream", NoVeil)


def replayed(seed: int, days: int) -> Counter:
    replay = Replay(seed, days)
    for day in range(days):
        live(replay, day)
    for home in replay.homes:
        if not home.colludes and home.agent is not None:
            accounts_agree(home)
    audit(replay)
    replay.seen["openings"] = len(replay.openings)
    replay.seen["fits"] = len(replay.released)
    return replay.seen


def test_months_of_lies_leave_no_difference_that_shows_a_home(clear) -> None:
    seed = 20242
    seen = replayed(seed, 210)
    print(f"seed {seed}: {dict(seen)}")
    assert seen["openings"] > 60 and seen["fits"] > 10
    reasons = " ".join(seen)
    for reason in (*TEXTS, TOO_FEW, "smaller than", "not in on all days", "whole company", "no weight of that fit"):
        assert reason in reasons or reason == TOO_MANY_DAYS, reason


@pytest.mark.soak
def test_ten_years_of_lies(clear) -> None:
    seen = sum((replayed(seed, 400) for seed in range(9)), Counter())
    print(dict(seen))
    assert seen[TOO_MANY_DAYS]


# The rules at their edges

TEXTS = (OTHER_WEIGHTING, OTHER_GRID, SPENT, TOO_MANY_DAYS, OTHER_COMPANY, GROWN, ASKED_TOO_OFTEN, NO_ROOM)
EQUAL = Collect(step_seconds=3600, start=28 * DAY, length=24)
OBSERVE = msgspec.structs.replace(EQUAL, fit=b"run")
FIT = Plan(
    protocol="blind", order=1, ridge=1.0, period=24, step_seconds=3600, timezone="UTC", start=28 * DAY, length=240,
    train=0.75, nonnegative="free", tolerance=1e-12, solver_tolerance=0.03, weather=b"",
)  # fmt: skip
OTHER = msgspec.structs.replace(FIT, ridge=2.0)


def company(*members: int) -> bytes:
    return b"".join(bytes([member]) * 32 for member in members)


def after(*bookings) -> Account:
    account = Account()
    account.apply(bookings)
    return account


def answered(kind: str, question: bytes = b"q", plan: Plan = FIT, days=(28,)) -> Answered:
    return Answered(days, question, kind, plan.hash())


@pytest.mark.parametrize(("before", "plan", "expected"), [
    ([], FIT, None),
    ([Judged((28,))], FIT, None),
    ([Settled((28,), b"", "equal", 3600)], EQUAL, None),
    ([Settled((28,), b"", "equal", 3600)], FIT, OTHER_WEIGHTING),
    ([Settled((28,), b"", "equal", 3600)], OBSERVE, OTHER_WEIGHTING),
    ([Settled((28,), b"", "fitted", 3600)], EQUAL, OTHER_WEIGHTING),
    ([Settled((28,), b"", "equal", 1800)], EQUAL, OTHER_GRID),
    ([Settled((28,), b"", "fitted", 1800)], FIT, OTHER_GRID),
    ([answered("total", bytes([k])) for k in range(2)], msgspec.structs.replace(OTHER, totals=3), None),
    ([answered("total", bytes([k])) for k in range(3)], msgspec.structs.replace(OTHER, totals=3), SPENT),
    ([answered("total", bytes([k])) for k in range(5)], FIT, None),  # the same fit again: its questions decide
    ([answered("total", plan=OTHER), answered("total", b"r")], FIT, None),
    ([answered("total"), answered("total", b"r", OTHER)], FIT, SPENT),
    ([answered("signs")], msgspec.structs.replace(OTHER, totals=2), SPENT),
    ([answered("release")], msgspec.structs.replace(OTHER, totals=2), SPENT),
    ([answered("release", b"fit")], OBSERVE, None),
    ([answered("release", b"another")], OBSERVE, OTHER_WEIGHTING),
    ([answered("total")], OBSERVE, OTHER_WEIGHTING),
])  # fmt: skip
def test_what_a_day_was_given_to_decides_what_it_can_be_given_to(before, plan, expected) -> None:
    wanted = plan.totals if isinstance(plan, Plan) else 0
    assert after(*before).refuses(plan, 28, wanted, 5, b"fit" if plan is OBSERVE else b"") == expected
    assert after(*before).refuses(plan, 29, wanted, 5, b"") is None


@pytest.mark.parametrize(("fitted", "start", "expected"), [
    (range(110), 110, None), (range(111), 111, TOO_MANY_DAYS), (range(0), 0, None), (range(120), 365, None),
    (range(120), 355, TOO_MANY_DAYS), (range(120), 0, None), ([*range(60), *range(315, 365)], 400, None),
    ([*range(60), *range(314, 365)], 100, TOO_MANY_DAYS),
])  # fmt: skip
def test_fitted_weights_touch_at_most_120_of_any_365_days(fitted, start, expected) -> None:
    account = after(answered("total", days=tuple(fitted)))
    assert account.refuses_fit(msgspec.structs.replace(FIT, start=start * DAY)) == expected


@pytest.mark.parametrize(("days", "members", "expected"), [
    ((30,), (1, 2, 3), None), ((30,), (1, 2), OTHER_COMPANY), ((30, 31), (1, 2, 3, 4), OTHER_COMPANY),
    ((31,), (1, 2), None), ((31,), (1, 2, 3, 4), GROWN), ((31,), (1, 2, 4), GROWN), ((55,), (1, 4), GROWN),
    ((29,), (1, 2, 3, 4), None), ((29,), (1, 2), GROWN), ((28,), (1, 2, 4), GROWN),
    ((27,), (1, 4), None), ((56,), (1, 4), None), ((27, 29), (1, 2), GROWN), ((29, 31), (1, 2), GROWN),
])  # fmt: skip
def test_a_day_has_one_company_and_within_a_block_they_only_shrink(days, members, expected) -> None:
    account = after(Settled((30,), company(1, 2, 3), "equal", 3600))
    assert account.refuses_company(days, company(*members)) == expected


def test_beside_a_change_of_company_six_hours_are_not_given() -> None:
    account = after(Settled((30,), company(1, 2, 3), "equal", 900))
    day = np.arange(0, DAY, 900)
    before, after_it = account.beside_a_change(29 * DAY + day, company(1)), account.beside_a_change(31 * DAY + day, b"")
    assert (before == (day >= 18 * 3600)).all() and (after_it == (day < 6 * 3600)).all()
    for far in (28, 30, 32):
        assert not account.beside_a_change(far * DAY + day, company(1)).any()
    assert not account.beside_a_change(31 * DAY + day, company(1, 2, 3)).any()


def test_a_question_is_answered_four_times_and_a_new_one_where_there_is_room() -> None:
    account, days = Account(), (1, 2)

    def ask(question: bytes, kind: str) -> str | None:
        reason = account.refuses_question(days, question, kind, 5)
        if reason is None:
            account.book(answered(kind, question, days=days))
        return reason

    assert [ask(bytes([k]), "total") for k in range(6)] == [None] * 5 + [NO_ROOM]
    assert [ask(b"\0", "total") for _ in range(4)] == [None] * 3 + [ASKED_TOO_OFTEN]
    assert [ask(bytes([9, k]), "signs") for k in range(4)] == [None] * 3 + [NO_ROOM]
    assert [ask(b"r", "release") for _ in range(5)] == [None] * 4 + [ASKED_TOO_OFTEN]
    assert ask(b"r2", "release") == NO_ROOM
    assert {(d.totals, d.signs, d.fit) for d in account.days.values()} == {(5, 3, b"r")}
    assert account.refuses_question((2, 3), b"new", "total", 5) == NO_ROOM  # one day without room is enough
    assert account.refuses_question((3,), b"new", "total", 5) is None


@pytest.mark.parametrize(("owners", "totals"), [(6, 1), (7, 2), (9, 2), (10, 3), (15, 4), (16, 5), (400, 5)])
def test_there_is_one_total_for_three_owners_and_never_more_than_five(owners: int, totals: int) -> None:
    assert Rules().totals_for(owners) == FIT.totals_for(owners) == totals


@pytest.mark.parametrize(("enrolled", "owners", "fine"), [(10, 10, 1), (9, 9, 0), (15, 10, 1), (16, 10, 0), (16, 11, 1)])
def test_a_company_has_ten_owners_and_two_thirds_of_the_roster(enrolled: int, owners: int, fine: int) -> None:
    members = [(f"{k}.{part}", f"owner{k}", bytes([k, part]) * 16) for k in range(enrolled) for part in range(2)]
    roster = sign_roster(SigningKey(bytes(32)), members)
    some = tuple(member for member in roster.members if int(member.owner[5:]) < owners)
    assert large_enough(some, roster, Rules().least("collect")) == bool(fine)


# For life


def test_ten_years_of_hourly_rows_are_kept_in_less_than_four_megabytes() -> None:
    memory, hours = Memory(), np.arange(10 * 365 * 24, dtype="<i8") * 3600
    rng = np.random.default_rng(1)
    for block in np.array_split(hours, 130):  # 28 days each, by companies of 64
        days = tuple(np.unique(block // DAY).tolist())
        columns = [rng.normal(20, 1, len(block)), rng.gamma(2, 1, len(block))]
        memory.account.book(Judged(days))
        memory.account.book(Settled(days, rng.bytes(64 * 32), "equal", 3600))
        memory.account.book(Sent(block.tobytes(), *(c.astype("<f8").tobytes() for c in columns), bytes(len(block))))
        memory.account.book(Shown(block.tobytes()))
    snapshot = encode_snapshot(Snapshot(bytes(32), memory))
    assert len(snapshot) < 4e6
    again = decode_snapshot(snapshot).memory.account
    assert again.saved() == memory.account.saved() and len(again.time) == len(hours) and (again.shown == 1).all()
    began = time.perf_counter()
    assert again.refuses(EQUAL, 3000, 0, 5, b"") is None and (again.asked(hours[-24:]) == 1).all()
    assert again.refuses_company((3649,), company(1)) is not None
    print(f"{len(snapshot) / 1e6:.2f} MB; a lookup takes {1e3 * (time.perf_counter() - began):.2f} ms")
