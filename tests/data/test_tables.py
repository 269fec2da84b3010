import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atdm.data import read_cluster
from atdm.data import text as cells_of_text
from atdm.errors import DataError, UsageError

from .builders import DAY, weather_table, write, zones_table

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refusal(paths, **options) -> str:
    with pytest.raises(DataError) as error:
        read_cluster(*paths, **options)
    message = str(error.value)
    assert "\n" not in message and "\r" not in message
    return message


def assert_same(one, other):
    assert one.agents == other.agents
    pd.testing.assert_frame_equal(one.temperature, other.temperature)
    pd.testing.assert_frame_equal(one.load, other.load)
    pd.testing.assert_series_equal(one.outdoor, other.outdoor)
    pd.testing.assert_series_equal(one.solar, other.solar)


# ---- what is accepted


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_every_kind_of_file_gives_the_same_cluster(tmp_path, suffix):
    cluster = read_cluster(*write(tmp_path, suffix=suffix))
    zones, weather = zones_table(), weather_table()
    assert cluster.agents == ("a", "b", "c")
    for agent, rows in zones.groupby("agent"):
        assert np.array_equal(cluster.temperature[agent], rows["indoor_temp_c"])
        assert np.array_equal(cluster.load[agent], rows["load_kw"])
    assert np.array_equal(cluster.outdoor, weather["outdoor_temp_c"])
    assert np.array_equal(cluster.solar, weather["solar_w_m2"] / 1000)  # kW/m² inside
    assert cluster.step == pd.Timedelta("30min") and cluster.timezone == "UTC"
    assert (cluster.rows_dropped, cluster.notes) == (0, ())
    assert str(cluster.time.dtype) == "datetime64[ns, UTC]"


def test_one_agents_own_file_is_readable(tmp_path):
    assert read_cluster(*write(tmp_path, zones_table(("only",)))).agents == ("only",)


def test_agents_keep_the_order_of_first_appearance(tmp_path):
    table = zones_table(("z", "m", "a"))
    by_time = table.sort_values("time", kind="stable")
    assert read_cluster(*write(tmp_path, by_time)).agents == ("z", "m", "a")


def test_buildings_own_their_agents(tmp_path):
    table = zones_table().assign(building=lambda t: t["agent"].map({"a": "one", "b": "two", "c": "one"}))
    cluster = read_cluster(*write(tmp_path, table))
    assert cluster.owner.to_dict() == {"a": "one", "b": "two", "c": "one"}
    assert cluster.by_building().agents == ("one", "two")


@pytest.mark.parametrize("change", [lambda b: b"\xef\xbb\xbf" + b, lambda b: b.replace(b"\n", b"\r\n")])
def test_byte_order_mark_and_crlf_are_accepted(tmp_path, change):
    expected = read_cluster(*(paths := write(tmp_path)))
    for path in paths:
        path.write_bytes(change(path.read_bytes()))
    assert_same(read_cluster(*paths), expected)


def test_swapped_tables_and_a_folder_are_called_so(tmp_path):
    zones, weather = write(tmp_path)
    assert "has the columns of weather: give the file of the zones here, or swap the two" in refusal((weather, zones))
    assert "has the columns of zones: give the file of the weather here" in refusal((zones, zones))
    assert "is a folder: give the file in it" in refusal((tmp_path, weather))


def test_declared_delimiter_and_decimal_comma_are_followed(tmp_path):
    expected = read_cluster(*(paths := write(tmp_path)))
    for path, table in zip(paths, (zones_table(), weather_table()), strict=True):
        table.to_csv(path, index=False, sep=";", decimal=",")
    assert_same(read_cluster(*paths, delimiter=";", decimal=","), expected)


