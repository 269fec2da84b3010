"""What one sum carries: named fields of words, each with its own fixed point and bound.

A layout is the same at every agent; it enters the mask nonce, so that agents who disagree on it get garbage that the
count word or the check words expose, never a wrong number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import digest
from atdm.crypto.prg import nonce
from atdm.errors import PeerError
from atdm.types import FloatArray, UInt64Array

RAW = -2  # float64 as one word: only where no check words follow


@dataclass(frozen=True, slots=True)
class Block:
    """One field of a sum: `size` numbers in fixed point, or float64 numbers that only one agent fills in."""

    name: str
    size: int
    bits: int  # fractional bits; RAW for float64 bit patterns
    bound: float = 0.0  # of one agent's values, where they are in fixed point


def fixed(name: str, size: int, agents: int, bound: float, budget: int, most: int = 63) -> Block:
    """A field with the largest number of fractional bits the budget allows, at most `most`."""
    return Block(name, size, min(most, ring.fractional_bits(agents, bound, budget)), bound)


class Layout:
    """The fields of one sum, in order, followed by a count word (each agent adds one).

    Made once and kept: what every message of the sum needs is worked out here, word by word.
    """

    __slots__ = ("blocks", "words", "hash", "_at", "_raw", "_scale", "_bound", "_most")

    def __init__(self, blocks: tuple[Block, ...]) -> None:
        places = list(accumulate((block.size for block in blocks), initial=0))
        self.blocks = blocks
        self.words = places[-1] + 1
        # for the mask nonce: names, sizes, bits and bounds
        self.hash = digest("layout", *(x for b in blocks for x in (b.name, b.size, b.bits, float(b.bound).hex())))
        self._at = {b.name: slice(*place) for b, place in zip(blocks, pairwise(places), strict=True)}
        self._raw = [b.name for b in blocks if b.bits == RAW]
        # a float64 field counts as zeros of fixed point, and the count word as an integer
        self._scale, self._bound = np.ones(self.words), np.ones(self.words)
        for b in blocks:
            if b.bits != RAW:
                ring.check_fixed_point(b.bits, b.bound)
                self._scale[self._at[b.name]], self._bound[self._at[b.name]] = math.ldexp(1.0, b.bits), b.bound
        self._most = self._bound + 0.5 / self._scale  # of one agent's value once it is rounded
        for name in self._raw:
            self._most[self._at[name]] = math.inf

    def encode(self, values: Mapping[str, FloatArray]) -> UInt64Array:
        """One agent's words; a field it does not fill in is zero."""
        numbers = np.zeros(self.words)
        numbers[-1] = 1.0
        for name, value in values.items():
            if name not in self._raw:
                numbers[self._at[name]] = value
        words = ring.quantise(numbers, self._scale, self._bound)
        for name in self._raw:
            if name in values:
                words[self._at[name]] = ring.raw_words(values[name])
        return words

    def decode(self, total: UInt64Array, agents: int) -> dict[str, FloatArray]:
        """The fields of a total; refuses one that is not the sum of `agents` encodings."""
        if int(total[-1]) != agents:
            raise PeerError(f"the count word is not {agents}: masks did not cancel, somebody saw another run; no total")
        numbers = ring.dequantise(total, self._scale)
        if not (np.abs(numbers) <= agents * self._most).all():
            raise PeerError(f"a total is beyond what {agents} agents can add up to: no total")
        fields = {name: numbers[at] for name, at in self._at.items()}
        for name in self._raw:
            fields[name] = ring.raw_words_to_floats(total[self._at[name]])
        return fields


def sum_nonce(context: bytes, phase: str, layout: Layout) -> bytes:
    """The nonce of one sum: its place in the run, its name and its shape."""
    return nonce(context, phase, layout.hash)
