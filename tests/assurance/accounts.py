"""The real account of a home, asked everything an aggregator could ask, in every order, with a restart before each.

`Questions`, `Companies` and `Calendar` are small worlds in which the class that deployed agents use
(protocol/account.py) decides; `search` goes through every state that can be reached and looks only at what left. The
first two, their verbs and their claims are those of questions.pml and companies.pml; `replay` puts the events of a Spin
run to the real account.

python -m tests.assurance prints what all of them found.
"""

import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from atdm.data.readings import Readings
from atdm.protocol import account as book
from atdm.protocol.account import Account, Answered, Begun, Judged, Shown
from atdm.protocol.company import TOO_EARLY, TOO_FEW, judge, owners_needed
from atdm.protocol.plan import DAY, Collect, Plan
from atdm.protocol.roster import Member, Roster, owners_of
from atdm.protocol.rules import Rules
from atdm.protocol.store import Memory, Snapshot, disclose, enclose

FIRST = 28 * 700 - 2  # UTC day: two days of a block, then those of the next
HOUR = 3600
EQUAL, FIT_GRID = 1, 1
Action = tuple[str, *tuple[int, ...]]


class Deaf(Account):
    """An account that does not hear one of its rules."""

    ignored: tuple[Any, ...] = ()  # fixed texts of refusals, kinds of questions, or bookings

    def refuses(self, *given: Any) -> str | None:
        return self._heard(super().refuses(*given))

    def refuses_company(self, *given: Any) -> str | None:
        return self._heard(super().refuses_company(*given))

    def refuses_question(self, fit: bytes, days: Any, question: bytes, kind: Any, totals: int) -> str | None:
        reason = super().refuses_question(fit, days, question, kind, totals)
        return None if reason == book.NO_ROOM and kind in self.ignored else self._heard(reason)

    def refuses_fit(self, plan: Plan) -> str | None:
        return self._heard(super().refuses_fit(plan))

    def book(self, booking: book.AnyBooking) -> None:
        if not (isinstance(booking, Judged) and Judged in self.ignored):
            super().book(booking)

    def _heard(self, reason: str | None) -> str | None:
        return None if reason in self.ignored else reason


class Violation(Exception):
    """What left is more than is claimed."""


