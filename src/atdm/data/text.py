"""Text on disk to cells: what every reader of CSV shares, without pyarrow or pandas.

Rule 1: nothing is guessed. Delimiter and decimal mark are what the caller says; a likely other one is named, not used.
Rule 2: size is bounded before anything is decoded.
"""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from atdm.data.quoting import listed_rows, shown
from atdm.errors import DataError, UsageError
from atdm.types import FloatArray

MAX_BYTES = 2 * 1024**3  # of one table, packed or unpacked: 10 000 agents for a year of half-hours are larger; split

_DECODED = 1 << 20  # bytes looked at in one go
PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz")
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "#N/A")
GROUPED = re.compile(r"[+-]?\d{1,3}([.,]\d{3})*[.,]?\d*", re.ASCII)

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)

_RENAME: Mapping[str, str] = {  # columns in another unit -> what turns them into the contract's
    "indoor_temp_f": "rename it indoor_temp_c and convert with (F - 32) / 1.8",
    "indoor_temp_k": "rename it indoor_temp_c and subtract 273.15",
    "load_w": "rename it load_kw and divide by 1000",
    "load_mw": "rename it load_kw and multiply by 1000",
    "load_kwh": "rename it load_kw and divide by the hours of a step",
    "outdoor_temp_f": "rename it outdoor_temp_c and convert with (F - 32) / 1.8",
    "outdoor_temp_k": "rename it outdoor_temp_c and subtract 273.15",
    "solar_kw_m2": "rename it solar_w_m2 and multiply by 1000",
}
_KINDS = {"zones": {"agent", "indoor_temp_c", "load_kw"}, "weather": {"outdoor_temp_c", "solar_w_m2"}}


def check_file(path: Path) -> None:
    """Refuse what is no table before it is opened."""
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a folder: give the file in it")
        if not path.name.lower().endswith(PARQUET + CSV):
            raise DataError(
                f"{path}: unknown kind of file: save it as .parquet, .csv or .csv.gz, or let `atdm import` read it"
            )
        refuse_size(path, path.stat().st_size)
        path.open("rb").close()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file: check the path") from None
    except PermissionError:
        raise DataError(f"{path}: not allowed to read it: change its permissions") from None


def check_delimiter(delimiter: str) -> None:
    if len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
        raise UsageError(f"delimiter {delimiter!r} cannot separate fields: use one character such as ',' or ';'")


def refuse_size(path: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise DataError(
            f"{path}: {size / 1e9:.1f} GB are more than the {MAX_BYTES / 1e9:.1f} GB read at once: split it"
        )


def choose(path: Path, names: Sequence[str], required: Sequence[str], optional: Sequence[str]) -> list[str]:
    """The columns to read, after refusing missing and doubled ones."""
    wanted = [*required, *(name for name in optional if name in names)]
    if missing := [name for name in required if name not in names]:
        wants, has = (next((k for k, own in _KINDS.items() if own <= set(given)), "") for given in (required, names))
        if wants and has and wants != has:
            raise DataError(f"{path}: has the columns of {has}: give the file of the {wants} here, or swap the two")
        in_other_unit = [name for name in names if name.lower() in _RENAME and name not in wanted]
        if in_other_unit:
            raise DataError(
                f"{path}: column {missing[0]!r} is missing and {in_other_unit[0]!r} is in another unit: "
                + _RENAME[in_other_unit[0].lower()]
            )
        seen = ", ".join(shown(name) for name in names[:8])
        raise DataError(f"{path}: column {missing[0]!r} is missing: the header has {seen}; rename or add it")
    for name, count in Counter(names).items():
        if count > 1 and name in wanted:
            raise DataError(f"{path}: column {name!r} appears {count} times: keep one of them")
    return wanted


def content_of(path: Path) -> bytes:
    """The unpacked bytes of a CSV file that can be one."""
    content = _unpacked(path)
    if not content.strip():
        raise DataError(f"{path}: is empty: export the readings again")
    if content.startswith(b"PAR1"):
        raise DataError(f"{path}: is a parquet file: rename it to .parquet")
    if b"\0" in content[:65536]:
        raise DataError(f"{path}: is binary or UTF-16, not UTF-8 text: save it as CSV in UTF-8")
    return content


def read_cells(
    path: Path, required: Sequence[str], optional: Sequence[str] = (), *, delimiter: str = ","
) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """The named columns of a CSV file as trimmed text, and the names of further ones."""
    check_delimiter(delimiter)
    check_file(path)
    content = content_of(path)
    names = header(path, content, delimiter)
    wanted = choose(path, names, required, optional)
    refuse_other_encodings(path, content)
    places = [names.index(name) for name in wanted]
    columns: list[list[str]] = [[] for _ in wanted]
    reader = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), delimiter=delimiter)
    next(reader)
    try:
        for number, row in enumerate((row for row in reader if row), 1):
            if len(row) != len(names):
                raise DataError(ragged(path, number, len(row), len(names), delimiter))
            for column, place in zip(columns, places, strict=True):
                column.append(row[place].strip())
    except csv.Error:
        raise DataError(f"{path}: is not a table of {len(names)} columns: export it again as CSV") from None
    if not columns[0]:
        raise DataError(f"{path}: has a header but no rows: export the readings again")
    return dict(zip(wanted, columns, strict=True)), tuple(name for name in names if name not in wanted)


