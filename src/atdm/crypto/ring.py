"""Fixed-point numbers in Z_2^64: what is encoded, summed and checked is integers, so a sum is exact.

Rule 1: a number that does not fit is refused before it is cast, never clipped (a cast of NaN, inf or 1e30 is silent).
Rule 2: words are uint64 arrays inside and little-endian bytes outside.
Rule 3: error messages name the position of a bad value, not the value: it is somebody's data.
"""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from atdm.errors import DataError, PeerError, UsageError
from atdm.types import FloatArray, UInt64Array

WORD_BYTES = 8
CHECK_WORDS = 4
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFF_FFFF)
_MAX_BITS = 1000  # 2.0**bits and 2.0**-bits stay normal float64 numbers


def fractional_bits(agents: int, bound: float, budget_bits: int = 63) -> int:
    """Largest f for which the sum of `agents` encoded values of size up to `bound` stays below 2^budget_bits.

    agents * (bound * 2^f + 1/2) < 2^budget_bits, in exact arithmetic; the 1/2 is each agent's rounding.
    """
    if agents < 1:
        raise UsageError(f"fractional bits for {agents} agents: give at least 1")
    if not 1 <= budget_bits <= 63:
        raise UsageError(f"a budget of {budget_bits} bits: a signed sum in 64-bit words has between 1 and 63")
    _check_bound(bound)
    room = (Fraction(2**budget_bits, agents) - Fraction(1, 2)) / Fraction(bound)  # 2^f must stay below this
    if room <= 1:
        raise UsageError(
            f"{agents} values of size {bound:g} can exceed 2^{budget_bits}: use fewer agents, a smaller bound or unit"
        )
    below = (room.numerator - 1) // room.denominator  # largest integer strictly below room
    return min(below.bit_length() - 1, _MAX_BITS)


def encode(values: FloatArray, bits: int, bound: float) -> UInt64Array:
    """Round values to the nearest multiple of 2^-bits and wrap them into Z_2^64; refuse what is not within ±bound."""
    check_fixed_point(bits, bound)
    return quantise(np.asarray(values, dtype=np.float64), math.ldexp(1.0, bits), bound)


def check_fixed_point(bits: int, bound: float) -> None:
    """Refuse a fixed point whose bound does not fit a word."""
    _check_bits(bits)
    _check_bound(bound)
    if bound >= math.ldexp(1.0, 63 - bits):
        raise UsageError(f"bound {bound:g} with {bits} fractional bits does not fit a 64-bit word: use fewer bits")


def quantise(values: FloatArray, scale: float | FloatArray, bound: float | FloatArray) -> UInt64Array:
    """`encode` with scale 2^bits, which may differ from word to word like the bound; `check_fixed_point` first."""
    within = np.abs(values) <= bound  # False for NaN and inf too
    if not within.all():
        raise DataError(_complaint(values, within, bound))
    # Scaling by a power of two is exact, and floats from 2^53 up are integers already, so rint is the only rounding.
    scaled = values * scale
    return np.rint(scaled, scaled).astype(np.int64).view(np.uint64)


def decode(words: UInt64Array, bits: int) -> FloatArray:
    """Read words as signed multiples of 2^-bits."""
    _check_bits(bits)
    return dequantise(words, math.ldexp(1.0, bits))


def dequantise(words: UInt64Array, scale: float | FloatArray) -> FloatArray:
    """`decode` with scale 2^bits, which may differ from word to word."""
    answer: FloatArray = words.view(np.int64) / scale
    return answer


def raw_words(values: FloatArray) -> UInt64Array:
    """The float64 bit pattern of each value as one word. Not for sums under check words: see `verify_words`."""
    return np.array(values, dtype=np.float64).view(np.uint64)


def raw_words_to_floats(words: UInt64Array) -> FloatArray:
    """Inverse of `raw_words`."""
    return np.array(words, dtype=np.uint64).view(np.float64)


