"""Bands hold what they say: by errors of past forecasts, and drawn with nothing but what was known."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.model.bands import KEPT, PARTS, Record, half_widths, held, record_of
from atdm.model.current import left_out_errors, recipe_of

HOUR = pd.Timedelta("1h")


def record(errors: np.ndarray, expected: np.ndarray, first: str = "2024-01-01") -> Record:
    """Of hourly forecasts: errors origins × steps, expected ones from leave-block-out."""
    time = pd.date_range(first, periods=len(errors), freq="1h", tz="UTC").as_unit("ns")
    return replace(record_of(expected, HOUR), time=time, errors=errors)


def test_bands_hold_their_share_where_errors_stay_what_they_were():
    random = np.random.default_rng(1)
    found = record(random.normal(0, 1, (600, 3)), random.normal(0, 1, (500, 3)))
    for level in (0.8, 0.95):
        drawn = held(found, level)
        assert (np.abs(found.errors) <= drawn.at_origins).mean() == pytest.approx(level, abs=0.03)
        assert drawn.now == pytest.approx(np.full(3, {0.8: 1.28, 0.95: 1.96}[level]), rel=0.25)


def test_bands_widen_where_forecasts_turn_out_worse_and_hold_again():
    random = np.random.default_rng(2)
    worse = random.normal(0, 3, (24 * 14, 1))
    found = record(worse, random.normal(0, 1, (500, 1)))
    drawn = held(found, 0.8)
    inside = (np.abs(worse) <= drawn.at_origins)[:, 0]
    assert inside[:24].mean() < 0.6
    assert inside[24 * 4 :].mean() == pytest.approx(0.8, abs=0.05)


def test_a_band_uses_nothing_that_was_not_known_at_its_origin():
    """Changing an error changes no band of an origin before its truth was known."""
    random = np.random.default_rng(3)
    errors = random.normal(0, 1, (200, 24))
    changed = errors.copy()
    errors[100], changed[100] = 0.0, 50.0
    expected = random.normal(0, 1, (300, 24))
    a, b = (held(record(e, expected), 0.8).at_origins for e in (errors, changed))
    for step in range(24):
        known_from = 100 + step + 1  # the truth k steps after an origin is there k + 1 rows later
        assert np.array_equal(a[:known_from, step], b[:known_from, step])
        assert not np.array_equal(a[known_from:, step], b[known_from:, step])


def test_before_forgets_forecasts_whose_truth_came_later():
    found = record(np.ones((10, 3)), np.ones((20, 3)))
    cut = found.before(found.time[6])
    assert len(cut.time) == 6
    assert np.isnan(cut.errors[5, 1:]).all() and cut.errors[5, 0] == 1.0
    assert np.isfinite(cut.errors[3]).all()


def test_old_errors_are_forgotten_and_none_is_counted_twice():
    found = record(np.ones((48, 2)), np.ones((20, 2)))
    again = found.with_errors(found.time[-3:], np.zeros((3, 2)))
    assert len(again.time) == 48 and (again.errors == 1).all()
    later = pd.date_range(found.time[-1] + KEPT, periods=3, freq="1h")
    assert len(found.with_errors(pd.DatetimeIndex(later), np.zeros((3, 2))).time) == 3


@pytest.mark.parametrize(
    ("step", "first"),
    [("30min", "00:00"), ("30min", "00:15"), ("15min", "00:10"), ("45min", "00:00"), ("45min", "00:20")],
)
def test_one_origin_an_hour_is_kept_whatever_minute_rows_are_stamped_with(step, first):
    length = pd.Timedelta(step)
    time = pd.date_range(f"2024-01-01 {first}", "2024-01-11", freq=length, tz="UTC").as_unit("ns")
    random = np.random.default_rng(4)
    none = record_of(random.normal(0, 1, (500, 1)), length)
    errors = random.normal(0, 1, (len(time), 1))
    whole = none.with_errors(time, errors)
    assert whole.time.equals(pd.DatetimeIndex(pd.Series(time, time.floor("1h")).groupby(level=0).first()))
    assert len(whole.time) == pytest.approx(240, abs=1)
    bit_by_bit = none
    for start in range(0, len(time), 7):
        bit_by_bit = bit_by_bit.with_errors(time[start : start + 7], errors[start : start + 7])
    assert bit_by_bit.time.equals(whole.time) and np.array_equal(bit_by_bit.errors, whole.errors)
    worse = none.with_errors(time, np.where(errors > 0, errors + 3, errors - 3))
    assert held(worse, 0.8).now[0] > 1.5 * held(whole, 0.8).now[0]


def test_beyond_a_day_bands_grow_as_the_memory_of_the_model_does(sample):
    model = atdm.fit(sample, "plain").chosen
    now = held(model.record, 0.8).now
    week = half_widths(model.coefficients, now, 7 * 48)
    assert np.array_equal(week[:48], now)
    assert (np.diff(week[47:]) >= 0).all() and week[-1] < 4 * now[-1]


def test_left_out_errors_are_those_of_models_without_the_block(sample):
    """The first block's errors do not change when its own readings do, but for what they forecast from."""
    fit = atdm.fit(sample, "plain")
    model = replace(fit.chosen, made="chosen")
    inputs, state = model.released.inputs(model.calendar, fit.inputs.train).training_part(), fit.train.to_numpy(float)
    errors = left_out_errors(recipe_of(model), model.calendar, inputs, state)
    whole = np.isfinite(errors).all(axis=1)
    assert errors.shape[1] == 48 and 0.6 * len(state) < whole.sum() < len(state)
    seen = np.abs(errors[:, -1][whole])
    assert seen.mean() > 0.05  # a model that had seen the block would do better than this by far
    assert model.record.expected.shape == (PARTS + 1, 48)


