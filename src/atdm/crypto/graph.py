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

from atdm.crypto.keys import derive
from atdm.crypto.prg import Stream, nonce
from atdm.errors import UsageError

COMPLETE_UP_TO = 200  # agents; up to here a regular graph would save little time and protect less
LOST_BESIDES = 10  # one agent in so many is counted as lost beside those that collude, as a margin
SIGMA = 80  # the last agent to answer can try nonces until the graph suits it: 2^40 tries are in reach, 2^80 are not
_WORDS_AT_ONCE = 1024


def degree(agents: int, colluding: int) -> int:
    """Neighbours of each agent, where so many of the agents may collude: all others up to 200 agents."""
    return agents - 1 if agents <= COMPLETE_UP_TO else regular_degree(agents, colluding + agents // LOST_BESIDES)


def regular_degree(agents: int, lost: int, sigma: int = SIGMA) -> int:
    """Smallest even degree at which the others stay connected but for a chance of 2^-(sigma+1); all, if none does.

    It takes two runs of k/2 lost agents to cut the ring: n(n-k-1)/2 · lost!(n-k)! / (n!(lost-k)!) at most.
    """
    all_lost = 0.0  # log of the chance that k given places of the ring are
    for k in range(2, agents - 1, 2):
        if k > lost:
            return k
        all_lost += math.log((lost - k + 2) * (lost - k + 1) / ((agents - k + 2) * (agents - k + 1)))
        if math.log(agents * (agents - k - 1) / 2) + all_lost < -(sigma + 1) * math.log(2):
            return k
    return agents - 1


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
