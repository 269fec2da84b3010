"""The numbers that a run releases: the leader seals them, every agent verifies and vouches for them, the aggregator
takes them only if all do.

    sealed     α, β, γ, θ, occ · metrics · λ, rss, residual, iterations, status · c, previous c · salt
    released   α, β, γ, θ, occ · metrics · λ, rss, residual, iterations, status · rows kept · h · s · salt

c stays with the agents. h and s follow from what everybody opened, bit by bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from atdm.crypto.keys import digest, open_sealed, seal
from atdm.errors import PeerError, RunAborted
from atdm.kernel.descent import MAX_ITERATIONS, Descent, Status
from atdm.kernel.design import COEFFICIENTS, INPUTS, REFERENCE_TEMP, Inputs
from atdm.kernel.estimate import Estimate, complete
from atdm.kernel.span import Span
from atdm.kernel.thermal import Coefficients
from atdm.protocol.blind.layouts import METRICS, SALT_WORDS, SINGLE, TOTAL_BITS, bitmap_words, number_count
from atdm.protocol.desk import Outcome
from atdm.protocol.plan import VERSION, Plan
from atdm.protocol.readings import window
from atdm.types import FloatArray, IntArray, UInt64Array

VERIFY = 1e-9  # relative, block by block: an agent's own numbers against the leader's
SAME_END = 1e-6  # relative: two machines may stop a descent one iteration apart
# K; of the totals: s has no more digits than one of them. With all of a float64, lattices find in s the totals it is
# made of, which are the agents'.
STATE_QUANTUM = 2.0**-TOTAL_BITS
MOST_APART = 5  # iterations of two machines whose rounding ends the same descent
STATUSES = tuple(Status)
DEVIATES = "the leader's numbers are not what the opened sums give: it deviates, or its arithmetic does"


@dataclass(frozen=True, slots=True)
class Sealed:
    """What the leader tells the others before they consent."""

    numbers: FloatArray  # as released
    weights: FloatArray  # c
    previous: FloatArray  # the c from which SP_I found α
    salt: FloatArray  # 256 bits, as four words

    def pack(self) -> bytes:
        return np.concatenate([self.numbers, self.weights, self.previous, self.salt]).astype("<f8").tobytes()

    @classmethod
    def unpack(cls, data: bytes, plan: Plan, totals: int) -> "Sealed":
        if len(data) != cls.size(plan, totals):
            raise RunAborted(DEVIATES)
        sizes = [number_count(plan), totals, totals, SALT_WORDS]
        numbers, weights, previous, salt = split(np.frombuffer(data, dtype="<f8").astype(np.float64), sizes)
        if not (np.isfinite(weights).all() and np.isfinite(previous).all()):
            raise RunAborted(DEVIATES)
        return cls(numbers, weights, previous, salt)

    @staticmethod
    def size(plan: Plan, totals: int) -> int:
        """Bytes."""
        return 8 * (number_count(plan) + 2 * totals + SALT_WORDS)


def estimate_of(span: Span, inputs: Inputs, found: Descent, gap: float, reached: bool) -> Estimate:
    """Everything that follows from α, c and the opened sums; reached: whether the tolerance was."""
    status = Status.CONVERGED if reached else Status.CAPPED
    state = np.rint(span.state(found.weights) / STATE_QUANTUM) * STATE_QUANTUM
    return complete(
        span.design, inputs, alpha=found.alpha, state=state + REFERENCE_TEMP, ridge=span.ridge,
        iterations=found.iterations, status=status if found.converged else Status.NOT_CONVERGED, solver_residual=gap,
    )  # fmt: skip


def numbers_of(estimate: Estimate) -> FloatArray:
    single = [
        estimate.ridge, estimate.rss, estimate.solver_residual, float(estimate.iterations),
        float(STATUSES.index(estimate.status)),
    ]  # fmt: skip
    measured = [estimate.metrics[p][k][m] for p, k, m in METRICS]
    return np.concatenate([*estimate.coefficients.parts(), measured, single])


@np.errstate(all="ignore")  # numbers of a leader that lies may be anything; what becomes of them is close to nothing
def verify(
    sealed: Sealed, own: Descent, span: Span, inputs: Inputs, plan: Plan, gap: float, reached: bool, agents: int
) -> Estimate:
    """One step of SP_I and SP_II and every number, worked out again from the opened sums; that this is where the own
    descent ends; and that the state rests on enough agents."""
    alpha = sealed.numbers[: plan.order]
    own_alpha, f1 = span.sp1(sealed.previous)
    own_weights, f2 = span.sp2(alpha)
    iterations, status = sealed.numbers[-2:].tolist()
    if not (1 <= iterations <= MAX_ITERATIONS and iterations == int(iterations) and status in range(len(STATUSES))):
        raise RunAborted(DEVIATES)
    converged = STATUSES[int(status)] is not Status.NOT_CONVERGED
    same_end = converged == own.converged and abs(iterations - own.iterations) <= MOST_APART
    if not (same_end and _close(own.alpha, alpha, SAME_END)):
        raise RunAborted(DEVIATES)
    found = Descent(
        alpha=alpha, weights=sealed.weights, previous=sealed.previous, objectives=(f1, f2) * int(iterations),
        converged=converged,
    )  # fmt: skip
    estimate = estimate_of(span, inputs, found, gap, reached)
    sizes = [*coefficient_sizes(plan), len(METRICS), len(SINGLE)]
    mine, theirs = split(numbers_of(estimate), sizes), split(sealed.numbers, sizes)
    pairs = [(own_alpha, alpha), (own_weights, sealed.weights), *zip(mine[1:-2], theirs[1:-2], strict=True)]
    pairs.append((mine[-1][1:2], theirs[-1][1:2]))  # rss
    if not (all(_close(*pair) for pair in pairs) and _same_metrics(mine[-2], theirs[-2])):
        raise RunAborted(DEVIATES)
    if (mine[-1][[0, 2, 4]] != theirs[-1][[0, 2, 4]]).any():  # λ, residual, status
        raise RunAborted(DEVIATES)
    check_effective(span, sealed.weights, agents)
    return estimate


def _close(mine: FloatArray, theirs: FloatArray, within: float = VERIFY) -> bool:
    """Norm-wise."""
    apart = mine - theirs
    return bool(apart.dot(apart) <= within**2 * mine.dot(mine))


def _same_metrics(mine: FloatArray, theirs: FloatArray) -> bool:
    """Each by itself: one of an exploding free run must not cover the others. What does not exist (R² of a constant
    series) is missing on both sides."""
    near = np.abs(mine - theirs) <= VERIFY * np.maximum(np.abs(mine), 1.0)
    return bool((near | (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))).all())


def check_effective(span: Span, weights: FloatArray, agents: int) -> None:
    """The state rests on max(3, K/4) agents in effect, 1/Σξ², and its weights add up to one."""
    size = float(weights @ span.gram @ weights)
    if not 0 < size * max(3.0, agents / 4) <= 1.0:
        raise RunAborted("the state would rest on too few agents: use a larger ridge, more homes, or equal weights")
    if not abs(float(span.ones @ weights) - 1.0) < 1e-6:
        raise RunAborted("the weights do not add up to one: a participant altered a sum")


def split(values: FloatArray, sizes: Iterable[int]) -> list[FloatArray]:
    """Consecutive parts of these sizes."""
    return [values[first:end] for first, end in pairwise(accumulate(sizes, initial=0))]


def coefficient_sizes(plan: Plan) -> list[int]:
    """Of α, what lags of each input are multiplied by, and occ."""
    return [plan.order, *[plan.order + 1] * len(INPUTS), plan.period]


def released_words(sealed: Sealed, plan: Plan, kept: IntArray, load: FloatArray, state: FloatArray) -> FloatArray:
    """Exactly the words of the release, at every agent."""
    flags = np.zeros(64 * bitmap_words(plan), dtype=bool)
    flags[(kept - plan.start) // plan.step_seconds] = True
    bitmap: UInt64Array = np.packbits(flags, bitorder="little").view("<u8").astype(np.uint64)
    return np.concatenate([sealed.numbers, bitmap.view(np.float64), load, state, sealed.salt])


def seal_release(key: bytes, words: FloatArray, run: bytes) -> bytes:
    """The leader's box, for whoever gets the key: the aggregator, once every agent has sent its part of that."""
    return seal(key, words.astype("<f8").tobytes(), run, purpose="release", sender="leader", receiver="aggregator")


