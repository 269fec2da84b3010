"""What follows at once from values that a protocol should not let out: the paper's appendices, and differences.

Pure arithmetic. On the real build the values these attacks need are masked or never sent, and they recover nothing.
"""

from collections.abc import Sequence

import numpy as np

from atdm.kernel.rotation import filter_matrix
from atdm.types import FloatArray, IntArray


def from_filtered(
    alphas: Sequence[FloatArray], filtered: Sequence[FloatArray], rows: IntArray, length: int
) -> FloatArray:
    """Appendix A of the paper: τ̂_i of two iterations give x_i by one least-squares solve (length × agents). [K]"""
    system = np.vstack([filter_matrix(alpha, rows, length) for alpha in alphas])
    return np.asarray(np.linalg.lstsq(system, np.vstack(filtered), rcond=None)[0], dtype=np.float64)


def column_from_outer(outer: FloatArray, bar: FloatArray, weight: float) -> FloatArray:
    """Appendix B: W_i from W_iW_iᵀ up to its sign, and the sign from ξ_i = W_iᵀξ̄."""
    values, vectors = np.linalg.eigh((outer + outer.T) / 2)
    column: FloatArray = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
    return column if (column @ bar) * weight >= 0 else -column


def averaged(uploads: Sequence[FloatArray]) -> FloatArray:
    """Masks drawn as real numbers have a mean: over enough sums of the same value they average out."""
    answer: FloatArray = np.mean(np.stack(uploads), axis=0)
    return answer
