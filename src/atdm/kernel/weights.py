"""SP_II, Eq. (4): the weights ξ that minimise ‖Zξ‖² + λ‖ξ‖² with 1ᵀξ = 1, free or with ξ ≥ 0.

Both problems reduce to x = ξ/ν with ν = ξᵀGξ, G = ZᵀZ + λI: free weights solve Gx = 1; with ξ ≥ 0,
x ≥ 0 minimises ½xᵀGx − 1ᵀx, whose conditions are those of the simplex problem divided by ν > 0.
With more agents than rows, G⁻¹ is taken through the n × n matrix λI + ZZᵀ instead.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from atdm.errors import UsageError
from atdm.types import FloatArray

SINGULAR = 1e8  # condition number of Z above which λ = 0 leaves the weights undetermined


def check_ridge_zero(z: FloatArray, ridge: float) -> None:
    """λ = 0 is possible only where the columns of Z determine the weights."""
    if ridge > 0:
        return
    if z.shape[1] > z.shape[0] or np.linalg.cond(z) > SINGULAR:
        raise UsageError("ridge 0 leaves the weights undetermined (more agents than rows, or series that repeat "
                         "each other): give a ridge above 0")  # fmt: skip


def solve_ones(z: FloatArray, ridge: float, ones: FloatArray | None = None) -> FloatArray:
    """x with (ZᵀZ + λI) x = 1, or another right-hand side that stands for it."""
    rows, agents = z.shape
    one = np.ones(agents) if ones is None else ones
    try:
        if agents <= rows:
            return cho_solve(cho_factor(z.T @ z + ridge * np.eye(agents)), one)
        y = solve_dual(z @ z.T, z @ one, ridge)
        return (one - z.T @ y) / ridge
    except LinAlgError:
        raise UsageError("the weights are not determined numerically: give a larger ridge") from None


def solve_dual(zzt: FloatArray, z1: FloatArray, ridge: float) -> FloatArray:
    """y with (λI + ZZᵀ) y = Z1, so that G⁻¹1 = (1 − Zᵀy)/λ (Woodbury)."""
    return cho_solve(cho_factor(zzt + ridge * np.eye(len(zzt))), z1)


def free_weights(z: FloatArray, ridge: float) -> FloatArray:
    """ξ = G⁻¹1 / 1ᵀG⁻¹1."""
    x = solve_ones(z, ridge)
    weights: FloatArray = x / x.sum()
    return weights


def nonnegative_weights(z: FloatArray, ridge: float) -> FloatArray:
    """ξ ≥ 0 exactly, by block principal pivoting (Kim and Park 2011) on x ≥ 0, y = Gx − 1 ≥ 0, xᵀy = 0.

    Whole blocks change sides while that lowers the number of violations; when it stalls, only the last violated
    index does (Murty's rule), which ends after finitely many steps for positive definite G.
    """
    agents = z.shape[1]
    free = np.ones(agents, dtype=bool)
    fewest, patience = agents + 1, 3
    while True:
        x = np.zeros(agents)
        x[free] = solve_ones(z[:, free], ridge)
        y = z.T @ (z @ x) + ridge * x - 1.0
        noise = 1e-12 * (1.0 + np.abs(y).max())  # of the products that make y; x carries the same relative error
        violated = (free & (x < 0)) | (~free & (y < -noise))
        count = int(violated.sum())
        if count == 0:
            weights: FloatArray = x / x.sum()
            return weights
        if count < fewest:
            fewest, patience = count, 3
        elif patience > 0:
            patience -= 1
        else:
            last = np.flatnonzero(violated)[-1]
            violated = np.zeros(agents, dtype=bool)
            violated[last] = True
        free ^= violated
