"""Time stamps as people write them, as instants.

Rule 1: a stamp means one instant, or it is refused. Where a clock change repeats an hour, the order of a home's rows or
        a column of offsets tells which of the two it is; where they do not, the refusal names both.
Rule 2: a format that nobody declared is used if it alone reads every stamp, and said.
"""

import re
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pandas as pd

from atdm.data import clock
from atdm.data.clock import stamp
from atdm.data.importing.account import Account, Kind
from atdm.data.importing.declared import Declared, strptime_format
from atdm.data.importing.read import Sheet
from atdm.data.quoting import shown
from atdm.errors import DataError, UsageError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_ISO = re.compile(r"\d{4}-\d\d?-\d\d?([T ]\d\d?:\d\d(:\d\d([.,]\d+)?)?(?P<offset> ?(Z|[+-]\d\d(:?\d\d)?))?)?", re.ASCII)
_DATES = ("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d/%m/%y",
          "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y")  # fmt: skip
_TIMES = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "T%H:%M", "T%H:%M:%S", ", %H:%M", ", %H:%M:%S",
          " %H:%M:%S.%f", " %H.%M", "%H%M", " %H%M", "%H", ", %I:%M %p", ", %I:%M:%S %p", "")  # fmt: skip
FORMATS = tuple(date + time for date in _DATES for time in _TIMES)
TRIED = 400  # distinct stamps on which every format is tried before the one that is left reads all
_EPOCH = {"s": (1e8, 1e10), "ms": (1e11, 1e13), "us": (1e14, 1e16), "ns": (1e17, 1e19)}  # years 1973 to 2286
_EXCEL_DAYS = (20_000, 80_000)  # years 1954 to 2119
EXCEL_1970 = 25569  # 1970-01-01, in days as Excel counts them
_MIDNIGHT = re.compile(r"(.*\D)24(:00(?::00)?)$", re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+-]?)(\d{1,2})(?::?(\d\d))?", re.I | re.ASCII)


def instants(cells: list[pd.Series], sheet: Sheet, group: IntArray, declared: Declared, account: Account) -> IntArray:
    """Nanoseconds since 1970 UTC of each row; rows whose stamp is left out have pd.NaT's number.

    cells: the time column, or the columns to be joined. group: number of each row's home, for the order of its rows.
    """
    where = f"{sheet.where}: {' + '.join(str(column.name) for column in cells)}"
    wall, aware = _parsed(cells, where, sheet, declared, account)
    option = f"--{declared.option}"
    if aware:
        return wall.as_unit("ns").asi8
    if declared.offset is not None:
        return _with_offsets(wall, sheet, declared, where)
    if declared.timezone is None:
        raise DataError(f"{where} has no time zone: say {option}timezone, e.g. Europe/Berlin or UTC, or {option}offset")
    account.say(Kind.DECLARED, sheet.where, f"stamps are the clock of {declared.timezone}")
    return _from_wall_clock(wall, group, declared, where, sheet.where, account)


