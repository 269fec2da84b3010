"""Canaries: readings that stand out, and every key the run makes, are looked for wherever something could leak.

Every 32-byte secret of a run comes out of `random_bytes` or of HKDF; both are recorded, and searched for as bytes, hex,
base64 and Python text in the wire, the log at debug level, the output, the results, error messages and reprs.
"""

import ast
import base64
import inspect
import json
import logging
import stat
import struct
import sys
import traceback
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

import atdm
from atdm import cli
from atdm.crypto import keys, ring
from atdm.crypto.prg import MaskSet, Stream
from atdm.data import Cluster
from atdm.deploy.enrolment import create_agent, create_aggregator, create_authority, create_roster, read_agent
from atdm.errors import AtdmError
from atdm.options import fit_options
from atdm.protocol.account import Sent
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.plan import Collect
from atdm.protocol.readings import weather_hash
from atdm.protocol.rules import Rules
from atdm.protocol.store import Consented, Entry, Snapshot
from atdm.run import enrol, fit, make_plan, simulate, weather_of
from atdm.transport import local
from tests.clusters import tiny
from tests.protocol.drive import drive, parties, seeded
from tests.reliability.places import place, stand

SRC = Path(atdm.__file__).parent
TEMPERATURE, LOAD = 23.456789, 7.654321
RULES = Rules(least_agents=3, rows_per_parameter=1.0)
PUBLIC = (b"nonce",)  # derived, and meant to be seen
CONSENTED = (b"self mask",)  # seen once an agent consents, under moments and paper


def with_canaries(agents: int = 12, rows: int = 80, at: int = 7) -> Cluster:
    """Readings that stand out, at two rows and again twenty rows later."""
    cluster = tiny(5, agents=agents, rows=rows)
    temperature, load = cluster.temperature.copy(), cluster.load.copy()
    for row in (at, at + 20):
        temperature.iloc[row, 2], load.iloc[row + 2, 2] = TEMPERATURE, LOAD
    return Cluster.from_frames(temperature, load, cluster.outdoor, cluster.solar, owner=cluster.owner)


def forms(secret: bytes) -> list[bytes]:
    """How a secret could be written down."""
    return [secret, secret.hex().encode(), base64.b64encode(secret), repr(secret)[2:-1].encode()]


def reading_forms(value: float) -> list[bytes]:
    found = [repr(value).encode(), struct.pack("<d", value), struct.pack(">d", value)]
    for centred in (value, value - 20.0):
        for bits in (16, 32, *range(30, 52)):
            found.append(ring.to_bytes(np.rint(np.array([centred]) * 2.0**bits).astype(np.int64).view(np.uint64)))
    return found


