"""A model is planned with where rows show what heat does; elsewhere it is refused, for a reason that is said."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm

from atdm.kernel.design import lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.model.diagnostics import (
    Regression,
    impulse_filter,
    newey_west,
    season_lags,
    steady_gains,
    step_response,
)
from atdm.model.horizons import origins_in, rolling_errors
from atdm.model.physical import estimate_physical
from atdm.model.planning import (
    MOST_ERROR,
    Excitation,
    Plausibility,
    _implausible,
    _standard_error,
    _unjudged,
    _unknown,
    left_out_errors,
    plan_model,
    planning_of,
    unexplained_share,
)
from atdm.model.released import Released
from tests.model.rooms import GAIN_LOAD, GAIN_OUTDOOR, rows
from tests.use.two_state import AIR, dynamics, two_state

DAY = 48


@pytest.fixture(scope="module")
def excited():
    return rows()


def planned(world, **options):
    return plan_model(world.inputs, world.state, world.time, world.calendar, **options)


def test_what_heat_does_is_found_where_it_was_moved(excited):
    found = planned(excited)
    assert found.refusals == () and found.coefficients is not None
    truth = step_response(excited.truth, DAY)["load"]
    assert found.excitation.response_24h == pytest.approx(truth, rel=0.1)
    assert abs(found.excitation.response_24h - truth) < 3 * found.excitation.standard_error
    assert found.excitation.agreement == pytest.approx(1.0, abs=0.15)
    assert found.plausibility.mean_need == pytest.approx(found.plausibility.mean_heat, rel=0.05)
    assert found.plausibility.unheated_72h < found.plausibility.unheated_24h < found.plausibility.mean_temp


def test_a_load_that_weather_and_clock_explain_tells_nothing_about_heat():
    found = planned(rows(excited=0.02, noise=0.05))
    assert found.coefficients is None
    assert "excitation" in {refusal.reason for refusal in found.refusals}
    for note in found.notes():
        assert note.startswith("not for planning: ") and "\n" not in note
    assert any("atdm probe" in note and "--assume-gain" in note for note in found.notes())


def test_rows_after_the_training_rows_are_not_looked_at(excited):
    changed = excited.state.copy()
    changed[excited.inputs.train :] += 5.0
    same, other = planned(excited), planned(excited._replace(state=changed))
    np.testing.assert_array_equal(same.coefficients.alpha, other.coefficients.alpha)
    assert same.excitation == other.excitation and same.plausibility == other.plausibility


def test_left_out_errors_are_those_of_a_model_that_never_saw_the_part(excited):
    n = excited.inputs.train
    rows = Released(time=excited.time, state=excited.state, load=excited.inputs.load, outdoor=excited.inputs.outdoor,
                    solar=excited.inputs.solar, equal=True)  # fmt: skip
    found = left_out_errors(rows, n, planned(excited), DAY)
    start = int(np.linspace(0, n, 6)[4])
    inputs = replace(excited.inputs, train=start).training_part()
    c = estimate_physical(inputs, excited.state[:start], 2, excited.calendar)
    last = excited.inputs.training_part()
    errors = rolling_errors(c, last, excited.state[:n], origins_in(last, start + 2, n, 2), DAY)
    np.testing.assert_allclose(found[-len(errors) :], errors, atol=1e-6)
    assert np.isnan(found[-1, 1:]).all()  # a run ends with its part


def test_a_stated_gain_is_kept_and_needs_no_excitation():
    found = planned(rows(excited=0.02, noise=0.05), assumed_gain=GAIN_LOAD)
    assert found.excitation is None and found.coefficients is not None
    assert steady_gains(found.coefficients)["load"] == pytest.approx(GAIN_LOAD, rel=1e-6)


@pytest.mark.parametrize("gain", [GAIN_LOAD / 20, GAIN_LOAD * 20])
def test_a_stated_gain_that_no_building_has_is_refused(gain):
    found = planned(rows(excited=0.02, noise=0.05), assumed_gain=gain)
    assert {refusal.reason for refusal in found.refusals} & {"unheated", "steady heat", "outdoor gain"}


def mirrored(world):
    """The same building cooled: every temperature seen from 40 °C, and load that takes heat away."""
    inputs = replace(world.inputs, load=-world.inputs.load, outdoor=40 - world.inputs.outdoor,
                     solar=-world.inputs.solar)  # fmt: skip
    return world._replace(inputs=inputs, state=40 - world.state)


@pytest.mark.parametrize("gain", [None, GAIN_LOAD / 20, GAIN_LOAD, GAIN_LOAD * 20, GAIN_LOAD * 200])
def test_a_cluster_that_cools_is_judged_as_its_mirror_image_that_heats(excited, gain):
    """The rules were made for heat alone: every stated gain passed for a cluster that cools."""
    heats, cools = planned(excited, assumed_gain=gain), planned(mirrored(excited), assumed_gain=gain)
    assert [r.reason for r in cools.refusals] == [r.reason for r in heats.refusals]
    assert cools.plausibility.mean_need == pytest.approx(-heats.plausibility.mean_need, rel=1e-3)
    assert cools.plausibility.coldest_outdoor == pytest.approx(40 - heats.plausibility.coldest_outdoor)
    assert cools.plausibility.coldest_need == pytest.approx(-heats.plausibility.coldest_need, rel=1e-2, abs=1e-2)
    assert cools.plausibility.unheated_72h == pytest.approx(40 - heats.plausibility.unheated_72h, abs=0.01)
    assert all("hottest" in r.words for r in cools.refusals if r.reason == "steady heat" and "day" in r.words)


def test_a_stated_gain_that_the_rows_contradict_is_remarked(excited):
    assert planned(excited, assumed_gain=GAIN_LOAD).remarks == ()
    (remark,) = planned(excited, assumed_gain=GAIN_LOAD * 0.4).remarks
    assert "the rows, which tell what heat does, say" in remark and "\n" not in remark
    unknown = rows(excited=0.02, noise=0.05)
    assert planned(unknown, assumed_gain=GAIN_LOAD).coefficients is not None
    assert planned(unknown, assumed_gain=GAIN_LOAD).remarks == ()  # the rows cannot tell


def test_too_few_rows_are_refused_in_words(excited):
    short = excited._replace(inputs=replace(excited.inputs, train=40))
    found = planned(short)
    assert [refusal.reason for refusal in found.refusals] == ["rows"]
    assert "rows" in found.refusals[0].words and found.as_dict()["usable"] is False


def test_probed_rows_count_as_much_as_all_others(excited):
    marks = np.zeros(len(excited.inputs), dtype=bool)
    marks[100:300] = True
    found = planned(excited, probed=marks)
    assert found.excitation.probed_rows == 200
    assert not np.array_equal(found.coefficients.beta, planned(excited).coefficients.beta)


def test_unexplained_share_is_what_a_regression_leaves(excited):
    inputs = excited.inputs
    at = lagged_rows(inputs.segment, 2, 0, inputs.train)
    columns = [values[at - m] for values in (inputs.outdoor, inputs.solar) for m in range(3)]
    columns += [excited.state[at - 1], excited.state[at - 2], *np.eye(48)[inputs.phase[at]].T]
    design = np.column_stack(columns)
    load = inputs.load[at]
    left = load - design @ np.linalg.lstsq(design, load, rcond=None)[0]
    expected = left @ left / ((load - load.mean()) @ (load - load.mean()))
    assert unexplained_share(inputs, excited.state, excited.calendar) == pytest.approx(expected, rel=1e-6)


def test_standard_error_is_the_spread_of_drawn_coefficients(excited):
    inputs = excited.inputs.training_part()
    c = planned(excited).coefficients
    regression = Regression.build(c, inputs, excited.state[: inputs.train])
    lags = season_lags(48, len(regression.rows))
    covariance = newey_west(regression.columns, regression.residuals, regression.rows, inputs.segment, lags)
    both = np.concatenate([c.alpha, c.beta])
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(both, covariance[:5, :5], 4000)
    drawn = [step_response(replace(c, alpha=d[:2], beta=d[2:]), DAY)["load"] for d in draws]
    found = _standard_error(c, inputs, excited.state[: inputs.train], np.ones(len(regression.rows)), DAY)
    low, high = np.quantile(drawn, [0.16, 0.84])
    assert found == pytest.approx((high - low) / 2, rel=0.1)


def test_what_one_part_of_the_rows_says_alone_is_not_known():
    """In the last fifth a kW warms three times as much, by what is moved there. Residuals alone do not doubt it."""
    world = rows()
    n = world.inputs.train
    moved = np.zeros(len(world.state))
    moved[n - n // 5 : n] = np.repeat(np.random.default_rng(1).normal(0, 6.0, n), 8)[: n // 5]
    more = impulse_filter(world.truth.alpha, np.convolve(3 * moved, world.truth.beta)[: len(moved)])
    inputs = replace(world.inputs, load=world.inputs.load + moved)
    found = planned(world._replace(inputs=inputs, state=world.state + more))
    assert "standard error" in {refusal.reason for refusal in found.refusals}
    c = estimate_physical(inputs.training_part(), (world.state + more)[:n], 2, world.calendar)
    count = len(lagged_rows(inputs.segment, 2, 0, n))
    by_residuals = _standard_error(c, inputs.training_part(), (world.state + more)[:n], np.ones(count), DAY)
    assert by_residuals < MOST_ERROR * found.excitation.response_24h < found.excitation.standard_error


def test_the_outdoor_gain_that_rows_ask_for_is_seen_though_a_rule_holds_it_at_one(excited):
    """Held at 1 it passed, and with it a slow part of the response that was not the building's."""
    warmer = replace(excited.inputs, outdoor=excited.inputs.outdoor / 2)  # the same temperatures by half the weather
    found = planned(excited._replace(inputs=warmer))
    assert found.excitation.outdoor_gain == pytest.approx(2 * GAIN_OUTDOOR, rel=0.2)
    assert "outdoor gain" in {refusal.reason for refusal in found.refusals}
    assert planned(excited).excitation.outdoor_gain == pytest.approx(GAIN_OUTDOOR, rel=0.2)


