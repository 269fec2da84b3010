"""Cases that once went wrong, found by the matrix, the simulation or the fuzzers of this folder. Each stays."""

import asyncio
import contextlib
import io
import tracemalloc

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from atdm import read_cluster
from atdm.crypto.keys import SigningKey
from atdm.data import Cluster
from atdm.data.readings import Readings
from atdm.data.sources import Rows
from atdm.deploy.agent import describe
from atdm.deploy.enrolment import read_authority
from atdm.deploy.owner import exchange
from atdm.errors import DataError, PeerError, UsageError
from atdm.model.fitted import Model
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind import script
from atdm.protocol.blind.release import estimate_of
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
from atdm.protocol.session import announce_hash
from atdm.protocol.store import Entry, Memory, Snapshot, disclose, enclose
from atdm.transport import frames
from atdm.transport.disk import StateFolder
from atdm.transport.nats import Connection, NatsConfig
from atdm.use.series import read_observed
from tests.clusters import tiny
from tests.lab.printed import float_masks
from tests.protocol.drive import drive, parties
from tests.protocol.world import World
from tests.reliability.fuzz import written_tables
from tests.reliability.places import MEMBER, Place, place, recorded, run_id, stand

BIG = 10**9
DEEP = b"\x91" * 100_000  # lists in lists
QUESTION = place("running/question", protocol="paper")


def answers(agent, message) -> list[str]:
    return [type(decode_to_aggregator(reply, BIG)).__name__ for reply in agent.receive(encode(message))]


def test_a_question_that_is_none_leaves_the_context_as_it_was() -> None:
    agent = stand(QUESTION)
    with pytest.raises(PeerError, match="not part of paper"):
        agent.receive(encode(Ask(run=run_id(agent), step=0, what="your readings", values=b"")))
    data, replies = recorded("paper").down[MEMBER][QUESTION.messages]
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


def asked(what: str) -> tuple[Agent, int]:
    """A member of a run of `paper` just before it is asked this, and the step of the question."""
    for n, (data, _) in enumerate(recorded("paper").down[MEMBER]):
        message = decode_to_agent(data, BIG)
        if isinstance(message, Ask) and message.what == what:
            return stand(Place("running/question", "paper", MEMBER, n)), message.step
    raise LookupError(what)


@pytest.mark.parametrize("values, answer", [
    ([np.nan] * 20, "ignored"), ([np.inf] * 20, "ignored"), ([0.1] + [1e300] * 40, "Refuse"), ([0.1, 0.0], "Refuse"),
    ([4.5] + [3.0] * 9, "Refuse"), ([0.1] + [1.5] * 9, "Masked"),
])  # fmt: skip
def test_a_transform_of_impossible_rows_or_by_an_impossible_filter_is_refused(values, answer: str) -> None:
    agent, step = asked("transform")
    ask = Ask(run=run_id(agent), step=step, what="transform", values=np.array(values).tobytes())
    if answer == "ignored":
        with pytest.raises(PeerError, match="no finite numbers"):
            agent.receive(encode(ask))
    else:
        assert answers(agent, ask) == [answer]


def test_rows_that_an_agent_has_no_reading_of_are_not_answered() -> None:
    agent, step = asked("load")
    known = agent.own.readings
    agent.part.readings = Readings(known.time[1:], known.temperature[1:], known.load[1:])
    ask = Ask(run=run_id(agent), step=step, what="load", values=np.zeros(len(known.time)).tobytes())
    assert answers(agent, ask) == ["Refuse"]


def test_a_weight_that_no_state_has_is_not_answered() -> None:
    agent, step = asked("weights")
    ask = Ask(run=run_id(agent), step=step, what="weights", values=np.array([0.0] + [1e6] * 4).tobytes())
    assert answers(agent, ask) == ["Refuse"]


NONSENSE = {  # what an agent makes of its messages, and how runs of moments and paper end then
    "a seed cut": (Consent, lambda m: {"seed": m.seed[:-1]}, AggregatorState.ABORTED, AggregatorState.ABORTED),
    "words cut": (Masked, lambda m: {"words": m.words[:-8]}, AggregatorState.RUNNING, AggregatorState.RUNNING),
    "half a number": (Answer, lambda m: {"values": m.values + b"x"}, AggregatorState.DONE, AggregatorState.ABORTED),
    "two numbers": (Answer, lambda m: {"values": m.values + m.values}, AggregatorState.DONE, AggregatorState.ABORTED),
    "NaN": (Answer, lambda m: {"values": np.array([np.nan]).tobytes()}, AggregatorState.DONE, AggregatorState.ABORTED),
    "1e300": (Answer, lambda m: {"values": np.array([1e300]).tobytes()}, AggregatorState.DONE, AggregatorState.ABORTED),
}


