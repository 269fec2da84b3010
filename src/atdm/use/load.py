"""Forecast the load itself: the heat a cluster will use if nobody intervenes, with bands, and how good that was.

It is judged beside persistence (the last load stays) and last week (the load seven days before).

Rule 1: bands are those of training rows (`model.load`, Rule 3): they do not learn, and every forecast says so.
Rule 2: beyond 24 h those of the temperature widen as a disturbance spreads through the memory of Eq. (2). Those of the
        load stay as they are: what thermostats ask for has an end.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from atdm.data.clock import duration
from atdm.model.bands import half_widths
from atdm.model.fitted import Model
from atdm.model.horizons import origins_in, root_mean_square
from atdm.model.load import LEVELS, LoadModel, at_steps
from atdm.types import FloatArray
from atdm.use.planned import expected_load, load_model, settled_load

HORIZONS = ("1h", "6h", "24h")
WEEK = pd.Timedelta(days=7)
STATIC = (
    "the load is forecast too: bands are those of training rows and do not learn from how far off later forecasts were"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSkill:
    """Error of the load at one horizon, over all origins.

    Attributes
    ----------
    horizon : str
        Such as "24h".
    origins : int
        Origins that have this horizon inside the window.
    rmse : float or None
        Of the forecast; None where no origin has the horizon [kW].
    persistence_rmse : float or None
        Of the last load kept [kW].
    week_rmse : float or None
        Of the load seven days before; None where the truth does not reach back [kW].
    temperature_rmse : float or None
        Of the aggregate temperature that goes with the forecast load [K].
    """

    horizon: str
    origins: int
    rmse: float | None
    persistence_rmse: float | None
    week_rmse: float | None
    temperature_rmse: float | None

    def as_dict(self) -> dict[str, Any]:
        """The row for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedLoad:
    """What a cluster will use if nobody intervenes, and how warm that keeps it."""

    model: LoadModel
    load: pd.Series  # of all rows, the past ones included                                          [kW]
    bands: pd.DataFrame  # by time after the past: low_80 … of the temperature [°C], load_low_80 … [kW]
    notes: tuple[str, ...]


def forecast_load(model: Model, frame: pd.DataFrame, past: pd.DataFrame) -> ExpectedLoad:
    """The load after the past rows (aggregate_temp_c, load_kw), which are the first of `frame`, the weather."""
    usual = load_model(model)
    past, said = settled_load(model, usual, frame, past)
    loads, states = expected_load(model, usual, frame, past)
    later = pd.DatetimeIndex(frame.index[len(past) :], name="time")
    bands: dict[str, FloatArray] = {}
    for level in LEVELS:
        low, high = state_band(model, usual, level, len(later))
        bands[f"low_{level}"], bands[f"high_{level}"] = states + low, states + high
    factor = model.heat_of_one_kw(frame)[len(past) :]
    for level in LEVELS:
        ends = [np.clip(loads * factor + error, usual.low, usual.high) / factor
                for error in at_steps(usual.bands[level], len(later))]  # fmt: skip
        bands[f"load_low_{level}"], bands[f"load_high_{level}"] = ends
    whole = pd.Series(np.concatenate([past["load_kw"].to_numpy(), loads]), index=frame.index, name="load_kw")
    return ExpectedLoad(model=usual, load=whole, bands=pd.DataFrame(bands, index=later), notes=(STATIC, *said))


def state_band(model: Model, usual: LoadModel, level: str, steps: int) -> tuple[FloatArray, FloatArray]:
    """Lower and upper error of the temperature 1 … steps ahead (Rule 2). [K]"""
    low, high = at_steps(usual.state_bands[level], steps)
    day = max(1, round(24 / model.calendar.step_hours))
    middle, half = (low + high) / 2, (high - low) / 2 * half_widths(model.coefficients, np.ones(day), steps)
    return middle - half, middle + half


def load_skill(
    model: Model, usual: LoadModel, weather: pd.DataFrame, temperature: pd.Series, load: pd.Series
) -> list[LoadSkill]:
    """Forecasts of the load from every origin in the window of `weather`, judged by the load as it was."""
    time = pd.DatetimeIndex(weather.index)
    heat, warmth = load.reindex(time).to_numpy(float), temperature.reindex(time).to_numpy(float)
    inputs, factor = model.inputs(np.zeros(len(time)), weather), model.heat_of_one_kw(weather)
    answer = []
    for text in HORIZONS:
        steps = int(duration(text) // model.step)
        if steps == 0:
            continue
        origins = origins_in(inputs, 0, len(inputs) - steps + 1, max(model.order, usual.order))
        target = origins + steps - 1
        runs = usual.run(model.coefficients, inputs, heat * factor, warmth, origins, steps)
        loads, warm = runs[0][:, -1] / factor[target], runs[1][:, -1]
        known = np.isfinite(loads) & np.isfinite(heat[target])
        origins, target, loads, warm = origins[known], target[known], loads[known], warm[known]
        before = load.reindex(time[target] - WEEK).to_numpy(float)
        answer.append(LoadSkill(
            horizon=text,
            origins=len(origins),
            rmse=root_mean_square(loads - heat[target]),
            persistence_rmse=root_mean_square(heat[origins - 1] - heat[target]),
            week_rmse=root_mean_square(before - heat[target]) if np.isfinite(before).all() else None,
            temperature_rmse=root_mean_square(warm - warmth[target]),
        ))  # fmt: skip
    return answer
