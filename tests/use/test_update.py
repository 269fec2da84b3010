"""A model kept current: better on days it has not seen, its past kept, nothing looked at before its time."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import atdm
from tests.use import two_state as known


def halves(cluster: atdm.Cluster, share: float = 0.5, weights: str = "equal") -> tuple[atdm.Model, pd.DataFrame]:
    """The chosen model of the first rows, without those after them; and these as if observed."""
    fit = atdm.fit(cluster, "plain", weights=weights, train=share)
    cut = fit.state.index[fit.inputs.train]
    model = fit.chosen
    model = replace(model, released=model.released.between(None, cut), record=model.record.before(cut))
    rows = pd.DataFrame({"aggregate_temp_c": fit.state, "load_kw": fit.load})
    return model, rows[rows.index >= cut]


@pytest.mark.parametrize(("name", "least"), [("refit64", 0.25), ("twin_houses", 0.35)])
def test_updating_lowers_the_error_of_a_model_of_14_days(name, least, request):
    """docs/model-quality.md: at least 15 % was asked for, a third and a half are what it gives."""
    cluster = request.getfixturevalue(name)
    share = 14 * 48 / len(cluster.time)
    model, rows = halves(cluster, share, "fitted")
    found = atdm.update(model, rows, cluster.weather)
    assert found.helped > least and found.drifted
    assert found.rows == len(rows) and found.model.until == rows.index[-1]


@pytest.fixture(scope="module")
def aged():
    """A cluster whose windows stay open from the third week on."""
    before = known.two_state(days=14, agents=4, step_hours=1.0)
    tight, known.OUTER = known.OUTER, 1.5
    try:
        after = known.two_state(days=10, agents=4, step_hours=1.0, seed=1)
    finally:
        known.OUTER = tight
    shift = before.time[-1] - before.time[0] + before.step
    fit = atdm.fit(before, "plain", weights="equal", train=0.9)
    rows = pd.DataFrame({"aggregate_temp_c": after.temperature.mean(axis=1), "load_kw": after.load.sum(axis=1)})
    return fit.chosen, rows.shift(freq=shift), after.weather.shift(freq=shift)


def test_drift_is_said_and_updating_helps(aged):
    found = atdm.update(*aged)
    assert found.drifted and found.helped > 0.3
    assert found.old_rmse["24h"] > 2 * found.expected_rmse


def test_a_cluster_that_stays_the_same_has_not_drifted():
    model, rows = halves(known.two_state(days=28, agents=4, step_hours=1.0), 0.6)
    weather = known.two_state(days=28, agents=4, step_hours=1.0).weather
    found = atdm.update(model, rows, weather)
    assert found.drifted is False
    assert abs(found.helped) < 0.2


def test_earlier_versions_stay_with_the_model(aged, tmp_path):
    model, rows, weather = aged
    half = rows.iloc[: len(rows) // 2]
    once = atdm.update(model, half, weather).model
    twice = atdm.update(once, rows, weather).model
    assert [v.until for v in twice.versions] == [model.until, once.until]
    assert twice.versions[0].coefficients["alpha"] == model.alpha.tolist()
    assert twice.versions[0].rmse["24h"] > twice.versions[1].rmse["24h"]
    twice.save(tmp_path / "model.json")
    back = atdm.Model.load(tmp_path / "model.json")
    assert back.versions == twice.versions and back.until == rows.index[-1]


def test_no_day_is_forecast_by_a_model_that_has_seen_it(aged):
    """What comes on the last day changes no error of the days before."""
    model, rows, weather = aged
    spoiled = rows.copy()
    spoiled.iloc[-24:, 0] += 5.0
    one, other = (atdm.update(model, r, weather).model.record for r in (rows, spoiled))
    known_before = np.asarray(one.time + pd.Timedelta("24h") <= rows.index[-24])
    np.testing.assert_array_equal(one.errors[known_before], other.errors[known_before])


def test_the_window_drops_old_rows_and_the_half_life_weighs_them(aged):
    model, rows, weather = aged
    short = atdm.update(model, rows, weather, window=pd.Timedelta(days=8)).model
    assert short.released.time[0] >= rows.index[-1] - pd.Timedelta(days=8)
    fresh, even = (
        atdm.update(model, rows, weather, half_life=h).model.alpha for h in (pd.Timedelta(days=3), None)
    )  # fmt: skip
    assert not np.allclose(fresh, even)


def test_order_and_day_types_can_be_chosen_again(aged):
    model, rows, weather = aged
    found = atdm.update(model, rows, weather, choose=True).model
    assert found.made in ("chosen", "refined") and found.versions[-1].words == model.words()


def test_what_cannot_be_updated_is_refused(aged):
    model, rows, weather = aged
    bare = replace(model, released=None, record=None)
    used_up = replace(model, trained=len(model.released))
    for asked, words in (
        ((bare, rows, weather), "no rows to go on from"),
        ((used_up, rows.shift(freq="-60D"), weather.shift(freq="-60D")), "no row after"),
        ((model, rows, weather.shift(freq="90D")), "covers none"),
    ):
        with pytest.raises(atdm.UsageError, match=words):
            atdm.update(*asked)


def test_an_update_keeps_what_planning_needs_to_know_of_the_rows(aged):
    """Equal weights, experiments and the COP belong to the rows, old and new alike."""
    model, observed, weather = aged
    probed = ((model.released.time[5], model.released.time[50]),)
    told = replace(model, released=replace(model.released, equal=True, probed=probed))
    found = atdm.update(told, observed, weather).model.released
    assert found.equal and found.probed == probed


def test_a_cluster_of_another_size_has_the_same_temperatures(aged):
    model, observed, weather = aged
    half = model.of_size(0.5)
    first, sky = model.released.time[0], weather.iloc[:60]
    load = np.linspace(1.0, 5.0, 60)
    start = model.released.state[: model.order]
    np.testing.assert_allclose(half.simulate(load / 2, sky, start), model.simulate(load, sky, start), rtol=1e-12)
    assert half.released.time[0] == first and half.released.load_high == pytest.approx(model.released.load_high / 2)
    assert atdm.Model.from_json(half.to_json()).released.load[3] == pytest.approx(half.released.load[3], rel=1e-5)
