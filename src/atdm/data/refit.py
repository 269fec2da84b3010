"""The public REFIT Smart Home release (Firth et al. 2017, doi 10.17028/rd.lboro.2070091) as a Cluster.

Agents are the rooms that have an air-temperature logger. One gas meter serves a home, so its power is split evenly
over the home's rooms: the home's total is exact, a room's share is not measured. Stamps are UTC and mark the start
of what they measure.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from atdm.data import clock, columns, rules
from atdm.data.arrow import pa, pacsv, pc
from atdm.data.cluster import Cluster
from atdm.errors import DataError, UsageError

METER_STEP = pd.Timedelta(minutes=30)  # of the gas meters, and the coarsest of the loggers
KWH_PER_M3 = 39.5 * 1.02264 / 3.6  # calorific value [MJ/m³] × volume correction [-] / (MJ per kWh), as on UK gas bills

_NS = {"r": "http://www.refitsmarthomes.org"}
_COLUMNS = ("TimeSeriesVariable/@id", "dateTime", "data")


class Variable(NamedTuple):
    """One logger's series in the survey."""

    id: str
    start: str  # ISO 8601, so that it sorts by time


class Home(NamedTuple):
    rooms: dict[str, list[Variable]]  # agent -> its loggers
    gas: list[Variable]