@pytest.mark.parametrize("protocol", ["moments", "paper"])
@pytest.mark.parametrize("name", NONSENSE)
def test_an_agent_that_answers_nonsense_ends_its_own_run_at_most(protocol: str, name: str) -> None:
    """The aggregator ignores it and waits, or aborts; it does not crash. `moments` asks for no Answer."""
    kind, fields, *endings = NONSENSE[name]
    aggregator, agents = parties(protocol=protocol, seed=5)

    def to_aggregator(i: int, reply: bytes) -> list[bytes]:
        message = decode_to_aggregator(reply, BIG)
        wrong = i == 1 and isinstance(message, kind)
        return [encode(msgspec.structs.replace(message, **fields(message))) if wrong else reply]

    drive(aggregator, agents, to_aggregator=to_aggregator)
    assert aggregator.state is endings[protocol == "paper"]
    assert aggregator.state is AggregatorState.DONE or aggregator.desk.outcome is None


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
        stolen = seen[0].days, seen[0].nonce, seen[0].exchange
        signature = identity.sign("ready", announce_hash(agents[1]._announce), *stolen)
        return [encode(msgspec.structs.replace(seen[0], signature=signature))]

    drive(aggregator, agents, to_aggregator=to_aggregator)
    assert aggregator.state is AggregatorState.ABORTED and "the same key" in aggregator.reasons[0]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -1.0, 99.0, 0.5])
@pytest.mark.parametrize("everybody", [False, True])
def test_a_release_that_makes_no_sense_ends_the_run(monkeypatch, everybody: bool, value: float) -> None:
    """A leader whose numbers are none, and a company that vouches for them all the same."""
    told = script.numbers_of

    def nonsense(estimate):
        return np.append(told(estimate)[:-2], [value, value])  # iterations and status

    monkeypatch.setattr(script, "numbers_of", nonsense)
    if everybody:
        monkeypatch.setattr(script, "verify", lambda sealed, own, span, inputs, plan, gap, reached, agents:
                            estimate_of(span, inputs, own, gap, reached))  # fmt: skip
    aggregator, agents = parties(seed=2)
    drive(aggregator, agents)
    taken = everybody and value == 0.5  # a number, if an odd one: the company's word is taken for it
    assert aggregator.state is (AggregatorState.DONE if taken else AggregatorState.ABORTED)


def test_words_of_another_step_leave_a_float_total_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's arithmetic: a late message is ignored, not added."""
    float_masks(monkeypatch)
    results = []
    for late in (False, True):
        aggregator, agents = parties(protocol="paper", seed=3)
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


def test_no_agent_takes_a_plan_with_masks_of_another_kind() -> None:
    world = World(tiny(1, agents=4, rows=60), 1)
    plan = msgspec.structs.replace(world.plan(protocol="paper"), masks="float")
    [(_, announcement)] = world.aggregator(plan).start()
    with pytest.raises(PeerError, match="does not decode .*masks"):
        world.agent(0).receive(announcement)


IMPOSSIBLE = [
    ("length", 10**15, "4194304"), ("length", 2**63 - 1, "4194304"), ("length", 10**9, "4194304"),
    ("start", 2**53, "calendar"), ("start", 2**64 - 1, "calendar"), ("start", -(2**63), "calendar"),
    ("step_seconds", 2**62, "calendar"), ("step_seconds", 2**64 - 1, "calendar"), ("step_seconds", 10**9, "days"),
    ("version", 1, "version"),
]  # fmt: skip
NO_MODEL = [
    ("length", 11, "parameters"), ("period", 54, "parameters"), ("period", 10**12, "parameters"),
    ("period", 2**64 - 1, "parameters"), ("order", 14, "parameters"), ("order", 10**6, "parameters"),
    ("order", -3, "order"),
]  # fmt: skip


@pytest.mark.parametrize("protocol, field, value, why", [
    *((protocol, *case) for protocol in ("blind", "moments", "collect") for case in IMPOSSIBLE),
    *((protocol, *case) for protocol in ("blind", "moments") for case in NO_MODEL),
])  # fmt: skip
def test_a_plan_that_no_window_can_have_is_refused_before_anything_is_allocated(protocol, field, value, why) -> None:
    """By every agent, at the announcement. Numbers of 2⁶³ and more fit a message and no array; a step of 2⁶² seconds
    comes back to the same stamp every fourth row. Days beyond number are not answered one by one."""
    world = World(tiny(1, agents=4, rows=60), 1)
    plan = world.collect() if protocol == "collect" else world.plan(protocol=protocol)
    [(_, announcement)] = world.aggregator(msgspec.structs.replace(plan, **{field: value})).start()
    for i in range(4):
        [reply] = world.agent(i).receive(announcement)
        message = decode_to_aggregator(reply, BIG)
        assert isinstance(message, Refuse) or not any(message.days) and len(message.days) < 5000
        assert why in message.reason


