"""Files to frames: text, workbooks, parquet and JSON lines, read by pandas.

Rule 1: how a text file is written (encoding, delimiter, decimal mark, lines before the header) is guessed from its
        first lines where nobody says so, and the guess is said.
Rule 2: cells of text stay text until it is known what their column is, so that a home "007" keeps its zeros.
Rule 3: size is bounded before anything is decoded.
"""

import csv
import gzip
import io
import json
import re
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from atdm.data.importing.account import Account, Kind
from atdm.data.importing.declared import Declared
from atdm.data.importing.units import is_unit
from atdm.data.quoting import shown
from atdm.data.text import MAX_BYTES
from atdm.errors import DataError, UsageError

TEXT = (".csv", ".txt", ".tsv", ".csv.gz", ".tsv.gz", ".txt.gz", ".dat")
EXCEL = (".xlsx", ".xlsm")
PARQUET = (".parquet", ".pq")
JSON = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz")
KINDS = TEXT + EXCEL + PARQUET + JSON

NO_READING = (
    "", "-", "--", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "none", "#N/A", "#NV",
    "unavailable", "unknown",
)  # fmt: skip
LOOKED_AT = 1 << 16  # bytes from which the way a text is written is guessed

_ENCODINGS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.I)
_POINT = re.compile(r"[+-]?\d+\.\d+(e[+-]?\d+)?", re.I)
_GROUPED = {  # by decimal mark: digits in groups of three
    ".": re.compile(r"[+-]?\d{1,3}([,' \u00a0\u202f’]\d{3})+(\.\d+)?"),
    ",": re.compile(r"[+-]?\d{1,3}([.' \u00a0\u202f’]\d{3})+(,\d+)?"),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sheet:
    """One table as it stands in a file. It has no repr: readings are private."""

    where: str  # the file, and the sheet of a workbook
    name: str  # of the file without its ending, or of the sheet where every sheet is a home
    file: Path
    frame: pd.DataFrame  # columns named as in the header, stripped
    decimal: str  # of numbers in text cells
    first_row: int  # number, as a person counts lines, of the first row of the frame


def sheets(path: Path, declared: Declared, account: Account) -> list[Sheet]:
    """The tables of one file."""
    name = path.name.lower()
    try:
        _refuse_size(path, path.stat().st_size)
        if name.endswith(EXCEL):
            found = _workbook(path, declared, account)
        elif name.endswith(PARQUET):
            found = [_parquet(path)]
        elif name.endswith(JSON):
            found = [_json(path, declared, account)]
        elif name.endswith(TEXT):
            found = [_text(path, declared, account)]
        elif name.endswith((".xls", ".ods")):
            raise DataError(f"{path}: is a workbook of an older or other kind: save it as .xlsx or .csv")
        else:
            raise DataError(f"{path}: unknown kind of file: save it as .csv, .xlsx, .parquet or .jsonl")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file: check the path") from None
    except PermissionError:
        raise DataError(f"{path}: not allowed to read it: change its permissions") from None
    for sheet in found:
        if sheet.frame.empty:
            raise DataError(f"{sheet.where}: has a header but no rows: export the readings again")
    return [_with_units(sheet, account) for sheet in found]


def _with_units(sheet: Sheet, account: Account) -> Sheet:
    """A line of units under the header as part of the header."""
    first = {
        name: "" if cell is None or cell != cell else str(cell).strip() for name, cell in sheet.frame.iloc[0].items()
    }
    given = {name: cell for name, cell in first.items() if cell.strip("[]()")}
    units = {name: cell.strip("[]()") for name, cell in given.items() if is_unit(cell.strip("[]()"))}
    if not units or len(units) < len(given) - 1:  # beside them the format of the stamp may be said
        return sheet
    account.say(Kind.GUESSED, sheet.where, "the line under the header says the units")
    frame = sheet.frame.iloc[1:].rename(columns={name: f"{name} [{cell}]" for name, cell in units.items()})
    return replace(sheet, frame=frame.reset_index(drop=True).infer_objects(), first_row=sheet.first_row + 1)


def numbers(cells: pd.Series, sheet: Sheet, declared: Declared) -> npt.NDArray[np.float64]:
    """The numbers of a column, NaN where there is no reading; other text is refused with its line."""
    if pd.api.types.is_bool_dtype(cells.dtype) or pd.api.types.is_datetime64_any_dtype(cells.dtype):
        raise DataError(f"{sheet.where}: column {cells.name!r} holds no numbers: name another column")
    if pd.api.types.is_numeric_dtype(cells.dtype):
        values = pd.to_numeric(cells).to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        for word in declared.missing:
            if (code := _as_number(word)) is not None:
                values[values == code] = np.nan
    else:
        values = _parsed(cells, sheet, declared)
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"{sheet.where}: line {row + sheet.first_row}: {cells.name!r} is infinite: empty the cell")
    return values


