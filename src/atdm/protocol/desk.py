"""What the protocols' aggregator parts have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from atdm.crypto import ring
from atdm.data.readings import Weather
from atdm.errors import PeerError, RunAborted
from atdm.kernel.estimate import Estimate
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import ToAggregator
from atdm.protocol.session import Run
from atdm.types import FloatArray, IntArray, UInt64Array


class Outgoing(NamedTuple):
    to: int | None  # place in the roster; None: everybody
    data: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run leaves with the aggregator."""

    estimate: Estimate  # its state and load cover the kept rows
    load: FloatArray  # h over the kept rows                [kW]
    kept: IntArray  # time stamps of the rows of the fit
    sums: int  # N-vector totals opened for the estimation


class Desk(ABC):
    """The aggregator's side of one protocol."""

    finished = False
    leaving = True  # whether the agents' next words carry readings: from here on their days are this company's
    outcome: Outcome | None = None

    def __init__(self, run: Run, weather: Weather, notebook: Notebook) -> None:
        self.run, self.weather, self.notebook = run, weather, notebook
        self._pile = RunningTotal(run.agents, 0)

    def begin(self) -> list[Outgoing]:
        """What follows the keys; nothing where agents speak first."""
        return []

    @abstractmethod
    def receive(self, sender: int, message: ToAggregator) -> list[Outgoing]:
        """Of this run."""

    @abstractmethod
    def largest(self) -> int:
        """Bytes of the arrays in the largest message that can come next."""


class RunningTotal:
    """Adds up one message of every agent for one step."""

    def __init__(self, agents: int, step: int) -> None:
        self.agents, self.step = agents, step
        self.total: UInt64Array = np.empty(0, dtype=np.uint64)
        self.phase = ""
        self._from: set[int] = set()

    def add(self, sender: int, step: int, phase: str, data: bytes) -> bool:
        """True when everybody's words are in."""
        if step != self.step:
            raise PeerError(f"words of step {step} while step {self.step} is open: ignored")
        if sender in self._from:
            raise RunAborted("an agent sent two different messages for one step")
        words = ring.from_bytes(data, len(data) // ring.WORD_BYTES)
        if not self._from:
            self.total, self.phase = words, phase
        elif phase != self.phase or len(words) != len(self.total):
            raise RunAborted("agents disagree on what is summed: somebody was shown another run")
        else:
            ring.add_into(self.total, words)
        self._from.add(sender)
        return len(self._from) == self.agents
