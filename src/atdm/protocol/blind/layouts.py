"""The words of each sum of `blind`: names, sizes, fixed point and bounds. Readings are bounded before the run; what is
computed from them saturates silently at its bound, because a refusal would tell something about them."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from atdm.crypto.sums import RAW, Block, Layout, fixed
from atdm.kernel.descent import LADDER
from atdm.kernel.design import parameter_count
from atdm.protocol.plan import BLIND_BUDGET, Plan
from atdm.types import FloatArray

LOAD_BOUND = 1e4  # kW of one agent
TEMP_BOUND = 51.0  # K from the reference, of one agent: readings within [−30, 70] °C, and dither
TOTAL_BITS = 16  # no more: finer totals of quantised sensors are a hidden-subset-sum problem that lattices solve
SQUARE_BITS = 34
SQUARE_SUM = 2.0**14 - 1.0  # with 34 bits, ±2^48 quanta
MOST_PART = 4.0  # of |p_i| where the clip is lifted
SALT_WORDS = 4  # 256 bits
METRICS = [(p, k, m) for p in ("train", "test") for k in ("one_step", "free_run") for m in ("rmse", "mape", "r2")]
SINGLE = ("ridge", "rss", "residual", "iterations", "status")


@lru_cache(maxsize=2)  # it may be long
def rows_layout(agents: int, rows: int) -> Layout:
    """Counts of agents that lack a row, several to a word."""
    bits, each = count_bits(agents)
    return Layout((Block("missing", -(-rows // each), 0, float(sum(1 << bits * i for i in range(each)))),))


def count_bits(agents: int) -> tuple[int, int]:
    """Bits of a count of agents, and how many counts fit a word of the budget."""
    bits = agents.bit_length()
    return bits, BLIND_BUDGET // bits


def pack_flags(flags: NDArray[np.bool_], agents: int) -> FloatArray:
    """One agent's flags as words whose sum is the counts."""
    bits, each = count_bits(agents)
    padded = np.zeros(-(-len(flags) // each) * each)
    padded[: len(flags)] = flags
    return padded.reshape(-1, each) @ (2.0 ** (bits * np.arange(each)))  # below 2^48: exact


def unpack_counts(words: FloatArray, agents: int, count: int) -> FloatArray:
    bits, each = count_bits(agents)
    parts = words.astype(np.int64)[:, None] >> bits * np.arange(each) & (1 << bits) - 1
    return parts.ravel()[:count].astype(float)


@lru_cache(maxsize=4)
def open_layout(agents: int, rows: int) -> Layout:
    """h and the first total, Σ x_i/√K."""
    return Layout((
        fixed("load", rows, agents, LOAD_BOUND, BLIND_BUDGET),
        fixed("total", rows, agents, TEMP_BOUND / math.sqrt(agents), BLIND_BUDGET, most=TOTAL_BITS),
    ))  # fmt: skip


def part_bound(agents: int, clip: float) -> float:
    """Of |p_i|: clip/√K."""
    return min(clip / math.sqrt(agents), MOST_PART)


@lru_cache(maxsize=16)
def step_layout(agents: int, rows: int, size: int, clip: float, ladder: bool) -> Layout:
    """The next total, its row of QᵀQ, and what the span before it says. size: sums in that span."""
    bound = part_bound(agents, clip)
    return Layout((
        fixed("total", rows, agents, bound * TEMP_BOUND, BLIND_BUDGET, most=TOTAL_BITS),
        fixed("one", 1, agents, bound, BLIND_BUDGET),
        fixed("gram", size + 1, agents, bound * max(bound, agents**-0.5), BLIND_BUDGET),  # Σ p_i q_ij, Σ p_i²
        Block("squares", 2, SQUARE_BITS, SQUARE_SUM / agents),  # (r_i/ν)², (raw_i/scale)²
        Block("negative", len(LADDER) if ladder else 0, 0, 1.0),
    ))  # fmt: skip


@lru_cache(maxsize=8)
def signs_layout(agents: int, ladder: bool) -> Layout:
    """In the final span: (r_i/ν)², and negative weights along the ladder."""
    return Layout((
        Block("squares", 1, SQUARE_BITS, SQUARE_SUM / agents),
        Block("negative", len(LADDER) if ladder else 0, 0, 1.0),
    ))  # fmt: skip


def bitmap_words(plan: Plan) -> int:
    """Of the rows kept: a bit for each row of the window."""
    return -(-plan.length // 64)


def number_count(plan: Plan) -> int:
    """Released numbers beside h and s: α, β, γ, θ, occ, metrics and single ones."""
    return parameter_count(plan.order, plan.period) + len(METRICS) + len(SINGLE)


RELEASE = Layout((Block("key", 4, RAW),))  # of the leader's box; zeros from the others: it opens if all send their part


def saturated(value: float, bound: float) -> float:
    """Within ±bound, silently; what is no number is zero."""
    return min(max(value, -bound), bound) if value == value else 0.0
