"""A cluster: every agent's readings on one clock, beside the weather they share.

Promise: a Cluster has no missing, infinite or implausible value, increasing UTC stamps on one regular grid
(gaps split it into segments), and one owner per agent. A home's own gaps of up to 2 h are filled linearly and counted,
as a deployed agent does it (gaps.py); nothing else is imputed. What was filled or left out to get there is in `notes`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from atdm.data import clock, limits, rules
from atdm.data.clock import stamp
from atdm.data.keep import NS, Kept, keep
from atdm.errors import DataError, UsageError
from atdm.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Cluster:
    """Readings of all agents; rows are time stamps (UTC), columns agents.

    Made by `read_cluster`, `load_sample` or `Cluster.from_frames`. It prints its size, never its readings.

    Attributes
    ----------
    temperature : pandas.DataFrame
        Indoor temperature by time and agent [°C].
    load : pandas.DataFrame
        Heating power by time and agent, cooling negative [kW].
    outdoor : pandas.Series
        Outdoor temperature [°C].
    solar : pandas.Series
        Global horizontal irradiance [kW/m²].
    owner : pandas.Series
        Agent → building; the agent itself where none was given.
    step : pandas.Timedelta
        Time from one row to the next.
    timezone : str
        IANA name of the clock that the season follows.
    filled : pandas.Series
        Agent → number of stamps it filled across gaps of its own, dropped rows included.
    left_out : dict
        Agent of the data that is not in the cluster → why.
    rows_dropped : int
        Stamps left out because some agent, or the weather, had no reading.
    notes : tuple of str
        What the person should know about the data.
    """

    temperature: pd.DataFrame
    load: pd.DataFrame
    outdoor: pd.Series
    solar: pd.Series
    owner: pd.Series
    step: pd.Timedelta
    timezone: str
    filled: pd.Series
    left_out: dict[str, str]
    rows_dropped: int
    notes: tuple[str, ...]

    @classmethod
    def from_frames(
        cls,
        temperature: pd.DataFrame,
        load: pd.DataFrame,
        outdoor: pd.Series | None = None,
        solar: pd.Series | None = None,
        *,
        owner: pd.Series | None = None,
        timezone: str = "UTC",
        notes: Sequence[str] = (),
        fill: str = "2h",
    ) -> "Cluster":
        """A cluster from frames in memory, under the rules by which files are read.

        Either four wide ones (temperature, load, outdoor, solar), or the two long tables that files have: zones and
        weather, in the places of the first two, with `time` as a column.

        All four tables share one increasing zone-aware index. Rows with a missing value are dropped for all agents and
        counted. Where that would cost a tenth of the rows (of K > 10 agents 1/K, at least a
        fiftieth), agents are left out instead, at most a third of them.

        Parameters
        ----------
        temperature : pandas.DataFrame
            Indoor temperature, one column per agent [°C]; or zones: time, agent, indoor_temp_c, load_kw[, building].
        load : pandas.DataFrame
            Heating power, cooling negative, the same columns [kW]; or weather: time, outdoor_temp_c, solar_w_m2.
        outdoor : pandas.Series, optional
            Outdoor temperature [°C]; left out with long tables.
        solar : pandas.Series, optional
            Global horizontal irradiance [kW/m²]; left out with long tables.
        owner : pandas.Series, optional
            Agent → building; by default every agent is its own.
        timezone : str, default "UTC"
            IANA name of the clock that the season follows.
        notes : sequence of str, default ()
            Remarks to keep in `Cluster.notes`.
        fill : str, default "2h"
            Longest span without readings that an agent fills by itself, linearly; "0h" fills nothing.

        Returns
        -------
        Cluster
            The readings that can be used.

        Raises
        ------
        DataError
            The tables do not belong together, or hold values that cannot be.
        """
        if outdoor is None or solar is None:
            temperature, load, outdoor, solar, owner = _wide(temperature, load, owner)
        clock.zone(timezone)
        longest = clock.duration(fill, zero=True)
        time = _checked_time(temperature.index)
        for name, other in (("load", load), ("outdoor", outdoor), ("solar", solar)):
            if not other.index.equals(temperature.index):
                raise DataError(
                    f"{name}: its time stamps differ from those of temperature: give all four the same index"
                )
        agents = pd.Index([str(agent) for agent in temperature.columns], name="agent")
        if len(agents) == 0 or not agents.is_unique or list(agents) != [str(agent) for agent in load.columns]:
            raise DataError("temperature, load: need the same agents, each once, in the same order: align the columns")
        t = pd.DataFrame(_floats(temperature, "temperature"), index=time, columns=agents)
        h = pd.DataFrame(_floats(load, "load"), index=time, columns=agents)
        o = pd.Series(_floats(outdoor, "outdoor"), index=time)
        r = pd.Series(_floats(solar, "solar"), index=time)
        for fault in _faults(t, h, o, r):
            raise DataError(fault.text)
        step = pd.Timedelta(clock.commonest_step(np.diff(time.asi8)), unit="ns")
        kept = keep(t, h, o, r, step=step, longest=longest)
        return assemble(kept, owner=_checked_owner(owner, agents), timezone=timezone, notes=notes, source="temperature")

    @property
    def weather(self) -> pd.DataFrame:
        """The weather as the contract's table, indexed by time: outdoor_temp_c [°C], solar_w_m2 [W/m²]."""
        return pd.DataFrame({"outdoor_temp_c": self.outdoor, "solar_w_m2": self.solar * 1000.0})

    @property
    def agents(self) -> tuple[str, ...]:
        """Names, in order of first appearance."""
        return tuple(self.temperature.columns)

    @property
    def time(self) -> pd.DatetimeIndex:
        """The stamps of the rows, in UTC."""
        return pd.DatetimeIndex(self.temperature.index)

    @property
    def segment(self) -> IntArray:
        """Number of the gap-free segment each row is in: lags must not cross from one to the next."""
        return clock.segments(self.time, self.step)

    def phase(self, period: int) -> IntArray:
        """Index of each row in the season: the k-th step after local midnight has index k modulo the period.

        Parameters
        ----------
        period : int
            P: steps in one season.

        Returns
        -------
        array of int
            One index per row.
        """
        return clock.phase(self.time, self.step, self.timezone, period)

    def by_building(self) -> "Cluster":
        """The same cluster with buildings as agents: mean temperature, summed load of their zones.

        A building has filled what its zones have. Who was left out, before, were zones: `left_out` keeps their names.
        """
        buildings = pd.Index(self.owner.unique(), name="agent")
        zones = [self.owner.index[(self.owner == building).to_numpy()] for building in buildings]
        mean = {b: self.temperature[z].mean(axis="columns") for b, z in zip(buildings, zones, strict=True)}
        total = {b: self.load[z].sum(axis="columns") for b, z in zip(buildings, zones, strict=True)}
        owner = pd.Series(buildings.to_numpy(), index=buildings, name="building")
        return replace(
            self,
            temperature=pd.DataFrame(mean).rename_axis(columns="agent"),
            load=pd.DataFrame(total).rename_axis(columns="agent"),
            owner=owner,
            filled=self.filled.groupby(self.owner, sort=False).sum().rename_axis("agent"),
        )

    def select(self, agents: Sequence[str]) -> "Cluster":
        """The same rows for some agents.

        Parameters
        ----------
        agents : sequence of str
            Names, each once, in the order wanted.

        Returns
        -------
        Cluster
            The cluster of these agents.

        Raises
        ------
        UsageError
            A name that is not in the cluster.
        """
        names = list(agents)
        unknown = [name for name in names if name not in self.owner.index]
        if unknown or not names or len(set(names)) < len(names):
            what = f"no agent {unknown[0]!r}" if unknown else "select needs agents, each once"
            if unknown and unknown[0] in self.left_out:
                what = f"agent {unknown[0]!r} was left out ({self.left_out[unknown[0]]})"
            raise UsageError(f"{what}: the cluster has {rules.listed(self.agents)}")
        return replace(
            self,
            temperature=self.temperature[names],
            load=self.load[names],
            owner=self.owner[names],
            filled=self.filled[names],
        )

    def __repr__(self) -> str:
        # never the readings: they are private, and this ends up in logs
        first, last = stamp(self.time[0]), stamp(self.time[-1])
        return (
            f"Cluster({len(self.agents)} agents, {len(self.time)} rows of {clock.spell(self.step)}, {first} to {last})"
        )


