"""Rosters and weather are carried by whoever comes along; what counts is the authority's signature."""

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from atdm.crypto.keys import SigningKey, read_key_file
from atdm.data.readings import Weather
from atdm.deploy.agent import AgentFiles, RunningAgent, link_agent, prepare_agent
from atdm.deploy.conductor import Conductor
from atdm.deploy.enrolment import SignedWeather, create_roster, read_agent, retire_key, sign_weather
from atdm.deploy.notices import MARK, MOST_BYTES, Kept, Notice, OwnWeather, pack
from atdm.deploy.own import weather_from
from atdm.deploy.server import PID_FILE, reload_server
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.protocol.messages import Announce, encode
from atdm.protocol.roster import Roster, sign_roster
from atdm.protocol.rules import Rules
from atdm.transport import frames
from atdm.transport.frames import Piece
from atdm.transport.nats import AgentLink
from tests.deploy.theatre import AGENTS, ROWS_A_DAY, Theatre, in_process, kind_of

HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture(autouse=True)
def short_farewell(monkeypatch):
    monkeypatch.setattr("atdm.deploy.conductor.FAREWELL", 1.0)


class Bare(Theatre):
    """Agents with keys and readings, and neither a roster nor weather."""

    def seat(self, name: str, rules: Rules | None = None, say: Any = lambda text: None) -> RunningAgent:
        files = AgentFiles(identity=self.stage.identity(name), data=self.stage.data(name))
        return prepare_agent(files, None, OwnWeather(), self.rules if rules is None else rules, say=say)

    def sign(self) -> Roster:
        return create_roster(self.stage.keys, self.stage.roster, HOSTS)[0]


# Rosters


def test_agents_get_each_roster_once_keep_it_and_need_no_file(tmp_path):
    theatre, said = Bare(tmp_path, weights="equal"), []
    alone = in_process(theatre.stage, theatre.plan).as_dict()["released"]

    async def three_runs():
        async with theatre.agents(server.url, say=said.append):
            found = [(await theatre.aggregate(server.url)).as_dict()["released"]]
            found.append((await theatre.aggregate(server.url)).as_dict()["released"])
            theatre.sign()
            found.append((await theatre.aggregate(server.url)).as_dict()["released"])
        return found

    async def restarted():
        async with theatre.agents(server.url, say=said.append) as seats:
            assert {seat.agent.roster.serial for seat in seats.values()} == {2}
            return (await theatre.aggregate(server.url)).as_dict()["released"]

    with theatre.stage.server() as server:
        assert asyncio.run(three_runs()) == [alone] * 3
        assert asyncio.run(restarted()) == alone
    for serial in (1, 2):
        assert sum(f"was sent roster {serial}, with {AGENTS} agents" in text for text in said) == AGENTS


def test_a_roster_that_comes_within_a_run_is_that_of_the_next(tmp_path):
    theatre = Theatre(tmp_path, weights="equal")
    alone = in_process(theatre.stage, theatre.plan).as_dict()["released"]
    old = theatre.stage.roster.read_bytes()
    newer, _ = create_roster(theatre.stage.keys, theatre.stage.roster, HOSTS)
    theatre.stage.roster.write_bytes(old)

    def overtaken(seat: RunningAgent) -> None:
        receive = seat.agent.receive

        def receive_after_it(message: bytes) -> list[bytes]:
            replies = receive(message)
            if kind_of(message) == "Keys":
                seat.kept.take(pack([newer]))
            return replies

        seat.agent.receive = receive_after_it

    async def run():
        async with theatre.agents(server.url) as seats:
            for seat in seats.values():
                overtaken(seat)
            found = (await theatre.aggregate(server.url)).as_dict()["released"]
            return found, {(seat.agent.roster.serial, seat.kept.newest().serial) for seat in seats.values()}

    with theatre.stage.server() as server:
        assert asyncio.run(run()) == (alone, {(1, 2)})


class Alone:
    """One agent's folder of what was published."""

    def __init__(self, theatre: Theatre, tmp_path: Path, roster: Path | None = None, **weather: Any) -> None:
        self.theatre, self.said = theatre, list[str]()
        self.keys = read_agent(theatre.stage.identity(theatre.stage.names[0]))
        self.authority = SigningKey(read_key_file(theatre.stage.keys / "authority.key"))
        self.state = tmp_path / "kept"
        self.state.mkdir(exist_ok=True)
        self.roster, self.weather = roster, OwnWeather(**weather)
        self.kept = self.open()

    def open(self) -> Kept:
        return Kept(self.state, self.keys, self.roster, self.weather, self.said.append)

    def take(self, *notices: Notice) -> str:
        self.kept.take(pack(notices))
        return self.said[-1]


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    return Theatre(tmp_path_factory.mktemp("theatre"))


