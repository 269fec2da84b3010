"""Where the answer has a negative weight every protocol raises λ as often as a trusted centre does."""

import numpy as np
import pytest

import atdm
from atdm.protocol.aggregator import State
from tests.clusters import tiny
from tests.protocol.drive import drive, parties
from tests.protocol.world import LOOSE

OPTIONS = dict(order=1, ridge=20.0)


def swaying(seed: int, agents: int = 9, rows: int = 100) -> atdm.Cluster:
    """Agents that sway in step, some far more than others: those get negative weights."""
    cluster, rng = tiny(seed, agents=agents, rows=rows), np.random.default_rng(seed)
    together = np.outer(rng.normal(0, 0.4, rows), rng.uniform(0, 3, agents))
    return atdm.Cluster.from_frames(cluster.temperature + together, cluster.load, cluster.outdoor, cluster.solar)


@pytest.mark.parametrize("protocol, tolerance", [("paper", 1e-5), ("moments", 1e-6), ("blind", 3e-4)])
def test_the_ridge_is_raised_as_in_the_plain_fit(protocol: str, tolerance: float) -> None:
    cluster = swaying(1)
    plain = atdm.fit(cluster, "plain", **OPTIONS)
    private = atdm.fit(cluster, protocol, rules=LOOSE, dither=0.0, **OPTIONS)
    assert plain.ridge > 20.0 and private.ridge == plain.ridge and (private.weights >= 0).all()
    for name in ("alpha", "beta", "gamma", "theta"):
        np.testing.assert_allclose(getattr(private.model, name), getattr(plain.model, name), atol=tolerance)


def test_a_ridge_beyond_what_agents_accept_ends_the_run() -> None:
    from dataclasses import replace

    rules = replace(LOOSE, ridge=(1e-3, 20.5))
    aggregator, agents = parties(swaying(1), rules=rules, **OPTIONS, nonnegative="ridge")
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "more than agents accept" in aggregator.reasons[0]


@pytest.mark.parametrize("protocol", ["blind", "moments", "paper"])
def test_a_window_without_common_rows_ends_the_run(protocol: str) -> None:
    aggregator, agents = parties(protocol=protocol)
    for agent, keep in zip(agents, (slice(0, 30), slice(30, 60)), strict=False):
        own = agent.own.readings
        object.__setattr__(agent.own, "readings", type(own)(own.time[keep], own.temperature[keep], own.load[keep]))
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "rows have readings from every agent" in aggregator.reasons[0]
