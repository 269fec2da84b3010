"""What an agent adds to the next total: from the opened sums, which everybody has, and from its own series alone.

    r_i = ν − Z_iᵀ(Zξ) − λξ_i            this agent's part of the residual ν1 − Gξ of SP_II, Eq. (4)
    raw_i = r_i / ((‖Z_i‖² + λ) ν)       Jacobi's step
    p_i = raw_i/scale within ±clip/√K    its part of the next total Σ p_i x_i

Rule: what a run decides (λ, scale, stop) follows from opened sums alone, in `RidgeLadder` and `next_scale`; an agent's
own numbers enter nothing but its own words.
"""

import math
from dataclasses import dataclass

import numpy as np

from atdm.kernel.descent import RIDGE_GROWTH, Descent, lag_filter
from atdm.kernel.design import Design
from atdm.kernel.span import Span
from atdm.protocol.blind.layouts import LADDER, SQUARE_SUM, part_bound, saturated
from atdm.types import FloatArray

FIRST_SCALE = 0.3
SMALLEST_SHARE = 1e-9  # of rss in ν: below that the residual is rounding
CONTRACTION = 0.7  # of the next direction against the last: less clips homes for nothing, more lets one stand out
REACH = 4.0  # clips: what one home counts for, at most, in the size of a direction


@dataclass(frozen=True, slots=True)
class Look:
    """The descent in the span as all agents find it."""

    descent: Descent
    multiplier: float  # ν
    pull: FloatArray  # what an agent's readings count for in its part of ZᵀZξ
    trials: FloatArray  # weights along the ladder of ridges, one row each; none where weights are free


def look(span: Span, tolerance: float, ridges: FloatArray) -> Look:
    """The whole descent; ridges: the ladder at which signs of weights are wanted."""
    found = span.descend(tolerance)
    pull = span.pull(found.alpha, found.weights)
    trials = span.ladder(ridges, found.weights) if len(ridges) else np.empty((0, len(span)))
    return Look(found, found.objectives[-1], pull, trials)


@dataclass(frozen=True, slots=True)
class OwnSeries:
    """An agent's own side of the model."""

    x: FloatArray  # its temperature, centred                                       [K]
    gram: FloatArray  # inner products of its lags, of their part outside span X

    @classmethod
    def build(cls, x: FloatArray, design: Design) -> "OwnSeries":
        projected = design.projected_lags(x)
        return cls(x, projected @ projected.T)


def residual(found: Look, own: OwnSeries, weight: float, ridge: float) -> tuple[float, float]:
    """(r_i/ν, raw_i)."""
    a, nu = lag_filter(found.descent.alpha), found.multiplier
    r = nu - float(found.pull @ own.x) - ridge * weight
    size = float(a @ own.gram @ a)  # ‖Z_i‖²
    return r / nu, r / ((size + ridge) * nu)


def step_values(
    found: Look, own: OwnSeries, q: FloatArray, ridge: float, scale: float, agents: int, clip: float
) -> tuple[float, dict[str, FloatArray]]:
    """p_i and this agent's words of a step; q: its parts of the totals so far."""
    relative, raw = residual(found, own, float(q @ found.descent.weights), ridge)
    bound = part_bound(agents, clip)
    p = float(saturated(raw / scale, bound))
    values = {
        "total": p * own.x,
        "one": np.array([p]),
        "gram": p * np.array([*q.tolist(), p]),
        "squares": _squares(relative, float(saturated(raw / scale, REACH * bound)), agents=agents),
        "negative": (found.trials @ q < 0).astype(float),
    }
    return p, values


def signs_values(found: Look, own: OwnSeries, q: FloatArray, ridge: float, agents: int) -> dict[str, FloatArray]:
    """This agent's words in the final span."""
    relative, _ = residual(found, own, float(q @ found.descent.weights), ridge)
    return {"squares": _squares(relative, agents=agents), "negative": (found.trials @ q < 0).astype(float)}


def _squares(*values: float, agents: int) -> FloatArray:
    return np.array([saturated(value * value, SQUARE_SUM / agents) for value in values])


def gap(square: float, agents: int) -> float:
    """‖ν1 − Gξ‖/‖ν1‖ from the opened Σ (r_i/ν)²."""
    return math.sqrt(max(square, 0.0) / agents)


def first_scale(span: Span, agents: int) -> float:
    """0.3 √K rss/(λν) or rss/(√K ν²) of equal weights, the smaller: about the size of raw_i where λ is far above
    ‖Z_i‖², and where it is far below and residuals of homes are independent, so that ‖Z_i‖² + λ is about Kν. Too large
    a scale leaves everybody below the clip but one home, at a large λ the liveliest, at a small one the quietest: the
    total would be its series (docs/spec.md §6)."""
    _, nu = span.sp1(np.array([1.0 / span.ones[0]]))
    share = max(1.0 - span.ridge / agents / nu, SMALLEST_SHARE)  # of rss in ν
    return share * min(FIRST_SCALE * math.sqrt(agents) / span.ridge, 1.0 / (math.sqrt(agents) * nu))


def next_scale(scale: float, square: float) -> float:
    """From the opened Σ (raw_i/scale)², to which no home adds more than REACH allows; zero where the descent stands."""
    return CONTRACTION * scale * math.sqrt(max(square, 0.0))


@dataclass(frozen=True, slots=True)
class RidgeLadder:
    """λ·1.1ᵏ, k from the counts of negative weights; powers by repeated multiplication, the same on every machine."""

    base: float
    moves: bool  # nonnegative="ridge"
    k: int = 0

    @property
    def ridge(self) -> float:
        return self._power(self.k)

    def _power(self, k: int) -> float:
        value = self.base
        for _ in range(k):
            value *= RIDGE_GROWTH
        return value

    def rungs(self) -> FloatArray:
        """The ridges at which weights are looked at, from one below to twelve above."""
        return np.array([self._power(max(self.k + j, 0)) for j in LADDER]) if self.moves else np.empty(0)

    def better(self, negative: FloatArray, *, final: bool = False) -> "RidgeLadder":
        """The first ridge of the ladder without a negative weight; one down where there is none here and none below,
        but not in the final span, where λ is to come to rest."""
        if not self.moves:
            return self
        below, *upwards = negative.tolist()
        up = next((j for j, count in enumerate(upwards) if count == 0), LADDER[-1])
        down = 1 if up == 0 and self.k and below == 0 and not final else 0
        return RidgeLadder(self.base, self.moves, self.k + up - down)
