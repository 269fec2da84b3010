"""What agents of one roster keep of the weighted sums they opened, so that the next run starts where the last ended.

The sums V, Qᵀ1 and QᵀQ are the same at every agent of the roster; the row q_i of Q is each agent's own. A run may stop
between two agents' reading of one total. Whoever opened a total knows that everybody had the one before, so agents
keep the last two versions, and one of them is common to all (`agree`). Where it is not, because somebody lost its
state, the roster starts a new basis, and what was seen before stays on the agents' accounts.
"""

from dataclasses import dataclass, field

import numpy as np

from atdm.crypto.keys import digest
from atdm.kernel.design import FloatArray, IntArray
from atdm.protocol.readings import positions

SLOTS = 2  # versions kept, told apart by their parity
HASH_WORDS = 2  # words a version's hash takes in a sum,
HASH_BITS = 30  # so small that 2^17 agents stay within the budget of ±2^48


@dataclass(frozen=True, slots=True)
class Totals:
    """Weighted sums that everybody of a roster knows alike."""

    version: int = 0  # sums opened since the basis was begun
    time: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    series: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # V on these stamps; NaN: never summed [K]
    ones: FloatArray = field(default_factory=lambda: np.empty(0))  # Qᵀ1
    gram: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # QᵀQ

    def __len__(self) -> int:
        return len(self.ones)

    def on(self, rows: IntArray) -> FloatArray:
        """The sums on these rows, NaN where a row was never in them."""
        at = positions(self.time, rows)
        found = np.full((len(rows), len(self)), np.nan)
        found[at >= 0] = self.series[at[at >= 0]]
        return found

    def first(self, size: int) -> "Totals":
        """The same with the first `size` directions only."""
        return Totals(self.version, self.time, self.series[:, :size], self.ones[:size], self.gram[:size, :size])

    def grown(self, version: int, rows: IntArray, series: FloatArray, ones: FloatArray, gram: FloatArray) -> "Totals":
        """With these sums on these rows beside what is known on others; directions beyond the old ones are new."""
        if len(self.time) == 0:
            return Totals(version, rows, series, ones, gram)
        time = np.union1d(self.time, rows)
        merged = np.full((len(time), len(ones)), np.nan)
        merged[np.searchsorted(time, self.time), : len(self)] = self.series
        merged[np.searchsorted(time, rows)] = series
        return Totals(version, time, merged, ones, gram)

    def words(self) -> FloatArray:
        """Its hash as small whole numbers, for a sum that shows whether everybody has the same."""
        parts = (self.time.astype("<i8"), *(x.astype("<f8") for x in (self.series, self.ones, self.gram)))
        hashed = digest("basis", self.version, len(self), *(np.ascontiguousarray(part).tobytes() for part in parts))
        bits = int.from_bytes(hashed, "little")
        mask = (1 << HASH_BITS) - 1
        return np.array([float(bits >> (HASH_BITS * i) & mask) for i in range(HASH_WORDS)])


@dataclass(frozen=True, slots=True, repr=False)
class Basis:
    """The totals of a roster and this agent's own part of each."""

    totals: Totals = field(default_factory=Totals)
    directions: FloatArray = field(default_factory=lambda: np.empty(0))  # q_i

    def __repr__(self) -> str:
        return f"Basis({len(self.totals)} directions, version {self.totals.version})"


Kept = tuple[Basis, ...]  # the latest version, and the one before it if there is one
EMPTY: Kept = (Basis(),)


def offer(kept: Kept) -> FloatArray:
    """This agent's part of the sum that finds a common version: one hash in each slot."""
    slots = np.zeros((SLOTS, HASH_WORDS))
    for basis in kept:
        slots[basis.totals.version % SLOTS] = basis.totals.words()
    return slots.ravel()


def agree(kept: Kept, total: FloatArray, agents: int) -> Basis:
    """The latest version that everybody has, or an empty one. Agents that all have it come to the same answer."""
    slots = total.reshape(SLOTS, HASH_WORDS)
    for basis in kept:
        if np.array_equal(slots[basis.totals.version % SLOTS], agents * basis.totals.words()):
            return basis
    return Basis()
