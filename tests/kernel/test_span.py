"""The descent in the span of a few sums, against all columns at hand and against Eq. (2) in the open."""

import numpy as np
import pytest

from atdm.kernel.descent import Columns, descend, lag_filter
from atdm.kernel.design import Design, Inputs
from atdm.kernel.span import Span, solve_positive

ROWS, PERIOD, ORDER, AGENTS, RIDGE = 220, 12, 2, 7, 3.0


def design(rng: np.random.Generator) -> Design:
    segment = (np.arange(ROWS) > 90).astype(np.int64)  # with a gap
    phase = np.arange(ROWS, dtype=np.int64) % PERIOD
    load, outdoor, solar = rng.normal(size=(3, ROWS))
    inputs = Inputs(
        load=load, outdoor=outdoor, solar=solar, phase=phase, segment=segment, period=PERIOD, train=ROWS - 20
    )
    return Design.build(inputs, ORDER)


def columns(rng: np.random.Generator) -> np.ndarray:
    """Agents' series that sway together and each by itself, N × K."""
    common = rng.normal(size=ROWS).cumsum() * 0.2
    return common[:, None] * rng.uniform(0.5, 1.5, AGENTS) + rng.normal(0, 0.3, (ROWS, AGENTS))


def span_of(made: Design, x: np.ndarray, q: np.ndarray) -> Span:
    """Sums with weights q (K × j), added one by one; the first are equal weights."""
    span = Span.empty(made, RIDGE)
    for j in range(q.shape[1]):
        span = span.add(x @ q[:, j], q[:, j].sum(), q[:, : j + 1].T @ q[:, j])
    return span


@pytest.fixture
def whole() -> tuple[Span, np.ndarray, np.ndarray]:
    """A span of all agents, their columns, and the weights of its sums, which are not orthogonal."""
    rng = np.random.default_rng(1)
    made, x = design(rng), columns(rng)
    q = np.column_stack([np.full(AGENTS, AGENTS**-0.5), rng.normal(size=(AGENTS, AGENTS - 1))])
    return span_of(made, x, q), x, q


def test_in_the_span_of_all_agents_the_descent_is_that_with_all_columns_at_hand(whole):
    span, x, q = whole
    projected = np.stack([span.design.projected_lags(column) for column in x.T], axis=-1)
    plain = descend(Columns(projected=projected, ridge=RIDGE), np.full(AGENTS, 1 / AGENTS), 1e-13)
    found = span.descend(1e-13)
    np.testing.assert_allclose(found.alpha, plain.alpha, atol=1e-8)
    np.testing.assert_allclose(q @ found.weights, plain.weights, atol=1e-7)
    np.testing.assert_allclose(found.objectives[-1], plain.objectives[-1], rtol=1e-9)


def test_the_residual_is_the_filtered_state_less_what_public_columns_explain(whole):
    span, x, q = whole
    alpha, c = np.array([0.8, 0.1]), np.random.default_rng(2).normal(size=AGENTS)
    public, filtered = span.design.columns, lag_filter(alpha) @ (x @ q @ c)[span.design.lagged]
    explained = public @ np.linalg.lstsq(public, filtered, rcond=None)[0]
    np.testing.assert_allclose(span.residual_series(alpha, c), filtered - explained, atol=1e-9)
    for column in x.T:  # Z_iᵀ(Zξ)
        own = lag_filter(alpha) @ span.design.projected_lags(column)
        np.testing.assert_allclose(span.pull(alpha, c) @ column, own @ (filtered - explained), atol=1e-7)


def test_a_ladder_of_ridges_is_one_descent_after_another(whole):
    span, _, _ = whole
    ridges = RIDGE * 1.1 ** np.arange(-1, 13)
    trials = span.ladder(ridges, span.descend(1e-12).weights)
    for ridge, trial in zip(ridges, trials, strict=True):
        np.testing.assert_allclose(trial, span.with_ridge(ridge).descend(1e-15).weights, atol=1e-6)


def test_the_state_is_made_of_products_and_sums_in_one_order(whole):
    span, _, _ = whole
    c = np.random.default_rng(3).normal(size=len(span))
    state = span.state(c)
    for t in (0, 57, ROWS - 1):
        value = float(c[0]) * float(span.sums[0][t])
        for weight, series in zip(c[1:], span.sums[1:], strict=True):
            value = value + float(weight) * float(series[t])
        assert state[t] == value  # every bit: agents vouch for them


def test_sums_that_say_the_same_twice_are_refused_not_solved():
    with pytest.raises(np.linalg.LinAlgError):
        solve_positive(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2))
