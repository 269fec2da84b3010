"""Files as other people have them, each written from the same small cluster: what an import must give back is known.

python -m tests.data.foreign FOLDER        writes them all, to look at
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .builders import DAY, weather_table, zones_table

HOMES = ("a", "b", "c")
START = "2024-01-18"
Writer = Callable[[Path], dict[str, Any]]  # writes files, returns what import_tables is called with
KINDS: dict[str, Writer] = {}


def truth() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The zones and weather tables that every kind below is another way to write."""
    return zones_table(HOMES, rows=4 * DAY, start=START), weather_table(rows=4 * DAY, start=START)


def kind(writer: Writer) -> Writer:
    KINDS[writer.__name__] = writer
    return writer


def local(time: pd.Series, form: str, zone: str = "Europe/Berlin") -> pd.Series:
    return time.dt.tz_convert(zone).dt.strftime(form)


def comma(values: pd.Series) -> pd.Series:
    return values.map(lambda value: f"{value:.3f}".replace(".", ","))


def wide(column: str) -> pd.DataFrame:
    zones, _ = truth()
    return zones.pivot(index="time", columns="agent", values=column)


def sky(folder: Path) -> str:
    """The weather in our own words, for kinds that are about the homes."""
    truth()[1].to_csv(folder / "weather.csv", index=False)
    return str(folder / "weather.csv")