class Recording:
    """All secrets of a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: tuple[bytes, ...] = ()) -> None:
        self.secrets: set[bytes] = set()
        true = keys.hkdf

        def hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int = 32) -> bytes:
            made = true(secret, salt=salt, info=info, length=length)
            if not any(word in info for word in (*PUBLIC, *allowed)):
                self.secrets.add(made)
            return made

        monkeypatch.setattr(keys, "hkdf", hkdf)
        self._draw = seeded(1)

    def random_bytes(self, count: int) -> bytes:
        drawn = self._draw(count)
        self.secrets.add(drawn)
        return drawn

    def none_in(self, place: str, content: bytes, *, readings: bool = True) -> None:
        for secret in self.secrets:
            assert not any(form in content for form in forms(secret)), f"a key in {place}"
        if readings:
            for value in (TEMPERATURE, LOAD):
                assert not any(form in content for form in reading_forms(value)), f"a reading in {place}"


@pytest.mark.parametrize("protocol", ["blind", "moments", "paper"])
def test_no_key_and_no_reading_is_on_the_wire_or_in_the_log(protocol, monkeypatch, caplog) -> None:
    recording = Recording(monkeypatch, () if protocol == "blind" else CONSENTED)
    wire: list[bytes] = []
    cluster = with_canaries()
    plan = make_plan(cluster, fit_options(protocol=protocol, order=1, ridge=20.0, nonnegative=False))
    with caplog.at_level(logging.DEBUG):
        found = simulate(
            cluster, plan, RULES, tap=lambda sender, receiver, data: wire.append(data),
            random_bytes=recording.random_bytes,
        )  # fmt: skip
    assert len(recording.secrets) > 100 and len(wire) > 100
    recording.none_in("the wire", b"\x00".join(wire))
    recording.none_in("the log", caplog.text.encode())
    recording.none_in("the fit", json.dumps(found.as_dict(), default=str).encode() + repr(found).encode())
    recording.none_in("the model", found.model.to_json().encode())


def test_no_key_reading_or_weight_is_on_the_wire_of_rows_collected_or_in_the_log(monkeypatch, caplog) -> None:
    """Ten days are fitted, then rows collected under that fit and under equal weights; canaries stand in both."""
    recording, wire, fitted = Recording(monkeypatch), [], 40
    cluster = with_canaries(rows=80, at=fitted + 2)
    plan = make_plan(cluster, fit_options(protocol="blind", order=1, ridge=20.0, nonnegative=False))
    first = weather_of(cluster).time[0]
    step = plan.step_seconds
    short = weather_hash(weather_of(cluster), int(first), int(first + (fitted - 1) * step))
    plan = msgspec.structs.replace(plan, length=fitted, weather=short)
    agents, _ = enrol(cluster, replace(RULES, dither=0.0), recording.random_bytes)
    roles = []
    with caplog.at_level(logging.DEBUG):
        for first, length in ((0, fitted), (fitted, 20), (fitted + 20, 20)):
            rows = Collect(step_seconds=step, start=plan.start + first * step, length=length,
                           fit=roles[0].run.id if len(roles) == 1 else b"")  # fmt: skip
            roles.append(Aggregator(plan=rows if roles else plan, roster=agents[0].roster,
                                    weather=weather_of(cluster), attempt=len(roles)))  # fmt: skip
            local.run(roles[-1], agents, tap=lambda sender, receiver, data: wire.append(data))
    assert [len(role.desk.collected.time) for role in roles[1:]] == [20, 20] and len(wire) > 150
    recording.none_in("the wire", b"\x00".join(wire))
    recording.none_in("the log", caplog.text.encode())
    for agent in agents:
        weight = agent.own.memory.fits[roles[0].run.id].weight
        assert not any(form in b"\x00".join(wire) for form in reading_forms(weight)), "a weight on the wire"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    cluster = with_canaries(rows=160)
    zones = cluster.temperature.stack().rename("indoor_temp_c").to_frame()
    zones["load_kw"] = cluster.load.stack()
    weather = pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": cluster.solar * 1000})
    zones.reset_index().to_parquet(tmp_path / "zones.parquet")
    weather.reset_index().to_parquet(tmp_path / "weather.parquet")
    return tmp_path / "zones.parquet", tmp_path / "weather.parquet"


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["atdm", *map(str, words)])
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_no_key_and_no_reading_is_in_what_the_command_line_prints_and_writes(
    files, tmp_path, monkeypatch, capfd, caplog
) -> None:
    recording = Recording(monkeypatch)
    out = tmp_path / "out"
    with caplog.at_level(logging.DEBUG):
        words = ("--log-level", "debug", "fit", *files, "-o", out, "--order", 1, "--state", tmp_path / "state")
        assert command(monkeypatch, *words) == 0
    printed = "".join(capfd.readouterr()) + caplog.text
    recording.none_in("the output", printed.encode())
    written = [path for path in out.rglob("*") if path.is_file()]
    assert {"model.json", "report.html", "ledger.json"} <= {path.name for path in written}
    for path in written:
        recording.none_in(path.name, path.read_bytes())


def test_state_and_key_files_are_for_their_owner_only(files, tmp_path, monkeypatch) -> None:
    state = tmp_path / "state"
    assert command(monkeypatch, "fit", *files, "--order", 1, "--state", state) == 0
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert len(list(state.iterdir())) > 12
    for path in state.iterdir():
        if path.name != ".lock":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


def test_enrolment_keeps_keys_in_files_of_mode_0600_and_out_of_everything_public(tmp_path, monkeypatch) -> None:
    recording = Recording(monkeypatch)
    authority, agents = tmp_path / "authority", tmp_path / "agents"
    pinned = create_authority(authority, recording.random_bytes)
    requests = [create_agent(agents, f"zone{i}", recording.random_bytes, authority=pinned) for i in range(3)]
    requests.append(create_aggregator(tmp_path / "bla", recording.random_bytes, authority=pinned))
    for n, request in enumerate(requests):
        (authority / f"{n}-enrolment.json").write_bytes(request.read_bytes())
    create_roster(authority, tmp_path / "public" / "roster.json", ["localhost"])
    secret_files = [*tmp_path.rglob("*.key")]
    assert len(secret_files) >= 3 * 3 + 1 + 2 and (authority / "ca.key") in secret_files
    for path in secret_files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for path in tmp_path.rglob("*.json"):
        recording.none_in(path.name, path.read_bytes())
    recording.none_in("repr", repr(read_agent(agents / "zone1")).encode())


def secretive_objects(agent: Agent) -> list[object]:
    part, memory = agent.part, agent.own.memory
    known = memory.account
    sent = Sent(*(column.tobytes() for column in (known.time, known.temperature, known.load, known.filled)))
    entry = Entry(message=b"", answer=b"", seed=agent._seed, bookings=(sent,))
    fit = Consented(run=bytes(32), hash=b"", company=b"", weight=float(part.parts[0]), step_seconds=1, end=0)
    return [
        agent, agent.own, agent.own.readings, agent.own.host, memory, memory.account, part, part.session,
        agent._identity, agent._exchange, part._veil, part._veil._stream, entry, fit, sent,
        Snapshot(agent._identity.public, memory), MaskSet([(1, bytes(32))]), Stream(bytes(32)), agent.own.rules,
        part.session.run, agent.own.notebook,
    ]  # fmt: skip


def test_no_repr_shows_a_key_a_reading_or_a_coefficient(monkeypatch) -> None:
    recording = Recording(monkeypatch)
    agent = stand(place("running/signs"))
    recording.secrets |= {agent._seed, agent.own.secret, agent.part._group}
    shown = [f"{thing!r} {thing}" for thing in secretive_objects(agent)]
    recording.none_in("a repr", "\n".join(shown).encode())
    values = (*agent.part.parts.tolist(), *agent.own.readings.temperature.tolist(), *agent.own.readings.load.tolist())
    own = [*(f"{value!r}" for value in values), *(f"{struct.pack('<d', value)!r}"[2:-1] for value in values)]
    for text in shown:
        assert not any(value in text for value in own if len(value) > 8), text[:80]


@pytest.mark.parametrize("where", ["layout", "mask", "span"])
def test_no_traceback_shows_a_key_or_a_reading(where, monkeypatch, caplog) -> None:
    """Something breaks in the middle of a run: the traceback has code and messages, not values."""
    from atdm.crypto.sums import Layout
    from atdm.kernel.span import Span
    from atdm.protocol.session import Session

    recording = Recording(monkeypatch)

    def broken(*_args, **_kwargs):
        raise RuntimeError("broken on purpose")

    owner, name = {"layout": (Layout, "decode"), "mask": (Session, "mask"), "span": (Span, "add")}[where]
    monkeypatch.setattr(owner, name, broken)
    cluster = with_canaries()
    plan = make_plan(cluster, fit_options(protocol="blind", order=1, ridge=20.0))
    try:
        simulate(cluster, plan, RULES, random_bytes=recording.random_bytes)
    except (RuntimeError, AtdmError) as error:
        recording.none_in("a traceback", "".join(traceback.format_exception(error)).encode())
    else:
        pytest.fail("nothing broke")


def test_a_reading_out_of_bound_is_refused_without_its_value() -> None:
    """To others: the agent's own file reader has told its owner the value long before. It is out on such days."""
    for protocol in ("blind", "moments", "paper"):
        aggregator, agents = parties(tiny(1, agents=5, rows=60), protocol=protocol)
        own = agents[1].own.readings
        agents[1].own = replace(agents[1].own, readings=replace(own, load=np.where(own.time > own.time[5], 54321.9, 1)))
        drive(aggregator, agents)
        assert aggregator.out() == {agents[1].name: "too few readings on some days"}
        assert "54321" not in " ".join([*aggregator.reasons, *aggregator.out().values()])


