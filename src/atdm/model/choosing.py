"""Which model to use: order and day types chosen on the training rows of released series, by forecasts of 24 h.

Rule 1: nothing after the training rows is looked at, and no agent is asked.
Rule 2: every candidate keeps the rules of model/physical.py, so whatever is chosen is stable and heat warms in it.
Rule 3: a candidate is estimated on the rows before each of FOLDS parts of the second half of the training rows, and
        forecasts 24 h from every row of that part. Its error is the mean square over all steps of these runs.
Rule 4: chosen is the candidate with fewest parameters that is not worse than the best by more than one standard error
        of their difference, day by day (Breiman et al. 1984).
Rule 5: the chosen one refined on its own forecasts (model/refinement.py) takes its place if it is better in Rule 3 by
        more than one standard error.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from atdm.errors import AtdmError, UsageError
from atdm.kernel.design import Inputs, lagged_rows, parameter_count
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import TYPES, Calendar, DayTypes
from atdm.model.horizons import origins_in, rolling_errors
from atdm.model.physical import estimate_physical
from atdm.model.refinement import refine
from atdm.types import FloatArray, IntArray

ORDERS = (1, 2, 3)
FIRST = 0.5  # share of the training rows before the first forecast
FOLDS = 4
ROWS_PER_PARAMETER = 5  # training rows below which a candidate is not tried
FEWEST_DAYS = 3  # with forecasts, below which nothing is told apart by its standard error


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A kind of model to choose from.

    Attributes
    ----------
    order : int
        M.
    day_types : {"all days", "weekend", "saturday, sunday"}
        Which days have a profile of their own.
    holidays : bool
        Whether public holidays count as Sundays.
    refined : bool
        Whether the coefficients are refined on forecasts of up to 24 h.
    """

    order: int
    day_types: DayTypes
    holidays: bool = False
    refined: bool = False

    def calendar(self, base: Calendar, holidays: frozenset[date]) -> Calendar:
        """The calendar of such a model.

        Parameters
        ----------
        base : Calendar
            Step, clock and season.
        holidays : frozenset of date
            Local days that count as Sundays where the candidate says so.

        Returns
        -------
        Calendar
            With the candidate's day types.
        """
        return Calendar(
            step=base.step, timezone=base.timezone, season=base.season, day_types=self.day_types,
            holidays=holidays if self.holidays else frozenset(),
        )  # fmt: skip

    def parameters(self, season: int) -> int:
        """How many numbers such a model has.

        Parameters
        ----------
        season : int
            Steps of one profile.

        Returns
        -------
        int
            Free parameters of Eq. (2).
        """
        return parameter_count(self.order, season * TYPES[self.day_types])

    def words(self) -> str:
        """As a person says it."""
        kinds = {"all days": "all days alike", "weekend": "weekdays and weekends",
                 "saturday, sunday": "weekdays, Saturdays and Sundays"}[self.day_types]  # fmt: skip
        return (
            f"order {self.order}, {kinds}"
            + (", holidays as Sundays" if self.holidays else "")
            + (", refined on 24 h" if self.refined else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How a candidate's forecasts of 24 h did inside the training rows.

    Attributes
    ----------
    candidate : Candidate
        What was tried.
    parameters : int
        How many numbers it has.
    rmse : float
        Root mean square error over all steps of all runs [K].
    by_day : tuple of float
        Mean square error of the runs of each day [K²].
    """

    candidate: Candidate
    parameters: int
    rmse: float
    by_day: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {**asdict(self.candidate), "parameters": self.parameters, "rmse": self.rmse, "days": len(self.by_day)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The chosen model, and how the candidates did.

    Attributes
    ----------
    candidate : Candidate
        What was chosen.
    calendar : Calendar
        Its step, clock, season and day types.
    coefficients : Coefficients
        Estimated on all training rows.
    scores : tuple of Score
        Of all candidates, in the order tried; empty where the rows allow no forecasts to choose by.
    notes : tuple of str
        What could not be tried, and why.
    """

    candidate: Candidate
    calendar: Calendar
    coefficients: Coefficients
    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Score | None:
        """The lowest error; the chosen one may be simpler."""
        return min(self.scores, key=lambda s: s.rmse, default=None)

    def margins(self) -> tuple[tuple[float, float], ...]:
        """What the choice went by, for each of the scores.

        Returns
        -------
        tuple of (float, float)
            By how much its mean square error is above that of the best one that is not refined (a refined one: above
            that of the same one without), and the standard error of this difference, NaN where there are too few days
            to tell [K²].
        """
        plain = {score.candidate: score for score in self.scores if not score.candidate.refined}
        best = min(plain.values(), key=lambda s: s.rmse, default=None)
        against = [
            plain.get(replace(s.candidate, refined=False), best) if s.candidate.refined else best for s in self.scores
        ]
        return tuple(worse_by(s, other or s) for s, other in zip(self.scores, against, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            **asdict(self.candidate),
            "words": self.candidate.words(),
            "candidates": [
                {**score.as_dict(), "above": above, "standard_error": error if math.isfinite(error) else None}
                for score, (above, error) in zip(self.scores, self.margins(), strict=True)
            ],
            "notes": list(self.notes),
        }


def choose(
    inputs: Inputs,
    state: FloatArray,
    time: pd.DatetimeIndex,
    base: Calendar,
    *,
    holidays: frozenset[date] = frozenset(),
    orders: Sequence[int] = ORDERS,
) -> Choice:
    """The model of released rows that forecasts 24 h best, estimated on all training rows (rows before inputs.train).

    inputs, state [°C], time: by row; base: step, clock and season; holidays: local days that may count as Sundays.
    """
    part, known = inputs.training_part(), state[: inputs.train]
    clock = time[: inputs.train]
    on = {c: c.on(part, clock) for c in {k.calendar(base, holidays) for k in candidates(base, holidays, orders)}}
    scores, notes = [], []
    for candidate in candidates(base, holidays, orders):
        needed = ROWS_PER_PARAMETER * candidate.parameters(base.season)
        if inputs.train < needed:
            continue
        calendar = candidate.calendar(base, holidays)
        try:
            scores.append(scored(candidate, calendar, on[calendar], known))
        except AtdmError as error:
            notes.append(f"{candidate.words()}: not tried, {error}")
    if not scores:
        return _without_choice(part, known, clock, base, orders, notes)
    picked = simplest(scores)
    calendar = picked.candidate.calendar(base, holidays)
    refined = scored(_refined(picked.candidate), calendar, on[calendar], known)
    scores.append(refined)
    if better(refined, picked):
        picked = refined
    found = estimated(picked.candidate, calendar, on[calendar], known, inputs.train)
    return Choice(
        candidate=picked.candidate, calendar=calendar, coefficients=found, scores=tuple(scores), notes=tuple(notes)
    )


def candidates(base: Calendar, holidays: frozenset[date], orders: Sequence[int] = ORDERS) -> list[Candidate]:
    """Simplest first. A season that is not a day has no day types; holidays matter only where Sundays do."""
    kinds: list[DayTypes] = list(TYPES) if base.daily else ["all days"]
    return [
        Candidate(order=order, day_types=kind, holidays=free)
        for kind in kinds
        for free in ((False, True) if holidays and kind != "all days" else (False,))
        for order in orders
    ]


def estimated(candidate: Candidate, calendar: Calendar, inputs: Inputs, state: FloatArray, stop: int) -> Coefficients:
    """A candidate's coefficients from the rows before `stop`."""
    rows = lagged_rows(inputs.segment, candidate.order, 0, stop)
    found = estimate_physical(inputs, state, candidate.order, calendar, rows=rows)
    return refine(found, inputs, state, calendar, stop) if candidate.refined else found


def scored(candidate: Candidate, calendar: Calendar, inputs: Inputs, state: FloatArray) -> Score:
    """Rule 3."""
    stop = len(inputs)
    day = max(1, round(24 / calendar.step_hours))
    cuts = np.linspace(round(FIRST * stop), stop, FOLDS + 1).astype(int)
    squares: list[FloatArray] = []
    when: list[IntArray] = []
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        origins = origins_in(inputs, start, end)
        origins = origins[origins + day <= stop]
        if not len(origins):
            continue
        found = estimated(candidate, calendar, inputs, state, start)
        errors = rolling_errors(found, inputs, state, origins, day)
        whole = np.isfinite(errors[:, -1])
        squares.append((errors[whole] ** 2).mean(axis=1))
        when.append((origins[whole] - cuts[0]) // day)
    if not sum(len(s) for s in squares):
        raise UsageError("no 24 h without a gap in the second half of the training rows to forecast")
    square, number = np.concatenate(squares), np.concatenate(when)
    days = np.unique(number)
    by_day = tuple(float(square[number == d].mean()) for d in days)
    return Score(
        candidate=candidate,
        parameters=candidate.parameters(calendar.season),
        rmse=math.sqrt(math.fsum(by_day) / len(by_day)),
        by_day=by_day,
    )


def simplest(scores: Sequence[Score]) -> Score:
    """Rule 4."""
    best = min(scores, key=lambda s: s.rmse)
    near = [s for s in scores if s is best or not better(best, s)]
    return min(near, key=lambda s: (s.parameters, s.candidate.order, s.candidate.holidays))


def better(one: Score, other: Score) -> bool:
    """Whether one forecasts better than the other by more than a standard error of their difference, day by day."""
    mean, error = worse_by(other, one)
    return mean > error


def worse_by(one: Score, other: Score) -> tuple[float, float]:
    """By how much one's mean square error is above the other's, day by day, and the standard error of that: NaN where
    there are too few days to tell. [K²]"""
    # exactly rounded sums: whoever has the same scores makes the same choice, on any machine
    difference = [b - a for a, b in zip(other.by_day, one.by_day, strict=True)]
    n = len(difference)
    mean = math.fsum(difference) / n
    if n < FEWEST_DAYS:
        return mean, math.nan
    variance = math.fsum((d - mean) ** 2 for d in difference) / (n - 1)
    return mean, math.sqrt(variance / n)


def _refined(candidate: Candidate) -> Candidate:
    return replace(candidate, refined=True)


def _without_choice(
    inputs: Inputs, state: FloatArray, time: pd.DatetimeIndex, base: Calendar, orders: Sequence[int], notes: list[str]
) -> Choice:
    """Too few rows to compare by: the simplest candidate, as it is."""
    candidate = Candidate(order=min(orders), day_types="all days")
    calendar = candidate.calendar(base, frozenset())
    found = estimated(candidate, calendar, calendar.on(inputs, time), state, len(inputs))
    said = f"{len(inputs)} training rows are too few to choose a model by its forecasts: {candidate.words()} it is"
    return Choice(candidate=candidate, calendar=calendar, coefficients=found, scores=(), notes=(*notes, said))
