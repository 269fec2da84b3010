"""Between fits: the aggregate state and load on new rows, released to the aggregator by the agents of a fit.

    offer   which of the rows asked for every agent can give          ┐ two masked sums that open to the aggregator;
    show    Σ ξ_i x_i and Σ h_i on those rows, ξ of the fit           ┘ peers learn which rows, and no number

Rule 1: an agent that cannot give a row (no reading, shown before, too many totals on it) puts random words in its
        place, in both sums. A row opens only if everybody gives it; who does not is not to be seen.
Rule 2: rows are booked, as released and as one more total with coefficient ξ_i, before the first word of them leaves.
Rule 3: the context hashes the offers as received; agents that were shown different ones share no mask.

Nothing is veiled: what opens is what the aggregator is to have, and an altered total deceives the aggregator alone.
The argument in full is in docs/spec.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from atdm.crypto import ring
from atdm.crypto.keys import derive, digest
from atdm.crypto.prg import Stream
from atdm.crypto.ring import WORD_BYTES
from atdm.errors import PeerError, RunAborted
from atdm.kernel.design import REFERENCE_TEMP, FloatArray, IntArray
from atdm.protocol.blind import BASIS_BITS, LOAD_BOUND, TEMP_BOUND
from atdm.protocol.desk import Desk, Outgoing, Pile
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import (
    Finished,
    Masked,
    Message,
    ToAgent,
    ToAggregator,
    Total,
    encode,
    expect,
)  # fmt: skip
from atdm.protocol.part import Own, Part
from atdm.protocol.readings import Readings, Weather, dithered, positions, window
from atdm.protocol.session import Run, Session, sum_nonce
from atdm.protocol.sums import BLIND_BUDGET, RAW, Block, Layout, fixed

OUTSIDE_BASIS = -1  # rank under which an observed total is booked: it is no direction of a basis


class Phase(StrEnum):
    """Which message of its own an agent sent last."""

    OFFER = "offer"
    SHOW = "show"


class ObservePart(Part):
    """The agent's side of an observation."""

    def __init__(self, session: Session, own: Own) -> None:
        super().__init__(session, own)
        plan = session.run.observation
        self.step = 0
        self.context = digest("observe context", session.run.id)
        self.times = window(plan)
        self.fit = own.memory.fits[plan.fit]  # there, or the plan would have been refused
        self._random = Stream(derive(session.seed, "words of rows not given"))
        at = positions(own.readings.time, self.times)
        self.given: NDArray[np.bool_] = (at >= 0) & self._may_be_shown()
        asked = at[self.given]
        readings = Readings(own.readings.time[asked], own.readings.temperature[asked], own.readings.load[asked])
        quantum = own.memory.quantum if own.rules.quantum is None else own.rules.quantum
        self.readings = dithered(readings, own.secret, own.rules.dither, quantum)

    @property
    def weight(self) -> float:
        """ξ_i of the fit that is observed."""
        return self.fit.weight

    def _may_be_shown(self) -> NDArray[np.bool_]:
        """Rows never released, on which one more total with coefficient ξ_i passes no limit of this agent."""
        exposure, rules = self.own.exposure, self.own.rules
        totals, leverage = exposure.on(self.times)
        unseen = positions(exposure.released, self.times) < 0
        within = (totals + 1 <= rules.totals_cap(self.session.run.agents)) & (
            leverage + self.weight**2 <= rules.leverage
        )
        return unseen & within

    def begin(self) -> list[Message]:
        """Zero for a row this agent can give, a random word for one it cannot."""
        return self._send(Phase.OFFER, offer_layout(len(self.times)), {}, ~self.given)

    def receive(self, message: ToAgent) -> list[Message]:
        if isinstance(message, Finished):
            self.finished = True
            return []
        if self.phase is Phase.SHOW:
            raise PeerError(f"{type(message).__name__} where Finished was expected: ignored")
        total = expect(message, Total)
        if total.step != self.step:
            raise PeerError(f"total of step {total.step} while waiting for step {self.step}: ignored")
        try:
            everybody = opened_offer(total.words, len(self.times), self.session.run.agents)
        except PeerError as error:
            raise RunAborted(str(error)) from None
        self.own.notebook.write("scalars", everybody, "offered")
        self.context = digest("observe context", self.context, total.words)
        self.step += 1
        return self._show(everybody)

    def _show(self, everybody: NDArray[np.bool_]) -> list[Message]:
        """This agent's part of state and load on the rows that everybody offered."""
        if not everybody.any():
            raise RunAborted("no row was offered by everybody: observe again when there are new readings")
        shown = everybody & self.given
        if shown.any():
            rows = self.times[shown]
            self.own.exposure.charge(rows, self.weight, roster=self.session.run.roster_hash, rank=OUTSIDE_BASIS)
            self.own.exposure.release(rows)
        state, load = np.zeros(len(self.times)), np.zeros(len(self.times))
        state[self.given] = self.weight * (self.readings.temperature - REFERENCE_TEMP)  # Eq. (1)
        load[self.given] = self.readings.load
        layout = show_layout(self.session.run.agents, int(everybody.sum()))
        values = {"state": state[everybody], "load": load[everybody]}
        return self._send(Phase.SHOW, layout, values, np.tile(~self.given[everybody], 2))

    def _send(
        self, phase: Phase, layout: Layout, values: dict[str, FloatArray], not_given: NDArray[np.bool_]
    ) -> list[Message]:
        """encode → random words where a row is not given → pairwise masks."""
        self.phase, self.layout = phase, layout
        nonce = sum_nonce(self.context, phase, layout)
        words = layout.encode(values)
        words[:-1][not_given] = self._random.words(layout.words - 1, nonce)[not_given]
        self.session.mask(words, nonce)
        return [Masked(run=self.session.run.id, step=self.step, phase=phase, words=ring.to_bytes(words))]

    def largest(self) -> int:
        return WORD_BYTES * self.layout.words if self.phase is Phase.OFFER else 0


