"""Everybody in one process: real bytes between one object per party, and what each of them cost."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from atdm.errors import PeerError, RunAborted
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, AggregatorState

log = logging.getLogger(__name__)

Tap = Callable[[str, str, bytes], None]  # sender, receiver, message
Progress = Callable[[str], None]


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
    n = len(agents)
    traffic = Traffic([0] * n, [0] * n, [0] * n, [0.0] * n)
    began = perf_counter()
    inbox = deque(aggregator.start())
    while inbox:
        to, data = inbox.popleft()
        replies: list[tuple[int, bytes]] = []
        for i in range(n) if to is None else (to,):
            if tap is not None:
                tap("aggregator", agents[i].name, data)
            start = perf_counter()
            answers = received(agents[i], data)
            traffic.seconds[i] += perf_counter() - start
            traffic.bytes_down[i] += len(data)
            replies += [(i, answer) for answer in answers]
        gathering = aggregator.state is AggregatorState.GATHERING
        for i, answer in replies:
            traffic.messages_up[i] += 1
            traffic.bytes_up[i] += len(answer)
            if tap is not None:
                tap(agents[i].name, "aggregator", answer)
            start = perf_counter()
            inbox += received(aggregator, i, answer)
            traffic.seconds_aggregator += perf_counter() - start
        if progress is not None and replies:
            progress(f"message {traffic.messages_up[-1]} of every agent")
        if not gathering and traffic.setup_seconds == 0.0:
            traffic.setup_seconds = perf_counter() - began
            setup_agents = list(traffic.seconds)
            traffic.seconds = [0.0 for _ in setup_agents]
    traffic.total_seconds = perf_counter() - began
    if aggregator.state is not AggregatorState.DONE:
        raise RunAborted(aggregator.reasons[0] if aggregator.reasons else "the run stopped without a result")
    return traffic


def received(party: Any, *message: Any) -> Any:
    """What a party answers; a message that does not belong changed nothing, e.g. a refusal of a run that is over."""
    try:
        return party.receive(*message)
    except PeerError as error:
        log.debug("ignored: %s", error)
        return []
