"""What an agent must not forget, and the order in which it is written down. No files here: see transport/disk.py.

    snapshot   the account, its weights, the newest roster's number, the last message and its answer
    entries    one for each message accepted since: the message, the hash of its answer, what it added to the account;
               one for each newer roster seen since, also where nothing was accepted: its number

Rule 1: an entry is written before the answer it belongs to is handed out. A message without an entry had no answer.
Rule 2: all randomness of a run is one seed, written with the first entry, as is the owner's choice to take part: the
        entries, played again, give every answer again, byte for byte. Where they do not, the run is over for this
        agent (agent.py).
Rule 3: what an entry adds to the account stands in it in words, so that it counts even if the run cannot be resumed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from atdm.crypto.keys import digest
from atdm.data.quantum import LEAST_QUANTUM
from atdm.errors import DataError
from atdm.options import OwnerChoice
from atdm.protocol.account import Account, AnyBooking, SavedAccount

SCHEMA = 3  # 1 and 2 were the first edition's
RESTORE = "restore the whole folder as it last ran; if that is lost, the home needs a new key (`atdm enroll replace`)"
UNREADABLE = f"the agent's state cannot be read: {RESTORE}"
T = TypeVar("T", bound=msgspec.Struct)
MOST_FITS = 4  # whose weights an agent keeps: the last, and some before it in case that one never opened


class Store(ABC):
    """Where one agent's snapshot and entries are kept. A write that returns has reached what survives a crash."""

    @abstractmethod
    def read(self) -> tuple[bytes | None, list[bytes]]:
        """The snapshot, None if there never was one, and the entries since."""

    @abstractmethod
    def replace(self, snapshot: bytes) -> None:
        """A new snapshot without entries, in place of everything: all or nothing."""

    @abstractmethod
    def append(self, entry: bytes) -> None:
        """One more entry: all or nothing."""


class Consented(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fit to whose release this agent sent its part, and its own weight in it."""

    run: bytes
    question: bytes  # of the release: the same for runs that repeat it
    company: bytes  # identity keys of those in the run, in order
    weight: float  # ξ_i
    step_seconds: int
    end: int  # last time stamp of its window

    def __repr__(self) -> str:
        return f"Consented(run {self.run[:4].hex()}…)"


@dataclass(slots=True, repr=False)
class Memory:
    """What an agent carries from one run to the next."""

    account: Account = field(default_factory=Account)
    quantum: float = LEAST_QUANTUM  # °C, the coarsest that the sensor was found to have: it scales the dither
    fits: dict[bytes, Consented] = field(default_factory=dict)  # by run, oldest first: what may be observed
    serial: int = 0  # of the newest roster seen

    def __repr__(self) -> str:
        return f"Memory({self.account!r})"

    def consent(self, fit: Consented) -> None:
        self.fits[fit.run] = fit
        while len(self.fits) > MOST_FITS:
            del self.fits[next(iter(self.fits))]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One accepted message, or the number of a roster."""

    message: bytes = b""
    answer: bytes = b""  # hash of the replies
    seed: bytes = b""  # drawn with this message
    choice: OwnerChoice = "takes part"  # of the owner when it came
    bookings: tuple[AnyBooking, ...] = ()
    serial: int = 0  # of a roster that is newer than any seen before

    def __repr__(self) -> str:
        return f"Entry({len(self.message)} bytes, {len(self.bookings)} bookings)"


class _Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    identity: bytes
    seen: bytes  # the last message,
    replies: tuple[bytes, ...]  # and its answer
    quantum: float
    serial: int
    account: SavedAccount
    fits: tuple[Consented, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """An agent between two runs."""

    identity: bytes
    memory: Memory
    seen: bytes = b""
    replies: tuple[bytes, ...] = ()


def answer_hash(replies: list[bytes]) -> bytes:
    return digest("answer", *replies)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    memory = snapshot.memory
    return _enclose(_Snapshot(
        identity=snapshot.identity, seen=snapshot.seen, replies=snapshot.replies, quantum=memory.quantum,
        serial=memory.serial, account=memory.account.saved(), fits=tuple(memory.fits.values()),
    ))  # fmt: skip


def decode_snapshot(data: bytes) -> Snapshot:
    saved = _disclose(data, _Snapshot)
    try:
        account = Account.restored(saved.account)
    except ValueError:  # arrays that do not belong together
        raise DataError(UNREADABLE) from None
    memory = Memory(account, saved.quantum, {fit.run: fit for fit in saved.fits}, saved.serial)
    return Snapshot(saved.identity, memory, saved.seen, saved.replies)


def encode_entry(entry: Entry) -> bytes:
    return _enclose(entry)


def decode_entry(data: bytes) -> Entry:
    return _disclose(data, Entry)


def newest_serial(memory: Memory, entries: Iterable[Entry]) -> int:
    """Of the newest roster seen."""
    return max([memory.serial, *(entry.serial for entry in entries)])


def _enclose(body: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode((SCHEMA, body))


def _disclose(data: bytes, kind: type[T]) -> T:
    try:
        schema, body = msgspec.msgpack.decode(data, type=tuple[int, msgspec.Raw])
        if schema != SCHEMA:
            raise DataError(
                f"the agent's state is of schema {schema}, this version reads {SCHEMA}: the first edition of "
                "blind kept another account, which cannot be carried over; enrol the agent anew and give it a new "
                "state folder"
            )
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DataError(UNREADABLE) from None