def _parsed(
    cells: list[pd.Series], where: str, sheet: Sheet, declared: Declared, account: Account
) -> tuple[pd.DatetimeIndex, bool]:
    option = f"--{declared.option}time-format"
    if len(cells) == 1 and pd.api.types.is_datetime64_any_dtype(cells[0].dtype):
        index = pd.DatetimeIndex(cells[0])
        _refuse(np.asarray(index.isna()), where, sheet, "is empty: remove such rows")
        return (index, False) if index.tz is None else (index.tz_convert("UTC"), True)
    if len(cells) == 1 and pd.api.types.is_numeric_dtype(cells[0].dtype) and declared.time_format is None:
        return _epoch(cells[0].to_numpy(dtype=float, na_value=np.nan), None, where, sheet, account)
    texts = cells[0].map(_written)
    for further in cells[1:]:
        texts = texts.str.cat(further.map(_written), sep=" ")
    codes, unique = pd.factorize(texts.str.strip())
    words = pd.Series(unique, dtype=str)
    _refuse((words == "").to_numpy()[codes], where, sheet, "is empty: remove such rows")
    given = declared.time_format
    if given is not None and given.lower().startswith(("epoch", "excel")):
        unit = given.lower().removeprefix("epoch").strip() or "s"
        if unit not in (*_EPOCH, "excel"):
            raise UsageError(f"{option} {given!r}: write 'epoch s', 'epoch ms', 'epoch us', 'epoch ns' or 'excel'")
        return _epoch(pd.to_numeric(texts, errors="coerce").to_numpy(dtype=float), unit, where, sheet, account)
    digits = (
        words.str.fullmatch(r"\d{9,19}(\.\d*)?|[2-7]\d{4}(\.\d*)?").all()
        and not words.str.fullmatch("(19|20)[0-9]{10}").all()
    )
    if given is None and digits:
        return _epoch(pd.to_numeric(texts).to_numpy(dtype=float), None, where, sheet, account)
    matches = [_ISO.fullmatch(word) for word in words]
    if given is None and all(match is not None for match in matches):
        return _iso(words, codes, np.array([bool(match and match["offset"]) for match in matches]), where, sheet)
    words, late = _midnights(words)
    form = strptime_format(given) if given is not None else _guessed(words, where, option, account, sheet)
    try:
        index = pd.DatetimeIndex(pd.to_datetime(words, format=form, errors="coerce", utc="%z" in form))
    except ValueError:
        raise UsageError(f"{option} {given!r} cannot be used: write it like 'DD.MM.YYYY HH:mm'") from None
    bad = np.asarray(index.isna())
    if bad.any():
        row = int(np.flatnonzero(bad[codes])[0])
        raise DataError(
            f"{where} is {shown(str(unique[codes[row]]))} in line {row + sheet.first_row}, not as {given or form!r}: "
            f"say {option} as the stamps are, e.g. 'DD.MM.YYYY HH:mm'"
        )
    index = index + pd.to_timedelta(late.astype(np.int64), unit="D")
    if given is not None:
        account.say(Kind.DECLARED, sheet.where, f"stamps are written as {given!r}")
    return index[codes], index.tz is not None


