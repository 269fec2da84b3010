"""Rules of `blind` (docs/spec.md §5) that a run must be seen to follow, one claim each."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import atdm
from atdm.crypto import ring
from atdm.crypto.keys import SigningKey, digest
from atdm.errors import DataError, PeerError, UsageError
from atdm.protocol.aggregator import State
from atdm.protocol.blind import Announced, BlindPart, basis_layout
from atdm.protocol.exposure import Exposure
from atdm.protocol.messages import Masked, Total, decode_to_agent, decode_to_aggregator
from atdm.protocol.readings import LEAST_QUANTUM, Readings, dithered
from atdm.protocol.roster import check_roster, sign_roster
from atdm.protocol.rules import check_agents
from tests.clusters import tiny
from tests.protocol.drive import drive, parties
from tests.protocol.world import LOOSE
from tests.reliability.places import MEMBER, Place, announcement, recorded, stand

BIG = 10**9
STRICT = atdm.Rules(least_agents=3, rows_per_parameter=1.0, dither=0.1)


def test_a_total_shows_the_aggregator_nothing() -> None:
    """Added up, the masks cancel and the veil stays: not even the number of agents can be read."""
    aggregator, agents = parties(seed=6, rules=LOOSE)
    totals: dict[int, np.ndarray] = {}
    release: list[int] = []

    def add(i: int, reply: bytes) -> list[bytes]:
        message = decode_to_aggregator(reply, BIG)
        if isinstance(message, Masked):
            words = ring.from_bytes(message.words, len(message.words) // 8)
            totals[message.step] = totals.get(message.step, np.zeros_like(words)) + words
            if message.phase == "release":
                release.append(message.step)
        return [reply]

    drive(aggregator, agents, to_aggregator=add)
    assert aggregator.state is State.DONE and len(totals) > 8
    for step, total in totals.items():
        count = total[-1] if step in release else total[-1 - ring.CHECK_WORDS]
        assert (count == len(agents)) == (step in release)


def test_directions_are_orthonormal() -> None:
    aggregator, agents = parties(tiny(4, agents=6, rows=60), rules=LOOSE, seed=4)
    spans: list = []

    def watch(i: int, data: bytes) -> list[bytes]:
        spans.append(getattr(agents[i].part, "span", None))
        return [data]

    drive(aggregator, agents, watch)
    gram = spans[-1].gram
    assert len(gram) >= 3 and np.abs(gram - np.eye(len(gram))).max() < 1e-4


def test_stored_directions_are_refused_beyond_the_caps() -> None:
    """Three totals are on the account already; of three stored directions over the same rows, two more may follow."""
    exposure, rows = Exposure(), np.arange(5) * 60
    for _ in range(3):
        exposure.charge(rows, 0.1)
    added, q = np.ones((5, 3), dtype=bool), np.array([0.1, 0.2, 0.3])
    assert exposure.refuses(rows, added, q, 5, 1.0).tolist() == [False, False, True]
    assert exposure.refuses(rows, added, q, 9, 0.05).tolist() == [False, True, True]
    assert not exposure.refuses(rows, np.zeros((5, 3), dtype=bool), q, 3, 0.01).any()


def test_the_context_hashes_every_total_as_received() -> None:
    """Worked out here a second time, from the messages alone."""
    history = recorded("blind").down[MEMBER]
    checked = 0
    for n in range(3, 14):
        before, after = (stand(Place("", "blind", MEMBER, m)).part for m in (n, n + 1))
        message = decode_to_agent(history[n][0], BIG)
        if isinstance(message, Total):
            assert after.context == digest("blind context", before.context, message.words)
            assert after.context != digest("blind context", before.context)
            checked += 1
    assert checked >= 8


@pytest.mark.parametrize("agents", [3, 10, 64, 1000, 10_000])
def test_totals_have_sixteen_fractional_bits_and_no_more(agents: int) -> None:
    block = basis_layout(agents, 100, 3).blocks[0]
    assert block.name == "total" and block.bits <= 16


def test_what_enters_a_total_is_dithered() -> None:
    seen: dict[int, np.ndarray] = {}
    aggregator, agents = parties(tiny(4, agents=5, rows=60), rules=STRICT, seed=4)

    def watch(i: int, data: bytes) -> list[bytes]:
        part = agents[i].part
        if hasattr(part, "x"):
            seen[i] = part.x
        return [data]

    drive(aggregator, agents, watch)
    for i, x in seen.items():
        own = agents[i].own.readings.temperature - 20.0
        moved = np.abs(x - own)
        assert 0 < moved.max() <= 0.1 * agents[i].own.memory.quantum and np.count_nonzero(moved) == len(moved)


def odd_one_out() -> atdm.Cluster:
    """One agent unlike the others: without a cap its leverage goes to one."""
    cluster = tiny(9, agents=12, rows=80)
    temperature = cluster.temperature.copy()
    temperature.iloc[:, 3] = np.round(20 + 4 * np.sin(np.arange(80) ** 1.5), 2)
    return atdm.Cluster.from_frames(temperature, cluster.load, cluster.outdoor, cluster.solar, owner=cluster.owner)


def test_nobodys_leverage_passes_its_cap() -> None:
    aggregator, agents = parties(odd_one_out(), rules=replace(LOOSE, leverage=0.3), ridge=0.5)
    drive(aggregator, agents)
    assert max(agent.own.exposure.leverage.max() for agent in agents) <= 0.3


@pytest.mark.parametrize("what", ["alpha", "weights", "multiplier"])
def test_a_leader_whose_numbers_do_not_follow_from_the_totals_ends_the_run(what, monkeypatch) -> None:
    told = BlindPart._announce

    def lie(self):
        found = Announced.unpack(told(self), self.plan.order, len(self.span))
        values = {name: getattr(found, name) for name in Announced.__slots__}
        values[what] = values[what] * (1 + 1e-7)
        return Announced(**values).pack()

    monkeypatch.setattr(BlindPart, "_announce", lie)
    aggregator, agents = parties(seed=2)
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "leader" in aggregator.reasons[0]


def test_a_leader_that_claims_convergence_ends_the_run(monkeypatch) -> None:
    """The descent is cut after one iteration and called converged."""
    told = BlindPart._announce

    def hasty(self):
        found = Announced.unpack(told(self), self.plan.order, len(self.span))
        previous = self.span.descend(self.plan.tolerance, None, 1)
        if previous.iterations < 1 or len(self.span) < 2:
            return found.pack()
        return Announced(previous.alpha, previous.weights, previous.previous,
                         previous.objectives[-1], 1, True).pack()  # fmt: skip

    monkeypatch.setattr(BlindPart, "_announce", hasty)
    aggregator, agents = parties(tiny(4, agents=6, rows=60), seed=2, ridge=5.0, rules=LOOSE)
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "converged where it did not" in aggregator.reasons[0]


def test_an_agent_takes_no_weather_but_its_own() -> None:
    agent = stand(Place("waiting", "blind", MEMBER, 0))
    announce = announcement("blind")
    other = msgspec.structs.replace(announce, plan=msgspec.structs.replace(announce.plan, weather=bytes(32)))
    (reply,) = agent.receive(msgspec.msgpack.encode(other))
    assert b"weather" in reply and b"Refuse" in reply


def test_an_agent_takes_no_run_of_another_roster_or_without_it() -> None:
    announce = announcement("blind")
    for change in (dict(roster=bytes(32)), dict(cohorts=()), dict(cohorts=(0, 0)), dict(cohorts=(5,))):
        agent = stand(Place("waiting", "blind", MEMBER, 0))
        (reply,) = agent.receive(msgspec.msgpack.encode(msgspec.structs.replace(announce, **change)))
        assert b"Refuse" in reply


def test_no_roster_is_taken_but_the_authoritys() -> None:
    authority, other = SigningKey(b"a" * 32), SigningKey(b"b" * 32)
    members = [(f"zone{i}", f"home{i}", SigningKey(bytes([i]) * 32).public) for i in range(4)]
    roster = sign_roster(authority, members)
    check_roster(roster, authority.public)
    forged = msgspec.structs.replace(sign_roster(other, members), authority=authority.public)
    swapped = msgspec.structs.replace(roster, members=(*roster.members[1:], roster.members[0]))
    for bad in (forged, swapped, msgspec.structs.replace(roster, members=roster.members[:-1])):
        with pytest.raises(PeerError):
            check_roster(bad, authority.public)


def test_three_agents_of_unequal_weight_release_nothing() -> None:
    """1/Σξ² ≥ max(3, K/4): the state must rest on three agents in effect."""
    aggregator, agents = parties(tiny(1, agents=3, rows=60), rules=LOOSE)
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "agents in effect" in aggregator.reasons[0]


def test_a_run_that_ended_leaves_no_keys_with_the_agent() -> None:
    agent = stand(Place("done", "blind", MEMBER, 15))
    assert agent.part is None and agent.state == "done"


def test_a_roster_out_of_order_or_with_somebody_twice_is_refused_though_signed() -> None:
    authority = SigningKey(b"a" * 32)
    members = [(f"zone{i}", f"home{i}", SigningKey(bytes([i]) * 32).public) for i in range(4)]
    roster = sign_roster(authority, members)
    turned = msgspec.structs.replace(roster, members=roster.members[::-1])
    signed = msgspec.structs.replace(turned, signature=authority.sign("roster", turned.hash()))
    with pytest.raises(PeerError, match="order of its keys"):
        check_roster(signed, authority.public)
    for twice in ([*members, ("zone0", "home9", bytes(32))], [*members, ("zone9", "home9", members[0][2])]):
        with pytest.raises(UsageError, match="enrol each agent once"):
            sign_roster(authority, twice)
    with pytest.raises(PeerError, match="not in the roster"):
        roster.index(bytes(32))


def test_no_simulation_is_offered_below_three_agents_or_below_the_agents_own_minimum() -> None:
    check_agents(3, "moments", atdm.Rules())
    for agents, protocol in ((2, "plain"), (9, "blind")):
        with pytest.raises(UsageError, match=f"{agents} agents"):
            check_agents(agents, protocol, atdm.Rules())


def test_weather_that_does_not_cover_the_rows_ends_the_run() -> None:
    aggregator, agents = parties(protocol="blind")
    sky = agents[0].own.weather  # one table for all agents of this process
    object.__setattr__(sky, "time", sky.time + 1)
    plan = msgspec.structs.replace(aggregator._announce.plan, weather=sky.hash())
    aggregator._announce = msgspec.structs.replace(aggregator._announce, plan=plan)
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and "does not cover every kept row" in aggregator.reasons[0]


def test_a_sensor_that_never_moves_is_dithered_by_the_least_step_and_a_declared_one_must_be_positive() -> None:
    still = Readings(np.arange(9) * 60, np.full(9, 20.0), np.zeros(9))
    moved = dithered(still, b"k" * 32, 0.1, None).temperature - 20.0
    assert 0 < np.abs(moved).max() <= 0.05 * LEAST_QUANTUM
    with pytest.raises(DataError, match="positive"):
        dithered(still, b"k" * 32, 0.1, 0.0)
