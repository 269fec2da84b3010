"""`atdm observe` over a real NATS server: running agents read on, the table grows, a forecast starts from it."""

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.data.tables import Format
from atdm.deploy import Conductor, Deployed, read_own
from atdm.errors import DataError, RunAborted, UsageError
from atdm.kernel.thermal import Coefficients
from atdm.model import Origin
from atdm.observe import observe_plan
from atdm.rehearse import plan_of, set_up, write_data
from atdm.use.series import continued, with_rows
from atdm.watch import Seeing, observe, until_next_row
from tests.clusters import tiny
from tests.transport.theatre import LOOSE, PLAN, ROWS, Theatre, write_weather

LATER = 8
DAY = pd.Timedelta("24h")


class Watched(Theatre):
    """A theatre in which the last rows come later, and the weather ends with the fit."""

    def __init__(self, folder: Path) -> None:
        self.cluster = tiny(0, agents=4, rows=ROWS)
        weather = write_weather(self.cluster, folder / "weather.parquet")
        pd.read_parquet(weather).iloc[:-LATER].to_parquet(weather, index=False)
        self.stage = set_up(folder, self.cluster, weather, Format(), LOOSE, later=LATER)
        self.plan = plan_of(self.stage, self.cluster, "blind", later=LATER, **PLAN)

    async def fit(self, url: str) -> Deployed:
        conductor = self.conductor(url)
        async with conductor.hub:
            return await asyncio.wait_for(conductor.run(), 30)

    def watcher(self, url: str, model: atdm.Model, last: pd.Timestamp, **options) -> Conductor:
        fitted = self.conductor(url, **options)
        plan = observe_plan(model, last)
        return Conductor(
            fitted.post, fitted.hub.line._door, fitted.roster, plan, fitted.weather, fitted.say,
            cohorts=set(model.origin.cohorts),
        )  # fmt: skip

    async def watch(self, url: str, model: atdm.Model, rows: int = LATER, **options) -> atdm.Observation:
        conductor = self.watcher(url, model, self.cluster.time[ROWS - LATER + rows - 1], **options)
        async with conductor.hub:
            return await asyncio.wait_for(conductor.observe(), 30)

    def truth(self, seats) -> np.ndarray:
        weights = pd.Series({name: seat.agent.weight for name, seat in seats.items()})
        return (self.cluster.temperature.iloc[-LATER:] @ weights).to_numpy()


def test_running_agents_read_on_and_show_the_weighted_sum(tmp_path):
    """One process after the other asks; nobody is restarted, and an agent whose file is late holds nobody up."""
    theatre = Watched(tmp_path)
    late = theatre.stage.names[2]

    async def play():
        async with theatre.agents(server.url) as seats:
            model = (await theatre.fit(server.url)).fit.model
            before = await theatre.watch(server.url, model)
            held = theatre.stage.data(late).read_bytes()
            write_data(theatre.stage, theatre.cluster, later=2)
            theatre.stage.data(late).write_bytes(held)
            waiting = await theatre.watch(server.url, model)
            write_data(theatre.stage, theatre.cluster, later=2)
            first = await theatre.watch(server.url, model)
            write_data(theatre.stage, theatre.cluster)
            second = await theatre.watch(server.url, model)
            return before, waiting, first, second, theatre.truth(seats)

    with theatre.stage.server() as server:
        before, waiting, first, second, state = asyncio.run(play())
    assert len(before.table) == len(waiting.table) == 0 and before.asked == LATER
    assert len(first.table) == LATER - 2 and len(second.table) == 2
    both = pd.concat([first.table, second.table])
    assert list(both.index) == list(theatre.cluster.time[-LATER:])
    np.testing.assert_allclose(both["aggregate_temp_c"], state, atol=1e-3)  # rounding, and dither of a tenth of 0.01 °C
    np.testing.assert_allclose(both["load_kw"], theatre.cluster.load.iloc[-LATER:].sum(axis=1), atol=1e-6)
    assert {row["party"] for row in first.ledger} == {"aggregator"}


