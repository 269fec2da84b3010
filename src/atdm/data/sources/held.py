"""Values that hold until the next one, as rows of a regular step.

A home's server writes a state when it changes, not every half hour. So a value holds from its stamp to the next one's,
and no longer than `hold`: what has not been heard of for longer is not known. A NaN says that the value is not known
from there on (a sensor that was not there, a server that was switched off).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atdm.types import BoolArray, FloatArray, IntArray

RESET_SHARE = 0.9  # of a counter's last value: what falls below began anew, what falls less is a glitch; as HA has it
KNOWN_SHARE = 0.5  # of a row's time for which the value must be known
SETTLE = 3600  # s after a start of the server, by when every meter has reported


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Series:
    """One value over time. It has no repr: readings are private."""

    time: FloatArray  # seconds since 1970 UTC, increasing
    value: FloatArray  # NaN: not known from here on


def series(time: FloatArray, value: FloatArray) -> Series:
    """Of values in any order; of several at one instant the last counts."""
    order = np.argsort(time, kind="stable")
    time, value = time[order], value[order]
    last = np.append(time[1:] != time[:-1], True) if len(time) else np.zeros(0, dtype=bool)
    return Series(time[last], value[last])


def means(held: Series, starts: IntArray, step: int, hold: int) -> FloatArray:
    """The time-weighted mean from each start to a step later; NaN where it is known for less than half of that time.

    m = ∫ v dt / ∫ known dt
    """
    if not len(held.time) or not len(starts):
        return np.full(len(starts), np.nan)
    spans = np.minimum(np.diff(held.time, append=np.inf), hold)  # how long each value holds  [s]
    known = ~np.isnan(held.value)
    middle = float(np.mean(held.value[known])) if known.any() else 0.0  # so that sums over years lose no digits
    value = np.where(known, held.value - middle, 0.0)
    corners = np.empty(2 * len(spans))
    corners[0::2], corners[1::2] = held.time, held.time + spans
    area, time = np.zeros(len(corners)), np.zeros(len(corners))  # integrals up to each corner
    area[1::2], time[1::2] = np.cumsum(value * spans), np.cumsum(known * spans)
    area[2::2], time[2::2] = area[1:-1:2], time[1:-1:2]
    edges = np.stack([starts, starts + step]).astype(np.float64)
    areas, times = np.interp(edges, corners, area), np.interp(edges, corners, time)
    length = times[1] - times[0]
    enough = length >= KNOWN_SHARE * step
    return np.where(enough, middle + (areas[1] - areas[0]) / np.where(enough, length, 1.0), np.nan)


def at(held: Series, times: IntArray, hold: int) -> FloatArray:
    """The value that holds at each time; NaN where none does."""
    if not len(held.time):
        return np.full(len(times), np.nan)
    place = np.searchsorted(held.time, times, side="right") - 1
    fresh = (place >= 0) & (times - held.time[place.clip(min=0)] < hold)
    return np.where(fresh, held.value[place.clip(min=0)], np.nan)


def unwound(counter: Series, begun_anew: BoolArray | None = None) -> Series:
    """A counter that starts again at 0 as one that never does.

    begun_anew: whether the meter itself says that it was reset before this value. A fall by less than a tenth that
    nothing explains is a glitch: the counter stands still until it is passed.
    """
    value = counter.value.copy()
    known = np.flatnonzero(~np.isnan(value))
    if not len(known):
        return counter
    read = value[known]
    fell = read[1:] < RESET_SHARE * read[:-1]
    if begun_anew is not None:
        fell |= begun_anew[known][1:]
    before = np.concatenate([[0.0], np.cumsum(np.where(fell, read[:-1], 0.0))])  # what earlier rounds counted
    value[known] = np.maximum.accumulate(read + before)
    return Series(counter.time, value)


def moved(counter: Series, starts: Sequence[float]) -> Series:
    """A counter that is not known after a start of the server until it has passed the value from before.

    The server restores that value, or after a crash one somewhat older. If it counted, all that the meter went on to
    count in the meantime would fall into one row. A counter that has not moved SETTLE seconds after the start stands
    still.
    """
    value = counter.value.copy()
    for start in starts:
        first, last = np.searchsorted(counter.time, [start, start + SETTLE])
        before = counter.value[:first][~np.isnan(counter.value[:first])]
        after = counter.value[first:last]
        if len(before):
            new = np.flatnonzero(~np.isnan(after) & (after > before[-1]))
            value[first : first + int(new[0]) if len(new) else last] = np.nan
    return Series(counter.time, value)


def differences(counter: Series, starts: IntArray, step: int, hold: int) -> FloatArray:
    """What a counter counted from each start to a step later; NaN where it is not known at both ends."""
    return at(counter, starts + step, hold) - at(counter, starts, hold)
