"""Flexibility keeps comfort when re-simulated, and its envelope holds every feasible schedule."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from qpsolvers import solve_qp
from scipy.sparse import csc_matrix

import atdm
from atdm.use import flexibility as module
from atdm.use.planned import margins
from atdm.use.polytope import feasible_loads
from tests.use.conftest import World
from tests.use.two_state import two_state

COMFORT = (15.0, 22.0)


@pytest.fixture(scope="module")
def world():
    """The known cluster with equal weights; model: the one that flexibility plans with."""
    cluster = two_state(days=20, agents=6, step_hours=1.0)
    fit = atdm.fit(cluster, "plain", train=0.7, weights="equal")
    weather = pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar})
    return World(cluster, fit, fit.planning, weather, fit.test.index[0])


def price(time: pd.DatetimeIndex) -> pd.Series:
    return pd.Series(0.2 + 0.2 * (time.hour >= 16) * (time.hour < 20), index=time)


@pytest.fixture(scope="module")
def offer(world):
    return atdm.flexibility(
        world.fit, world.weather, COMFORT, initial=[19.0, 19.0], price=price(world.weather.index), power=(0.0, 40.0),
        start=str(world.start),
    )  # fmt: skip


@pytest.fixture(scope="module")
def polytope(world):
    frame = world.weather.loc[world.start :].iloc[:26]
    return feasible_loads(world.model, frame, np.array([19.0, 19.0]), np.full(2, 25.0), COMFORT, (0.0, 40.0))


def test_schedules_stay_in_comfort_when_simulated(world):
    past = pd.Series(world.fit.load.mean(), index=world.weather.index)
    found = atdm.flexibility(
        world.fit, world.weather, COMFORT, initial=[19.0, 19.0], price=price(past.index), baseline=past,
        power=(0.0, 40.0), start=str(world.start),
    )  # fmt: skip
    rows = world.weather.loc[world.start :].iloc[:26]
    for schedule in (found.cheapest, found.expected.dropped, found.expected.lifted):
        load = np.concatenate([past.to_numpy()[:2], schedule.load.to_numpy()])
        run = world.model.simulate(load, rows, np.array([19.0, 19.0])).iloc[2:]
        assert run.min() >= COMFORT[0] - 1e-6
        assert run.max() <= COMFORT[1] + 1e-6
        assert schedule.load.between(0.0, 40.0).all()


def test_cheapest_costs_no_more_than_the_baseline_and_ends_no_colder(offer):
    assert offer.cheapest.cost <= offer.baseline.cost + 1e-9
    assert offer.saving > 0
    assert offer.cheapest.temperature.iloc[-1] >= offer.baseline.temperature.iloc[-1] - 1e-6
    paid = offer.cheapest.load @ price(offer.cheapest.load.index)
    assert offer.cheapest.cost == pytest.approx(paid)  # steps of 1 h


@pytest.mark.parametrize("step_hours", [0.5, 1.0])
def test_cheapest_leaves_the_day_after_as_warm_as_the_baseline_does(step_hours):
    """The last temperature used to be bounded alone: a short heating of the air before the end hid a cold mass."""
    cluster = two_state(days=20, agents=6, step_hours=step_hours)
    fit = atdm.fit(cluster, "plain", train=0.7, weights="equal")
    weather = pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar})
    start = fit.test.index[0]
    found = atdm.flexibility(fit, weather, (15.0, 24.0), initial=fit.series(), price=price(weather.index),
                             power=(0.0, 40.0), start=str(start))  # fmt: skip
    rows = weather.loc[start:].iloc[: 2 + round(48 / step_hours)]
    past = fit.series().loc[start:].iloc[:2]
    after = np.full(len(rows) - 2 - len(found.envelope), 10.0)  # whichever: the same on both sides

    def runs_on(schedule):
        load = np.concatenate([past["load_kw"], schedule.load, after])
        return fit.planning.simulate(load, rows, past["aggregate_temp_c"].to_numpy()).iloc[-len(after) - 1 :]

    assert (runs_on(found.cheapest) >= runs_on(found.baseline) - 1e-6).all()
    assert 0 < found.saving


def hit_and_run(polytope, start, count, rng):
    """Random feasible loads: along a random direction, anywhere inside (Smith 1984)."""
    answer, same, one = polytope.response(), np.eye(len(polytope)), np.ones(len(polytope))
    (cold, warm), (low, high) = polytope.comfort, polytope.power
    rows = np.vstack([answer, -answer, same, -same])
    limits = np.concatenate([warm - polytope.base, polytope.base - cold, high * one, -low * one])
    point = start
    for _ in range(count):
        way = rng.normal(size=len(point))
        pace, room = rows @ way, limits - rows @ point
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = room / pace
        point = point + way * rng.uniform(reach[pace < 0].max(initial=-1e3), reach[pace > 0].min(initial=1e3))
        yield point


def test_envelope_holds_ten_thousand_random_feasible_schedules(polytope):
    envelope = polytope.envelope().to_numpy()
    start = np.mean([polytope.best(g) for g in np.random.default_rng(0).normal(size=(60, 24))], axis=0)
    reached = 0.0
    for load in hit_and_run(polytope, start, 10_000, np.random.default_rng(1)):
        assert polytope.contains(load, 1e-7)
        both = np.column_stack([load, load, np.cumsum(load), np.cumsum(load)])
        assert (both[:, [0, 2]] >= envelope[:, [0, 2]] - 1e-6).all()
        assert (both[:, [1, 3]] <= envelope[:, [1, 3]] + 1e-6).all()
        reached = max(reached, float(load[0] / envelope[0, 1]))
    assert reached > 0.9  # the walk goes to the edge, and the envelope is no wider than it must be


@pytest.mark.parametrize("level", [0.0, 40.0])
def test_a_load_is_held_for_the_longest_time_there_is(polytope, level):
    steps = polytope.longest(level)
    idle = np.zeros(24)
    assert 0 < steps < 24
    assert polytope.best(idle, fixed=np.full(steps, level)) is not None
    assert polytope.best(idle, fixed=np.full(steps + 1, level)) is None


def test_dropped_and_lifted_schedules_do_what_their_name_says(world, offer):
    expected = offer.expected
    for schedule, level, length in ((expected.dropped, 0.0, expected.drop), (expected.lifted, 40.0, expected.lift)):
        steps = int(length // world.model.step)
        assert (schedule.load.iloc[:steps] == level).all()
    assert expected.drop > pd.Timedelta(0)


def test_infeasible_comfort_says_by_how_much(world):
    with pytest.raises(atdm.UsageError, match=r"at best (\d+\.\d+) K outside, first at 2024-") as refused:
        atdm.flexibility(world.fit, world.weather, (25.0, 25.5), initial=[19.0, 19.0], power=(0.0, 40.0))
    gap = float(str(refused.value).split("at best ")[1].split(" K")[0]) + 0.001
    wider = (25.0 - gap, 25.5 + gap)
    assert atdm.flexibility(world.fit, world.weather, wider, initial=[19.0, 19.0], power=(0.0, 40.0)) is not None


def test_a_baseline_outside_comfort_is_said(world):
    cold = pd.Series(0.0, index=world.weather.index)
    found = atdm.flexibility(world.fit, world.weather, COMFORT, initial=[19.0, 19.0], baseline=cold, power=(0.0, 40.0))
    assert any("leaves comfort" in note for note in found.notes)
    assert found.cheapest is None and found.saving is None


def test_power_limits_default_to_what_was_seen(world):
    found = atdm.flexibility(world.fit, world.weather, COMFORT, initial=[19.0, 19.0])
    assert found.power == (0.0, pytest.approx(world.fit.load.iloc[: world.fit.inputs.train].max()))
    with pytest.raises(atdm.UsageError, match="both heats and cools"):
        atdm.flexibility(world.fit, world.weather, COMFORT, initial=[19.0, 19.0], power=(-5.0, 5.0))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"horizon": pd.Timedelta(0)}, "horizon 0 s: give a whole number of the model's steps of 1 h, at least one"),
        ({"horizon": pd.Timedelta("10min")}, "horizon 10 min: "),
        ({"horizon": pd.Timedelta("-2h")}, "horizon -"),
        ({"horizon": pd.Timedelta("90min")}, "horizon 90 min: "),
        ({"power": (200.0, 100.0)}, "power 200:100: give two numbers"),
        ({"power": (0.0, float("nan"))}, "power 0:nan: give two numbers"),
        ({"power": (0.0, float("inf"))}, "power 0:inf: give two numbers"),
        ({"comfort": (22.0, 16.5)}, "comfort 22:16.5: give two numbers"),
        ({"comfort": (float("nan"), 22.0)}, "comfort nan:22: give two numbers"),
        ({"comfort": (15.0, float("inf"))}, "comfort 15:inf: give two numbers"),
        ({"assume_gain": float("nan")}, "gain nan K per kW: "),
        ({"assume_gain": float("inf")}, "gain inf K per kW: "),
        ({"assume_gain": 0.0}, "gain 0 K per kW: "),
    ],
)
def test_limits_that_mean_nothing_are_refused_in_one_line(world, asked, words):
    asked = {"initial": [19.0, 19.0], "comfort": COMFORT, **asked}
    with pytest.raises(atdm.UsageError) as refused:
        atdm.flexibility(world.fit, world.weather, asked.pop("comfort"), **asked)
    assert str(refused.value).startswith(words) and "\n" not in str(refused.value)


def test_a_forecast_of_no_step_is_refused_in_one_line(world):
    with pytest.raises(atdm.UsageError, match="horizon 0 s: give a whole number"):
        atdm.forecast(world.fit, world.fit.load, world.weather, world.fit.series(), horizon=pd.Timedelta(0))


def test_cooling_is_paid_for_and_ends_no_warmer(world):
    summer = world.weather.assign(outdoor_temp_c=32.0)
    asked = {"initial": [22.0, 22.0], "price": price(summer.index), "power": (-40.0, 0.0)}
    early = atdm.flexibility(world.fit, summer, (20.0, 24.0), **asked).expected.lifted.load  # cools at once
    found = atdm.flexibility(world.fit, summer, (20.0, 24.0), baseline=early, **asked)
    assert 0 < found.cheapest.cost <= found.baseline.cost
    assert found.cheapest.energy > 0
    assert (found.cheapest.load <= 0).all()
    assert found.cheapest.temperature.iloc[-1] <= found.baseline.temperature.iloc[-1] + 1e-6
    plans = (found.cheapest, found.baseline)  # the day after is no warmer either
    cheapest, baseline = (world.model.simulate(np.concatenate([np.zeros(2), plan.load, np.full(24, -9.0)]),
                                               summer.iloc[:50], np.array([22.0, 22.0])) for plan in plans)  # fmt: skip
    assert (cheapest.iloc[-25:] <= baseline.iloc[-25:] + 1e-6).all()
    assert found.storage is None


def test_a_programme_is_what_an_independent_solver_finds(polytope):
    """Least and most power and energy, the cheapest load and what can be held: clarabel, an interior point method."""
    count, rng = len(polytope), np.random.default_rng(0)
    answer, same = polytope.response(), np.eye(len(polytope))
    rows = csc_matrix(np.vstack([answer, -answer]))
    limits = np.concatenate([COMFORT[1] - polytope.base, polytope.base - COMFORT[0]])
    least, most = (np.full(count, end) for end in polytope.power)

    def independent(goal: np.ndarray, tied: int = 0) -> float:
        equal = csc_matrix(same[: tied - 1] - same[1:tied]) if tied > 1 else None
        found = solve_qp(
            csc_matrix((count, count)), goal, rows, limits, equal, None if equal is None else np.zeros(tied - 1),
            lb=least, ub=most, solver="clarabel", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10,
        )  # fmt: skip
        return float(goal @ found)

    goals = [sign * same[k] for k in (0, 7, 23) for sign in (1, -1)]
    goals += [sign * np.tri(count)[k] for k in (3, 23) for sign in (1, -1)] + [rng.uniform(0.1, 0.4, count)]
    for goal in goals:
        assert goal @ polytope.best(goal) == pytest.approx(independent(goal), rel=1e-5, abs=1e-5)
    held = polytope.held()
    for steps in (1, 4, 12):
        for column, sign in (("low", 1.0), ("high", -1.0)):
            expected = sign * independent(sign * same[0], tied=steps)
            assert held[column][steps - 1] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_what_can_be_held_narrows_and_ends_at_the_longest_times(polytope):
    held = polytope.held()
    assert (held["low"].diff().dropna() >= -1e-6).all() and (held["high"].diff().dropna() <= 1e-6).all()
    assert (held["low"] < 1e-6).sum() == polytope.longest(0.0)
    assert (held["high"] > 40 - 1e-6).sum() == polytope.longest(40.0)


def test_confidence_narrows_the_offer_by_how_far_off_the_model_is(world, offer):
    sure = atdm.flexibility(
        world.fit, world.weather, COMFORT, initial=[19.0, 19.0], price=price(world.weather.index), power=(0.0, 40.0),
        start=str(world.start), confidence=0.9,
    )  # fmt: skip
    pd.testing.assert_frame_equal(sure.envelope, offer.envelope)  # the expected one stands beside it
    both = sure.confident.envelope.to_numpy(), offer.envelope.to_numpy()
    assert (both[0][:, [0, 2]] >= both[1][:, [0, 2]] - 1e-6).all()
    assert (both[0][:, [1, 3]] <= both[1][:, [1, 3]] + 1e-6).all()
    kept = sure.confident.margin
    assert (kept > 0).all(axis=None)
    least = margins(world.model, world.model.released, world.model.trained, sure.planning, 0.9, 24)
    assert (kept["low"] >= least - 1e-9).all() and (kept["high"] >= least - 1e-9).all()  # more where load is moved
    low, high = COMFORT[0] + kept["low"], COMFORT[1] - kept["high"]
    assert (sure.confident.cheapest.temperature >= low - 1e-6).all()
    assert (sure.confident.cheapest.temperature <= high + 1e-6).all()
    assert sure.confident.cheapest.cost >= offer.cheapest.cost - 1e-9
    # nine of ten runs over rows of the test part were as close
    state, inputs = world.fit.state.to_numpy(), world.model.released.inputs(world.model.calendar)
    first = world.fit.inputs.train
    runs = [world.model.simulate(inputs.load[o - 2 : o + 12], world.weather.iloc[o - 2 : o + 12], state[o - 2 : o])
            .to_numpy()[-1] - state[o + 11] for o in range(first, len(state) - 12)]  # fmt: skip
    assert (np.abs(runs) <= least[11]).mean() > 0.75


def test_the_margin_grows_with_what_moving_the_load_does(polytope):
    """Comfort less margin and doubt, solved for the temperature, is what a search for it finds."""
    usual = np.linspace(14.0, 23.0, len(polytope))  # also outside of comfort
    low, high = replace(polytope, margin=np.full(24, 0.5), usual=usual, doubt=0.3).limits
    np.testing.assert_allclose(low, COMFORT[0] + 0.5 + 0.3 * np.abs(low - usual))
    np.testing.assert_allclose(high, COMFORT[1] - 0.5 - 0.3 * np.abs(high - usual))
    np.testing.assert_array_equal(replace(polytope, usual=usual).limits, polytope.limits * np.ones((2, 24)))
    sure = replace(polytope, margin=np.full(24, 0.5), usual=usual, doubt=1.2)
    assert sure.best(np.zeros(24)) is None  # nothing brings a cold cluster back with such a doubt


def test_a_confidence_that_leaves_no_comfort_is_said(world, monkeypatch):
    monkeypatch.setattr(module, "margins", lambda *_: np.full(6, 4.0))
    narrow = atdm.flexibility(world.fit, world.weather, COMFORT, initial=[19.1, 19.1], power=(0.0, 60.0),
                              horizon=pd.Timedelta("6h"), confidence=0.99)  # fmt: skip
    assert narrow.confident is None
    assert any("no load keeps comfort" in note for note in narrow.notes)
    with pytest.raises(atdm.UsageError, match="between 0 and 1"):
        atdm.flexibility(world.fit, world.weather, COMFORT, initial=[19.1, 19.1], confidence=90)


@pytest.mark.parametrize("sure", [True, False])
def test_a_cheapest_load_that_must_end_colder_than_the_baseline_is_said_and_saves_nothing(world, sure, monkeypatch):
    """Narrower comfort may not allow the baseline's end; such a load cost less than the expected one, unsaid."""
    monkeypatch.setattr(module, "margins", lambda *_: np.full(24, 1.0))
    plan = pd.Series(25.0, index=world.weather.index)
    asked = {"initial": [19.0, 19.0], "price": price(world.weather.index), "baseline": plan, "power": (0.0, 40.0)}
    warm = atdm.flexibility(world.fit, world.weather, (15.0, 40.0), **asked).baseline.temperature
    comfort = (15.0, warm.max() + 0.01 if sure else warm.iloc[-1] - 0.5)
    found = atdm.flexibility(world.fit, world.weather, comfort, confidence=0.9 if sure else None, **asked)
    offer = found.confident if sure else found.expected
    assert offer.colder >= warm.iloc[-1] - (comfort[1] - offer.margin["high"].iloc[-1]) - 1e-6 > 0
    assert warm.iloc[-1] - offer.cheapest.temperature.iloc[-1] <= offer.colder + 1e-5  # no colder than it must be
    notes = [note for note in found.notes if "K colder than the baseline" in note and "no saving" in note]
    assert len(notes) == 1 and ("90 %" in notes[0]) == sure and f"{offer.colder:.2f} K" in notes[0]
    assert found.as_dict()["cheapest_colder_k"] == found.expected.colder
    assert (found.saving is None) != sure  # the expected one can follow the baseline where comfort is wide enough


