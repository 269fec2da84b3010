"""Lags, season and projection: the public side of Eq. (2).

Everything here follows from the weather, the load total and the clock, which all parties know.
Rule: no lag crosses a gap. Rows are numbered along the kept samples; `segment` says which belong together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgeqp3, dorgqr

from atdm.errors import DataError, UsageError
from atdm.types import FloatArray, IntArray

REFERENCE_TEMP = 20.0  # °C; indoor temperatures are centred here: smaller numbers, absorbed by the season since Σξ = 1
DEPENDENT = 1e-10  # a column whose part outside the others is below this share of its norm counts as dependent


class Input(NamedTuple):
    """One input of Eq. (2), known to everybody, and the coefficients of its lags."""

    name: str  # of its series, in Inputs
    coefficient: str  # of its M+1 coefficients, in Coefficients
    symbol: str
    unit: str  # of a coefficient
    backwards: str  # what a response of the wrong sign says


INPUTS = (
    Input("load", "beta", "β", "K/kW", "more heat cools"),
    Input("outdoor", "gamma", "γ", "-", "warmer weather cools"),
    Input("solar", "theta", "θ", "K m²/kW", "more sun cools"),
)
LAGGED = ("alpha", *(i.coefficient for i in INPUTS))  # coefficients that belong to lags, in the order of Eq. (2)
COEFFICIENTS = (*LAGGED, "occupancy")
SYMBOLS = {"alpha": "α", **{i.coefficient: i.symbol for i in INPUTS}, "occupancy": "occ"}
UNITS = {"alpha": "-", **{i.coefficient: i.unit for i in INPUTS}, "occupancy": "K"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What everybody knows about the window, row by row, and how it is split.

    Parameters
    ----------
    load : array of float
        h: heating power of the whole cluster [kW].
    outdoor : array of float
        o: outdoor temperature [°C].
    solar : array of float
        r: solar irradiance [kW/m²].
    phase : array of int
        Index of each row in the season, 0 … P − 1.
    segment : array of int
        Number of the gap-free segment of each row.
    period : int
        P: steps in one season.
    train : int
        Rows 0 … train − 1 are for training, the rest for testing.
    """

    load: FloatArray
    outdoor: FloatArray
    solar: FloatArray
    phase: IntArray
    segment: IntArray
    period: int
    train: int

    def __len__(self) -> int:
        return len(self.phase)

    def series(self) -> Iterator[FloatArray]:
        """In the order of INPUTS."""
        return (getattr(self, i.name) for i in INPUTS)

    def between(self, start: int, stop: int, train: int = 0) -> "Inputs":
        """Some of the rows alone.

        Parameters
        ----------
        start : int
            First row.
        stop : int
            Row after the last.
        train : int, default 0
            How many of them are for training.

        Returns
        -------
        Inputs
            The same inputs on these rows.
        """
        part = slice(start, stop)
        cut = {f.name: getattr(self, f.name)[part] for f in fields(self) if f.name not in ("period", "train")}
        return replace(self, train=train, **cut)

    def training_part(self) -> "Inputs":
        """The training rows alone; the others are cut off, so that no estimate can use them."""
        return self.between(0, self.train, self.train)


def train_rows(rows: int, share: float) -> int:
    """Rows of the training part; `round` takes away what 0.29 · 100 = 28.999… leaves."""
    return int(round(rows * share, 9))


def parameter_count(order: int, period: int) -> int:
    """Free parameters of Eq. (2) beside the weights."""
    return order + len(INPUTS) * (order + 1) + period


def lagged_rows(segment: IntArray, order: int, start: int, stop: int) -> IntArray:
    """Rows of [start, stop) that have `order` predecessors in the same part and the same segment."""
    before, here = segment[start : max(stop - order, start)], segment[start + order : stop]
    return start + order + np.flatnonzero(before == here)


def forcing_columns(inputs: Inputs, rows: IntArray, order: int) -> FloatArray:
    """[lags of h | lags of o | lags of r] at the given rows: the inputs of Eq. (2) without the season."""
    lagged = rows - np.arange(order + 1)[:, None]
    return np.concatenate([values[lagged] for values in inputs.series()]).T


