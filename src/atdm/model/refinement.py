"""The physical model refined on its own forecasts: coefficients that are best from one step to 24 h ahead.

One step ahead least squares weighs what happens within a step; a day ahead small errors of the slow part add up. Here
the squares of the errors at several horizons are added, each over its variance under the one-step model, so that none
of them drowns the others. Rules and calendar are those of model/physical.py, and so is the search over the roots.
"""

from dataclasses import dataclass, replace

import numpy as np

from atdm.errors import UsageError
from atdm.kernel.design import INPUTS, Inputs, forcing_columns, lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import TYPES, Calendar
from atdm.model.horizons import origins_in, rolling_errors
from atdm.model.physical import (
    PULL,
    Limits,
    Squares,
    constrained,
    impulse_response,
    log_times,
    search_roots,
    without_dust,
)
from atdm.types import FloatArray, IntArray

HORIZON_HOURS = (1, 3, 6, 12, 24)  # beside one step
RUNS_PER_DAY = 8  # origins of the longer runs; neighbouring ones tell the same
TOLERANCE = 1e-6  # of the logarithm of what is left: forecasts tell no finer difference
RUN_EVERY_HOURS = 2  # origins of runs of one length


def refine(
    start: Coefficients,
    inputs: Inputs,
    state: FloatArray,
    calendar: Calendar,
    stop: int,
    limits: Limits | None = None,
    weights: FloatArray | None = None,
) -> Coefficients:
    """The model of rows [0, stop) that is best at all horizons, searched from `start`, their one-step estimate.

    weights: how much a run counts, by the row it ends at; default: all alike.
    """
    groups = _at_horizons(start, inputs, state, calendar, stop)
    if weights is not None:
        groups = [replace(group, weight=group.weight * weights[group.targets]) for group in groups]
    runs = _Runs.build(groups, start.order, inputs, state, calendar, stop)
    return _searched(runs, start, calendar, limits or Limits())


def fitted_to_runs(
    start: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar, stop: int, hours: float
) -> Coefficients:
    """The model of rows [0, stop) whose runs of this many hours are best over all their steps, searched from `start`.

    Where one step ahead and hours ahead tell of the same building, this is the one-step estimate once more.
    """
    steps = max(1, round(hours / calendar.step_hours))
    every = max(1, round(RUN_EVERY_HOURS / calendar.step_hours))
    origins = origins_in(inputs, 0, stop - steps + 1, start.order)
    origins = origins[(origins % every == 0) & (inputs.segment[origins + steps - 1] == inputs.segment[origins])]
    if not len(origins):
        raise UsageError(f"no {hours:g} h without a gap in the training rows: give a longer window")
    groups = [_Group(steps=k, weight=1.0, targets=origins + k - 1) for k in range(1, steps + 1)]
    return _searched(_Runs.build(groups, start.order, inputs, state, calendar, stop), start, calendar, Limits())


def _searched(problem: "_Runs", start: Coefficients, calendar: Calendar, bounds: Limits) -> Coefficients:
    def left(alpha: FloatArray) -> tuple[float, FloatArray]:
        return constrained(problem.squares(alpha), alpha, problem.day, bounds)

    start_at = [log_times(start.alpha, calendar.step_hours)]
    alpha = search_roots(lambda a: left(a)[0], start_at, calendar.step_hours, TOLERANCE)
    gains = left(alpha)[1]
    return Coefficients.of(alpha, gains, problem.season(alpha, gains))


