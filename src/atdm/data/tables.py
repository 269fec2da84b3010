"""The file contract: a table of zones and a table of weather become a Cluster, or one refusal that says why.

    zones     time, agent, indoor_temp_c [°C], load_kw [kW] [, building]       one row per agent and stamp
    weather   time, outdoor_temp_c [°C], solar_w_m2 [W/m²]

Rule 1: a home's own gaps of up to 2 h are filled linearly and counted (gaps.py); nothing else is imputed, and nothing
        clipped, resampled or converted; rows are sorted only when asked.
Rule 2: what is filled or left out (rows, agents, columns, doubles) is said in the cluster's notes.
Rule 3: faults are yielded, so that a strict reader raises the first and a check lists them all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import time as wall_clock

import numpy as np
import pandas as pd

from atdm.data import clock, columns, limits, rules
from atdm.data.clock import spell, stamp
from atdm.data.cluster import Cluster, assemble
from atdm.data.files import Table, read_table
from atdm.data.format import Format
from atdm.data.keep import NS, Kept, keep
from atdm.data.own import not_later, possible
from atdm.data.sources.source import Source
from atdm.errors import DataError, UsageError
from atdm.types import IntArray

StrPath = str | PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZoneTable:
    """The readings of a zones table, one row per agent and stamp, by agent and time."""

    source: str
    readings: pd.DataFrame  # code (of the agent), time, indoor_temp_c, load_kw
    agents: pd.Index  # name of each code
    owner: pd.Series  # agent -> building
    notes: tuple[str, ...]

    def wide(self, column: str, time: pd.DatetimeIndex) -> pd.DataFrame:
        """One column per agent, NaN where an agent has no reading."""
        values = np.full((len(time), len(self.agents)), np.nan)
        rows = time.get_indexer(pd.DatetimeIndex(self.readings["time"]))
        values[rows, self.readings["code"].to_numpy()] = self.readings[column].to_numpy()
        return pd.DataFrame(values, index=time, columns=self.agents)

    @property
    def time(self) -> pd.DatetimeIndex:
        """Every stamp some agent has, increasing."""
        return pd.DatetimeIndex(self.readings["time"].drop_duplicates().sort_values(), name="time")

    def differences(self) -> tuple[IntArray, IntArray]:
        """Time from each reading to the same agent's next [ns], and the row of the former."""
        code, time = self.readings["code"].to_numpy(), pd.DatetimeIndex(self.readings["time"]).asi8
        rows = np.flatnonzero(code[1:] == code[:-1])
        return (time[1:] - time[:-1])[rows], rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeatherTable:
    """The readings of a weather table, by time."""

    source: str
    readings: pd.DataFrame  # index time; outdoor_temp_c, solar_w_m2
    notes: tuple[str, ...]


def read_cluster(
    zones: StrPath,
    weather: StrPath,
    *,
    timezone: str | None = None,
    sort: bool = False,
    delimiter: str = ",",
    decimal: str = ".",
    fill: str = "2h",
) -> Cluster:
    """Read a cluster, or one agent's own file, from parquet, .csv or .csv.gz files.

    Parameters
    ----------
    zones : str or path-like
        Table `time, agent, indoor_temp_c, load_kw[, building]` [°C, kW].
    weather : str or path-like
        Table `time, outdoor_temp_c, solar_w_m2` [°C, W/m²].
    timezone : str, optional
        IANA name of the clock that the season follows and of stamps written without offset. By default UTC, and then
        every stamp must say its offset.
    sort : bool, default False
        Accept rows that are not in the order of time.
    delimiter : str, default ","
        Between the columns of a CSV file.
    decimal : str, default "."
        Decimal mark of a CSV file.
    fill : str, default "2h"
        Longest span without readings that an agent fills by itself, linearly; "0h" fills nothing.

    Returns
    -------
    Cluster
        The readings that can be used.

    Raises
    ------
    DataError
        Anything that cannot be used as it is, in one line.
    """
    declared = Format(timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal, fill=fill)
    z, w = read_zones(zones, declared), read_weather(weather, declared)
    for fault in faults(z, w):
        raise DataError(fault.text)
    return combined(z, w, declared, kept_of(z, w, declared))


