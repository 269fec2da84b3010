"""What an agent has given of itself, for life: by UTC day and, where readings left, by time stamp.

    day      in or out (judged once) · way of weighting, or opened · company · grid · the fit it belongs to
    fit      its plan and days · totals and counts of signs answered over them · whether its model was released
    stamp    temperature and load as first sent, and how often the stamp was shown
    question hash of everything a total depends on, and how often it was answered

Rule 1: whatever the account must remember is a Booking, made by `book` before the answer it belongs to leaves, and
        written down with it. The account is what its bookings make of an empty one, in any number of restarts.
Rule 2: nothing is ever taken off it, and nothing in it enters an answer, but for readings kept as first sent.
Rule 3: it refuses with fixed texts: no number in them comes from readings.
Each rule with the attack it answers: docs/spec.md §6.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from atdm.crypto.keys import KEY_BYTES, digest
from atdm.data.readings import Readings, positions
from atdm.errors import RunAborted
from atdm.protocol.plan import DAY, MOST_SIGNS, AnyPlan, Collect, Plan, ShownAs, day_count, first_day
from atdm.protocol.registry import REGISTRY
from atdm.types import BoolArray, FloatArray, IntArray

MOST_ASKINGS = 4  # of one question, or of one stamp: a run that broke off can be repeated
BLOCK = 28  # days in which companies only shrink: UTC day number div 28
HOLE = 6 * 3600  # s on either side of a midnight at which the company changes
FITTED_DAYS, OF_DAYS = 120, 365  # days of fitted weights, at most, in so many days

OTHER_WEIGHTING = "a day of the window was shown under other weights"
OTHER_GRID = "a day of the window was summed on another grid"
SPENT = "the account of a day of the window has no room for another fit"
TOO_MANY_DAYS = f"fitted weights would touch more than {FITTED_DAYS} of {OF_DAYS} days"
OTHER_COMPANY = "a day of the window was summed with another company"
GROWN = f"within a block of {BLOCK} days companies only shrink"
ASKED_TOO_OFTEN = f"this question was answered {MOST_ASKINGS} times"
NO_ROOM = "a day of the window has had all the totals it can give"

Kind = Literal["open", "total", "signs", "release"]  # open: the first total of a fit


class Booking(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, array_like=True):
    """One thing that the account must remember."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Judged(Booking, frozen=True):
    """In or out on these days, for good."""

    inside: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()


class Settled(Booking, frozen=True):
    """The company, the weighting and the grid of these days, from the first word that carries a reading."""

    days: tuple[int, ...]
    company: bytes  # identity keys in order
    weights: ShownAs
    step: int  # s


class Begun(Booking, frozen=True):
    """A fit, to which these days belong for life."""

    fit: bytes  # hash of company, plan and rows
    days: tuple[int, ...]
    plan: bytes  # hash


class Answered(Booking, frozen=True):
    """A question of a fit."""

    fit: bytes
    question: bytes
    kind: Kind


class Sent(Booking, frozen=True):
    """Readings that left for the first time, as they were then, dither included."""

    time: bytes  # int64 [s]
    temperature: bytes  # float64 [°C]
    load: bytes  # float64 [kW]
    filled: bytes  # one byte each: 1 where the agent filled a gap


class Shown(Booking, frozen=True):
    """State and load of these stamps, to the aggregator; fit: the earlier one whose weights it was, if any."""

    time: bytes  # int64 [s]
    fit: bytes = b""


AnyBooking = Judged | Settled | Begun | Answered | Sent | Shown


class Day(msgspec.Struct, forbid_unknown_fields=True, array_like=True):
    """What the account says of one UTC day."""

    judged: bool | None = None
    weights: ShownAs | None = None
    company: bytes = b""  # hash; empty until the first reading left
    step: int = 0  # s
    fit: bytes = b""  # that began over it, or under whose weights it was shown


class Fit(msgspec.Struct, forbid_unknown_fields=True, array_like=True):
    """What the account says of a fit; a day has no other, so that its limits are those of each of its days."""

    plan: bytes = b""
    days: tuple[int, ...] = ()
    totals: int = 0
    signs: int = 0
    released: bool = False


def days_of(time: IntArray) -> tuple[int, ...]:
    """UTC days of ascending stamps."""
    day = time // DAY
    return tuple(day[np.diff(day, prepend=day[:1] - 1) != 0].tolist())


@lru_cache(maxsize=4)
def _stamps(time: bytes) -> IntArray:
    """Agents of one process mostly send the same ones: they are kept once."""
    return np.frombuffer(time, dtype="<i8").astype(np.int64, copy=False)


@lru_cache(maxsize=16)
def company_hash(identities: bytes) -> bytes:
    return digest("company", identities)


@lru_cache(maxsize=16)
def identities_in(company: bytes) -> frozenset[bytes]:
    return frozenset(company[i : i + KEY_BYTES] for i in range(0, len(company), KEY_BYTES))


