"""A model and the rows it comes from: made by choosing, kept current from observed rows with the weights fixed.

Rule 1: forecasts are judged on rows that the model which made them had not seen. An update therefore also goes through
        the new rows day by day, each forecast by a model of the rows before it, and says by how much that was better.
Rule 2: earlier versions and their errors stay with the model. A forecast whose truth is not known yet keeps the model
        that made it, and is judged by the update that brings the truth.
Rule 3: no agent is asked.
"""

from dataclasses import dataclass, replace
from datetime import date
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from atdm.errors import AtdmError, UsageError
from atdm.kernel.design import Inputs, lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.bands import BLOCKS, KINDS, Forecaster, Kind, Record, forecast_errors, record_of
from atdm.model.calendar import Calendar
from atdm.model.choosing import Candidate, Choice, choose
from atdm.model.fitted import Model, Origin, Version
from atdm.model.horizons import horizon_steps, origins_in, rolling_errors, root_mean_square
from atdm.model.load import Lags, estimate_load
from atdm.model.physical import estimate_physical
from atdm.model.refinement import refine
from atdm.model.released import Released
from atdm.types import FloatArray, IntArray

HALF_LIFE = pd.Timedelta(days=30)  # in which a row's weight falls to half
WINDOW = pd.Timedelta(days=92)  # of rows kept: a quarter of a year, as long as weights of a fit may be used
ERRORS = 2.0  # standard errors above what was expected at which a model is said to have drifted
LEAST_DAYS = 3  # of new rows, below which nothing is said about drift


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Update:
    """A model of now, and what the update was worth.

    Attributes
    ----------
    model : Model
        The model of now, with its earlier versions.
    rows : int
        New rows.
    seconds : float
        What it took [s].
    expected_rmse : float or None
        Error 24 h ahead of leave-block-out forecasts of the rows the old model came from [K].
    old_rmse : dict
        "1h", "6h", "24h" → error of the old model on the new rows [K].
    new_rmse : dict
        The same of models of the rows before each new day [K].
    drifted : bool or None
        Whether the old model had drifted; None where there are too few new days to tell.
    """

    model: Model
    rows: int
    seconds: float
    expected_rmse: float | None
    old_rmse: dict[str, float | None]
    new_rmse: dict[str, float | None]
    drifted: bool | None

    @property
    def helped(self) -> float | None:
        """By which share updating lowered the error 24 h ahead."""
        old, new = self.old_rmse.get("24h"), self.new_rmse.get("24h")
        return None if not old or new is None else 1.0 - new / old

    def as_dict(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "words": self.model.words(),
            "until": None if self.model.until is None else self.model.until.isoformat(),
            "rows": self.rows,
            "seconds": self.seconds,
            "expected_rmse_24h": self.expected_rmse,
            "old_rmse": self.old_rmse,
            "new_rmse": self.new_rmse,
            "helped": self.helped,
            "drifted": self.drifted,
            "versions": [version.as_dict() for version in self.model.versions],
        }


def chosen_model(choice: Choice, released: Released, train: int, origin: Origin | None = None) -> Model:
    """The chosen model with its rows, of which the first `train` made it, and how far off its forecasts were."""
    recipe = choice.candidate
    inputs, state = released.inputs(choice.calendar, train), released.state
    model = Model(
        coefficients=choice.coefficients, calendar=choice.calendar, made="refined" if recipe.refined else "chosen",
        released=released, trained=train, origin=origin,
    )  # fmt: skip
    usual = estimate_load(choice.coefficients, inputs, state, choice.calendar)
    expected = left_out_errors(recipe, choice.calendar, inputs.training_part(), state[:train], usual.lags)
    if not np.isfinite(expected["planned"][:, -1]).any():
        return model  # too short to forecast a day of it
    record = record_of(expected, model.step)
    origins = origins_in(inputs, train, len(released), recipe.order)
    if not len(origins):
        return replace(model, record=record)
    errors = forecast_errors(choice.coefficients, usual, inputs, state, origins, record.steps)
    maker = Forecaster(
        since=released.time[origins[0]], coefficients=choice.coefficients, calendar=choice.calendar, usual=usual
    )  # fmt: skip
    return replace(model, record=record.with_errors(released.time[origins], errors, (maker,)))


