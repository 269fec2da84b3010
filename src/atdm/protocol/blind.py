"""`blind`: the aggregator only adds and relays; the agents run the descent and release the model, h and s.

    rows     which rows everybody has                                   ┐
    load     h = Σ h_i                                                  │ sums that only agents can open:
    extend   an earlier run's directions over the rows new in this one  │
    flags    does anybody refuse the next direction?                    │ veiled with a group secret, checked,
    basis    V_k = Σ q_ik x_i, few bits, dithered          ┐ repeated   │ chained in one context
    scalars  residual, next direction, signs of weights    ┘            │
    choice   which of several candidates the span speaks for            ┘
    release  α, β, γ, θ, occ, metrics, h, s: opens to the aggregator if every agent sends its part

Rule 1: a total is opened by `_open` alone: unveil, check words, range and count, together.
Rule 2: the context hashes every total as received; agents that were shown different totals never open another one.
Rule 3: an agent books a direction in its exposure before the first word of it leaves.
Rule 4: decisions follow from opened totals and the leader's announced numbers alone, so no rounding can split a run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import derive, digest, open_sealed, seal
from atdm.crypto.prg import Stream
from atdm.crypto.ring import CHECK_WORDS, WORD_BYTES, UInt64Array
from atdm.errors import DataError, PeerError, RunAborted
from atdm.kernel.descent import RIDGE_GROWTH, RIDGE_STEPS, Descent, Status, lag_filter
from atdm.kernel.design import REFERENCE_TEMP, Design, FloatArray, Inputs, IntArray
from atdm.kernel.estimate import complete
from atdm.kernel.span import Span, solve_positive
from atdm.protocol.basis import HASH_BITS, HASH_WORDS, SLOTS, Basis, Totals, agree, offer
from atdm.protocol.choice import announce_choice, choice_layout, compare, origins_of, verify_choice
from atdm.protocol.messages import Finished, Masked, Message, Secret, Secrets, ToAgent, Total, expect
from atdm.protocol.part import Own, Part
from atdm.protocol.plan import Candidate, Plan
from atdm.protocol.readings import dithered, positions, public_inputs, window
from atdm.protocol.release import bitmap, pack_release, release_layout, sealed_release
from atdm.protocol.session import Session, sum_nonce
from atdm.protocol.store import Consented
from atdm.protocol.sums import BLIND_BUDGET, HALVES, Block, Layout, fixed

LOAD_BOUND = 1e4  # kW of one agent
TEMP_BOUND = 51.0  # K from the reference, of one agent: readings within [−30, 70] °C, and dither
BASIS_BITS = 16  # no more: finer totals of quantised sensors are a hidden-subset-sum problem that lattices solve
SCALAR_BITS = 34  # residuals arrive divided by about their last public size, so sums of squares stay near 1
SCALAR_SUM = 2.0**14 - 1  # with 34 bits, ±2^48 quanta
VERIFY = 1e-9  # relative: an agent's own SP_I and SP_II against the leader's
DIAGONALS = (0.3, 3.0)  # shares of λ; see BlindPart._diagonal_share
AGENTS_FOR_DIAGONALS = 37  # which usually allow 12 totals
LOOK_AHEAD = 12  # ridges above the present one whose weights are looked at
MOST_MOVES = 6  # changes of ridge between two totals
MOST_TRIES = 8  # normalisations of one direction while agents limit their part of it
LIMIT = 0.98  # of the leverage left, so that the next normalisation does not pass it again
HALFWAY = 1e-2  # residual at which candidates are compared a second time
MOST_LOOKS = 4  # comparisons of candidates; the last choice stands
STALLED = 0.9  # a limited direction that leaves more than this share of the residual is the last
ORTHONORMAL = 1e-2  # how far a row of QᵀQ may be from the identity's: directions are normalised from rounded sums
NEGATIVE = -1e-2  # the least that a sum of squares can round to
INDEPENDENT = 1e-10  # share of a direction outside the basis, squared, below which nothing new is in it


class Phase(StrEnum):
    """Which sum an agent is waiting for."""

    SECRET = "secret"
    ROWS = "rows"
    LOAD = "load"
    EXTEND = "extend"
    FLAGS = "flags"
    BASIS = "basis"
    SCALARS = "scalars"
    CHOICE = "choice"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Announced:
    """The leader's descent in the span, as it stands after the last total."""

    alpha: FloatArray
    weights: FloatArray  # c
    previous: FloatArray  # the c from which SP_I found α
    multiplier: float  # ν
    iterations: int
    converged: bool

    def pack(self, room: int = 0) -> FloatArray:
        """room: words left free for the α of a larger order."""
        tail = [self.multiplier, float(self.iterations), float(self.converged)]
        return np.concatenate([self.alpha, np.zeros(room), self.weights, self.previous, tail])

    @classmethod
    def unpack(cls, values: FloatArray, order: int, size: int) -> "Announced":
        if not np.isfinite(values).all():
            raise PeerError("the leader announced numbers that are not finite")
        weights, previous = values[-2 * size - 3 : -3].reshape(2, size)
        multiplier, iterations, converged = values[-3:].tolist()
        return cls(values[:order], weights, previous, multiplier, int(iterations), bool(converged))


