"""Agents vanish, return, restart, are killed: a run waits; it equals the plain fit of its company, or has no result."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from atdm.data import Cluster
from atdm.data.clock import seconds
from atdm.kernel.descent import Status
from atdm.protocol.collect import Collected
from atdm.protocol.desk import Outcome
from atdm.run import fit
from tests.clusters import tiny
from tests.protocol.world import World, after, written

SHORT, LONG = range(30), range(30, 530)


def assert_is_the_plain_fit(outcome: Outcome, cluster: Cluster) -> None:
    """Coefficients within 3e-4, the bound for `blind`, of what a trusted centre finds."""
    expected = fit(cluster, "plain", order=1, ridge=20.0, nonnegative=False).model
    found = outcome.estimate.coefficients
    for name in ("alpha", "beta", "gamma", "theta"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=3e-4, err_msg=name)


def assert_is_the_mean(outcome: Collected, cluster: Cluster) -> None:
    at = np.searchsorted(seconds(cluster.time), outcome.time)
    np.testing.assert_allclose(outcome.state, cluster.temperature.to_numpy().mean(axis=1)[at], atol=1e-6)
    np.testing.assert_allclose(outcome.load, cluster.load.to_numpy().sum(axis=1)[at], atol=1e-6)


def one_world(seed: int) -> Counter:
    """A cluster of 3 to 12 agents, up to three tries to fit it, then rows after it under equal weights."""
    rng = random.Random(seed)
    agents = rng.randint(3, 12)
    world = World(tiny(seed, agents=agents, rows=72), seed)
    seen: Counter = Counter()
    fitted = world.plan(rows=slice(0, 60))
    for plan in (fitted, fitted, fitted, world.collect(60, 8), world.collect(60, 12)):
        role = world.aggregator(plan)
        gone = {rng.randrange(agents)} if rng.random() < 0.15 else set()
        outcome = world.run(role, chaos=rng.choice([0.0, 0.02, 0.05, 0.15]), gone=gone)
        if outcome is None:
            seen["aborted"] += 1
            continue
        seen["left out"] += agents - len(role.members)
        if isinstance(outcome, Collected):
            seen["collected"] += 1
            assert_is_the_mean(outcome, world.window(members=role.members))
        else:
            seen[str(outcome.estimate.status)] += 1
            assert outcome.estimate.status in (Status.CONVERGED, Status.CAPPED)
            if outcome.estimate.status is Status.CONVERGED:
                assert_is_the_plain_fit(outcome, world.window(slice(0, 60), role.members))
    seen["restarts"] += world.restarts - agents
    return seen


@pytest.mark.parametrize("seed", SHORT)
def test_a_run_with_vanishing_agents_is_the_plain_fit_or_no_result(seed: int) -> None:
    one_world(seed)


@pytest.mark.soak
def test_five_hundred_worlds_with_vanishing_agents() -> None:
    seen = sum((one_world(seed) for seed in LONG), Counter())
    print(dict(seen))
    assert seen["converged"] > 500 and seen["collected"] > 500 and seen["aborted"] > 100
    assert seen["restarts"] > 1000 and seen["left out"] > 50


# One agent, known moments


def test_a_run_waits_for_an_agent_that_is_away_at_every_message() -> None:
    """The deadline is the transport's business; here it is not reached."""
    world, tries = World(tiny(2, agents=5, rows=60), 2), Counter()

    def slow(i: int, data: bytes) -> bool:
        tries[i, data] += 1
        if i == 1:
            world.restart(i)
        return i == 1 and tries[i, data] < 30

    outcome = world.run(world.aggregator(world.plan()), deaf=slow)
    assert outcome is not None and world.restarts > 10
    assert_is_the_plain_fit(outcome, world.cluster)


@pytest.mark.parametrize("message", [0, 1, 2, 3, 4, 6])
def test_an_agent_lost_before_its_answer_is_out_and_one_lost_later_ends_the_run(message: int) -> None:
    """Announcement, keys, secret, rows, open: from the fifth message on readings have left, and the days are settled;
    whoever would go on without the lost agent needs fresh days."""
    world, lost = World(tiny(11, agents=6, rows=120), 1), 3
    outcome = world.run(world.aggregator(world.plan(rows=slice(0, 60))), deaf=after(lost, message))
    assert (outcome is not None) == (message == 0)
    if outcome is not None:
        assert_is_the_plain_fit(outcome, world.window(slice(0, 60), world.role.members))
        assert world.role.out() == {world.roster.members[lost].name: "no answer"}
        return
    settled = [bool(written(store).account.companies) for store in world.stores]
    assert settled == [message >= 4 or message == 3 and i != lost for i in range(6)]
    again = world.run(world.aggregator(world.plan(rows=slice(0, 60))), gone={lost})
    assert (again is None) == (message >= 3), world.reasons
    if message >= 3:
        assert "another company" in world.reasons[-1]
    fresh = world.run(world.aggregator(world.plan(rows=slice(60, 120))), gone={lost})
    assert fresh is not None, world.reasons
    hole = 1 if message >= 3 else 0  # the row at the midnight at which the company changed
    assert len(fresh.kept) == 60 - hole
    assert_is_the_plain_fit(fresh, world.window(slice(60 + hole, 120), world.role.members))


def test_a_company_of_less_than_two_thirds_is_not_begun() -> None:
    world = World(tiny(4, agents=9, rows=60), 4)
    assert world.run(world.aggregator(world.plan()), gone={0, 1, 2, 3}) is None
    assert "two thirds" in world.reasons[0] and not any(written(s).account.questions for s in world.stores[4:])
    assert world.run(world.aggregator(world.plan()), gone={0, 1, 2}) is not None


def test_the_answer_to_an_announcement_carries_no_reading() -> None:
    """It follows from the agent's keys and seed, and from which readings are there, not what they say."""
    cluster, other = tiny(5, agents=5, rows=60), tiny(6, agents=5, rows=60)
    replies = []
    for data in (cluster, other):
        world = World(cluster, 1)
        announce = world.aggregator(world.plan()).start()[0].data
        world.cluster = replace(cluster, temperature=data.temperature, load=data.load)
        replies.append(world.agent(0).receive(announce))
    assert replies[0] == replies[1]
