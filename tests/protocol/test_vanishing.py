"""Agents vanish, return, restart, are killed: a run waits; it equals the plain fit of its roster, or has no result."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atdm.data import Cluster
from atdm.errors import PeerError
from atdm.kernel.descent import Status
from atdm.protocol.desk import Outcome
from atdm.protocol.messages import Announce, encode
from atdm.protocol.roster import COHORT_OWNERS, Member, assign_cohorts, check_cohorts
from atdm.protocol.rules import OFFERED, Rules
from atdm.run import fit
from tests.clusters import tiny
from tests.protocol.world import LOOSE, Killed, World, written

PLAN = {"order": 1, "ridge": 20.0}
SHORT, LONG = range(40), range(40, 540)


def assert_is_the_plain_fit(outcome: Outcome, cluster: Cluster, **plan: float) -> None:
    """Coefficients within 3e-4, the bound of DESIGN for `blind`, of what a trusted centre finds."""
    expected = fit(cluster, "plain", nonnegative=False, **plan).model
    found = outcome.estimate.coefficients
    for name in ("alpha", "beta", "gamma", "theta"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=3e-4, err_msg=name)


def one_world(seed: int) -> Counter:
    """A cluster of 3 to 12 agents in one cohort, or of 16 to 27 in two or three, and up to three tries to fit it."""
    rng = random.Random(seed)
    agents = rng.choice([*range(3, 13)] * 2 + [16, 17, 20, 24, 27])
    strict = Rules(protocols=OFFERED, least_agents=min(agents, 10), rows_per_parameter=1, dither=0)
    rules = LOOSE if rng.random() < 0.8 else strict
    world = World(tiny(seed, agents=agents, rows=60), seed, rules)
    cohorts = {member.cohort for member in world.roster.members}
    seen: Counter = Counter()
    plan, gone = world.plan(**PLAN), set()
    for _ in range(3):
        outcome = world.run(world.aggregator(plan, cohorts), chaos=rng.choice([0.0, 0.02, 0.05, 0.15]), gone=gone)
        if outcome is None:
            seen["aborted"] += 1
        else:
            assert outcome.estimate.status in (Status.CONVERGED, Status.CAPPED)
            seen[str(outcome.estimate.status)] += 1
            if outcome.estimate.status is Status.CONVERGED:
                assert_is_the_plain_fit(outcome, world.window(slice(None), cohorts), **PLAN)
        smaller = cohorts - {rng.choice(sorted(cohorts))}
        if outcome is None and smaller and rng.random() < 0.5:
            cohorts = smaller  # without the cohort of whoever was lost
        elif outcome is not None and rng.random() < 0.5:
            break
    seen["restarts"] += world.restarts - agents
    return seen


@pytest.mark.parametrize("seed", SHORT)
def test_a_run_with_vanishing_agents_is_the_plain_fit_or_no_result(seed: int) -> None:
    one_world(seed)


@pytest.mark.soak
def test_five_hundred_runs_with_vanishing_agents() -> None:
    seen = sum((one_world(seed) for seed in LONG), Counter())
    print(dict(seen))
    assert seen["converged"] > 250 and seen["aborted"] > 50 and seen["restarts"] > 1000


# One agent, known moments


@pytest.fixture(scope="module")
def two_cohorts() -> Cluster:
    """Eighteen homes, one with two agents: two cohorts."""
    return tiny(11, agents=19, rows=60, owners=18)


def absent_from(world: World, who: int, message: int) -> None:
    """From now on an agent hears nothing after so many messages."""
    deliver, heard = world.deliver, []

    def limited(i: int, data: bytes) -> list[bytes]:
        if i == who and len(heard) >= message:
            raise Killed
        heard.extend([data] * (i == who))
        return deliver(i, data)

    world.deliver = limited


def test_a_run_waits_for_an_agent_that_is_away_at_every_message() -> None:
    """The deadline is the transport's business; here it is not reached."""
    world = World(tiny(2, agents=5, rows=60), 2)
    deliver, tries = world.deliver, Counter()

    def slow(i: int, data: bytes) -> list[bytes]:
        tries[i, data] += 1
        if i == 1 and tries[i, data] < 30:
            world.restart(i)
            raise Killed
        return deliver(i, data)

    world.deliver = slow
    outcome = world.run(world.aggregator(world.plan(**PLAN)))
    assert outcome is not None and world.restarts > 10
    assert_is_the_plain_fit(outcome, world.cluster, **PLAN)


