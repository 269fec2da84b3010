"""Agents' state on disk: one journal file each, and the folder in which a simulation keeps all of its agents.

A journal is a line of magic and then frames: length, its check, hash, content. The first frame is the snapshot, the
others are entries. Each hash covers the one before it, so that a frame cannot be lost from the middle or moved. The
check tells a length that was damaged from a frame that was cut short.

    replace   a new file beside the old one, forced to disk, renamed over it
    append    one frame at the end, forced to disk; a frame cut short by a crash was never answered and is dropped

A snapshot holds the account of years and is replaced twice a run, which wears out a memory card. So a large one is told
as its difference from a base, a file of its own that never changes and is named by its hash:

Rule 1: the journal alone says what counts. A base is on disk before a journal names it, and removed only after one that
        does not is on disk; it is read by its hash, so that no other can take its place.
Rule 2: a new base is written once the differences written since have cost as many bytes as it has: what is written in
        all is at most twice that of the best moments to do it.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec

from atdm.crypto.keys import SigningKey, derive, read_key_file, write_key_file
from atdm.errors import DataError, UsageError, write_error
from atdm.protocol.roster import Roster, sign_roster
from atdm.protocol.session import RandomBytes
from atdm.protocol.store import RESTORE, Store
from atdm.transport.difference import Part, difference, rebuilt

MAGIC = b"atdm-journal-3\n"
ON_BASE = b"atdm-journal-4\n"  # its snapshot is the difference from a base
UNCHECKED = b"atdm-journal-2\n"  # lengths without a check: still read, and MAGIC from the next snapshot on
_LENGTH, _CHECK, _HASH = 8, 8, 32
SMALL = 8192  # bytes of a snapshot that is written whole: a disk writes pages of 4096
LOOKS = 5  # at a journal whose base is gone: whoever reads beside a running agent may come between the two


class _OnBase(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A snapshot, told by a base."""

    base: bytes  # its hash
    parts: tuple[Part, ...]

    def __repr__(self) -> str:
        return f"_OnBase({len(self.parts)} parts)"