def test_parquet_with_time_as_index_whole_numbers_and_categories_is_accepted(tmp_path):
    zones = zones_table().astype({"agent": "category"})
    zones["load_kw"] = pd.array(np.arange(len(zones)) % 3, dtype="Int64")
    zones.loc[5, "load_kw"] = pd.NA
    paths = write(tmp_path, suffix=".parquet")
    zones.set_index("time").to_parquet(paths[0])
    cluster = read_cluster(*paths)
    assert cluster.filled.to_dict() == {"a": 1, "b": 0, "c": 0}
    assert cluster.load["a"].iloc[:7].tolist() == [0.0, 1.0, 2.0, 0.0, 1.0, 0.5, 0.0]


# ---- what is filled or left out, and said (the rules of it: test_gaps.py)


@pytest.mark.parametrize("nothing", ["", "NA", "NaN", "null", " "])
def test_a_missing_reading_is_filled_or_drops_the_stamp_for_all_agents(tmp_path, nothing):
    zones = zones_table().astype({"indoor_temp_c": str})
    zones.loc[7, "indoor_temp_c"] = nothing
    paths = write(tmp_path, zones)
    whole = read_cluster(*paths)
    assert whole.rows_dropped == 0 and whole.notes == ("1 reading of agent 'a' filled across gaps of up to 2 h",)
    cluster = read_cluster(*paths, fill="0h")
    assert cluster.rows_dropped == 1 and len(cluster.time) == 2 * DAY - 1
    assert zones["time"][7] not in cluster.time
    assert "1 of 96 time stamps dropped" in cluster.notes[0]
    assert cluster.segment.max() == 1


def test_a_stamp_one_agent_lacks_is_dropped_for_all(tmp_path):
    cluster = read_cluster(*write(tmp_path, zones_table().drop(index=[3, 4, 5, 6])))  # 2.5 h without a reading
    assert cluster.rows_dropped == 4 and "agent 'a' lacks 4" in cluster.notes[0]


def test_missing_weather_drops_the_stamp(tmp_path):
    weather = weather_table()
    weather.loc[9, "solar_w_m2"] = np.nan
    cluster = read_cluster(*write(tmp_path, weather=weather))
    assert cluster.rows_dropped == 1 and "weather has holes" in cluster.notes[0]


def test_a_gap_splits_segments_and_drops_nothing(tmp_path):
    zones = zones_table()
    gap = zones["time"].isin(zones["time"][20:30])
    cluster = read_cluster(*write(tmp_path, zones[~gap]))
    assert cluster.rows_dropped == 0 and cluster.segment.max() == 1


def test_extra_columns_are_named(tmp_path):
    [note] = read_cluster(*write(tmp_path, zones_table().assign(humidity=50))).notes
    assert "humidity" in note and "not used" in note


def test_exact_doubles_are_dropped_and_counted(tmp_path):
    zones = zones_table()
    cluster = read_cluster(*write(tmp_path, pd.concat([zones, zones.iloc[[5, 40]]])))
    assert len(cluster.time) == 2 * DAY and "2 rows dropped" in cluster.notes[0]


def test_rows_are_sorted_only_when_asked(tmp_path):
    expected = read_cluster(*write(tmp_path))
    paths = write(tmp_path, zones_table().iloc[::-1], weather_table().iloc[::-1])
    assert "goes back in time" in refusal(paths)
    cluster = read_cluster(*paths, sort=True)
    assert_same(cluster.select(["a", "b", "c"]), expected)
    assert "sorted" in cluster.notes[0]


def test_more_weather_than_zones_is_fine(tmp_path):
    weather = weather_table(rows=6 * DAY, start="2024-01-06")
    assert len(read_cluster(*write(tmp_path, weather=weather)).time) == 2 * DAY


def stuck(zones):
    zones.loc[zones["agent"] == "b", "indoor_temp_c"] = 21.0


def copied(zones):
    zones.loc[zones["agent"] == "c", "indoor_temp_c"] = zones.loc[zones["agent"] == "a", "indoor_temp_c"].to_numpy()


def unmetered(zones):
    zones.loc[zones["agent"] == "b", "load_kw"] = 0.0


