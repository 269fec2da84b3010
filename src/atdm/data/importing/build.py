"""Other people's tables as ours: files in, zones and weather out, with an account of everything done on the way.

Rule 1: nothing is guessed, converted, moved or left out without a line in the account.
Rule 2: what is missing stays missing. Gaps are filled where data are read, not here.
Rule 3: what a fit would refuse is refused here, with the option that mends it.
"""

import fnmatch
import glob
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from atdm.data import clock, limits, rules
from atdm.data.clock import spell, stamp
from atdm.data.importing import spans
from atdm.data.importing.account import Account, Kind
from atdm.data.importing.declared import AGENT, Ambiguous, Declared, Label, LoadKind, Repeated
from atdm.data.importing.headers import Column, layout
from atdm.data.importing.read import KINDS, Sheet, numbers, sheets
from atdm.data.importing.spans import FloatArray, IntArray, Pace
from atdm.data.importing.stamps import instants
from atdm.data.importing.units import OURS, Quantity, Unit
from atdm.data.quantum import said, sensor_quantum
from atdm.errors import DataError, UsageError

StrPath = str | PathLike[str]
Files = StrPath | Sequence[StrPath]

HOMES: tuple[Quantity, ...] = ("temperature", "load")
SKY: tuple[Quantity, ...] = ("outdoor", "solar")
NAMES: dict[Quantity, str] = {
    "temperature": "indoor_temp_c", "load": "load_kw", "outdoor": "outdoor_temp_c", "solar": "solar_w_m2",
}  # fmt: skip
LEAST_STEP = pd.Timedelta("15min")  # what agents of blind accept
USUAL_STEP = pd.Timedelta("30min")  # for readings that come faster than that
STEPS = tuple(pd.Timedelta(minutes=m) for m in (15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440))  # divide a day
LONGEST_BETWEEN = 3  # times its usual step: the weather is not interpolated across longer gaps
ONLY_GROWS = 0.9  # share of its changes that are upwards, from which on energy is taken for a counter
LEFT_OUT = np.iinfo(np.int64).min  # the stamp of a row that is left out
SHOWN_ROWS = 5


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Series:
    """One home's readings of one quantity as they came, in our unit, by time. It has no repr: readings are private."""

    time: IntArray  # ns since 1970 UTC, increasing
    value: FloatArray
    unit: Unit  # it was in

    @property
    def per_interval(self) -> bool:
        """Energy, not power."""
        return self.unit.per_interval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Imported:
    """Tables in our names and units, and how they came about. It has no repr: readings are private.

    Attributes
    ----------
    zones : pandas.DataFrame or None
        time, agent, indoor_temp_c [°C], load_kw [kW], and building where there is one; None where no home's file was
        given.
    weather : pandas.DataFrame or None
        time, outdoor_temp_c [°C], solar_w_m2 [W/m²]; None where no file of it was given.
    account : Account
        Everything that was guessed, declared, done, left out or looks suspicious.
    before : dict of str to pandas.DataFrame
        File → its first rows as they are.
    """

    zones: pd.DataFrame | None
    weather: pd.DataFrame | None
    account: Account
    before: dict[str, pd.DataFrame]

    def after(self) -> dict[str, pd.DataFrame]:
        """Table -> its first rows."""
        tables = {"zones": self.zones, "weather": self.weather}
        return {name: table.head(SHOWN_ROWS) for name, table in tables.items() if table is not None}

    def as_dict(self) -> dict[str, Any]:
        """The object that --json prints: how much came out, and the account."""
        homes = 0 if self.zones is None else self.zones["agent"].nunique()
        rows = {
            name: len(table) for name, table in (("zones", self.zones), ("weather", self.weather)) if table is not None
        }
        return {"homes": homes, "rows": rows, "account": [line.as_dict() for line in self.account.lines]}

    def files(self) -> dict[str, bytes]:
        """The tables as parquet, by name of file."""
        packed = {}
        for name, table in (("zones.parquet", self.zones), ("weather.parquet", self.weather)):
            if table is not None:
                target = io.BytesIO()
                table.to_parquet(target, index=False)
                packed[name] = target.getvalue()
        return packed


