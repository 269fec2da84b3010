"""The rows of rows.py that no other test shows, and that every row has its tests."""

import ast
import tracemalloc
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

import atdm
from atdm.crypto import ring
from atdm.crypto.keys import ExchangeKey
from atdm.crypto.sums import Layout, fixed
from atdm.errors import PeerError, UsageError
from atdm.options import fit_options
from atdm.protocol import agent as agents_module
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.messages import (
    OVERHEAD,
    Announce,
    Ask,
    Finished,
    Keys,
    Ready,
    Receipts,
    Secret,
    decode_to_agent,
    decode_to_aggregator,
    encode,
)
from atdm.protocol.plan import BLIND_BUDGET, Collect, Plan, check_plan
from atdm.protocol.roster import Roster
from atdm.protocol.rules import Rules
from atdm.protocol.session import Session, announce_hash, begin_run
from atdm.run import make_plan
from tests.clusters import tiny
from tests.protocol.drive import drive, parties
from tests.reliability.places import MEMBER, announcement, place, recorded, run_id, stand
from tests.reliability.rows import SECTIONS, table

TESTS = Path(__file__).parent.parent
SRC = Path(atdm.__file__).parent
BIG = 10**9
ROWS = [(section, row) for section, rows in SECTIONS.items() for row in rows]


