"""A dishonest aggregator and an agent that gives away the group secret, against fitted weights: not claimed, measured.

The secret opens every total and makes others in its place, the same for everybody, so that masks go on cancelling.
With λ large, and u the direction of the residual of a made-up series, z_i = Z_iᵀu:

    open    that series, so large (its residual has length t₀) that everybody's p_i is at its bound +b, b = clip/√K
    step 1  zeros with a forged Gram row, so that SP_II ends at a multiplier ν of the adversary's choice, and a forged
            scale, so that everybody's next p_i is at its bound
    step 2  r_i = t₀(τ − z_i), hence p_i = ±b by the sign of τ − z_i

So the third total tells the sum over the agents whose z_i is above a chosen threshold τ, and how many they are. Two
thresholds with one agent between them are that agent's series; only the account bounds how many can be asked for.
With equal weights there is neither a secret nor a direction: see `chosen_companies` in dishonest.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import msgspec
import numpy as np
from scipy.stats import norm

from atdm.crypto import ring
from atdm.crypto.sums import Layout
from atdm.data.clock import seconds
from atdm.data.readings import positions
from atdm.errors import DataError, PeerError, UsageError
from atdm.kernel.design import Design
from atdm.kernel.span import Span
from atdm.lab.attacks.dishonest import Mounted
from atdm.lab.attacks.score import Guess
from atdm.lab.attacks.stage import Released, Stage, changed
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.blind.layouts import TEMP_BOUND, part_bound, unpack_counts
from atdm.protocol.messages import Message, ToAgent, Total
from atdm.protocol.plan import DAY, Collect, Plan
from atdm.protocol.readings import public_inputs, weather_hash, window
from atdm.run import weather_of
from atdm.types import FloatArray, IntArray, UInt64Array

RIDGE = 20.0  # of the plan, in K‖x_i‖² of the colluding agent: t₀ is then far above any z_i
SMALL = 2.0**-30  # Σ (raw_i/scale)² as forged: the next scale is 1e-5 of the last
TRIES = 200  # functionals on which the colluding agent looks at itself, to learn how large z_i usually is
WHOLE = 0.02  # from a whole number, at most, for a count to be believed: nobody is between the two signs

Fields = dict[str, FloatArray]
Act = Callable[[str, Fields], Fields | None]  # phase, what a total opens to → what replaces it; None: not passed on


class Forger:
    """Opens totals and makes others, with what the colluding agent knows.

    apart: whether each agent is told something of its own; the masks of what follows then no longer cancel.
    """

    def __init__(self, stage: Stage, colluder: int, act: Act, *, apart: bool = False) -> None:
        self._stage, self._colluder, self._act, self._apart = stage, colluder, act, apart
        self._veils: dict[int, tuple[str, Layout, UInt64Array, UInt64Array, int]] = {}  # by step
        self._made: dict[tuple[int, int], bytes | None] = {}
        self.place = 0  # whose total is being made, where each agent has its own

    def alter(self, place: int, message: ToAgent) -> Message | None:
        if not isinstance(message, Total):
            return message
        self.place = place if self._apart else 0
        if (message.step, self.place) not in self._made:
            self._made[message.step, self.place] = self._make(message.step, message.words)
        words = self._made[message.step, self.place]
        return None if words is None else changed(message, words=words)

    def _make(self, step: int, data: bytes) -> bytes | None:
        if step not in self._veils:  # the colluding agent moves on when it is told
            part = self._stage.parts[self._colluder]
            veil, agents = part._veil, part.agents  # type: ignore[attr-defined]
            self._veils[step] = veil.phase, veil.layout, veil._veil, veil._keys, agents
        phase, layout, stream, keys, agents = self._veils[step]
        words = (ring.from_bytes(data, len(stream)) - stream)[: -ring.CHECK_WORDS]
        try:
            instead = self._act(phase, layout.decode(words, agents))
        except PeerError:  # what agents send after each was told something else does not add up
            return None
        if instead is None:
            return None
        ends = accumulate((block.size for block in layout.blocks), initial=0)
        for block, (begin, end) in zip(layout.blocks, pairwise(ends), strict=True):
            if block.name in instead:
                words[begin:end] = np.rint(np.ldexp(instead[block.name], block.bits)).astype(np.int64).view(np.uint64)
        return ring.to_bytes(np.concatenate([words, ring.check_words(words, keys)]) + stream)


@dataclass(frozen=True, slots=True)
class Above:
    """The others whose functional is above a threshold: how many, and the sum of their temperatures. [K]"""

    threshold: float
    count: int
    sharp: bool  # nobody is between the two signs
    total: FloatArray


@dataclass(slots=True)
class Steering:
    """One window, its colluding agent, and what the thresholds tried so far told."""

    stage: Stage
    plan: Plan
    colluder: int
    seed: int
    known: list[Above] = field(default_factory=list)
    kept: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _shape: FloatArray = field(default_factory=lambda: np.empty(0))  # of the forged total: its residual has length 1
    _functional: FloatArray = field(default_factory=lambda: np.empty(0))  # z_i = functional · x_i
    _sum: FloatArray = field(default_factory=lambda: np.empty(0))  # Σ x_i
    _own: FloatArray = field(default_factory=lambda: np.empty(0))  # x_i of the colluding agent
    _spread: float = 0.0  # of z_i, at first by guess
    _length: float = 0.0  # t₀

    @property
    def agents(self) -> int:
        return len(self.stage.agents)

    @property
    def thresholds(self) -> int:
        """As many as the agents' account leaves over one window."""
        return self.plan.totals_for(self.agents) - 2

    def ask(self, release: bool = False) -> Aggregator:
        """One more threshold. release: where exactly one agent is above it, go on to a fit that rests on that agent."""
        return self.stage.play(self.plan, alter=Forger(self.stage, self.colluder, self._act(release)).alter)

    def _act(self, release: bool) -> Act:
        threshold = None

        def act(phase: str, opened: Fields) -> Fields | None:
            nonlocal threshold
            if phase == "rows":
                stamps = window(self.plan)
                self.kept = stamps[unpack_counts(opened["missing"], self.agents, len(stamps)) == 0]
            elif phase == "open":
                try:
                    if not len(self._shape):
                        self._choose_functional(opened)
                except (DataError, UsageError):  # rows that determine no model: agents would stop as well
                    return None
                return {"total": self._length * self._shape}
            elif phase == "step" and threshold is None:
                threshold = self._next_threshold()
                return self._zeros([-2 * self._turn(threshold), 2.0], [float(self.agents), SMALL])
            elif phase == "step" and threshold is not None:
                found = self._read(threshold, opened)
                return self._resting_on_one(threshold) if release and found.count == 1 and found.sharp else None
            return {}

        return act

    def _zeros(self, gram: list[float], squares: list[float]) -> Fields:
        """A total of zeros, and what is said of it."""
        zeros = np.zeros(len(self.kept))
        return {"total": zeros, "one": np.zeros(1), "gram": np.array(gram), "squares": np.array(squares)}

    def _turn(self, threshold: float) -> float:
        """η with η + η² = Kt₀(t₀ − τ)/2λ: a Gram row (−2η, 2) makes c = (1, η)/√K, and ν = (1 + 2η)λ/K + τt₀."""
        size = self.agents * self._length * (self._length - threshold) / self.plan.ridge
        return float((1 + 2 * size) ** 0.5 - 1) / 2

    def _choose_functional(self, opened: Fields) -> None:
        """A slow series on every other row as the first total: no order 1 explains it, so that z_i is the slow movement
        of a home, which is large. The colluding agent knows how large it is at itself."""
        rng, n = np.random.default_rng(self.seed), len(self.kept)
        self._sum = opened["total"] * self.agents**0.5
        inputs = public_inputs(self.plan, self.kept, opened["load"], weather_of(self.stage.cluster))
        design = Design.build(inputs, self.plan.order)
        self._own = self.stage.own_series(self.colluder, self.kept)
        mean = self._sum / self.agents
        for number in range(TRIES):
            walk = rng.normal(size=n * self.plan.step_seconds // DAY + 2).cumsum()
            shape = np.interp(np.arange(n) * self.plan.step_seconds / DAY, np.arange(len(walk)), walk)
            shape[1::2] = 0.0
            span = Span.empty(design, self.plan.ridge).add(shape, self.agents**0.5, np.ones(1))
            weights = np.array([self.agents**-0.5])
            alpha, _ = span.sp1(weights)
            functional, size = span.pull(alpha, weights), float(np.linalg.norm(span.residual_series(alpha, weights)))
            self._spread += float(functional @ (self._own - mean) / size) ** 2 / TRIES
            if number == 0:
                self._shape, self._functional = shape / size, functional / size
        self._spread **= 0.5
        range_left = 0.9 * TEMP_BOUND * self.agents**0.5 / float(np.abs(self._shape).max())
        self._length = min((self.plan.ridge / self.agents) ** 0.5, range_left)

    def _next_threshold(self) -> float:
        """Where one more agent is expected above: between two known thresholds, beyond the highest, or further down."""

        def tail(count: float) -> float:
            return float(norm.isf(min(max(count, 0.4) / self.agents, 0.9)))

        mean = float(self._functional @ self._sum) / self.agents
        above = None
        for each in sorted(self.known, key=lambda known: -known.threshold):
            more = each.count if above is None else each.count - above.count
            if more >= 2 and above is None:
                return each.threshold + self._spread * max(tail(1) - tail(each.count), 0.2)
            if more >= 2 and above is not None:
                share = (tail(above.count + 1) - tail(each.count)) / (tail(above.count) - tail(each.count))
                return each.threshold + share * (above.threshold - each.threshold)
            above = each
        if above is None:
            return mean + self._spread * tail(1.5)
        in_vain = sum(known.count == above.count for known in self.known)  # each time a longer way down
        down = self._spread * max(tail(above.count) - tail(above.count + 1.5 * in_vain), 0.1)
        return above.threshold - down

    def _read(self, threshold: float, opened: Fields) -> Above:
        agents, bound = self.agents, part_bound(self.agents, self.plan.clip)
        mine = self.own_share(threshold)
        number = (agents - float(opened["one"][0]) / bound) / 2 - mine
        total = (self._sum - opened["total"] / bound) / 2 - mine * self._own
        found = Above(threshold, round(number), abs(number - round(number)) < WHOLE, total)
        self.known.append(found)
        multiplier = (1 + 2 * self._turn(threshold)) * self.plan.ridge / agents + threshold * self._length  # ν
        mean = float(self._functional @ self._sum) / agents
        square = float(opened["squares"][0]) * (multiplier / self._length) ** 2 / agents - (threshold - mean) ** 2
        if square > 0:
            self._spread = square**0.5
        return found

    def own_share(self, threshold: float) -> float:
        """One where the colluding agent itself is above, zero where it is not."""
        return float(self._functional @ self._own > threshold)

    def _resting_on_one(self, threshold: float) -> Fields:
        """Another total of zeros: with its Gram row SP_II gives all agents but one the weight zero, and that one
        `weight`; on paper the state rests on more than K agents."""
        turn = self._turn(threshold)
        size = 0.5 * (1 - 2 * turn**2) / (0.5 + turn) ** 2
        return self._zeros([size * (0.5 + turn), 0.0, size], [0.0, 0.0])

    def weight(self, threshold: float) -> float:
        """Of each agent above the threshold in such a fit."""
        return 2 * (1 + 2 * self._turn(threshold)) / self.agents

    def isolated(self) -> list[FloatArray]:
        """Series of single agents: sums over those above two thresholds with one agent between them. [K]"""
        found, above = [], Above(np.inf, 0, True, np.zeros(len(self.kept)))
        for each in sorted(self.known, key=lambda one: -one.threshold):
            if each.count - above.count == 1 and each.sharp and above.sharp:
                found.append(each.total - above.total)
            above = each
        return found

    def rows(self, stamps: IntArray) -> IntArray:
        return positions(seconds(self.stage.cluster.time), stamps)


def steering(stage: Stage, plan: Plan, colluder: int, seed: int) -> Steering:
    """The plan as this adversary wants it; agents accept it, because each number is within their rules."""
    own = stage.own_series(colluder, seconds(stage.cluster.time))
    ridge = max(RIDGE * len(stage.agents) * float(((own - own.mean()) ** 2).sum()), 1.0)
    wanted = msgspec.structs.replace(plan, order=1, ridge=ridge, nonnegative="free")
    return Steering(stage, wanted, colluder, seed)


def steered_totals(stage: Stage, plan: Plan, colluder: int = 0, seed: int = 0) -> Mounted:
    """As many thresholds as the agents' account allows over one window."""
    attack = steering(stage, plan, colluder, seed)
    for _ in range(attack.thresholds):
        attack.ask()
    found = attack.isolated()
    guesses = [Guess(series=np.column_stack(found), rows=attack.rows(attack.kept))] if found else []
    counts = ", ".join(str(above.count) for above in attack.known)
    return Mounted(bool(guesses), guesses, f"not claimed; {len(attack.known)} thresholds with {counts} above")


def live_feed(stage: Stage, plan: Plan, colluder: int = 0, seed: int = 0) -> Mounted:
    """The same until one agent is alone above a threshold; that run is led to a fit which rests on this agent, and the
    rows of later days are collected under its weights."""
    days = plan.length * plan.step_seconds // DAY
    early = msgspec.structs.replace(plan, length=(days * 3 // 4) * DAY // plan.step_seconds)
    last = early.start + early.length * early.step_seconds - plan.step_seconds
    early = msgspec.structs.replace(early, weather=weather_hash(weather_of(stage.cluster), early.start, last))
    attack = steering(stage, early, colluder, seed)
    for _ in range(attack.thresholds):
        run = attack.ask(release=True).run
        found = attack.known[-1] if attack.known else None
        if run is None or found is None or found.count != 1 or not found.sharp:
            continue
        rest = plan.length - early.length
        later = Collect(step_seconds=plan.step_seconds, start=last + plan.step_seconds, length=rest, fit=run.id)
        shown = stage.play(later)
        if shown.state is AggregatorState.DONE:
            rows = Released.of(shown)
            mine = attack.own_share(found.threshold) * stage.own_series(colluder, rows.kept)
            series = (rows.state / attack.weight(found.threshold) - mine)[:, None]
            note = f"not claimed; {len(rows.kept)} rows after the fit, in which the weights of all others are zero"
            return Mounted(True, [Guess(series=series, rows=attack.rows(rows.kept))], note)
        return Mounted(False, [], "stopped: " + "; ".join(shown.reasons[:1]))
    return Mounted(False, [], "no threshold had exactly one agent above")
