"""Commands that run for long: their log, what systemd is told, and how they end."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from atdm.deploy import notify
from atdm.deploy.agent import _serve
from atdm.deploy.log import Line, start_log
from atdm.deploy.server import LocalServer
from atdm.errors import PeerError, UsageError
from tests.deploy.test_owner import logging_kept
from tests.deploy.theatre import Theatre

PATIENCE = 60.0  # s


class Systemd:
    """The other end of $NOTIFY_SOCKET: a real datagram socket."""

    def __init__(self, path):
        self.path, self.told = str(path), []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path if not self.path.startswith("@") else "\0" + self.path[1:])
        self.socket.setblocking(False)

    def hear(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.told += self.socket.recv(4096).decode().splitlines()
        return self.told

    def until(self, line, process=None):
        end = time.monotonic() + PATIENCE
        while line not in self.hear():
            assert time.monotonic() < end and (process is None or process.poll() is None), self.told
            time.sleep(0.02)


@pytest.fixture
def systemd(tmp_path):
    made = Systemd(tmp_path / "notify.sock")
    yield made
    made.socket.close()


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    return Theatre(tmp_path_factory.mktemp("services"), weights="equal")


def start(*words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "atdm", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment}, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def agent_words(theatre, url):
    name = theatre.stage.names[0]
    return ("agent", "--identity", theatre.stage.identity(name), "--data", theatre.stage.data(name), "--roster",
            theatre.stage.roster, "--weather", theatre.stage.weather, "--nats", url)  # fmt: skip


def test_systemd_hears_ready_after_connecting_then_the_watchdog_then_stopping(theatre, systemd):
    server = LocalServer(theatre.stage.folder / "nats")
    with server:
        url = server.url
        server.stop()
        words = (*agent_words(theatre, url), "--log", "json")
        agent = start(*words, NOTIFY_SOCKET=systemd.path, WATCHDOG_USEC="400000")
        try:
            systemd.until(f"STATUS=0 of 1 agents connected to {url}", agent)
            systemd.until("WATCHDOG=1", agent)
            assert "READY=1" not in systemd.hear()
            server.start()
            systemd.until("READY=1", agent)
            assert f"STATUS=1 of 1 agents connected to {url}" in systemd.told
            server.kill()
            seen = len(systemd.told)
            systemd.until("WATCHDOG=1", agent)
            while f"STATUS=0 of 1 agents connected to {url}" not in systemd.hear()[seen:]:
                assert agent.poll() is None
                time.sleep(0.02)
            assert systemd.told.count("READY=1") == 1 and "STOPPING=1" not in systemd.told
            agent.send_signal(signal.SIGTERM)
            systemd.until("STOPPING=1")
            _, said = agent.communicate(timeout=PATIENCE)
        finally:
            agent.kill()
            agent.wait()
    assert agent.returncode == 0
    events = [json.loads(line)["event"] for line in said.splitlines()]
    assert [e for e in events if e != "unreachable"] == ["checked", "connected", "lost", "stopped"]


def test_the_watchdog_is_silent_while_the_loop_hangs(systemd, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.path)
    monkeypatch.setenv("WATCHDOG_USEC", "40000")  # 0.04 s: told every 0.02 s
    counts = []

    async def turn_hang_turn():
        task = asyncio.create_task(notify.keep_watchdog())
        await asyncio.sleep(0.5)
        counts.append(systemd.hear().count("WATCHDOG=1"))
        time.sleep(0.5)  # the event loop does not turn
        counts.append(systemd.hear().count("WATCHDOG=1"))
        await asyncio.sleep(0.5)
        counts.append(systemd.hear().count("WATCHDOG=1"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(turn_hang_turn())
    assert counts[0] >= 2 and counts[1] == counts[0] and counts[2] > counts[1]


@pytest.mark.parametrize("environment", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9000", "WATCHDOG_PID": "1"}])
def test_without_a_watchdog_of_ours_nothing_is_said(systemd, monkeypatch, environment):
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    async def wait():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(notify.keep_watchdog(), 0.1)

    asyncio.run(wait())
    assert systemd.hear() == []


def test_abstract_sockets_are_found_and_absent_ones_do_no_harm(monkeypatch):
    name = f"@atdm-test-{os.getpid()}"
    abstract = Systemd(name)
    for address in ("", "nowhere", "/no/such/socket", f"{name}-other", name):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify.notify("READY=1", "STATUS=here")
    assert abstract.hear() == ["READY=1", "STATUS=here"]
    abstract.socket.close()


# The log


def test_lines_have_time_level_and_agent_as_text(capsys):
    with logging_kept():
        say = start_log("text")
        say("plain words")
        say(Line("was asked", event="asked", agent="home-17"))
        say(Line("two\nlines \x1b[31m", event="asked"))
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"
    lines = capsys.readouterr().err.splitlines()
    for line, rest in zip(lines, ("plain words", "home-17: was asked", r"two lines  \[31m"), strict=True):
        assert re.fullmatch(rf"{stamp} info {rest}", line)


def test_levels_choose_and_libraries_look_alike(capsys):
    import logging

    with logging_kept():
        logging.getLogger("atdm").setLevel(logging.WARNING)  # --log-level warning
        say = start_log("json")
        say("not shown")
        say(Line("shown", event="lost", level=logging.WARNING))
        try:
            raise ValueError("a reading of 23.456789")
        except ValueError:
            logging.getLogger("asyncio").exception("task failed")
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"], line["text"]) for line in found] == [
        ("lost", "warning", "shown"), ("asyncio", "error", "task failed (ValueError)"),
    ]  # fmt: skip


def test_a_second_start_replaces_the_first(capsys):
    with logging_kept():
        start_log("text")
        start_log("json")("once")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["text"] == "once"


# How they end: docs/exit-codes.md


def ended(process, how=None, after=""):
    """Exit code and standard error, after a signal once some words were said."""
    said = ""
    if how is not None:
        while after not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(how)
    _, rest = process.communicate(timeout=PATIENCE)
    return process.returncode, said + rest


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_is_stopped_exits_with_0(theatre, how):
    code, said = ended(start(*agent_words(theatre, "tls://127.0.0.1:1")), how, "no connection")
    assert code == 0 and said.splitlines()[-1].endswith(" info stopped")


def test_an_agent_whose_files_cannot_be_used_exits_with_1(theatre, tmp_path):
    bad = tmp_path / "roster.json"
    bad.write_text("{}")
    words = [bad if word == theatre.stage.roster else word for word in agent_words(theatre, "tls://127.0.0.1:1")]
    code, said = ended(start(*words))
    assert code == 1 and re.match("^atdm: .*roster", said.splitlines()[-1])
    code, said = ended(start(*words, "--log", "json"))
    last = json.loads(said.splitlines()[-1])
    assert code == 1 and (last["level"], last["event"]) == ("error", "failed") and str(bad) in last["text"]


def test_an_agent_that_the_server_does_not_know_exits_with_1(theatre, tmp_path):
    other = Theatre(tmp_path)
    with other.stage.server() as server:
        code, said = ended(start(*agent_words(theatre, server.url)))
    assert code == 1 and "not the server of this enrolment" in said


@pytest.mark.parametrize(
    "words", [("--ui", "127.0.0.1:99999"), ("--log", "yaml"), ("--no-such-option",), ("--nats", "nats://plain:4222")]
)
def test_an_agent_asked_for_what_cannot_be_done_exits_with_2(theatre, words):
    assert ended(start(*agent_words(theatre, "tls://127.0.0.1:1"), *words))[0] == 2


def test_an_aggregator_that_is_stopped_exits_with_1(theatre, tmp_path):
    words = ("aggregator", "--identity", theatre.aggregator, "--roster", theatre.stage.roster, "--weather",
             theatre.stage.weather, "--nats", "tls://127.0.0.1:1", "-o", tmp_path / "out", "--log", "json")  # fmt: skip
    code, said = ended(start(*words), signal.SIGTERM, "waiting for")
    last = json.loads(said.splitlines()[-1])
    assert code == 1 and last["event"] == "failed" and "stopped" in last["text"]
    assert not (tmp_path / "out").exists()
    assert {json.loads(line)["event"] for line in said.splitlines()} >= {"said", "failed"}


def test_a_command_that_is_interrupted_exits_with_130(tmp_path):
    """Before it handles signals itself: while it waits for an answer."""
    theatre = Theatre(tmp_path)
    name = theatre.stage.names[0]
    theatre.seat(name).close()
    process = subprocess.Popen(
        [sys.executable, "-m", "atdm", "account", str(theatre.state(name)), "--leave"], stdin=subprocess.PIPE,
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    asked = process.stderr.read(10)
    assert asked == "Leave for "
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


class Ending:
    """A home's connection that ends in some way."""

    def __init__(self, error: Exception, after: float) -> None:
        self.error, self.after, self.connection = error, after, SimpleNamespace(connected=True, servers="")

    async def run(self) -> None:
        await asyncio.sleep(self.after)
        raise self.error


def test_a_home_that_the_server_never_knew_does_not_take_down_the_others_of_its_process(monkeypatch) -> None:
    said: list[str] = []
    lines = {
        "unknown": Ending(PeerError("does not know this party's nkey"), 0.0),
        "known": Ending(UsageError("disk"), 0.3),
    }
    monkeypatch.setattr("atdm.deploy.agent.link_agent", lambda running, servers, say: lines[running])
    with pytest.raises(UsageError, match="disk"):
        asyncio.run(_serve(["unknown", "known"], ("tls://nowhere:1",), said.append))
    assert said == ["does not know this party's nkey; other homes here go on"]
    with pytest.raises(PeerError, match="nkey"):  # and where nobody is left, the process ends
        asyncio.run(_serve(["unknown"], ("tls://nowhere:1",), said.append))
