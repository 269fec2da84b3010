"""What a fit keeps of some homes' readings, and what to say about the rest.

Promise: every home fills its own gaps by itself, as a deployed agent does (gaps.py), before anybody looks at the whole
table. What is filled, who is left out and which rows are lost is counted here, once, for the reader and the check.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from atdm.data import clock, gaps
from atdm.data.gaps import Company
from atdm.data.readings import Readings
from atdm.types import BoolArray, IntArray

NS = 10**9  # ns per s


class DayOut(NamedTuple):
    """A UTC day on which a home is out, having less than half of the rows."""

    day: str  # 2024-01-31
    has: int  # rows, after filling
    of: int

    def __str__(self) -> str:
        return f"{self.day} ({self.has} of {self.of} rows)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Kept:
    """Readings of all homes after filling, and what of them a fit keeps. It has no repr: readings are private."""

    temperature: pd.DataFrame  # by row and agent, NaN where an agent has no reading even so [°C]
    load: pd.DataFrame  # the same [kW]
    outdoor: pd.Series  # by row, NaN where it is missing [°C]
    solar: pd.Series  # the same [kW/m²]
    step: pd.Timedelta
    longest: pd.Timedelta  # longest span that was filled
    filled: pd.Series  # agent -> stamps it filled itself
    lacks: pd.Series  # agent -> rows without a reading of it, after filling
    days_out: pd.Series  # agent -> UTC days on which it is out
    out_on: dict[str, tuple[DayOut, ...]]  # the same days one by one; no agent that is never out
    counts: BoolArray  # rows × agents: it has a reading, and is not out that day
    company: Company

    @property
    def rows(self) -> int:
        """Rows of the window: the stamps of the table, and those that some agent filled."""
        return len(self.counts)

    @property
    def rows_kept(self) -> int:
        return int(self.company.kept.sum())

    @property
    def agents(self) -> pd.Index:
        """Those that stay."""
        return self.filled.index[self.company.stays]

    @property
    def costs(self) -> pd.Series:
        """Agent that stays -> rows it lacks, or is out on, of those lost for all; the costliest first."""
        lost = self.counts.any(axis=1) & self._weather() & ~self.company.kept
        costs = pd.Series((~self.counts[lost]).sum(axis=0), index=self.filled.index)
        return costs[self.company.stays].sort_values(ascending=False, kind="stable")

    def without(self, most: int) -> list[tuple[str, int]]:
        """Agents that stay, the costliest first, and how many rows a fit would keep without it and those before it."""
        stays, answer = self.company.stays.copy(), []
        has = self.counts & self._weather()[:, None]
        for _ in range(min(most, int(stays.sum()) - 1)):
            lacks = ~has[:, stays]
            won_back, own = lacks[lacks.sum(axis=1) == 1].sum(axis=0), lacks.sum(axis=0)
            if not own.any():
                break
            worst = np.flatnonzero(stays)[np.lexsort((-own, -won_back))[0]]
            stays[worst] = False
            answer.append((str(self.filled.index[worst]), int(has[:, stays].all(axis=1).sum())))
        return answer

    @property
    def left_out(self) -> dict[str, str]:
        """Agent -> why it is left out."""
        out = self.filled.index[~self.company.stays]
        return {str(agent): f"it lacks {self._lack(agent, f' of {self.rows} rows')}" for agent in out}

    def cause(self) -> str:
        """Why rows are lost, in a few words."""
        costs = self.costs
        if costs.any():
            return f"agent {costs.index[0]!r} lacks {self._lack(costs.index[0])}"
        nobody = self._weather() & ~self.counts.any(axis=1) & self.temperature.notna().any(axis="columns").to_numpy()
        if nobody.any():
            days = len(np.unique(pd.DatetimeIndex(self.temperature.index)[nobody].normalize()))
            return f"on {_days(days)} no agent has half of the rows"
        lacks = self.lacks[self.agents].sort_values(ascending=False, kind="stable")
        return (
            f"agent {lacks.index[0]!r} lacks {self._lack(lacks.index[0])}" if lacks.any() else "the weather has holes"
        )

    def notes(self) -> list[str]:
        """What was filled, who is left out, how many rows are lost: a line each."""
        said = [f"agent {agent!r} left out: {why}" for agent, why in self.left_out.items()]
        if (filled := self._filled_note()) is not None:
            said.insert(0, filled)
        if lost := self.rows - self.rows_kept:
            said.append(
                f"{lost} of {self.rows} time stamps dropped for all agents, a reading was missing ({self.cause()})"
            )
        return said

    def _filled_note(self) -> str | None:
        own = self.filled[self.agents]
        own = own[own > 0].sort_values(ascending=False, kind="stable")
        if own.empty:
            return None
        across = f"filled across gaps of up to {clock.spell(self.longest)}"
        total, most = int(own.sum()), own.index[0]
        readings = "1 reading" if total == 1 else f"{total} readings"
        if len(own) == 1:
            return f"{readings} of agent {most!r} {across}"
        return f"{readings} of {len(own)} agents {across}, most of {most!r} ({own.iloc[0]})"

    def _lack(self, agent: str, of: str = "") -> str:
        days = int(self.days_out[agent])
        return f"{int(self.lacks[agent])}{of}" + (f", on {_days(days)} more than half" if days else "")

    def _weather(self) -> BoolArray:
        return np.asarray(self.outdoor.notna() & self.solar.notna())


def keep(
    temperature: pd.DataFrame,
    load: pd.DataFrame,
    outdoor: pd.Series,
    solar: pd.Series,
    *,
    step: pd.Timedelta,
    longest: pd.Timedelta,
) -> Kept:
    """Fill every home's own gaps of up to `longest`, then settle who stays and which rows are lost.

    The values have passed the rules; the stamps are increasing (in ns, UTC) on one grid of `step`, whole seconds.
    The weather may have more stamps: a row that all homes lack in the table is there where they filled it.
    """
    given = pd.DatetimeIndex(temperature.index)
    agents, seconds, step_seconds = temperature.columns, given.asi8 // NS, _seconds(step)
    homes = [
        gaps.fill(seconds, t, h, step_seconds, _seconds(longest))
        for t, h in zip(temperature.to_numpy().T, load.to_numpy().T, strict=True)
    ]
    time = _rows(given, homes, pd.DatetimeIndex(outdoor.index))
    rows = time.asi8 // NS
    shape = len(rows), len(homes)
    t, h, filled = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    counts, out_on = np.zeros(shape, dtype=bool), dict[str, tuple[DayOut, ...]]()
    days, of = gaps.rows_by_day(int(rows[0]), int(rows[-1]), step_seconds)
    for i, home in enumerate(homes):
        place = np.searchsorted(rows, home.time)
        here = rows[place] == home.time  # a stamp that a home filled counts only where there is weather
        place = place[here]
        t[place, i], h[place, i], filled[place, i] = home.temperature[here], home.load[here], home.filled[here]
        out = gaps.days_out(home.time, int(rows[0]), int(rows[-1]), step_seconds)
        out = out[np.isin(out, rows // gaps.DAY)]  # a day on which no home has a row is held against none of them
        counts[place, i] = True
        counts[np.isin(rows // gaps.DAY, out), i] = False
        if len(out):
            has = np.bincount(rows[place] // gaps.DAY - days[0], minlength=len(days))[out - days[0]]
            out_on[str(agents[i])] = tuple(map(_day_out, out, has, of[out - days[0]]))
    sky = pd.DataFrame({"outdoor": outdoor, "solar": solar}).reindex(time)
    weather = sky.notna().all(axis="columns").to_numpy()
    return Kept(
        temperature=pd.DataFrame(t, index=time, columns=agents),
        load=pd.DataFrame(h, index=time, columns=agents),
        outdoor=sky["outdoor"],
        solar=sky["solar"],
        step=step,
        longest=longest,
        filled=pd.Series(filled.sum(axis=0), index=agents, name="filled"),
        lacks=pd.Series(np.isnan(t).sum(axis=0), index=agents),
        days_out=pd.Series({agent: len(out_on.get(str(agent), ())) for agent in agents}),
        out_on=out_on,
        counts=counts,
        company=gaps.company(counts & weather[:, None], [str(agent) for agent in agents]),
    )


def _rows(given: pd.DatetimeIndex, homes: list[Readings], weather: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """The stamps given, and those that homes filled where there is weather."""
    filled = np.unique(np.concatenate([home.time[home.filled] for home in homes]))
    new: IntArray = np.setdiff1d(filled, given.asi8 // NS) * NS + given.asi8[0] % NS
    if len(new) == 0:
        return given
    return given.union(pd.DatetimeIndex(new, tz="UTC").intersection(weather)).rename("time")


def _day_out(day: int, has: int, of: int) -> DayOut:
    return DayOut(str(np.datetime64(int(day), "D")), int(has), int(of))


def _seconds(length: pd.Timedelta) -> int:
    return int(length // pd.Timedelta(seconds=1))


def _days(count: int) -> str:
    return "1 day" if count == 1 else f"{count} days"