@kind
def semicolons_with_decimal_commas_in_latin_letters(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = pd.DataFrame(
        {
            "Zeit": local(zones["time"], "%d.%m.%Y %H:%M"),
            "Wohnung": zones["agent"],
            "Raumtemperatur [°C]": comma(zones["indoor_temp_c"]),
            "Wärmeleistung [kW]": comma(zones["load_kw"]),
        }
    )
    table.to_csv(folder / "haus.csv", sep=";", index=False, encoding="cp1252")
    return {"files": folder / "haus.csv", "weather": sky(folder), "timezone": "Europe/Berlin"}


@kind
def lines_before_the_header_and_date_and_time_apart(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = pd.DataFrame(
        {
            "Datum": local(zones["time"], "%d.%m.%Y"), "Uhrzeit": local(zones["time"], "%H:%M:%S"),
            "Haus": zones["agent"], "Temp (°C)": zones["indoor_temp_c"], "Leistung (W)": zones["load_kw"] * 1000,
        }
    )  # fmt: skip
    (folder / "export.txt").write_text(
        "Export vom 12.01.2024\nStation Nord\n\n" + table.to_csv(sep="\t", index=False), encoding="utf-8"
    )
    return {"files": folder / "export.txt", "weather": sky(folder), "timezone": "Europe/Berlin"}


@kind
def american_stamps_fahrenheit_and_watts(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = pd.DataFrame(
        {
            "Date Time": local(zones["time"], "%m/%d/%Y %I:%M %p", "America/Chicago"),
            "House": zones["agent"],
            "Indoor Temp (F)": zones["indoor_temp_c"] * 1.8 + 32,
            "Heating Power (W)": zones["load_kw"] * 1000,
            "Thermostat set-point (F)": 68,
        }
    )
    table.to_csv(folder / "homes.csv", index=False)
    return {"files": folder / "homes.csv", "weather": sky(folder), "timezone": "America/Chicago"}


@kind
def epoch_seconds_and_kelvin(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = zones.assign(ts=zones["time"].dt.as_unit("s").astype("int64"), temp_k=zones["indoor_temp_c"] + 273.15)
    table[["ts", "agent", "temp_k", "load_kw"]].to_csv(folder / "k.csv", index=False, sep="|")
    return {"files": folder / "k.csv", "weather": sky(folder)}


@kind
def json_lines_with_epoch_milliseconds_and_megawatts(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = pd.DataFrame(
        {
            "timestamp": zones["time"].dt.as_unit("ms").astype("int64"), "home": zones["agent"],
            "temperature": zones["indoor_temp_c"], "power_mw": zones["load_kw"] / 1000,
        }
    )  # fmt: skip
    table.to_json(folder / "readings.jsonl", orient="records", lines=True, double_precision=15)
    return {"files": folder / "readings.jsonl", "weather": sky(folder)}


@kind
def a_parquet_file_with_its_own_names(folder: Path) -> dict[str, Any]:
    zones, weather = truth()
    zones.rename(columns={"time": "when", "agent": "who", "indoor_temp_c": "T1", "load_kw": "Q1"}).to_parquet(
        folder / "x.parquet"
    )
    weather.set_index("time").to_parquet(folder / "w.parquet")
    return {
        "files": folder / "x.parquet", "weather": folder / "w.parquet", "time": "when", "agent": "who",
        "temperature": "T1", "load": "Q1", "load_unit": "kW", "weather_time": "time",
    }  # fmt: skip


@kind
def a_workbook(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = zones.assign(time=zones["time"].dt.tz_localize(None)).rename(
        columns={"time": "Time", "agent": "Home", "indoor_temp_c": "Temperature [°C]", "load_kw": "Power [kW]"}
    )
    table.to_excel(folder / "homes.xlsx", index=False, startrow=2)
    return {"files": folder / "homes.xlsx", "weather": sky(folder), "timezone": "UTC"}


@kind
def a_workbook_with_a_sheet_per_home(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    with pd.ExcelWriter(folder / "homes.xlsx") as book:
        for agent, own in zones.groupby("agent"):
            own.assign(time=own["time"].dt.tz_localize(None)).drop(columns="agent").to_excel(
                book, sheet_name=str(agent), index=False
            )
    return {"files": folder / "homes.xlsx", "weather": sky(folder), "timezone": "UTC", "sheet": "*"}


@kind
def one_column_per_home_and_quantity(folder: Path) -> dict[str, Any]:
    both = {}
    for agent in HOMES:
        both[f"{agent} temp [°C]"] = wide("indoor_temp_c")[agent]
        both[f"{agent} power [kW]"] = wide("load_kw")[agent]
    pd.DataFrame(both).to_csv(folder / "wide.csv", sep=";")
    return {"files": folder / "wide.csv", "weather": sky(folder)}


@kind
def a_wide_table_for_each_quantity(folder: Path) -> dict[str, Any]:
    wide("indoor_temp_c").to_csv(folder / "temperatures.csv")
    wide("load_kw").mul(1000).to_csv(folder / "power.csv")
    return {
        "files": [folder / "temperatures.csv", folder / "power.csv"], "weather": sky(folder), "load_unit": "W",
    }  # fmt: skip


@kind
def wide_tables_whose_names_say_nothing(folder: Path) -> dict[str, Any]:
    wide("indoor_temp_c").to_csv(folder / "one.csv")
    wide("load_kw").to_csv(folder / "two.csv")
    return {
        "files": [folder / "one.csv", folder / "two.csv"], "weather": sky(folder), "load_unit": "kW",
        "temperature": "one.csv:{agent}", "load": "two.csv:{agent}",
    }  # fmt: skip


@kind
def a_folder_with_a_file_per_home(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    (folder / "homes").mkdir()
    for agent, own in zones.groupby("agent"):
        own.drop(columns="agent").to_csv(folder / "homes" / f"{agent}.csv", index=False)
    return {"files": folder / "homes", "weather": sky(folder)}


@kind
def files_by_home_and_month(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    for agent, own in zones.groupby("agent"):
        for number, days in enumerate((own.iloc[: 2 * DAY], own.iloc[2 * DAY :])):
            days.drop(columns="agent").to_csv(folder / f"home_{agent}_{number}.csv", index=False)
    return {"files": str(folder / "home_*.csv"), "weather": sky(folder), "agent": "home_{agent}_*"}


@kind
def energy_of_each_interval_labelled_at_its_end(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = pd.DataFrame(
        {
            "time": zones["time"] + pd.Timedelta("30min"), "home": zones["agent"], "temp_c": zones["indoor_temp_c"],
            "Verbrauch [Wh]": zones["load_kw"] * 500,
        }
    )  # fmt: skip
    table.to_csv(folder / "meter.csv", index=False)
    return {"files": folder / "meter.csv", "weather": sky(folder), "label": "end", "weather_label": "start"}


@kind
def counters_that_begin_anew(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    frames = []
    for agent, own in zones.groupby("agent"):
        read = (
            np.concatenate([[0.0], (own["load_kw"] * 0.5).cumsum()]) + 400.0
        )  # before the first interval and after each
        reset = len(read) // 2
        read[reset:] -= read[reset - 1]  # a new meter, from 0 at the reading before
        time = pd.date_range(START, periods=len(read), freq="30min", tz="UTC")
        temperature = [*own["indoor_temp_c"], np.nan]
        frames.append(pd.DataFrame({"time": time, "home": agent, "temp_c": temperature, "meter [kWh]": read}))
    pd.concat(frames).to_csv(folder / "meter.csv", index=False)
    return {"files": folder / "meter.csv", "weather": sky(folder), "without": []}


@kind
def readings_every_ten_minutes_and_weather_by_the_hour(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    fine = []
    for shift, move in ((0, -0.25), (10, 0.0), (20, 0.25)):  # their mean is that of the half-hour
        part = zones.assign(time=zones["time"] + pd.Timedelta(minutes=shift))
        fine.append(part.assign(indoor_temp_c=part["indoor_temp_c"] + move, load_kw=part["load_kw"] * (1 + move)))
    pd.concat(fine).sort_values(["agent", "time"]).to_csv(folder / "fine.csv", index=False)
    weather_table(rows=4 * DAY + 2, start=START).iloc[::2].to_csv(folder / "hourly.csv", index=False)
    return {"files": folder / "fine.csv", "weather": folder / "hourly.csv"}


@kind
def weather_in_two_files_of_other_units(folder: Path) -> dict[str, Any]:
    zones, weather = truth()
    zones.to_csv(folder / "zones.csv", index=False)
    stamps = weather["time"].dt.strftime("%Y%m%d%H%M")
    pd.DataFrame({"MESS_DATUM": stamps, "TT_10": weather["outdoor_temp_c"]}).to_csv(
        folder / "tu.txt", sep=";", index=False
    )
    fine = pd.DataFrame({"time": weather["time"], "GHI [J/cm²]": weather["solar_w_m2"] * 0.18})
    fine.to_csv(folder / "gs.csv", index=False)
    return {
        "files": folder / "zones.csv", "weather": [folder / "tu.txt", folder / "gs.csv"], "weather_timezone": "UTC",
    }  # fmt: skip


@kind
def newest_first_with_names_that_are_numbers(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    names = {"a": "007", "b": "07", "c": "7"}
    table = zones.assign(agent=zones["agent"].map(names)).iloc[::-1]
    table.to_csv(folder / "zones.csv.gz", index=False)
    return {"files": folder / "zones.csv.gz", "weather": sky(folder)}


@kind
def units_in_a_line_of_their_own(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = zones.rename(columns={"indoor_temp_c": "Temperature", "load_kw": "Power"})
    header, *lines = table.to_csv(index=False, sep=";").splitlines()
    (folder / "h.csv").write_text("\n".join([header, ";;°C;kW", *lines]), encoding="utf-8")
    return {"files": folder / "h.csv", "weather": sky(folder)}


@kind
def rows_that_end_in_a_delimiter_in_utf_16(folder: Path) -> dict[str, Any]:
    header, *lines = truth()[0].to_csv(index=False, sep=";").splitlines()
    (folder / "h.csv").write_text("\n".join([header, *(line + ";" for line in lines)]), encoding="utf-16")
    return {"files": folder / "h.csv", "weather": sky(folder)}


@kind
def commas_in_quotes_between_commas(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    table = zones.assign(indoor_temp_c=comma(zones["indoor_temp_c"]), load_kw=comma(zones["load_kw"]))
    table.to_csv(folder / "h.csv", index=False, quoting=csv.QUOTE_ALL)
    return {"files": folder / "h.csv", "weather": sky(folder)}


@kind
def thousands_in_groups(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    watts = (zones["load_kw"] * 1000).map(lambda v: f"{v:,.1f}".translate(str.maketrans(",.", ".,")))
    table = zones.drop(columns="load_kw").assign(load_w=watts, indoor_temp_c=comma(zones["indoor_temp_c"]))
    table.to_csv(folder / "h.csv", index=False, sep=";")
    return {"files": folder / "h.csv", "weather": sky(folder)}


@kind
def a_day_that_ends_at_24_o_clock(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    start, end = zones["time"], zones["time"] + pd.Timedelta("30min")
    stamps = end.dt.strftime("%d.%m.%Y %H:%M").where(
        end.dt.hour + end.dt.minute > 0, start.dt.strftime("%d.%m.%Y 24:00")
    )
    zones.assign(time=stamps).to_csv(folder / "h.csv", index=False)
    return {
        "files": folder / "h.csv", "weather": sky(folder), "timezone": "UTC", "label": "end", "weather_label": "start",
    }  # fmt: skip


@kind
def a_workbook_with_cells_of_days_and_hours(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    time = zones["time"].dt.tz_localize(None)
    table = pd.DataFrame(
        {
            "Datum": time.dt.date, "Zeit": time.dt.time, "Haus": zones["agent"],
            "Temp [°C]": comma(zones["indoor_temp_c"]), "Leistung [kW]": zones["load_kw"],
        }
    )  # fmt: skip
    table.to_excel(folder / "h.xlsx", index=False)
    return {"files": folder / "h.xlsx", "weather": sky(folder), "timezone": "UTC"}


@kind
def a_workbook_with_a_sheet_per_quantity(folder: Path) -> dict[str, Any]:
    with pd.ExcelWriter(folder / "h.xlsx") as book:
        wide("indoor_temp_c").tz_localize(None).to_excel(book, sheet_name="Temperature")
        wide("load_kw").tz_localize(None).to_excel(book, sheet_name="Power")
    return {"files": folder / "h.xlsx", "weather": sky(folder), "timezone": "UTC", "sheet": "*", "load_unit": "kW"}


@kind
def days_as_excel_counts_them(folder: Path) -> dict[str, Any]:
    zones, _ = truth()
    days = zones["time"].dt.as_unit("s").astype("int64") / 86400 + 25569
    zones.assign(time=days.map("{:.6f}".format)).to_csv(folder / "h.csv", index=False)
    return {"files": folder / "h.csv", "weather": sky(folder), "timezone": "UTC"}


@kind
def a_first_column_without_a_name(folder: Path) -> dict[str, Any]:
    truth()[0].set_index("time").rename_axis(None).to_csv(folder / "h.csv")
    return {"files": folder / "h.csv", "weather": sky(folder)}


def autumn(folder: Path, *, offset: bool) -> tuple[Path, pd.DataFrame]:
    """Three homes over the night in which the clock of Berlin goes back, in local stamps."""
    zones = zones_table(HOMES, rows=2 * DAY, start="2024-10-26")
    clock = zones["time"].dt.tz_convert("Europe/Berlin")
    table = zones.assign(time=clock.dt.strftime("%Y-%m-%d %H:%M"))
    if offset:
        table["shift"] = clock.dt.strftime("%z")
    table.to_csv(folder / "autumn.csv", index=False)
    return folder / "autumn.csv", zones


if __name__ == "__main__":
    for name, writer in KINDS.items():
        where = Path(sys.argv[1]) / name
        where.mkdir(parents=True)
        print(name, writer(where))