@dataclass(slots=True)
class _Collected:
    """What the files hold, home by home, while they are read."""

    parts: dict[tuple[str, Quantity], list[Series]] = field(default_factory=dict)
    building: dict[str, str] = field(default_factory=dict)
    before: dict[str, pd.DataFrame] = field(default_factory=dict)


def import_tables(
    files: Files = (),
    weather: Files = (),
    *,
    time: str | None = None,
    temperature: str | None = None,
    load: str | None = None,
    agent: str | None = None,
    building: str | None = None,
    outdoor: str | None = None,
    solar: str | None = None,
    temperature_unit: str | Sequence[str] = (),
    load_unit: str | Sequence[str] = (),
    outdoor_unit: str | Sequence[str] = (),
    solar_unit: str | Sequence[str] = (),
    load_kind: LoadKind | None = None,
    interval: str | None = None,
    time_format: str | None = None,
    timezone: str | None = None,
    offset: str | None = None,
    label: Label = "start",
    ambiguous: Ambiguous = "refuse",
    repeated: Repeated = "refuse",
    weather_time: str | None = None,
    weather_time_format: str | None = None,
    weather_timezone: str | None = None,
    weather_offset: str | None = None,
    weather_label: Label | None = None,
    weather_delimiter: str | None = None,
    weather_decimal: str | None = None,
    weather_encoding: str | None = None,
    weather_sheet: str | None = None,
    weather_skip_rows: int | None = None,
    step: str | None = None,
    hold: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    skip_rows: int | None = None,
    missing: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Imported:
    """Read other people's tables: zones and weather in our names and units, and an account of everything that was done.

    What is not given is guessed, and every guess is in the account. What cannot be settled is refused with the option
    that settles it, in the spelling of the command line: `--time-format` is the parameter `time_format` here.

    Parameters
    ----------
    files : str, path-like or sequence of them, default ()
        Homes' files (.csv, .txt, .tsv, .xlsx, .parquet, .jsonl), folders of them, or patterns.
    weather : str, path-like or sequence of them, default ()
        Weather files, in the same way; several are joined.
    time : str, optional
        Column of the time stamp; "Date+Time" joins two.
    temperature : str, optional
        Column of the indoor temperature. "{agent} Temp" where every home has a column of its own; "temps.csv:{agent}"
        says it of one file.
    load : str, optional
        Column of the heating power or energy, cooling negative; written as `temperature` is.
    agent : str, optional
        Column of the home's name; "{agent}_*" takes it from the file's name.
    building : str, optional
        Column of the building a home is in.
    outdoor : str, optional
        Weather: column of the outdoor temperature.
    solar : str, optional
        Weather: column of the global horizontal irradiance.
    temperature_unit : str or sequence of str, default ()
        "°C", "°F", "K", "0.1°C"; "home7=°F" for one home. From the header if not given.
    load_unit : str or sequence of str, default ()
        "W", "kW", "MW", "Wh", "kWh", "MJ", …; "home7=W" for one home.
    outdoor_unit : str or sequence of str, default ()
        As `temperature_unit`.
    solar_unit : str or sequence of str, default ()
        "W/m²", "kW/m²", or energy of each interval: "Wh/m²", "J/cm²", ….
    load_kind : {"interval", "counter"}, optional
        Whether energy is that of each interval, or a counter's.
    interval : str, optional
        Time that one value of energy is for, as in "30min".
    time_format : str, optional
        "DD.MM.YYYY HH:mm", "MM/DD/YYYY hh:mm AM/PM", "epoch s", "epoch ms", or as strptime has it.
    timezone : str, optional
        IANA name of the clock of stamps without offset.
    offset : str, optional
        Column of the stamps' offsets from UTC.
    label : {"start", "end"}, default "start"
        What a stamp is of the interval its value is for.
    ambiguous : {"refuse", "leave out"}, default "refuse"
        Rows of an hour that the clock repeats, where neither offsets nor the order of rows tells which they are.
    repeated : {"refuse", "first", "last", "mean"}, default "refuse"
        Which of several values of one stamp counts.
    weather_time, weather_time_format, weather_timezone, weather_offset, weather_label : str, optional
        The same for the weather's files, where they are otherwise.
    weather_delimiter, weather_decimal, weather_encoding, weather_sheet : str, optional
        The same for the weather's files.
    weather_skip_rows : int, optional
        The same for the weather's files.
    step : str, optional
        Of the tables made, as in "30min"; that of the slowest home's readings if not given.
    hold : str, optional
        How long a reading holds until the next one; if not given, a little longer than usual between two, and 2 h where
        they come irregularly.
    delimiter, decimal, encoding : str, optional
        How text files are written.
    sheet : str, optional
        Of a workbook; "*" if every sheet is a home.
    skip_rows : int, optional
        Lines before the header.
    missing : sequence of str, default ()
        Further cells that mean no reading, such as "-99.9".
    without : sequence of str, default ()
        Homes that are not wanted.

    Returns
    -------
    Imported
        The tables, and the account.

    Raises
    ------
    DataError
        Something in the files cannot be settled: the message says what, where, and which option does.
    UsageError
        An option that cannot be used.
    """
    account = Account()
    common: dict[str, Any] = {
        "missing": tuple(missing), "repeated": repeated, "ambiguous": ambiguous, "interval": interval,
    }  # fmt: skip
    homes = Declared(
        columns={"temperature": temperature, "load": load},
        units={"temperature": _several(temperature_unit), "load": _several(load_unit)},
        time=time, time_format=time_format, timezone=timezone, offset=offset, label=label, agent=agent,
        building=building, load_kind=load_kind, delimiter=delimiter, decimal=decimal, encoding=encoding, sheet=sheet,
        skip_rows=skip_rows, **common,
    )  # fmt: skip
    sky = Declared(
        columns={"outdoor": outdoor, "solar": solar},
        units={"outdoor": _several(outdoor_unit), "solar": _several(solar_unit)},
        option="weather-", time=weather_time, time_format=weather_time_format,
        timezone=weather_timezone or timezone, offset=weather_offset, label=weather_label or label,
        delimiter=weather_delimiter, decimal=weather_decimal, encoding=weather_encoding, sheet=weather_sheet,
        skip_rows=weather_skip_rows, **common,
    )  # fmt: skip
    wanted = None if step is None else _checked_step(step)
    longest = None if hold is None else clock.duration(hold)
    paths, weather_paths = _expanded(files), _expanded(weather)
    if not paths and not weather_paths:
        raise UsageError("no files to import: name the homes' files, and the weather's with --weather")
    zones, found = None, None
    before: dict[str, pd.DataFrame] = {}
    if paths:
        collected = _collect(paths, HOMES, homes, account, set(without))
        zones = _zones(collected, homes, wanted, longest, account)
        before |= collected.before
    if weather_paths:
        collected = _collect(weather_paths, SKY, sky, account, set())
        found = _weather(collected, sky, wanted or _step_of(zones), zones, account)
        before |= collected.before
    if zones is not None and found is not None:
        zones, found = _together(zones, found, account)
    _judge(zones, found, account)
    return Imported(zones=zones, weather=found, account=account, before=before)


def _several(units: str | Sequence[str]) -> tuple[str, ...]:
    return (units,) if isinstance(units, str) else tuple(units)


def _checked_step(text: str) -> pd.Timedelta:
    length = clock.duration(text)
    if pd.Timedelta("1D") % length != pd.Timedelta(0):
        raise UsageError(f"--step {text!r} does not divide a day: choose one such as 15min, 30min or 1h")
    return length


def _expanded(files: Files) -> list[Path]:
    """The files of paths, folders and patterns, in order, each once."""
    given = [files] if isinstance(files, str | PathLike) else list(files)
    found: list[Path] = []
    for one in given:
        path = Path(one)
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.name.lower().endswith(KINDS) and not p.name.startswith("."))
            if not inside:
                raise DataError(f"{path}: a folder without tables: give one with .csv, .xlsx, .parquet or .jsonl files")
            found += inside
        elif not path.exists() and glob.has_magic(str(one)):
            matches = sorted(Path(p) for p in glob.glob(str(one), recursive=True) if Path(p).is_file())
            if not matches:
                raise DataError(f"{one}: no file is named like that: check the pattern")
            found += matches
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _collect(
    paths: Sequence[Path], quantities: Sequence[Quantity], declared: Declared, account: Account, without: set[str]
) -> _Collected:
    collected = _Collected()
    for path in paths:
        for sheet in sheets(path, declared, account):
            collected.before.setdefault(sheet.where, sheet.frame.head(SHOWN_ROWS))
            _add(collected, sheet, quantities, declared, paths, account)
    present = {agent for agent, _ in collected.parts}
    if unknown := sorted((without | declared.named_in_units()) - present):
        names = rules.listed(sorted(present))
        raise UsageError(f"no home is called {unknown[0]!r}: say --without and units with one of {names}")
    for agent in sorted(without):
        account.say(Kind.LEFT_OUT, agent, "a home that is not wanted")
    collected.parts = {key: parts for key, parts in collected.parts.items() if key[0] not in without}
    return collected


