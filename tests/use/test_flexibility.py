"""Flexibility keeps comfort when re-simulated, and its envelope holds every feasible schedule."""

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.use.flexibility import feasible_loads

COMFORT = (15.0, 22.0)


def price(time: pd.DatetimeIndex) -> pd.Series:
    return pd.Series(0.2 + 0.2 * (time.hour >= 16) * (time.hour < 20), index=time)


@pytest.fixture(scope="module")
def offer(world):
    return atdm.flexibility(
        world.model, world.weather, COMFORT, initial=[19.0, 19.0], price=price(world.weather.index), power=(0.0, 40.0),
        start=str(world.start),
    )  # fmt: skip


@pytest.fixture(scope="module")
def polytope(world):
    frame = world.weather.loc[world.start :].iloc[:26]
    return feasible_loads(world.model, frame, np.array([19.0, 19.0]), np.full(2, 25.0), COMFORT, (0.0, 40.0))


def test_schedules_stay_in_comfort_when_simulated(world):
    past = pd.Series(world.fit.load.mean(), index=world.weather.index)
    found = atdm.flexibility(
        world.model, world.weather, COMFORT, initial=[19.0, 19.0], price=price(past.index), baseline=past,
        power=(0.0, 40.0), start=str(world.start),
    )  # fmt: skip
    rows = world.weather.loc[world.start :].iloc[:26]
    for schedule in (found.cheapest, found.dropped, found.lifted):
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
    for schedule, level, length in ((offer.dropped, 0.0, offer.drop), (offer.lifted, 40.0, offer.lift)):
        steps = int(length // world.model.step)
        assert (schedule.load.iloc[:steps] == level).all()
    assert offer.drop > pd.Timedelta(0)


def test_infeasible_comfort_says_by_how_much(world):
    with pytest.raises(atdm.UsageError, match=r"at best (\d+\.\d+) K outside, first at 2024-") as refused:
        atdm.flexibility(world.model, world.weather, (25.0, 25.5), initial=[19.0, 19.0], power=(0.0, 40.0))
    gap = float(str(refused.value).split("at best ")[1].split(" K")[0]) + 0.001
    wider = (25.0 - gap, 25.5 + gap)
    assert atdm.flexibility(world.model, world.weather, wider, initial=[19.0, 19.0], power=(0.0, 40.0)) is not None


def test_a_baseline_outside_comfort_is_said(world):
    cold = pd.Series(0.0, index=world.weather.index)
    found = atdm.flexibility(
        world.model, world.weather, COMFORT, initial=[19.0, 19.0], baseline=cold, power=(0.0, 40.0)
    )
    assert any("leaves comfort" in note for note in found.notes)
    assert found.cheapest is None and found.saving is None


def test_power_limits_default_to_what_was_seen(world):
    found = atdm.flexibility(world.model, world.weather, COMFORT, initial=[19.0, 19.0])
    assert found.power == (0.0, pytest.approx(world.fit.load.iloc[: world.fit.inputs.train].max()))
    with pytest.raises(atdm.UsageError, match="both heats and cools"):
        atdm.flexibility(world.model, world.weather, COMFORT, initial=[19.0, 19.0], power=(-5.0, 5.0))
    with pytest.raises(atdm.UsageError, match="give power"):
        atdm.flexibility(world.fit.model, world.weather, COMFORT, initial=[19.0, 19.0])


def test_cooling_is_paid_for_and_ends_no_warmer(world):
    summer = world.weather.assign(outdoor_temp_c=32.0)
    found = atdm.flexibility(
        world.model, summer, (20.0, 24.0), initial=[22.0, 22.0], price=price(summer.index), power=(-40.0, 0.0)
    )
    assert 0 < found.cheapest.cost <= found.baseline.cost
    assert found.cheapest.energy > 0
    assert (found.cheapest.load <= 0).all()
    assert found.cheapest.temperature.iloc[-1] <= found.baseline.temperature.iloc[-1] + 1e-6
    assert found.storage is None
    with pytest.raises(atdm.UsageError, match="no equivalent storage"):
        found.flex_model()


def test_missing_prices_are_refused(world):
    with pytest.raises(atdm.DataError, match="no price at"):
        atdm.flexibility(
            world.model, world.weather, COMFORT, initial=[19.0, 19.0], price=price(world.weather.index[:5])
        )


def test_equivalent_storage_follows_the_model(world, offer):
    """Run as FlexMeasures does, soc' = η soc + (u − usage + gain) Δt, the store stays near the model's temperature."""
    store = offer.storage

    def number(text: str) -> float:
        return float(text.split()[0])

    usage, gain = (np.array([number(v["value"]) for v in store[k][0]]) for k in ("soc-usage", "soc-gain"))
    per_degree = number(store["soc-max"]) / (COMFORT[1] - COMFORT[0])
    keep, soc = number(store["storage-efficiency"]) / 100, number(store["soc-at-start"])
    assert soc == pytest.approx(per_degree * 4.0, rel=1e-4)
    errors = []
    load = np.full(24, float(offer.baseline.load.mean()))
    rows = world.weather.loc[world.start :].iloc[:26]
    before = np.full(2, load[0])
    run = world.model.simulate(np.concatenate([before, load]), rows, np.array([19.0, 19.0])).to_numpy()[2:]
    for t in range(24):
        soc = keep * soc + load[t] - usage[t] + gain[t]
        errors.append(COMFORT[0] + soc / per_degree - run[t])
    assert np.abs(errors).mean() < 1.0  # K: one mode for two
    assert store["production-capacity"] == "0 kW"
    assert store["consumption-capacity"] == "40 kW"


@pytest.mark.parametrize("planned", [True, False])
def test_an_offer_goes_on_from_what_was_observed(world, planned):
    """The last M rows observed are the past: their temperature, and their load in place of a guess."""
    time = world.weather.loc[world.start :].index
    plan = pd.Series(20.0, index=world.weather.index)
    observed = pd.DataFrame({"aggregate_temp_c": [17.0, 18.0, 19.0, 19.5], "load_kw": [9.0, 9.0, 25.0, 27.0]},
                            index=time[:4])  # fmt: skip
    found = atdm.flexibility(world.model, world.weather, COMFORT, power=(0.0, 40.0), observed=observed,
                             baseline=plan if planned else None)  # fmt: skip
    told = plan.copy()
    told[time[:4]] = observed["load_kw"]
    asked = atdm.flexibility(world.model, world.weather, COMFORT, power=(0.0, 40.0), initial=[19.0, 19.5],
                             start=str(time[2]), baseline=told)  # fmt: skip
    pd.testing.assert_frame_equal(found.envelope, asked.envelope)
    assert found.envelope.index[0] == time[4] and not any("taken as" in note for note in found.notes)
    with pytest.raises(atdm.UsageError, match="neither initial values nor a start"):
        atdm.flexibility(world.model, world.weather, COMFORT, observed=observed, start=str(time[0]))