def with_all_kinds(model: Model) -> Model:
    """The model; of a file from before errors without a load plan were kept, with what these are expected to be."""
    if model.record is None or model.released is None or "unplanned" in model.record.expected:
        return model
    inputs = model.released.inputs(model.calendar, model.trained)
    usual = estimate_load(model.coefficients, inputs, model.released.state, model.calendar)
    known = model.released.state[: model.trained]
    expected = left_out_errors(recipe_of(model), model.calendar, inputs.training_part(), known, usual.lags)
    return replace(model, record=model.record.with_kinds_of(record_of(expected, model.step)))


def recipe_of(model: Model) -> Candidate:
    """How a model was made, to make it again."""
    calendar = model.calendar
    return Candidate(
        order=model.order, day_types=calendar.day_types, holidays=bool(calendar.holidays),
        refined=model.made == "refined",
    )  # fmt: skip


def left_out_errors(
    recipe: Candidate, calendar: Calendar, inputs: Inputs, state: FloatArray, lags: Lags
) -> dict[Kind, FloatArray]:
    """Errors of forecasts of each of BLOCKS parts by models of the others, origins × steps of 24 h each; NaN where a
    run leaves its part. lags: of the model of the load."""
    steps = max(1, round(24 / calendar.step_hours))
    cuts = np.linspace(0, len(inputs), BLOCKS + 1).astype(int).tolist()
    answer = []
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        others, theirs = _without(inputs, state, start, stop)
        found = _estimate(recipe, calendar, others, theirs, None)
        usual = estimate_load(found, others, theirs, calendar, lags)
        origins = origins_in(inputs, start + recipe.order, stop, recipe.order)
        leaves = np.add.outer(origins, np.arange(steps)) >= stop
        errors = forecast_errors(found, usual, inputs, state, origins, steps)
        answer.append({kind: np.where(leaves, np.nan, own) for kind, own in errors.items()})
    return {kind: np.vstack([part[kind] for part in answer]) for kind in answer[0]}


def update(
    model: Model,
    observed: Released,
    *,
    half_life: pd.Timedelta | None = HALF_LIFE,
    window: pd.Timedelta = WINDOW,
    choose_again: bool = False,
    holidays: frozenset[date] = frozenset(),
) -> Update:
    """The model estimated anew from its rows and those observed since.

    observed: rows after the model's own; others are left aside. half_life: in which a row's weight falls to half, None
    for rows that count alike; window: older rows are dropped. choose_again: order and day types too.
    """
    model = with_all_kinds(model)
    if model.released is None or model.record is None or model.until is None:
        raise UsageError("the model file holds no rows to go on from: write it with atdm fit -o, from at least a week")
    began = perf_counter()
    record = model.record
    rows = model.released.followed_by(observed)
    first = int(rows.time.searchsorted(model.until, side="right"))
    if first == len(rows):
        raise UsageError(f"no row after {model.until:%Y-%m-%d %H:%M} UTC, the last the model comes from: observe more")
    recipe, calendar = recipe_of(model), model.calendar
    inputs = rows.inputs(calendar, first)
    origins = origins_in(inputs, first, len(rows))
    steps = record.steps
    old = rolling_errors(model.coefficients, inputs, rows.state, origins, steps)
    new, made = _day_by_day(recipe, calendar, inputs, rows, origins, steps, half_life, window)
    judged = np.flatnonzero(np.isfinite(new["planned"]).any(axis=1))  # a day without a model has no forecasts to keep
    kept = rows.between(rows.time[-1] - window + model.step, None)
    if choose_again:
        choice = choose(kept.inputs(calendar), kept.state, kept.time, calendar, holidays=holidays)
        recipe, calendar = choice.candidate, choice.calendar
    found = _estimate(recipe, calendar, kept.inputs(calendar), kept.state, _weights(kept.time, half_life))
    errors = _by_horizon(old, calendar.step_hours)
    before = Version(until=model.until, words=model.words(), coefficients=model.as_dict(), rmse=errors)
    current = replace(
        model, coefficients=found, calendar=calendar, made="refined" if recipe.refined else "chosen", released=kept,
        trained=len(kept), versions=(*model.versions, before),
        record=record.filled(rows).with_errors(
            rows.time[origins][judged], {kind: own[judged] for kind, own in new.items()}, made
        ),
    )  # fmt: skip
    return Update(
        model=current,
        rows=len(rows) - first,
        seconds=perf_counter() - began,
        expected_rmse=float(np.sqrt((record.expected["planned"][:, -1] ** 2).mean())),
        old_rmse=errors,
        new_rmse=_by_horizon(new["planned"], calendar.step_hours),
        drifted=_drifted(record, old, origins, steps),
    )