def spike(zones):
    zones.loc[20, "indoor_temp_c"] = 45.0


@pytest.mark.parametrize(
    ("change", "agents", "cause"),
    [
        (stuck, ["b"], "stuck"),
        (copied, ["a", "c"], "identical"),
        (unmetered, ["b"], "constant"),
        (spike, ["a"], "jumps"),
    ],
)
def test_odd_series_are_named_and_not_refused(tmp_path, change, agents, cause):
    zones = zones_table()
    change(zones)
    cluster = read_cluster(*write(tmp_path, zones))
    [note] = cluster.notes
    assert cause in note and all(repr(agent) in note for agent in agents)
    assert len(cluster.time) == 2 * DAY


# ---- clocks


def test_naive_stamps_are_local_in_the_declared_zone(tmp_path):
    paths = write(tmp_path, zones_table(tz=None), weather_table(tz=None))
    assert "no time zone" in refusal(paths) and "declare the time zone" in refusal(paths)
    cluster = read_cluster(*paths, timezone="America/Chicago")
    assert cluster.time[0] == pd.Timestamp("2024-01-08 06:00Z") and cluster.timezone == "America/Chicago"
    assert cluster.phase(48)[:2].tolist() == [0, 1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(("date", "hours"), [("2024-03-31", 23), ("2024-10-27", 25)])
def test_aware_stamps_pass_days_of_23_and_25_hours(tmp_path, suffix, date, hours):
    span = {"start": date, "tz": "Europe/London", "rows": 2 * hours}
    paths = write(tmp_path, zones_table(**span), weather_table(**span), suffix)
    cluster = read_cluster(*paths, timezone="Europe/London")
    assert len(cluster.time) == 2 * hours and cluster.segment.max() == 0
    assert cluster.phase(48)[[0, -1]].tolist() == [0, 47]


def test_naive_stamps_pass_a_day_of_23_hours(tmp_path):
    span = {"start": "2024-03-31", "tz": "Europe/London", "rows": 46}
    zones, weather = zones_table(**span), weather_table(**span)
    for table in (zones, weather):
        table["time"] = table["time"].dt.tz_localize(None)
    cluster = read_cluster(*write(tmp_path, zones, weather), timezone="Europe/London")
    assert len(cluster.time) == 46 and cluster.segment.max() == 0


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(("date", "cause"), [("2024-03-31", "does not exist"), ("2024-10-27", "happens twice")])
def test_local_stamps_without_one_instant_are_refused(tmp_path, suffix, date, cause):
    paths = write(tmp_path, zones_table(start=date, tz=None), weather_table(start=date, tz=None), suffix)
    message = refusal(paths, timezone="Europe/London")
    assert "zones" in message and f"{date} 01:00:00 in data rows 3" in message
    assert cause in message and "UTC" in message


# ---- what is refused: each row of the table of bad inputs


def edit(which, change):
    """Change one table before it is written."""

    def make(folder, suffix=".csv"):
        tables = {"zones": zones_table(), "weather": weather_table()}
        tables[which] = change(tables[which])
        return write(folder, tables["zones"], tables["weather"], suffix)

    return make


def raw(which, change):
    """Change one file's bytes after it is written."""

    def make(folder):
        paths = write(folder)
        path = paths[("zones", "weather").index(which)]
        path.write_bytes(change(path.read_bytes()))
        return paths

    return make


def setcell(column, value, row=4):
    def change(table):
        table[column] = table[column].astype(object)
        table.loc[row, column] = value
        return table

    return change


def scaled(column, factor, plus=0.0, agent=None):
    def change(table):
        rows = slice(None) if agent is None else table["agent"] == agent
        table.loc[rows, column] = table.loc[rows, column] * factor + plus
        return table

    return change


def shifted(agent, by):
    def change(table):
        table.loc[table["agent"] == agent, "time"] += pd.Timedelta(by)
        return table

    return change


def thinned(table):
    return table[(table["agent"] != "b") | (np.arange(len(table)) % 2 == 0)]


def conflicting(table):
    return pd.concat([table, table.iloc[[5]].assign(load_kw=3.0)])


def two_buildings(table):
    return table.assign(building=["x"] * 10 + ["y"] * (len(table) - 10))


def mixed(table):
    table["time"] = table["time"].dt.strftime("%Y-%m-%dT%H:%MZ")
    table.loc[6, "time"] = table.loc[6, "time"].rstrip("Z")
    return table


def renamed(**names):
    return lambda table: table.rename(columns=names)


def latin(content):
    return content.replace(b"a,", "café,".encode("latin-1"))


def semicolons(content):
    return content.replace(b",", b";")


def comma_decimals(content):
    return content.replace(b".", b",")


def with_second_temperature(content):
    return content.replace(b"\n", b",20\n").replace(b",20", b",indoor_temp_c", 1)


BAD = {
    "empty": (raw("zones", lambda b: b""), "empty", "export"),
    "blank": (raw("zones", lambda b: b"\n\n"), "empty", "export"),
    "header only": (raw("zones", lambda b: b.splitlines()[0]), "no rows", "export"),
    "header only, weather": (raw("weather", lambda b: b.splitlines()[0] + b"\r\n"), "no rows", "export"),
    "binary": (raw("zones", lambda b: bytes(range(256))), "binary", "save it as CSV"),
    "utf-16": (raw("zones", lambda b: b.decode().encode("utf-16")), "UTF-16", "UTF-8"),
    "latin-1": (raw("zones", latin), "not UTF-8", "save it as CSV in UTF-8"),
    "parquet called csv": (raw("zones", lambda b: b"PAR1" + b), "is a parquet file", "rename"),
    "semicolons": (raw("zones", semicolons), "delimited by ';'", "set the delimiter"),
    "tabs": (raw("weather", lambda b: b.replace(b",", b"\t")), r"delimited by '\t'", "set the delimiter"),
    "decimal commas": (raw("weather", comma_decimals), "fields, the header 3", "decimal points"),
    "long row": (raw("zones", lambda b: b.replace(b"\n", b",\n", 3)), "the header", "decimal points"),
    "short row": (raw("zones", lambda b: b + b"2024-02-01T00:00Z,a\n"), "data row 289 has 2 fields", "header 4"),
    "doubled column": (raw("zones", with_second_temperature), "'indoor_temp_c' appears 2 times", "keep one"),
    "missing column": (edit("zones", lambda t: t.drop(columns="agent")), "'agent' is missing", "add it"),
    "missing weather": (edit("weather", renamed(solar_w_m2="sun")), "'solar_w_m2' is missing", "rename"),
    "°F column": (edit("zones", renamed(indoor_temp_c="indoor_temp_f")), "'indoor_temp_f'", "(F - 32) / 1.8"),
    "K column": (edit("zones", renamed(indoor_temp_c="indoor_temp_k")), "'indoor_temp_k'", "subtract 273.15"),
    "W column": (edit("zones", renamed(load_kw="load_w")), "'load_w'", "divide by 1000"),
    "kWh column": (edit("zones", renamed(load_kw="load_kWh")), "'load_kWh'", "hours of a step"),
    "kW/m² column": (edit("weather", renamed(solar_w_m2="solar_kw_m2")), "'solar_kw_m2'", "multiply by 1000"),
    "text": (edit("zones", setcell("indoor_temp_c", "warm")), "indoor_temp_c is 'warm' in data row 5", "correct it"),
    "long text": (edit("zones", setcell("load_kw", "x" * 99)), "xxx...' in data row 5", "correct it"),
    "text of two lines": (edit("zones", setcell("load_kw", "x\ny")), r"load_kw is 'x\ny' in data row 5", "correct it"),
    "infinity": (edit("zones", setcell("load_kw", "inf")), "load_kw is infinite in data row 5", "empty"),
    "too large": (edit("weather", setcell("solar_w_m2", "1e999")), "solar_w_m2 is infinite in data row 5", "empty"),
    "comma in cell": (edit("zones", setcell("load_kw", "1,5")), "load_kw is '1,5' in data row 5", "decimal ','"),
    "no agent": (edit("zones", setcell("agent", "")), "agent is empty in data row 5", "fill it"),
    "no stamp": (edit("zones", setcell("time", "")), "time is '' in data row 5", "2024-01-31T13:30Z"),
    "day first": (edit("zones", setcell("time", "31/01/2024 13:30")), "not an ISO 8601", "2024-01-31T13:30Z"),
    "no such day": (edit("zones", setcell("time", "2024-02-31 13:30Z")), "'2024-02-31 13:30Z'", "2024-01-31T13:30Z"),
    "mixed offsets": (edit("zones", mixed), "none in data row 7", "UTC"),
    "two buildings": (edit("zones", two_buildings), "'a' has more than one building", "give it one"),
    "conflict": (edit("zones", conflicting), "data row 289 gives other values for agent 'a' at", "keep one"),
    "back in time": (edit("zones", lambda t: t.iloc[[1, 0, *range(2, len(t))]]), "data row 2, agent 'a'", "sort"),
    "weather back": (edit("weather", lambda t: t.iloc[::-1]), "goes back in time", "sort"),
    "irregular": (edit("zones", setcell("time", "2024-01-08 02:07:00+00:00")), "irregular step", "resample"),
    "two steps": (edit("zones", thinned), "'b' never has the 30 min step", "resample"),
    "off grid": (edit("zones", shifted("b", "10min")), "'b' is off the 30 min grid of 'a'", "resample"),
    "half seconds": (
        edit("zones", lambda t: t.assign(time=t["time"][0] + (t.index % 96) * pd.Timedelta("500ms"))),
        "step of 0.5 s, no whole number of seconds",
        "resample",
    ),
    "one stamp": (edit("zones", lambda t: t.iloc[[0, 96]]), "no agent has two time stamps", "days"),
    "weather of another clock": (edit("weather", lambda t: t.iloc[12:]), "12 of 96 stamps", "another time zone?"),
    "no weather": (edit("weather", lambda t: t.drop(index=[8, 9])), "2 of 96 stamps", "extend the weather"),
    "first named": (edit("weather", lambda t: t.drop(index=[8, 9])), "first 2024-01-08T04:00:00Z", "cut the zones"),
    "°F": (edit("zones", scaled("indoor_temp_c", 1.8, 32)), "agent 'a' and 2 more has median", "(F - 32) / 1.8"),
    "°F, one agent": (edit("zones", scaled("indoor_temp_c", 1.8, 32, "b")), "'b' has median", "(F - 32) / 1.8"),
    "K": (edit("zones", scaled("indoor_temp_c", 1, 273.15)), "looks like K", "subtract 273.15"),
    "outdoor K": (edit("weather", scaled("outdoor_temp_c", 1, 273.15)), "outdoor_temp_c has median", "273.15"),
    "W": (edit("zones", scaled("load_kw", 1000)), "looks like W", "divide by 1000"),
    "W, one agent": (edit("zones", scaled("load_kw", 1000, agent="c")), "agent 'c' peaks", "divide by 1000"),
    "kW/m²": (edit("weather", scaled("solar_w_m2", 0.001)), "peaks at 0.2, looks like kW/m²", "multiply by 1000"),
    "error code 85": (edit("zones", setcell("indoor_temp_c", 85)), "is 85 at 2024-01-08T02:00:00Z", "error code"),
    "error code -40": (edit("zones", setcell("indoor_temp_c", -40)), "is -40 at", "leave the cell empty"),
    "outdoor 85": (edit("weather", setcell("outdoor_temp_c", 85)), "outside -60 to 60 °C", "check the unit"),
    "solar 9999": (edit("weather", setcell("solar_w_m2", 9999)), "outside -20 to 1500 W/m²", "check the unit"),
    "load -99999": (edit("zones", setcell("load_kw", -99999)), "outside -10000 to 10000 kW", "error code"),
    "never together": (
        edit("zones", lambda t: t[t["agent"] != "c"].assign(load_kw=t["load_kw"].where(t["agent"] != "b"))),
        "no time stamp has a reading of every agent (agent 'b' lacks 96, on 2 days more than half)",
        "leave agents or days out",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_file_cause_and_remedy(tmp_path, case):
    make, cause, remedy = BAD[case]
    message = refusal(make(tmp_path))
    assert message.startswith(str(tmp_path)) and (".csv: " in message)
    assert cause in message and remedy in message


def test_decimal_point_under_a_declared_comma_is_refused(tmp_path):
    paths = write(tmp_path)
    for path in paths:
        path.write_bytes(semicolons(path.read_bytes()))
    assert "set decimal '.'" in refusal(paths, delimiter=";", decimal=",")


def test_decimal_comma_not_declared_is_refused(tmp_path):
    paths = write(tmp_path)
    for path, table in zip(paths, (zones_table(), weather_table()), strict=True):
        table.to_csv(path, index=False, sep=";", decimal=",")
    assert "set decimal ','" in refusal(paths, delimiter=";")


def test_weather_of_another_step_is_refused(tmp_path):
    paths = write(tmp_path, weather=weather_table(rows=4 * DAY, freq="15min"))
    assert "15 min step" in refusal(paths) and "average it" in refusal(paths)


def test_a_dark_short_night_is_no_unit_fault(tmp_path):
    paths = write(tmp_path, zones_table(rows=8), weather_table(rows=8).assign(solar_w_m2=np.linspace(0, 0.4, 8)))
    assert read_cluster(*paths).solar.max() == pytest.approx(0.0004)


@pytest.mark.parametrize(
    ("name", "cause"),
    [("nowhere.csv", "no such file"), ("nowhere.parquet", "no such file"), ("table.xlsx", "unknown kind of file")],
)
def test_files_that_are_not_there_or_of_another_kind(tmp_path, name, cause):
    _, weather = write(tmp_path)
    message = refusal((tmp_path / name, weather))
    assert cause in message and name in message


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_folder_is_no_file(tmp_path, suffix):
    _, weather = write(tmp_path)
    (tmp_path / f"folder{suffix}").mkdir()
    assert "is a folder" in refusal((tmp_path / f"folder{suffix}", weather))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".csv.gz"])
def test_a_huge_file_is_refused_before_it_is_read(tmp_path, monkeypatch, suffix):
    paths = write(tmp_path, suffix=suffix)
    monkeypatch.setattr(cells_of_text, "MAX_BYTES", 500)
    assert "split it" in refusal(paths)


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path, monkeypatch):
    paths = write(tmp_path, suffix=".csv.gz")
    paths[0].write_bytes(gzip.compress(b"time,agent,indoor_temp_c,load_kw\n" * 100_000))
    same = pa.array([0.0]).take(pa.array(np.zeros(10**6, dtype=np.int64)))
    bomb = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"time": same, "agent": same, "indoor_temp_c": same, "load_kw": same}), bomb)
    monkeypatch.setattr(cells_of_text, "MAX_BYTES", 100_000)
    assert paths[0].stat().st_size < 100_000 and bomb.stat().st_size < 100_000
    assert "split it" in refusal(paths)
    assert "split it" in refusal((bomb, paths[1]))