def test_the_baseline_is_the_forecast_of_the_load(world):
    past = world.fit.series().loc[world.start :].iloc[:2]
    found = atdm.flexibility(world.fit, world.weather, COMFORT, initial=past, power=(0.0, 40.0), start=str(world.start))
    told = atdm.forecast(world.fit, None, world.weather, past, start=str(world.start), horizon=pd.Timedelta("24h"))
    np.testing.assert_allclose(found.baseline.load, told.table["load_kw"].iloc[-24:])


def test_initial_and_observed_give_the_same_answer_from_the_same_rows(world):
    """The load of the past rows used to be guessed where --initial gave them, three times what it was."""
    rows = world.fit.series().loc[world.start :].iloc[:4]
    options = {"power": (0.0, 40.0), "price": price(world.weather.index)}
    seen = atdm.flexibility(world.fit, world.weather, COMFORT, observed=rows, **options)
    told = atdm.flexibility(world.fit, world.weather, COMFORT, initial=rows, start=str(rows.index[-2]), **options)
    pd.testing.assert_frame_equal(seen.envelope, told.envelope)
    assert seen.baseline.energy == told.baseline.energy and seen.cheapest.cost == told.cheapest.cost
    assert not any("is not given" in note for note in told.notes)
    numbers = atdm.flexibility(world.fit, world.weather, COMFORT, initial=rows["aggregate_temp_c"].tolist()[-2:],
                               start=str(rows.index[-2]), **options)  # fmt: skip
    assert any("is not given" in note for note in numbers.notes)
    assert numbers.baseline.energy == pytest.approx(seen.baseline.energy, rel=0.2)


