"""Agents of `blind` compare candidates in the span of their totals; only the chosen model leaves."""

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import atdm
from atdm.data.clock import duration
from atdm.errors import AtdmError, RunAborted, UsageError
from atdm.kernel.descent import Status
from atdm.kernel.selection import Candidate as KernelCandidate
from atdm.kernel.selection import choose
from atdm.protocol import blind, choice
from atdm.protocol.aggregator import Aggregator, State
from atdm.protocol.messages import Masked, decode_to_aggregator
from atdm.protocol.plan import Candidate, Plan, check_plan
from atdm.run import enrol, make_plan, simulate, weather_of
from atdm.use.select import Question, Selection, compare_plain, select
from tests.clusters import tiny
from tests.protocol.drive import RULES, drive, seeded
from tests.protocol.test_agreement import EASY, difference
from tests.protocol.test_vanishing import assert_is_the_plain_fit
from tests.protocol.world import LOOSE, Killed, World, with_candidates

BIG = 10**9
OPTIONS = {"orders": (1, 2), "ridges": (2.0, 20.0), "horizon": "2d", "every": "1d", "nonnegative": False}


def compares_well(cluster: atdm.Cluster, found: Selection, near: float, far: float) -> KernelCandidate:
    """R² within `near` of the centre's where order and season are the chosen ones, within `far` elsewhere; what was
    chosen has the order and season of the centre's choice and, by the centre's own scores, is no worse by `near`.
    Returns the centre's choice."""
    true, _ = compare_plain(cluster, replace(found.question, nonnegative=False), lambda done: None)
    chosen, mine = choose(true)[0], found.chosen
    for score, centre in zip(found.scores, true, strict=True):
        assert score.candidate == centre.candidate
        alike = (centre.candidate.order, centre.period) == (mine.candidate.order, mine.period)
        assert abs(score.r2 - centre.r2) < (near if alike else far), (score.candidate, score.r2, centre.r2)
    assert (mine.candidate.order, mine.period) == (chosen.candidate.order, chosen.period)
    assert next(s for s in true if s.candidate == mine.candidate).r2 > chosen.r2 - near
    return chosen.candidate


# The comparison, and what is released


@pytest.mark.parametrize("seed", range(4))
def test_scores_and_model_on_small_clusters_are_those_of_a_trusted_centre(seed: int) -> None:
    cluster = tiny(seed, agents=10 + seed, rows=120)
    found = select(cluster, protocol="blind", rules=EASY, dither=0.0, **OPTIONS)
    compares_well(cluster, found, near=3e-3, far=5e-3)
    chosen, notes = found.chosen.candidate, found.notes
    ordinary = atdm.fit(
        cluster, "plain", order=chosen.order, ridge=chosen.ridge, season=chosen.season, nonnegative=False
    )
    model, r2, weights = difference(found.fit, ordinary)
    assert found.fit.converged and model < 3e-4 and r2 < 3e-4 and weights < 1e-3
    assert found.fit.model.order == chosen.order and len(found.fit.model.occupancy) == 4
    assert not any("compared in a simulation" in note for note in notes)


@pytest.mark.parametrize("name, near, far, totals", [("sample", 6e-3, 6e-2, 12), ("refit64", 4e-3, 3e-2, 9)])
def test_64_zones_choose_as_a_trusted_centre_does_and_release_its_model(name, near, far, totals, request) -> None:
    """Accuracy as measured, rounded up; candidates far from the chosen one have weights the span was not made for.
    Totals as many as a fit of the chosen candidate takes without a comparison."""
    cluster = request.getfixturevalue(name)
    found = select(cluster, dither=0.0)
    chosen = found.chosen.candidate
    assert compares_well(cluster, found, near, far) == chosen
    plain = atdm.fit(cluster, "plain", order=chosen.order, ridge=chosen.ridge)
    model, r2, weights = difference(found.fit, plain)
    assert model < 3e-4 and r2 < 3e-4 and weights < 1e-3 and found.fit.ridge == plain.ridge
    assert found.fit.cost.sums <= totals


