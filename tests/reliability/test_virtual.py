"""The virtual world is one: its rows are those of a real server, a kill is a kill, and time passes for nothing."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from atdm import run
from atdm.deploy import collecting
from atdm.deploy.agent import RunningAgent, link_agent
from atdm.deploy.collecting import Office
from atdm.errors import UsageError
from atdm.run import rows_of_plan
from atdm.transport import frames
from atdm.transport.disk import lock
from atdm.transport.frames import Here
from atdm.transport.nats import CALL_EVERY, RESUME_EVERY, Hub, NatsConfig, subject
from tests.deploy.theatre import Theatre, reopen, silent
from tests.reliability.virtual import Party, World

START = 1_710_000_000.0  # after the last row of the homes here
URL = "tls://virtual:1"


def test_a_year_passes_without_waiting_and_every_party_has_its_own_time_of_day():
    world = World(START, 0)
    late = Party("late", skew=-3600.0)

    async def sleep_and_look():
        await asyncio.sleep(365 * 86400)
        return run.attempt_now()

    async def both():
        return await asyncio.gather(sleep_and_look(), world.begin(late, sleep_and_look()))

    right, wrong = world.run(both())
    assert right == 1000 * (START + 365 * 86400) and wrong == right - 3_600_000


def test_a_killed_party_runs_no_further_line_and_its_locks_are_free(tmp_path):
    world, party, said = World(START, 0), Party("home"), []

    async def live():
        held = lock(tmp_path)
        party.locks.append(held)
        try:
            await asyncio.gather(asyncio.sleep(5), asyncio.sleep(50))
            said.append("lived")
        finally:
            said.append("tidied up")

    async def play():
        world.begin(party, live())
        await asyncio.sleep(1)
        with pytest.raises(UsageError, match="in use by another process"):
            lock(tmp_path)
        world.kill(party)
        await asyncio.sleep(100)
        lock(tmp_path).close()
        return list(said)

    assert world.run(play()) == []


def test_nobody_waits_for_ever():
    async def wait():
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nobody for the time"):
        World(START, 0).run(wait())


async def collect(theatre: Theatre, url: str) -> pd.DataFrame:
    """The rows of the theatre's window, as `atdm observe` and `atdm serve` collect them."""
    tables: list[pd.DataFrame] = []
    with Office(theatre.config(url, wait=600.0, deadline=600.0), silent) as office:
        plan = rows_of_plan(theatre.plan)
        await collecting.collect(office, plan, lambda portion: tables.append(portion.observation().table))
    return pd.concat(tables)


async def collect_virtually(world: World, theatre: Theatre) -> tuple[pd.DataFrame, Sequence[RunningAgent]]:
    seats = [theatre.seat(name) for name in theatre.stage.names]
    for seat in seats:
        world.begin(Party(seat.agent.name), link_agent(seat, (URL,), silent).run())
    return await world.begin(Party("aggregator"), collect(theatre, URL)), seats


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """A folder with homes, keys and empty accounts, and the rows that a copy of it gave over a real server."""
    folder = tmp_path_factory.mktemp("real")
    theatre = Theatre(folder, weights="equal")
    untouched = folder.with_name("untouched")
    shutil.copytree(folder, untouched)

    async def play() -> pd.DataFrame:
        async with theatre.agents(server.url):
            return await collect(theatre, server.url)

    with theatre.stage.server() as server:
        return untouched, asyncio.run(play())


@pytest.mark.parametrize("killed", [None, 1, 5, 9, 13, 17, 21])
def test_rows_are_those_of_a_real_server_also_where_the_server_is_killed_at_a_message(real, tmp_path, killed):
    """killed: number of the message that it does not carry any more."""
    untouched, expected = real
    shutil.copytree(untouched, tmp_path / "virtual")
    world = World(START, 0)

    def kill_server(_to: str, _data: bytes) -> None:
        if world.broker.carried == killed:
            world.broker.stop()
            world.loop.call_later(100.0, world.broker.begin)

    world.broker.heard = kill_server
    table, seats = world.run(collect_virtually(world, reopen(tmp_path / "virtual", "equal")))
    pd.testing.assert_frame_equal(table, expected, check_exact=True)
    assert killed is None or world.now() > START + 100.0
    for seat in seats:
        seat.close()