def test_a_model_that_cannot_be_planned_with_is_refused_with_the_remedy(world):
    weighted = atdm.fit(world.cluster, "plain", train=0.7)
    asked = {"initial": [19.0, 19.0], "power": (0.0, 40.0), "start": str(world.start)}
    assert weighted.planning is None
    assert any("not for planning" in note and "--weights equal" in note for note in weighted.notes)
    with pytest.raises(atdm.UsageError, match="--weights equal") as refused:
        atdm.flexibility(weighted, world.weather, COMFORT, **asked)
    assert "\n" not in str(refused.value)
    stated = atdm.flexibility(weighted, world.weather, COMFORT, assume_gain=0.9, **asked)
    assert stated.planning.assumed_gain == 0.9 and stated.planning.excitation is None
    bare = replace(world.model, released=None, trained=0)
    with pytest.raises(atdm.UsageError, match="atdm fit -o"):
        atdm.flexibility(bare, world.weather, COMFORT, **asked)


def test_a_saved_model_gives_the_same_offer(world, offer, tmp_path):
    world.fit.chosen.save(tmp_path / "model.json")
    again = atdm.flexibility(
        atdm.Model.load(tmp_path / "model.json"), world.weather, COMFORT, initial=[19.0, 19.0],
        price=price(world.weather.index), power=(0.0, 40.0), start=str(world.start),
    )  # fmt: skip
    np.testing.assert_allclose(again.envelope, offer.envelope, rtol=1e-3, atol=0.05)


