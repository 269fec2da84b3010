"""Who takes part: identities, owners and cohorts, signed by an enrolment authority that is not the aggregator."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from atdm.crypto.keys import SigningKey, digest, verify
from atdm.errors import PeerError, UsageError

COHORT_OWNERS = 8  # owners in a cohort, at least; two rosters differ by whole cohorts


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    name: str
    owner: str  # the home or building: agents of one owner stand and fall together
    cohort: int
    identity: bytes  # Ed25519 public key


class Roster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """All enrolled agents, in the order of their identity keys; the first one leads.

    Agents of one process hold the same object, and what follows from it is worked out once.
    """

    members: tuple[Member, ...]
    authority: bytes
    signature: bytes

    def __len__(self) -> int:
        return len(self.members)

    @lru_cache(maxsize=8)  # noqa: B019 - few, and small beside what they stand for
    def hash(self) -> bytes:
        return digest("roster", msgspec.msgpack.encode(self.members), self.authority)

    def index(self, identity: bytes) -> int:
        for i, member in enumerate(self.members):
            if member.identity == identity:
                return i
        raise PeerError("this agent is not in the roster: ask the enrolment authority for the current one")

    def has_cohorts(self, cohorts: Sequence[int]) -> bool:
        """Whether these are cohorts of this roster, each once, in order."""
        return len(cohorts) > 0 and list(cohorts) == sorted(set(cohorts) & {m.cohort for m in self.members})

    @lru_cache(maxsize=8)  # noqa: B019
    def restrict(self, cohorts: frozenset[int]) -> "Roster":
        """The part of the roster in whole cohorts. The signature stays that of the full roster (see `check`)."""
        return msgspec.structs.replace(self, members=tuple(m for m in self.members if m.cohort in cohorts))


def assign_cohorts(owners: Sequence[str]) -> dict[str, int]:
    """Fixed cohorts of at least eight owners, all agents of an owner in one; one cohort where there are fewer."""
    distinct = sorted(set(owners))
    cohorts = max(1, len(distinct) // COHORT_OWNERS)
    return {owner: i % cohorts for i, owner in enumerate(distinct)}


def sign_roster(
    authority: SigningKey, members: Sequence[tuple[str, str, bytes]], cohorts: Mapping[str, int] | None = None
) -> Roster:
    """Enrol (name, owner, identity key) triples; cohorts (owner → number) are assigned unless given."""
    cohorts = assign_cohorts([owner for _, owner, _ in members]) if cohorts is None else cohorts
    entries = tuple(
        sorted(
            (Member(name=n, owner=o, cohort=cohorts[o], identity=key) for n, o, key in members),
            key=lambda member: member.identity,
        )
    )
    check_distinct(entries)
    draft = Roster(members=entries, authority=authority.public, signature=b"")
    return msgspec.structs.replace(draft, signature=authority.sign("roster", draft.hash()))


def check_distinct(members: Sequence[Member]) -> None:
    for what in ("name", "identity"):
        values = [getattr(m, what) for m in members]
        if len(set(values)) != len(values):
            raise UsageError(f"two agents of the roster share one {what}: enrol each agent once")


def check_cohorts(members: Sequence[Member]) -> None:
    """Two runs differ by whole cohorts, so a cohort must hide its owners, and an owner must not be in two."""
    owners: dict[int, set[str]] = {}
    for member in members:
        owners.setdefault(member.cohort, set()).add(member.owner)
    if sum(len(group) for group in owners.values()) != len({member.owner for member in members}):
        raise PeerError("an owner has agents in two cohorts of the roster: ask the enrolment authority for a new one")
    if len(owners) > 1 and min(len(group) for group in owners.values()) < COHORT_OWNERS:
        raise PeerError(f"a cohort of the roster has fewer than {COHORT_OWNERS} owners: ask for a new one")


@lru_cache(maxsize=8)
def check_roster(roster: Roster, authority: bytes) -> None:
    """Signed by the authority this agent pinned at enrolment, everybody once, in order."""
    if roster.authority != authority:
        raise PeerError("roster of another enrolment authority: get the roster from the one this agent was enrolled by")
    verify(authority, roster.signature, "roster", roster.hash())
    check_distinct(roster.members)
    check_cohorts(roster.members)
    if list(roster.members) != sorted(roster.members, key=lambda member: member.identity):
        raise PeerError("roster is not in the order of its keys: ask the enrolment authority for a new one")