def test_an_observation_survives_restarts_and_needs_everybody_of_the_fit(tmp_path):
    theatre = Watched(tmp_path)

    async def play():
        async with theatre.agents(server.url):
            model = (await theatre.fit(server.url)).fit.model
        write_data(theatre.stage, theatre.cluster)
        async with theatre.agents(server.url, theatre.stage.names[:-1]):
            with pytest.raises(RunAborted, match="the fit was made with them"):
                await theatre.watch(server.url, model, wait=0.7)
        async with theatre.agents(server.url):  # new processes, as it were: the weights come from their state
            return await theatre.watch(server.url, model)

    with theatre.stage.server() as server:
        assert len(asyncio.run(play()).table) == LATER


def test_a_file_that_cannot_be_read_is_described_to_its_owner_and_not_to_the_aggregator(tmp_path):
    theatre = Watched(tmp_path)

    async def play():
        name = theatre.stage.names[1]
        async with theatre.agents(server.url) as seats:
            model = (await theatre.fit(server.url)).fit.model
            table = pd.read_parquet(theatre.stage.data(name))
            table.loc[5, "indoor_temp_c"] = 850.0
            table.to_parquet(theatre.stage.data(name))
            with pytest.raises(RunAborted) as ended:
                await theatre.watch(server.url, model)
            return str(ended.value), seats[name].agent.own.readings

    with theatre.stage.server() as server:
        reason, readings = asyncio.run(play())
    assert "cannot be read at present" in reason and "850" not in reason
    assert len(readings.time) == ROWS - LATER


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
    theatre = Watched(tmp_path)
    said, kept, waited = [], [], []

    async def fit():
        async with theatre.agents(server.url):
            return (await theatre.fit(server.url)).fit.model

    def next_row(_model, _now):
        waited.append(True)
        if len(waited) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return 0.05

    with theatre.stage.server() as server:
        model = asyncio.run(fit())
        monkeypatch.setattr("atdm.watch.until_next_row", next_row)
        seeing = Seeing(back=DAY, until=theatre.cluster.time[-1], follow=True)
        observe(theatre.post(server.url, wait=0.3), model, said.append, kept.append, seeing)
        assert not kept and said[-1] == "stopped"
        assert sum("nothing observed" in text and "did not come" in text for text in said) == 3
        with pytest.raises(RunAborted, match="did not come"):
            observe(theatre.post(server.url, wait=0.3), model, said.append, kept.append, Seeing(back=DAY, until=None))


def test_a_model_is_observed_with_the_roster_of_its_fit(tmp_path):
    theatre = Watched(tmp_path)
    end = theatre.cluster.time[-LATER - 1]
    for origin, why in ((None, "which agents released it"), ((0, 1), "the roster it was made with")):
        named = None if origin is None else Origin(run=bytes(32), cohorts=origin, end=end)
        model = atdm.Model(coefficients=None, step=theatre.cluster.step, timezone="UTC", origin=named)
        with pytest.raises(UsageError, match=why):
            observe(theatre.post("tls://127.0.0.1:1"), model, print, print, Seeing(back=DAY))


def test_the_next_row_is_on_the_grid_of_the_fit(tmp_path):
    origin = Origin(run=bytes(32), cohorts=(0,), end=pd.Timestamp("2024-01-01T00:10Z"))
    model = atdm.Model(coefficients=None, step=pd.Timedelta("30min"), timezone="UTC", origin=origin)
    at = pd.Timestamp("2024-03-01T12:00Z").timestamp()
    assert until_next_row(model, at) == 600.0 and until_next_row(model, at + 600) == 1800.0
    plan = observe_plan(model, pd.Timestamp("2024-01-02T00:15Z"), pd.Timedelta("2h"))
    assert (plan.length, plan.step_seconds) == (4, 1800)
    assert pd.Timestamp(plan.start + 3 * 1800, unit="s", tz="UTC") == pd.Timestamp("2024-01-02T00:10Z")
    assert observe_plan(model, pd.Timestamp("2024-01-01T00:45Z"), pd.Timedelta("1min")).length == 1
    with pytest.raises(UsageError, match="no row after the fit"):
        observe_plan(model, pd.Timestamp("2024-01-01T00:39Z"))


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
    model = atdm.Model(coefficients=c, step=pd.Timedelta("30min"), timezone="UTC")
    load, first, start = continued(model, rows, plan)
    assert load.tolist() == [3.0, 4.0, 7.0, 7.0] and first.tolist() == [19.2, 19.3]  # what was measured, then the plan
    assert start == "2024-01-01T01:00:00+00:00"
    with pytest.raises(DataError, match="not 30 min apart"):
        continued(model, rows.drop(index=time[2]), plan)
