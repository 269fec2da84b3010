"""What one sum carries: named fields of words, each with its own fixed point and bound.

A layout is the same at every agent; it enters the mask nonce, so that agents who disagree on it get garbage that the
count word or the check words expose, never a wrong number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import digest
from atdm.crypto.ring import FloatArray, UInt64Array
from atdm.errors import PeerError

BLIND_BUDGET = 48  # bits; totals of `blind` stay within ±2^48 quanta, which makes its check words strong
OPEN_BUDGET = 63
HALVES = -1  # float64 as two words below 2^32: within the range that check words need
RAW = -2  # float64 as one word: only where no check words follow


@dataclass(frozen=True, slots=True)
class Block:
    """One field of a sum: `size` numbers in fixed point, or float64 numbers that only one agent fills in."""

    name: str
    size: int
    bits: int  # fractional bits; HALVES or RAW for float64 bit patterns
    bound: float = 0.0  # of one agent's values, where they are in fixed point

    @property
    def words(self) -> int:
        return 2 * self.size if self.bits == HALVES else self.size


def fixed(name: str, size: int, agents: int, bound: float, budget: int, most: int = 63) -> Block:
    """A field with the largest number of fractional bits the budget allows, at most `most`."""
    return Block(name, size, min(most, ring.fractional_bits(agents, bound, budget)), bound)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of one sum, in order, followed by a count word (each agent adds one)."""

    blocks: tuple[Block, ...]

    @property
    def words(self) -> int:
        return _places(self)[-1] + 1

    def hash(self) -> bytes:
        """For the mask nonce: names, sizes, bits and bounds."""
        return _hash(self)

    def encode(self, values: Mapping[str, FloatArray]) -> UInt64Array:
        """One agent's words; a field it does not fill in is zero."""
        places = _places(self)
        words = np.zeros(places[-1] + 1, dtype=np.uint64)
        for block, start, stop in zip(self.blocks, places, places[1:], strict=False):
            if block.name in values:
                words[start:stop] = _encode(block, values[block.name])
        words[-1] = 1
        return words

    def decode(self, total: UInt64Array, agents: int) -> dict[str, FloatArray]:
        """The fields of a total; refuses one that is not the sum of `agents` encodings."""
        if int(total[-1]) != agents:
            raise PeerError(f"the count word is not {agents}: masks did not cancel, somebody saw another run; no total")
        places = _places(self)
        return {
            block.name: _decode(block, total[start:stop], agents)
            for block, start, stop in zip(self.blocks, places, places[1:], strict=False)
        }


@lru_cache(maxsize=64)
def _places(layout: Layout) -> tuple[int, ...]:
    """Where each field starts, and where the last one ends."""
    return tuple(accumulate((block.words for block in layout.blocks), initial=0))


@lru_cache(maxsize=64)
def _hash(layout: Layout) -> bytes:
    return digest("layout", *(x for b in layout.blocks for x in (b.name, b.size, b.bits, float(b.bound).hex())))


def _encode(block: Block, values: FloatArray) -> UInt64Array:
    if block.bits == HALVES:
        return ring.float_words(values)
    if block.bits == RAW:
        return ring.raw_words(values)
    return ring.encode(values, block.bits, block.bound)


def _decode(block: Block, words: UInt64Array, agents: int) -> FloatArray:
    if block.bits == HALVES:
        return ring.words_to_floats(words)
    if block.bits == RAW:
        return ring.raw_words_to_floats(words)
    values = ring.decode(words, block.bits)
    if (np.abs(values) > agents * (block.bound + math.ldexp(0.5, -block.bits))).any():
        raise PeerError(f"the total of {block.name} is beyond what {agents} agents can add up to: no total")
    return values
