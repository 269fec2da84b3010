"""The rules of the account and of companies (docs/spec.md §6): at their edges, against a model of them, and by what an
adversary could subtract after months of lies."""

import random
import re
import time
from collections import Counter, defaultdict
from itertools import combinations, pairwise

import msgspec
import numpy as np
import pytest

from atdm.crypto import ring
from atdm.crypto.keys import SigningKey
from atdm.data.readings import Readings, Weather
from atdm.errors import PeerError
from atdm.protocol import account as book
from atdm.protocol import agent as agent_module
from atdm.protocol import messages as m
from atdm.protocol.account import Account, Answered, Begun, Judged, Sent, Settled, Shown
from atdm.protocol.blind import veil as veil_module
from atdm.protocol.company import TOO_FEW, Verdict, owners_needed
from atdm.protocol.plan import DAY, Collect, Plan
from atdm.protocol.readings import weather_hash
from atdm.protocol.roster import Member, could_collude, owners_of, sign_roster
from atdm.protocol.rules import Rules, least_owners
from atdm.protocol.session import make_keys, make_ready
from atdm.protocol.store import Memory, Snapshot, disclose, enclose
from tests.protocol.drive import said
from tests.protocol.world import Ram, saved

# The model: what docs/spec.md §6 says of one home, in sets and dictionaries