@pytest.mark.parametrize("timezone", ["Nowhere/Else", "../etc", ""])
@pytest.mark.parametrize("protocol", ["blind", "moments", "paper"])
def test_a_plan_on_no_clock_is_refused_when_it_is_announced(protocol: str, timezone: str) -> None:
    world = World(tiny(1, agents=4, rows=60), 1)
    aggregator = world.aggregator(msgspec.structs.replace(world.plan(protocol=protocol), timezone=timezone))
    assert world.run(aggregator) is None and "unknown time zone" in aggregator.reasons[0]
    assert all("unknown time zone" in reason for reason in aggregator.out().values())


@pytest.mark.parametrize("field, value", [
    ("train", 1e-9), ("ridge", 5e-324), ("solver_tolerance", 1e-300), ("tolerance", 1e-300),
])  # fmt: skip
@pytest.mark.parametrize("protocol", ["blind", "moments", "paper"])
def test_a_plan_with_numbers_that_are_hardly_any_ends(protocol: str, field: str, value: float) -> None:
    world = World(tiny(1, agents=4, rows=60), 1)
    aggregator = world.aggregator(msgspec.structs.replace(world.plan(protocol=protocol), **{field: value}))
    try:
        world.run(aggregator)
    except UsageError as error:
        assert protocol != "blind" and "rows" in str(error)
    assert aggregator.state in (AggregatorState.ABORTED, AggregatorState.DONE) or field == "train"


def test_totals_that_determine_nothing_end_the_run() -> None:
    """Every sensor at the reference temperature."""
    c = tiny(1, agents=4, rows=60)
    still = Cluster.from_frames(0 * c.temperature + 20.0, c.load, c.outdoor, c.solar, owner=c.owner)
    world = World(still, 1)
    aggregator = world.aggregator(world.plan())
    assert world.run(aggregator) is None and "do not determine the model" in aggregator.reasons[0]


@pytest.mark.parametrize("column", ["time", "temperature", "load", "filled", "shown"])
def test_an_account_cut_short_is_a_data_error(column: str) -> None:
    """Columns of the stamps that left."""
    agent = stand(place("done"))
    schema, body = msgspec.msgpack.decode(enclose(Snapshot(agent._identity.public, agent.own.memory)))
    account = body["memory"]["account"]
    for cut in (1, 8):
        account[column] = account[column][:-cut]
        with pytest.raises(DataError):
            disclose(msgspec.msgpack.encode([schema, body]), Snapshot)


def test_an_account_with_a_part_missing_or_misnamed_is_a_data_error() -> None:
    """It would be an empty one, and everything could be asked again."""
    agent = stand(place("done"))
    whole = enclose(Snapshot(agent._identity.public, agent.own.memory))
    _, body = msgspec.msgpack.decode(whole)
    for part in (body, body["memory"], body["memory"]["account"]):
        for name in part:
            renamed = whole.replace(msgspec.msgpack.encode(name), msgspec.msgpack.encode(name[:-1] + "_"))
            assert renamed != whole
            with pytest.raises(DataError):
                disclose(renamed, Snapshot)


def test_a_number_that_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(TypeError, match="float64"):
        enclose(Snapshot(b"", Memory(quantum=np.float64(0.5))))  # a float to Python, bytes to the format
    assert type(Rows([], [], [], quantum=np.float64(0.5)).quantum) is float


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
    b'{"schema": "atdm-model/1", "step_seconds": 3600, "timezone": "UTC", "alpha": [1' + b"0" * 400 + b'], "beta": '
    b'[1, 1], "gamma": [1, 1], "theta": [1, 1], "occupancy": [1]}',
])  # fmt: skip
def test_a_file_that_is_no_model_is_a_data_error(tmp_path, content: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(DataError):
        Model.load(path)


@pytest.mark.parametrize("data", [
    *map(msgspec.msgpack.encode, [{"type": "Announce"}, {"type": "Announce", "plan": 3}, {"type": "Abort"},
                                  {"type": ["x"]}, {"type": "Ask", "what": {}}, {}, 3, [1]]),
    DEEP,
])  # fmt: skip
def test_an_agent_can_say_what_it_was_sent_whatever_it_was(data: bytes) -> None:
    assert describe(data).endswith(f"{len(data)} bytes")


@pytest.mark.parametrize(("opening", "name"), [
    (b"", "something unreadable"), (b"\x82\xa4type\xa4Keys\xa4days", "Keys"), (b"\x81\xa4type", "something unreadable"),
])  # fmt: skip
def test_saying_what_a_message_was_takes_no_more_memory_than_it(opening: bytes, name: str) -> None:
    """Half a million empty maps, which an agent refuses by their size: decoded, they are 64 times that."""
    data = opening + b"\xdd" + (count := 500_000).to_bytes(4, "big") + b"\x80" * count
    tracemalloc.start()
    try:
        told, kept = describe(data), exchange(data, None, "too long")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told == f"{name}, {len(data)} bytes" and (kept.message, kept.received) == (name, len(data))
    assert peak < len(data)


def test_a_window_beyond_the_calendar_can_be_described() -> None:
    announce = msgspec.to_builtins(decode_to_agent(recorded("blind").down[MEMBER][0][0], BIG), builtin_types=(bytes,))
    announce["plan"]["start"] = 2**62
    assert "bytes" in describe(msgspec.msgpack.encode(announce))


def test_words_of_another_party_are_shown_as_one_printable_line() -> None:
    """A reason with line breaks or terminal codes writes no lines of its own into a log."""
    aggregator, agents = parties(seed=1)
    aggregator.receive(1, encode(Refuse(reason="zone: no\natdm: all went well\x1b[2J")))
    said = aggregator.out()[agents[1].name]
    assert said.isprintable() and "all went well" in said
    assert describe(encode(Refuse(reason="a\nb"))).isprintable()
    with pytest.raises(PeerError) as caught:
        decode_to_agent(msgspec.msgpack.encode({"type": "Finis\nhed"}), BIG)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [b'{"authority": "AAAA", "ca": "\xb8"}', b'{"\xb8": 1}'])
