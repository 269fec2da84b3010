"""A journal from before, and disks that fail. How an agent comes back from one: tests/protocol/test_store.py."""

import errno
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest

from atdm.errors import AtdmError
from atdm.transport.disk import MAGIC, Disk, StateFolder, lock

ENTRIES = [b"first", b"second and longer", b"third"]


def test_a_journal_without_checks_of_its_lengths_goes_on_and_has_them_from_the_next_snapshot_on(tmp_path: Path) -> None:
    """As version 2 wrote it."""
    path, whole, chain = tmp_path / "journal", b"atdm-journal-2\n", b""
    for content in (b"snapshot", *ENTRIES):
        length = len(content).to_bytes(8, "little")
        chain = sha256(chain + length + content).digest()
        whole += length + chain + content
    path.write_bytes(whole[:-1])  # the last entry cut short
    disk = Disk(path)
    assert disk.read() == (b"snapshot", ENTRIES[:-1])
    disk.append(b"more")
    assert Disk(path).read() == (b"snapshot", [*ENTRIES[:-1], b"more"])
    disk.replace(b"new")
    disk.append(b"one")
    assert path.read_bytes().startswith(MAGIC) and Disk(path).read() == (b"new", [b"one"])


@pytest.mark.parametrize("name, code", [
    ("ENOSPC", 1), ("EDQUOT", 1), ("EIO", 1), ("EMFILE", 1), ("ENFILE", 1), ("EACCES", 2), ("ENOENT", 2), ("EROFS", 2),
])  # fmt: skip
def test_what_may_pass_lets_a_service_start_again_and_what_does_not_asks_for_a_person(
    tmp_path: Path, monkeypatch, name: str, code: int
) -> None:
    """docs/exit-codes.md: 1 is started again, 2 needs a person."""
    disk = Disk(tmp_path / "journal")
    disk.replace(b"one")
    broken = Mock(side_effect=OSError(getattr(errno, name), os.strerror(getattr(errno, name))))
    for place, does in (
        ((os, "fsync"), lambda: disk.append(b"two")),
        ((os, "fsync"), lambda: disk.replace(b"two")),
        ((Path, "open"), lambda: disk.append(b"two")),
        ((Path, "open"), lambda: lock(tmp_path)),
        ((tempfile, "mkstemp"), lambda: disk.replace(b"two")),
        ((Path, "mkdir"), lambda: StateFolder(tmp_path / "new", os.urandom)),
    ):
        monkeypatch.setattr(*place, broken)
        with pytest.raises(AtdmError, match="cannot (write|make)") as caught:
            does()
        monkeypatch.undo()
        assert caught.value.exit_code == code and "\n" not in str(caught.value)
    assert Disk(disk.path).read()[0] == b"one"