def _estimate(
    recipe: Candidate, calendar: Calendar, inputs: Inputs, state: FloatArray, weights: FloatArray | None
) -> Coefficients:
    rows = lagged_rows(inputs.segment, recipe.order, 0, len(inputs))
    own = None if weights is None else weights[rows]
    found = estimate_physical(inputs, state, recipe.order, calendar, rows=rows, weights=own)
    return refine(found, inputs, state, calendar, len(inputs), weights=weights) if recipe.refined else found


def _day_by_day(
    recipe: Candidate, calendar: Calendar, inputs: Inputs, rows: Released, origins: IntArray, steps: int,
    half_life: pd.Timedelta | None, window: pd.Timedelta,
) -> tuple[dict[Kind, FloatArray], tuple[Forecaster, ...]]:  # fmt: skip
    """Errors of forecasts from `origins`, each by a model of the rows before the day it starts on (Rule 1), NaN where
    these are too few for one; and these models."""
    made = []
    errors: dict[Kind, FloatArray] = {kind: np.full((len(origins), steps), np.nan) for kind in KINDS}
    day = (rows.time[origins] - rows.time[inputs.train]) // pd.Timedelta("24h")
    for number in np.unique(np.asarray(day)):
        own = np.flatnonzero(np.asarray(day) == number)
        stop = int(origins[own[0]])
        start = int(rows.time.searchsorted(rows.time[stop] - window))
        part = inputs.between(start, stop, stop - start)
        weights = _weights(rows.time[start:stop], half_life)
        try:
            found = _estimate(recipe, calendar, part, rows.state[start:stop], weights)
        except AtdmError:
            continue  # after a gap as long as the window there is no model of the rows before
        usual = estimate_load(found, part, rows.state[start:stop], calendar)
        for kind, values in forecast_errors(found, usual, inputs, rows.state, origins[own], steps).items():
            errors[kind][own] = values
        made.append(Forecaster(since=rows.time[stop], coefficients=found, calendar=calendar, usual=usual))
    return errors, tuple(made)


def _weights(time: pd.DatetimeIndex, half_life: pd.Timedelta | None) -> FloatArray | None:
    """One for the newest row, half for one that is older by the half-life."""
    if half_life is None:
        return None
    return np.asarray(0.5 ** ((time[-1] - time) / half_life), dtype=np.float64)


def _by_horizon(errors: FloatArray, step_hours: float) -> dict[str, float | None]:
    at = {hours: errors[:, k - 1] for hours, k in horizon_steps(step_hours).items()}
    return {f"{hours}h": root_mean_square(column[np.isfinite(column)]) for hours, column in at.items()}


def _drifted(record: Record, errors: FloatArray, origins: IntArray, steps: int) -> bool | None:
    """Whether the squares 24 h ahead, day by day, are above the expected ones by more than ERRORS standard errors."""
    last = errors[:, -1]
    number = origins // steps
    days = [last[(number == d) & np.isfinite(last)] for d in np.unique(number)]
    squares = np.array([float((day**2).mean()) for day in days if len(day)])
    if len(squares) < LEAST_DAYS:
        return None
    expected = float((record.expected["planned"][:, -1] ** 2).mean())
    return bool(squares.mean() - ERRORS * squares.std(ddof=1) / np.sqrt(len(squares)) > expected)


def _without(inputs: Inputs, state: FloatArray, start: int, stop: int) -> tuple[Inputs, FloatArray]:
    """The rows outside [start, stop), as if these were a gap."""
    keep = np.r_[0:start, stop : len(inputs)]
    segment = inputs.segment.copy()
    segment[stop:] += 1
    cut = {name: getattr(inputs, name)[keep] for name in ("load", "outdoor", "solar", "phase")}
    return replace(inputs, segment=segment[keep], train=len(keep), **cut), state[keep]
