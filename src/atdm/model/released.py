"""The rows a model comes from: what a fit released, and what was observed since. No agent's readings are among them.

Whoever keeps a model keeps its rows with it, so that coefficients can be estimated anew, day types chosen again and
bands be drawn by how far off forecasts were, without asking any agent.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from atdm.data.clock import segments, spell
from atdm.errors import DataError
from atdm.kernel.design import Inputs
from atdm.model.calendar import Calendar
from atdm.model.cop import Cop
from atdm.types import BoolArray, FloatArray

DIGITS = 6  # significant digits kept in a file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """Rows by time: the aggregate temperature, the load of the whole cluster, and the weather.

    Attributes
    ----------
    time : pandas.DatetimeIndex
        In UTC, increasing, whole steps apart.
    state : array of float
        s: aggregate temperature [°C].
    load : array of float
        h: heating power of the whole cluster [kW].
    outdoor : array of float
        o: outdoor temperature [°C].
    solar : array of float
        r: solar irradiance [kW/m²].
    equal : bool
        Whether s is the plain mean of all homes, or weighted by a fit.
    probed : tuple
        Experiments on the cluster: from when until when each went on.
    cop : Cop or None
        Where the load is electricity: what a kW heats, by outdoor temperature.
    """

    time: pd.DatetimeIndex
    state: FloatArray
    load: FloatArray
    outdoor: FloatArray
    solar: FloatArray
    equal: bool = False
    probed: tuple[tuple[pd.Timestamp, pd.Timestamp], ...] = ()
    cop: Cop | None = None

    def __len__(self) -> int:
        return len(self.time)

    @property
    def load_low(self) -> float:
        """Least load. [kW]"""
        return float(self.load.min())

    @property
    def load_high(self) -> float:
        """Largest load. [kW]"""
        return float(self.load.max())

    @classmethod
    def of(cls, inputs: Inputs, state: pd.Series) -> "Released":
        """The rows of a fit.

        Parameters
        ----------
        inputs : Inputs
            Load and weather by row.
        state : pandas.Series
            Aggregate temperature by time [°C].

        Returns
        -------
        Released
            The same rows by time.
        """
        return cls(
            time=pd.DatetimeIndex(state.index).as_unit("ns"), state=state.to_numpy(float), load=inputs.load,
            outdoor=inputs.outdoor, solar=inputs.solar,
        )  # fmt: skip

    def probed_rows(self) -> BoolArray:
        """Which rows belong to an experiment."""
        marks = np.zeros(len(self), dtype=bool)
        for start, stop in self.probed:
            marks |= np.asarray((self.time >= start) & (self.time < stop))
        return marks

    def inputs(self, calendar: Calendar, train: int | None = None) -> Inputs:
        """The rows on a calendar, load as heat (Eq. 7).

        Parameters
        ----------
        calendar : Calendar
            Clock, season and day types.
        train : int, optional
            How many rows are for training; all of them if not given.

        Returns
        -------
        Inputs
            The model's inputs by row.
        """
        heat = self.load if self.cop is None else self.load * self.cop.factor(self.outdoor)
        return Inputs(
            load=heat, outdoor=self.outdoor, solar=self.solar, phase=calendar.phase(self.time),
            segment=segments(self.time, calendar.step), period=calendar.period,
            train=len(self) if train is None else train,
        )  # fmt: skip

    def between(self, start: pd.Timestamp | None, stop: pd.Timestamp | None) -> "Released":
        """The rows of a span of time.

        Parameters
        ----------
        start : pandas.Timestamp or None
            First stamp that counts; None: from the first row on.
        stop : pandas.Timestamp or None
            First stamp that no longer counts; None: to the last row.

        Returns
        -------
        Released
            These rows alone.
        """
        first = 0 if start is None else int(self.time.searchsorted(start))
        last = len(self) if stop is None else int(self.time.searchsorted(stop))
        part = slice(first, max(first, last))
        return replace(
            self, time=self.time[part], state=self.state[part], load=self.load[part], outdoor=self.outdoor[part],
            solar=self.solar[part],
        )  # fmt: skip

    def followed_by(self, later: "Released") -> "Released":
        """These rows and later ones.

        Parameters
        ----------
        later : Released
            Rows of which those count that come after these.

        Returns
        -------
        Released
            Both, one after the other.
        """
        new = later.between(self.time[-1] + pd.Timedelta(1), None) if len(self) else later
        return replace(
            self,
            time=pd.DatetimeIndex(self.time.append(new.time)),
            state=np.concatenate([self.state, new.state]),
            load=np.concatenate([self.load, new.load]),
            outdoor=np.concatenate([self.outdoor, new.outdoor]),
            solar=np.concatenate([self.solar, new.solar]),
        )

    def filled_by(self, others: "Released") -> "Released":
        """These rows, and of others those that these lack.

        Parameters
        ----------
        others : Released
            Rows that came later, whenever they are from.

        Returns
        -------
        Released
            Both, by time; where both have a row, this one's.
        """
        new = ~others.time.isin(self.time)
        time = pd.DatetimeIndex(self.time.append(others.time[new]))
        order = np.argsort(time.asi8)

        def both(name: str) -> FloatArray:
            values: FloatArray = np.concatenate([getattr(self, name), getattr(others, name)[new]])[order]
            return values

        return replace(
            self, time=time[order], state=both("state"), load=both("load"), outdoor=both("outdoor"),
            solar=both("solar"),
        )  # fmt: skip

    def as_dict(self, step: pd.Timedelta) -> dict[str, Any]:
        """As model.json has it.

        Parameters
        ----------
        step : pandas.Timedelta
            From one row to the next.

        Returns
        -------
        dict
            Gap-free runs, and numbers to six digits.
        """
        number = segments(self.time, step)
        starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
        runs = [[self.time[a].isoformat(), b - a] for a, b in zip(starts, [*starts[1:], len(self)], strict=True)]
        return {
            "runs": runs,  # first stamp and number of rows of each gap-free part
            "aggregate_temp_c": rounded(self.state).tolist(),
            "load_kw": rounded(self.load).tolist(),
            "outdoor_temp_c": rounded(self.outdoor).tolist(),
            "solar_kw_m2": rounded(self.solar).tolist(),
            "equal_weights": self.equal,
            "cop": None if self.cop is None else self.cop.as_dict(),
            "probed": [[start.isoformat(), stop.isoformat()] for start, stop in self.probed],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], step: pd.Timedelta) -> "Released":
        """What `as_dict` gave.

        Parameters
        ----------
        saved : dict
            The rows in a model file.
        step : pandas.Timedelta
            From one row to the next.

        Returns
        -------
        Released
            The rows by time.
        """
        parts = [pd.Timestamp(first).tz_convert("UTC") + step * np.arange(int(count)) for first, count in saved["runs"]]
        time = pd.DatetimeIndex(np.concatenate([pd.DatetimeIndex(p).as_unit("ns").asi8 for p in parts]), tz="UTC")
        names = ("aggregate_temp_c", "load_kw", "outdoor_temp_c", "solar_kw_m2")
        values = [np.asarray(saved[name], dtype=float) for name in names]
        sound = all(v.shape == (len(time),) and np.isfinite(v).all() for v in values)
        if not sound or not (np.diff(time.asi8) > 0).all():
            raise ValueError("rows of a model do not belong together")
        stamps = [(pd.Timestamp(a).tz_convert("UTC"), pd.Timestamp(b).tz_convert("UTC")) for a, b in saved["probed"]]
        return cls(
            time=time, state=values[0], load=values[1], outdoor=values[2], solar=values[3],
            equal=bool(saved["equal_weights"]), probed=tuple(stamps),
            cop=None if saved["cop"] is None else Cop.from_dict(saved["cop"]),
        )  # fmt: skip


def released_rows(observed: pd.DataFrame, weather: pd.DataFrame, step: pd.Timedelta) -> Released:
    """Observed rows (aggregate_temp_c, load_kw by time) that the weather covers (outdoor_temp_c, solar_w_m2)."""
    seen = observed.dropna(subset=["aggregate_temp_c", "load_kw"])
    sky = weather.set_index("time") if "time" in weather.columns else weather
    both = seen.join(sky[["outdoor_temp_c", "solar_w_m2"]], how="inner").dropna(subset=["outdoor_temp_c", "solar_w_m2"])
    time = pd.DatetimeIndex(both.index).tz_convert("UTC").as_unit("ns")
    away = np.diff(time.asi8)
    if (away <= 0).any() or (away % step.value).any():
        raise DataError(f"observed rows are not whole steps of {spell(step)} apart, in order: sort or resample them")
    return Released(
        time=time,
        state=both["aggregate_temp_c"].to_numpy(float),
        load=both["load_kw"].to_numpy(float),
        outdoor=both["outdoor_temp_c"].to_numpy(float),
        solar=both["solar_w_m2"].to_numpy(float) / 1000.0,
    )


def rounded(values: FloatArray, digits: int = DIGITS) -> FloatArray:
    """To so many significant digits; what is not known stays so."""
    size = np.abs(values)
    exponent = np.floor(np.log10(np.where(size > 0, size, 1.0)))
    scale = 10.0 ** (digits - 1 - exponent)
    answer: FloatArray = np.where(size > 0, np.rint(values * scale) / scale, values)
    return answer
