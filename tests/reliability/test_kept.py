"""Cases that once went wrong, found by the matrix, the simulation or the fuzzers of this folder. Each stays."""

import asyncio
import contextlib
import io

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from atdm import read_cluster
from atdm.crypto.keys import SigningKey
from atdm.deploy import describe
from atdm.errors import DataError, PeerError, UsageError
from atdm.model import Model
from atdm.protocol.aggregator import State
from atdm.protocol.messages import (
    Answer,
    Ask,
    Consent,
    Masked,
    Ready,
    Refuse,
    decode_to_agent,
    decode_to_aggregator,
    encode,
)
from atdm.protocol.store import Snapshot, decode_snapshot, encode_snapshot
from atdm.transport.enrolment import read_authority
from atdm.transport.nats import Door, Line
from tests.clusters import tiny
from tests.protocol.drive import drive, parties
from tests.protocol.world import World
from tests.reliability.fuzz import written_tables
from tests.reliability.places import MEMBER, Place, recorded, run_id, stand

BIG = 10**9
QUESTION = Place("running/question", "paper", MEMBER, 2)


def answers(agent, message) -> list[str]:
    return [type(decode_to_aggregator(reply, BIG)).__name__ for reply in agent.receive(encode(message))]


def test_a_question_that_is_none_leaves_the_context_as_it_was() -> None:
    agent = stand(QUESTION)
    with pytest.raises(PeerError, match="not part of paper"):
        agent.receive(encode(Ask(run=run_id(agent), step=0, what="your readings", values=b"")))
    data, replies = recorded("paper").down[MEMBER][2]
    assert agent.receive(data) == replies


@pytest.mark.parametrize("what, values", [
    ("rows", b"abc"), ("load", b""), ("load", bytes(8 * 7)), ("weights", bytes(8 * 5)), ("weights", b""),
    ("transform", bytes(8 * 5)), ("weights", np.full(5, np.nan).tobytes()), ("weights", np.full(5, np.inf).tobytes()),
])  # fmt: skip
def test_a_question_in_the_wrong_order_or_with_other_numbers_is_ignored_or_refused(what: str, values: bytes) -> None:
    agent = stand(QUESTION)
    try:
        found = answers(agent, Ask(run=run_id(agent), step=0, what=what, values=values))
    except PeerError:
        return
    assert found in (["Refuse"], ["Masked"])


@pytest.mark.parametrize("values", [[np.nan] * 20, [np.inf] * 20, [0.1] + [1e300] * 40, [0.1] + [1.5] * 9])
def test_a_transform_of_impossible_rows_is_refused(values: list[float]) -> None:
    history = recorded("paper").down[MEMBER]
    for n, (data, _) in enumerate(history):  # noqa: B007
        message = decode_to_agent(data, BIG)
        if isinstance(message, Ask) and message.what == "transform":
            break
    agent = stand(Place("running/question", "paper", MEMBER, n))
    ask = Ask(run=run_id(agent), step=message.step, what="transform", values=np.array(values).tobytes())
    try:
        assert answers(agent, ask) in (["Refuse"], ["Masked"])
    except PeerError:
        pass


@pytest.mark.parametrize("protocol", ["moments", "paper"])
@pytest.mark.parametrize("change", [
    lambda m: msgspec.structs.replace(m, seed=m.seed[:-1]) if isinstance(m, Consent) else m,
    lambda m: msgspec.structs.replace(m, values=m.values + b"x") if isinstance(m, Answer) else m,
    lambda m: msgspec.structs.replace(m, values=np.array([np.nan]).tobytes()) if isinstance(m, Answer) else m,
    lambda m: msgspec.structs.replace(m, values=np.array([1e300]).tobytes()) if isinstance(m, Answer) else m,
    lambda m: msgspec.structs.replace(m, words=m.words[:-3]) if isinstance(m, Masked) else m,
], ids=["short seed", "half a number", "NaN", "1e300", "words cut"])  # fmt: skip
def test_an_agent_that_answers_nonsense_ends_its_own_run_at_most(protocol: str, change) -> None:
    """The aggregator ignores it or aborts; it does not crash."""
    aggregator, agents = parties(protocol=protocol, seed=5)

    def to_aggregator(i: int, reply: bytes) -> list[bytes]:
        return [encode(change(decode_to_aggregator(reply, BIG)))] if i == 1 else [reply]

    drive(aggregator, agents, to_aggregator=to_aggregator)
    touched = protocol == "paper" or change(Consent(run=b"", step=0, seed=b"12")).seed == b"1"
    if touched or change(Masked(run=b"", step=0, phase="", words=b"1234")).words == b"1":
        assert aggregator.state is not State.DONE or aggregator.desk.outcome is not None
    if aggregator.state is State.DONE:
        assert np.isfinite(aggregator.desk.outcome.estimate.coefficients.alpha).all()


