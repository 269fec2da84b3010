"""Rows of state and load: from everybody or not at all, under one weighting and one company, up to four times."""

from dataclasses import replace
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from atdm.crypto import ring
from atdm.data.clock import seconds
from atdm.errors import DataError
from atdm.protocol.account import OTHER_GRID, OTHER_WEIGHTING
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.collect import Collected, show_layout
from atdm.protocol.company import BEFORE_FIRST, NOT_YET, OTHER_STEP, TOO_FEW, bits
from atdm.protocol.messages import Masked, Total
from atdm.protocol.plan import Collect, first_day
from atdm.protocol.rules import Rules
from tests.clusters import tiny
from tests.protocol.drive import altering, drive
from tests.protocol.world import LOOSE, World, written

AGENTS, ROWS, FITTED, DAY_ROWS = 5, 60, 48, 4
LATER, STEP = ROWS - FITTED, 6 * 3600


def world(seed: int = 3, *, agents: int = AGENTS, rules: Rules = LOOSE, rows: int = ROWS) -> World:
    return World(tiny(seed, agents=agents, rows=rows), seed, rules)


def fitted(**options) -> tuple[World, Aggregator]:
    """A world after a fit over the rows before the last ones, and that fit."""
    here = world(**options)
    role = here.aggregator(here.plan(rows=slice(0, FITTED)))
    assert here.run(role) is not None, here.reasons
    return here, role


def watch(here: World, plan: Collect, **options) -> Collected:
    seen = here.run(here.aggregator(plan), **options)
    assert isinstance(seen, Collected), here.reasons
    return seen


# What is collected


@pytest.mark.parametrize("agents", [4, 16])
def test_with_equal_weights_it_is_the_mean_and_the_load_total(agents: int) -> None:
    here = world(agents=agents)
    seen = watch(here, here.collect(4, 20))
    np.testing.assert_array_equal(seen.time, seconds(here.cluster.time)[4:24])
    np.testing.assert_allclose(seen.state, here.cluster.temperature.to_numpy()[4:24].mean(axis=1), rtol=0, atol=1e-7)
    np.testing.assert_allclose(seen.load, here.cluster.load.to_numpy()[4:24].sum(axis=1), rtol=0, atol=1e-6)


def test_under_a_fit_it_is_the_state_of_that_fit_continued() -> None:
    here, role = fitted()
    seen = watch(here, here.collect(FITTED, LATER, role))
    names = [member.name for member in here.roster.members]
    weights = [written(store).fits[role.run.id].weight for store in here.stores]
    expected = here.cluster.temperature[names].to_numpy()[FITTED:] @ weights
    np.testing.assert_allclose(seen.state, expected, rtol=0, atol=AGENTS * 2.0**-17)  # 16 fractional bits, no more
    assert {show_layout(agents, 4, equal=False).blocks[0].bits for agents in (3, 64, 10_000)} == {16}
    state = role.desk.outcome.estimate.state
    np.testing.assert_allclose(here.cluster.temperature[names].to_numpy()[:FITTED] @ weights, state, atol=1e-4)


def test_what_is_collected_is_dithered() -> None:
    here = world(rules=replace(LOOSE, dither=0.5, quantum=0.1))
    off = np.abs(watch(here, here.collect(0, ROWS)).state - here.cluster.temperature.to_numpy().mean(axis=1))
    assert 1e-3 < off.max() < 0.025  # means of numbers uniform in ±0.025 K


def test_only_the_rows_asked_for_are_given() -> None:
    here, wanted = world(), np.arange(8) % 3 == 1
    seen = watch(here, here.collect(0, 8, asked=bits(wanted)))
    np.testing.assert_array_equal(seen.time, seconds(here.cluster.time)[:8][wanted])
    assert all(written(store).account.time.tolist() == seen.time.tolist() for store in here.stores)