def _at_horizons(
    start: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar, stop: int
) -> list["_Group"]:
    """Runs of one step and of HORIZON_HOURS, each length over its variance under `start`."""
    day = max(1, round(24 / calendar.step_hours))
    every = max(1, day // RUNS_PER_DAY)
    origins = origins_in(inputs, 0, stop, start.order)
    lengths = sorted({1, *(round(hours / calendar.step_hours) for hours in HORIZON_HOURS)} - {0})
    errors = rolling_errors(start, inputs, state, origins, lengths[-1])
    groups = []
    for steps in lengths:
        error = errors[:, steps - 1]
        there = np.isfinite(error) & (origins + steps <= stop)
        if steps > 1:
            there &= origins % every == 0
        if there.any():
            variance = float((error[there] ** 2).mean())
            groups.append(_Group(steps=steps, weight=1 / variance, targets=origins[there] + steps - 1))
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Runs of one length."""

    steps: int
    weight: float | FloatArray  # one over the variance at this horizon; one number, or one for each run
    targets: IntArray  # the rows they end at; origin = target − steps + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    order: int
    day: int  # steps of 24 h
    period: int
    state: FloatArray  # about its mean
    level: float
    columns: FloatArray  # lags of h, o, r by row, zero where a row has no predecessors
    phase: IntArray
    groups: tuple[_Group, ...]
    pull: FloatArray  # of the season: penalty, period × period

    @classmethod
    def build(
        cls, groups: list[_Group], order: int, inputs: Inputs, state: FloatArray, calendar: Calendar, stop: int
    ) -> "_Runs":
        day = max(1, round(24 / calendar.step_hours))
        squares = sum(group.steps * float(np.sum(group.weight * np.ones(len(group.targets)))) for group in groups)
        rows_per_day = squares / (stop / day)
        rows = lagged_rows(inputs.segment, order, 0, stop)
        columns = np.zeros((stop, len(INPUTS) * (order + 1)))
        columns[rows] = forcing_columns(inputs, rows, order)
        types, season = TYPES[calendar.day_types], calendar.season
        between = np.eye(types) - 1 / types
        pull = np.asarray(PULL * rows_per_day / season * np.kron(between, np.eye(season)), dtype=np.float64)
        pull += 1e-9 * rows_per_day * np.eye(inputs.period)
        level = float(state[:stop].mean())
        return cls(
            order=order, day=day, period=inputs.period, state=state[:stop] - level, level=level, columns=columns,
            phase=inputs.phase[:stop], groups=tuple(groups), pull=pull,
        )  # fmt: skip

    def _system(self, alpha: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Gram of [target | columns], what ties them to the season, and the season's own square: over all runs."""
        width = 1 + self.columns.shape[1]
        gram, tie = np.zeros((width, width)), np.zeros((self.period, width))
        own = self.pull.copy()
        for group in self.groups:
            k, at = group.steps, group.targets
            response = impulse_response(alpha, k)
            # what a run of k steps ends at: its start, passed on, and the inputs along the way
            lagged = at[:, None] - np.arange(k)
            inputs = np.einsum("k,nkj->nj", response, self.columns[lagged])
            target = self.state[at] - self._passed_on(alpha, at, k)
            both = np.column_stack([target, inputs])
            gram += (both.T * group.weight) @ both
            if k == 1:  # each run has one step of the season
                phase, weight = self.phase[at], group.weight * np.ones(len(at))
                own[np.diag_indices(self.period)] += np.bincount(phase, weight, self.period)
                tie += np.stack([np.bincount(phase, weight * c, self.period) for c in both.T], axis=1)
                continue
            season = np.zeros((len(at), self.period))
            np.add.at(season, (np.arange(len(at))[:, None], self.phase[lagged]), response)
            counted = season.T * group.weight
            tie += counted @ both
            own += counted @ season
        return gram, tie, own

    def _passed_on(self, alpha: FloatArray, at: IntArray, steps: int) -> FloatArray:
        """Where runs end that start as they did and then get nothing."""
        memory = np.stack([self.state[at - steps + 1 - m] for m in range(1, self.order + 1)])
        for _ in range(steps):
            memory = np.vstack([alpha @ memory, memory[:-1]])
        answer: FloatArray = memory[0]
        return answer

    def squares(self, alpha: FloatArray) -> Squares:
        gram, tie, own = self._system(alpha)
        left = without_dust(gram - tie.T @ np.linalg.solve(own, tie), np.diag(gram))
        return Squares(total=float(left[0, 0]), cross=left[1:, 0], inner=left[1:, 1:])

    def season(self, alpha: FloatArray, gains: FloatArray) -> FloatArray:
        """The profiles that belong to these numbers. [K]"""
        _, tie, own = self._system(alpha)
        profile = np.linalg.solve(own, tie[:, 0] - tie[:, 1:] @ gains)
        return np.asarray(profile + self.level * (1.0 - float(alpha.sum())), dtype=np.float64)