class Disk(Store):
    """One agent's journal. Give every running agent its own, and only one (`lock`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end, self._chain = 0, b""  # of the last whole frame
        self._checked = True  # whether its lengths have a check
        self._base = b""  # the content of the base, empty where there is none
        self._spent = 0  # bytes of differences from it, as far as this process wrote them
        self._tidy = False  # whether this process has removed what others left

    def __repr__(self) -> str:
        return f"Disk({self.path})"

    def read(self) -> tuple[bytes | None, list[bytes]]:
        for _ in range(LOOKS):
            if not self.path.exists():
                return None, []
            with contextlib.suppress(FileNotFoundError):
                return self._read(self.path.read_bytes())
        raise DataError(f"{self.path} needs a file beside it that is gone: {RESTORE}")

    def _read(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """What a journal says. FileNotFoundError: its base is gone."""
        on_base = data.startswith(ON_BASE)
        self._checked = on_base or data.startswith(MAGIC)
        if not self._checked and not data.startswith(UNCHECKED):
            raise DataError(
                f"{self.path} is not an agent's journal of this version: one of the first edition cannot be carried "
                "over, enrol the agent anew; else restore the file"
            )
        frames = self._frames(data)
        if not frames:
            raise DataError(f"{self.path} has no snapshot: {RESTORE}")
        return self._told(frames[0]) if on_base else frames[0], frames[1:]

    def replace(self, snapshot: bytes) -> None:
        before = self._base
        if len(snapshot) <= SMALL:
            magic, content, self._base = MAGIC, snapshot, b""  # its base will be gone
        else:
            magic, content = ON_BASE, self._on_base(snapshot)
        frame, chain = _frame(b"", content, checked=True)
        replace_file(self.path, magic + frame)
        self._end, self._chain, self._checked = len(magic) + len(frame), chain, True
        if not self._tidy or self._base != before:
            self._remove_leftovers()
            self._tidy = True

    def _on_base(self, snapshot: bytes) -> bytes:
        """A snapshot as its difference from the base, or from a new one where that is cheaper in the long run."""
        told = _tell(self._base, snapshot) if self._base and self._place(self._base).exists() else b""
        if not told or self._spent + len(told) > len(snapshot):
            replace_file(self._place(snapshot), snapshot)
            self._base, self._spent = snapshot, 0
            told = _tell(snapshot, snapshot)
        self._spent += len(told)
        return told

    def _told(self, content: bytes) -> bytes:
        """The snapshot that a difference tells."""
        damaged = DataError(f"{self.path} and its base do not belong together: {RESTORE}")
        try:
            told = msgspec.msgpack.decode(content, type=_OnBase)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise damaged from None
        base = self._named(told.base).read_bytes()
        if sha256(base).digest() != told.base:
            raise damaged
        try:
            snapshot = rebuilt(base, told.parts)
        except ValueError:
            raise damaged from None
        self._base, self._spent = base, len(content)
        return snapshot

    def _place(self, base: bytes) -> Path:
        return self._named(sha256(base).digest())

    def _named(self, hashed: bytes) -> Path:
        return self.path.with_name(f"{self.path.name}.base-{hashed[:8].hex()}")

    def _remove_leftovers(self) -> None:
        """Bases that the journal on disk does not name, and halves that a process killed while writing left. What stays
        is removed the next time."""
        name, kept = self.path.name, self._place(self._base).name if self._base else ""
        for path in (*self.path.parent.glob(f"{name}.base-*"), *self.path.parent.glob(f".{name}.*")):
            if path.name != kept:
                with contextlib.suppress(OSError):
                    path.unlink()

    def append(self, entry: bytes) -> None:
        frame, chain = _frame(self._chain, entry, self._checked)
        try:
            with self.path.open("r+b") as file:
                file.truncate(self._end)
                file.seek(self._end)
                file.write(frame)
                _force(file)
        except OSError as error:
            raise write_error(error, f"cannot write {self.path}, nothing was sent", "mend its permissions") from None
        self._end, self._chain = self._end + len(frame), chain

    def _frames(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        self._end, self._chain = len(MAGIC), b""
        while self._end < len(data):
            head = self._end + _LENGTH + (_CHECK if self._checked else 0) + _HASH
            if head > len(data) or not any(data[self._end :]):  # cut short, or allocated and never written
                break
            length = data[self._end : self._end + _LENGTH]
            size = int.from_bytes(length, "little")
            sound = data[self._end : head - _HASH] == _length(self._chain, length, self._checked)
            if sound and head + size > len(data):  # cut short
                break
            content = data[head : head + size]
            frame, chain = _frame(self._chain, content, self._checked)
            if not sound or frame != data[self._end : head + size]:
                raise DataError(f"{self.path} is damaged at byte {self._end}: {RESTORE}")
            frames.append(content)
            self._end, self._chain = head + size, chain
        return frames


def _tell(base: bytes, snapshot: bytes) -> bytes:
    parts = difference(base, snapshot)
    if rebuilt(base, parts) != snapshot:  # an account is for life: nothing is taken on trust
        raise AssertionError("a difference that does not tell the snapshot")
    return msgspec.msgpack.encode(_OnBase(sha256(base).digest(), parts))


def _frame(chain: bytes, content: bytes, checked: bool) -> tuple[bytes, bytes]:
    length = len(content).to_bytes(_LENGTH, "little")
    hashed = sha256(chain + length + content).digest()
    return _length(chain, length, checked) + hashed + content, hashed


def _length(chain: bytes, length: bytes, checked: bool) -> bytes:
    return length + sha256(b"length" + chain + length).digest()[:_CHECK] if checked else length


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read; the old one stays until the new one is whole and on disk."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 0600
    except OSError as error:
        raise write_error(error, f"cannot write to {path.parent}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            _force(file)
        os.replace(name, path)
        _force_folder(path.parent)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise write_error(error, f"cannot write {path}, the old file is unchanged") from None


def lock(folder: Path, name: str = ".lock") -> BinaryIO:
    """Hold a folder of state for one process, until the handle is closed or the process ends, however it ends."""
    try:
        file = (folder / name).open("wb")
    except OSError as error:
        raise write_error(error, f"cannot write to {folder}") from None
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise UsageError(f"{folder} is in use by another process: wait for it to end, or stop it") from None
    return file


class StateFolder:
    """All agents of a simulation: one key from which theirs are derived, the roster as enrolled, a journal each."""

    def __init__(self, folder: Path, random_bytes: RandomBytes) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise write_error(error, f"cannot make {folder}") from None
        self.folder, self._lock = folder, lock(folder)
        key = folder / "simulation.key"
        try:
            if not key.exists():
                write_key_file(key, random_bytes(32))
            self._key = read_key_file(key)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> "StateFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def authority(self) -> SigningKey:
        return SigningKey(derive(self._key, "authority"))

    def identity(self, agent: str) -> SigningKey:
        return SigningKey(derive(self._key, "identity", agent))

    def secret(self, agent: str) -> bytes:
        return derive(self._key, "secret", agent)

    def store(self, agent: str) -> Store:
        return Disk(self.folder / f"{derive(self._key, 'journal', agent, length=16).hex()}.journal")

    def roster(self, agents: Sequence[str]) -> Roster:
        """The roster of these agents, renewed under the next number where it changed."""
        path, names = self.folder / "roster", sorted(agents)
        known = None
        if path.exists():
            try:
                known = msgspec.msgpack.decode(path.read_bytes(), type=Roster)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise DataError(
                    f"{path} cannot be read as a roster of this version: restore the whole folder; one of the first "
                    "edition cannot be carried over, choose a new folder"
                ) from None
        if known is None or sorted(member.name for member in known.members) != names:
            serial = 1 if known is None else known.serial + 1
            members = [(name, name, self.identity(name).public) for name in names]
            known = sign_roster(self.authority(), members, serial)
            replace_file(path, msgspec.msgpack.encode(known))
        return known


def _force(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _force_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