def test_fourteen_agents_choose_as_a_trusted_centre_does_within_their_four_totals(twin_houses) -> None:
    """The cap binds: the fit is not as exact as one without comparison, and says so."""
    found = select(twin_houses, dither=0.0)
    assert compares_well(twin_houses, found, near=1e-3, far=6e-3) == found.chosen.candidate
    plain = atdm.fit(twin_houses, "plain", order=found.chosen.candidate.order, ridge=found.chosen.candidate.ridge)
    model, r2, weights = difference(found.fit, plain)
    assert model < 3e-4 and r2 < 3e-4 and weights < 3e-3
    assert found.fit.cost.sums == 4 and found.fit.status is Status.CAPPED


def test_what_happens_in_the_test_part_changes_no_score() -> None:
    cluster = tiny(3, agents=12, rows=120)
    hidden = cluster.temperature.copy()
    hidden.iloc[90:] += np.random.default_rng(0).normal(0, 1, hidden.iloc[90:].shape).round(2)
    other = atdm.Cluster.from_frames(hidden, cluster.load, cluster.outdoor, cluster.solar, owner=cluster.owner)
    one, two = (select(c, protocol="blind", rules=EASY, dither=0.0, **OPTIONS) for c in (cluster, other))
    assert [s.errors for s in one.scores] == [s.errors for s in two.scores]
    assert [s.bic for s in one.scores] == [s.bic for s in two.scores]
    assert one.fit.metrics["test"] != two.fit.metrics["test"]


def test_no_comparison_is_given_a_row_of_the_test_part(monkeypatch: pytest.MonkeyPatch) -> None:
    true_span, true_score, given = choice.in_span, choice.score, []

    def watch_span(series, *rest, **options):
        given.append(len(series))
        return true_span(series, *rest, **options)

    def watch_score(solve, inputs, *rest):
        given.append(len(inputs))
        return true_score(solve, inputs, *rest)

    monkeypatch.setattr(choice, "in_span", watch_span)
    monkeypatch.setattr(choice, "score", watch_score)
    aggregator, agents = compared()
    drive(aggregator, agents)
    assert aggregator.state is State.DONE and set(given) == {60}  # of 80


def test_seasons_of_different_lengths_are_compared_and_the_release_has_the_chosen_one() -> None:
    cluster = tiny(5, agents=12, rows=160)
    found = select(
        cluster, (1,), (20.0,), ("24h", "48h", "7d"), horizon="2d", protocol="blind", rules=EASY, nonnegative=False
    )
    periods = {"24h": 4, "48h": 8, "7d": 28}
    assert len(found.fit.model.occupancy) == periods[found.chosen.candidate.season] == found.chosen.period
    assert {s.candidate.season for s in found.scores} == set(periods)


def test_candidates_the_agents_would_refuse_are_left_out_with_a_word() -> None:
    cluster = tiny(5, agents=12, rows=160)
    found = select(cluster, (1, 5), (20.0,), ("24h", "20d"), protocol="blind", nonnegative=False)
    assert [s.candidate.order for s in found.scores] == [1]
    assert any("order 5 is above the 4" in note for note in found.notes)
    assert any("season 20d" in note for note in found.notes)
    with pytest.raises(UsageError, match="no candidate can be fitted; .* above the 4"):
        select(cluster, (5,), (20.0,), protocol="blind")
    with pytest.raises(UsageError, match="at least 10"):
        select(tiny(1, agents=4), (1,), (20.0,), protocol="blind")


def test_a_candidate_its_rows_do_not_determine_is_not_chosen() -> None:
    """Before the first origin two weeks are not enough for a week's season of 28 steps and order 4."""
    cluster = tiny(5, agents=12, rows=110)
    rules = replace(EASY, rows_per_parameter=1.0)
    found = select(cluster, (1, 4), (20.0,), ("24h", "7d"), protocol="blind", rules=rules, nonnegative=False)
    assert {(s.candidate.order, s.candidate.season) for s in found.scores} == {(1, "24h"), (4, "24h"), (1, "7d")}
    assert any("do not determine" in note for note in found.notes)


@pytest.mark.parametrize("what", ["diverges", "is no number", "has no spread to compare with"])
def test_a_candidate_that_cannot_be_scored_is_left_out_and_does_not_stop_the_run(what, monkeypatch) -> None:
    true = choice.score

    def odd(solve, inputs, candidate, *steps):
        if candidate.order == 2:
            return true(solve, inputs, candidate, *steps)
        if "spread" in what:
            raise ZeroDivisionError
        found = true(solve, inputs, candidate, *steps)
        return replace(found, errors=tuple([1e300 if what == "diverges" else np.nan] * found.origins))

    monkeypatch.setattr(choice, "score", odd)
    aggregator, agents = compared()
    drive(aggregator, agents)
    assert aggregator.state is State.DONE and aggregator.desk.outcome.chosen in (1, 2)