def test_model_file_keeps_rows_record_and_calendar(tmp_path, sample):
    fit = atdm.fit(sample, "plain", holidays=[pd.Timestamp("2018-01-15").date()])
    model = fit.chosen
    model.save(tmp_path / "model.json")
    back = atdm.Model.load(tmp_path / "model.json")
    assert back.calendar == model.calendar and back.made == model.made and back.trained == fit.inputs.train
    assert back.words() == model.words()
    np.testing.assert_array_equal(back.released.time, model.released.time)
    np.testing.assert_allclose(back.released.state, model.released.state, rtol=1e-5)
    np.testing.assert_allclose(held(back.record, 0.8).now, held(model.record, 0.8).now)
    for name in ("alpha", "beta", "gamma", "theta", "occupancy"):
        np.testing.assert_array_equal(getattr(back, name), getattr(model, name))
    fit.model.save(tmp_path / "bare.json")
    bare = atdm.Model.load(tmp_path / "bare.json")
    assert bare.released is None and bare.record is None and bare.made == "estimated"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d["record"].update(expected_k=[[1.0]]),
        lambda d: d["released"]["load_kw"].pop(),
        lambda d: d["released"].update(trained=99_999),
        lambda d: d.update(day_types="holidays only"),
        lambda d: d.update(day_types="all days"),
        lambda d: d.update(made="guessed"),
        lambda d: d.update(alpha=None),
        lambda d: d["released"]["runs"].reverse() or d["released"]["runs"].append(["2018-01-01T00:00:00+00:00", 1]),
        lambda d: d["record"]["time"].reverse(),
        lambda d: d["record"]["forecasters"][0].update(alpha=None),
        lambda d: d["record"]["forecasters"][0]["occupancy"].pop(),
        lambda d: d["record"]["forecasters"][0].update(step_seconds=60.0),
        lambda d: d["record"]["forecasters"].append(d["record"]["forecasters"][0]),
        lambda d: d["record"].update(forecasters=None),
        lambda d: d["record"]["forecasters"][0].update(since=None),
        lambda d: d["record"]["forecasters"][0].update(since="2018-01-01"),
    ],
)
def test_model_file_whose_parts_do_not_belong_together_is_refused(tmp_path, sample_model, spoil):
    document = json.loads(sample_model)
    spoil(document)
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(atdm.DataError, match="model.json written by atdm"):
        atdm.Model.load(tmp_path / "model.json")


@pytest.fixture(scope="module")
def sample_model() -> str:
    return atdm.fit(atdm.load_sample(), "plain").chosen.to_json()
