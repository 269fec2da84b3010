"""Rows of the aggregate state and load, opened to the aggregator: s and h of each stamp, under one weighting and by
one company.

    offer   which of the rows asked for every agent can give          ┐ two masked sums that open to the aggregator;
    show    Σ ξ_i x_i and Σ h_i on those rows                         ┘ peers learn which rows, and no number

ξ_i is 1/K (`weights="equal"`), or this agent's weight in a fit of the same company. Nothing is computed from anybody's
data but its own reading, so there is nothing to steer: whoever deviates spoils its own result.

Rule 1: an agent that cannot give a row (no reading, shown too often, beside a change of company) puts random words in
        its place, in both sums. A row opens only if everybody gives it; who does not is not to be seen.
Rule 2: days are settled, readings kept and stamps counted before the first word of them leaves.
Rule 3: the context hashes the offers as received; agents that were shown different ones share no mask.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import derive, digest
from atdm.crypto.prg import Stream
from atdm.crypto.ring import WORD_BYTES
from atdm.crypto.sums import RAW, Block, Layout, fixed, sum_nonce
from atdm.data.readings import positions
from atdm.errors import PeerError, RunAborted, ending_the_run
from atdm.kernel.design import REFERENCE_TEMP
from atdm.protocol import messages as wire
from atdm.protocol.account import MOST_ASKINGS, Shown
from atdm.protocol.blind.layouts import LOAD_BOUND, TEMP_BOUND, TOTAL_BITS
from atdm.protocol.desk import Desk, Outgoing, RunningTotal
from atdm.protocol.part import AgentContext, Part
from atdm.protocol.plan import BLIND_BUDGET
from atdm.protocol.session import Session
from atdm.types import BoolArray, FloatArray, IntArray

Phase = Literal["offer", "show"]  # which message of its own an agent sent last


class CollectPart(Part):
    """The agent's side."""

    def __init__(self, session: Session, own: AgentContext) -> None:
        super().__init__(session, own)
        run, account = session.run, own.memory.account
        self.step = 0
        self.context = digest("collect context", run.id)
        self.times = run.rows()
        self.fit = own.memory.fits[run.collect.fit] if run.collect.fit else None  # there, or this agent would be out
        self.weight = 1.0 / run.agents if self.fit is None else self.fit.weight
        self._random = Stream(derive(session.seed, "words of rows not given"))
        self.readings = own.sendable(run)
        at = positions(self.readings.time, self.times)
        self.given: BoolArray = (at >= 0) & (account.asked(self.times) < MOST_ASKINGS)
        self.readings = self.readings.at(at[self.given])

    def begin(self) -> list[wire.Message]:
        """Zero for a row this agent can give, a random word for one it cannot."""
        return [self._send("offer", offer_layout(len(self.times)), {}, ~self.given)]

    def receive(self, message: wire.ToAgent) -> list[wire.Message]:
        if isinstance(message, wire.Finished):
            self.finished = True
            return []
        if self.phase == "show":
            raise PeerError(f"{type(message).__name__} where Finished was expected: ignored")
        total = wire.expect(message, wire.Total)
        if total.step != self.step:
            raise PeerError(f"total of step {total.step} while waiting for step {self.step}: ignored")
        with ending_the_run():
            everybody = opened_offer(total.words, len(self.times), self.session.run.agents)
        self.own.notebook.write("scalars", everybody, "offered")
        self.context = digest("collect context", self.context, total.words)
        self.step += 1
        return self._show(everybody)

    def _show(self, everybody: BoolArray) -> list[wire.Message]:
        """This agent's part of state and load on the rows that everybody offered."""
        if not everybody.any():
            raise RunAborted("no row was offered by everybody: ask again when there are new readings")
        run, given = self.session.run, self.given[everybody]
        shown = self.readings.at(np.flatnonzero(everybody[self.given]))  # of the rows this agent gives
        if len(shown.time):
            self.own.memory.account.settle(shown, run.company, run.collect.weights, run.collect.step_seconds)
            fit = b"" if self.fit is None else self.fit.hash
            self.own.memory.account.book(Shown(shown.time.astype("<i8").tobytes(), fit))
        state, load = np.zeros(len(given)), np.zeros(len(given))
        part = 1.0 if self.fit is None else self.fit.weight  # equal weights are divided by K once, at the aggregator
        state[given] = part * (shown.temperature - REFERENCE_TEMP)  # Eq. (1)
        load[given] = shown.load
        layout = show_layout(run.agents, len(given), self.fit is None)
        return [self._send("show", layout, {"state": state, "load": load}, np.tile(~given, 2))]

    def _send(self, phase: Phase, layout: Layout, values: dict[str, FloatArray], not_given: BoolArray) -> wire.Masked:
        """encode → random words where a row is not given → pairwise masks."""
        self.phase, self.layout = phase, layout  # of what it sent last
        nonce = sum_nonce(self.context, phase, layout)
        words = layout.encode(values)
        words[:-1][not_given] = self._random.words(layout.words - 1, nonce)[not_given]
        self.session.mask(words, nonce)
        return wire.Masked(run=self.session.run.id, step=self.step, phase=phase, words=ring.to_bytes(words))

    def largest(self) -> int:
        return WORD_BYTES * self.layout.words if self.phase == "offer" else 0


