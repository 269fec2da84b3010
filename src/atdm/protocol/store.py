"""What an agent must not forget, and the order in which it is written down. No files here: see transport/disk.py.

    snapshot   the account of exposure, the bases of its rosters, its weights, the last message and its answer
    entries    one for each message accepted since: the message, the hash of its answer, what it added to the account

Rule 1: an entry is written before the answer it belongs to is handed out. A message without an entry had no answer.
Rule 2: all randomness of a run is one seed, written with the first entry: the entries, played again, give every answer
        again, byte for byte. Where they do not, the run is over for this agent (agent.py).
Rule 3: what an entry adds to the account stands in it in words, so that it counts even if the run cannot be resumed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np

from atdm.crypto.keys import digest
from atdm.errors import DataError
from atdm.kernel.design import FloatArray, IntArray
from atdm.protocol.basis import EMPTY, Basis, Kept, Totals
from atdm.protocol.exposure import Bookings, Charge, Exposure
from atdm.protocol.readings import LEAST_QUANTUM

SCHEMA = 2
READABLE = (1, 2)  # 1 had no fits: what they would be needed for is refused until the next one
T = TypeVar("T", bound=msgspec.Struct)
MOST_ROSTERS = 4  # whose bases an agent keeps; the oldest goes first, the account of exposure never
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
    roster: bytes  # hash of those in the run
    weight: float  # ξ_i
    step_seconds: int
    end: int  # last time stamp of its window

    def __repr__(self) -> str:
        return f"Consented(run {self.run[:4].hex()}…)"


@dataclass(slots=True, repr=False)
class Memory:
    """What an agent carries from one run to the next."""

    exposure: Exposure = field(default_factory=Exposure)
    bases: dict[bytes, Kept] = field(default_factory=dict)  # by the hash of the roster, oldest use first
    quantum: float = LEAST_QUANTUM  # °C, of the sensor as first found: it scales the dither, which must never change
    fits: dict[bytes, Consented] = field(default_factory=dict)  # by run, oldest first: what may be observed

    def __repr__(self) -> str:
        return f"Memory({len(self.exposure.book)} totals, {len(self.bases)} bases)"

    def basis(self, roster: bytes) -> Kept:
        return self.bases.get(roster, EMPTY)

    def keep(self, roster: bytes, basis: Kept) -> None:
        self.bases.pop(roster, None)
        self.bases[roster] = basis
        while len(self.bases) > MOST_ROSTERS:
            del self.bases[next(iter(self.bases))]

    def consent(self, fit: Consented) -> None:
        self.fits[fit.run] = fit
        while len(self.fits) > MOST_FITS:
            del self.fits[next(iter(self.fits))]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One accepted message."""

    message: bytes
    answer: bytes  # hash of the replies
    seed: bytes = b""  # drawn with this message
    bookings: Bookings

    def __repr__(self) -> str:
        return f"Entry({len(self.message)} bytes, {len(self.bookings.charges)} totals)"


class _Basis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    version: int
    time: bytes
    series: bytes
    ones: bytes
    gram: bytes
    directions: bytes


class _Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    identity: bytes
    seen: bytes  # the last message,
    replies: tuple[bytes, ...]  # and its answer
    quantum: float
    time: bytes
    totals: bytes
    leverage: bytes
    released: bytes
    book: tuple[Charge, ...]
    bases: tuple[tuple[bytes, tuple[_Basis, ...]], ...]
    fits: tuple[Consented, ...] = ()


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    schema: int
    body: msgspec.Raw


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
    memory, exposure = snapshot.memory, snapshot.memory.exposure
    body = _Snapshot(
        identity=snapshot.identity,
        seen=snapshot.seen,
        replies=snapshot.replies,
        quantum=memory.quantum,
        time=_ints(exposure.time),
        totals=_ints(exposure.totals),
        leverage=_floats(exposure.leverage),
        released=_ints(exposure.released),
        book=tuple(exposure.book),
        bases=tuple((roster, tuple(_pack(basis) for basis in kept)) for roster, kept in memory.bases.items()),
        fits=tuple(memory.fits.values()),
    )
    return _enclose(body)


def decode_snapshot(data: bytes) -> Snapshot:
    try:
        return _restored(_disclose(data, _Snapshot))
    except ValueError:  # arrays that do not belong together
        raise DataError("the agent's state cannot be read: restore the whole folder from where it last ran") from None


def _restored(saved: _Snapshot) -> Snapshot:
    exposure = Exposure(
        time=_read_ints(saved.time),
        totals=_read_ints(saved.totals),
        leverage=_read_floats(saved.leverage),
        released=_read_ints(saved.released),
        book=list(saved.book),
    )
    bases = {roster: tuple(_unpack(basis) for basis in kept) for roster, kept in saved.bases}
    memory = Memory(exposure, bases, saved.quantum, {fit.run: fit for fit in saved.fits})
    return Snapshot(saved.identity, memory, saved.seen, saved.replies)


def encode_entry(entry: Entry) -> bytes:
    return _enclose(entry)


def decode_entry(data: bytes) -> Entry:
    return _disclose(data, Entry)


def _enclose(body: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(_Envelope(SCHEMA, msgspec.Raw(msgspec.msgpack.encode(body))))


def _disclose(data: bytes, kind: type[T]) -> T:
    try:
        envelope = msgspec.msgpack.decode(data, type=_Envelope)
        if envelope.schema not in READABLE:
            raise DataError(
                f"the agent's state is of schema {envelope.schema}, this version reads {SCHEMA}: use the version that "
                "wrote it; a state that is left behind leaves its account of what was seen behind"
            )
        return msgspec.msgpack.decode(envelope.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DataError("the agent's state cannot be read: restore the whole folder from where it last ran") from None


def _pack(basis: Basis) -> _Basis:
    totals = basis.totals
    return _Basis(
        version=totals.version,
        time=_ints(totals.time),
        series=_floats(totals.series),
        ones=_floats(totals.ones),
        gram=_floats(totals.gram),
        directions=_floats(basis.directions),
    )


def _unpack(saved: _Basis) -> Basis:
    time, ones = _read_ints(saved.time), _read_floats(saved.ones)
    n, j = len(time), len(ones)
    series, gram = _read_floats(saved.series).reshape(n, j), _read_floats(saved.gram).reshape(j, j)
    return Basis(Totals(saved.version, time, series, ones, gram), _read_floats(saved.directions))


def _ints(values: IntArray) -> bytes:
    return values.astype("<i8").tobytes()


def _floats(values: FloatArray) -> bytes:
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def _read_ints(data: bytes) -> IntArray:
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


def _read_floats(data: bytes) -> FloatArray:
    return np.frombuffer(data, dtype="<f8").astype(np.float64)