def _add(
    collected: _Collected,
    sheet: Sheet,
    quantities: Sequence[Quantity],
    declared: Declared,
    paths: Sequence[Path],
    account: Account,
) -> None:
    plan = layout(sheet, quantities, declared, paths, account)
    codes, names = _homes(sheet, plan.agent, declared, quantities, account)
    cells = [sheet.frame[name] for name in plan.time]
    time = instants(cells, sheet, codes, declared, account)
    stays = time != LEFT_OUT
    if plan.building is not None:
        owners = sheet.frame[plan.building].astype(str).str.strip()
        for code, owner in dict.fromkeys(zip(codes.tolist(), owners, strict=True)):
            if collected.building.setdefault(names[code], owner) != owner:
                raise DataError(f"{sheet.where}: home {names[code]!r} has more than one building: give it one")
    order = np.argsort(codes, kind="stable")
    rows_of = np.split(order, np.searchsorted(codes[order], np.arange(1, len(names))))
    for column in plan.columns:
        values = numbers(sheet.frame[column.header], sheet, declared)
        for name, own_rows in zip(names, rows_of, strict=True):
            agent = column.agent or name
            rows = own_rows[stays[own_rows] & ~np.isnan(values[own_rows])]
            if not len(rows):
                continue
            unit = _unit(column, agent, sheet, declared, account)
            value = values[rows] * unit.factor + unit.offset if unit.name != OURS[column.quantity] else values[rows]
            collected.parts.setdefault((agent, column.quantity), []).append(Series(time[rows], value, unit))