# Who says what was chosen


def compared(cluster: atdm.Cluster | None = None, *, seed: int = 0, start: tuple[int, float] = (2, 20.0), keep=False):
    """Parties of a run that starts with one candidate and is going to choose another."""
    cluster = tiny(seed, agents=5, rows=80) if cluster is None else cluster
    plan = make_plan(cluster, "blind", order=start[0], ridge=start[1], nonnegative=False)
    plan = with_candidates(plan, (1, 20.0), (2, 20.0), (2, 2.0))
    agents, _ = enrol(cluster, LOOSE, seeded(seed), keep=keep)
    roster = agents[0].roster
    cohorts = {member.cohort for member in roster.members}
    return Aggregator(plan=plan, roster=roster, cohorts=cohorts, weather=weather_of(cluster), keep=keep), agents


def test_an_honest_leader_is_believed() -> None:
    aggregator, agents = compared()
    drive(aggregator, agents)
    assert aggregator.state is State.DONE and aggregator.desk.outcome.chosen == 0
    assert aggregator.desk.outcome.estimate.coefficients.order == 1


def test_a_leader_that_announces_another_choice_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told = choice.announce_choice

    def lie(scores, plan):
        words = told(scores, plan)
        words[0] = (words[0] + 1) % len(plan.candidates)
        return words

    monkeypatch.setattr(blind, "announce_choice", lie)
    aggregator, agents = compared()
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "leader's choice" in aggregator.reasons[0]


@pytest.mark.parametrize("what", ["an error", "an error that is no number", "that it cannot be fitted"])
def test_a_leader_whose_scores_are_not_those_of_the_totals_ends_the_run(what, monkeypatch: pytest.MonkeyPatch) -> None:
    told = choice.announce_choice

    def lie(scores, plan):
        words = told(scores, plan)
        rows = words[1:].reshape(len(plan.candidates), -1)
        if what == "that it cannot be fitted":
            rows[1] = 0.0
        else:
            rows[1, 1:] *= np.nan if "no number" in what else 1 + 1e-7
        return words

    monkeypatch.setattr(blind, "announce_choice", lie)
    aggregator, agents = compared()
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "leader's scores" in aggregator.reasons[0]


def test_scores_that_differ_by_the_arithmetic_of_machines_do_not_split_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every agent finds scores a little apart, some even another choice; the leader's decide."""
    true, rng = choice.compare, np.random.default_rng(5)

    def apart(*arguments):
        found = true(*arguments)
        return tuple(
            s if s is None else replace(s, errors=tuple(e * (1 + 1e-11 * rng.normal()) for e in s.errors))
            for s in found
        )

    monkeypatch.setattr(blind, "compare", apart)
    aggregator, agents = compared()
    drive(aggregator, agents)
    assert aggregator.state is State.DONE and aggregator.desk.outcome.chosen == 0


@pytest.mark.parametrize("change, word", [
    (dict(order=5), "order 5"), (dict(ridge=1e-6), "ridge 1e-06"), (dict(period=29), "season of 174 h"),
    (dict(order=4), "too short"),
])  # fmt: skip
def test_an_agent_refuses_a_plan_with_one_candidate_outside_its_rules(change, word) -> None:
    cluster = tiny(0, agents=12, rows=60)
    plan = with_candidates(make_plan(cluster, "blind", order=1, nonnegative=False), (1, 100.0))
    rules = atdm.Rules(rows_per_parameter=2.7)
    assert rules.reason_to_refuse(plan, 12) is None
    other = msgspec.structs.replace(plan.candidates[0], **change)
    plan = msgspec.structs.replace(plan, candidates=(*plan.candidates, other))
    with pytest.raises(AtdmError, match=word):
        simulate(cluster, plan, rules, random_bytes=seeded(0))


