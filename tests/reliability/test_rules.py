"""The rules of `blind` (docs/spec.md §5 and §6), one claim each, at their edges. mutants.py takes each of them out."""

from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from atdm.crypto import ring
from atdm.crypto.keys import SigningKey, derive, digest
from atdm.data.quantum import LEAST_QUANTUM, UNKNOWN_QUANTUM, coarser
from atdm.data.readings import Readings, Weather
from atdm.errors import DataError, PeerError, RunAborted, UsageError
from atdm.kernel.descent import RidgeLadder, Status
from atdm.kernel.estimate import Estimate
from atdm.kernel.span import Look
from atdm.protocol import account as rules_of
from atdm.protocol.account import Account, Begun, Settled
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind import release, script
from atdm.protocol.blind.direction import OwnSeries, first_scale, step_values
from atdm.protocol.blind.layouts import SQUARE_SUM, open_layout, saturated, step_layout
from atdm.protocol.blind.release import check_effective
from atdm.protocol.blind.veil import Veil
from atdm.protocol.collect import show_layout
from atdm.protocol.company import LEFT, NOT_YET, PAUSED, TOO_FEW, check_company, judge
from atdm.protocol.desk import RunningTotal
from atdm.protocol.messages import (
    Masked,
    Ready,
    Refuse,
    Release,
    Seal,
    Total,
    decode_to_agent,
    decode_to_aggregator,
    encode,
)  # fmt: skip
from atdm.protocol.part import Host
from atdm.protocol.plan import DAY, VERSION, Collect, Plan, check_collect, check_plan
from atdm.protocol.readings import dithered, weather_hash
from atdm.protocol.roster import check_roster, sign_roster
from atdm.protocol.rules import Rules, refuses
from atdm.protocol.store import Consented, Entry, Memory, Snapshot, disclose, enclose
from atdm.run import check_agents
from tests.clusters import tiny
from tests.protocol.drive import altering, announcing, drive, parties
from tests.protocol.world import LOOSE, World, after, saved, written
from tests.reliability.places import MEMBER, announcement, place, recorded, stand

BIG = 10**9
FIRST = 28 * 700  # the first day of a block
STEP = 1800
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


def readings(day: int = FIRST, count: int = 48, temperature: float = 20.0, step: int = STEP) -> Readings:
    return Readings(day * DAY + step * np.arange(count), np.full(count, temperature), np.ones(count))


# Companies and days


def test_checking_and_booking_a_company_are_one_step() -> None:
    known = account(settled(FIRST))
    with pytest.raises(RunAborted, match=rules_of.OTHER_COMPANY):
        known.settle(readings(), ids(1, 2), "equal", STEP)
    assert known.settle(readings(FIRST + 1), ids(1, 2), "equal", STEP) == (FIRST + 1,)
    assert known.days[FIRST + 1].company and len(known.time) == 48


def test_a_company_with_a_later_key_sums_no_earlier_day() -> None:
    """Such a key has an empty account: its home may have given the day under another."""
    keys = [SigningKey(bytes([i + 1]) * 32).public for i in range(10)]
    enrolled = sign_roster(AUTHORITY, [(f"zone{i}", f"home{i}", k) for i, k in enumerate(keys)], 2, {keys[3]: FIRST})
    for day in (FIRST, FIRST - 1):
        agreed = SimpleNamespace(
            announced=rows(day), days=(day, FIRST + 5), company=b"".join(keys), owners=10, since=FIRST
        )
        with nullcontext() if day == FIRST else pytest.raises(RunAborted, match="enrolled later"):
            check_company(agreed, enrolled, Account(), Rules())


def test_six_hours_after_the_first_midnight_of_a_new_key_are_not_given() -> None:
    """Nobody who gives them knows whether the company was another one the day before."""
    agent = stand(place("running/rows"))
    run = agent.part.session.run
    assert agent.own.sendable(run).time[0] == run.days[0] * DAY
    assert agent.own.sendable(replace(run, since=run.days[2])).time[0] == run.days[2] * DAY + 6 * 3600