def signed(alone: Alone, serial: int, without: int = 0, by: SigningKey | None = None) -> Roster:
    members = [(name, name, read_agent(alone.theatre.stage.identity(name)).identity.public)
               for name in alone.theatre.stage.names[without:]]  # fmt: skip
    return sign_roster(alone.authority if by is None else by, members, serial)


def test_a_roster_is_kept_if_the_authority_signed_it_and_its_number_is_higher(theatre, tmp_path):
    alone = Alone(theatre, tmp_path)
    with pytest.raises(PeerError, match="no roster yet"):
        alone.kept.newest()
    assert alone.kept.listing() is None and alone.kept.holds() == ()
    assert "was sent roster 5, with 4 agents" in alone.take(signed(alone, 5))
    stranger = SigningKey(bytes(32))
    forged = signed(alone, 9, by=stranger)
    assert "another enrolment authority" in alone.take(forged)
    assert "does not verify" in alone.take(msgspec.structs.replace(forged, authority=alone.authority.public))
    altered = msgspec.structs.replace(signed(alone, 5), serial=9)
    assert "does not verify" in alone.take(altered)
    for serial in (4, 5):
        assert f"roster {serial} came, and this agent keeps 5: ignored" in alone.take(signed(alone, serial))
    for rubbish in (MARK, MARK + b"\xc1", MARK + bytes(500), MARK + bytes(MOST_BYTES)):
        alone.kept.take(rubbish)
        assert "ignored" in alone.said[-1] and "\n" not in alone.said[-1]
    assert alone.kept.newest().serial == 5 and len(alone.kept.holds()) <= 4
    assert alone.open().newest().serial == 5  # after a restart
    assert (alone.state / "roster.json").stat().st_mode & 0o077 == 0


def test_a_home_that_lost_the_roster_it_kept_takes_no_older_one(theatre, tmp_path):
    """Its journal knows the number; an older roster would make companies small, and its next start fail."""
    alone = Alone(theatre, tmp_path)
    alone.kept = Kept(alone.state, alone.keys, None, alone.weather, alone.said.append, least=2)
    assert "roster 1 came, and this agent has seen 2: ignored" in alone.take(signed(alone, 1))
    assert "was sent roster 2" in alone.take(signed(alone, 2))


def test_a_newer_file_wins_and_one_that_cannot_be_read_is_passed_over(theatre, tmp_path):
    path = tmp_path / "roster.json"
    path.write_bytes(theatre.stage.roster.read_bytes())
    alone = Alone(theatre, tmp_path, roster=path)
    assert alone.kept.newest().serial == 1
    alone.take(signed(alone, 3))
    assert alone.kept.newest().serial == 3
    path.write_bytes(msgspec.json.encode(signed(alone, 4)))
    assert alone.kept.newest().serial == 4
    path.write_text("{")
    assert alone.kept.newest().serial == 4 and "roster.json: is not a roster.json" in alone.said[-1]


def test_a_home_that_a_roster_does_not_list_says_so_and_stays_out(tmp_path):
    """While it runs, and from the start; a roster from before it was retired changes nothing."""
    theatre, said = Theatre(tmp_path), []
    name, old = theatre.stage.names[0], theatre.stage.roster.read_bytes()
    plan = theatre.plan
    with closing(theatre.seat(name, say=said.append)) as seat:
        before = seat.agent.roster
        (theatre.stage.identity(name) / "enrolment.json").rename(tmp_path / "away")
        roster, _ = create_roster(theatre.stage.keys, theatre.stage.roster, HOSTS)
        (tmp_path / "away").rename(theatre.stage.identity(name) / "enrolment.json")
        theatre.stage.roster.write_bytes(old)
        seat.kept.take(pack([roster]))
        assert any("roster 2 does not list this agent's key: it was retired or replaced" in text for text in said)
        for asked in (before, roster):
            with pytest.raises(PeerError, match="this agent is not in the roster"):
                seat.agent.receive(encode(Announce(plan=plan, roster=asked.hash(), attempt=1)))
    with closing(theatre.seat(name, say=said.append)) as seat:
        assert seat.kept.listing() is None
        with pytest.raises(PeerError, match="this agent is not in the roster"):
            seat.agent.receive(encode(Announce(plan=plan, roster=before.hash(), attempt=2)))
    (theatre.state(name) / "roster.json").unlink()
    files = AgentFiles(identity=theatre.stage.identity(name), data=theatre.stage.data(name))
    with closing(prepare_agent(files, None, OwnWeather(), theatre.rules, say=said.append)) as seat:
        seat.kept.take(pack([before]))
        assert "roster 1 came, and this agent has seen 2: ignored" in said[-1]  # its journal knows the number
    with pytest.raises(PeerError, match="roster 1 is older than 2"):
        theatre.seat(name)


