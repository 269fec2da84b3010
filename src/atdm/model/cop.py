"""Electricity as load: a heat pump gives more heat per kW when it is warm outside, and more cold when it is cool.

    (7)   heat_t = h_t · COP(o_t),   COP(o) = COP(ō) · (1 + κ (o − ō))

so load × outdoor temperature is one more input of Eq. (2), public as load and weather are, with coefficients κ β_m:
the heat of a kW differs, what a building does with heat does not. COP(ō) itself is part of β; what can be known is the
curve over its value at the mean outdoor temperature ō. For given weather Eq. (2) stays linear in the load, and so does
planning.

Rule 1: κ is not below zero where the load heats and not above it where it cools: no heat pump does otherwise.
Rule 2: κ is zero, and said to be unknown, where it is within ERRORS standard errors of zero or ends on a bound: a load
        that follows the weather hides what the weather does to its heat.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from atdm.errors import UsageError
from atdm.kernel.design import Inputs, lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.model.diagnostics import Regression, newey_west, season_lags
from atdm.model.physical import estimate_physical
from atdm.types import FloatArray

ORDER = 2
STEEPEST = 0.08  # κ [1/K]: a COP that doubles within 12 K; beyond any heat pump's
LEAST = 0.2  # of the COP at the mean outdoor temperature that is left in the row worst for it: it stays above zero
ERRORS = 2.0  # standard errors from zero within which κ is not known (Rule 2)
FINE = 1e-5  # to which κ is found [1/K]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cop:
    """How the heat of one kW depends on the outdoor temperature."""

    slope: float  # κ                                          [1/K]
    reference: float  # ō: mean outdoor temperature in training [°C]
    standard_error: float | None = None  # of κ (Newey–West); None where κ was stated [1/K]
    unknown: str = ""  # why κ is taken as zero; empty where it is known

    def factor(self, outdoor: FloatArray) -> FloatArray:
        """Heat of one kW over that at the reference; not below LEAST, however cold. [-]"""
        return np.maximum(1.0 + self.slope * (outdoor - self.reference), LEAST)

    def words(self) -> str:
        """What is known about the curve."""
        if self.unknown:
            return f"the COP curve is not known and taken as flat: {self.unknown}"
        error = "" if self.standard_error is None else f" (standard error {100 * self.standard_error:.2f} %)"
        does = "heats" if self.slope >= 0 else "cools"
        change = f"{100 * abs(self.slope):.2f} % {'more' if self.slope >= 0 else 'less'}"
        return f"one kW {does} {change} for each K that it is warmer outdoors than {self.reference:.1f} °C{error}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "slope_per_k": self.slope, "reference_c": self.reference, "standard_error_per_k": self.standard_error,
            "unknown": self.unknown,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Cop":
        error = saved.get("standard_error_per_k")  # earlier files have none
        found = cls(
            slope=float(saved["slope_per_k"]), reference=float(saved["reference_c"]),
            standard_error=None if error is None else float(error), unknown=str(saved.get("unknown", "")),
        )  # fmt: skip
        if not np.isfinite([found.slope, found.reference, found.standard_error or 0.0]).all():
            raise ValueError("no COP curve")
        return found


def estimate_cop(inputs: Inputs, state: FloatArray, calendar: Calendar) -> Cop:
    """κ for which Eq. (2) of the training rows leaves least, one step ahead; inputs: on `calendar`, load as metered."""
    part, known = inputs.training_part(), state[: inputs.train]
    rows = lagged_rows(part.segment, ORDER, 0, inputs.train)
    if not len(rows):
        raise UsageError("no rows that follow each other to find a COP curve in: give a longer window")
    reference = float(part.outdoor[rows].mean())
    heats = float(part.load.sum()) >= 0
    worst = reference - float(part.outdoor.min()) if heats else float(part.outdoor.max()) - reference
    most = min(STEEPEST, (1.0 - LEAST) / worst) if worst > 0 else STEEPEST
    sign = 1.0 if heats else -1.0  # Rule 1

    def left(size: float) -> float:
        error = _regression(Cop(slope=sign * size, reference=reference), part, known, calendar)[0].residuals
        return float(error @ error)

    grid = np.linspace(0.0, most, 9)  # the squares need not have one valley
    best = int(np.argmin([left(float(size)) for size in grid]))
    ends = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    size = float(minimize_scalar(left, bounds=ends, method="bounded", options={"xatol": FINE}).x)
    found = Cop(slope=sign * size, reference=reference)
    found = replace(found, standard_error=_standard_error(found, part, known, calendar))
    unknown = _unknown(size, most, found.standard_error or 0.0)
    return replace(found, slope=0.0, unknown=unknown) if unknown else found


def _unknown(size: float, most: float, error: float) -> str:
    """Rule 2, in words; empty where κ is known."""
    if size < 10 * FINE:
        return "the rows speak for a curve that falls where a heat pump's rises"
    if size > most - 10 * FINE:
        return f"the rows speak for {100 * most:.1f} % per K or more, which no heat pump has"
    if size < ERRORS * error:
        return f"the rows speak for {100 * size:.2f} % per K with a standard error of {100 * error:.2f} %"
    return ""


def _regression(cop: Cop, part: Inputs, state: FloatArray, calendar: Calendar) -> tuple[Regression, Coefficients]:
    """Eq. (2) of the heat that a curve makes of the load."""
    heat = replace(part, load=part.load * cop.factor(part.outdoor))
    c = estimate_physical(heat, state, ORDER, calendar)
    return Regression.build(c, heat, state), c


def _standard_error(cop: Cop, part: Inputs, state: FloatArray, calendar: Calendar) -> float:
    """Of κ: Newey–West, with what Eq. (2) changes by κ as one more column beside those of its coefficients. [1/K]"""
    regression, c = _regression(cop, part, state, calendar)
    bends = np.where(cop.factor(part.outdoor) > LEAST, part.outdoor - cop.reference, 0.0) * part.load
    rows = regression.rows
    by_slope = np.stack([bends[rows - m] for m in range(ORDER + 1)], axis=1) @ c.beta
    lags = season_lags(part.period, len(rows))
    columns = np.column_stack([regression.columns, by_slope])
    covariance = newey_west(columns, regression.residuals, rows, part.segment, lags)
    return float(np.sqrt(max(float(covariance[-1, -1]), 0.0)))
