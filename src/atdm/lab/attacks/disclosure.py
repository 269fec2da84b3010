"""What follows at once from values that a protocol should not let out: the paper's appendices, and differences.

Pure arithmetic. On the real build the values these attacks need are masked or never sent, and they recover nothing.
"""

from collections.abc import Sequence

import numpy as np

from atdm.kernel.rotation import Upload, filter_matrix, rotated
from atdm.lab.attacks.rotation import Rotated
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


def from_states(with_all: FloatArray, without_one: FloatArray, weight: float) -> FloatArray:
    """SP_I with and without one agent under the same weights: the difference is ξ_i x_i, and ξ_i was sent back."""
    answer: FloatArray = (with_all - without_one) / weight
    return answer


def from_gram(complete: Rotated, later: Upload, rows: IntArray) -> FloatArray:
    """One agent gone after two iterations: the Gram matrix of τ̂ lost its τ̂_iτ̂_iᵀ, of rank one (up to sign). [K]

    F YYᵀFᵀ is known for every filter F from the closed form; the later upload gives the same for those who stayed.
    """
    filtered = filter_matrix(later.alpha, rows, len(complete.series)) @ complete.series
    stayed = rotated(later)
    # Gram matrices in the coordinates of Y₀: I − P Pᵀ has rank one, its vector is where the agent's axis went
    left = np.linalg.lstsq(filtered, stayed, rcond=None)[0]
    values, vectors = np.linalg.eigh(np.eye(complete.agents) - left @ left.T)
    axis = vectors[:, -1]
    along = float(complete.ones @ axis)
    answer: FloatArray = complete.series @ axis * (1.0 if along >= 0 else -1.0)
    return answer


def averaged(uploads: Sequence[FloatArray]) -> FloatArray:
    """Masks drawn as real numbers have a mean: over enough sums of the same value they average out."""
    answer: FloatArray = np.mean(np.stack(uploads), axis=0)
    return answer
