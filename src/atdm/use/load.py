"""Forecast the load itself: the heat a cluster will use if nobody intervenes, with bands, and how good that was.

It is judged beside persistence (the last load stays) and last week (the load seven days before).

Rule 1: bands follow from how far off forecasts of the load were, as all others do (`model.bands`), and end where
        forecasts of the load do.
Rule 2: beyond 24 h they stay as they are: what thermostats ask for has an end.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from atdm.kernel.design import Inputs
from atdm.model.bands import LEVELS, Record, held
from atdm.model.fitted import Model
from atdm.model.horizons import horizon_steps, origins_in, root_mean_square
from atdm.model.load import LoadModel
from atdm.types import FloatArray
from atdm.use.planned import expected_load, settled_load

WEEK = pd.Timedelta(days=7)


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


def forecast_load(
    model: Model, usual: LoadModel, frame: pd.DataFrame, past: pd.DataFrame
) -> tuple[pd.Series, list[str]]:
    """The load by row of `frame`, the weather, whose first rows are the past (aggregate_temp_c, load_kw). [kW]

    Also a word where the load of these is not known.
    """
    past, said = settled_load(model, usual, frame, past)
    loads, _ = expected_load(model, usual, frame, past)
    return pd.Series(np.concatenate([past["load_kw"].to_numpy(), loads]), index=frame.index, name="load_kw"), said


def load_bands(
    model: Model, usual: LoadModel, record: Record, frame: pd.DataFrame, load: pd.Series
) -> dict[str, FloatArray]:
    """Ends of the bands of a forecast load, by name; the first M rows are known. [kW]"""
    values, factor = load.to_numpy(float), model.heat_of_one_kw(frame)
    later = np.arange(len(values) - model.order)
    bands = {}
    for name, level in LEVELS.items():
        half = held(record, level, "load").now
        reach = half[np.minimum(later, len(half) - 1)]  # Rule 2
        for end, side in (("low", -1), ("high", 1)):
            ends = np.clip(values[model.order :] * factor[model.order :] + side * reach, usual.low, usual.high)
            bands[f"load_{end}_{name}"] = np.concatenate([values[: model.order], ends / factor[model.order :]])
    return bands


def load_skill(
    model: Model, usual: LoadModel, inputs: Inputs, state: FloatArray, weather: pd.DataFrame, load: pd.Series
) -> tuple[LoadSkill, ...]:
    """Forecasts of the load from every origin of the rows, judged by the load as it was.

    inputs, state: the rows of `weather` as they were; load: also of the week before, where known.
    """
    time, factor = pd.DatetimeIndex(weather.index), model.heat_of_one_kw(weather)
    heat = inputs.load / factor
    horizons = horizon_steps(model.calendar.step_hours)
    all_origins = origins_in(inputs, 0, len(inputs), model.order)
    of_load, of_state = usual.errors(model.coefficients, inputs, state, all_origins, max(horizons.values(), default=1))
    answer = []
    for hours, steps in horizons.items():
        known = np.isfinite(of_load[:, steps - 1])
        origins = all_origins[known]
        target = origins + steps - 1
        before = load.reindex(time[target] - WEEK).to_numpy(float)
        warm = of_state[known, steps - 1]
        answer.append(LoadSkill(
            horizon=f"{hours}h",
            origins=len(origins),
            rmse=root_mean_square(of_load[known, steps - 1] / factor[target]),
            persistence_rmse=root_mean_square(heat[origins - 1] - heat[target]),
            week_rmse=root_mean_square(before - heat[target]) if np.isfinite(before).all() else None,
            temperature_rmse=root_mean_square(warm[np.isfinite(warm)]),
        ))  # fmt: skip
    return tuple(answer)
