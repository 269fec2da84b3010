"""What is not claimed: an agent gives away the group secret of fitted weights, and totals are forged. Measured here so
that the words about it stay true."""

import numpy as np
import pytest

from atdm.lab.attacks import forge
from atdm.lab.attacks.stage import Stage, repeatable
from atdm.options import fit_options
from atdm.run import make_plan
from tests.lab.attacks.helpers import LOOSE, hits, tiny, truth_of

SEEDS = range(6)


@pytest.fixture(scope="module")
def cluster():
    return tiny(agents=24, rows=160)


def mounted(cluster, act, seed):
    """(stage, claims, agents recovered, their largest error in K)"""
    stage = Stage(cluster, LOOSE, repeatable(seed))
    result = act(stage, make_plan(cluster, fit_options(protocol="blind")), 0, seed)
    names = [agent.name for agent in stage.agents]
    truth = truth_of(cluster.temperature[names].to_numpy(float) - 20).without([0])
    found = [(guess, [(i, j) for i, j, r in truth.matches(guess) if r > 0.9]) for guess in result.guesses]
    worst = max((np.sqrt(truth.errors(g, pairs)).max() for g, pairs in found if g.scaled and pairs), default=np.inf)
    return stage, result, hits(truth, result.guesses), worst


def test_the_group_secret_isolates_agents_and_the_account_bounds_how_many(cluster):
    runs = [mounted(cluster, forge.steered_totals, seed) for seed in SEEDS]
    assert max(found for _, _, found, _ in runs) >= 1
    assert min(worst for *_, worst in runs) < 0.01
    assert all("3 thresholds" in result.note for _, result, _, _ in runs)  # of five totals, two prepare
    assert all(found <= 3 for _, _, found, _ in runs)


def test_no_threshold_can_be_asked_for_once_the_account_is_full(cluster):
    attack = forge.steering(
        Stage(cluster, LOOSE, repeatable(0)), make_plan(cluster, fit_options(protocol="blind")), 0, 0
    )
    for _ in range(6):
        attack.ask()
    assert len(attack.known) == 3


def test_a_forged_fit_rests_on_one_agent_and_feeds_its_later_readings(cluster):
    for seed in SEEDS:
        stage, result, found, worst = mounted(cluster, forge.live_feed, seed)
        if not result.accepted:
            continue
        assert found == 1 and worst < 0.01
        weights = [next(iter(agent.own.memory.fits.values())).weight for agent in stage.agents]
        assert np.sum(np.abs(weights) > 1e-6) <= 2  # the colluding agent may be the other one
        return
    pytest.fail("no seed had exactly one agent above a threshold")
