"""A dishonest aggregator is stopped by rules; with these switched off it gets through and finds agents."""

from random import Random

import msgspec
import numpy as np
import pytest

from atdm.attacks import dishonest
from atdm.attacks.score import RECOVERED
from atdm.attacks.stage import Stage
from atdm.crypto import prg, ring
from atdm.data import Cluster
from atdm.protocol import blind, opened, roster
from atdm.protocol.aggregator import State
from atdm.protocol.rules import Rules
from atdm.run import make_plan
from tests.attacks.helpers import LOOSE, hits, tiny, truth_of
from tests.reliability.mutants import Edit, Mutant, apply


@pytest.fixture
def cluster():
    return tiny()


def plan_of(cluster, protocol="blind", **options):
    return make_plan(cluster, protocol, nonnegative=False, **options)


def scored(stage, mounted):
    """(agent, RMSE in K) of each agent that was recovered."""
    names = [member.name for member in stage.agents[0].roster.members]
    series = stage.cluster.temperature[names].to_numpy(float) - 20
    truth = truth_of(series, series.mean(axis=1, keepdims=True))
    found = []
    for guess in mounted.guesses:
        pairs = [(i, j) for i, j, r in truth.matches(guess) if r > RECOVERED]
        errors = np.sqrt(truth.errors(guess, pairs)).tolist()
        found += [(names[i], rmse) for (i, _), rmse in zip(pairs, errors, strict=True)]
    return found


def without_check_words(monkeypatch):
    """Nor the look at the row of QᵀQ, which an offset disturbs."""
    monkeypatch.setattr(ring, "verify_words", lambda *a, **k: None)
    monkeypatch.setattr(blind, "ORTHONORMAL", np.inf)


def weakened(monkeypatch, *edits):
    apply(Mutant("weakened", edits, lambda: None, ""), monkeypatch)


def explained_by_weather(cluster, zone):
    """The same cluster, but one zone is not heated: the weather alone explains it."""
    temperature, noise = cluster.temperature.copy(), np.random.default_rng(0).normal(0, 0.02, len(cluster.temperature))
    for t in range(1, len(temperature)):
        pull = 17 + 0.3 * cluster.outdoor.iloc[t] + 3 * cluster.solar.iloc[t]
        temperature.iloc[t, zone] = 0.7 * temperature.iloc[t - 1, zone] + 0.3 * pull + noise[t]
    return Cluster.from_frames(temperature, cluster.load, cluster.outdoor, cluster.solar, owner=cluster.owner)


def test_an_offset_is_caught_by_the_check_words(cluster):
    stopped = dishonest.offset(Stage(cluster, LOOSE), plan_of(cluster))
    assert not stopped.accepted and not stopped.guesses and "check words" in stopped.note


def test_an_offset_without_check_words_and_leverage_cap_releases_one_agent(cluster, monkeypatch):
    """What three agents in effect seem to carry is the temperature of one."""
    cluster = explained_by_weather(cluster, 3)
    plan = plan_of(cluster, order=1)
    rules = Rules(least_agents=3, rows_per_parameter=1, agents_per_total=1, colluders=0, leverage=1.0)
    honest = Stage(cluster, rules, Random(1).randbytes).play(msgspec.structs.replace(plan, ridge=rules.ridge[0]))
    assert honest.state is State.ABORTED  # too few agents in effect, or a residual out of bound
    without_check_words(monkeypatch)
    stage = Stage(cluster, rules, Random(1).randbytes)
    mounted = dishonest.offset(stage, plan)
    [(name, rmse)] = scored(stage, mounted)
    assert mounted.accepted and name == "zone03" and rmse < 0.3
    capped = Stage(cluster, LOOSE, Random(1).randbytes)
    assert not scored(capped, dishonest.offset(capped, plan))


def test_equivocation_is_caught_even_without_check_words(cluster, monkeypatch):
    """Agents that were shown different totals share no further mask."""
    stopped = dishonest.equivocate(Stage(cluster, LOOSE), plan_of(cluster))
    assert not stopped.accepted and "check words" in stopped.note
    without_check_words(monkeypatch)
    assert not dishonest.equivocate(Stage(cluster, LOOSE), plan_of(cluster)).accepted


def test_equivocation_without_check_words_and_chained_context_releases_one_agent(cluster, monkeypatch):
    plain = blind.digest
    without_check_words(monkeypatch)
    monkeypatch.setattr(blind, "digest", lambda label, *parts: plain(label, *parts[:1]))
    stage = Stage(cluster, LOOSE)
    mounted = dishonest.equivocate(stage, plan_of(cluster), victim=1)
    [(name, rmse)] = scored(stage, mounted)
    assert mounted.accepted and name == stage.agents[0].roster.members[1].name and rmse < 0.1