def nested(table):
    return table.assign(load_kw=[{"kw": value} for value in table["load_kw"]])


def as_list(table):
    return table.assign(indoor_temp_c=[[value] for value in table["indoor_temp_c"]])


PARQUET_BAD = {
    "text for numbers": (lambda t: t.assign(load_kw="much"), "load_kw is 'much'", "correct it"),
    "flags for numbers": (lambda t: t.assign(load_kw=True), "load_kw is of type 'bool'", "float64"),
    "struct": (nested, "load_kw is of type 'struct", "float64"),
    "list": (as_list, "indoor_temp_c is of type 'list", "float64"),
    "dates for numbers": (lambda t: t.assign(load_kw=t["time"]), "load_kw is of type 'timestamp", "float64"),
    "numbers for time": (lambda t: t.assign(time=np.arange(len(t))), "time is of type 'int64'", "timestamp in UTC"),
    "fractions for agents": (lambda t: t.assign(agent=1.5), "agent is of type 'double'", "text"),
    "no stamp": (setcell("time", pd.NaT), "time is empty in data row 5", "remove"),
    "no agent": (setcell("agent", None), "agent is empty in data row 5", "fill it"),
    "infinity": (setcell("load_kw", np.inf), "load_kw is infinite in data row 5", "empty"),
}