@pytest.mark.parametrize("hours", [0.25, 0.5, 1.0, 2.0])
def test_what_heat_does_is_found_whatever_the_length_of_rows(hours):
    """A known building of air and mass, whose load stays the same within a row."""
    cluster, day = two_state(agents=6, days=24, step_hours=hours), round(24 / hours)
    calendar = Calendar(step=pd.Timedelta(hours=hours), timezone="UTC", season=day)
    released = Released(
        time=pd.DatetimeIndex(cluster.temperature.index), state=cluster.temperature.mean(axis=1).to_numpy(),
        load=cluster.load.sum(axis=1).to_numpy(), outdoor=cluster.outdoor.to_numpy(), solar=cluster.solar.to_numpy(),
        equal=True,
    )  # fmt: skip
    found = planning_of(released, len(released), calendar)
    assert found.refusals == (), found.notes()  # its outdoor gain is 1, which rows ask for to within their noise
    after = expm(np.block([[dynamics(), np.array([[1 / AIR], [0.0]])], [np.zeros((1, 3))]]) * (24 - hours))
    truth = after[0, 2] / 6  # one kW of the cluster is a sixth of a kW in each zone; a row's load is felt in the next
    assert found.excitation.response_24h == pytest.approx(truth, rel=0.02)


GOOD = Excitation(unexplained_share=0.2, response_24h=0.3, standard_error=0.03, agreement=1.0, probed_rows=0)
SOUND = Plausibility(
    mean_temp=20.0, mean_outdoor=0.0, unheated_24h=16.0, unheated_72h=10.0, mean_heat=40.0, mean_need=41.0,
    most_heat=90.0, coldest_outdoor=-8.0, coldest_heat=70.0, coldest_need=75.0,
)  # fmt: skip


