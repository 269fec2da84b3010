"""How the parties of a run find each other: announcement, signed keys, run id, masks. The same for every protocol.

The run id hashes the plan, the roster, the company, the days and every member's fresh nonce and key. It enters every
key, so that an agent that was shown anything else shares no mask with the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from atdm.crypto.graph import Graph, degree
from atdm.crypto.keys import ExchangeKey, SigningKey, Tagger, derive, digest, verify
from atdm.crypto.prg import MaskSet, pair_sign
from atdm.errors import PeerError
from atdm.protocol.company import Verdict, bits, flags, rows_of
from atdm.protocol.messages import Announce, Keys, Ready, encode
from atdm.protocol.plan import VERSION, AnyPlan, Collect, Plan, day_count, first_day
from atdm.protocol.roster import Member, Members, Roster, could_collude, owners_of
from atdm.types import IntArray, UInt64Array

RandomBytes = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What everybody in a run agrees on. Agents of one process hold the same object (`begin_run`), and what follows
    from it is worked out once."""

    announced: AnyPlan
    members: Members
    days: tuple[int, ...]  # UTC days the run covers
    keys: Keys
    id: bytes
    company: bytes  # identity keys of the members, in order
    company_hash: bytes  # of the company and the roster it was chosen from
    owners: int  # in the company
    since: int  # latest first day of a member's key
    degree: int  # members with whom each one shares masks

    @property
    def plan(self) -> Plan:
        if not isinstance(self.announced, Plan):
            raise PeerError("rows to collect where a fit was expected: ignored")
        return self.announced

    @property
    def collect(self) -> Collect:
        if not isinstance(self.announced, Collect):
            raise PeerError("a fit where rows to collect were expected: ignored")
        return self.announced

    @property
    def agents(self) -> int:
        return len(self.members)

    @lru_cache(maxsize=4)  # noqa: B019 - as many as `begin_run` keeps
    def graph(self) -> Graph:
        return Graph.build(self.agents, self.id, self.degree)

    @lru_cache(maxsize=4)  # noqa: B019
    def rows(self) -> IntArray:
        """All time stamps of the plan's window on the days of the run."""
        return rows_of(self.announced, flags(self.keys.days, day_count(self.announced)))


def announce_hash(announce: Announce) -> bytes:
    """What a run is called before its keys give it an id."""
    return digest("announce", encode(announce))


def make_ready(identity: SigningKey, announce: Announce, seed: bytes, verdict: Verdict) -> tuple[Ready, ExchangeKey]:
    """An agent's answer to an announcement; all its randomness of the run comes from `seed`."""
    fresh, exchange, days = derive(seed, "nonce"), ExchangeKey(derive(seed, "exchange")), bits(verdict.days)
    signature = identity.sign("ready", announce_hash(announce), days, fresh, exchange.public)
    ready = Ready(days=days, reason=verdict.reason, nonce=fresh, exchange=exchange.public, signature=signature)
    return ready, exchange


def check_ready(member: Member, announce: Announce, ready: Ready) -> None:
    if len(ready.nonce) != 32 or len(ready.exchange) != 32 or len(ready.signature) != 64:
        raise PeerError(f"agent {member.name} sent keys of the wrong length: ignored")
    flags(ready.days, day_count(announce.plan))
    hashed = announce_hash(announce)
    verify(member.identity, ready.signature, "ready", hashed, ready.days, ready.nonce, ready.exchange)


def make_keys(roster: Roster, days: bytes, answers: Mapping[int, Ready]) -> Keys:
    """The company of those who gave these answers, by place in the roster."""
    chosen = np.zeros(len(roster), dtype=bool)
    chosen[list(answers)] = True
    parts = [answers[place] for place in sorted(answers)]
    return Keys(
        company=bits(chosen),
        days=days,
        answers=b"".join(a.days for a in parts),
        nonces=b"".join(a.nonce for a in parts),
        exchange=b"".join(a.exchange for a in parts),
        signatures=b"".join(a.signature for a in parts),
    )


@lru_cache(maxsize=4)
def begin_run(announce: Announce, roster: Roster, keys: Keys) -> Run:
    """The run that these keys make; refuses members that are not in on all days of the run, and keys that are missing,
    doubled or not signed by the members. Agents of one process that were shown the same bytes share this check."""
    chosen, count = flags(keys.company, len(roster)), day_count(announce.plan)
    days = flags(keys.days, count)
    members = tuple(member for member, inside in zip(roster.members, chosen, strict=True) if inside)
    n = len(members)
    joined = (keys.answers, len(keys.days)), (keys.nonces, 32), (keys.exchange, 32), (keys.signatures, 64)
    if not n or not days.any() or any(len(parts) != n * size for parts, size in joined):
        raise PeerError("keys of another number of agents than the company has: refused")
    fresh, public = ({parts[i : i + 32] for i in range(0, 32 * n, 32)} for parts in (keys.nonces, keys.exchange))
    if len(public) != n or len(fresh) != n:
        raise PeerError("two agents of the run show the same key or nonce: refused")
    for i, member in enumerate(members):
        given, nonced, key, signature = (parts[size * i : size * (i + 1)] for parts, size in joined)
        check_ready(member, announce, Ready(days=given, reason="", nonce=nonced, exchange=key, signature=signature))
        if (days & ~flags(given, count)).any():
            raise PeerError(f"agent {member.name} is not in on all days of the run: refused")
    company = b"".join(member.identity for member in members)
    company_hash = digest("run company", roster.hash(), company)
    run_id = digest("run", VERSION, announce.plan.hash(), company_hash, keys.days, keys.nonces, keys.exchange)
    return Run(
        announced=announce.plan,
        members=members,
        days=tuple((first_day(announce.plan) + np.flatnonzero(days)).tolist()),
        keys=keys,
        id=run_id,
        company=company,
        company_hash=company_hash,
        owners=owners_of(members),
        since=max(member.since for member in members),
        degree=degree(n, could_collude(members, roster.owners())),
    )


class Session:
    """One agent's secrets of one run."""

    __slots__ = ("run", "index", "seed", "neighbours", "_exchange", "_config", "_pairs", "_masks", "_receipts")

    def __init__(self, run: Run, index: int, exchange: ExchangeKey, seed: bytes) -> None:
        own = run.keys.exchange[32 * index : 32 * index + 32]
        if own != exchange.public:
            raise PeerError("this agent's own key is missing or altered in the run's keys: refused")
        self.run, self.index, self.seed = run, index, seed
        self._exchange, self._config = exchange, run.announced.hash()
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
            roster=run.company_hash,
            config=self._config,
        )

    def forget_pairs(self) -> None:
        """Where only masks follow, the pair keys they were made from need not stay in memory."""
        self._pairs = {}

    def receipts(self, peer: int, sender: int) -> Tagger:
        """For receipts of opened sums between this agent and a neighbour: one key for each direction."""
        if (peer, sender) not in self._receipts:
            self._receipts[peer, sender] = Tagger(derive(self._pairs[peer], "receipt", sender))
        return self._receipts[peer, sender]

    def mask(self, words: UInt64Array, nonce: bytes) -> None:
        """Put this agent's pairwise masks on words, in place."""
        self._masks.apply(words, nonce)
