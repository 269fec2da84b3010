"""Forecasts are the model's free run, with bands, judged against forecasts that need no model."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.kernel.thermal import free_run
from atdm.model.horizons import rolling_errors


@pytest.fixture(scope="module")
def found(world):
    return atdm.forecast(world.model, world.fit.load, world.weather, truth=world.fit.state, start=str(world.start))


def test_trajectory_is_what_the_model_simulates(world, found):
    rows = world.weather.loc[world.start :]
    run = world.model.simulate(world.fit.load, rows, world.fit.test.to_numpy()[: world.model.order])
    np.testing.assert_array_equal(found.table["aggregate_temp_c"], run)


def test_bands_are_nested_and_around_the_forecast(world, found):
    t = found.table.iloc[world.model.order :]
    assert (t["low_95"] <= t["low_80"]).all() and (t["low_80"] <= t["aggregate_temp_c"]).all()
    assert (t["aggregate_temp_c"] <= t["high_80"]).all() and (t["high_80"] <= t["high_95"]).all()


def test_coverage_stands_beside_what_was_said(found):
    assert [(c.level, c.hours) for c in found.coverage] == [(level, h) for level in ("80", "95") for h in (1, 6, 24)]
    for c in found.coverage:
        assert 0.4 <= c.share <= 1.0 and c.width > 0 and c.origins > 48


def test_bands_know_nothing_of_the_rows_they_are_about(world, found):
    """The record of a fit holds its test rows; a forecast of these is drawn without them."""
    record, first = world.model.record, world.start + world.model.order * world.model.step
    spoiled = replace(record, errors=np.where(np.asarray(record.time >= first)[:, None], 100.0, record.errors))
    again = atdm.forecast(replace(world.model, record=spoiled), world.fit.load, world.weather, truth=world.fit.state,
                          start=str(world.start))  # fmt: skip
    pd.testing.assert_frame_equal(again.table, found.table)


def test_observed_rows_move_the_bands(world):
    """A week in which forecasts were far off: the bands that follow are wider."""
    start, model = world.start, world.model
    cut = replace(model, released=model.released.between(None, start), record=model.record.before(start))
    rows = pd.DataFrame({"aggregate_temp_c": world.fit.test, "load_kw": world.fit.load[world.fit.test.index]})
    rows = rows.iloc[:100]
    off = rows.assign(aggregate_temp_c=rows["aggregate_temp_c"] + 2 * np.sin(np.arange(100) / 5))
    wide, usual = (
        atdm.forecast(cut, world.fit.load, world.weather, observed=o, horizon=pd.Timedelta("24h")).table
        for o in (off, rows)
    )
    assert (wide["high_80"] - wide["low_80"]).iloc[-1] > 2 * (usual["high_80"] - usual["low_80"]).iloc[-1]


def test_rolling_errors_are_those_of_single_free_runs(world):
    c, state, m = world.model.coefficients, world.fit.state.to_numpy(), world.model.order
    inputs = world.fit.released.inputs(world.model.calendar)
    origins = np.array([10, 57, 400])
    errors = rolling_errors(c, inputs, state, origins, 100)
    for origin, row in zip(origins, errors, strict=True):
        stop = min(origin + 100, len(state))
        run = free_run(c, inputs, state, origin - m, stop)[m:]
        np.testing.assert_allclose(row[: stop - origin], run - state[origin:stop], atol=1e-10)
        assert np.isnan(row[stop - origin :]).all()


def test_a_run_never_crosses_a_gap(world):
    c, state = world.model.coefficients, world.fit.state.to_numpy()
    inputs = world.fit.released.inputs(world.model.calendar)
    gap = replace(inputs, segment=(np.arange(len(inputs)) >= 60).astype(np.int64))
    errors = rolling_errors(c, gap, state, np.array([50]), 20)[0]
    assert np.isfinite(errors[:10]).all() and np.isnan(errors[10:]).all()


def test_skill_is_computed_from_every_origin_and_beats_no_change(world, found):
    by = {s.hours: s for s in found.skill}
    rows, memory = len(found.table), 3
    assert by[1].origins == rows - memory and by[24].origins == rows - memory - 23
    last = world.fit.test.to_numpy()
    assert by[1].persistence_rmse == pytest.approx(np.sqrt(np.mean(np.diff(last)[memory - 1 :] ** 2)))
    for s in found.skill:
        assert s.rmse < s.persistence_rmse


def test_a_fit_forecasts_with_its_chosen_model(world, found):
    again = atdm.forecast(world.fit, world.fit.load, world.weather, truth=world.fit.state, start=str(world.start))
    pd.testing.assert_frame_equal(again.table, found.table)
    assert again.model == world.fit.chosen.words()


def test_without_a_record_there_is_a_trajectory_and_a_word(world):
    found = atdm.forecast(world.fit.model, world.fit.load, world.weather, [20.0, 20.0])
    assert list(found.table.columns) == ["aggregate_temp_c", "load_kw"]
    assert "no bands" in found.notes[0]


def test_a_load_beyond_training_is_said(world):
    given = [20.0] * world.model.order
    found = atdm.forecast(world.model, world.fit.load * 10, world.weather, given, horizon=pd.Timedelta("12h"))
    assert "that the model has seen" in found.notes[0]
    assert len(found.table) == world.model.order + 12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: {"initial": [20.0] * 9}, "stamps of the weather"),
        (lambda w: {"initial": None}, "stamps of the weather \\(initial\\)"),
        (lambda w: {"initial": w.fit.test}, "no aggregate temperature at"),
        (lambda w: {"weather": w.weather.drop(w.weather.index[30])}, "do not follow"),
        (lambda w: {"start": "2030-01-01"}, "rows of weather and load"),
        (lambda w: {"start": "soon"}, "time stamp"),
        (lambda w: {"start": str(w.weather.index[5] + pd.Timedelta("10min"))}, "no such row, next is"),
        (lambda w: {"horizon": pd.Timedelta("9000D")}, "shorten the horizon"),
        (lambda w: {"truth": w.fit.state.shift(freq="900D")}, "no value in the forecast"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_one_line(world, change, words):
    given = [20.0] * world.model.order
    asked = {"load": world.fit.load, "weather": world.weather, "initial": given, **change(world)}
    with pytest.raises(atdm.AtdmError, match=words) as refused:
        atdm.forecast(world.model, **asked)
    assert "\n" not in str(refused.value)


def test_weather_may_have_time_stamps_of_any_resolution(world, found):
    weather = world.weather.set_axis(world.weather.index.as_unit("s"))
    again = atdm.forecast(world.model, world.fit.load, weather, truth=world.fit.state, start=str(world.start))
    np.testing.assert_array_equal(again.table["aggregate_temp_c"], found.table["aggregate_temp_c"])


@pytest.fixture(scope="module")
def without_a_plan(world):
    return atdm.forecast(world.model, None, world.weather, truth=world.fit.series(), start=str(world.start))


def test_bands_of_a_forecast_load_are_judged_and_said_not_to_learn(world, without_a_plan):
    """Each share counts single forecasts from every origin against the table they would have printed."""
    found = without_a_plan
    assert any("do not learn" in note for note in found.notes)
    assert [(c.level, c.hours) for c in found.coverage] == [(level, h) for level in ("80", "95") for h in (1, 6, 24)]
    series, held, widths = world.fit.series()[["aggregate_temp_c", "load_kw"]], [], []
    starts = world.weather.loc[world.start :].index[: -24 - world.model.order + 1]
    for start in starts[::20]:
        horizon = pd.Timedelta(hours=24 + world.model.order)
        rows = world.weather.loc[start : start + horizon]
        table = atdm.forecast(world.model, None, rows, series, start=str(start)).table.iloc[: world.model.order + 24]
        last, truth = table.iloc[-1], series["aggregate_temp_c"][table.index[-1]]
        held.append(last["low_80"] <= truth <= last["high_80"])
        widths.append(last["high_80"] - last["low_80"])
    day = found.coverage[2]
    assert day.origins == len(starts) and day.width == pytest.approx(np.mean(widths))
    assert day.share == pytest.approx(np.mean(held), abs=0.35)


def test_bands_of_a_forecast_load_widen_beyond_a_day(world, without_a_plan):
    table = without_a_plan.table.iloc[world.model.order :]
    width = (table["high_80"] - table["low_80"]).to_numpy()
    assert (np.diff(width[23:]) >= -1e-9).all() and width[71] > 1.01 * width[23]
    middle = (table["high_80"] + table["low_80"]) / 2 - table["aggregate_temp_c"]
    assert np.ptp(middle.to_numpy()[23:]) < 1e-9
