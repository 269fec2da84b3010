"""One agent's own readings, and the weather everybody holds: plain arrays on integer time stamps."""

from dataclasses import dataclass, field

import numpy as np

from atdm.data.limits import INDOOR_C, LOAD_KW
from atdm.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, repr=False)
class Readings:
    """What one agent measured. Stamps it has no complete reading for are absent."""

    time: IntArray  # seconds since 1970 UTC, ascending
    temperature: FloatArray  # °C
    load: FloatArray  # kW
    filled: BoolArray = field(default_factory=lambda: np.empty(0, dtype=bool))  # gaps the agent filled itself

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

    def series(self) -> dict[str, FloatArray]:
        """By the names of Inputs, in the order in which they are hashed."""
        return {"outdoor": self.outdoor, "solar": self.solar}


def segments(time: IntArray, step: int) -> IntArray:
    """Which run of rows without a gap each stamp belongs to."""
    return np.cumsum(np.diff(time, prepend=time[:1]) > step).astype(np.int64)


def positions(time: IntArray, wanted: IntArray) -> IntArray:
    """Where each wanted stamp stands in `time`, −1 where it does not."""
    if len(time) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    if len(time) == len(wanted) and (time == wanted).all():  # as they mostly are
        return np.arange(len(time))
    found = np.searchsorted(time, wanted).clip(max=len(time) - 1)
    return np.where(time[found] == wanted, found, -1)


def possible(readings: Readings) -> BoolArray:
    """Readings that can be summed. Others are found before a run: a refusal within one would tell something of them."""
    t, h = readings.temperature, readings.load
    inside: BoolArray = (t >= INDOOR_C[0]) & (t <= INDOOR_C[1]) & (h >= LOAD_KW[0]) & (h <= LOAD_KW[1])
    return inside


def usable(readings: Readings) -> Readings:
    """Without readings that cannot be summed: their rows are lacking."""
    fine = possible(readings)
    return readings if fine.all() else readings.at(np.flatnonzero(fine))