@lru_cache(maxsize=8)
def offer_layout(rows: int) -> Layout:
    return Layout((Block("not given", rows, RAW),))


@lru_cache(maxsize=8)
def show_layout(agents: int, rows: int, equal: bool) -> Layout:
    """Equal weights are no secret, so that more bits tell nothing; |ξ_i| < 1: a fit's release checked 1/Σξ² ≥ 3."""
    return Layout((
        fixed("state", rows, agents, TEMP_BOUND, BLIND_BUDGET, most=63 if equal else TOTAL_BITS),
        fixed("load", rows, agents, LOAD_BOUND, BLIND_BUDGET),
    ))  # fmt: skip


def opened_offer(data: bytes, rows: int, agents: int) -> BoolArray:
    """For each row whether everybody offered it: the sum of their words is zero then, and else random."""
    layout = offer_layout(rows)
    total = ring.from_bytes(data, layout.words)
    layout.decode(total, agents)  # the count word
    everybody: BoolArray = total[:-1] == 0
    return everybody


@dataclass(frozen=True, slots=True)
class Collected:
    """What collecting leaves with the aggregator."""

    time: IntArray  # time stamps of the rows that everybody gave
    state: FloatArray  # s     [°C]
    load: FloatArray  # h      [kW]


class CollectDesk(Desk):
    """The aggregator's side: it opens both sums, and passes the offers on."""

    collected: Collected | None = None
    leaving = False
    offered: IntArray = np.empty(0, dtype=np.int64)  # by everybody: their days belong to this company now

    def largest(self) -> int:
        return WORD_BYTES * (2 * len(self.run.rows()) + 1)

    def receive(self, sender: int, message: wire.ToAggregator) -> list[Outgoing]:
        masked = wire.expect(message, wire.Masked)
        if not self._pile.add(sender, masked.step, masked.phase, masked.words):
            return []
        pile, self._pile = self._pile, RunningTotal(self.run.agents, masked.step + 1)
        try:
            return self._offered(pile) if pile.step == 0 else self._open(pile)
        except PeerError:
            raise RunAborted("the rows do not open: a participant altered a sum, or was shown another run") from None

    def _offered(self, pile: RunningTotal) -> list[Outgoing]:
        times, words = self.run.rows(), ring.to_bytes(pile.total)
        everybody = opened_offer(words, len(times), self.run.agents)
        self.notebook.write("scalars", everybody, "offered")
        self.offered = times[everybody]
        if not len(self.offered):
            return self._finish(Collected(self.offered, np.empty(0), np.empty(0)))
        self.leaving = True
        return [Outgoing(None, wire.encode(wire.Total(run=self.run.id, step=pile.step, words=words)))]

    def _open(self, pile: RunningTotal) -> list[Outgoing]:
        equal = self.run.collect.weights == "equal"
        layout = show_layout(self.run.agents, len(self.offered), equal)
        if len(pile.total) != layout.words:
            raise PeerError("rows of an impossible length")
        values = layout.decode(pile.total, self.run.agents)
        state = values["state"] / self.run.agents if equal else values["state"]
        collected = Collected(self.offered, state + REFERENCE_TEMP, values["load"])
        self.notebook.write("load total", collected.load)
        self.notebook.write("state", collected.state)
        return self._finish(collected)

    def _finish(self, collected: Collected) -> list[Outgoing]:
        self.collected, self.finished = collected, True
        return [Outgoing(None, wire.encode(wire.Finished(run=self.run.id)))]
