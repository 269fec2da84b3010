"""What the protocols' agent parts have in common: the agent's own things, and how a host shares what they all hold."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from atdm.crypto.keys import SigningKey
from atdm.data.readings import Readings, Weather, positions, usable
from atdm.protocol.account import HOLE
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import Message, ToAgent
from atdm.protocol.plan import DAY
from atdm.protocol.readings import dithered
from atdm.protocol.registry import REGISTRY
from atdm.protocol.rules import Rules
from atdm.protocol.session import Run, Session
from atdm.protocol.store import Memory

T = TypeVar("T")


@dataclass(slots=True, repr=False)
class Host:
    """A machine that runs one or more agents. What follows from values that all of them hold is worked out once per
    host: agents that stand at the same context, which hashes all they were shown, would each compute the same."""

    _known: dict[str, tuple[bytes, Any]] = field(default_factory=dict)  # the latest of each kind

    def once(self, context: bytes, what: str, compute: Callable[[], T]) -> T:
        known, value = self._known.get(what, (b"", None))
        if known != context:
            value = compute()
            self._known[what] = (context, value)
        return cast(T, value)

    def forget(self, what: str) -> None:
        self._known.pop(what, None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AgentContext:
    """What belongs to one agent and to nobody else."""

    readings: Readings
    weather: Weather
    rules: Rules
    identity: SigningKey
    secret: bytes  # long-term; the dither comes from it
    memory: Memory  # what outlives a run
    notebook: Notebook
    host: Host = field(default_factory=Host)

    def __repr__(self) -> str:
        return "AgentContext(…)"

    def sendable(self, run: Run) -> Readings:
        """What this agent can give of a run's rows: with its dither unless it opens them, as they were where they left
        before, and none beside a midnight at which the company changed."""
        rows, rules, account = run.rows(), self.rules, self.memory.account
        at = positions(self.readings.time, rows)
        there = at[at >= 0]
        own = usable(self.readings if len(there) == len(self.readings.time) else self.readings.at(there))
        quantum = self.memory.quantum if rules.quantum is None else rules.quantum
        dither = 0.0 if REGISTRY[run.announced.protocol].opened else rules.dither
        readings = account.as_sent(dithered(own, self.secret, dither, quantum), rows)
        far = ~account.beside_a_change(readings.time, run.company)
        if run.since:  # a new key knows nothing of the company before it
            far &= readings.time >= run.since * DAY + HOLE
        return readings if far.all() else readings.at(np.flatnonzero(far))


class Part(ABC):
    """The agent's side of one protocol, from the agreed keys to the end of the run."""

    finished = False
    weight = float("nan")  # ξ_i, once found; only a simulation, which owns all agents, may read it

    def __init__(self, session: Session, own: AgentContext) -> None:
        self.session, self.own = session, own

    def begin(self) -> list[Message]:
        """What this agent sends once it has the keys; nothing where it waits for the other side."""
        return []

    @abstractmethod
    def receive(self, message: ToAgent) -> list[Message]:
        """Of this run. PeerError: the message does not belong here and changed nothing. RunAborted: it ends the run."""

    def remember(self) -> None:
        """At the end of a run, however it ended: put what later runs can use into the agent's memory."""
        return

    @abstractmethod
    def largest(self) -> int:
        """Bytes of the arrays in the largest message that can come next."""