def assemble(kept: Kept, *, owner: pd.Series, timezone: str, notes: Sequence[str], source: str) -> Cluster:
    """A cluster of the homes that stay and the rows all of them have; `source` names the table in messages."""
    if not kept.rows_kept:
        raise DataError(
            f"{source}: no time stamp has a reading of every agent ({kept.cause()}): leave agents or days out"
        )
    rows, agents = kept.company.kept, kept.agents
    t, h = kept.temperature.loc[rows, agents], kept.load.loc[rows, agents]
    outdoor, solar = kept.outdoor[rows], kept.solar[rows]
    segment = clock.segments(pd.DatetimeIndex(t.index), kept.step)
    odd = [*rules.oddities(t, h, segment, kept.step), *rules.unlike_the_rest(h)]
    odd += [*rules.weather_oddities(pd.concat([outdoor, solar], axis=1)), *rules.outdoor_oddities(outdoor, h)]
    return Cluster(
        temperature=t,
        load=h,
        outdoor=outdoor,
        solar=solar,
        owner=owner[agents],
        step=kept.step,
        timezone=timezone,
        filled=kept.filled[agents],
        left_out=kept.left_out,
        rows_dropped=kept.rows - kept.rows_kept,
        notes=(*notes, *kept.notes(), *(finding.text for finding in odd)),
    )


