"""What two transformed uploads determine: all series, up to one rotation (docs/paper.md, "The closed form").

With D1 = WWᵀ = SSᵀ (Cholesky) and W = SQ, Q orthogonal, the upload D2 = τ̂Wᵀ gives E = D2 S⁻ᵀ = τ̂Qᵀ. Two uploads
with different α are linear in what is left: F_1 Y Q_2ᵀ = E_1 R and F_2 Y Q_2ᵀ = E_2 with R = Q_1Q_2ᵀ. No hard problem
is involved: one least-squares solve.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lstsq, null_space, solve_triangular

from atdm.kernel.descent import lag_filter
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