# What the source may not do


@lru_cache
def parsed() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SRC.rglob("*.py"))]


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def test_no_assert_checks_anything_in_the_package() -> None:
    """python -O would remove it."""
    found = [f"{p.name}:{n.lineno}" for p, tree in parsed() for n in ast.walk(tree) if isinstance(n, ast.Assert)]
    assert found == []


def test_nothing_is_unpickled_or_evaluated() -> None:
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
    for path, tree in parsed():
        assert not imported(tree) & forbidden, path.name
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                keywords = {keyword.arg for keyword in node.keywords}
                builtin = isinstance(node.func, ast.Name)
                assert not (builtin and called in ("eval", "exec", "__import__")), f"{path.name}:{node.lineno}"
                assert "allow_pickle" not in keywords and not (called == "load" and "np" in ast.unparse(node.func)[:3])


def test_what_masks_never_meets_a_generator_that_can_be_predicted() -> None:
    """numpy.random and random stay out of the rooms of keys and messages; NATS waits a random time, and that is all."""
    for path, tree in parsed():
        room = path.relative_to(SRC).parts[0]
        if room in ("crypto", "protocol", "transport", "run.py", "deploy", "cli"):
            assert not {"secrets", "uuid"} & imported(tree), path.name
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute):
                    text = ast.unparse(node)
                    assert not text.startswith(("np.random", "numpy.random")), f"{path.name}:{node.lineno}"
                    if text.startswith("random."):
                        assert path.name == "nats.py" and text in ("random.uniform", "random.random"), path.name