def building(beta: float = 0.002, gamma: float = 0.003) -> Coefficients:
    return Coefficients(alpha=np.array([1.45, -0.455]), beta=np.array([beta, 0.0, 0.0]),
                        gamma=np.array([gamma, 0.0, 0.0]), theta=np.zeros(3), occupancy=np.zeros(48))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"unexplained_share": 0.01}, "excitation", "explain all but 1.0 %"),
        ({"standard_error": 0.12}, "standard error", "an error of 40 %"),
        ({"response_24h": 0.0}, "standard error", "0 ±"),
        ({"agreement": 0.5}, "agreement", "0.50 times as much"),
        ({"agreement": 1.5}, "agreement", "thermostats hide"),
        ({"outdoor_gain": 2.06}, "outdoor gain", "by 2.06 K for good"),
    ],
)
def test_what_rows_do_not_tell_is_refused(change, reason, words):
    assert list(_unknown(GOOD)) == []
    (refusal,) = _unknown(replace(GOOD, **change))
    assert refusal.reason == reason and words in refusal.words
    assert "atdm probe" in refusal.remedy and "--assume-gain" in refusal.remedy


def test_a_cluster_that_cools_in_the_cold_is_refused():
    """What the load does is not what holds its temperature, and no rule about buildings applies to it."""
    assert list(_unjudged(SOUND)) == []
    cools = replace(SOUND, mean_heat=-6.0, mean_need=-6.0, unheated_24h=None, unheated_72h=None, coldest_need=2.0,
                    coldest_heat=1.0, sun_warms=2.0)  # fmt: skip
    assert list(_implausible(building(), cools)) == []  # why it passed
    (refusal,) = _unjudged(cools)
    assert refusal.reason == "balance" and "cools by 6.0 kW" in refusal.words and "at 2.0 °C" in refusal.words
    summer = replace(cools, mean_outdoor=17.0, sun_warms=4.0)  # the sun alone would take it above
    assert list(_unjudged(summer)) == []
    (refusal,) = _unjudged(replace(SOUND, mean_outdoor=26.0))
    assert refusal.reason == "balance" and "heats by 40.0 kW" in refusal.words


