"""Who is enrolled: a numbered list of identities and owners, signed by an authority that is not the aggregator.

Rule 1: a roster has a serial number; a party that has seen one never takes an older one.
Rule 2: an owner is the agent itself unless another one is declared; limits count owners, not agents.
Rule 3: a key enrolled later gives no day before it was: its home may have given that day under another key.
Rule 4: the order of the identity keys is the order of the members: the same at every party.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from atdm.crypto.keys import SigningKey, digest, verify
from atdm.errors import PeerError, UsageError

COLLUDING = 33  # % of the owners enrolled, at most, on the aggregator's side


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    name: str
    owner: str  # agents of one owner count once
    identity: bytes  # Ed25519 public key
    since: int = 0  # first UTC day it may give: a new key has an empty account, and earlier days are on another's


Members = tuple[Member, ...]


class Roster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """All enrolled agents, in the order of their identity keys; agents of one process hold the same object."""

    serial: int  # counts up with every change
    members: Members
    authority: bytes
    signature: bytes

    def __len__(self) -> int:
        return len(self.members)

    @lru_cache(maxsize=8)  # noqa: B019 - few, and small beside what they stand for
    def hash(self) -> bytes:
        return digest("roster", self.serial, msgspec.msgpack.encode(self.members), self.authority)

    @lru_cache(maxsize=8)  # noqa: B019
    def owners(self) -> int:
        return owners_of(self.members)

    def index(self, identity: bytes) -> int:
        place = place_of(identity, self.members)
        if place is None:
            raise PeerError("this agent is not in the roster: ask the enrolment authority for the current one")
        return place


def place_of(identity: bytes, members: Members) -> int | None:
    """Among members in the order of their keys (Rule 4)."""
    place = bisect_left(members, identity, key=lambda member: member.identity)
    return place if place < len(members) and members[place].identity == identity else None


NOBODY = Roster(serial=0, members=(), authority=b"", signature=b"")  # before the first one came


def owners_of(members: Sequence[Member]) -> int:
    return len({member.owner for member in members})


def could_collude(members: Sequence[Member], owners: int) -> int:
    """How many of these a third of so many owners can have: those who have most of them."""
    each = sorted(Counter(member.owner for member in members).values(), reverse=True)
    return sum(each[: COLLUDING * owners // 100])


def sign_roster(
    authority: SigningKey,
    members: Sequence[tuple[str, str, bytes]],
    serial: int = 1,
    since: Mapping[bytes, int] | None = None,
) -> Roster:
    """Enrol (name, owner, identity key) triples; since: identity key → first UTC day, where it is not the beginning."""
    first = since or {}
    entries = tuple(
        sorted((Member(n, o, k, first.get(k, 0)) for n, o, k in members), key=lambda member: member.identity)
    )
    check_distinct(entries)
    draft = Roster(serial=serial, members=entries, authority=authority.public, signature=b"")
    return msgspec.structs.replace(draft, signature=authority.sign("roster", draft.hash()))


def check_distinct(members: Sequence[Member]) -> None:
    for what in ("name", "identity"):
        values = [getattr(m, what) for m in members]
        if len(set(values)) != len(values):
            raise UsageError(f"two agents of the roster share one {what}: enrol each agent once")


@lru_cache(maxsize=8)
def check_roster(roster: Roster, authority: bytes) -> None:
    """Signed by the authority this agent pinned at enrolment, everybody once, in order."""
    if roster.authority != authority:
        raise PeerError("roster of another enrolment authority: get the roster from the one you were enrolled by")
    verify(authority, roster.signature, "roster", roster.hash())
    check_distinct(roster.members)
    if list(roster.members) != sorted(roster.members, key=lambda member: member.identity):
        raise PeerError("roster is not in the order of its keys: ask the enrolment authority for a new one")
