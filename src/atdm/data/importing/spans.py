"""Readings as spans of time with one value each, and spans as means over steps.

Every kind of reading becomes the same: a temperature or a power holds from its stamp on, energy of an interval is the
mean power over it, and what a counter grew by is the mean power between its two readings.

Rule 1: a reading holds until the next one, and no longer than `hold`: across a longer gap nothing is known.
Rule 2: a step has a value where its spans cover at least half of it: their time-weighted mean.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from atdm.data import clock

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

HOUR = 3_600_000_000_000  # [ns]
COVERED = 0.5  # of a step
REGULAR = 0.8  # share of the readings that are the usual time apart, from which on they come regularly
JITTER = 0.1  # of the usual time
SLACK = 1.25  # a regular reading holds this many usual times, for clocks that are a little late
IRREGULAR_HOLD = pd.Timedelta("2h")  # as long as the gaps that homes fill by themselves


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Spans:
    """Values that hold from `start` to `end`, in order, without overlap. [ns since 1970 UTC]"""

    start: IntArray
    end: IntArray
    value: FloatArray


@dataclass(frozen=True, slots=True)
class Pace:
    """How far apart readings come. [ns]"""

    usual: int  # the commonest time between two; the median if they come irregularly
    regular: bool

    @classmethod
    def of(cls, time: IntArray) -> "Pace":
        if len(time) < 2:
            return cls(HOUR, False)
        apart = np.diff(time)
        usual = clock.commonest_step(apart)
        near = np.abs(apart - usual) <= JITTER * usual
        many = np.abs(apart % usual - usual / 2) >= (0.5 - JITTER) * usual  # a gap is a multiple of it
        if near.mean() >= 0.5 and (near | many).mean() >= REGULAR:
            return cls(usual, True)
        return cls(int(np.median(apart)), False)


def held(time: IntArray, value: FloatArray, hold: int, usual: int, label: Literal["start", "end"]) -> Spans:
    """Each value from its stamp to the next, or for `hold`; where stamps are ends, from the one before to its own.

    usual: how long the one at the end of the record holds, for which there is no next. [ns]
    """
    if label == "end":
        return Spans(np.maximum(np.append(time[0] - usual, time[:-1]), time - hold), time, value)
    return Spans(time, np.minimum(np.append(time[1:], time[-1] + usual), time + hold), value)


def counted(time: IntArray, count: FloatArray, hold: int) -> tuple[Spans, int]:
    """Mean power [kW] between the readings of a counter [kWh] at most `hold` apart, and how often it began anew."""
    grown = np.diff(count)
    anew = grown < 0
    grown = np.where(anew, count[1:], grown)  # it began at 0 again
    near = np.diff(time) <= hold
    hours = np.diff(time) / HOUR
    return Spans(time[:-1][near], time[1:][near], grown[near] / hours[near]), int(anew.sum())


def means(spans: Spans, step: int) -> tuple[IntArray, FloatArray]:
    """The steps that are covered by half, counted from midnight UTC, and the time-weighted mean over each."""
    if len(spans.start) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    length = spans.end - spans.start
    begin = spans.end - step if (spans.end % step == 0).all() else spans.start
    if (begin % step == 0).all() and (length >= step).all() and (length < 1.5 * step).all():
        return begin, spans.value  # as they are, to the last digit
    first, last = spans.start[0] // step * step, -(-spans.end[-1] // step) * step
    edges = np.arange(first, last + 1, step, dtype=np.int64)
    ends = np.column_stack([spans.start, spans.end]).ravel() - first
    level = spans.value.mean()  # the sums stay small beside what is summed
    hours = length / HOUR
    covered = np.column_stack([np.zeros_like(hours), hours]).ravel().cumsum()
    integral = np.column_stack([np.zeros_like(hours), hours * (spans.value - level)]).ravel().cumsum()
    share = np.diff(np.interp(edges - first, ends, covered))
    total = np.diff(np.interp(edges - first, ends, integral))
    enough = share >= COVERED * step / HOUR * (1 - 1e-9)
    return edges[:-1][enough], level + total[enough] / share[enough]


def interpolated(time: IntArray, value: FloatArray, at: IntArray, longest: int) -> FloatArray:
    """Values at stamps between readings at most `longest` apart; NaN elsewhere."""
    after = np.searchsorted(time, at)
    following, before = np.minimum(after, len(time) - 1), np.maximum(after - 1, 0)
    between = (after > 0) & (after < len(time)) & (time[following] - time[before] <= longest)
    known = between | (time[following] == at)
    return np.where(known, np.interp(at - time[0], time - time[0], value), np.nan)
