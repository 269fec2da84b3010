"""Time stamps as numbers: gap-free segments, the season's phase, lengths of time.

Promise: every function depends on the stamps alone, so training, testing and forecasting that call it
agree on the clock. Stamps are zone-aware; nothing here rounds, sorts or fills them.
"""

from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from atdm.data import seconds as whole
from atdm.errors import UsageError
from atdm.types import IntArray

MONDAY = pd.Timestamp("1970-01-05")  # any Monday does; a fixed one makes a weekly season start on Mondays


def duration(text: str, *, zero: bool = False) -> pd.Timedelta:
    """A length of time such as "30min", "24h", "1d" or "1w"; above zero, unless `zero` allows "0" and "0h"."""
    return pd.Timedelta(seconds=whole.length(text, zero=zero))


def season_steps(season: str, step: pd.Timedelta) -> int:
    """Number of steps in a season such as "24h". [-]"""
    length = duration(season)
    if length % step != pd.Timedelta(0):
        raise UsageError(f"season {season!r} is not a multiple of the {spell(step)} step: choose one that is")
    return int(length // step)


def zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name."""
    return whole.zone(name)


def seconds(time: pd.DatetimeIndex) -> IntArray:
    """Time stamps as whole seconds since 1970 UTC."""
    return time.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[s]").astype(np.int64)


def timestamps(time: IntArray) -> pd.DatetimeIndex:
    """Whole seconds since 1970 UTC as time stamps."""
    return pd.DatetimeIndex(pd.to_datetime(time, unit="s", utc=True), name="time")


def segments(time: pd.DatetimeIndex, step: pd.Timedelta) -> IntArray:
    """Number (0, 1, …) of the gap-free segment each stamp lies in."""
    if len(time) == 0:
        return np.zeros(0, dtype=np.int64)
    gap = np.asarray(time[1:] - time[:-1] != step)
    return np.concatenate([[0], np.cumsum(gap)]).astype(np.int64)


def phase(time: pd.DatetimeIndex, step: pd.Timedelta, timezone: str, period: int) -> IntArray:
    """Season index 0 … period−1 of each stamp: whole steps since local midnight of a Monday, modulo period.

    Local means the wall clock of `timezone`, so that after a change to summer time 07:00 keeps its index.
    """
    wall = time.tz_convert(zone(timezone)).tz_localize(None)
    steps = np.asarray((wall - MONDAY) // step, dtype=np.int64)
    return steps % period


def commonest_step(differences: IntArray) -> int:
    """The commonest of some time differences, the smallest if several are. [same unit]"""
    lengths, counts = np.unique(differences, return_counts=True)
    return int(lengths[np.argmax(counts)])


def spell(length: pd.Timedelta) -> str:
    """A length of time as a person writes it: "30 min", "1 h", "1.5 min"."""
    total = length.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if total >= size and total % size == 0:
            return f"{total / size:g} {unit}"
    return f"{total / 60:g} min" if total >= 60 else f"{total:g} s"


def stamp(time: pd.Timestamp) -> str:
    """A time stamp as messages show it, in UTC."""
    return time.tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ")
