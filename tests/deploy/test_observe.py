"""`atdm observe` over a real NATS server: running agents read on, the table grows, a forecast starts from it."""

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.data.format import Format
from atdm.data.sources.table import Table
from atdm.deploy.fleet import OF_THE_PAST, OUTAGES, FleetFile
from atdm.deploy.observe import observe_plan
from atdm.deploy.own import OwnReadings
from atdm.deploy.rehearse import write_data
from atdm.deploy.watch import Seeing, until_next_row, watch_rows
from atdm.errors import DataError, RunAborted, UsageError
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.model.fitted import Origin
from atdm.protocol.company import flags
from atdm.run import own_rules
from atdm.transport.nats import AgentLink
from atdm.use.series import continued, with_rows
from tests.deploy.theatre import AGENTS, ROWS, ROWS_A_DAY, Theatre

LATER = 2 * ROWS_A_DAY
DAY = pd.Timedelta("24h")
HALF_HOURS = Calendar(step=pd.Timedelta("30min"), timezone="UTC", season=48)


@pytest.fixture(autouse=True)
def short_farewell(monkeypatch):
    monkeypatch.setattr("atdm.deploy.conductor.FAREWELL", 1.0)


class Watched(Theatre):
    """A theatre in which the last two days come later, and the weather ends with the fit; its table of observations."""

    def __init__(self, folder: Path, **options) -> None:
        super().__init__(folder, later=LATER, **options)
        pd.read_parquet(self.stage.weather).iloc[:-LATER].to_parquet(self.stage.weather, index=False)
        self.table = pd.DataFrame(columns=["aggregate_temp_c", "load_kw", "agents"], index=self.cluster.time[:0])
        self.runs: list[atdm.Observation] = []
        self.said: list[str] = []

    async def fit(self, url: str) -> atdm.Model:
        return (await self.aggregate(url)).fit.model

    async def watch(
        self, url: str, model: atdm.Model, *, rows: int = LATER, wait: float = 20.0, **seeing
    ) -> list[atdm.Observation]:
        """`atdm observe` up to so many rows after the fit, in a thread; what its runs gave."""
        before = len(self.runs)
        options = {
            "back": 3 * DAY,
            "until": self.cluster.time[ROWS - LATER + rows - 1],
            "outages": OF_THE_PAST,
            **seeing,
        }
        asked = Seeing(known=lambda: pd.DatetimeIndex(self.table.index), **options)
        await asyncio.to_thread(watch_rows, self.config(url, wait=wait), model, self.said.append, self.keep, asked)
        return self.runs[before:]

    def keep(self, found: atdm.Observation) -> None:
        self.runs.append(found)
        assert not found.table.index.isin(self.table.index).any()
        self.table = pd.concat([self.table, found.table]) if len(self.table) else found.table

    def truth(self, weights: pd.Series) -> tuple[np.ndarray, np.ndarray]:
        """State and load of the rows in the table, from the bare readings of those with a weight."""
        own = self.cluster.temperature.loc[self.table.index, weights.index]
        return (own @ weights).to_numpy(), self.cluster.load.loc[self.table.index, weights.index].sum(axis=1).to_numpy()

    def is_true(self, weights: pd.Series) -> bool:
        state, load = self.truth(weights)
        np.testing.assert_allclose(self.table["aggregate_temp_c"], state, atol=1e-3)  # a dither of a tenth of 0.01 °C
        np.testing.assert_allclose(self.table["load_kw"], load, atol=1e-6)
        return bool((self.table["agents"] == len(weights)).all())


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_running_agents_read_on_and_rows_that_are_known_are_not_asked_for_again(tmp_path, weights):
    theatre = Watched(tmp_path, weights=weights)

    async def play():
        async with theatre.agents(server.url) as seats:
            model = await theatre.fit(server.url)
            write_data(theatre.stage, theatre.cluster, later=2)
            (first,) = await theatre.watch(server.url, model)
            write_data(theatre.stage, theatre.cluster)
            (second,) = await theatre.watch(server.url, model)
            with pytest.raises(UsageError, match="all rows up to now have been collected"):
                await theatre.watch(server.url, model)
            return first, second, pd.Series({name: seat.agent.weight for name, seat in seats.items()})

    with theatre.stage.server() as server:
        first, second, found = asyncio.run(play())
    assert (first.asked, len(first.table)) == (LATER, LATER - 2) and (second.asked, len(second.table)) == (2, 2)
    assert list(theatre.table.index) == list(theatre.cluster.time[-LATER:]) and theatre.is_true(found)
    assert found.sum() == pytest.approx(1.0) and (found.nunique() == 1) is (weights == "equal")
    assert {row["party"] for row in first.ledger} == {"aggregator"} and first.out == {}


