"""Time as whole seconds since 1970 UTC, without pandas: what an agent beside its data needs of a clock.

Promise: a stamp means one instant, or it is refused. Nothing is rounded, sorted or filled here.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np

from atdm.data.quoting import listed_rows, shown
from atdm.errors import DataError, UsageError
from atdm.types import IntArray

MACHINE = ("localtime", "posixrules", "Factory")  # files beside the zones that mean another one on every machine

MONDAY = 4 * 86400  # 5 January 1970: any Monday does; a fixed one makes a weekly season start on Mondays

LONGEST = 2**33  # s, 272 years: what pandas can hold

_LENGTH = re.compile(r"(\d+)\s*(s|min|h|d|w)")
_UNIT = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(?P<offset> ?(Z|[+-]\d\d(:?\d\d)?))?)?", re.ASCII)


def length(text: str, *, zero: bool = False) -> int:
    """A length of time such as "30min", "24h" or "1d"; above zero, unless `zero` allows "0" and "0h". [s]"""
    if zero and text.strip() == "0":
        return 0
    match = _LENGTH.fullmatch(text.strip().lower())
    if match is None or (int(match[1]) == 0 and not zero):
        raise UsageError(f"{text!r} is not a length of time: write a whole number and s, min, h, d or w, as in '24h'")
    found = int(match[1]) * _UNIT[match[2]]
    if found > LONGEST:
        raise UsageError(f"{text!r} is too long a time: write something like '24h'")
    return found


def length_or_number(text: str) -> float:
    """A length of time such as "72h", or a bare number of seconds, none included. [s]"""
    try:
        found = float(text)
    except ValueError:
        return length(text, zero=True)
    if not 0 <= found <= LONGEST:
        raise UsageError(f"{text!r} is not a length of time: write seconds, or something like '24h'")
    return found


def zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name."""
    try:
        if name in MACHINE:
            raise KeyError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, malformed, or a folder of the zone database
        raise UsageError(f"unknown time zone {name!r}: use an IANA name such as 'Europe/London' or 'UTC'") from None


def stamp(time: int) -> str:
    """A time stamp as messages show it, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spell(seconds: int) -> str:
    """A length of time as a person writes it: "30 min", "1 h"."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds} s"


def commonest_step(time: IntArray) -> int | None:
    """The commonest time between neighbouring stamps, the smallest if several are; None where there are not two. [s]"""
    lengths, counts = np.unique(np.diff(time), return_counts=True)
    return int(lengths[np.argmax(counts)]) if len(lengths) else None


def phase(time: IntArray, step: int, timezone: str, period: int) -> IntArray:
    """Season index 0 … period−1 of each stamp, as clock.phase has it: steps since local midnight of a Monday."""
    offset = np.zeros(len(time), dtype=np.int64)
    if timezone != "UTC":
        place = zone(timezone)
        offsets = (datetime.fromtimestamp(second, place).utcoffset() for second in time.tolist())
        offset = np.array([0 if away is None else round(away.total_seconds()) for away in offsets], dtype=np.int64)
    return (time + offset - MONDAY) // step % period


def instants(cells: Sequence[str], where: str, timezone: str | None) -> IntArray:
    """ISO 8601 stamps as instants. One without offset is the wall clock of `timezone`, refused where there is none."""
    matches = [ISO.fullmatch(cell) for cell in cells]
    with_offset = [match is not None and match["offset"] is not None for match in matches]
    bad = [i for i, match in enumerate(matches) if match is None]
    parsed: list[datetime] = []
    if not bad:
        if any(with_offset) and not all(with_offset):
            rows = listed_rows([i for i, offset in enumerate(with_offset) if not offset])
            text = f"{where} has an offset in some rows and none in {rows}: write all of them in UTC, ending in Z"
            raise DataError(text)
        for i, cell in enumerate(cells):
            try:
                parsed.append(datetime.fromisoformat(cell.replace(" +", "+").replace(" -", "-").replace(" Z", "Z")))
            except ValueError:
                bad.append(i)
    if bad:
        raise DataError(
            f"{where} is {shown(cells[bad[0]])} in {listed_rows(bad)}, not an ISO 8601 time stamp: "
            "write it like 2024-01-31T13:30Z, or let `atdm import` read the file"
        )
    return moments(parsed, where, timezone)


def moments(stamps: Sequence[datetime], where: str, timezone: str | None) -> IntArray:
    """Dates with their clock as whole seconds; those without offset are the wall clock of `timezone`."""
    naive = [stamp.tzinfo is None for stamp in stamps]
    if any(naive) and timezone is None:
        text = f"{where} has no time zone: write stamps in UTC, ending in Z, or declare the time zone (timezone)"
        raise DataError(text)
    clock = zone(timezone) if timezone is not None else UTC
    found = np.empty(len(stamps), dtype=np.int64)
    for row, moment in enumerate(stamps):
        if naive[row]:
            early, late = (moment.replace(tzinfo=clock, fold=fold) for fold in (0, 1))
            if early.utcoffset() != late.utcoffset():  # the clock was put back over it, or forward
                exists = early.astimezone(UTC).astimezone(clock).replace(tzinfo=None, fold=0) == moment
                fault = "happens twice" if exists else "does not exist"
                raise DataError(
                    f"{where} {moment} in data row {row + 1} {fault} in {timezone} (the clock changes): "
                    "write stamps in UTC, ending in Z"
                )
            moment = early
        if moment.microsecond:
            raise DataError(f"{where} {moment} in data row {row + 1} is no whole second: resample to whole seconds")
        found[row] = round(moment.timestamp())
    return found
