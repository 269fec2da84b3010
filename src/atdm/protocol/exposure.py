"""An agent's account of how much of it has been seen, row by row; charged before anything is sent.

A total over some rows with this agent's coefficient q counts one on each of them and adds q² to their leverage,
whoever else was in the sum and whether or not the total ever came back. Nothing is ever taken off the account.
"""

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from atdm.kernel.design import FloatArray, IntArray
from atdm.protocol.readings import positions

Stretch = tuple[int, int, int]  # first stamp, step [s], number of stamps


class Charge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One total this agent sent its part of."""

    roster: bytes  # hash of those in the sum
    rank: int  # of the direction in the roster's basis
    coefficient: float  # q, this agent's own
    rows: tuple[Stretch, ...]

    def __repr__(self) -> str:
        return f"Charge(rank {self.rank})"


class Bookings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one message adds to the account."""

    charges: tuple[Charge, ...] = ()
    released: tuple[Stretch, ...] = ()


NOTHING = Bookings()


@dataclass(slots=True, repr=False)
class Exposure:
    time: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    totals: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    leverage: FloatArray = field(default_factory=lambda: np.empty(0))
    released: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    book: list[Charge] = field(default_factory=list)
    _new: list[Charge] = field(default_factory=list)  # since the last `booked`
    _newly_released: list[IntArray] = field(default_factory=list)
    _stretches: tuple[IntArray | None, tuple[Stretch, ...]] = (None, ())  # of the rows charged last

    def __repr__(self) -> str:
        return f"Exposure({len(self.time)} rows, {len(self.book)} totals)"

    def on(self, rows: IntArray) -> tuple[IntArray, FloatArray]:
        """Totals and leverage of each of these rows so far."""
        at = positions(self.time, rows)
        known = at >= 0
        totals, leverage = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
        totals[known], leverage[known] = self.totals[at[known]], self.leverage[at[known]]
        return totals, leverage

    def worst(self, rows: IntArray) -> tuple[int, float]:
        """Most totals and most leverage on any of these rows so far."""
        if self._covers(rows):
            totals, leverage = self.totals, self.leverage
        else:
            at = positions(self.time, rows)
            at = at[at >= 0]
            totals, leverage = self.totals[at], self.leverage[at]
        return int(totals.max(initial=0)), float(leverage.max(initial=0.0))

    def refuses(
        self, rows: IntArray, added: NDArray[np.bool_], directions: FloatArray, most_totals: int, most_leverage: float
    ) -> NDArray[np.bool_]:
        """For each number of directions, one upwards: would the totals added (rows × directions) pass a limit?"""
        if not len(directions):
            return np.empty(0, dtype=bool)
        totals, leverage = self.on(rows)
        more = np.cumsum(added, axis=1)
        weightier = np.cumsum(added * directions**2, axis=1)
        over = (totals[:, None] + more > most_totals) | (leverage[:, None] + weightier > most_leverage)
        passed: NDArray[np.bool_] = np.logical_or.reduce(over & (more > 0), axis=0)
        return passed

    def charge(self, rows: IntArray, q: float, *, roster: bytes = b"", rank: int = 0) -> None:
        """Book one total before its first word leaves."""
        self._count(rows, q)
        if self._stretches[0] is not rows:
            self._stretches = rows, stretches(rows)
        charge = Charge(roster=roster, rank=rank, coefficient=q, rows=self._stretches[1])
        self.book.append(charge)
        self._new.append(charge)

    def release(self, rows: IntArray) -> None:
        """Book rows of the aggregate state and load as shown, before consent to their release leaves."""
        self.released = np.union1d(self.released, rows) if len(self.released) else rows
        self._newly_released.append(rows)

    def booked(self) -> Bookings:
        """What came in since the last call: to be written down before the message that caused it is answered."""
        if not self._new and not self._newly_released:
            return NOTHING
        rows = np.concatenate(self._newly_released) if self._newly_released else np.empty(0, dtype=np.int64)
        bookings = Bookings(charges=tuple(self._new), released=stretches(rows))
        self._new, self._newly_released = [], []
        return bookings

    def apply(self, bookings: Bookings) -> None:
        """Take over what was written down."""
        for charge in bookings.charges:
            self._count(stamps(charge.rows), charge.coefficient)
            self.book.append(charge)
        self.released = np.union1d(self.released, stamps(bookings.released))

    def _covers(self, rows: IntArray) -> bool:
        """Whether these are all the rows of the account, as they are within a first run."""
        return rows is self.time or np.array_equal(rows, self.time)

    def _count(self, rows: IntArray, q: float) -> None:
        if self._covers(rows):
            self.totals, self.leverage = self.totals + 1, self.leverage + q * q
            return
        time = np.union1d(self.time, rows) if len(self.time) else rows
        old, new = np.searchsorted(time, self.time), np.searchsorted(time, rows)
        totals, leverage = np.zeros(len(time), dtype=np.int64), np.zeros(len(time))
        totals[old], leverage[old] = self.totals, self.leverage
        totals[new] += 1
        leverage[new] += q * q
        self.time, self.totals, self.leverage = time, totals, leverage


def stretches(rows: IntArray) -> tuple[Stretch, ...]:
    """Ascending stamps as runs of equal steps: what a ledger can hold for years, and a person can read."""
    if len(rows) == 0:
        return ()
    gaps = np.diff(rows)
    step = int(gaps.min()) if len(gaps) else 0
    starts = np.concatenate([[0], np.flatnonzero(gaps != step) + 1, [len(rows)]])
    return tuple((int(rows[a]), step, int(b - a)) for a, b in zip(starts[:-1], starts[1:], strict=True))


def stamps(runs: tuple[Stretch, ...]) -> IntArray:
    parts = [first + step * np.arange(count, dtype=np.int64) for first, step, count in runs]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
