"""The desk of `atdm serve` without a network: rows come from a table, time from the test."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.deploy.alarms import ALARMS
from atdm.deploy.fleet import Fleet
from atdm.deploy.observe import Observation
from atdm.deploy.record import RecordError, ServiceRecord
from atdm.deploy.service import Service, WeatherFile, operate
from atdm.deploy.service_rules import EXAMPLE, ServiceRules, read_rules
from atdm.errors import DataError, RunAborted, UsageError
from atdm.model.fitted import Origin
from atdm.protocol.company import flags
from atdm.protocol.plan import Collect
from atdm.sinks.results import Results, Sent

DAY, STEP, PER_DAY = 86400.0, 3600, 24  # hours: half-hours take four times as long
RULES = """
record = "desk.sqlite"
[fleet]
identity = "office/aggregator"
roster = "roster.json"
servers = ["tls://127.0.0.1:4222"]
at_least = 3
[weather]
file = "weather.csv"
[collect]
step = "1h"
history = "20d"
[model]
first_after = "7d"
"""


@cache
def truth() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mean temperature and load of the sample's 64 zones, and the weather."""
    cluster = atdm.load_sample()
    rows = pd.DataFrame({"aggregate_temp_c": cluster.temperature.mean(axis=1), "load_kw": cluster.load.sum(axis=1)})
    sky = pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar})
    return rows.resample("1h").mean(), sky.resample("1h").mean()


def at(days: float) -> float:
    """So many days after the first row of the sample. [s since 1970]"""
    return truth()[0].index[0].timestamp() + days * DAY + 120


@dataclass
class Homes:
    """Everybody at once: shows what it is asked for, and remembers every stamp it showed."""

    size: Callable[[float], int] = lambda _: 64  # homes by stamp
    shown: list[int] = field(default_factory=list)
    lacking: set[int] = field(default_factory=set)  # stamps that somebody lacks

    def answer(self, plan: Collect) -> Observation:
        stamps = plan.start + plan.step_seconds * np.arange(plan.length)
        stamps = stamps[flags(plan.asked, plan.length)] if plan.asked else stamps
        rows, _ = truth()
        index = pd.DatetimeIndex(pd.to_datetime([s for s in stamps if s not in self.lacking], unit="s", utc=True))
        index = index[index.isin(rows.index)]
        self.shown += [int(t.timestamp()) for t in index]
        count = np.array([self.size(t.timestamp()) for t in index])
        table = rows.loc[index].assign(agents=count)
        table["load_kw"] *= count / 64
        return Observation(table=table, asked=len(stamps), ledger=[], out={"h9": "paused"}, inside=("h1", "h2"))


@dataclass
class Desk:
    """A service in a folder, that can be killed and started again."""

    folder: Path
    rules: ServiceRules
    homes: Homes = field(default_factory=Homes)
    weather: Callable[[], pd.DataFrame] = lambda: truth()[1]
    said: list[str] = field(default_factory=list)

    def open(self, now: float, **options: object) -> Service:
        record = ServiceRecord(self.rules.record, now)
        OPENED.append(record)
        return Service(self.rules, record, self.weather, say=self.said.append, **options)

    def step(self, service: Service, now: float) -> None:
        """What `operate` does once."""
        plan = service.asking(now)
        run = None if plan is None else service.begin(plan, now)
        if plan is not None and run is not None:
            service.keep(run, self.homes.answer(plan))
            service.end(run, now, None)
        service.work(now)


OPENED: list[ServiceRecord] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def desk_in(folder: Path, text: str = RULES) -> Desk:
    path = folder / "rules.toml"
    path.write_text(text)
    return Desk(folder, read_rules(path))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return desk_in(tmp_path)


def test_a_first_day_collects_makes_a_model_and_forecasts(desk: Desk) -> None:
    service = desk.open(at(10))
    desk.step(service, at(10))
    state = service.state(at(10))
    assert state.now is not None and state.now.homes == 64 and state.rows == 10 * PER_DAY
    rows, _ = truth()
    assert state.now.aggregate_temp_c == pytest.approx(rows["aggregate_temp_c"].iloc[10 * PER_DAY - 1])
    assert state.model is not None and "order" in state.model.words and state.model.why.startswith("made of the first")
    assert state.forecast is not None and len(state.forecast.time) == 2 * PER_DAY
    assert state.forecast.time[0] == state.now.time + STEP
    low, high = (np.array(state.forecast.columns[name], dtype=float) for name in ("low_80", "high_80"))
    assert (low < high).all()
    assert state.health.ok and state.alarms == []
    assert [row.what for row in state.decisions] == ["model"]


