"""Block coordinate descent for Eq. (3), in whatever way the two subproblems are answered.

    SP_I  (ξ fixed): least squares gives α and the objective f1
    SP_II (α fixed): Eq. (4) gives ξ and the objective f2
    stop when min(f1 − f2, (f1 − f2)/f2) < tolerance, or where an iteration no longer lowers f2

The weights may be those of agents (one column each) or coordinates in a basis of weighted sums (span.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import numpy as np

from atdm.errors import RunAborted
from atdm.kernel.weights import check_ridge_zero, free_weights, nonnegative_weights
from atdm.types import FloatArray

RIDGE_GROWTH = 1.1  # nonnegative="ridge" tries λ·1.1ᵏ
RIDGE_STEPS = 240  # λ·1.1²⁴⁰ ≈ 10¹⁰ λ; by then ξ = 1/K for any data
MAX_ITERATIONS = 200
LADDER = range(-1, 13)  # ridges λ·1.1^j at which negative weights are counted


class Status(StrEnum):
    """How an estimation ended."""

    CONVERGED = "converged"
    CAPPED = "capped"  # the agents' own limits stopped the solver before its tolerance
    NOT_CONVERGED = "not converged"


class Subproblems(Protocol):
    """The two questions of the descent; who answers them, and from what, is the caller's business."""

    def sp1(self, weights: FloatArray) -> tuple[FloatArray, float]:
        """α and f1 for fixed weights."""

    def sp2(self, alpha: FloatArray) -> tuple[FloatArray, float]:
        """Weights and f2 for fixed α."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """Where a descent stands. Kept so small that a party can hold it between two messages."""

    alpha: FloatArray
    weights: FloatArray
    previous: FloatArray  # the weights from which SP_I found α
    objectives: tuple[float, ...] = ()  # f1, f2, f1, f2, …
    converged: bool = False

    @property
    def iterations(self) -> int:
        return len(self.objectives) // 2


def start(weights: FloatArray) -> Descent:
    return Descent(alpha=np.empty(0), weights=weights, previous=weights)


def gap(f1: float, f2: float) -> float:
    """The stopping measure; below zero it is rounding noise, since SP_II cannot raise the objective."""
    return min(f1 - f2, (f1 - f2) / f2) if f2 > 0 else f1 - f2


def at_rest(objectives: Sequence[float], tolerance: float) -> bool:
    """Whether the last SP_II gained less than the tolerance, or the last iteration nothing at all: neither subproblem
    can raise the objective, so what is left then is rounding, which is another one on every machine."""
    f1, f2 = objectives[-2:]
    return gap(f1, f2) < tolerance or (len(objectives) > 2 and f2 >= objectives[-3])


def advance(state: Descent, alpha: FloatArray, f1: float, weights: FloatArray, f2: float, tolerance: float) -> Descent:
    """One iteration: the answers of SP_I and SP_II."""
    objectives = (*state.objectives, f1, f2)
    return Descent(
        alpha=alpha,
        previous=state.weights,
        weights=weights,
        objectives=objectives,
        converged=at_rest(objectives, tolerance),
    )


def descend(problem: Subproblems, weights: FloatArray, tolerance: float) -> Descent:
    """The whole descent from the given weights."""
    alpha, previous, objectives, converged = np.empty(0), weights, list[float](), False
    while not converged and len(objectives) < 2 * MAX_ITERATIONS:
        previous = weights
        alpha, f1 = problem.sp1(previous)
        weights, f2 = problem.sp2(alpha)
        objectives += (f1, f2)
        converged = at_rest(objectives, tolerance)
    return Descent(
        alpha=alpha, weights=weights, previous=previous, objectives=tuple(objectives), converged=converged
    )  # fmt: skip


def descend_nonnegative(at_ridge: Callable[[float], Descent], ridge: float) -> tuple[Descent, float]:
    """nonnegative="ridge": the whole descent again with λ·1.1ᵏ, k = 0, 1, 2, …, until no weight is negative."""
    for k in range(RIDGE_STEPS + 1):
        state = at_ridge(ridge * RIDGE_GROWTH**k)
        if (state.weights >= 0).all():
            return state, ridge * RIDGE_GROWTH**k
    last = ridge * RIDGE_GROWTH**RIDGE_STEPS
    raise RunAborted(f"some weight stays negative up to ridge {last:.3g}: give a ridge > 0")


@lru_cache(maxsize=256)
def grown(ridge: float, steps: int) -> float:
    """λ·1.1ᵏ by repeated multiplication."""
    return ridge if steps == 0 else grown(ridge, steps - 1) * RIDGE_GROWTH


@dataclass(frozen=True, slots=True)
class RidgeLadder:
    """λ·1.1ᵏ, k from the counts of negative weights; powers by repeated multiplication, the same on every machine."""

    base: float
    moves: bool  # nonnegative="ridge"
    k: int = 0

    @property
    def ridge(self) -> float:
        return grown(self.base, self.k)

    def rungs(self) -> FloatArray:
        """The ridges at which weights are looked at, from one below to twelve above."""
        return np.array([grown(self.base, max(self.k + j, 0)) for j in LADDER]) if self.moves else np.empty(0)

    def better(self, negative: FloatArray, *, final: bool = False) -> "RidgeLadder":
        """The first ridge of the ladder without a negative weight; one down where there is none here and none below,
        but not in the final span, where λ is to come to rest."""
        if not self.moves:
            return self
        below, *upwards = negative.tolist()
        up = next((j for j, count in enumerate(upwards) if count == 0), LADDER[-1])
        down = 1 if up == 0 and self.k and below == 0 and not final else 0
        return RidgeLadder(self.base, self.moves, self.k + up - down)


def sp1(projected: FloatArray) -> tuple[FloatArray, float]:
    """α and the residual sum of squares from (I − Π) of the lags of s, shape (M+1, n).

    With X projected out, ordinary least squares on [lags of s | X] leaves only the lags (Frisch and Waugh 1933).
    """
    alpha = np.linalg.lstsq(projected[1:].T, projected[0], rcond=None)[0]
    return alpha, misfit(projected, alpha)


def misfit(projected: FloatArray, alpha: FloatArray) -> float:
    """The residual sum of squares under any α, from the same projected lags."""
    return float(((projected[0] - alpha @ projected[1:]) ** 2).sum())


def lag_filter(alpha: FloatArray) -> FloatArray:
    """(1, −α): what turns the lags of a series into its part of Eq. (2)'s residual."""
    answer = np.empty(len(alpha) + 1)
    answer[0] = 1.0
    np.negative(alpha, answer[1:])
    return answer


def filtered(projected: FloatArray, alpha: FloatArray) -> FloatArray:
    """Z = (I − Π) τ̂ from the projected lags: lag 0 − Σ α_m lag m."""
    answer: FloatArray = projected[0] - np.tensordot(alpha, projected[1:], axes=1)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The subproblems with every agent's series at hand: one column an agent."""

    projected: FloatArray  # (I − Π) of the lags of each agent's temperature, (M+1) × n × K
    ridge: float
    nonnegative: bool = False  # ξ ≥ 0 exactly

    def sp1(self, weights: FloatArray) -> tuple[FloatArray, float]:
        alpha, rss = sp1(self.projected @ weights)
        return alpha, rss + self.ridge * float(weights @ weights)

    def sp2(self, alpha: FloatArray) -> tuple[FloatArray, float]:
        z = filtered(self.projected, alpha)
        check_ridge_zero(z, self.ridge)
        weights = (nonnegative_weights if self.nonnegative else free_weights)(z, self.ridge)
        return weights, float(((z @ weights) ** 2).sum()) + self.ridge * float(weights @ weights)