NOTHING_YET = Announced(np.empty(0), np.empty(0), np.empty(0), math.nan, 0, False)


def announced_size(order: int, size: int) -> int:
    return order + 2 * size + 3


class BlindPart(Part):
    """The agent's side of `blind`."""

    def __init__(self, session: Session, own: Own) -> None:
        super().__init__(session, own)
        self.plan: Plan = session.run.plan  # with the candidate at hand as its model
        self.phase = Phase.SECRET
        self.step = 0
        self.context = digest("blind context", session.run.id)
        quantum = own.memory.quantum if own.rules.quantum is None else own.rules.quantum
        self.readings = dithered(own.readings, own.secret, own.rules.dither, quantum)
        self.base = Basis()  # what everybody still has of an earlier run,
        self.inherited = 0  # how many directions of it this run starts with,
        self.opened = 0  # and totals opened since
        self.directions = np.empty(0)  # q_i: this agent's coefficients of the basis
        self.ridge_steps = 0  # k of λ·1.1ᵏ
        self.scale = 1.0  # about the last public residual; r_i/(ν√K) is divided by it
        self.gap = math.inf  # ‖ν1 − Gξ‖/‖ν1‖
        self.capped = False
        self.announced = NOTHING_YET
        self.moves = 0  # changes of ridge since the last total
        self.diagonals: tuple[float, ...] = DIAGONALS  # not yet sent
        self.limited = False  # whether some agent held back its part of the last direction
        self.looks = 0  # comparisons of candidates so far,
        self.looked = 0  # and the directions the last one had

    @property
    def agents(self) -> int:
        return self.session.run.agents

    @property
    def weight(self) -> float:
        """ξ_i. It never leaves the agent; a simulation may read it because it owns all agents."""
        return float(self.directions @ self.announced.weights)

    # Group secret

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
        run = self.session.run
        self.session.forget_pairs()
        self._stream = Stream(derive(group, "veil and check keys", run.id, run.roster_hash))
        self._group = digest("group", group)  # tells agents of one host apart that were sealed different secrets
        self.times = self.own.host.once(self.context, "times", lambda: window(self.plan))
        missing = positions(self.readings.time, self.times) < 0
        released = positions(self.own.exposure.released, self.times) >= 0
        stored = offer(self.own.memory.basis(run.roster_hash))
        values = {"missing": missing.astype(float), "released": released.astype(float), "basis": stored}
        return self._send(Phase.ROWS, rows_layout(self.plan.length), values)

    # The veiled, authenticated sum

    def _send(self, phase: Phase, layout: Layout, values: dict[str, FloatArray]) -> list[Message]:
        """encode → check words → veil (leader) → pairwise masks."""
        self.phase, self.layout = phase, layout
        try:
            words = layout.encode(values)
        except DataError:
            if phase not in (Phase.FLAGS, Phase.SCALARS):
                raise  # a reading
            raise RunAborted("a residual passes the range of a sum: give a larger ridge, zones differ much") from None
        nonce = sum_nonce(self.context, phase, layout)
        if phase is not Phase.RELEASE:
            words = self._authenticated(words, nonce)
        self.session.mask(words, nonce)
        return [Masked(run=self.session.run.id, step=self.step, phase=phase, words=ring.to_bytes(words))]

    def _authenticated(self, plain: UInt64Array, nonce: bytes) -> UInt64Array:
        """With check words behind them and, at the leader, the veil on all of them."""
        count = len(plain) + CHECK_WORDS
        stream = self.own.host.once(
            nonce + self._group, "group stream", lambda: self._stream.words(count + CHECK_WORDS * len(plain), nonce)
        )
        self._veil, self._keys = stream[:count], stream[count:].reshape(CHECK_WORDS, -1)
        words = np.empty(count, dtype=np.uint64)
        words[:-CHECK_WORDS], words[-CHECK_WORDS:] = plain, ring.check_words(plain, self._keys)
        if self.session.leads:
            words += self._veil
        return words

    def _open(self, data: bytes) -> dict[str, FloatArray]:
        """Unveil a total and refuse it unless check words, range and count all agree."""
        total = ring.from_bytes(data, self.layout.words + CHECK_WORDS)
        total -= self._veil
        words, checks = total[:-CHECK_WORDS], total[-CHECK_WORDS:]
        ring.verify_words(words, checks, self._keys, BLIND_BUDGET)
        return self.layout.decode(words, self.agents)

    def largest(self) -> int:
        return WORD_BYTES * (self.layout.words + CHECK_WORDS) if self.phase is not Phase.SECRET else 0

    def receive(self, message: ToAgent) -> list[Message]:
        if self.phase is Phase.SECRET:
            return self._receive_secret(expect(message, Secret))
        if self.phase is Phase.RELEASE:
            expect(message, Finished)
            self.finished = True
            return []
        total = expect(message, Total)
        if total.step != self.step:
            raise PeerError(f"total of step {total.step} while waiting for step {self.step}: ignored")
        try:
            values = self._open(total.words)
        except PeerError as error:
            raise RunAborted(str(error)) from None
        self.context = digest("blind context", self.context, total.words)
        self.step += 1
        try:
            return self.AFTER[self.phase](self, values)
        except PeerError as error:  # the total was accepted: what follows from it cannot be ignored
            raise RunAborted(str(error)) from None
        except np.linalg.LinAlgError:
            raise RunAborted("the totals do not determine the model: use a longer window or a lower order") from None

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

    # What follows from each total

    def _after_rows(self, values: dict[str, FloatArray]) -> list[Message]:
        self.own.notebook.write("scalars", values["missing"], "missing")
        self.kept: IntArray = self.own.host.once(self.context, "kept", lambda: self.times[values["missing"] == 0])
        self.fresh = values["released"][values["missing"] == 0] == 0  # rows whose h and s nobody was shown before
        if len(self.kept) <= self.plan.order:
            raise RunAborted(f"only {len(self.kept)} rows have readings from every agent: choose another window")
        reasons = (self.own.rules.too_short(self.plan.of(model), len(self.kept)) for model in self.plan.models())
        if (reason := next((reason for reason in reasons if reason is not None), None)) is not None:
            raise RunAborted(reason)
        at = positions(self.readings.time, self.kept)
        shown = positions(self.own.exposure.released, self.kept) >= 0
        self._insist(not (at < 0).any() and not (shown & self.fresh).any())
        self.x = self.readings.temperature[at] - REFERENCE_TEMP
        self.base = agree(self.own.memory.basis(self.session.run.roster_hash), values["basis"], self.agents)
        self.lacking = np.isnan(self.base.totals.on(self.kept))  # rows × directions still to be summed
        if self.lacking.all():  # no row in common: directions made for these rows serve better for the same count
            self.base, self.lacking = Basis(), self.lacking[:, :0]
        rules = self.own.rules
        self.stored_refused = self.own.exposure.refuses(
            self.kept, self.lacking, self.base.directions, rules.totals_cap(self.agents), rules.leverage
        )
        layout = load_layout(self.agents, len(self.kept), len(self.base.totals))
        load = self.readings.load[at]
        del self.readings  # x is all that a run needs of them from here on
        return self._send(Phase.LOAD, layout, {"load": load, "refused": self.stored_refused.astype(float)})

    def _insist(self, agrees: bool) -> None:
        """An agent's own account decides for it, whatever a total says that others' words were added to."""
        if not agrees:
            raise RunAborted("a total denies what this agent said of itself: somebody sent what it should not")

    def _after_load(self, values: dict[str, FloatArray]) -> list[Message]:
        self.own.notebook.write("load total", values["load"])
        self._model(values["load"])
        self.inherited = int(np.argmax(np.append(values["refused"], 1.0) > 0))  # as many as nobody refuses
        self._insist(not self.stored_refused[: self.inherited].any())
        if self.inherited:
            return self._extend()
        self.p, self.tries = 1.0 / math.sqrt(self.agents), 0
        return self._propose(np.empty(0), 1.0)

    def _model(self, load: FloatArray, before: Span | None = None) -> None:
        """The public side of the plan's model, over the totals there are, and this agent's own lags in it."""

        def public() -> tuple[Span, Inputs]:
            inputs = public_inputs(self.plan, self.kept, load, self.own.weather)
            design = Design.build(inputs, self.plan.order, minimum_norm=self.plan.minimum_norm)
            span = Span.empty(design, self.plan.ridge)
            return span if before is None else span.filled(before.series, before.ones, before.gram), inputs

        self.span, self.inputs = self.own.host.once(self.context, "design", public)
        design = self.span.design
        projected = design.projected_lags(self.x)
        self.own_gram = projected @ projected.T

    def _extend(self) -> list[Message]:
        """The stored directions, summed over the rows that were not in them yet; over the others V is known."""
        self.directions = self.base.directions[: self.inherited]
        self.lacking = self.lacking[:, : self.inherited]
        if not self.lacking.any():
            return self._adopt(np.empty(0))
        for rank, q in enumerate(self.directions.tolist()):
            rows = self.kept[self.lacking[:, rank]]
            if len(rows):
                self.own.exposure.charge(rows, q, roster=self.session.run.roster_hash, rank=rank)
        values = {"total": np.outer(self.directions, self.x)[self.lacking.T]}
        return self._send(Phase.EXTEND, extend_layout(self.agents, int(self.lacking.sum())), values)

    def _after_extend(self, values: dict[str, FloatArray]) -> list[Message]:
        self.own.notebook.write("basis total", values["total"], "extension")
        self.opened += 1
        return self._adopt(values["total"])

    def _adopt(self, total: FloatArray) -> list[Message]:
        stored, before = self.base.totals, self.span

        def adopted() -> Span:
            series, span = stored.on(self.kept).T[: self.inherited], before
            series[self.lacking.T] = total
            for rank, column in enumerate(series):
                span = span.add(column, float(stored.ones[rank]), stored.gram[rank, : rank + 1])
            return span

        self.span = self.own.host.once(self.context, "span", adopted)
        self.scale = 0.1
        return self._send_scalars()

    def _propose(self, inner: FloatArray, square: float) -> list[Message]:
        """p orthogonalised against the basis and normalised, from its public inner products with the basis.

        An agent whose leverage the direction would take too far lowers its own entry of p, says so, and the direction
        is normalised again. One that may not take part at all refuses. Nothing of the direction has left by then.
        """
        rules, exposure = self.own.rules, self.own.exposure
        along = solve_positive(self.span.gram, inner) if len(inner) else inner
        outside = square - float(inner @ along)
        if not outside > INDEPENDENT * square:
            self.capped = True
            return self._decide()
        norm = math.sqrt(outside)
        self.candidate = (self.p - float(self.directions @ along)) / norm
        totals, leverage = exposure.worst(self.kept)
        room = rules.leverage - leverage
        self.limits = self.candidate**2 > room
        if self.limits:
            target = math.copysign(LIMIT * math.sqrt(max(room, 0.0)), self.candidate)
            own_share = 1.0 - float(self.directions @ self.directions)
            self.p += (target - self.candidate) * norm / max(own_share, INDEPENDENT)
        self.refuses = totals + 1 > rules.totals_cap(self.agents) or (self.limits and self.tries == MOST_TRIES)
        self.tries += 1
        values = {
            "flags": np.array([self.refuses, self.limits], dtype=float),
            "inner": self.directions * self.p,
            "square": np.array([self.p**2]),
        }
        return self._send(Phase.FLAGS, flags_layout(self.agents, len(self.directions)), values)

    def _after_flags(self, values: dict[str, FloatArray]) -> list[Message]:
        self.own.notebook.write("scalars", np.concatenate(list(values.values())), "flags")
        refused, limited = values["flags"] > 0
        self._insist((refused or not self.refuses) and (limited or not self.limits))
        self.limited = self.limited or bool(limited)
        if refused and len(self.span) == 0:
            raise RunAborted("agents refuse any further total over these rows: choose rows not yet used as often")
        if refused and self._diagonal_share():  # a residual may be acceptable where this was not
            self.diagonals, self.limited = (), False
            return self._send_scalars()
        if refused:
            self.capped = True
            return self._decide()
        if limited:
            return self._propose(values["inner"], float(values["square"][0]))
        return self._send_direction()

    def _send_direction(self) -> list[Message]:
        q = self.candidate
        if self._diagonal_share():
            self.diagonals = self.diagonals[1:]
        self.own.exposure.charge(self.kept, q, roster=self.session.run.roster_hash, rank=len(self.directions))
        self.directions = np.append(self.directions, q)
        values = {"total": q * self.x, "one": np.array([q]), "gram": q * self.directions}
        return self._send(Phase.BASIS, basis_layout(self.agents, len(self.kept), len(self.directions)), values)

    def _after_basis(self, values: dict[str, FloatArray]) -> list[Message]:
        self.own.notebook.write("basis total", values["total"])
        self.own.notebook.write("scalars", np.append(values["gram"], values["one"]), "gram")
        before = self.span
        total, one, row = values["total"], float(values["one"][0]), values["gram"]
        if not np.abs(row - np.eye(len(row))[-1]).max() <= ORTHONORMAL:
            raise RunAborted("a direction is not the next of an orthonormal basis: somebody sent what it should not")
        self.span = self.own.host.once(self.context, "span", lambda: before.add(total, one, row))
        self.moves = 0
        self.opened += 1
        return self._send_scalars()

    def _send_scalars(self) -> list[Message]:
        """The whole descent in the span, then this agent's own residual r_i = ν − Z_iᵀ(Zξ) − λξ_i."""
        ridge = self.span.ridge
        found, error, trials = self.own.host.once(self.context, "descent", self._descend)
        a = lag_filter(found.alpha)
        nu, weight = found.objectives[-1], float(self.directions @ found.weights)
        r = nu - float(a @ (self.x[self.span.design.lagged] @ error)) - ridge * weight
        r_scaled = r / (nu * self.scale * math.sqrt(self.agents))
        size = float(a @ self.own_gram @ a)  # ‖Z_i‖²
        diagonal = ridge * self._diagonal_share()
        # Jacobi: r_i/(‖Z_i‖² + λ), times λ so that it is never larger than the residual itself
        self.p = r_scaled * ridge / (size + ridge) if diagonal == 0 else diagonal / (size + diagonal)
        values = {
            "inner": self.directions * self.p,
            "squares": np.array([self.p**2, r_scaled**2]),
        }
        if len(trials):
            values["negative"] = (trials @ self.directions < 0).astype(float)
        if self.session.leads:
            values["announced"] = self._announce()
        layout = scalars_layout(self.agents, self.plan.widest()[0], len(self.span), self._trials())
        return self._send(Phase.SCALARS, layout, values)

    def _diagonal_share(self) -> float:
        """Once nonnegative="ridge" has raised λ, two directions are 1/(‖Z_i‖² + share·λ), where the usual cap leaves
        room for them: they span how the weights move with λ, so that finding the right λ costs few further totals."""
        roomy = self.plan.nonnegative == "ridge" and self.agents >= AGENTS_FOR_DIAGONALS
        return self.diagonals[0] if roomy and self.diagonals and self.ridge_steps else 0.0

    def _trials(self) -> int:
        """Ridges whose signs of weights are counted: λ_k, λ_{k−1} and those above."""
        return 2 + LOOK_AHEAD if self.plan.nonnegative == "ridge" else 0

    def _ridge(self, k: int) -> float:
        return self.plan.ridge * RIDGE_GROWTH**k

    def _announce(self) -> FloatArray:
        """The leader's descent from equal weights: this one becomes the answer."""
        found = self.span.descend(self.plan.tolerance)
        return Announced(
            found.alpha, found.weights, found.previous, found.objectives[-1], found.iterations, found.converged
        ).pack(room=self.plan.widest()[0] - self.plan.order)

    def _descend(self) -> tuple[Descent, FloatArray, FloatArray]:
        """What all agents compute alike to find a direction: α and c, not more exactly than a direction needs, the
        residual of Eq. (2) there, and the weights at other ridges."""
        span, tolerance, k = self.span, self.plan.tolerance, self.ridge_steps
        known = self.announced.alpha
        found = span.descend(tolerance, span.sp2(known)[0], 1) if len(known) else span.descend(tolerance)
        trials = np.empty((self._trials(), len(span)))
        if len(trials):
            trials[0] = found.weights
            below = replace(span, ridge=self._ridge(k - 1)) if k else span
            trials[1] = below.descend(tolerance, found.weights).weights
            # α moves little with λ; what is chosen here is looked at in full next
            ahead = np.array([self._ridge(k + i) for i in range(1, LOOK_AHEAD + 1)])
            trials[2:] = span.weights_at(found.alpha, ahead)
        return found, span.residual_series(found.alpha, found.weights), trials

    def _after_scalars(self, values: dict[str, FloatArray]) -> list[Message]:
        flat = np.concatenate([values["inner"], values["squares"], values["negative"]])
        self.own.notebook.write("scalars", flat, "residual")
        announced = Announced.unpack(values["announced"], self.plan.order, len(self.span))
        self.own.host.once(self.context, "verified", lambda: verify_leader(self.span, announced, self.plan.tolerance))
        self.announced = announced
        self.inner, (self.square, residual) = values["inner"], values["squares"]
        if not min(self.square, residual) >= NEGATIVE:
            raise RunAborted("a sum of squares is negative: somebody sent what it should not")
        self.negative = values["negative"]
        before, self.gap = self.gap, self.scale * math.sqrt(max(residual, 0.0))
        self.scale = 4 * self.gap if self.gap > 0 else self.scale
        # Where agents had to hold back their part, totals that lower the residual no more would be spent for nothing.
        self.capped = self.capped or (self.limited and self.moves == 0 and self.gap > STALLED * before)
        return self._decide()

    def _decide(self) -> list[Message]:
        """Another ridge, another direction, or the release."""
        k = self._better_ridge()
        if k != self.ridge_steps:
            return self._change_ridge(k)
        stands = self.gap <= self.plan.solver_tolerance or self.capped
        if self._look_due(stands):
            return self._compare()
        if stands:
            return self._release()
        self.tries, self.limited = 0, False
        return self._propose(self.inner, self.square)

    def _better_ridge(self) -> int:
        """The first k at which no weight is negative, as far as the present span can tell."""
        k = self.ridge_steps
        if not len(self.negative) or self.moves > MOST_MOVES:
            return k
        here, below, *above = self.negative
        if here:
            return k + next((i for i, count in enumerate(above, 1) if count == 0), LOOK_AHEAD)
        return k - 1 if k and not below and not self.moves else k

    def _change_ridge(self, k: int) -> list[Message]:
        """The same basis serves another λ."""
        self.moves += 1
        self.ridge_steps = k
        if k > RIDGE_STEPS or self._ridge(k) > self.own.rules.ridge[1]:
            raise RunAborted(f"some weight stays negative up to ridge {self._ridge(k):.3g}, more than agents accept")
        self.span = replace(self.span, ridge=self._ridge(k))
        self.scale = 0.1
        return self._send_scalars()

    # Several candidates

    def _look_due(self, stands: bool) -> bool:
        """Compare at once, because equal weights already tell orders and seasons apart and no total is then spent on
        others; halfway, when ridges differ too; and where the model at hand stands in a span that has grown since."""
        if not self.plan.candidates or self.looks == MOST_LOOKS or len(self.span) == self.looked:
            return False
        return stands or self.looks == 0 or (self.looks == 1 and self.gap <= HALFWAY)

    def _compare(self) -> list[Message]:
        """Every agent scores all candidates in the span; the leader says what it found."""
        self.looks, self.looked = self.looks + 1, len(self.span)
        span, inputs, plan = self.span, self.inputs, self.plan
        self.scores = self.own.host.once(
            self.context, "scores", lambda: compare(plan, self.kept, inputs, self.own.weather, span)
        )
        layout = choice_layout(len(plan.candidates), origins_of(plan, inputs))
        values = {"choice": announce_choice(self.scores, plan)} if self.session.leads else {}
        return self._send(Phase.CHOICE, layout, values)

    def _after_choice(self, values: dict[str, FloatArray]) -> list[Message]:
        chosen = self.plan.candidates[verify_choice(self.scores, values["choice"], self.plan)]
        return self._decide() if chosen == self.plan.model else self._switch(chosen)

    def _switch(self, candidate: Candidate) -> list[Message]:
        """The same basis serves another candidate."""
        self.plan = self.plan.of(candidate)
        self._model(self.inputs.load, self.span)
        self.ridge_steps = self.moves = 0
        self.scale, self.gap, self.capped = 0.1, math.inf, False
        self.announced = NOTHING_YET  # another order has another α
        return self._send_scalars()

    # Release

    def _release(self) -> list[Message]:
        """Consent is this agent's part of a sum that opens only if everybody sends theirs."""
        span, found = self.span, self.announced
        size = float(found.weights @ span.gram @ found.weights)
        least = max(3.0, self.agents / 4)
        if not 0 < size <= 1.0 / least:
            raise RunAborted(f"the state would rest on {1 / max(size, 1e-9):.1f} agents in effect, not on {least:g}")
        if not abs(float(span.ones @ found.weights) - 1.0) < 1e-6:
            raise RunAborted("the weights do not add up to one")
        state = self.own.host.once(self.context, "state", lambda: span.state(found.weights) + REFERENCE_TEMP)
        self.own.notebook.write("state", state)
        self.own.notebook.write("coefficients", found.alpha)
        layout = release_layout(self.plan, int(self.fresh.sum()))
        values = {}
        if self.session.leads:
            estimate = complete(
                span.design, self.inputs, alpha=found.alpha, state=state, ridge=span.ridge,
                iterations=found.iterations, status=self._status(), solver_residual=self.gap,
            )  # fmt: skip
            numbers = pack_release(self.plan, estimate, self.inputs.load, self._bitmaps(), self.fresh)
            values["release"] = sealed_release(numbers, derive(self.session.seed, "release salt"))
        self.own.exposure.release(self.kept[self.fresh])
        return self._send(Phase.RELEASE, layout, values)

    def _status(self) -> Status:
        if not self.announced.converged:
            return Status.NOT_CONVERGED
        return Status.CAPPED if self.gap > self.plan.solver_tolerance else Status.CONVERGED

    def _bitmaps(self) -> tuple[UInt64Array, UInt64Array]:
        kept = np.isin(self.times, self.kept)
        return bitmap(kept), bitmap(np.isin(self.times, self.kept[self.fresh]))

    # For the next run

    def remember(self) -> None:
        """Keep the totals opened in this run: the latest version, and the one that surely everybody has; and the weight
        in a fit that was consented to, whether or not its end was heard: the aggregator may have the model."""
        self.own.host.forget("group stream")  # the secrets of the run end with this part; that one is the host's
        if self.phase is Phase.RELEASE:
            self.own.memory.consent(Consented(
                run=self.session.run.id, roster=self.session.run.roster_hash, weight=self.weight,
                step_seconds=self.plan.step_seconds, end=int(self.times[-1]),
            ))  # fmt: skip
        if not self.opened:
            return
        latest, before = self.own.host.once(self.context, "totals", self._totals)
        q = self.directions[: len(latest)]
        previous = self.base if before is None else Basis(before, q[:-1])
        self.own.memory.keep(self.session.run.roster_hash, (Basis(latest, q), previous))

    def _totals(self) -> tuple[Totals, Totals | None]:
        """After the last total, and before it where that was not yet what the run began with."""
        span, size, version = self.span, len(self.span), self.base.totals.version + self.opened
        series = span.series
        stored = self.base.totals.first(self.inherited) if self.inherited else Totals()

        def after(version: int, n: int) -> Totals:
            return stored.grown(version, self.kept, series[:, :n], span.ones[:n], span.gram[:n, :n])

        return after(version, size), after(version - 1, size - 1) if self.opened > 1 else None

    AFTER: dict[Phase, Callable[["BlindPart", dict[str, FloatArray]], list[Message]]] = {
        Phase.ROWS: _after_rows,
        Phase.LOAD: _after_load,
        Phase.EXTEND: _after_extend,
        Phase.FLAGS: _after_flags,
        Phase.BASIS: _after_basis,
        Phase.SCALARS: _after_scalars,
        Phase.CHOICE: _after_choice,
    }


