"""Readings are stored with few decimals, so the rotated series are points of a rotated grid: lattice reduction turns
them back.

The differences of the rows of Y are integer vectors times the smallest unit q of the readings; those of Y₀ = YRᵀ are
the same vectors, rotated. Enough of them generate the whole grid, whose shortest vectors are q·e_iRᵀ, one for each
agent. LLL finds first the integer relations among the rows, then a reduced basis of the grid (Nguyen and Stern 1997);
a grid is an easy lattice and LLL usually ends on its axes. Rounding all rows to the basis found makes it exact.
Neither q nor anything about the readings needs to be known.
"""

from typing import Any

import numpy as np

from atdm.errors import UsageError
from atdm.lab.attacks.rotation import NEGLIGIBLE, Rotated
from atdm.lab.attacks.score import Guess
from atdm.types import FloatArray, IntArray

LARGEST = 100  # agents; above that LLL takes longer than an audit should
SCALES = (1e9, 1e8, 1e10)  # units per kelvin in which rows are rounded: above the relations, below the noise
EXTRA = 1.5  # further rows for each agent; more of them make the relations shorter
PRIME = 2**31 - 1
GROW = 3  # times rows are added
OUTSIDE = 0.25  # from an integer, at least, for a row to count as outside the lattice
WHOLE = 0.1  # from an integer, at most, for a row to count as on the grid
ORTHOGONAL = 1e-4  # cosine between two axes of a grid, at most


def integer_matrix(rows: list[list[int]]) -> Any:
    try:
        from fpylll import IntegerMatrix  # type: ignore[attr-defined]
    except ImportError:
        raise UsageError('the lattice attacks need fpylll: pip install "atdm[audit]"') from None
    return IntegerMatrix.from_matrix(rows)


def lll(rows: list[list[int]], delta: float = 0.99) -> list[list[int]]:
    """A reduced basis, shortest vectors first as far as LLL goes."""
    matrix = integer_matrix(rows)
    from fpylll import LLL  # type: ignore[attr-defined]

    LLL.reduction(matrix, delta=delta)
    return [list(row) for row in matrix]


def bkz(rows: list[list[int]], block: int) -> list[list[int]]:
    """A basis reduced further than LLL does."""
    matrix = integer_matrix(rows)
    from fpylll import BKZ  # type: ignore[attr-defined]

    BKZ.reduction(matrix, BKZ.Param(block_size=min(block, len(rows)), max_loops=8, flags=BKZ.MAX_LOOPS))
    return [list(row) for row in matrix]


def relations(points: FloatArray, scale: float) -> IntArray | None:
    """A unimodular integer matrix T that takes real vectors (n × d) to n − d zeros and a basis of their lattice; None
    where its entries are so large that there is no lattice to speak of."""
    count, dimension = points.shape
    rounded = np.rint(points * scale)
    rows = [[int(v) for v in row] + [int(i == k) for k in range(count)] for i, row in enumerate(rounded)]
    found = [row[dimension:] for row in lll(rows)]
    if max(abs(v) for row in found for v in row) >= 2**62:
        return None
    return np.array(found, dtype=np.int64)