def test_an_uncooled_building_may_be_warmer_than_outdoors_by_the_sun():
    summer = replace(SOUND, mean_temp=24.0, mean_outdoor=27.0, unheated_24h=27.0, unheated_72h=30.0, mean_heat=-40.0,
                     mean_need=-41.0, coldest_outdoor=33.0, coldest_heat=-70.0, coldest_need=-75.0)  # fmt: skip
    assert list(_implausible(building(), replace(summer, sun_warms=3.0))) == []
    (refusal,) = _implausible(building(), replace(summer, sun_warms=1.0))
    assert refusal.reason == "unheated" and "without cooling" in refusal.words and "by the sun" in refusal.words


@pytest.mark.parametrize(
    ("model", "change", "reason", "words"),
    [
        (building(beta=-0.001), {}, "heat cools", "more heat does not warm"),
        (building(gamma=0.0001), {}, "outdoor gain", "0.02 K warmer"),
        (building(), {"unheated_72h": -9.0}, "unheated", "colder than the 0.0 °C outdoors"),
        (building(), {"coldest_need": 2.0}, "steady heat", "needs 2.0 kW for what took 70.0 kW"),
        (building(), {"mean_need": 100.0}, "steady heat", "the mean weather"),
    ],
)
def test_what_no_building_does_is_refused(model, change, reason, words):
    assert list(_implausible(building(), SOUND)) == []
    (refusal,) = _implausible(model, replace(SOUND, **change))
    assert refusal.reason == reason and words in refusal.words and "\n" not in refusal.words