def test_a_home_holds_no_more_of_a_message_than_it_could_take(theatre):
    """Neither a notice nor anything that this agent waits for is as long."""

    async def send(link: AgentLink, parts: int) -> None:
        for part in range(parts):
            await link._received("", frames.encode(Piece(bytes(16), 0, part, 64, False, bytes(1 << 20))))

    with closing(theatre.seat(theatre.stage.names[0])) as seat:
        link = link_agent(seat, ("tls://127.0.0.1:1",), print)
        asyncio.run(send(link, 16))
        with pytest.raises(PeerError, match=f"more than the {MOST_BYTES} bytes that are expected"):
            asyncio.run(send(link, 17))
        assert not link._assembly._open
        seat.agent.limit = lambda: 2 * MOST_BYTES
        asyncio.run(send(link, 32))


# The server


def test_a_reload_at_every_message_loses_nothing_and_nobody(tmp_path, monkeypatch):
    theatre, send, seen = Theatre(tmp_path, weights="equal"), Conductor._send, []
    alone = in_process(theatre.stage, theatre.plan).as_dict()["released"]

    async def reload_and_send(self, batch):
        config = theatre.stage.folder / "nats" / "server.conf"
        config.write_text(config.read_text() + f"# changed {len(seen)}\n")
        assert reload_server(theatre.stage.folder / "nats")
        await asyncio.sleep(0.3)
        seen.append(self.hub.connection)
        await send(self, batch)

    monkeypatch.setattr(Conductor, "_send", reload_and_send)
    with theatre.stage.server() as server:
        assert asyncio.run(theatre.perform(server.url)).as_dict()["released"] == alone
    log = (theatre.stage.folder / "nats" / "server.log").read_text()
    assert len(seen) == 4 and {line.connections for line in seen} == {1} and log.count("Reloaded server conf") == 4


def test_only_the_server_of_that_folder_is_told_to_reload(tmp_path):
    """A number left behind by a crash may be any process's, this one's for instance: a SIGHUP would end it."""
    assert not reload_server(tmp_path)
    for text in (str(os.getpid()), "1", "nonsense", ""):
        (tmp_path / PID_FILE).write_text(text)
        assert not reload_server(tmp_path)


def test_a_home_that_the_server_no_longer_knows_waits_and_the_others_of_its_process_go_on(tmp_path, monkeypatch):
    theatre = Theatre(tmp_path, agents=5, weights="equal")
    gone, others = theatre.stage.names[0], theatre.stage.names[1:]
    monkeypatch.setattr("atdm.transport.nats.LONGEST_PAUSE", 0.5)

    async def run():
        with closing(theatre.seat(gone)) as seat:
            link = link_agent(seat, (server.url,), print)
            task = asyncio.create_task(link.run())
            async with theatre.agents(server.url, others):
                while not link.connection.connections:
                    await asyncio.sleep(0.05)
                config = theatre.stage.folder / "nats" / "server.conf"
                known = config.read_text()
                retire_key(theatre.stage.keys, gone)
                create_roster(theatre.stage.keys, theatre.stage.roster, HOSTS)
                assert reload_server(theatre.stage.folder / "nats")
                found = await theatre.aggregate(server.url)
                assert not task.done() and link.connection.connections == 1
                config.write_text(known)
                assert reload_server(theatre.stage.folder / "nats")
                async with asyncio.timeout(20):
                    while link.connection.connections < 2:
                        await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return found.fit

    with theatre.stage.server() as server:
        found = asyncio.run(run())
    assert found.agents == 4 and found.out == {}


# Weather


