"""Attacks on the weighted sums that agents of `blind` see: j totals V = YQ of K agents, j < K, with QᵀQ and Qᵀ1.

Source separation on them is in separation.py. Here: extending a zone of which part is known, lattice reduction where
sensors report on a grid (a hidden-subset-sum problem), and what as many totals as agents would give away.
"""

import numpy as np

from atdm.lab.attacks.grid import bkz, grid, lll
from atdm.lab.attacks.rotation import Rotated
from atdm.lab.attacks.score import Guess
from atdm.lab.attacks.separation import separate_rotated
from atdm.lab.attacks.view import View
from atdm.types import FloatArray, IntArray

KNOWN_HOURS = 72  # of a zone that somebody knows anyway, when asking how far totals extend it
NOISES = (2.0**-32, 2.0**-16, 1e-3, 1e-2)  # K; finest detail in the totals that the lattice attack believes
MORE_ROWS = 40  # beyond two for each agent, where there are so many
BLOCK = 20  # of the last reduction
SHORT = 3.0  # a recovered series of steps moves by fewer quanta than this, in the root mean square


def known_rows(hours: float, step_hours: float, length: int) -> int:
    return min(int(hours / step_hours), length // 2)


def extend(seen: FloatArray, known: FloatArray) -> Guess:
    """Every agent's series, supposing its first rows (n × K) are known: regressed on what was seen, then predicted."""
    columns = np.column_stack([np.ones(len(seen)), seen])
    scale = np.linalg.norm(columns, axis=0)
    n = len(known)
    fitted = np.linalg.lstsq(columns[:n] / scale, known, rcond=1e-6)[0]
    rows = np.arange(n, len(seen), dtype=np.int64)
    return Guess(series=(columns / scale @ fitted)[n:], rows=rows, scaled=False, note=f"{n} rows of each zone known")


def subset_sums(view: View) -> list[Guess]:
    """Lattice attack: integer combinations of rows that vanish in all totals vanish in every agent's readings.

    Steps from row to row are small integers times the sensor's quantum. If combinations u with u·V = 0 are short, they
    are orthogonal to the agents' own integer series; the lattice orthogonal to enough of them is spanned by those
    series, and reducing it shows them (Nguyen and Stern 1999; Coron and Gini 2020).
    """
    totals = view.totals()
    hidden = view.public.agents - len(view.colluders)
    if totals.shape[1] == 0:
        return []
    steps = np.diff(totals, axis=0)
    rows = _quiet_rows(steps, hidden)
    return [_orthogonal(steps[rows], rows + 1, hidden, noise) for noise in NOISES]


def unit_steps(view: View) -> Guess:
    """What the lattice attack claims where it is given no total: one step in one row, for each of the rows it takes.
    A sensor that moves once in them is hit by chance."""
    steps = np.diff(view.totals(), axis=0)
    rows = _quiet_rows(steps, view.public.agents - len(view.colluders))
    return Guess(series=np.eye(len(rows)), rows=rows + 1, scaled=False, differences=True)


def _quiet_rows(steps: FloatArray, hidden: int) -> IntArray:
    """Rows in which little happens: small private integers make the problem easy."""
    norms = np.linalg.norm(steps, axis=1)
    moving = np.flatnonzero(norms > 1e-6 * norms.max())
    count = min(len(moving), 2 * hidden + MORE_ROWS if hidden <= 20 else hidden + MORE_ROWS)
    answer: IntArray = np.sort(moving[np.argsort(norms[moving])][:count]).astype(np.int64)
    return answer


def _orthogonal(steps: FloatArray, rows: IntArray, hidden: int, noise: float) -> Guess:
    count = len(steps)
    if count <= hidden + 1:
        return Guess(series=np.empty((0, 0)), note="too few rows")
    scaled = np.rint(steps / noise)
    reduced = lll([[int(v) for v in row] + [int(i == k) for k in range(count)] for i, row in enumerate(scaled)])
    vanishing = np.array([row[steps.shape[1] :] for row in reduced[: count - hidden]], dtype=np.int64)
    weight = 2 ** int(np.ceil(np.log2(count * float(np.abs(vanishing).max()) + 1)) + 10)
    kernel = lll([
        [int(v) * weight for v in vanishing[:, t]] + [int(t == k) for k in range(count)] for t in range(count)
    ])  # fmt: skip
    found = np.array(bkz([row[count - hidden :] for row in kernel[:hidden]], BLOCK), dtype=float)
    short = found[np.sqrt((found**2).mean(axis=1)) < SHORT]
    note = f"{len(short)} short vectors from {steps.shape[1]} totals and {count} rows"
    if len(short) == 0:
        return Guess(series=np.empty((0, 0)), note=note)
    return Guess(series=short.T, rows=rows, scaled=False, differences=True, note=note)


def algebra(view: View) -> list[Guess]:
    """As many totals as honest agents are all temperatures up to a rotation; fewer leave a space of answers."""
    totals, honest = view.totals(), view.public.agents - len(view.colluders)
    if totals.shape[1] < honest:
        note = f"{totals.shape[1]} totals of {honest} agents: not determined"
        return [Guess(series=np.empty((0, 0)), note=note)]
    gram, ones = view.gram()
    sizes, turn = np.linalg.eigh(gram)
    root = turn / np.sqrt(np.maximum(sizes, np.finfo(float).tiny)) @ turn.T  # V(QᵀQ)^−½ is Y, rotated
    rotated = Rotated(series=totals @ root, ones=root @ ones)
    return [grid(rotated, scales=(1e5, 1e4, 1e3, 1e2)), *separate_rotated(rotated)]
