"""Data quality before anything leaves: what each agent's readings look like, and why a fit would be refused.

Promise: problems are reported, not raised; the strict reader refuses exactly when there is a problem,
apart from the number of agents, which only protocols judge.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from atdm.data import clock, rules, tables
from atdm.data.format import Format
from atdm.data.keep import DayOut, Kept
from atdm.data.sources.source import Source
from atdm.data.tables import StrPath, ZoneTable
from atdm.errors import DataError

MIN_AGENTS = 3  # with two, each learns the other from the sum: every protocol refuses
NAMED = 3  # agents that a line about lost rows names
DAYS_NAMED = 5  # days that a line about an agent names


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuality:
    """What one agent's readings look like.

    Attributes
    ----------
    agent : str
        Its name.
    rows : int
        Rows in the file.
    first : pandas.Timestamp
        Its first reading.
    last : pandas.Timestamp
        Its last reading.
    step : pandas.Timedelta or None
        The commonest time between two readings; None for a single row.
    gaps : int
        Places where the next row is more than a step away.
    missing : int
        Stamps of the table without a temperature or load of this agent, before filling.
    filled : int or None
        Stamps it filled across its own gaps; None where a problem comes first.
    days_out : int or None
        UTC days on which it has less than half of the rows, after filling; None where a problem comes first.
    out_on : tuple of DayOut
        Those days, each with the rows it has and those it should have.
    left_out : str
        Why a fit would leave it out; empty if it stays.
    min : float
        Lowest temperature [°C].
    max : float
        Highest temperature [°C].
    stuck_hours : float
        Longest time at one temperature [h].
    suspicion : str
        What looks wrong, in words; empty if nothing does.
    """

    agent: str
    rows: int
    first: pd.Timestamp
    last: pd.Timestamp
    step: pd.Timedelta | None
    gaps: int
    missing: int
    filled: int | None
    days_out: int | None
    out_on: tuple[DayOut, ...]
    left_out: str
    min: float
    max: float
    stuck_hours: float
    suspicion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The verdict on two tables.

    Attributes
    ----------
    agents : tuple of AgentQuality
        One for each agent; empty where the zones table cannot be read at all.
    problems : tuple of str
        Each a reason for which a fit would be refused.
    notes : tuple of str
        What the person should know about the data.
    rows : int or None
        Stamps of the table, and those filled; None where a problem comes first.
    rows_kept : int or None
        Those of them that a fit would keep; None where a problem comes first.
    costs : dict
        Agent → rows lost for all that it lacks or is out on, most first; without those that cost nothing.
    without : tuple of (str, int)
        Agents that stay, the costliest first, and the rows a fit would keep without it and those before it.
    """

    agents: tuple[AgentQuality, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    rows: int | None
    rows_kept: int | None
    costs: dict[str, int]
    without: tuple[tuple[str, int], ...]


def quality(
    zones: StrPath | Source,
    weather: StrPath | None = None,
    *,
    timezone: str | None = None,
    sort: bool = False,
    delimiter: str = ",",
    decimal: str = ".",
    fill: str = "2h",
) -> Quality:
    """Look at a cluster's files, or at one home's own, before anything leaves: what `atdm check` prints.

    Parameters
    ----------
    zones : str, path-like or Source
        Table `time, agent, indoor_temp_c, load_kw[, building]` [°C, kW]; or where one home's readings are.
    weather : str or path-like, optional
        Table `time, outdoor_temp_c, solar_w_m2` [°C, W/m²]; without it the zones are judged alone.
    timezone : str, optional
        As in `read_cluster`.
    sort : bool, default False
        As in `read_cluster`.
    delimiter : str, default ","
        As in `read_cluster`.
    decimal : str, default "."
        As in `read_cluster`.
    fill : str, default "2h"
        As in `read_cluster`.

    Returns
    -------
    Quality
        What the readings look like, and every reason for which a fit would be refused.
    """
    declared = Format(timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal, fill=fill)
    problems: list[str] = []
    z = w = None
    try:
        w = tables.read_weather(weather, declared) if weather is not None else None
    except DataError as error:
        problems.append(str(error))
    try:
        z = tables.read_home(zones, w) if isinstance(zones, Source) else tables.read_zones(zones, declared)
    except DataError as error:
        problems.insert(0, str(error))

    found: list[rules.Finding] = []
    if z is not None and w is not None:
        found += tables.faults(z, w)
    elif z is not None:
        found += tables.zone_faults(z)
    elif w is not None:
        found += tables.weather_faults(w)
    problems += [fault.text for fault in found]

    notes = (*(z.notes if z else ()), *(w.notes if w else ()))
    kept = None
    if z is not None and (w is not None or weather is None) and not problems:
        sky = w or tables.any_weather(z)
        kept = tables.kept_of(z, sky, declared)
        try:
            notes = (*tables.combined(z, sky, declared, kept).notes, *_verdict(kept))
        except DataError as error:
            problems.append(str(error))
    if z is not None:
        problems += _too_few(z, kept)
    return Quality(
        agents=() if z is None else _rows(z, found, kept),
        problems=tuple(problems),
        notes=notes,
        rows=kept.rows if kept else None,
        rows_kept=kept.rows_kept if kept else None,
        costs=_costs(kept) if kept else {},
        without=tuple(kept.without(NAMED)) if kept else (),
    )


def _costs(kept: Kept) -> dict[str, int]:
    return {str(agent): int(rows) for agent, rows in kept.costs.items() if rows}


def _verdict(kept: Kept) -> Iterator[str]:
    """Who is out on which days, how many rows a fit keeps, who costs most of the others, what it would keep without."""
    for agent, days in list(kept.out_on.items())[:NAMED]:
        named = ", ".join(map(str, days[:DAYS_NAMED])) + (
            f" and {more} more" if (more := len(days) - DAYS_NAMED) > 0 else ""
        )
        yield f"agent {agent!r} is out on days with less than half of the rows: {named}"
    if len(kept.out_on) > NAMED:
        yield f"{len(kept.out_on) - NAMED} more agents are out on some days (`atdm check --json` lists them)"
    if kept.rows_kept < kept.rows:
        most = ", ".join(f"{agent!r} ({rows})" for agent, rows in list(_costs(kept).items())[:NAMED])
        yield f"a fit would keep {kept.rows_kept} of {kept.rows} rows" + (f"; most are lost by {most}" if most else "")
        others = kept.without(NAMED)
        if others and others[-1][1] > kept.rows_kept:
            steps = "; ".join(
                f"without {'also ' if i else ''}{agent!r} {rows}" for i, (agent, rows) in enumerate(others)
            )
            yield f"leaving the costliest out would keep more rows: {steps}"


def _too_few(zones: ZoneTable, kept: Kept | None) -> Iterator[str]:
    out = len(kept.left_out) if kept else 0
    count = len(zones.agents) - out
    if count < MIN_AGENTS and len(zones.agents) > 1:  # one agent is a home's own file
        stay = f"{count} agent{'s' if count > 1 else ''}" + (f" (without {out} left out)" if out else "")
        yield f"{zones.source}: {stay}, every protocol needs {MIN_AGENTS}: add agents"


def _rows(zones: ZoneTable, found: Iterable[rules.Finding], kept: Kept | None) -> tuple[AgentQuality, ...]:
    time = zones.time
    step = tables.step_of(zones) or pd.Timedelta(0)
    temperature, load = zones.wide("indoor_temp_c", time), zones.wide("load_kw", time)
    segment = clock.segments(time, step)
    stuck = rules.stuck_hours(temperature, segment, step)
    missing = (temperature.isna() | load.isna()).sum()
    suspicions = [*found, *rules.oddities(temperature, load, segment, step)]
    low, high = temperature.min(), temperature.max()
    left_out = kept.left_out if kept else {}

    def row(agent: str, stamps: pd.DatetimeIndex) -> AgentQuality:
        lengths = np.diff(stamps.asi8)
        own = pd.Timedelta(clock.commonest_step(lengths), unit="ns") if len(lengths) else None
        return AgentQuality(
            agent=agent,
            rows=len(stamps),
            first=stamps[0],
            last=stamps[-1],
            step=own,
            gaps=0 if own is None else int((lengths > own.value).sum()),
            missing=int(missing[agent]),
            filled=int(kept.filled[agent]) if kept else None,
            days_out=int(kept.days_out[agent]) if kept else None,
            out_on=kept.out_on.get(agent, ()) if kept else (),
            left_out=left_out.get(agent, ""),
            min=float(low[agent]),
            max=float(high[agent]),
            stuck_hours=float(stuck[agent]),
            suspicion=", ".join(suspicion.short for suspicion in suspicions if agent in suspicion.agents),
        )

    by_code = zones.readings.groupby("code")["time"]
    return tuple(row(agent, pd.DatetimeIndex(by_code.get_group(code))) for code, agent in enumerate(zones.agents))