def test_in_means_room_for_all_totals_of_the_plan() -> None:
    known = account(settled(FIRST, weights="fitted"))
    assert known.refuses(fit(), FIRST, 5, 5, b"") is None and known.refuses(fit(), FIRST, 6, 5, b"") == rules_of.SPENT


def test_readings_that_came_after_a_fit_began_are_not_in_it() -> None:
    """Else the same fit, asked for again, would be another one."""
    known, early = Account(), readings(count=40)
    known.settle(early, ids(1, 2, 3), "fitted", STEP)
    assert len(known.repeatable(readings(count=96)).time) == 96
    known.book(Begun(b"fit", (FIRST,), b"plan"))
    assert known.repeatable(readings(count=96)).time.tolist() == [*early.time, *readings(FIRST + 1).time]


# In or out


def judged(known: Account, own: Readings, plan=None, **rules) -> tuple[list[bool], str]:
    verdict = judge(rows(days=2) if plan is None else plan, own, known, Rules(**rules), (0, 5), b"")
    return verdict.days.tolist(), verdict.reason


def test_an_agent_is_in_on_days_with_half_of_their_rows() -> None:
    """Judged up to the last row asked for; days after the newest reading are not answered, nor booked."""
    known = Account()
    assert judged(known, readings(count=24)) == ([True, False], NOT_YET)
    assert list(known.days) == [FIRST]
    assert judged(Account(), readings(count=23)) == ([False, False], TOO_FEW)  # half a day late: an outage
    assert judged(Account(), readings(count=11), rows(length=23)) == ([False], NOT_YET)  # six hours late
    assert judged(Account(), readings(count=24), rows(length=48)) == ([True], "")
    assert judged(Account(), readings(count=13), rows(length=24)) == ([True], "")


def test_whether_the_account_allows_a_day_is_looked_up_every_time() -> None:
    known = Account()
    assert judged(known, readings(count=96))[0] == [True, True]
    known.book(settled(FIRST, weights="fitted"))
    assert judged(known, readings(count=96)) == ([False, True], rules_of.OTHER_WEIGHTING)


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
    return Consented(run=b"r", hash=b"f", company=ids(1), weight=0.1, step_seconds=STEP, end=end)


@pytest.mark.parametrize("plan, known, why", [
    (rows(FIRST + 91, fit=b"r"), consented(), None),
    (rows(FIRST + 92, fit=b"r"), consented(), "more than 92 days"),
    (rows(FIRST - 1, fit=b"r"), consented(), "do not continue the fit"),
    (rows(fit=b"r", step_seconds=3600), consented(), "do not continue the fit"),
    (rows(fit=b"r"), None, "no weight of that fit"),
])  # fmt: skip
def test_rows_under_a_fit_continue_it_for_92_days(plan: Collect, known, why: str | None) -> None:
    reason = refuses(Rules(weights="fitted"), plan, known)
    assert reason is None if why is None else why in str(reason)


@pytest.mark.parametrize("changes, why", [
    ({}, None), (dict(ridge=49.9), "ridge"), (dict(order=5, length=48 * 60), "order"),
    (dict(length=70, period=1, step_seconds=DAY), "too few rows"), (dict(protocol="moments"), "part in blind only"),
    (dict(totals=6), "not this agent's"), (dict(agents_per_total=2), "not this agent's"),
    (dict(clip=2.1), "not this agent's"), (dict(clip=1.9), "not this agent's"), (dict(colluders=0), "not this agent's"),
    (dict(solver_tolerance=0.009), "tolerance"), (dict(train=0.69), "training share"),
    (dict(weights="equal"), "collected"), (dict(length=48 * 28), None), (dict(length=48 * 28 - 1), "need 28 days"),
    (dict(ridge=100.1), "ridge"),
])  # fmt: skip
def test_an_agent_stays_out_of_a_fit_outside_its_rules(changes: dict, why: str | None) -> None:
    reason = refuses(Rules(weights="fitted"), fit(**changes))
    assert reason is None if why is None else why in str(reason)


