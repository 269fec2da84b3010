"""What an owner decides and sees: kept beside the account, seen by a real aggregator, without a value of a reading."""

import asyncio
import json
import logging
import os
import stat
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from atdm.cli.agent import app
from atdm.data.format import Format
from atdm.data.sources.table import Table
from atdm.deploy import owner
from atdm.deploy.agent import read_account
from atdm.deploy.log import start_log
from atdm.deploy.own import OwnReadings
from atdm.deploy.owner import Exchange, History, choice_of, choose, chosen_since, exchange
from atdm.deploy.server import LocalServer
from atdm.errors import DataError, UsageError
from atdm.protocol.company import LEFT, PAUSED
from tests.deploy.theatre import AGENTS, LOOSE, Theatre, kind_of

CANARY, HEAT = 23.456789, 7.654321


@pytest.fixture
def state(tmp_path):
    """A state folder with an account in it."""
    (tmp_path / "journal").write_bytes(b"")
    return tmp_path


# The choice


def test_a_pause_ends_and_leaving_does_not(state):
    assert (choice_of(state), chosen_since(state)) == ("takes part", None)
    choose(state, "paused")
    since = chosen_since(state)
    choose(state, "paused")
    assert choice_of(state) == "paused" and chosen_since(state) == since is not None
    choose(state, "takes part")
    choose(state, "takes part")
    assert choice_of(state) == "takes part"
    choose(state, "paused")
    choose(state, "left")
    choose(state, "left")
    for wanted in ("takes part", "paused"):
        with pytest.raises(UsageError, match="left for good: to return, enrol it anew"):
            choose(state, wanted)
    assert choice_of(state) == "left"


def test_only_an_agents_state_folder_takes_a_choice(tmp_path):
    with pytest.raises(DataError, match="holds no account"):
        choose(tmp_path, "paused")
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_cannot_undo_leaving(state, monkeypatch):
    """Resume looks, somebody else leaves, resume acts: there is nothing it could take away."""
    choose(state, "paused")
    unlink = type(state).unlink

    def late(path, **options):
        choose(state, "left")
        unlink(path, **options)

    monkeypatch.setattr(type(state), "unlink", late)
    choose(state, "takes part")
    assert choice_of(state) == "left"


# The history


def lines(count, first=0):
    return [Exchange(f"t{i}", "Total", i) for i in range(first, first + count)]


def test_history_is_bounded_and_survives_restarts(state, monkeypatch):
    monkeypatch.setattr(owner, "MOST_LINES", 20)
    monkeypatch.setattr(owner, "SLACK", 5)
    history = History(state)
    for i, each in enumerate(lines(100)):
        if i % 7 == 0:
            history = History(state)
        history.add(each)
        assert len(history.path.read_bytes().splitlines()) <= 25
        assert history.last(20) == lines(min(i + 1, 20), max(0, i - 19))
    assert History(state).last(3) == lines(3, 97)
    assert stat.S_IMODE(history.path.stat().st_mode) == 0o600


def test_a_line_cut_short_by_a_crash_costs_no_other(state):
    history = History(state)
    for each in lines(3):
        history.add(each)
    history.path.write_bytes(history.path.read_bytes()[:-9])
    again = History(state)
    again.add(lines(1, 3)[0])
    assert [each.time for each in again.last(10)] == ["t0", "t1", "t3"]


