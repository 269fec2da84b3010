"""The descent from second moments alone: S = Σ x_i x_iᵀ and Σ x_i over time are sufficient for Eq. (3).

By Eq. (4) in kernel form the optimal weights are affine in each agent's own series, ξ_i = x_i·w + b, so that
s = S w + b Σx_i and ‖ξ‖² = wᵀSw + 2b wᵀΣx_i + K b². "Weights" of the descent are here the vector (w, b).
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from atdm.errors import RunAborted
from atdm.kernel.descent import MAX_ITERATIONS, Descent, advance, lag_filter, misfit, sp1, start
from atdm.kernel.design import Design
from atdm.kernel.weights import solve_dual
from atdm.types import FloatArray

CLIPPED_TOLERANCE = 1e-11  # of Σξ − 1 and of the residual, relative to its size
RESTART = 4.0  # a step this many times longer than the shortest plain one so far restarts the updates
CLIPPED_ROUNDS = 200  # sums for one SP_II; two for every weight at zero, and a few more, are what it takes

ClippedSums = tuple[FloatArray, float, float]  # Σ x_i ξ_i, Σ ξ_i and Σ ξ_i² with ξ_i = max(0, x_i·w + b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Subproblems (kernel/descent.py) for K agents of whom only the moments over the window are known."""

    design: Design
    ridge: float
    agents: int  # K
    second: FloatArray  # S, N × N                                                              [K²]
    first: FloatArray  # Σ x_i, N                                                               [K]
    products: FloatArray  # (I − Π) of lag a of S of lag b of (I − Π): (M+1) × (M+1) × n × n
    projected: FloatArray  # (I − Π) of the lags of Σ x_i: (M+1) × n

    @classmethod
    def build(cls, design: Design, ridge: float, agents: int, second: FloatArray, first: FloatArray) -> "Moments":
        half = design.projected_lags(second)  # [a] = (I − Π) L_a S, n × N
        products = np.stack([design.projected_lags(block.T).transpose(0, 2, 1) for block in half])
        return cls(
            design=design,
            ridge=ridge,
            agents=agents,
            second=second,
            first=first,
            products=products,
            projected=design.projected_lags(first),
        )

    def equal(self) -> FloatArray:
        """ξ_i = 1/K: w = 0, b = 1/K."""
        return np.append(np.zeros(len(self.first)), 1.0 / self.agents)

    def state(self, weights: FloatArray) -> FloatArray:
        """s over the whole window.  [K, centred]"""
        answer: FloatArray = self.second @ weights[:-1] + weights[-1] * self.first
        return answer

    def square(self, weights: FloatArray) -> float:
        """‖ξ‖²."""
        w, b = weights[:-1], weights[-1]
        return float(w @ self.second @ w + 2 * b * (w @ self.first) + self.agents * b * b)

    def sp1(self, weights: FloatArray) -> tuple[FloatArray, float]:
        alpha, rss = sp1(self.design.projected_lags(self.state(weights)))
        return alpha, rss + self.ridge * self.square(weights)

    def sp2(self, alpha: FloatArray) -> tuple[FloatArray, float]:
        """ξ = (ν/λ)(1 − Zᵀy) with (λI + ZZᵀ)y = Z1, hence w = −(ν/λ)Aᵀy for Z = AX, and b = ν/λ."""
        a = lag_filter(alpha)
        y = solve_dual(np.einsum("a,b,abij->ij", a, a, self.products, optimize=True), a @ self.projected, self.ridge)
        back = adjoint(self.design, alpha, y, len(self.first))
        nu = self.ridge / (self.agents - self.first @ back)
        weights = np.append(-back, 1.0) * (nu / self.ridge)
        lags = self.design.projected_lags(self.state(weights))
        rss = float(((a @ lags) ** 2).sum())
        return weights, rss + self.ridge * self.square(weights)


def adjoint(design: Design, alpha: FloatArray, values: FloatArray, length: int) -> FloatArray:
    """Aᵀy for A = (I − Π)F_α, the map from a series over the window to its filtered, projected training rows."""
    projected, answer = design.residual(values[None])[0], np.zeros(length)
    for m, a in enumerate(lag_filter(alpha)):
        answer[design.rows - m] += a * projected
    return answer


