"""The aggregate thermal dynamic model, Eq. (2): coefficients, prediction and metrics."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dtbsv
from scipy.linalg.lapack import dtrtrs

from atdm.kernel.descent import lag_filter
from atdm.kernel.design import COEFFICIENTS, INPUTS, LAGGED, Design, Inputs, lagged_rows, seasonal_means
from atdm.types import FloatArray, IntArray

Metrics = dict[str, dict[str, dict[str, float]]]  # train|test → one_step|free_run → rmse|mape|r2


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The coefficients of Eq. (2).

    Parameters
    ----------
    alpha : array of float
        α, M values: retention of the aggregate temperature [-].
    beta : array of float
        β, M + 1 values: response to heating power [K/kW].
    gamma : array of float
        γ, M + 1 values: pull of the outdoor temperature [-].
    theta : array of float
        θ, M + 1 values: response to solar irradiance [K/(kW/m²)].
    occupancy : array of float
        P values: what occupants and the rest of the day add [K].
    """

    alpha: FloatArray
    beta: FloatArray
    gamma: FloatArray
    theta: FloatArray
    occupancy: FloatArray

    def parts(self) -> tuple[FloatArray, ...]:
        """α, β, γ, θ and occupancy, in this order."""
        return tuple(getattr(self, name) for name in COEFFICIENTS)

    def gains(self) -> Iterator[FloatArray]:
        """The coefficients of the lags of the inputs, in the order of INPUTS."""
        return (getattr(self, i.coefficient) for i in INPUTS)

    @property
    def order(self) -> int:
        """M: how many past steps the model looks back."""
        return len(self.alpha)

    @property
    def period(self) -> int:
        """P: steps in one season."""
        return len(self.occupancy)

    def forcing(self, inputs: Inputs, rows: IntArray) -> FloatArray:
        """Everything in Eq. (2) but the lags of s.

        Parameters
        ----------
        inputs : Inputs
            The model's inputs.
        rows : array of int
            Rows wanted.

        Returns
        -------
        array of float
            One value per row [°C].
        """
        if not len(rows):
            return np.empty(0)
        lags = zip(inputs.series(), self.gains(), strict=True)
        everywhere = sum(np.convolve(series, gains) for series, gains in lags)  # Σ β_m h_{t−m} + Σ γ_m o_{t−m} + …
        answer: FloatArray = np.asarray(everywhere)[rows] + self.occupancy[inputs.phase[rows]]
        return answer


def coefficients(design: Design, period: int, alpha: FloatArray, state: FloatArray) -> tuple[Coefficients, float]:
    """β, γ, θ, occ for a given α and s: least squares of s_t − Σ α_m s_{t−m} on X. Also the residual sum of squares."""
    filtered: FloatArray = lag_filter(alpha) @ state[design.lagged]
    gains, season = regress(design, filtered)
    if len(season) != period:
        raise ValueError(f"design has {len(season)} season columns, expected {period}")
    by_input = dict(zip(LAGGED[1:], gains.reshape(-1, design.order + 1), strict=True))
    left = filtered - design.forcing @ gains - season[design.phase]
    return Coefficients(alpha=alpha, occupancy=season, **by_input), float(left @ left)


def regress(design: Design, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least squares of a vector on X: the coefficients of the lags of h, o, r, and the season."""
    if not design.full_rank:
        return _minimum_norm(design, values)
    within = values - seasonal_means(values[None], design.phase, design.counts)[0]
    scaled, _ = dtrtrs(design.triangle, design.basis @ within)
    gains = np.empty_like(scaled)
    gains[design.pivots] = scaled
    gains /= design.norms
    sums = np.bincount(design.phase, values - design.forcing @ gains, design.period)
    return gains, sums / np.maximum(design.counts, 1)


def _minimum_norm(design: Design, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where the rows leave a choice: the smallest solution, columns scaled to unit norm so that units do not matter."""
    norms = np.linalg.norm(design.columns, axis=0)
    norms[norms == 0] = 1.0
    solution: FloatArray = np.linalg.lstsq(design.columns / norms, values, rcond=1e-12)[0] / norms
    return solution[: len(design.norms)], solution[len(design.norms) :]


def one_step(
    c: Coefficients, inputs: Inputs, state: FloatArray, start: int, stop: int
) -> tuple[FloatArray, FloatArray]:
    """Predictions one sample ahead at the rows of [start, stop) that have M predecessors there, and the truth."""
    rows = lagged_rows(inputs.segment, c.order, start, stop)
    return _one_step(c, c.forcing(inputs, rows), state, rows), state[rows]


def free_run(c: Coefficients, inputs: Inputs, state: FloatArray, start: int, stop: int) -> FloatArray:
    """Trajectory over [start, stop): the first M values of every segment are given, the rest is the model alone."""
    rows = lagged_rows(inputs.segment, c.order, start, stop)
    return _free_run(c, c.forcing(inputs, rows), state[start:stop], rows - start)


def _one_step(c: Coefficients, forcing: FloatArray, state: FloatArray, rows: IntArray) -> FloatArray:
    predicted = forcing
    for m, a in enumerate(c.alpha, 1):
        predicted = predicted + a * state[rows - m]
    return predicted


def _free_run(c: Coefficients, forcing: FloatArray, given: FloatArray, rows: IntArray) -> FloatArray:
    """s_t − Σ α_m s_{t−m} = forcing_t at `rows`, s_t as given at the others, solved as one banded triangular
    system."""
    run = given.copy()
    run[rows] = forcing
    band = np.zeros((c.order + 1, len(run)), order="F")  # its m-th row: the m-th diagonal below the main one
    for m, a in enumerate(c.alpha, 1):
        band[m, rows - m] = -a
    answer: FloatArray = dtbsv(c.order, band, run, lower=1, diag=1, overwrite_x=1) if len(run) else run
    return answer


def accuracy(predicted: FloatArray, actual: FloatArray) -> dict[str, float]:
    """RMSE [K], MAPE [%] and R² [-], as in the paper's Table II."""
    if not len(actual):
        return {"rmse": float("nan"), "mape": float("nan"), "r2": float("nan")}
    error, around = predicted - actual, actual - actual.mean()
    squares, spread = float(error @ error), float(around @ around)
    return {
        "rmse": math.sqrt(squares / len(actual)),
        "mape": float(100 * np.abs(error / actual).mean()),
        "r2": 1.0 - squares / spread if spread > 0 else float("nan"),
    }


def evaluate(c: Coefficients, inputs: Inputs, state: FloatArray) -> Metrics:
    """Train and test accuracy, one step ahead and in free run; the free run counts all rows of its part."""
    metrics: Metrics = {}
    for part, start, stop in (("train", 0, inputs.train), ("test", inputs.train, len(inputs))):
        rows = lagged_rows(inputs.segment, c.order, start, stop)
        forcing = c.forcing(inputs, rows)
        run = _free_run(c, forcing, state[start:stop], rows - start)
        metrics[part] = {
            "one_step": accuracy(_one_step(c, forcing, state, rows), state[rows]),
            "free_run": accuracy(run, state[start:stop]),
        }
    return metrics