def _parsed(cells: pd.Series, sheet: Sheet, declared: Declared) -> npt.NDArray[np.float64]:
    codes, unique = pd.factorize(cells.map(lambda cell: "" if cell is None or cell != cell else str(cell).strip()))
    mark, no_reading = sheet.decimal, {*NO_READING, *declared.missing}

    def value(text: str) -> float | None:
        if text in no_reading:
            return np.nan
        plain = re.sub(r"[,.' \u00a0\u202f’]", lambda m: m[0] if m[0] == mark else "", text) if (
            _GROUPED[mark].fullmatch(text)
        ) else text  # fmt: skip
        if mark == ",":
            plain = plain.replace(".", "?").replace(",", ".")  # a point is then no number
        return _as_number(plain)

    found = [value(str(text)) for text in unique]
    bad = np.array([v is None for v in found])
    if bad.any():
        row = int(np.flatnonzero(bad[codes])[0])
        text = str(unique[codes[row]])
        other = "," if mark == "." else "."
        way_out = f"--missing {text!r} if it means that there is no reading"
        if re.fullmatch(r"[+-]?\d*[.,]\d+", text):
            way_out = f"--{declared.option}decimal {other!r} if that is its decimal mark"
        raise DataError(
            f"{sheet.where}: line {row + sheet.first_row}: column {cells.name!r} is {shown(text)}, no number: "
            f"correct it, or say {way_out}"
        )
    values: npt.NDArray[np.float64] = np.array(found, dtype=np.float64)[codes]
    return values


def _as_number(text: str) -> float | None:
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _refuse_size(path: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise DataError(f"{path}: {size / 1e9:.1f} GB are more than are read at once: split it by time or by home")


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def _text(path: Path, declared: Declared, account: Account) -> Sheet:
    raw = _unpacked(path)
    if b"\0" in raw[:LOOKED_AT] and not raw.startswith((b"\xff\xfe", b"\xfe\xff")) and declared.encoding is None:
        raise DataError(f"{path}: is not text: save it as .csv, or give it its right ending (.xlsx, .parquet)")
    encoding = declared.encoding or _encoding(path, raw, account)
    try:
        text = raw.decode(encoding)
    except LookupError:
        raise UsageError(
            f"--{declared.option}encoding {encoding!r} is not known: write one such as utf-8, cp1252 or utf-16"
        ) from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: is not {encoding} text: say --{declared.option}encoding, e.g. cp1252 or utf-16"
        ) from None
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise DataError(f"{path}: is empty: export the readings again")
    lines = text[:LOOKED_AT].splitlines()
    delimiter = declared.delimiter or _delimiter(path, lines, declared.option)
    skip = _lines_before(lines, delimiter) if declared.skip_rows is None else declared.skip_rows
    header = _header(path, lines, delimiter, skip)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a line that is too long is cut with a warning
            frame = pd.read_csv(
                io.StringIO(text), sep=delimiter, skiprows=skip, dtype=str, keep_default_na=False, header=None,
                names=header, index_col=False, skipinitialspace=True,
            ).iloc[1:]  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError, pd.errors.ParserWarning) as error:
        first = str(error).strip().splitlines()[-1]
        raise DataError(
            f"{path}: is no table delimited by {delimiter!r} ({first}): say --{declared.option}delimiter and "
            f"--{declared.option}skip-rows, or mend it"
        ) from None
    frame = frame.fillna("").reset_index(drop=True)  # short lines lack cells
    decimal = declared.decimal or _decimal(frame, delimiter)
    guessed = [f"delimiter {delimiter!r}"] * (declared.delimiter is None)
    guessed += [f"decimal mark {decimal!r}"] * (declared.decimal is None)
    guessed += [f"{skip} lines before the header"] * (declared.skip_rows is None and skip > 0)
    if guessed:
        account.say(Kind.GUESSED, str(path), "text with " + ", ".join(guessed))
    return Sheet(str(path), _stem(path), path, frame, decimal, skip + 2)


