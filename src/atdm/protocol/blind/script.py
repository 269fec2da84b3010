"""An agent's run of `blind` with fitted weights, top to bottom.

    rows     which rows everybody has                                     ┐ sums that only agents can open:
    open     h = Σ h_i and the first total, Σ x_i/√K                      │ veiled with a group secret, checked,
    step     the next total Σ p_i x_i, and what the span before it says   │ chained in one context
    signs    residual and negative weights in the final span              ┘
    seal     the leader's numbers, for the other agents
    release  the key to the leader's box with the model, h and s: opens to the aggregator if every agent sends its part,
             and vouches for what is in it

Rule 1: what a run decides follows from opened sums alone; an agent's own numbers enter nothing but its own words.
Rule 2: nothing an agent does, but for the words it sends, depends on its temperatures once a run is open: what is
        computed from readings saturates, refusals have fixed texts, and nobody leaves but for a reason all have.
Rule 3: what leaves is on the account before (`_ask`), by the hash of everything it depends on.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyev

from atdm.crypto.keys import derive, digest, open_sealed, seal
from atdm.crypto.sums import Layout
from atdm.data.readings import Readings, positions, segments
from atdm.errors import DataError, PeerError, RunAborted, ending_the_run
from atdm.kernel.descent import Descent, RidgeLadder
from atdm.kernel.design import REFERENCE_TEMP, Design, Inputs, lagged_rows, train_rows
from atdm.kernel.span import Span
from atdm.protocol import messages as wire
from atdm.protocol.account import Answered, Begun, Kind, Shown, company_hash
from atdm.protocol.blind import direction, layouts
from atdm.protocol.blind.release import Sealed, estimate_of, numbers_of, released_words, seal_release, verify, vouched
from atdm.protocol.blind.veil import Veil, next_context
from atdm.protocol.ledger import What
from atdm.protocol.part import AgentContext, Part
from atdm.protocol.plan import MOST_SIGNS, VERSION, Plan
from atdm.protocol.readings import public_inputs
from atdm.protocol.rules import too_short
from atdm.protocol.session import Session
from atdm.protocol.store import Consented
from atdm.types import FloatArray, IntArray

T = TypeVar("T")
AWAITED: dict[str, type[wire.Message]] = {"secret": wire.Secret, "seal": wire.Seal, "release": wire.Finished}
LEARNED: dict[str, What] = {"load": "load total", "total": "basis total"}  # in the ledger; other fields are scalars
ILL_CONDITIONED = 1e6  # of QᵀQ
FOR_A_DIRECTION = 1e-6  # gap of the descent that is enough to look for the next direction
BOX_TAG = 16  # bytes


class Ask(NamedTuple):
    """The next sum, or the next message of the leader, that the script needs."""

    phase: str
    layout: Layout | None = None  # None: the leader's seal
    values: dict[str, FloatArray] = {}  # noqa: RUF012
    kind: Kind | None = None  # under which the account has it


Opened = dict[str, NDArray[Any]]
Script = Generator[Ask, Opened, None]


class BlindPart(Part):
    """The agent's side of `blind` with fitted weights."""

    def __init__(self, session: Session, own: AgentContext) -> None:
        super().__init__(session, own)
        self.plan, self.agents = session.run.plan, session.run.agents
        self.step = 0
        self.kept: IntArray = np.empty(0, dtype=np.int64)
        self.parts = np.empty(0)  # q_i: this agent's coefficients of the totals
        self.asked: Ask | None = None  # None: waiting for the group secret
        self.question = b""  # hash of everything the next answer depends on, once it is known which rows are kept
        self._consented: Consented | None = None
        self._first: list[wire.Message] = []  # of the leader, before its part of the release

    # The run

    def script(self) -> Script:
        plan, agents = self.plan, self.agents
        rows = self.session.run.rows()
        readings = self.own.memory.account.repeatable(self.own.sendable(self.session.run))
        lacking = positions(readings.time, rows) < 0
        flags = {"missing": layouts.pack_flags(lacking, agents)}
        opened = yield Ask("rows", layouts.rows_layout(agents, len(rows)), flags)
        missing = self._once(layouts.unpack_counts, opened["missing"], agents, len(rows))
        readings = self._settle(rows, readings, missing)

        x = readings.temperature - REFERENCE_TEMP
        first = {"load": readings.load, "total": x / np.sqrt(agents)}
        del readings  # they are on the account; a process may hold ten thousand agents
        opened = yield Ask("open", layouts.open_layout(agents, len(self.kept)), first, "open")
        span, inputs = self._once(self._public, opened)
        own = direction.OwnSeries.build(x, span.design)
        self.parts = np.array([agents**-0.5])

        ladder = RidgeLadder(plan.ridge, plan.nonnegative == "ridge")
        scale, earlier = self._once(direction.first_scale, span, agents), np.inf
        most = plan.totals_for(self.session.run.owners)
        while earlier > plan.solver_tolerance and scale > 0 and len(span) < most:
            found = self._once(span.look, max(plan.tolerance, FOR_A_DIRECTION), ladder)
            p, values = direction.step_values(found, own, self.parts, ladder.ridge, scale, agents, plan.clip)
            layout = layouts.step_layout(agents, len(self.kept), len(span), plan.clip, ladder.moves)
            opened = yield Ask("step", layout, values, "total")
            residual = direction.gap(opened["squares"][0], agents)  # of the span before this total, which is used too
            scale, before = direction.next_scale(scale, opened["squares"][1]), ladder
            ladder = ladder.better(opened["negative"])
            larger = self._once(add, span, opened, ladder.ridge)  # None: it adds nothing that the arithmetic can hold
            earlier = residual if ladder == before else np.inf  # a residual at another λ is another residual
            if larger is None:
                break
            span, self.parts = larger, np.array([*self.parts.tolist(), p])

        for _ in range(MOST_SIGNS):
            span = span.with_ridge(ladder.ridge)
            found = self._once(span.look, plan.tolerance, ladder)
            values = direction.signs_values(found, own, self.parts, ladder.ridge, agents)
            opened = yield Ask("signs", layouts.signs_layout(agents, ladder.moves), values, "signs")
            residual, before = direction.gap(opened["squares"][0], agents), ladder
            ladder = ladder.better(opened["negative"], final=True)
            if ladder == before:
                break
            earlier = np.inf

        reached = min(residual, earlier) <= plan.solver_tolerance  # before the last total, or with it
        if self.session.leads:
            sealed = self._sealed(found.descent, span, inputs, residual, reached)
        else:
            sealed = yield from self._unsealed(span)
        estimate = self._once(verify, sealed, found.descent, span, inputs, plan, residual, reached, agents)
        self.weight = float(self.parts @ sealed.weights)
        self.own.notebook.write("state", estimate.state)
        self.own.notebook.write("coefficients", estimate.coefficients.alpha)
        words = {"words": self._once(released_words, sealed, plan, self.kept, inputs.load, estimate.state)}
        yield Ask("release", layouts.RELEASE, words, "release")

    # Before the first reading leaves

    def _settle(self, rows: IntArray, readings: Readings, missing: FloatArray) -> Readings:
        """The readings of the rows that everybody has; from here on their days belong to this company."""
        run, account = self.session.run, self.own.memory.account
        self.own.notebook.write("scalars", missing, "missing")
        self.kept, whole = self._once(rows_kept, rows, missing, self.plan)
        at = positions(readings.time, self.kept)
        if (at < 0).any():
            raise RunAborted("The sum contradicts this agent's own flag: a participant altered it. Run stopped.")
        if (reason := too_short(self.own.rules, self.plan, whole, len(self.kept))) is not None:
            raise RunAborted(reason)
        sent = readings.at(at)
        self.days = account.settle(sent, run.company, "fitted", self.plan.step_seconds)
        self._plan_hash = self._once(self.plan.hash)
        company = company_hash(run.company)
        self.fit = self.question = digest("blind question", VERSION, company, self._plan_hash, self.kept.tobytes())
        return sent

    def _public(self, opened: Opened) -> tuple[Span, Inputs]:
        inputs = public_inputs(self.plan, self.kept, opened["load"], self.own.weather)
        span = Span.empty(Design.build(inputs, self.plan.order), self.plan.ridge)
        return span.add(opened["total"], self.agents**0.5, np.ones(1)), inputs

    # The seal

    def _sealed(self, found: Descent, span: Span, inputs: Inputs, residual: float, reached: bool) -> Sealed:
        """The leader's descent becomes the answer; the others get it under a key of the group."""
        estimate = estimate_of(span, inputs, found, residual, reached)
        salt = np.frombuffer(derive(self.session.seed, "release salt"), dtype="<f8")
        sealed = Sealed(numbers_of(estimate), found.weights, found.previous, salt)
        leader = self.session.run.members[0].identity
        box = seal(self._seal_key(), sealed.pack(), purpose="seal", sender=leader, receiver="agents")
        self._take_seal(box, sealed)
        self._first = [wire.Seal(run=self.session.run.id, step=self.step, box=box)]
        return sealed

    def _unsealed(self, span: Span) -> Generator[Ask, Opened, Sealed]:
        self._seal_bytes = Sealed.size(self.plan, len(span)) + BOX_TAG
        box = (yield Ask("seal"))["box"].tobytes()
        leader = self.session.run.members[0].identity
        plain = open_sealed(self._seal_key(), box, purpose="seal", sender=leader, receiver="agents")
        sealed = Sealed.unpack(plain, self.plan, len(span))
        self._take_seal(box, sealed)
        return sealed

    def _take_seal(self, box: bytes, sealed: Sealed) -> None:
        """The release follows from the seal: masks that do not cancel where agents were shown different ones."""
        self._veil.context = next_context(self._veil.context, box)
        numbers = np.concatenate([sealed.numbers, sealed.weights]).astype("<f8").tobytes()
        self.question = digest("question", self.question, "seal", numbers)

    def _seal_key(self) -> bytes:
        return derive(self._group, "seal", self.session.run.id, self._veil.context)

    # Messages

    def begin(self) -> list[wire.Message]:
        """The leader draws the group secret and seals it for everybody; the others wait for it."""
        if not self.session.leads:
            return []
        run = self.session.run
        group = derive(self.session.seed, "group secret")
        leader = run.members[0].identity
        boxes = b"".join(
            seal(self.session.pair_key(i), group, run.id, purpose="group", sender=leader, receiver=member.identity)
            for i, member in enumerate(run.members[1:], 1)
        )
        return [wire.Secrets(run=run.id, boxes=boxes), *self._start(group)]

    def _start(self, group: bytes) -> list[wire.Message]:
        self.session.forget_pairs()
        self._group, self._veil = group, Veil(self.session, group, self.own.host)
        self._script = self.script()
        return self._ask(next(self._script))

    def receive(self, message: wire.ToAgent) -> list[wire.Message]:
        phase = "secret" if self.asked is None else self.asked.phase
        wire.expect(message, AWAITED.get(phase, wire.Total))
        if isinstance(message, wire.Total) and message.step != self.step:
            raise PeerError(f"total of step {message.step} while waiting for step {self.step}: ignored")
        with ending_the_run():  # the message belongs here
            return self._accept(phase, message)

    def _accept(self, phase: str, message: wire.ToAgent) -> list[wire.Message]:
        if isinstance(message, wire.Secret):
            run, key = self.session.run, self.session.pair_key(0)
            leader, me = run.members[0].identity, run.members[self.session.index].identity
            return self._start(open_sealed(key, message.box, run.id, purpose="group", sender=leader, receiver=me))
        if isinstance(message, wire.Seal):
            return self._go_on({"box": np.frombuffer(message.box, dtype=np.uint8)})
        if isinstance(message, wire.Total):
            opened, words = self._veil.unwrap(message.words)
            self.step += 1
            self._note(opened)
            if self.question:
                self.question = self._hashed("answered", phase, words)
            return self._go_on(opened)
        self.finished = True
        return []

    def _go_on(self, opened: Opened) -> list[wire.Message]:
        try:
            ask = self._script.send(opened)
            opened.clear()  # used up, and not to be kept until the next message comes
            return self._ask(ask)
        except (DataError, np.linalg.LinAlgError):
            raise RunAborted("the sums do not determine the model: use a longer window or a lower order") from None

    def _ask(self, ask: Ask) -> list[wire.Message]:
        """Book what leaves, then send this agent's words."""
        self.asked = ask
        if ask.layout is None:
            return []
        if ask.kind is not None:
            self._book(ask.phase, ask.kind)
        if ask.phase == "release":
            return self._release(ask.values.pop("words"))
        words = self._veil.wrap(ask.phase, ask.layout, ask.values)
        ask.values.clear()  # as above
        return [wire.Masked(run=self.session.run.id, step=self.step, phase=ask.phase, words=words)]

    def _release(self, released: FloatArray) -> list[wire.Message]:
        """Consent: this agent's part of the sum that opens the leader's box, and its word for what is in it."""
        run = self.session.run.id
        hashed = self._once(vouched, run, self._veil.context, released)
        signature, box, key = self.own.identity.sign("vouch", VERSION, hashed), b"", {}
        if self.session.leads:
            secret = derive(self.session.seed, "release key")
            box, key = seal_release(secret, released, run), {"key": np.frombuffer(secret, dtype="<f8")}
        words = self._veil.wrap("release", layouts.RELEASE, key, veiled=False)
        message = wire.Release(run=run, step=self.step, words=words, hash=hashed, signature=signature, box=box)
        return [*self._first, message]

    def _book(self, phase: str, kind: Kind) -> None:
        account, question = self.own.memory.account, self._hashed("asked", phase)
        most = self.own.rules.totals_for(self.session.run.owners)
        if (reason := account.refuses_question(self.fit, self.days, question, kind, most)) is not None:
            raise RunAborted(reason)
        if self.fit not in account.fits:
            account.book(Begun(self.fit, self.days, self._plan_hash))
        account.book(Answered(self.fit, question, kind))
        if kind == "release":
            account.book(Shown(self.kept.astype("<i8").tobytes()))
            self._consented = Consented(
                run=self.session.run.id, hash=self.fit, company=self.session.run.company, weight=self.weight,
                step_seconds=self.plan.step_seconds, end=int(self.session.run.rows()[-1]),
            )  # fmt: skip

    def _note(self, opened: Opened) -> None:
        """The ledger: what this agent learned about the others."""
        for name, values in opened.items():
            if name in LEARNED:
                self.own.notebook.write(LEARNED[name], values)
            elif name != "missing":  # counted where it is unpacked
                self.own.notebook.write("scalars", values, name)

    def largest(self) -> int:
        if self.asked is None:
            return 0
        return self._seal_bytes if self.asked.phase == "seal" else self._veil.size()

    def remember(self) -> None:
        """Keep the weight in a fit that was consented to, its end heard or not: the aggregator may have the model."""
        if self.asked is not None:
            self._veil.forget()
        if self._consented is not None:
            self.own.memory.consent(self._consented)

    def _hashed(self, what: str, phase: str, *words: bytes) -> bytes:
        """Everything that was asked and opened before, and this; the same for all of a host who were shown it."""
        whole = b"".join((self.question, phase.encode(), *words))
        return self.own.host.once(whole, what, lambda: digest("question", self.question, phase, *words))

    def _once(self, compute: Callable[..., T], *opened: Any) -> T:
        """What follows from opened values alone is worked out once on a host of several agents."""
        return self.own.host.once(self._veil.context, compute.__qualname__, lambda: compute(*opened))


def rows_kept(rows: IntArray, missing: FloatArray, plan: Plan) -> tuple[IntArray, int]:
    """The rows that everybody has, and as many training rows without a gap as have as many with their lags."""
    kept = rows[missing == 0] if missing.any() else rows
    lagged = lagged_rows(segments(kept, plan.step_seconds), plan.order, 0, train_rows(len(kept), plan.train))
    return kept, len(lagged) + plan.order


def add(span: Span, opened: Opened, ridge: float) -> Span | None:
    larger = span.with_ridge(ridge).add(opened["total"], float(opened["one"][0]), opened["gram"])
    smallest, *_, largest = dsyev(larger.gram, compute_v=0)[0].tolist()
    return larger if largest <= ILL_CONDITIONED * smallest else None