def test_a_public_file_in_another_encoding_is_a_data_error(tmp_path, content: bytes) -> None:
    path = tmp_path / "authority.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="get it again"):
        read_authority(path)


def test_a_roster_in_another_encoding_is_a_data_error(tmp_path) -> None:
    with StateFolder(tmp_path, lambda size: bytes(size)) as folder:
        roster = folder.roster(["Küche"])
        content = msgspec.msgpack.encode(roster)
        (tmp_path / "roster").write_bytes(content.replace("Küche".encode(), "Küche".encode("latin-1") + b"e"))
        with pytest.raises(DataError, match="cannot be read as a roster"):
            folder.roster(["Küche"])


NO_TEXT = b"\xa2\xff\xfe"  # the format calls these two bytes UTF-8
DECODERS = {
    "message to an agent": (lambda data: decode_to_agent(data, BIG), [b"\x81\xa4type" + NO_TEXT, b"\x81\xa1x" + DEEP]),
    "message to the aggregator": (
        lambda data: decode_to_aggregator(data, BIG), [b"\x81\xa4type" + NO_TEXT, b"\x81\xa1x" + DEEP]),
    "frame": (frames.decode, [b"\x91" + NO_TEXT]),
    "snapshot": (lambda data: disclose(data, Snapshot), [b"\x92\x04\x81" + NO_TEXT + b"\x01", b"\x92\x04" + DEEP]),
    "entry": (lambda data: disclose(data, Entry), [b"\x92\x04\x81" + NO_TEXT + b"\x01", b"\x92\x04" + DEEP]),
}  # fmt: skip


@pytest.mark.parametrize("name", DECODERS)
def test_texts_that_are_none_and_nesting_without_end_are_our_own_errors(name: str) -> None:
    decode, inputs = DECODERS[name]
    for data in inputs:
        with pytest.raises((PeerError, DataError)):
            decode(data)


def test_a_ragged_row_that_is_not_text_is_refused_without_a_traceback(tmp_path, capfd) -> None:
    files = written_tables(tiny(0, agents=3, rows=24))
    rows = files["zones.csv"].split(b"\n")
    rows[5] += b",\xac"
    (tmp_path / "zones.csv").write_bytes(b"\n".join(rows))
    (tmp_path / "weather.csv").write_bytes(files["weather.csv"])
    with pytest.raises(DataError, match="UTF-8"):
        read_cluster(tmp_path / "zones.csv", tmp_path / "weather.csv")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("count", ["2.5", "-1", "inf", "1e300"])
def test_observed_rows_of_no_count_of_agents_are_refused(tmp_path, count: str) -> None:
    (tmp_path / "observed.csv").write_bytes(
        written_tables(tiny(0, agents=3, rows=24))["observed.csv"].replace(b",3\n", f",{count}\n".encode(), 1)
    )
    with pytest.raises(DataError, match="agents"):
        read_observed(tmp_path / "observed.csv")


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

        monkeypatch.setattr(Connection, "_open", opened)
        task = asyncio.create_task(
            Connection(NatsConfig(servers=("tls://x:1",), ca="", nkey=b""), ["a"], nothing, nothing).run()
        )
        await client.flushing.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=3)
        client.is_connected = False
        assert done and task.cancelled()

    asyncio.run(stop_while_flushing())