def test_two_agents_with_one_key_end_the_run_at_once() -> None:
    """The second agent signs the first one's key and nonce as its own: no run comes of it, and nobody waits for it."""
    aggregator, agents = parties(seed=1)
    seen: dict[int, Ready] = {}

    def to_aggregator(i: int, reply: bytes) -> list[bytes]:
        message = decode_to_aggregator(reply, BIG)
        if not isinstance(message, Ready):
            return [reply]
        seen[i] = message
        if i != 1:
            return [reply]
        identity: SigningKey = agents[1]._identity
        signature = identity.sign("ready", encode(agents[1]._announce), seen[0].nonce, seen[0].exchange)
        return [encode(Ready(nonce=seen[0].nonce, exchange=seen[0].exchange, signature=signature))]

    drive(aggregator, agents, to_aggregator=to_aggregator)
    assert aggregator.state is State.ABORTED and "the same key" in aggregator.reasons[0]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -1.0, 99.0])
def test_a_release_that_makes_no_sense_ends_the_run(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    from atdm.protocol import blind

    packed = blind.pack_release

    def nonsense(*args):
        values = packed(*args)
        values[9 + 4 + 12 - 2 + 3 : 9 + 4 + 12 - 2 + 5] = value  # iterations and status, order 1 and four steps a day
        return values

    monkeypatch.setattr(blind, "pack_release", nonsense)
    aggregator, agents = parties(seed=2)
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED


def test_words_of_another_step_leave_a_float_total_as_it_was() -> None:
    """masks='float' (the paper's arithmetic): a late message is ignored, not added."""
    results = []
    for late in (False, True):
        aggregator, agents = parties(protocol="paper", seed=3, masks="float")
        kept: list[bytes] = []

        def to_aggregator(i: int, reply: bytes, late=late, kept=kept) -> list[bytes]:
            message = decode_to_aggregator(reply, BIG)
            if i == 1 and isinstance(message, Masked) and message.phase == "state":
                kept.append(reply)
                return [kept[-2], reply] if late and len(kept) > 1 else [reply]
            return [reply]

        drive(aggregator, agents, to_aggregator=to_aggregator)
        results.append(aggregator.desk.outcome.estimate.coefficients.alpha)
    assert np.array_equal(*results)


@pytest.mark.parametrize("field, value", [
    ("length", 10**15), ("length", 2**63 - 1), ("length", 10**9), ("period", 10**12), ("start", 2**63 - 1),
    ("start", -(2**63)), ("start", 2**62), ("step_seconds", 2**62), ("timezone", "Nowhere/Else"),
    ("timezone", "../etc"), ("timezone", ""), ("order", 10**6), ("order", -3), ("train", 1e-9), ("ridge", 5e-324),
    ("solver_tolerance", 1e-300), ("tolerance", 1e-300), ("version", 2),
])  # fmt: skip
@pytest.mark.parametrize("protocol", ["blind", "moments", "paper"])
def test_a_plan_that_no_window_can_have_is_refused_before_anything_is_allocated(protocol, field, value) -> None:
    world = World(tiny(1, agents=4, rows=60), 1)
    plan = world.plan(protocol=protocol)
    try:
        plan = msgspec.structs.replace(plan, **{field: value})
        aggregator = world.aggregator(plan)
        world.run(aggregator)
    except UsageError:  # whoever announced the plan meets its fault alone, if its agents did not refuse it before
        assert protocol != "blind"
        return
    assert aggregator.state in (State.ABORTED, State.DONE)
    if aggregator.state is State.DONE:
        assert field in ("train", "ridge", "solver_tolerance", "tolerance")


@pytest.mark.parametrize("field", ["time", "series", "ones", "gram", "directions"])
def test_a_stored_basis_cut_short_is_a_data_error(field: str) -> None:
    agent = stand(Place("done", "blind", MEMBER, len(recorded("blind").down[MEMBER])))
    data = encode_snapshot(Snapshot(agent._identity.public, agent.own.memory))
    schema, body = msgspec.msgpack.decode(data)
    body["bases"][0][1][0][field] = body["bases"][0][1][0][field][:-3]
    with pytest.raises(DataError):
        decode_snapshot(msgspec.msgpack.encode([schema, body]))


@pytest.mark.parametrize("content", [
    b"[" * 100_000, b'{"schema": "atdm-model/1", "step_seconds": 1e300}', b"\xff\xfe", b"null", b"3",
    b'{"schema": "atdm-model/1", "step_seconds": 1e400, "timezone": "UTC", "alpha": [1], "beta": [1, 1], "gamma": '
    b'[1, 1], "theta": [1, 1], "occupancy": [1]}',
    b'{"schema": "atdm-model/1", "step_seconds": 1e300, "timezone": "UTC", "alpha": [1], "beta": [1, 1], "gamma": '
    b'[1, 1], "theta": [1, 1], "occupancy": [1]}',
    b'{"schema": "atdm-model/1", "step_seconds": 3600, "timezone": "UTC", "alpha": 1, "beta": [1, 1], "gamma": '
    b'[1, 1], "theta": [1, 1], "occupancy": [1]}',
    b'{"schema": "atdm-model/1", "step_seconds": -5, "timezone": "UTC", "alpha": [1], "beta": [1, 1], "gamma": '
    b'[1, 1], "theta": [1, 1], "occupancy": [1]}',
    b'{"schema": "atdm-model/1", "step_seconds": 3600, "timezone": "Nowhere", "alpha": [1], "beta": [1, 1], "gamma": '
    b'[1, 1], "theta": [1, 1], "occupancy": [1]}',
])  # fmt: skip
def test_a_file_that_is_no_model_is_a_data_error(tmp_path, content: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(DataError):
        Model.load(path)


@pytest.mark.parametrize("message", [
    {"type": "Announce"}, {"type": "Announce", "plan": 3}, {"type": "Abort"}, {"type": ["x"]},
    {"type": "Ask", "what": {}},
])  # fmt: skip
def test_an_agent_can_say_what_it_was_sent_whatever_it_was(message: dict) -> None:
    assert "bytes" in describe(msgspec.msgpack.encode(message))


def test_a_window_beyond_the_calendar_can_be_described() -> None:
    announce = msgspec.to_builtins(decode_to_agent(recorded("blind").down[MEMBER][0][0], BIG), builtin_types=(bytes,))
    announce["plan"]["start"] = 2**62
    assert "bytes" in describe(msgspec.msgpack.encode(announce))


def test_words_of_another_party_are_shown_as_one_printable_line() -> None:
    """A reason with line breaks or terminal codes writes no lines of its own into a log."""
    aggregator, _ = parties(seed=1)
    aggregator.receive(1, encode(Refuse(reason="zone: no\natdm: all went well\x1b[2J")))
    assert aggregator.reasons[0].isprintable() and "all went well" in aggregator.reasons[0]
    assert describe(encode(Refuse(reason="a\nb"))).isprintable()
    with pytest.raises(PeerError) as caught:
        decode_to_agent(msgspec.msgpack.encode({"type": "Finis\nhed"}), BIG)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [b'{"a": "\xee\xff"}', b"[" * 100_000, b'{"authority": "\xc3"}'])
def test_a_public_file_in_another_encoding_is_a_data_error(tmp_path, content: bytes) -> None:
    path = tmp_path / "authority.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="get it again"):
        read_authority(path)


def test_a_ragged_row_that_is_not_text_is_refused_without_a_traceback(tmp_path, capfd) -> None:
    files = written_tables(tiny(0, agents=3, rows=24))
    rows = files["zones.csv"].split(b"\n")
    rows[5] += b",\xac"
    (tmp_path / "zones.csv").write_bytes(b"\n".join(rows))
    (tmp_path / "weather.csv").write_bytes(files["weather.csv"])
    with pytest.raises(DataError, match="UTF-8"):
        read_cluster(tmp_path / "zones.csv", tmp_path / "weather.csv")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("column", ["time", "agent"])
def test_a_parquet_text_that_is_no_text_is_refused(tmp_path, column: str) -> None:
    """The format calls it UTF-8, its bytes are not."""
    files = written_tables(tiny(0, agents=3, rows=24))
    table = pq.read_table(io.BytesIO(files["zones.parquet"]))
    texts = [value.encode() for value in table.column(column).to_pylist()]
    texts[4] = b"\xba" + texts[4][1:]
    wrong = pa.array(texts, pa.binary()).cast(pa.string(), safe=False)
    (tmp_path / "weather.parquet").write_bytes(files["weather.parquet"])
    pq.write_table(table.set_column(table.schema.get_field_index(column), column, wrong), tmp_path / "zones.parquet")
    with pytest.raises(DataError, match="not a readable parquet file"):
        read_cluster(tmp_path / "zones.parquet", tmp_path / "weather.parquet")


def test_a_connection_that_is_told_to_stop_while_the_client_flushes_does_stop(monkeypatch) -> None:
    """The client library swallows a cancellation that meets it there; found by agents that leave while they connect."""

    class Client:
        is_connected, max_payload = True, 1 << 20

        def __init__(self) -> None:
            self.flushing = asyncio.Event()

        async def subscribe(self, *_args, **_options) -> None: ...

        async def close(self) -> None: ...

        async def flush(self, _timeout: float) -> None:
            self.flushing.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    async def stop_while_flushing() -> None:
        client = Client()

        async def opened(_self, _closed):
            return client

        async def nothing(*_args) -> None: ...

        monkeypatch.setattr(Line, "_open", opened)
        task = asyncio.create_task(Line(Door(servers=("tls://x:1",), ca="", nkey=b""), ["a"], nothing, nothing).run())
        await client.flushing.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=3)
        client.is_connected = False
        assert done and task.cancelled()

    asyncio.run(stop_while_flushing())