def integer_inverse(matrix: IntArray) -> FloatArray:
    """The inverse of a unimodular matrix, by elimination modulo a prime: exact for entries below half of it."""
    size = len(matrix)
    work = np.hstack([matrix % PRIME, np.eye(size, dtype=np.int64)])
    for k in range(size):
        pivot = k + int(np.flatnonzero(work[k:, k])[0])
        work[[k, pivot]] = work[[pivot, k]]
        work[k] = work[k] * pow(int(work[k, k]), -1, PRIME) % PRIME
        others = work[:, k].copy()
        others[k] = 0
        work = (work - others[:, None] * work[k] % PRIME) % PRIME
    inverse = work[:, size:]
    return np.where(inverse > PRIME // 2, inverse - PRIME, inverse).astype(float)


def grid(rotated: Rotated, scales: tuple[float, ...] = SCALES) -> Guess:
    """Every agent's series, exactly, where the readings lie on any grid; nothing where they do not."""
    agents = rotated.agents
    if agents > LARGEST:
        return Guess(series=np.empty((0, 0)), note=f"not tried above {LARGEST} agents")
    _, sizes, right = np.linalg.svd(rotated.series, full_matrices=False)
    inside = right[: int((sizes > NEGLIGIBLE * sizes[0]).sum())].T  # agents with equal series leave a smaller space
    points = rotated.series @ inside
    steps = points[1:] - points[:-1]
    chosen = _short_rows(steps, int((1 + EXTRA) * steps.shape[1]))
    for scale in scales:
        basis = _whole_basis(steps, chosen, scale)
        if basis is not None and (exact := _refined(basis, steps)) is not None:
            return _axes(rotated, inside, exact)
    return Guess(series=np.empty((0, 0)), note="no grid found")


def _short_rows(steps: FloatArray, count: int) -> IntArray:
    """Distinct short differences: short ones make short relations."""
    norms = np.linalg.norm(steps, axis=1)
    order = np.argsort(norms, kind="stable")
    order = order[norms[order] > NEGLIGIBLE * norms.max()]
    _, first = np.unique(np.round(np.abs(norms[order]) / norms.max(), 9), return_index=True)
    answer: IntArray = order[np.sort(first)][:count].astype(np.int64)
    return answer


def _whole_basis(steps: FloatArray, chosen: IntArray, scale: float) -> FloatArray | None:
    """The lattice of the chosen rows, and of rows that turn out not to lie in it."""
    basis = _basis(steps[chosen], scale)
    order = np.argsort(np.linalg.norm(steps, axis=1))[: max(len(steps) // 2, 4 * steps.shape[1])]
    for _ in range(GROW):
        if basis is None or np.linalg.matrix_rank(basis) < len(basis):
            return None
        coefficients = np.linalg.solve(basis.T, steps[order].T).T
        off = np.abs(coefficients - np.rint(coefficients)).max(axis=1)
        outside = order[off > OUTSIDE][: len(basis)]
        if len(outside) == 0:
            return basis
        basis = _basis(np.vstack([basis, steps[outside]]), scale)
    return basis


def _basis(chosen: FloatArray, scale: float) -> FloatArray | None:
    """A reduced basis of the lattice that the chosen rows generate; its rows are lattice vectors. [K]"""
    turn = relations(chosen, scale)
    if turn is None:
        return None
    # T·rows = [0; basis], so the rows are T⁻¹'s last columns times the basis: integers, which average the noise out
    basis = np.linalg.lstsq(integer_inverse(turn)[:, -chosen.shape[1] :], chosen, rcond=None)[0]
    if np.linalg.matrix_rank(basis) < len(basis):
        return None
    fine = 2.0**40 / np.abs(basis).max()
    again = lll([[int(v) for v in row] for row in np.rint(basis * fine)], delta=0.999)
    reduced: FloatArray = np.array(again, dtype=float) / fine
    return reduced


def _refined(basis: FloatArray, steps: FloatArray) -> FloatArray | None:
    """All rows are integer combinations of the basis: solve for the basis that makes them so, short rows first."""
    order = np.argsort(np.linalg.norm(steps, axis=1))
    for share in (0.25, 0.5, 1.0, 1.0):
        rows = steps[order[: max(int(share * len(order)), 2 * len(basis))]]
        try:
            coefficients = np.linalg.solve(basis.T, rows.T).T
        except np.linalg.LinAlgError:
            return None
        whole = np.rint(coefficients)
        off = np.abs(coefficients - whole).max(axis=1)
        sound = off < WHOLE if share == 1.0 else off < 0.35
        if sound.mean() < 0.9 or np.linalg.matrix_rank(whole[sound]) < len(basis):
            return None
        basis = np.asarray(np.linalg.lstsq(whole[sound], rows[sound], rcond=None)[0], dtype=np.float64)
    return basis


def _axes(rotated: Rotated, inside: FloatArray, basis: FloatArray) -> Guess:
    """Axes of the grid are the agents: R1 tells sign, scale and how many agents share one axis."""
    units = basis / np.linalg.norm(basis, axis=1)[:, None]
    cosines = np.abs(units @ units.T) - np.eye(len(units))
    axes = units[(cosines < ORTHOGONAL).all(axis=1)]
    if len(axes) == 0:
        return Guess(series=np.empty((0, 0)), note="a lattice was found, but not its axes")
    directions = inside @ axes.T  # K × m, in rotated coordinates
    along = rotated.ones @ directions  # ±√k where k agents have the same series
    sound = np.abs(along) > 0.5
    copies = np.rint(along[sound] ** 2).astype(int)
    series = rotated.series @ directions[:, sound] / along[sound]
    unit = float(np.linalg.norm(basis, axis=1).min())
    note = f"{len(axes)} of {len(basis)} axes of a grid of {unit:.2g} K found"
    return Guess(series=np.repeat(series, copies, axis=1), note=note)
