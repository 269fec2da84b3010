"""Choose order, ridge and season on the training part; look at the test part once, at the end.

In a simulation the candidates are compared with all temperatures at hand (`compare_plain`), whatever protocol then
fits the chosen one. A protocol that compares them among the agents puts its own comparison into COMPARISONS; all it
has to provide is kernel/selection.py's `Solve`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import Progress

from atdm.data import Cluster
from atdm.data.clock import duration, spell
from atdm.errors import AtdmError, UsageError
from atdm.kernel.design import FloatArray, Inputs
from atdm.kernel.estimate import Nonnegative, estimate
from atdm.kernel.selection import Candidate, Fitted, Score, Solve, choose, score
from atdm.protocol.plan import ProtocolName
from atdm.protocol.readings import public_inputs, seconds
from atdm.run import Fit, fit, make_plan, weather_of

TOLERANCE = 1e-9  # gap at which a candidate's descent stops; the chosen model's stops where atdm.fit says


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is compared, and on what terms."""

    candidates: tuple[Candidate, ...]
    horizon: pd.Timedelta  # of the validation runs
    every: pd.Timedelta  # between their origins
    train: float
    nonnegative: Nonnegative


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """How the candidates did on the training part, and the chosen one's fit, with its test part."""

    question: Question
    scores: tuple[Score, ...]  # in the order asked for
    chosen: Score
    best: Score  # highest R²; the chosen one may be simpler
    fit: Fit
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
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


Report = Callable[[int], None]  # number of candidates done
Compare = Callable[[Cluster, Question, Report], tuple[list[Score], list[str]]]


def select(
    cluster: Cluster,
    orders: Sequence[int] = (1, 2, 3),
    ridges: Sequence[float] = (30.0, 100.0, 300.0),
    seasons: Sequence[str] = ("24h",),
    *,
    horizon: str = "24h",
    every: str = "24h",
    protocol: ProtocolName = "blind",
    train: float = 0.75,
    nonnegative: Nonnegative = "ridge",
    progress: bool = False,
) -> Selection:
    """Compare all combinations of order, ridge and season by free runs of `horizon` inside the training part.

    Origins are `every` apart in its second half; each candidate is fitted on the rows before an origin. The chosen
    candidate is then fitted on the whole training part under `protocol`, and the test part is looked at once.
    """
    question = Question(
        candidates=tuple(Candidate(order=m, ridge=float(r), season=s) for s, m, r in product(seasons, orders, ridges)),
        horizon=duration(horizon),
        every=duration(every),
        train=train,
        nonnegative=nonnegative,
    )
    if not question.candidates:
        raise UsageError("nothing to select from: give at least one order, ridge and season")
    with _progress(progress, len(question.candidates)) as report:
        scores, notes = COMPARISONS.get(protocol, compare_plain)(cluster, question, report)
    if not scores:
        raise UsageError(f"no candidate can be fitted; the first says: {notes[0]}")
    if protocol != "plain" and protocol not in COMPARISONS:
        notes.append("candidates were compared in a simulation that holds all readings; only the final fit is private")
    chosen, best = choose(scores)
    final = fit(
        cluster, protocol, order=chosen.candidate.order, ridge=chosen.candidate.ridge, season=chosen.candidate.season,
        train=train, nonnegative=nonnegative, progress=progress,
    )  # fmt: skip
    return Selection(
        question=question, scores=tuple(scores), chosen=chosen, best=best, fit=final, notes=(*notes, *final.notes)
    )


def compare_plain(cluster: Cluster, question: Question, report: Report) -> tuple[list[Score], list[str]]:
    """Score every candidate with all temperatures of the training part at hand."""
    steps = int(question.horizon // cluster.step), int(question.every // cluster.step)
    if min(steps) < 1:
        raise UsageError(f"horizon and origins closer than the {spell(cluster.step)} step: choose longer ones")
    scores, notes = [], []
    for number, candidate in enumerate(question.candidates):
        report(number)
        try:
            inputs, temperature = _training_part(cluster, question, candidate)
            scores.append(score(_centre(temperature, question.nonnegative), inputs, candidate, *steps))
        except AtdmError as error:
            notes.append(f"order {candidate.order}, ridge {candidate.ridge:g}, season {candidate.season}: {error}")
    report(len(question.candidates))
    return scores, notes


COMPARISONS: dict[str, Compare] = {"plain": compare_plain}


def _centre(temperature: FloatArray, nonnegative: Nonnegative) -> Solve:
    """Fits with every agent's temperature (N × K) at hand."""

    def solve(part: Inputs, c: Candidate) -> Fitted:
        found, _ = estimate(
            part, temperature, order=c.order, ridge=c.ridge, nonnegative=nonnegative, tolerance=TOLERANCE
        )
        return Fitted(coefficients=found.coefficients, state=found.state, rss=found.rss, ridge=found.ridge)

    return solve


def _training_part(cluster: Cluster, question: Question, candidate: Candidate) -> tuple[Inputs, FloatArray]:
    """The inputs and temperatures of the training rows; the others are cut off, so that nobody can look."""
    plan = make_plan(cluster, "plain", order=candidate.order, ridge=candidate.ridge, season=candidate.season,
                     nonnegative=question.nonnegative, train=question.train)  # fmt: skip
    whole = public_inputs(plan, seconds(cluster.time), cluster.load.to_numpy(float).sum(axis=1), weather_of(cluster))
    part = slice(0, whole.train)
    inputs = replace(
        whole, load=whole.load[part], outdoor=whole.outdoor[part], solar=whole.solar[part], phase=whole.phase[part],
        segment=whole.segment[part],
    )  # fmt: skip
    return inputs, cluster.temperature.iloc[part].to_numpy(float)


@contextmanager
def _progress(wanted: bool, total: int) -> Iterator[Report]:
    if not wanted:
        yield lambda done: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("comparing candidates", total=total)
        yield lambda done: bar.update(task, completed=done)
