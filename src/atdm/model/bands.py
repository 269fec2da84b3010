"""Prediction bands of a free run by simulation: what the residuals and the coefficients might have been.

Each simulated path has its own coefficients, drawn from their Newey–West covariance, and its own residuals, drawn in
blocks of one season from those of the training rows, so that they stay as correlated as they were.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from atdm.kernel.design import Inputs, forcing_columns, lagged_rows, parameter_count
from atdm.kernel.thermal import Coefficients
from atdm.model.diagnostics import Regression, coefficient_draws, newey_west, season_lags
from atdm.types import FloatArray

DIGITS = 6  # significant digits kept of residuals and covariances


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the bands need of the training rows. It follows from the released series; it holds no agent's readings."""

    residuals: FloatArray  # ε of Eq. (2), in the order of time                                    [K]
    covariance: FloatArray  # of α, β, γ, θ, occupancy (Newey–West), p × p
    block: int  # steps of one block of the bootstrap
    load_low: float  # least load of the cluster in the training rows                              [kW]
    load_high: float  # largest                                                                    [kW]

    @classmethod
    def of(cls, c: Coefficients, inputs: Inputs, state: FloatArray) -> "Training":
        regression = Regression.build(c, inputs, state)
        count = len(regression.rows)
        lags = season_lags(c.period, count)
        covariance = newey_west(regression.columns, regression.residuals, regression.rows, inputs.segment, lags)
        load = inputs.load[: inputs.train]
        return cls(
            residuals=_rounded(regression.residuals),
            covariance=_rounded(covariance),
            block=min(c.period, count),
            load_low=float(load.min()),
            load_high=float(load.max()),
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "load_kw": [self.load_low, self.load_high],
            "block": self.block,
            "residuals_k": self.residuals.tolist(),
            "covariance": self.covariance.tolist(),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Training":
        low, high = document["load_kw"]
        return cls(
            residuals=np.asarray(document["residuals_k"], dtype=float),
            covariance=np.asarray(document["covariance"], dtype=float),
            block=int(document["block"]),
            load_low=float(low),
            load_high=float(high),
        )

    def fits(self, c: Coefficients) -> bool:
        """Whether this can belong to these coefficients."""
        parameters = parameter_count(c.order, c.period)
        return (
            self.residuals.ndim == 1
            and 1 <= self.block <= len(self.residuals)
            and self.covariance.shape == (parameters, parameters)
            and bool(np.isfinite(self.residuals).all() and np.isfinite(self.covariance).all())
            and self.load_low <= self.load_high
        )


def simulate_paths(
    c: Coefficients, training: Training, inputs: Inputs, initial: FloatArray, *, paths: int, seed: int
) -> FloatArray:
    """Free runs as they might turn out, paths × rows; the first M rows are `initial` in all of them. [°C]"""
    rows = lagged_rows(inputs.segment, c.order, 0, len(inputs))
    drawn = coefficient_draws(c, training.covariance, paths, seed)
    alpha = np.stack([d.alpha for d in drawn])
    weights = np.stack([np.concatenate([d.beta, d.gamma, d.theta]) for d in drawn])
    season = np.stack([d.occupancy for d in drawn])
    forcing = weights @ forcing_columns(inputs, rows, c.order).T + season[:, inputs.phase[rows]]
    forcing += block_bootstrap(training.residuals, training.block, (paths, len(rows)), seed + 1)
    run = np.empty((paths, len(inputs)))
    run[:, : c.order] = initial
    for t, u in zip(rows.tolist(), forcing.T, strict=True):
        run[:, t] = u + (alpha * run[:, t - c.order : t][:, ::-1]).sum(axis=1)
    return run


def block_bootstrap(series: FloatArray, block: int, shape: tuple[int, int], seed: int) -> FloatArray:
    """Rows of consecutive blocks of a series, each block starting anywhere in it (Künsch 1989), centred."""
    paths, length = shape
    starts = np.random.default_rng(seed).integers(0, len(series) - block + 1, (paths, -(-length // block)))
    drawn: FloatArray = (series - series.mean())[starts[:, :, None] + np.arange(block)]
    return drawn.reshape(paths, -1)[:, :length]


def band(paths: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper end of the central `level` of the paths, row by row."""
    low, high = np.quantile(paths, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _rounded(values: FloatArray) -> FloatArray:
    """To DIGITS significant digits: they are estimates, and the file stays small."""
    size = np.abs(values)
    exponent = np.floor(np.log10(np.where(size > 0, size, 1.0)))
    scale = 10.0 ** (DIGITS - 1 - exponent)
    answer: FloatArray = np.where(size > 0, np.rint(values * scale) / scale, 0.0)
    return answer
