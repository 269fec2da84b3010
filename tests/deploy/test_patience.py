"""Which announcements an agent takes that is already in a run, and what a restart within one needs."""

from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from atdm.deploy import patience
from atdm.deploy.agent import RunningAgent, link_agent
from atdm.deploy.enrolment import create_roster
from atdm.deploy.notices import pack
from atdm.deploy.own import weather_from
from atdm.errors import PeerError
from atdm.protocol.agent import AgentState
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.company import LATE
from atdm.protocol.desk import Outgoing
from atdm.protocol.plan import last_row
from atdm.transport.nats import AgentLink
from tests.deploy.theatre import Theatre, kind_of

GREATEST = 2**64 - 1  # that a message can carry


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now, self.today = 1000.0, 2e9

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.today


class Fleet:
    """Agents with their folders, asked without a network."""

    def __init__(self, folder: Any, held: ExitStack) -> None:
        self.theatre, self.said = Theatre(folder), list[str]()
        names = self.theatre.stage.names
        self.seats: list[RunningAgent] = [held.enter_context(closing(self.theatre.seat(name))) for name in names]
        self.roster = self.seats[0].agent.roster
        self.seats.sort(key=lambda seat: self.roster.index(seat.keys.identity.public))
        self.links = [self.link(seat) for seat in self.seats]

    def link(self, seat: RunningAgent) -> AgentLink:
        return link_agent(seat, ("tls://127.0.0.1:1",), self.said.append)

    def restart(self, i: int) -> RunningAgent:
        name = self.seats[i].keys.name
        self.seats[i].close()
        self.seats[i] = self.theatre.seat(name)
        self.links[i] = self.link(self.seats[i])
        return self.seats[i]

    def aggregator(self, attempt: int) -> Aggregator:
        weather = weather_from(self.theatre.stage.weather)
        return Aggregator(plan=self.theatre.plan, roster=self.roster, weather=weather, attempt=attempt, least=3)

    def carry(self, role: Aggregator, letters: Sequence[Outgoing], until: str = "") -> list[Outgoing]:
        """Until nothing is left to do, or until the aggregator would send this; gives that."""
        queue = list(letters)
        while queue:
            if until and kind_of(queue[0].data) == until:
                return queue
            to, data = queue.pop(0)
            for i in range(len(self.links)) if to is None else [to]:
                for reply in self.links[i]._answer(0, data) or []:
                    queue += role.receive(i, reply)
        return []

    def states(self) -> set[AgentState]:
        return {seat.agent.state for seat in self.seats}


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(patience, "time", clock)
    with ExitStack() as held:
        made = Fleet(tmp_path, held)
        made.clock = clock
        held.callback(lambda: [seat.close() for seat in made.seats])
        yield made


@pytest.mark.parametrize("restarted", [False, True])
def test_an_aggregator_that_fell_silent_under_the_greatest_number_is_not_waited_for_for_ever(fleet, restarted):
    first = fleet.aggregator(GREATEST)
    assert fleet.carry(first, first.start(), until="Total 1")
    assert fleet.states() == {AgentState.RUNNING}
    if restarted:
        for i in range(len(fleet.seats)):
            fleet.restart(i)
        assert fleet.states() == {AgentState.RUNNING}
    early = fleet.aggregator(7)
    fleet.carry(early, early.start())
    assert fleet.states() == {AgentState.RUNNING} and not early.answers
    fleet.clock.now += patience.RUNNING_SECONDS
    later = fleet.aggregator(8)
    fleet.carry(later, later.start())
    assert later.state is AggregatorState.DONE, later.reasons


def test_a_late_copy_of_an_announcement_does_not_break_off_the_run_that_was_joined(fleet):
    old, role = fleet.aggregator(1), fleet.aggregator(2)
    keys = fleet.carry(role, role.start(), until="Keys")
    for letter in old.start():
        for link in fleet.links:
            assert link._answer(0, letter.data) is None
    fleet.carry(role, keys)
    assert role.state is AggregatorState.DONE, role.reasons


def test_joined_under_the_greatest_number_an_agent_takes_a_smaller_one_an_hour_later(fleet):
    first = fleet.aggregator(GREATEST)
    assert fleet.carry(first, first.start(), until="Keys")
    fleet.clock.now += patience.JOINED_SECONDS
    role = fleet.aggregator(3)
    fleet.carry(role, role.start())
    assert role.state is AggregatorState.DONE, role.reasons


def test_silence_alone_ends_no_run(fleet):
    role = fleet.aggregator(5)
    left = fleet.carry(role, role.start(), until="Total 1")
    fleet.clock.now += 30 * 86400
    fleet.carry(role, left)
    assert role.state is AggregatorState.DONE, role.reasons


def test_rows_that_are_hours_ahead_are_not_answered_and_their_day_is_not_judged(fleet):
    """Asked each morning for the evening, homes would have been out of every day for good."""
    role = fleet.aggregator(1)
    fleet.clock.today = last_row(fleet.theatre.plan) - LATE - 1.0
    fleet.carry(role, role.start())
    assert not role.answers and not fleet.seats[0].agent.own.memory.account.days
    assert "hours ahead of this agent's clock" in str(fleet.said[-1])
    fleet.clock.today += 1.0
    role = fleet.aggregator(2)
    fleet.carry(role, role.start())
    assert role.state is AggregatorState.DONE, role.reasons


@pytest.mark.parametrize("by", ["notice", "file"])
@pytest.mark.parametrize("moment", ["Keys", "Total 1"])
def test_a_newer_roster_and_a_restart_do_not_lose_a_run_that_has_begun(fleet, moment, by):
    """One that has not begins under the newer one: somebody may have been retired since."""
    role = fleet.aggregator(1)
    left = fleet.carry(role, role.start(), until=moment)
    old = fleet.theatre.stage.roster.read_bytes()
    newer, _ = create_roster(fleet.theatre.stage.keys, fleet.theatre.stage.roster, ["localhost"])
    if by == "notice":
        fleet.theatre.stage.roster.write_bytes(old)
        fleet.seats[0].kept.take(pack([newer]))
    seat = fleet.restart(0)
    assert seat.agent.state in (AgentState.JOINED, AgentState.RUNNING) and seat.agent.roster.serial == 1
    with suppress(PeerError):  # of the second one that refuses
        fleet.carry(role, left)
    if moment == "Keys":
        assert role.state is AggregatorState.ABORTED and "for another roster" in role.reasons[0]
    else:
        assert role.state is AggregatorState.DONE, role.reasons
    assert seat.kept.newest().serial == 2  # of the next run


def test_a_roster_before_that_cannot_be_read_loses_the_run_and_nothing_else(fleet):
    role = fleet.aggregator(1)
    fleet.carry(role, role.start(), until="Keys")
    create_roster(fleet.theatre.stage.keys, fleet.theatre.stage.roster, ["localhost"])
    fleet.restart(0)
    (fleet.theatre.state(fleet.seats[0].keys.name) / "roster.before.json").write_text("{")
    seat = fleet.restart(0)
    assert seat.agent.state is AgentState.LOST and seat.agent.roster.serial == 2