def test_a_row_that_somebody_lacked_is_asked_for_again_with_the_next_ones(tmp_path):
    theatre = Watched(tmp_path, weights="equal")
    name, gap = theatre.stage.names[2], ROWS - LATER + 2

    async def play():
        async with theatre.agents(server.url):
            model = await theatre.fit(server.url)
            write_data(theatre.stage, theatre.cluster, later=2)
            theatre.forget(name, np.array([gap]))
            (first,) = await theatre.watch(server.url, model, rows=LATER - 2)
            write_data(theatre.stage, theatre.cluster)
            return first, (await theatre.watch(server.url, model))[0]

    with theatre.stage.server() as server:
        first, second = asyncio.run(play())
    assert (first.asked, len(first.table)) == (LATER - 2, LATER - 3)
    assert second.asked == 3 and list(second.table.index) == list(theatre.cluster.time[[gap, -2, -1]])
    assert theatre.is_true(pd.Series(1 / AGENTS, index=list(theatre.stage.names)))


def test_under_a_fits_weights_the_whole_company_is_needed_and_equal_ones_go_on_without_a_home(tmp_path):
    theatre = Watched(tmp_path)
    gone, others = theatre.stage.names[-1], theatre.stage.names[:-1]

    async def play():
        async with theatre.agents(server.url) as seats:
            model = await theatre.fit(server.url)
            weights = pd.Series({name: seat.agent.weight for name, seat in seats.items()})
        write_data(theatre.stage, theatre.cluster)
        async with theatre.agents(server.url, others):  # new processes, as it were: the weights come from their state
            with pytest.raises(RunAborted) as refused:
                await theatre.watch(server.url, model, wait=0.7)
        async with theatre.agents(server.url):
            await theatre.watch(server.url, model, rows=ROWS_A_DAY)
        assert len(theatre.table) == ROWS_A_DAY and theatre.is_true(weights)
        async with theatre.agents(server.url, others):
            (found,) = await theatre.watch(server.url, model, weights="equal", wait=0.7)
            return str(refused.value), found

    with theatre.stage.server() as server:
        refused, found = asyncio.run(play())
    assert refused == (
        f"rows under the weights of a fit need its whole company, {AGENTS} agents; no answer from {gone}: collect with "
        "equal weights, or fit again"
    )
    assert found.out == {gone: "no answer"}
    # no row within six hours of the midnight at which the company changed
    theatre.table = theatre.table.iloc[ROWS_A_DAY:]
    assert list(theatre.table.index) == list(theatre.cluster.time[-ROWS_A_DAY + 1 :])
    assert theatre.is_true(pd.Series(1 / len(others), index=list(others)))


def test_a_company_that_shrank_is_remembered_by_the_aggregator(tmp_path):
    """A home that was away for a day is back; its rows of the block are not taken, whoever asks."""
    theatre = Watched(tmp_path, weights="equal")
    gone, others = theatre.stage.names[0], theatre.stage.names[1:]

    async def play():
        async with theatre.agents(server.url):
            model = await theatre.fit(server.url)
        write_data(theatre.stage, theatre.cluster)
        async with theatre.agents(server.url, others):
            with pytest.raises(RunAborted, match=f"waiting for {gone}, silent for less than 48 h"):
                await theatre.watch(server.url, model, rows=ROWS_A_DAY, wait=0.7, outages=OUTAGES["wait"])
            await theatre.watch(server.url, model, rows=ROWS_A_DAY, wait=0.7)
        async with theatre.agents(server.url):
            return (await theatre.watch(server.url, model))[-1]

    with theatre.stage.server() as server:
        last = asyncio.run(play())
    assert last.out == {gone: "left out"}
    assert list(theatre.table.index) == list(theatre.cluster.time[-LATER + 1 :])
    assert theatre.is_true(pd.Series(1 / len(others), index=list(others)))
    with FleetFile(theatre.aggregator) as fleet:
        assert [len(fleet.record.days[day]) for day in sorted(fleet.record.days)] == [4] * 13 + [3] * 2


