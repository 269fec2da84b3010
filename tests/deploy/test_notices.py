"""Rosters and weather are carried by whoever comes along; what counts is the authority's signature."""

import asyncio
import json
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from atdm.crypto.keys import SigningKey, read_key_file
from atdm.data.format import Format
from atdm.deploy.agent import AgentFiles, RunningAgent, link_agent, prepare_agent
from atdm.deploy.conductor import Conductor
from atdm.deploy.enrolment import SignedWeather, create_agent, create_roster, read_agent, retire_key, sign_weather
from atdm.deploy.notices import MARK, MOST_BYTES, Kept, OwnWeather, pack
from atdm.deploy.own import weather_from
from atdm.deploy.server import reload_server
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.protocol.messages import Announce, encode
from atdm.protocol.readings import Weather
from atdm.protocol.roster import Roster, sign_roster
from atdm.protocol.rules import Rules
from atdm.transport import nats
from tests.deploy.theatre import AGENTS, ROWS, ROWS_A_DAY, Theatre, in_process, kind_of, write_weather

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


def test_a_home_that_enrols_is_in_the_next_fit_and_one_that_is_retired_is_not(tmp_path):
    theatre, said = Bare(tmp_path, agents=5, weights="equal"), []
    gone, late = theatre.stage.names[0], theatre.stage.names[4]
    away = tmp_path / "not sent yet"
    (theatre.stage.identity(late) / "enrolment.json").rename(away)
    theatre.sign()

    async def grow():
        async with theatre.agents(server.url, theatre.stage.names[:4], say=said.append):
            first = await theatre.aggregate(server.url)
            away.rename(theatre.stage.identity(late) / "enrolment.json")
            retire_key(theatre.stage.keys, gone)
            create_roster(theatre.stage.keys, theatre.stage.roster, HOSTS, since=0)
            assert reload_server(theatre.stage.folder / "nats")
            async with theatre.agents(server.url, [late], say=said.append):
                return first.fit, await theatre.aggregate(server.url)

    with theatre.stage.server() as server:
        first, second = asyncio.run(grow_over_blocks(theatre, grow))
    assert first.agents == 4 and second.fit.agents == 4
    assert f"{late}: was sent roster 3, with 4 agents" in said


async def grow_over_blocks(theatre: Theatre, grow: Any) -> Any:
    """Days have one company for good: the second fit is over the second half of the window."""
    half = theatre.plan.length // 2
    whole, theatre.plan = theatre.plan, msgspec.structs.replace(theatre.plan, length=half)
    aggregate = theatre.aggregate

    async def next_half(url: str, *rest: Any, **options: Any) -> Any:
        found = await aggregate(url, *rest, **options)
        theatre.plan = msgspec.structs.replace(whole, start=whole.start + half * whole.step_seconds, length=half)
        return found

    theatre.aggregate = next_half  # type: ignore[method-assign]
    return await grow()
