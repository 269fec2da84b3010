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

    @classmethod
    def of(cls, alpha: FloatArray, gains: FloatArray, occupancy: FloatArray) -> "Coefficients":
        """From what lags of all inputs are multiplied by.

        Parameters
        ----------
        alpha : array of float
            α, M values [-].
        gains : array of float
            M + 1 values an input, in the order of INPUTS, each in its own unit [-].
        occupancy : array of float
            P values [K].

        Returns
        -------
        Coefficients
            The same numbers by name.
        """
        by_input = dict(zip(LAGGED[1:], gains.reshape(len(INPUTS), -1), strict=True))
        return cls(alpha=alpha, occupancy=occupancy, **by_input)

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
    gains, season, left = regress(design, filtered)
    if len(season) != period:
        raise ValueError(f"design has {len(season)} season columns, expected {period}")
    return Coefficients.of(alpha, gains, season), float(left @ left)


def regress(design: Design, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Least squares of a vector on X: the coefficients of the lags of h, o, r, the season, and what is left."""
    if not design.full_rank:
        gains, season = _minimum_norm(design, values)
        return gains, season, values - design.forcing @ gains - season[design.phase]
    within = values - seasonal_means(values[None], design.phase, design.counts)[0]
    scaled, _ = dtrtrs(design.triangle, design.basis @ within)
    gains = np.empty_like(scaled)
    gains[design.pivots] = scaled
    gains /= design.norms
    left = values - design.forcing @ gains
    season = np.bincount(design.phase, left, design.period) / np.maximum(design.counts, 1)
    return gains, season, left - season[design.phase]


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
    count, error = len(actual), predicted - actual
    around = actual - np.add.reduce(actual) / count
    squares, spread = float(error @ error), float(around @ around)
    return {
        "rmse": math.sqrt(squares / count),
        "mape": 100 * float(np.add.reduce(np.abs(error / actual))) / count,
        "r2": 1.0 - squares / spread if spread > 0 else float("nan"),
    }


def evaluate(c: Coefficients, inputs: Inputs, state: FloatArray) -> Metrics:
    """Train and test accuracy, one step ahead and in free run; the free run counts all rows of its part."""
    metrics: Metrics = {}
    everywhere = c.forcing(inputs, np.arange(len(inputs)))
    for part, start, stop in (("train", 0, inputs.train), ("test", inputs.train, len(inputs))):
        rows = lagged_rows(inputs.segment, c.order, start, stop)
        forcing = everywhere[rows]
        run = _free_run(c, forcing, state[start:stop], rows - start)
        metrics[part] = {
            "one_step": accuracy(_one_step(c, forcing, state, rows), state[rows]),
            "free_run": accuracy(run, state[start:stop]),
        }
    return metrics