def open_release(key: bytes, box: bytes, run: bytes) -> FloatArray:
    data = open_sealed(key, box, run, purpose="release", sender="leader", receiver="aggregator")
    if len(data) % 8:
        raise PeerError("the release has half a word")
    return np.frombuffer(data, dtype="<f8").astype(np.float64)


def vouched(run: bytes, context: bytes, words: FloatArray) -> bytes:
    """What an agent signs: this run, all sums up to the seal, and every word of the release."""
    return digest("release", VERSION, run, context, words.astype("<f8").tobytes())


def unpack_release(plan: Plan, values: FloatArray, sums: int) -> Outcome:
    """What the aggregator ends with, after so many totals."""
    sizes = [*coefficient_sizes(plan), len(METRICS), len(SINGLE), bitmap_words(plan)]
    rows, odd = divmod(len(values) - sum(sizes) - SALT_WORDS, 2)
    if rows < 0 or odd:
        raise PeerError("the release is of an impossible length")
    *parts, measured, single, bitmap, load, state = split(values, [*sizes, rows, rows])
    coefficients = Coefficients(**dict(zip(COEFFICIENTS, parts, strict=True)))
    ridge, rss, residual, iterations, status = single.tolist()
    finite = all(np.isfinite(part).all() for part in (*parts, single, load, state))
    if not finite or not 0 <= int(status) < len(STATUSES):
        raise PeerError("the release has numbers that are not finite, or an unknown status")
    bits = np.unpackbits(np.ascontiguousarray(bitmap).view(np.uint8), bitorder="little")[: plan.length]
    kept = window(plan)[bits.astype(bool)]
    if len(kept) != len(state):
        raise PeerError("the release has other rows than it says")
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    for (part, kind, name), value in zip(METRICS, measured.tolist(), strict=True):
        metrics.setdefault(part, {}).setdefault(kind, {})[name] = value
    estimate = Estimate(
        coefficients=coefficients, state=state, rss=rss, ridge=ridge, solver_residual=residual, metrics=metrics,
        iterations=int(iterations), status=STATUSES[int(status)],
    )  # fmt: skip
    return Outcome(estimate, load, kept, sums)
