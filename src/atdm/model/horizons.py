"""How far a model is off after 1 h, 6 h and 24 h, from every origin that has the rows; beside persistence.

An origin is the first row forecast; the rows before it are known. A run never crosses a gap, so a gap costs origins and
makes nothing look better, unlike one long free run that starts anew after it.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from atdm.kernel.design import Inputs
from atdm.kernel.thermal import Coefficients
from atdm.types import FloatArray, IntArray

HOURS = (1, 6, 24)
MEMORY = 3  # rows an origin has before it: the highest order chosen from, so that models of all orders are judged alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """Error at one horizon over all origins, beside persistence.

    Attributes
    ----------
    hours : int
        The horizon [h].
    origins : int
        Forecasts that have the rows.
    rmse : float or None
        Root mean square error of the model; None where no origin has the rows [K].
    persistence_rmse : float or None
        The same of the last temperature kept [K].
    """

    hours: int
    origins: int
    rmse: float | None
    persistence_rmse: float | None

    def as_dict(self) -> dict[str, Any]:
        """As `--json` has it."""
        return asdict(self)


def horizon_steps(step_hours: float) -> dict[int, int]:
    """HOURS that are whole steps → how many."""
    steps = {hours: round(hours / step_hours) for hours in HOURS}
    return {hours: k for hours, k in steps.items() if k >= 1 and abs(k * step_hours - hours) < 1e-9}


def origins_in(inputs: Inputs, start: int, stop: int, memory: int = MEMORY) -> IntArray:
    """Rows of [start, stop) with `memory` predecessors in their segment; those may lie before `start`."""
    rows = np.arange(max(start, memory), stop, dtype=np.int64)
    kept: IntArray = rows[inputs.segment[rows - memory] == inputs.segment[rows]]
    return kept


def rolling_errors(c: Coefficients, inputs: Inputs, state: FloatArray, origins: IntArray, steps: int) -> FloatArray:
    """Forecast − truth of free runs from many origins at once, origins × steps; NaN beyond the last row, a gap or a row
    without a known temperature. [K]"""
    rows = np.arange(c.order, len(inputs))
    forcing = np.full(len(inputs) + steps, np.nan)
    forcing[rows] = c.forcing(inputs, rows)
    padded = np.concatenate([state, np.full(steps, np.nan)])
    segment = np.concatenate([inputs.segment, np.full(steps, -1)])
    memory = np.stack([state[origins - m] for m in range(1, c.order + 1)])
    own = segment[origins]
    errors = np.empty((len(origins), steps))
    for k in range(steps):
        value = forcing[origins + k] + c.alpha @ memory
        memory = np.vstack([value, memory[:-1]])
        errors[:, k] = np.where(segment[origins + k] == own, value - padded[origins + k], np.nan)
    return errors


def horizons(
    c: Coefficients, inputs: Inputs, state: FloatArray, step_hours: float, start: int, stop: int
) -> tuple[Horizon, ...]:
    """The errors of runs from all origins of [start, stop) that end there, at each of HOURS that is whole steps."""
    day = round(24 / step_hours)
    origins = origins_in(inputs, start, stop)
    errors = rolling_errors(c, inputs, state, origins, day)
    answer = []
    for hours, steps in horizon_steps(step_hours).items():
        target = origins + steps - 1
        reached = np.flatnonzero((target < stop) & np.isfinite(errors[:, steps - 1]))
        at, last = target[reached], origins[reached] - 1
        answer.append(Horizon(
            hours=hours,
            origins=len(reached),
            rmse=root_mean_square(errors[reached, steps - 1]),
            persistence_rmse=root_mean_square(state[last] - state[at]),
        ))  # fmt: skip
    return tuple(answer)


def root_mean_square(values: FloatArray) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) else None