def _unpacked(path: Path) -> bytes:
    if not path.name.lower().endswith(".gz"):
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            content = file.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError):
        raise DataError(f"{path}: is not a readable gzip file: pack it again") from None
    _refuse_size(path, len(content))
    return content


def _encoding(path: Path, raw: bytes, account: Account) -> str:
    for mark, name in _ENCODINGS:
        if raw.startswith(mark):
            return name
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        account.say(Kind.GUESSED, str(path), "encoding cp1252 (it is not UTF-8)")
        return "cp1252"
    return "utf-8"


def _delimiter(path: Path, lines: list[str], option: str) -> str:
    """The mark that cuts most lines into the same number of fields."""
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    body = [line for line in lines[:-1] or lines if line.strip()][-50:]  # the last one may be cut

    def score(mark: str) -> tuple[float, int]:
        counts = Counter(len(fields) for fields in csv.reader(body, delimiter=mark))
        fields, times = counts.most_common(1)[0]
        return (times / len(body) if fields > 1 else 0.0), fields

    best = max(";\t|,", key=score)
    if score(best)[0] < 0.8:
        raise DataError(f"{path}: no delimiter cuts its lines into equal numbers of fields: say --{option}delimiter")
    return best


def _lines_before(lines: list[str], delimiter: str) -> int:
    """Lines before the header: the first with as many fields as most lines have, none of them a number."""
    rows = [_without_end(row) for row in csv.reader(lines[:-1] or lines, delimiter=delimiter)]
    width = Counter(len(row) for row in rows[-50:]).most_common(1)[0][0]
    for number, row in enumerate(rows):
        if len(row) == width and sum(bool(cell.strip()) for cell in row) > width / 2:
            return number
    return 0


def _without_end(row: list[str]) -> list[str]:
    """A line's fields, without the empty one that a delimiter at its end makes."""
    return row[:-1] if row and not row[-1].strip() else row


def _header(path: Path, lines: list[str], delimiter: str, skip: int) -> list[str]:
    rows = [line for line in lines[skip:] if line.strip()]
    if not rows:
        raise DataError(f"{path}: has {len(lines)} lines, and {skip} shall be skipped: skip fewer")
    fields = list(csv.reader(rows[:50], delimiter=delimiter, skipinitialspace=True))
    width = Counter(len(row) for row in fields).most_common(1)[0][0]
    return _named(path, [*fields[0], *[""] * (width - len(fields[0]))])  # rows that end in a delimiter have one more


def _named(where: object, names: list[Any]) -> list[str]:
    """Headers as they are, stripped; an empty one gets a number, and one that comes twice is refused."""
    named = [str(name).strip() or f"column {number}" for number, name in enumerate(names, 1)]
    for name, count in Counter(named).items():
        if count > 1:
            raise DataError(f"{where}: column {name!r} appears {count} times: give each its own name")
    if sum(_as_number(name.replace(",", ".")) is not None for name in named) >= len(named) / 2:
        raise DataError(
            f"{where}: {', '.join(named[:4])} … is no header: write column names there; if decimal commas stand "
            "between commas, export it with ';' between columns"
        )
    return named


def _decimal(frame: pd.DataFrame, delimiter: str) -> str:
    """The mark in most of the first cells of text that are numbers; where a cell has both, the last of them."""
    first = frame.head(200 if delimiter == "," else 1000)  # only cells in quotes can have a comma between commas
    cells = [cell.strip() for cell in first.to_numpy().ravel() if isinstance(cell, str)]
    both = [cell for cell in cells if "," in cell and "." in cell and re.fullmatch(r"[+-]?[\d.,]+", cell)]
    if both:
        return "," if both[0].rfind(",") > both[0].rfind(".") else "."
    commas, points = (sum(mark.fullmatch(cell) is not None for cell in cells) for mark in (_COMMA, _POINT))
    return "," if commas > points else "."


