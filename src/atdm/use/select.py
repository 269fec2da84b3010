"""Choose order, ridge and season on the training part; look at the test part once, at the end.

Under `blind` the agents compare the candidates inside the run that fits the chosen one, and only that one is released.
Under the other protocols the simulation compares them with all temperatures at hand (`compare_plain`), which says so.
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
from atdm.errors import AtdmError, RunAborted, UsageError
from atdm.kernel.design import FloatArray, Inputs
from atdm.kernel.estimate import Nonnegative, estimate
from atdm.kernel.selection import Candidate, Fitted, Score, Solve, choose, score
from atdm.protocol.plan import Plan, ProtocolName
from atdm.protocol.readings import public_inputs, seconds
from atdm.protocol.rules import Rules, check_agents
from atdm.run import Fit, choosing, fit, make_plan, progress_line, simulate, weather_of

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
    dither: float = 0.1,
    rules: Rules | None = None,
    progress: bool = False,
) -> Selection:
    """Compare all combinations of order, ridge and season by free runs of `horizon` inside the training part.

    Origins are `every` apart in its second half; each candidate is fitted on the rows before an origin. The chosen
    candidate is then fitted on the whole training part under `protocol`, and the test part is looked at once. Under
    "blind" both happen in one run among the agents, which compare with free weights; `scores` are read at one of them.
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
    if protocol == "blind":
        return _choose_among_agents(cluster, question, Rules() if rules is None else rules, dither, progress)
    with _progress(progress, len(question.candidates)) as report:
        scores, notes = compare_plain(cluster, question, report)
    if not scores:
        raise UsageError(f"no candidate can be fitted; the first says: {notes[0]}")
    if protocol != "plain":
        notes.append("candidates were compared in a simulation that holds all readings; only the final fit is private")
    chosen, best = choose(scores)
    final = fit(
        cluster, protocol, order=chosen.candidate.order, ridge=chosen.candidate.ridge, season=chosen.candidate.season,
        train=train, nonnegative=nonnegative, rules=rules, progress=progress,
    )  # fmt: skip
    return Selection(
        question=question, scores=tuple(scores), chosen=chosen, best=best, fit=final, notes=(*notes, *final.notes)
    )


def _choose_among_agents(
    cluster: Cluster, question: Question, rules: Rules, dither: float, progress: bool
) -> Selection:
    """One run of `blind`: the agents compare, choose and release."""
    horizon, every = _steps(cluster, question)
    rules = replace(rules, dither=dither)
    check_agents(len(cluster.agents), "blind", rules)
    plans, notes = _acceptable(cluster, question, rules)
    if not plans:
        raise UsageError(f"no candidate can be fitted; the first says: {notes[0]}")
    plan = choosing(next(iter(plans.values())), [p.model for p in plans.values()], horizon, every)
    with progress_line(progress, "blind", len(cluster.agents)) as report:
        final = simulate(cluster, plan, rules, report=report)
    if final.choice is None or final.choice.scores is None:
        raise RunAborted("the run ended without a choice")
    scored = {}
    for candidate, found in zip(plans, final.choice.scores, strict=True):
        if found is None:
            notes.append(f"{_named(candidate)}: the rows before some origin do not determine it, or its runs diverge")
        else:
            scored[candidate] = replace(found, candidate=candidate)
    _, best = choose(tuple(scored.values()))
    return Selection(
        question=question, scores=tuple(scored.values()), chosen=scored[list(plans)[final.choice.number]], best=best,
        fit=final, notes=(*notes, *final.notes),
    )  # fmt: skip


def _acceptable(cluster: Cluster, question: Question, rules: Rules) -> tuple[dict[Candidate, Plan], list[str]]:
    """The plan of each candidate that agents with these rules accept, and why they would refuse the others."""
    plans: dict[Candidate, Plan] = {}
    notes = []
    for candidate in question.candidates:
        try:
            plan = _plan(cluster, "blind", question, candidate)
        except AtdmError as error:
            notes.append(f"{_named(candidate)}: {error}")
            continue
        reason = rules.reason_to_refuse(plan, len(cluster.agents))
        if reason is not None:
            notes.append(f"{_named(candidate)}: {reason}")
        elif plan.model not in {p.model for p in plans.values()}:
            plans[candidate] = plan
    return plans, notes


def _steps(cluster: Cluster, question: Question) -> tuple[int, int]:
    """Horizon and distance of the origins, in steps."""
    steps = int(question.horizon // cluster.step), int(question.every // cluster.step)
    if min(steps) < 1:
        raise UsageError(f"horizon and origins closer than the {spell(cluster.step)} step: choose longer ones")
    return steps


def _named(candidate: Candidate) -> str:
    return f"order {candidate.order}, ridge {candidate.ridge:g}, season {candidate.season}"


def compare_plain(cluster: Cluster, question: Question, report: Report) -> tuple[list[Score], list[str]]:
    """Score every candidate with all temperatures of the training part at hand."""
    steps = _steps(cluster, question)
    scores, notes = [], []
    for number, candidate in enumerate(question.candidates):
        report(number)
        try:
            inputs, temperature = _training_part(cluster, question, candidate)
            scores.append(score(_centre(temperature, question.nonnegative), inputs, candidate, *steps))
        except AtdmError as error:
            notes.append(f"{_named(candidate)}: {error}")
    report(len(question.candidates))
    return scores, notes


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
    plan = _plan(cluster, "plain", question, candidate)
    whole = public_inputs(plan, seconds(cluster.time), cluster.load.to_numpy(float).sum(axis=1), weather_of(cluster))
    return whole.training_part(), cluster.temperature.iloc[: whole.train].to_numpy(float)


def _plan(cluster: Cluster, protocol: ProtocolName, question: Question, candidate: Candidate) -> Plan:
    return make_plan(
        cluster, protocol, order=candidate.order, ridge=candidate.ridge, season=candidate.season,
        nonnegative=question.nonnegative, train=question.train,
    )  # fmt: skip


@contextmanager
def _progress(wanted: bool, total: int) -> Iterator[Report]:
    if not wanted:
        yield lambda done: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("comparing candidates", total=total)
        yield lambda done: bar.update(task, completed=done)
