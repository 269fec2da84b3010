"""Where the answer has a negative weight every protocol raises λ as often as a trusted centre does."""

import numpy as np
import pytest

from atdm.data import Cluster
from atdm.protocol.aggregator import AggregatorState
from atdm.run import fit
from tests.clusters import tiny
from tests.protocol.drive import drive, parties
from tests.protocol.world import LOOSE

OPTIONS = dict(order=1, ridge=20.0)


def swaying(seed: int, agents: int = 9, rows: int = 100) -> Cluster:
    """Agents that sway in step, some far more than others: those get negative weights."""
    cluster, rng = tiny(seed, agents=agents, rows=rows), np.random.default_rng(seed)
    together = np.outer(rng.normal(0, 0.4, rows), rng.uniform(0, 3, agents))
    return Cluster.from_frames(cluster.temperature + together, cluster.load, cluster.outdoor, cluster.solar)


@pytest.mark.parametrize("protocol, tolerance", [("paper", 1e-5), ("moments", 1e-6), ("blind", 3e-4)])
def test_the_ridge_is_raised_as_in_the_plain_fit(protocol: str, tolerance: float) -> None:
    """`blind` with the agents' limits lifted; within them λ may be a step of the ladder away (docs/spec.md)."""
    cluster = swaying(1)
    plain = fit(cluster, "plain", **OPTIONS)
    private = fit(cluster, protocol, rules=LOOSE, dither=0.0, solver_tolerance=5e-5, **OPTIONS)
    assert plain.ridge > 20.0 and private.ridge == pytest.approx(plain.ridge, rel=1e-12)
    assert (private.weights >= 0).all()
    for name in ("alpha", "beta", "gamma", "theta"):
        np.testing.assert_allclose(getattr(private.model, name), getattr(plain.model, name), atol=tolerance)


@pytest.mark.parametrize("protocol, says", [
    ("blind", "too few rows for the model"), ("moments", "rows have readings from every agent"),
    ("paper", "rows have readings from every agent"),
])  # fmt: skip
def test_a_window_without_common_rows_ends_the_run(protocol: str, says: str) -> None:
    aggregator, agents = parties(protocol=protocol)
    for agent, keep in zip(agents, (slice(0, None, 2), slice(1, None, 2)), strict=False):
        own = agent.own.readings
        object.__setattr__(agent.own, "readings", type(own)(own.time[keep], own.temperature[keep], own.load[keep]))
    drive(aggregator, agents)
    assert aggregator.state is AggregatorState.ABORTED and says in aggregator.reasons[0]
