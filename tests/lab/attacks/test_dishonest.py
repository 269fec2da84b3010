"""A dishonest aggregator is stopped by rules; with these switched off it gets through and finds agents."""

import numpy as np
import pytest

from atdm.crypto import prg, ring
from atdm.lab.attacks import dishonest
from atdm.lab.attacks.score import RECOVERED
from atdm.lab.attacks.stage import Released, Stage, repeatable
from atdm.options import fit_options
from atdm.protocol import collect, opened
from atdm.protocol.blind import veil
from atdm.run import make_plan
from tests.lab.attacks.helpers import LOOSE, rewritten, tiny, truth_of


@pytest.fixture
def cluster():
    return tiny()


def plan_of(cluster, protocol="blind", **options):
    return make_plan(cluster, fit_options(protocol=protocol, nonnegative=False, **options))


def scored(stage, mounted, colluder=None):
    """(agent, RMSE in K) of each agent that was recovered."""
    names = [agent.name for place, agent in enumerate(stage.agents) if place != colluder]
    series = stage.cluster.temperature[names].to_numpy(float) - 20
    truth = truth_of(series, series.mean(axis=1, keepdims=True))
    found = []
    for guess in mounted.guesses:
        pairs = [(i, j) for i, j, r in truth.matches(guess) if r > RECOVERED]
        errors = np.sqrt(truth.errors(guess, pairs)).tolist()
        found += [(names[i], rmse) for (i, _), rmse in zip(pairs, errors, strict=True)]
    return found


def without_check_words(monkeypatch):
    monkeypatch.setattr(ring, "verify_words", lambda *a, **k: None)


def test_an_offset_is_caught_by_the_check_words(cluster, monkeypatch):
    """Without them what the aggregator is released is much nearer to a total that only agents should see."""
    plan = plan_of(cluster, ridge=1e3)

    def likeness(stage, state):
        totals = [seen.value for seen in stage.agents[0].own.notebook.seen if seen.what == "basis total"]
        return abs(np.corrcoef(state, totals[1])[0, 1])

    honest, stage = Stage(cluster, LOOSE, repeatable(1)), Stage(cluster, LOOSE, repeatable(1))
    usual = likeness(honest, Released.of(honest.play(plan)).state)
    stopped = dishonest.offset(stage, plan)
    assert not stopped.accepted and not stopped.guesses and "check words" in stopped.note
    without_check_words(monkeypatch)
    stage = Stage(cluster, LOOSE, repeatable(1))
    mounted = dishonest.offset(stage, plan)
    assert mounted.accepted and likeness(stage, mounted.guesses[0].series[:, 0]) > usual + 0.15


def test_equivocation_is_caught_even_without_check_words(cluster, monkeypatch):
    """Agents that were shown different totals share no further mask."""
    stopped = dishonest.equivocate(Stage(cluster, LOOSE, share=False), plan_of(cluster))
    assert not stopped.accepted and "check words" in stopped.note
    without_check_words(monkeypatch)
    assert not dishonest.equivocate(Stage(cluster, LOOSE, share=False), plan_of(cluster)).accepted


def test_equivocation_without_check_words_and_chained_context_releases_one_agent(monkeypatch):
    cluster, plain = tiny(rows=160), veil.digest
    without_check_words(monkeypatch)
    monkeypatch.setattr(veil, "digest", lambda label, *parts: plain(label, *parts[:1]))
    stage = Stage(cluster, LOOSE, repeatable(1), share=False)
    mounted = dishonest.equivocate(stage, plan_of(cluster, ridge=1.0), victim=1)
    [(name, rmse)] = scored(stage, mounted)
    assert mounted.accepted and name == stage.agents[1].name and rmse < 0.1


def test_rows_offered_differently_to_one_agent_are_not_summed(cluster, monkeypatch):
    """Equal weights: masks depend on the offers as received."""
    plan, plain = plan_of(cluster, weights="equal"), collect.digest
    assert not dishonest.inconsistent_offer(Stage(cluster, LOOSE), plan).accepted
    monkeypatch.setattr(collect, "digest", lambda label, *parts: plain(label, *parts[:1]))
    stage = Stage(cluster, LOOSE)
    [(name, rmse)] = scored(stage, dishonest.inconsistent_offer(stage, plan, victim=1))
    assert name == stage.agents[1].name and rmse < 1e-2


