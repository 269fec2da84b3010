"""A model kept current: better on days it has not seen, its past kept, nothing looked at before its time."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.model.bands import KINDS
from atdm.model.horizons import rolling_errors
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
    for kind in KINDS:
        np.testing.assert_array_equal(one.errors[kind][known_before], other.errors[kind][known_before])


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


@pytest.fixture(scope="module")
def ended(aged):
    """The same cluster; the model has nothing to catch up with, and is quick to estimate."""
    model, rows, weather = aged
    return replace(model, trained=len(model.released), made="chosen"), rows, weather


def test_calls_day_by_day_judge_as_many_forecasts_as_one_call(ended, tmp_path):
    """An error whose truth was not known at one update is filled in by the next, by the model that had made it."""
    model, rows, weather = ended
    once = atdm.update(model, rows, weather).model.record
    daily = model
    for day in range(0, len(rows), 24):
        atdm.update(daily, rows.iloc[: day + 24], weather).model.save(tmp_path / "model.json")
        daily = atdm.Model.load(tmp_path / "model.json")
    assert daily.record.time.equals(once.time)
    for kind in KINDS:
        bit_by_bit, whole = daily.record.errors[kind], once.errors[kind]
        np.testing.assert_array_equal(np.isnan(bit_by_bit), np.isnan(whole))
        np.testing.assert_allclose(bit_by_bit, whole, atol=0.005)  # rows in a file have six digits
    assert len(daily.record.forecasters) == 1


def test_calls_hour_by_hour_judge_each_forecast_by_the_model_that_made_it(ended):
    model, rows, weather = ended
    hourly, made = atdm.update(model, rows.iloc[:1], weather).model, {}
    for count in range(2, 32):
        made[rows.index[count - 1]] = hourly.coefficients
        hourly = atdm.update(hourly, rows.iloc[:count], weather).model
    record, all_rows = hourly.record, hourly.released
    assert record.time[-30:].equals(all_rows.time[-30:]) and len(record.forecasters) == 24 - 1
    inputs = all_rows.inputs(model.calendar)
    for i in range(-30, 0):
        at = np.array([len(all_rows) + i])
        told = rolling_errors(made[record.time[i]], inputs, all_rows.state, at, record.steps)[0]
        assert np.isfinite(told).sum() == min(24, -i)
        np.testing.assert_allclose(record.errors["planned"][i], told, rtol=1e-3)


def test_forecasts_not_judged_yet_belong_to_a_cluster_of_any_size(ended):
    model, rows, weather = ended
    half = atdm.update(model, rows.iloc[:-24], weather).model
    grown = half.of_size(2.0)
    double = rows.assign(load_kw=2 * rows["load_kw"])
    same, other = (atdm.update(m, r, weather).model.record for m, r in ((half, rows), (grown, double)))
    for kind, ratio in (("planned", 1), ("unplanned", 1), ("load", 2)):
        np.testing.assert_allclose(ratio * same.errors[kind][:-24], other.errors[kind][:-24], rtol=2e-3, atol=1e-3)


def test_a_model_file_of_before_has_no_models_of_open_forecasts(aged, tmp_path):
    document = json.loads(aged[0].to_json())
    assert document["record"].pop("forecasters")
    (tmp_path / "model.json").write_text(json.dumps(document))
    old = atdm.Model.load(tmp_path / "model.json")
    assert old.record.forecasters == ()
    assert len(atdm.update(old, *aged[1:]).model.record.time) > len(old.record.time)


def test_a_gap_longer_than_the_window_leaves_a_model_that_can_be_updated(ended):
    """The first day after it has no model of rows before to be forecast by; nothing is said about that day."""
    model, rows, weather = ended
    gap = pd.Timedelta(days=30)
    later, sky = rows.shift(freq=gap), weather.shift(freq=gap)
    found = atdm.update(model, later, sky, window=pd.Timedelta(days=28))
    assert found.rows == len(later) and found.model.released.time[0] == later.index[0]
    new = found.model.record.time[found.model.record.time > model.until]
    assert new[0] >= later.index[24] and new[-1] == later.index[-1]
    assert found.new_rmse["24h"] is not None
    again = atdm.update(found.model, later.shift(freq="10D"), sky.shift(freq="10D"))
    assert again.model.until == later.index[-1] + pd.Timedelta(days=10)