def _homes(
    sheet: Sheet, column: str | None, declared: Declared, quantities: Sequence[Quantity], account: Account
) -> tuple[IntArray, list[str]]:
    """Code of each row's home, and the homes' names."""
    one = np.zeros(len(sheet.frame), dtype=np.int64)
    if column is not None:
        codes, names = pd.factorize(sheet.frame[column].map(lambda cell: "" if cell != cell else str(cell).strip()))
        if "" in names:
            row = int(np.flatnonzero(codes == list(names).index(""))[0]) + sheet.first_row
            raise DataError(f"{sheet.where}: line {row}: column {column!r} names no home: fill it, or remove the row")
        return codes.astype(np.int64), [str(name) for name in names]
    if quantities[0] != "temperature":
        return one, [""]
    if declared.agent is None or AGENT not in declared.agent:
        return one, [sheet.name]
    pattern = fnmatch.translate(declared.agent.replace(AGENT, "\0")).replace(re.escape("\0"), "(?P<agent>.+?)")
    match = re.fullmatch(pattern, sheet.name) or re.fullmatch(pattern, sheet.file.name)
    if match is None:
        raise DataError(f"{sheet.where}: its name is not like {declared.agent!r}: say --agent as the files are named")
    return one, [match["agent"]]


def _unit(column: Column, agent: str, sheet: Sheet, declared: Declared, account: Account) -> Unit:
    """The unit that was declared, else that of the header; °C if neither, and a refusal for a load."""
    quantity, option = column.quantity, f"--{column.quantity}-unit"
    said = declared.unit_of(quantity, agent)
    if said is not None:
        account.say(Kind.DECLARED, sheet.where, f"{quantity} is in {said.name}{_into(said, quantity)}")
        return said
    if column.unit is not None:
        if column.unit.name != OURS[quantity] or column.header not in NAMES.values():
            text = f"{quantity} is in {column.unit.name}, says its header{_into(column.unit, quantity)}"
            account.say(Kind.DID, sheet.where, text)
        return column.unit
    if quantity in ("load", "solar"):
        usual = "W, kW, Wh or kWh" if quantity == "load" else "W/m², kW/m² or J/cm²"
        raise DataError(f"{sheet.where}: column {column.header!r} does not say its unit: say {option}, e.g. {usual}")
    account.say(Kind.GUESSED, sheet.where, f"{quantity} is in °C, for its header says no unit")
    return Unit("°C", "temperature", 1.0)