def test_commands_draw_from_the_operating_system_and_offer_no_other_source() -> None:
    """Whatever takes `random_bytes` is given os.urandom wherever a command puts a run together."""
    takers = {"create_authority", "create_agent", "create_aggregator", "Agent", "StateFolder", "enrol"}
    for path, tree in parsed():
        where = path.relative_to(SRC).parts
        if where[0] not in ("cli", "deploy", "lab") or "attacks" in where:  # attacks simulate their own agents
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            given = [ast.unparse(k.value) for k in node.keywords if k.arg == "random_bytes"]
            called = ast.unparse(node.func).split(".")[-1]
            if called in takers and not given and called != "Agent":
                given = [ast.unparse(arg) for arg in node.args if "urandom" in ast.unparse(arg)] or ["nothing"]
            assert all(source == "os.urandom" for source in given), f"{path.name}:{node.lineno} {given}"
    assert inspect.signature(simulate).parameters["random_bytes"].default is __import__("os").urandom
    assert "random_bytes" not in inspect.signature(fit).parameters


def test_no_option_of_a_command_makes_keys_of_others_repeatable() -> None:
    """An audit has a seed: it attacks agents that it simulates, on readings that it holds."""
    seeded_commands = set()
    for path, command_ in commands(Everything):
        names = {parameter.name for parameter in command_.params}
        assert not {name for name in names if "random" in name or "insecure" in name or "key_seed" in name}
        if "seed" in names:
            seeded_commands.add(path)
    assert seeded_commands <= {"audit", "bench", "probe"}, (
        "seeds are for what is simulated, and for a planned experiment"
    )
    users = {
        path.name
        for path, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("repeatable")
    } - {"script.py"}  # of an account: another thing
    assert users == {"audit.py"}


class Everything:
    commands = {name: cli.load(name) for name in cli.FILES}


def commands(group, prefix: str = ""):
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", found


def test_no_environment_variable_changes_what_is_secret() -> None:
    read: set[str] = set()
    for path, tree in parsed():
        if any("environ" in ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)):
            read.add(path.name)
    # a rehearsal: threads, where to put files; secret.py: a password of the owner's own database; notify.py: systemd
    assert read <= {"rehearse.py", "secret.py", "notify.py"}


def test_wire_messages_name_no_field_of_readings() -> None:
    """The structs themselves: no field could hold a series but the masked words and the numbers of a question."""
    from atdm.protocol import messages

    fields = {name for kind in (*messages.ToAgent.__args__, *messages.ToAggregator.__args__)
              for name in (field.name for field in msgspec.structs.fields(kind))}  # fmt: skip
    assert fields == {"plan", "roster", "attempt", "company", "days", "answers", "nonces", "exchange", "signatures",
                      "run", "box", "step", "words", "what", "values", "tags", "reason", "nonce", "signature", "boxes",
                      "phase", "seed", "hash"}  # fmt: skip
