"""Sums that open to the aggregator, under consent (`moments`, `paper`).

    Ask       the aggregator names the next sum and the numbers it depends on; both enter the mask nonce
    Masked    every agent sends its words under pairwise masks and a mask of its own, with a receipt for each neighbour
    Receipts  the aggregator passes the receipts on
    Consent   an agent opens its own mask only when all its neighbours have sent their part of the same sum

So nothing opens before everybody's words are in, and an agent that was shown another question spoils the sum instead
of answering it. Receipts are tags under pair keys: K² signatures a sum would cost more than the masks.
"""

from abc import abstractmethod
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import KEY_BYTES, TAG_BYTES, derive, digest, pack
from atdm.crypto.prg import Stream, nonce
from atdm.crypto.ring import WORD_BYTES
from atdm.crypto.sums import Block, Layout, fixed, sum_nonce
from atdm.data.readings import positions
from atdm.errors import PeerError, RunAborted, ending_the_run
from atdm.kernel.descent import Descent, Status
from atdm.kernel.design import REFERENCE_TEMP, Design, Inputs
from atdm.kernel.estimate import complete
from atdm.protocol import messages as wire
from atdm.protocol.desk import Desk, Outcome, Outgoing, RunningTotal
from atdm.protocol.part import AgentContext, Part
from atdm.protocol.plan import OPEN_BUDGET, Plan
from atdm.protocol.readings import public_inputs, window
from atdm.protocol.session import Session
from atdm.types import FloatArray

Share = tuple[Layout, dict[str, FloatArray]]  # one agent's part of a sum
LOAD_BOUND = 1e4  # kW of one agent
TEMP_BOUND = 50.0  # K from the reference, of one agent


def rows_layout(plan: Plan) -> Layout:
    return Layout((Block("missing", plan.length, 0, 1.0),))


def load_layout(agents: int, rows: int) -> Layout:
    return Layout((fixed("load", rows, agents, LOAD_BOUND, OPEN_BUDGET),))


class OpenPart(Part):
    """The agent's side: answers questions about its own column."""

    def __init__(self, session: Session, own: AgentContext) -> None:
        super().__init__(session, own)
        self.plan, self.agents = session.run.plan, session.run.agents
        self.context = digest("open context", session.run.id)
        self.step = 0
        self.x: FloatArray = np.empty(0)  # temperature over the kept rows, centred  [K]
        self.readings = own.sendable(session.run)
        self._seed = b""  # of the self mask while a sum waits for consent

    def largest(self) -> int:
        return WORD_BYTES * (2 * self.plan.length + 4 * self.agents) + TAG_BYTES * self.agents

    @abstractmethod
    def contribute(self, what: str, numbers: FloatArray) -> Share | FloatArray:
        """This agent's part of a sum; or numbers in the clear, where the protocol asks for them."""

    def receive(self, message: wire.ToAgent) -> list[wire.Message]:
        if isinstance(message, wire.Finished):
            self.finished = True
            return []
        if isinstance(message, wire.Receipts):
            return self._consent(message)
        ask = wire.expect(message, wire.Ask)
        if ask.step != self.step or self._seed:
            raise PeerError(f"question of step {ask.step} at step {self.step}: ignored")
        answer = self._answer(ask.what, read_numbers(ask.values))
        self.context = digest("open context", self.context, wire.encode(ask))  # not before the question is one
        if isinstance(answer, tuple):
            return [self._mask(ask, *answer)]
        self.step += 1
        return [wire.Answer(run=ask.run, step=ask.step, values=answer.astype("<f8").tobytes())]

    def _answer(self, what: str, numbers: FloatArray) -> Share | FloatArray:
        if what == "rows":
            missing = positions(self.readings.time, window(self.plan)) < 0
            return rows_layout(self.plan), {"missing": missing.astype(float)}
        if what == "load":
            if len(numbers) != self.plan.length:
                raise PeerError(f"asked for {len(numbers)} rows of a window of {self.plan.length}: ignored")
            at = positions(self.readings.time, window(self.plan)[numbers == 0])
            if (at < 0).any():
                raise RunAborted("asked for rows this agent has no reading of")
            sent, run = self.readings.at(at), self.session.run
            self.own.memory.account.settle(sent, run.company, "opened", self.plan.step_seconds)
            self.x = sent.temperature - REFERENCE_TEMP
            return load_layout(self.agents, len(sent.load)), {"load": sent.load}
        return self.contribute(what, numbers)

    def _mask(self, ask: wire.Ask, layout: Layout, values: dict[str, FloatArray]) -> wire.Masked:
        words = layout.encode(values)
        self._seed = derive(self.session.seed, "self mask", self.context)
        Stream(self._seed).add(words, nonce(b"self mask", ask.step))
        self.session.mask(words, sum_nonce(self.context, ask.what, layout))
        receipt, me = pack("receipt", self.context), self.session.index
        tags = b"".join(self.session.receipts(peer, me).tag(receipt) for peer in self.session.neighbours)
        return wire.Masked(run=ask.run, step=ask.step, phase=ask.what, words=ring.to_bytes(words), tags=tags)

    def _consent(self, message: wire.Receipts) -> list[wire.Message]:
        if not self._seed or message.step != self.step:
            raise PeerError(f"receipts of step {message.step} at step {self.step}: ignored")
        self._check_receipts(message.tags)
        seed, self._seed = self._seed, b""
        self.step += 1
        return [wire.Consent(run=message.run, step=message.step, seed=seed)]

    def _check_receipts(self, tags: bytes) -> None:
        peers = self.session.neighbours
        if len(tags) != TAG_BYTES * len(peers):
            raise RunAborted("a receipt is missing: not everybody sent its part, this agent does not consent")
        receipt = pack("receipt", self.context)
        try:
            for i, peer in enumerate(peers):
                self.session.receipts(peer, peer).check(tags[TAG_BYTES * i : TAG_BYTES * (i + 1)], receipt)
        except PeerError:
            raise RunAborted("a receipt is of another question: not everybody was asked this, no consent") from None


