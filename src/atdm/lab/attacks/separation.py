"""Blind source separation: agents behave differently from each other, and a mixture does not look like any of them.

FastICA (Hyvärinen 1999) on differences of the series, where open windows and heating steps stand out. On rotated series
the unmixing matrix must be orthogonal, so the one found is replaced by its polar factor (symmetric orthogonalisation).
"""

import warnings
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from atdm.errors import UsageError
from atdm.lab.attacks.rotation import NEGLIGIBLE, Rotated
from atdm.lab.attacks.score import Guess
from atdm.types import FloatArray

VARIANTS = ((2, "exp"), (2, "logcosh"), (1, "exp"), (1, "logcosh"))  # order of the differences, contrast function
ITERATIONS = 250
LAGS = (1, 2, 3, 4, 6, 8, 12, 24, 48)  # steps; for the joint diagonalisation
SWEEPS = 12


def fast_ica(series: FloatArray, contrast: str) -> FloatArray:
    """Unmixing matrix, columns one component each."""
    try:
        from sklearn.decomposition import FastICA
        from sklearn.exceptions import ConvergenceWarning
    except ImportError:
        raise UsageError('source separation needs scikit-learn: pip install "atdm[audit]"') from None
    model = cast(Any, FastICA)(
        n_components=series.shape[1], whiten="unit-variance", fun=contrast, max_iter=ITERATIONS, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an unfinished attempt is still an attempt
        model.fit(series)
    unmixing: FloatArray = np.asarray(model.components_, dtype=np.float64).T
    return unmixing


def second_order(series: FloatArray) -> FloatArray:
    """Unmixing by joint diagonalisation of lagged covariances (SOBI, Belouchrani et al. 1997), Jacobi rotations."""
    centred = series - series.mean(axis=0)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    white = left * np.sqrt(len(centred))
    lags = [lag for lag in LAGS if lag < len(white) // 2]
    stack = np.stack([white[lag:].T @ white[:-lag] / len(white) for lag in lags])
    stack = (stack + stack.transpose(0, 2, 1)) / 2
    turn = np.eye(len(sizes))
    for _ in range(SWEEPS):
        if _sweep(stack, turn) < 1e-3:
            break
    answer: FloatArray = right.T / sizes @ turn
    return answer


def _sweep(stack: FloatArray, turn: FloatArray) -> float:
    """One Jacobi rotation for each pair; the largest angle."""
    largest = 0.0
    for p in range(len(turn) - 1):
        for q in range(p + 1, len(turn)):
            g = np.stack([stack[:, p, p] - stack[:, q, q], 2 * stack[:, p, q]])
            gg = g @ g.T
            on, off = gg[0, 0] - gg[1, 1], 2 * gg[0, 1]
            angle = 0.5 * float(np.arctan2(off, on + np.hypot(on, off)))
            if abs(angle) > 1e-6:
                c, s = np.cos(angle), np.sin(angle)
                givens = np.array([[c, -s], [s, c]])
                stack[:, :, [p, q]] = stack[:, :, [p, q]] @ givens
                stack[:, [p, q], :] = givens.T @ stack[:, [p, q], :]
                turn[:, [p, q]] = turn[:, [p, q]] @ givens
                largest = max(largest, abs(angle))
    return largest


def unmixings(series: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    for order, contrast in VARIANTS:
        yield f"FastICA, {contrast}, differences of order {order}", fast_ica(np.diff(series, order, axis=0), contrast)
    yield "joint diagonalisation of lagged covariances", second_order(np.diff(series, 2, axis=0))


def polar(matrix: FloatArray) -> FloatArray:
    """The nearest matrix with orthonormal columns, columns scaled to unit length first."""
    left, _, right = np.linalg.svd(matrix / np.linalg.norm(matrix, axis=0), full_matrices=False)
    answer: FloatArray = left @ right
    return answer


def separate_rotated(rotated: Rotated) -> list[Guess]:
    """Candidates for Y from Y₀, one for each variant."""
    _, sizes, right = np.linalg.svd(rotated.series, full_matrices=False)
    inside = right[: int((sizes > NEGLIGIBLE * sizes[0]).sum())].T
    series = rotated.series @ inside
    guesses = []
    for name, unmixing in unmixings(series):
        directions = inside @ polar(unmixing)
        signs = np.where(rotated.ones @ directions < 0, -1.0, 1.0)
        guesses.append(Guess(series=rotated.series @ directions * signs, scaled=False, note=name))
    return guesses


def separate_totals(totals: FloatArray) -> list[Guess]:
    """Candidates for single agents in a few weighted sums of all of them; scale and sign stay open."""
    centred = totals - totals.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    kept = int((sizes > 1e-6 * sizes[0]).sum()) if len(sizes) else 0
    if kept < 2:
        return [Guess(series=totals, scaled=False)]
    series = left[:, :kept] * sizes[:kept]
    guesses = [Guess(series=totals, scaled=False, note="the sums themselves")]
    guesses += [Guess(series=series @ unmixing, scaled=False, note=name) for name, unmixing in unmixings(series)]
    return guesses
