"""Which announcements an agent takes, by the clock that the protocol does without.

Announcements of an aggregator count up. One with a smaller number than the last is a late copy, as long as the run of
the last is heard of. But a number is the aggregator's word: after the greatest there is, or after one by a clock that
was years ahead, every later announcement would look late, and the home would wait for good.

Rule 1: joined, an agent passes over smaller numbers for an hour: with a late copy taken it would refuse the keys of the
        run that it had joined, which then has to be formed again.
Rule 2: in a run that has begun it passes over them (agent.py) until nothing was heard of that run for twelve hours. The
        next announcement then ends it, as the aggregator's own Abort would have.
Rule 3: without another announcement nothing is given up, however long the aggregator is silent.
Rule 4: rows that are hours ahead are not answered. An agent without a clock has to take them for an outage of its own,
        and would be out of their days for good: of every day, if somebody asked for its evening each morning.
"""

import time
from typing import NamedTuple

import msgspec

from atdm.deploy.owner import UNREADABLE, read_head
from atdm.errors import PeerError
from atdm.protocol.agent import Agent, AgentState
from atdm.protocol.company import LATE
from atdm.protocol.messages import Abort, encode
from atdm.protocol.plan import AnyPlan, last_row

JOINED_SECONDS = 3600.0  # as long as an aggregator waits for homes (`--wait`)
RUNNING_SECONDS = 12 * 3600.0  # far above any delay of a message, and less than a home runs between two restarts


class Patience:
    """Of one agent, since it was started."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._heard = time.monotonic()  # when it last answered something  [s]
        self._number = -1  # of the announcement that it answered last

    def admit(self, message: bytes) -> None:
        """Before the agent is given a message. PeerError: it is passed over."""
        announced, silent = _announced(message), time.monotonic() - self._heard
        if announced is None:
            return
        if announced.last > time.time() + LATE:
            raise PeerError("announcement of rows that are hours ahead of this agent's clock: ignored")
        if self._agent.state is AgentState.JOINED and announced.number < self._number and silent < JOINED_SECONDS:
            raise PeerError("announcement older than the one this agent has joined: ignored")
        part = self._agent.part
        if self._agent.state is AgentState.RUNNING and part is not None and silent >= RUNNING_SECONDS:
            self._agent.receive(encode(Abort(run=part.session.run.id, reason="nothing was heard of it any more")))

    def answered(self, message: bytes) -> None:
        """The agent took it."""
        announced = _announced(message)
        self._heard, self._number = time.monotonic(), self._number if announced is None else announced.number


class _Announced(NamedTuple):
    number: int
    last: int  # row asked for  [s since 1970]


def _announced(message: bytes) -> _Announced | None:
    """None of another message, and of one that the agent will not read either."""
    try:
        head = read_head(message)
        if head.get("type") != "Announce":
            return None
        return _Announced(int(head.get("attempt", 0)), last_row(msgspec.convert(head["plan"], AnyPlan)))
    except UNREADABLE:
        return None
