"""The descent inside the span of a few weighted sums of agents (docs/spec.md §5).

With Q (K × j) the weights of j sums and V = YQ the sums, weights ξ = Qc turn Eq. (3) into a problem of j unknowns:
s = Vc, ‖ξ‖² = cᵀ(QᵀQ)c, Σξ = (Qᵀ1)ᵀc = 1. Whoever knows V, QᵀQ and Qᵀ1 can run the whole descent without asking
anybody. Only inner products of the projected lags enter it, so that a new sum costs one row of products and an
iteration a few operations on j × j matrices. Nothing is orthogonalised: QᵀQ takes care of that.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dposv

from atdm.kernel.descent import MAX_ITERATIONS, Descent, RidgeLadder, descend, lag_filter
from atdm.kernel.design import Design
from atdm.types import FloatArray

SETTLED = 1e-10  # change of the weights, relative to the largest, below which `ladder` stops


def solve_positive(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The solution for a small symmetric positive definite matrix, by Cholesky; LAPACK is called directly."""
    _, x, info = dposv(matrix, right)
    if info != 0:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    answer: FloatArray = x
    return answer


def squares_of(vectors: FloatArray) -> FloatArray:
    """All products of two entries of a vector, row by row; of each vector where there are several."""
    if vectors.ndim == 1:
        return np.multiply.outer(vectors, vectors).ravel()
    return (vectors[..., :, None] * vectors[..., None, :]).reshape(*vectors.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class Look:
    """A descent in a span, and what whoever has a column of its own needs of it."""

    descent: Descent
    multiplier: float  # ν
    pull: FloatArray  # what a column counts for in its part of ZᵀZξ
    trials: FloatArray  # weights along a ladder of ridges, one row each; none where weights are free


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Subproblems (kernel/descent.py) in the coordinates c of a few weighted sums."""

    design: Design
    ridge: float
    sums: tuple[FloatArray, ...]  # the columns of V, over the whole window         [°C, centred]
    projected: tuple[FloatArray, ...]  # (I − Π) of the lags of each sum, (M+1) × n
    products: FloatArray  # inner products of `projected`, j² × (M+1)²; λQᵀQ added to those of lag 0 with lag 0, where
    # the filter (1, −α) is one: λ‖ξ‖² is then part of every sum of squares
    ones: FloatArray  # Qᵀ1
    gram: FloatArray  # QᵀQ

    @classmethod
    def empty(cls, design: Design, ridge: float) -> "Span":
        products = np.empty((0, (design.order + 1) ** 2))
        return cls(
            design=design, ridge=ridge, sums=(), projected=(), products=products, ones=np.empty(0),
            gram=np.empty((0, 0)),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ones)

    def add(self, total: FloatArray, one: float, row: FloatArray) -> "Span":
        """With one more sum Σ p_i x_i: also Σ p_i, and (Qᵀp, pᵀp)."""
        j, m1 = len(self), self.design.order + 1
        new = self.design.projected_lags(total)
        projected = (*self.projected, new)
        products = np.empty((j + 1, j + 1, m1, m1))
        products[:j, :j] = self.products.reshape(j, j, m1, m1)
        for k, lags in enumerate(projected):
            products[k, j] = lags.dot(new.T)
        products[:, j, 0, 0] += self.ridge * row
        products[j] = products[:, j].transpose(0, 2, 1)
        gram, ones = np.empty((j + 1, j + 1)), np.empty(j + 1)
        gram[:j, :j], ones[:j] = self.gram, self.ones
        gram[:, j], gram[j, :], ones[j] = row, row, one
        return Span(
            design=self.design, ridge=self.ridge, sums=(*self.sums, total), projected=projected,
            products=products.reshape(-1, m1 * m1), ones=ones, gram=gram,
        )  # fmt: skip

    def with_ridge(self, ridge: float) -> "Span":
        """The same sums with another λ."""
        if ridge == self.ridge:
            return self
        products = self.products.copy()
        products[:, 0] += (ridge - self.ridge) * self.gram.ravel()
        return replace(self, ridge=ridge, products=products)

    def sp1(self, weights: FloatArray) -> tuple[FloatArray, float]:
        m1 = self.design.order + 1
        g = squares_of(weights).dot(self.products).reshape(m1, m1)
        alpha = solve_positive(g[1:, 1:], g[1:, 0])
        return alpha, float(g[0, 0] - alpha.dot(g[1:, 0]))  # what least squares leaves of (1, −α)ᵀ g (1, −α)

    def sp2(self, alpha: FloatArray) -> tuple[FloatArray, float]:
        """Also the multiplier ν of Σξ = 1: QᵀGQc = ν Qᵀ1 makes it equal to f2 = cᵀQᵀGQc."""
        matrix = self.products.dot(squares_of(lag_filter(alpha))).reshape(len(self), len(self))  # QᵀGQ
        x = solve_positive(matrix, self.ones)
        total = self.ones.dot(x)
        return x / total, float(1.0 / total)

    def descend(self, tolerance: float) -> Descent:
        """From equal weights, which are the first sum."""
        first = np.zeros(len(self))
        first[0] = 1.0 / self.ones[0]
        return descend(self, first, tolerance)

    def look(self, tolerance: float, ladder: RidgeLadder) -> "Look":
        """The whole descent, and the weights along the ladder, whose signs are wanted."""
        found, ridges = self.descend(tolerance), ladder.rungs()
        trials = self.ladder(ridges, found.weights) if len(ridges) else np.empty((0, len(self)))
        return Look(found, found.objectives[-1], self.pull(found.alpha, found.weights), trials)

    def ladder(self, ridges: FloatArray, start: FloatArray) -> FloatArray:
        """The weights at which the descent ends for each of several ridges, one row each, all at once from `start`."""
        j, m1, count = len(self), self.design.order + 1, len(ridges)
        penalty = (ridges - self.ridge)[:, None, None] * self.gram
        ones = np.broadcast_to(self.ones[:, None], (count, j, 1))
        a = np.ones((count, m1))
        c = np.broadcast_to(start, (count, j))
        for _ in range(MAX_ITERATIONS):
            g = (squares_of(c) @ self.products).reshape(count, m1, m1)
            a[:, 1:] = -np.linalg.solve(g[:, 1:, 1:], g[:, 1:, :1])[:, :, 0]  # SP_I
            z = (squares_of(a) @ self.products.T).reshape(count, j, j)
            x = np.linalg.solve(z + penalty, ones)[:, :, 0]  # SP_II
            before, c = c, x / (x @ self.ones)[:, None]
            if np.abs(c - before).max() <= SETTLED * np.abs(c).max():
                break
        return c

    def residual_series(self, alpha: FloatArray, c: FloatArray) -> FloatArray:
        """Zξ, the residual of Eq. (2) over the training rows.  [°C]"""
        each = c[:, None] * lag_filter(alpha)  # of every lag of every sum
        answer: FloatArray = each[0] @ self.projected[0]
        for factors, lags in zip(each[1:], self.projected[1:], strict=True):
            answer += factors @ lags
        return answer

    def pull(self, alpha: FloatArray, c: FloatArray) -> FloatArray:
        """What each reading of an agent counts for in its part of ZᵀZξ, over the whole window: Z_iᵀ(Zξ) = pull·x_i.
        The lags of Z_i are moved over to Zξ; projecting them as well would change nothing, for Zξ is projected."""
        error = self.residual_series(alpha, c)
        spread = np.zeros(len(self.sums[0]))
        spread[self.design.rows] = error
        answer: FloatArray = np.correlate(spread, lag_filter(alpha), "full")[self.design.order :]
        return answer

    def state(self, c: FloatArray) -> FloatArray:
        """s = Vc over the whole window, the same bits on every machine: only products and sums of two numbers, in one
        order, and no library that may choose another.  [°C, centred]"""
        answer: FloatArray = c[0] * self.sums[0]
        for weight, series in zip(c[1:], self.sums[1:], strict=True):
            answer = answer + weight * series
        return answer