def read_zones(path: StrPath, declared: Format) -> ZoneTable:
    """The zones table, typed, without doubles, in order; its values are not judged yet."""
    where = Path(path)
    table = read_table(
        where, ("time", "agent", "indoor_temp_c", "load_kw"), ("building",), delimiter=declared.delimiter
    )
    codes, names = columns.names(table.columns["agent"], f"{where}: agent")
    long = pd.DataFrame({"code": codes, **_values(table, where, ("indoor_temp_c", "load_kw"), declared)})
    agents = pd.Index(names, name="agent")
    owner = _owner(table, where, codes, agents)
    long, notes = _ordered(long, where, declared, agents)
    return ZoneTable(
        source=str(where), readings=long, agents=agents, owner=owner, notes=(*_ignored(table, where), *notes)
    )


def read_home(source: Source, weather: WeatherTable | None) -> ZoneTable:
    """One home's readings from where they are, as its agent takes them: those from where the weather begins. Those
    after its end, which are for collecting, are not judged."""
    since = None if weather is None else int(weather.readings.index[0].timestamp()) - 1
    found, late_rows = not_later(source.rows(since), int(wall_clock()), source.name)
    found, impossible = possible(found, source, source.name)
    home = found.agent or "home"
    time = pd.DatetimeIndex(pd.to_datetime(found.time, unit="s", utc=True)).as_unit("ns")
    columns = {"code": 0, "time": time, "indoor_temp_c": found.temperature, "load_kw": found.load}
    long, notes = pd.DataFrame(columns), (*found.notes, *late_rows, *impossible)
    if weather is not None and (late := int((time > weather.readings.index[-1]).sum())):
        long = long[(time <= weather.readings.index[-1])]
        notes = (*notes, f"{late} rows later than the weather are not judged")
    if long.empty:
        when = "" if since is None else " while there is weather"
        said = f" ({'; '.join(found.notes)})" if found.notes else ""
        raise DataError(f"{source.name}: has no readings{when}{said}: check that it has some of that time")
    agents = pd.Index([home], name="agent")
    return ZoneTable(
        source=source.name, readings=long, agents=agents, owner=pd.Series(agents.to_numpy(), index=agents), notes=notes
    )


def read_weather(path: StrPath, declared: Format) -> WeatherTable:
    """The weather table, typed, without doubles, in order; its values are not judged yet."""
    where = Path(path)
    table = read_table(where, ("time", "outdoor_temp_c", "solar_w_m2"), delimiter=declared.delimiter)
    long = pd.DataFrame({"code": 0, **_values(table, where, ("outdoor_temp_c", "solar_w_m2"), declared)})
    long, notes = _ordered(long, where, declared, None)
    readings = long.drop(columns="code").set_index("time")
    return WeatherTable(source=str(where), readings=readings, notes=(*_ignored(table, where), *notes))


def kept_of(zones: ZoneTable, weather: WeatherTable, declared: Format) -> Kept:
    """What a fit would keep of two tables that have no fault."""
    time, sky = zones.time, weather.readings
    within = sky[(sky.index >= time[0]) & (sky.index <= time[-1])]
    step = step_of(zones)
    if step is None:
        raise UsageError(f"{zones.source}: no agent has two time stamps: look for faults first")
    return keep(
        zones.wide("indoor_temp_c", time),
        zones.wide("load_kw", time),
        within["outdoor_temp_c"],
        within["solar_w_m2"] / 1000.0,  # W/m² -> kW/m²
        step=step,
        longest=clock.duration(declared.fill, zero=True),
    )


def any_weather(zones: ZoneTable) -> WeatherTable:
    """Weather for every stamp a home may have or fill, where only the homes are looked at."""
    time, step = zones.time, step_of(zones) or pd.Timedelta("1D")
    grid = pd.date_range(time[0], time[-1], freq=step, name="time").as_unit("ns")
    values = np.arange(len(grid)) % 2.0  # of nothing, and not constant: nobody shall be told that it is
    return WeatherTable(
        source="", readings=pd.DataFrame({"outdoor_temp_c": values, "solar_w_m2": values}, index=grid), notes=()
    )