def float_words(values: FloatArray) -> UInt64Array:
    """The float64 bit pattern of each value as two words below 2^32: low half, high half, low half, ..."""
    patterns = raw_words(values).ravel()
    words = np.empty(2 * patterns.size, dtype=np.uint64)
    words[0::2] = patterns & _LOW_HALF
    words[1::2] = patterns >> _HALF
    return words


def words_to_floats(words: UInt64Array) -> FloatArray:
    """Inverse of `float_words`; refuses words no float64 was split into."""
    if words.ndim != 1 or words.size % 2:
        raise PeerError(f"float64 halves came as {words.shape} words, expected an even number: check both sides' shape")
    if (words > _LOW_HALF).any():
        raise PeerError("a half of a float64 is above 2^32: the words were altered or belong to something else")
    return ((words[1::2] << _HALF) | words[0::2]).view(np.float64)


def check_words(words: UInt64Array, keys: UInt64Array) -> UInt64Array:
    """Σ_t keys[w, t] · words[t] mod 2^64 for each check word w. Linear: check words of a sum are the sum of theirs."""
    if keys.shape != (CHECK_WORDS, *words.shape) or words.ndim != 1:
        raise UsageError(f"check keys of shape {keys.shape} for {words.shape} words: expected ({CHECK_WORDS}, words)")
    checks: UInt64Array = np.dot(keys, words)  # the integer product wraps, which is the arithmetic we want
    return checks


def verify_words(words: UInt64Array, checks: UInt64Array, keys: UInt64Array, budget_bits: int = 48) -> None:
    """Refuse a total that somebody without `keys` has changed. The two tests are only safe together.

    An offset d passes one check word with probability 2^(v-64), v the number of trailing zero bits of d: for 2^63 that
    is one half. Words within ±2^48 leave v ≤ 48 (49 for the two extremes), hence about 2^-64 for four check words.
    """
    if checks.shape != (CHECK_WORDS,):
        raise PeerError(f"a total came with check words of shape {checks.shape}, expected ({CHECK_WORDS},)")
    if not 1 <= budget_bits <= 48:
        raise UsageError(f"a range of {budget_bits} bits weakens the check words: keep totals within 48 bits")
    limit = np.uint64(1 << budget_bits)
    in_range = (words + limit).max() <= np.uint64(2 << budget_bits)  # -limit ≤ signed words ≤ limit, within uint64
    if not (in_range and check_words(words, keys).tobytes() == checks.tobytes()):
        raise PeerError(
            "a total fails its check words or its range: it was altered on the way, or masks did not cancel"
        )


def add_into(total: UInt64Array, words: UInt64Array) -> None:
    """Add words to a running total, modulo 2^64."""
    if total.shape != words.shape:
        raise UsageError(f"cannot add {words.shape} words to a total of {total.shape}: the shapes must be equal")
    np.add(total, words, out=total)


def to_bytes(words: UInt64Array) -> bytes:
    """Words as little-endian bytes, eight each."""
    return words.astype("<u8", copy=False).tobytes()


def from_bytes(data: bytes, count: int) -> UInt64Array:
    """Exactly `count` words from little-endian bytes, in a fresh writable array."""
    if len(data) != WORD_BYTES * count:
        raise PeerError(f"{len(data)} bytes for {count} words, expected {WORD_BYTES * count}: check both sides' shape")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def _check_bits(bits: int) -> None:
    if not 0 <= bits <= _MAX_BITS:
        raise UsageError(f"{bits} fractional bits: give between 0 and {_MAX_BITS}")


def _check_bound(bound: float) -> None:
    if not (math.isfinite(bound) and bound > 0):
        raise UsageError(f"bound {bound!r}: give a positive finite number")


def _complaint(values: FloatArray, within: npt.NDArray[np.bool_], bound: float | FloatArray) -> str:
    index = tuple(int(i) for i in np.argwhere(~within)[0])
    place = ", ".join(map(str, index)) or "0"
    limit = np.broadcast_to(bound, values.shape)[index]
    what = f"outside ±{limit:g}" if np.isfinite(values[index]) else "not a finite number"
    return f"value [{place}] is {what} ({np.count_nonzero(~within)} such): correct or drop it, or declare a wider bound"
