"""One home's readings, judged by the rules every table is judged by, without pandas: what a deployed agent works on.

Rule 1: the verdict and its words are those of the strict reader on the same file (rules.py, tables.py).
Rule 2: before the weather ends, rows lacking weather are dropped; later rows are for observations, which need none.
Rule 3: the home's own gaps of up to `longest` are filled, linearly, and counted (gaps.py); nothing else is.
Rule 4: of a source that is not a table, values outside the limits are lacking, and that is said; a table, which can be
        mended, is refused. More than a twentieth of the rows, or what looks like another unit, is refused for both.
Rule 5: a row later than the clock measures nothing yet: it is left out, and that is said.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from atdm.data import gaps, limits
from atdm.data.readings import Readings
from atdm.data.seconds import commonest_step, spell, stamp
from atdm.data.sources.source import Rows
from atdm.data.sources.table import HOME, Sky, Table
from atdm.errors import DataError
from atdm.types import FloatArray, IntArray

DAY = 86400  # [s]
MOST_IMPOSSIBLE = 20  # at most one of so many rows: more is no sensor that fails now and then


def not_later(rows: Rows, now: int, name: str) -> tuple[Rows, tuple[str, ...]]:
    """Rows up to a step after the clock, and what was left out in words. now: s since 1970 UTC.

    One row stamped in the future would be the newest for good: no later one would be asked for until its day comes.
    """
    step = min(commonest_step(rows.time) or 0, DAY)  # of two rows, one in the future, the step says nothing
    kept = int(np.searchsorted(rows.time, now + step, side="right"))
    late = len(rows) - kept
    if not late:
        return rows, ()
    if not kept:
        raise DataError(
            f"{name}: all {late} rows are later than this machine's clock, {stamp(now)}: give stamps in seconds since "
            "1970 UTC, not in milliseconds, or set the clock"
        )
    left = replace(rows, time=rows.time[:kept], temperature=rows.temperature[:kept], load=rows.load[:kept])
    return left, (f"{name}: {late} rows left out that are later than this machine's clock: check stamps and clock",)


def possible(rows: Rows, source: object, name: str) -> tuple[Rows, tuple[str, ...]]:
    """Rows of a source that is not a table with values outside the limits lacking, and how many in words; where they
    are too many, or look like another unit, they stay, and `faults` refuses them.

    Nobody can mend one error code that a recorder keeps: refused, it would keep the home out for as long as it is read.
    """
    if isinstance(source, Table):
        return rows, ()
    said, columns = [], []
    for what, values, (low, high), unit, other_unit in (
        ("temperature", rows.temperature, limits.INDOOR_C, "°C", _other_temperature(rows.temperature, limits.INDOOR_C)),
        ("load", rows.load, limits.LOAD_KW, "kW", _watts(rows.load)),
    ):
        beyond = (values < low) | (values > high)
        count = int(np.count_nonzero(beyond))
        if count and other_unit is None and MOST_IMPOSSIBLE * count <= len(rows):
            values = np.where(beyond, np.nan, values)
            text = f"{name}: {what} is outside {low:g} to {high:g} {unit} in {count} rows"
            said.append(f"{text}, taken as lacking there: check the sensor")
        columns.append(values)
    return replace(rows, temperature=columns[0], load=columns[1]), tuple(said)


def own_readings(rows: Rows, source: object, sky: Sky | None, longest_seconds: int) -> Readings:
    """Readings of complete rows, own gaps filled; or the first fault. sky: None where the home has no weather."""
    name = str(getattr(source, "name", source))
    words = HOME[2:] if isinstance(source, Table) else ("temperature", "load")
    whose = f" of agent {rows.agent!r}" if rows.agent is not None else ""
    for fault in faults(rows, sky, name, (f"{name}: {words[0]}{whose}", f"{name}: {words[1]}{whose}")):
        raise DataError(fault)
    usable = np.ones(len(rows.time), dtype=bool)
    if sky is not None:
        complete = sky.time[~(np.isnan(sky.outdoor) | np.isnan(sky.solar))]
        usable = np.isin(rows.time, complete) | (rows.time > sky.time[-1])
    time, temperature, load = rows.time[usable], rows.temperature[usable], rows.load[usable]
    step = commonest_step(rows.time)
    if step is None:
        raise DataError(f"{name}: has one time stamp: give at least some days of readings")
    return gaps.fill(time, temperature, load, step, longest_seconds)


def faults(rows: Rows, sky: Sky | None, name: str, where: tuple[str, str]) -> Iterator[str]:
    """Every reason not to use one home's rows, with this weather where there is some."""
    step = commonest_step(rows.time)
    if step is None:
        yield f"{name}: no agent has two time stamps: give at least some days of readings"
        return
    lengths = np.diff(rows.time)
    uneven = np.flatnonzero(lengths % step)
    if len(uneven):
        row = int(uneven[0])
        whose = f"agent {rows.agent!r} has" if rows.agent is not None else "has"
        yield (
            f"{name}: {whose} an irregular step: {stamp(int(rows.time[row + 1]))} follows "
            f"{stamp(int(rows.time[row]))}, no multiple of {spell(step)}: resample to a regular step first"
        )
    yield from _temperature_faults(rows.temperature, rows.time, where[0], limits.INDOOR_C)
    yield from _load_faults(rows, where[1])
    if sky is not None:
        yield from weather_faults(sky)
        yield from _coverage_faults(rows.time[rows.time <= sky.time[-1]], sky, step, name)