@lru_cache
def functions(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("section, row", ROWS, ids=lambda value: value.what[:40] if hasattr(value, "what") else value)
def test_every_row_has_a_test(section, row) -> None:
    assert row.tests
    for test in row.tests:
        path, name = test.split("::")
        assert name in functions(path), test


def test_the_page_has_every_row() -> None:
    page = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert table().strip() in page, "run python -m tests.reliability.rows and put the table into docs/reliability.md"


# Messages


def test_what_is_not_exactly_one_message_is_ignored() -> None:
    good = encode(Finished(run=bytes(32)))
    tree = msgspec.msgpack.decode(good)
    bad = {
        "trailing byte": good + b"\x00",
        "two messages": good + good,
        "nothing": b"",
        "unknown field": msgspec.msgpack.encode({**tree, "more": 1}),
        "unknown type": msgspec.msgpack.encode({**tree, "type": "Steal"}),
        "field missing": msgspec.msgpack.encode({"type": "Finished"}),
        "field of another type": msgspec.msgpack.encode({**tree, "run": 5}),
        "other order of fields": msgspec.msgpack.encode(dict(reversed(tree.items()))),
        "longer form of a length": good.replace(b"\xc4\x20", b"\xc5\x00\x20"),
        "a message of an agent": encode(Ready(days=b"", reason="", nonce=b"", exchange=b"", signature=b"")),
        "JSON": msgspec.json.encode(Finished(run=b"")),
    }
    assert decode_to_agent(good, 0) == Finished(run=bytes(32))
    for name, data in bad.items():
        assert data != good, name
        with pytest.raises(PeerError):
            decode_to_agent(data, BIG)


def test_a_plan_of_another_version_is_refused() -> None:
    plan = announcement("blind").plan
    check_plan(plan)
    with pytest.raises(UsageError, match="version"):
        check_plan(msgspec.structs.replace(plan, version=1))


@pytest.mark.parametrize("step, length", [(-(2**63), 2**40), (0, 5), (1800, -(2**40)), (2**63 - 1, 2**63 - 1)])
def test_an_announcement_of_no_days_is_answered_and_ends_nobody(step: int, length: int) -> None:
    agent = stand(place("waiting"))
    plan = Collect(step_seconds=step, start=0, length=length)
    message = encode(Announce(plan=plan, roster=agent.roster.hash(), attempt=2**50))
    try:
        [reply] = agent.receive(message)
    except PeerError:
        return  # ignored
    assert msgspec.msgpack.decode(reply)["type"] in ("Ready", "Refuse")  # out on the one day, or refused


@pytest.mark.parametrize("kind", [0xC6, 0xDD, 0xDF, 0xDB], ids=["bytes", "list", "map", "text"])
def test_a_huge_declared_size_allocates_nothing(kind: int) -> None:
    head = bytes([kind]) + b"\xff" * 4
    tracemalloc.start()
    try:
        for data in (head, b"\x81\xa4type" + head, b"\x82\xa4type\xa8Finished\xa3run" + head + bytes(100)):
            for decode in (decode_to_agent, decode_to_aggregator):
                with pytest.raises(PeerError):
                    decode(data, 0)
        for decode in (decode_to_agent, decode_to_aggregator):
            with pytest.raises(PeerError, match="at most"):
                decode(bytes(OVERHEAD + 1), 0)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_low_order_key_ends_the_run() -> None:
    """An agent shows X25519's point of order one as its key: the shared secret would be known to everybody."""
    aggregator, agents = parties(seed=1)

    def to_aggregator(i: int, reply: bytes) -> list[bytes]:
        message = decode_to_aggregator(reply, BIG)
        if i != 1 or not isinstance(message, Ready):
            return [reply]
        fields = (announce_hash(agents[1]._announce), message.days, message.nonce, bytes(32))
        signature = agents[1]._identity.sign("ready", *fields)
        return [encode(msgspec.structs.replace(message, exchange=bytes(32), signature=signature))]

    drive(aggregator, agents, to_aggregator=to_aggregator)
    assert aggregator.state is AggregatorState.ABORTED and "low order" in aggregator.reasons[0]


def test_an_agent_whose_own_key_is_not_in_the_run_stops() -> None:
    keys = next(m for m in map(read, recorded("blind").down[MEMBER]) if isinstance(m, Keys))
    run = begin_run(announcement("blind"), stand(place("joined")).roster, keys)
    with pytest.raises(PeerError, match="own key"):
        Session(run, MEMBER, ExchangeKey(b"k" * 32), bytes(32))


def read(delivered: tuple[bytes, list[bytes]]):
    return decode_to_agent(delivered[0], BIG)


@pytest.mark.parametrize("how", ["flipped", "cut", "another agent's", "another run's", "empty"])
def test_a_box_that_was_altered_or_is_anothers_ends_the_run(how: str) -> None:
    boxes = {who: next(m for m in map(read, recorded("blind").down[who]) if isinstance(m, Secret)) for who in (1, 2)}
    agent, box = stand(place("running/secret")), boxes[1].box
    wrong = {"flipped": box[:-1] + bytes([box[-1] ^ 1]), "cut": box[:-1], "another agent's": boxes[2].box,
             "another run's": bytes(48), "empty": b""}[how]  # fmt: skip
    (reply,) = agent.receive(encode(Secret(run=run_id(agent), box=wrong)))
    assert b"does not open" in reply and agent.state is agents_module.AgentState.ABORTED


@pytest.mark.parametrize("how", ["flipped", "cut", "longer", "empty"])
def test_a_seal_that_was_altered_ends_the_run(how: str) -> None:
    """Before this agent has sent its part of the release."""
    agent, history = stand(place("running/seal")), recorded("blind").down[MEMBER]
    seal = read(history[place("running/seal").messages])
    wrong = {"flipped": seal.box[:-1] + bytes([seal.box[-1] ^ 1]), "cut": seal.box[:-1], "longer": seal.box + b"x",
             "empty": b""}[how]  # fmt: skip
    (reply,) = agent.receive(encode(msgspec.structs.replace(seal, box=wrong)))
    assert b"does not open" in reply and agent.state is agents_module.AgentState.ABORTED


def test_keys_that_their_owner_did_not_sign_are_ignored() -> None:
    aggregator, agents = parties(seed=1)
    replies = [agent.receive(aggregator.start()[0].data)[0] for agent in agents]
    for sender, reply in ((1, replies[0]), (0, replies[1])):  # somebody else's, under this name
        with pytest.raises(PeerError, match="does not verify"):
            aggregator.receive(sender, reply)
    for change in ("days", "nonce", "exchange", "signature"):
        message = decode_to_aggregator(replies[0], BIG)
        value = getattr(message, change)
        altered = msgspec.structs.replace(message, **{change: bytes([value[0] ^ 1]) + value[1:]})
        for wrong in (altered, msgspec.structs.replace(message, **{change: value[:-1]})):
            with pytest.raises(PeerError):
                aggregator.receive(0, encode(wrong))
    assert aggregator.state is AggregatorState.GATHERING and not aggregator.answers


def test_a_second_request_to_open_is_ignored_or_answered_with_the_same_bytes() -> None:
    history = recorded("moments").down[MEMBER]
    at = next(n for n, each in enumerate(history) if isinstance(read(each), Receipts))
    agent = stand(place("running/consent", protocol="moments"))
    data, replies = history[at]
    assert agent.receive(data) == replies == agent.receive(data)
    other = msgspec.structs.replace(read(history[at]), tags=bytes(48))
    with pytest.raises(PeerError, match="at step 1"):
        agent.receive(encode(other))


@pytest.mark.parametrize("protocol", ["blind", "moments", "paper", "collect"])
def test_a_count_that_is_not_the_companys_ends_the_run(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = dict(protocol="blind", weights="equal") if protocol == "collect" else dict(protocol=protocol)
    aggregator, agents = parties(seed=2, **ways)
    encoded, calls = Layout.encode, []

    def twice(self, values):
        words = encoded(self, values)
        calls.append(1)
        if len(calls) == 6:  # one agent counts itself twice
            words[-1] += np.uint64(1)
        return words

    monkeypatch.setattr(Layout, "encode", twice)
    drive(aggregator, agents)
    says = "the rows do not open" if protocol == "collect" else "count word"
    assert aggregator.state is AggregatorState.ABORTED and says in aggregator.reasons[0]


def test_an_ask_of_another_length_is_ignored() -> None:
    agent = stand(place("running/question", protocol="moments"))
    with pytest.raises(PeerError):
        agent.receive(encode(Ask(run=run_id(agent), step=0, what="load", values=bytes(16))))


# Clocks


def test_no_role_reads_a_clock_and_deadlines_are_monotonic() -> None:
    for room in ("protocol", "crypto", "kernel"):
        for path in (SRC / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module == "time":
                    assert {alias.name for alias in node.names} == {"perf_counter"}, path.name  # timing of the floor
                if isinstance(node, ast.Import):
                    assert not {alias.name for alias in node.names} & {"time", "datetime"}, path.name
    for name in ("deploy/agent.py", "deploy/aggregator.py", "transport/nats.py"):
        text = (SRC / name).read_text(encoding="utf-8")
        assert "time.time()" not in text and "datetime.now" not in text
        assert text.count("time.time_ns()") <= 1  # orders the attempts of one aggregator


# Configuration


def test_an_unknown_key_is_refused(tmp_path, monkeypatch) -> None:
    plan = msgspec.to_builtins(announcement("blind").plan, builtin_types=(bytes,))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**plan, "rigde": 3.0}, Plan)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"serial": 1, "members": [], "authority": b"", "signature": b"", "more": 1}, Roster)
    with pytest.raises(TypeError):
        Rules(tottals=5)
    with pytest.raises(TypeError):
        make_plan(tiny(0, agents=3, rows=40), fit_options(protocol="blind", rigde=3.0))
    with pytest.raises(SystemExit) as stop:
        from atdm import cli

        monkeypatch.setattr("sys.argv", ["atdm", "fit", "a.csv", "b.csv", "--rigde", "3"])
        cli.main()
    assert stop.value.code == 2


def test_too_many_agents_for_the_words_are_refused() -> None:
    with pytest.raises(UsageError, match="fewer agents"):
        fixed("load", 1, 2**40, 1e4, BLIND_BUDGET)
    assert ring.fractional_bits(10**6, 1e4, BLIND_BUDGET) >= 10  # a million agents do fit


@pytest.mark.parametrize("rule", [
    dict(least_agents=2), dict(totals=0), dict(agents_per_total=0), dict(clip=0.0), dict(colluders=-1),
    dict(dither=-0.1), dict(protocols=()), dict(protocols=("plain",)), dict(weights="free"), dict(day_share=1.5),
    dict(days_after_fit=-1), dict(least_days=-1), dict(least_days=float("nan")),
])  # fmt: skip
def test_rules_out_of_range_are_refused(rule: dict) -> None:
    with pytest.raises(UsageError):
        Rules(**rule)
