"""`atdm doctor` says what a bug report needs; no key, reading, name or address is in what it prints."""

import base64
import json
import socket
import ssl
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from atdm import cli
from atdm.crypto.keys import SigningKey, read_key_file
from atdm.data.readings import Readings
from atdm.deploy.doctor import PRIVATE, examine
from atdm.deploy.enrolment import create_agent, create_aggregator, create_authority, create_roster, read_authority
from atdm.deploy.server import make_server_certificate
from atdm.errors import UsageError
from atdm.protocol.account import Account
from atdm.protocol.store import Memory, Snapshot, enclose
from atdm.transport.disk import SMALL, Disk
from tests.protocol.drive import seeded

HOME, TEMPERATURE, LOAD, TABLE = "canary street 5", 23.456789, 7.654321, "canary readings.csv"


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["atdm", "doctor", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out + captured.err


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An agent's folder as it is after a run: keys, an account with readings, and a table somebody left there."""
    pinned = create_authority(tmp_path / "authority", seeded(1))
    folder = create_agent(tmp_path / "agents", HOME, seeded(2), authority=pinned).parent
    account = Account()
    stamps = np.array([86400 * 20000, 86400 * 20000 + 3600])
    account.settle(Readings(stamps, np.full(2, TEMPERATURE), np.full(2, LOAD)), bytes(64), "equal", 3600)
    (folder / "state").mkdir(mode=0o700)
    identity = SigningKey(read_key_file(folder / "identity.key")).public
    Disk(folder / "state" / "journal").replace(enclose(Snapshot(identity, Memory(account=account))))
    (folder / TABLE).write_text(f"time,indoor_temp_c,load_kw\n2024-01-01T00:00Z,{TEMPERATURE},{LOAD}\n")
    return folder


def secrets(home: Path) -> list[bytes]:
    keys = [read_key_file(path) for path in home.glob("*.key")]
    assert len(keys) == 3
    values = [struct.pack("<d", value) for value in (TEMPERATURE, LOAD)]
    found = [form for each in (*keys, *values) for form in (each, each.hex().encode(), base64.b64encode(each))]
    words = (HOME, HOME.replace(" ", "%20"), TABLE, str(TEMPERATURE), str(LOAD), str(home), home.name, home.parent.name)
    return found + [word.encode() for word in words]


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_no_key_reading_name_or_address_is_printed(home, form, monkeypatch, capsys) -> None:
    identity = SigningKey(read_key_file(home / "identity.key")).public
    for path in (home / "state" / "journal", home / TABLE, home / "identity.key"):
        assert any(secret in path.read_bytes() for secret in secrets(home)), "the canary is not where it should be"
    server = "tls://canary:password@canary.invalid:4222"
    words = ("--identity", home, "--state", home / "state", "--nats", server, *form)
    code, printed = command(monkeypatch, capsys, *words)
    assert code == 1 and "journal" in printed  # the server is not known
    for secret in (*secrets(home), b"canary", b"password", identity.hex().encode()):
        assert secret not in printed.encode(), secret


def test_versions_clock_packages_and_modes_are_told(home, monkeypatch, capsys) -> None:
    code, printed = command(monkeypatch, capsys, "--identity", home, "--json")
    found = json.loads(printed)
    assert code == 0 and found["problems"] == []
    assert found["versions"]["atdm"] == cli.__version__ and found["versions"]["wire"] == "2"
    assert found["packages"][""]["numpy"] == np.__version__ and "nats-py" in found["packages"]["nats"]
    assert found["clock"]["utc"].endswith("+00:00") and found["clock"]["monotonic"] is True
    modes = {row["name"]: row.get("mode") for row in found["files"]["identity"]}
    assert modes["identity.key"] == modes["state/journal"] == "0600" and modes["the folder"] == "0700"
    assert "1 other files" in modes  # the table, without its name


@pytest.mark.parametrize("name", ["identity.key", "state/journal"])
def test_a_private_file_that_others_may_read_is_a_problem(home, name, monkeypatch, capsys) -> None:
    (home / name).chmod(0o644)
    code, printed = command(monkeypatch, capsys, "--identity", home)
    assert code == 1 and f"{name} can be read by others: run chmod 600" in printed


def test_the_base_of_a_large_account_is_private_too_and_told_without_its_hash(home) -> None:
    disk = Disk(home / "state" / "journal")
    disk.replace(bytes(2 * SMALL))
    [base] = (home / "state").glob("journal.base-*")
    base.chmod(0o640)
    found = examine("0", {"identity": home}, [])
    assert found["problems"] == ["identity: state/journal.base can be read by others: run chmod 600 on it"]
    assert base.name not in json.dumps(found)


def test_a_private_file_that_was_emptied_is_a_problem(home) -> None:
    (home / "dither.key").write_bytes(b"")
    assert examine("0", {"identity": home}, [])["problems"] == ["identity: dither.key is empty: restore the folder"]


def test_a_folder_that_is_not_there_is_a_problem(tmp_path) -> None:
    (said,) = examine("0", {"state": tmp_path / "nowhere"}, [])["problems"]
    assert said.startswith("state: cannot be read") and str(tmp_path) not in said


def test_no_file_of_a_folder_is_opened(home) -> None:
    opened: list[str] = []
    watching = True

    def hook(event: str, details: tuple[object, ...]) -> None:
        if watching and event == "open" and str(details[0]).startswith(str(home)):
            opened.append(str(details[0]))

    sys.addaudithook(hook)
    examine("0", {"identity": home, "state": home / "state"}, [])
    watching = False
    assert opened == [] and {path.name for path in home.glob("*.key")} <= set(PRIVATE)


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_it_runs_without_what_a_home_leaves_out(form) -> None:
    """The agent's own distribution has no pandas, no pyarrow and no matplotlib."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pandas', 'pyarrow', 'matplotlib'], None))\n"
        f"sys.argv = ['atdm', 'doctor', *{form!r}]\nfrom atdm import cli; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and cli.__version__ in done.stdout, done.stderr


def test_only_encrypted_servers_are_asked() -> None:
    for server in ("nats://localhost:4222", "localhost:4222", "tls://", "tls://localhost:no"):
        with pytest.raises(UsageError, match="tls://host:port"):
            examine("0", {}, [server])


def test_servers_are_told_apart_by_what_they_answer(tmp_path) -> None:
    pytest.importorskip("nats", reason="the nats extra is not installed")
    from atdm.deploy.server import LocalServer

    pinned = create_authority(tmp_path / "one", seeded(3))
    other = create_authority(tmp_path / "other", seeded(4))
    create_agent(tmp_path / "one", "a", seeded(5))
    request = create_aggregator(tmp_path / "elsewhere", seeded(6), authority=pinned)
    (tmp_path / "one" / "enrolment.json").write_bytes(request.read_bytes())
    _, nats = create_roster(tmp_path / "one", tmp_path / "roster.json", ["127.0.0.1"])
    assert nats is not None
    with LocalServer(nats) as server, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        closed = f"tls://127.0.0.1:{silent.getsockname()[1]}"
        first, second = examine("0", {}, [server.url, closed], pinned)["servers"]
        said = "answers with TLSv1.3 and a certificate of this enrolment for 824 more days"
        assert first["reached"] and first["answer"] == said
        assert not second["reached"] and second["answer"].startswith("no connection")
        (stranger,) = examine("0", {}, [server.url], other)["servers"]
        assert not stranger["reached"] and "not the server of this enrolment" in stranger["answer"]
        (unasked,) = examine("0", {}, [server.url])["servers"]
        assert unasked["reached"]


@pytest.mark.parametrize("days, problem", [
    (31, None), (30, "ends in 29 days: let the authority sign the roster again"),
    (1, "ends in 0 days: let the authority sign the roster again"), (-1, "has ended, or a clock is wrong: let the"),
])  # fmt: skip
def test_a_servers_certificate_that_ends_within_a_month_is_a_problem(
    tmp_path, monkeypatch, capsys, days: int, problem: str | None
) -> None:
    pinned = create_authority(tmp_path / "keys", seeded(7))
    request = create_aggregator(tmp_path / "office", seeded(8), authority=pinned)
    certificate, key = make_server_certificate(
        read_authority(pinned).ca, (tmp_path / "keys" / "ca.key").read_bytes(), ["127.0.0.1"], days
    )
    (tmp_path / "server.pem").write_text(certificate)
    (tmp_path / "server.key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=answer)
        serving.start()
        server = f"tls://127.0.0.1:{listening.getsockname()[1]}"
        code, printed = command(monkeypatch, capsys, "--identity", request.parent, "--nats", server)
        serving.join(10)
    if problem is None:
        assert code == 0 and f"for {days - 1} more days" in printed
    else:
        assert code == 1 and f"server 1: its certificate {problem}" in printed
