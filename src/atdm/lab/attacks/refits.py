"""Attacks that ask for fits of the same days again: with other numbers, on other grids, with other seasons, broken off.

Everybody follows the protocol. What an aggregator was released, or an agent on its side was shown, is put together by
source separation. The rules that answer them are in docs/spec.md §6.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product

import msgspec
import numpy as np
from scipy.interpolate import CubicSpline

from atdm.data.clock import seconds
from atdm.data.readings import positions
from atdm.kernel.thermal import Coefficients
from atdm.lab.attacks.dishonest import Mounted, ending
from atdm.lab.attacks.score import Guess
from atdm.lab.attacks.separation import separate_totals
from atdm.lab.attacks.stage import Released, Stage
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.plan import DAY, Plan
from atdm.protocol.readings import public_inputs, weather_hash
from atdm.run import weather_of
from atdm.types import FloatArray, IntArray

RIDGES, ORDERS, SHARES = (0.1, 1.0, 10.0, 100.0), (1, 2), (0.3, 0.6, 0.9)  # λ, M and training shares of further fits
COARSER = 4  # steps of the readings in one of the plan
EDGE = 2 * COARSER  # rows at either end of a window that interpolation does not reach
LARGE = 1e4  # λ at which first directions differ most [K²]
CLIPS = tuple(np.geomspace(32.0, 0.5, 32).tolist())
LONGER = 10  # training rows of a long season, beyond one for each of its steps
SEASONS = 16  # fits with a long season


def variants(plan: Plan) -> Iterator[Plan]:
    """The fit, and others over the same rows that differ in what the aggregator may choose."""
    yield plan
    for ridge, order, train in product(RIDGES, ORDERS, SHARES):
        yield msgspec.structs.replace(plan, ridge=ridge, order=order, train=train, nonnegative="free")


def shown(stage: Stage, place: int) -> list[FloatArray]:
    """Different totals that an agent was shown in all runs."""
    totals = [seen.value for seen in stage.agents[place].own.notebook.seen if seen.what == "basis total"]
    return list({total.tobytes(): total for total in totals}.values())


def separated(columns: list[FloatArray], rows: IntArray | None = None) -> list[Guess]:
    """Single agents in series of the same rows."""
    if not columns:
        return []
    return [replace(guess, rows=rows) for guess in separate_totals(np.column_stack(columns))]


def refits(stage: Stage, plan: Plan) -> Mounted:
    """By the aggregator alone, from what each fit releases."""
    runs = [stage.play(each) for each in variants(plan)]
    states = [Released.of(run).state for run in runs if run.state is AggregatorState.DONE]
    note = f"{len(runs)} fits asked for, {len(states)} released"
    return Mounted(len(states) > 1, separated([each for each in states if len(each) == len(stage.cluster.time)]), note)


def broken_off(stage: Stage, plan: Plan, colluder: int) -> Mounted:
    """Each fit is broken off when the agent that helps has been shown two more totals: nothing is released."""
    for each in list(variants(plan))[::2]:
        before = len(shown(stage, colluder))
        stage.play(each, until=lambda _, before=before: len(shown(stage, colluder)) >= before + 2)  # type: ignore[misc]
    totals = [total for total in shown(stage, colluder) if len(total) == len(stage.cluster.time)]
    most = plan.totals_for(len(stage.agents))
    return Mounted(len(totals) > most, separated(totals), f"{len(totals)} totals shown to an agent, {most} allowed")


def coarse_steps(stage: Stage, plan: Plan, colluder: int) -> Mounted:
    """Fits with a coarse step at several offsets: no stamp is asked for twice, and slow series are shown again."""
    step, series = COARSER * plan.step_seconds, list[FloatArray]()
    if DAY % step:
        return Mounted(False, [], "no coarser step divides the day")
    time = seconds(stage.cluster.time)
    inside = np.arange(EDGE, len(time) - EDGE, dtype=np.int64)
    for offset, ridge in zip(range(COARSER), (100.0, 1.0, 10.0, 0.1), strict=True):
        start, length = plan.start + offset * plan.step_seconds, (plan.length - offset) // COARSER
        before, stamps = len(shown(stage, colluder)), start + step * np.arange(length)
        stage.play(msgspec.structs.replace(
            plan, step_seconds=step, period=DAY // step, start=start, length=length, ridge=ridge, order=1,
            nonnegative="free", weather=weather_hash(weather_of(stage.cluster), start, start + (length - 1) * step),
        ))  # fmt: skip
        there = np.intersect1d(stamps, time)
        totals = [total for total in shown(stage, colluder)[before:] if len(total) == len(there)]
        series += [CubicSpline(there, total)(time[inside]) for total in totals]
    most = plan.totals_for(len(stage.agents))
    note = f"{len(series)} totals shown to an agent, {most} allowed"
    return Mounted(len(series) > most, separated(series, inside), note)


def other_clips(stage: Stage, plan: Plan, colluder: int) -> Mounted:
    """Plans that differ in the clip alone, broken off after their first direction: two such totals differ by the homes
    that the clips meet, at first by one."""
    found: list[tuple[FloatArray, float]] = []
    notebook = stage.agents[colluder].own.notebook
    for clip in CLIPS:
        before = len(notebook.seen)
        wanted = msgspec.structs.replace(plan, clip=clip, ridge=LARGE, nonnegative="free")
        stage.play(wanted, until=lambda _, before=before: _directions(stage, colluder, before))  # type: ignore[misc]
        totals = [seen.value for seen in notebook.seen[before:] if seen.what == "basis total"][1:2]
        ones = [float(seen.value[0]) for seen in notebook.seen[before:] if seen.label == "one"]
        found += list(zip(totals, ones, strict=False))
    slopes = [(a - b) / (one - other) for (a, one), (b, other) in pairwise(found) if abs(one - other) > 1e-6]
    slopes = [slope for slope in slopes if len(slope) == len(stage.cluster.time)]
    columns = [*slopes, *(b - a for a, b in pairwise(slopes))]
    note = f"{len(CLIPS)} fits asked for, {len(found)} first directions shown to an agent"
    return Mounted(len(found) > 1, [Guess(series=np.column_stack(columns), scaled=False)] if columns else [], note)


def _directions(stage: Stage, place: int, before: int) -> bool:
    seen = stage.agents[place].own.notebook.seen[before:]
    return any(each.label == "one" for each in seen)


def long_seasons(stage: Stage, plan: Plan) -> Mounted:
    """By the aggregator alone, from coefficients only, as if rows were released once: where a season has about as many
    steps as there are training rows, `occ` is the residual row by row, and s follows."""
    first = stage.play(plan)
    if first.state is not AggregatorState.DONE:
        return Mounted(False, [], ending(first))
    known = Released.of(first)
    length = plan.length
    period = int(length * 0.5)
    rows = np.arange(1, period + LONGER - 1, dtype=np.int64)
    states, ended = [], ""
    for number in range(SEASONS):
        wanted = msgspec.structs.replace(
            plan, order=1, period=period, ridge=0.1 * 2.0**number, train=(period + LONGER + 0.5) / length,
            nonnegative="free",
        )  # fmt: skip
        run = stage.play(wanted)
        if (found := _coefficients(run)) is None:
            ended = ended or ending(run)
            continue
        inputs = public_inputs(wanted, known.kept, known.load, weather_of(stage.cluster))
        forcing = found.forcing(inputs, rows)  # s_t − α s_{t−1}, but for the residual
        states.append(_grown(float(found.alpha[0]), forcing, known.state[0]))
    at = positions(seconds(stage.cluster.time), known.kept[: len(rows) + 1])
    note = ended or f"{len(states)} series from coefficients alone"
    return Mounted(len(states) > 1, separated(states, at), note)


def _coefficients(run: Aggregator) -> Coefficients | None:
    outcome = None if run.desk is None else run.desk.outcome
    return None if outcome is None else outcome.estimate.coefficients


def _grown(alpha: float, forcing: FloatArray, first: float) -> FloatArray:
    """s from its first value."""
    state = [first]
    for each in forcing.tolist():
        state.append(alpha * state[-1] + each)
    return np.array(state)
