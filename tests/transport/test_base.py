"""A large account is written as what changed since its base: the same account at every kill, and few bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atdm.data.readings import Readings
from atdm.errors import DataError
from atdm.protocol.store import Memory, Snapshot, disclose, enclose
from atdm.transport import disk as module
from atdm.transport.difference import difference, rebuilt
from atdm.transport.disk import MAGIC, ON_BASE, SMALL, Disk

HOUR, DAY = 3600, 86400


class Life:
    """An account that shows an hour at a time, as a home whose rows are collected live has it."""

    def __init__(self, hours: int, seed: int = 0) -> None:
        self.rng, self.memory, self.next = np.random.default_rng(seed), Memory(), 0
        self.go_on(hours)

    def go_on(self, hours: int = 1) -> bytes:
        time = HOUR * np.arange(self.next, self.next + hours, dtype=np.int64)
        readings = Readings(time, self.rng.normal(20, 1, hours), self.rng.uniform(0, 5, hours))
        self.memory.account.settle(readings, bytes(range(32)) * 40, "equal", HOUR)
        self.memory.account.booked()
        self.next += hours
        return self.snapshot()

    def snapshot(self) -> bytes:
        message, reply = self.rng.bytes(300), self.rng.bytes(90)  # of the last run
        return enclose(Snapshot(bytes(32), self.memory, message, (reply,)))


@given(old=st.binary(max_size=300), new=st.binary(max_size=300))
def test_a_difference_tells_the_new_text(old, new):
    assert rebuilt(old, difference(old, new)) == new


@given(data=st.data())
def test_a_difference_tells_a_text_with_a_few_pieces_put_in_or_taken_out(data):
    old = np.random.default_rng(data.draw(st.integers(0, 9))).bytes(5000)
    new = bytearray(old)
    for _ in range(data.draw(st.integers(0, 5))):
        place, piece = data.draw(st.integers(0, len(new))), data.draw(st.binary(max_size=80))
        new[place : place + data.draw(st.integers(0, 80))] = piece
    parts = difference(old, bytes(new))
    assert rebuilt(old, parts) == bytes(new)
    assert sum(len(part) for part in parts if isinstance(part, bytes)) < 5 * 300


@pytest.mark.parametrize("parts", [((0, 6),), ((-1, 2),), ((5, 1),), ((0, 0),), ((2, 4),)])
def test_parts_of_another_text_are_refused(parts):
    with pytest.raises(ValueError, match="beyond the end"):
        rebuilt(b"12345", parts)


def test_an_account_is_read_as_it_was_written_and_costs_few_bytes(tmp_path, monkeypatch):
    """Thirty days of hours on an account of a year; twice a run, as agents do."""
    life, written = Life(365 * 24), []
    replace_file = module.replace_file
    monkeypatch.setattr(module, "replace_file", lambda p, data: (written.append(len(data)), replace_file(p, data)))
    monkeypatch.setattr(module, "_force", lambda file: file.flush())
    disk, whole = Disk(tmp_path / "journal"), 0
    for run in range(24 * 30):
        for snapshot in (life.snapshot(), life.go_on()):
            disk.replace(snapshot)
            whole += len(snapshot)
        if run % 100 == 0:
            assert Disk(disk.path).read() == (snapshot, [])
            disk = Disk(disk.path)  # restarted
            disk.read()
        disk.append(b"an entry")
    found, entries = Disk(disk.path).read()
    assert found == snapshot and entries == [b"an entry"]
    assert disclose(found, Snapshot).memory.account.time.tolist() == life.memory.account.time.tolist()
    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(files) == 2 and sum(files.values()) < 2 * len(snapshot)
    print(f"{sum(written) / 1e6:.1f} MB instead of {whole / 1e6:.1f} MB")
    assert 25 * sum(written) < whole


class Kill(BaseException):
    """The process ends here; no `except OSError` sees it."""


def test_killed_at_any_step_the_account_is_the_one_before_or_the_new_one(tmp_path, monkeypatch):
    """At every call that reaches the disk, before it and after it, with a new base and without."""
    steps, left, after = ("_force", "_force_folder"), [0], [False]

    def deadly(does):
        def call(*given):
            left[0] -= 1
            if left[0] == 0 and not after[0]:
                raise Kill
            does(*given)
            if left[0] == 0:
                raise Kill

        return call

    for name in steps:
        monkeypatch.setattr(module, name, deadly(getattr(module, name)))
    monkeypatch.setattr(module.os, "replace", deadly(os.replace))
    monkeypatch.setattr(Path, "unlink", deadly(Path.unlink))
    deaths, bases = 0, set()
    for spend in (0, 10**9):  # a difference, and a new base
        for late in (False, True):
            for step in range(1, 12):
                folder = tmp_path / f"{spend}-{late}-{step}"
                folder.mkdir()
                left[0], life = 0, Life(24 * 60)
                disk = Disk(folder / "journal")
                disk.replace(before := life.snapshot())
                disk.append(b"of a run")
                disk._spent, new = disk._spent + spend, life.go_on()
                left[0], after[0] = step, late
                try:
                    disk.replace(new)
                except Kill:
                    deaths += 1
                left[0] = 0
                found = Disk(folder / "journal").read()
                assert found in ((before, [b"of a run"]), (new, [])), (spend, late, step)
                again = Disk(folder / "journal")
                again.read()
                again.replace(life.go_on())
                assert len(list(folder.iterdir())) == 2  # what the dead left is gone
                bases |= {path.name for path in folder.glob("journal.base-*")}
    assert deaths >= 4 * 3 and len(bases) > 1


def test_a_base_that_is_gone_or_altered_is_refused(tmp_path):
    life = Life(24 * 60)
    disk = Disk(tmp_path / "journal")
    disk.replace(life.snapshot())
    disk.replace(life.go_on())
    assert disk.path.read_bytes().startswith(ON_BASE)
    [base] = tmp_path.glob("journal.base-*")
    assert base.stat().st_mode & 0o077 == 0
    whole = base.read_bytes()
    base.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataError, match="do not belong together: restore the whole folder"):
        Disk(disk.path).read()
    base.unlink()
    with pytest.raises(DataError, match="needs a file beside it that is gone: restore the whole folder"):
        Disk(disk.path).read()


def test_a_journal_on_a_base_cut_or_altered_anywhere_is_no_other_account(tmp_path):
    life = Life(24 * 40)
    disk = Disk(tmp_path / "journal")
    disk.replace(life.snapshot())
    disk.replace(snapshot := life.go_on())
    whole = disk.path.read_bytes()
    for place in range(0, len(whole), 7):
        disk.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 + place % 255]) + whole[place + 1 :])
        with pytest.raises(DataError):
            Disk(disk.path).read()
        disk.path.write_bytes(whole[:place])
        with pytest.raises(DataError):
            Disk(disk.path).read()
    disk.path.write_bytes(whole)
    assert Disk(disk.path).read() == (snapshot, [])


def test_who_reads_beside_a_running_agent_finds_one_account_or_the_next(tmp_path, monkeypatch):
    """`atdm account` may come between the journal and its base."""
    life = Life(24 * 60)
    disk = Disk(tmp_path / "journal")
    disk.replace(life.snapshot())
    told, new = Disk._told, life.go_on()

    def overtaken(self, content):
        if self is not disk and disk._spent < 10**9:
            disk._spent = 10**9
            disk.replace(new)  # on another base
        return told(self, content)

    monkeypatch.setattr(Disk, "_told", overtaken)
    assert Disk(disk.path).read() == (new, [])


def test_a_journal_written_whole_is_carried_over_and_a_small_one_stays_whole(tmp_path, monkeypatch):
    life = Life(24 * 60)
    monkeypatch.setattr(module, "SMALL", 10**9)  # as before
    Disk(tmp_path / "journal").replace(before := life.snapshot())
    monkeypatch.undo()
    disk = Disk(tmp_path / "journal")
    assert disk.read() == (before, []) and disk.path.read_bytes().startswith(MAGIC)
    disk.append(b"entry")
    disk.replace(life.go_on())
    assert disk.path.read_bytes().startswith(ON_BASE)
    disk.replace(b"x" * SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"] and disk.path.read_bytes().startswith(MAGIC)


@pytest.mark.parametrize("seed", range(5))
def test_snapshots_that_grow_and_shrink_are_read_as_they_were_written(tmp_path, seed):
    """A small one removes the base: the next large one must not be told by it, or the account is lost. What somebody
    removed is written again, and halves that a kill left are gone."""
    rng, path = np.random.default_rng(seed), tmp_path / "journal"
    disk = Disk(path)
    for turn in range(40):
        snapshot = rng.bytes(int(rng.choice([10, SMALL, SMALL + 1, 3 * SMALL])))
        if rng.random() < 0.2:
            (tmp_path / f".journal.{turn}").write_bytes(b"half of a file")
            disk = Disk(path)
            disk.read()
        if rng.random() < 0.1 and disk._base:
            disk._place(disk._base).unlink()
        disk.replace(snapshot)
        assert Disk(path).read() == (snapshot, []), f"seed {seed}, turn {turn}"
        assert len(list(tmp_path.iterdir())) == (1 if len(snapshot) <= SMALL else 2)


def test_an_agent_killed_at_every_write_of_a_journal_on_a_base_answers_byte_for_byte(tmp_path):
    """SIGKILL, in a process of its own; every snapshot is told by a base, however small."""
    text = (
        "import sys; from pathlib import Path; from atdm.transport import disk; disk.SMALL = 0; "
        "from tests.protocol import killed; killed.main(Path(sys.argv[1]), 1)"
    )
    run = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=True, capture_output=True, text=True)
    found = json.loads(run.stdout)
    assert found["writes"] >= 10 and found["deaths"] == found["done"] == found["writes"]
    assert list(tmp_path.glob("*.journal.base-*"))