def _into(unit: Unit, quantity: Quantity) -> str:
    return "" if unit.name == OURS[quantity] else f": converted to {OURS[quantity]}"


def _joined(parts: Iterable[Series], who: str, quantity: Quantity, declared: Declared, account: Account) -> Series:
    """All readings of a home from all files, in order, one per stamp."""
    listed = list(parts)
    if len({part.per_interval for part in listed}) > 1:
        raise DataError(f"{who}: its {quantity} is power in one file and energy in another: import them one by one")
    time = np.concatenate([part.time for part in listed])
    value = np.concatenate([part.value for part in listed])
    if (np.diff(time) < 0).any():
        order = np.argsort(time, kind="stable")
        time, value = time[order], value[order]
        account.say(Kind.DID, who, f"{quantity}: rows sorted by time")
    again = np.flatnonzero(np.diff(time) == 0)
    if len(again):
        time, value = _one_each(time, value, again, who, quantity, declared, account)
    return Series(time, value, listed[0].unit)


def _one_each(
    time: IntArray,
    value: FloatArray,
    again: IntArray,
    who: str,
    quantity: Quantity,
    declared: Declared,
    account: Account,
) -> tuple[IntArray, FloatArray]:
    differ = again[value[again] != value[again + 1]]
    if len(differ) and declared.repeated == "refuse":
        at = stamp(pd.Timestamp(int(time[differ[0]]), tz="UTC"))
        raise DataError(
            f"{who}: {quantity} has {len(differ)} stamps with several values, the first {at}: "
            "say --repeated first, last or mean; or --agent, if they are of several homes"
        )
    grouped = pd.Series(value).groupby(time)
    kept = grouped.agg("first" if declared.repeated == "refuse" else declared.repeated)
    how = f", the {declared.repeated} taken" if len(differ) else ""
    account.say(Kind.LEFT_OUT, who, f"{quantity}: {len(time) - len(kept)} readings of stamps that come again{how}")
    return kept.index.to_numpy(dtype=np.int64), kept.to_numpy()


