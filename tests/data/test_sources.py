"""One seam for readings: a table without pandas is the table with it, and anybody may add a source."""

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atdm.data import own, tables
from atdm.data.format import Format
from atdm.data.sources import Rows, Source, open_source, registry
from atdm.data.sources.table import Table, read_sky
from atdm.errors import DataError, UsageError

from .builders import DAY, weather_table, write, zones_table


def strict(path: Path, weather: Path, declared: Format) -> tuple[pd.DataFrame, list[str]]:
    """What the reader of clusters makes of one home's file, and its faults in words."""
    zones, sky = tables.read_zones(path, declared), tables.read_weather(weather, declared)
    return zones.readings, [fault.text for fault in tables.faults(zones, sky)]


def light(path: Path, weather: Path, declared: Format) -> tuple[Rows, list[str]]:
    rows, sky = Table(path, declared=declared).rows(), read_sky(weather, declared)
    where = tuple(f"{path}: {name} of agent {rows.agent!r}" for name in ("indoor_temp_c", "load_kw"))
    return rows, list(own.faults(rows, sky, str(path), where))


def outcome(reader, path: Path, weather: Path, declared: Format):
    try:
        found, faults = reader(path, weather, declared)
    except (DataError, UsageError) as error:
        return str(error)
    if faults:
        return faults
    if isinstance(found, Rows):
        return found.time.tolist(), found.temperature.tolist(), found.load.tolist()
    time = (pd.DatetimeIndex(found["time"]).asi8 // 10**9).tolist()
    return time, found["indoor_temp_c"].tolist(), found["load_kw"].tolist()


def change(**columns):
    return lambda table: table.assign(**columns)


def with_cell(row, column, value):
    def changed(table):
        table = table.astype(object)
        table.loc[row, column] = value
        return table

    return changed


HOMES = {
    "as it should be": lambda t: t,
    "°F": lambda t: t.assign(indoor_temp_c=t["indoor_temp_c"] * 1.8 + 32),
    "K": lambda t: t.assign(indoor_temp_c=t["indoor_temp_c"] + 273.15),
    "tenths of a degree": lambda t: t.assign(indoor_temp_c=(t["indoor_temp_c"] * 10).round()),
    "hundredths": lambda t: t.assign(indoor_temp_c=t["indoor_temp_c"] * 100),
    "tenths and frost": lambda t: t.assign(indoor_temp_c=(t["indoor_temp_c"] * 50 - 950).round()),
    "an error code": with_cell(7, "indoor_temp_c", 85.0),
    "watts": lambda t: t.assign(load_kw=t["load_kw"] * 1000),
    "a huge load": with_cell(5, "load_kw", 20_000.0),
    "missing readings": with_cell(3, "load_kw", "n/a"),
    "all readings missing": change(load_kw=""),
    "a stamp that is missing": lambda t: t.drop(index=[4, 5]),
    "a row twice": lambda t: pd.concat([t.iloc[:4], t.iloc[3:]]),
    "a stamp twice": lambda t: pd.concat([t.iloc[:4], t.iloc[3:4].assign(load_kw=9.0), t.iloc[4:]]),
    "out of order": lambda t: t.iloc[[1, 0, *range(2, len(t))]],
    "an irregular step": with_cell(9, "time", "2024-01-08T04:31:00Z"),
    "one stamp": lambda t: t.iloc[:1],
    "text for a number": with_cell(6, "load_kw", "much"),
    "a decimal comma": with_cell(6, "load_kw", "1,5"),
    "an infinity": with_cell(6, "load_kw", "inf"),
    "no stamp": with_cell(6, "time", "yesterday"),
    "no such day": with_cell(6, "time", "2024-02-30T00:00Z"),
    "an empty stamp": with_cell(6, "time", ""),
    "stamps without offset": lambda t: t.assign(time=t["time"].dt.tz_localize(None)),
    "one stamp without offset": with_cell(6, "time", "2024-01-08T03:00:00"),
    "no name": with_cell(6, "agent", ""),
    "a column missing": lambda t: t.drop(columns="load_kw"),
    "a column in watts": lambda t: t.rename(columns={"load_kw": "load_w"}),
    "columns more": change(humidity=50, building="b"),
    "no rows": lambda t: t.iloc[:0],
    "before the weather": lambda t: t.assign(time=t["time"] - pd.Timedelta(hours=1)),
}


@pytest.mark.parametrize("case", HOMES)
def test_a_file_read_without_pandas_is_the_file_read_with_it(tmp_path, case):
    """Values and refusals, word for word."""
    paths = write(tmp_path, HOMES[case](zones_table(("a",), rows=DAY)), weather_table(rows=DAY))
    for declared in (Format(), Format(sort=True), Format(timezone="Europe/Berlin")):
        np.testing.assert_equal(outcome(light, *paths, declared), outcome(strict, *paths, declared))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("start", ["2024-03-30", "2024-10-26", "2024-03-09", "2024-11-02"])
def test_clock_changes_are_judged_alike(tmp_path, zone, start):
    naive = zones_table(("a",), rows=3 * DAY, start=start, tz=None)
    paths = write(tmp_path, naive, weather_table(rows=7 * DAY, start=pd.Timestamp(start) - pd.Timedelta(days=1)))
    expected = outcome(strict, *paths, Format(timezone=zone))
    found = outcome(light, *paths, Format(timezone=zone))
    if isinstance(expected, str) and "clock changes" in expected:  # it counts the rows, this one names the first
        assert isinstance(found, str) and found.partition(" in data row")[0] == expected.partition(" in data row")[0]
        assert found.partition("(the clock")[2] == expected.partition("(the clock")[2]
    else:
        np.testing.assert_equal(found, expected)


ODD = st.sampled_from(["1_0", " 2", "1e3", "+1", ".5", "5.", "٣", "0x1", "1e400", "-0", "NaN ", "None", "infinity"])
TEXT = st.text(st.characters(exclude_characters='"\0'), max_size=8) | ODD
CELLS = st.tuples(st.integers(1, 8), st.sampled_from([0, 2, 3]), TEXT)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(cells=st.lists(CELLS, min_size=1, max_size=3))
def test_random_cells_are_taken_or_refused_alike(tmp_path_factory, cells):
    folder = tmp_path_factory.mktemp("cells")
    _, weather = write(folder, weather=weather_table(rows=DAY))
    lines = [line.split(",") for line in zones_table(("a",), rows=8).to_csv(index=False).splitlines()]
    for row, column, text in cells:
        lines[row][column] = text
    path = folder / "home.csv"
    path.write_text("\n".join(",".join(line) for line in lines), encoding="utf-8")
    found, expected = (outcome(reader, path, weather, Format()) for reader in (light, strict))
    if not isinstance(expected, tuple) and not isinstance(found, tuple):
        return  # both refuse; the first of several faults may be another one
    np.testing.assert_equal(found, expected)


def test_weather_is_judged_alike(tmp_path):
    for case in (
        {"outdoor_temp_c": 280.0}, {"outdoor_temp_c": 66.0}, {"solar_w_m2": 1600.0}, {"solar_w_m2": 0.5},
        {"outdoor_temp_c": -70.0}, {"solar_w_m2": 5.0},
    ):  # fmt: skip
        _, path = write(tmp_path, weather=weather_table().assign(**case))
        table = tables.read_weather(path, Format())
        assert list(own.weather_faults(read_sky(path, Format()))) == [f.text for f in tables.weather_faults(table)]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_rows_of_a_table_since_a_stamp(tmp_path, suffix):
    path, _ = write(tmp_path, zones_table(("a",), rows=DAY), suffix=suffix)
    source = open_source(str(path))
    assert source.name == str(path) and source.rows().agent == "a" and len(source.rows()) == DAY
    since = int(source.rows().time[10])
    assert len(source.rows(since)) == DAY - 11 and source.rows(since).time[0] == since + 1800


def test_a_table_of_several_homes_is_refused(tmp_path):
    path, _ = write(tmp_path)
    with pytest.raises(DataError, match="holds readings of a, b, c: give one home's own file"):
        open_source(str(path)).rows()
    with pytest.raises(DataError, match="this agent is a: give a file with its own readings only"):
        open_source(str(path), agent="a").rows()


def test_a_file_may_say_which_source_and_how(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "home.db") as made:
        made.execute("CREATE TABLE r (s INTEGER, room REAL, heat REAL)")
        made.executemany("INSERT INTO r VALUES (?, 20, 1)", [(1800 * i,) for i in range(4)])
    made.close()
    path = tmp_path / "home.toml"
    path.write_text(f"""
source = "sql:{tmp_path / "home.db"}"
query = "SELECT s AS time, room AS temperature, heat AS load FROM r ORDER BY s"
""")
    assert len(open_source(str(path)).rows()) == 4
    assert len(open_source(str(path), {"query": "SELECT 0 AS time, 20 AS temperature, 1 AS load"}).rows()) == 1
    unsaid = "does not say its source"
    for text, words in (("query = 'x'", unsaid), ("source = ", "is not TOML"), ("source = 3", unsaid)):
        path.write_text(text)
        with pytest.raises(DataError, match=words):
            open_source(str(path))
    with pytest.raises(DataError, match="cannot be read"):
        open_source(str(tmp_path / "none.toml"))


def test_what_names_no_source_is_refused(tmp_path):
    with pytest.raises(UsageError, match="influx: unknown kind of source: use a path, homeassistant:, sql:"):
        open_source("influx:host")
    with pytest.raises(UsageError, match="is a table of ours and takes no option 'query'"):
        open_source(str(tmp_path / "a.csv"), {"query": "SELECT 1"})
    with pytest.raises(DataError, match="no such file"):
        open_source(str(tmp_path / "a.csv")).rows()
    with pytest.raises(UsageError, match="--option colour: write NAME=VALUE"):
        registry.parse_options(["colour"])
    assert registry.parse_options(["nominal-power=3", "query=a = b"]) == {"nominal_power": "3", "query": "a = b"}


class Constant(Source):
    """Somebody else's source."""

    def __init__(self, address: str, *, kilowatts: str = "1") -> None:
        self.name, self.kilowatts = f"constant:{address}", float(kilowatts)

    def rows(self, since: int | None = None) -> Rows:
        time = 1800 * np.arange(10)
        return Rows(time, np.full(10, 20.0), np.full(10, self.kilowatts)).after(since)


class Nothing:
    """No source."""

    def __init__(self, address: str) -> None:
        pass


def test_a_source_of_somebody_else_is_an_entry_point(monkeypatch):
    points = {
        "constant": EntryPoint("constant", "tests.data.test_sources:Constant", registry.GROUP),
        "broken": EntryPoint("broken", "tests.data.nowhere:Nothing", registry.GROUP),
        "other": EntryPoint("other", "tests.data.test_sources:Nothing", registry.GROUP),
    }

    def entry_points(*, group, name=None):
        assert group == "atdm.sources"
        return [point for point in points.values() if name in (None, point.name)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    rows = open_source("constant:here", {"kilowatts": "2.5"}).rows(9000)
    assert rows.time.tolist() == [10800, 12600, 14400, 16200] and set(rows.load) == {2.5}
    assert repr(open_source("constant:here")) == "Constant('constant:here')"
    with pytest.raises(UsageError, match="constant: has no option 'colour': it takes kilowatts"):
        open_source("constant:here", {"colour": "red"})
    with pytest.raises(UsageError, match="cannot be loaded.*reinstall its package"):
        open_source("broken:here")
    with pytest.raises(UsageError, match="other: gives a Nothing, not a Source"):
        open_source("other:here")


@pytest.mark.parametrize(
    ("time", "temperature", "load", "words"),
    [
        ([0, 1800, 1800], [20, 20, 20], [1, 1, 1], "1970-01-01T00:30:00Z after a stamp that is not earlier"),
        ([0, 1800], [20, 20, 20], [1, 1], "3 values of temperature for 2 stamps"),
        ([0, 1800], [20, np.inf], [1, 1], "an infinite temperature"),
    ],
)
def test_rows_that_are_none_are_refused(time, temperature, load, words):
    with pytest.raises(DataError, match=words):
        Rows(time, temperature, load)


def test_rows_show_no_reading():
    rows = Rows([0, 1800], [20.125, 21.375], [1.875, 2.625])
    assert not any(value in f"{rows!r} {rows}" for value in ("20.125", "21.375", "1.875", "2.625"))