def test_missing_prices_are_refused(world):
    with pytest.raises(atdm.DataError, match="no price at"):
        atdm.flexibility(world.fit, world.weather, COMFORT, initial=[19.0, 19.0], price=price(world.weather.index[:5]))


@pytest.mark.parametrize("planned", [True, False])
def test_an_offer_goes_on_from_what_was_observed(world, planned):
    """The last M rows observed are the past: their temperature, and their load in place of a guess."""
    time = world.weather.loc[world.start :].index
    plan = pd.Series(20.0, index=world.weather.index)
    observed = pd.DataFrame({"aggregate_temp_c": [17.0, 18.0, 19.0, 19.5], "load_kw": [9.0, 9.0, 25.0, 27.0]},
                            index=time[:4])  # fmt: skip
    found = atdm.flexibility(world.fit, world.weather, COMFORT, power=(0.0, 40.0), observed=observed,
                             baseline=plan if planned else None)  # fmt: skip
    told = plan.copy()
    told[time[:4]] = observed["load_kw"]
    asked = atdm.flexibility(world.fit, world.weather, COMFORT, power=(0.0, 40.0), initial=[19.0, 19.5],
                             start=str(time[2]), baseline=told)  # fmt: skip
    pd.testing.assert_frame_equal(found.envelope, asked.envelope)
    assert found.envelope.index[0] == time[4] and not any("taken as" in note for note in found.notes)
    with pytest.raises(atdm.UsageError, match="neither initial values nor a start"):
        atdm.flexibility(world.fit, world.weather, COMFORT, observed=observed, start=str(time[0]))