def test_by_default_an_agent_gives_equal_weights_only() -> None:
    assert "equal weights only" in str(refuses(Rules(), fit()))
    assert "equal weights only" in str(refuses(Rules(), rows(fit=b"r"), consented()))
    assert refuses(Rules(), rows(), None) is None


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


def test_weather_before_and_after_the_window_does_not_count() -> None:
    time = np.arange(10) * 3600
    whole, other = (Weather(time, np.arange(10.0), np.where(time < changed, 0.5, 0.1)) for changed in (10**9, 7 * 3600))
    assert weather_hash(whole, 0, 6 * 3600) == weather_hash(other, 0, 6 * 3600) != weather_hash(whole, 0, 5 * 3600)
    assert weather_hash(whole, 0, 7 * 3600) != weather_hash(other, 0, 7 * 3600)


def test_the_agents_own_limit_of_totals_counts_whatever_the_plan_says() -> None:
    part = stand(place("running/open")).part
    part.own = replace(part.own, rules=replace(part.own.rules, totals=1))
    with pytest.raises(RunAborted, match=rules_of.NO_ROOM):
        part._book("step", "total")


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


def test_a_roster_of_another_authority_is_refused_before_its_signature_counts() -> None:
    other = SigningKey(b"b" * 32)
    roster = sign_roster(other, [(f"zone{i}", f"home{i}", SigningKey(bytes([i]) * 32).public) for i in range(4)])
    with pytest.raises(PeerError, match="another enrolment authority"):
        check_roster(roster, AUTHORITY.public)


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
    assert aggregator.state is AggregatorState.DONE and len(totals) > 4
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
    said = f"agent {agents[2].name}: a total fails its check words"  # before it sent another word
    assert aggregator.state is AggregatorState.ABORTED and said in aggregator.reasons[0]


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
    agent.own = replace(agent.own, rules=replace(agent.own.rules, dither=Rules().dither))
    moved = np.abs(agent.own.sendable(agent.part.session.run).temperature - agent.own.readings.temperature)
    assert 0 < moved.max() <= 0.05 * agent.own.memory.quantum and np.count_nonzero(moved) == len(moved)


def test_the_quantum_of_the_dither_is_never_finer_than_before() -> None:
    """Two equal readings of a first hour look finer than the sensor is."""
    fine, half = 20 + 0.01 * np.arange(12.0), 20 + 0.5 * np.arange(12.0)
    assert coarser(1e-4, np.full(2, 20.0)) == coarser(1e-4, fine[:9]) == 0.1
    assert coarser(1e-4, fine) == pytest.approx(0.01) and coarser(1e-4, half) == pytest.approx(0.5)
    assert coarser(0.5, fine) == 0.5 and coarser(1e-4, 10 * half) == 2.0
    with pytest.raises(UsageError, match="at most 2"):
        Rules(quantum=2.5)


def test_the_quantum_of_the_dither_is_what_was_found_and_survives_a_restart() -> None:
    """The first hour of a thermostat's life has two equal readings; the day after shows its step."""
    world = World(tiny(4, agents=6, rows=60), 4)
    agent, whole = world.agent(1), world.agent(1).own.readings
    few = Readings(whole.time[:2], np.full(2, 20.0), whole.load[:2])
    later = replace(few, time=whole.time, temperature=np.round(2 * whole.temperature) / 2, load=whole.load)
    agent.own = replace(agent.own, readings=few, memory=Memory())
    agent._see_quantum()
    assert agent.own.memory.quantum == 0.1
    agent._renew = lambda: later
    agent._verdict(world.plan(ridge=5.0))
    assert agent.own.memory.quantum == pytest.approx(0.5)
    assert disclose(agent._snapshot(b"", []), Snapshot).memory.quantum == agent.own.memory.quantum