def _written(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    if hasattr(cell, "hour") and hasattr(cell, "year") and (cell.hour, cell.minute, cell.second) == (0, 0, 0):
        return f"{cell:%Y-%m-%d}"  # a date cell of a workbook, to be joined with a time
    return str(cell).strip()


def _refuse(bad: BoolArray, where: str, sheet: Sheet, why: str) -> None:
    if bad.any():
        raise DataError(f"{where} in line {int(np.flatnonzero(bad)[0]) + sheet.first_row} {why}")


def _epoch(
    values: npt.NDArray[np.float64], unit: str | None, where: str, sheet: Sheet, account: Account
) -> tuple[pd.DatetimeIndex, bool]:
    _refuse(np.isnan(values), where, sheet, "is no number: remove such rows, or say --time-format")
    size = float(np.median(np.abs(values)))
    if unit == "excel" or (unit is None and _EXCEL_DAYS[0] < size < _EXCEL_DAYS[1]):
        account.say(Kind.DECLARED if unit else Kind.GUESSED, sheet.where, "stamps are days as Excel counts them")
        seconds = np.rint((values - EXCEL_1970) * 86400).astype(np.int64)
        return pd.DatetimeIndex(seconds * 10**9), False
    if unit is None:
        unit = next((name for name, (low, high) in _EPOCH.items() if low <= size < high), None)
        if unit is None:
            raise DataError(f"{where} holds numbers like {size:g}: say --time-format, e.g. 'epoch s' or '%Y%m%d%H%M'")
        account.say(Kind.GUESSED, sheet.where, f"stamps are epoch {unit} (UTC)")
    else:
        account.say(Kind.DECLARED, sheet.where, f"stamps are epoch {unit} (UTC)")
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds, rest = np.divmod(values, per_second)
    ns = seconds.astype(np.int64) * 10**9 + np.rint(rest * (10**9 / per_second)).astype(np.int64)
    return pd.DatetimeIndex(ns, tz="UTC"), True


def _iso(
    words: pd.Series, codes: IntArray, offset: BoolArray, where: str, sheet: Sheet
) -> tuple[pd.DatetimeIndex, bool]:
    if offset.any() and not offset.all():
        _refuse(~offset[codes], where, sheet, "has no offset, others have one: write all of them in UTC, ending in Z")
    aware = bool(offset.all())
    plain = words.str.replace(",", ".", regex=False)
    index = pd.DatetimeIndex(pd.to_datetime(plain, format="ISO8601", utc=aware, errors="coerce"))
    _refuse(np.asarray(index.isna())[codes], where, sheet, "is no day of the calendar: correct it")
    return index[codes], aware


def _midnights(words: pd.Series) -> tuple[pd.Series, BoolArray]:
    """24:00 of a day as 00:00, and which stamps are to be moved to the next day."""
    late = words.str.fullmatch(_MIDNIGHT.pattern).to_numpy(dtype=bool)
    return (words.str.replace(_MIDNIGHT, r"\g<1>00\g<2>", regex=True) if late.any() else words), late


def _guessed(words: pd.Series, where: str, option: str, account: Account, sheet: Sheet) -> str:
    """The only format that reads every stamp."""
    tried = words.iloc[np.unique(np.linspace(0, len(words) - 1, TRIED).astype(int))]
    left = [form for form in FORMATS if pd.to_datetime(tried.head(2), format=form, errors="coerce").notna().all()]
    left = [form for form in left if pd.to_datetime(tried, format=form, errors="coerce").notna().all()]
    left = [form for form in left if pd.to_datetime(words, format=form, errors="coerce").notna().all()]
    if not left:
        raise DataError(f"{where} is written like {shown(str(words.iloc[0]))}: say {option}, e.g. 'DD.MM.YYYY HH:mm'")
    if len(left) > 1:
        first = [str(pd.to_datetime(words.iloc[0], format=form)) for form in left[:2]]
        raise DataError(
            f"{where} {shown(str(words.iloc[0]))} may be {first[0]} or {first[1]}: "
            f"say {option} {_friendly(left[0])!r} or {_friendly(left[1])!r}"
        )
    account.say(Kind.GUESSED, sheet.where, f"stamps are written as {_friendly(left[0])!r}")
    return left[0]


def _friendly(form: str) -> str:
    for code, word in (("%Y", "YYYY"), ("%y", "YY"), ("%m", "MM"), ("%d", "DD"), ("%H", "HH"), ("%I", "hh"),
                       ("%M", "mm"), ("%S", "ss"), ("%p", "AM/PM")):  # fmt: skip
        form = form.replace(code, word) if "%b" not in form and "%f" not in form else form
    return form


def _with_offsets(wall: pd.DatetimeIndex, sheet: Sheet, declared: Declared, where: str) -> IntArray:
    name = declared.offset
    if name not in sheet.frame.columns:
        raise DataError(f"{sheet.where}: has no column {name!r}: say --{declared.option}offset with its name")
    codes, unique = pd.factorize(sheet.frame[name].map(lambda cell: str(cell).strip()))
    known = _abbreviations(declared.timezone) if declared.timezone else {}
    shift = []
    for text in unique:
        match = _OFFSET.fullmatch(str(text).removesuffix(".0"))
        if str(text) in known:
            shift.append(known[str(text)])
        elif match and int(match[2]) <= 14:
            seconds = 3600 * int(match[2]) + 60 * int(match[3] or 0)
            shift.append(-seconds if match[1] == "-" else seconds)
        else:
            words = f"or one of {', '.join(known)}" if known else f"or say --{declared.option}timezone too"
            raise DataError(f"{sheet.where}: {name!r} is {shown(str(text))}: write offsets like +01:00, {words}")
    offsets: IntArray = np.array(shift, dtype=np.int64)[codes]
    return wall.as_unit("ns").asi8 - offsets * 10**9


def _abbreviations(timezone: str) -> dict[str, int]:
    """What the clock is called in winter and in summer, such as CET and CEST, with its offset. [s]"""
    days = pd.date_range("2024-01-15", periods=12, freq="30D", tz=clock.zone(timezone))
    own = {str(day.tzname()): int((day.utcoffset() or pd.Timedelta(0)).total_seconds()) for day in days}
    german = {"CET": "MEZ", "CEST": "MESZ"}
    return own | {german[name]: offset for name, offset in own.items() if name in german}


def _from_wall_clock(
    wall: pd.DatetimeIndex, group: IntArray, declared: Declared, where: str, file: str, account: Account
) -> IntArray:
    zone = clock.zone(str(declared.timezone))
    first = wall.tz_localize(zone, ambiguous=np.ones(len(wall), dtype=bool), nonexistent="NaT")
    skipped = np.asarray(first.isna())
    if skipped.any():
        _refuse_skipped(wall[int(np.argmax(skipped))], zone, declared, where)
    second = wall.tz_localize(zone, ambiguous=np.zeros(len(wall), dtype=bool))
    early, late = first.tz_convert("UTC").as_unit("ns").asi8, second.tz_convert("UTC").as_unit("ns").asi8
    twice = early != late
    if not twice.any():
        return early
    answer = np.where(twice, np.iinfo(np.int64).min, early)
    numbers = wall.as_unit("ns").asi8
    days = np.asarray(wall.normalize().as_unit("ns").asi8)
    resolved = 0
    for home in np.unique(group[twice]):
        for day in np.unique(days[twice & (group == home)]):
            rows = np.flatnonzero(twice & (group == home) & (days == day))
            told = _by_order(numbers[rows], rows, group == home, numbers)
            if told is None:
                if declared.ambiguous == "refuse":
                    at = rows[0]
                    both = " or ".join(stamp(pd.Timestamp(int(n[at]), tz="UTC")) for n in (early, late))
                    raise DataError(
                        f"{where} {wall[at]} happens twice in {declared.timezone} (the clock changes), as {both}: "
                        f"name the column of offsets with --{declared.option}offset, or say --ambiguous 'leave out'"
                    )
                what = f"{len(rows)} rows of the hour that the clock repeats, from {wall[rows[0]]}"
                account.say(Kind.LEFT_OUT, file, what)
                continue
            answer[rows] = np.where(told, early[rows], late[rows])
            resolved += 1
    if resolved:
        account.say(Kind.DID, file, "rows of the hour that the clock repeats told apart by their order")
    return answer


def _by_order(ambiguous: IntArray, rows: IntArray, own: BoolArray, numbers: IntArray) -> BoolArray | None:
    """Which rows of a repeated hour are in its first run, from the order of the rows; None if it does not tell."""
    order = numbers[own]
    newest_first = np.count_nonzero(np.diff(order) < 0) > len(order) / 2
    run = ambiguous[::-1] if newest_first else ambiguous
    back = np.flatnonzero(np.diff(run) < 0)
    if len(back) != 1:  # the clock goes back once, or these rows are all of one run
        return None
    early: BoolArray = np.arange(len(run)) <= back[0]
    return early[::-1] if newest_first else early


def _refuse_skipped(at: pd.Timestamp, zone: ZoneInfo, declared: Declared, where: str) -> None:
    after = at.tz_localize(zone, nonexistent="shift_forward")
    hours = int(((after.utcoffset() or pd.Timedelta(0)) - (after.dst() or pd.Timedelta(0))).total_seconds() // 3600)
    fixed = f"Etc/GMT{-hours:+d}" if hours else "UTC"
    raise DataError(
        f"{where} {at} does not exist in {declared.timezone} (the clock changes): a logger that keeps winter time all "
        f"year is --{declared.option}timezone {fixed}; or say in which zone it is"
    )
