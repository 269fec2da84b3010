"""The rules of `blind` (docs/spec.md §5 and §6), one claim each, at their edges. mutants.py takes each of them out."""

from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from atdm.crypto import ring
from atdm.crypto.keys import SigningKey, digest
from atdm.errors import DataError, PeerError, RunAborted, UsageError
from atdm.protocol import account as rules_of
from atdm.protocol.account import Account, Answered, Settled, Shown
from atdm.protocol.aggregator import State
from atdm.protocol.blind import release, script
from atdm.protocol.blind.direction import Look, OwnSeries, RidgeLadder, step_values
from atdm.protocol.blind.layouts import SQUARE_SUM, open_layout, saturated, step_layout
from atdm.protocol.blind.release import check_effective
from atdm.protocol.collect import show_layout
from atdm.protocol.company import TOO_FEW, check_company, judge
from atdm.protocol.messages import Keys, Masked, Ready, Release, Total, decode_to_agent, decode_to_aggregator, encode
from atdm.protocol.plan import DAY, Collect, Plan, check_collect, check_plan
from atdm.protocol.readings import LEAST_QUANTUM, Readings, dithered
from atdm.protocol.roster import Roster, check_roster, sign_roster
from atdm.protocol.rules import Rules, check_agents
from atdm.protocol.session import make_keys
from atdm.protocol.store import Consented
from tests.clusters import tiny
from tests.protocol.drive import announcing, drive, parties
from tests.protocol.world import LOOSE, World
from tests.reliability.places import MEMBER, announcement, place, recorded, stand

BIG = 10**9
FIRST = 28 * 700  # the first day of a block
STEP = 1800
FITTED = Rules(weights="fitted")
AUTHORITY = SigningKey(b"a" * 32)


def ids(*numbers: int) -> bytes:
    """A company of made-up identities."""
    return b"".join(bytes([n]) * 32 for n in numbers)


def rows(day: int = FIRST, days: int = 1, **changes) -> Collect:
    return msgspec.structs.replace(Collect(step_seconds=STEP, start=day * DAY, length=48 * days), **changes)


