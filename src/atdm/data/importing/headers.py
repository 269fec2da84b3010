"""Which column is what: by what the person says, else by names people give them.

A table is long (a column of homes, or one home), or wide (one column per home, its name in the header).
Rule: a name that is not declared is only used where it is the only one that fits, and is said.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd

from atdm.data.importing.account import Account, Kind
from atdm.data.importing.declared import AGENT, Declared
from atdm.data.importing.read import Sheet
from atdm.data.importing.units import MEASURES, Quantity, Unit, split_header
from atdm.data.quoting import shown
from atdm.data.rules import listed
from atdm.errors import DataError


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Headers in lower case, words joined by _, without their unit: English, German, and some of their neighbours
_TIME = _words("""
    time timestamp datetime date_time date_and_time zeit zeitstempel datum_zeit datum_uhrzeit ts last_changed
    last_updated epoch unix unixtime time_utc utc mess_datum horodatage fecha_hora tijd date_heure local_time
    time_stamp reading_time
""")
_DATE = _words("""
    date datum day tag fecha jour
""")
_CLOCK = _words("""
    time uhrzeit zeit hour clock heure hora tijd time_of_day
""")
_AGENT = _words("""
    agent home house haus household haushalt home_id house_id dwelling dwelling_id zone room raum wohnung flat
    apartment site site_id id name device device_id sensor thermostat customer kunde objekt unit logement
    vivienda entity_id
""")
_BUILDING = _words("""
    building gebäude gebaeude building_id
""")
_BY_QUANTITY: dict[Quantity, tuple[str, ...]] = {
    "temperature": _words("""
        temperature temp temperatur raumtemp raumtemperatur innentemperatur innentemp istwert isttemperatur
        tin tint tindoor troom traum current_temperature température temperatura temp_int t
    """),
    "load": _words("""
        load power heat heating leistung heizleistung wärme waerme wärmeleistung heizenergie wärmemenge energy
        energie verbrauch consumption heatmeter wärmezähler zählerstand meter puissance potencia counter p q e
    """),
    "outdoor": _words("""
        outdoor outside aussentemperatur außentemperatur aussentemp außentemp tout toutdoor ambient tamb
        drybulb temperature temp temperatur lufttemperatur tt_10 tt_tu ta t
    """),
    "solar": _words("""
        solar ghi irradiance globalstrahlung global strahlung radiation shortwave sun einstrahlung gs_10
        fg_lberg rayonnement irradiation
    """),
}
_FILLERS = _words("""
    2m actual air average avg bulb consumption counter cumulative current demand dry energy global heat
    heating horizontal in indoor inside irradiance mean measured meter mittelwert outdoor outside power
    radiation raum reading room sensor shortwave state temp temperature thermal total usage used value wert
    zähler
""")
_DATED = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}")
_SETPOINT = re.compile(r"set.?point|soll|target|consigne", re.I)


OUR_NAMES = ("indoor_temp_c", "load_kw", "outdoor_temp_c", "solar_w_m2")  # nothing is guessed about these


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers."""

    header: str
    quantity: Quantity
    agent: str | None  # whose it is in a wide table
    unit: Unit | None  # from the header


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of one table are."""

    time: tuple[str, ...]
    agent: str | None
    building: str | None
    columns: tuple[Column, ...]


def layout(
    sheet: Sheet, quantities: Sequence[Quantity], declared: Declared, files: Sequence[Path], account: Account
) -> Layout:
    """The columns of a table that are used; a table need not have all quantities, another file may have the others."""
    headers = [str(name) for name in sheet.frame.columns]
    time = _time(sheet, [name for name in headers if name != declared.offset], declared, account)
    used = {*time, declared.offset}
    wide_homes = quantities[0] == "temperature"
    agent = _agent(sheet, headers, used, declared, account) if wide_homes else None
    building = _building(headers, agent, declared, sheet) if wide_homes else None
    left = [name for name in headers if name not in {*used, agent, building}]
    columns: list[Column] = []
    for quantity in quantities:
        columns += _declared_columns(sheet, left, quantity, declared, files)
    taken = {column.header for column in columns}
    asked = {quantity for quantity in quantities if declared.columns.get(quantity) is not None}
    open_quantities = [quantity for quantity in quantities if quantity not in asked]
    rest = [name for name in left if name not in taken]
    guessed = _guessed(sheet, rest, open_quantities, agent is not None, wide_homes, declared)
    for column in [column for column in guessed if column.header not in OUR_NAMES][:2]:
        what = f"column {column.header!r} is {column.quantity}" + (f" of {column.agent!r}" if column.agent else "")
        account.say(Kind.GUESSED, sheet.where, what)
    if len(guessed) > 2:
        account.say(Kind.GUESSED, sheet.where, f"{len(guessed)} columns in all, by their names")
    columns += guessed
    if not columns:
        names = ", ".join(shown(name) for name in headers[:8])
        options = " and ".join(f"--{quantity} COLUMN" for quantity in quantities)
        wide = f", or --{quantities[0]} '{AGENT}' if every column is a home's" if wide_homes else ""
        what = " or ".join(quantities)
        raise DataError(f"{sheet.where}: no column says that it is {what} (it has {names}): say {options}{wide}")
    unused = [name for name in rest if name not in {column.header for column in guessed}]
    if unused:
        account.say(Kind.LEFT_OUT, sheet.where, f"columns not used: {listed(unused)}")
    return Layout(time, agent, building, tuple(columns))


def scoped(text: str, file: Path, files: Sequence[Path]) -> str | None:
    """The column of "temps.csv:{agent}" for files named so, None for others; without a file's name, of every file."""
    head, colon, column = text.partition(":")
    if colon and any(fnmatch(path.name, head) for path in files):
        return column if fnmatch(file.name, head) else None
    return text


