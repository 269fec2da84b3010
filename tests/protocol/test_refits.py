"""Later runs build on earlier ones: stored directions, new rows only. Rosters add up; beyond the cap nobody sends."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from atdm.data import Cluster
from atdm.kernel.descent import Status
from atdm.protocol.basis import Basis, Totals, agree, offer
from atdm.protocol.desk import Outcome
from atdm.protocol.readings import sensor_quantum
from atdm.protocol.rules import Rules
from atdm.run import fit
from atdm.transport.disk import Disk
from tests.clusters import tiny
from tests.protocol.world import LOOSE, Killed, World, written

WEEK = 28  # rows of a week at four a day
WINDOW = 4 * WEEK
UNCAPPED = replace(LOOSE, totals=40)  # at least as many as agents, so that every refit converges


def assert_is_the_plain_fit(outcome: Outcome, cluster: Cluster, **plan: float) -> None:
    expected = fit(cluster, "plain", nonnegative=False, **plan).model
    for name in ("alpha", "beta", "gamma", "theta"):
        found = getattr(outcome.estimate.coefficients, name)
        np.testing.assert_allclose(found, getattr(expected, name), atol=3e-4, err_msg=name)


def refit(world: World, first: int, length: int = WINDOW, **plan: float) -> Outcome:
    rows = slice(first, first + length)
    options = {"order": 1, "ridge": 20.0, **plan}
    outcome = world.run(world.aggregator(world.plan(rows=rows, **options)))
    assert outcome is not None, world.reasons
    if outcome.estimate.status is Status.CONVERGED:
        assert_is_the_plain_fit(outcome, world.window(rows), **options)
    return outcome


@pytest.fixture
def season() -> Cluster:
    return tiny(7, agents=16, rows=WINDOW + 4 * WEEK)


def test_four_weekly_refits_and_changes_of_plan_total_new_rows_only() -> None:
    season = tiny(7, agents=24, rows=WINDOW + 4 * WEEK)
    world = World(season, 7, UNCAPPED)
    first = refit(world, 0)
    directions = len(world.charges(0))
    assert directions == first.sums and first.estimate.status is Status.CONVERGED
    for week in range(1, 5):
        before = world.charges(0)
        outcome = refit(world, week * WEEK)
        assert outcome.estimate.status is Status.CONVERGED
        added = world.charges(0)[len(before) :]
        known, new = added[:directions], added[directions:]
        assert known == [(rank, WEEK) for rank in range(directions)]  # stored directions: over the new week
        assert new == [(rank, WINDOW) for rank in range(directions, directions + len(new))]  # appended: over all rows
        assert len(outcome.time) == WEEK  # and load and state of the new week only are shown
        directions += len(new)
    for change in ({"order": 2}, {"ridge": 60.0}, {"train": 0.6}):
        before = world.charges(0)
        outcome = refit(world, 4 * WEEK, **change)
        assert outcome.estimate.status is Status.CONVERGED and len(outcome.time) == 0
        added = world.charges(0)[len(before) :]
        assert added == [(rank, WINDOW) for rank in range(directions, directions + len(added))]
        directions += len(added)
    fresh = World(season, 7, UNCAPPED)
    assert outcome.sums < refit(fresh, 4 * WEEK, **change).sums


def test_a_run_again_on_the_same_rows_costs_no_total(season: Cluster) -> None:
    world = World(season, 7)
    first, second = refit(world, 0), refit(world, 0)
    assert second.sums == 0 and first.sums > 0
    np.testing.assert_allclose(second.estimate.coefficients.alpha, first.estimate.coefficients.alpha, atol=1e-6)


def test_going_back_to_old_rows_totals_nothing_twice(season: Cluster) -> None:
    """Directions found in a later window have no total on the first week; the others do."""
    world = World(season, 7)
    refit(world, 0)
    old = len(world.charges(0))
    refit(world, WEEK)
    appended = len({rank for rank, _ in world.charges(0)}) - old
    before = len(world.charges(0))
    refit(world, 0)
    added = world.charges(0)[before:]
    assert added[:appended] == [(rank, WEEK) for rank in range(old, old + appended)]
    assert all(rows == WINDOW for _, rows in added[appended:])


def test_rows_that_were_in_no_total_get_directions_of_their_own(season: Cluster) -> None:
    world, fresh = World(season, 7), World(season, 7)
    refit(world, 0)
    assert refit(world, WINDOW).sums == refit(fresh, WINDOW).sums
    assert written(world.stores[0]).exposure.totals[-1] == written(fresh.stores[0]).exposure.totals[-1]


def test_no_row_is_ever_in_more_totals_than_the_cap(season: Cluster) -> None:
    rules = Rules(least_agents=3, rows_per_parameter=1, agents_per_total=2, totals=5, dither=0)
    world = World(season, 7, rules)
    statuses = [refit(world, week * WEEK).estimate.status for week in range(5)]
    statuses.append(refit(world, 4 * WEEK, order=2).estimate.status)
    assert Status.CAPPED in statuses
    for store in world.stores:
        exposure = written(store).exposure
        assert exposure.totals.max() <= rules.totals_cap(16) and exposure.leverage.max() <= rules.leverage


def test_another_roster_adds_to_the_count_until_agents_refuse() -> None:
    world = World(tiny(11, agents=18, rows=60), 1, Rules(least_agents=3, rows_per_parameter=1, dither=0))
    plan = world.plan()
    everybody = world.run(world.aggregator(plan))
    mine = next(i for i, member in enumerate(world.roster.members) if member.cohort == 0)
    assert everybody is not None and everybody.sums == written(world.stores[mine]).exposure.totals.max() > 0
    cap = world.rules.totals_cap(sum(member.cohort == 0 for member in world.roster.members))
    before = world.charges(mine)
    assert world.run(world.aggregator(plan, {0})) is None or len(before) < cap
    assert written(world.stores[mine]).exposure.totals.max() <= max(cap, len(before))
    if len(before) >= cap:
        assert "refuse any further total" in world.reasons[-1] and world.charges(mine) == before


def test_rosters_do_not_share_a_basis_and_each_finds_its_own_again() -> None:
    world = World(tiny(11, agents=18, rows=60), 1)
    plan, sums = world.plan(), []
    for cohorts in ({0, 1}, {0}, {0, 1}, {0}):
        outcome = world.run(world.aggregator(plan, cohorts))
        assert outcome is not None
        assert_is_the_plain_fit(outcome, world.window(slice(None), cohorts), order=1, ridge=20.0)
        sums.append(outcome.sums)
    assert sums[0] > 0 and sums[1] > 0 and sums[2:] == [0, 0]


# Where agents do not have the same


@pytest.mark.parametrize("heard", range(5, 13))
def test_after_a_run_that_stopped_between_two_agents_the_common_part_is_kept(heard: int) -> None:
    """One agent is a total behind the others, whichever total it was; then it is back."""
    world = World(tiny(3, agents=6, rows=60), 3)
    who, deliver, count = 5, world.deliver, []

    def limited(i: int, data: bytes) -> list[bytes]:
        if i == who and len(count) == heard:
            raise Killed
        count.extend([data] * (i == who))
        return deliver(i, data)

    world.deliver = limited
    assert world.run(world.aggregator(world.plan())) is None
    world.deliver = deliver
    opened = [len(basis[0].totals) for store in world.stores for basis in written(store).bases.values()]
    outcome = world.run(world.aggregator(world.plan()))
    assert outcome is not None
    assert_is_the_plain_fit(outcome, world.cluster, order=1, ridge=20.0)
    for i in range(6):
        again = sum(1 for rank, _ in world.charges(i)) - len({rank for rank, _ in world.charges(i)})
        assert again <= 1  # at most the one total that not everybody saw is taken again
    assert opened or heard < 7


def test_when_one_agent_lost_its_state_a_new_basis_is_begun_and_the_counts_add(season: Cluster) -> None:
    world = World(season, 7)
    first = refit(world, 0)
    world.lose(4)
    second = refit(world, 0)
    assert second.sums > 0
    assert written(world.stores[3]).exposure.totals.max() == first.sums + second.sums
    assert refit(world, 0).sums == 0  # and from then on everybody has the same again


def test_agreement_is_on_the_latest_version_that_everybody_has() -> None:
    def version(n: int, salt: float = 0.0) -> Basis:
        totals = Totals(n, np.arange(4), np.full((4, n), salt), np.ones(n), np.eye(n))
        return Basis(totals, np.zeros(n))

    def agreed(*agents: tuple[Basis, ...]) -> list[int]:
        total = sum(offer(kept) for kept in agents)
        return [agree(kept, total, len(agents)).totals.version for kept in agents]

    ahead, behind = (version(7), version(6)), (version(6), version(5))
    assert agreed(ahead, ahead, ahead) == [7, 7, 7]
    assert agreed(ahead, behind, ahead) == [6, 6, 6]
    assert agreed(behind, ahead) == [6, 6]
    assert agreed(ahead, (version(7, salt=1.0), version(6)), ahead) == [6, 6, 6]
    assert agreed(ahead, (Basis(),), ahead) == [0, 0, 0]
    assert agreed((Basis(),), (Basis(),)) == [0, 0]
    assert agreed((version(1), Basis()), (Basis(),)) == [0, 0]


def test_the_dither_stays_when_later_readings_show_a_finer_sensor(season: Cluster) -> None:
    """Its width follows the sensor's quantum as first found: a stamp must keep its dither for ever."""
    world = World(season, 7)
    world.agent(0)
    finer = season.temperature + 0.0005 * (np.arange(len(season.time))[:, None] % 2)
    world.cluster = Cluster.from_frames(finer, season.load, season.outdoor, season.solar, owner=season.owner)
    world.restart(0)
    agent = world.agent(0)
    name = world.roster.members[0].name
    assert sensor_quantum(finer[name].to_numpy()) < agent.own.memory.quantum
    assert agent.own.memory.quantum == sensor_quantum(season.temperature[name].to_numpy())