def test_the_ledger_says_what_the_aggregator_and_the_agents_learned() -> None:
    here = world()
    role = here.aggregator(here.collect(0, LATER))
    here.run(role)
    rows = {(r["what"], tuple(r["shape"])): r["times"] for r in role.notebook.rows()}
    assert rows == {("load total", (LATER,)): 1, ("state", (LATER,)): 1, ("scalars", (1,)): LATER}
    assert {r["what"] for r in here.agent(1).own.notebook.rows()} == {"scalars"}


# From everybody or not at all


def test_a_row_that_somebody_lacks_does_not_open_and_is_given_later() -> None:
    here = world()
    here.hold(2, without=[3])
    assert 3 not in (first := watch(here, here.collect(0, 8)).time - here.collect().start) // STEP and len(first) == 7
    here.hold(2)
    np.testing.assert_allclose(watch(here, here.collect(3, 1)).state, here.cluster.temperature.iloc[3].mean())


def altered(here: World, who, word: int) -> tuple[Aggregator, list[Masked]]:
    """A run over four rows in which some agents see another offer of the second, and the words of `show` that left."""
    role, shows = here.aggregator(here.collect(0, 4)), []

    def lie(i: int, message: Total) -> list[Total]:
        words = ring.from_bytes(message.words, 5)
        words[1] = word if i in who else words[1]
        return [msgspec.structs.replace(message, words=ring.to_bytes(words))]

    note = altering(Masked, lambda i, message: shows.extend([message] * (message.phase == "show")) or [message])
    drive(role, [here.agent(i) for i in range(AGENTS)], altering(Total, lie), note)
    assert len(shows) == AGENTS  # nobody refuses
    return role, shows


