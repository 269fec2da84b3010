"""The load itself: the heat a cluster uses when nobody intervenes, from temperature, weather and clock.

    (6)   h_t = Σ_{m=1..M} (η_m h_{t−m} + μ_m s_{t−m}) + Σ_{m=0..M} (φ_m o_{t−m} + ψ_m r_{t−m}) + use_{t mod P}

is the thermostats' side of Eq. (2). Run together they close the loop: load from temperature, temperature from load.
Like Eq. (2) it is estimated on released series, so it costs no privacy.

Rule 1: the lags of load or of temperature are left out where forecasts of 24 h on training rows do better without.
Rule 2: a forecast stays near the loads seen in training, half their range beyond it at most, and on their side of zero:
        heaters have an end, and none of them cools.
Rule 3: bands are the errors of forecasts of training rows by an Eq. (6) that had not seen them, by horizon. The Eq. (2)
        beside it had, and no later error is learned from, so that they tend to be narrow: whoever draws them says so.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from atdm.kernel.design import Inputs, forcing_columns, lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.model.horizons import origins_in
from atdm.model.physical import season_of
from atdm.types import FloatArray, IntArray

LEVELS = {"80": 0.80, "95": 0.95}  # of the bands, by their name
FOLDS = 4  # parts of the training rows, each forecast by what the others tell
BEYOND = 0.5  # of the range of training loads that a forecast may go beyond it
FEWEST = 20  # forecasts of a horizon, below which it has no band of its own
DIGITS = 6  # significant digits kept


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """Eq. (6), with what bands need."""

    load: FloatArray  # η, M values                                                                    [-]
    temperature: FloatArray  # μ, M values                                                             [kW/K]
    outdoor: FloatArray  # φ, M+1 values                                                               [kW/K]
    solar: FloatArray  # ψ, M+1 values                                                                 [kW/(kW/m²)]
    use: FloatArray  # P values, one for each phase of the calendar                                    [kW]
    low: float  # least load of a forecast (Rule 2)                                                    [kW]
    high: float  # largest                                                                             [kW]
    bands: dict[str, FloatArray]  # level → lower and upper error of a forecast by steps ahead, 2 × steps [kW]
    state_bands: dict[str, FloatArray]  # the same of the temperature, whose load was forecast too       [K]

    @property
    def order(self) -> int:
        return len(self.load)

    def exogenous(self, inputs: Inputs, rows: IntArray) -> FloatArray:
        """Everything in Eq. (6) but the lags of load and temperature. [kW]"""
        weather = forcing_columns(inputs, rows, self.order)[:, self.order + 1 :]
        answer: FloatArray = weather @ np.concatenate([self.outdoor, self.solar]) + self.use[inputs.phase[rows]]
        return answer

    def run(
        self, c: Coefficients, inputs: Inputs, load: FloatArray, state: FloatArray, origins: IntArray, steps: int
    ) -> tuple[FloatArray, FloatArray]:
        """Load [kW] and temperature [°C] of `steps` rows from each origin, Eq. (2) and (6) in turn: origins × steps.

        load, state: as they were; only rows before an origin are looked at. All rows of a run must exist.
        """
        order = max(self.order, c.order)
        heat = [load[origins - m] for m in range(1, order + 1)]
        warmth = [state[origins - m] for m in range(1, order + 1)]
        loads, states = np.empty((len(origins), steps)), np.empty((len(origins), steps))
        outdoor, solar = np.convolve(inputs.outdoor, c.gamma), np.convolve(inputs.solar, c.theta)
        others = (outdoor + solar)[: len(inputs)] + c.occupancy[inputs.phase]
        rest = np.full(len(inputs), np.nan)
        rows = np.arange(self.order, len(inputs))
        rest[rows] = self.exogenous(inputs, rows)
        for k in range(steps):
            at = origins + k
            now = rest[at] + sum(
                self.load[m] * heat[m] + self.temperature[m] * warmth[m] for m in range(self.order)
            )  # fmt: skip
            now = np.clip(now, self.low, self.high)  # Rule 2
            warm = others[at] + c.beta[0] * now
            for m in range(c.order):
                warm = warm + c.alpha[m] * warmth[m] + c.beta[m + 1] * heat[m]
            heat, warmth = [now, *heat[:-1]], [warm, *warmth[:-1]]
            loads[:, k], states[:, k] = now, warm
        return loads, states


def at_steps(band: FloatArray, steps: int) -> tuple[FloatArray, FloatArray]:
    """Lower and upper error 1 … steps ahead; beyond the last that is known, that one."""
    low, high = band
    at = np.minimum(np.arange(steps), len(low) - 1)
    return low[at], high[at]


def estimate_load(c: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar) -> LoadModel:
    """Eq. (6) of the training rows, beside the Eq. (2) of coefficients `c` on the same calendar."""
    part, known = inputs.training_part(), state[: inputs.train]
    day = max(1, round(24 / calendar.step_hours))
    kinds = [(True, True), (False, True), (True, False), (False, False)]
    errors = {kind: _held_out(c, part, known, calendar, kind, day) for kind in kinds}
    best = min(kinds, key=lambda kind: float((errors[kind][0] ** 2).mean()) if len(errors[kind][0]) else 0.0)  # Rule 1
    rows = lagged_rows(part.segment, c.order, 0, inputs.train)
    found = _least_squares(part, known, calendar, c.order, rows, best)
    of_load, of_state = (_bands(values) for values in errors[best])
    return LoadModel(**found, **_range(part), bands=of_load, state_bands=of_state)


def _range(inputs: Inputs) -> dict[str, Any]:
    """Rule 2."""
    low, high = float(inputs.load.min()), float(inputs.load.max())
    room = BEYOND * (high - low)
    return {
        "low": max(low - room, 0.0) if low >= 0 else low - room,
        "high": min(high + room, 0.0) if high <= 0 else high + room,
    }


def _least_squares(
    inputs: Inputs, state: FloatArray, calendar: Calendar, order: int, rows: IntArray, kind: tuple[bool, bool]
) -> dict[str, Any]:
    """The numbers of Eq. (6) from the given rows; kind: whether lags of load and of temperature are in it."""
    lags = range(1, order + 1)
    level = float(state[rows].mean())
    own = np.stack([inputs.load[rows - m] for m in lags], axis=1)
    warm = np.stack([state[rows - m] - level for m in lags], axis=1)
    weather = forcing_columns(inputs, rows, order)[:, order + 1 :]
    kept = [values for values, wanted in ((own, kind[0]), (warm, kind[1]), (weather, True)) if wanted]
    columns = np.column_stack([inputs.load[rows], *kept])
    phase = inputs.phase[rows]
    counts = np.bincount(phase, minlength=inputs.period).astype(float)
    within = columns - season_of(columns, counts, phase, calendar.season)[phase]
    numbers = np.linalg.lstsq(within[:, 1:], within[:, 0], rcond=1e-9)[0]
    use = season_of(columns[:, 0] - columns[:, 1:] @ numbers, counts, phase, calendar.season)
    split = np.split(numbers, np.cumsum([order * kind[0], order * kind[1], order + 1]))
    load = split[0] if kind[0] else np.zeros(order)
    temperature = split[1] if kind[1] else np.zeros(order)
    return {
        "load": load, "temperature": temperature, "outdoor": split[2], "solar": split[3],
        "use": use - level * float(temperature.sum()),
    }  # fmt: skip


def _held_out(
    c: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar, kind: tuple[bool, bool], day: int
) -> tuple[FloatArray, FloatArray]:
    """Truth − forecast of 24 h from the rows of each part of the training rows by the other parts, runs × steps: of the
    load [kW] and of the temperature [K]."""
    stop = len(inputs)
    cuts = np.linspace(0, stop, FOLDS + 1).astype(int)
    rows = lagged_rows(inputs.segment, c.order, 0, stop)
    found: list[tuple[FloatArray, FloatArray]] = []
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        others = rows[(rows < first) | (rows >= last)]
        origins = origins_in(inputs, first, last - day + 1, c.order)
        origins = origins[inputs.segment[origins + day - 1] == inputs.segment[origins]] if len(origins) else origins
        if not len(origins) or len(others) < calendar.period:
            continue
        numbers = _least_squares(inputs, state, calendar, c.order, others, kind)
        model = LoadModel(**numbers, **_range(inputs), bands={}, state_bands={})
        loads, states = model.run(c, inputs, inputs.load, state, origins, day)
        at = origins[:, None] + np.arange(day)
        found.append((inputs.load[at] - loads, state[at] - states))
    none = np.empty((0, day))
    return (np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])) if found else (none, none)


def _bands(errors: FloatArray) -> dict[str, FloatArray]:
    """Quantiles of the errors by steps ahead; where there are few, of none: the band is as wide as what was seen."""
    if len(errors) < FEWEST:
        wide = np.array([[errors.min()], [errors.max()]]) if errors.size else np.zeros((2, 1))
        return dict.fromkeys(LEVELS, wide)
    ends = {
        level: np.quantile(errors, [(1 - share) / 2, (1 + share) / 2], axis=0) for level, share in LEVELS.items()
    }  # fmt: skip
    return {level: np.array([[float(f"{v:.{DIGITS}g}") for v in row] for row in pair]) for level, pair in ends.items()}