def _workbook(path: Path, declared: Declared, account: Account) -> list[Sheet]:
    try:
        import openpyxl  # noqa: F401 - pandas needs it, and says so in a longer way
    except ImportError:
        raise UsageError(f"{path}: a workbook needs openpyxl: pip install 'atdm[import]', or save it as .csv") from None
    try:
        book = pd.read_excel(path, sheet_name=None, header=None, engine="openpyxl", dtype=object)
    except (ValueError, KeyError, OSError, EOFError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise DataError(f"{path}: is not a readable workbook: save it again as .xlsx, or as .csv") from None
    except Exception as error:  # noqa: BLE001 - a zip or XML error of any of three libraries
        raise DataError(f"{path}: is no readable workbook ({type(error).__name__}): save it as .xlsx again") from None
    filled = {str(name): sheet for name, sheet in book.items() if not sheet.empty}
    if not filled:
        raise DataError(f"{path}: has no sheet with cells: export the readings again")
    names, option = ", ".join(repr(name) for name in list(filled)[:5]), f"--{declared.option}sheet"
    if declared.sheet is None and len(filled) > 1:
        raise DataError(
            f"{path}: has the sheets {names}: say {option} NAME, or {option} '*' if each sheet is a home or a quantity"
        )
    if declared.sheet is not None and declared.sheet != "*":
        if declared.sheet not in filled:
            raise DataError(f"{path}: has no sheet {declared.sheet!r}: say {option} with one of {names}")
        filled = {declared.sheet: filled[declared.sheet]}
    found = []
    for name, cells in filled.items():
        where = str(path) if len(book) == 1 else f"{path}, sheet {name!r}"
        skip = _rows_before(cells) if declared.skip_rows is None else declared.skip_rows
        if declared.skip_rows is None and skip:
            account.say(Kind.GUESSED, where, f"{skip} lines before the header")
        header, body = cells.iloc[skip], cells.iloc[skip + 1 :]
        used = header.notna() | body.notna().any()
        body = body.loc[:, used].set_axis(_named(where, header[used].fillna("").tolist()), axis="columns")
        body = body.dropna(how="all").reset_index(drop=True).infer_objects()
        own = name if declared.sheet == "*" else _stem(path)
        found.append(Sheet(where, own, path, body, declared.decimal or _decimal(body, ""), skip + 2))
    return found


def _rows_before(cells: pd.DataFrame) -> int:
    """Rows of a sheet before its header: the first that is mostly filled, and with text."""
    for number in range(min(len(cells), 50)):
        row = cells.iloc[number]
        filled = int(row.notna().sum())
        if filled > cells.shape[1] / 2 and sum(isinstance(cell, str) for cell in row) > filled / 2:
            return number
    return 0


def _parquet(path: Path) -> Sheet:
    try:
        frame = pd.read_parquet(path)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # noqa: BLE001 - pyarrow's and pandas' own
        raise DataError(f"{path}: is not a readable parquet file ({type(error).__name__}): export it again") from None
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    frame.columns = pd.Index(_named(path, list(frame.columns)))
    return Sheet(str(path), _stem(path), path, frame, ".", 1)


def _json(path: Path, declared: Declared, account: Account) -> Sheet:
    try:
        text = _unpacked(path).decode(declared.encoding or "utf-8-sig")
        if text.lstrip().startswith("["):
            account.say(Kind.GUESSED, str(path), "one JSON list of objects, not one object per line")
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        frame = pd.DataFrame.from_records(rows)
    except (ValueError, TypeError, LookupError, AttributeError):
        raise DataError(f"{path}: is not JSON with one object per line: export it again, or as .csv") from None
    frame.columns = pd.Index(_named(path, list(frame.columns)))
    return Sheet(str(path), _stem(path), path, frame, declared.decimal or _decimal(frame, ""), 1)