def _key(text: str) -> str:
    return re.sub(r"[\s\-./:]+", "_", split_header(text)[0].strip().casefold()).strip("_")


def _found(sheet: Sheet, headers: Sequence[str], name: str, option: str) -> str:
    if name in headers:
        return name
    alike = [header for header in headers if header.casefold() == name.casefold() or split_header(header)[0] == name]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(shown(header) for header in headers[:8])
    raise DataError(f"{sheet.where}: has no column {name!r}: it has {names}; say {option} with one of them")


def _time(sheet: Sheet, headers: Sequence[str], declared: Declared, account: Account) -> tuple[str, ...]:
    option = f"--{declared.option}time"
    if declared.time is not None:
        if declared.time in headers:
            return (declared.time,)
        return tuple(_found(sheet, headers, name.strip(), option) for name in declared.time.split("+"))
    keys = {name: _key(name) for name in headers}
    date = [name for name in headers if keys[name] in _DATE]
    hour = [name for name in headers if keys[name] in _CLOCK and name not in date]
    if len(date) == 1 and len(hour) == 1 and not _has_date(sheet.frame[hour[0]]):
        account.say(Kind.GUESSED, sheet.where, f"columns {date[0]!r} and {hour[0]!r} together are the stamp")
        return (date[0], hour[0])
    typed = [name for name in headers if pd.api.types.is_datetime64_any_dtype(sheet.frame[name].dtype)]
    if len(typed) == 1:
        return (typed[0],)
    named = [name for name in headers if keys[name] in _TIME] or date
    if not named:
        named = [name for name in headers if _DATED.search(str(sheet.frame[name].iloc[0]))]
        if len(named) == 1:
            account.say(Kind.GUESSED, sheet.where, f"column {named[0]!r} is the stamp, for it holds dates")
    if len(named) != 1:
        names = ", ".join(shown(name) for name in (named or headers)[:8])
        what = "several columns may be the time stamp" if named else "no column says that it is the time stamp"
        raise DataError(
            f"{sheet.where}: {what} ({names}): say {option} COLUMN, or {option} 'DATE+TIME' for two, "
            f"or --{declared.option}skip-rows if the header is another line"
        )
    return (named[0],)


def _has_date(cells: pd.Series) -> bool:
    text = str(cells.iloc[0])
    return len(re.findall(r"\d+", text)) > 4 or bool(re.search(r"\d[-./]\d", text)) or text.isdigit() and len(text) > 6


def _agent(
    sheet: Sheet, headers: Sequence[str], used: set[str | None], declared: Declared, account: Account
) -> str | None:
    if declared.agent is not None:
        return None if AGENT in declared.agent else _found(sheet, headers, declared.agent, "--agent")
    named = [name for name in headers if _key(name) in _AGENT and name not in used]
    if len(named) > 1:
        named = [name for key in _AGENT for name in named if _key(name) == key][:1]
    if not named:
        return None
    if named[0] != "agent":
        account.say(Kind.GUESSED, sheet.where, f"column {named[0]!r} names the home")
    return named[0]


def _building(headers: Sequence[str], agent: str | None, declared: Declared, sheet: Sheet) -> str | None:
    if declared.building is not None:
        return _found(sheet, headers, declared.building, "--building")
    named = [name for name in headers if _key(name) in _BUILDING and name != agent]
    return named[0] if agent is not None and len(named) == 1 else None