def seasonal_means(series: FloatArray, phase: IntArray, counts: IntArray) -> FloatArray:
    """The projection of series (k × n) on the seasonal dummies: their mean at each season step, of which there are
    `counts` rows each."""
    sums = np.array([np.bincount(phase, values, len(counts)) for values in series])
    return (sums / np.maximum(counts, 1)).take(phase, axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """X = [lags of h, o, r | seasonal dummies] over the training rows, and the projection Π on its span."""

    order: int
    period: int  # P
    rows: IntArray
    forcing: FloatArray  # lags of h, o, r: n × 3(M+1)
    phase: IntArray  # season index of each row
    counts: IntArray  # rows of each season index
    basis: FloatArray  # orthonormal basis of what span X has beyond the season, its vectors in rows
    triangle: FloatArray  # R of their QR, columns scaled to unit norm and permuted
    pivots: IntArray  # which column is where in R
    norms: FloatArray  # of the columns; one where a column is zero
    lagged: IntArray  # rows − m, (M+1) × n

    @property
    def columns(self) -> FloatArray:
        """X, n × (3(M+1) + P)."""
        return np.hstack([self.forcing, self.phase[:, None] == np.arange(self.period)])

    @property
    def full_rank(self) -> bool:
        """Whether the rows determine the coefficients of the lags of h, o and r."""
        return len(self.basis) == len(self.norms)

    @classmethod
    def build(cls, inputs: Inputs, order: int, *, minimum_norm: bool = False) -> "Design":
        """Refuses too few rows and, unless `minimum_norm`, columns that the data cannot tell apart."""
        rows = lagged_rows(inputs.segment, order, 0, inputs.train)
        needed = parameter_count(order, inputs.period) + 2
        if len(rows) < needed:
            raise UsageError(
                f"{len(rows)} usable training rows for {needed - 2} parameters: give at least {needed} rows, "
                "a lower order or a shorter season"
            )
        forcing = forcing_columns(inputs, rows, order)
        phase = inputs.phase[rows]
        counts = np.bincount(phase, minlength=inputs.period)
        norms = np.linalg.norm(forcing, axis=0)
        norms[norms == 0] = 1.0
        scaled = forcing / norms
        # The dummies are orthogonal to each other, so only the 3(M+1) other columns need a factorisation.
        within = scaled - seasonal_means(scaled.T, phase, counts).T
        factored, pivots, scales, _, _ = dgeqp3(within, overwrite_a=True)
        pivots -= 1  # LAPACK counts from one
        triangle = np.triu(factored[: len(norms)])
        q, _, _ = dorgqr(factored, scales, overwrite_a=True)
        rank = int((np.abs(np.diag(triangle)) > DEPENDENT).sum())
        if not minimum_norm and (rank < len(norms) or (counts == 0).any()):
            names = [f"{v}[t-{m}]" for v, *_ in INPUTS for m in range(order + 1)]
            dependent = [names[i] for i in sorted(pivots[rank:])]
            dependent += [f"season step {k}" for k in np.flatnonzero(counts == 0)]
            shown = ", ".join(dependent[:6]) + (", …" if len(dependent) > 6 else "")
            raise DataError(
                f"training rows do not determine {len(dependent)} of {len(norms) + inputs.period} columns ({shown}): "
                "use a window where they vary, or ask for the minimum-norm solution"
            )
        return cls(
            order=order,
            period=inputs.period,
            rows=rows,
            forcing=forcing,
            phase=phase,
            counts=counts,
            basis=np.ascontiguousarray(q.T[:rank]),
            triangle=triangle,
            pivots=pivots,
            norms=norms,
            lagged=rows - np.arange(order + 1)[:, None],
        )

    def residual(self, series: FloatArray) -> FloatArray:
        """(I − Π) of series over the training rows, k × n."""
        within = series - seasonal_means(series, self.phase, self.counts)
        answer: FloatArray = within - (within @ self.basis.T) @ self.basis
        return answer

    def projected_lags(self, series: FloatArray) -> FloatArray:
        """(I − Π) of every lag of a series (or of columns of series): shape (M+1, n[, K])."""
        if series.ndim == 1:
            return self.residual(series[self.lagged])
        return np.stack([self.residual(series[rows].T).T for rows in self.lagged])