@pytest.mark.parametrize("change, word", [
    (dict(candidates=(), every=0), "without candidates"),
    (dict(protocol="moments"), "under blind only"),
    (dict(candidates=(Candidate(2, 5.0, 4),)), "start with one of them"),
    (dict(candidates=(Candidate(1, 100.0, 4),) * 2), "each once"),
    (dict(candidates=(Candidate(1, 100.0, 4), Candidate(0, 100.0, 4))), "order 0"),
    (dict(candidates=(Candidate(1, 100.0, 4), Candidate(1, float("nan"), 4))), "ridge nan"),
    (dict(candidates=(Candidate(1, 100.0, 4), Candidate(1, 100.0, 81))), "parameters"),
    (dict(horizon=0), "horizon 0"),
    (dict(every=0), "every 0"),
    (dict(horizon=10**6), "give steps"),
    (dict(candidates=tuple(Candidate(1, 100.0 + i, 4) for i in range(65))), "at most 64"),
    (dict(candidates=tuple(Candidate(1, 100.0 + i, 4) for i in range(60)), every=1, length=200), "further apart"),
])  # fmt: skip
def test_a_comparison_that_is_none_is_refused(change, word) -> None:
    plan = with_candidates(make_plan(tiny(0, rows=80), "blind", order=1, nonnegative=False), (1, 100.0))
    check_plan(plan)
    with pytest.raises(UsageError, match=word):
        check_plan(msgspec.structs.replace(plan, **change))


def test_the_candidates_are_part_of_the_plans_hash() -> None:
    plan = with_candidates(make_plan(tiny(0), "blind", order=1), (1, 100.0), (2, 100.0))
    assert len({plan.hash(), with_candidates(plan, (1, 100.0)).hash(), with_candidates(plan).hash()}) == 3


def test_no_validation_run_fits_is_said_and_ends_the_run() -> None:
    cluster = tiny(0, agents=5, rows=60)
    plan = with_candidates(make_plan(cluster, "blind", order=1, nonnegative=False), (1, 100.0), horizon=40)
    with pytest.raises(RunAborted, match="shorter horizon"):
        simulate(cluster, plan, RULES)


# What the aggregator gets


def test_the_aggregator_learns_the_chosen_model_and_no_score() -> None:
    aggregator, agents = compared(keep=True)
    wire: list[bytes] = []
    scores: list[float] = []

    def watch(i: int, reply: bytes) -> list[bytes]:
        wire.append(reply)
        part = agents[i].part
        scores.extend(e for s in getattr(part, "scores", ()) if s is not None for e in (*s.errors, s.r2, s.rmse, s.bic))
        return [reply]

    drive(aggregator, agents, to_aggregator=watch)
    outcome = aggregator.desk.outcome
    rows = {(row["what"], tuple(row["shape"]), row["times"]) for row in aggregator.notebook.rows()}
    assert rows == {("load total", (80,), 1), ("state", (80,), 1), ("coefficients", (11,), 1), ("metrics", (16,), 1)}
    assert aggregator.notebook.seen[-1].value[-1] == outcome.chosen == 0
    assert set(type(outcome).__slots__) == {"estimate", "load", "time", "kept", "sums", "chosen"}
    seen = np.concatenate([np.ravel(entry.value) for entry in aggregator.notebook.seen])
    assert scores and not np.isin(scores, seen).any()
    carried = b"".join(wire)
    assert not any(np.float64(value).tobytes() in carried for value in set(scores))


def test_no_size_tells_which_candidate_is_at_hand() -> None:
    """The same run started with another candidate, and ending with it: sums of a kind are of one size, apart from the
    number of directions, which everybody counts anyway."""
    sizes = []
    for start, keep_it in (((2, 20.0), False), ((1, 20.0), True)):
        aggregator, agents = compared(start=start)
        found: dict[tuple[str, int], set[int]] = {}
        totals = Counter()

        def watch(i: int, reply: bytes, found=found, totals=totals) -> list[bytes]:
            message = decode_to_aggregator(reply, BIG)
            if isinstance(message, Masked) and i == 1:
                totals["basis"] += message.phase == "basis"
                found.setdefault((message.phase, totals["basis"]), set()).add(len(message.words))
            return [reply]

        drive(aggregator, agents, to_aggregator=watch)
        assert (aggregator.desk.run.plan.order == aggregator.desk.outcome.estimate.coefficients.order) == keep_it
        sizes.append(found)
    shared = sizes[0].keys() & sizes[1].keys()
    assert {phase for phase, _ in shared} >= {"scalars", "choice", "basis", "flags"}
    assert all(len(sizes[0][key] | sizes[1][key]) == 1 for key in shared)
    for phase in ("choice", "release"):
        assert len(set().union(*(words for found in sizes for (p, _), words in found.items() if p == phase))) == 1


