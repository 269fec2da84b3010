"""Everybody in one process: real bytes between one object per party, and what each of them cost.

`pump` is the one loop that carries messages: here, between processes, and in attacks, which alter them on the way.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from atdm.errors import PeerError, RunAborted
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.desk import Outgoing

log = logging.getLogger(__name__)

Tap = Callable[[str, str, bytes], None]  # sender, receiver, message
Progress = Callable[[str], None]
Answer = tuple[int, list[bytes], float]  # agent, its answers, and the seconds it took
Deliver = Callable[[Sequence[Outgoing]], Iterable[Answer]]


@dataclass(slots=True)
class Traffic:
    """Bytes, messages and seconds of every agent, and of the aggregator."""

    messages_up: list[int] = field(default_factory=list)
    bytes_up: list[int] = field(default_factory=list)
    bytes_down: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    seconds_aggregator: float = 0.0
    setup_seconds: float = 0.0  # until every agent has its keys and masks
    total_seconds: float = 0.0


def run(
    aggregator: Aggregator, agents: Sequence[Agent], tap: Tap | None = None, progress: Progress | None = None
) -> Traffic:
    """Carry messages until the run is done; agents are in the order of the roster's members."""

    def deliver(to: int, data: bytes) -> list[bytes]:
        if tap is not None:
            tap("aggregator", agents[to].name, data)
        replies: list[bytes] = received(agents[to], data)
        if tap is not None:
            for reply in replies:
                tap(agents[to].name, "aggregator", reply)
        return replies

    traffic = pump(aggregator, len(agents), one_by_one(len(agents), deliver), progress=progress)
    check_done(aggregator)
    return traffic


def one_by_one(agents: int, deliver: Callable[[int, bytes], list[bytes]]) -> Deliver:
    """Agents of this process answer one after the other."""

    def answers(messages: Sequence[Outgoing]) -> list[Answer]:
        found = []
        for to, data in messages:
            for i in range(agents) if to is None else (to,):
                start = perf_counter()
                replies = deliver(i, data)
                found.append((i, replies, perf_counter() - start))
        return found

    return answers


def pump(
    aggregator: Aggregator,
    agents: int,
    deliver: Deliver,
    *,
    hear: Callable[[int, bytes], bytes] = lambda _, reply: reply,
    after: Callable[[], Sequence[Outgoing] | None] = lambda: None,
    progress: Progress | None = None,
) -> Traffic:
    """Carry messages between the aggregator and `agents` agents until no message is left. Agents that do not answer
    the announcement are out.

    deliver: hands messages to agents and returns their answers; hear: may alter an answer before the aggregator gets
    it; after: called after each delivery, may return messages that replace all that are still to be delivered.
    """
    traffic = Traffic([0] * agents, [0] * agents, [0] * agents, [0.0] * agents)
    began = perf_counter()
    inbox = deque(aggregator.start())
    while inbox:
        messages = _next(inbox)
        for to, data in messages:
            for i in range(agents) if to is None else (to,):
                traffic.bytes_down[i] += len(data)
        keys_made = aggregator.state is AggregatorState.RUNNING and traffic.setup_seconds == 0.0
        for i, replies, spent in deliver(messages):
            traffic.seconds[i] += spent
            for reply in replies:
                traffic.messages_up[i] += 1
                traffic.bytes_up[i] += len(reply)
                start = perf_counter()
                inbox += received(aggregator, i, hear(i, reply))
                traffic.seconds_aggregator += perf_counter() - start
        if keys_made:
            traffic.setup_seconds, traffic.seconds = perf_counter() - began, [0.0] * agents
        if not inbox and aggregator.state is AggregatorState.GATHERING:
            inbox += aggregator.close()
        if (instead := after()) is not None:
            inbox = deque(instead)
        if progress is not None:
            progress(f"message {traffic.messages_up[-1]} of every agent")
    traffic.total_seconds = perf_counter() - began
    return traffic


def _next(inbox: deque[Outgoing]) -> list[Outgoing]:
    """The next message to everybody, or all that come before it."""
    messages = [inbox.popleft()]
    while messages[0].to is not None and inbox and inbox[0].to is not None:
        messages.append(inbox.popleft())
    return messages


def check_done(aggregator: Aggregator) -> None:
    if aggregator.state is not AggregatorState.DONE:
        raise RunAborted(aggregator.reasons[0] if aggregator.reasons else "the run stopped without a result")


def received(party: Any, *message: Any) -> Any:
    """A party's answers to a message; none where it ignored the message, e.g. a refusal of a run that is over."""
    try:
        return party.receive(*message)
    except PeerError as error:
        log.debug("ignored: %s", error)
        return []
