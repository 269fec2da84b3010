"""The descent inside the span of a few weighted sums of agents (DESIGN of `blind`, docs/spec.md §5).

With Q (K × j) a basis of weights and V = YQ the sums it gives, weights ξ = Qc turn Eq. (3) into a problem of j
unknowns: s = Vc, ‖ξ‖² = cᵀ(QᵀQ)c, Σξ = (Qᵀ1)ᵀc = 1. Whoever knows V, QᵀQ and Qᵀ1 can run the whole descent
without asking anybody. Only inner products of the projected lags enter it, so that a new sum costs one row of
products and an iteration a few operations on j × j matrices.
"""

from dataclasses import dataclass, replace

import numpy as np

from atdm.kernel.descent import Descent, descend
from atdm.kernel.design import Design, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Subproblems (kernel/descent.py) in the coordinates c of a basis of weighted sums."""

    design: Design
    ridge: float
    series: FloatArray  # V: N × j, over the whole window                           [°C, centred]
    projected: FloatArray  # (I − Π) of the lags of each sum, j × (M+1) × n
    products: FloatArray  # inner products of `projected`, j × j × (M+1)²
    ones: FloatArray  # Qᵀ1
    gram: FloatArray  # QᵀQ, the identity up to the rounding of the sums

    @classmethod
    def empty(cls, design: Design, length: int, ridge: float) -> "Span":
        m1, n = design.order + 1, len(design.rows)
        return cls(
            design=design,
            ridge=ridge,
            series=np.empty((length, 0)),
            projected=np.empty((0, m1, n)),
            products=np.empty((0, 0, m1 * m1)),
            ones=np.empty(0),
            gram=np.empty((0, 0)),
        )

    def __len__(self) -> int:
        return len(self.ones)

    def add(self, total: FloatArray, one: float, row: FloatArray) -> "Span":
        """The basis with one more direction q: its sum Σ q_i x_i, Σ q_i, and (Qᵀq, qᵀq)."""
        j, m1 = len(self), self.design.order + 1
        new = self.design.projected_lags(total)
        projected = np.concatenate([self.projected, new[None]])
        cross = (projected.reshape(-1, new.shape[1]) @ new.T).reshape(j + 1, m1, m1)  # [i, a, b] = R_i,a · new_b
        products = np.empty((j + 1, j + 1, m1 * m1))
        products[:j, :j] = self.products
        products[:, j] = cross.reshape(j + 1, -1)
        products[j, :] = cross.transpose(0, 2, 1).reshape(j + 1, -1)
        gram = np.empty((j + 1, j + 1))
        gram[:j, :j] = self.gram
        gram[:, j] = gram[j, :] = row
        return replace(
            self,
            series=np.column_stack([self.series, total]),
            projected=projected,
            products=products,
            ones=np.append(self.ones, one),
            gram=gram,
        )

    def filled(self, series: FloatArray, ones: FloatArray, gram: FloatArray) -> "Span":
        """This design over a whole basis at once: the same sums serve any design of their window."""
        j, m1, n = len(ones), self.design.order + 1, len(self.design.rows)
        lags = series[self.design.lagged].reshape(n, m1 * j)  # column (m, i): lag m of sum i
        projected = np.ascontiguousarray(self.design.residual(lags).T.reshape(m1, j, n).transpose(1, 0, 2))
        flat = projected.reshape(j * m1, n)
        products = (flat @ flat.T).reshape(j, m1, j, m1).transpose(0, 2, 1, 3).reshape(j, j, m1 * m1)
        return replace(self, series=series, projected=projected, products=products, ones=ones, gram=gram)

    def sp1(self, weights: FloatArray) -> tuple[FloatArray, float]:
        c, j, m1 = weights, len(self), self.design.order + 1
        g = (c @ (c @ self.products.reshape(j, -1)).reshape(j, -1)).reshape(m1, m1)
        alpha = np.asarray(np.linalg.solve(g[1:, 1:], g[1:, 0]), dtype=np.float64)
        rss = g[0, 0] - 2 * alpha @ g[1:, 0] + alpha @ g[1:, 1:] @ alpha
        return alpha, float(rss + self.ridge * (c @ self.gram @ c))

    def sp2(self, alpha: FloatArray) -> tuple[FloatArray, float]:
        matrix = self.normal_matrix(alpha)
        x = np.linalg.solve(matrix, self.ones)
        c = x / (self.ones @ x)
        return c, float(c @ matrix @ c)

    def normal_matrix(self, alpha: FloatArray) -> FloatArray:
        """QᵀGQ = (ZQ)ᵀ(ZQ) + λ QᵀQ."""
        a = np.concatenate([[1.0], -alpha])
        matrix: FloatArray = self.products @ np.outer(a, a).ravel() + self.ridge * self.gram
        return matrix

    def descend(self, tolerance: float, start: FloatArray | None = None, most: int | None = None) -> Descent:
        """From equal weights, which are the first direction of the basis, or from an earlier answer in fewer sums."""
        first = np.zeros(len(self))
        if start is None:
            first[0] = 1.0 / self.ones[0]
        else:
            first[: len(start)] = start
        return descend(self, first, tolerance, most)

    def multiplier(self, alpha: FloatArray, c: FloatArray) -> float:
        """ν of the constraint Σξ = 1: where c is optimal, QᵀGQc = ν Qᵀ1."""
        return float(c @ self.normal_matrix(alpha) @ c)

    def residual_series(self, alpha: FloatArray, c: FloatArray) -> FloatArray:
        """Zξ, the residual of Eq. (2) over the training rows.  [°C]"""
        lags = np.tensordot(c, self.projected, axes=1)
        answer: FloatArray = lags[0] - alpha @ lags[1:]
        return answer

    def state(self, c: FloatArray) -> FloatArray:
        """s = Vc over the whole window.  [°C, centred]"""
        answer: FloatArray = self.series @ c
        return answer