@pytest.mark.parametrize("message", [0, 1, 2, 4, 7, 10])
def test_a_lost_agent_takes_its_cohort_with_it(two_cohorts: Cluster, message: int) -> None:
    world = World(two_cohorts, 1)
    lost = next(i for i, m in enumerate(world.roster.members) if m.cohort == 1 and i > 0)
    deliver = world.deliver
    absent_from(world, lost, message)
    assert world.run(world.aggregator(world.plan(**PLAN))) is None
    world.deliver = deliver
    others = [i for i, m in enumerate(world.roster.members) if m.cohort == 0]
    before = {i: len(world.charges(i)) for i in others}
    first_total = 5  # announcement, keys, secret, and the totals of rows and load come before the first flags
    assert (sum(before.values()) > 0) == (message >= first_total)
    outcome = world.run(world.aggregator(world.plan(**PLAN), {0}))
    assert outcome is not None and outcome.estimate.status is Status.CONVERGED
    assert_is_the_plain_fit(outcome, world.window(slice(None), {0}), **PLAN)
    for i in others:  # another roster: what the first run was sent stays on the account, and the counts add
        assert len(world.charges(i)) == before[i] + outcome.sums
        assert written(world.stores[i]).exposure.totals.max() == before[i] + outcome.sums


def test_without_its_cohort_a_run_below_the_minimum_is_refused(two_cohorts: Cluster) -> None:
    world = World(two_cohorts, 1, Rules(least_agents=12, rows_per_parameter=1, dither=0))
    assert world.run(world.aggregator(world.plan(**PLAN), {0})) is None
    assert "asks for at least 12" in world.reasons[0]
    assert all(not world.charges(i) for i, m in enumerate(world.roster.members) if m.cohort == 0)


def test_the_ready_round_carries_no_data(two_cohorts: Cluster) -> None:
    """What an agent answers to an announcement follows from its keys and its seed alone."""
    replies = []
    for cluster in (two_cohorts, tiny(12, agents=19, rows=60, owners=18)):
        world = World(cluster, 1)
        world.cluster = two_cohorts  # same plan and weather for both
        announce = world.aggregator(world.plan(**PLAN)).start()[0].data
        world.cluster = replace(two_cohorts, temperature=cluster.temperature, load=cluster.load)
        replies.append(world.agent(0).receive(announce))
    assert replies[0] == replies[1]


@pytest.mark.parametrize("cohorts", [(), (0, 0), (1, 0), (0, 7)])
def test_an_agent_refuses_cohorts_that_are_not_of_its_roster(two_cohorts: Cluster, cohorts: tuple[int, ...]) -> None:
    world = World(two_cohorts, 1)
    announce = Announce(plan=world.plan(**PLAN), roster=world.roster.hash(), cohorts=cohorts)
    (reply,) = world.agent(0).receive(encode(announce))
    assert b"cohort" in reply


# Rosters


@given(st.lists(st.integers(0, 60), min_size=1, max_size=120))
def test_cohorts_are_of_eight_owners_or_more_and_split_none(owners: list[int]) -> None:
    names = [f"home{owner}" for owner in owners]
    cohort = assign_cohorts(names)
    check_cohorts([Member(f"zone{i}", name, cohort[name], bytes([i])) for i, name in enumerate(names)])
    sizes = Counter(cohort.values())
    assert len(sizes) == 1 or min(sizes.values()) >= COHORT_OWNERS


@pytest.mark.parametrize(
    ("cohort_of", "complaint"),
    [(lambda i: i % 2 if i < 4 else i // 10, "two cohorts"), (lambda i: int(i < 4), "fewer than 8")],
)
def test_agents_refuse_a_roster_whose_cohorts_would_show_somebody(cohort_of, complaint: str) -> None:
    members = [Member(f"zone{i}", f"home{i // 2}", cohort_of(i), bytes([i])) for i in range(40)]
    with pytest.raises(PeerError, match=complaint):
        check_cohorts(members)