def test_a_stretch_of_which_no_row_opens_does_not_hold_up_the_next(tmp_path):
    """Two homes have half of a day each and no row in common; the next day is summed by another company."""
    theatre = Watched(tmp_path, weights="equal")
    day = ROWS - LATER + np.arange(ROWS_A_DAY)
    with FleetFile(theatre.aggregator) as fleet:  # as many days of the block as may be given up for a home
        first = theatre.plan.start // 86400
        fleet.record.lost = {first - 1, first - 2}
        fleet.hear([], 0.0)

    async def play():
        async with theatre.agents(server.url):
            model = await theatre.fit(server.url)
            write_data(theatre.stage, theatre.cluster)
            theatre.forget(theatre.stage.names[0], day[:2])
            theatre.forget(theatre.stage.names[1], day[2:])
            theatre.forget(theatre.stage.names[2], day[:3] + ROWS_A_DAY)
            return await theatre.watch(server.url, model)

    with theatre.stage.server() as server:
        found = asyncio.run(play())
    assert [len(each.table) for each in found] == [0, ROWS_A_DAY]
    assert list(found[1].out) == [theatre.stage.names[2]]


def test_a_home_whose_readings_are_late_costs_nobody_the_day(tmp_path):
    """Its newest reading is of the day before: it has not answered for the new day, and is waited for."""
    theatre = Watched(tmp_path, weights="equal")
    late = theatre.stage.names[2]

    async def play():
        async with theatre.agents(server.url):
            model = await theatre.fit(server.url)
            write_data(theatre.stage, theatre.cluster)
            theatre.forget(late, np.arange(ROWS - ROWS_A_DAY, ROWS))
            await theatre.watch(server.url, model, outages=OUTAGES["balance"])
            write_data(theatre.stage, theatre.cluster)
            await theatre.watch(server.url, model, outages=OUTAGES["balance"])

    with theatre.stage.server() as server:
        asyncio.run(play())
    assert list(theatre.table.index) == list(theatre.cluster.time[-LATER:])
    assert theatre.is_true(pd.Series(1 / AGENTS, index=list(theatre.stage.names)))


def test_a_file_that_cannot_be_read_is_described_to_its_owner_and_not_to_the_aggregator(tmp_path):
    theatre = Watched(tmp_path, weights="equal")
    name, own = theatre.stage.names[1], []

    async def play():
        async with theatre.agents(server.url) as seats:
            model = await theatre.fit(server.url)
            write_data(theatre.stage, theatre.cluster)
            table = pd.read_parquet(theatre.stage.data(name))
            table.loc[5, "indoor_temp_c"] = 850.0
            table.to_parquet(theatre.stage.data(name))
            await theatre.watch(server.url, model)
            own.append(seats[name].agent.own.readings)

    with theatre.stage.server() as server:
        asyncio.run(play())
    assert theatre.runs[0].out == {name: f"{name}: its readings cannot be read at present: see this agent's own log"}
    assert not [text for text in theatre.said if "850" in text]
    assert len(own[0].time) == ROWS - LATER


def read_own(data: Path, weather: Path, name: str, declared: Format):
    """The readings in one agent's own file, under the rules every file is read by."""
    return OwnReadings(Table(data, agent=name, declared=declared), weather, name, declared).read()


def test_own_readings_may_go_beyond_the_weather_but_not_beside_it(tmp_path):
    theatre = Watched(tmp_path)
    name = theatre.stage.names[0]
    write_data(theatre.stage, theatre.cluster)
    data, weather = theatre.stage.data(name), theatre.stage.weather
    assert len(read_own(data, weather, name, Format()).time) == ROWS
    sky = pd.read_parquet(weather)
    sky.loc[3, "solar_w_m2"] = np.nan
    sky.to_parquet(weather)
    assert len(read_own(data, weather, name, Format()).time) == ROWS - 1
    sky.drop(index=7).to_parquet(weather)
    with pytest.raises(DataError, match="no weather for 1 of"):
        read_own(data, weather, name, Format())


