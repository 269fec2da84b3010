"""Several candidates in one run of `blind`: the agents compare them in the span of their totals, and choose.

The comparison (kernel/selection.py) needs the opened totals alone, so every agent makes it, and nobody is asked
anything. Weights are free in it: whose would be negative is not a matter of totals.

Rule 1: it sees the training rows; the totals' other rows are cut off before it starts.
Rule 2: the choice follows from the scores the leader announces, and they must be those every agent finds.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from atdm.data.clock import spell
from atdm.errors import DataError, RunAborted, UsageError
from atdm.kernel.design import FloatArray, Inputs, IntArray
from atdm.kernel.selection import Candidate, Score, choose, in_span, r_squared, rolling_origins, score
from atdm.kernel.span import Span
from atdm.protocol.plan import Plan
from atdm.protocol.readings import Weather, public_inputs
from atdm.protocol.sums import HALVES, Block, Layout

VERIFY_SCORES = 1e-9  # of a candidate's largest error; rounding its inputs otherwise moves it by 1e-11 at most

HOPELESS = 1e12  # squared error over spread: the free run diverged

Scores = tuple[Score | None, ...]  # by candidate of the plan; None: its rows do not determine it, or its runs diverge


def compare(plan: Plan, kept: IntArray, inputs: Inputs, weather: Weather, span: Span) -> Scores:
    """Rolling-origin validation of all candidates on the training rows of the totals."""
    solve = in_span(span.series[: inputs.train], span.ones, span.gram, minimum_norm=plan.minimum_norm)
    found: list[Score | None] = []
    for model in plan.candidates:
        part = public_inputs(plan.of(model), kept, inputs.load, weather).training_part()
        season = pd.Timedelta(seconds=model.period * plan.step_seconds)
        candidate = Candidate(order=model.order, ridge=model.ridge, season=spell(season))
        try:
            scored = score(solve, part, candidate, plan.horizon, plan.every)
        except (UsageError, DataError, ArithmeticError, np.linalg.LinAlgError):
            found.append(None)
            continue
        found.append(scored if (np.array(scored.errors) < HOPELESS).all() else None)
    return tuple(found)


def origins_of(plan: Plan, inputs: Inputs) -> int:
    """Validation runs of each candidate: the same for all, because all are fitted to the same rows."""
    return len(rolling_origins(inputs, plan.horizon, plan.every))


def choice_layout(candidates: int, origins: int) -> Layout:
    """The choice, and for each candidate whether it can be fitted, and its errors by origin."""
    return Layout((Block("choice", 1 + candidates * (1 + origins), HALVES),))


def announce_choice(scores: Scores, plan: Plan) -> FloatArray:
    """The leader's words."""
    number = number_of_chosen(scores, plan)  # there is one that can be fitted
    origins = next(s.origins for s in scores if s is not None)
    rows = [np.zeros(1 + origins) if s is None else np.array([1.0, *s.errors]) for s in scores]
    return np.concatenate([[float(number)], *rows])


def verify_choice(mine: Scores, announced: FloatArray, plan: Plan) -> int:
    """The number of the chosen candidate. The leader's scores must be those found here, its choice what they give."""
    chosen, rows = announced[0], announced[1:].reshape(len(mine), -1)
    for own, (usable, *errors) in zip(mine, rows, strict=True):
        expected = np.zeros(len(errors)) if own is None else np.array(own.errors)
        bound = VERIFY_SCORES * float(np.abs(expected).max())
        if usable != float(own is not None) or not (np.abs(expected - errors) <= bound).all():
            raise RunAborted("the leader's scores are not what the totals give: it deviates, or its arithmetic does")
    agreed = tuple(
        own if own is None else replace(own, errors=tuple(errors), r2=r_squared(errors))
        for own, (_, *errors) in zip(mine, rows.tolist(), strict=True)
    )
    number = number_of_chosen(agreed, plan)
    if chosen != number:
        raise RunAborted("the leader's choice is not the one its scores give")
    return number


def number_of_chosen(scores: Scores, plan: Plan) -> int:
    """Among ridges that are as good, the one of the model at hand stays."""
    usable = [s for s in scores if s is not None]
    if not usable:
        raise RunAborted("no candidate can be fitted on the rows before every origin: use a longer window or others")
    chosen, _ = choose(usable, at_hand=plan.ridge)
    return next(i for i, s in enumerate(scores) if s is chosen)
