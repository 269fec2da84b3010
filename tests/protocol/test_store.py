"""An agent killed at any moment comes back byte for byte, or refuses: never two messages under one context."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atdm.errors import DataError, PeerError, UsageError
from atdm.protocol.account import Account, Answered, Judged, Sent, Settled, Shown
from atdm.protocol.agent import State
from atdm.protocol.messages import Abort, Ready, ToAggregator, Total, encode
from atdm.protocol.store import MOST_FITS, Consented, Memory, Snapshot, decode_snapshot, encode_snapshot
from atdm.run import fit, make_plan, simulate
from atdm.transport.disk import Disk, lock
from tests.clusters import tiny
from tests.protocol.world import LOOSE, Killed, Ram, World, written

AGENTS, SEED = 4, 3
LEADER, OTHER = 0, AGENTS - 1


def world() -> World:
    return World(tiny(SEED, agents=AGENTS, rows=60), SEED)


def decoded(reply: bytes) -> ToAggregator:
    return msgspec.msgpack.decode(reply, type=ToAggregator)


# Byte for byte


@pytest.mark.parametrize("protocol", ["blind", "moments", "paper"])
def test_agents_restarted_before_every_message_send_what_agents_that_never_stopped_send(protocol: str) -> None:
    calm, restless = world(), world()
    deliver = restless.deliver
    restless.deliver = lambda i, data: (restless.restart(i), deliver(i, data))[1]
    assert calm.run(calm.aggregator(calm.plan(protocol=protocol))) is not None
    assert restless.run(restless.aggregator(restless.plan(protocol=protocol))) is not None
    assert restless.restarts > 5 * calm.restarts
    assert restless.sent == calm.sent
    for one, other in zip(calm.stores, restless.stores, strict=True):
        assert one.read() == other.read()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("who", [LEADER, OTHER], ids=["leader", "other"])
def test_killed_at_any_write_an_agent_sends_one_message_per_context(who: int, after: bool) -> None:
    moment = 0
    while True:  # World.hand_out compares every message with whatever was sent under its context before
        moment += 1
        here = world()
        here.stores[who].die, here.stores[who].after = moment, after
        if moment == 1:  # the first write is the agent's first snapshot
            with pytest.raises(Killed):
                here.agent(who)
        assert here.run(here.aggregator(here.plan())) is not None
        if here.stores[who].die > 0:
            break
    assert moment > 15


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
    assert result["writes"] > 15
    assert result["deaths"] == result["done"] == moments * result["writes"]


def test_an_answer_that_got_lost_is_given_again_after_the_run_too() -> None:
    here = world()
    heard = []
    deliver = here.deliver
    here.deliver = lambda i, data: (heard.append((i, data)), deliver(i, data))[1]
    here.run(here.aggregator(here.plan()))
    i, finished = heard[-1]
    here.restart(i)
    assert here.agent(i).receive(finished) == []


# Or not at all


def left_after(who: int, messages: int) -> World:
    """A world in which one agent was there for so many messages and not for the end of the run."""
    here = world()
    deliver, heard = here.deliver, []

    def limited(i: int, data: bytes) -> list[bytes]:
        if i == who and len(heard) == messages:
            raise Killed
        heard.extend([data] * (i == who))
        return deliver(i, data)

    here.deliver = limited
    assert here.run(here.aggregator(here.plan())) is None
    here.deliver = deliver
    return here


def test_an_agent_whose_readings_changed_refuses_to_go_on_and_keeps_its_account() -> None:
    here = left_after(OTHER, messages=6)
    before = written(here.stores[OTHER]).account.saved()
    assert before.questions and before.stamps.time
    here.cluster = tiny(SEED + 1, agents=AGENTS, rows=60)
    here.restart(OTHER)
    agent = here.agent(OTHER)
    if agent.state is State.RUNNING:  # its readings had left: they stay as first sent, whatever the file says now
        assert len(before.stamps.time) == 8 * 60
        return
    raise AssertionError(agent.state)


def test_an_agent_refuses_the_state_of_another() -> None:
    here = world()
    here.run(here.aggregator(here.plan()))
    here.stores[0] = here.stores[1]
    here.restart(0)
    with pytest.raises(UsageError, match="another agent's"):
        here.agent(0)


def test_an_agent_refuses_a_state_of_another_schema() -> None:
    here = world()
    snapshot, _ = Ram(encode_snapshot(Snapshot(b"", Memory()))).read()
    newer = msgspec.msgpack.encode([3, *msgspec.msgpack.decode(snapshot)[1:]])
    here.stores[0] = Ram(newer)
    with pytest.raises(DataError, match="schema 3"):
        here.agent(0)


def test_a_state_of_schema_1_is_read_and_holds_no_fit_to_observe() -> None:
    memory = Memory(quantum=0.05)
    memory.exposure.release(np.arange(0, 60, 30))
    memory.consent(Consented(run=b"run", roster=b"r", weight=0.1, step_seconds=30, end=60))
    saved = msgspec.msgpack.decode(encode_snapshot(Snapshot(b"me", memory)))
    del saved[1]["fits"]
    older = decode_snapshot(msgspec.msgpack.encode([1, saved[1]])).memory
    assert older.fits == {} and older.exposure.released.tolist() == [0, 30] and older.quantum == 0.05


def test_an_agent_whose_store_fails_hands_out_nothing_more() -> None:
    here = world()
    agent = here.agent(0)
    announce = here.aggregator(here.plan()).start()[0].data
    here.stores[0].die = 1
    with pytest.raises(Killed):
        agent.receive(announce)
    with pytest.raises(PeerError, match="halted"):
        agent.receive(announce)


# Late and foreign messages


def test_a_late_copy_of_an_announcement_does_not_end_the_run_that_is_under_way() -> None:
    here = world()
    plan = here.plan()
    first, second = here.aggregator(plan).start()[0].data, here.aggregator(plan).start()[0].data
    agent = here.agent(0)
    agent.receive(second)
    with pytest.raises(PeerError, match="no newer"):
        agent.receive(first)
    assert agent.state is State.JOINED


def test_the_end_of_another_run_does_not_end_this_one() -> None:
    here = world()
    agent = here.agent(0)
    agent.receive(here.aggregator(here.plan()).start()[0].data)
    with pytest.raises(PeerError, match="another run"):
        agent.receive(encode(Abort(run=bytes(32), reason="")))
    assert agent.state is State.JOINED


def test_a_new_run_ends_one_of_which_no_end_was_heard() -> None:
    here = left_after(OTHER, messages=6)
    agent = here.agent(OTHER)
    assert agent.state is State.RUNNING
    (reply,) = agent.receive(here.aggregator(here.plan()).start()[0].data)
    assert isinstance(decoded(reply), Ready)
    assert len(agent.own.exposure.book) > 0


# The journal


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=60), max_size=5), st.integers(0, 10**6))
def test_a_journal_cut_anywhere_is_a_whole_number_of_entries(entries: list[bytes], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        disk = Disk(path)
        disk.replace(b"snapshot")
        shortest = path.stat().st_size
        for entry in entries:
            disk.append(entry)
        os.truncate(path, shortest + cut % (path.stat().st_size - shortest + 1))
        again = Disk(path)
        snapshot, found = again.read()
        assert snapshot == b"snapshot" and found == entries[: len(found)]
        again.append(b"one more")
        assert Disk(path).read() == (b"snapshot", [*found, b"one more"])


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_journal_altered_anywhere_is_refused(place: int, change: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        disk = Disk(path)
        disk.replace(b"snapshot")
        disk.append(b"entry")
        data = bytearray(path.read_bytes())
        data[place % len(data)] ^= change
        path.write_bytes(data)
        try:
            assert Disk(path).read() == (b"snapshot", [])  # a length that now points beyond the end: cut short
        except DataError:
            pass


def test_a_journal_is_private_and_a_failed_write_leaves_it_as_it_was(tmp_path: Path, monkeypatch) -> None:
    disk = Disk(tmp_path / "journal")
    disk.replace(b"one")
    assert disk.path.stat().st_mode & 0o077 == 0

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (disk.replace, disk.append):
        with pytest.raises(UsageError, match="No space left"):
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


@given(st.lists(st.integers(-(10**6), 10**6), unique=True, max_size=40))
def test_stretches_hold_any_rows_exactly(rows: list[int]) -> None:
    ascending = np.array(sorted(rows), dtype=np.int64)
    np.testing.assert_array_equal(stamps(stretches(ascending)), ascending)


def test_a_snapshot_holds_everything_an_agent_knows() -> None:
    rng = np.random.default_rng(5)
    exposure = Exposure()
    exposure.charge(np.arange(0, 90, 30), 0.5, roster=b"r", rank=0)
    exposure.charge(np.arange(30, 150, 30), -0.25, roster=b"r", rank=1)
    exposure.release(np.arange(0, 60, 30))
    series = rng.normal(size=(3, 2))
    series[0, 1] = np.nan
    totals = Totals(7, np.arange(0, 90, 30), series, rng.normal(size=2), rng.normal(size=(2, 2)))
    memory = Memory(exposure, quantum=0.05)
    memory.keep(b"r", (Basis(totals, rng.normal(size=2)), Basis()))
    memory.consent(Consented(run=b"run", roster=b"r", weight=0.03125, step_seconds=30, end=120))
    again = decode_snapshot(encode_snapshot(Snapshot(b"me", memory, b"seen", (b"reply",))))
    assert encode_snapshot(again) == encode_snapshot(Snapshot(b"me", memory, b"seen", (b"reply",)))
    np.testing.assert_array_equal(again.memory.exposure.totals, [1, 2, 2, 1, 1])
    np.testing.assert_allclose(again.memory.exposure.leverage, [0.25, 0.3125, 0.3125, 0.0625, 0.0625])
    np.testing.assert_array_equal(again.memory.basis(b"r")[0].totals.series, series)
    assert again.memory.fits == memory.fits and again.memory.fits[b"run"].weight == 0.03125


def test_the_oldest_basis_goes_first_and_the_account_never() -> None:
    memory = Memory()
    for roster in range(MOST_ROSTERS + 2):
        memory.exposure.charge(np.arange(3), 0.1, roster=bytes([roster]))
        memory.keep(bytes([roster]), (Basis(),))
    assert list(memory.bases) == [bytes([r]) for r in range(2, MOST_ROSTERS + 2)]
    assert len(memory.exposure.book) == MOST_ROSTERS + 2 and memory.exposure.totals.max() == MOST_ROSTERS + 2


def test_the_weights_of_the_last_fits_are_kept() -> None:
    memory = Memory()
    for run in range(MOST_FITS + 2):
        memory.consent(Consented(run=bytes([run]), roster=b"r", weight=0.5, step_seconds=1, end=0))
    assert list(memory.fits) == [bytes([run]) for run in range(2, MOST_FITS + 2)]


def test_nothing_of_an_agents_state_shows_in_its_repr() -> None:
    here = world()
    here.run(here.aggregator(here.plan()))
    texts = [repr(x) for x in (here.agent(0), here.agent(0).own, written(here.stores[0]), Basis())]
    assert all(len(text) < 80 and "[" not in text for text in texts)


# A simulation with a state folder


def test_a_fit_with_a_state_folder_keeps_identities_accounts_and_rows_released(tmp_path: Path) -> None:
    cluster = tiny(SEED, agents=AGENTS, rows=60)
    options = {"order": 1, "ridge": 20.0, "nonnegative": False, "rules": LOOSE, "dither": 0.0, "state": tmp_path}
    first, second = fit(cluster, **options), fit(cluster, **options)
    assert len(first.state) == 60 and len(second.state) == len(second.load) == 0
    assert second.cost.sums == 0 < first.cost.sums
    assert "released by an earlier fit" in second.notes[-1]
    np.testing.assert_allclose(second.model.alpha, first.model.alpha, atol=1e-6)
    np.testing.assert_allclose(second.weights, first.weights, atol=1e-5)
    json.dumps(second.as_dict())


def test_a_state_folder_belongs_to_the_agents_enrolled_in_it(tmp_path: Path) -> None:
    cluster = tiny(SEED, agents=5, rows=60)
    options = {"order": 1, "ridge": 20.0, "nonnegative": False, "rules": LOOSE, "state": tmp_path}
    fit(cluster, **options)
    with pytest.raises(UsageError, match="other agents"):
        fit(cluster.select(cluster.agents[:-1]), **options)
    with pytest.raises(UsageError, match="leave it out"):
        fit(cluster, "plain", state=tmp_path)


def test_a_fit_goes_on_after_one_that_was_broken_off(tmp_path: Path) -> None:
    cluster = tiny(SEED, agents=AGENTS, rows=60)
    options = {"order": 1, "ridge": 20.0, "nonnegative": False}
    plan, count = make_plan(cluster, "blind", **options), []

    def interrupt(*_: object) -> None:
        count.append(1)
        if len(count) == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(cluster, plan, LOOSE, tap=interrupt, state=tmp_path)
    again = simulate(cluster, plan, LOOSE, state=tmp_path)
    np.testing.assert_allclose(again.model.alpha, fit(cluster, "plain", **options).model.alpha, atol=3e-4)
