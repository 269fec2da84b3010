"""Which profile of the season a stamp follows: all days alike, or some kinds of days apart.

A calendar numbers the steps of all its profiles: step k of day type d has phase k + season · d. So Eq. (2) and what
works on it stay as they are; occupancy only has one profile for each day type, one after the other.
"""

from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

import numpy as np
import pandas as pd

from atdm.data.clock import phase, zone
from atdm.kernel.design import Inputs
from atdm.types import IntArray

DayTypes = Literal["all days", "weekend", "saturday, sunday"]
TYPES: dict[DayTypes, int] = {"all days": 1, "weekend": 2, "saturday, sunday": 3}  # how many profiles each has
SATURDAY, SUNDAY = 5, 6  # as pandas counts the days of a week
DAY = pd.Timedelta("24h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The clock and the kinds of days of a model.

    Attributes
    ----------
    step : pandas.Timedelta
        Length of one step.
    timezone : str
        IANA name of the clock whose midnight starts a day.
    season : int
        P: steps of one profile.
    day_types : {"all days", "weekend", "saturday, sunday"}
        Which days have a profile of their own.
    holidays : frozenset of date
        Local days that count as Sundays.
    """

    step: pd.Timedelta
    timezone: str
    season: int
    day_types: DayTypes = "all days"
    holidays: frozenset[date] = frozenset()

    @property
    def period(self) -> int:
        """Steps of all profiles together: the length of occupancy."""
        return self.season * TYPES[self.day_types]

    @property
    def step_hours(self) -> float:
        """Length of one step. [h]"""
        return self.step.total_seconds() / 3600

    @property
    def daily(self) -> bool:
        """Whether a profile is one day long; others have no day types."""
        return self.season * self.step == DAY

    def phase(self, time: pd.DatetimeIndex) -> IntArray:
        """Index of each stamp's occupancy, 0 … period−1.

        Parameters
        ----------
        time : pandas.DatetimeIndex
            Zone-aware stamps.

        Returns
        -------
        array of int
            One index per stamp.
        """
        clock = phase(time, self.step, self.timezone, self.season)
        return clock if self.day_types == "all days" else clock + self.season * self._type(time)

    def on(self, inputs: Inputs, time: pd.DatetimeIndex) -> Inputs:
        """The same rows on this calendar.

        Parameters
        ----------
        inputs : Inputs
            Rows on any calendar.
        time : pandas.DatetimeIndex
            Their stamps.

        Returns
        -------
        Inputs
            With this calendar's occupancy.
        """
        return replace(inputs, phase=self.phase(time), period=self.period)

    def _type(self, time: pd.DatetimeIndex) -> IntArray:
        wall = time.tz_convert(zone(self.timezone))
        weekday = wall.day_of_week.to_numpy().astype(np.int64)
        if self.holidays:
            free = pd.DatetimeIndex(sorted(pd.Timestamp(day) for day in self.holidays))
            weekday[wall.tz_localize(None).normalize().isin(free)] = SUNDAY
        if self.day_types == "weekend":
            return (weekday >= SATURDAY).astype(np.int64)
        return np.maximum(weekday - SATURDAY + 1, 0)

    def words(self) -> str:
        """As a person says it."""
        kinds = {
            "all days": "all days alike",
            "weekend": "weekdays and weekends apart",
            "saturday, sunday": "weekdays, Saturdays and Sundays apart",
        }[self.day_types]
        return kinds + (", public holidays as Sundays" if self.holidays else "")

    def as_dict(self) -> dict[str, Any]:
        """As model.json has it."""
        return {
            "step_seconds": self.step.total_seconds(),
            "timezone": self.timezone,
            "season_steps": self.season,
            "day_types": self.day_types,
            "holidays": [day.isoformat() for day in sorted(self.holidays)],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Calendar":
        """What `as_dict` gave; ValueError, KeyError, TypeError or UsageError where it cannot be.

        Parameters
        ----------
        saved : dict
            A model file's content.

        Returns
        -------
        Calendar
            The calendar in it.
        """
        calendar = cls(
            step=pd.Timedelta(seconds=saved["step_seconds"]),
            timezone=str(saved["timezone"]),
            season=int(saved["season_steps"]),
            day_types=saved["day_types"],
            holidays=frozenset(date.fromisoformat(day) for day in saved["holidays"]),
        )
        zone(calendar.timezone)
        apart = calendar.day_types != "all days"
        if calendar.step <= pd.Timedelta(0) or calendar.season < 1 or calendar.day_types not in TYPES:
            raise ValueError("no calendar of a model")
        if apart and not calendar.daily:
            raise ValueError("day types need a season of one day")
        return calendar