@lru_cache(maxsize=8)
def offer_layout(rows: int) -> Layout:
    return Layout((Block("not given", rows, RAW),))


@lru_cache(maxsize=8)
def show_layout(agents: int, rows: int) -> Layout:
    """The bits of a basis total and of the load total of a fit. |ξ_i| < 1: the release checked 1/Σξ² ≥ 3."""
    return Layout((
        fixed("state", rows, agents, TEMP_BOUND, BLIND_BUDGET, most=BASIS_BITS),
        fixed("load", rows, agents, LOAD_BOUND, BLIND_BUDGET),
    ))  # fmt: skip


def opened_offer(data: bytes, rows: int, agents: int) -> NDArray[np.bool_]:
    """For each row whether everybody offered it: the sum of their words is zero then, and else random."""
    layout = offer_layout(rows)
    total = ring.from_bytes(data, layout.words)
    layout.decode(total, agents)  # the count word
    everybody: NDArray[np.bool_] = total[:-1] == 0
    return everybody


@dataclass(frozen=True, slots=True)
class Observed:
    """What an observation leaves with the aggregator."""

    time: IntArray  # time stamps of the rows that everybody gave
    state: FloatArray  # s     [°C]
    load: FloatArray  # h      [kW]


class ObserveDesk(Desk):
    """The aggregator's side: it opens both sums, and passes the offers on."""

    observed: Observed | None = None

    def __init__(self, run: Run, weather: Weather, notebook: Notebook) -> None:
        super().__init__(run, weather, notebook)
        self._pile = Pile(run.agents, 0)
        self._rows: IntArray | None = None  # that everybody offered, once they did

    def begin(self) -> list[Outgoing]:
        return []

    def largest(self) -> int:
        return WORD_BYTES * (2 * self.run.observation.length + 1)

    def receive(self, sender: int, message: ToAggregator) -> list[Outgoing]:
        masked = expect(message, Masked)
        if not self._pile.add(sender, masked.step, masked.phase, masked.words):
            return []
        pile, self._pile = self._pile, Pile(self.run.agents, masked.step + 1)
        try:
            return self._offered(pile) if self._rows is None else self._open(pile, self._rows)
        except PeerError:
            raise RunAborted("the observation does not open: somebody saw another run, or did not consent") from None

    def _offered(self, pile: Pile) -> list[Outgoing]:
        times, words = window(self.run.observation), ring.to_bytes(pile.total)
        everybody = opened_offer(words, len(times), self.run.agents)
        self.notebook.write("scalars", everybody, "offered")
        self._rows = times[everybody]
        if not len(self._rows):
            return self._finish(Observed(self._rows, np.empty(0), np.empty(0)))
        return [Outgoing(None, encode(Total(run=self.run.id, step=pile.step, words=words)))]

    def _open(self, pile: Pile, rows: IntArray) -> list[Outgoing]:
        layout = show_layout(self.run.agents, len(rows))
        if len(pile.total) != layout.words:
            raise PeerError("an observation of an impossible length")
        values = layout.decode(pile.total, self.run.agents)
        observed = Observed(rows, values["state"] + REFERENCE_TEMP, values["load"])
        self.notebook.write("load total", observed.load)
        self.notebook.write("state", observed.state)
        return self._finish(observed)

    def _finish(self, observed: Observed) -> list[Outgoing]:
        self.observed, self.finished = observed, True
        return [Outgoing(None, encode(Finished(run=self.run.id)))]
