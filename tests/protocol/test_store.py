"""An agent killed at any moment comes back byte for byte, or refuses: never two messages under one context."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from atdm.data.readings import Readings
from atdm.errors import DataError, PeerError, RunAborted, UsageError
from atdm.options import fit_options
from atdm.protocol.account import Answered, Begun, Judged, Shown
from atdm.protocol.agent import AgentState
from atdm.protocol.messages import Abort, Ready, Total, encode
from atdm.protocol.store import MOST_FITS, Consented, Memory, Snapshot, disclose, enclose
from atdm.run import fit, make_plan, simulate
from atdm.transport.disk import Disk, lock
from tests.clusters import tiny
from tests.protocol.drive import said
from tests.protocol.world import LOOSE, Killed, Ram, World, after, saved, written

AGENTS, SEED = 4, 3
ENTRIES = [b"one", b"", b"a longer entry"]
LEADER, OTHER = 0, AGENTS - 1


def world() -> World:
    return World(tiny(SEED, agents=AGENTS, rows=60), SEED)


# Byte for byte


@pytest.mark.parametrize("protocol", ["blind", "collect", "moments", "paper"])
def test_agents_restarted_before_every_message_send_what_agents_that_never_stopped_send(protocol: str) -> None:
    calm, restless = world(), world()
    deliver = restless.deliver
    restless.deliver = lambda i, data: (restless.restart(i), deliver(i, data))[1]
    for here in (calm, restless):
        plan = here.collect(length=60) if protocol == "collect" else here.plan(protocol=protocol)
        assert here.run(here.aggregator(plan)) is not None
    assert restless.restarts >= 4 * calm.restarts
    assert restless.sent == calm.sent
    for one, other in zip(calm.stores, restless.stores, strict=True):
        assert one.read() == other.read()


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("who", [LEADER, OTHER], ids=["leader", "other"])
def test_killed_at_any_write_an_agent_sends_one_message_per_context(who: int, late: bool) -> None:
    for moment in count(1):  # World.hand_out compares every message with whatever was sent under its context before
        here = world()
        here.stores[who].die, here.stores[who].after = moment, late
        if moment == 1:  # the first write is the agent's first snapshot
            with pytest.raises(Killed):
                here.agent(who)
        assert here.run(here.aggregator(here.plan())) is not None
        if here.stores[who].die > 0:
            break
    assert moment > 10


@pytest.mark.parametrize("moments", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_process_killed_with_sigkill_at_every_write_sends_one_message_per_context(
    tmp_path: Path, moments: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.protocol.killed", str(tmp_path), str(moments)],
        cwd=Path(__file__).parents[2], env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["writes"] > 8
    assert result["deaths"] == result["done"] == moments * result["writes"]


# Or not at all, and the account stays


def left_after(who: int, messages: int) -> World:
    """A world in which one agent was there for so many messages and not for the end of the run."""
    here = world()
    assert here.run(here.aggregator(here.plan()), deaf=after(who, messages)) is None
    return here


def test_an_agent_whose_readings_changed_refuses_to_go_on_and_answers_later_as_it_did_before() -> None:
    calm, here = world(), left_after(OTHER, messages=6)
    first = calm.run(calm.aggregator(calm.plan()))
    before = saved(account := written(here.stores[OTHER]).account)
    assert account.questions and len(account.time)
    here.cluster = replace(here.cluster, temperature=here.cluster.temperature + 0.5)
    here.restart(OTHER)
    agent = here.agent(OTHER)
    assert agent.state is AgentState.LOST and saved(agent.own.memory.account) == before
    (reply,) = said(agent, Total(run=bytes(32), step=9, words=bytes(8 * 5000)))
    assert "cannot resume" in reply.reason
    here.restart(OTHER)
    assert here.agent(OTHER).state is AgentState.WAITING and saved(here.agent(OTHER).own.memory.account) == before
    again = here.run(here.aggregator(here.plan()))
    np.testing.assert_array_equal(again.estimate.state, first.estimate.state)


def test_an_agent_refuses_the_state_of_another_and_of_another_schema() -> None:
    here = world()
    here.run(here.aggregator(here.plan()))
    here.stores[0] = here.stores[1]
    here.restart(0)
    with pytest.raises(UsageError, match="another agent's"):
        here.agent(0)
    snapshot = enclose(Snapshot(b"", Memory()))
    for schema in (2, 3, 5):
        here.stores[0] = Ram(msgspec.msgpack.encode([schema, *msgspec.msgpack.decode(snapshot)[1:]]))
        with pytest.raises(DataError, match=f"schema {schema}"):
            here.agent(0)


def test_an_agent_whose_store_fails_hands_out_nothing_more() -> None:
    here = world()
    agent = here.agent(0)
    announce = here.announce(here.plan())
    here.stores[0].die = 1
    with pytest.raises(Killed):
        agent.receive(announce)
    with pytest.raises(PeerError, match="halted"):
        agent.receive(announce)


# Late and foreign messages


def test_late_and_foreign_messages_do_not_end_the_run_that_is_under_way() -> None:
    here = left_after(OTHER, messages=6)
    agent, late = here.agent(OTHER), msgspec.structs.replace(here.role._announce, attempt=0)
    for announce in (here.role._announce, late):
        with pytest.raises(PeerError, match="no newer"):
            agent.receive(encode(announce))
    with pytest.raises(PeerError, match="another run"):
        agent.receive(encode(Abort(run=bytes(32), reason="")))
    assert agent.state is AgentState.RUNNING


def test_a_new_run_ends_one_of_which_no_end_was_heard_and_its_bookings_stay() -> None:
    here = left_after(OTHER, messages=6)
    agent = here.agent(OTHER)
    assert agent.state is AgentState.RUNNING
    booked = dict(agent.own.memory.account.questions)
    assert isinstance(here.answer(here.plan(), OTHER), Ready) and booked
    assert agent.own.memory.account.questions == booked == written(here.stores[OTHER]).account.questions


# The journal


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    disk = Disk(tmp_path / "journal")
    disk.replace(b"snapshot")
    for entry in ENTRIES:
        disk.append(entry)
    return disk.path


def test_a_journal_cut_anywhere_is_a_whole_number_of_entries(journal: Path) -> None:
    whole = journal.read_bytes()
    for length in range(len(whole) - sum(map(len, ENTRIES)) - 48 * len(ENTRIES), len(whole) + 1):
        journal.write_bytes(whole[:length])
        again = Disk(journal)
        snapshot, found = again.read()
        assert snapshot == b"snapshot" and found == ENTRIES[: len(found)]
        again.append(b"one more")
        assert Disk(journal).read() == (b"snapshot", [*found, b"one more"])


def test_a_journal_altered_anywhere_is_refused(journal: Path) -> None:
    whole = journal.read_bytes()
    for place in range(len(whole)):
        journal.write_bytes(whole[:place] + bytes([whole[place] ^ 1 + place % 255]) + whole[place + 1 :])
        with pytest.raises(DataError):  # also at a length that now points beyond the end: it was not cut short
            Disk(journal).read()


def test_a_journal_is_private_and_a_failed_write_leaves_it_as_it_was(tmp_path: Path, monkeypatch) -> None:
    disk = Disk(tmp_path / "journal")
    disk.replace(b"one")
    assert disk.path.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    for write in (disk.replace, disk.append):
        with pytest.raises(DataError, match="No space left"):
            write(b"two")
    monkeypatch.undo()
    disk.append(b"three")
    assert Disk(disk.path).read() == (b"one", [b"three"])
    assert [p.name for p in tmp_path.iterdir()] == ["journal"]


def test_a_folder_of_state_serves_one_process_at_a_time(tmp_path: Path) -> None:
    with lock(tmp_path):
        with pytest.raises(UsageError, match="in use"):
            lock(tmp_path)
    lock(tmp_path).close()


# What is written


def test_a_snapshot_holds_everything_an_agent_knows() -> None:
    memory, company, time = Memory(quantum=0.05, serial=7), bytes(range(64)), np.arange(0, 86400, 3600, dtype=np.int64)
    memory.account.book(Judged((0, 1), (2,)))
    readings = Readings(time, np.linspace(18, 22, 24), np.linspace(0, 3, 24), time % 7200 == 0)
    assert memory.account.settle(readings, company, "fitted", 3600) == (0,)
    shown = Shown(time[:5].astype("<i8").tobytes())
    memory.account.apply([Begun(b"fit", (0,), b"plan"), Answered(b"fit", b"question", "release"), shown])
    for run in range(MOST_FITS + 2):  # of which the last are kept
        memory.consent(Consented(run=bytes([run]), hash=b"fit", company=company, weight=1 / 32,
                                 step_seconds=9, end=1))  # fmt: skip
    snapshot = enclose(Snapshot(b"me", memory, b"seen", (b"reply",)))
    again = disclose(snapshot, Snapshot)
    assert enclose(again) == snapshot and (again.seen, again.replies) == (b"seen", (b"reply",))
    assert again.memory.fits == memory.fits and (again.memory.quantum, again.memory.serial) == (0.05, 7)
    assert list(memory.fits) == [bytes([run]) for run in range(2, MOST_FITS + 2)]
    assert saved(again.memory.account) == saved(memory.account)
    np.testing.assert_array_equal(again.memory.account.shown, [1] * 5 + [0] * 19)


def test_nothing_of_an_agents_state_shows_in_its_repr() -> None:
    here = world()
    here.run(here.aggregator(here.plan()))
    agent = here.agent(0)
    memory = agent.own.memory
    things = (agent, agent.own, memory, agent.own.readings, memory.account, *memory.fits.values())
    assert all(len(repr(each)) < 80 and "[" not in repr(each) and "." not in repr(each) for each in things)


# A simulation with a state folder


def test_agents_with_a_state_folder_go_on_where_they_broke_off_and_remember(tmp_path: Path) -> None:
    cluster, options = tiny(SEED, agents=AGENTS, rows=60), {"order": 1, "ridge": 20.0, "nonnegative": False}
    plan = make_plan(cluster, fit_options(protocol="blind", **options, solver_tolerance=5e-05), LOOSE)
    interrupt = Mock(side_effect=[*[None] * 49, KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        simulate(cluster, plan, LOOSE, tap=interrupt, state=tmp_path)
    again, same = (simulate(cluster, plan, LOOSE, state=tmp_path) for _ in range(2))
    np.testing.assert_allclose(again.model.alpha, fit(cluster, "plain", **options).model.alpha, atol=3e-4)
    assert same.state.equals(again.state) and same.weights.equals(again.weights)
    with pytest.raises(RunAborted, match="no room for another fit"):
        fit(cluster, **{**options, "ridge": 21.0}, rules=LOOSE, state=tmp_path)
    with pytest.raises(UsageError, match="leave it out"):
        fit(cluster, "plain", state=tmp_path)