def _checked_time(index: pd.Index) -> pd.DatetimeIndex:
    if not isinstance(index, pd.DatetimeIndex) or index.tz is None:
        raise DataError("temperature: its index has no time zone: use tz_localize to say which clock it is")
    time = index.tz_convert("UTC").as_unit("ns").rename("time")
    if len(time) < 2 or time.hasnans:
        raise DataError("temperature: needs at least two time stamps, none missing: give more rows")
    steps = np.diff(time.asi8)
    if (steps <= 0).any():
        raise DataError(
            f"temperature: time does not increase after {stamp(time[int(np.argmax(steps <= 0))])}: sort the rows"
        )
    if clock.commonest_step(steps) % NS:
        raise DataError("temperature: its step is no whole number of seconds: resample to one that is")
    off = steps % clock.commonest_step(steps) != 0
    if off.any():
        raise DataError(
            f"temperature: irregular step after {stamp(time[int(np.argmax(off))])}: resample to a regular step"
        )
    return time


def _checked_owner(owner: pd.Series | None, agents: pd.Index) -> pd.Series:
    if owner is None:
        return pd.Series(agents.to_numpy(), index=agents, name="building")
    if not owner.index.is_unique or owner.isna().any() or not agents.isin(owner.index).all():
        raise DataError(f"owner: names no single building for each agent: give one for {rules.listed(tuple(agents))}")
    return owner.loc[agents].astype(str).rename("building").rename_axis("agent")


def _floats(values: pd.DataFrame | pd.Series, name: str) -> np.ndarray:
    try:
        numbers = values.to_numpy(dtype=np.float64, copy=True)
    except (TypeError, ValueError):
        raise DataError(f"{name}: holds something that is not a number: convert it to float64") from None
    if np.isinf(numbers).any():
        raise DataError(f"{name}: holds infinite values: put NaN where there is no reading")
    return numbers


def _faults(t: pd.DataFrame, h: pd.DataFrame, o: pd.Series, r: pd.Series) -> Iterator[rules.Finding]:
    yield from rules.temperature_faults(t, "temperature", limits.INDOOR_C)
    yield from rules.load_faults(h, "load")
    yield from rules.temperature_faults(o.to_frame(""), "outdoor", limits.OUTDOOR_C)
    low, high = limits.SOLAR_W_M2
    yield from rules.outside(r.to_frame(""), "solar", (low / 1000, high / 1000), "kW/m²")


def _wide(
    zones: pd.DataFrame, weather: pd.DataFrame, owner: pd.Series | None
) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series, pd.Series, pd.Series | None]:
    """The long tables of the file contract as four wide ones; weather in W/m² becomes kW/m²."""
    for name, table, needed in (
        ("zones", zones, ("time", "agent", "indoor_temp_c", "load_kw")),
        ("weather", weather, ("time", "outdoor_temp_c", "solar_w_m2")),
    ):
        missing = [column for column in needed if column not in table.columns]
        if missing:
            raise DataError(f"{name}: has no column {missing[0]}: give {', '.join(needed)}, or four wide frames")
    double = zones.duplicated(["time", "agent"])
    if double.any():
        row = zones[double].iloc[0]
        raise DataError(f"zones: {row['agent']} has two rows at {row['time']}: keep one of them")
    wide = {name: zones.pivot(index="time", columns="agent", values=name) for name in ("indoor_temp_c", "load_kw")}
    agents, outside = pd.unique(zones["agent"]), weather.set_index("time").reindex(wide["load_kw"].index)
    if owner is None and "building" in zones.columns:
        owner = zones.drop_duplicates("agent").set_index("agent")["building"]
    temperature, load = (frame[agents] for frame in wide.values())  # in the order of first appearance
    return temperature, load, outside["outdoor_temp_c"], outside["solar_w_m2"] / 1000.0, owner