def test_agents_without_weather_fit_with_published_rows_and_a_longer_file_changes_nothing(tmp_path):
    theatre, said, path = Bare(tmp_path), [], tmp_path / "weather.json"
    alone = in_process(theatre.stage, theatre.plan).as_dict()["released"]
    whole = weather_from(theatre.stage.weather)
    day = ROWS_A_DAY * theatre.plan.step_seconds
    later = Weather(np.append(whole.time, whole.time[-4:] + day), np.append(whole.outdoor, [1.0, 2.0, 3.0, 4.0]),
                    np.append(whole.solar, [0.0, 0.1, 0.2, 0.0]))  # fmt: skip

    async def run():
        async with theatre.agents(server.url, say=said.append) as seats:
            with pytest.raises(RunAborted, match="the plan's weather is not this agent's: publish the rows"):
                await theatre.aggregate(server.url)
            found = []
            for rows in (whole, later):
                sign_weather(theatre.stage.keys, rows, path)
                found.append((await theatre.aggregate(server.url, publish_weather=path)).as_dict()["released"])
            return found, {len(seat.kept._weather.time) for seat in seats.values()}

    async def restarted():
        async with theatre.agents(server.url):
            return (await theatre.aggregate(server.url)).as_dict()["released"]

    with theatre.stage.server() as server:
        assert asyncio.run(run()) == ([alone, alone], {len(later.time)})
        assert asyncio.run(restarted()) == alone  # they keep it
    assert sum("4 published rows of weather kept, 64 in all" in text for text in said) == AGENTS
    other = Weather(whole.time, whole.outdoor + 1, whole.solar)
    sign_weather(theatre.stage.keys, other, path)
    with theatre.stage.server() as server, pytest.raises(UsageError, match="has other rows than the plan's weather"):
        asyncio.run(theatre.aggregate(server.url, publish_weather=path))


def test_published_weather_is_checked_against_the_agents_own_and_never_replaced(theatre, tmp_path):
    own = weather_from(theatre.stage.weather)
    alone = Alone(theatre, tmp_path, path=theatre.stage.weather, outdoor=2.0, solar=100.0)

    def published(outdoor: float, solar: float, rows: slice, by: SigningKey | None = None) -> str:
        """[K], [kW/m²] off the agent's own."""
        table = Weather(own.time[rows], own.outdoor[rows] + outdoor, own.solar[rows] + solar)
        return alone.take(SignedWeather.of(table, alone.authority if by is None else by))

    def kept() -> np.ndarray:
        return alone.open()._weather.outdoor  # as after a restart

    assert "does not verify" in published(0.0, 0.0, slice(0, 8), SigningKey(bytes(32)))
    assert len(kept()) == 0
    assert "4 published rows of weather kept, 4 in all" in published(1.5, 0.05, slice(0, 4))
    assert "0 published rows of weather kept, 4 in all" in published(2.5, 0.0, slice(4, 8))
    assert "4 published rows of weather are not kept: they differ from" in alone.said[-2]
    assert "by up to 2.5 K and 0 W/m²" in alone.said[-2]
    assert "0 published rows" in published(0.0, 0.2, slice(4, 8)) and "200 W/m²" in alone.said[-2]
    assert "4 published rows of weather kept, 8 in all" in published(-1.0, 0.0, slice(0, 8))
    assert "4 published rows of weather differ from those kept before, which stay" in alone.said[-2]
    np.testing.assert_array_equal(kept(), own.outdoor[:8] + np.repeat([1.5, -1.0], 4))


def test_weather_that_could_not_be_compared_is_wanted_again_and_nothing_new_is_not_written(theatre, tmp_path):
    table = tmp_path / "weather.parquet"
    alone = Alone(theatre, tmp_path, path=table)
    rows = SignedWeather.of(weather_from(theatre.stage.weather), alone.authority)
    assert "cannot be read" in alone.take(rows) or "no such file" in alone.said[-1].lower()
    assert alone.kept.holds() == ()
    table.write_bytes(theatre.stage.weather.read_bytes())
    assert "published rows of weather kept" in alone.take(rows) and len(alone.kept.holds()) == 1
    written = (alone.state / "weather.json").stat().st_mtime_ns
    alone.take(rows)
    assert (alone.state / "weather.json").stat().st_mtime_ns == written


# Who is there


def test_with_fewer_homes_than_wanted_nobody_is_asked(tmp_path):
    theatre, said = Theatre(tmp_path, agents=5, weights="equal"), []

    async def run():
        async with theatre.agents(server.url, theatre.stage.names[:4], say=said.append):
            with pytest.raises(RunAborted) as caught:
                await theatre.aggregate(server.url, wait=1.5, at_least=5)
            asked = list(said)
            return str(caught.value), asked, (await theatre.aggregate(server.url, wait=1.5, at_least=4)).fit.agents

    with theatre.stage.server() as server:
        text, asked, agents = asyncio.run(run())
    assert text == (
        "4 of 5 homes are there after 1.5 s, fewer than the 5 that are wanted: nobody was asked; wait for longer, or "
        "ask for fewer"
    )
    assert asked == [] and agents == 4
    with pytest.raises(UsageError, match="at_least 2: below 3 a sum gives its parts away"):
        theatre.config("tls://127.0.0.1:1", at_least=2)