def _declared_columns(
    sheet: Sheet, headers: Sequence[str], quantity: Quantity, declared: Declared, files: Sequence[Path]
) -> list[Column]:
    text = declared.columns.get(quantity)
    name = None if text is None else scoped(text, sheet.file, files)
    if name is None:
        return []
    if AGENT not in name:
        found = _found(sheet, headers, name, f"--{quantity}")
        return [Column(found, quantity, None, _unit(found, quantity))]
    before, after = name.split(AGENT, 1)
    pattern = re.compile(re.escape(before) + "(.+)" + re.escape(after))
    homes = [(header, match[1].strip()) for header in headers if (match := pattern.fullmatch(header))]
    if not homes:
        names = ", ".join(shown(header) for header in headers[:8])
        raise DataError(f"{sheet.where}: no column is like {name!r}: it has {names}; say --{quantity} as they are")
    if name == AGENT:  # the whole header: without its unit it is the home's name
        homes = [(header, split_header(header)[0] or home) for header, home in homes]
    return [Column(header, quantity, home, _unit(header, quantity)) for header, home in homes]


def _unit(header: str, quantity: Quantity) -> Unit | None:
    found = split_header(header)[1]
    return found if found is not None and found.measure in MEASURES[quantity] else None


def _guessed(
    sheet: Sheet, headers: Sequence[str], quantities: Sequence[Quantity], long: bool, homes: bool, declared: Declared
) -> list[Column]:
    """Columns whose name or unit says what they are; in a wide table, with what is left of the name as the home's."""
    plain: dict[Quantity, list[Column]] = {quantity: [] for quantity in quantities}
    wide: list[Column] = []
    for header in headers:
        bare, unit = split_header(header)
        if _SETPOINT.search(header):
            continue
        words = [word for word in re.split(r"[\s_\-./:]+", bare.casefold()) if word]
        for quantity in quantities:
            fits = unit is None or unit.measure in MEASURES[quantity]
            known = {"".join(words), "_".join(words), *words} & set(_BY_QUANTITY[quantity])
            if not fits or not (known or (unit is not None and not words)):
                continue
            own = [word for word in words if word not in _BY_QUANTITY[quantity] and word not in _FILLERS]
            if known & {"".join(words), "_".join(words)} or not own:
                plain[quantity].append(Column(header, quantity, None, unit if fits else None))
            elif homes:
                wide.append(Column(header, quantity, _home(bare, own), unit))
            break
    if homes and not long and len(wide) > 1 and not any(plain.values()):
        return wide
    found = []
    for quantity, columns in plain.items():
        if len(columns) > 1:
            with_unit = [column for column in columns if column.unit is not None]
            columns = with_unit if len(with_unit) == 1 else columns
        if len(columns) > 1:
            names = ", ".join(repr(column.header) for column in columns[:5])
            raise DataError(f"{sheet.where}: {names} may all be {quantity}: say --{quantity} COLUMN")
        found += columns
    if not found and homes and not long:
        return _homes_by_name(sheet, headers, quantities)
    return found


def _home(bare: str, own: Sequence[str]) -> str:
    """The home's name in a header as it is written there."""
    words = [word for word in re.split(r"[\s_\-./:]+", bare) if word.casefold() in own]
    return "_".join(words)


def _homes_by_name(sheet: Sheet, headers: Sequence[str], quantities: Sequence[Quantity]) -> list[Column]:
    """A table of homes only, if the file's name or all units say of what."""
    numeric = [name for name in headers if _looks_numeric(sheet.frame[name])]
    if len(numeric) < 2:
        return []
    title = re.sub(r"[\s\-./:_]+", "_", sheet.name.casefold())
    for quantity in quantities:
        words = [word for word in _BY_QUANTITY[quantity] if len(word) > 3]
        units = {unit.measure for name in numeric if (unit := split_header(name)[1]) is not None}
        if any(word in title for word in words) or (units and units <= set(MEASURES[quantity])):
            return [Column(name, quantity, split_header(name)[0] or name, _unit(name, quantity)) for name in numeric]
    return []


def _looks_numeric(cells: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(cells.dtype):
        return True
    texts = [str(cell).strip() for cell in cells.head(200) if str(cell).strip()]
    return sum(bool(re.fullmatch(r"[+-]?\d+([.,]\d+)*", text)) for text in texts) > len(texts) / 2
