"""The models that plans are made with: one for what heat does, one for what happens if nobody intervenes."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd

from atdm.errors import UsageError
from atdm.model.bands import BLOCKS, half_widths
from atdm.model.fitted import Model
from atdm.model.load import LoadModel, estimate_load
from atdm.model.planning import Planning, left_out_errors, planning_of
from atdm.model.released import Released
from atdm.result import Fit
from atdm.types import FloatArray


class Planned(NamedTuple):
    """A model that may be planned with."""

    chosen: Model  # what forecasts use
    used: Model  # what programmes use
    planning: Planning  # why it may be used


def rows_of(model: Model) -> Released:
    if model.released is None or not model.trained:
        raise UsageError("the model file holds no rows to judge its response to load by: write it with atdm fit -o")
    return model.released


def planned(model: Model | Fit, assume_gain: float | None = None) -> Planned:
    """The models to plan with; refused where the response to load cannot be known."""
    if assume_gain is not None and not 0 < assume_gain < np.inf:
        raise UsageError(f"gain {assume_gain:g} K per kW: heat warms, so state a number above 0, as in 0.1")
    chosen = model.chosen if isinstance(model, Fit) else model
    planning = planning_of(rows_of(chosen), chosen.trained, chosen.calendar, assume_gain)
    if planning.coefficients is None:
        raise UsageError(planning.refusal())
    return Planned(chosen, chosen.for_planning(planning.coefficients, planning.calendar), planning)


def load_model(model: Model) -> LoadModel:
    """Eq. (6) of the rows a model comes from."""
    rows = rows_of(model)
    return estimate_load(model.coefficients, rows.inputs(model.calendar, model.trained), rows.state, model.calendar)


def settled_load(
    model: Model, load: LoadModel, frame: pd.DataFrame, past: pd.DataFrame
) -> tuple[pd.DataFrame, list[str]]:
    """The past rows with the load that Eq. (6) settles at where nobody gave it, and a word about that."""
    unknown = past["load_kw"].isna().to_numpy()
    if not unknown.any():
        return past, []
    inputs = model.inputs(np.zeros(len(frame)), frame)
    at = np.full(len(past), min(load.order, len(frame) - 1))  # the first row that has its lags of the weather
    warmth = float(load.temperature.sum()) * past["aggregate_temp_c"].to_numpy()
    held = np.clip((load.exogenous(inputs, at) + warmth) / (1.0 - float(load.load.sum())), load.low, load.high)
    held = held / model.heat_of_one_kw(frame)[: len(past)]
    filled = past.assign(load_kw=np.where(unknown, held, past["load_kw"]))
    taken = f"taken as {float(held[unknown].mean()):.1f} kW, as usual in this weather"
    return filled, [f"the load before the start is not given: {taken}; a table with load_kw gives it"]


def expected_load(
    model: Model, load: LoadModel, frame: pd.DataFrame, past: pd.DataFrame
) -> tuple[FloatArray, FloatArray]:
    """Load [kW] and temperature [°C] after the past rows if nobody intervenes: Eq. (2) and (6) in a loop."""
    count, steps = len(past), len(frame) - len(past)
    inputs = model.inputs(np.zeros(len(frame)), frame)
    nothing = np.zeros(steps)
    factor = model.heat_of_one_kw(frame)
    heat = np.concatenate([past["load_kw"].to_numpy() * factor[:count], nothing])
    warmth = np.concatenate([past["aggregate_temp_c"].to_numpy(), nothing])
    loads, states = load.run(model.coefficients, inputs, heat, warmth, np.array([count]), steps)
    return loads[0] / factor[count:], states[0]


def margins(used: Model, rows: Released, stop: int, planning: Planning, confidence: float, steps: int) -> FloatArray:
    """How far the temperature may be from the expected one under the usual load, by steps ahead: as far off as runs
    over left-out parts of the first `stop` rows, by a planning model of the others, were in the share `confidence`. [K]
    """
    day = max(1, round(24 / used.calendar.step_hours))
    errors = np.abs(left_out_errors(rows, stop, planning, min(day, max(1, stop // (2 * BLOCKS)))))
    errors = errors[np.isfinite(errors).all(axis=1)]
    if not len(errors):
        raise UsageError("the rows of the model have no 24 h without a gap to take a confidence from: leave it out")
    return half_widths(used.coefficients, np.quantile(errors, confidence, axis=0), steps)


def doubt(planning: Planning, confidence: float) -> float:
    """The share of what moving the load does by which that may be otherwise: standard errors of the response. [-]

    Nothing where the gain was stated: nobody said how well it is known.
    """
    known = planning.excitation
    return 0.0 if known is None else NormalDist().inv_cdf((1 + confidence) / 2) * known.relative_error
