"""One agent's own data, and the weather everybody holds: plain arrays on integer time stamps."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from atdm.crypto.keys import derive, digest
from atdm.crypto.prg import words_at
from atdm.data.quantum import sensor_quantum
from atdm.data.seconds import phase
from atdm.errors import DataError, PeerError
from atdm.kernel.design import Inputs
from atdm.protocol.plan import AnyPlan, Plan, train_rows
from atdm.types import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd  # an agent needs none of it


@dataclass(frozen=True, slots=True, repr=False)
class Readings:
    """What one agent measured. Stamps it has no complete reading for are absent."""

    time: IntArray  # seconds since 1970 UTC, ascending
    temperature: FloatArray  # °C
    load: FloatArray  # kW
    filled: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))  # gaps the agent filled itself

    def __post_init__(self) -> None:
        if len(self.filled) != len(self.time):
            object.__setattr__(self, "filled", np.zeros(len(self.time), dtype=bool))

    def __repr__(self) -> str:
        return f"Readings({len(self.time)} rows)"

    def at(self, rows: IntArray) -> "Readings":
        """Those at these places."""
        return Readings(self.time[rows], self.temperature[rows], self.load[rows], self.filled[rows])


@dataclass(frozen=True, slots=True)
class Weather:
    """Public weather."""

    time: IntArray  # seconds since 1970 UTC, ascending
    outdoor: FloatArray  # °C
    solar: FloatArray  # kW/m²

    def hash(self, first: int, last: int) -> bytes:
        """Of the rows from stamp `first` to stamp `last`: a longer file is the same weather for an old window."""
        within = slice(*np.searchsorted(self.time, [first, last + 1]).tolist())
        values = (column[within].astype("<f8").tobytes() for column in self.series().values())
        return digest("weather", self.time[within].astype("<i8").tobytes(), *values)

    def series(self) -> dict[str, FloatArray]:
        """By the names of Inputs, in the order in which they are hashed."""
        return {"outdoor": self.outdoor, "solar": self.solar}


def weather_of_table(time: IntArray, outdoor_temp_c: FloatArray, solar_w_m2: FloatArray) -> Weather:
    """Public weather from the columns of a table, in the units of files [s, °C, W/m²]."""
    return Weather(time, outdoor_temp_c, solar_w_m2 / 1000.0)  # W/m² -> kW/m²


def seconds(time: "pd.DatetimeIndex") -> IntArray:
    """Time stamps as whole seconds since 1970 UTC."""
    return time.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[s]").astype(np.int64)


def timestamps(time: IntArray) -> "pd.DatetimeIndex":
    import pandas as pd

    return pd.DatetimeIndex(pd.to_datetime(time, unit="s", utc=True), name="time")


def window(plan: AnyPlan) -> IntArray:
    """All time stamps of the plan's window, gaps included."""
    return plan.start + plan.step_seconds * np.arange(plan.length, dtype=np.int64)


def positions(time: IntArray, wanted: IntArray) -> IntArray:
    """Where each wanted stamp stands in `time`, −1 where it does not."""
    if len(time) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    if len(time) == len(wanted) and (time == wanted).all():  # as they mostly are
        return np.arange(len(time))
    found = np.searchsorted(time, wanted).clip(max=len(time) - 1)
    return np.where(time[found] == wanted, found, -1)


def segments(time: IntArray, step: int) -> IntArray:
    """Which run of rows without a gap each stamp belongs to."""
    return np.cumsum(np.diff(time, prepend=time[:1]) > step).astype(np.int64)


def public_inputs(plan: Plan, kept: IntArray, load: FloatArray, weather: Weather) -> Inputs:
    """Eq. (2)'s inputs on the kept rows, once the load total is known."""
    at = positions(weather.time, kept)
    if (at < 0).any():
        raise PeerError("the weather does not cover every kept row: get the weather file whose hash is in the plan")
    return Inputs(
        load=load,
        **{name: values[at] for name, values in weather.series().items()},
        phase=phase(kept, plan.step_seconds, plan.timezone, plan.period),
        segment=segments(kept, plan.step_seconds),
        period=plan.period,
        train=train_rows(len(kept), plan.train),
    )


def coarser(quantum: float, temperature: FloatArray) -> float:
    """The step of a sensor of which so much was known before: never a finer one. A first hour in which it did not move
    looks finer than it is."""
    return max(quantum, sensor_quantum(temperature))


def dithered(readings: Readings, secret: bytes, width: float, quantum: float) -> Readings:
    """Readings with the agent's secret dither, uniform and `width` quanta wide; a stamp gets the same one for ever."""
    if width == 0:
        return readings
    if quantum <= 0:
        raise DataError(f"sensor quantum {quantum} °C: declare a positive one")
    uniform = (words_at(derive(secret, "dither"), readings.time) >> np.uint64(11)) * 2.0**-53 - 0.5
    return Readings(readings.time, readings.temperature + uniform * (width * quantum), readings.load, readings.filled)