@dataclass(repr=False)
class Account:
    days: dict[int, Day] = field(default_factory=dict)
    companies: dict[bytes, bytes] = field(default_factory=dict)  # hash → identity keys in order
    fits: dict[bytes, Fit] = field(default_factory=dict)
    questions: dict[bytes, int] = field(default_factory=dict)  # hash → times answered
    time: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # stamps that left, ascending
    temperature: FloatArray = field(default_factory=lambda: np.empty(0))
    load: FloatArray = field(default_factory=lambda: np.empty(0))
    filled: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, dtype=np.uint8))
    shown: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, dtype=np.uint8))

    def __post_init__(self) -> None:
        self._new: list[AnyBooking] = []  # since the last `booked`: no field, those are written down
        if len({len(self.time), len(self.temperature), len(self.load), len(self.filled), len(self.shown)}) != 1:
            raise ValueError("stamps of different numbers")

    def __repr__(self) -> str:
        return f"Account({len(self.days)} days, {len(self.time)} stamps, {len(self.questions)} questions)"

    # What it allows

    def refuses(self, plan: AnyPlan, day: int, totals: int, most: int, fit: bytes) -> str | None:
        """Why a day of a plan is out; totals: how many it may ask for, of `most` a day; fit: whose weights it means."""
        known = self.days.get(day)
        if known is None:
            return None
        opened = REGISTRY[plan.protocol].opened
        if known.weights not in (None, "opened" if opened else plan.weights):
            return OTHER_WEIGHTING
        if known.step not in (0, plan.step_seconds):
            return OTHER_GRID
        if opened:
            return None  # its readings are the aggregator's, however often it asks
        if isinstance(plan, Collect):
            return OTHER_WEIGHTING if fit and known.fit not in (b"", fit) else None
        if known.fit:  # the same fit again: its questions decide; two fits over a day differ by few homes
            return None if self.fit_of(day).plan == plan.hash() else SPENT
        return SPENT if totals > most else None

    def fit_of(self, day: int) -> Fit:
        """The fit that began over a day; an empty one where none did."""
        known = self.fits.get(self.days[day].fit) if day in self.days else None
        return known if known is not None and day in known.days else Fit()

    def _fitted(self) -> set[int]:
        """Days over which a fit began."""
        return {day for fit in self.fits.values() for day in fit.days}

    def refuses_fit(self, plan: Plan) -> str | None:
        """Why fitted weights would touch too many days."""
        asked = range(first_day(plan), first_day(plan) + day_count(plan))
        days = np.array(sorted(self._fitted().union(asked)))
        crowded = days[FITTED_DAYS:] - days[:-FITTED_DAYS] < OF_DAYS if len(days) > FITTED_DAYS else np.array([False])
        return TOO_MANY_DAYS if crowded.any() else None

    def refuses_company(self, days: Iterable[int], company: bytes) -> str | None:
        """Why these days cannot be summed with this company: a day has one, and within a block they only shrink."""
        hashed = company_hash(company)
        if not self.companies.keys() - {hashed}:
            return None
        members, wanted = identities_in(company), np.array(sorted(days))
        if any(self._company(day) not in (b"", hashed) for day in wanted.tolist()):
            return OTHER_COMPANY
        for block in np.unique(wanted // BLOCK).tolist():
            own = wanted[wanted // BLOCK == block]
            for other in range(block * BLOCK, (block + 1) * BLOCK):
                known = self._company(other)
                if known in (b"", hashed):
                    continue
                theirs = identities_in(self.companies[known])
                if (own.max() > other and not members <= theirs) or (own.min() < other and not theirs <= members):
                    return GROWN
        return None

    def beside_a_change(self, time: IntArray, company: bytes) -> BoolArray:
        """Stamps within six hours of a midnight beyond which the day was settled with another company: extrapolating
        both sums across it would show the home that left."""
        hashed, day = company_hash(company), time // DAY
        near = np.zeros(len(time), dtype=bool)
        if not self.companies.keys() - {hashed}:
            return near
        for each in days_of(time):
            own = day == each
            if self._company(each - 1) not in (b"", hashed):
                near |= own & (time - each * DAY < HOLE)
            if self._company(each + 1) not in (b"", hashed):
                near |= own & ((each + 1) * DAY - time <= HOLE)
        return near

    def asked(self, time: IntArray) -> IntArray:
        """How often each stamp was shown."""
        at = positions(self.time, time)
        answer: IntArray = np.where(at >= 0, self.shown[at] if len(self.shown) else 0, 0).astype(np.int64)
        return answer

    def refuses_question(self, fit: bytes, days: Iterable[int], question: bytes, kind: Kind, totals: int) -> str | None:
        """A question answered before is free, and gets the same answer, up to four times in all."""
        times = self.questions.get(question, 0)
        if times >= MOST_ASKINGS:
            return ASKED_TOO_OFTEN
        if times:
            return None
        known = self.fits.get(fit) or Fit()
        if kind == "open":
            spent = not self._fitted().isdisjoint(days)
        elif kind == "total":
            spent = known.totals >= totals
        elif kind == "signs":
            spent = known.signs >= MOST_SIGNS
        else:
            spent = known.released
        return NO_ROOM if spent else None

    def as_sent(self, readings: Readings, rows: IntArray) -> Readings:
        """The agent's readings of these rows, those that left before as they were then, dither included: a correction,
        or another dither, would show as a difference."""
        at = positions(self.time, rows)
        before = at[at >= 0]
        if not len(before):
            return readings
        time = np.union1d(readings.time, self.time[before])
        now, then = np.searchsorted(time, readings.time), np.searchsorted(time, self.time[before])

        def merged(fresh: NDArray[Any], kept: NDArray[Any]) -> FloatArray:
            column = np.empty(len(time))
            column[now] = fresh
            column[then] = kept[before]
            return column

        filled = merged(readings.filled, self.filled).astype(bool)
        return Readings(time, merged(readings.temperature, self.temperature), merged(readings.load, self.load), filled)

    def repeatable(self, readings: Readings) -> Readings:
        """Without readings that came in after a fit over their day had begun: with them it would be another fit."""
        if not self.fits:
            return readings
        late = np.isin(readings.time // DAY, list(self._fitted())) & (positions(self.time, readings.time) < 0)
        return readings.at(np.flatnonzero(~late)) if late.any() else readings

    # What is booked

    def book(self, booking: AnyBooking) -> None:
        """Remember something before the answer that it belongs to leaves."""
        self._apply(booking)
        self._new.append(booking)

    def settle(self, readings: Readings, company: bytes, weights: ShownAs, step: int) -> tuple[int, ...]:
        """Book that these readings leave, as they are, and whose days they belong to: checked and booked in one step.
        Gives the days."""
        days = days_of(readings.time)
        if (reason := self.refuses_company(days, company)) is not None:
            raise RunAborted(reason)
        self.book(Settled(days, company, weights, step))
        new = positions(self.time, readings.time) < 0
        if new.any():
            sent = readings if new.all() else readings.at(np.flatnonzero(new))
            self.book(Sent(
                sent.time.astype("<i8", copy=False).tobytes(), sent.temperature.astype("<f8", copy=False).tobytes(),
                sent.load.astype("<f8", copy=False).tobytes(), sent.filled.astype(np.uint8).tobytes(),
            ))  # fmt: skip
        return days

    def booked(self) -> tuple[AnyBooking, ...]:
        """What came in since the last call: to be written down before the message that caused it is answered."""
        new, self._new = tuple(self._new), []
        return new

    def apply(self, bookings: Sequence[AnyBooking]) -> None:
        """Take over what was written down."""
        for booking in bookings:
            self._apply(booking)

    def _apply(self, booking: AnyBooking) -> None:
        if isinstance(booking, Judged):
            for inside, days in ((True, booking.inside), (False, booking.outside)):
                for day in self._each(days):
                    day.judged = inside
        elif isinstance(booking, Settled):
            hashed = company_hash(booking.company)
            self.companies[hashed] = booking.company
            for day in self._each(booking.days):
                day.company, day.weights, day.step = hashed, booking.weights, booking.step
        elif isinstance(booking, Begun):
            self.fits.setdefault(booking.fit, Fit(booking.plan, booking.days))
            for day in self._each(booking.days):
                day.fit = booking.fit
        elif isinstance(booking, Answered):
            self._answered(booking)
        elif isinstance(booking, Sent):
            self._sent(booking)
        else:
            self._shown(_stamps(booking.time), booking.fit)

    def _answered(self, booking: Answered) -> None:
        times = self.questions.get(booking.question, 0)
        self.questions[booking.question] = times + 1
        if times:
            return
        fit = self.fits.setdefault(booking.fit, Fit())
        if booking.kind == "signs":
            fit.signs += 1
        elif booking.kind == "release":
            fit.released = True
        else:
            fit.totals += 1

    def _sent(self, booking: Sent) -> None:
        added = _stamps(booking.time)
        at = np.searchsorted(self.time, added)
        columns: dict[str, NDArray[Any]] = {
            "time": added,
            "temperature": np.frombuffer(booking.temperature, "<f8"),
            "load": np.frombuffer(booking.load, "<f8"),
            "filled": np.frombuffer(booking.filled, np.uint8),
            "shown": np.zeros(len(added), np.uint8),
        }
        for name, new in columns.items():
            old = getattr(self, name)
            setattr(self, name, np.insert(old, at, new) if len(old) else new)

    def _shown(self, time: IntArray, fit: bytes) -> None:
        self.shown = self.shown.copy()
        self.shown[positions(self.time, time)] += np.uint8(1)
        if fit:
            for day in self._each(days_of(time)):
                day.fit = day.fit or fit

    def _each(self, days: Sequence[int]) -> list[Day]:
        return [self.days.get(day) or self.days.setdefault(day, Day()) for day in days]

    def _company(self, day: int) -> bytes:
        return self.days[day].company if day in self.days else b""
