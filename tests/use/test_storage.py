"""The equivalent storage: one mode of the planning model, and comfort in the whole of it."""

from dataclasses import replace

import numpy as np
import pytest

import atdm
from atdm.model.cop import Cop
from atdm.use.planned import planned
from atdm.use.storage import Storage
from tests.use.conftest import World

COMFORT, POWER, HOURS = (16.0, 22.0), (0.0, 40.0), 24


def stored(world: World, model: atdm.Model) -> tuple[Storage, "Simulated"]:
    observed = world.fit.series()[["aggregate_temp_c", "load_kw"]].iloc[:400]
    offer = atdm.flexibility(model, world.weather, COMFORT, power=POWER, observed=observed, assume_gain=None)
    assert offer.storage is not None
    return offer.storage, Simulated(world, model, observed)


class Simulated:
    """The planning model run on the rows of the offer by Eq. (2), with this test's own loop."""

    def __init__(self, world: World, model: atdm.Model, observed) -> None:
        self.used = planned(model).used
        rows = world.weather.loc[observed.index[-2] :].iloc[: HOURS + 2]
        self.outdoor, self.solar = rows["outdoor_temp_c"].to_numpy(), rows["solar_w_m2"].to_numpy() / 1000
        self.phase, self.heat = self.used.calendar.phase(rows.index), self.used.heat_of_one_kw(rows)
        self.past = observed.iloc[-2:]

    def __call__(self, load: np.ndarray) -> np.ndarray:
        m = self.used
        heat = np.concatenate([self.past["load_kw"], load]) * self.heat
        state = list(self.past["aggregate_temp_c"])
        for t in range(2, len(heat)):
            lags = t - np.arange(3)
            forced = m.beta @ heat[lags] + m.gamma @ self.outdoor[lags] + m.theta @ self.solar[lags]
            state.append(m.alpha @ [state[t - 1], state[t - 2]] + forced + m.occupancy[self.phase[t]])
        return np.array(state[2:])


@pytest.fixture(scope="module", params=["heat", "electricity"])
def pair(request, world):
    model = world.model
    if request.param == "electricity":
        model = replace(model, released=replace(model.released, cop=Cop(slope=0.02, reference=5.0)))
    return stored(world, model)


def test_without_load_the_store_falls_as_the_model_does(pair):
    store, simulated = pair
    nothing = np.zeros(HOURS)
    np.testing.assert_allclose(store.run(nothing), simulated(nothing), atol=1e-9)


def test_whoever_keeps_the_store_within_its_limits_keeps_comfort(pair):
    """For loads of every kind, from calm to wild: s − m never leaves what Eq. (9) allows for, and comes near it."""
    store, simulated = pair
    rng = np.random.default_rng(0)
    margin = np.inf
    for draw in range(300):
        load = rng.uniform(*POWER, HOURS) if draw % 2 else rng.choice(POWER, HOURS)
        beside = simulated(load) - store.run(load)  # what the other modes add
        low, high = beside - (COMFORT[0] - store.low), (COMFORT[1] - store.high) - beside
        assert min(low.min(), high.min()) > -1e-9, f"draw {draw}"
        margin = min(margin, low.min(), high.min())
    assert margin < 0.2  # K: the limits are not wider than they need to be


def test_the_range_is_what_the_load_can_reach(pair):
    store, _ = pair
    assert store.range[0] < store.run(np.zeros(HOURS)).min()
    assert store.range[1] > store.run(np.full(HOURS, POWER[1])).max()
    assert store.range[0] < min(store.low) and max(store.high) < store.range[1]


def test_comfort_that_is_too_narrow_for_the_most_load_leaves_no_storage(world):
    observed = world.fit.series()[["aggregate_temp_c", "load_kw"]].iloc[:400]
    asked = {"observed": observed, "horizon": atdm.use.flexibility.DAY / 4}
    wide = atdm.flexibility(world.fit, world.weather, (16.0, 20.5), power=(0.0, 30.0), **asked)
    narrow = atdm.flexibility(world.fit, world.weather, (16.0, 20.5), power=(0.0, 60.0), **asked)
    assert wide.storage is not None and narrow.storage is None
