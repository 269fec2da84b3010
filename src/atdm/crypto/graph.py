"""Who masks with whom: everybody up to 200 agents, a random regular graph above.

The regular graph is Harary's: agents sit on a ring in a random order, each joined to the degree/2 nearest on either
side. Its degree makes two events rarer than 2^-sigma: that the honest agents fall apart into groups whose sums could
be told apart, and that some agent has too many colluding neighbours.

The bounds are those of the parameter finder in google-parfait/federated-compute (Bell et al., CCS 2020), whose
published values the tests reproduce. The order must come from a seed nobody can choose alone: every agent's nonce.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from atdm.crypto.keys import derive
from atdm.crypto.prg import Stream, nonce
from atdm.errors import UsageError

COMPLETE_UP_TO = 200  # agents; up to here a regular graph would save little time and protect less
COLLUDING = 0.33
DROPPING = 0.10
SIGMA = 80  # the last agent to answer can try nonces until the graph suits it: 2^40 tries are in reach, 2^80 are not
ETA = 40
_WORDS_AT_ONCE = 1024


def degree(agents: int) -> int:
    """Neighbours of each agent: all others up to 200 agents, above that what `regular_degree` demands."""
    return agents - 1 if agents <= COMPLETE_UP_TO else regular_degree(agents)


def regular_degree(
    agents: int, colluding: float = COLLUDING, dropping: float = DROPPING, *, sigma: int = SIGMA, eta: int = ETA
) -> int:
    """Smallest even degree that is safe but for a chance of 2^-sigma and reaches enough survivors but for 2^-eta."""
    colluders, droppers = _share_of(agents, colluding), _share_of(agents, dropping)
    logs = _log_factorials(agents)
    for k in range(2, agents, 2):
        if not _stays_connected(agents, k, colluders + droppers, sigma, logs):
            continue
        corrupt = _most_marked(agents, colluders, k, math.ldexp(1.0, -sigma - 1) / agents, logs)
        # V = ceil((1 - delta) n) survive = n - floor(delta n)
        reachable = _fewest_marked(agents, agents - droppers, k, math.ldexp(1.0, -eta) / agents, logs)
        if corrupt < reachable:
            return k
    raise UsageError(
        f"no regular graph of {agents} agents withstands {colluding:.0%} colluding and {dropping:.0%} dropping: "
        "use the complete graph or assume less"
    )


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


def _log_factorials(count: int) -> npt.NDArray[np.float64]:
    logs = np.zeros(count + 1)
    np.cumsum(np.log(np.arange(1, count + 1)), out=logs[1:])
    return logs


def _stays_connected(n: int, k: int, lost: int, sigma: int, logs: npt.NDArray[np.float64]) -> bool:
    """n(n-k-1)/2 · lost!(n-k)! / (n!(lost-k)!) < 2^-(sigma+1): it takes two runs of k/2 lost agents to cut the ring."""
    if k > lost or k >= n - 1:
        return True
    log_cuts = math.log(n * (n - k - 1) / 2) + logs[lost] + logs[n - k] - logs[n] - logs[lost - k]
    return bool(log_cuts < -(sigma + 1) * math.log(2))


def _most_marked(n: int, marked: int, k: int, chance: float, logs: npt.NDArray[np.float64]) -> int:
    """Smallest x such that more than x of k neighbours are marked with at most this chance."""
    lowest, weights = _hypergeometric(n, marked, k, logs)
    more = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
    return lowest + int(np.argmax(more <= chance))


def _fewest_marked(n: int, marked: int, k: int, chance: float, logs: npt.NDArray[np.float64]) -> int:
    """Largest t such that fewer than t of k neighbours are marked with at most this chance."""
    lowest, weights = _hypergeometric(n, marked, k, logs)
    fewer = np.append(0.0, np.cumsum(weights)[:-1])
    return lowest + int(np.flatnonzero(fewer <= chance)[-1])


def _hypergeometric(n: int, marked: int, k: int, logs: npt.NDArray[np.float64]) -> tuple[int, npt.NDArray[np.float64]]:
    """Chance of x marked among k drawn from n, for each possible x; and the first x."""
    lowest = max(0, k - (n - marked))
    x = np.arange(lowest, min(marked, k) + 1)
    inside = logs[marked] - logs[x] - logs[marked - x]
    outside = logs[n - marked] - logs[k - x] - logs[n - marked - k + x]
    return lowest, np.exp(inside + outside - (logs[n] - logs[k] - logs[n - k]))
