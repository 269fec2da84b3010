"""Which announcement an agent that is already in a run takes, by the clock that the protocol does without.

Announcements of an aggregator count up. One with a smaller number than the last is a late copy, as long as the run of
the last is heard of. But a number is the aggregator's word: after the greatest there is, or after one by a clock that
was years ahead, every later announcement would look late, and the home would wait for good.

Rule 1: joined, an agent passes over smaller numbers for an hour: with a late copy taken it would refuse the keys of the
        run that it had joined, which then has to be formed again.
Rule 2: in a run that has begun it passes over them (agent.py) until nothing was heard of that run for twelve hours. The
        next announcement then ends it, as the aggregator's own Abort would have.
Rule 3: without another announcement nothing is given up, however long the aggregator is silent.
"""

import time

from atdm.deploy.owner import UNREADABLE, read_head
from atdm.errors import PeerError
from atdm.protocol.agent import Agent, AgentState
from atdm.protocol.messages import Abort, encode

JOINED_SECONDS = 3600.0  # as long as an aggregator waits for homes (`--wait`)
RUNNING_SECONDS = 12 * 3600.0  # far above any delay of a message, and less than a home runs between two restarts


class Patience:
    """Of one agent, since it was started."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._heard = time.monotonic()  # when it last answered something  [s]
        self._number = -1  # of the announcement that it answered last

    def admit(self, message: bytes) -> None:
        """Before the agent is given a message. PeerError: it is a late copy, and is passed over."""
        number, silent = _number_of(message), time.monotonic() - self._heard
        if number is None:
            return
        if self._agent.state is AgentState.JOINED and number < self._number and silent < JOINED_SECONDS:
            raise PeerError("announcement older than the one this agent has joined: ignored")
        part = self._agent.part
        if self._agent.state is AgentState.RUNNING and part is not None and silent >= RUNNING_SECONDS:
            self._agent.receive(encode(Abort(run=part.session.run.id, reason="nothing was heard of it any more")))

    def answered(self, message: bytes) -> None:
        """The agent took it."""
        number = _number_of(message)
        self._heard, self._number = time.monotonic(), self._number if number is None else number


def _number_of(message: bytes) -> int | None:
    """Of an announcement; None of another message."""
    try:
        head = read_head(message)
        return int(head.get("attempt", 0)) if head.get("type") == "Announce" else None
    except UNREADABLE:
        return None
