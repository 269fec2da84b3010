"""Agents whose readings are in databases give the model of agents whose readings are in files."""

import asyncio
import errno
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.data.check import quality
from atdm.data.format import Format
from atdm.data.sources import Rows, Source, open_source
from atdm.data.sources.table import Table
from atdm.deploy.agent import AgentFiles, RunningAgent, link_agent, prepare_agent
from atdm.deploy.notices import OwnWeather
from atdm.deploy.own import BACK, OwnReadings
from atdm.deploy.rehearse import plan_of, set_up
from atdm.errors import DataError, RunAborted
from atdm.options import fit_options
from atdm.protocol.messages import Announce, encode
from atdm.protocol.plan import Collect
from atdm.protocol.rules import Rules
from tests.clusters import tiny
from tests.data.recorded import TEMPERATURE, Recorded
from tests.deploy.homes import HEAT, NOMINAL, ROOM, ROUNDING_K, export
from tests.deploy.theatre import Theatre, in_process, write_weather

HOMES, DAYS = 12, 20
LOAD_KW = NOMINAL / 3600 / 2  # by how much a burner's whole seconds are off at most: the coarsest rounding  [kW]
OPTIONS = fit_options(weights="equal", order=2)


class Recorded12(Theatre):
    """Homes under the rules of a deployment, no dither, each with its own kind of database."""

    def __init__(self, folder: Path) -> None:
        self.cluster, self.rules = tiny(3, agents=HOMES, rows=24 * DAYS, step="1h"), replace(Rules(), dither=0.0)
        weather = write_weather(self.cluster, folder / "weather.parquet")
        self.stage = set_up(folder, self.cluster, weather, Format(), self.rules)
        self.plan = plan_of(self.stage, self.cluster, OPTIONS, self.rules)
        self.sources = export(self.cluster, folder / "homes")

    def seat(self, name: str, rules: Rules | None = None, say: Any = None) -> RunningAgent:
        files = AgentFiles(identity=self.stage.identity(name), data=open_source(*self.sources[name]))
        return prepare_agent(files, self.stage.roster, OwnWeather(path=self.stage.weather), self.rules)


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    return Recorded12(tmp_path_factory.mktemp("homes"))


