"""A dishonest aggregator is stopped by one rule of `blind` each; with the rule switched off it gets through."""

import numpy as np
import pytest

from atdm.attacks import dishonest
from atdm.attacks.stage import Stage
from atdm.crypto import ring
from atdm.protocol import blind, roster
from atdm.protocol.rules import Rules
from atdm.run import make_plan
from tests.attacks.helpers import LOOSE, hits, tiny, truth_of


@pytest.fixture
def cluster():
    return tiny()


def plan_of(cluster, protocol="blind", **options):
    return make_plan(cluster, protocol, nonnegative=False, **options)


def test_an_offset_is_caught_by_the_check_words(cluster, monkeypatch):
    plan = plan_of(cluster)
    stopped = dishonest.offset(Stage(cluster, LOOSE), plan)
    assert not stopped.accepted and "check words" in stopped.note
    monkeypatch.setattr(ring, "verify_words", lambda *a, **k: None)
    assert dishonest.offset(Stage(cluster, LOOSE), plan, what=3).accepted


def test_equivocation_is_caught_even_without_check_words(cluster, monkeypatch):
    """Agents that were shown different totals share no further mask; only a context that ignores totals lets it by."""
    plan = plan_of(cluster)
    assert not dishonest.equivocate(Stage(cluster, LOOSE), plan).accepted
    monkeypatch.setattr(ring, "verify_words", lambda *a, **k: None)
    assert not dishonest.equivocate(Stage(cluster, LOOSE), plan).accepted


def test_equivocation_gets_through_without_check_words_chained_context_and_verified_leader(cluster, monkeypatch):
    """Three rules stand in its way, the last of them that every agent works out the leader's numbers itself."""
    plain = blind.digest
    monkeypatch.setattr(ring, "verify_words", lambda *a, **k: None)
    monkeypatch.setattr(blind, "digest", lambda label, *parts: plain(label, *parts[:1]))
    assert not dishonest.equivocate(Stage(cluster, LOOSE), plan_of(cluster), what=3).accepted
    monkeypatch.setattr(blind, "verify_leader", lambda *a, **k: True)
    assert dishonest.equivocate(Stage(cluster, LOOSE), plan_of(cluster), what=3).accepted


@pytest.mark.parametrize("protocol", ["blind", "paper", "moments"])
def test_nobody_goes_on_without_a_vanished_agent(cluster, protocol):
    assert not dishonest.withheld(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


@pytest.mark.parametrize("protocol", ["blind", "paper", "moments"])
def test_an_old_message_is_not_taken_for_a_new_one(cluster, protocol):
    assert not dishonest.replay(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


@pytest.mark.parametrize("protocol", ["paper", "moments"])
def test_an_agent_that_was_asked_something_else_spoils_the_sum(cluster, protocol):
    assert not dishonest.inconsistent_question(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


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