def test_what_an_agent_filled_in_itself_says_nothing_of_its_sensor() -> None:
    """A thermostat's step is 0.5 °C; rows filled linearly between its readings look like those of a finer one."""
    world = World(tiny(4, agents=6, rows=60), 4)
    agent, own = world.agent(1), world.agent(1).own.readings
    halves, filled = 20 + 0.5 * (np.arange(len(own.time)) % 12), np.arange(len(own.time)) % 5 == 3
    halves[filled] += 0.25  # half-way between two readings
    for flags, found in ((filled, 0.5), (np.zeros_like(filled), 0.25)):
        agent.own = replace(agent.own, readings=replace(own, temperature=halves, filled=flags), memory=Memory())
        agent._see_quantum()
        assert agent.own.memory.quantum == pytest.approx(found)


@pytest.mark.parametrize("since", ["its owner left", "its owner paused it", "a newer roster"])
def test_what_was_true_at_the_announcement_is_asked_again_before_a_run_begins(since: str) -> None:
    """An aggregator may hold an announcement open for weeks: nothing has left, and the home is still free."""
    world = World(tiny(4, agents=11, rows=60), 5)
    now: dict = {"choice": "takes part", "roster": world.roster}
    world.built = {"owner": lambda: now["choice"], "renew_roster": lambda: now["roster"]}
    world.deaf, role = None, world.aggregator(world.collect(0, 60))
    answers = [reply for i in range(11) for reply in world.deliver(i, role.start()[0].data)]
    if since == "a newer roster":
        now["roster"] = world.signed([member.name for member in world.roster.members[:-1]], serial=2)
    else:
        now["choice"] = "left" if since.endswith("left") else "paused"
    keys = [letter.data for i, reply in enumerate(answers) for letter in role.receive(i, reply)]
    (answer,) = world.deliver(3, keys[0])
    refused = decode_to_aggregator(answer, len(answer))
    assert isinstance(refused, Refuse) and not len(written(world.stores[3]).account.time)
    words = {"its owner left": LEFT, "its owner paused it": PAUSED, "a newer roster": "for another roster"}
    assert words[since] in refused.reason


def test_the_quantum_of_the_dither_is_the_sensors() -> None:
    agent = stand(place("running/rows"))
    agent.own = replace(agent.own, rules=replace(agent.own.rules, dither=0.1))
    agent.own.memory.quantum = 5.0
    moved = agent.own.sendable(agent.part.session.run).temperature - agent.own.readings.temperature
    assert 0.1 < np.abs(moved).max() <= 0.25


def test_a_reading_that_cannot_be_is_lacking() -> None:
    agent = stand(place("running/rows"))
    run, own = agent.part.session.run, agent.own.readings
    hot = np.where(np.arange(len(own.time)) == 3, 85.0, own.temperature)
    agent.own = replace(agent.own, readings=replace(own, temperature=hot))
    assert set(own.time) - set(agent.own.sendable(run).time) == {own.time[3]}


def test_a_total_is_no_more_than_its_agents_can_add_up_to() -> None:
    layout = open_layout(3, 2)
    words = layout.encode({"load": np.full(2, 1e4), "total": np.zeros(2)}) * np.uint64(3)
    assert layout.decode(words, 3)["load"].tolist() == [3e4, 3e4]
    words[0] += words[0]
    with pytest.raises(PeerError, match="beyond what 3 agents"):
        layout.decode(words, 3)


def test_words_of_another_name_end_a_sum() -> None:
    for phase, size in (("step", 2), ("open", 3)):
        total = RunningTotal(3, 0)
        assert not total.add(0, 0, "open", bytes(16))
        with pytest.raises(RunAborted, match="disagree on what is summed"):
            total.add(1, 0, phase, bytes(8 * size))


def test_the_veil_is_of_one_run_and_company() -> None:
    """One group secret in two runs, or in two companies, gives two keystreams."""
    session = stand(place("running/rows")).part.session
    runs = [session.run, replace(session.run, id=bytes(32)), replace(session.run, company_hash=bytes(32))]
    one, two = bytes(12) + bytes(4), []
    for run in runs:
        two.append(Veil(SimpleNamespace(run=run), b"g" * 32, Host())._stream.words(4, one).tobytes())
    assert len(set(two)) == 3


