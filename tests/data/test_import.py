"""Every kind of file from one written by foreign.py, and every refusal with the remedy that it names."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.data.importing import Kind, import_tables
from atdm.errors import DataError, UsageError

from . import foreign
from .builders import DAY, weather_table, zones_table

NAMES = {"007": "a", "07": "b", "7": "c"}


def by_home(zones: pd.DataFrame) -> pd.DataFrame:
    named = zones.assign(agent=zones["agent"].map(lambda name: NAMES.get(name, name)))
    return named.set_index(["agent", "time"]).sort_index()[["indoor_temp_c", "load_kw"]]


@pytest.mark.parametrize("kind", foreign.KINDS)
def test_every_kind_of_file_gives_the_cluster_it_was_written_from(kind, tmp_path):
    found = import_tables(**foreign.KINDS[kind](tmp_path))
    print(found.account.text())
    zones, weather = foreign.truth()
    pd.testing.assert_frame_equal(by_home(found.zones), by_home(zones), atol=1e-6, check_index_type=False)
    got = found.weather.set_index("time")
    want = weather.set_index("time").loc[got.index]
    assert len(got) >= 4 * DAY - 1
    coarse = "by_the_hour" in kind
    np.testing.assert_allclose(got["outdoor_temp_c"], want["outdoor_temp_c"], atol=0.01 if coarse else 1e-6)
    np.testing.assert_allclose(got["solar_w_m2"], want["solar_w_m2"], atol=25 if coarse else 1e-6)
    assert found.account.lines and not found.account.of(Kind.SUSPICIOUS) or "anew" in kind


@pytest.mark.parametrize("kind", ["a_folder_with_a_file_per_home", "counters_that_begin_anew"])
def test_what_is_written_is_what_the_reader_reads(kind, tmp_path):
    found = import_tables(**foreign.KINDS[kind](tmp_path))
    for name, content in found.files().items():
        (tmp_path / name).write_bytes(content)
    cluster = atdm.read_cluster(tmp_path / "zones.parquet", tmp_path / "weather.parquet")
    assert cluster.agents == foreign.HOMES and len(cluster.time) == 4 * DAY and cluster.notes == ()


# Refusals. Each case: what is written, how it is imported, what the refusal says, and what it says to do instead.


def csv(folder, zones=None, weather=None, **how):
    zones = foreign.truth()[0] if zones is None else zones
    zones.to_csv(folder / "homes.csv", index=False, **how)
    (foreign.truth()[1] if weather is None else weather).to_csv(folder / "weather.csv", index=False)
    return {"files": folder / "homes.csv", "weather": folder / "weather.csv"}


def renamed(**names):
    return foreign.truth()[0].rename(columns=names)


def fahrenheit(homes):
    zones = foreign.truth()[0]
    warm = zones["indoor_temp_c"] * 1.8 + 32
    return zones.assign(indoor_temp_c=zones["indoor_temp_c"].where(~zones["agent"].isin(list(homes)), warm))


def local(form, start="2024-01-18", **how):
    zones = zones_table(foreign.HOMES, rows=4 * DAY, start=start)
    return zones.assign(time=foreign.local(zones["time"], form)), weather_table(rows=5 * DAY, start=start)


def with_codes(column, value):
    zones = foreign.truth()[0]
    zones[column] = zones[column].astype(object)
    zones.loc[[5, 300], column] = value
    return zones


def one_home_without_load(folder):
    zones = foreign.truth()[0]
    return csv(folder, zones.assign(load_kw=zones["load_kw"].where(zones["agent"] != "b")))


def a_station_of_another_year(folder):
    call = csv(folder, weather=weather_table(rows=4 * DAY, start="2022-01-18"))
    foreign.truth()[1].to_csv(folder / "right.csv", index=False)
    return call


def weather_without_sun(folder):
    weather = foreign.truth()[1]
    call = csv(folder, weather=weather[["time", "outdoor_temp_c"]])
    weather[["time", "solar_w_m2"]].to_csv(folder / "sun.csv", index=False)
    return call


def sheets_of_two_years(folder):
    call = foreign.a_workbook_with_a_sheet_per_home(folder)
    return {name: value for name, value in call.items() if name != "sheet"}


def energy_now_and_then(folder):
    zones = renamed(load_kw="energy [kWh]")
    rng = np.random.default_rng(5)
    late = pd.to_timedelta(rng.integers(0, 25, len(zones)), unit="min")
    return csv(folder, zones.assign(time=zones["time"] + late, **{"energy [kWh]": zones["energy [kWh]"] / 2}))


def two_wide_tables(folder):
    call = foreign.wide_tables_whose_names_say_nothing(folder)
    return {name: value for name, value in call.items() if name not in ("temperature", "load")}


def twice(folder):
    zones = foreign.truth()[0]
    return csv(folder, pd.concat([zones, zones.iloc[7:9].assign(indoor_temp_c=25.0)]))


def night_of_the_clock_change(folder):
    """The order of rows does not tell: each stamp of the repeated hour is there once."""
    path, zones = foreign.autumn(folder, offset=True)
    table = pd.read_csv(path, dtype=str)
    table[~table.duplicated(["time", "agent"])].to_csv(path, index=False)
    weather_table(rows=2 * DAY, start="2024-10-26").to_csv(folder / "weather.csv", index=False)
    return {"files": path, "weather": folder / "weather.csv", "timezone": "Europe/Berlin"}


def winter_time_in_spring(folder):
    zones = zones_table(foreign.HOMES, rows=2 * DAY, start="2024-03-30")
    zones = zones.assign(time=zones["time"].dt.tz_convert("Etc/GMT-1").dt.strftime("%Y-%m-%d %H:%M"))
    return {**csv(folder, zones, weather_table(rows=2 * DAY, start="2024-03-30")), "timezone": "Europe/Berlin"}


def latin(folder):
    call = csv(folder, renamed(indoor_temp_c="Wärme innen [°C]", load_kw="Wärmeleistung [kW]"), encoding="cp1252")
    return {**call, "encoding": "utf-8", "temperature": "Wärme innen [°C]"}


DATED = "%d/%m/%Y %H:%M"
REFUSED = {
    "no zone": (lambda f: csv(f, *local("%Y-%m-%d %H:%M")), "no time zone", {"timezone": "Europe/Berlin"}),
    "day or month first": (
        lambda f: {**csv(f, *local(DATED, "2024-01-03")), "timezone": "Europe/Berlin"},
        "may be 2024-01-03 01:00:00 or 2024-03-01 01:00:00",
        {"time_format": "DD/MM/YYYY HH:mm"},
    ),
    "a format nobody knows": (
        lambda f: {**csv(f, *local("%Y|%d|%m %Hh%M")), "timezone": "Europe/Berlin"},
        "is written like '2024|18|01 01h00'",
        {"time_format": "YYYY|DD|MM HHhmm"},
    ),
    "the wrong format": (
        lambda f: {**csv(f, *local("%d.%m.%Y %H:%M")), "timezone": "UTC", "time_format": "MM.DD.YYYY HH:mm"},
        "not as 'MM.DD.YYYY HH:mm'",
        {"time_format": "DD.MM.YYYY HH:mm"},
    ),
    "a load without unit": (lambda f: csv(f, renamed(load_kw="load")), "does not say its unit", {"load_unit": "kW"}),
    "all in °F": (lambda f: csv(f, fahrenheit(foreign.HOMES)), "looks like °F", {"temperature_unit": "°F"}),
    "one home in °F": (lambda f: csv(f, fahrenheit("b")), "looks like °F, not °C", {"temperature_unit": "b=°F"}),
    "tenths of degrees": (
        lambda f: csv(f, foreign.truth()[0].assign(indoor_temp_c=lambda z: (10 * z["indoor_temp_c"]).round())),
        "looks like 0.1°C", {"temperature_unit": "0.1°C"},
    ),
    "watts under a name in kW": (
        lambda f: csv(f, foreign.truth()[0].assign(load_kw=lambda z: 1000 * z["load_kw"])),
        "looks like W, not kW", {"load_unit": "W"},
    ),
    "an error code": (lambda f: csv(f, with_codes("indoor_temp_c", 85)), "is 85 at", {"missing": ["85"]}),
    "words in a column of numbers": (
        lambda f: csv(f, with_codes("load_kw", "defekt")), "line 7: column 'load_kw' is 'defekt'",
        {"missing": ["defekt"]},
    ),
    "another decimal mark than declared": (
        lambda f: {**csv(f, sep=";"), "decimal": ","}, "no number", {"decimal": "."},
    ),
    "names nobody knows": (
        lambda f: csv(f, renamed(indoor_temp_c="x1", load_kw="x2 [kW]")),
        "no column says that it is temperature or load", {"temperature": "x1", "load": "x2 [kW]"},
    ),
    "a name that is not there": (
        lambda f: {**csv(f), "temperature": "Raumtemp"}, "has no column 'Raumtemp'", {"temperature": "indoor_temp_c"},
    ),
    "two temperatures": (
        lambda f: csv(f, foreign.truth()[0].assign(temp_c=3.0)), "may all be temperature",
        {"temperature": "indoor_temp_c"},
    ),
    "two stamps": (
        lambda f: csv(f, foreign.truth()[0].assign(last_updated="2024-01-18T00:00Z")),
        "several columns may be the time stamp", {"time": "time"},
    ),
    "no stamp": (
        lambda f: csv(f, foreign.truth()[0].assign(time=lambda z: z["time"].dt.as_unit("s").astype("int64")).rename(
            columns={"time": "wann"})), "no column says that it is the time", {"time": "wann"},
    ),
    "several sheets": (sheets_of_two_years, "has the sheets 'a', 'b', 'c'", {"sheet": "*"}),
    "a sheet that is not there": (
        lambda f: {**foreign.a_workbook_with_a_sheet_per_home(f), "sheet": "d"}, "no sheet 'd'", {"sheet": "a"},
    ),
    "wide tables that say nothing": (
        two_wide_tables, "no column says that it is temperature",
        {"temperature": "one.csv:{agent}", "load": "two.csv:{agent}"},
    ),
    "the hour that comes twice, by offsets": (
        night_of_the_clock_change, "as 2024-10-27T00:00:00Z or 2024-10-27T01:00:00Z", {"offset": "shift"},
    ),
    "the hour that comes twice, left out": (night_of_the_clock_change, "happens twice", {"ambiguous": "leave out"}),
    "winter time in spring": (winter_time_in_spring, "does not exist in Europe/Berlin", {"timezone": "Etc/GMT-1"}),
    "stamps with two values": (twice, "2 stamps with several values", {"repeated": "first"}),
    "a home without load": (one_home_without_load, "'b': no load in any file", {"without": ["b"]}),
    "weather of another year": (a_station_of_another_year, "give weather of that time", {"weather": "right.csv"}),
    "weather without sun": (weather_without_sun, "no file has solar", {"weather": ["weather.csv", "sun.csv"]}),
    "sun in kW/m²": (
        lambda f: csv(f, weather=foreign.truth()[1].assign(solar_w_m2=lambda w: w["solar_w_m2"] / 1000)),
        "looks like kW/m²", {"solar_unit": "kW/m²"},
    ),
    "outdoor in K": (
        lambda f: csv(f, weather=foreign.truth()[1].assign(outdoor_temp_c=lambda w: w["outdoor_temp_c"] + 273.15)),
        "looks like K", {"outdoor_unit": "K"},
    ),
    "energy now and then": (energy_now_and_then, "energy at irregular times", {"interval": "30min"}),
    "a step shorter than the readings'": (
        lambda f: {**csv(f), "step": "15min"}, "comes every 30 min", {"step": "30min"},
    ),
    "a step that divides no day": (lambda f: {**csv(f), "step": "35min"}, "does not divide a day", {"step": "30min"}),
    "another encoding than declared": (latin, "is not utf-8 text", {"encoding": "cp1252"}),
    "a delimiter nobody guesses": (lambda f: csv(f, sep="#"), "no delimiter", {"delimiter": "#"}),
    "a unit of something else": (lambda f: {**csv(f), "load_unit": "°C"}, "no unit of load", {"load_unit": "kW"}),
    "a home that is not there": (lambda f: {**csv(f), "without": ["z"]}, "no home is called 'z'", {"without": ["c"]}),
    "files named otherwise": (
        lambda f: {**foreign.a_folder_with_a_file_per_home(f), "agent": "home{agent}"}, "its name is not like",
        {"agent": "{agent}"},
    ),
    "a header that is not the first line": (
        lambda f: {**foreign.lines_before_the_header_and_date_and_time_apart(f), "skip_rows": 0},
        "no column says that it is the time", {"skip_rows": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_names_a_remedy_and_the_remedy_works(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write, says, remedy = REFUSED[case]
    call = write(tmp_path)
    with pytest.raises((DataError, UsageError), match=re.escape(says)) as refused:
        import_tables(**call)
    said = str(refused.value)
    assert "\n" not in said
    for option in remedy:
        assert re.search(rf"--{option.replace('_', '-')}\b|give weather", said), said
    found = import_tables(**{**call, **remedy})
    assert len(found.zones) > DAY and found.zones["indoor_temp_c"].dropna().between(15, 26).all()
    assert found.zones["load_kw"].dropna().between(0, 4).all()


def test_remedies_with_a_value_are_written_as_a_person_can_type_them(tmp_path):
    for case, option in (("one home in °F", "--temperature-unit 'b=°F'"), ("an error code", "--missing 85")):
        (tmp_path / option).mkdir()
        with pytest.raises(DataError) as refused:
            import_tables(**REFUSED[case][0](tmp_path / option))
        assert shlex.split(option) == shlex.split(str(refused.value)[str(refused.value).index("--") :])


def test_the_hour_that_comes_twice_is_told_apart_by_the_order_of_rows_or_by_offsets(tmp_path):
    for number, (offset, newest_first) in enumerate(((False, False), (False, True), (True, False))):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, zones = foreign.autumn(folder, offset=offset)
        if newest_first:
            pd.read_csv(path).iloc[::-1].to_csv(path, index=False)
        found = import_tables(path, timezone="Europe/Berlin", offset="shift" if offset else None)
        pd.testing.assert_frame_equal(by_home(found.zones), by_home(zones), check_index_type=False)
        told = [line.what for line in found.account.of(Kind.DID) if "told apart by their order" in line.what]
        assert len(told) == (0 if offset else 1)


def test_names_of_the_clock_serve_as_offsets(tmp_path):
    path, zones = foreign.autumn(tmp_path, offset=True)
    table = pd.read_csv(path, dtype=str)
    table["shift"] = table["shift"].map({"+0200": "MESZ", "+0100": "MEZ"})
    table.to_csv(path, index=False)
    found = import_tables(path, timezone="Europe/Berlin", offset="shift")
    pd.testing.assert_frame_equal(by_home(found.zones), by_home(zones), check_index_type=False)


def test_readings_that_come_when_they_change_are_weighted_by_the_time_they_hold(tmp_path):
    """Against an integral by seconds, which knows nothing of spans."""
    rng = np.random.default_rng(11)
    print("seed 11")
    seconds = np.sort(rng.choice(np.arange(0, 2 * 86400, 7), 700, replace=False))
    values = np.round(20 + np.cumsum(rng.normal(0, 0.1, 700)), 1)
    time = pd.Timestamp("2024-01-18", tz="UTC") + pd.to_timedelta(seconds, unit="s")
    pd.DataFrame({"time": time, "temp_c": values, "power [W]": 100 * values}).to_csv(tmp_path / "h.csv", index=False)
    found = import_tables(tmp_path / "h.csv", step="30min").zones.set_index("time")["indoor_temp_c"]
    each = pd.Series(values, index=time).reindex(pd.date_range("2024-01-18", periods=2 * 86400, freq="s", tz="UTC"))
    whole = each.ffill(limit=7200).iloc[seconds[0] :].resample("30min").mean()
    np.testing.assert_allclose(found.iloc[1:-1], whole.loc[found.index].iloc[1:-1], atol=1e-9)


def test_means_of_a_coarse_sensor_are_imported_with_the_step_that_they_hide(tmp_path):
    rng = np.random.default_rng(12)
    time = pd.date_range("2024-01-18", periods=6 * 288, freq="5min", tz="UTC")
    values = np.round(40 + 6 * np.sin(np.arange(len(time)) / 200) + rng.normal(0, 0.7, len(time))) / 2
    pd.DataFrame({"time": time, "temp_c": values, "power [W]": 100 * values}).to_csv(tmp_path / "h.csv", index=False)
    said = [line.what for line in import_tables(tmp_path / "h.csv", step="30min").account.of(Kind.DID)]
    assert "temperature: read in steps of 0.5 °C, which means hide: `atdm agent --quantum 0.5`" in said
    as_it_is = import_tables(tmp_path / "h.csv", step="5min").account.of(Kind.DID)
    assert not any("--quantum" in line.what for line in as_it_is)  # an agent finds it by itself


def test_a_gap_stays_a_gap(tmp_path):
    zones = foreign.truth()[0].drop(index=[10, 11, 12, 13, 14, 200])
    found = import_tables(**csv(tmp_path, zones)).zones
    pd.testing.assert_frame_equal(by_home(found), by_home(zones), check_index_type=False)


def test_energy_that_counters_give_is_the_energy_that_was_used(tmp_path):
    """Readings at odd times: the sum over the steps is what the counter grew by."""
    rng = np.random.default_rng(3)
    time = pd.Timestamp("2024-01-18", tz="UTC") + pd.to_timedelta(np.sort(rng.integers(0, 3 * 86400, 900)), unit="s")
    time = time.unique()
    count = np.cumsum(rng.gamma(1.0, 0.02, len(time)))
    table = pd.DataFrame({"time": time, "temp_c": 20 + count % 1, "heat meter [kWh]": count})
    table.to_csv(tmp_path / "m.csv", index=False)
    found = import_tables(tmp_path / "m.csv", step="30min").zones
    whole = found.iloc[1:-2]  # the steps at both ends are not covered by all
    used = np.interp(
        [whole["time"].iloc[0].value, whole["time"].iloc[-1].value + 1800 * 10**9], time.as_unit("ns").asi8, count
    )
    assert len(whole) > 140 and whole["load_kw"].sum() / 2 == pytest.approx(used[1] - used[0], rel=1e-9)


def suspicions(call):
    return " / ".join(line.what for line in import_tables(**call).account.of(Kind.SUSPICIOUS))


def test_suspicious_values_are_said(tmp_path):
    zones, weather = foreign.truth()
    assert suspicions(csv(tmp_path)) == ""
    hot = weather.assign(outdoor_temp_c=weather["outdoor_temp_c"] * 1.8 + 32 - 8)
    assert "looks like °F" in suspicions(csv(tmp_path, weather=hot))
    other = zones.assign(load_kw=zones["load_kw"].where(zones["agent"] != "b", zones["load_kw"] / 1000))
    assert "the load of 'b' peaks at" in suspicions(csv(tmp_path, other))
    hour = zones["time"].dt.hour
    plan = zones["indoor_temp_c"].where(zones["agent"] != "c", np.where(hour.between(6, 21), 21.0, 17.5))
    said = suspicions(csv(tmp_path, zones.assign(indoor_temp_c=plan)))
    assert "'c' only jumps between 2 values: a set-point?" in said


def test_a_coarse_sensor_is_no_set_point_and_not_stuck(tmp_path):
    zones, _ = foreign.truth()
    coarse = zones.assign(indoor_temp_c=(2 * zones["indoor_temp_c"]).round() / 2)
    assert suspicions(csv(tmp_path, coarse)) == ""


def test_the_first_rows_are_there_before_and_after(tmp_path):
    found = import_tables(**foreign.american_stamps_fahrenheit_and_watts(tmp_path))
    [(file, before), (_, sky)] = found.before.items()
    assert file.endswith("homes.csv") and before["Date Time"].iloc[0] == "01/17/2024 06:00 PM"
    assert list(found.after()["zones"].columns) == ["time", "agent", "indoor_temp_c", "load_kw"]
    assert found.after()["zones"]["time"].iloc[0] == pd.Timestamp("2024-01-18T00:00Z") and len(sky) == 5
    assert "20." not in repr(found)


def test_rows_without_weather_are_left_out_and_said(tmp_path):
    found = import_tables(**csv(tmp_path, weather=weather_table(rows=3 * DAY, start=foreign.START)))
    [line] = found.account.of(Kind.LEFT_OUT)
    assert line.what.startswith("144 of 576 rows before 2024-01-18T00:00:00Z or after 2024-01-20T23:30:00Z")
    assert len(found.zones) == 3 * 3 * DAY


def test_one_home_without_weather_and_weather_without_homes(tmp_path):
    call = foreign.a_folder_with_a_file_per_home(tmp_path)
    own = import_tables(tmp_path / "homes" / "b.csv")
    assert set(own.files()) == {"zones.parquet"} and set(own.zones["agent"]) == {"b"}
    sky = import_tables(weather=call["weather"], step="1h")
    assert set(sky.files()) == {"weather.parquet"} and len(sky.weather) == 2 * DAY
    with pytest.raises(UsageError, match="no files to import"):
        import_tables()
