"""How the parties of a run find each other: announcement, signed keys, run id, masks. The same for every protocol.

The run id hashes the plan, the roster, the cohorts and every agent's fresh nonce and key. It enters every key, so that
an agent that was shown anything else shares no mask with the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from atdm.crypto.graph import Graph
from atdm.crypto.keys import ExchangeKey, SigningKey, Tagger, derive, digest, verify
from atdm.crypto.prg import MaskSet, Stream, nonce, pair_sign
from atdm.crypto.ring import FloatArray, UInt64Array
from atdm.errors import PeerError
from atdm.protocol.messages import Announce, Keys, Ready, encode
from atdm.protocol.plan import VERSION, AnyPlan, ObservePlan, Plan
from atdm.protocol.roster import Member
from atdm.protocol.sums import Layout

RandomBytes = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Run:
    """What everybody in a run agrees on."""

    announced: AnyPlan
    members: tuple[Member, ...]
    keys: Keys
    id: bytes
    roster_hash: bytes

    @property
    def plan(self) -> Plan:
        """Of a fit."""
        if not isinstance(self.announced, Plan):
            raise PeerError("an observation where a fit was expected: ignored")
        return self.announced

    @property
    def observation(self) -> ObservePlan:
        if not isinstance(self.announced, ObservePlan):
            raise PeerError("a fit where an observation was expected: ignored")
        return self.announced

    @property
    def agents(self) -> int:
        return len(self.members)

    def index(self, identity: bytes) -> int:
        return next(i for i, member in enumerate(self.members) if member.identity == identity)

    def graph(self) -> Graph:
        return _graph(self.agents, self.id)


@lru_cache(maxsize=4)
def _graph(agents: int, seed: bytes) -> Graph:
    return Graph.build(agents, seed)


def announce_hash(announce: Announce) -> bytes:
    """What a run is called before its keys give it an id."""
    return digest("announce", encode(announce))


def make_ready(identity: SigningKey, announce: Announce, seed: bytes) -> tuple[Ready, ExchangeKey]:
    """An agent's answer to an announcement; all its randomness of the run comes from `seed`."""
    fresh, exchange = derive(seed, "nonce"), ExchangeKey(derive(seed, "exchange"))
    signature = identity.sign("ready", encode(announce), fresh, exchange.public)
    return Ready(nonce=fresh, exchange=exchange.public, signature=signature), exchange


def check_ready(member: Member, announce: Announce, ready: Ready) -> None:
    if len(ready.nonce) != 32 or len(ready.exchange) != 32 or len(ready.signature) != 64:
        raise PeerError(f"agent {member.name} sent keys of the wrong length: ignored")
    verify(member.identity, ready.signature, "ready", encode(announce), ready.nonce, ready.exchange)


@lru_cache(maxsize=4)
def agree(announce: Announce, members: tuple[Member, ...], keys: Keys) -> Run:
    """The run that these keys make; refuses keys that are missing, doubled or not signed by the members.

    Agents of one process that were shown the same bytes share this check; the bytes are what identifies it.
    """
    n = len(members)
    if len(keys.nonces) != 32 * n or len(keys.exchange) != 32 * n or len(keys.signatures) != 64 * n:
        raise PeerError(f"keys of another number of agents than the {n} of the run: refused")
    fresh = [keys.nonces[32 * i : 32 * i + 32] for i in range(n)]
    public = [keys.exchange[32 * i : 32 * i + 32] for i in range(n)]
    if len(set(public)) != n or len(set(fresh)) != n:
        raise PeerError("two agents of the run show the same key or nonce: refused")
    for i, member in enumerate(members):
        ready = Ready(nonce=fresh[i], exchange=public[i], signature=keys.signatures[64 * i : 64 * i + 64])
        check_ready(member, announce, ready)
    roster_hash = run_roster(announce, members)
    run_id = digest("run", VERSION, announce.plan.hash(), roster_hash, keys.nonces, keys.exchange)
    return Run(announced=announce.plan, members=members, keys=keys, id=run_id, roster_hash=roster_hash)


def run_roster(announce: Announce, members: tuple[Member, ...]) -> bytes:
    """Names those in a run: the enrolled roster, and who of it takes part."""
    return digest("run roster", announce.roster, *(member.identity for member in members))


class Session:
    """One agent's secrets of one run."""

    __slots__ = ("run", "index", "seed", "neighbours", "_exchange", "_pairs", "_masks", "_receipts")

    def __init__(self, run: Run, index: int, exchange: ExchangeKey, seed: bytes) -> None:
        own = run.keys.exchange[32 * index : 32 * index + 32]
        if own != exchange.public:
            raise PeerError("this agent's own key is missing or altered in the run's keys: refused")
        self.run, self.index, self.seed = run, index, seed
        self._exchange = exchange
        self._pairs: dict[int, bytes] = {}
        self._receipts: dict[tuple[int, int], Tagger] = {}
        self.neighbours = run.graph().neighbours(index)
        self._pairs = {peer: self.pair_key(peer) for peer in self.neighbours}
        me = run.members[index].identity
        self._masks = MaskSet(
            (pair_sign(me, run.members[peer].identity), derive(key, "mask")) for peer, key in self._pairs.items()
        )

    def __repr__(self) -> str:
        return f"Session(agent {self.index} of {self.run.agents}, run {self.run.id[:4].hex()}…)"

    @property
    def leads(self) -> bool:
        return self.index == 0

    def pair_key(self, peer: int) -> bytes:
        """The key shared with one other member, whether a mask neighbour or not."""
        if peer in self._pairs:
            return self._pairs[peer]
        run = self.run
        return self._exchange.shared(
            run.keys.exchange[32 * peer : 32 * peer + 32],
            version=VERSION,
            run_id=run.id,
            ids=(run.members[self.index].identity, run.members[peer].identity),
            roster=run.roster_hash,
            config=run.announced.hash(),
        )

    def forget_pairs(self) -> None:
        """Where only masks follow, the pair keys they were made from need not stay in memory."""
        self._pairs = {}

    def receipts(self, peer: int, sender: int) -> Tagger:
        """For receipts of opened sums between this agent and a neighbour: one key for each direction."""
        if (peer, sender) not in self._receipts:
            self._receipts[peer, sender] = Tagger(derive(self._pairs[peer], "receipt", sender))
        return self._receipts[peer, sender]

    def float_masks(self, size: int, nonce: bytes, scale: float) -> FloatArray:
        """The sum of this agent's pairwise masks as real numbers, uniform in ±scale: the paper's, not ours."""
        total = np.zeros(size)
        for peer, key in self._pairs.items():
            words = Stream(derive(key, "float mask")).words(size, nonce)
            total += (1 if self.index < peer else -1) * scale * ((words >> np.uint64(11)) * 2.0**-52 - 1.0)
        return total

    def mask(self, words: UInt64Array, nonce: bytes) -> None:
        """Put this agent's pairwise masks on words, in place."""
        self._masks.apply(words, nonce)


def sum_nonce(context: bytes, phase: str, layout: Layout) -> bytes:
    """The nonce of one sum: its place in the run, its name and its shape."""
    return nonce(context, phase, layout.hash)
