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
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from atdm.crypto.keys import digest
from atdm.data.quantum import LEAST_QUANTUM
from atdm.errors import DataError
from atdm.options import OwnerChoice
from atdm.protocol.account import Account, AnyBooking

SCHEMA = 4  # 1 and 2 were the first edition's; 3 counted the totals of a fit with each of its days
RESTORE = "restore the whole folder as it last ran; if that is lost, the home needs a new key (`atdm enroll replace`)"
UNREADABLE = f"the agent's state cannot be read: {RESTORE}"
T = TypeVar("T", bound="Snapshot | Entry")
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
    hash: bytes  # of company, plan and rows: the same for runs that repeat it
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


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """An agent between two runs."""

    identity: bytes
    memory: Memory
    seen: bytes = b""
    replies: tuple[bytes, ...] = ()


def answer_hash(replies: list[bytes]) -> bytes:
    return digest("answer", *replies)


def newest_serial(memory: Memory, entries: Iterable[Entry]) -> int:
    """Of the newest roster seen."""
    return max([memory.serial, *(entry.serial for entry in entries)])


def enclose(body: Snapshot | Entry) -> bytes:
    return msgspec.msgpack.encode((SCHEMA, body), enc_hook=_array_bytes)


def disclose(data: bytes, kind: type[T]) -> T:
    try:
        schema, body = msgspec.msgpack.decode(data, type=tuple[int, msgspec.Raw])
        if schema != SCHEMA:
            raise DataError(
                f"the agent's state is of schema {schema}, this version reads {SCHEMA}: an earlier one kept another "
                "account, which cannot be carried over; enrol the agent anew and give it a new state folder"
            )
        found = msgspec.msgpack.decode(body, type=kind, dec_hook=_array)
        if enclose(found) == data:  # else something is missing in it, or more: nothing is made up for an account
            return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise DataError(UNREADABLE)


def _array_bytes(array: NDArray[Any]) -> bytes:
    if not isinstance(array, np.ndarray):  # numpy's numbers have bytes too, and could not be read again
        raise TypeError(f"{type(array).__name__} in an agent's state, where a number of Python's own belongs")
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _array(kind: type, data: bytes) -> NDArray[Any]:
    """kind: as the field is declared, ndarray[shape, dtype[number]]."""
    (number,) = get_args(get_args(kind)[1])
    return np.frombuffer(data, np.dtype(number).newbyteorder("<")).astype(number)