def fit(day: int = FIRST, days: int = 30, **changes) -> Plan:
    made = Plan(
        protocol="blind", order=2, ridge=100.0, period=48, step_seconds=STEP, timezone="UTC", start=day * DAY,
        length=48 * days, train=0.75, nonnegative="ridge", tolerance=1e-12, solver_tolerance=0.03, weather=bytes(32),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def account(*bookings) -> Account:
    made = Account()
    for booking in bookings:
        made.book(booking)
    return made


def settled(day: int, company: bytes = ids(1, 2, 3), weights: str = "equal", step: int = STEP) -> Settled:
    return Settled((day,), company, weights, step)


def answered(day: int, question: bytes, kind: str = "total", plan: bytes = b"p", days: int = 1) -> Answered:
    return Answered(tuple(range(day, day + days)), question, kind, plan)


def readings(day: int = FIRST, count: int = 48, temperature: float = 20.0, step: int = STEP) -> Readings:
    return Readings(day * DAY + step * np.arange(count), np.full(count, temperature), np.ones(count))


def roster_of(*owners: str) -> Roster:
    return sign_roster(
        AUTHORITY, [(f"zone{i}", owner, SigningKey(bytes([i + 1]) * 32).public) for i, owner in enumerate(owners)]
    )


# Companies and days


def test_a_day_has_one_company() -> None:
    known = account(settled(FIRST + 3))
    assert known.refuses_company([FIRST + 3], ids(1, 2, 3)) is None
    assert known.refuses_company([FIRST + 3], ids(1, 2)) == rules_of.OTHER_COMPANY
    assert known.refuses_company([FIRST + 2, FIRST + 3], ids(1, 2, 3, 4)) == rules_of.OTHER_COMPANY


def test_companies_only_shrink_within_a_block() -> None:
    """In whatever order days are summed; in the next block anything goes."""
    known = account(settled(FIRST + 5))
    for other in (FIRST + 6, FIRST + 27):
        assert known.refuses_company([other], ids(1, 2, 3, 4)) == rules_of.GROWN
        assert known.refuses_company([other], ids(1, 2)) is None
    for other in (FIRST, FIRST + 4):
        assert known.refuses_company([other], ids(1, 2)) == rules_of.GROWN
        assert known.refuses_company([other], ids(1, 2, 3, 4)) is None
    for other in (FIRST - 1, FIRST + 28):
        assert known.refuses_company([other], ids(7, 8, 9)) is None


def test_checking_and_booking_a_company_are_one_step() -> None:
    known = account(settled(FIRST))
    with pytest.raises(RunAborted, match=rules_of.OTHER_COMPANY):
        known.settle(readings(), ids(1, 2), "equal", STEP)
    assert known.settle(readings(FIRST + 1), ids(1, 2), "equal", STEP) == (FIRST + 1,)
    assert known.days[FIRST + 1].company and len(known.time) == 48


def test_a_company_has_ten_owners_and_two_thirds_of_those_enrolled() -> None:
    enrolled = roster_of(*(f"home{i}" for i in range(15)), "home0", "home1")  # 17 agents of 15 owners
    twice = [m for m in enrolled.members if m.owner in ("home0", "home1")]
    others = [m for m in enrolled.members if m not in twice]

    def accepted(owners: int, whole: Roster = enrolled, **rules) -> bool:
        members = tuple(twice + others[: owners - 2])
        try:
            check_company(members, whole, [FIRST], ids(1, 2), Account(), Rules(**rules), rows())
        except RunAborted as error:
            assert "smaller than this agent accepts" in str(error)
            return False
        return True

    assert accepted(10) and not accepted(9)
    assert not accepted(9, least_agents=3), "less than two thirds"
    assert accepted(9, roster_of(*(f"home{i}" for i in range(9))), least_agents=9)


@pytest.mark.parametrize("company, given", [(ids(1, 2, 3), 48), (ids(1, 2), 36)])
def test_rows_within_six_hours_of_a_change_of_company_are_not_given(company: bytes, given: int) -> None:
    """Twelve half hours beside the day that others summed; on the other side too."""
    for day in (FIRST + 2, FIRST + 4):
        near = account(settled(FIRST + 3)).beside_a_change(readings(day).time, company)
        assert (~near).sum() == given and (near[:12].all() or near[-12:].all() or given == 48)


def test_a_day_is_shown_under_one_weighting_and_on_one_grid() -> None:
    known = account(settled(FIRST), settled(FIRST + 1, weights="fitted"))

    def refused(plan, day: int) -> str | None:
        return known.refuses(plan, day, 5, 5, b"f" if isinstance(plan, Collect) and plan.fit else b"")

    assert refused(rows(), FIRST) is None and refused(fit(), FIRST + 1) is None
    assert refused(fit(), FIRST) == refused(rows(fit=b"f"), FIRST) == rules_of.OTHER_WEIGHTING
    assert refused(rows(), FIRST + 1) == rules_of.OTHER_WEIGHTING
    assert refused(rows(step_seconds=3600), FIRST) == refused(fit(step_seconds=900), FIRST + 1) == rules_of.OTHER_GRID


def test_a_day_is_shown_under_the_weights_of_one_fit() -> None:
    shown = Shown(readings().time.astype("<i8").tobytes(), b"one fit")
    known = account(settled(FIRST, weights="fitted"))
    known.settle(readings(), ids(1, 2, 3), "fitted", STEP)
    known.book(shown)
    assert known.refuses(rows(fit=b"x"), FIRST, 0, 5, b"one fit") is None
    assert known.refuses(rows(fit=b"x"), FIRST, 0, 5, b"another") == rules_of.OTHER_WEIGHTING
    fitted = account(settled(FIRST, weights="fitted"), answered(FIRST, b"q"))
    assert fitted.refuses(rows(fit=b"x"), FIRST, 0, 5, b"another") == rules_of.OTHER_WEIGHTING


def test_a_day_has_room_for_so_many_totals_and_one_model() -> None:
    plan = fit()
    known = account(*(answered(FIRST, b"q%d" % i) for i in range(3)))
    assert known.refuses(plan, FIRST, 2, 5, b"") is None and known.refuses(plan, FIRST, 3, 5, b"") == rules_of.SPENT
    for spent in (answered(FIRST, b"s", "signs"), answered(FIRST, b"r", "release")):
        assert account(spent).refuses(plan, FIRST, 2, 5, b"") == rules_of.SPENT
        again = replace_booking(spent, plan=plan.hash())
        assert account(again).refuses(plan, FIRST, 2, 5, b"") is None, "the same fit again: its questions decide"


def replace_booking(booking: Answered, **changes) -> Answered:
    return msgspec.structs.replace(booking, **changes)


@pytest.mark.parametrize("kind, room", [("total", 5), ("signs", 3), ("release", 1)])
def test_new_questions_over_a_day_are_answered_while_there_is_room(kind: str, room: int) -> None:
    known = account(*(answered(FIRST, b"q%d" % i, kind) for i in range(room - 1)))
    assert known.refuses_question([FIRST], b"new", kind, 5) is None
    known.book(answered(FIRST, b"last", kind))
    assert known.refuses_question([FIRST - 1, FIRST], b"new", kind, 5) == rules_of.NO_ROOM
    assert known.refuses_question([FIRST - 1], b"new", kind, 5) is None


def test_a_question_is_answered_four_times_and_counts_once() -> None:
    known = Account()
    for _ in range(4):
        assert known.refuses_question([FIRST], b"q", "total", 1) is None
        known.book(answered(FIRST, b"q"))
    assert known.refuses_question([FIRST], b"q", "total", 1) == rules_of.ASKED_TOO_OFTEN
    assert known.days[FIRST].totals == 1


def test_fitted_weights_touch_at_most_120_of_365_days() -> None:
    known = account(answered(FIRST, b"q", days=100))
    assert known.refuses_fit(fit(FIRST + 200, 20)) is None
    assert known.refuses_fit(fit(FIRST + 200, 21)) == rules_of.TOO_MANY_DAYS
    assert known.refuses_fit(fit(FIRST + 344, 21)) == rules_of.TOO_MANY_DAYS
    assert known.refuses_fit(fit(FIRST + 345, 21)) is None


def test_a_row_is_shown_four_times() -> None:
    world = World(tiny(2, agents=4, rows=12), 2)
    found = [world.run(world.aggregator(world.collect(0, 8))) for _ in range(4)]
    assert len({each.state.tobytes() for each in found}) == 1 and len(found[0].time) == 8
    assert len(world.run(world.aggregator(world.collect(0, 8))).time) == 0
    assert len(world.run(world.aggregator(world.collect(4, 8))).time) == 4


# In or out


def judged(known: Account, own: Readings, plan=None, **rules) -> tuple[list[bool], str]:
    verdict = judge(rows(days=2) if plan is None else plan, own, known, Rules(**rules), (0, 5), b"")
    return verdict.days.tolist(), verdict.reason


def test_an_agent_is_in_on_days_with_half_of_their_rows() -> None:
    """Judged up to the last row asked for; days after the newest reading are not answered, nor booked."""
    known = Account()
    assert judged(known, readings(count=24)) == ([True, False], TOO_FEW)
    assert list(known.days) == [FIRST]
    assert judged(Account(), readings(count=23)) == ([False, False], TOO_FEW)
    assert judged(Account(), readings(count=24), rows(length=48)) == ([True], "")
    assert judged(Account(), readings(count=13), rows(length=24)) == ([True], "")


def test_in_or_out_is_judged_once() -> None:
    known = Account()
    assert judged(known, readings(count=20))[0] == [False, False]
    assert judged(known, readings(count=96))[0] == [False, True]
    assert judged(known, readings(FIRST + 5, count=1))[0] == [False, True]


def test_whether_the_account_allows_a_day_is_looked_up_every_time() -> None:
    known = Account()
    assert judged(known, readings(count=96))[0] == [True, True]
    known.book(settled(FIRST, weights="fitted"))
    assert judged(known, readings(count=96)) == ([False, True], rules_of.OTHER_WEIGHTING)


@pytest.mark.parametrize("value", [85.0, -40.0, np.nan])
def test_a_day_with_a_reading_that_cannot_be_is_out(value: float) -> None:
    own = readings(count=96)
    own.temperature[5] = value
    assert judged(Account(), own) == ([False, True], TOO_FEW)


def test_a_reason_tells_nothing_of_readings() -> None:
    reasons = {judged(Account(), readings(count=count, temperature=t))[1] for count, t in ((3, 20.0), (11, 25.0))}
    assert reasons == {TOO_FEW}


def test_readings_stay_as_they_first_left() -> None:
    """A correction, and a dither of another width, come too late; new rows come as they are."""
    world = World(tiny(2, agents=4, rows=12), 2)
    first = world.run(world.aggregator(world.collect(0, 8)))
    for i in range(4):
        agent = world.agent(i)
        later = replace(agent.own.readings, temperature=agent.own.readings.temperature + 1.0)
        agent.own = replace(agent.own, readings=later, rules=replace(agent.own.rules, dither=0.5))
    again = world.run(world.aggregator(world.collect(0, 12)))
    assert np.array_equal(again.state[:8], first.state) and np.array_equal(again.load[:8], first.load)
    assert (again.state[8:] > first.state[-4:] - 5).all() and len(again.time) == 12


# What an agent's rules refuse


def consented(end: int = FIRST * DAY - STEP) -> Consented:
    return Consented(run=b"r", question=b"q", company=ids(1), weight=0.1, step_seconds=STEP, end=end)


@pytest.mark.parametrize("plan, known, why", [
    (rows(FIRST + 91, fit=b"r"), consented(), None),
    (rows(FIRST + 92, fit=b"r"), consented(), "more than 92 days"),
    (rows(FIRST - 1, fit=b"r"), consented(), "do not continue the fit"),
    (rows(fit=b"r", step_seconds=3600), consented(), "do not continue the fit"),
    (rows(fit=b"r"), None, "no weight of that fit"),
])  # fmt: skip
def test_rows_under_a_fit_continue_it_for_92_days(plan: Collect, known, why: str | None) -> None:
    reason = FITTED.refuses_collecting(plan, known)
    assert reason is None if why is None else why in reason


@pytest.mark.parametrize("changes, why", [
    ({}, None), (dict(ridge=1e-4), "ridge"), (dict(order=5, length=48 * 60), "order"),
    (dict(length=48 * 7), "too few rows"), (dict(protocol="moments"), "takes part in blind only"),
    (dict(totals=6), "laxer"), (dict(agents_per_total=2), "laxer"), (dict(clip=2.1), "laxer"),
    (dict(colluders=0), "laxer"), (dict(weights="equal"), "collected"),
])  # fmt: skip
def test_an_agent_stays_out_of_a_fit_outside_its_rules(changes: dict, why: str | None) -> None:
    reason = FITTED.refuses(fit(**changes))
    assert reason is None if why is None else why in reason


def test_by_default_an_agent_gives_equal_weights_only() -> None:
    assert "equal weights only" in Rules().refuses(fit())
    assert "equal weights only" in Rules().refuses_collecting(rows(fit=b"r"), consented())
    assert Rules().refuses_collecting(rows(), None) is None


@pytest.mark.parametrize("plan, why", [
    (rows(step_seconds=600), "15 min"), (rows(step_seconds=7000), "divides the day"),
    (rows(start=FIRST * DAY + 60), "midnight"), (fit(step_seconds=600, period=144), "15 min"),
    (fit(start=FIRST * DAY + 60), "midnight"), (fit(period=96), "24 h"), (fit(ridge=0.0), "ridge above 0"),
    (fit(minimum_norm=True), "collinear"), (fit(nonnegative="exact"), "not offered"), (fit(totals=1), "limits out"),
    (fit(version=1), "version"), (rows(version=1), "version"), (rows(length=48 * 40_000), "days"),
])  # fmt: skip
def test_a_plan_has_one_grid_one_season_and_a_ridge(plan, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        (check_collect if isinstance(plan, Collect) else check_plan)(plan)


def test_an_agent_takes_no_weather_but_its_own() -> None:
    announce = announcement("blind")
    other = msgspec.structs.replace(announce, plan=msgspec.structs.replace(announce.plan, weather=bytes(32)))
    assert in_on(stand(place("waiting")).receive(encode(announce))) > 0
    (reply,) = replies = stand(place("waiting")).receive(encode(other))
    assert in_on(replies) == 0 and b"weather is not this agent's" in reply


def in_on(replies: list[bytes]) -> int:
    """Days in an agent's answer to an announcement."""
    ready = decode_to_aggregator(replies[0], BIG)
    return sum(byte.bit_count() for byte in ready.days) if isinstance(ready, Ready) else -1


def test_a_company_too_small_for_two_totals_fits_nothing() -> None:
    rules = replace(LOOSE, agents_per_total=3, colluders=1, totals=5)
    world = World(tiny(2, agents=7, rows=60), 2, rules)
    assert world.run(world.aggregator(world.plan()), gone={6}) is None and "too small for two" in world.reasons[0]
    assert world.run(world.aggregator(world.plan())).sums == 2


def test_rows_under_a_fit_need_its_whole_company() -> None:
    world = World(tiny(2, agents=4, rows=60), 2)
    role = world.aggregator(world.plan(rows=slice(0, 48)))
    assert world.run(role) is not None
    asked = world.collect(48, 8, role)
    assert world.run(world.aggregator(asked), gone={3}) is None and "whole company" in world.reasons[0]
    assert len(world.run(world.aggregator(asked)).time) == 8


def test_an_agent_that_is_not_in_the_company_takes_no_part() -> None:
    world = World(tiny(2, agents=4, rows=12), 2)
    role = world.aggregator(world.collect(0, 8))
    ready = {i: decode_to_aggregator(world.agent(i).receive(role.start()[0].data)[0], BIG) for i in range(4)}
    keys = make_keys(world.roster, ready[0].days, {i: ready[i] for i in (0, 1, 2)})
    (reply,) = world.agent(3).receive(encode(keys))
    assert b"Refuse" in reply and b"not in the company" in reply


# Rosters


def test_no_roster_is_taken_but_the_authoritys() -> None:
    other = SigningKey(b"b" * 32)
    members = [(f"zone{i}", f"home{i}", SigningKey(bytes([i]) * 32).public) for i in range(4)]
    roster = sign_roster(AUTHORITY, members)
    check_roster(roster, AUTHORITY.public)
    forged = msgspec.structs.replace(sign_roster(other, members), authority=AUTHORITY.public)
    later = msgspec.structs.replace(roster, serial=2)
    swapped = msgspec.structs.replace(roster, members=(*roster.members[1:], roster.members[0]))
    for bad in (forged, later, swapped, msgspec.structs.replace(roster, members=roster.members[:-1])):
        with pytest.raises(PeerError):
            check_roster(bad, AUTHORITY.public)


def test_a_roster_out_of_order_or_with_somebody_twice_is_refused_though_signed() -> None:
    members = [(f"zone{i}", f"home{i}", SigningKey(bytes([i]) * 32).public) for i in range(4)]
    roster = sign_roster(AUTHORITY, members)
    turned = msgspec.structs.replace(roster, members=roster.members[::-1])
    signed = msgspec.structs.replace(turned, signature=AUTHORITY.sign("roster", turned.hash()))
    with pytest.raises(PeerError, match="order of its keys"):
        check_roster(signed, AUTHORITY.public)
    for twice in ([*members, ("zone0", "home9", bytes(32))], [*members, ("zone9", "home9", members[0][2])]):
        with pytest.raises(UsageError, match="enrol each agent once"):
            sign_roster(AUTHORITY, twice)
    with pytest.raises(PeerError, match="not in the roster"):
        roster.index(bytes(32))


def test_the_serial_number_of_a_roster_never_goes_down() -> None:
    world = World(tiny(2, agents=4, rows=12), 2)
    names = list(world.cluster.agents)
    world.enrol(names, serial=7)
    newer, agent = world.roster, world.agent(1)
    assert in_on(agent.receive(world.aggregator(world.collect(0, 8)).start()[0].data)) == 2
    world.enrol(names, serial=6)
    agent._renew_roster = lambda: world.roster
    with pytest.raises(PeerError, match="older than 7"):
        agent.receive(world.aggregator(world.collect(0, 8)).start()[0].data)
    world.restart(1)
    with pytest.raises(PeerError, match="older than 7"):
        world.agent(1)
    world.roster = newer
    assert in_on(world.agent(1).receive(world.aggregator(world.collect(0, 8)).start()[0].data)) == 2


def test_an_agent_takes_no_run_of_another_roster() -> None:
    agent = stand(place("waiting"))
    with pytest.raises(PeerError, match="another roster"):
        agent.receive(encode(msgspec.structs.replace(announcement("blind"), roster=bytes(32))))


def test_no_simulation_is_offered_below_three_agents_or_below_the_agents_own_minimum() -> None:
    check_agents(3, "moments", Rules())
    for agents, protocol in ((2, "plain"), (9, "blind")):
        with pytest.raises(UsageError, match=f"{agents} agents"):
            check_agents(agents, protocol, Rules())


# Sums


def test_a_total_shows_the_aggregator_nothing() -> None:
    """Added up, the masks cancel and the veil stays: not even the number of agents can be read."""
    aggregator, agents = parties(seed=6, rules=LOOSE)
    totals: dict[int, np.ndarray] = {}
    opens: list[int] = []

    def add(i: int, reply: bytes) -> list[bytes]:
        message = decode_to_aggregator(reply, BIG)
        if isinstance(message, Masked | Release):
            words = ring.from_bytes(message.words, len(message.words) // 8)
            totals[message.step] = totals.get(message.step, np.zeros_like(words)) + words
            if isinstance(message, Release):
                opens.append(message.step)
        return [reply]

    drive(aggregator, agents, to_aggregator=add)
    assert aggregator.state is State.DONE and len(totals) > 4
    for step, total in totals.items():
        count = total[-1] if step in opens else total[-1 - ring.CHECK_WORDS]
        assert (count == len(agents)) == (step in opens)


@pytest.mark.parametrize("word", [0, 30, -1])
def test_an_offset_on_one_total_ends_the_run(word: int) -> None:
    aggregator, agents = parties(seed=6, rules=LOOSE)

    def alter(i: int, data: bytes) -> list[bytes]:
        message = decode_to_agent(data, BIG)
        if i == 2 and isinstance(message, Total) and message.step == 2:
            words = ring.from_bytes(message.words, len(message.words) // 8)
            words[word] += np.uint64(1)
            data = encode(msgspec.structs.replace(message, words=ring.to_bytes(words)))
        return [data]

    drive(aggregator, agents, to_agent=alter)
    assert aggregator.state is State.ABORTED and "fails its check words" in aggregator.reasons[0]


def test_the_context_hashes_every_total_as_received() -> None:
    """Worked out here a second time, from the messages alone."""
    history, checked = recorded("blind").down[MEMBER], 0
    for n in range(place("running/rows").messages, place("running/seal").messages):
        before, after = (stand(replace(place("running/rows"), messages=m)).part._veil for m in (n, n + 1))
        words = decode_to_agent(history[n][0], BIG).words
        assert after.context == digest("blind context", before.context, words)
        checked += 1
    assert checked >= 4


@pytest.mark.parametrize("agents", [3, 10, 64, 1000, 10_000])
def test_totals_have_sixteen_fractional_bits_and_no_more(agents: int) -> None:
    blocks = [open_layout(agents, 9).blocks[1], step_layout(agents, 9, 2, 2.0, True).blocks[0]]
    assert all(block.name == "total" and block.bits <= 16 for block in blocks)
    assert show_layout(agents, 9, False).blocks[0].bits <= 16


def test_what_leaves_is_dithered() -> None:
    agent = stand(place("running/rows"))
    agent.own = replace(agent.own, rules=replace(agent.own.rules, dither=0.1))
    moved = np.abs(agent.own.sendable(agent.part.session.run).temperature - agent.own.readings.temperature)
    assert 0 < moved.max() <= 0.05 * agent.own.memory.quantum and np.count_nonzero(moved) == len(moved)


def test_a_sensor_that_never_moves_is_dithered_by_the_least_step_and_a_declared_one_must_be_positive() -> None:
    still = Readings(np.arange(9) * 60, np.full(9, 20.0), np.zeros(9))
    moved = dithered(still, b"k" * 32, 0.1, None).temperature - 20.0
    assert 0 < np.abs(moved).max() <= 0.05 * LEAST_QUANTUM
    later = Readings(still.time[4:], still.temperature[4:], still.load[4:])
    assert np.array_equal(dithered(later, b"k" * 32, 0.1, None).temperature - 20.0, moved[4:])
    with pytest.raises(DataError, match="positive"):
        dithered(still, b"k" * 32, 0.1, 0.0)


def test_rows_that_somebody_lacks_do_not_open_and_nobody_is_named() -> None:
    """Of two homes each lacks a row: the sums there are random words, not counts."""
    world = World(tiny(2, agents=4, rows=12), 2)
    for i, row in ((1, 2), (3, 5)):
        agent = world.agent(i)
        agent.own = replace(agent.own, readings=agent.own.readings.at(np.delete(np.arange(12), row)))
    seen: list[np.ndarray] = []
    deliver = world.deliver

    def watched(i: int, data: bytes) -> list[bytes]:
        message = decode_to_agent(data, BIG)
        if isinstance(message, Total):
            seen.append(ring.from_bytes(message.words, len(message.words) // 8))
        return deliver(i, data)

    world.deliver = watched
    found = world.run(world.aggregator(world.collect(0, 8)))
    assert len(found.time) == 6
    assert (seen[0][[2, 5]] > 2**32).all() and not seen[0][[0, 1, 3, 4, 6, 7]].any()


def test_agents_shown_different_offers_share_no_mask() -> None:
    aggregator, agents = parties(seed=6, rules=LOOSE, weights="equal")
    alike = ring.to_bytes(np.append(np.zeros(60, dtype=np.uint64), np.uint64(4)))

    def alter(i: int, data: bytes) -> list[bytes]:
        message = decode_to_agent(data, BIG)
        if i == 2 and isinstance(message, Total):
            words = ring.from_bytes(message.words, len(message.words) // 8)
            words[7] = 1  # a row less, for this agent alone
            data = encode(msgspec.structs.replace(message, words=ring.to_bytes(words)))
        assert not isinstance(message, Total) or message.words == alike
        return [data]

    drive(aggregator, agents, to_agent=alter)
    assert aggregator.state is State.ABORTED


def test_an_offer_that_leaves_the_same_rows_and_differs_in_bytes_shares_no_mask_either() -> None:
    """A row that somebody lacks: any word but zero says so, but only one is the sum."""
    aggregator, agents = parties(seed=6, rules=LOOSE, weights="equal")
    own = agents[1].own
    agents[1].own = replace(own, readings=own.readings.at(np.delete(np.arange(60), 7)))

    def alter(i: int, data: bytes) -> list[bytes]:
        message = decode_to_agent(data, BIG)
        if i == 2 and isinstance(message, Total):
            words = ring.from_bytes(message.words, len(message.words) // 8)
            words[7] += np.uint64(1)
            data = encode(msgspec.structs.replace(message, words=ring.to_bytes(words)))
        return [data]

    drive(aggregator, agents, to_agent=alter)
    assert aggregator.state is State.ABORTED and "do not open" in aggregator.reasons[0]


@pytest.mark.parametrize("missing, why", [(0, "contradicts this agent's own flag"), (50, "too few rows for the model")])
def test_an_agent_insists_on_the_rows_it_lacks_and_on_enough_of_them(missing: int, why: str) -> None:
    """Nobody says for another agent that it has a row; rows that somebody lacks do not count as rows."""
    part = stand(place("running/rows")).part
    times = part.session.run.rows()
    lacking = np.arange(len(times)) < missing
    own = part.own.readings.at(np.arange(1 if missing == 0 else 0, len(times)))
    with pytest.raises(RunAborted, match=why):
        part._settle(times, own, lacking.astype(float))
    assert not part.own.memory.account.days[int(times[0]) // DAY].company, "nothing was settled"


def test_a_run_stops_at_the_agents_limit_of_totals() -> None:
    world = World(tiny(2, agents=6, rows=60), 2, replace(LOOSE, totals=2))
    found = world.run(world.aggregator(world.plan()))
    assert found.sums == 2 and found.estimate.status == "capped"


def test_every_answer_is_on_the_account_before_it_leaves() -> None:
    """Of a fit, and of rows under its weights: `World.hand_out` looks at what is written down."""
    world = World(tiny(2, agents=4, rows=60), 2)
    role = world.aggregator(world.plan(rows=slice(0, 48)))
    assert world.run(role) is not None and world.run(world.aggregator(world.collect(48, 8, role))) is not None
    assert all(world.answered[i] >= 4 and world.shown[i] == 8 for i in range(4))


# What is computed from readings saturates


def test_words_computed_from_readings_saturate() -> None:
    """A refusal would tell something about them; nobody is as unlike the others as the agent here."""
    assert saturated(np.array([9.0, -9.0, np.nan, np.inf, -np.inf, 0.5]), 2.0).tolist() == [2, -2, 0, 2, -2, 0.5]
    agents, clip = 16, 2.0
    descent = SimpleNamespace(alpha=np.array([0.5]), weights=np.ones(1))
    for size in (1e-12, 1e12):
        found = Look(descent, 1e-6, np.full(5, size), np.empty((0, 1)))
        own = OwnSeries(np.full((2, 5), -size), np.zeros((2, 2)))
        p, values = step_values(found, own, np.full(1, 0.25), np.full(6, 50.0), 1e-3, 1e-9, agents, clip)
        assert abs(p) <= clip / 4 and (values["squares"] <= SQUARE_SUM / agents).all()
        step_layout(agents, 6, 1, clip, False).encode(values)


# The release


@lru_cache
def about_to_verify() -> tuple:
    """What an agent has in hand when it verifies the leader's numbers."""
    caught: list[tuple] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "verify", lambda *given: caught.append(given) or release.verify(*given))
        world = World(tiny(4, agents=6, rows=60), 4)
        assert world.run(world.aggregator(world.plan(ridge=5.0))) is not None
    return caught[-1]


LIES = {  # of the numbers of order 1 with four steps a day: where a block begins
    "alpha": 0, "beta": 1, "gamma": 3, "theta": 5, "occupancy": 7, "metrics": 11, "ridge": -5, "rss": -4,
    "residual": -3, "iterations": -2, "status": -1,
}  # fmt: skip


@pytest.mark.parametrize("what", [*LIES, "weights", "previous"])
def test_a_leader_whose_numbers_do_not_follow_from_the_totals_ends_the_run(what: str) -> None:
    sealed, *rest = about_to_verify()
    release.verify(sealed, *rest)
    if what in LIES:
        numbers = sealed.numbers.copy()
        numbers[LIES[what]] = numbers[LIES[what]] * (1 + 1e-7) + (1 if what in ("iterations", "status") else 0)
        lie = replace(sealed, numbers=numbers)
    else:
        lie = replace(sealed, **{what: getattr(sealed, what) * np.linspace(1, 1 + 1e-6, len(sealed.weights))})
    with pytest.raises(RunAborted, match="leader's numbers"):
        release.verify(lie, *rest)


def test_a_leader_that_claims_convergence_ends_the_run() -> None:
    """The descent is cut after one iteration and called converged."""
    sealed, span, inputs, plan, gap, reached, agents = about_to_verify()
    hasty = np.append(1 / span.ones[0], np.zeros(len(span) - 1))
    alpha, _ = span.sp1(hasty)
    weights, _ = span.sp2(alpha)
    found = script.estimate_of(
        span, inputs, SimpleNamespace(alpha=alpha, weights=weights, iterations=1, converged=True), gap, reached
    )
    lie = replace(sealed, numbers=release.numbers_of(found), weights=weights, previous=hasty)
    with pytest.raises(RunAborted, match="leader's numbers"):
        release.verify(lie, span, inputs, plan, gap, reached, agents)


def test_the_state_rests_on_three_agents_and_a_quarter_of_them() -> None:
    def span(weights: list[float]):  # one total for each agent
        return SimpleNamespace(gram=np.eye(len(weights)), ones=np.ones(len(weights))), np.array(weights), len(weights)

    check_effective(*span([1 / 3] * 3))
    check_effective(*span([0.25] * 4 + [0.0] * 12))
    for few in ([0.5, 0.5, 0.0], [0.34, 0.33, 0.33], [1 / 3] * 3 + [0.0] * 13):
        with pytest.raises(RunAborted, match="too few agents"):
            check_effective(*span(few))
    with pytest.raises(RunAborted, match="add up to one"):
        check_effective(*span([0.2] * 4))


def test_three_agents_of_unequal_weight_release_nothing() -> None:
    aggregator, agents = parties(tiny(1, agents=3, rows=60), rules=LOOSE)
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "too few agents" in aggregator.reasons[0]


def altered_release(change) -> tuple:
    """A run in which one member's part of the release is changed on its way; the run's state and reasons."""
    aggregator, agents = parties(seed=6, rules=LOOSE)
    seen: dict[int, Release] = {}

    def alter(i: int, reply: bytes) -> list[bytes]:
        message = decode_to_aggregator(reply, BIG)
        if isinstance(message, Release):
            seen[i] = message
            reply = encode(change(message, seen, agents[i])) if i == 2 else reply
        return [reply]

    refused = drive(aggregator, agents, to_aggregator=alter)
    return aggregator, refused


@pytest.mark.parametrize("word", [0, 20, -6, -2])
def test_a_release_that_one_member_altered_is_not_taken(word: int) -> None:
    """A number, a row of h or s, the salt: the hash is not summed, so that nobody can correct it."""

    def change(message: Release, _seen, _agent) -> Release:
        words = ring.from_bytes(message.words, len(message.words) // 8)
        words[word] += np.uint64(1)
        return msgspec.structs.replace(message, words=ring.to_bytes(words))

    aggregator, _ = altered_release(change)
    assert aggregator.state is State.ABORTED and "vouches for" in aggregator.reasons[0]


def test_a_member_that_vouches_for_something_else_ends_the_run() -> None:
    def change(message: Release, _seen, agent) -> Release:
        signature = agent._identity.sign("vouch", 2, bytes(32))
        return msgspec.structs.replace(message, hash=bytes(32), signature=signature)

    aggregator, _ = altered_release(change)
    assert aggregator.state is State.ABORTED and "vouches for" in aggregator.reasons[0]


def test_nobody_vouches_for_another() -> None:
    aggregator, refused = altered_release(
        lambda message, seen, _: msgspec.structs.replace(message, signature=seen[0].signature)
    )
    assert aggregator.state is State.RUNNING and any("does not verify" in each for each in refused)


def test_a_seal_that_nobody_else_was_shown_ends_the_run() -> None:
    """The leader seals for one member other numbers, true ones by its own account: masks and hashes part."""
    aggregator, agents = parties(seed=6, rules=LOOSE)
    first = agents[0]

    def alter(i: int, data: bytes) -> list[bytes]:
        message = decode_to_agent(data, BIG)
        if i == 2 and type(message).__name__ == "Seal":
            part = first.part
            veil, context = part._veil, part._veil.context
            veil.context = agents[2].part._veil.context
            sealed = release.unpack_sealed(opened_seal(part, message.box), part.plan, len(part.parts))
            other = replace(sealed, salt=sealed.salt + 1.0)
            box = script.seal(part._seal_key(), other.pack(), purpose="seal", sender=first._identity.public,
                              receiver="agents")  # fmt: skip
            veil.context = context
            data = encode(msgspec.structs.replace(message, box=box))
        return [data]

    drive(aggregator, agents, to_agent=alter)
    assert aggregator.state is State.ABORTED and "shown another run" in aggregator.reasons[0]


def opened_seal(part, box: bytes) -> bytes:
    leader = part.session.run.members[0].identity
    return script.open_sealed(part._seal_key(), box, purpose="seal", sender=leader, receiver="agents")


def test_a_ladder_of_ridges_goes_up_to_the_first_without_a_negative_weight() -> None:
    ladder = RidgeLadder(100.0, True, 3)
    assert ladder.better(np.array([0.0] * 14)).k == 2 and ladder.better(np.array([1.0] + [0.0] * 13)).k == 3
    assert ladder.better(np.array([1.0, 2.0, 1.0] + [0.0] * 11)).k == 5 and ladder.better(np.ones(14)).k == 15
    assert RidgeLadder(100.0, False, 0).better(np.ones(14)).k == 0


def test_a_run_that_ended_leaves_no_keys_with_the_agent() -> None:
    agent = stand(place("done"))
    assert agent.part is None and agent.state == "done" and not agent.own.host._known.get("group stream")


def test_weather_that_does_not_cover_the_rows_ends_the_run() -> None:
    aggregator, agents = parties(protocol="blind")
    sky = agents[0].own.weather  # one table for all agents of this process
    object.__setattr__(sky, "time", sky.time + 1)
    plan = aggregator._announce.plan
    last = plan.start + (plan.length - 1) * plan.step_seconds
    plan = msgspec.structs.replace(plan, weather=sky.hash(plan.start, last))
    aggregator = announcing(agents, plan, tiny(0, agents=4, rows=60))
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "does not cover every kept row" in aggregator.reasons[0]


def test_a_member_must_be_in_on_every_day_of_the_run() -> None:
    """An aggregator that names a day on which somebody is out is refused by everybody."""
    world = World(tiny(2, agents=4, rows=12), 2)
    agent = world.agent(3)
    agent.own = replace(agent.own, readings=agent.own.readings.at(np.arange(4, 12)))
    role = world.aggregator(world.collect(0, 8))
    ready = {i: decode_to_aggregator(world.agent(i).receive(role.start()[0].data)[0], BIG) for i in range(4)}
    assert ready[3].days == b"\x02" and ready[0].days == b"\x03"
    keys: Keys = make_keys(world.roster, b"\x03", ready)
    for i in range(4):
        (reply,) = world.agent(i).receive(encode(keys))
        assert b"Refuse" in reply and b"not in on all days" in reply
