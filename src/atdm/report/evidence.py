"""The numbers behind the figures: what the chosen model of a fit says about itself, from released values alone.

Everything follows from fit.chosen and the rows it comes from, which the aggregator of a deployment has too.
"""

from dataclasses import dataclass

import numpy as np

from atdm.kernel.design import Inputs, lagged_rows, parameter_count
from atdm.kernel.thermal import Coefficients, free_run, one_step
from atdm.model.bands import LEVELS, held
from atdm.model.diagnostics import Diagnostics, impulse_filter
from atdm.model.horizons import origins_in, rolling_errors
from atdm.result import Fit
from atdm.types import FloatArray, IntArray
from atdm.use.forecast import Coverage, coverage

LEVEL = "95"  # of the bands in the figure
MOST_STARTS = 400  # free runs whose errors are averaged at each horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Model against measurement over train and test."""

    values: FloatArray  # given measured temperatures anew every day  [°C]
    low: FloatArray  # lower end of the band; NaN where there is none [°C]
    high: FloatArray  # upper end                                     [°C]
    horizon: IntArray  # steps since the model was last given measured values
    inside: float  # share of the test rows within the band


def inputs_of(fit: Fit) -> Inputs:
    """The released rows on the calendar of the chosen model."""
    return fit.released.inputs(fit.chosen.calendar, fit.inputs.train)


def enough_rows(fit: Fit) -> bool:
    """Whether the released rows allow more than drawing coefficients: gaps may leave few that follow each other."""
    model = fit.chosen
    rows = lagged_rows(fit.inputs.segment, model.order, 0, fit.inputs.train)
    tested = lagged_rows(fit.inputs.segment, model.order, fit.inputs.train, len(fit.inputs))
    return len(rows) >= parameter_count(model.order, model.period) + 2 and len(tested) > 0


def step_hours(fit: Fit) -> float:
    return fit.model.calendar.step_hours


def diagnosis(fit: Fit) -> Diagnostics | None:
    return fit.diagnostics if enough_rows(fit) else None


def residuals(fit: Fit) -> tuple[IntArray, FloatArray]:
    """Rows and one-step errors, measured − predicted, over train and test.  [K]"""
    c, inputs, n = fit.chosen.coefficients, inputs_of(fit), len(fit.inputs)
    predicted, actual = one_step(c, inputs, fit.state.to_numpy(float), 0, n)
    return lagged_rows(inputs.segment, c.order, 0, n), actual - predicted


def prediction(fit: Fit) -> Prediction:
    """Runs started anew every day and after every gap, with the bands they would have been given."""
    model, inputs, state = fit.chosen, inputs_of(fit), fit.state.to_numpy(float)
    c = model.coefficients
    values, half = state.copy(), np.full(len(inputs), np.nan)
    horizon = np.zeros(len(inputs), dtype=np.int64)
    widths = _half_widths(fit)
    for given, first, stop in runs(inputs, c.order, model.season):
        skip = max(first - given, c.order)
        run = free_run(c, inputs.between(given, stop), state[given:stop], 0, stop - given)
        values[first:stop] = run[first - given :]
        ahead = np.arange(given + skip, stop)
        horizon[ahead] = np.arange(1, len(ahead) + 1)
        if widths is not None:
            half[ahead] = widths[given + skip][: len(ahead)]
    half[horizon == 0] = 0.0
    tested = np.flatnonzero(horizon[inputs.train :] > 0) + inputs.train
    within = np.abs(values - state)[tested] <= half[tested]
    inside = float(within.mean()) if len(tested) and widths is not None else float("nan")
    return Prediction(values=values, low=values - half, high=values + half, horizon=horizon, inside=inside)


def _half_widths(fit: Fit) -> FloatArray | None:
    """By row: half-widths of the band of a forecast that starts there, rows × steps."""
    record = fit.chosen.record
    if record is None:
        return None
    known = held(record, LEVELS[LEVEL])
    expected = held(record.before(fit.state.index[0]), LEVELS[LEVEL]).now
    answer = np.tile(expected, (len(fit.state), 1))
    if len(record.time):  # the last origin kept before each test row
        time = fit.released.time
        last = record.time.searchsorted(time[fit.inputs.train :], side="right") - 1
        answer[fit.inputs.train :] = known.at_origins[np.maximum(last, 0)]
    return answer


def coverage_of(fit: Fit) -> tuple[Coverage, ...]:
    """How often the bands held the test rows, each drawn with what was known at its origin."""
    model, train = fit.chosen, fit.inputs.train
    if model.record is None or train == len(fit.inputs):
        return ()
    rows = fit.released
    part = inputs_of(fit).between(train, len(fit.inputs))
    return coverage(model, model.record.before(rows.time[train]), part, rows.state[train:], rows.time[train:])


def runs(inputs: Inputs, order: int, season: int) -> list[tuple[int, int, int]]:
    """(given, first, stop): the model is given the M rows from `given` on, and [first, stop) is drawn from its run."""
    answer = []
    for start, end in ((0, inputs.train), (inputs.train, len(inputs))):
        cuts = (np.flatnonzero(np.diff(inputs.segment[start:end])) + start + 1).tolist()
        for left, right in zip([start, *cuts], [*cuts, end], strict=True):
            for first in range(left, right, season):
                answer.append((max(first - order, left), first, min(first + season, right)))
    return [(given, first, stop) for given, first, stop in answer if stop - given > order]


def horizon_errors(fit: Fit, steps: int) -> dict[str, FloatArray]:
    """RMSE after 1 … steps steps over starts in the test rows: the model, no change, and a day ago.  [K]"""
    model, inputs, state = fit.chosen, inputs_of(fit), fit.state.to_numpy(float)
    p, n = model.season, len(inputs)
    starts = origins_in(inputs, inputs.train, n)
    starts = starts[starts + steps <= n]
    starts = starts[inputs.segment[starts + steps - 1] == inputs.segment[starts]]
    starts = starts[:: max(1, -(-len(starts) // MOST_STARTS))]
    answer = {name: np.full(steps, np.nan) for name in ("model", "no change", "a day ago")}
    if len(starts) == 0:
        return answer
    seasonal = bool((starts >= p).all() and (inputs.segment[starts - p] == inputs.segment[starts]).all())
    errors = rolling_errors(model.coefficients, inputs, state, starts, steps)
    for j in range(steps):
        rows = starts + j
        answer["model"][j] = _rms(errors[:, j])
        answer["no change"][j] = _rms(state[starts - 1] - state[rows])
        if seasonal:  # the last day known at the start
            answer["a day ago"][j] = _rms(state[rows - p * (1 + j // p)] - state[rows])
    return answer


def step_response(c: Coefficients, gains: FloatArray, steps: int) -> FloatArray:
    """Change of the aggregate temperature 0 … steps−1 steps after an input rose by one unit for good.  [K]"""
    return impulse_filter(c.alpha, np.cumsum(np.concatenate([gains, np.zeros(steps)]))[:steps])


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2)))