def test_what_cannot_be_read_is_a_line_too():
    for rubbish in (b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa4type\x05", os.urandom(50)):
        found = exchange(rubbish, None, "ignored")
        assert (found.message, found.received, found.ignored) == ("something unreadable", len(rubbish), True)
    long = exchange(msgspec.msgpack.encode({"type": "T" * 9000, "reason": "r\n" * 9000}), [])
    assert len(msgspec.json.encode(long)) < 600 and "\n" not in long.reason
    plan = {"type": "Announce", "plan": {"type": "Collect", "length": 2**62}}
    assert exchange(msgspec.msgpack.encode(plan), []).asked is None


def test_an_agent_goes_on_where_its_history_cannot_be_written(tmp_path):
    theatre, said = Theatre(tmp_path, weights="equal"), []
    victim = theatre.stage.names[0]
    theatre.state(victim).mkdir(parents=True)
    (theatre.state(victim) / "history.jsonl").mkdir()  # nothing can be appended to a folder

    async def perform():
        async with theatre.agents(server.url, say=said.append):
            return await theatre.aggregate(server.url)

    with theatre.stage.server() as server:
        assert asyncio.run(perform()).fit.agents == AGENTS
    assert [line.agent for line in said if line.event == "history"] == [victim] * 4


# With a real aggregator


def test_a_pause_is_seen_by_the_aggregator_survives_a_restart_and_ends(tmp_path):
    theatre, said = Theatre(tmp_path, weights="equal", rules=replace(LOOSE, dither=0.0)), []
    name = theatre.stage.names[2]

    async def one(chosen):
        async with theatre.agents(server.url):
            choose(theatre.state(name), chosen)
            return await theatre.aggregate(server.url, said.append)

    async def restarted():
        async with theatre.agents(server.url):
            return await theatre.aggregate(server.url, said.append)

    with theatre.stage.server() as server:
        first = asyncio.run(one("paused"))
        second = asyncio.run(restarted())
        choose(theatre.state(name), "left")
        third = asyncio.run(restarted())
    assert first.fit.agents == second.fit.agents == third.fit.agents == AGENTS - 1
    out = [line for line in said if line.startswith(f"without {name}")]
    assert out[0] == f"without {name}: {PAUSED}" and f"without {name}: {LEFT}" in out
    others = theatre.cluster.temperature.drop(columns=name).mean(axis=1)
    np.testing.assert_allclose(first.fit.state, others[first.fit.state.index], atol=1e-9)
    account = read_account(theatre.state(name))
    assert len(account.time) == 0 and account.days == {}, "nothing of it was given or judged"
    own = History(theatre.state(name)).last(100)
    assert {each.reason for each in own if each.message == "Announce"} == {PAUSED, LEFT}
    assert all(each.days[0] == 0 for each in own)


def test_a_run_under_way_is_finished_when_its_owner_pauses(tmp_path):
    theatre = Theatre(tmp_path, weights="equal")
    name = theatre.stage.names[1]

    async def perform():
        async with theatre.agents(server.url) as seats:
            receive = seats[name].agent.receive

            def and_pause(message):
                replies = receive(message)
                if kind_of(message) == "Keys":  # before, it has not begun
                    choose(theatre.state(name), "paused")
                return replies

            seats[name].agent.receive = and_pause
            return await theatre.aggregate(server.url)

    with theatre.stage.server() as server:
        assert asyncio.run(perform()).fit.agents == AGENTS
    assert choice_of(theatre.state(name)) == "paused" and len(read_account(theatre.state(name)).time) > 0


@contextmanager
def logging_kept():
    """start_log changes the process: back to what it was."""
    root, log = logging.getLogger(), logging.getLogger("atdm")
    handlers, level = list(root.handlers), log.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        log.setLevel(level)


def test_connected_lost_and_back_are_said_with_time_level_and_agent(tmp_path, capsys):
    theatre = Theatre(tmp_path, weights="equal")
    name = theatre.stage.names[0]
    server = LocalServer(theatre.stage.folder / "nats")

    async def perform(say):
        async with theatre.agents(server.url, [name], say=say) as seats:
            connection = seats[name].link.connection
            await until(lambda: connection.connected)
            server.kill()
            await until(lambda: not connection.connected)
            server.start()
            await until(lambda: connection.connections == 2)

    with logging_kept(), server:
        asyncio.run(perform(start_log("json")))
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["event"], line["agent"]) for line in found] == [
        ("info", "connected", name), ("warning", "lost", name), ("info", "back", name),
    ]  # fmt: skip
    for line in found:
        assert pd.Timestamp(line["time"]).tz is not None and list(line) == ["time", "level", "event", "agent", "text"]
    assert found[2]["text"].startswith("back after ") and server.url in found[2]["text"]