def combined(zones: ZoneTable, weather: WeatherTable, declared: Format, kept: Kept) -> Cluster:
    """The cluster of what is kept of two tables."""
    return assemble(
        kept,
        owner=zones.owner,
        timezone=declared.timezone or "UTC",
        notes=(*zones.notes, *weather.notes),
        source=zones.source,
    )


def faults(zones: ZoneTable, weather: WeatherTable) -> Iterator[rules.Finding]:
    """Every reason not to use the two tables together."""
    yield from zone_faults(zones)
    yield from weather_faults(weather)
    yield from _coverage_faults(zones, weather)


def zone_faults(zones: ZoneTable) -> Iterator[rules.Finding]:
    """Every reason not to use a zones table."""
    time = zones.time
    yield from _step_faults(zones)
    yield from rules.temperature_faults(
        zones.wide("indoor_temp_c", time), f"{zones.source}: indoor_temp_c", limits.INDOOR_C
    )
    yield from rules.load_faults(zones.wide("load_kw", time), f"{zones.source}: load_kw")


def weather_faults(weather: WeatherTable) -> Iterator[rules.Finding]:
    """Every reason not to use a weather table."""
    outdoor, solar = (weather.readings[[name]].set_axis([""], axis="columns") for name in weather.readings.columns)
    time = pd.DatetimeIndex(weather.readings.index)
    yield from rules.temperature_faults(outdoor, f"{weather.source}: outdoor_temp_c", limits.OUTDOOR_C)
    yield from rules.solar_faults(solar, f"{weather.source}: solar_w_m2", time[-1] - time[0])


def step_of(zones: ZoneTable) -> pd.Timedelta | None:
    """The commonest time between an agent's readings; None where no agent has two."""
    lengths, _ = zones.differences()
    return pd.Timedelta(clock.commonest_step(lengths), unit="ns") if len(lengths) else None


def _values(table: Table, where: Path, numeric: tuple[str, ...], declared: Format) -> dict[str, object]:
    values: dict[str, object] = {"time": columns.stamps(table.columns["time"], f"{where}: time", declared.timezone)}
    for name in numeric:
        values[name] = columns.numbers(table.columns[name], f"{where}: {name}", decimal=declared.decimal)
    return values


def _ignored(table: Table, where: Path) -> tuple[str, ...]:
    if not table.ignored:
        return ()
    return (f"{where}: columns not used: {rules.listed(table.ignored)}",)


def _owner(table: Table, where: Path, codes: IntArray, agents: pd.Index) -> pd.Series:
    if "building" not in table.columns:
        return pd.Series(agents.to_numpy(), index=agents, name="building")
    building_codes, buildings = columns.names(table.columns["building"], f"{where}: building")
    pairs = pd.DataFrame({"code": codes, "building": building_codes}).drop_duplicates()
    if (twice := pairs["code"].duplicated()).any():
        agent = agents[int(pairs["code"][twice].iloc[0])]
        raise DataError(f"{where}: agent {agent!r} has more than one building: give it one, or another name in each")
    return pd.Series([buildings[b] for b in pairs["building"]], index=agents[pairs["code"].to_numpy()], name="building")


