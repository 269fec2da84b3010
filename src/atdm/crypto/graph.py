"""Who masks with whom: everybody up to 200 agents, a random regular graph above.

The regular graph is Harary's: agents sit on a ring in a random order, each joined to the degree/2 nearest on either
side. Its degree makes it rarer than 2^-sigma that the honest agents fall apart into groups whose sums could be told
apart, of which an agent alone among colluding neighbours is one.

The bound is that of the parameter finder in google-parfait/federated-compute (Bell et al., CCS 2020). The finder has
a second one, for the shares from which neighbours rebuild the masks of somebody who dropped out: here nobody holds a
share of anything, and a run that somebody leaves ends. The tests add it and reproduce the published values. The order
must come from a seed nobody can choose alone: every agent's nonce.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from atdm.crypto.keys import derive
from atdm.crypto.prg import Stream, nonce
from atdm.errors import UsageError

COMPLETE_UP_TO = 200  # agents; up to here a regular graph would save little time and protect less
COLLUDING = 0.33
DROPPING = 0.10
SIGMA = 80  # the last agent to answer can try nonces until the graph suits it: 2^40 tries are in reach, 2^80 are not
_WORDS_AT_ONCE = 1024


def degree(agents: int) -> int:
    """Neighbours of each agent: all others up to 200 agents, above that what `regular_degree` demands."""
    return agents - 1 if agents <= COMPLETE_UP_TO else regular_degree(agents)


def regular_degree(agents: int, colluding: float = COLLUDING, dropping: float = DROPPING, *, sigma: int = SIGMA) -> int:
    """Smallest even degree at which those who neither collude nor drop stay connected but for a chance of 2^-sigma."""
    lost = _share_of(agents, colluding) + _share_of(agents, dropping)
    if lost > agents - 2:
        raise UsageError(f"{colluding:.0%} colluding and {dropping:.0%} dropping of {agents}: nobody is left to hide")
    degrees = range(2, agents, 2)
    return next((k for k in degrees if stays_connected(agents, k, lost, sigma)), agents - 1)


def stays_connected(n: int, k: int, lost: int, sigma: int) -> bool:
    """n(n-k-1)/2 · lost!(n-k)! / (n!(lost-k)!) < 2^-(sigma+1): it takes two runs of k/2 lost agents to cut the ring."""
    if k > lost or k >= n - 1:
        return True
    log_cuts = math.log(n * (n - k - 1) / 2) + sum(math.log((lost - i) / (n - i)) for i in range(k))
    return log_cuts < -(sigma + 1) * math.log(2)


@dataclass(frozen=True, slots=True)
class Graph:
    """A mask graph. Built once and shared, it answers for every agent."""

    degree: int
    _order: tuple[int, ...] = field(repr=False)  # agent at each place of the ring
    _place: tuple[int, ...] = field(repr=False)  # place of each agent

    @property
    def agents(self) -> int:
        return len(self._order)

    @classmethod
    def build(cls, agents: int, seed: bytes, degree: int) -> "Graph":
        """The graph of `agents` agents; every agent must pass the same seed."""
        if agents < 2:
            raise UsageError(f"a mask graph of {agents} agents: give at least 2")
        if not 1 <= degree < agents or (degree % 2 and degree != agents - 1):
            raise UsageError(
                f"degree {degree} among {agents} agents: give an even number below {agents}, or {agents - 1}"
            )
        order = permutation(agents, seed)
        place = [0] * agents
        for position, agent in enumerate(order):
            place[agent] = position
        return cls(degree, tuple(order), tuple(place))

    def neighbours(self, index: int) -> list[int]:
        """Indices of an agent's neighbours, ascending. Symmetric: it is a neighbour of each of them."""
        if not 0 <= index < self.agents:
            raise UsageError(f"agent {index} of {self.agents}: give an index from 0 to {self.agents - 1}")
        if self.degree == self.agents - 1:
            return [other for other in range(self.agents) if other != index]
        here, reach = self._place[index], self.degree // 2
        offsets = (*range(-reach, 0), *range(1, reach + 1))
        return sorted(self._order[(here + offset) % self.agents] for offset in offsets)


def permutation(agents: int, seed: bytes) -> list[int]:
    """A uniformly random order of range(agents), the same for everybody who has the seed (Fisher-Yates)."""
    order = list(range(agents))
    words = _seed_words(seed)
    for last in range(agents - 1, 0, -1):
        chosen = _below(last + 1, words)
        order[last], order[chosen] = order[chosen], order[last]
    return order


def _seed_words(seed: bytes) -> Iterator[int]:
    stream = Stream(derive(seed, "mask graph"))
    block = 0
    while True:
        yield from stream.words(_WORDS_AT_ONCE, nonce(b"mask graph", block)).tolist()
        block += 1


def _below(limit: int, words: Iterator[int]) -> int:
    """Uniform in range(limit): words of the last, incomplete run of `limit` values are skipped, as they
    would favour small results."""
    complete = 2**64 - 2**64 % limit
    word = next(words)
    while word >= complete:
        word = next(words)
    return word % limit


def _share_of(agents: int, rate: float) -> int:
    if not 0 <= rate < 1:
        raise UsageError(f"a rate of {rate!r} of the agents: give a number from 0 to below 1")
    return math.floor(Fraction(str(rate)) * agents)  # the decimal that was written, not its binary neighbour