def verify_leader(span: Span, found: Announced, tolerance: float) -> bool:
    """The leader's α and c must be what SP_I and SP_II give here, up to the arithmetic of two machines."""
    alpha, f1 = span.sp1(found.previous)
    weights, f2 = span.sp2(found.alpha)
    for what, mine, theirs in (
        ("alpha", alpha, found.alpha),
        ("weights", weights, found.weights),
        ("multiplier", np.array([f2]), np.array([found.multiplier])),
    ):
        apart = mine - theirs
        if not apart @ apart <= VERIFY**2 * (mine @ mine):
            raise RunAborted(f"the leader's {what} is not what the totals give: it deviates, or its arithmetic does")
    if found.converged and not f1 - f2 < tolerance * max(1.0, f2) + 1e-9 * f2:
        raise RunAborted("the leader says the descent converged where it did not")
    return True


# Layouts


@lru_cache(maxsize=2)  # it may be long
def rows_layout(length: int) -> Layout:
    return Layout((
        Block("missing", length, 0, 1.0),
        Block("released", length, 0, 1.0),
        Block("basis", SLOTS * HASH_WORDS, 0, 2.0**HASH_BITS),
    ))  # fmt: skip


@lru_cache(maxsize=32)
def load_layout(agents: int, rows: int, stored: int) -> Layout:
    return Layout((fixed("load", rows, agents, LOAD_BOUND, BLIND_BUDGET), Block("refused", stored, 0, 1.0)))


