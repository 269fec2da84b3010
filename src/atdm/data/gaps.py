"""A home's own gaps and outages, and what they cost: one set of rules for simulations and deployed agents.

Promise: `fill` and `days_out` depend on nothing but one home's own readings and the window, so an agent that has only
its own file and a simulation that has all of them come to the same numbers, bit for bit. Plain numpy on whole seconds.

Rule 1: a missing value is filled linearly, and only between two readings of the same home that are at most `longest`
        apart (2 h from the last reading before the gap to the first one after it). Nothing is filled at either end of a
        record, and no part of a longer gap.
Rule 2: temperature and load are filled in the same way, each where it is missing. A stamp that then still lacks one of
        them is no reading.
Rule 3: on a UTC day on which a home has, after filling, less than half of the window's rows, it is out: none of its
        rows of that day count.
Rule 4: a home with an outage stays, and the rows it lacks are dropped for all homes, while all dropped rows are less
        than a limit: a tenth of the window's rows, or with K > 10 homes 1/K of them, but never below a fiftieth. At
        the limit homes are left out instead, one after the other, the one that costs most rows first.
Rule 5: at most a third of the homes is left out. After that the others stay, and the rows they lack are dropped.
Rule 6: a row that more than a third of the homes lack would be dropped even if the most homes were left out, so Rule 4
        counts it neither as dropped nor among the window's rows. (Otherwise one home whose file begins earlier could
        cost four others their place.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atdm.data.readings import Readings
from atdm.errors import DataError
from atdm.types import BoolArray, FloatArray, IntArray

LONGEST_SECONDS = 7200  # 2 h: rooms change little and nearly linearly in that time; docs/spec.md §3.3
DAY = 86400  # [s]
LOST_PARTS = (10, 50)  # outages may cost one of K parts of the window before a home is left out; K within these.
# A lost row is lost for all K homes, a home left out is one of K. Measured with 64 homes (tests/test_missing.py): lost
# tenths move the 24 h R² by up to 0.07, a home or two left out by 0.015.
LEFT_OUT_SHARE = (1, 3)  # of the homes: a company needs the other two thirds of the roster


@dataclass(frozen=True, slots=True, eq=False)
class Company:
    """What a fit keeps."""

    stays: BoolArray  # by home
    kept: BoolArray  # by row: every home that stays has it


def fill(
    time: IntArray,
    temperature: FloatArray,
    load: FloatArray,
    step_seconds: int,
    longest_seconds: int = LONGEST_SECONDS,
) -> Readings:
    """One home's readings with its own short gaps filled; only stamps that have both values then.

    time: ascending stamps on a grid of `step_seconds` [s]; a missing reading is NaN, or its stamp is not there.
    longest_seconds: from the last reading before a gap to the first one after it; 0 fills nothing. [s]
    """
    _check_grid(time, step_seconds)
    stamps = np.sort(np.concatenate([time, _absent(time, step_seconds, longest_seconds)]))
    given = np.searchsorted(stamps, time)
    complete, filled = np.ones(len(stamps), dtype=bool), np.zeros(len(stamps), dtype=bool)
    both = []
    for values in (temperature, load):
        known = np.full(len(stamps), np.nan)
        known[given] = values
        whole = _interpolated(stamps, known, longest_seconds)
        complete &= ~np.isnan(whole)
        filled |= np.isnan(known)
        both.append(whole)
    return Readings(stamps[complete], both[0][complete], both[1][complete], filled[complete])


def days_out(time: IntArray, first: int, last: int, step_seconds: int) -> IntArray:
    """The UTC days (numbered from 1970) of a window on which a home is out (Rule 3).

    time: stamps at which the home has a reading, after filling [s]; first, last: the window's first and last row [s].
    """
    days, rows = rows_by_day(first, last, step_seconds)
    inside = time[(time >= first) & (time <= last)]
    own = np.bincount(inside // DAY - days[0], minlength=len(days))
    return days[2 * own < rows]


def rows_by_day(first: int, last: int, step_seconds: int) -> tuple[IntArray, IntArray]:
    """The UTC days a window touches, and how many of the stamps first, first + step, … last lie on each."""
    days = np.arange(first // DAY, last // DAY + 1, dtype=np.int64)
    midnights = np.append(days, days[-1] + 1) * DAY
    before = -((first - midnights) // step_seconds)  # ⌈(midnight − first)/step⌉ stamps, if there were no first and last
    return days, np.diff(np.clip(before, 0, (last - first) // step_seconds + 1))


def company(has: BoolArray, names: Sequence[str]) -> Company:
    """Which homes stay, and which rows all of them have (Rules 4 to 6).

    has: rows × homes, whether a home's reading of a row counts (days out do not). names: of the homes; they settle
    ties. The home that costs most is the one without which fewest rows are lost; of several, the one that lacks most.
    """
    part, of = LEFT_OUT_SHARE
    window = of * (~has).sum(axis=1) <= part * len(names)
    stays = staying(~has[window], names, part * len(names) // of)
    return Company(stays, np.all(has[:, stays], axis=1))


def staying(lacks: BoolArray, names: Sequence[str | int], most: int) -> BoolArray:
    """Which homes stay where at most so many may be left out (Rule 4). lacks: rows (or days) × homes."""
    own = lacks.sum(axis=0)
    lacking = lacks.sum(axis=1)  # by row: how many of the homes that stay lack it
    stays = np.ones(len(names), dtype=bool)
    for _ in range(most):
        if not _costs_too_much(int(np.count_nonzero(lacking)), len(lacking), len(names)):
            break
        won_back = lacks[lacking == 1].sum(axis=0)  # by home: rows that it alone lacks
        worst = min(np.flatnonzero(stays).tolist(), key=lambda i: (-won_back[i], -own[i], names[i]))
        stays[worst] = False
        lacking -= lacks[:, worst]
    return stays


def _check_grid(time: IntArray, step_seconds: int) -> None:
    away = np.diff(time)
    if (away <= 0).any() or (away % step_seconds).any():
        raise DataError(f"time stamps are not increasing multiples of {step_seconds} s apart: sort or resample them")


def _absent(time: IntArray, step: int, longest: int) -> IntArray:
    """The grid's stamps between two given ones that are not there, where the gap may be filled at all."""
    away = np.diff(time)
    short = np.flatnonzero((away > step) & (away <= longest))
    return np.concatenate([time[:0], *(np.arange(time[i] + step, time[i + 1], step) for i in short)])


def _interpolated(time: IntArray, value: FloatArray, longest: int) -> FloatArray:
    """The values with their short gaps filled.

    v(t) = v₀ + (t − t₀)/(t₁ − t₀) (v₁ − v₀)   where t₁ − t₀ ≤ longest; t₀, t₁: the readings before and after
    """
    missing = np.isnan(value)
    known, gap = np.flatnonzero(~missing), np.flatnonzero(missing)
    following = np.searchsorted(known, gap)
    inner = (following > 0) & (following < len(known))
    gap, following = gap[inner], following[inner]
    before, after = known[following - 1], known[following]
    short = time[after] - time[before] <= longest
    gap, before, after = gap[short], before[short], after[short]
    share = (time[gap] - time[before]) / (time[after] - time[before])
    whole = value.copy()
    whole[gap] = value[before] + share * (value[after] - value[before])
    return whole


def _costs_too_much(lost: int, whole: int, homes: int) -> bool:
    """Whether dropping this many rows (or days) of a window costs more than leaving a home out (Rule 4)."""
    few, many = LOST_PARTS
    return lost > 0 and min(max(homes, few), many) * lost >= whole