@pytest.mark.parametrize("protocol", ["blind", "paper", "moments"])
def test_nobody_goes_on_without_a_vanished_agent(cluster, protocol):
    assert not dishonest.withheld(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


@pytest.mark.parametrize("protocol", ["blind", "paper", "moments"])
def test_an_old_message_is_not_taken_for_a_new_one(cluster, protocol):
    assert not dishonest.replay(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


def test_an_old_question_answered_again_under_the_same_masks_would_disclose_everybody(cluster, monkeypatch):
    """Three rules stand in its way: questions come in order, the context is chained, a nonce masks one vector."""
    plan, plain = plan_of(cluster, "paper"), opened.digest
    order = Edit(opened.OpenPart, "receive", "if ask.step != self.step or self._seed:", "if False:")
    once = Edit(prg._Used, "spend", "if nonce in self._nonces:", "if False:")
    for edits, unchained in (((once,), True), ((order, once), False), ((order,), True)):
        with monkeypatch.context() as m:
            weakened(m, *edits)
            if unchained:
                m.setattr(opened, "digest", lambda label, *parts: plain(label, *parts[-1:]))
            try:
                stage = Stage(cluster, LOOSE)
                assert not scored(stage, dishonest.replay(stage, plan))
            except ValueError as error:  # a nonce is used twice
                assert edits == (order,) and "nonce" in str(error)
    weakened(monkeypatch, order, once)
    monkeypatch.setattr(opened, "digest", lambda label, *parts: plain(label, *parts[-1:]))
    stage = Stage(cluster, LOOSE)
    found = scored(stage, dishonest.replay(stage, plan))
    assert len(found) == 12 and max(rmse for _, rmse in found) < 1e-6


@pytest.mark.parametrize("protocol", ["paper", "moments"])
def test_an_agent_that_was_asked_something_else_spoils_the_sum(cluster, protocol):
    assert not dishonest.inconsistent_question(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


def test_other_rows_asked_of_one_agent_would_disclose_it(cluster, monkeypatch):
    """Two rules stand in its way: masks depend on the question, and receipts are for the question."""
    plan, plain = plan_of(cluster, "moments"), opened.digest
    receipts = Edit(opened.OpenPart, "_consent", "self._check_receipts(message.tags)", "pass")
    with monkeypatch.context() as m:
        weakened(m, receipts)
        assert not dishonest.inconsistent_question(Stage(cluster, LOOSE), plan).guesses
    monkeypatch.setattr(opened, "digest", lambda label, *parts: plain(label, *parts[:1]))
    stage = Stage(cluster, LOOSE)
    mounted = dishonest.inconsistent_question(stage, plan, victim=1)
    [(name, rmse)] = scored(stage, mounted)
    assert mounted.accepted and name == stage.agents[0].roster.members[1].name and rmse < 1e-6


def test_smaller_rosters_are_refused_within_one_cohort(cluster):
    mounted = dishonest.smaller_rosters(Stage(cluster, LOOSE), plan_of(cluster))
    assert not mounted.accepted


def test_cohorts_of_one_owner_would_disclose_agents(monkeypatch):
    cluster = tiny(rows=120)
    monkeypatch.setattr(roster, "COHORT_OWNERS", 1)
    rules = Rules(least_agents=3, rows_per_parameter=1, totals=1000, dither=0.0, leverage=1.0, colluders=0)
    monkeypatch.setattr(Rules, "totals_cap", lambda self, agents: 1000)
    stage = Stage(cluster, rules)
    forget_releases(stage, monkeypatch)
    mounted = dishonest.smaller_rosters(stage, plan_of(cluster, ridge=1e6))
    names = [member.name for member in stage.agents[0].roster.members]
    truth = truth_of(cluster.temperature[names].to_numpy(float) - 20)
    assert hits(truth, mounted.guesses) >= 8


def forget_releases(stage, monkeypatch):
    """Rows are released once only; here they are released again and again."""
    for agent in stage.agents:
        monkeypatch.setattr(type(agent.own.exposure), "release", lambda self, rows: None)


def test_failed_runs_yield_no_more_totals_than_the_cap(cluster):
    stage = Stage(cluster, LOOSE)
    dishonest.restarted(stage, plan_of(cluster))
    assert stage.agents[1].own.exposure.totals.max() <= LOOSE.totals_cap(12)


def test_overlapping_windows_yield_no_more_totals_than_the_cap(cluster):
    stage = Stage(cluster, LOOSE)
    dishonest.overlapping(stage, plan_of(cluster), shift=4)
    assert stage.agents[1].own.exposure.totals.max() <= LOOSE.totals_cap(12)


def test_chosen_weights_do_not_single_out_the_chosen_agent(cluster):
    stage = Stage(cluster, LOOSE)
    mounted = dishonest.chosen_weights(stage, plan_of(cluster, "paper"))
    names = [member.name for member in stage.agents[0].roster.members]
    truth = truth_of(cluster.temperature[names].to_numpy(float) - 20)
    assert all(i != 0 for g in mounted.guesses for i, _, r in truth.matches(g) if r > 0.9)


def test_weights_taken_from_the_aggregator_would_be_full_disclosure():
    """Algorithm 1 lets the aggregator distribute ξ; an agent that obeyed would send its own series."""
    series = np.random.default_rng(0).normal(size=(50, 5))
    assert np.array_equal(series @ np.eye(5)[2], series[:, 2])