def test_a_seed_gives_the_same_messages_again(real, tmp_path):
    def play(name: str) -> list[tuple[str, int, float]]:
        shutil.copytree(real[0], tmp_path / name)
        world, carried = World(START, 5), []
        world.broker.heard = lambda to, data: carried.append((to, len(data), world.now()))
        world.loop.call_later(0.0, world.broker.stop)
        world.loop.call_later(30.0, world.broker.begin)
        for seat in world.run(collect_virtually(world, reopen(tmp_path / name, "equal")))[1]:
            seat.close()
        return carried

    assert play("first") == play("second")


def test_who_is_there_is_called_every_two_seconds_while_somebody_is_waited_for(real, tmp_path):
    shutil.copytree(real[0], tmp_path / "virtual")
    theatre, world, calls = reopen(tmp_path / "virtual", "equal"), World(START, 0), []
    world.broker.heard = lambda to, _: calls.append(world.now()) if to.endswith("down.all") else None

    async def gather() -> None:
        async with theatre.conducting(URL, wait=60.0) as conductor:
            await conductor.hub.gather({member.identity.hex() for member in conductor.roster.members}, 60.0, print)

    async def play() -> None:
        seats = [theatre.seat(name) for name in theatre.stage.names[1:]]
        for seat in seats:
            world.begin(Party(seat.agent.name), link_agent(seat, (URL,), silent).run())
        await world.begin(Party("aggregator"), gather())
        for seat in seats:
            seat.close()

    world.run(play())
    assert 60 / CALL_EVERY <= len(calls) <= 60 / CALL_EVERY + 2 * len(theatre.stage.names)


def sent_again(asked: Sequence[float], posted: Sequence[float] = ()) -> list[float]:
    """When a home that answers nothing is sent again what it lacks; asked: when it says that it is there; posted: when
    there is a second message, and so on.  [s]"""
    world, authority, home, sent = World(START, 0), bytes(32), b"\1" * 32, []
    up, down = (subject(authority, way, home.hex()) for way in ("up", "down"))
    world.broker.heard = lambda to, _: sent.append(world.now() - START) if to == down else None

    async def play() -> None:
        config = NatsConfig(servers=(URL,), ca="", nkey=b"")
        async with Hub(config, authority, bytes(frames.STREAM_BYTES), lambda: 0) as hub:
            hub.begin([home])
            await hub.post([(None, bytes(1000))])
            for moment in sorted([*asked, *posted]):
                await world.until(START + moment)
                if moment in posted:
                    await hub.post([(None, bytes(1000))])
                else:
                    world.broker.publish(up, frames.encode(Here(bytes(frames.STREAM_BYTES))))
            await asyncio.sleep(RESUME_EVERY + 2)

    world.run(play())
    return sent


def test_a_home_that_says_all_the_time_that_it_is_there_is_sent_what_it_lacks_every_two_seconds():
    sent = sent_again([0.5 + 0.01 * i for i in range(6000)])
    assert 60 / (RESUME_EVERY + 1) <= len(sent) <= 60 / RESUME_EVERY + 2


def test_a_home_that_comes_back_is_sent_what_it_lacks_at_once_and_soon_where_it_is_lost_again():
    assert sent_again([10.0, 20.0]) == pytest.approx([10.0, 20.0])
    first, second = sent_again([10.0, 10.3])
    assert first == pytest.approx(10.0) and RESUME_EVERY <= second - first <= RESUME_EVERY + 1
    assert sent_again([10.0, 10.3], posted=[10.2]) == pytest.approx([10.0, 10.3, 10.3])


def test_a_home_that_was_left_out_takes_the_next_announcement_also_where_the_clock_was_set_back(real, tmp_path):
    shutil.copytree(real[0], tmp_path / "virtual")
    theatre, world = reopen(tmp_path / "virtual", "equal"), World(START, 0)
    aggregator, answered = Party("aggregator"), []

    async def ask(excluded: dict[str, str]) -> None:
        with Office(theatre.config(URL), silent) as office:
            conductor = office.conductor(rows_of_plan(theatre.plan), excluded=excluded)
            async with conductor.hub:
                role, _ = await conductor.carry()
            answered.append({role.roster.members[place].identity.hex() for place in role.answers})

    async def play() -> None:
        seats = [theatre.seat(name) for name in theatre.stage.names]
        for seat in seats:
            world.begin(Party(seat.agent.name), link_agent(seat, (URL,), silent).run())
        out = {seats[0].keys.identity.public.hex(): "a test"}
        await world.begin(aggregator, ask(out))
        aggregator.skew = -5 * 3600.0
        await world.begin(aggregator, ask(out))
        for seat in seats:
            seat.close()

    world.run(play())
    assert len(answered) == 2 and all(len(keys) == len(theatre.stage.names) for keys in answered)