def test_the_forecast_is_better_than_no_change(desk: Desk) -> None:
    """Judged by the record, which compares what was forecast 24 h ahead with what came."""
    service = desk.open(at(14))
    for hour in range(0, 5 * 24, 3):
        desk.step(service, at(14 + hour / 24))
    judged = service.record.judged(0)
    rows = truth()[0]["aggregate_temp_c"].to_numpy()
    window = slice(14 * PER_DAY, 19 * PER_DAY)
    persistence = np.sqrt(np.mean((rows[window] - rows[13 * PER_DAY : 18 * PER_DAY]) ** 2))
    assert judged is not None and judged.forecasts > 25 and judged.rmse_k < persistence
    assert judged.inside is not None and judged.inside > 0.6


def test_a_row_is_never_asked_for_twice_whenever_it_is_killed(desk: Desk) -> None:
    """Killed between any two steps: the connection is dropped without a word and the file opened anew."""
    rng = np.random.default_rng(7)
    service = desk.open(at(8))
    for hour in range(60):
        now = at(8 + hour / 24)
        desk.step(service, now)
        if rng.random() < 0.5:
            service.record.close()
            service = desk.open(now)
            assert service.asking(now) is None, "what was asked this hour is not asked again"
    assert len(desk.homes.shown) == len(set(desk.homes.shown)) == service.record.count()


def test_a_run_that_was_cut_off_is_asked_for_again_at_once(desk: Desk) -> None:
    service = desk.open(at(8))
    plan = service.asking(at(8))
    assert plan is not None and service.begin(plan, at(8)) is not None
    service.record.close()
    again = desk.open(at(8))
    assert again.asking(at(8)) == plan
    assert again.record.runs(1)[0].words.startswith("cut off")


