"""Agents whose machines add up in another order find the same numbers, and no honest leader is said to deviate."""

import numpy as np
import pytest

from atdm.data.sample import load_sample
from atdm.kernel import design
from atdm.kernel.descent import at_rest
from atdm.protocol.aggregator import AggregatorState
from tests.protocol.drive import drive, parties


@pytest.mark.parametrize("ridge, tolerance", [(100.0, 1e-12), (1.0, 1e-12), (1e-6, 1e-15), (100.0, 1e-15)])
@pytest.mark.parametrize("seed", range(3))
def test_agents_that_add_up_in_another_order_agree(
    seed: int, ridge: float, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes the training rows in an order of its own."""
    rng, in_order = np.random.default_rng(seed), design.lagged_rows
    monkeypatch.setattr(design, "lagged_rows", lambda *where: rng.permutation(in_order(*where)))
    sample = load_sample()
    cluster = sample.select(list(rng.permutation(sample.agents)[:12]))
    aggregator, agents = parties(cluster, seed=seed, share=False, order=2, ridge=ridge, tolerance=tolerance)
    assert not drive(aggregator, agents)
    assert aggregator.state is AggregatorState.DONE, aggregator.reasons


def test_a_descent_ends_where_an_iteration_gains_nothing() -> None:
    """With a single sum what SP_II gains is rounding: some descents stopped at once and others never, and these refused
    the leader's numbers."""
    assert at_rest((1.0, 0.9, 0.95, 0.9), 1e-15)
    assert not at_rest((1.0, 0.9, 0.95, 0.89), 1e-15)
