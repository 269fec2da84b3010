"""`select` looks at the training part of what one fit released, and reports the test part of one model."""

from dataclasses import replace

import numpy as np
import pytest

import atdm
from atdm.use import select as module
from atdm.use.select import select
from tests.use.two_state import two_state

OPTIONS = {"orders": (1, 2), "protocol": "plain", "train": 0.7}


@pytest.fixture(scope="module")
def selection(world):
    return select(world.cluster, **OPTIONS)


@pytest.fixture(scope="module")
def twelve():
    return two_state(days=20, agents=12, step_hours=2.0)


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


def test_the_chosen_model_is_least_squares_on_the_released_training_rows(world):
    found = select(world.cluster, orders=(1,), protocol="plain", train=0.7).fit
    s, inputs, rows = found.state.to_numpy(), found.inputs, np.arange(1, found.inputs.train)
    lags = [values[rows - m] for values in (inputs.load, inputs.outdoor, inputs.solar) for m in (0, 1)]
    columns = np.column_stack([s[rows - 1], *lags, inputs.phase[rows, None] == np.arange(24)])
    solution = np.linalg.lstsq(columns, s[rows], rcond=None)[0]
    np.testing.assert_allclose(found.model.alpha, solution[:1], rtol=1e-8)
    np.testing.assert_allclose(found.model.occupancy, solution[7:], rtol=1e-6)
    np.testing.assert_array_equal(s, world.fit.state)  # its series are those of the usual fit
    np.testing.assert_array_equal(found.weights, world.fit.weights)


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_agents_are_asked_once_whatever_is_compared(twelve, weights, monkeypatch):
    made = []
    monkeypatch.setattr(module, "fit", lambda *words, **options: made.append(atdm.fit(*words, **options)) or made[-1])
    found = select(twelve, orders=(1, 2, 3), seasons=("24h", "48h"), horizon="12h", weights=weights)
    assert len(made) == 1 and len(found.scores) == 6
    assert found.fit.ledger == made[0].ledger and found.fit.weighting == weights
    assert found.fit.metrics["test"] == found.as_dict()["test"]


def test_several_ridges_are_for_who_holds_the_data(twelve):
    found = select(twelve, orders=(2,), ridges=(30.0, 300.0), protocol="plain")
    assert [s.candidate.ridge for s in found.scores] == [30.0, 300.0]
    assert found.fit.ridge == found.chosen.ridge
    for options in ({}, {"protocol": "moments"}, {"protocol": "plain", "weights": "equal"}):
        with pytest.raises(atdm.UsageError, match="give one ridge, or protocol plain") as refused:
            select(twelve, ridges=(30.0, 300.0), **options)
        assert "\n" not in str(refused.value)


def test_candidates_that_cannot_be_fitted_are_left_out_with_a_word(world):
    found = select(world.cluster, orders=(1,), seasons=("24h", "30d"), protocol="plain")
    assert [s.candidate.season for s in found.scores] == ["24h"]
    assert any("season 30d" in note for note in found.notes)
    with pytest.raises(atdm.UsageError, match="no candidate can be fitted"):
        select(world.cluster, orders=(1,), seasons=("30d",), protocol="plain")
    with pytest.raises(atdm.UsageError, match="nothing to select"):
        select(world.cluster, orders=())


def test_a_horizon_below_the_step_is_refused(world):
    with pytest.raises(atdm.UsageError, match="1 h step"):
        select(world.cluster, horizon="30min")