def claim(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


def written(account: Account) -> bytes:
    """As on disk, and the same bytes for the same account."""
    parts = {name: dict(sorted(getattr(account, name).items())) for name in ("days", "companies", "fits", "questions")}
    return enclose(Snapshot(b"", Memory(replace(account, **parts))))


def read(data: bytes, kind: type[Account]) -> Account:
    account = disclose(data, Snapshot).memory.account
    return kind(**{each.name: getattr(account, each.name) for each in fields(account)})


def readings(*stamps: int) -> Readings:
    time = np.array(stamps, dtype=np.int64)
    return Readings(time, np.full(len(time), 20.0), np.full(len(time), 1.0))


@dataclass
class World:
    """How the real account is asked. Each verb gives whether it allowed it; what it booked is in the account."""

    days: int = 1
    totals: int = 2  # limits that are looked for in what left
    signs: int = 1
    askings: int = 2
    ignored: tuple[Any, ...] = ()  # rules taken out
    booked_first: bool = True
    known: dict[tuple[bytes, Action], tuple[bool, bytes]] = field(default_factory=dict)

    @property
    def kind(self) -> type[Account]:
        return type("Deaf", (Deaf,), {"ignored": self.ignored})

    def step(self, saved: bytes, action: Action) -> tuple[bool, bytes]:
        """A home that is started anew, asked once: whether it allows it, and its account on disk afterwards. Playing
        its bookings on the account as it was gives the same."""
        if (saved, action) not in self.known:
            account = read(saved, self.kind)
            allowed = getattr(self, action[0])(account, *action[1:])
            if not allowed and written(account) != saved:
                raise AssertionError(f"the account changed although {action} was refused")
            again = read(saved, self.kind)
            again.apply(account.booked())
            if written(again) != written(account):
                raise AssertionError(f"the journal does not give the account back after {action}")
            self.known[saved, action] = allowed, written(account)
        return self.known[saved, action]

    @contextmanager
    def limits(self) -> Iterator[None]:
        """The account's own constants set to those of this world, unless the rule is taken out."""
        names = ("MOST_ASKINGS", "MOST_SIGNS", "BLOCK", "HOLE", "FITTED_DAYS", "OF_DAYS")
        before = {name: getattr(book, name) for name in names}
        book.MOST_ASKINGS = 9 if "MOST_ASKINGS" in self.ignored else self.askings
        book.MOST_SIGNS = 9 if "MOST_SIGNS" in self.ignored else self.signs
        if isinstance(self, Calendar):
            book.FITTED_DAYS, book.OF_DAYS = self.fitted_days, self.of_days
        book.HOLE = 0 if "HOLE" in self.ignored else before["HOLE"]
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(book, name, value)


# Questions: one home and its days, asked by fits and collected


class Left(NamedTuple):
    """What an observer saw leave in the world of questions."""

    questions: tuple[tuple[tuple[int, int], int], ...] = ()  # (fit, question) → times
    shown: tuple[tuple[tuple[int, int], int], ...] = ()  # (day, stamp) → times
    grid: tuple[tuple[int, int], ...] = ()  # by day
    fit: tuple[tuple[int, int], ...] = ()  # by day: whose totals
    under: tuple[tuple[int, int], ...] = ()  # by day: weights of what was shown


@dataclass
class Questions(World):
    """Fit 0: plan A over all days; fit 1: plan A over the first day alone; fit 2: plan B over the last."""

    def __post_init__(self) -> None:
        whole = Plan(
            protocol="blind", order=1, ridge=1.0, period=24, step_seconds=HOUR, timezone="UTC", start=FIRST * DAY,
            length=24 * self.days, train=0.75, nonnegative="free", tolerance=1e-12, solver_tolerance=0.03, weather=b"",
        )  # fmt: skip
        last = msgspec.structs.replace(whole, start=(FIRST + self.days - 1) * DAY, length=24)
        other = msgspec.structs.replace(last, ridge=2.0)
        self.plans = (whole, whole, other)
        self.over = (tuple(range(self.days)), (0,), (self.days - 1,))
        self.company = b"".join(bytes([i]) * 32 for i in range(10))

    @property
    def per_fit(self) -> int:
        """Questions of a fit: one to open it, and one more of each kind than is allowed."""
        return 1 + self.totals + self.signs + 1 + 2

    def kind_of(self, question: int) -> book.Kind:
        after = (question > 0) + (question > self.totals) + (question > self.totals + self.signs + 1)
        return ("open", "total", "signs", "release")[after]

    def release(self, weights: int) -> tuple[int, int]:
        """Which release these weights are from: fit and question. EQUAL is 1; those of a fit begin at 3."""
        return (weights - 3) // 2, self.per_fit - 2 + (weights - 3) % 2

    def weights_of(self, fit: int, question: int) -> int:
        return 3 + 2 * fit + question - (self.per_fit - 2)

    @staticmethod
    def stamp(day: int, which: int) -> int:
        """One within the rows of the fits, one after them; both on the grids of one and two hours."""
        return (FIRST + day) * DAY + (12 + 2 * which) * HOUR

    @staticmethod
    def name(fit: int, question: int) -> bytes:
        return bytes([fit, question])

    # Verbs

    def fit(self, account: Account, fit: int) -> bool:
        plan = self.plans[fit]
        if any(account.refuses(plan, FIRST + day, self.totals, self.totals, b"") for day in self.over[fit]):
            return False
        rows = readings(*(self.stamp(day, 0) for day in self.over[fit]))
        account.settle(rows, self.company, "fitted", plan.step_seconds)
        return True

    def ask(self, account: Account, fit: int, question: int) -> bool:
        days, kind, name = (
            tuple(FIRST + day for day in self.over[fit]),
            self.kind_of(question),
            self.name(fit, question),
        )
        own = bytes([fit])
        if account.refuses_question(own, days, name, kind, self.totals):
            return False
        if own not in account.fits:
            account.book(Begun(own, days, self.plans[fit].hash()))
        account.book(Answered(own, name, kind))
        if kind == "release":
            stamps = np.array([self.stamp(day, 0) for day in self.over[fit]], dtype="<i8")
            account.book(Shown(stamps.tobytes()))
        return True

    def collect(self, account: Account, day: int, which: int, weights: int, grid: int) -> bool:
        under = b"" if weights == EQUAL else bytes([self.release(weights)[0]])
        stamp = self.stamp(day, which)
        plan = Collect(step_seconds=grid * HOUR, start=stamp, length=1, fit=under)
        rows = readings(stamp)
        if account.refuses(plan, FIRST + day, 0, self.totals, under):
            return False
        if account.asked(rows.time)[0] >= book.MOST_ASKINGS:  # as in CollectPart: such a row is not given
            return False
        account.settle(rows, self.company, plan.weights, plan.step_seconds)
        account.book(Shown(rows.time.astype("<i8").tobytes(), under))
        return True

    # What can be asked, and what leaves

    def asked(self, saved: bytes, running: tuple[int, bool], left: Left) -> Iterator[tuple[Action, tuple[int, bool]]]:
        """Everything the aggregator can do next, with the run it is in afterwards."""
        fit, opened = running
        booked = {key for key, _ in read(saved, Account).questions.items()}
        answered = {key for key, _ in left.questions}
        if fit < 0:
            for each in range(3):
                yield ("fit", each), (each, False)
            for day in range(self.days):
                for which in (0, 1):
                    for grid in (1, 2):
                        yield ("collect", day, which, EQUAL, grid), running
                    for weights in range(3, 9):
                        if self.name(*self.release(weights)) in booked:
                            end = max(self.over[self.release(weights)[0]])
                            if day > end or (day == end and which == 1):
                                yield ("collect", day, which, weights, FIT_GRID), running
            return
        for question in range(self.per_fit):
            starts = self.kind_of(question) != self.kind_of(max(question - 1, 0)) or question == 0
            before = self.name(fit, question - 1) in booked or (fit, question - 1) in answered if question else True
            if opened == (question > 0) and (starts or before):  # new ones of a kind in order: they are alike
                yield ("ask", fit, question), (fit, True)
        yield ("end",), (-1, False)

    def end(self, account: Account) -> bool:
        return True

    def leave(self, left: Left, action: Action) -> Left:
        """The words of an answer, seen by somebody who does not know the account."""
        if action[0] == "ask":
            return self._answered(left, *action[1:])
        if action[0] == "collect":
            return self._collected(left, *action[1:])
        return left

    def _answered(self, left: Left, fit: int, question: int) -> Left:
        questions, shown = dict(left.questions), dict(left.shown)
        grid, under, whose = dict(left.grid), dict(left.under), dict(left.fit)
        questions[fit, question] = questions.get((fit, question), 0) + 1
        claim(questions[fit, question] <= self.askings, "a question was answered too often")
        for day in self.over[fit]:
            claim(grid.setdefault(day, FIT_GRID) == FIT_GRID, "a day on two grids")
            kinds = [self.kind_of(q) for f, q in questions if day in self.over[f]]
            claim(kinds.count("open") + kinds.count("total") <= self.totals, "too many totals over a day")
            claim(kinds.count("signs") <= self.signs, "too many counts of signs over a day")
            claim(kinds.count("release") <= 1, "two models over a day")
            claim(whose.setdefault(day, fit) == fit, "a day opened to two fits")
            claim(day not in under or (under[day] >= 3 and self.release(under[day])[0] == fit), "a day in two ways")
            if self.kind_of(question) == "release":
                weights = self.weights_of(fit, question)
                claim(under.setdefault(day, weights) == weights, "a day under two weightings")
                shown[day, 0] = shown.get((day, 0), 0) + 1
                claim(shown[day, 0] <= self.askings, "a stamp was shown too often")
        return Left(*(tuple(sorted(each.items())) for each in (questions, shown, grid, whose, under)))

    def _collected(self, left: Left, day: int, which: int, weights: int, grid: int) -> Left:
        shown, grids, under, whose = dict(left.shown), dict(left.grid), dict(left.under), dict(left.fit)
        shown[day, which] = shown.get((day, which), 0) + 1
        claim(shown[day, which] <= self.askings, "a stamp was shown too often")
        claim(grids.setdefault(day, grid) == grid, "a day on two grids")
        claim(under.setdefault(day, weights) == weights, "a day under two weightings")
        claim(day not in whose or (weights >= 3 and self.release(weights)[0] == whose[day]), "a day in two ways")
        return left._replace(shown=tuple(sorted(shown.items())), grid=tuple(sorted(grids.items())),
                             under=tuple(sorted(under.items())))  # fmt: skip

    start: tuple[int, bool] = (-1, False)
    nothing: Left = field(default_factory=Left)


# Companies: one home, days at a border of blocks, every company it could be named into


class Given(NamedTuple):
    """(day, part of it) → companies, as bits, in which its words left."""

    words: tuple[tuple[tuple[int, int], int], ...] = ()


MORNING, MIDDAY, EVENING = 0, 1, 2


@dataclass
class Companies(World):
    """One home stands for all: every claim is about sums with a common honest member, and it is that member's account
    that keeps them apart. Members as bits; this home is the first."""

    members: int = 3
    home: int = 0

    @property
    def roster(self) -> Roster:
        each = tuple(Member(f"home {i}", f"home {i}", bytes([i]) * 32) for i in range(self.members))
        return Roster(serial=1, members=each, authority=b"", signature=b"")

    def identities(self, company: int) -> bytes:
        return b"".join(bytes([i]) * 32 for i in range(self.members) if company >> i & 1)

    def rows(self, days: int) -> Readings:
        """03:00, 12:00 and 21:00 of each day."""
        hours = (3, 12, 21)
        return readings(*((FIRST + d) * DAY + h * HOUR for d in range(self.days) if days >> d & 1 for h in hours))

    def company(self, account: Account, company: int, days: int) -> bool:
        members = tuple(m for i, m in enumerate(self.roster.members) if company >> i & 1)
        least = 0 if "least" in self.ignored else 2
        large = owners_of(members) >= owners_needed(self.roster, least) or "share" in self.ignored
        named = [FIRST + d for d in range(self.days) if days >> d & 1]
        if not large or account.refuses_company(named, self.identities(company)):
            return False
        near = account.beside_a_change(self.rows(days).time, self.identities(company))
        account.settle(self.rows(days).at(np.flatnonzero(~near)), self.identities(company), "equal", HOUR)
        return True

    def asked(self, saved: bytes, running: tuple[int, bool], left: Given) -> Iterator[tuple[Action, tuple[int, bool]]]:
        for company in range(1, 1 << self.members):
            if company >> self.home & 1:
                for days in range(1, 1 << self.days):
                    yield ("company", company, days), running

    def leave(self, left: Given, action: Action, before: bytes = b"") -> Given:
        _, company, days = action
        given = dict(left.words)
        account = read(before, self.kind)
        rows = self.rows(days).time
        near = account.beside_a_change(rows, self.identities(company))
        for stamp in rows[~near].tolist():
            day, hour = divmod(stamp - FIRST * DAY, DAY)
            part = (day, (3, 12, 21).index(hour // HOUR))
            given[part] = given.get(part, 0) | 1 << company
        self._look(given)
        return Given(tuple(sorted(given.items())))

    def _look(self, given: dict[tuple[int, int], int]) -> None:
        """What left of this home, with whom."""
        days: dict[int, int] = {}
        for (day, _), companies in given.items():
            days[day] = days.get(day, 0) | companies
        for day, companies in days.items():
            claim(companies.bit_count() == 1, "a day in two companies")
            company = companies.bit_length() - 1
            claim(company.bit_count() >= 2 and 3 * company.bit_count() >= 2 * self.members, "a company too small")
            for later, others in days.items():
                if later > day and (FIRST + later) // 28 == (FIRST + day) // 28:
                    other = others.bit_length() - 1
                    claim(other & company == other, "a company that grew within a block")
            after = given.get((day + 1, MORNING), 0)
            if given.get((day, EVENING), 0) and after:
                claim(given[day, EVENING] == after, "rows on both sides of a change of company")

    start: tuple[int, bool] = (-1, False)
    nothing: Given = field(default_factory=Given)


# Calendar: one home, fits over any days, readings that are there or not when it is asked


class Said(NamedTuple):
    """What an observer heard and saw leave in the world of days."""

    few: frozenset[int] = frozenset()  # days of which it said that it has too few readings
    inside: frozenset[int] = frozenset()  # days on which it was in
    fitted: frozenset[int] = frozenset()  # days over which totals left


@dataclass
class Calendar(World):
    """Any window of days is announced for a fit, and opened where the home is in on all of them. Of a day all readings
    are there or few, another time otherwise; the home's key was enrolled on the second day."""

    fitted_days: int = 2
    of_days: int = 3

    def plan(self, first: int, last: int) -> Plan:
        return Plan(
            protocol="blind", order=1, ridge=1.0, period=24, step_seconds=HOUR, timezone="UTC",
            start=(FIRST + first) * DAY, length=24 * (last - first + 1), train=0.75, nonnegative="free",
            tolerance=1e-12, solver_tolerance=0.03, weather=b"",
        )  # fmt: skip

    def verdict(
        self, account: Account, first: int, last: int, there: int
    ) -> tuple[frozenset[int], frozenset[int], bool]:
        """As Agent._verdict: days in, days of too few readings, and whether the fit is opened."""
        plan, rows = self.plan(first, last), [24 if there >> d & 1 else 2 for d in range(self.days)]
        own = readings(*((FIRST + d) * DAY + h * HOUR for d in range(self.days) for h in range(rows[d])),
                       (FIRST + self.days) * DAY)  # fmt: skip
        if account.refuses_fit(plan) is not None:
            return frozenset(), frozenset(), False
        since = FIRST + (0 if TOO_EARLY in self.ignored else 1)
        found = judge(plan, own, account, Rules(weights="fitted"), (self.totals, self.totals), b"", since)
        inside = frozenset((first + np.flatnonzero(found.days)).tolist())
        out = np.flatnonzero(~found.days)  # the reason given is that of the first day out
        few = frozenset((first + out[:1]).tolist() if found.reason == TOO_FEW else ())
        return inside, few, len(inside) == last - first + 1

    def announce(self, account: Account, first: int, last: int, there: int) -> bool:
        days, name = tuple(range(FIRST + first, FIRST + last + 1)), bytes([first, last])
        _, _, opens = self.verdict(account, first, last, there)
        if opens and account.refuses_question(name, days, name, "open", self.totals) is None:
            if name not in account.fits:
                account.book(Begun(name, days, self.plan(first, last).hash()))
            account.book(Answered(name, name, "open"))
        return True

    def asked(self, saved: bytes, running: tuple[int, bool], left: Said) -> Iterator[tuple[Action, tuple[int, bool]]]:
        for first in range(self.days):
            for last in range(first, self.days):
                for there in range(1 << last - first + 1):
                    yield ("announce", first, last, there << first), running

    def leave(self, left: Said, action: Action, before: bytes = b"") -> Said:
        _, first, last, there = action
        account = read(before, self.kind)
        inside, few, opens = self.verdict(account, first, last, there)
        seen = Said(left.few | few, left.inside | inside, left.fitted)
        claim(not seen.few & seen.inside, "a day judged twice")
        name, days = bytes([first, last]), range(FIRST + first, FIRST + last + 1)
        if opens and account.refuses_question(name, days, name, "open", 2) is None:
            seen = seen._replace(fitted=left.fitted | set(range(first, last + 1)))
        claim(0 not in seen.inside, "a day before its key was enrolled")
        for day in range(self.days):
            crowd = seen.fitted & set(range(day, day + self.of_days))
            claim(len(crowd) <= self.fitted_days, "fits over too many days")
        return seen

    start: tuple[int, bool] = (-1, False)
    nothing: Said = field(default_factory=Said)


# The search


class Found(NamedTuple):
    states: int
    accounts: int  # different ones among them
    violation: str  # empty: none
    path: tuple[Action, ...]  # that leads to it


def search(world: Questions | Companies | Calendar, most: int = 2_000_000) -> Found:
    """Breadth first, through every state, or to the first violation."""
    first = (written(world.kind()), world.start, world.nothing)
    came: dict[Any, tuple[Any, Action]] = {first: (None, ("start",))}
    queue = deque([first])
    with world.limits():
        while queue:
            state = queue.popleft()
            saved, running, left = state
            for action, then in world.asked(saved, running, left):
                allowed, after = world.step(saved, action)
                if not allowed:
                    successors = [(after, (-1, False), left)]
                else:
                    try:
                        seen = world.leave(left, action, *([] if isinstance(world, Questions) else [saved]))
                    except Violation as violation:
                        return Found(len(came), _accounts(came), str(violation), (*_path(came, state), action))
                    killed = after if world.booked_first else saved  # and not heard, or heard and not written
                    successors = [(after, then, seen), (killed, (-1, False), left if world.booked_first else seen)]
                for successor in successors:
                    if successor not in came:
                        came[successor] = (state, action)
                        queue.append(successor)
            if len(came) > most:
                raise AssertionError(f"more than {most} states: choose a smaller world")
    return Found(len(came), _accounts(came), "", ())


def _accounts(came: dict[Any, Any]) -> int:
    return len({saved for saved, _, _ in came})


def _path(came: dict[Any, tuple[Any, Action]], state: Any) -> tuple[Action, ...]:
    found: list[Action] = []
    while came[state][0] is not None:
        state, action = came[state]
        found.insert(0, action)
    return tuple(found)


QUESTIONS_WITHOUT = {  # rule → what is not heard
    "a day is shown under one weighting": (book.OTHER_WEIGHTING,),
    "a day has one grid": (book.OTHER_GRID,),
    "a day that a fit asked is in no other plan": (book.SPENT,),
    "a fit is not opened over a day that has a total": ("open",),
    "totals over a day": ("total",),
    "counts of signs over a day": ("MOST_SIGNS",),
    "one model over a day": ("release",),
    "askings of a question and of a stamp": ("MOST_ASKINGS",),
}
COMPANIES_WITHOUT = {
    "a day has one company": (book.OTHER_COMPANY,),
    "within a block companies only shrink": (book.GROWN,),
    "six hours beside a change are not given": ("HOLE",),
    "a company is large enough": ("least", "share"),
}


CALENDAR_WITHOUT: dict[str, tuple[Any, ...]] = {
    "a day is judged once": (Judged,),
    "a key enrolled later gives no earlier day": (TOO_EARLY,),
    "fitted weights touch few days of a year": (book.TOO_MANY_DAYS,),
}


# The events of a Spin run


def replay(events: str, world: World) -> dict[str, int]:
    """Put every decision that a simulated run of a model took to the real account; they must be the same."""
    counts = {"allowed": 0, "refused": 0}
    saved = [written(Account())] * 4  # one account a home
    with world.limits():
        for verb, numbers in re.findall(r"^\s*(fit|ask|collect|company)((?: \d+)+)$", events, re.M):
            values = [int(number) for number in numbers.split()]
            home, arguments = (values[0], values[1:-1]) if verb == "company" else (0, values[:-1])
            allowed, after = world.step(saved[home], (verb, *arguments))
            if allowed != bool(values[-1]):
                raise AssertionError(f"{verb} {arguments}: the model says {values[-1]}, the account {allowed}")
            saved[home] = after
            counts["allowed" if allowed else "refused"] += 1
    return counts
