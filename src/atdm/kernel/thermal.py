"""The aggregate thermal dynamic model, Eq. (2): coefficients, prediction and metrics."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from atdm.kernel.design import Design, FloatArray, Inputs, forcing_columns, lagged_rows

Kind = Literal["one_step", "free_run"]
Metrics = dict[str, dict[str, dict[str, float]]]  # train|test → one_step|free_run → rmse|mape|r2


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """s_t = Σ α_m s_{t−m} + Σ (β_m h_{t−m} + γ_m o_{t−m} + θ_m r_{t−m}) + occ_{t mod P}          Eq. (2)"""

    alpha: FloatArray  # M values: retention of the aggregate temperature     [-]
    beta: FloatArray  # M+1 values: response to heating power                 [K/kW]
    gamma: FloatArray  # M+1 values: pull of the outdoor temperature          [-]
    theta: FloatArray  # M+1 values: response to solar irradiance             [K/(kW/m²)]
    occupancy: FloatArray  # P values: what occupants and the rest of the day add [K]

    @property
    def order(self) -> int:
        return len(self.alpha)

    @property
    def period(self) -> int:
        return len(self.occupancy)

    def forcing(self, inputs: Inputs, rows: np.typing.NDArray[np.int64]) -> FloatArray:
        """Everything in Eq. (2) but the lags of s, at the given rows.  [°C]"""
        columns = forcing_columns(inputs, rows, self.order)
        answer: FloatArray = columns @ np.concatenate([self.beta, self.gamma, self.theta])
        return answer + self.occupancy[inputs.phase[rows]]


def coefficients(design: Design, period: int, alpha: FloatArray, state: FloatArray) -> tuple[Coefficients, float]:
    """β, γ, θ, occ for a given α and s: least squares of s_t − Σ α_m s_{t−m} on X. Also the residual sum of squares."""
    m1 = design.order + 1
    filtered = state[design.rows] - sum(alpha[m - 1] * state[design.rows - m] for m in range(1, m1))
    # Columns are scaled to unit norm so that the solver's rank decision does not depend on their units.
    columns = design.columns
    norms = np.linalg.norm(columns, axis=0)
    norms[norms == 0] = 1.0
    solution = np.linalg.lstsq(columns / norms, filtered, rcond=1e-12)[0] / norms
    rss = float(((filtered - columns @ solution) ** 2).sum())
    beta, gamma, theta = solution[: 3 * m1].reshape(3, m1)
    found = Coefficients(alpha=alpha, beta=beta, gamma=gamma, theta=theta, occupancy=solution[3 * m1 :])
    if found.period != period:
        raise ValueError(f"design has {found.period} season columns, expected {period}")
    return found, rss


def one_step(
    c: Coefficients, inputs: Inputs, state: FloatArray, start: int, stop: int
) -> tuple[FloatArray, FloatArray]:
    """Predictions one sample ahead at the rows of [start, stop) that have M predecessors there, and the truth."""
    rows = lagged_rows(inputs.segment, c.order, start, stop)
    predicted = c.forcing(inputs, rows)
    for m in range(1, c.order + 1):
        predicted = predicted + c.alpha[m - 1] * state[rows - m]
    return predicted, state[rows]


def free_run(c: Coefficients, inputs: Inputs, state: FloatArray, start: int, stop: int) -> FloatArray:
    """Trajectory over [start, stop): the first M values of every segment are given, the rest is the model alone."""
    rows = lagged_rows(inputs.segment, c.order, start, stop)
    run = state[start:stop].copy()
    for t, u in zip((rows - start).tolist(), c.forcing(inputs, rows).tolist(), strict=True):
        run[t] = u + sum(a * run[t - m] for m, a in enumerate(c.alpha.tolist(), 1))
    return run


def accuracy(predicted: FloatArray, actual: FloatArray) -> dict[str, float]:
    """RMSE [K], MAPE [%] and R² [-], as in the paper's Table II."""
    error = predicted - actual
    spread = float(((actual - actual.mean()) ** 2).sum()) if len(actual) else 0.0
    if len(actual) == 0:
        return {"rmse": float("nan"), "mape": float("nan"), "r2": float("nan")}
    return {
        "rmse": float(np.sqrt((error**2).mean())),
        "mape": float(100 * np.abs(error / actual).mean()),
        "r2": 1.0 - float((error**2).sum()) / spread if spread > 0 else float("nan"),
    }


def evaluate(c: Coefficients, inputs: Inputs, state: FloatArray) -> Metrics:
    """Train and test accuracy, one step ahead and in free run; the free run counts all rows of its part."""
    parts = {"train": (0, inputs.train), "test": (inputs.train, len(inputs))}
    return {
        part: {
            "one_step": accuracy(*one_step(c, inputs, state, start, stop)),
            "free_run": accuracy(free_run(c, inputs, state, start, stop), state[start:stop]),
        }
        for part, (start, stop) in parts.items()
    }