def test_following_goes_on_after_a_failure_and_ends_when_told_to(tmp_path, monkeypatch):
    theatre = Watched(tmp_path, weights="equal")
    waited: list[bool] = []

    async def fit():
        async with theatre.agents(server.url):
            return await theatre.fit(server.url)

    def next_row(_model, _now):
        waited.append(True)
        if len(waited) == 2:  # the roster is being replaced, or its folder is not mounted
            roster.rename(away)
        if len(waited) == 3:
            away.rename(roster)
            os.kill(os.getpid(), signal.SIGTERM)
        return 0.05

    with theatre.stage.server() as server:
        roster = theatre.config(server.url).roster
        away = roster.with_name("away.json")
        model = asyncio.run(fit())
        monkeypatch.setattr("atdm.deploy.watch.until_next_row", next_row)
        seeing = Seeing(back=DAY, known=lambda: pd.DatetimeIndex([]), until=theatre.cluster.time[-1], follow=True)
        watch_rows(theatre.config(server.url, wait=0.3), model, theatre.said.append, theatre.keep, seeing)
        assert not theatre.runs and theatre.said[-1] == "stopped"
        assert sum(text.startswith("nothing more collected") for text in theatre.said) == 3
        assert "roster.json: cannot be read" in theatre.said[-2]
        with pytest.raises(RunAborted):
            seeing = Seeing(back=DAY, known=lambda: pd.DatetimeIndex([]), until=theatre.cluster.time[-1])
            watch_rows(theatre.config(server.url, wait=0.3), model, theatre.said.append, theatre.keep, seeing)


def test_a_home_that_answers_and_then_hangs_is_not_waited_for_without_end(tmp_path, monkeypatch):
    """It says each time that it is in, and sends no sum: it counts as heard when it last did."""
    theatre = Watched(tmp_path, weights="equal")
    victim, others = theatre.stage.names[1], [name for name in theatre.stage.names if name != theatre.stage.names[1]]

    async def play():
        async with theatre.agents(server.url) as seats:
            model = await theatre.fit(server.url)
            write_data(theatre.stage, theatre.cluster)
            reply, key = AgentLink._reply, seats[victim].keys.identity.public.hex()

            async def hang(self, slot):
                if not (self._up.endswith(key) and slot >= 1):
                    await reply(self, slot)

            monkeypatch.setattr(AgentLink, "_reply", hang)
            with pytest.raises(RunAborted, match=f"then: waiting for {victim}, silent for less than 24 h"):
                await theatre.watch(server.url, model, wait=1.0, rows=2, outages=OUTAGES["balance"])
            await theatre.watch(server.url, model, wait=1.0, outages=OUTAGES["balance"])

    with theatre.stage.server() as server:
        asyncio.run(play())
    assert list(theatre.table.index) == list(theatre.cluster.time[-LATER + 1 :])
    assert theatre.is_true(pd.Series(1 / len(others), index=others))


def test_rows_that_cannot_be_kept_end_the_watch(tmp_path):
    """Asking for the next ones would lose them too; a run that fails does not end it."""
    theatre = Watched(tmp_path, weights="equal")

    def full(_found):
        raise UsageError("cannot write observed.csv: No space left on device")

    async def play():
        async with theatre.agents(server.url):
            model = await theatre.fit(server.url)
            write_data(theatre.stage, theatre.cluster)
            theatre.keep = full
            with pytest.raises(UsageError, match="No space left"):
                await asyncio.wait_for(theatre.watch(server.url, model, follow=True), 30)

    with theatre.stage.server() as server:
        asyncio.run(play())


def grid_model(run: bytes = bytes(32)) -> atdm.Model:
    """Half-hours that end ten minutes past."""
    origin = Origin(run=run, company=("ab",), end=pd.Timestamp("2024-01-01T00:10Z"))
    return atdm.Model(coefficients=None, calendar=HALF_HOURS, origin=origin)


def test_a_model_says_who_released_it_or_is_refused(tmp_path):
    theatre = Watched(tmp_path)
    model = atdm.Model(coefficients=None, calendar=Calendar(step=theatre.cluster.step, timezone="UTC", season=4))
    with pytest.raises(UsageError, match="which agents released it"):
        seeing = Seeing(back=DAY, known=lambda: pd.DatetimeIndex([]))
        watch_rows(theatre.config("tls://127.0.0.1:1"), model, print, print, seeing)
    with pytest.raises(UsageError, match="has no others: observe with equal weights"):
        observe_plan(grid_model(run=b""), pd.Timestamp("2024-01-02T00:15Z"), weights="fitted")


