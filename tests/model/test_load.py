"""Eq. (6): the load that thermostats ask for, from temperature, weather and clock."""

import numpy as np
import pytest

from atdm.model.load import LoadModel, at_steps, estimate_load
from tests.model.rooms import ALPHA, BETA, GAMMA, THETA, rows

DAY = 48


@pytest.fixture(scope="module")
def world():
    return rows(excited=0.5, follows=6.0, noise=0.05)


@pytest.fixture(scope="module")
def found(world):
    return estimate_load(world.truth, world.inputs, world.state, world.calendar)


def test_the_thermostat_is_found(found):
    """Load falls with the temperature of the step before, and with the weather, as the rows were made."""
    assert found.temperature.sum() < 0 and found.outdoor.sum() < 0
    settled = found.outdoor.sum() / (1.0 - found.load.sum())
    assert settled == pytest.approx(-1.8, rel=0.15)  # 0.9/0.5 kW per K


def test_run_is_both_equations_in_turn(world, found):
    at, steps = 400, 30
    loads, states = found.run(world.truth, world.inputs, world.inputs.load, world.state, np.array([at]), steps)
    h, s = list(world.inputs.load[:at]), list(world.state[:at])
    o, r, phase = world.inputs.outdoor, world.inputs.solar, world.inputs.phase
    for t in range(at, at + steps):
        now = found.use[phase[t]]
        for m in range(1, 3):
            now += found.load[m - 1] * h[t - m] + found.temperature[m - 1] * s[t - m]
        now += sum(found.outdoor[m] * o[t - m] + found.solar[m] * r[t - m] for m in range(3))
        h.append(min(max(now, found.low), found.high))
        warm = sum(ALPHA[m - 1] * s[t - m] for m in (1, 2)) + world.truth.occupancy[phase[t]]
        s.append(warm + sum(BETA[m] * h[t - m] + GAMMA[m] * o[t - m] + THETA[m] * r[t - m] for m in range(3)))
    np.testing.assert_allclose(loads[0], h[at:], rtol=1e-9)
    np.testing.assert_allclose(states[0], s[at:], rtol=1e-9)


def test_it_beats_persistence_and_last_week_on_rows_it_has_not_seen(world, found):
    inputs = world.inputs
    origins = np.arange(inputs.train, len(inputs) - DAY)
    loads, _ = found.run(world.truth, inputs, inputs.load, world.state, origins, DAY)
    truth = inputs.load[origins[:, None] + np.arange(DAY)]
    week = inputs.load[origins[:, None] + np.arange(DAY) - 7 * DAY]

    def rmse(values):
        return float(np.sqrt(((values - truth) ** 2)[:, -1].mean()))

    assert rmse(loads) < 0.6 * rmse(week) and rmse(loads) < 0.8 * rmse(inputs.load[origins - 1][:, None] + 0 * truth)
    low, high = at_steps(found.bands["80"], DAY)
    inside = ((truth - loads >= low) & (truth - loads <= high)).mean()
    assert 0.6 < inside < 0.95


def test_rows_after_the_training_rows_are_not_looked_at(world, found):
    changed = world.state.copy()
    changed[world.inputs.train :] += 3.0
    again = estimate_load(world.truth, world.inputs, changed, world.calendar)
    for name in LoadModel.__dataclass_fields__:
        if name not in ("bands", "state_bands", "low", "high"):
            np.testing.assert_array_equal(getattr(found, name), getattr(again, name))


def test_a_forecast_stays_near_the_loads_seen(world, found):
    cold = world._replace(inputs=type(world.inputs)(**{
        name: getattr(world.inputs, name) for name in world.inputs.__dataclass_fields__ if name != "outdoor"
    }, outdoor=world.inputs.outdoor - 60.0))  # fmt: skip
    loads, _ = found.run(world.truth, cold.inputs, cold.inputs.load, cold.state, np.array([500]), DAY)
    seen = world.inputs.load[: world.inputs.train]
    assert loads.max() == found.high == pytest.approx(seen.max() + 0.5 * (seen.max() - seen.min()))
    assert found.low >= 0


def test_bands_beyond_the_last_horizon_stay_as_they_are(found):
    low, high = at_steps(found.bands["95"], 3 * DAY)
    assert len(low) == 3 * DAY and (low[DAY:] == low[-1]).all() and (high[DAY:] == high[-1]).all()
    assert (low <= 0).all() and (high >= 0).all()
