"""`select` sees the training part only, and reports the test part of one model."""

from dataclasses import replace

import numpy as np
import pytest

import atdm
from atdm.use.select import select
from tests.use.two_state import two_state

OPTIONS = {"orders": (1, 2), "ridges": (100.0,), "protocol": "plain", "train": 0.7}


@pytest.fixture(scope="module")
def selection(world):
    return select(world.cluster, **OPTIONS)


def test_the_two_states_are_found(selection):
    assert selection.chosen.candidate.order == 2
    assert selection.best.r2 == max(s.r2 for s in selection.scores)
    assert len(selection.scores) == 2


def test_what_happens_in_the_test_part_changes_nothing(world, selection):
    hidden = world.cluster.temperature.copy()
    rows = len(world.fit.train)
    hidden.iloc[rows:] += np.random.default_rng(0).normal(0, 1, hidden.iloc[rows:].shape)
    other = select(replace(world.cluster, temperature=hidden), **OPTIONS)
    assert [s.r2 for s in other.scores] == [s.r2 for s in selection.scores]
    assert [s.bic for s in other.scores] == [s.bic for s in selection.scores]
    assert other.fit.metrics["test"] != selection.fit.metrics["test"]


def test_the_final_fit_is_an_ordinary_fit_of_the_chosen_candidate(world, selection):
    fit = atdm.fit(world.cluster, "plain", order=2, ridge=100.0, train=0.7)
    np.testing.assert_array_equal(selection.fit.model.alpha, fit.model.alpha)
    assert selection.as_dict()["test"] == fit.metrics["test"]


@pytest.mark.parametrize("protocol, clear", [("moments", True), ("blind", False)])
def test_a_comparison_in_the_clear_before_a_private_fit_says_so(protocol, clear):
    found = select(two_state(days=16, agents=10, step_hours=2.0), orders=(1,), ridges=(100.0,), protocol=protocol)
    assert found.fit.protocol == protocol
    assert any("compared in a simulation" in note for note in found.notes) == clear


def test_candidates_that_cannot_be_fitted_are_left_out_with_a_word(world):
    found = select(world.cluster, orders=(1,), ridges=(100.0,), seasons=("24h", "30d"), protocol="plain")
    assert [s.candidate.season for s in found.scores] == ["24h"]
    assert any("season 30d" in note for note in found.notes)
    with pytest.raises(atdm.UsageError, match="no candidate can be fitted"):
        select(world.cluster, orders=(1,), ridges=(100.0,), seasons=("30d",), protocol="plain")
    with pytest.raises(atdm.UsageError, match="nothing to select"):
        select(world.cluster, orders=())


def test_a_horizon_below_the_step_is_refused(world):
    with pytest.raises(atdm.UsageError, match="1 h step"):
        select(world.cluster, horizon="30min")