def _zones(
    collected: _Collected, declared: Declared, step: pd.Timedelta | None, hold: pd.Timedelta | None, account: Account
) -> pd.DataFrame:
    agents = list(dict.fromkeys(agent for agent, _ in collected.parts))
    if not agents:
        raise DataError("no file has a reading of any home: look at the columns named, and at what --missing says")
    for quantity in HOMES:
        lacking = [agent for agent in agents if (agent, quantity) not in collected.parts]
        if len(lacking) == len(agents):
            raise DataError(f"no file has a {quantity}: say --{quantity} COLUMN, or give the file that has it")
        if lacking:
            raise DataError(
                f"{rules.listed(lacking)}: no {quantity} in any file: give it under the same name, or say "
                f"--without {lacking[0]!r}"
            )
    series = {key: _joined(parts, key[0], key[1], declared, account) for key, parts in collected.parts.items()}
    _refuse_values({agent: series[agent, "temperature"] for agent in agents}, "temperature", limits.INDOOR_C)
    paces = {key: Pace.of(one.time) for key, one in series.items()}
    chosen = step or _common_step(paces, account)
    rows = []
    for agent in agents:
        values = {}
        for quantity in HOMES:
            one, pace = series[agent, quantity], paces[agent, quantity]
            made = _spans(one, pace, agent, quantity, declared, chosen, hold, account)
            stamps, means = spans.means(made, int(chosen.value))
            values[NAMES[quantity]] = pd.Series(means, index=stamps)
        table = pd.DataFrame(values)
        table.insert(0, "agent", agent)
        rows.append(table)
    zones = pd.concat(rows)
    zones.insert(0, "time", pd.DatetimeIndex(zones.index, tz="UTC").as_unit("ns"))
    if collected.building:
        zones["building"] = zones["agent"].map(collected.building)
        if zones["building"].isna().any():
            lacking = sorted(set(zones.loc[zones["building"].isna(), "agent"]))
            raise DataError(f"{rules.listed(lacking)}: no building, others have one: give it for all, or none")
    what = f"{len(agents)} homes, {len(zones)} rows of {spell(chosen)}, stamps are starts, in UTC"
    account.say(Kind.DID, "zones", what)
    return zones.reset_index(drop=True)


def _common_step(paces: dict[tuple[str, Quantity], Pace], account: Account) -> pd.Timedelta:
    """That of the home whose readings are furthest apart; the usual one where all come faster than agents accept."""
    slowest = max(paces, key=lambda key: paces[key].usual)
    own = pd.Timedelta(paces[slowest].usual, unit="ns")
    wanted = USUAL_STEP if own < LEAST_STEP else own
    fitting = [length for length in STEPS if length >= wanted]
    if not fitting:
        raise DataError(
            f"{slowest[0]}: its {slowest[1]} comes every {spell(own)}, less than daily: say --without {slowest[0]!r}"
        )
    whose = f"{slowest[1]} of {slowest[0]!r}" if slowest[0] != "weather" else slowest[1]
    what = f"a step of {spell(fitting[0])} (--step); the slowest readings come every {spell(own)}, {whose}"
    account.say(Kind.GUESSED, "zones" if slowest[0] != "weather" else "weather", what)
    return fitting[0]


def _spans(
    one: Series, pace: Pace, who: str, quantity: Quantity, declared: Declared, step: pd.Timedelta,
    hold: pd.Timedelta | None, account: Account,
) -> spans.Spans:  # fmt: skip
    usual = pd.Timedelta(pace.usual, unit="ns")
    if pace.regular and usual > step:
        raise DataError(f"{who}: its {quantity} comes every {spell(usual)}: say --step {_short(usual)} or longer")
    longest = _hold(pace, hold, who, quantity, account)
    if not one.per_interval:
        if usual != step:
            what = f"{quantity}: time-weighted mean over {spell(step)} of readings {spell(usual)} apart"
            account.say(Kind.DID, who, what)
            if quantity == "temperature":
                account.say(Kind.DID, who, hidden_step(sensor_quantum(one.value)))
        return spans.held(one.time, one.value, longest, pace.usual, declared.label)
    kind = declared.load_kind
    if quantity == "load" and kind is None:
        moves = np.diff(one.value)
        grows = (moves[moves != 0] > 0).mean() if (moves != 0).any() else 0.0
        kind = "counter" if grows > ONLY_GROWS else "interval"
        what = "a counter, for it only grows" if kind == "counter" else "of each interval, for it does not only grow"
        account.say(Kind.GUESSED, who, f"{quantity}: energy is {what}")
    if kind == "counter":
        made, anew = spans.counted(one.time, one.value, longest)
        account.say(Kind.DID, who, f"{quantity}: differences of the counter over time")
        if anew:
            account.say(Kind.SUSPICIOUS, who, f"{quantity}: the counter began anew {anew} times")
        return made
    length = declared.length()
    if length is None and not pace.regular:
        raise DataError(f"{who}: its {quantity} is energy at irregular times: say --interval, the time of one value")
    length = length or usual
    account.say(Kind.DID, who, f"{quantity}: energy of {spell(length)} as mean power")
    hours = length / pd.Timedelta(hours=1)
    return spans.held(one.time, one.value / hours, int(length.value), int(length.value), declared.label)


