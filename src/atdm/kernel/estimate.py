"""The answer of every protocol: α of the last SP_I; ξ, β, γ, θ, occ of the last SP_II; how well they fit."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from atdm.kernel.descent import Columns, Descent, Status, descend, descend_nonnegative, sp1
from atdm.kernel.design import REFERENCE_TEMP, Design, Inputs
from atdm.kernel.thermal import Coefficients, Metrics, coefficients, evaluate
from atdm.types import FloatArray

Nonnegative = Literal["ridge", "exact", False]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    coefficients: Coefficients
    state: FloatArray  # s over the whole window                                  [°C]
    rss: float  # residual sum of squares of Eq. (2) over the training rows        [K²]
    ridge: float  # λ used
    iterations: int
    status: Status
    metrics: Metrics
    solver_residual: float  # ‖ν1 − Gξ‖/‖ν1‖ where SP_II is solved iteratively, else 0


def complete(
    design: Design,
    inputs: Inputs,
    *,
    alpha: FloatArray,
    state: FloatArray,
    ridge: float,
    iterations: int,
    status: Status,
    solver_residual: float = 0.0,
) -> Estimate:
    """From α and the aggregate state everything else follows."""
    found, rss = coefficients(design, inputs.period, alpha, state)
    return Estimate(
        coefficients=found,
        state=state,
        rss=rss,
        ridge=ridge,
        iterations=iterations,
        status=status,
        metrics=evaluate(found, inputs, state),
        solver_residual=solver_residual,
    )


def of_state(
    inputs: Inputs, state: FloatArray, *, order: int, ridge: float = 0.0, minimum_norm: bool = False
) -> Estimate:
    """The model of a given aggregate state [°C]: SP_I once, then what follows. With fixed weights λ plays no part."""
    design = Design.build(inputs, order, minimum_norm=minimum_norm)
    alpha, _ = sp1(design.projected_lags(state - REFERENCE_TEMP))
    return complete(design, inputs, alpha=alpha, state=state, ridge=ridge, iterations=1, status=Status.CONVERGED)


def estimate(
    inputs: Inputs,
    temperature: FloatArray,
    *,
    order: int,
    ridge: float,
    nonnegative: Nonnegative,
    tolerance: float,
    minimum_norm: bool = False,
) -> tuple[Estimate, FloatArray]:
    """The fit with every agent's temperature at hand (N × K): the trusted centre, and the oracle of the tests."""
    design = Design.build(inputs, order, minimum_norm=minimum_norm)
    centred = temperature - REFERENCE_TEMP
    agents = temperature.shape[1]
    equal = np.full(agents, 1.0 / agents)
    projected = design.projected_lags(centred)

    def at_ridge(value: float) -> Descent:
        return descend(Columns(projected=projected, ridge=value, nonnegative=nonnegative == "exact"), equal, tolerance)

    if nonnegative == "ridge":
        descent, ridge = descend_nonnegative(at_ridge, ridge)
    else:
        descent = at_ridge(ridge)
    answer = complete(
        design,
        inputs,
        alpha=descent.alpha,
        state=centred @ descent.weights + REFERENCE_TEMP,
        ridge=ridge,
        iterations=descent.iterations,
        status=Status.CONVERGED if descent.converged else Status.NOT_CONVERGED,
    )
    return answer, descent.weights