def test_a_sensor_that_never_moves_is_dithered_and_a_declared_step_must_be_positive() -> None:
    still = Readings(np.arange(9) * 60, np.full(9, 20.0), np.zeros(9))
    moved = dithered(still, b"k" * 32, 0.1, coarser(LEAST_QUANTUM, still.temperature)).temperature - 20.0
    assert 0 < np.abs(moved).max() <= 0.05 * UNKNOWN_QUANTUM
    later = Readings(still.time[4:], still.temperature[4:], still.load[4:])
    assert np.array_equal(dithered(later, b"k" * 32, 0.1, UNKNOWN_QUANTUM).temperature - 20.0, moved[4:])
    with pytest.raises(DataError, match="positive"):
        dithered(still, b"k" * 32, 0.1, 0.0)


@pytest.mark.parametrize("missing", [range(0, 60, 4), range(0, 44, 3)])
def test_rows_beside_gaps_do_not_count_for_the_model(missing: range) -> None:
    """The aggregator names window and days: gaps all over, or in the training part alone, left few rows with lags."""
    world = World(tiny(2, agents=4, rows=60), 2, replace(LOOSE, day_share=0.0))
    world.hold(1, without=missing)
    role = world.aggregator(world.plan(order=2))
    assert world.run(role) is None and "too few rows for the model" in role.reasons[0]
    assert not written(world.stores[0]).account.time.size  # nothing has left


