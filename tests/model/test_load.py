"""Eq. (6): the load that thermostats ask for, from temperature, weather and clock."""

from dataclasses import replace

import numpy as np
import pytest

from atdm.model.load import LoadModel, estimate_load
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


def test_rows_after_the_training_rows_are_not_looked_at(world, found):
    changed = world.state.copy()
    changed[world.inputs.train :] += 3.0
    again = estimate_load(world.truth, world.inputs, changed, world.calendar)
    for name in LoadModel.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(found, name), getattr(again, name))


def test_a_forecast_stays_near_the_loads_seen(world, found):
    cold = world._replace(inputs=type(world.inputs)(**{
        name: getattr(world.inputs, name) for name in world.inputs.__dataclass_fields__ if name != "outdoor"
    }, outdoor=world.inputs.outdoor - 60.0))  # fmt: skip
    loads, _ = found.run(world.truth, cold.inputs, cold.inputs.load, cold.state, np.array([500]), DAY)
    seen = world.inputs.load[: world.inputs.train]
    assert loads.max() == found.high == pytest.approx(seen.max() + 0.5 * (seen.max() - seen.min()))
    assert found.low >= 0


def test_errors_are_those_of_single_runs_and_none_beyond_a_gap_or_the_last_row(world, found):
    inputs, origins = world.inputs, np.array([50, 400, len(world.inputs) - 5])
    gap = replace(inputs, segment=(np.arange(len(inputs)) >= 60).astype(np.int64))
    of_load, of_state = found.errors(world.truth, gap, world.state, origins, DAY)
    for i, (origin, steps) in enumerate(zip(origins.tolist(), (10, DAY, 5), strict=True)):
        loads, states = found.run(world.truth, inputs, inputs.load, world.state, np.array([origin]), steps)
        rows = slice(origin, origin + steps)
        np.testing.assert_allclose(of_load[i, :steps], loads[0] - inputs.load[rows], atol=1e-10)
        np.testing.assert_allclose(of_state[i, :steps], states[0] - world.state[rows], atol=1e-10)
        assert np.isnan(of_load[i, steps:]).all() and np.isnan(of_state[i, steps:]).all()


def test_lags_can_be_given_and_are_those_found(world, found):
    args = (world.truth, world.inputs, world.state, world.calendar)
    again = estimate_load(*args, found.lags)
    for name in LoadModel.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(found, name), getattr(again, name))
    assert estimate_load(*args, (False, False)).lags == (False, False)


def test_a_cluster_of_another_size_asks_for_as_much_more(world, found):
    """Twice the homes like these: twice the load, the same temperatures."""
    double = replace(world.inputs, load=2 * world.inputs.load)
    half_answer = replace(world.truth, beta=world.truth.beta / 2)
    origins = np.array([400, 500])
    loads, states = found.run(world.truth, world.inputs, world.inputs.load, world.state, origins, DAY)
    more, same = found.of_size(2.0).run(half_answer, double, double.load, world.state, origins, DAY)
    np.testing.assert_allclose(more, 2 * loads, rtol=1e-9)
    np.testing.assert_allclose(same, states, rtol=1e-9)
