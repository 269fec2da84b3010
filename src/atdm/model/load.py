"""The load itself: the heat a cluster uses when nobody intervenes, from temperature, weather and clock.

    (6)   h_t = Σ_{m=1..M} (η_m h_{t−m} + μ_m s_{t−m}) + Σ_{m=0..M} (φ_m o_{t−m} + ψ_m r_{t−m}) + use_{t mod P}

is the thermostats' side of Eq. (2). Run together they close the loop: load from temperature, temperature from load.
Like Eq. (2) it is estimated on released series, so it costs no privacy.

Rule 1: the lags of load or of temperature are left out where forecasts of 24 h on training rows do better without.
Rule 2: a forecast stays near the loads seen in training, half their range beyond it at most, and on their side of zero:
        heaters have an end, and none of them cools.

Bands of the load, and of the temperature that goes with it, are drawn as all others are (`model.bands`).
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from atdm.kernel.design import Inputs, forcing_columns, lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.model.horizons import origins_in
from atdm.model.physical import season_of
from atdm.types import FloatArray, IntArray

FOLDS = 4  # parts of the training rows, each forecast by what the others tell
BEYOND = 0.5  # of the range of training loads that a forecast may go beyond it
Lags = tuple[bool, bool]  # whether those of load and of temperature are in Eq. (6)
LAGS: list[Lags] = [(True, True), (False, True), (True, False), (False, False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """Eq. (6)."""

    load: FloatArray  # η, M values                                                                    [-]
    temperature: FloatArray  # μ, M values                                                             [kW/K]
    outdoor: FloatArray  # φ, M+1 values                                                               [kW/K]
    solar: FloatArray  # ψ, M+1 values                                                                 [kW/(kW/m²)]
    use: FloatArray  # P values, one for each phase of the calendar                                    [kW]
    low: float  # least load of a forecast (Rule 2)                                                    [kW]
    high: float  # largest                                                                             [kW]

    @property
    def order(self) -> int:
        return len(self.load)

    @property
    def lags(self) -> Lags:
        """What Rule 1 left in."""
        return bool(self.load.any()), bool(self.temperature.any())

    def of_size(self, ratio: float) -> "LoadModel":
        """That of a cluster with `ratio` times the load."""
        sized = {one.name: getattr(self, one.name) * ratio for one in fields(self) if one.name != "load"}
        return replace(self, **sized)

    def as_dict(self) -> dict[str, Any]:
        return {name: np.asarray(getattr(self, name)).tolist() for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "LoadModel":
        numbers: dict[str, Any] = {name: np.asarray(saved[name], dtype=float) for name in cls.__dataclass_fields__}
        low, high = float(numbers.pop("low")), float(numbers.pop("high"))
        sound = all(v.ndim == 1 and np.isfinite(v).all() for v in numbers.values()) and -np.inf < low <= high < np.inf
        order = len(numbers["load"]) if sound else 0
        sizes = {"temperature": order, "outdoor": order + 1, "solar": order + 1}
        if not sound or any(len(numbers[name]) != size for name, size in sizes.items()):
            raise ValueError("a model of the load does not belong together")
        return cls(**numbers, low=low, high=high)

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

    def errors(
        self, c: Coefficients, inputs: Inputs, state: FloatArray, origins: IntArray, steps: int
    ) -> tuple[FloatArray, FloatArray]:
        """Forecast − truth of `run`, of the load [kW] and of the temperature [K], origins × steps; NaN beyond the last
        row, a gap or a row without a known value."""
        names = ("load", "outdoor", "solar", "phase")
        beyond: dict[str, Any] = {name: np.pad(getattr(inputs, name), (0, steps)) for name in names}
        padded = replace(inputs, segment=np.pad(inputs.segment, (0, steps), constant_values=-1), **beyond)
        warmth = np.pad(state, (0, steps))
        loads, states = self.run(c, padded, padded.load, warmth, origins, steps)
        at = np.add.outer(origins, np.arange(steps))
        there = padded.segment[at] == padded.segment[origins][:, None]
        return np.where(there, loads - padded.load[at], np.nan), np.where(there, states - warmth[at], np.nan)


def estimate_load(
    c: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar, lags: Lags | None = None
) -> LoadModel:
    """Eq. (6) of the training rows, beside the Eq. (2) of coefficients `c` on the same calendar.

    lags: which are in it; None: as Rule 1 finds.
    """
    part, known = inputs.training_part(), state[: inputs.train]
    if lags is None:
        lags = min(LAGS, key=lambda each: _held_out_error(c, part, known, calendar, each))  # Rule 1
    rows = lagged_rows(part.segment, c.order, 0, inputs.train)
    return LoadModel(**_least_squares(part, known, calendar, c.order, rows, lags), **_range(part))


def _range(inputs: Inputs) -> dict[str, Any]:
    """Rule 2."""
    low, high = float(inputs.load.min()), float(inputs.load.max())
    room = BEYOND * (high - low)
    return {
        "low": max(low - room, 0.0) if low >= 0 else low - room,
        "high": min(high + room, 0.0) if high <= 0 else high + room,
    }


def _least_squares(
    inputs: Inputs, state: FloatArray, calendar: Calendar, order: int, rows: IntArray, lags: Lags
) -> dict[str, Any]:
    """The numbers of Eq. (6) from the given rows."""
    past = range(1, order + 1)
    level = float(state[rows].mean())
    own = np.stack([inputs.load[rows - m] for m in past], axis=1)
    warm = np.stack([state[rows - m] - level for m in past], axis=1)
    weather = forcing_columns(inputs, rows, order)[:, order + 1 :]
    kept = [values for values, wanted in ((own, lags[0]), (warm, lags[1]), (weather, True)) if wanted]
    columns = np.column_stack([inputs.load[rows], *kept])
    phase = inputs.phase[rows]
    counts = np.bincount(phase, minlength=inputs.period).astype(float)
    within = columns - season_of(columns, counts, phase, calendar.season)[phase]
    numbers = np.linalg.lstsq(within[:, 1:], within[:, 0], rcond=1e-9)[0]
    use = season_of(columns[:, 0] - columns[:, 1:] @ numbers, counts, phase, calendar.season)
    split = np.split(numbers, np.cumsum([order * lags[0], order * lags[1], order + 1]))
    load = split[0] if lags[0] else np.zeros(order)
    temperature = split[1] if lags[1] else np.zeros(order)
    return {
        "load": load, "temperature": temperature, "outdoor": split[2], "solar": split[3],
        "use": use - level * float(temperature.sum()),
    }  # fmt: skip


def _held_out_error(c: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar, lags: Lags) -> float:
    """Mean square error of the load in forecasts of 24 h from the rows of each part of the training rows by the other
    parts; 0 where there are none. [kW²]"""
    day, stop = max(1, round(24 / calendar.step_hours)), len(inputs)
    cuts = np.linspace(0, stop, FOLDS + 1).astype(int)
    rows = lagged_rows(inputs.segment, c.order, 0, stop)
    squares = [np.empty(0)]
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        others = rows[(rows < first) | (rows >= last)]
        origins = origins_in(inputs, first, last - day + 1, c.order)
        if not len(origins) or len(others) < calendar.period:
            continue
        model = LoadModel(**_least_squares(inputs, state, calendar, c.order, others, lags), **_range(inputs))
        errors = model.errors(c, inputs, state, origins, day)[0]
        squares.append(errors[np.isfinite(errors).all(axis=1)].ravel() ** 2)
    both = np.concatenate(squares)
    return float(both.mean()) if len(both) else 0.0