class Record:
    """What one key of a home must remember, and what it may do then; since: the day it was enrolled."""

    def __init__(self, since: int = 0) -> None:
        self.since, self.sent = since, set()  # stamps that left
        self.judged, self.company, self.way, self.grid = {}, {}, {}, {}  # by day; a company is a set of identities
        self.plan, self.model = {}, {}  # day → the fit that asked last, the fit it was released or is shown under
        self.totals, self.signs = Counter(), Counter()  # day → different ones answered
        self.questions, self.shown = Counter(), Counter()  # question, stamp → times
        self.fits = {}  # run → (what was released, its last stamp, its company, its step)

    def inside(self, plan, day, readings) -> bool:
        """At least half of the day's rows from midnight to the announcement's last row, judged once; and room. Out only
        where a reading is from before the day's end, none can be on its way (six hours late at most), and the home has
        too few on its own grid as well."""
        midnight, last = day * DAY, plan.start + (plan.length - 1) * plan.step_seconds
        if day not in self.judged and max(readings, default=-1) >= max(midnight, plan.start):
            rows = range(midnight, min(last, midnight + DAY - 1) + 1, plan.step_seconds)
            asked = [t for t in range(plan.start, last + 1, plan.step_seconds) if t // DAY == day]
            own = [t for t in readings if midnight <= t < midnight + DAY and t <= last]
            step = min((b - a for a, b in pairwise(sorted(readings))), default=0)
            if 2 * sum(t in readings for t in rows) >= len(rows):
                self.judged[day] = True
            elif min(readings) < midnight + DAY and not 0 < asked[-1] - max(readings) <= 6 * 3600:
                if 2 * len(own) * step < len(rows) * plan.step_seconds:
                    self.judged[day] = False
        return day >= self.since and self.judged.get(day, False) and self.allows(plan, day)

    def refuses(self, plan) -> bool:
        """The whole plan, whatever the day."""
        if isinstance(plan, Plan):
            touched = {d for d in self.totals if self.totals[d]} | set(days_of(plan))
            return any(sum(d <= e < d + 365 for e in touched) > 120 for d in touched)
        if not plan.fit or plan.fit not in list(self.fits)[-4:]:  # the weights of the last four are kept
            return bool(plan.fit)
        _, end, _, step = self.fits[plan.fit]
        last = plan.start + (plan.length - 1) * plan.step_seconds
        return plan.start <= end or plan.step_seconds != step or last > end + 92 * DAY

    def allows(self, plan, day) -> bool:
        """One weighting, one grid, one fit."""
        same = self.way.get(day, plan.weights) == plan.weights
        if not same or self.grid.get(day, plan.step_seconds) != plan.step_seconds:
            return False
        untouched = day not in self.model and not self.totals[day]
        if isinstance(plan, Collect):
            return not plan.fit or untouched or self.model.get(day) == self.fits[plan.fit][0]
        return untouched or self.plan.get(day) == plan

    def accepts(self, days, company, owner_of, enrolled) -> bool:
        """Ten owners, two thirds of those enrolled."""
        owners = len({owner_of[i] for i in company})
        return owners >= 10 and 3 * owners >= 2 * enrolled and all(self.nested(day, company) for day in days)

    def nested(self, day, company) -> bool:
        """A day has one company, and company(d′) ⊆ company(d) for d < d′ of one block."""
        block = {d: c for d, c in self.company.items() if d // 28 == day // 28}
        grows = [d for d, c in block.items() if (d < day and not company <= c) or (d > day and not c <= company)]
        return block.get(day, company) == company and not grows

    def gives(self, stamp, company, readings, plan, since) -> bool:
        """It has the reading, for a fit that began: had it then; and no row within six hours of a midnight at which the
        company changed, or after which a member's key begins, goes out."""
        day, second = divmod(stamp, DAY)
        if since and stamp < since * DAY + 6 * 3600:
            return False
        before, after = self.company.get(day - 1, company), self.company.get(day + 1, company)
        beside = (second < 6 * 3600 and before != company) or (second >= 18 * 3600 and after != company)
        late = isinstance(plan, Plan) and self.totals[day] > 0 and stamp not in self.sent
        return stamp in readings and not beside and not late

    def settle(self, stamps, company, plan) -> None:
        self.sent.update(stamps)
        for day in {t // DAY for t in stamps}:
            assert self.nested(day, company)
            self.company[day], self.way[day], self.grid[day] = company, plan.weights, plan.step_seconds

    def answers(self, question, kind, days, owners) -> bool:
        """The same again is free, four times in all; else there must be room on every day."""
        if self.questions[question]:
            return self.questions[question] < 4
        room = {"open": lambda d: not self.totals[d], "total": lambda d: self.totals[d] < limit(owners),
                "signs": lambda d: self.signs[d] < 3, "release": lambda d: d not in self.model}[kind]  # fmt: skip
        return all(room(day) for day in days)

    def book(self, question, kind, days, plan) -> None:
        for day in days if not self.questions[question] else ():
            self.plan[day] = plan
            self.totals[day] += kind in ("open", "total")
            self.signs[day] += kind == "signs"
            self.model |= {day: question} if kind == "release" else {}
        self.questions[question] += 1


def limit(owners: int) -> int:
    return min((owners - 1) // 3, 5)


def days_of(plan) -> range:
    return range(plan.start // DAY, (plan.start + (plan.length - 1) * plan.step_seconds) // DAY + 1)


# The replay: real agents without masks, and an aggregator that lies

STEP, FIRST, AGENTS, COLLUDERS = 7200, 28 * 700 + 3, 17, 2
RULES = Rules(weights="fitted", rows_per_parameter=1.0, least_days=0.0, ridge=(1e-3, 100.0))
KINDS = {"open": "open", "step": "total", "signs": "signs", "release": "release"}


class Unmasked:
    """A session whose masks are zero: everything that is summed can be read."""

    def __init__(self, run, index, exchange, seed) -> None:
        self.run, self.index, self.seed, self.leads, self.neighbours = run, index, seed, index == 0, ()

    def pair_key(self, peer) -> bytes:
        return bytes(32)

    def forget_pairs(self) -> None: ...

    def mask(self, words, nonce) -> None: ...


class NoVeil:
    def __init__(self, key) -> None: ...

    def words(self, count, nonce) -> np.ndarray:
        return np.zeros(count, dtype=np.uint64)


class Home:
    """One identity of one home, with what it measured; its file may be corrected later."""

    def __init__(self, replay, name, colludes=False, like=None) -> None:
        rng = replay.rng
        while True:  # colluders come last, so that an honest home leads
            self.key = SigningKey(rng.randbytes(32))
            if (self.key.public[0] >= 0xF0) == colludes:
                break
        self.replay, self.name, self.colludes, self.id = replay, name, colludes, self.key.public
        self.owner = like.owner if like else "two homes" if name in ("home5", "home6") else name
        since = 0 if replay.now == FIRST * DAY else replay.now // DAY - 1
        self.store, self.record, self.agent, self.secret = Ram(), Record(since), None, rng.randbytes(32)
        noise, count = np.random.default_rng(rng.randrange(2**32)), replay.days * DAY // STEP
        self.time = FIRST * DAY + STEP * np.arange(count)
        self.temperature = 20 + noise.normal(0, 0.3, count).cumsum() * 0.05 + np.sin(np.arange(count) / 3)
        self.load, self.there = noise.gamma(2, 1, count), noise.random(count) > 0.002
        for day in noise.integers(0, replay.days, replay.days // 40):  # outages of half a day and more
            self.there[12 * day : 12 * day + noise.integers(4, 30)] = False
        if like is not None:
            self.temperature, self.load, self.there = like.temperature, like.load, like.there

    def readings(self) -> Readings:
        known = self.there & (self.time < self.replay.now)
        return Readings(self.time[known], self.temperature[known], self.load[known])

    def stamps(self) -> set:
        return set(self.readings().time.tolist())

    def hear(self, message) -> list:
        if self.agent is None:
            self.agent = agent_module.Agent(
                identity=self.key, secret=self.secret, roster=self.replay.roster, readings=self.readings(),
                authority=self.replay.authority.public, weather=self.replay.weather, rules=RULES, store=self.store,
                random_bytes=self.replay.rng.randbytes, renew=self.readings, renew_roster=lambda: self.replay.roster,
            )  # fmt: skip
            if self.agent.state is agent_module.AgentState.LOST:  # roster or file changed meanwhile: its account stays
                self.record.fits.pop(self.run, None)
        replies = said(self.agent, message)
        reasons = [reply.reason for reply in replies if getattr(reply, "reason", "")]
        self.replay.seen.update(re.sub(r"home\d+|key \w+", "…", reason) for reason in reasons)
        if not any(isinstance(reply, PeerError) for reply in replies):
            self.run = getattr(message, "run", b"")
        return replies


def left(replies: list) -> str | None:
    """The words with which an agent left the run, if it did."""
    return next((reply.reason for reply in replies if isinstance(reply, m.Refuse)), None)


class Replay:
    """Days go by; the aggregator asks for what it likes. Every answer must be what the model says."""

    def __init__(self, seed: int, days: int) -> None:
        self.rng, self.days, self.serial, self.attempt, self.now = random.Random(seed), days, 0, 0, FIRST * DAY
        self.authority = SigningKey(self.rng.randbytes(32))
        noise, span = np.random.default_rng(seed), np.arange(FIRST * DAY, (FIRST + days) * DAY, STEP)
        self.weather = Weather(span, noise.normal(5, 4, len(span)), noise.uniform(0, 0.4, len(span)))
        self.owner, self.series = {}, {}
        self.homes, self.born = [Home(self, f"home{k}", k < COLLUDERS) for k in range(AGENTS)], AGENTS
        self.enrol()
        self.seen = Counter()  # what happened, so that nothing goes untried
        self.openings = []  # (company, honest members, weighting, stamps), in order
        self.totals, self.models = defaultdict(set), defaultdict(set)  # (identity, day) → what opened over it
        self.words, self.asked = {}, Counter()  # (identity, stamp) → the words that left, and how often
        self.settled, self.fits, self.released = {}, [], []  # what the aggregator remembers

    def enrol(self) -> None:
        self.serial += 1
        self.homes.sort(key=lambda home: home.id)
        self.owner |= {home.id: home.owner for home in self.homes}
        self.series |= {home.id: home.load.tobytes() for home in self.homes}  # the same under a new key
        since = {home.id: home.record.since for home in self.homes}
        self.roster = sign_roster(self.authority, [(h.name, h.owner, h.id) for h in self.homes], self.serial, since)

    def begins(self, ids) -> int:
        """The latest first day of a key of these."""
        return max(member.since for member in self.roster.members if member.identity in ids)

    def owners(self, ids) -> int:
        return len({self.owner[i] for i in ids})

    def change(self, everybody: bool) -> None:
        """Somebody joins, dies, gets a new key, corrects its file or restarts; once all get new keys."""
        honest, what = [home for home in self.homes if not home.colludes], self.rng.random()
        home, rekeyed = self.rng.choice(honest), everybody or 0.05 < what < 0.07
        if rekeyed or what < 0.05:
            gone = honest if everybody else [home] if rekeyed or (what > 0.03 and len(honest) > 13) else []
            for like in gone if rekeyed else [None] if what < 0.03 else []:
                self.born += 1
                self.homes.append(Home(self, f"home{self.born}", like=like))
            self.homes = [home for home in self.homes if home not in gone]
            self.enrol()
        elif what < 0.20:
            home.temperature = home.temperature + 0.25
        elif what < 0.30:
            home.agent = None

    def run(self, plan, choose, broken=99, lie="") -> None:
        """Announce, name a company, sum; stop after so many rounds."""
        self.attempt += 1
        announce = m.Announce(plan=plan, roster=self.roster.hash(), attempt=self.attempt)
        answers, days = {i: self.answer(home, announce) for i, home in enumerate(self.homes)}, list(days_of(plan))
        inside = {i: {d for k, d in enumerate(days) if a.days[k // 8] >> k % 8 & 1} for i, a in answers.items()}
        company, touched = choose(inside, days)
        if len(company) < 3 or not touched or broken == 0:
            return
        if lie == "two in flight":  # the keys of an announcement after a newer one
            self.attempt += 1
            for home in self.homes:
                home.colludes or home.hear(msgspec.structs.replace(announce, attempt=self.attempt))
        keys = make_keys(self.roster, packed(day in touched for day in days), {i: answers[i] for i in company})
        ids = frozenset(self.homes[i].id for i in company)
        honest = {k: self.homes[i] for k, i in enumerate(company) if not self.homes[i].colludes}
        replies = {}
        for k, home in honest.items():
            may = home.record.accepts(touched, ids, self.owner, self.roster.owners()) and lie != "two in flight"
            may = may and all(touched <= inside[i] for i in company)
            if isinstance(plan, Plan):
                may = may and min(limit(self.owners(ids)), plan.totals) >= 2
            elif plan.fit:
                may = may and home.record.fits[plan.fit][2] == ids
            replies[k] = home.hear(keys)
            assert (left(replies[k]) is None) == may, (home.name, replies[k], may)
        if not any(left(each) for each in replies.values()) and broken > 1:
            rows = range(plan.start, plan.start + plan.length * plan.step_seconds, plan.step_seconds)
            sums = self.collect if isinstance(plan, Collect) else self.fit
            sums(plan, [t for t in rows if t // DAY in touched], ids, honest, replies, broken, lie)
        for home in honest.values():  # some hear of the end, some crash, some hear nothing
            if self.rng.random() < 0.1:
                home.agent = None
            elif home.agent.part is not None and self.rng.random() < 0.7:
                home.hear(m.Abort(run=home.agent.part.session.run.id, reason=""))

    def answer(self, home, announce) -> m.Ready:
        plan, days = announce.plan, days_of(announce.plan)
        if home.colludes:
            verdict = Verdict(np.ones(len(days), dtype=bool), "")
            return make_ready(home.key, announce, self.rng.randbytes(32), verdict)[0]
        (ready,) = home.hear(announce)
        stamps, out = home.stamps(), home.record.refuses(plan)
        expected = packed(not out and home.record.inside(plan, day, stamps) for day in days)
        assert ready.days == expected, (home.name, plan, ready.reason)
        return ready

    def collect(self, plan, rows, ids, honest, replies, broken, lie) -> None:
        gives, total, since = {}, np.zeros(len(rows) + 1, dtype=np.uint64), self.begins(ids)
        for k, home in honest.items():
            stamps, record, offer = home.stamps(), home.record, words_of(replies[k][0])
            gives[k] = {t for t in rows if record.gives(t, ids, stamps, plan, since) and record.shown[t] < 4}
            assert [word == 0 for word in offer[:-1]] == [t in gives[k] for t in rows], home.name
            total += offer
        total[-1] = len(ids)
        total[:-1][[lie == "claims" and self.rng.random() < 0.3 for _ in rows]] = 0
        message = m.Total(run=replies[0][0].run, step=0, words=ring.to_bytes(total))
        opened = [t for t, word in zip(rows, total[:-1], strict=True) if word == 0]
        heard = list(honest)[: len(honest) // 2] if broken == 2 else list(honest)
        self.settled |= {t // DAY: ids for t in opened}
        for k in heard:
            home, record, (reply,) = honest[k], honest[k].record, honest[k].hear(message)
            assert bool(left([reply])) == (not opened)
            given = gives[k].intersection(opened)
            record.settle(given, ids, plan)
            record.shown.update(given)
            record.model |= {t // DAY: record.fits[plan.fit][0] for t in given} if plan.fit else {}
            parts = words_of(reply)[:-1].reshape(2, -1).T.tolist() if opened else []
            for t, word in zip(opened, parts, strict=True):  # a stamp's words never change, whatever its file says
                assert t not in given or self.words.setdefault((home.id, t), word) == word, (home.name, t)
            self.asked.update((home.id, t) for t in given)
        if opened and len(heard) == len(honest):
            weighting = honest[0].record.fits[plan.fit][0] if plan.fit else None
            self.openings.append((ids, {h.id for h in honest.values()}, weighting,
                                  set(opened).intersection(*gives.values())))  # fmt: skip
        for home in honest.values() if broken > 2 else ():
            home.hear(m.Finished(run=message.run))

    def fit(self, plan, rows, ids, honest, replies, broken, lie) -> None:
        (secrets, first), owners = replies[0], self.owners(ids)
        asked = {0: first}
        for k, home in honest.items():
            if k:
                (asked[k],) = home.hear(m.Secret(run=secrets.run, box=secrets.boxes[48 * (k - 1) : 48 * k]))
            stamps = home.stamps()
            lacks = [not home.record.gives(t, ids, stamps, plan, self.begins(ids)) for t in rows]
            assert counts(words_of(asked[k]), len(ids), len(rows)) == lacks, home.name
        question, name, kept, days = None, "rows", [], set()
        for rounds in range(2, 20):
            total = sum(words_of(message) for message in asked.values())
            total[-1 - ring.CHECK_WORDS] = len(ids)
            if name == "rows":
                kept = [t for t, count in zip(rows, counts(total, len(ids), len(rows)), strict=True) if not count]
                days, question = {t // DAY for t in kept}, (ids, plan, tuple(kept))
                self.settled |= dict.fromkeys(days, ids)
            else:
                total[: len(kept)] += np.uint64(self.rng.randrange(1, 2**16) * (lie == "forges" and name == "step"))
                question = (question, total.tobytes())
                for home in honest.values() if name in ("open", "step") else ():
                    for day in days:
                        self.totals[home.id, day].add(total.tobytes())
            if broken == rounds:
                return
            message = m.Total(run=first.run, step=first.step, words=ring.to_bytes(total))
            said = {k: home.hear(message) for k, home in honest.items()}
            if said[0] and isinstance(said[0][0], m.Seal):
                said |= {0: said[0][1:]} | {k: honest[k].hear(said[0][0]) for k in honest if k}
            trained, order = int(round(len(kept) * plan.train, 9)), plan.order
            whole = order + sum(kept[i] - kept[i - order] == order * plan.step_seconds for i in range(order, trained))
            if whole < 7 + plan.period:
                assert all("too few rows" in left(each) for each in said.values())
                return
            said = {k: each for k, each in said.items() if each}  # the leader alone, where it would not seal
            names = {getattr(each[0], "phase", "release") for each in said.values() if not left(each)}
            for k, each in said.items():
                record = honest[k].record
                if name == "rows":
                    record.settle(kept, ids, plan)
                may = all(record.answers((question, n), KINDS[n], days, owners) for n in names or KINDS)
                odd = any(text in str(left(each)) for text in ("usable training rows", "do not determine"))
                assert may == (left(each) is None) or odd, (honest[k].name, names, each)
                if left(each) is None:
                    record.book((question, *names), KINDS[min(names)], days, plan)
            if any(left(each) for each in said.values()):
                return
            (name,), asked = names, {k: each[0] for k, each in said.items()}
            first = asked[0]
            if name == "release":
                break
        for home in honest.values():
            home.record.shown.update(kept)
            self.asked.update((home.id, t) for t in kept)
            home.record.fits[first.run] = ((question, name), rows[-1], ids, plan.step_seconds)
            for day in days:
                self.models[home.id, day].add(question)
        self.openings.append((ids, {h.id for h in honest.values()}, (question, name), set(kept)))
        self.released.append((first.run, plan))


def packed(flags) -> bytes:
    return np.packbits(list(flags), bitorder="little").tobytes()


def words_of(message) -> np.ndarray:
    return ring.from_bytes(message.words, len(message.words) // 8)


def counts(words, agents: int, rows: int) -> list[int]:
    """Of agents that lack a row, as many to a word as 48 bits hold."""
    width = agents.bit_length()
    return [int(words[r // (48 // width)]) >> width * (r % (48 // width)) & 2**width - 1 for r in range(rows)]


# The aggregator's lies, and what it may never have


def chosen(replay: Replay, way: str):
    """A company from everybody's answers, in good faith or not."""
    rng = replay.rng

    def choose(inside, days) -> tuple[list[int], set]:
        company = [i for i, bits in inside.items() if bits]
        settled = [d for d in replay.settled if d // 28 == days[-1] // 28 and d <= days[-1]]
        known = replay.settled[max(settled)] if settled else {home.id for home in replay.homes}
        if way in ("good", "more"):  # those of the latest day before
            company = [i for i in company if replay.homes[i].id in known]
        if way == "more":
            others = [i for i in inside if replay.homes[i].id not in known]
            company = sorted(company + rng.sample(others, min(1, len(others))))
        elif way == "fewer":  # answers dropped, down to companies that are too small
            company = sorted(rng.sample(company, max(1, len(company) - rng.choice([1, 1, 2, 3, 6]))))
        elif way in ("one", "other"):  # two groups of witnesses, most of them in both
            company = [i for n, i in enumerate(company) if n % 4 != (way == "one")]
        touched = set(days).intersection(*(inside[i] for i in company)) if company else set()
        return company, set(days) if way == "all days" else touched

    return choose


def live(replay: Replay, day: int) -> None:
    """One day of the aggregator's life: mostly what it should do, often enough what it should not."""
    rng = replay.rng
    replay.now = (FIRST + day + 1) * DAY
    replay.change(everybody=day == replay.days // 2)
    for _ in range(rng.choice([1, 1, 2, 3])):
        way = rng.choice(["good"] * 16 + ["everybody"] + ["fewer", "more", "all days", "one"])
        lie = rng.choice([""] * 16 + ["claims", "claims", "forges", "forges", "two in flight"])
        broken = rng.choice([99] * 16 + [0, 1, 2, 2, 3, 4, 5, 6])
        start = (FIRST + max(day - rng.choice([0, 0, 0, 1, 2, rng.randrange(35)]), 0)) * DAY
        kinds = ["day"] * 3 + ["days", "grid", "fit"] if day // 14 % 2 else ["fit", "observe"] + ["again"] * 3
        kind = rng.choice(kinds)
        if kind == "day":  # or a portion of it
            first = rng.choice([0, 0, rng.randrange(12)])
            plan = Collect(step_seconds=STEP, start=start + first * STEP, length=rng.randint(1, 12 - first))
        elif kind in ("days", "grid"):
            step = STEP if kind == "days" else 2 * STEP
            plan = Collect(step_seconds=step, start=start, length=DAY // step * rng.randint(1, 4))
        elif kind == "observe" and replay.released:
            run, fitted = rng.choice(replay.released[-3:])
            end = fitted.start + (fitted.length + rng.choice([0, 12])) * STEP
            plan = Collect(step_seconds=STEP, start=end, length=rng.randint(1, 18), fit=run)
        elif kind == "again" and replay.fits:  # the same fit, or nearly
            plan = rng.choice(replay.fits[-2:])
            if rng.random() < 0.15:
                plan = msgspec.structs.replace(plan, ridge=plan.ridge + 1, totals=rng.choice([2, 3, 5]))
        elif day < 3:
            continue
        else:
            start = (FIRST + max(day - rng.choice([4, 6, 12]), 0)) * DAY
            weather = weather_hash(replay.weather, start, replay.now - STEP)
            plan = msgspec.structs.replace(FIT, ridge=90.0, period=12, step_seconds=STEP, start=start,
                                           length=(replay.now - start) // STEP, weather=weather)  # fmt: skip
            replay.fits.append(plan)
        replay.run(plan, chosen(replay, way), broken, lie)
        if way == "one":
            replay.run(plan, chosen(replay, "other"))


def audit(replay: Replay) -> None:
    """From what opened alone: which differences could an adversary form?"""
    settled, under, since, parts = {}, {}, {}, defaultdict(list)
    for number, (company, honest, weighting, stamps) in enumerate(replay.openings):
        assert replay.owners(company) >= 10 and replay.owners(honest) >= 10 - COLLUDERS
        for i in honest:
            for day in {t // DAY for t in stamps}:
                assert settled.setdefault((i, day), company) == company, "a day summed with two companies"
                assert under.setdefault((i, day), weighting) == weighting, "a day shown under two weightings"
                since.setdefault((i, day), number)
            for day, second in (divmod(t, DAY) for t in stamps):
                for other, near in ((day - 1, second < 6 * 3600), (day + 1, second >= 18 * 3600)):
                    if near and since.get((i, other), number) < number:
                        assert settled[i, other] == company, "a row within six hours of a change"
        for t in stamps:
            parts[t].append({replay.series[i] for i in honest})
    for one, other in combinations(sorted(settled), 2):
        if one[0] == other[0] and one[1] // 28 == other[1] // 28:
            assert settled[other] <= settled[one], "companies grew within a block"
    for sums in parts.values():  # what two sums of one stamp differ by: nobody, or whole companies
        assert all(one == other or not one & other for one, other in combinations(sums, 2))
    assert max(replay.asked.values()) <= 4
    assert max(map(len, replay.totals.values())) <= 5 and max(map(len, replay.models.values())) == 1
    for who in {i for i, _ in replay.totals}:
        days = sorted(day for i, day in replay.totals if i == who)
        assert all(days[k + 120] - days[k] >= 365 for k in range(len(days) - 120)), "too many days of fitted weights"


def assert_account_is(record: Record, account: Account) -> None:
    for day in account.days.keys() | record.company.keys():
        known = account.days[day]
        ids = book.identities_in(account.companies[known.company]) if known.company else None
        assert (known.judged, ids) == (record.judged.get(day), record.company.get(day))
        fit = account.fit_of(day)
        assert (fit.totals, fit.signs, bool(known.fit) and (fit.released or not fit.days)) == (
            record.totals[day], record.signs[day], day in record.model)  # fmt: skip
        assert (known.weights, known.step) == (record.way.get(day), record.grid.get(day, 0))
    assert sorted(account.questions.values()) == sorted(n for n in record.questions.values() if n)
    shown = dict(zip(account.time.tolist(), account.shown.tolist(), strict=True))
    assert {t: n for t, n in shown.items() if n} == dict(record.shown)


def replayed(seed: int, days: int) -> Counter:
    replay = Replay(seed, days)
    for day in range(days):
        live(replay, day)
    for home in replay.homes:
        if not home.colludes and home.agent is not None:
            assert_account_is(home.record, home.agent.own.memory.account)
    audit(replay)
    return replay.seen + Counter(openings=len(replay.openings), fits=len(replay.released))


@pytest.fixture
def clear(monkeypatch):
    """Neither masks nor veil: the rules alone."""
    monkeypatch.setattr(agent_module, "Session", Unmasked)
    monkeypatch.setattr(veil_module, "Stream", NoVeil)


def test_months_of_lies_leave_no_difference_that_shows_a_home(clear) -> None:
    seed = 13
    seen = replayed(seed, 200)
    print(f"seed {seed}: {dict(seen)}")
    assert seen["openings"] > 60 and seen["fits"] > 10
    for reason in (*TEXTS, TOO_FEW, "smaller than", "not in on all days", "whole company", "no weight of that fit"):
        assert reason == book.TOO_MANY_DAYS or reason in " ".join(seen), reason


@pytest.mark.soak
def test_ten_years_of_lies(clear) -> None:
    print(dict(sum((replayed(seed, 400) for seed in range(100, 109)), Counter())))


# The rules at their edges

TEXTS = (book.OTHER_WEIGHTING, book.OTHER_GRID, book.SPENT, book.TOO_MANY_DAYS, book.OTHER_COMPANY, book.GROWN,
         book.ASKED_TOO_OFTEN, book.NO_ROOM)  # fmt: skip
FIT = Plan(
    protocol="blind", order=1, ridge=1.0, period=24, step_seconds=3600, timezone="UTC", start=28 * DAY, length=240,
    train=0.75, nonnegative="free", tolerance=1e-12, solver_tolerance=0.03, weather=b"",
)  # fmt: skip
TWO = msgspec.structs.replace(FIT, totals=2)
EQUAL = Collect(step_seconds=3600, start=28 * DAY, length=24)
OBSERVE = msgspec.structs.replace(EQUAL, fit=b"run")
NOON = np.array([28 * DAY + 43200], dtype="<i8").tobytes()
SHOWN_UNDER_IT = (Sent(NOON, bytes(8), bytes(8), bytes(1)), Shown(NOON, b"fit"))


def company(*members: int) -> bytes:
    return b"".join(bytes([member]) * 32 for member in members)


def after(*bookings) -> Account:
    account = Account()
    account.apply(bookings)
    return account


def given(weights: str, step: int = 3600) -> Settled:
    return Settled((28,), company(1), weights, step)


def fitted(fit: bytes, *kinds: str, days=(28,)) -> list[book.AnyBooking]:
    return [Begun(fit, days, FIT.hash()), *(Answered(fit, bytes([k]), kind) for k, kind in enumerate(kinds))]


@pytest.mark.parametrize(("before", "plan", "expected"), [
    ([], FIT, None),
    ([Judged((28,))], FIT, None),
    ([given("equal")], EQUAL, None),
    ([given("equal")], FIT, book.OTHER_WEIGHTING),
    ([given("equal")], OBSERVE, book.OTHER_WEIGHTING),
    ([given("fitted")], EQUAL, book.OTHER_WEIGHTING),
    ([given("equal", 1800)], EQUAL, book.OTHER_GRID),
    ([given("fitted", 1800)], FIT, book.OTHER_GRID),
    (fitted(b"fit", "open"), TWO, book.SPENT),
    (fitted(b"fit", *["total"] * 5), FIT, None),  # the same fit again: its questions decide
    (fitted(b"fit", "release"), TWO, book.SPENT),
    (fitted(b"fit", "release"), OBSERVE, None),
    (fitted(b"another", "release"), OBSERVE, book.OTHER_WEIGHTING),
    (fitted(b"another", "total"), OBSERVE, book.OTHER_WEIGHTING),
    ([*fitted(b"fit", "release", days=(27,)), *SHOWN_UNDER_IT], FIT, book.SPENT),
    ([*fitted(b"fit", "release", days=(27,)), *SHOWN_UNDER_IT], OBSERVE, None),
])  # fmt: skip
def test_what_a_day_was_given_to_decides_what_it_can_be_given_to(before, plan, expected) -> None:
    wanted, fit = plan.totals if isinstance(plan, Plan) else 0, b"fit" if plan is OBSERVE else b""
    assert after(*before).refuses(plan, 28, wanted, 5, fit) == expected
    assert after(*before).refuses(plan, 29, wanted, 5, fit) is None


@pytest.mark.parametrize(("days", "start", "fine"), [
    (range(110), 110, True), (range(111), 111, False), (range(120), 0, True), (range(120), 365, True),
    (range(120), 355, False), ([*range(60), *range(315, 365)], 400, True), ([*range(60), *range(314, 365)], 100, False),
])  # fmt: skip
def test_fitted_weights_touch_at_most_120_of_any_365_days(days, start, fine) -> None:
    account = after(*fitted(b"fit", "total", days=tuple(days)))
    plan = msgspec.structs.replace(FIT, start=start * DAY)  # ten days
    assert account.refuses_fit(plan) == (None if fine else book.TOO_MANY_DAYS)


@pytest.mark.parametrize(("days", "members", "expected"), [
    ((30,), (1, 2, 3), None), ((30,), (1, 2), book.OTHER_COMPANY), ((30, 31), (1, 2, 3, 4), book.OTHER_COMPANY),
    ((31,), (1, 2), None), ((31,), (1, 2, 3, 4), book.GROWN), ((31,), (1, 2, 4), book.GROWN),
    ((55,), (1, 4), book.GROWN), ((29,), (1, 2, 3, 4), None), ((29,), (1, 2), book.GROWN),
    ((28,), (1, 2, 4), book.GROWN), ((27,), (1, 4), None), ((56,), (1, 4), None), ((27, 29), (1, 2), book.GROWN),
])  # fmt: skip
def test_a_day_has_one_company_and_within_a_block_they_only_shrink(days, members, expected) -> None:
    account = after(Settled((30,), company(1, 2, 3), "equal", 3600))
    assert account.refuses_company(days, company(*members)) == expected


def test_beside_a_change_of_company_six_hours_are_not_given() -> None:
    account, day = after(Settled((30,), company(1, 2, 3), "equal", 900)), np.arange(0, DAY, 900)
    assert (account.beside_a_change(29 * DAY + day, company(1)) == (day >= 18 * 3600)).all()
    assert (account.beside_a_change(31 * DAY + day, company(1)) == (day < 6 * 3600)).all()
    for far, members in ((28, (1,)), (30, (1,)), (32, (1,)), (31, (1, 2, 3))):
        assert not account.beside_a_change(far * DAY + day, company(*members)).any()


def test_a_question_is_answered_four_times_and_a_new_one_where_there_is_room() -> None:
    account = Account()

    def ask(question: bytes, kind: str, fit: bytes = b"f", days=(1, 2)) -> str | None:
        if (reason := account.refuses_question(fit, days, question, kind, 5)) is None:
            account.apply([Begun(fit, days, FIT.hash()), Answered(fit, question, kind)])
        return reason

    assert [ask(bytes([k]), "total" if k else "open") for k in range(6)] == [None] * 5 + [book.NO_ROOM]
    assert [ask(b"\0", "open") for _ in range(4)] == [None] * 3 + [book.ASKED_TOO_OFTEN]
    assert [ask(bytes([9, k]), "signs") for k in range(4)] == [None] * 3 + [book.NO_ROOM]
    assert [ask(b"r", "release") for _ in range(5)] == [None] * 4 + [book.ASKED_TOO_OFTEN]
    assert ask(b"r2", "release") == book.NO_ROOM
    assert ask(b"o2", "open") == ask(b"o2", "open", b"g", (2, 3)) == book.NO_ROOM  # one day of another fit is enough
    assert ask(b"o2", "open", b"g", (3,)) is None
    found = [(fit.totals, fit.signs, fit.released) for fit in map(account.fit_of, range(2, 5))]
    assert found == [(5, 3, True), (1, 0, False), (0, 0, False)]


@pytest.mark.parametrize(("owners", "totals"), [(6, 1), (7, 2), (9, 2), (10, 3), (15, 4), (16, 5), (400, 5)])
def test_there_is_one_total_for_three_owners_and_never_more_than_five(owners: int, totals: int) -> None:
    assert Rules().totals_for(owners) == FIT.totals_for(owners) == totals


@pytest.mark.parametrize("enrolled, owners, fine", [(10, 10, 1), (9, 9, 0), (15, 10, 1), (16, 10, 0), (16, 11, 1)])
def test_a_company_has_ten_owners_and_two_thirds_of_the_roster(enrolled: int, owners: int, fine: int) -> None:
    members = [(f"{k}.{part}", f"owner{k}", bytes([k, part]) * 16) for k in range(enrolled) for part in range(2)]
    roster = sign_roster(SigningKey(bytes(32)), members)
    some = tuple(member for member in roster.members if int(member.owner[5:]) < owners)
    assert (owners_of(some) >= owners_needed(roster, least_owners(Rules(), "collect"))) == bool(fine)


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
    snapshot = enclose(Snapshot(bytes(32), memory))
    assert len(snapshot) < 4e6
    again = disclose(snapshot, Snapshot).memory.account
    assert saved(again) == saved(memory.account) and len(again.time) == len(hours)
    began = time.perf_counter()
    assert again.refuses(EQUAL, 3000, 0, 5, b"") is None and (again.asked(hours[-24:]) == 1).all()
    assert again.refuses_company((3649,), company(1)) == book.OTHER_COMPANY
    print(f"{len(snapshot) / 1e6:.2f} MB; a lookup takes {1e3 * (time.perf_counter() - began):.2f} ms")


def test_a_third_of_the_owners_can_have_most_of_the_agents():
    owners = "landlord " * 5 + "council " * 3 + "anna ben cleo dora emil fritz gerd"
    members = [Member(f"room {i}", owner, bytes([i])) for i, owner in enumerate(owners.split())]
    assert could_collude(members, 9) == 5 + 3
    assert could_collude(members[::2], 9) == 3 + 1  # of a company; it is the owners enrolled that count
    assert could_collude(members[8:], 100) == 7
