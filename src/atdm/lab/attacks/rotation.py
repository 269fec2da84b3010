"""All temperatures up to one rotation, and how far that rotation is pinned.

`paper`: two uploads with different α (kernel/rotation.py). `moments`: any square root of Σ x_i x_iᵀ.
In either case Y = Y₀R with one orthogonal K × K matrix R, and Y1 = Y₀(R1) tells where the direction 1 went.
"""

from dataclasses import dataclass

import numpy as np

from atdm.kernel.rotation import rotated_ones, unrotate
from atdm.lab.attacks.score import Guess
from atdm.lab.attacks.view import View
from atdm.types import FloatArray

NEGLIGIBLE = 1e-9  # singular values below this share of the largest are rounding
ROUNDING = 1e-12  # of eigenvalues, as a share of the largest
ON_GRID = 0.05  # mean distance from a decimal grid, in its units, below which readings are taken to lie on it
INDEPENDENT = 1e-7  # share of a known direction outside the others, below which it adds nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """Y₀ and what is known about R."""

    series: FloatArray  # Y₀, rows × K                                   [K, centred]
    ones: FloatArray  # R1: the direction of equal weights, in rotated coordinates

    @property
    def agents(self) -> int:
        return int(self.series.shape[1])


def rotate_back(view: View) -> Rotated | None:
    """The closed form; None where the transcript does not hold enough."""
    if moments := view.values("moments", "second"):
        return from_moments(moments[0], view.values("moments", "first")[0], view.public.agents)
    uploads = view.uploads()
    if len(uploads) < 2:
        return None
    first = uploads[0]  # its α is far from all later ones, which are near each other
    second = min(uploads[1:], key=lambda u: float(np.linalg.cond(u.gram) / np.abs(u.alpha - first.alpha).sum()))
    series = unrotate(first, second, view.public.filter_rows(), view.public.train)
    return Rotated(series=series, ones=rotated_ones(second))


def from_moments(second: FloatArray, first: FloatArray, agents: int) -> Rotated:
    """Y₀ = U√Λ of S = UΛUᵀ: the largest K eigenvalues hold everything."""
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    kept = slice(max(0, len(values) - agents), None)
    sound = values[kept] > ROUNDING * values[-1]  # the square root of rounding would look like a series
    series = vectors[:, kept] * np.sqrt(np.where(sound, values[kept], 0.0))
    return Rotated(series=series, ones=coordinates(series, first))


def coordinates(series: FloatArray, total: FloatArray) -> FloatArray:
    """R·w of weights w whose total Y·w is known."""
    return np.asarray(np.linalg.lstsq(series, total[: len(series)], rcond=NEGLIGIBLE)[0], dtype=np.float64)


def procrustes_residual(rotated: FloatArray, truth: FloatArray) -> float:
    """For the scorer: largest |Y − Y₀R| over all orthogonal R. [K]"""
    left, _, right = np.linalg.svd(rotated.T @ truth)
    return float(np.abs(rotated @ (left @ right) - truth).max())


def rotation(rotated: Rotated) -> Guess:
    """Y₀ itself: exact, but every column a mixture of all agents."""
    return Guess(series=rotated.series, scaled=False)


def pinned(view: View, rotated: Rotated) -> Guess:
    """Directions known on both sides fix the rotation on their span: 1, every ξ^(l), and the colluders' own series.

    With K independent ones Y = Y₀A₀A⁻¹ is complete disclosure, with K − 1 up to one reflection, of which the rounder,
    then the smoother series are claimed. With fewer, what lies in the span is all that follows.
    """
    agents = rotated.agents
    known, placed = [np.ones(agents)], [rotated.ones]
    weights, states = view.values("weights", "xi"), view.states()
    for xi, state in zip(weights, states[1:], strict=False):
        known.append(xi)
        placed.append(coordinates(rotated.series, state))
    for colluder in view.colluders:
        known.append(np.eye(agents)[colluder.place])
        placed.append(coordinates(rotated.series, colluder.series))
    a, a0 = _independent(np.column_stack(known), np.column_stack(placed))
    count = a.shape[1]
    answer = rotated.series @ a0 @ np.linalg.pinv(a)
    if count == agents - 1:
        answer = _reflection(rotated.series, a, a0, answer)
    what = "complete disclosure" if count >= agents - 1 else "the rest stays mixed"
    note = f"{count} of {agents} directions pinned: {what}"
    return Guess(series=answer, scaled=count >= agents - 1, note=note)


def _independent(a: FloatArray, a0: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Orthonormal directions among the known ones, the same combinations on both sides (Gram–Schmidt)."""
    basis: list[FloatArray] = []
    placed: list[FloatArray] = []
    for column, column0 in zip(a.T, a0.T, strict=True):
        size = np.linalg.norm(column)
        left, left0 = column / size, column0 / size
        for _ in range(2):  # twice is enough (Kahan)
            for b, b0 in zip(basis, placed, strict=True):
                share = b @ left
                left, left0 = left - share * b, left0 - share * b0
        norm = np.linalg.norm(left)
        if norm > INDEPENDENT:
            basis.append(left / norm)
            placed.append(left0 / norm)
    return np.column_stack(basis), np.column_stack(placed)


def _reflection(series: FloatArray, a: FloatArray, a0: FloatArray, partial: FloatArray) -> FloatArray:
    """The last direction is known up to its sign."""
    last, last0 = (np.linalg.svd(known)[0][:, -1] for known in (a, a0))
    missing = np.outer(series @ last0, last)
    candidates = [partial + missing, partial - missing]
    return min(candidates, key=_unevenness)


def _unevenness(series: FloatArray) -> tuple[float, float]:
    """How far a claim is from readings with few decimals, and how rough it is."""
    off = min(float(np.abs(series * 10**d - np.rint(series * 10**d)).mean()) for d in range(1, 5))
    return (off if off < ON_GRID else 1.0), float(np.abs(np.diff(series, 2, axis=0)).mean())