def weather_faults(sky: Sky) -> Iterator[str]:
    """Every reason not to use a weather table."""
    yield from _temperature_faults(sky.outdoor, sky.time, f"{sky.source}: outdoor_temp_c", limits.OUTDOOR_C)
    where, peak = f"{sky.source}: solar_w_m2", float(np.max(sky.solar[~np.isnan(sky.solar)], initial=-np.inf))
    if 0.0 < peak < limits.DARK_PEAK and sky.time[-1] - sky.time[0] >= DAY:
        yield f"{where} peaks at {peak:.3g}, looks like kW/m², not W/m²: multiply by 1000"
    yield from _outside(sky.solar, sky.time, where, limits.SOLAR_W_M2, "W/m²")


def _temperature_faults(values: FloatArray, time: IntArray, where: str, bounds: tuple[float, float]) -> Iterator[str]:
    other_unit = _other_temperature(values, bounds)
    if other_unit is not None:
        yield f"{where} {other_unit}"
        return
    yield from _outside(values, time, where, bounds, "°C")


def _other_temperature(values: FloatArray, bounds: tuple[float, float]) -> str | None:
    """Why these are not °C; None where they may be."""
    known = values[~np.isnan(values)]
    median = float(np.median(known)) if len(known) else np.nan
    for low, high, unit, conversion in limits.OTHER_TEMPERATURES:
        if low <= median <= high:
            return f"has median {median:.1f}, looks like {unit}, not °C: {conversion}"
    high = float(np.quantile(np.abs(known), 0.9)) if len(known) else 0.0
    if max(bounds) < high < 10 * max(bounds) and not (known % 1).any():
        return f"has whole numbers beyond {max(bounds):g}, looks like 0.1°C, not °C: divide by 10"
    return None


def _load_faults(rows: Rows, where: str) -> Iterator[str]:
    other_unit = _watts(rows.load)
    if other_unit is not None:
        yield f"{where} {other_unit}"
        return
    yield from _outside(rows.load, rows.time, where, limits.LOAD_KW, "kW")


def _watts(load: FloatArray) -> str | None:
    """Why these are not kW; None where they may be."""
    size = np.abs(load[~np.isnan(load)])
    size = size[size > 0]
    peak = float(np.quantile(size, 0.99, method="lower")) if len(size) else 0.0
    if peak > limits.WATT_PEAK:
        return (
            f"peaks at {peak:.0f}, looks like W, not kW: divide by 1000 (an agent that large in kW: give its zones as "
            "agents)"
        )
    return None


def _outside(values: FloatArray, time: IntArray, where: str, bounds: tuple[float, float], unit: str) -> Iterator[str]:
    low, high = bounds
    beyond = np.flatnonzero((values < low) | (values > high))
    if len(beyond):
        first = int(beyond[0])
        yield (
            f"{where} is {values[first]:g} at {stamp(int(time[first]))}, outside {low:g} to {high:g} {unit}: "
            "check the unit; if it is a sensor's error code, leave the cell empty"
        )


def _coverage_faults(time: IntArray, sky: Sky, step: int, name: str) -> Iterator[str]:
    missing = time[~np.isin(time, sky.time)]
    if len(missing):
        first = ", ".join(stamp(int(t)) for t in missing[:3])
        text = f"{sky.source}: no weather for {len(missing)} of {len(time)} stamps of {name}, first {first}"
        hours, at_an_end = (missing[-1] - missing[0]) / 3600, missing[0] == time[0] or missing[-1] == time[-1]
        yield f"{text}: {limits.no_weather(float(hours), bool(at_an_end))}"
        return
    if not len(time):
        return
    own = commonest_step(sky.time[(sky.time >= time[0]) & (sky.time <= time[-1])])
    if own is not None and own != step:
        yield f"{sky.source}: has a {spell(own)} step, {name} one of {spell(step)}: {limits.OTHER_STEP}"
