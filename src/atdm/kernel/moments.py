"""The descent from second moments alone: S = Σ x_i x_iᵀ and Σ x_i over time are sufficient for Eq. (3).

By Eq. (4) in kernel form the optimal weights are affine in each agent's own series, ξ_i = x_i·w + b, so that
s = S w + b Σx_i and ‖ξ‖² = wᵀSw + 2b wᵀΣx_i + K b². "Weights" of the descent are here the vector (w, b).
"""

from dataclasses import dataclass

import numpy as np

from atdm.kernel.descent import sp1
from atdm.kernel.design import Design, FloatArray
from atdm.kernel.weights import solve_dual


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
        a = np.concatenate([[1.0], -alpha])
        y = solve_dual(np.einsum("a,b,abij->ij", a, a, self.products, optimize=True), a @ self.projected, self.ridge)
        back = adjoint(self.design, alpha, y, len(self.first))
        nu = self.ridge / (self.agents - self.first @ back)
        weights = np.append(-back, 1.0) * (nu / self.ridge)
        lags = self.design.projected_lags(self.state(weights))
        rss = float(((a @ lags) ** 2).sum())
        return weights, rss + self.ridge * self.square(weights)


def adjoint(design: Design, alpha: FloatArray, values: FloatArray, length: int) -> FloatArray:
    """Aᵀy for A = (I − Π)F_α, the map from a series over the window to its filtered, projected training rows."""
    projected, answer = design.residual(values), np.zeros(length)
    for m, a in enumerate(np.concatenate([[1.0], -alpha])):
        answer[design.rows - m] += a * projected
    return answer
