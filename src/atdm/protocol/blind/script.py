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
from atdm.errors import DataError, PeerError, RunAborted
from atdm.kernel.descent import Descent
from atdm.kernel.design import REFERENCE_TEMP, Design, Inputs, lagged_rows, train_rows
from atdm.kernel.span import Span
from atdm.protocol.account import Answered, Kind, Shown, company_hash
from atdm.protocol.blind.direction import (
    OwnSeries,
    RidgeLadder,
    first_scale,
    gap,
    look,
    next_scale,
    signs_values,
    step_values,
)  # fmt: skip
from atdm.protocol.blind.layouts import (
    RELEASE,
    open_layout,
    pack_flags,
    rows_layout,
    signs_layout,
    step_layout,
    unpack_counts,
)  # fmt: skip
from atdm.protocol.blind.release import (
    Sealed,
    estimate_of,
    numbers_of,
    released_words,
    seal_release,
    sealed_size,
    unpack_sealed,
    verify,
    vouched,
)  # fmt: skip
from atdm.protocol.blind.veil import Veil, next_context
from atdm.protocol.messages import (
    Finished,
    Masked,
    Message,
    Release,
    Seal,
    Secret,
    Secrets,
    ToAgent,
    Total,
    expect,
)  # fmt: skip
from atdm.protocol.part import AgentContext, Part
from atdm.protocol.plan import MOST_SIGNS, VERSION, Plan
from atdm.protocol.readings import public_inputs
from atdm.protocol.rules import too_short
from atdm.protocol.session import Session
from atdm.protocol.store import Consented
from atdm.types import FloatArray, IntArray