@pytest.mark.parametrize("protocol", ["blind", "paper", "moments"])
def test_nobody_goes_on_without_a_vanished_agent(cluster, protocol):
    assert not dishonest.withheld(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


@pytest.mark.parametrize("protocol", ["blind", "paper", "moments"])
def test_an_old_message_is_not_taken_for_a_new_one(cluster, protocol):
    assert not dishonest.replay(Stage(cluster, LOOSE), plan_of(cluster, protocol)).accepted


def test_an_old_question_answered_again_under_the_same_masks_would_disclose_everybody(cluster, monkeypatch):
    """Three rules stand in its way: questions come in order, the context is chained, a nonce masks one vector."""
    plan, plain = plan_of(cluster, "paper"), opened.digest
    order = (opened.OpenPart, "receive", "if ask.step != self.step or self._seed:", "if False:")
    once = (prg._Used, "spend", "if nonce in self._nonces:", "if False:")
    for edits, unchained in (((once,), True), ((order, once), False), ((order,), True)):
        with monkeypatch.context() as m:
            for edit in edits:
                rewritten(m, *edit)
            if unchained:
                m.setattr(opened, "digest", lambda label, *parts: plain(label, *parts[-1:]))
            try:
                stage = Stage(cluster, LOOSE)
                assert not scored(stage, dishonest.replay(stage, plan))
            except ValueError as error:  # a nonce is used twice
                assert edits == (order,) and "nonce" in str(error)
    for edit in (order, once):
        rewritten(monkeypatch, *edit)
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
    receipts = (opened.OpenPart, "_consent", "self._check_receipts(message.tags)", "pass")
    with monkeypatch.context() as m:
        rewritten(m, *receipts)
        assert not dishonest.inconsistent_question(Stage(cluster, LOOSE), plan).guesses
    monkeypatch.setattr(opened, "digest", lambda label, *parts: plain(label, *parts[:1]))
    stage = Stage(cluster, LOOSE)
    mounted = dishonest.inconsistent_question(stage, plan, victim=1)
    [(name, rmse)] = scored(stage, mounted)
    assert mounted.accepted and name == stage.agents[1].name and rmse < 1e-6


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_companies_that_differ_show_nobody(cluster, weights):
    """What would work where they may: tests/lab/attacks/test_breaks.py."""
    plan = plan_of(cluster, weights=weights)
    for colluder in (None, 0):
        stage = Stage(cluster, LOOSE)
        mounted = dishonest.chosen_companies(stage, plan, colluder)
        assert not mounted.accepted and not scored(stage, mounted, colluder)
        assert "5 runs asked for, 1 different series" in mounted.note


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_repeated_runs_show_nobody_and_one_series(cluster, weights):
    stage = Stage(cluster, LOOSE)
    mounted = dishonest.repeated_runs(stage, plan_of(cluster, weights=weights))
    assert not mounted.accepted and not scored(stage, mounted)
    assert "19 runs asked for, 1 different series" in mounted.note


def test_chosen_weights_do_not_single_out_the_chosen_agent(cluster):
    stage = Stage(cluster, LOOSE)
    mounted = dishonest.chosen_weights(stage, plan_of(cluster, "paper"))
    names = [agent.name for agent in stage.agents]
    truth = truth_of(cluster.temperature[names].to_numpy(float) - 20)
    assert all(i != 0 for g in mounted.guesses for i, _, r in truth.matches(g) if r > 0.9)


def test_weights_taken_from_the_aggregator_would_be_full_disclosure():
    """Algorithm 1 lets the aggregator distribute ξ; an agent that obeyed would send its own series."""
    series = np.random.default_rng(0).normal(size=(50, 5))
    assert np.array_equal(series @ np.eye(5)[2], series[:, 2])
