"""Between fits: state and load of new rows, from everybody or not at all, each row once, under the agents' rules."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.crypto import ring
from atdm.data import Cluster
from atdm.errors import DataError, UsageError
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.aggregator import State as Run
from atdm.protocol.blind import BASIS_BITS
from atdm.protocol.messages import Announce, Masked, Total, decode_to_agent, encode
from atdm.protocol.observe import OUTSIDE_BASIS, Observed, ObservePart, Phase, show_layout
from atdm.protocol.plan import ObservePlan
from atdm.protocol.readings import Readings, seconds
from atdm.run import fit as fit_cluster
from tests.clusters import tiny
from tests.protocol.drive import drive
from tests.protocol.world import LOOSE, Killed, World, written

AGENTS, ROWS, FITTED = 5, 60, 48
LATER = ROWS - FITTED
STEP = 6 * 3600


def fitted(seed: int = 3, *, agents: int = AGENTS, rules=LOOSE, rows: int = ROWS, until: int = FITTED):
    """A world after a fit over the rows before the last ones, and that fit."""
    world = World(tiny(seed, agents=agents, rows=rows), seed, rules)
    role = world.aggregator(world.plan(rows=slice(0, until)))
    assert world.run(role) is not None
    return world, role


def truth(world: World, rows: slice) -> tuple[np.ndarray, np.ndarray]:
    """Σ ξ_i x_i and Σ h_i, by somebody who sees everything."""
    names = [member.name for member in world.roster.members]
    weights = np.array([world.agent(i).weight for i in range(len(names))])
    return world.cluster.temperature[names].to_numpy()[rows] @ weights, world.cluster.load.to_numpy()[rows].sum(axis=1)


def watch(world: World, plan: ObservePlan, **options) -> Observed:
    seen = world.run(world.aggregator(plan), **options)
    assert isinstance(seen, Observed), world.reasons
    return seen


def cut(world: World, i: int, rows: list[int]) -> None:
    """Agent i has no reading at these rows, until it reads on."""
    name = world.roster.members[i].name
    time = seconds(world.cluster.time)
    whole = Readings(time, world.cluster.temperature[name].to_numpy(), world.cluster.load[name].to_numpy())
    held = np.delete(np.arange(len(time)), rows)
    world.agent(i).own = replace(
        world.agent(i).own, readings=Readings(time[held], whole.temperature[held], whole.load[held])
    )
    world.renew[i] = lambda: whole


# What is observed


@pytest.mark.parametrize("agents", [4, 5, 16])
def test_what_is_observed_is_the_weighted_sum_of_the_fit_and_the_load_total(agents: int) -> None:
    world, role = fitted(agents=agents)
    seen = watch(world, world.observe_plan(role, length=LATER))
    state, load = truth(world, slice(FITTED, ROWS))
    np.testing.assert_array_equal(seen.time, seconds(world.cluster.time)[FITTED:])
    np.testing.assert_allclose(seen.state, state, rtol=0, atol=agents * 2.0 ** -(BASIS_BITS + 1))
    np.testing.assert_allclose(seen.load, load, rtol=0, atol=1e-6)


def test_observed_rows_continue_the_state_that_the_fit_released() -> None:
    """The same weights as a trusted centre finds for the same rows, up to what `blind` allows itself."""
    world, role = fitted(agents=6)
    seen = watch(world, world.observe_plan(role, length=LATER))
    plain = fit_cluster(world.window(slice(0, FITTED)), "plain", order=1, ridge=20.0, nonnegative=False)
    expected = world.cluster.temperature.iloc[FITTED:] @ plain.weights
    np.testing.assert_allclose(seen.state, expected.to_numpy(), atol=5e-3)


def test_what_is_observed_is_dithered() -> None:
    world, role = fitted(rules=replace(LOOSE, dither=0.5, quantum=0.1))
    seen = watch(world, world.observe_plan(role, length=LATER))
    state, _ = truth(world, slice(FITTED, ROWS))
    off = np.abs(seen.state - state)
    assert 1e-3 < off.max() < 0.025  # Σ ξ_i of numbers uniform in ±0.025 K


def test_the_ledger_says_what_the_aggregator_and_the_agents_learned() -> None:
    world, role = fitted()
    observing = world.aggregator(world.observe_plan(role, length=LATER))
    before = {(r["what"], tuple(r["shape"])) for r in world.agent(1).own.notebook.rows()}
    world.run(observing)
    rows = {(r["what"], tuple(r["shape"])): r["times"] for r in observing.notebook.rows()}
    assert rows == {("load total", (LATER,)): 1, ("state", (LATER,)): 1, ("scalars", (1,)): LATER}
    assert {(r["what"], tuple(r["shape"])) for r in world.agent(1).own.notebook.rows()} == before  # scalars, no series


# From everybody or not at all


def test_a_row_that_somebody_lacks_does_not_open_and_is_given_later() -> None:
    world, role = fitted()
    cut(world, 2, [FITTED + 3, ROWS - 1])
    first = watch(world, world.observe_plan(role, length=LATER - 1))
    assert len(first.time) == LATER - 2
    assert FITTED + 3 not in np.searchsorted(seconds(world.cluster.time), first.time)
    world.agent(2)._renew = world.renew[2]
    again = watch(world, world.observe_plan(role, length=LATER))  # reaches beyond its last reading: it reads on
    np.testing.assert_array_equal(again.time, seconds(world.cluster.time)[[FITTED + 3, ROWS - 1]])
    state, _ = truth(world, slice(FITTED, ROWS))
    np.testing.assert_allclose(again.state, state[[3, LATER - 1]], atol=1e-4)


def test_offers_show_nobody_who_lacks_a_row() -> None:
    """Whoever lacks it, the words that reach the aggregator are masked, and their sum is zero or uniform."""
    totals = []
    for who in (1, 3):
        world, role = fitted()
        cut(world, who, [FITTED + 1, FITTED + 2])
        plan = world.observe_plan(role, length=4)
        observing = world.aggregator(plan)
        sent: list[Masked] = []
        receive = observing.receive

        def note(sender: int, data: bytes, receive=receive, sent=sent):
            message = msgspec.msgpack.decode(data)
            sent.extend([message] * (message["type"] == "Masked" and message["phase"] == "offer"))
            return receive(sender, data)

        observing.receive = note
        world.run(observing)
        total = sum(ring.from_bytes(m["words"], 5) for m in sent)
        assert total[0] == total[3] == 0 and total[4] == AGENTS and (total[1:3] != 0).all()
        totals.append(total[1:3])
    assert (totals[0] != totals[1]).all()


def test_an_observation_without_a_new_row_ends_well_and_empty() -> None:
    world, role = fitted()
    plan = world.observe_plan(role, length=4)
    assert len(watch(world, plan).time) == 4
    charged = world.charges(0)
    assert len(watch(world, plan).time) == 0
    assert world.charges(0) == charged


@pytest.mark.parametrize("claimed", [True, False])
def test_agents_shown_different_offers_share_no_mask(claimed: bool) -> None:
    """Equivocation: one agent is told that a row was not offered, or that another was."""
    world, role = fitted()
    observing = world.aggregator(world.observe_plan(role, length=4))
    agents = [world.agent(i) for i in range(AGENTS)]
    if claimed:
        cut(world, 1, [FITTED + 1])
    told = []

    def lie(i: int, data: bytes) -> list[bytes]:
        message = decode_to_agent(data, 10**6)
        if i != 4 or not isinstance(message, Total):
            return [data]
        words = ring.from_bytes(message.words, 5)
        words[1] = 0 if claimed else 7
        told.append(words)
        return [encode(msgspec.structs.replace(message, words=ring.to_bytes(words)))]

    drive(observing, agents, lie)
    assert told and observing.state is Run.ABORTED and observing.desk.observed is None


def test_an_agent_told_otherwise_answers_under_another_context() -> None:
    """The offers enter the context as they were received, also where the rows they leave are the same."""
    contexts = []
    for altered in (0, 5):
        world, role = fitted()
        cut(world, 1, [FITTED + 1])
        observing = world.aggregator(world.observe_plan(role, length=4))

        def lie(i: int, data: bytes, altered: int = altered, world: World = world) -> list[bytes]:
            message = decode_to_agent(data, 10**6)
            if not isinstance(message, Total):
                return [data]
            words = ring.from_bytes(message.words, 5)
            words[1] += altered  # of a row that is not given
            replies = world.agent(i).receive(encode(msgspec.structs.replace(message, words=ring.to_bytes(words))))
            contexts.append(world.agent(i).part.context)
            assert len(replies) == 1
            return []

        drive(observing, [world.agent(i) for i in range(AGENTS)], lie)
    assert len(contexts) == 2 * AGENTS and len(set(contexts[:AGENTS])) == 1
    assert set(contexts[AGENTS:]) != set(contexts[:AGENTS])


@pytest.mark.parametrize("agents", [3, 10, 64, 10_000])
def test_the_state_has_sixteen_fractional_bits_and_no_more(agents: int) -> None:
    state, load = show_layout(agents, 4).blocks
    assert state.bits == 16 and state.bound == 51.0 and agents * load.bound * 2.0**load.bits < 2**48


def test_an_offer_that_nobody_made_opens_as_noise_and_names_nobody() -> None:
    """A dishonest aggregator says to all that everybody has a row: no agent refuses, and the row is random."""
    world, role = fitted()
    cut(world, 1, [FITTED + 1])
    observing = world.aggregator(world.observe_plan(role, length=4))
    sums: list[np.ndarray] = []

    def lie(i: int, data: bytes) -> list[bytes]:
        message = decode_to_agent(data, 10**6)
        if not isinstance(message, Total):
            return [data]
        words = ring.from_bytes(message.words, 5)
        words[1] = 0
        return [encode(msgspec.structs.replace(message, words=ring.to_bytes(words)))]

    def note(i: int, data: bytes) -> list[bytes]:
        message = msgspec.msgpack.decode(data)
        assert message["type"] != "Refuse"
        if message.get("phase") == "show":
            sums.append(ring.from_bytes(message["words"], 9))
        return [data]

    drive(observing, [world.agent(i) for i in range(AGENTS)], lie, note)
    total = sum(sums)
    assert len(sums) == AGENTS and int(total[-1]) == AGENTS  # masks cancel,
    fine = np.abs(ring.decode(total[:4], BASIS_BITS)) < 100
    assert fine.tolist() == [True, False, True, True]  # and the row is no temperature
    assert abs(int(total[5].astype(np.int64))) > 2**48
    assert seconds(world.cluster.time)[FITTED + 1] not in world.agent(1).own.exposure.released


def test_a_part_that_is_missing_leaves_noise() -> None:
    world, role = fitted()
    observing = world.aggregator(world.observe_plan(role, length=4))
    sums: list[np.ndarray] = []

    def note(i: int, data: bytes) -> list[bytes]:
        message = msgspec.msgpack.decode(data)
        if message.get("phase") == "show":
            sums.append(ring.from_bytes(message["words"], 9))
        return [data]

    drive(observing, [world.agent(i) for i in range(AGENTS)], None, note)
    for left_out in range(AGENTS):
        total = sum(words for i, words in enumerate(sums) if i != left_out)
        assert (np.abs(ring.decode(total[:8], BASIS_BITS)) > 1e3).all()


# Each row once


def test_a_row_is_shown_once_by_observations_and_fits_together() -> None:
    world, role = fitted()
    assert len(watch(world, world.observe_plan(role, length=6)).time) == 6
    assert len(watch(world, world.observe_plan(role, length=LATER)).time) == LATER - 6
    refit = world.run(world.aggregator(world.plan(rows=slice(4, ROWS))))
    assert len(refit.time) == 0  # World._conclude has compared all rows ever released


def test_rows_of_another_roster_or_fit_are_not_shown_again() -> None:
    """Two cohorts, then one of them: what all released is not released by some."""
    cluster = tiny(11, agents=19, rows=ROWS, owners=18)
    world = World(cluster, 1)
    both = world.aggregator(world.plan(rows=slice(0, FITTED)))
    assert world.run(both) is not None
    some = world.aggregator(world.plan(rows=slice(0, FITTED)), {0})
    assert world.run(some) is not None
    first = world.run(world.aggregator(world.observe_plan(both, length=4)))
    second = world.run(world.aggregator(world.observe_plan(some, length=8), {0}))
    assert len(first.time) == 4 and len(second.time) == 4


def test_a_row_is_charged_as_one_more_total_with_the_weight_as_coefficient() -> None:
    world, role = fitted()
    watch(world, world.observe_plan(role, length=LATER))
    for i in range(AGENTS):
        exposure = written(world.stores[i]).exposure
        rank, rows = world.charges(i)[-1]
        assert (rank, rows) == (OUTSIDE_BASIS, LATER)
        assert exposure.book[-1].coefficient == world.agent(i).weight
        np.testing.assert_array_equal(exposure.on(seconds(world.cluster.time)[FITTED:])[0], 1)


def test_no_row_is_in_more_totals_than_the_cap_with_observations_counted() -> None:
    """At the cap a refit over observed rows gets along with one direction fewer."""
    rules = replace(LOOSE, totals=3)
    world, role = fitted(agents=8, rules=rules)
    watch(world, world.observe_plan(role, length=LATER))
    assert world.run(world.aggregator(world.plan(rows=slice(LATER, ROWS)))) is not None
    totals = written(world.stores[1]).exposure.totals
    assert totals.max() == 3
    more = world.observe_plan(role, length=LATER)
    assert len(watch(world, more).time) == 0


def test_a_row_at_an_agents_limit_is_not_given() -> None:
    world, role = fitted(rules=replace(LOOSE, totals=4))
    rows = seconds(world.cluster.time)[FITTED : FITTED + 2]
    for _ in range(4):
        world.agent(2).own.exposure.charge(rows[:1], 0.01)
    world.agent(3).own.exposure.charge(rows[1:], 0.9999)
    seen = watch(world, world.observe_plan(role, length=LATER))
    assert len(seen.time) == LATER - 2 and not set(seen.time.tolist()) & set(rows.tolist())


# The agents' rules


def announced(world: World, plan: ObservePlan, cohorts: set[int] | None = None) -> str:
    """What an agent answers to the plan: nothing if it is ready, else its reason."""
    (reply,) = world.agent(1).receive(world.aggregator(plan, cohorts).start()[0].data)
    message = msgspec.msgpack.decode(reply)
    return message.get("reason", "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"fit": bytes(32)}, "no weight of that fit"),
        ({"step_seconds": 2 * STEP}, "grid"),
        ({"step_seconds": STEP // 2}, "grid"),
        ({"start": 60}, "grid"),
        ({"start": -STEP}, "after it"),
        ({"start": 400 * STEP}, "days after the fit"),
        ({"length": 369}, "days after the fit"),
        ({"length": 0}, "between 1 and"),
        ({"length": 2**40}, "between 1 and"),
        ({"step_seconds": 0}, "between 1 and"),
        ({"start": 2**53}, "off the calendar"),
        ({"version": 2}, "speaks 1"),
    ],
)
def test_an_agent_refuses_an_observation_outside_its_rules_and_says_why(change: dict, why: str) -> None:
    world, role = fitted()
    plan = world.observe_plan(role, length=LATER)
    assert announced(world, plan) == ""
    change = {name: value + plan.start if name == "start" else value for name, value in change.items()}
    assert why in announced(world, msgspec.structs.replace(plan, **change))


@pytest.mark.parametrize(("rules", "length", "why"), [
    ({"rows_per_day": 3}, 4, "more than 3 rows of a day"), ({"rows_per_day": 4}, 4, ""),
    ({"rows_per_day": 0}, 1, "more than 0 rows"), ({"days_after_fit": 1}, 5, "more than 1 days"),
    ({"days_after_fit": 1}, 4, ""), ({"least_agents": 6}, 1, "at least 6"),
])  # fmt: skip
def test_the_rate_is_the_agents_own(rules: dict, length: int, why: str) -> None:
    world, role = fitted()
    world.agent(1).own = replace(world.agent(1).own, rules=replace(LOOSE, **rules))
    said = announced(world, world.observe_plan(role, length=length))
    assert why in said and bool(why) == bool(said)


def test_rows_shown_before_count_for_the_rate_of_their_day() -> None:
    world, role = fitted(rules=replace(LOOSE, rows_per_day=4))
    stamps = world.observe_plan(role).start + np.array([600, 1200])  # of the same day, between the rows
    world.agent(1).own.exposure.release(stamps)
    assert "more than 4 rows" in announced(world, world.observe_plan(role, length=4))
    assert announced(world, world.observe_plan(role, first=4, length=4)) == ""


def test_a_roster_other_than_the_fits_is_refused() -> None:
    cluster = tiny(11, agents=19, rows=ROWS, owners=18)
    world = World(cluster, 1)
    role = world.aggregator(world.plan(rows=slice(0, FITTED)))
    world.run(role)
    plan = world.observe_plan(role)
    who = next(i for i, m in enumerate(world.roster.members) if m.cohort == 0)
    announce = Announce(plan=plan, roster=world.roster.hash(), cohorts=(0,), attempt=99)
    (reply,) = world.agent(who).receive(encode(announce))
    assert b"no weight of that fit" in reply


def test_rules_of_observations_out_of_range_are_refused() -> None:
    for wrong in ({"rows_per_day": -1}, {"days_after_fit": -1}):
        with pytest.raises(UsageError, match="rows_per_day"):
            atdm.Rules(**wrong)


# Restarts


def test_agents_restarted_before_every_message_send_what_agents_that_never_stopped_send() -> None:
    sent = []
    for restless in (False, True):
        world, role = fitted()
        if restless:
            deliver = world.deliver
            world.deliver = lambda i, data, w=world, d=deliver: (w.restart(i), d(i, data))[1]
        plan = world.observe_plan(role, length=LATER)
        first, second = watch(world, plan), watch(world, plan)
        assert len(first.time) == LATER and len(second.time) == 0
        sent.append((world.sent, first.state.tolist(), [store.read() for store in world.stores]))
    assert sent[0] == sent[1]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("who", [0, AGENTS - 1], ids=["leader", "other"])
def test_killed_at_any_write_an_agent_sends_one_message_per_context_and_a_row_once(who: int, after: bool) -> None:
    moment = 0
    while True:  # World.hand_out compares messages, World._conclude the rows released
        moment += 1
        world, role = fitted()
        world.stores[who].die, world.stores[who].after = moment, after
        plan = world.observe_plan(role, length=LATER)
        assert len(watch(world, plan).time) == LATER
        if world.stores[who].die > 0:
            break
        assert len(watch(world, plan).time) == 0
    assert moment > 4  # snapshot and entry of the announcement, keys, total, end


def test_the_weight_is_kept_although_the_end_of_the_fit_was_not_heard() -> None:
    world = World(tiny(3, agents=AGENTS, rows=ROWS), 3)
    deliver = world.deliver

    def deaf(i: int, data: bytes) -> list[bytes]:
        if i == 2 and msgspec.msgpack.decode(data)["type"] == "Finished":
            raise Killed
        return deliver(i, data)

    world.deliver = deaf
    role = world.aggregator(world.plan(rows=slice(0, FITTED)))
    assert world.run(role) is not None
    world.deliver = deliver
    world.restart(2)
    assert len(watch(world, world.observe_plan(role, length=4)).time) == 4


def test_a_fit_that_broke_off_before_its_release_is_nothing_to_observe() -> None:
    world = World(tiny(3, agents=AGENTS, rows=ROWS), 3)
    deliver, heard = world.deliver, []

    def deaf(i: int, data: bytes) -> list[bytes]:
        heard.extend([data] * (i == 2))
        if i == 2 and len(heard) > 7:  # the others have weights by then
            raise Killed
        return deliver(i, data)

    world.deliver = deaf
    broken = world.aggregator(world.plan(rows=slice(0, FITTED)))
    assert world.run(broken) is None and len(heard) > 7
    world.deliver = deliver
    assert "no weight of that fit" in announced(world, world.observe_plan(broken))


def test_an_agent_that_lost_its_state_refuses() -> None:
    world, role = fitted()
    world.lose(2)
    assert world.run(world.aggregator(world.observe_plan(role))) is None
    assert "no weight of that fit" in world.reasons[-1]


@pytest.mark.parametrize("seed", range(12))
def test_with_vanishing_agents_an_observation_is_right_or_absent(seed: int) -> None:
    world, role = fitted(seed, agents=4 + seed % 5)
    state, load = truth(world, slice(FITTED, ROWS))
    time = seconds(world.cluster.time)[FITTED:]
    for first in (0, 0, 4, 4):
        seen = world.run(world.aggregator(world.observe_plan(role, first=first, length=6)), chaos=0.08)
        if seen is not None:
            at = np.searchsorted(time, seen.time)
            np.testing.assert_allclose(seen.state, state[at], atol=1e-4)
            np.testing.assert_allclose(seen.load, load[at], atol=1e-6)


def test_readings_that_cannot_be_read_refuse_with_a_reason() -> None:
    world, role = fitted()

    def torn() -> Readings:
        raise DataError("its readings cannot be read at present")

    cut(world, 1, [ROWS - 1])
    world.agent(1)._renew = torn
    assert "cannot be read at present" in announced(world, world.observe_plan(role, length=LATER))


def test_the_part_of_an_agent_shows_no_weight_in_its_repr() -> None:
    world, role = fitted()
    observing = world.aggregator(world.observe_plan(role))
    agents = [world.agent(i) for i in range(AGENTS)]
    ready = [agent.receive(observing.start()[0].data)[0] for agent in agents]
    keys = [out for i, data in enumerate(ready) for out in observing.receive(i, data)]
    agents[1].receive(keys[0].data)
    part = agents[1].part
    assert isinstance(part, ObservePart) and part.phase is Phase.OFFER
    for thing in (part, part.fit, agents[1].own.memory, part.readings):
        assert repr(part.weight) not in repr(thing)


# In one process, with a state folder


def one_process(tmp_path: Path) -> tuple[Cluster, atdm.Fit, dict]:
    cluster = tiny(3, agents=AGENTS, rows=ROWS)
    options = {"rules": LOOSE, "dither": 0.0, "state": tmp_path / "state"}
    early = World(cluster).window(slice(0, FITTED))
    return cluster, atdm.fit(early, order=1, ridge=20.0, nonnegative=False, **options), options


def test_a_simulation_is_observed_with_the_model_read_from_its_file(tmp_path: Path) -> None:
    cluster, fit, options = one_process(tmp_path)
    fit.model.save(tmp_path / "model.json")
    model = atdm.Model.load(tmp_path / "model.json")
    assert model.origin == fit.model.origin and model.origin.end == cluster.time[FITTED - 1]
    seen = atdm.observe(cluster, model, back="24h", **options)
    assert seen.asked == 4 and list(seen.table.index) == list(cluster.time[-4:])
    rest = atdm.observe(cluster, model, **options)
    assert rest.asked == LATER and list(rest.table.index) == list(cluster.time[FITTED:-4])
    for found in (seen, rest):
        expected = cluster.temperature.loc[found.table.index] @ fit.weights
        np.testing.assert_allclose(found.table["aggregate_temp_c"], expected, atol=1e-4)
        np.testing.assert_allclose(found.table["load_kw"], cluster.load.loc[found.table.index].sum(axis=1), atol=1e-6)
    document = seen.as_dict()
    assert document["asked"] == 4 and document["rows"][0]["time"] == cluster.time[-4].isoformat()
    assert {row["what"] for row in document["ledger"] if row["party"] == "aggregator"} == {
        "scalars", "load total", "state",
    }  # fmt: skip


def test_a_model_whose_agents_are_gone_is_not_observed(tmp_path: Path) -> None:
    cluster, fit, options = one_process(tmp_path)
    gone = atdm.fit(cluster, order=1, ridge=20.0, nonnegative=False, rules=LOOSE)
    assert gone.model.origin is None
    with pytest.raises(UsageError, match="which agents released it"):
        atdm.observe(cluster, gone.model, **options)
    with pytest.raises(UsageError, match="no row after the fit"):
        atdm.observe(World(cluster).window(slice(0, FITTED)), fit.model, **options)


def test_a_forecast_goes_on_from_what_was_observed(tmp_path: Path) -> None:
    cluster, fit, options = one_process(tmp_path)
    seen = atdm.observe(World(cluster).window(slice(0, ROWS - 4)), fit.model, **options).table
    plan = cluster.load.sum(axis=1).iloc[ROWS - 4 :]
    found = atdm.forecast(fit.model, plan, cluster.weather, observed=seen).table
    assert list(found.index) == list(cluster.time[ROWS - 5 :])  # one row known, four forecast
    by_hand = fit.model.simulate(
        pd.concat([seen["load_kw"].iloc[-1:], plan]), cluster.weather.iloc[ROWS - 5 :],
        seen["aggregate_temp_c"].to_numpy()[-1:],
    )  # fmt: skip
    np.testing.assert_array_equal(found["aggregate_temp_c"], by_hand)
    with pytest.raises(UsageError, match="neither initial values nor a start"):
        atdm.forecast(fit.model, plan, cluster.weather, [20.0], observed=seen)


def test_an_aggregator_of_a_fit_is_none_of_an_observation() -> None:
    world, role = fitted()
    assert isinstance(role, Aggregator) and role.run.plan.protocol == "blind"
    with pytest.raises(atdm.PeerError, match="observation was expected"):
        _ = role.run.observation
    observing = world.aggregator(world.observe_plan(role))
    world.run(observing)
    with pytest.raises(atdm.PeerError, match="fit was expected"):
        _ = observing.run.plan
