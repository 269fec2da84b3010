"""Agents' state on disk: one journal file each, and the folder in which a simulation keeps all of its agents.

A journal is a line of magic and then frames: length, its check, hash, content. The first frame is the snapshot, the
others are entries. Each hash covers the one before it, so that a frame cannot be lost from the middle or moved. The
check tells a length that was damaged from a frame that was cut short.

    replace   a new file beside the old one, forced to disk, renamed over it
    append    one frame at the end, forced to disk; a frame cut short by a crash was never answered and is dropped
"""

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
from atdm.protocol.store import Store

MAGIC = b"atdm-journal-3\n"
UNCHECKED = b"atdm-journal-2\n"  # lengths without a check: still read, and MAGIC from the next snapshot on
_LENGTH, _CHECK, _HASH = 8, 8, 32


class Disk(Store):
    """One agent's journal. Give every running agent its own, and only one (`lock`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end, self._chain = 0, b""  # of the last whole frame
        self._checked = True  # whether its lengths have a check

    def __repr__(self) -> str:
        return f"Disk({self.path})"

    def read(self) -> tuple[bytes | None, list[bytes]]:
        if not self.path.exists():
            return None, []
        data = self.path.read_bytes()
        self._checked = data.startswith(MAGIC)
        if not self._checked and not data.startswith(UNCHECKED):
            raise DataError(
                f"{self.path} is not an agent's journal of this version: one of the first edition cannot be carried "
                "over, enrol the agent anew; else restore the file"
            )
        frames = self._frames(data)
        if not frames:
            raise DataError(f"{self.path} has no snapshot: restore the whole folder from where it last ran")
        return frames[0], frames[1:]

    def replace(self, snapshot: bytes) -> None:
        frame, chain = _frame(b"", snapshot, checked=True)
        replace_file(self.path, MAGIC + frame)
        self._end, self._chain, self._checked = len(MAGIC) + len(frame), chain, True

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
                raise DataError(f"{self.path} is damaged at byte {self._end}: restore the whole folder")
            frames.append(content)
            self._end, self._chain = head + size, chain
        return frames


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
            raise UsageError(f"{folder} is in use by another process: wait for it, or use another folder") from None
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