def ragged(path: Path, row: int, fields: int, expected: int, delimiter: str) -> str:
    why = "decimal commas? write decimal points, or delimit by ';' and say so" if delimiter == "," else "mend it"
    return f"{path}: data row {row} has {fields} fields, the header {expected}: {why}"


def numbers(cells: Sequence[str], where: str, *, decimal: str = ".") -> FloatArray:
    """The values of a column of text, NaN where there is none."""
    points = cells if decimal == "." else [cell.replace(".", "?").replace(decimal, ".") for cell in cells]
    bad = [
        row for row, (cell, point) in enumerate(zip(cells, points, strict=True))
        if cell not in MISSING and not _NUMBER.fullmatch(point)
    ]  # fmt: skip
    if bad:
        raise DataError(no_number(cells[bad[0]], bad, where, decimal))
    values = np.array([np.nan if cell in MISSING else float(point) for cell, point in zip(cells, points, strict=True)])
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise DataError(f"{where} is infinite in {listed_rows(infinite)}: leave such cells empty")
    return values


def no_number(cell: str, rows: Sequence[int], where: str, decimal: str) -> str:
    cause = "text where a number belongs: correct it, or leave the cell empty"
    if GROUPED.fullmatch(cell):
        mark = "," if decimal == "." else "."
        cause = f"not a number with decimal {decimal!r}: set decimal {mark!r} if that is the mark, and use no other"
    return f"{where} is {shown(cell)} in {listed_rows(rows)}, {cause}"


def _unpacked(path: Path) -> bytes:
    if path.name.lower().endswith(".gz"):
        try:
            with gzip.open(path) as file:
                content = file.read(MAX_BYTES + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise DataError(f"{path}: is not a readable gzip file: pack it again") from None
        refuse_size(path, len(content))
    else:
        content = path.read_bytes()
    return content.removeprefix(b"\xef\xbb\xbf")  # the byte order mark some spreadsheets write


def refuse_other_encodings(path: Path, content: bytes) -> None:
    """Before the reader meets such bytes, which it reports on the terminal where a row is ragged besides."""
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(content)
    try:
        for start in range(0, len(view), _DECODED):
            decoder.decode(view[start : start + _DECODED])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text: save it as CSV in UTF-8") from None


def header(path: Path, content: bytes, delimiter: str) -> list[str]:
    line = content.partition(b"\n")[0].partition(b"\r")[0]
    try:
        [names] = csv.reader([line.decode("utf-8")], delimiter=delimiter) if line.strip() else [[""]]
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text: save it as CSV in UTF-8") from None
    except (csv.Error, ValueError):
        raise DataError(f"{path}: its first line is not a header: write the column names there") from None
    names = [name.strip() for name in names]
    if len(names) == 1:
        for other in ";\t|,":
            if other != delimiter and other in names[0]:
                raise DataError(
                    f"{path}: its columns look delimited by {other!r}, not {delimiter!r}: set the delimiter {other!r}"
                )
    return names