def test_the_next_row_is_on_the_grid_of_the_fit():
    model, at = grid_model(), pd.Timestamp("2024-03-01T12:00Z").timestamp()
    assert until_next_row(model, at) == 600.0 and until_next_row(model, at + 600) == 1800.0
    plan = observe_plan(model, pd.Timestamp("2024-01-02T00:15Z"), pd.Timedelta("2h"))
    assert (plan.length, plan.step_seconds, plan.fit, plan.asked) == (4, 1800, bytes(32), b"")
    assert pd.Timestamp(plan.start + 3 * 1800, unit="s", tz="UTC") == pd.Timestamp("2024-01-02T00:10Z")
    assert observe_plan(model, pd.Timestamp("2024-01-01T00:45Z"), pd.Timedelta("1min")).length == 1
    assert observe_plan(model, pd.Timestamp("2024-01-01T00:45Z"), weights="equal").fit == b""
    with pytest.raises(UsageError, match="no row after the fit"):
        observe_plan(model, pd.Timestamp("2024-01-01T00:39Z"))


def test_only_rows_that_are_not_known_are_asked_for():
    model, last = grid_model(), pd.Timestamp("2024-01-01T06:10Z")
    every = pd.date_range("2024-01-01T00:40Z", last, freq="30min")
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    known = every[np.random.default_rng(seed).random(len(every)) < 0.5]
    plan = observe_plan(model, last, known=known[::-1])  # in any order
    stamps = pd.to_datetime(plan.start + 1800 * np.arange(plan.length), unit="s", utc=True)
    assert list(stamps[flags(plan.asked, plan.length)]) == list(every.difference(known))
    assert stamps[0] == every.difference(known)[0] and stamps[-1] == last


def test_a_table_of_observations_grows_and_keeps_what_it_has(tmp_path):
    time = pd.date_range("2024-01-01", periods=4, freq="30min", tz="UTC", name="time")
    rows = pd.DataFrame({"aggregate_temp_c": [19.0, 19.1, 19.2, 19.3], "load_kw": [1.0, 2.0, 3.0, 4.0]}, index=time)
    path = tmp_path / "observed.csv"
    path.write_text(with_rows(path, rows.iloc[[0, 2]]).to_csv())
    grown = with_rows(path, rows.iloc[[1, 3]])
    pd.testing.assert_frame_equal(grown, rows, check_freq=False, check_index_type=False)
    path.write_text("time,load_kw\n")
    with pytest.raises(DataError):
        with_rows(path, rows)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_a_run_goes_on_from_rows_that_follow_each_other(unit):
    time = pd.date_range("2024-01-01", periods=4, freq="30min", tz="UTC", name="time", unit=unit)
    rows = pd.DataFrame({"aggregate_temp_c": [19.0, 19.1, 19.2, 19.3], "load_kw": [1.0, 2.0, 3.0, 4.0]}, index=time)
    plan = pd.Series(7.0, index=pd.date_range(time[2], periods=4, freq="30min"))
    c = Coefficients(alpha=np.array([1.4, -0.5]), beta=np.zeros(3), gamma=np.zeros(3), theta=np.zeros(3),
                     occupancy=np.zeros(48))  # fmt: skip
    model = atdm.Model(coefficients=c, calendar=HALF_HOURS)
    load, first, start = continued(model, rows, plan)
    assert load.tolist() == [3.0, 4.0, 7.0, 7.0] and first.tolist() == [19.2, 19.3]  # what was measured, then the plan
    assert start == "2024-01-01T01:00:00+00:00"
    with pytest.raises(DataError, match="not 30 min apart"):
        continued(model, rows.drop(index=time[2]), plan)


def test_a_dither_said_in_the_rules_is_the_one_that_is_used():
    """It was silently that of the argument's default, whatever the rules said."""
    assert own_rules(atdm.Rules(dither=0.0), 0.1).dither == 0.0
    assert own_rules(atdm.Rules(totals=2), 0.5) == atdm.Rules(totals=2, dither=0.5)
    with pytest.raises(UsageError, match="give it once"):
        own_rules(atdm.Rules(dither=0.0), 0.5)