@pytest.mark.parametrize(("lacking", "word", "rows"), [
    ([1], 0, {3, 4}),  # a row claimed
    ([], 7, {3, 4}),  # a row withheld
    ([1], 5, {3}),  # offers that leave the same rows and differ in bytes share no mask either
])  # fmt: skip
def test_agents_shown_different_offers_share_no_mask(lacking: list[int], word: int, rows: set[int]) -> None:
    """One agent is shown another offer of the second row than the others; rows: how many each shows then."""
    here = world()
    here.hold(1, without=lacking)
    role, shows = altered(here, {4}, word)
    assert role.state is AggregatorState.ABORTED and role.desk.collected is None
    assert {(len(show.words) // 8 - 1) // 2 for show in shows} == rows


def test_an_offer_that_nobody_made_opens_as_noise_and_names_nobody() -> None:
    """A dishonest aggregator says to all that everybody has a row: no agent refuses, and the row is random."""
    here = world()
    here.hold(1, without=[1])
    _, shows = altered(here, range(AGENTS), 0)
    total = sum(ring.from_bytes(show.words, 9) for show in shows)
    assert int(total[-1]) == AGENTS  # masks cancel,
    state, _ = show_layout(AGENTS, 4, equal=True).blocks
    fine = np.abs(ring.decode(total[:4], state.bits)) < 100 * AGENTS
    assert fine.tolist() == [True, False, True, True]  # and the row is no temperature
    assert len(written(here.stores[1]).account.time) == 3 and len(written(here.stores[2]).account.time) == 4
    for left_out in range(AGENTS):  # a part that is missing leaves noise everywhere
        rest = sum(ring.from_bytes(show.words, 9) for i, show in enumerate(shows) if i != left_out)
        assert (np.abs(ring.decode(rest[:8], state.bits)) > 1e3).all()


# Again, and otherwise


def test_a_row_is_given_four_times_with_the_same_number_and_then_no_more() -> None:
    here = world()
    first = watch(here, here.collect(0, 4))
    for i in range(AGENTS):  # late corrections do not count
        here.hold(i, temperature=here.readings(i).temperature + 1.0)
    for _ in range(3):
        again = watch(here, here.collect(0, 4))
        assert again.state.tolist() == first.state.tolist() and again.load.tolist() == first.load.tolist()
    assert len(watch(here, here.collect(0, 4)).time) == 0
    assert watch(here, here.collect(0, 6)).time.tolist() == (first.time[-1] + STEP * np.arange(1, 3)).tolist()
    assert all(written(store).account.shown.tolist() == [4] * 4 + [1] * 2 for store in here.stores)


def test_a_day_is_shown_under_one_weighting_and_one_grid() -> None:
    here, role = fitted(rows=80)
    assert here.answer(here.collect(0, 4)).reason == OTHER_WEIGHTING
    watch(here, here.collect(FITTED, DAY_ROWS, role))
    watch(here, here.collect(FITTED + DAY_ROWS, DAY_ROWS))
    assert here.answer(here.collect(FITTED, DAY_ROWS)).reason == OTHER_WEIGHTING
    assert here.answer(here.collect(FITTED + DAY_ROWS, DAY_ROWS, role)).reason == OTHER_WEIGHTING
    assert here.answer(here.collect(FITTED + DAY_ROWS, 2, step_seconds=2 * STEP)).reason == OTHER_GRID
    reply = here.answer(here.plan(rows=slice(FITTED + DAY_ROWS, 80)))
    assert reply.reason == OTHER_WEIGHTING and reply.days == b"\x7e"  # out on the first of seven


def test_rows_under_a_fit_need_its_whole_company() -> None:
    here, role = fitted(agents=6)
    assert here.run(here.aggregator(here.collect(FITTED, 4, role)), gone={2}) is None
    assert "its whole company" in here.reasons[-1]
    assert len(watch(here, here.collect(FITTED, 4), gone={2}).time) == 3  # equal weights: all but the row at midnight


def test_at_the_midnight_where_a_home_leaves_six_hours_are_not_given() -> None:
    here = World(tiny(2, agents=6, rows=24 * 9, step="1h"), 2)
    before = watch(here, here.collect(24, 48))
    after = watch(here, here.collect(72, 48), gone={1})
    midnight = here.collect(72).start
    assert before.time[-1] == midnight - 3600 and after.time[0] == midnight + 6 * 3600 and len(after.time) == 42
    for first, gone in ((24 * 6, set()), (0, {1})):  # a home that returns, and a day before with fewer than after
        assert here.run(here.aggregator(here.collect(first, 24)), gone=gone) is None
        assert "only shrink" in here.reasons[-1]
    assert len(watch(here, here.collect(0, 24)).time) == 24


# The agents' rules


@pytest.mark.parametrize(("change", "why"), [
    ({"fit": bytes(32)}, "no weight of that fit"),
    ({"step_seconds": 2 * STEP}, "grid"),
    ({"step_seconds": 600}, "at least 15 min"),
    ({"step_seconds": 5 * 3600}, "divides the day"),
    ({"start": 60}, "counted from midnight"),
    ({"start": -STEP}, "after it"),
    ({"start": 400 * STEP}, "days after the fit"),
    ({"length": 369}, "days after the fit"),
    ({"length": 0}, "between 1 and"),
    ({"length": 2**40}, "between 1 and"),
    ({"step_seconds": 0}, "between 1 and"),
    ({"start": 2**53}, "off the calendar"),
    ({"version": 1}, "speaks 2"),
])  # fmt: skip
def test_an_agent_stays_out_of_what_is_outside_its_rules_and_says_why(change: dict, why: str) -> None:
    here, role = fitted()
    plan = here.collect(FITTED, LATER, role)
    assert here.answer(plan).reason == ""
    change = {name: value + plan.start if name == "start" else value for name, value in change.items()}
    assert why in here.answer(msgspec.structs.replace(plan, **change)).reason


@pytest.mark.parametrize(("rules", "fit", "why"), [
    ({"weights": "equal"}, True, "--weights fitted"), ({"weights": "equal"}, False, ""),
    ({"protocols": ("moments",)}, False, "moments only"), ({"days_after_fit": 2}, True, "more than 2 days"),
    ({"days_after_fit": 3}, True, ""),
])  # fmt: skip
def test_the_owner_decides_what_is_given(rules: dict, fit: bool, why: str) -> None:
    here, role = fitted()
    here.agent(1).own = replace(here.agent(1).own, rules=replace(LOOSE, **rules))
    said = here.answer(here.collect(FITTED, LATER, role if fit else None)).reason
    assert why in said and bool(why) == bool(said)


def test_a_day_is_judged_once_by_half_its_rows_up_to_the_last_one_asked_for() -> None:
    here = world()
    here.hold(1, without=[0, 1, 2, 4, 5, 9, 59])
    whole = here.answer(here.collect(0, 12))
    assert whole.days == bytes([0b110]) and whole.reason == TOO_FEW  # three of four rows missing, two, one
    here.hold(1)
    assert here.answer(here.collect(0, 12)).days == bytes([0b110])  # out for good
    here.hold(1, without=[57, 58, 59])
    assert here.answer(here.collect(56, 1)).days == b"\1"  # its only row so far is there
    assert here.answer(here.collect(56, 4)).days == b"\1"  # in for good: what it lacks is lost for all
    assert here.answer(here.collect(60, 4)).days == b"\0"  # after its newest reading: not judged yet,
    assert written(here.stores[1]).account.days.get((here.collect(60).start) // 86400) is None


def test_a_day_of_which_nothing_can_be_told_yet_is_not_judged() -> None:
    """It would be lost for good: by a source that is two rows late, by one announcement of a century, or of a grid that
    is too fine."""
    here = world()
    late, judged = here.collect(40, 4), lambda plan: written(here.stores[1]).account.days.get(first_day(plan))
    here.hold(1, without=[40, 41, *range(43, ROWS)])  # of four rows the third; the fourth is due
    answer = here.answer(late)
    assert answer.days == b"\0" and answer.reason == NOT_YET and judged(late) is None
    here.hold(1)
    assert here.answer(late).days == b"\1"
    here.hold(1, without=range(12))
    early = here.collect(4, 4)
    assert here.answer(early).reason == BEFORE_FIRST and judged(early) is None
    finer = msgspec.structs.replace(here.collect(20, 4), step_seconds=3600, length=24)
    answer = here.answer(finer)
    assert answer.days == b"\0" and answer.reason == OTHER_STEP and judged(finer) is None
    odd = msgspec.structs.replace(finer, step_seconds=8 * 3600, length=3)  # rows every 8 h, where it has them every 6 h
    assert here.answer(odd).reason == OTHER_STEP and judged(odd) is None
    assert here.answer(here.collect(20, 4)).days == b"\1"
    here.hold(1, without=range(52, ROWS))
    here.agent(1).own = replace(here.agent(1).own, rules=replace(here.agent(1).own.rules, day_share=0.0))
    assert here.answer(here.collect(56, 4)).reason == NOT_YET  # whatever share of a day is enough


def test_a_reading_that_cannot_be_is_found_before_the_run_and_its_day_is_out() -> None:
    here = world()
    for i, code in ((1, 327.67), (2, np.nan), (3, -40.0)):
        series = here.readings(i).temperature.copy()
        series[4 * i] = code
        here.hold(i, temperature=series)
        assert here.answer(here.collect(0, 20), i).days == bytes([0b11111 ^ 1 << i])
    assert len(watch(here, here.collect(0, 4)).time) == 4


def test_readings_that_cannot_be_read_are_a_reason_not_a_crash() -> None:
    here = world()
    here.agent(1)._renew = Mock(side_effect=DataError("its readings cannot be read at present"))
    assert "cannot be read at present" in here.answer(here.collect(ROWS - 2, 4)).reason
    here.agent(1)._renew = lambda: here.readings(1)
    assert here.answer(here.collect(ROWS - 2, 4)).days == b"\1"


# Whose weight it is


def test_the_weight_is_kept_although_the_end_of_the_fit_was_not_heard() -> None:
    here = world()
    role = here.aggregator(here.plan(rows=slice(0, FITTED)))
    assert here.run(role, deaf=lambda i, data: i == 2 and b"Finished" in data) is not None
    here.restart(2)
    assert len(watch(here, here.collect(FITTED, 4, role)).time) == 4
