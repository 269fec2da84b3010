"""The constrained estimate of Eq. (2): least squares where that is physical, and physical in any case."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from qpsolvers import solve_qp
from scipy.sparse import csc_matrix

import atdm
from atdm.kernel.design import Inputs, lagged_rows
from atdm.kernel.thermal import one_step
from atdm.model.calendar import Calendar
from atdm.model.diagnostics import roots, steady_gains, step_response
from atdm.model.physical import Limits, _least_distance, _OneStep, alpha_of_roots, estimate_physical
from atdm.model.refinement import refine

STEP_HOURS = 1.0


def made(seed: int, days: int = 20, noise: float = 0.01, alpha=(0.9,), load_sign: float = 1.0):
    """A series that follows a known model with a daily profile, on a clock of one hour."""
    random = np.random.default_rng(seed)
    time = pd.date_range("2024-01-01", periods=24 * days, freq="1h", tz="UTC")
    n = len(time)
    outdoor = 5 + 5 * np.sin(2 * np.pi * np.arange(n) / 24 + 1) + np.cumsum(random.normal(0, 0.3, n))
    solar = np.clip(np.sin(2 * np.pi * (np.arange(n) - 6) / 24), 0, None) * random.uniform(0, 0.6, n)
    load = random.uniform(0, 50, n)
    state = np.full(n, 20.0)
    for t in range(len(alpha), n):
        past = sum(a * (state[t - m] - 20) for m, a in enumerate(alpha, 1))
        push = load_sign * 0.02 * (load[t] - 25) + 0.05 * (outdoor[t] - 5) + 0.3 * solar[t]
        state[t] = 20 + past + push + 0.2 * np.sin(2 * np.pi * t / 24) + random.normal(0, noise)
    calendar = Calendar(step=pd.Timedelta("1h"), timezone="UTC", season=24)
    inputs = Inputs(
        load=load, outdoor=outdoor, solar=solar, phase=calendar.phase(time), segment=np.zeros(n, dtype=np.int64),
        period=24, train=n,
    )  # fmt: skip
    return inputs, state, calendar, time


def rules_kept(c, day: int) -> bool:
    z = roots(c.alpha)
    gains, response = steady_gains(c), step_response(c, day)
    real = (np.abs(z.imag) < 1e-9).all() and (z.real > 0).all() and (z.real < 1).all()
    return bool(
        real
        and -1e-9 <= gains["outdoor"] <= 1 + 1e-9
        and gains["load"] >= -1e-9
        and all(value >= -1e-9 for value in response.values())
    )


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_equals_the_protocols_estimate_where_that_is_physical(refit64, weights):
    fit = atdm.fit(refit64, "plain", weights=weights)
    calendar = Calendar(step=fit.model.step, timezone="UTC", season=48)
    found = estimate_physical(fit.inputs, fit.state.to_numpy(float), 2, calendar)
    for name in ("alpha", "beta", "gamma", "theta", "occupancy"):
        assert getattr(found, name) == pytest.approx(getattr(fit.model, name), abs=2e-3), name


def test_finds_the_coefficients_of_a_known_model():
    inputs, state, calendar, _ = made(1, noise=0.001)
    found = estimate_physical(inputs, state, 1, calendar)
    assert found.alpha == pytest.approx([0.9], abs=2e-3)
    assert found.beta == pytest.approx([0.02, 0.0], abs=2e-3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("order", [1, 2, 3])
def test_keeps_the_rules_whatever_the_data(seed, order):
    """Unstable, oscillating, or cooled by heat: what is offered for use is none of it."""
    alpha = [(1.003,), (1.6, -0.75), (0.5, 0.3)][seed % 3]
    inputs, state, calendar, _ = made(seed, days=12, noise=0.2, alpha=alpha, load_sign=-1.0 if seed % 2 else 1.0)
    assert rules_kept(estimate_physical(inputs, state, order, calendar), 24)


def test_the_small_programme_agrees_with_an_independent_solver():
    random = np.random.default_rng(5)
    for _ in range(50):
        rule, bound = random.normal(size=(6, 9)), random.normal(size=6)
        expected = solve_qp(csc_matrix(np.eye(9)), np.zeros(9), csc_matrix(-rule), -bound, solver="clarabel")
        assert _least_distance(rule, bound) == pytest.approx(expected, abs=1e-6)


def test_no_other_roots_explain_the_rows_better():
    """The search over roots against a grid of them, on data whose free estimate breaks the rules."""
    inputs, state, calendar, _ = made(3, days=15, noise=0.1, alpha=(1.002,), load_sign=1.0)
    found = estimate_physical(inputs, state, 2, calendar)

    def left(c):
        predicted, actual = one_step(c, inputs, state, 0, inputs.train)
        return float(((predicted - actual) ** 2).sum())

    best = left(found)
    rows = lagged_rows(inputs.segment, 2, 0, inputs.train)
    problem = _OneStep.build(inputs, state, 2, calendar, rows, None, Limits())
    slow = np.exp(-1 / np.geomspace(2, 990, 25))
    fast = np.exp(-1 / np.geomspace(0.12, 100, 25))
    grid = [problem.best(alpha_of_roots(np.array([a, b])))[0] for a in slow for b in fast]
    assert best <= min(grid) * (1 + 1e-6)


def test_limits_fix_a_gain_that_somebody_knows():
    inputs, state, calendar, _ = made(2)
    found = estimate_physical(inputs, state, 2, calendar, limits=Limits(load_gain=(0.5, 0.5), outdoor_gain=(0.6, 0.6)))
    gains = steady_gains(found)
    assert gains["load"] == pytest.approx(0.5) and gains["outdoor"] == pytest.approx(0.6)


def test_rows_that_count_nothing_change_nothing():
    inputs, state, calendar, _ = made(4)
    rows = lagged_rows(inputs.segment, 2, 0, inputs.train)
    half = rows[len(rows) // 2 :]
    spoiled = state.copy()
    spoiled[: half[0] - 2] += 3.0
    weights = (rows >= half[0]).astype(float)
    weighted = estimate_physical(inputs, spoiled, 2, calendar, rows=rows, weights=weights)
    cut = estimate_physical(inputs, state, 2, calendar, rows=half)
    assert weighted.alpha == pytest.approx(cut.alpha, abs=1e-6)


def test_a_day_type_the_rows_do_not_have_is_like_all_days():
    inputs, state, _, time = made(6)
    calendar = Calendar(step=pd.Timedelta("1h"), timezone="UTC", season=24, day_types="weekend")
    typed = calendar.on(inputs, time)
    rows = lagged_rows(typed.segment, 1, 0, typed.train)
    weekdays = rows[typed.phase[rows] < 24]
    found = estimate_physical(typed, state, 1, calendar, rows=weekdays)
    assert found.occupancy[24:] == pytest.approx(found.occupancy[:24])


@pytest.mark.parametrize("still", ["load", "outdoor", "solar"])
@pytest.mark.parametrize("refined", [False, True])
def test_an_input_that_never_changes_does_no_harm(still, refined):
    """Weather of one value, a constant load, or the same sun every day: nothing to tell it from the season."""
    inputs, state, calendar, _ = made(7)
    flat = np.full(len(inputs), 0.1) if still != "solar" else 0.1 * inputs.phase
    quiet = replace(inputs, **{still: flat})
    for order in (1, 2, 3):
        found = estimate_physical(quiet, state, order, calendar)
        if refined:
            found = refine(found, quiet, state, calendar, len(quiet))
        assert rules_kept(found, 24)
        predicted, actual = one_step(found, quiet, state, 0, quiet.train)
        assert np.abs(predicted - actual).std() < actual.std()
