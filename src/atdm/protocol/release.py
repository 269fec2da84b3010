"""What a run of `blind` releases, as the raw words of its last sum: the leader packs it, the aggregator unpacks it.

    [candidate] · α, β, γ, θ, occ · metrics · rss, λ, residual, iterations, status · rows kept, shown · h · s · seal
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from atdm.crypto.keys import DIGEST_BYTES, digest
from atdm.crypto.ring import WORD_BYTES, UInt64Array
from atdm.errors import PeerError
from atdm.kernel.descent import Status
from atdm.kernel.design import FloatArray, IntArray, parameter_count
from atdm.kernel.estimate import Estimate
from atdm.kernel.thermal import Coefficients
from atdm.protocol.plan import Plan
from atdm.protocol.readings import window
from atdm.protocol.sums import RAW, Block, Layout

SEAL_WORDS = DIGEST_BYTES // WORD_BYTES

METRICS = [(p, k, m) for p in ("train", "test") for k in ("one_step", "free_run") for m in ("rmse", "mape", "r2")]
STATUSES = tuple(Status)


@lru_cache(maxsize=2)
def release_layout(plan: Plan, rows: int) -> Layout:
    size = parameter_count(*plan.widest()) + len(METRICS) + 5 + 2 * bitmap_words(plan.length) + 2 * rows
    size += len(plan.candidates) > 0  # which of them it is
    size += 2 * SEAL_WORDS
    return Layout((Block("release", size, RAW),))


def bitmap_words(length: int) -> int:
    return -(-length // 64)


def bitmap(flags: np.typing.NDArray[np.bool_]) -> UInt64Array:
    padded = np.zeros(64 * bitmap_words(len(flags)), dtype=bool)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64)


def bitmap_flags(words: UInt64Array, length: int) -> np.typing.NDArray[np.bool_]:
    return np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[:length].astype(bool)


def pack_release(
    plan: Plan,
    estimate: Estimate,
    load: FloatArray,
    bitmaps: tuple[UInt64Array, UInt64Array],
    fresh: np.typing.NDArray[np.bool_],
) -> FloatArray:
    c = estimate.coefficients
    numbers = [estimate.rss, estimate.ridge, estimate.solver_residual, float(estimate.iterations)]
    numbers.append(float(STATUSES.index(estimate.status)))
    sizes = coefficient_sizes(*plan.widest())
    padded = (np.pad(part, (0, size - len(part))) for part, size in zip(c.parts(), sizes, strict=True))
    return np.concatenate([
        [plan.candidates.index(plan.model)] if plan.candidates else [],
        *padded,
        [estimate.metrics[p][k][m] for p, k, m in METRICS],
        numbers,
        *(words.view(np.float64) for words in bitmaps),
        load[fresh],
        estimate.state[fresh],
    ])  # fmt: skip


def sealed_release(numbers: FloatArray, salt: bytes) -> FloatArray:
    """The released numbers, a salt that only the leader knows, and the hash of both: whoever alters a word on the way,
    or adds to one, cannot make the hash agree."""
    return np.concatenate([numbers, np.frombuffer(salt + release_hash(numbers, salt), dtype="<f8")])


def unsealed_release(words: FloatArray) -> FloatArray:
    numbers, salt, sent = np.split(words, [-2 * SEAL_WORDS, -SEAL_WORDS])
    if release_hash(numbers, salt.astype("<f8").tobytes()) != sent.astype("<f8").tobytes():
        raise PeerError("the release is not what its leader sent: no result")
    return numbers


def release_hash(numbers: FloatArray, salt: bytes) -> bytes:
    return digest("release", numbers.astype("<f8").tobytes(), salt)


def coefficient_sizes(order: int, period: int) -> list[int]:
    """Of α, β, γ, θ and occ."""
    return [order, order + 1, order + 1, order + 1, period]


@dataclass(frozen=True, slots=True)
class Released:
    """What the aggregator ends with."""

    estimate: Estimate  # state over the released rows only
    load: FloatArray  # h over the released rows                [kW]
    kept: IntArray  # time stamps of all rows of the fit
    time: IntArray  # time stamps of the released rows
    chosen: int | None  # which candidate of the plan, where there were some


def unpack_release(plan: Plan, values: FloatArray) -> Released:
    chosen = None
    if plan.candidates:
        chosen, values = int(values[0]), values[1:]
        if not 0 <= chosen < len(plan.candidates):
            raise PeerError("the release has a candidate that is none")
        plan = plan.of(plan.candidates[chosen])
    words, length = bitmap_words(plan.length), plan.length
    sizes = [*coefficient_sizes(*plan.widest()), len(METRICS), 5, words, words]
    *padded, measured, numbers, kept, fresh, rest = np.split(values, np.cumsum(sizes))
    own = zip(padded, coefficient_sizes(plan.order, plan.period), strict=True)
    alpha, beta, gamma, theta, occupancy = (part[:size] for part, size in own)
    times = window(plan)
    load, state = np.split(rest, 2)
    if not all(np.isfinite(part).all() for part in (*padded, numbers, rest)):
        raise PeerError("the release has numbers that are not finite")
    if not 0 <= int(numbers[4]) < len(STATUSES):
        raise PeerError("the release has a status that is none")
    rows, time = (times[bitmap_flags(np.ascontiguousarray(bits).view(np.uint64), length)] for bits in (kept, fresh))
    if len(time) != len(state) or not np.isin(time, rows).all():
        raise PeerError("the release has other rows than it says")
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    for (part, kind, name), value in zip(METRICS, measured.tolist(), strict=True):
        metrics.setdefault(part, {}).setdefault(kind, {})[name] = value
    return Released(
        estimate=Estimate(
            coefficients=Coefficients(alpha=alpha, beta=beta, gamma=gamma, theta=theta, occupancy=occupancy),
            state=state,
            rss=float(numbers[0]),
            ridge=float(numbers[1]),
            solver_residual=float(numbers[2]),
            iterations=int(numbers[3]),
            status=STATUSES[int(numbers[4])],
            metrics=metrics,
        ),
        load=load,
        kept=rows,
        time=time,
        chosen=chosen,
    )
