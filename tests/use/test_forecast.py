"""Forecasts are the model's free run, with bands, judged against forecasts that need no model."""

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.kernel.thermal import free_run
from atdm.use.forecast import rolling_errors


@pytest.fixture(scope="module")
def found(world):
    return atdm.forecast(world.model, world.fit.load, world.weather, truth=world.fit.state, start=str(world.start))


def test_trajectory_is_what_the_model_simulates(world, found):
    rows = world.weather.loc[world.start :]
    run = world.model.simulate(world.fit.load, rows, world.fit.test.to_numpy()[:2])
    np.testing.assert_array_equal(found.table["aggregate_temp_c"], run)


def test_bands_are_nested_and_widen(found):
    t = found.table.iloc[2:]
    assert (t["low_95"] <= t["low_80"]).all() and (t["low_80"] <= t["high_80"]).all()
    assert (t["high_80"] <= t["high_95"]).all()
    width = t["high_95"] - t["low_95"]
    assert width.iloc[24] > 1.5 * width.iloc[0]


def test_coverage_is_the_share_of_points_inside(found):
    t = found.table.iloc[2:]
    inside = (t["low_80"] <= t["truth_c"]) & (t["truth_c"] <= t["high_80"])
    assert found.coverage["free_run"]["80"] == pytest.approx(inside.mean())
    assert 0.5 <= found.coverage["rolling"]["80"] <= found.coverage["rolling"]["95"] <= 1.0


def test_rolling_errors_are_those_of_single_free_runs(world):
    c, inputs, state = world.model.coefficients, world.fit.inputs, world.fit.state.to_numpy()
    origins = np.array([10, 57, 400])
    errors = rolling_errors(c, inputs, state, origins, 100)
    for origin, row in zip(origins, errors, strict=True):
        stop = min(origin + 100, len(state))
        run = free_run(c, inputs, state, origin - 2, stop)[2:]
        np.testing.assert_allclose(row[: stop - origin], run - state[origin:stop], atol=1e-10)
        assert np.isnan(row[stop - origin :]).all()


def test_skill_is_computed_from_every_origin_and_beats_the_naive_ones(world, found):
    by = {s.horizon: s for s in found.skill}
    rows = len(found.table)
    assert by["1h"].origins == rows - 2
    assert by["24h"].origins == rows - 2 - 23
    state = world.fit.state
    last = state.loc[world.start :].to_numpy()
    assert by["1h"].persistence_rmse == pytest.approx(np.sqrt(np.mean(np.diff(last)[1:] ** 2)))
    seasonal = (state - state.shift(24)).loc[world.start :].to_numpy()[2:]
    assert by["1h"].seasonal_rmse == pytest.approx(np.sqrt(np.mean(seasonal**2)))
    for s in found.skill[:3]:
        assert s.rmse < s.persistence_rmse and s.rmse < s.seasonal_rmse


def test_seasonal_naive_is_left_out_where_the_truth_does_not_reach_back(world):
    found = atdm.forecast(world.model, world.fit.load, world.weather, truth=world.fit.test, start=str(world.start))
    assert found.skill[0].rmse is not None
    assert found.skill[0].seasonal_rmse is None


def test_same_seed_same_bands(world, found):
    again = atdm.forecast(world.fit, world.fit.load, world.weather, truth=world.fit.state, start=str(world.start))
    pd.testing.assert_frame_equal(again.table, found.table)


def test_without_residuals_there_is_a_trajectory_and_a_word(world):
    found = atdm.forecast(world.fit.model, world.fit.load, world.weather, [20.0, 20.0])
    assert list(found.table.columns) == ["aggregate_temp_c", "load_kw"]
    assert "no bands" in found.notes[0]


def test_a_load_beyond_training_is_said(world):
    found = atdm.forecast(world.model, world.fit.load * 10, world.weather, [20.0, 20.0], horizon=pd.Timedelta("12h"))
    assert "trained on" in found.notes[0]
    assert len(found.table) == 2 + 12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: {"initial": [20.0]}, "first 2 stamps"),
        (lambda w: {"initial": None}, "at the first 2 stamps"),
        (lambda w: {"initial": w.fit.test}, "no aggregate temperature at"),
        (lambda w: {"weather": w.weather.drop(w.weather.index[30])}, "do not follow"),
        (lambda w: {"start": "2030-01-01"}, "rows of weather and load"),
        (lambda w: {"start": "soon"}, "time stamp"),
        (lambda w: {"start": str(w.weather.index[5] + pd.Timedelta("10min"))}, "no such row, next is"),
        (lambda w: {"horizon": pd.Timedelta("9000D")}, "shorten the horizon"),
        (lambda w: {"truth": w.fit.state.shift(freq="900D"), "initial": [20.0, 20.0]}, "no value in the forecast"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_one_line(world, change, words):
    asked = {"load": world.fit.load, "weather": world.weather, "initial": [20.0, 20.0], **change(world)}
    with pytest.raises(atdm.AtdmError, match=words) as refused:
        atdm.forecast(world.model, **asked)
    assert "\n" not in str(refused.value)