def hidden_step(quantum: float) -> str:
    """What whoever runs an agent on means must declare."""
    return f"temperature: read in steps of {said(quantum)}, which means hide: `atdm agent --quantum {quantum:.4g}`"


def _hold(pace: Pace, hold: pd.Timedelta | None, who: str, quantity: Quantity, account: Account) -> int:
    if hold is not None:
        account.say(Kind.DECLARED, who, f"{quantity}: a reading holds until the next one, at most {spell(hold)}")
        return int(hold.value)
    if pace.regular:
        return int(spans.SLACK * pace.usual)
    what = f"each holds until the next one, at most {spell(spans.IRREGULAR_HOLD)} (--hold)"
    account.say(Kind.GUESSED, who, f"{quantity}: readings come at irregular times; {what}")
    return int(spans.IRREGULAR_HOLD.value)


def _short(length: pd.Timedelta) -> str:
    return spell(length).replace(" ", "")


def _step_of(zones: pd.DataFrame | None) -> pd.Timedelta | None:
    if zones is None:
        return None
    time = pd.DatetimeIndex(zones["time"]).unique().sort_values()
    return pd.Timedelta(clock.commonest_step(np.diff(time.asi8)), unit="ns") if len(time) > 1 else USUAL_STEP


def _weather(
    collected: _Collected, declared: Declared, step: pd.Timedelta | None, zones: pd.DataFrame | None, account: Account
) -> pd.DataFrame:
    made = {}
    for quantity in SKY:
        parts = collected.parts.get(("", quantity))
        if parts is None:
            raise DataError(
                f"weather: no file has {quantity}: say --{quantity} COLUMN, or give its file with another --weather"
            )
        made[quantity] = _joined(parts, "weather", quantity, declared, account)
    _refuse_values({"": made["outdoor"]}, "outdoor", limits.OUTDOOR_C)
    paces = {quantity: Pace.of(one.time) for quantity, one in made.items()}
    if step is None:
        step = _common_step({("weather", quantity): pace for quantity, pace in paces.items()}, account)
    columns = {}
    for quantity, one in made.items():
        pace = paces[quantity]
        usual, value = pd.Timedelta(pace.usual, unit="ns"), one.value
        if one.per_interval:
            length = declared.length() or usual
            value = value / (length / pd.Timedelta(hours=1))
            account.say(Kind.DID, "weather", f"{quantity}: energy of {spell(length)} as its mean")
        if usual > step:
            time = one.time - pace.usual if declared.label == "end" else one.time
            first, last = -(-time[0] // step.value) * step.value, time[-1] // step.value * step.value
            at = np.arange(first, last + 1, step.value, dtype=np.int64)
            between = spans.interpolated(time, value, at, LONGEST_BETWEEN * pace.usual)
            columns[NAMES[quantity]] = pd.Series(between, index=at)
            account.say(Kind.DID, "weather", f"{quantity}: interpolated from {spell(usual)} to {spell(step)}")
        else:
            held = spans.held(one.time, value, int(spans.SLACK * pace.usual), pace.usual, declared.label)
            stamps, means = spans.means(held, int(step.value))
            columns[NAMES[quantity]] = pd.Series(means, index=stamps)
            if usual != step:
                account.say(Kind.DID, "weather", f"{quantity}: averaged from {spell(usual)} to {spell(step)}")
    table = pd.DataFrame(columns)
    table.insert(0, "time", pd.DatetimeIndex(table.index, tz="UTC").as_unit("ns"))
    return table.reset_index(drop=True)


def _together(zones: pd.DataFrame, weather: pd.DataFrame, account: Account) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Zones where there is weather, and weather from their first stamp to their last, a row for every step."""
    step = _step_of(zones) or USUAL_STEP
    known = weather.dropna()
    if known.empty:
        raise DataError("weather: no stamp has both outdoor temperature and solar irradiance: look at its files' spans")
    first, last = known["time"].iloc[0], known["time"].iloc[-1]
    inside = zones["time"].between(first, last)
    if not inside.any():
        ends = f"{stamp(zones['time'].min())} to {stamp(zones['time'].max())}"
        raise DataError(
            f"weather: it is from {stamp(first)} to {stamp(last)}, the homes' readings from {ends}: give weather of "
            "that time, or look at --timezone and --time-format"
        )
    if lost := int((~inside).sum()):
        days = f"before {stamp(first)} or after {stamp(last)}"
        account.say(Kind.LEFT_OUT, "zones", f"{lost} of {len(zones)} rows {days}, where there is no weather")
        zones = zones[inside].reset_index(drop=True)
    time = pd.date_range(zones["time"].min(), zones["time"].max(), freq=step, name="time").as_unit("ns")
    whole = weather.set_index("time").reindex(time)
    if holes := int(whole.isna().any(axis="columns").sum()):
        what = f"{holes} of {len(whole)} rows lack a value: all homes lose them in a fit"
        account.say(Kind.SUSPICIOUS, "weather", what)
    account.say(Kind.DID, "weather", f"{len(whole)} rows of {spell(step)}")
    return zones, whole.reset_index()


def _judge(zones: pd.DataFrame | None, weather: pd.DataFrame | None, account: Account) -> None:
    """Refuse what a fit would refuse, naming the option; say what looks odd."""
    temperature = load = None
    if zones is not None:
        temperature, load = (
            zones.pivot(index="time", columns="agent", values=NAMES[quantity])[list(dict.fromkeys(zones["agent"]))]
            for quantity in HOMES
        )
        for fault in rules.load_faults(load, "load"):
            raise DataError(_mended(fault, "load", len(load.columns)))
        step = _step_of(zones) or USUAL_STEP
        segment = clock.segments(pd.DatetimeIndex(temperature.index), step)
        for finding in (*rules.oddities(temperature, load, segment, step), *rules.unlike_the_rest(load)):
            account.say(Kind.SUSPICIOUS, "zones", finding.text)
    if weather is not None:
        time = pd.DatetimeIndex(weather["time"])
        sky = weather.set_index("time")
        outdoor, solar = (sky[[NAMES[quantity]]].set_axis([""], axis="columns") for quantity in SKY)
        for fault in rules.solar_faults(solar, "solar", time[-1] - time[0]):
            raise DataError(_mended(fault, "solar", 1))
        for finding in (*rules.weather_oddities(sky), *rules.outdoor_oddities(outdoor[""], load)):
            account.say(Kind.SUSPICIOUS, "weather", finding.text)


def _refuse_values(series: dict[str, Series], quantity: Quantity, bounds: tuple[float, float]) -> None:
    """Temperatures in another unit, or that no room has, before a mean hides them."""
    found: dict[str, list[rules.Finding]] = {}
    for agent, one in series.items():
        frame = pd.DataFrame({agent: one.value}, index=pd.DatetimeIndex(one.time, tz="UTC"))
        for fault in rules.temperature_faults(frame, quantity, bounds):
            found.setdefault(fault.unit or "", []).append(fault)
    for unit, faults in found.items():
        first = faults[0]
        if not unit and first.value is not None:  # as it stands in the file
            own = series[first.agents[0]].unit
            first = first._replace(value=round((first.value - own.offset) / own.factor, 6))
        agents = tuple(agent for fault in faults for agent in fault.agents)
        raise DataError(_mended(first._replace(agents=agents), quantity, len(series)))


def _mended(fault: rules.Finding, quantity: Quantity, homes: int) -> str:
    """A fault with the option that mends it in place of the conversion to be made."""
    what = fault.text.partition(": ")[0]
    if fault.unit is None:
        return f"{what}: check the unit; if it is a sensor's error code, say --missing {fault.value:g}"
    if len(fault.agents) >= homes or not fault.agents:  # weather belongs to no home
        return f"{what}: say --{quantity}-unit {fault.unit}"
    units = " ".join(f"--{quantity}-unit '{agent}={fault.unit}'" for agent in fault.agents[:3])
    return f"{what}: say {units}" + (f" and so on for {len(fault.agents)} homes" if len(fault.agents) > 3 else "")
