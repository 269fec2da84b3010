"""Choose order and season on the training part of what a fit released; look at the test part once, at the end.

One fit gives the weights, and with them the aggregate temperature and the load. Everything after that is arithmetic on
these two series, which whoever ran the fit has anyway: no agent is asked again, whatever the protocol. The ridge shapes
the weights themselves, so that another one is another fit: only a trusted centre (`plain`) can compare several.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from atdm.data import Cluster
from atdm.data.clock import duration, phase, season_steps, spell
from atdm.errors import AtdmError, UsageError
from atdm.kernel.design import Inputs
from atdm.kernel.estimate import Nonnegative, of_state
from atdm.model.selection import Candidate, Fitted, Score, Solve, choose, score
from atdm.protocol.options import ProtocolName, WeightsName
from atdm.protocol.rules import Rules
from atdm.run import Fit, fit
from atdm.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is compared, and on what terms.

    Attributes
    ----------
    candidates : tuple of Candidate
        All combinations asked for.
    horizon : pandas.Timedelta
        Length of a validation run.
    every : pandas.Timedelta
        Time between their origins.
    """

    candidates: tuple[Candidate, ...]
    horizon: pd.Timedelta
    every: pd.Timedelta


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """How the candidates did on the training part, and the fit with the chosen model in it.

    Attributes
    ----------
    question : Question
        What was compared, and on what terms.
    scores : tuple of Score
        One for each candidate that can be fitted, in the order asked for.
    chosen : Score
        The simplest candidate within one standard error of the best.
    best : Score
        The candidate with the highest R²; the chosen one may be simpler.
    fit : Fit
        The fit with the chosen model, with its test part.
    notes : tuple of str
        Why candidates are missing, and the notes of the fit.
    """

    question: Question
    scores: tuple[Score, ...]
    chosen: Score
    best: Score
    fit: Fit
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The comparison for JSON."""

        def row(s: Score) -> dict[str, Any]:
            return {**asdict(s.candidate), "r2": s.r2, "rmse": s.rmse, "bic": s.bic, "ridge_used": s.ridge,
                    "origins": s.origins}  # fmt: skip

        return {
            "horizon_hours": self.question.horizon.total_seconds() / 3600,
            "candidates": [row(s) for s in self.scores],
            "chosen": asdict(self.chosen.candidate),
            "best": asdict(self.best.candidate),
            "test": self.fit.metrics["test"],
            "notes": list(self.notes),
        }


def select(
    cluster: Cluster,
    orders: Sequence[int] = (1, 2, 3),
    ridges: Sequence[float] = (100.0,),
    seasons: Sequence[str] = ("24h",),
    *,
    horizon: str = "24h",
    every: str = "24h",
    protocol: ProtocolName = "blind",
    weights: WeightsName = "fitted",
    train: float = 0.75,
    nonnegative: Nonnegative = "ridge",
    dither: float = 0.1,
    rules: Rules | None = None,
    progress: bool = False,
) -> Selection:
    """Compare all combinations of order and season by free runs inside the training part.

    The series come from one fit as `fit` makes it (order 2, a season of 24 h). Each candidate is estimated on the rows
    before an origin and runs free after it. The simplest within one standard error of the best is chosen and estimated
    on all training rows, and the test part is looked at once.

    Parameters
    ----------
    cluster : Cluster
        Readings of all agents and the weather.
    orders : sequence of int, default (1, 2, 3)
        Candidates for M.
    ridges : sequence of float, default (100.0,)
        Candidates for λ; several under "plain" only, by one fit each [K²].
    seasons : sequence of str, default ("24h",)
        Candidates for the season.
    horizon : str, default "24h"
        Length of a free run.
    every : str, default "24h"
        Time between two origins, in the second half of the training rows.
    protocol : {"blind", "moments", "paper", "plain"}, default "blind"
        As in `fit`.
    weights : {"fitted", "equal"}, default "fitted"
        As in `fit`.
    train : float, default 0.75
        As in `fit` [-].
    nonnegative : {"ridge", "exact", False}, default "ridge"
        As in `fit`.
    dither : float, default 0.1
        As in `fit` [sensor quanta].
    rules : Rules, optional
        As in `fit`.
    progress : bool, default False
        As in `fit`.

    Returns
    -------
    Selection
        How the candidates did, and the fit with the chosen one.

    Raises
    ------
    UsageError
        No candidate, several ridges where the protocol makes one fit, or none that can be fitted.
    """
    question = Question(
        candidates=tuple(Candidate(order=m, ridge=float(r), season=s) for s, m, r in product(seasons, orders, ridges)),
        horizon=duration(horizon),
        every=duration(every),
    )
    if not question.candidates:
        raise UsageError("nothing to select from: give at least one order, ridge and season")
    if len(ridges) > 1 and (protocol != "plain" or weights == "equal"):
        raise UsageError(
            f"{len(ridges)} ridges: the ridge is a number of the fit, which {protocol} with {weights} weights makes "
            "once; give one ridge, or protocol plain to compare several on data you hold"
        )
    if min(question.horizon, question.every) < cluster.step:
        raise UsageError(f"horizon and origins closer than the {spell(cluster.step)} step: choose longer ones")
    fits = {
        float(ridge): fit(
            cluster, protocol, ridge=ridge, train=train, nonnegative=nonnegative, weights=weights, dither=dither,
            rules=rules, progress=progress,
        )
        for ridge in ridges
    }  # fmt: skip
    scores, notes = compared(fits, question)
    if not scores:
        raise UsageError(f"no candidate can be fitted; the first says: {notes[0]}")
    chosen, best = choose(scores)
    final = with_model(fits[chosen.candidate.ridge], chosen.candidate)
    return Selection(
        question=question, scores=tuple(scores), chosen=chosen, best=best, fit=final, notes=(*notes, *final.notes)
    )


def compared(fits: dict[float, Fit], question: Question) -> tuple[list[Score], list[str]]:
    """Every candidate's score on the training rows of the fit with its ridge, and why some have none."""
    scores, notes = [], []
    for candidate in question.candidates:
        found = fits[candidate.ridge]
        steps = int(question.horizon // found.model.step), int(question.every // found.model.step)
        try:
            inputs = inputs_of(found, candidate.season).training_part()
            state = found.train.to_numpy(float)
            scores.append(score(_on(state, found.ridge), inputs, candidate, *steps))
        except AtdmError as error:
            notes.append(f"order {candidate.order}, ridge {candidate.ridge:g}, season {candidate.season}: {error}")
    return scores, notes


def _on(state: FloatArray, ridge: float) -> Solve:
    """Models of a given aggregate temperature: its weights stay, whatever the candidate."""

    def solve(part: Inputs, candidate: Candidate) -> Fitted:
        found = of_state(part, state, order=candidate.order)
        return Fitted(coefficients=found.coefficients, state=state, rss=found.rss, ridge=ridge)

    return solve


def inputs_of(found: Fit, season: str) -> Inputs:
    """The released rows with another season."""
    model, period = found.model, season_steps(season, found.model.step)
    index = pd.DatetimeIndex(found.state.index)
    return replace(found.inputs, phase=phase(index, model.step, model.timezone, period), period=period)


def with_model(found: Fit, candidate: Candidate) -> Fit:
    """The same fit, weights and series, with the model of another order and season."""
    inputs = inputs_of(found, candidate.season)
    estimate = of_state(inputs, found.state.to_numpy(float), order=candidate.order)
    return replace(
        found, model=replace(found.model, coefficients=estimate.coefficients), inputs=inputs, rss=estimate.rss,
        metrics=estimate.metrics,
    )  # fmt: skip