def extend_layout(agents: int, words: int) -> Layout:
    return Layout((fixed("total", words, agents, TEMP_BOUND, BLIND_BUDGET, most=BASIS_BITS),))


@lru_cache(maxsize=32)
def flags_layout(agents: int, size: int) -> Layout:
    bound = SCALAR_SUM / agents
    return Layout((
        Block("flags", 2, 0, 1.0),
        Block("inner", size, SCALAR_BITS, bound),
        Block("square", 1, SCALAR_BITS, bound),
    ))  # fmt: skip


@lru_cache(maxsize=32)
def basis_layout(agents: int, rows: int, size: int) -> Layout:
    return Layout((
        fixed("total", rows, agents, TEMP_BOUND, BLIND_BUDGET, most=BASIS_BITS),
        fixed("one", 1, agents, 1.0, BLIND_BUDGET),
        fixed("gram", size, agents, 1.0, BLIND_BUDGET),
    ))  # fmt: skip


@lru_cache(maxsize=32)
def scalars_layout(agents: int, order: int, size: int, trials: int) -> Layout:
    bound = SCALAR_SUM / agents
    return Layout((
        Block("announced", announced_size(order, size), HALVES),
        Block("inner", size, SCALAR_BITS, bound),
        Block("squares", 2, SCALAR_BITS, bound),
        Block("negative", trials, 0, 1.0),
    ))  # fmt: skip