def read_refit(
    survey_xml: str | PathLike[str],
    values_csv: str | PathLike[str],
    *,
    homes: Sequence[int],
    start: str | pd.Timestamp | None = None,
    end: str | pd.Timestamp | None = None,
    step: str = "30min",
    fill: str = "2h",
) -> Cluster:
    """Rooms of some REFIT homes, from start (included) to end (excluded), averaged to `step`.

    survey_xml: REFIT_BUILDING_SURVEY.xml; values_csv: REFIT_TIME_SERIES_VALUES.csv, read in pieces.
    start, end: UTC if they say no offset. step: a multiple of the meters' 30 min.
    fill: the longest span without readings that a room fills by itself; "0h" fills nothing.
    Gas becomes heat at KWH_PER_M3 kWh per m³, boiler losses not deducted.
    """
    length = clock.duration(step)
    if length % METER_STEP != pd.Timedelta(0):
        raise UsageError(f"step {step!r} is not a multiple of the 30 min of the gas meters: choose '30min', '1h', …")
    survey, values = Path(survey_xml), Path(values_csv)
    stock = _stock(survey)
    climate = stock.find("r:Climate", _NS)
    if climate is None:
        raise DataError(f"{survey}: has no Climate: use REFIT_BUILDING_SURVEY.xml as published")
    outdoor = _one(climate, "Air temperature", survey)
    solar = _one(climate, "Average horizontal solar irradiance", survey)
    found = {_building_id(home): _home(stock, _building_id(home), survey) for home in homes}
    if not found:
        raise UsageError("homes is empty: name some, as in homes=[1, 8, 10]")

    wanted = [
        outdoor,
        solar,
        *(v for home in found.values() for loggers in (*home.rooms.values(), home.gas) for v in loggers),
    ]
    series = _series(values, {variable.id for variable in wanted}, _instant(start), _instant(end))

    def mean(loggers: Sequence[Variable]) -> pd.Series:
        return _joined([series[v.id] for v in sorted(loggers, key=lambda v: v.start)]).resample(length).mean()

    def power(meters: Sequence[Variable]) -> pd.Series:
        volume = _joined([series[v.id] for v in sorted(meters, key=lambda v: v.start)])
        per_step = volume.resample(length).sum(min_count=int(length // METER_STEP))  # part of a step is no reading
        return per_step * KWH_PER_M3 / (length / pd.Timedelta(hours=1))

    temperature: dict[str, pd.Series] = {}
    load: dict[str, pd.Series] = {}
    owner: dict[str, str] = {}
    silent: list[str] = []
    for building, home in found.items():
        rooms = {agent: mean(loggers) for agent, loggers in home.rooms.items()}
        silent += [agent for agent, readings in rooms.items() if readings.empty]
        rooms = {agent: readings for agent, readings in rooms.items() if not readings.empty}
        share = power(home.gas) / max(len(rooms), 1)
        for agent, readings in rooms.items():
            temperature[agent], load[agent], owner[agent] = readings, share, building
    if not temperature:
        raise DataError(f"{values}: no room of these homes has a reading in that time: choose other homes or days")
    t = pd.DataFrame(temperature).sort_index()
    time = pd.date_range(t.index[0], t.index[-1], freq=length)
    notes = [f"rooms left out, without a reading in that time: {rules.listed(silent)}"] if silent else []
    return Cluster.from_frames(
        t.reindex(time),
        pd.DataFrame(load).reindex(time),
        mean([outdoor]).reindex(time),
        mean([solar]).reindex(time),
        owner=pd.Series(owner),
        timezone="Europe/London",
        notes=notes,
        fill=fill,
    )


def _stock(survey: Path) -> ET.Element:
    try:
        root = ET.parse(survey).getroot()
    except OSError:
        raise DataError(f"{survey}: cannot be read: check the path") from None
    except (ET.ParseError, LookupError, ValueError):  # malformed, or an encoding there is not
        raise DataError(f"{survey}: is not XML: use REFIT_BUILDING_SURVEY.xml as published") from None
    stock = root.find("r:Stock", _NS)
    if stock is None:
        raise DataError(f"{survey}: has no RefitXML/Stock: use REFIT_BUILDING_SURVEY.xml as published")
    return stock


def _building_id(home: int) -> str:
    return f"Building{home:02d}"


def _home(stock: ET.Element, building: str, survey: Path) -> Home:
    node = stock.find(f"r:Building[@id='{building}']", _NS)
    if node is None:
        known = ", ".join(b.get("id", "?") for b in stock.findall("r:Building", _NS))
        raise DataError(f"{survey}: has no {building}: choose homes among {known}")
    rooms = {
        f"{building}/{space.get('id')}": _variables(space, "Air temperature") for space in node.findall("r:Space", _NS)
    }
    rooms = {agent: loggers for agent, loggers in rooms.items() if loggers}
    gas = [v for meter in node.findall("r:Meter", _NS) for v in _variables(meter, "Gas volume")]
    if not rooms or not gas:
        lack = "gas meter" if rooms else "room with an air-temperature logger"
        raise DataError(f"{survey}: {building} has no {lack}: leave that home out")
    return Home(rooms, gas)


def _variables(node: ET.Element, kind: str) -> list[Variable]:
    return [
        Variable(series.get("id", ""), series.get("startDateTime", ""))
        for series in node.findall("r:Sensor/r:TimeSeriesVariable", _NS)
        if series.get("variableType") == kind
    ]


def _one(node: ET.Element, kind: str, survey: Path) -> Variable:
    found = _variables(node, kind)
    if not found:
        raise DataError(f"{survey}: its Climate has no {kind!r}: use REFIT_BUILDING_SURVEY.xml as published")
    return found[0]


def _instant(time: str | pd.Timestamp | None) -> pd.Timestamp | None:
    if time is None:
        return None
    try:
        instant = pd.Timestamp(time)
    except ValueError:
        raise UsageError(f"{time!r} is not a time: write it like 2014-11-01") from None
    return instant.tz_localize("UTC") if instant.tzinfo is None else instant.tz_convert("UTC")


def _series(path: Path, ids: set[str], start: pd.Timestamp | None, end: pd.Timestamp | None) -> dict[str, pd.Series]:
    """The series of some ids within [start, end): 25 million rows pass by, only these are kept."""
    wanted = pa.array(sorted(ids), pa.string())
    kept = []
    try:
        with pacsv.open_csv(
            path,
            convert_options=pacsv.ConvertOptions(
                include_columns=list(_COLUMNS),
                column_types=dict.fromkeys(_COLUMNS, pa.string()),
                strings_can_be_null=False,
            ),
        ) as pieces:
            for piece in pieces:
                kept.append(piece.filter(pc.is_in(pc.utf8_trim_whitespace(piece.column(0)), value_set=wanted)))
    except (OSError, pa.ArrowException, KeyError):
        raise DataError(f"{path}: is not a CSV with the columns {', '.join(_COLUMNS)}: use it as published") from None
    table = pa.Table.from_batches(kept) if kept else None
    if table is None or table.num_rows == 0:
        raise DataError(f"{path}: has no value of these homes: use the survey and the values of one release")
    long = pd.DataFrame(
        {
            "id": pc.utf8_trim_whitespace(table.column(0)).to_pylist(),
            "data": columns.numbers(table.column(2), f"{path}: data"),
        },
        index=columns.stamps(table.column(1), f"{path}: dateTime", "UTC"),
    )
    if start is not None:
        long = long[long.index >= start]
    if end is not None:
        long = long[long.index < end]
    groups = {str(name): group["data"].dropna().sort_index() for name, group in long.groupby("id")}
    nothing = long["data"].iloc[:0]
    return {name: groups.get(name, nothing) for name in ids}


def _joined(parts: Sequence[pd.Series]) -> pd.Series:
    """Loggers one after the other: where two overlap, the earlier one counts until its end."""
    joined = parts[0]
    for part in parts[1:]:
        joined = pd.concat([joined, part if joined.empty else part[part.index > joined.index[-1]]])
    return joined