def test_homes_recorded_by_home_assistant_give_the_model_of_their_files(theatre):
    """Over NATS; equal to the accuracy of the rounding in the databases."""
    read = {}

    async def play():
        async with theatre.agents(server.url) as seats:
            read.update({name: seat.agent.own.readings for name, seat in seats.items()})
            return await theatre.aggregate(server.url)

    with theatre.stage.server() as server:
        deployed = asyncio.run(play())

    cluster = theatre.cluster
    for name, readings in read.items():
        np.testing.assert_array_equal(readings.time, cluster.time.asi8 // 10**9)
        assert not readings.filled.any()
        np.testing.assert_allclose(readings.temperature, cluster.temperature[name], rtol=0, atol=1.01 * ROUNDING_K)
        np.testing.assert_allclose(readings.load, cluster.load[name], rtol=0, atol=1.01 * LOAD_KW)

    from_files = in_process(theatre.stage, theatre.plan).fit
    assert deployed.fit.out == {} and deployed.fit.agents == HOMES
    for series, expected, rounding in (
        (deployed.fit.state, from_files.state, ROUNDING_K), (deployed.fit.load, from_files.load, HOMES * LOAD_KW)
    ):  # fmt: skip
        np.testing.assert_allclose(series, expected, rtol=0, atol=rounding)
    # the same rounding in a table: what is left is the ring's
    frames = [pd.DataFrame({n: getattr(read[n], kind) for n in cluster.agents}, index=cluster.time)
              for kind in ("temperature", "load")]  # fmt: skip
    rounded = atdm.Cluster.from_frames(*frames, cluster.outdoor, cluster.solar)
    same = atdm.fit(rounded, weights="equal", dither=0.0)
    for kind in ("alpha", "beta", "gamma", "theta", "occupancy"):
        found, files, table = (np.asarray(getattr(fit.model, kind)) for fit in (deployed.fit, from_files, same))
        np.testing.assert_allclose(found, table, rtol=0, atol=1e-6 * np.abs(table).max())
        np.testing.assert_allclose(found, files, rtol=0, atol=2e-3 * np.abs(files).max())
    r2 = [fit.metrics["test"]["free_run"]["r2"] for fit in (deployed.fit, from_files)]
    assert abs(r2[0] - r2[1]) < 1e-4


def weather_of(cluster, folder: Path) -> Path:
    return write_weather(cluster, folder / "weather.parquet")


def test_an_agent_reads_on_in_a_database_that_grows(tmp_path):
    cluster = tiny(1, agents=1, rows=24 * 8, step="1h")
    name, time = cluster.agents[0], cluster.time.asi8 // 10**9
    values = cluster.temperature[name].to_numpy()
    made = Recorded(tmp_path / "home.db")
    made.run(float(time[0]))
    watts = {"state_class": "measurement", "unit_of_measurement": "W"}
    made.states(HEAT, [time[0] - 1], [500], watts)
    asked: list[int | None] = []

    def write(rows: slice) -> None:
        made.states(ROOM, time[rows], values[rows], {**TEMPERATURE, "unit_of_measurement": "°C"})
        made.states(HEAT, [time[rows][-1] + 3599], [500], watts)
        made.states("sun.sun", [time[rows][-1] + 3601], ["up"], {})

    source = open_source(f"homeassistant:{tmp_path / 'home.db'}", {"temperature": ROOM, "heat": HEAT, "step": "1h",
                                                                   "hold": "240h"})  # fmt: skip
    rows = source.rows
    source.rows = lambda since=None: asked.append(since) or rows(since)
    own = OwnReadings(source, weather_of(cluster, tmp_path), name, Format())
    write(slice(0, 24 * 6))
    assert len(own.read().time) == 24 * 6
    write(slice(24 * 6, 24 * 7))
    again = own.read()
    np.testing.assert_array_equal(again.time, time[: 24 * 7])
    np.testing.assert_allclose(again.temperature, values[: 24 * 7])
    assert asked == [time[0] - 1, time[24 * 6 - 1] - BACK]  # all, then the last days again


def test_what_is_wrong_with_a_source_is_for_the_agents_own_log(tmp_path):
    cluster = tiny(1, agents=1, rows=48, step="1h")
    source = open_source(f"homeassistant:{tmp_path / 'home.db'}", {"temperature": ROOM, "heat": HEAT})
    own = OwnReadings(source, weather_of(cluster, tmp_path), "zone00", Format())
    said: list[str] = []
    with pytest.raises(DataError, match="^its readings cannot be read at present: see this agent's own log$"):
        own.read_again(said.append)
    assert "no such file" in said[0]
    made = Recorded(tmp_path / "home.db")
    for entity, unit in ((ROOM, "°C"), (HEAT, "W")):
        made.states(entity, [1000.0], [20], {"unit_of_measurement": unit})
    with pytest.raises(DataError, match="has no readings since 2024-01-01T00:00:00Z, where the weather begins"):
        own.read()


DAY, HALF_HOUR = 86400, 1800
NOW = int(time.time()) // HALF_HOUR * HALF_HOUR


class Live(Source):
    """A home's recorder: half-hours up to `end`, and what is wrong with some of them."""

    name = "live:home"

    def __init__(self, *, days: int = 20, end: int = NOW) -> None:
        self.begin, self.end = NOW - days * DAY, end
        self.extra: list[int] = []  # stamps of more rows
        self.temperature: dict[int, float] = {}  # by stamp
        self.load: dict[int, float] = {}

    def rows(self, since: int | None = None) -> Rows:
        stamps = np.array([*range(self.begin, self.end, HALF_HOUR), *self.extra])
        count = (stamps // HALF_HOUR).tolist()
        warm = [self.temperature.get(t, 20 + 0.1 * (n % 7)) for t, n in zip(stamps.tolist(), count, strict=True)]
        load = [self.load.get(t, 1.0 + n % 3) for t, n in zip(stamps.tolist(), count, strict=True)]
        return Rows(stamps, np.array(warm), np.array(load)).after(since)


def own_of(source: Source) -> OwnReadings:
    return OwnReadings(source, None, "home", Format())


def write_table(source: Live, path: Path) -> None:
    found = source.rows()
    stamps = pd.to_datetime(found.time, unit="s", utc=True).strftime("%Y-%m-%dT%H:%M:%SZ")
    columns = {"time": stamps, "agent": "home", "indoor_temp_c": found.temperature, "load_kw": found.load}
    pd.DataFrame(columns).to_csv(path, index=False)


@pytest.mark.parametrize("kind", ["table", "live"])
def test_a_row_stamped_in_the_future_is_left_out_and_said_and_reading_goes_on(kind, tmp_path):
    source, path = Live(end=NOW - DAY), tmp_path / "home.csv"
    source.extra = [NOW + 400 * DAY]
    write_table(source, path)
    own = own_of(source if kind == "live" else Table(path))
    assert own.read().time[-1] == NOW - DAY - HALF_HOUR
    [note] = [note for note in own.notes if "later" in note]
    assert "1 rows left out that are later than this machine's clock" in note
    source.end = NOW
    write_table(source, path)
    said: list[str] = []
    assert own.read_again(said.append).time[-1] == NOW - HALF_HOUR
    assert said == []  # nothing that was not said before
    source.extra.append(NOW + 401 * DAY)
    write_table(source, path)
    for _ in range(2):
        own.read_again(said.append)
    assert len(said) == 1 and "2 rows left out" in said[0]


def test_the_row_that_is_being_measured_is_not_in_the_future():
    own = own_of(Live(end=NOW + 2 * HALF_HOUR))  # its last one begins within a step of now
    assert own.read().time[-1] == NOW + HALF_HOUR and own.notes == ()


def test_stamps_in_milliseconds_are_refused_in_a_line_that_says_so():
    class Milliseconds(Live):
        def rows(self, since: int | None = None) -> Rows:
            found = super().rows()
            return Rows(1000 * found.time, found.temperature, found.load).after(since)

    with pytest.raises(DataError, match="^live:home: all 960 rows are later .*: give stamps in seconds since 1970 UTC"):
        own_of(Milliseconds()).read()
    assert "all 960 rows are later" in quality(Milliseconds()).problems[0]


def test_rows_read_under_a_clock_that_was_ahead_are_asked_for_again(monkeypatch):
    source = Live(end=NOW + 10 * DAY)
    own = own_of(source)
    clock = [NOW + 10 * DAY]
    monkeypatch.setattr("atdm.deploy.own.time.time", lambda: float(clock[0]))
    assert own.read().time[-1] == NOW + 10 * DAY - HALF_HOUR
    clock[0], source.end = NOW, NOW - HALF_HOUR
    assert own.read_again([].append).time[-1] == NOW - 2 * HALF_HOUR


def test_an_error_code_of_a_live_source_is_lacking_and_said_and_the_home_stays_in():
    source = Live(end=NOW - 2 * DAY)
    own = own_of(source)
    before = own.read()
    assert own.notes == ()
    bad = NOW - DAY
    source.end, source.temperature[bad] = NOW, -127.0
    said: list[str] = []
    found = own.read_again(said.append)
    assert len(found.time) == len(before.time) + 2 * 48 and found.filled[found.time == bad].all()  # a gap of one row
    assert found.temperature.min() >= 20
    assert len(said) == 1 and "temperature is outside -30 to 70 °C in 1 rows, taken as lacking there" in said[0]
    source.end += HALF_HOUR
    assert len(own.read_again(said.append).time) == len(found.time) + 1 and len(said) == 1  # once
    afresh = own_of(source)  # a restart reads it too
    np.testing.assert_array_equal(afresh.read().time[:-1], found.time)
    assert "in 1 rows" in afresh.notes[0]
    checked = quality(source)
    assert checked.problems == () and any("in 1 rows" in note for note in checked.notes)


def test_the_same_in_a_load_is_lacking_for_as_long_as_it_lasts():
    source = Live()
    for step in range(10):  # five hours: too long to fill
        source.load[NOW - 5 * DAY + step * HALF_HOUR] = 65535.0
    found = own_of(source).read()
    assert len(found.time) == 960 - 10 and found.load.max() <= 3


@pytest.mark.parametrize("bad, refused", [(48, False), (49, True)])
def test_more_than_a_twentieth_of_impossible_values_is_refused(bad, refused):
    source = Live()
    source.temperature = {source.begin + 10 * step * HALF_HOUR: 85.0 for step in range(bad)}
    problem = "temperature is 85 at .*, outside -30 to 70 °C"
    if refused:
        with pytest.raises(DataError, match=problem):
            own_of(source).read()
        assert "is 85 at" in quality(source).problems[0]
    else:
        own_of(source).read()


def test_another_unit_is_refused_as_before_even_where_few_of_its_values_are_impossible():
    source = Live()
    on = {source.begin + step * HALF_HOUR: 12_000.0 for step in range(30)}  # W, of a heater that is off but for 3 %
    source.load = {stamp: on.get(stamp, 0.0) for stamp in range(source.begin, source.end, HALF_HOUR)}
    with pytest.raises(DataError, match="load peaks at 12000, looks like W, not kW"):
        own_of(source).read()


def test_an_impossible_value_in_a_table_is_refused_as_before(tmp_path):
    source = Live()
    source.temperature[NOW - DAY] = -127.0
    write_table(source, tmp_path / "home.csv")
    with pytest.raises(DataError, match="indoor_temp_c of agent 'home' is -127 at .*, outside -30 to 70 °C"):
        own_of(Table(tmp_path / "home.csv")).read()


@pytest.mark.parametrize("error", [OSError, KeyError, RecursionError, RunAborted])
def test_whatever_a_source_raises_keeps_its_home_out_and_is_logged_by_its_type_alone(error, tmp_path):
    """In the announcement's own handler: what it raises would end the process with every other home in it."""

    class Fails(Live):
        fails = False

        def rows(self, since: int | None = None) -> Rows:
            if self.fails:
                raise error("password hunter2, 21.5 °C")
            return super().rows(since)

    source, said = Fails(end=NOW - DAY), []
    theatre = Theatre(tmp_path)
    files = AgentFiles(identity=theatre.stage.identity(theatre.stage.names[0]), data=source)
    running = prepare_agent(files, theatre.stage.roster, OwnWeather(), Rules(), say=said.append)
    with closing(running):
        link = link_agent(running, ("tls://127.0.0.1:1",), said.append)
        source.fails = True
        plan = Collect(step_seconds=HALF_HOUR, start=NOW // DAY * DAY - DAY, length=48)
        announce = Announce(plan=plan, roster=running.kept.newest().hash(), attempt=1)
        [refusal] = link._answer(0, encode(announce))
    assert b"its readings cannot be read at present: see this agent's own log" in refusal
    assert any(f"cannot be read ({error.__name__})" in line for line in said)
    assert not any("hunter2" in line or "21.5" in line for line in said) and b"hunter2" not in refusal
    with pytest.raises(DataError, match=f"^live:home: cannot be read .{error.__name__}.: ") as caught:
        own_of(source).read()  # nor at the start
    assert "hunter2" not in str(caught.value)


class Means(Live):
    """Rows that are means, of a sensor whose step a source tells."""

    quantum = 0.5

    def rows(self, since: int | None = None) -> Rows:
        found = super().rows(since)
        return replace(found, temperature=20 + np.sin(found.time / 7e4) / 3, quantum=self.quantum)


def test_the_dither_is_as_wide_as_the_step_that_means_hide(tmp_path):
    """Before a run, after reading on, and after a restart in the middle of the run that this began."""
    source, theatre = Means(end=NOW - DAY), Theatre(tmp_path)
    files = AgentFiles(identity=theatre.stage.identity(theatre.stage.names[0]), data=source)

    def start() -> RunningAgent:
        return prepare_agent(files, theatre.stage.roster, OwnWeather(), Rules())

    with closing(start()) as running:
        assert running.agent.own.memory.quantum == 0.5  # 1e-4 by what the rows show
        source.end, source.quantum = NOW, 1.0
        plan = Collect(step_seconds=HALF_HOUR, start=NOW // DAY * DAY - 2 * DAY, length=24)  # whatever the hour
        announce = encode(Announce(plan=plan, roster=running.kept.newest().hash(), attempt=1))
        assert running.agent.receive(announce)
        assert running.agent.own.memory.quantum == 0.5  # rows that it had: no need to read on
        later = Collect(step_seconds=HALF_HOUR, start=(NOW - 4 * HALF_HOUR) // HALF_HOUR * HALF_HOUR, length=4)
        announce = encode(Announce(plan=later, roster=running.kept.newest().hash(), attempt=2))
        [ready] = running.agent.receive(announce)
        assert running.agent.own.memory.quantum == 1.0
    source.quantum = 0.0  # states were purged
    with closing(start()) as running:
        assert running.agent.state == "joined" and running.agent.own.memory.quantum == 1.0
        assert running.agent.receive(announce) == [ready]


def test_the_step_of_means_is_the_coarsest_that_was_ever_told_and_no_nonsense():
    source = Means(end=NOW - DAY)
    own = own_of(source)
    own.read()
    source.end, source.quantum = NOW, 0.1
    own.read_again([].append)
    assert own.quantum == 0.5
    source.quantum = -1.0
    with pytest.raises(DataError, match="as the step of its sensor: give a positive one, or 0"):
        own.read()


def test_a_source_that_gives_something_else_than_rows_is_named():
    source = Live()
    source.rows = lambda since=None: [(NOW, 20.0, 1.0)]
    with pytest.raises(DataError, match="^live:home: gave a list, not Rows: mend its package$"):
        own_of(source).read()


def test_a_disk_that_fails_under_a_table_keeps_its_home_out(tmp_path, monkeypatch):
    write_table(Live(), tmp_path / "home.csv")
    own, said = own_of(Table(tmp_path / "home.csv")), []
    own.read()
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(DataError, match="^its readings cannot be read at present"):
        own.read_again(said.append)
    assert "cannot be read (OSError)" in said[0]