# At size


HALF_WEEK, FIRST = 168, 768  # rows at half-hours


@pytest.mark.soak
@pytest.mark.parametrize("name", ["sample", "refit64"])
@pytest.mark.parametrize("rules", [Rules(), Rules(leverage=1.0, totals=60, agents_per_total=1)], ids=["caps", "free"])
def test_refits_of_64_zones(name: str, rules: Rules, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Four refits, half a week apart, and three changes of plan. Without caps every one is the plain fit; under the
    caps no row is seen more often than they say, and what that costs is in the status and the residual."""
    whole: Cluster = request.getfixturevalue(name)
    changes = ({}, {"order": 1}, {"ridge": 200.0}, {"train": 0.6})
    plans = [*((week, {}) for week in range(4)), *((4, change) for change in changes)]
    for week, change in plans:
        rows = slice(HALF_WEEK * week, FIRST + HALF_WEEK * week)
        cluster = Cluster.from_frames(
            whole.temperature.iloc[rows], whole.load.iloc[rows], whole.outdoor.iloc[rows], whole.solar.iloc[rows],
            owner=whole.owner, timezone=whole.timezone,
        )  # fmt: skip
        options = {"nonnegative": False, **change}
        found = fit(cluster, state=tmp_path, rules=rules, dither=0.0, **options)
        expected = fit(cluster, "plain", **options)
        print(name, week, change, found.status, found.cost.sums, f"{found.solver_residual:.1e}")
        if found.status is Status.CONVERGED:
            for part in ("alpha", "beta", "gamma", "theta"):
                np.testing.assert_allclose(getattr(found.model, part), getattr(expected.model, part), atol=3e-4)
        assert found.status is Status.CONVERGED or rules.totals == 14
    for journal in tmp_path.glob("*.journal"):
        exposure = written(Disk(journal)).exposure
        assert exposure.totals.max() <= rules.totals_cap(64) and exposure.leverage.max() <= rules.leverage


def test_rows_released_by_a_refit_are_train_or_test_as_in_the_fit(tmp_path) -> None:
    """Only rows of the test part are new: none of them is for training, however few there are."""
    whole = tiny(4, agents=12, rows=200)
    early = Cluster.from_frames(
        whole.temperature[:-40], whole.load[:-40], whole.outdoor[:-40], whole.solar[:-40], owner=whole.owner
    )
    rules = Rules(rows_per_parameter=1, agents_per_total=1, leverage=1.0)
    first, again = (fit(c, order=1, nonnegative=False, rules=rules, state=tmp_path) for c in (early, whole))
    assert first.inputs.train == 120 and len(first.state) == 160
    assert again.inputs.train == 0 and len(again.state) == 40
