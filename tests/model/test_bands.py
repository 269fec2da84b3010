"""Bands hold what they say: by errors of past forecasts, and drawn with nothing but what was known."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.model.bands import KEPT, KINDS, PARTS, Record, half_widths, held, record_of
from atdm.model.current import left_out_errors, recipe_of

HOUR = pd.Timedelta("1h")


def record(errors: np.ndarray, expected: np.ndarray, first: str = "2024-01-01") -> Record:
    """Of hourly forecasts: errors origins × steps, expected ones from leave-block-out."""
    time = pd.date_range(first, periods=len(errors), freq="1h", tz="UTC").as_unit("ns")
    return replace(record_of({"planned": expected}, HOUR), time=time, errors={"planned": errors})


def test_bands_hold_their_share_where_errors_stay_what_they_were():
    random = np.random.default_rng(1)
    found = record(random.normal(0, 1, (600, 3)), random.normal(0, 1, (500, 3)))
    for level in (0.8, 0.95):
        drawn = held(found, level)
        assert (np.abs(found.errors["planned"]) <= drawn.at_origins).mean() == pytest.approx(level, abs=0.03)
        assert drawn.now == pytest.approx(np.full(3, {0.8: 1.28, 0.95: 1.96}[level]), rel=0.25)


def test_bands_widen_where_forecasts_turn_out_worse_and_hold_again():
    random = np.random.default_rng(2)
    worse = random.normal(0, 3, (24 * 14, 1))
    found = record(worse, random.normal(0, 1, (500, 1)))
    drawn = held(found, 0.8)
    inside = (np.abs(worse) <= drawn.at_origins)[:, 0]
    assert inside[:24].mean() < 0.6
    assert inside[24 * 4 :].mean() == pytest.approx(0.8, abs=0.05)


def test_a_day_and_a_half_of_large_errors_leaves_wide_bands_for_about_two_days():
    """As when heating is moved and nobody tells: outside at first, then wide, then as before. Errors last for 12 h."""
    random = np.random.default_rng(6)
    inside, width = [], []
    for _ in range(10):
        errors = np.repeat(random.normal(0, 1, (40, 1)), 12, axis=0) * np.ones((1, 24))
        errors[8 * 24 : 9 * 24 + 12] *= 6
        drawn = held(record(errors, random.normal(0, 1, (500, 24))), 0.8).at_origins[:, -1]
        inside.append((np.abs(errors[:, -1]) <= drawn).reshape(20, 24).mean(axis=1))
        width.append(drawn.reshape(20, 24).mean(axis=1))
    share, usual = np.mean(inside, axis=0), np.mean(width, axis=0)
    before, after = usual[:8].mean(), usual[12:]
    assert share[8] < 0.4 and usual[9:11].min() > 2 * before
    assert after.max() < 2 * before and after.mean() < 1.5 * before
    assert share[12:].mean() == pytest.approx(0.8, abs=0.07)


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


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][min(np.searchsorted(total, share * total[-1]), len(values) - 1)])


@pytest.mark.parametrize("seed", range(5))
def test_a_band_is_the_quantile_of_all_errors_that_are_known(seed):
    """Nothing adapts where no share is left to move by: then a band is a plain quantile, quantiles weighed as rows."""
    random = np.random.default_rng(seed)
    found = record(np.round(random.normal(0, 1.5, (60, 1)), 1), np.round(random.normal(0, 1, (40, 1)), 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atdm.model.bands.RATE", 0.0)
        drawn = held(found, 0.8)
    expected, errors = found.expected["planned"][:, 0], np.abs(found.errors["planned"][:, 0])
    for origin in (0, 1, 30, 60):
        values = np.concatenate([expected, errors[:origin]])
        weights = np.concatenate([np.full(PARTS + 1, 40 / (PARTS + 1)), np.ones(origin)])
        width = drawn.now[0] if origin == 60 else drawn.at_origins[origin, 0]
        assert width == weighted_quantile(values, weights, 0.8)


def test_kinds_of_errors_are_kept_apart_and_what_nobody_gave_stays_unknown():
    found = record_of({"planned": np.ones((20, 2)), "unplanned": 2 * np.ones((20, 2))}, HOUR)
    time = pd.date_range("2024-01-01", periods=30, freq="1h", tz="UTC").as_unit("ns")
    later = found.with_errors(time, {"planned": np.full((30, 2), 9.0)})
    assert (held(later, 0.8).now == 9).all() and (held(later, 0.8, "unplanned").now == 2).all()
    assert np.isnan(later.errors["unplanned"]).all()


def test_before_forgets_forecasts_whose_truth_came_later():
    found = record(np.ones((10, 3)), np.ones((20, 3)))
    cut = found.before(found.time[6])
    assert len(cut.time) == 6
    errors = cut.errors["planned"]
    assert np.isnan(errors[5, 1:]).all() and errors[5, 0] == 1.0
    assert np.isfinite(errors[3]).all()


def test_old_errors_are_forgotten_and_none_is_counted_twice():
    found = record(np.ones((48, 2)), np.ones((20, 2)))
    again = found.with_errors(found.time[-3:], {"planned": np.zeros((3, 2))})
    assert len(again.time) == 48 and (again.errors["planned"] == 1).all()
    later = pd.date_range(found.time[-1] + KEPT, periods=3, freq="1h")
    assert len(found.with_errors(pd.DatetimeIndex(later), {"planned": np.zeros((3, 2))}).time) == 3


@pytest.mark.parametrize(
    ("step", "first"),
    [("30min", "00:00"), ("30min", "00:15"), ("15min", "00:10"), ("45min", "00:00"), ("45min", "00:20")],
)
def test_one_origin_an_hour_is_kept_whatever_minute_rows_are_stamped_with(step, first):
    length = pd.Timedelta(step)
    time = pd.date_range(f"2024-01-01 {first}", "2024-01-11", freq=length, tz="UTC").as_unit("ns")
    random = np.random.default_rng(4)
    none = record_of({"planned": random.normal(0, 1, (500, 1))}, length)
    errors = random.normal(0, 1, (len(time), 1))
    whole = none.with_errors(time, {"planned": errors})
    assert whole.time.equals(pd.DatetimeIndex(pd.Series(time, time.floor("1h")).groupby(level=0).first()))
    assert len(whole.time) == pytest.approx(240, abs=1)
    bit_by_bit = none
    for start in range(0, len(time), 7):
        bit_by_bit = bit_by_bit.with_errors(time[start : start + 7], {"planned": errors[start : start + 7]})
    assert bit_by_bit.time.equals(whole.time)
    assert np.array_equal(bit_by_bit.errors["planned"], whole.errors["planned"])
    worse = none.with_errors(time, {"planned": np.where(errors > 0, errors + 3, errors - 3)})
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
    found = left_out_errors(recipe_of(model), model.calendar, inputs, state, (True, True))
    for kind, least in (("planned", 0.05), ("unplanned", 0.05), ("load", 5.0)):
        errors = found[kind]
        whole = np.isfinite(errors).all(axis=1)
        assert errors.shape[1] == 48 and 0.6 * len(state) < whole.sum() < len(state)
        assert np.abs(errors[:, -1][whole]).mean() > least  # a model that had seen the block would do better by far
        assert model.record.expected[kind].shape == (PARTS + 1, 48)


def test_model_file_keeps_rows_record_and_calendar(tmp_path, sample):
    fit = atdm.fit(sample, "plain", holidays=[pd.Timestamp("2018-01-15").date()])
    model = fit.chosen
    model.save(tmp_path / "model.json")
    back = atdm.Model.load(tmp_path / "model.json")
    assert back.calendar == model.calendar and back.made == model.made and back.trained == fit.inputs.train
    assert back.words() == model.words()
    np.testing.assert_array_equal(back.released.time, model.released.time)
    np.testing.assert_allclose(back.released.state, model.released.state, rtol=1e-5)
    for kind in KINDS:
        np.testing.assert_allclose(held(back.record, 0.8, kind).now, held(model.record, 0.8, kind).now)
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
        lambda d: d["record"]["forecasters"][0]["usual"]["use"].pop(),
        lambda d: d["record"]["forecasters"][0]["usual"]["solar"].pop(),
        lambda d: d["record"]["forecasters"][0]["usual"].update(low=1e9),
        lambda d: d["record"]["forecasters"][0]["usual"].update(load=None),
        lambda d: d["record"].pop("errors_load_kw"),
        lambda d: d["record"]["expected_unplanned_k"].pop(),
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