@pytest.mark.parametrize("case", PARQUET_BAD)
def test_bad_parquet_is_refused_by_type(tmp_path, case):
    change, cause, remedy = PARQUET_BAD[case]
    paths = write(tmp_path, suffix=".parquet")
    table = change(zones_table())
    if table["time"].dtype == object:
        table["time"] = pd.to_datetime(table["time"], utc=True)
    if case == "infinity":
        table["load_kw"] = table["load_kw"].astype(float)
    table.to_parquet(paths[0], index=False)
    message = refusal(paths)
    assert "zones.parquet" in message and cause in message and remedy in message


def test_doubled_parquet_columns_are_refused(tmp_path):
    paths = write(tmp_path, suffix=".parquet")
    table = pa.Table.from_pandas(zones_table())
    pq.write_table(table.append_column("load_kw", table.column("load_kw")), paths[0])
    assert "'load_kw' appears 2 times" in refusal(paths)


@pytest.mark.parametrize(
    "options",
    [{"delimiter": ""}, {"delimiter": ";;"}, {"decimal": "x"}, {"decimal": ","}, {"timezone": "Mars"}, {"fill": "2"}],
)
def test_options_that_make_no_sense_are_usage_errors(tmp_path, options):
    with pytest.raises(UsageError):
        read_cluster(*write(tmp_path), **options)


