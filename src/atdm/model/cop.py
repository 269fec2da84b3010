"""Electricity as load: a heat pump gives more heat per kW when it is warm outside.

    (7)   heat_t = h_t · COP(o_t),   COP(o) = COP(ō) · (1 + κ (o − ō))

so load × outdoor temperature is one more input of Eq. (2), public as load and weather are, with coefficients κ β_m:
the heat of a kW differs, what a building does with heat does not. COP(ō) itself is part of β; what can be known is the
curve over its value at the mean outdoor temperature ō. For given weather Eq. (2) stays linear in the load, and so does
planning.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from atdm.errors import UsageError
from atdm.kernel.design import Inputs, lagged_rows
from atdm.model.calendar import Calendar
from atdm.model.physical import estimate_physical
from atdm.types import FloatArray

ORDER = 2
STEEPEST = 0.08  # κ [1/K]: a COP that doubles within 12 K; beyond any heat pump's
LEAST = 0.2  # of the COP at the mean outdoor temperature that is left in the coldest row: it stays above zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Cop:
    """How the heat of one kW depends on the outdoor temperature."""

    slope: float  # κ                                          [1/K]
    reference: float  # ō: mean outdoor temperature in training [°C]

    def factor(self, outdoor: FloatArray) -> FloatArray:
        """Heat of one kW over that at the reference; not below LEAST, however cold. [-]"""
        return np.maximum(1.0 + self.slope * (outdoor - self.reference), LEAST)

    def as_dict(self) -> dict[str, Any]:
        return {"slope_per_k": self.slope, "reference_c": self.reference}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Cop":
        found = cls(slope=float(saved["slope_per_k"]), reference=float(saved["reference_c"]))
        if not np.isfinite([found.slope, found.reference]).all():
            raise ValueError("no COP curve")
        return found


def estimate_cop(inputs: Inputs, state: FloatArray, calendar: Calendar) -> Cop:
    """κ for which Eq. (2) of the training rows leaves least, one step ahead; inputs: on `calendar`, load as metered."""
    part, known = inputs.training_part(), state[: inputs.train]
    rows = lagged_rows(part.segment, ORDER, 0, inputs.train)
    if not len(rows):
        raise UsageError("no rows that follow each other to find a COP curve in: give a longer window")
    reference = float(part.outdoor[rows].mean())
    coldest = reference - float(part.outdoor.min())
    most = min(STEEPEST, (1.0 - LEAST) / coldest) if coldest > 0 else STEEPEST

    def left(slope: float) -> float:
        heat = replace(part, load=part.load * Cop(slope=slope, reference=reference).factor(part.outdoor))
        c = estimate_physical(heat, known, ORDER, calendar)
        memory = np.stack([known[rows - m] for m in range(1, ORDER + 1)], axis=1)
        error = known[rows] - memory @ c.alpha - c.forcing(heat, rows)
        return float(error @ error)

    grid = np.linspace(-most, most, 9)  # the squares need not have one valley
    best = int(np.argmin([left(float(slope)) for slope in grid]))
    ends = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(left, bounds=ends, method="bounded", options={"xatol": 1e-5})
    return Cop(slope=float(found.x), reference=reference)