def read_numbers(data: bytes) -> FloatArray:
    """Finite numbers as they came over the wire."""
    numbers = np.frombuffer(data, dtype="<f8").astype(np.float64) if len(data) % WORD_BYTES == 0 else None
    if numbers is None or not np.isfinite(numbers).all():
        raise PeerError(f"{len(data)} bytes that are no finite numbers: ignored")
    return numbers


class Question(NamedTuple):
    """What the aggregator asks everybody, and the numbers it depends on."""

    what: str
    layout: Layout | None  # of the sum that answers it; None: everybody answers in the clear
    numbers: FloatArray = np.empty(0)


Found = Generator[Question, Any, tuple[Descent, FloatArray, float]]  # … → descent, centred state, ridge


class OpenDesk(Desk):
    """The aggregator's side: a script that asks for one sum after another."""

    states = 0  # aggregate states opened
    leaving = False
    _step = -1

    @abstractmethod
    def find(self, design: Design, inputs: Inputs) -> Found:
        """The protocol's algorithm, from the rows and the load that everybody knows to the aggregate state."""

    def script(self) -> Generator[Question, Any, Outcome]:
        plan, agents = self.run.plan, self.run.agents
        missing = (yield Question("rows", rows_layout(plan)))["missing"]
        self.notebook.write("scalars", missing, "missing")
        kept = window(plan)[missing == 0]
        if len(kept) <= plan.order:
            raise RunAborted(f"only {len(kept)} rows have readings from every agent: choose another window")
        load = (yield Question("load", load_layout(agents, len(kept)), missing))["load"]
        self.notebook.write("load total", load)

        inputs = public_inputs(plan, kept, load, self.weather)
        design = Design.build(inputs, plan.order, minimum_norm=plan.minimum_norm)
        found, state, ridge = yield from self.find(design, inputs)
        estimate = complete(
            design, inputs, alpha=found.alpha, state=state + REFERENCE_TEMP, ridge=ridge, iterations=found.iterations,
            status=Status.CONVERGED if found.converged else Status.NOT_CONVERGED,
        )  # fmt: skip
        return Outcome(estimate, load, kept, self.states)

    def begin(self) -> list[Outgoing]:
        self._script, graph = self.script(), self.run.graph()
        self._neighbours = [graph.neighbours(agent) for agent in range(self.run.agents)]
        return self._go_on(None)

    def largest(self) -> int:
        layout = self._question.layout
        words = layout.words if layout is not None else self.run.agents
        return WORD_BYTES * words + TAG_BYTES * self.run.agents

    def _go_on(self, answer: Any) -> list[Outgoing]:
        try:
            self._question = self._script.send(answer)
        except StopIteration as stop:
            self.outcome, self.finished = stop.value, True
            return [Outgoing(None, wire.encode(wire.Finished(run=self.run.id)))]
        except np.linalg.LinAlgError:
            raise RunAborted("the totals do not determine the model: use a longer window or a larger ridge") from None
        self._step += 1
        self.leaving = self._question.what != "rows"
        self._pile = RunningTotal(self.run.agents, self._step)
        self._tags: dict[int, dict[int, bytes]] = {}  # of each agent, for its neighbours
        self._seeds: dict[int, bytes] = {}
        self._answers: dict[int, FloatArray] = {}
        values = self._question.numbers.astype("<f8").tobytes()
        ask = wire.Ask(run=self.run.id, step=self._step, what=self._question.what, values=values)
        return [Outgoing(None, wire.encode(ask))]

    def receive(self, sender: int, message: wire.ToAggregator) -> list[Outgoing]:
        if isinstance(message, wire.Masked):
            return self._add(sender, message)
        if isinstance(message, wire.Consent):
            return self._open(sender, message)
        answer = wire.expect(message, wire.Answer)
        if answer.step != self._step or self._question.layout is not None:
            raise PeerError("answer to another question: ignored")
        if sender in self._answers:
            raise RunAborted("an agent sent two different answers to one question")
        with ending_the_run():
            self._answers[sender] = read_numbers(answer.values)
        if len(self._answers) < self.run.agents:
            return []
        return self._go_on([self._answers[i] for i in range(self.run.agents)])

    def _add(self, sender: int, message: wire.Masked) -> list[Outgoing]:
        if self._question.layout is None:
            raise PeerError("words of another question: ignored")
        expected, peers = self._question.layout.words * WORD_BYTES, self._neighbours[sender]
        if len(message.words) != expected or len(message.tags) != TAG_BYTES * len(peers):
            raise PeerError(f"an agent sent {len(message.words)} bytes where {expected} are expected: ignored")
        everybody = self._pile.add(sender, message.step, message.phase, message.words)
        tags = (message.tags[at : at + TAG_BYTES] for at in range(0, len(message.tags), TAG_BYTES))
        self._tags[sender] = dict(zip(peers, tags, strict=True))
        return [self._receipts_for(i) for i in range(self.run.agents)] if everybody else []

    def _receipts_for(self, agent: int) -> Outgoing:
        tags = b"".join(self._tags[peer][agent] for peer in self._neighbours[agent])
        return Outgoing(agent, wire.encode(wire.Receipts(run=self.run.id, step=self._step, tags=tags)))

    def _open(self, sender: int, message: wire.Consent) -> list[Outgoing]:
        layout = self._question.layout
        if layout is None or message.step != self._step or len(self._tags) < self.run.agents:
            raise PeerError("consent to another question: ignored")
        if sender in self._seeds:
            raise RunAborted("an agent sent two different consents")
        if len(message.seed) != KEY_BYTES:
            raise RunAborted(f"an agent consented with {len(message.seed)} bytes, which are no seed: no total")
        self._seeds[sender] = message.seed
        if len(self._seeds) < self.run.agents:
            return []
        with ending_the_run():
            values = self._opened(layout)
        return self._go_on(values)

    def _opened(self, layout: Layout) -> dict[str, FloatArray]:
        for seed in self._seeds.values():
            Stream(seed).subtract(self._pile.total, nonce(b"self mask", self._step))
        return layout.decode(self._pile.total, self.run.agents)
