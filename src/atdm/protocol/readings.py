"""What a run makes of readings and weather: the rows of its window, public inputs, the weather's hash, the dither."""

import numpy as np

from atdm.crypto.keys import derive, digest
from atdm.crypto.prg import words_at
from atdm.data.readings import Readings, Weather, positions, segments
from atdm.data.seconds import phase
from atdm.errors import DataError, PeerError
from atdm.kernel.design import Inputs, train_rows
from atdm.protocol.plan import AnyPlan, Plan
from atdm.types import FloatArray, IntArray


def weather_hash(weather: Weather, first: int, last: int) -> bytes:
    """Of the rows from stamp `first` to stamp `last`: a longer file is the same weather for an old window."""
    within = slice(*np.searchsorted(weather.time, [first, last + 1]).tolist())
    values = (column[within].astype("<f8").tobytes() for column in weather.series().values())
    return digest("weather", weather.time[within].astype("<i8").tobytes(), *values)


def window(plan: AnyPlan) -> IntArray:
    """All time stamps of the plan's window, gaps included."""
    return plan.start + plan.step_seconds * np.arange(plan.length, dtype=np.int64)


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


def dithered(readings: Readings, secret: bytes, width: float, quantum: float) -> Readings:
    """Readings with the agent's secret dither, uniform and `width` quanta wide; a stamp gets the same one for ever."""
    if width == 0:
        return readings
    if quantum <= 0:
        raise DataError(f"sensor quantum {quantum} °C: declare a positive one")
    uniform = (words_at(derive(secret, "dither"), readings.time) >> np.uint64(11)) * 2.0**-53 - 0.5
    return Readings(readings.time, readings.temperature + uniform * (width * quantum), readings.load, readings.filled)