# Restarts and refits


def plan_of(world: World, start: int = 2, rows: slice = slice(None)) -> Plan:
    return with_candidates(world.plan(order=start, rows=rows), (1, 20.0), (2, 20.0))


def chosen_of(plan: Plan, outcome) -> dict[str, float]:
    model = plan.candidates[outcome.chosen]
    return {"order": model.order, "ridge": model.ridge}


def test_a_run_that_compares_resumes_byte_for_byte_at_every_message() -> None:
    """World checks that no two messages differ under one context; here every agent restarts before each of them."""
    results = []
    for restarting in (False, True):
        world = World(tiny(2, agents=4, rows=60), 2)
        deliver, tries = world.deliver, Counter()

        def slow(i: int, data: bytes, deliver=deliver, tries=tries, world=world, restarting=restarting) -> list[bytes]:
            tries[i, data] += 1
            if restarting and tries[i, data] < 2:
                world.restart(i)
                raise Killed
            return deliver(i, data)

        world.deliver = slow
        plan = plan_of(world)
        outcome = world.run(world.aggregator(plan))
        assert outcome is not None and outcome.chosen == 0 and (world.restarts > 40) == restarting
        assert_is_the_plain_fit(outcome, world.cluster, **chosen_of(plan, outcome))
        results.append(outcome)
    np.testing.assert_array_equal(results[0].estimate.state, results[1].estimate.state)


@pytest.mark.parametrize("seed", range(8))
def test_vanishing_agents_leave_a_choice_that_is_the_plain_fit_or_no_result(seed: int) -> None:
    world = World(tiny(seed, agents=4 + seed % 4, rows=80), seed)
    plan = plan_of(world)
    outcome = world.run(world.aggregator(plan), chaos=0.05)
    if outcome is not None and outcome.estimate.status is Status.CONVERGED:
        assert_is_the_plain_fit(outcome, world.cluster, **chosen_of(plan, outcome))


def test_a_comparison_on_known_rows_costs_no_total() -> None:
    """Candidates are compared in the stored span; the next run of the same roster extends it."""
    world = World(tiny(7, agents=8, rows=140), 7)
    first = world.run(world.aggregator(world.plan(order=2, rows=slice(0, 100))))
    plan = plan_of(world, rows=slice(0, 100))
    second = world.run(world.aggregator(plan))
    assert first is not None and second is not None and second.sums <= 1 and second.chosen is not None
    plan = plan_of(world, rows=slice(20, 140))
    third = world.run(world.aggregator(plan))
    assert third is not None
    if third.estimate.status is Status.CONVERGED:
        assert_is_the_plain_fit(third, world.window(slice(20, 140)), **chosen_of(plan, third))


def test_comparisons_are_bounded_and_the_last_choice_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that always speak for another candidate than the one at hand."""
    true, looks = choice.compare, Counter()

    def fickle(plan, kept, inputs, weather, span):
        looks[len(span)] += 1
        return tuple(
            replace(s, errors=tuple([0.9 if c == plan.model else 0.1] * s.origins), r2=0.1 if c == plan.model else 0.9)
            for c, s in zip(plan.candidates, true(plan, kept, inputs, weather, span), strict=True)
        )

    monkeypatch.setattr(blind, "compare", fickle)
    aggregator, agents = compared()
    drive(aggregator, agents)
    assert aggregator.state is State.DONE
    assert 2 <= looks.total() / len(agents) <= blind.MOST_LOOKS


def test_question_reaches_the_agents_as_steps() -> None:
    cluster = tiny(1, agents=12, rows=120)
    found = select(cluster, protocol="blind", rules=EASY, **OPTIONS)
    assert found.question == Question(
        candidates=found.question.candidates, horizon=duration("2d"), every=duration("1d"), train=0.75,
        nonnegative=False,
    )  # fmt: skip
    assert {s.origins for s in found.scores} == {len(range(45, 90 - 8 + 1, 4))}
