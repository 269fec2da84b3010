"""Forecasts are the model's free run, with bands, judged against forecasts that need no model."""

import itertools
import json
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
    later = np.asarray(record.time >= first)[:, None]
    spoiled = replace(record, errors={kind: np.where(later, 100.0, own) for kind, own in record.errors.items()})
    again = atdm.forecast(replace(world.model, record=spoiled), world.fit.load, world.weather, truth=world.fit.state,
                          start=str(world.start))  # fmt: skip
    pd.testing.assert_frame_equal(again.table, found.table)


@pytest.mark.parametrize("planned", [True, False])
def test_observed_rows_move_the_bands(world, planned):
    """A week in which forecasts were far off: the bands that follow are wider, with a load plan and without."""
    start, model = world.start, world.model
    cut = replace(model, released=model.released.between(None, start), record=model.record.before(start))
    rows = pd.DataFrame({"aggregate_temp_c": world.fit.test, "load_kw": world.fit.load[world.fit.test.index]})
    rows = rows.iloc[:100]
    wave = np.sin(np.arange(100) / 5)
    off = rows.assign(aggregate_temp_c=rows["aggregate_temp_c"] + (2 if planned else 6) * wave)
    if not planned:
        off["load_kw"] += 20 * (1 + wave)
    load = world.fit.load if planned else None
    wide, usual = (
        atdm.forecast(cut, load, world.weather, observed=o, horizon=pd.Timedelta("24h")).table.iloc[-1]
        for o in (off, rows)
    )
    assert wide["high_80"] - wide["low_80"] > (2 if planned else 1.5) * (usual["high_80"] - usual["low_80"])
    if not planned:
        assert wide["load_high_80"] - wide["load_low_80"] > 1.2 * (usual["load_high_80"] - usual["load_low_80"])


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


def test_bands_of_a_forecast_load_are_judged_as_they_would_have_been_drawn(world, without_a_plan):
    """Each share counts forecasts from every origin against the table they would have printed, rows before observed."""
    found, model = without_a_plan, world.model
    assert not found.notes
    assert [(c.level, c.hours) for c in found.coverage] == [(level, h) for level in ("80", "95") for h in (1, 6, 24)]
    series, held, widths = world.fit.series()[["aggregate_temp_c", "load_kw"]], [], []
    known = replace(model, released=model.released.between(None, world.start), record=model.record.before(world.start))
    day, ends = found.coverage[2], range(model.order, model.order + found.coverage[2].origins)
    for end in ends:
        rows = series.loc[world.start :].iloc[:end]
        table = atdm.forecast(known, None, world.weather, observed=rows, horizon=pd.Timedelta("24h")).table
        last, truth = table.iloc[-1], series["aggregate_temp_c"][table.index[-1]]
        held.append(last["low_80"] <= truth <= last["high_80"])
        widths.append(last["high_80"] - last["low_80"])
    assert day.origins == len(world.fit.test) - model.order - 23
    assert day.width == pytest.approx(np.mean(widths), rel=0.02) and day.share == pytest.approx(np.mean(held), abs=0.02)


def test_bands_of_a_forecast_load_are_around_it_and_those_of_the_temperature_widen_beyond_a_day(world, without_a_plan):
    table = without_a_plan.table.iloc[world.model.order :]
    for name, value in (("", "aggregate_temp_c"), ("load_", "load_kw")):
        ends = [table[f"{name}{end}"] for end in ("low_95", "low_80")] + [table[value]]
        ends += [table[f"{name}{end}"] for end in ("high_80", "high_95")]
        assert all((low <= high).all() for low, high in itertools.pairwise(ends))
    width = (table["high_80"] - table["low_80"]).to_numpy()
    assert (np.diff(width[23:]) >= -1e-9).all() and width[71] > 1.01 * width[23]
    assert (table["load_low_95"] >= 0).all()


def test_a_model_file_of_before_has_bands_without_a_load_plan(world, without_a_plan):
    """What is to be expected is found anew in its rows; what later forecasts taught is not known."""
    document = json.loads(world.model.to_json())
    for name in ("unplanned_k", "load_kw"):
        del document["record"][f"expected_{name}"], document["record"][f"errors_{name}"]
    old = atdm.Model.from_json(json.dumps(document))
    found = atdm.forecast(old, None, world.weather, truth=world.fit.series(), start=str(world.start))
    for name in ("low_80", "load_high_95"):
        np.testing.assert_allclose(found.table[name], without_a_plan.table[name], rtol=0.01)


def test_without_the_load_as_it_was_a_forecast_load_is_not_judged(world):
    found = atdm.forecast(world.model, None, world.weather, truth=world.fit.state, start=str(world.start))
    assert found.run_rmse > 0 and found.coverage == () and found.load_skill == ()