async def until(true, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_reading_key_or_weight_is_in_log_history_or_statement(tmp_path, form, capsys):
    """Canaries in the readings; the weights and keys of a run that fits them. At debug level."""
    theatre = Theatre(tmp_path, weights="fitted", rules=replace(LOOSE, dither=0.0))
    name = theatre.stage.names[1]
    table = pd.read_parquet(theatre.stage.data(name))
    table.loc[7, ["indoor_temp_c", "load_kw"]] = CANARY, HEAT
    table.to_parquet(theatre.stage.data(name))
    secrets = []

    async def perform(say):
        async with theatre.agents(server.url, say=say) as seats:
            await theatre.aggregate(server.url, say)
            for seat in seats.values():
                agent, keys = seat.agent, seat.keys
                secrets.extend([keys.nkey, keys.secret, agent._seed])
                secrets.extend(np.float64(fit.weight).tobytes() for fit in agent.own.memory.fits.values())
                secrets.extend(repr(fit.weight).encode() for fit in agent.own.memory.fits.values())

    with logging_kept(), theatre.stage.server() as server:
        logging.getLogger("atdm").setLevel(logging.DEBUG)
        asyncio.run(perform(start_log(form)))
    said = capsys.readouterr().err
    assert said.count("was asked") > 20
    written = "".join(History(theatre.state(each)).path.read_text() for each in theatre.stage.names)
    assert written.count("Masked step") > 4
    done = CliRunner().invoke(app, ["account", str(theatre.state(name)), "--json"])
    assert json.loads(done.output)["choice"] == "takes part"
    assert len(secrets) > 4 * AGENTS
    for place, content in {"log": said, "history": written, "statement": done.output}.items():
        for value in (CANARY, HEAT):
            assert f"{value:.4f}"[:-1] not in content, place
        for secret in secrets:
            assert secret.hex() not in content and secret not in content.encode(), place


def test_readings_that_go_bad_are_not_quoted_in_the_log(tmp_path):
    """While the agent runs: its log says it without numbers. (Whoever starts it is told.)"""
    theatre, said = Theatre(tmp_path, weights="equal"), []
    name = theatre.stage.names[1]
    own = OwnReadings(Table(theatre.stage.data(name), agent=name), theatre.stage.weather, name, Format())
    own.read()
    table = pd.read_parquet(theatre.stage.data(name))
    table.loc[5, "indoor_temp_c"] = 987.654
    table.to_parquet(theatre.stage.data(name))
    with pytest.raises(DataError, match="is 987.654"):
        own.read()
    with pytest.raises(DataError, match="see this agent's own log"):
        own.read_again(said.append)
    assert len(said) == 1 and "outside -… to … °C" in said[0] and "`atdm check`" in said[0] and "987" not in said[0]


# From the command line


def test_a_home_without_a_browser_pauses_resumes_and_leaves(tmp_path):
    theatre = Theatre(tmp_path, weights="equal")
    name = theatre.stage.names[0]
    theatre.seat(name).close()
    folder, run = str(theatre.state(name)), CliRunner()

    def told(*words, answer=None):
        done = run.invoke(app, ["account", folder, *words], input=answer)
        return done.exit_code, done.output

    assert told()[0] == 0 and "this home takes part" in told()[1]
    code, said = told("--pause")
    assert code == 0 and said.startswith("paused by its owner: ") and "(since " in said and said.count("\n") == 1
    assert choice_of(theatre.state(name)) == "paused"
    assert json.loads(told("--pause", "--json")[1])["choice"] == "paused"
    assert told("--resume")[1] == "this home takes part\n"
    code, _ = told("--leave", answer="n\n")
    assert code == 1 and choice_of(theatre.state(name)) == "takes part"
    code, said = told("--leave", answer="y\n")
    assert code == 0 and "atdm enroll retire" in said and choice_of(theatre.state(name)) == "left"
    assert isinstance(run.invoke(app, ["account", folder, "--resume"]).exception, UsageError)
    both = run.invoke(app, ["account", folder, "--pause", "--resume"])
    assert isinstance(both.exception, UsageError) and "one of" in str(both.exception)
