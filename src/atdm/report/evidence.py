"""The numbers behind the figures: what a fit says about itself, from released values alone.

Everything follows from fit.model, fit.inputs and fit.state, which the aggregator of a deployment has too.
"""

from dataclasses import dataclass

import numpy as np

from atdm.kernel.design import Inputs, lagged_rows, parameter_count
from atdm.kernel.thermal import Coefficients, free_run, one_step
from atdm.model.bands import Training, band, simulate_paths
from atdm.model.diagnostics import Diagnostics, diagnose, impulse_filter
from atdm.run import Fit
from atdm.types import FloatArray, IntArray

LEVEL = 0.95  # of the bands
PATHS = 400  # simulated for them
SEED = 0  # the same fit gives the same page
MOST_STARTS = 400  # free runs whose errors are averaged at each horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Model against measurement over train and test."""

    values: FloatArray  # given measured temperatures anew every season  [°C]
    low: FloatArray  # lower end of the band  [°C]
    high: FloatArray  # upper end             [°C]
    horizon: IntArray  # steps since the model was last given measured values
    inside: float  # share of the test rows within the band
    free: FloatArray  # one run over the test rows, NaN before  [°C]


def enough_rows(fit: Fit) -> bool:
    """Whether the released rows allow more than drawing coefficients: gaps may leave few that follow each other."""
    rows = lagged_rows(fit.inputs.segment, fit.model.order, 0, fit.inputs.train)
    tested = lagged_rows(fit.inputs.segment, fit.model.order, fit.inputs.train, len(fit.inputs))
    return len(rows) >= parameter_count(fit.model.order, fit.model.period) + 2 and len(tested) > 0


def step_hours(fit: Fit) -> float:
    return fit.model.step.total_seconds() / 3600


def diagnosis(fit: Fit) -> Diagnostics | None:
    if not enough_rows(fit):
        return None
    return diagnose(fit.model.coefficients, fit.inputs, fit.state.to_numpy(float), step_hours(fit))


def residuals(fit: Fit) -> tuple[IntArray, FloatArray]:
    """Rows and one-step errors, measured − predicted, over train and test.  [K]"""
    c, inputs, n = fit.model.coefficients, fit.inputs, len(fit.inputs)
    predicted, actual = one_step(c, inputs, fit.state.to_numpy(float), 0, n)
    return lagged_rows(inputs.segment, c.order, 0, n), actual - predicted


def prediction(fit: Fit) -> Prediction:
    """Runs started anew every season and after every gap, with their bands; and the free run of the metrics."""
    c, inputs, state = fit.model.coefficients, fit.inputs, fit.state.to_numpy(float)
    training = Training.of(c, inputs, state)
    values, low, high = state.copy(), state.copy(), state.copy()
    horizon = np.zeros(len(inputs), dtype=np.int64)
    for number, (given, first, stop) in enumerate(runs(inputs, c.order)):
        part = inputs.between(given, stop)
        skip = first - given
        values[first:stop] = free_run(c, part, state[given:stop], 0, stop - given)[skip:]
        known = state[given : given + c.order]
        paths = simulate_paths(c, training, part, known, paths=PATHS, seed=SEED + 2 * number)
        low[first:stop], high[first:stop] = (edge[skip:] for edge in band(paths, LEVEL))
        horizon[first:stop] = np.maximum(np.arange(skip, stop - given) - c.order + 1, 0)
    tested = np.flatnonzero(horizon[inputs.train :] > 0) + inputs.train
    within = (low <= state)[tested] & (state <= high)[tested]
    inside = float(within.mean()) if len(tested) else float("nan")
    free = np.full(len(inputs), np.nan)
    free[inputs.train :] = free_run(c, inputs, state, inputs.train, len(inputs))
    return Prediction(values=values, low=low, high=high, horizon=horizon, inside=inside, free=free)


def runs(inputs: Inputs, order: int) -> list[tuple[int, int, int]]:
    """(given, first, stop): the model is given the M rows from `given` on, and [first, stop) is drawn from its run."""
    answer = []
    for start, end in ((0, inputs.train), (inputs.train, len(inputs))):
        cuts = (np.flatnonzero(np.diff(inputs.segment[start:end])) + start + 1).tolist()
        for left, right in zip([start, *cuts], [*cuts, end], strict=True):
            for first in range(left, right, inputs.period):
                answer.append((max(first - order, left), first, min(first + inputs.period, right)))
    return [(given, first, stop) for given, first, stop in answer if stop - given > order]


def horizon_errors(fit: Fit, steps: int) -> dict[str, FloatArray]:
    """RMSE after 1 … steps steps over starts in the test rows: the model, no change, and a season ago.  [K]"""
    c, inputs, state = fit.model.coefficients, fit.inputs, fit.state.to_numpy(float)
    p, n = fit.model.period, len(inputs)
    starts = lagged_rows(inputs.segment, c.order, inputs.train, n)
    starts = starts[starts + steps <= n]
    starts = starts[inputs.segment[starts + steps - 1] == inputs.segment[starts]]
    starts = starts[:: max(1, -(-len(starts) // MOST_STARTS))]
    answer = {name: np.full(steps, np.nan) for name in ("model", "no change", "a season ago")}
    if len(starts) == 0:
        return answer
    seasonal = bool((starts >= p).all() and (inputs.segment[starts - p] == inputs.segment[starts]).all())
    past = [state[starts - i] for i in range(1, c.order + 1)]  # the last M values of every run, newest first
    for j in range(steps):
        rows = starts + j
        now = c.forcing(inputs, rows) + sum(a * v for a, v in zip(c.alpha.tolist(), past, strict=True))
        past = [now, *past[:-1]]
        answer["model"][j] = _rms(now - state[rows])
        answer["no change"][j] = _rms(state[starts - 1] - state[rows])
        if seasonal:  # the last season known at the start
            answer["a season ago"][j] = _rms(state[rows - p * (1 + j // p)] - state[rows])
    return answer


def step_response(c: Coefficients, gains: FloatArray, steps: int) -> FloatArray:
    """Change of the aggregate temperature 0 … steps−1 steps after an input rose by one unit for good.  [K]"""
    return impulse_filter(c.alpha, np.cumsum(np.concatenate([gains, np.zeros(steps)]))[:steps])


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2)))