@pytest.mark.parametrize("lost", [0, 1])
def test_rows_that_somebody_lacks_are_no_days_of_a_fit(lost: int) -> None:
    """Days on which everybody was in and one home has nothing left made fits of ten days out of windows of thirty."""
    part = stand(place("running/rows")).part
    times, asked = part.session.run.rows(), part.plan.length * part.plan.step_seconds / DAY
    part.own = replace(part.own, rules=replace(part.own.rules, least_days=asked))
    with pytest.raises(RunAborted, match="days of rows that all have") if lost else nullcontext():
        part._settle(times, part.own.readings, (np.arange(len(times)) < lost).astype(float))
    assert bool(part.own.memory.account.days[int(times[0]) // DAY].company) != lost, "settled or not"


def test_the_days_that_an_aggregator_names_are_as_many_as_a_window_must_have() -> None:
    """It names the days of a run after everybody has accepted the window."""
    world = World(tiny(2, agents=6, rows=60), 2, replace(LOOSE, least_days=15.0))
    fewer = world.aggregator(world.plan(), choose=lambda answers, roster, least: (sorted(answers), np.arange(15) > 0))
    assert world.run(fewer) is None and "need 15 days" in fewer.reasons[0]
    assert not written(world.stores[0]).account.time.size  # nothing has left
    assert world.run(world.aggregator(world.plan())) is not None


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
    assert found is not None and found.sums == 2 and found.estimate.status == "capped"


def test_every_answer_is_on_the_account_before_it_leaves() -> None:
    """Of a fit, and of rows under its weights: `World.hand_out` looks at what is written down."""
    world = World(tiny(2, agents=4, rows=60), 2)
    role = world.aggregator(world.plan(rows=slice(0, 48)))
    assert world.run(role) is not None and world.run(world.aggregator(world.collect(48, 8, role))) is not None
    assert all(world.answered[i] >= 4 and world.shown[i] == 8 for i in range(4))


def test_a_journal_that_gives_another_answer_is_not_gone_on_with() -> None:
    """Its run is over; what it cost stays on the account."""
    world = World(tiny(2, agents=4, rows=60), 2)
    assert world.run(world.aggregator(world.plan()), deaf=after(1, 6)) is None
    store, before = world.stores[1], saved(written(world.stores[1]).account)
    store.entries[-1] = enclose(msgspec.structs.replace(disclose(store.entries[-1], Entry), answer=bytes(32)))
    world.restart(1)
    assert world.agent(1).state == "lost" and saved(world.agent(1).own.memory.account) == before


def test_rows_that_nobody_offered_end_the_run() -> None:
    aggregator, agents = parties(seed=6, rules=LOOSE, weights="equal")

    def noise(i: int, total: Total) -> list[Total]:
        words = ring.from_bytes(total.words, len(total.words) // 8)
        words[:-1] += np.uint64(1)
        return [msgspec.structs.replace(total, words=ring.to_bytes(words))]

    drive(aggregator, agents, altering(Total, noise))
    assert "no row was offered by everybody" in aggregator.reasons[0]
    assert all(not len(agent.own.memory.account.time) for agent in agents)


# What is computed from readings saturates


def test_words_computed_from_readings_saturate() -> None:
    """A refusal would tell something about them; nobody is as unlike the others as the agent here."""
    assert [saturated(v, 2.0) for v in (9.0, -9.0, np.nan, np.inf, -np.inf, 0.5)] == [2, -2, 0, 2, -2, 0.5]
    agents, clip = 16, 2.0
    descent = SimpleNamespace(alpha=np.array([0.5]), weights=np.ones(1))
    for size in (1e-12, 1e12):
        found = Look(descent, 1e-6, np.full(6, -size), np.empty((0, 1)))
        own = OwnSeries(np.full(6, 50.0), np.zeros((2, 2)))
        p, values = step_values(found, own, np.full(1, 0.25), 1e-3, 1e-9, agents, clip)
        assert abs(p) <= clip / 4 and (values["squares"] <= SQUARE_SUM / agents).all()
        step_layout(agents, 6, 1, clip, False).encode(values)


# The search


def sums_of(**options) -> int:
    world = World(tiny(4, agents=8, rows=60), 4)
    found = world.run(world.aggregator(world.plan(ridge=5.0, **options)))
    assert found is not None
    return found.sums


def test_the_search_ends_at_the_tolerance() -> None:
    assert sums_of(solver_tolerance=0.9) < sums_of(solver_tolerance=1e-6)


def test_a_total_that_adds_nothing_ends_the_search() -> None:
    span = about_to_verify()[2]
    nearly = span.gram[0, 0] * (1 + 1e-8)
    again = {"total": span.sums[0], "one": span.ones[:1], "gram": np.append(span.gram[0], nearly)}
    assert script.add(span, again, span.ridge) is None
    fresh = {**again, "gram": np.append(np.zeros(len(span)), 1.0)}
    assert len(script.add(span, fresh, span.ridge)) == len(span) + 1


def test_the_first_direction_is_scaled_to_the_data() -> None:
    """By the share of rss in ν = rss + λ/K: with the draft's √K/λ the clip never acted at a large λ. And at a small one
    by ν itself: with 0.3 √K/λ it never acted there."""
    whole, agents = about_to_verify()[2], 6
    span = replace(whole, sums=whole.sums[:1], projected=whole.projected[:1], ones=whole.ones[:1],
                   gram=whole.gram[:1, :1], products=whole.products[:1])  # fmt: skip
    for ridge in (1e-3, 5.0, 500.0):
        found = span.with_ridge(ridge)
        _, nu = found.sp1(1 / found.ones)
        share = 1.0 - ridge / agents / nu
        scale = share * min(0.3 * agents**0.5 / ridge, 1 / (agents**0.5 * nu))
        assert 0 < share < 1 and first_scale(found, agents) == pytest.approx(scale)


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


@pytest.mark.parametrize("what", ["alpha", "weights"])
def test_a_leader_whose_numbers_follow_from_another_alpha_or_c_ends_the_run(what: str) -> None:
    """A careful liar: everything else is what α or c would give, had it been that."""
    sealed, own, span, inputs, plan, gap, reached, agents = about_to_verify()
    release.verify(sealed, own, span, inputs, plan, gap, reached, agents)
    alpha = sealed.numbers[:1] * (1 + 1e-7 if what == "alpha" else 1)
    weights = span.sp2(alpha)[0] if what == "alpha" else sealed.weights * (1 + 1e-7)
    found = SimpleNamespace(alpha=alpha, weights=weights, iterations=int(sealed.numbers[-2]), converged=True)
    told = release.numbers_of(script.estimate_of(span, inputs, found, gap, reached))
    with pytest.raises(RunAborted, match="leader's numbers"):
        release.verify(replace(sealed, numbers=told, weights=weights), own, span, inputs, plan, gap, reached, agents)


def test_a_leader_whose_descent_ends_elsewhere_ends_the_run() -> None:
    """It is cut after one iteration and called converged; one step of SP_I and SP_II is what it should be."""
    sealed, own, span, inputs, plan, gap, reached, agents = about_to_verify()
    hasty = np.append(1 / span.ones[0], np.zeros(len(span) - 1))
    alpha, _ = span.sp1(hasty)
    weights, _ = span.sp2(alpha)
    found = script.estimate_of(
        span, inputs, SimpleNamespace(alpha=alpha, weights=weights, iterations=1, converged=True), gap, reached
    )
    lie = replace(sealed, numbers=release.numbers_of(found), weights=weights, previous=hasty)
    with pytest.raises(RunAborted, match="leader's numbers"):
        release.verify(lie, own, span, inputs, plan, gap, reached, agents)


def test_a_leader_that_denies_that_its_descent_converged_ends_the_run() -> None:
    sealed, own, span, inputs, plan, gap, reached, agents = about_to_verify()
    numbers = sealed.numbers.copy()
    numbers[-1] = float(release.STATUSES.index(Status.NOT_CONVERGED))
    with pytest.raises(RunAborted, match="leader's numbers"):
        release.verify(replace(sealed, numbers=numbers), own, span, inputs, plan, gap, reached, agents)


def test_a_leader_whose_descent_took_other_iterations_ends_the_run() -> None:
    """Machines that round differently may end it a few apart."""
    sealed, own, *rest = about_to_verify()
    for more, refused in ((release.MOST_APART, False), (release.MOST_APART + 1, True)):
        numbers = sealed.numbers.copy()
        numbers[-2] += more
        with pytest.raises(RunAborted, match="leader's numbers") if refused else nullcontext():
            release.verify(replace(sealed, numbers=numbers), own, *rest)


def test_a_metric_beyond_all_bounds_covers_no_other() -> None:
    """A free run that explodes is a number like 1e30; beside it, norm-wise, any other would be close."""
    sealed, *rest = about_to_verify()
    place = len(sealed.numbers) - len(release.SINGLE) - len(release.METRICS)
    told = release.numbers_of

    def exploding(estimate: Estimate) -> np.ndarray:
        numbers = told(estimate)
        numbers[place + 3] = 1e30
        return numbers

    numbers = sealed.numbers.copy()
    numbers[place + 3] = 1e30
    lie = numbers.copy()
    lie[place] *= 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "numbers_of", exploding)
        release.verify(replace(sealed, numbers=numbers), *rest)
        with pytest.raises(RunAborted, match="leader's numbers"):
            release.verify(replace(sealed, numbers=lie), *rest)


def test_a_box_of_a_release_opens_in_its_own_run_only() -> None:
    box = release.seal_release(b"k" * 32, np.arange(3.0), b"one")
    assert release.open_release(b"k" * 32, box, b"one").tolist() == [0, 1, 2]
    with pytest.raises(PeerError, match="does not open"):
        release.open_release(b"k" * 32, box, b"another")


def test_two_answers_of_one_agent_to_one_announcement_end_the_run() -> None:
    aggregator, agents = parties(seed=6, rules=LOOSE)
    (outgoing,) = aggregator.start()
    (first,) = agents[1].receive(outgoing.data)
    (other,) = parties(seed=6, rules=LOOSE)[1][1].receive(outgoing.data)
    second = msgspec.structs.replace(decode_to_aggregator(other, BIG), reason="another")
    assert not aggregator.receive(1, first)
    aggregator.receive(1, encode(second))
    assert aggregator.state is AggregatorState.ABORTED and "two different keys" in aggregator.reasons[0]


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
    assert aggregator.state is AggregatorState.ABORTED and "too few agents" in aggregator.reasons[0]


@pytest.mark.parametrize("word", [0, 20, -6, -1])
def test_a_leader_that_releases_other_numbers_than_everybody_vouched_for_is_not_taken(word: int) -> None:
    """The right key, and everybody's word: a coefficient, a row of h or of s, or the salt is another in the box."""
    aggregator, agents = parties(seed=6, rules=LOOSE)

    def alter(i: int, reply: bytes) -> list[bytes]:
        message = decode_to_aggregator(reply, BIG)
        if i == 0 and isinstance(message, Release):
            key = derive(agents[0]._seed, "release key")
            told = release.open_release(key, message.box, message.run).copy()
            told.view(np.uint64)[word] += np.uint64(1)
            reply = encode(msgspec.structs.replace(message, box=release.seal_release(key, told, message.run)))
        return [reply]

    drive(aggregator, agents, to_aggregator=alter)
    assert aggregator.state is AggregatorState.ABORTED and "vouches for" in aggregator.reasons[0]


def test_a_seal_larger_than_its_numbers_ends_the_run() -> None:
    aggregator, agents = parties(seed=6, rules=LOOSE)
    larger = altering(Seal, lambda i, seal: [msgspec.structs.replace(seal, box=seal.box + bytes(500))])
    drive(aggregator, agents, to_aggregator=larger)
    assert aggregator.state is AggregatorState.ABORTED and "larger than its numbers" in aggregator.reasons[0]


def test_a_part_of_a_release_before_the_seal_is_ignored() -> None:
    aggregator, agents = parties(seed=6, rules=LOOSE)
    signature = agents[1].own.identity.sign("vouch", VERSION, bytes(32))

    def early(i: int, masked: Masked) -> list:
        first = Release(run=masked.run, step=masked.step, words=masked.words, hash=bytes(32), signature=signature)
        return [first, masked] if i == 1 else [masked]

    refused = drive(aggregator, agents, to_aggregator=altering(Masked, early))
    assert aggregator.state is AggregatorState.DONE and any("before the seal" in text for text in refused)


def test_masks_and_hashes_of_a_release_follow_from_the_seal() -> None:
    before, after = stand(place("running/seal")).part, stand(place("running/release")).part
    seal = decode_to_agent(recorded("blind").down[MEMBER][place("running/seal").messages][0], BIG)
    assert after._veil.context == digest("blind context", before._veil.context, seal.box)


def test_a_ladder_of_ridges_goes_up_to_the_first_without_a_negative_weight() -> None:
    ladder = RidgeLadder(100.0, True, 3)
    assert ladder.better(np.array([0.0] * 14)).k == 2 and ladder.better(np.array([1.0] + [0.0] * 13)).k == 3
    assert ladder.better(np.array([1.0, 2.0, 1.0] + [0.0] * 11)).k == 5 and ladder.better(np.ones(14)).k == 15
    assert RidgeLadder(100.0, False, 0).better(np.ones(14)).k == 0
    assert ladder.better(np.zeros(14), final=True).k == 3  # where λ is to come to rest


def test_a_run_that_ended_leaves_no_keys_with_the_agent() -> None:
    agent = stand(place("done"))
    assert agent.part is None and agent.state == "done" and not agent.own.host._known.get("group stream")


def test_weather_that_does_not_cover_the_rows_ends_the_run() -> None:
    aggregator, agents = parties(protocol="blind")
    sky = agents[0].own.weather  # one table for all agents of this process
    object.__setattr__(sky, "time", sky.time + 1)
    plan = aggregator._announce.plan
    last = plan.start + (plan.length - 1) * plan.step_seconds
    plan = msgspec.structs.replace(plan, weather=weather_hash(sky, plan.start, last))
    aggregator = announcing(agents, plan, tiny(0, agents=4, rows=60))
    drive(aggregator, agents)
    assert aggregator.state is AggregatorState.ABORTED and "does not cover every kept row" in aggregator.reasons[0]