class Clipped:
    """SP_II with ξ ≥ 0 when only sums over the agents can be had: ξ_i = max(0, x_i·w + b).

    The optimum solves v = A Σ x_i ξ_i and Σ ξ_i = 1 with w = −Aᵀv/λ: a root in (v, b) that is piecewise linear. The
    moments give its Jacobian with no weight at zero; each weight that is there is a correction of rank one, which
    Broyden's updates find from the sums themselves. Ask for the sums at `weights`, give them to `step`.
    """

    def __init__(self, problem: Moments, alpha: FloatArray) -> None:
        self.problem, self.alpha = problem, alpha
        a = lag_filter(alpha)
        zzt = np.einsum("a,b,abij->ij", a, a, problem.products, optimize=True)
        z1, n = a @ problem.projected, len(problem.design.rows)
        jacobian = np.empty((n + 1, n + 1))
        jacobian[:n, :n] = np.eye(n) + zzt / problem.ridge
        jacobian[:n, n] = -z1
        jacobian[n, :n] = -z1 / problem.ridge
        jacobian[n, n] = problem.agents
        self._factor = lu_factor(jacobian)
        free, _ = problem.sp2(alpha)
        self._z = np.append(self._filter(problem.state(free)), free[-1])  # (v, b) of the free weights
        self._updates: list[tuple[FloatArray, FloatArray]] = []
        self._last: tuple[FloatArray, FloatArray] | None = None
        self._best: tuple[float, FloatArray, FloatArray] | None = None  # length of the plain step, point, plain step
        self.done, self.converged, self.rounds = False, False, 0

    @property
    def weights(self) -> FloatArray:
        """(w, b) at which the next sums are wanted."""
        back = adjoint(self.problem.design, self.alpha, self._z[:-1], len(self.problem.first))
        return np.append(-back / self.problem.ridge, self._z[-1])

    def step(self, state: FloatArray, total: float) -> None:
        """Σ x_i ξ_i and Σ ξ_i at `weights`."""
        residual = np.append(self._z[:-1] - self._filter(state), total - 1.0)
        plain = -lu_solve(self._factor, residual)  # with no weight at zero: short, but it always leads closer
        length = float(np.linalg.norm(plain))
        self.rounds += 1
        self.converged = length <= CLIPPED_TOLERANCE * (1.0 + float(np.linalg.norm(self._z)))
        self.done = self.converged or self.rounds >= CLIPPED_ROUNDS
        if self.done:
            return
        if self._best is not None and length > RESTART * self._best[0]:
            self._updates, self._last = [], None  # the updates made it worse: take the plain step from the best point
            self._z = self._best[1] + self._best[2]
            return
        if self._best is None or length < self._best[0]:
            self._best = (length, self._z, plain)
        if self._last is not None:
            moved, before = self._last
            change = self._solve(residual - before)
            self._updates.append(((moved - change) / float(moved @ change), moved))
        move = -self._solve(residual)
        self._last = (move, residual)
        self._z = self._z + move

    def _solve(self, values: FloatArray) -> FloatArray:
        """The inverse Jacobian so far times values (Broyden's first method, in product form)."""
        answer: FloatArray = lu_solve(self._factor, values)
        for left, right in self._updates:
            answer = answer + left * float(right @ answer)
        return answer

    def _filter(self, state: FloatArray) -> FloatArray:
        lags = self.problem.design.projected_lags(state)
        answer: FloatArray = lags[0] - self.alpha @ lags[1:]
        return answer


def descend_clipped(
    problem: Moments, tolerance: float, ask: Callable[[FloatArray], Generator[Any, Any, ClippedSums]]
) -> Generator[Any, Any, tuple[Descent, FloatArray]]:
    """The whole descent with ξ ≥ 0, and its state. `ask` gives the sums at (w, b); what it yields on the way to them is
    its own business."""
    design, ridge = problem.design, problem.ridge
    descent, state, square = start(problem.equal()), problem.state(problem.equal()), 1.0 / problem.agents
    while not descent.converged and descent.iterations < MAX_ITERATIONS:
        alpha, rss = sp1(design.projected_lags(state))
        f1, search = rss + ridge * square, Clipped(problem, alpha)
        while not search.done:
            weights = search.weights
            state, total, square = yield from ask(weights)
            search.step(state, total)
        if not search.converged:
            raise RunAborted(f"ξ ≥ 0 was not reached in {search.rounds} sums: use 'ridge', or a larger ridge")
        f2 = misfit(design.projected_lags(state), alpha) + ridge * square
        descent = advance(descent, alpha, f1, weights, f2, tolerance)
    return descent, state
