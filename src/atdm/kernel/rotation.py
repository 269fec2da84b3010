"""What two transformed uploads determine: all series, up to one rotation (docs/paper.md, "The closed form").

With D1 = WWᵀ = SSᵀ (Cholesky) and W = SQ, Q orthogonal, the upload D2 = τ̂Wᵀ gives E = D2 S⁻ᵀ = τ̂Qᵀ. Two uploads
with different α are linear in what is left: F_1 Y Q_2ᵀ = E_1 R and F_2 Y Q_2ᵀ = E_2 with R = Q_1Q_2ᵀ. No hard problem
is involved: one least-squares solve.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lstsq, null_space, solve_triangular

from atdm.kernel.descent import Columns, filtered, lag_filter
from atdm.kernel.design import Design
from atdm.kernel.weights import solve_ones
from atdm.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Upload:
    """What the aggregator sees of one transformed SP_II."""

    alpha: FloatArray
    gram: FloatArray  # D1 = WWᵀ
    ones: FloatArray  # d2 = W1
    series: FloatArray  # D2 = τ̂Wᵀ, n × K

    @property
    def root(self) -> FloatArray:
        """S of D1 = SSᵀ."""
        return np.asarray(np.linalg.cholesky((self.gram + self.gram.T) / 2), dtype=np.float64)

    def transformed(self, weights: FloatArray) -> FloatArray:
        """ξ̄ = S⁻ᵀ Qξ from rotated weights Qξ."""
        answer: FloatArray = solve_triangular(self.root, weights, lower=True, trans="T")
        return answer


def rotated(upload: Upload) -> FloatArray:
    """E = D2 S⁻ᵀ = τ̂Qᵀ."""
    answer: FloatArray = solve_triangular(upload.root, upload.series.T, lower=True).T
    return answer


def rotated_ones(upload: Upload) -> FloatArray:
    """Q1 = S⁻¹ d2."""
    answer: FloatArray = solve_triangular(upload.root, upload.ones, lower=True)
    return answer


def filter_matrix(alpha: FloatArray, rows: IntArray, length: int) -> FloatArray:
    """F_α: a series over `length` rows → x_t − Σ α_m x_{t−m} at the given rows."""
    matrix = np.zeros((len(rows), length))
    at = np.arange(len(rows))
    for m, a in enumerate(lag_filter(alpha)):
        matrix[at, rows - m] = a
    return matrix


def unrotate(first: Upload, second: Upload, rows: IntArray, length: int) -> FloatArray:
    """Y Q_2ᵀ: every series over the training rows, in the rotated coordinates of the second upload (length × K)."""
    e1, e2 = rotated(first), rotated(second)
    f1, f2 = filter_matrix(first.alpha, rows, length), filter_matrix(second.alpha, rows, length)
    back, free = np.linalg.lstsq(f1, e1, rcond=None)[0], null_space(f1)
    # F_2 (F_1⁺E_1 R + N B) = E_2, linear in R (K × K) and B; N spans what F_1 cannot see
    solution = lstsq(np.hstack([f2 @ back, f2 @ free]), e2)[0]
    agents = e1.shape[1]
    answer: FloatArray = back @ solution[:agents] + free @ solution[agents:]
    return answer


def transformed_weights(design: Design, upload: Upload, ridge: float) -> FloatArray:
    """ξ̄ of the transformed SP_II: min ‖(I−Π)D2 ξ̄‖² + λ ξ̄ᵀD1ξ̄ with d2ᵀξ̄ = 1."""
    z = design.residual(upload.series.T).T
    x = np.linalg.solve(z.T @ z + ridge * upload.gram, upload.ones)
    answer: FloatArray = x / (upload.ones @ x)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedColumns:
    """The subproblems in rotated coordinates: as Columns, but Σξ = 1 reads (Q1)ᵀ(Qξ) = 1."""

    projected: FloatArray  # (I − Π) of the lags of each rotated column, (M+1) × n × K
    ridge: float
    ones: FloatArray  # Q1

    @classmethod
    def build(cls, design: Design, ridge: float, first: Upload, second: Upload, length: int) -> "RotatedColumns":
        """From two uploads; the coordinates are those of the second."""
        projected = design.projected_lags(unrotate(first, second, design.rows, length))
        return cls(projected=projected, ridge=ridge, ones=rotated_ones(second))

    def equal(self) -> FloatArray:
        """ξ_i = 1/K, rotated."""
        answer: FloatArray = self.ones / (self.ones @ self.ones)
        return answer

    def sp1(self, weights: FloatArray) -> tuple[FloatArray, float]:
        return Columns(projected=self.projected, ridge=self.ridge).sp1(weights)

    def sp2(self, alpha: FloatArray) -> tuple[FloatArray, float]:
        z = filtered(self.projected, alpha)
        x = solve_ones(z, self.ridge, self.ones)
        weights = x / (self.ones @ x)
        return weights, float(((z @ weights) ** 2).sum()) + self.ridge * float(weights @ weights)
