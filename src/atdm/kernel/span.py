"""The descent inside the span of a few weighted sums of agents (DESIGN of `blind`, docs/spec.md §5).

With Q (K × j) a basis of weights and V = YQ the sums it gives, weights ξ = Qc turn Eq. (3) into a problem of j
unknowns: s = Vc, ‖ξ‖² = cᵀ(QᵀQ)c, Σξ = (Qᵀ1)ᵀc = 1. Whoever knows V, QᵀQ and Qᵀ1 can run the whole descent
without asking anybody. Only inner products of the projected lags enter it, so that a new sum costs one row of
products and an iteration a few operations on j × j matrices.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dposv

from atdm.kernel.descent import Descent, descend, lag_filter
from atdm.kernel.design import Design, FloatArray


def solve_positive(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The solution for a small symmetric positive definite matrix, by Cholesky and without ceremony."""
    _, x, info = dposv(matrix, right)
    if info != 0:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    answer: FloatArray = x
    return answer


def squares_of(vector: FloatArray) -> FloatArray:
    """All products of two entries, row by row."""
    return (vector[:, None] * vector).ravel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Subproblems (kernel/descent.py) in the coordinates c of a basis of weighted sums."""

    design: Design
    ridge: float
    sums: tuple[FloatArray, ...]  # columns of V, over the whole window             [°C, centred]
    projected: FloatArray  # (I − Π) of the lags of each sum, (M+1) × n, and room for more sums
    taken: list[int]  # how many sums are in there: a span that is not the longest of them copies them to go on
    products: FloatArray  # inner products of `projected`, j² × (M+1)²
    ones: FloatArray  # Qᵀ1
    gram: FloatArray  # QᵀQ, the identity up to the rounding of the sums

    @classmethod
    def empty(cls, design: Design, ridge: float) -> "Span":
        m1, n = design.order + 1, len(design.rows)
        return cls(
            design=design,
            ridge=ridge,
            sums=(),
            projected=np.empty((0, m1, n)),
            taken=[0],
            products=np.empty((0, m1 * m1)),
            ones=np.empty(0),
            gram=np.empty((0, 0)),
        )

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def series(self) -> FloatArray:
        """V: N × j."""
        return np.array(self.sums).T

    def add(self, total: FloatArray, one: float, row: FloatArray) -> "Span":
        """The basis with one more direction q: its sum Σ q_i x_i, Σ q_i, and (Qᵀq, qᵀq)."""
        j, m1 = len(self), self.design.order + 1
        projected, taken = self.projected, self.taken
        if taken != [j] or len(projected) == j:
            more = np.empty((j + 4, *projected.shape[1:]))
            projected, taken = np.concatenate([projected[:j], more]), [j]
        projected[j] = new = self.design.projected_lags(total)
        taken[0] += 1
        lags = projected[: j + 1].reshape(-1, new.shape[1])
        cross = (lags @ new.T).reshape(j + 1, m1, m1)  # [i, a, b] = R_i,a · new_b
        products = np.empty((j + 1, j + 1, m1 * m1))
        products[:j, :j] = self.products.reshape(j, j, m1 * m1)
        products[:, j] = cross.reshape(j + 1, -1)
        products[j, :] = cross.transpose(0, 2, 1).reshape(j + 1, -1)
        gram = np.empty((j + 1, j + 1))
        gram[:j, :j] = self.gram
        gram[:, j] = gram[j, :] = row
        return Span(
            design=self.design,
            ridge=self.ridge,
            sums=(*self.sums, total),
            projected=projected,
            taken=taken,
            products=products.reshape(-1, m1 * m1),
            ones=np.append(self.ones, one),
            gram=gram,
        )

    def filled(self, series: FloatArray, ones: FloatArray, gram: FloatArray) -> "Span":
        """This design over a whole basis at once: the same sums serve any design of their window."""
        j, m1, n = len(ones), self.design.order + 1, len(self.design.rows)
        flat = self.design.residual(series[self.design.lagged].transpose(2, 0, 1).reshape(j * m1, n))
        return replace(
            self,
            sums=tuple(np.ascontiguousarray(series.T)),
            projected=flat.reshape(j, m1, n),
            taken=[j],
            products=(flat @ flat.T).reshape(j, m1, j, m1).transpose(0, 2, 1, 3).reshape(j * j, m1 * m1),
            ones=ones,
            gram=gram,
        )

    def sp1(self, weights: FloatArray) -> tuple[FloatArray, float]:
        c, m1 = weights, self.design.order + 1
        g = (squares_of(c) @ self.products).reshape(m1, m1)
        alpha = solve_positive(g[1:, 1:], g[1:, 0])
        a = lag_filter(alpha)
        return alpha, float(a @ g @ a + self.ridge * (c @ self.gram @ c))

    def sp2(self, alpha: FloatArray) -> tuple[FloatArray, float]:
        """Also the multiplier ν of Σξ = 1: QᵀGQc = ν Qᵀ1 makes it equal to f2 = cᵀQᵀGQc."""
        matrix = self.filtered_products(alpha) + self.ridge * self.gram  # QᵀGQ
        x = solve_positive(matrix, self.ones)
        c = x / (self.ones @ x)
        return c, float(c @ matrix @ c)

    def weights_at(self, alpha: FloatArray, ridges: FloatArray) -> FloatArray:
        """The weights that SP_II gives at other ridges, one row each."""
        matrices = self.filtered_products(alpha) + ridges[:, None, None] * self.gram
        x = np.linalg.solve(matrices, np.broadcast_to(self.ones[:, None], (len(ridges), len(self), 1)))[:, :, 0]
        answer: FloatArray = x / (x @ self.ones)[:, None]
        return answer

    def filtered_products(self, alpha: FloatArray) -> FloatArray:
        """(ZQ)ᵀ(ZQ)."""
        products: FloatArray = self.products @ squares_of(lag_filter(alpha))
        return products.reshape(len(self), len(self))

    def descend(self, tolerance: float, start: FloatArray | None = None, most: int | None = None) -> Descent:
        """From equal weights, which are the first direction of the basis, or from an earlier answer in fewer sums."""
        first = np.zeros(len(self))
        if start is None:
            first[0] = 1.0 / self.ones[0]
        else:
            first[: len(start)] = start
        return descend(self, first, tolerance, most)

    def residual_series(self, alpha: FloatArray, c: FloatArray) -> FloatArray:
        """Zξ, the residual of Eq. (2) over the training rows.  [°C]"""
        each = c[:, None] * lag_filter(alpha)  # of every lag of every sum
        lags = self.projected[: len(self)].reshape(each.size, -1)
        answer: FloatArray = each.ravel() @ lags
        return answer

    def state(self, c: FloatArray) -> FloatArray:
        """s = Vc over the whole window.  [°C, centred]"""
        answer: FloatArray = self.series @ c
        return answer