def _ordered(
    long: pd.DataFrame, where: Path, declared: Format, agents: pd.Index | None
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The rows by agent and time, without exact doubles."""
    notes = []
    doubled = long.duplicated(["code", "time"])
    if doubled.any():
        if (conflict := doubled & ~long.duplicated()).any():
            row = int(np.flatnonzero(conflict)[0])
            at = f"{_agent(long, row, agents)}{stamp(long['time'].iloc[row])}"
            raise DataError(
                f"{where}: data row {row + 1} gives other values for {at} than a row before it: keep one of them"
            )
        notes.append(f"{where}: {int(doubled.sum())} rows dropped that repeat another one exactly")
        long = long[~doubled]
    long = long.sort_values("code", kind="stable")
    code, time = long["code"].to_numpy(), pd.DatetimeIndex(long["time"]).asi8
    back = (code[1:] == code[:-1]) & (time[1:] < time[:-1])
    if back.any():
        if not declared.sort:
            row = int(np.argmax(back)) + 1
            at = f"{_agent(long, row, agents)}{stamp(long['time'].iloc[row])}"
            raise DataError(
                f"{where}: data row {int(long.index[row]) + 1}, {at}, goes back in time: sort the file, or ask for sort"
            )
        long = long.sort_values(["code", "time"], kind="stable")
        notes.append(f"{where}: rows sorted by time, as asked")
    return long.reset_index(drop=True), tuple(notes)


def _agent(long: pd.DataFrame, row: int, agents: pd.Index | None) -> str:
    return "" if agents is None else f"agent {agents[int(long['code'].iloc[row])]!r} at "


def _step_faults(zones: ZoneTable) -> Iterator[rules.Finding]:
    lengths, rows = zones.differences()
    code, time = zones.readings["code"].to_numpy(), zones.readings["time"]

    def named(mask: IntArray) -> tuple[str, ...]:
        return tuple(str(agent) for agent in zones.agents[np.unique(mask)])

    if not len(lengths):
        text = f"{zones.source}: no agent has two time stamps: give at least some days of readings"
        yield rules.Finding(named(code), "one time stamp", text)
        return
    ns = clock.commonest_step(lengths)
    step = spell(pd.Timedelta(ns, unit="ns"))
    if ns % NS:
        text = f"{zones.source}: has a step of {step}, no whole number of seconds: resample to one that is"
        yield rules.Finding(named(code), "part of a second", text)
        return
    uneven = lengths % ns != 0
    if uneven.any():
        row = int(rows[np.argmax(uneven)])
        text = (
            f"{zones.source}: agent {zones.agents[code[row]]!r} has an irregular step: {stamp(time.iloc[row + 1])} "
            f"follows {stamp(time.iloc[row])}, no multiple of {step}: resample to a regular step first"
        )
        yield rules.Finding(named(code[rows[uneven]]), "irregular step", text)
        return
    taking_it = np.unique(code[rows[lengths == ns]])
    if other := named(np.setdiff1d(code, taking_it)):
        text = (
            f"{zones.source}: {rules.listed(other)} never has the {step} step of the others: resample all to one step"
        )
        yield rules.Finding(other, "another step", text)
    shifted = (pd.DatetimeIndex(time).asi8 - pd.DatetimeIndex(time).asi8[0]) % ns != 0
    if shifted.any():
        row = int(np.argmax(shifted))
        text = (
            f"{zones.source}: agent {zones.agents[code[row]]!r} is off the {step} grid of {zones.agents[code[0]]!r}, "
            f"as at {stamp(time.iloc[row])}: resample all to the same stamps"
        )
        yield rules.Finding(named(code[shifted]), "off the grid", text)


def _coverage_faults(zones: ZoneTable, weather: WeatherTable) -> Iterator[rules.Finding]:
    time, sky = zones.time, pd.DatetimeIndex(weather.readings.index)
    missing = time.difference(sky)
    if len(missing):
        first = ", ".join(stamp(t) for t in missing[:3])
        text = f"{weather.source}: no weather for {len(missing)} of {len(time)} stamps of {zones.source}, first {first}"
        hours = (missing[-1] - missing[0]).total_seconds() / 3600
        at_an_end = missing[0] == time[0] or missing[-1] == time[-1]
        yield rules.Finding((), "no weather", f"{text}: {limits.no_weather(hours, at_an_end)}")
        return
    step = step_of(zones)
    within = sky[(sky >= time[0]) & (sky <= time[-1])].asi8
    if step is None or len(within) < 2:
        return
    own = pd.Timedelta(clock.commonest_step(np.diff(within)), unit="ns")
    if own != step:
        text = f"{weather.source}: has a {spell(own)} step, {zones.source} one of {spell(step)}: {limits.OTHER_STEP}"
        yield rules.Finding((), "another step", text)
