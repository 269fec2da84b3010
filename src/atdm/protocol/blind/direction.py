"""What an agent adds to the next total: from the opened sums, which everybody has, and from its own series alone.

    r_i = ν − Z_iᵀ(Zξ) − λξ_i            this agent's part of the residual ν1 − Gξ of SP_II, Eq. (4)
    raw_i = r_i / ((‖Z_i‖² + λ) ν)       Jacobi's step
    p_i = raw_i/scale within ±clip/√K    its part of the next total Σ p_i x_i

Rule: what a run decides (λ, scale, stop) follows from opened sums alone, in `next_scale` and the RidgeLadder of the
kernel; an agent's own numbers enter nothing but its own words.
"""

import math
from dataclasses import dataclass

import numpy as np

from atdm.kernel.descent import lag_filter
from atdm.kernel.design import Design
from atdm.kernel.span import Look, Span
from atdm.protocol.blind.layouts import SQUARE_SUM, part_bound, saturated
from atdm.types import FloatArray

FIRST_SCALE = 0.3
SMALLEST_SHARE = 1e-9  # of rss in ν: below that the residual is rounding
CONTRACTION = 0.7  # of the next direction against the last: less clips homes for nothing, more lets one stand out
REACH = 4.0  # clips: what one home counts for, at most, in the size of a direction


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
