"""The model's arithmetic against the same written out: least squares by SVD, and one row after the other."""

from dataclasses import replace

import numpy as np
import pytest

from atdm.kernel.design import Design, Inputs, lagged_rows
from atdm.kernel.thermal import Coefficients, accuracy, coefficients, evaluate, free_run, one_step

ORDERS = (1, 2, 3)


def made(order: int, *, gaps: tuple[int, ...] = (), rows: int = 160, period: int = 8, train: int = 120):
    """Inputs and a series that the model would leave something of."""
    rng = np.random.default_rng(order)
    steps = np.isin(np.arange(rows), gaps)
    inputs = Inputs(
        load=rng.gamma(2.0, 3.0, rows), outdoor=5 + rng.normal(0, 1, rows).cumsum(), solar=rng.uniform(0, 0.5, rows),
        phase=np.arange(rows) % period, segment=np.cumsum(steps), period=period, train=train,
    )  # fmt: skip
    return inputs, 20 + 0.3 * rng.normal(0, 1, rows).cumsum()


def drawn(order: int, period: int = 8) -> Coefficients:
    rng = np.random.default_rng(100 + order)
    alpha = 0.9 * np.array([1.0, -0.3, 0.1])[:order] / sum([1.0, -0.3, 0.1][:order])
    beta, gamma, theta = rng.normal(0, 0.05, (3, order + 1))
    return Coefficients(alpha=alpha, beta=beta, gamma=gamma, theta=theta, occupancy=rng.normal(2, 0.2, period))


def row_by_row(c: Coefficients, inputs: Inputs, past: np.ndarray, t: int) -> float:
    """Eq. (2) at one row."""
    value = float(c.occupancy[inputs.phase[t]])
    for m in range(1, c.order + 1):
        value += c.alpha[m - 1] * past[t - m]
    for m in range(c.order + 1):
        value += c.beta[m] * inputs.load[t - m] + c.gamma[m] * inputs.outdoor[t - m] + c.theta[m] * inputs.solar[t - m]
    return value


@pytest.mark.parametrize("order", ORDERS)
def test_a_free_run_and_one_step_are_equation_2_row_by_row_and_begin_anew_after_a_gap(order):
    c, (inputs, state) = drawn(order), made(order, gaps=(30, 33, 34, 90))
    rows = lagged_rows(inputs.segment, order, 20, 140)
    assert len(rows) < 120 - order  # the gaps cost rows
    run = state.copy()
    for t in rows:
        run[t] = row_by_row(c, inputs, run, t)
    np.testing.assert_allclose(free_run(c, inputs, state, 20, 140), run[20:140], rtol=1e-12)
    predicted, actual = one_step(c, inputs, state, 20, 140)
    np.testing.assert_allclose(predicted, [row_by_row(c, inputs, state, t) for t in rows], rtol=1e-12)
    np.testing.assert_array_equal(actual, state[rows])


@pytest.mark.parametrize("order", ORDERS)
def test_coefficients_are_those_of_least_squares_on_all_columns(order):
    inputs, state = made(order, gaps=(50,))
    design, alpha = Design.build(inputs, order), drawn(order).alpha
    found, rss = coefficients(design, inputs.period, alpha, state)
    filtered = state[design.rows] - sum(a * state[design.rows - m] for m, a in enumerate(alpha, 1))
    solution, squares, rank, _ = np.linalg.lstsq(design.columns, filtered, rcond=None)
    assert rank == design.columns.shape[1]
    ours = np.concatenate(found.parts()[1:])
    assert np.linalg.norm(ours - solution) <= 1e-11 * np.linalg.norm(solution)
    assert rss == pytest.approx(float(squares[0]), rel=1e-11)


def test_where_inputs_repeat_each_other_the_smallest_solution_is_taken():
    inputs, state = made(2)
    inputs = replace(inputs, solar=inputs.outdoor / 100)
    design, alpha = Design.build(inputs, 2, minimum_norm=True), drawn(2).alpha
    found, rss = coefficients(design, inputs.period, alpha, state)
    norms = np.linalg.norm(design.columns, axis=0)
    filtered = state[design.rows] - sum(a * state[design.rows - m] for m, a in enumerate(alpha, 1))
    smallest = np.linalg.pinv(design.columns / norms, rcond=1e-10) @ filtered / norms
    np.testing.assert_allclose(np.concatenate(found.parts()[1:]), smallest, atol=1e-9)
    assert rss == pytest.approx(float(((filtered - design.columns @ smallest) ** 2).sum()), rel=1e-9)
    np.testing.assert_allclose(found.gamma * norms[3:6], found.theta * norms[6:9], rtol=1e-6)  # shared evenly


def test_metrics_are_of_these_predictions_and_missing_where_there_is_no_row():
    c, (inputs, state) = drawn(2), made(2, gaps=(40,))
    found = evaluate(c, inputs, state)
    error = free_run(c, inputs, state, 120, 160) - state[120:]
    assert found["test"]["free_run"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert found["test"]["free_run"]["mape"] == pytest.approx(100 * np.mean(np.abs(error / state[120:])))
    assert found["train"]["one_step"]["r2"] == pytest.approx(accuracy(*one_step(c, inputs, state, 0, 120))["r2"])
    assert np.isnan(evaluate(c, replace(inputs, train=160), state)["test"]["free_run"]["rmse"])
    assert np.isnan(accuracy(state, np.full(len(state), 20.0))["r2"])