def test_rows_that_somebody_lacked_are_asked_for_as_long_as_the_rules_say(desk: Desk) -> None:
    service = desk.open(at(9))
    hole = int(at(8.9) // STEP * STEP)
    desk.homes.lacking = {hole}
    desk.step(service, at(9))
    plan = service.asking(at(9 + 1 / 24))
    assert plan is not None and plan.start == hole and plan.asked
    assert flags(plan.asked, plan.length).sum() == 1 + 1, "the hole and the new row"
    desk.step(service, at(9 + 1 / 24))
    desk.homes.lacking = set()
    desk.step(service, at(9 + 2 / 24))
    assert hole in desk.homes.shown
    desk.homes.lacking = {int(at(9.5) // STEP * STEP)}
    desk.step(service, at(9.6))
    plan = service.asking(at(13))
    assert plan is not None and plan.start > at(9.5), "72 h later nobody is asked for it"


def test_a_fleet_of_another_size_changes_the_load_and_not_the_temperature(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole, shrinking = desk_in(tmp_path / "a"), desk_in(tmp_path / "b")
    shrinking.homes.size = lambda stamp: 64 if stamp < at(12) else 32
    found = []
    for one in (whole, shrinking):
        service = one.open(at(11))
        desk_times = [11, 11.5, 12.5, 13]
        for days in desk_times:
            one.step(service, at(days))
        found.append(service.state(at(13)))
    full, half = (state.forecast for state in found)
    assert full is not None and half is not None
    np.testing.assert_allclose(half.columns["aggregate_temp_c"], full.columns["aggregate_temp_c"], atol=2e-3)
    np.testing.assert_allclose(
        2 * np.array(half.columns["load_kw"], float), np.array(full.columns["load_kw"], float), rtol=2e-3
    )
    assert found[1].model is not None and found[1].model.homes == 32


def test_the_model_is_updated_daily_and_chosen_again_when_due(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, RULES + 'choose_every = "3d"\n')
    service = desk.open(at(8))
    for hour in range(0, 24 * 7, 6):
        desk.step(service, at(8 + hour / 24))
        assert service._kept.model is not None and service._kept.model.until is not None
        assert at(8 + hour / 24) - service._kept.model.until.timestamp() < 2 * DAY
    words = [row.words for row in reversed(service.record.decisions(50)) if row.what == "model"]
    assert sum("chosen again because the last choice is 3 days old" in text for text in words) == 2
    assert sum(text.startswith("updated with 24 rows") for text in words) == 6
    kept = sqlite3.connect(desk.rules.record).execute("SELECT length(document) FROM models ORDER BY made").fetchall()
    assert all(length < 10_000 < kept[-1][0] for (length,) in kept[:-1]), "of earlier models coefficients stay"


def test_a_model_given_at_the_start_is_brought_up_to_date_with_the_first_rows(tmp_path: Path) -> None:
    """`atdm aggregator` estimates on three quarters of its rows: its model ends days before the rows do."""
    (tmp_path / "before").mkdir()
    (tmp_path / "desk").mkdir()
    earlier = desk_in(tmp_path / "before")
    service = earlier.open(at(12))
    earlier.step(service, at(12))
    made = service._kept.model
    assert made is not None and made.until is not None
    given = replace(made, trained=made.trained * 3 // 4, origin=Origin(run=b"", company=("ab",) * 64, end=made.until))
    assert given.until is not None and at(12) - given.until.timestamp() > 2 * DAY
    desk = desk_in(tmp_path / "desk")
    service = desk.open(at(12), first_model=given)
    desk.step(service, at(12))
    state = service.state(at(12))
    assert state.model is not None and state.model.until == state.now.time and state.alarms == []
    assert state.model.why.startswith("updated with") and [row.what for row in state.decisions] == ["model"]
    desk.step(service, at(12.1))
    assert service.state(at(12.1)).model == state.model, "the next update is due a day later"


def test_a_restart_goes_on_with_the_same_model_and_forecast(desk: Desk) -> None:
    service = desk.open(at(10))
    desk.step(service, at(10))
    before = service.state(at(10))
    service.record.close()
    again = desk.open(at(10.001))
    again.work(at(10.001))
    after = again.state(at(10.001))
    assert after.model == before.model and after.forecast is not None and before.forecast is not None
    for name, values in before.forecast.columns.items():
        assert after.forecast.columns[name] == values, name


def test_a_full_disk_holds_the_rows_asks_nobody_and_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    service = desk.open(at(9))
    plan = service.asking(at(9))
    assert plan is not None
    run = service.begin(plan, at(9))
    assert run is not None
    full = RecordError("cannot write desk.sqlite: database or disk is full")
    with monkeypatch.context() as broken:
        for name in ("add_rows", "end_run", "set_alarms", "decide", "begin_run"):
            broken.setattr(service.record, name, lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(RecordError, match="disk is full"):
            service.keep(run, desk.homes.answer(plan))
        service.end(run, at(9), full)
        service.work(at(9))
        assert service.asking(at(9.5)) is None, "nobody is asked while rows are not on disk"
        state = service.state(at(9))
        assert not state.health.ok and [alarm.name for alarm in state.alarms] == ["record"]
    shown = list(desk.homes.shown)
    service.work(at(9.1))
    assert service.state(at(9.1)).health.ok and service.record.count() == len(shown)
    desk.step(service, at(9.5))
    assert len(desk.homes.shown) == len(set(desk.homes.shown))


@dataclass
class Broken:
    """A database of which every statement that begins with one of these words fails, as with a damaged disk."""

    base: sqlite3.Connection
    words: tuple[str, ...]

    def execute(self, query: str, *given: object) -> sqlite3.Cursor:
        if query.lstrip().startswith(self.words):
            raise sqlite3.OperationalError("disk I/O error")
        return self.base.execute(query, *given)

    def __getattr__(self, name: str) -> object:
        return getattr(self.base, name)


def test_a_record_that_cannot_be_read_is_an_alarm_and_the_desk_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rows that could not be written either."""
    clock, states = [at(9)], []
    service = desk.open(at(9))
    whole = service.record._base

    async def homes(plan: Collect, keep: Callable[[Observation], None]) -> None:
        if not desk.homes.shown:
            service.record._base = Broken(whole, ("SELECT", "BEGIN"))  # type: ignore[assignment]
        keep(desk.homes.answer(plan))

    async def pause(seconds: float) -> None:
        clock[0] += STEP
        if clock[0] > at(9) + 3 * STEP:
            service.record._base = whole
        if clock[0] > at(9) + 4 * STEP:
            raise asyncio.CancelledError
        await real(0)

    real = asyncio.sleep

    async def main() -> None:
        monkeypatch.setattr("atdm.deploy.service.asyncio.sleep", lambda s: pause(s) if s >= 1 else real(s))
        await operate(service, homes, clock=lambda: clock[0], publish=states.append)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    sick = [state for state in states if not state.health.ok]
    assert len(sick) >= 3 and {tuple(alarm.name for alarm in state.alarms) for state in sick} == {("record",)}
    assert "cannot read" in sick[-1].health.why[0] and "disk I/O error" in sick[-1].health.why[0]
    assert sick[-1].time > sick[0].time and len({state.alarms[0].since for state in sick}) == 1
    assert states[-1].health.ok and states[-1].alarms == []
    assert service.record.count() == len(desk.homes.shown) == len(set(desk.homes.shown)) > 0


def test_whatever_cannot_be_read_or_written_of_a_record_is_one_error(tmp_path: Path) -> None:
    with ServiceRecord(tmp_path / "desk.sqlite", 0.0) as record:
        whole, record._base = record._base, Broken(record._base, ("SELECT", "BEGIN", "ROLLBACK"))  # type: ignore
        for does in (
            lambda: record.begun, lambda: record.runs(1), record.newest, lambda: record.known(0, 1), record.count,
            lambda: record.observed(0), lambda: record.judged(0), record.model, lambda: record.decisions(1),
            record.alarms, lambda: record.set_alarms(0.0, {}), lambda: record.decide(0.0, "a", "b"),
        ):  # fmt: skip
            with pytest.raises(RecordError, match="cannot (read|write) .*desk.sqlite: disk I/O error") as caught:
                does()
            assert caught.value.exit_code == 1
        record._base = whole
        record.decide(0.0, "a", "b")


def test_alarms_begin_and_end_with_their_causes_and_health_follows(desk: Desk) -> None:
    _, sky = truth()
    service = desk.open(at(9))
    desk.step(service, at(9))
    assert service.state(at(9)).health.ok

    desk.homes.lacking = {int(t.timestamp()) for t in sky.index}
    for hour in range(1, 9):
        desk.step(service, at(9 + hour / 24))
    late = service.state(at(9 + 8 / 24))
    assert [alarm.name for alarm in late.alarms] == ["run", "rows"] and not late.health.ok
    assert late.health.why == ["no row for 8.0 h"] and "no rows" in late.alarms[0].words
    assert all(alarm.meaning and alarm.remedy for alarm in late.alarms)

    desk.homes.lacking = set()
    desk.step(service, at(9.5))
    assert service.state(at(9.5)).alarms == []


def test_weather_that_ends_or_breaks_is_said_and_read_again(tmp_path: Path) -> None:
    _, sky = truth()
    path = tmp_path / "weather.csv"
    sky[sky.index.tz_convert("UTC") < pd.Timestamp(at(9.2), unit="s", tz="UTC")].to_csv(path, index_label="time")
    desk = desk_in(tmp_path)
    desk.weather = WeatherFile(path, "UTC")
    service = desk.open(at(9))
    desk.step(service, at(9))
    short = service.state(at(9))
    assert [alarm.name for alarm in short.alarms] == ["weather"] and short.forecast is not None
    assert len(short.forecast.time) < 6 and short.health.ok, "as far as the weather goes"
    sky.to_csv(path, index_label="time")
    desk.step(service, at(9 + 1 / 24))
    assert service.state(at(9.1)).alarms == [] and len(service.state(at(9.1)).forecast.time) == 2 * PER_DAY
    path.write_text("time,outdoor_temp_c\n")
    desk.step(service, at(9 + 2 / 24))
    broken = service.state(at(9 + 2 / 24))
    assert [alarm.name for alarm in broken.alarms] == ["weather"] and str(path) in broken.alarms[0].words
    path.unlink()
    desk.step(service, at(9 + 3 / 24))
    assert "No such file" in service.state(at(9.2)).alarms[0].words


def test_a_clock_that_went_back_is_said_and_collecting_goes_on(desk: Desk) -> None:
    service = desk.open(at(12))
    desk.step(service, at(12))
    assert service.asking(at(11)) is None, "those rows are there"
    service.check(at(11))
    assert [alarm.name for alarm in service.state(at(11)).alarms] == ["clock"]
    desk.step(service, at(12.1))
    assert service.state(at(12.1)).alarms == []
    assert len(desk.homes.shown) == len(set(desk.homes.shown))


def test_a_model_made_while_the_clock_was_ahead_is_updated_all_the_same(desk: Desk) -> None:
    service = desk.open(at(10))
    desk.step(service, at(14))
    ahead = service.state(at(14)).model
    desk.step(service, at(12))
    desk.step(service, at(16))
    after = service.state(at(16)).model
    assert ahead is not None and after is not None and after.hash != ahead.hash
    service.record.close()
    assert desk.open(at(16)).state(at(16)).model == after


def test_rows_that_came_late_enter_the_next_model(desk: Desk) -> None:
    service = desk.open(at(9))
    hole = int(at(8.4) // STEP * STEP)
    desk.homes.lacking = {hole}
    desk.step(service, at(9))
    stamp = pd.Timestamp(hole, unit="s", tz="UTC")
    assert service._kept.model is not None and stamp not in service._kept.model.released.time
    desk.homes.lacking = set()
    desk.step(service, at(9.2))
    desk.step(service, at(10.1))
    assert stamp in service._kept.model.released.time and service._kept.model.released.time.is_monotonic_increasing


def test_a_model_that_cannot_be_made_is_not_tried_every_minute(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fails(*_: object, **__: object) -> None:
        tried.append(1)
        raise DataError("the rows do not determine a model")

    monkeypatch.setattr("atdm.deploy.kept_model.choose", fails)
    service = desk.open(at(9))
    for minute in range(0, 120, 10):
        desk.step(service, at(9) + 60 * minute)
    state = service.state(at(9) + 110 * 60)
    assert len(tried) == 2 and [alarm.name for alarm in state.alarms] == ["model"]
    assert sum(row.what == "model" for row in state.decisions) == 1, "said once"


def test_where_choosing_again_fails_the_coefficients_are_updated_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desk_in(tmp_path, RULES + 'choose_every = "1d"\n')
    service = desk.open(at(9))
    desk.step(service, at(9))
    monkeypatch.setattr("atdm.model.current.choose", lambda *_, **__: (_ for _ in ()).throw(UsageError("no whole day")))
    desk.step(service, at(10.1))
    words = [row.words for row in service.record.decisions(2)]
    assert words[1] == "not chosen again: no whole day" and words[0].startswith("updated with")
    assert service.state(at(10.1)).alarms == []


def test_flexibility_is_offered_or_refused_in_words(tmp_path: Path) -> None:
    text = RULES + '[flexibility]\noffered = true\ncomfort = [14.0, 26.0]\nhorizon = "6h"\n'
    desk = desk_in(tmp_path, text)
    service = desk.open(at(9))
    desk.step(service, at(9))
    refused = service.state(at(9)).flexibility
    assert not refused.offered and "atdm probe" in refused.words and service.state(at(9)).health.ok
    service.record.close()
    desk.rules = read_rules_with(desk, text + "assume_gain = 0.05\n")
    service = desk.open(at(9))
    service.work(at(9))
    offered = service.state(at(9)).flexibility
    assert offered.offered and offered.document is not None and "kW for" in offered.words
    assert len(offered.document["envelope"]) == 6


def read_rules_with(desk: Desk, text: str) -> ServiceRules:
    path = desk.folder / "rules.toml"
    path.write_text(text)
    return read_rules(path)


def test_a_summer_without_heat_and_a_constant_load_do_not_end_the_desk(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, sky = truth()
    summer = (rows.assign(load_kw=0.0), sky)
    monkeypatch.setattr("tests.deploy.test_service.truth", lambda: summer)
    service = desk.open(at(10))
    for hour in range(0, 49, 6):
        desk.step(service, at(10 + hour / 24))
    state = service.state(at(12))
    assert state.now is not None and state.now.load_kw == 0.0
    assert state.model is not None or any(alarm.name == "model" for alarm in state.alarms)


def test_the_record_refuses_what_it_does_not_know_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "desk.sqlite"
    ServiceRecord(path, 0.0).close()
    assert path.stat().st_mode & 0o777 == 0o600
    base = sqlite3.connect(path)
    base.execute("PRAGMA user_version=99")
    base.close()
    with pytest.raises(DataError, match="written by a newer atdm"):
        ServiceRecord(path, 0.0)
    other = tmp_path / "other.sqlite"
    base = sqlite3.connect(other)
    base.execute("CREATE TABLE t (x)")
    base.close()
    with pytest.raises(DataError, match="is not the record of a desk"):
        ServiceRecord(other, 0.0)
    (tmp_path / "text.sqlite").write_text("not a database, but longer than a header of one would be " * 20)
    with pytest.raises(DataError, match="cannot be used"):
        ServiceRecord(tmp_path / "text.sqlite", 0.0)


def test_a_record_has_one_writer_and_rows_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "desk.sqlite"
    with ServiceRecord(path, 0.0) as record:
        with pytest.raises(UsageError, match="in use by another process"):
            ServiceRecord(path, 0.0)
        run = record.begin_run(1.0, 0, 1800, 2)
        table = pd.DataFrame({"aggregate_temp_c": [20.0], "load_kw": [5.0], "agents": [12]},
                             index=pd.to_datetime([1800], unit="s", utc=True))  # fmt: skip
        assert record.add_rows(run, table, ("a",), {}) == 1
        assert record.add_rows(run, table.assign(load_kw=6.0), ("a",), {}) == 0
        assert record.observed(0)["load_kw"].tolist() == [5.0]
    base = sqlite3.connect(path)
    for change in ("UPDATE observed SET load_kw = 1", "DELETE FROM observed"):
        with pytest.raises(sqlite3.IntegrityError, match="observed"):
            base.execute(change)
    base.close()


def test_the_loop_asks_works_and_shows_while_it_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, states, sent = [at(9)], [], []
    monkeypatch.setattr("atdm.deploy.service.TICK", 0.01)

    async def slow(plan: Collect, keep: Callable[[Observation], None]) -> None:
        if len(desk.homes.shown) > 9 * PER_DAY + 2:
            raise RunAborted("waiting for h9, silent for less than 24 h")
        await asyncio.sleep(0.05)
        keep(desk.homes.answer(plan))

    async def down(results: Results) -> list[Sent]:
        sent.append(results)
        return [Sent(to="mqtt", messages=0, failed="nobody listens")]

    async def pause(seconds: float) -> None:
        clock[0] += STEP
        if clock[0] > at(9.2):
            raise asyncio.CancelledError
        await real(0)

    real = asyncio.sleep

    async def main() -> None:
        service = desk.open(at(9))
        task = asyncio.ensure_future(operate(service, slow, clock=lambda: clock[0], publish=states.append, send=down))
        monkeypatch.setattr("atdm.deploy.service.asyncio.sleep", lambda s: pause(s) if s >= 1 else real(s))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert any(state.doing.startswith("asking") for state in states) and states[-1].doing == "waiting"
    assert states[-1].model is not None
    assert sent and any(alarm.name == "sinks" for alarm in states[-1].alarms)
    assert all(set(alarm.name for alarm in state.alarms) <= ALARMS.keys() for state in states)


def test_sinks_are_given_every_forecast_once_and_one_that_fails_is_an_alarm(desk: Desk) -> None:
    service = desk.open(at(10))
    assert service.news(at(10)) is None
    desk.step(service, at(10))
    found = service.news(at(10))
    assert found is not None and service.news(at(10)) is None
    assert (
        found.made.timestamp() == at(10) and len(found.forecast) == 2 * PER_DAY and len(found.observed) == PER_DAY - 1
    )
    assert found.offer is None and "flexibility.offered is false" in found.refused
    service.sent([Sent(to="mqtt", messages=0, failed="nobody listens")])
    service.check(at(10))
    assert [alarm.name for alarm in service.state(at(10)).alarms] == ["sinks"] and service.state(at(10)).health.ok
    service.sent([Sent(to="mqtt", messages=3)])
    service.check(at(10))
    assert service.state(at(10)).alarms == []


def test_every_alarm_is_in_the_guide() -> None:
    page = (Path(__file__).parents[2] / "docs/operate.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (\*\*)?`(\w+)`", page.partition("## Alarms")[2].partition("\n## ")[0], re.M)
    assert {name: bool(bold) for bold, name in found} == {name: alarm.failure for name, alarm in ALARMS.items()}


def test_the_guide_has_one_block_of_commands_to_start_with() -> None:
    page = (Path(__file__).parents[2] / "docs/operate.md").read_text(encoding="utf-8")
    start = page.partition("## Start")[2].partition("\n## ")[0]
    assert len(re.findall(r"(?:^    .*\n)+|^```.*?^```", start, re.M | re.S)) == 1


# Rules


def test_the_example_is_complete_and_its_defaults_are_true(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(EXAMPLE)
    plain = read_rules(path)
    lines = [
        line.removeprefix("# ") if line.startswith("# ") and " = " in line else line for line in EXAMPLE.splitlines()
    ]
    lines = [line for line in lines if not line.startswith(("holidays", "assume_gain", "token"))]
    path.write_text("\n".join(lines[3:]))
    assert read_rules(path) == plain


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RULES.replace("identity =", "idenity ="), "fleet.idenity is no rule: did you mean fleet.identity?"),
        (RULES + 'first_aftr = "3d"', "model.first_aftr is no rule: did you mean model.first_after?"),
        (RULES + "[colour]\nred = 1", "colour is no rule"),
        (RULES.replace('history = "20d"', 'history = "20 days"'), "collect.history: '20 days' is not a length of time"),
        (RULES.replace('history = "20d"', "history = 20"), "collect.history: 20 where words in quotes"),
        (RULES.replace('history = "20d"', 'history = "400d"'), "collect.history = 400 d: give between 0s and 92d"),
        (RULES.replace('step = "1h"', 'step = "7min"'), "collect.step = 7 min: give between 15min and 24h"),
        (RULES.replace('step = "1h"', 'step = "50min"'), "collect.step = 50 min: give one that divides the day"),
        (RULES.replace("at_least = 3", "at_least = 1"), "fleet.at_least: Expected `int` >= 3"),
        (RULES.replace('record = "desk.sqlite"', ""), "Object missing required field `record`"),
        (RULES + "[alarms]\nhomes_out = 2.0", "alarms.homes_out: Expected `float` <= 1.0"),
        (RULES + "[alarms]\nno_rows_for = 1h", "is not TOML"),
        (RULES + 'timezone = "Europe/Londn"', "model.timezone: unknown time zone"),
        (RULES + "[flexibility]\ncomfort = [22.0, 19.0]", "flexibility.comfort: give the least and the highest"),
    ],
)
def test_a_wrong_rule_is_refused_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path}: ") and words in str(caught.value) and "\n" not in str(caught.value)


def test_the_fleet_is_shown_as_the_aggregator_knows_it(desk: Desk) -> None:
    from atdm.crypto.keys import SigningKey
    from atdm.deploy.service_state import fleet_state
    from atdm.protocol.roster import sign_roster

    keys = {name: SigningKey(bytes([i]) * 32).public for i, name in enumerate("abcde", 1)}
    roster = sign_roster(SigningKey(b"\x09" * 32), [(n, n, k) for n, k in keys.items()], serial=4)
    now = 100 * 28 * DAY + 5 * DAY + 60
    day = int(now // DAY)
    ids = {name: key.hex() for name, key in keys.items()}
    fleet = Fleet(days={day: (ids["a"], ids["b"], ids["c"])}, lost={day - 1},
                  heard={ids["a"]: now, ids["b"]: now, ids["c"]: now - 3 * DAY, ids["d"]: now})  # fmt: skip
    found = fleet_state(roster, fleet, {"d": "too few readings on some days"}, now, desk.rules)
    assert {home.name: home.standing for home in found.homes} == {
        "a": "in", "b": "in", "c": "silent", "d": "out", "e": "new",
    }  # fmt: skip
    assert {home.name: home.why for home in found.homes}["d"] == "too few readings on some days"
    assert (found.serial, found.enrolled, found.inside, found.needed, found.lost_days) == (4, 5, 2, 4, 1)
    assert found.block_ends == (100 * 28 + 28) * DAY
    soon = fleet_state(roster, fleet, {}, (100 * 28 + 28) * DAY + 60, desk.rules)
    assert soon.inside == 2 and soon.fit_days == 0, "before the first sum of a block the last company is shown"