# ---- whatever the bytes, an answer or a DataError


def answers(folder, name, content):
    paths = write(folder, suffix=".parquet" if name.endswith("parquet") else ".csv")
    (folder / name).write_bytes(content)
    try:
        read_cluster(folder / name, paths[1])
    except DataError as error:
        assert "\n" not in str(error)


@QUICK
@given(content=st.binary(max_size=400), name=st.sampled_from(["x.csv", "x.csv.gz", "x.parquet"]))
def test_random_bytes_only_ever_give_a_data_error(tmp_path, content, name):
    answers(tmp_path, name, content)


@QUICK
@given(body=st.text(alphabet='0123456789-:TZ.,;"\n\r abNe+\x1fé', max_size=300))
def test_random_rows_under_a_good_header_only_ever_give_a_data_error(tmp_path, body):
    answers(tmp_path, "x.csv", b"time,agent,indoor_temp_c,load_kw\n" + body.encode())


@QUICK
@given(cells=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.text(max_size=12)), max_size=4))
def test_random_cells_only_ever_give_a_data_error(tmp_path, cells):
    rows = [line.split(",") for line in zones_table(rows=8).to_csv(index=False).splitlines()]
    for row, column, text in cells:
        rows[row][column] = text
    answers(tmp_path, "x.csv", "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass"))


@QUICK
@given(data=st.data())
def test_damaged_parquet_only_ever_gives_a_data_error(tmp_path, data):
    content = bytearray(write(tmp_path, suffix=".parquet")[0].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    answers(tmp_path, "x.parquet", bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))]))