T = TypeVar("T")
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
        self.question = b""  # hash of everything the next answer depends on, from the rows kept on
        self.days: tuple[int, ...] = ()  # UTC days of the kept rows
        self._consented: Consented | None = None
        self._first: list[Message] = []  # of the leader, before its part of the release

    # The run

    def script(self) -> Script:
        plan, agents = self.plan, self.agents
        rows = self.session.run.rows()
        readings = self.own.memory.account.repeatable(self.own.sendable(self.session.run))
        lacking = positions(readings.time, rows) < 0
        opened = yield Ask("rows", rows_layout(agents, len(rows)), {"missing": pack_flags(lacking, agents)})
        missing = self._once(unpack_counts, opened["missing"], agents, len(rows))
        readings = self._settle(rows, readings, missing)

        x = readings.temperature - REFERENCE_TEMP
        first = {"load": readings.load, "total": x / np.sqrt(agents)}
        del readings  # they are on the account; a process may hold ten thousand agents
        opened = yield Ask("open", open_layout(agents, len(self.kept)), first, "open")
        span, inputs = self._once(self._public, opened)
        own = OwnSeries.build(x, span.design)
        self.parts = np.array([agents**-0.5])

        ladder = RidgeLadder(plan.ridge, plan.nonnegative == "ridge")
        scale, earlier = self._once(first_scale, span, agents), np.inf
        most = plan.totals_for(self.session.run.owners)
        while earlier > plan.solver_tolerance and scale > 0 and len(span) < most:
            found = self._once(look, span, max(plan.tolerance, FOR_A_DIRECTION), ladder.rungs())
            p, values = step_values(found, own, self.parts, ladder.ridge, scale, agents, plan.clip)
            layout = step_layout(agents, len(self.kept), len(span), plan.clip, ladder.moves)
            opened = yield Ask("step", layout, values, "total")
            residual = gap(opened["squares"][0], agents)  # of the span before this total, which is used all the same
            scale, before = next_scale(scale, opened["squares"][1]), ladder
            ladder = ladder.better(opened["negative"])
            larger = self._once(add, span, opened, ladder.ridge)  # None: it adds nothing that the arithmetic can hold
            earlier = residual if ladder == before else np.inf  # a residual at another λ is another residual
            if larger is None:
                break
            span, self.parts = larger, np.append(self.parts, p)

        for _ in range(MOST_SIGNS):
            span = span.with_ridge(ladder.ridge)
            found = self._once(look, span, plan.tolerance, ladder.rungs())
            values = signs_values(found, own, self.parts, ladder.ridge, agents)
            opened = yield Ask("signs", signs_layout(agents, ladder.moves), values, "signs")
            residual, before = gap(opened["squares"][0], agents), ladder
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
        yield Ask("release", RELEASE, words, "release")

    # Before the first reading leaves

    def _settle(self, rows: IntArray, readings: Readings, missing: FloatArray) -> Readings:
        """The readings of the rows that everybody has; from here on their days belong to this company."""
        run, account = self.session.run, self.own.memory.account
        self.own.notebook.write("scalars", missing, "missing")
        self.kept, whole = self._once(rows_kept, rows, missing, self.plan)
        at = positions(readings.time, self.kept)
        if (at < 0).any():
            raise RunAborted("The sum contradicts this agent's own flag: a participant altered it. Run stopped.")
        if (reason := too_short(self.own.rules, self.plan, whole)) is not None:
            raise RunAborted(reason)
        sent = readings.at(at)
        self.days = account.settle(sent, run.company, "fitted", self.plan.step_seconds)
        self._plan_hash = self._once(self.plan.hash)
        company = company_hash(run.company)
        self.question = digest("blind question", VERSION, company, self._plan_hash, self.kept.tobytes())
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
        self._first = [Seal(run=self.session.run.id, step=self.step, box=box)]
        return sealed

    def _unsealed(self, span: Span) -> Generator[Ask, Opened, Sealed]:
        self._seal_bytes = sealed_size(self.plan, len(span)) + BOX_TAG
        box = (yield Ask("seal"))["box"].tobytes()
        leader = self.session.run.members[0].identity
        plain = open_sealed(self._seal_key(), box, purpose="seal", sender=leader, receiver="agents")
        sealed = unpack_sealed(plain, self.plan, len(span))
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

    def begin(self) -> list[Message]:
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
        return [Secrets(run=run.id, boxes=boxes), *self._start(group)]

    def _start(self, group: bytes) -> list[Message]:
        self.session.forget_pairs()
        self._group, self._veil = group, Veil(self.session, group, self.own.host)
        self._script = self.script()
        return self._ask(next(self._script))

    def receive(self, message: ToAgent) -> list[Message]:
        if self.asked is None:
            return self._receive_secret(expect(message, Secret))
        if self.asked.phase == "release":
            expect(message, Finished)
            self.finished = True
            return []
        if self.asked.phase == "seal":
            box = expect(message, Seal).box
            return self._go_on({"box": np.frombuffer(box, dtype=np.uint8)})
        total = expect(message, Total)
        if total.step != self.step:
            raise PeerError(f"total of step {total.step} while waiting for step {self.step}: ignored")
        try:
            opened, words = self._veil.unwrap(total.words)
        except PeerError as error:
            raise RunAborted(str(error)) from None
        self.step += 1
        self._note(self.asked.phase, opened)
        if self.question:
            self.question = self._hashed("answered", self.asked.phase, words)
        return self._go_on(opened)

    def _go_on(self, opened: Opened) -> list[Message]:
        try:
            ask = self._script.send(opened)
            opened.clear()  # used up, and not to be kept until the next message comes
            return self._ask(ask)
        except PeerError as error:  # the total was accepted: what follows from it cannot be ignored
            raise RunAborted(str(error)) from None
        except (DataError, np.linalg.LinAlgError):
            raise RunAborted("the sums do not determine the model: use a longer window or a lower order") from None

    def _receive_secret(self, message: Secret) -> list[Message]:
        run, me = self.session.run, self.session.run.members[self.session.index].identity
        try:
            group = open_sealed(
                self.session.pair_key(0), message.box, run.id,
                purpose="group", sender=run.members[0].identity, receiver=me,
            )  # fmt: skip
        except PeerError as error:
            raise RunAborted(str(error)) from None
        return self._start(group)

    def _ask(self, ask: Ask) -> list[Message]:
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
        return [Masked(run=self.session.run.id, step=self.step, phase=ask.phase, words=words)]

    def _release(self, released: FloatArray) -> list[Message]:
        """Consent: this agent's part of the sum that opens the leader's box, and its word for what is in it."""
        run = self.session.run.id
        hashed = self._once(vouched, run, self._veil.context, released)
        signature, box, key = self.own.identity.sign("vouch", VERSION, hashed), b"", {}
        if self.session.leads:
            secret = derive(self.session.seed, "release key")
            box, key = seal_release(secret, released, run), {"key": np.frombuffer(secret, dtype="<f8")}
        words = self._veil.wrap("release", RELEASE, key, veiled=False)
        message = Release(run=run, step=self.step, words=words, hash=hashed, signature=signature, box=box)
        return [*self._first, message]

    def _book(self, phase: str, kind: Kind) -> None:
        account, question = self.own.memory.account, self._hashed("asked", phase)
        most = self.own.rules.totals_for(self.session.run.owners)
        if (reason := account.refuses_question(self.days, question, kind, most)) is not None:
            raise RunAborted(reason)
        account.book(Answered(self.days, question, kind, self._plan_hash))
        if kind == "release":
            account.book(Shown(self.kept.astype("<i8").tobytes(), question))
            self._consented = Consented(
                run=self.session.run.id, question=question, company=self.session.run.company, weight=self.weight,
                step_seconds=self.plan.step_seconds, end=int(self.session.run.rows()[-1]),
            )  # fmt: skip

    def _note(self, phase: str, opened: Opened) -> None:
        """The ledger: what this agent learned about the others."""
        notebook = self.own.notebook
        if phase == "open":
            notebook.write("load total", opened["load"])
        if "total" in opened:
            notebook.write("basis total", opened["total"])
        for name in ("one", "gram", "squares", "negative"):
            if name in opened:
                notebook.write("scalars", opened[name], name)

    def largest(self) -> int:
        if self.asked is None:
            return 0
        return self._seal_bytes if self.asked.phase == "seal" else self._veil.size()

    def remember(self) -> None:
        """Keep the weight in a fit that was consented to, whether or not its end was heard: the aggregator may have
        the model."""
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
