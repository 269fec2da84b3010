"""Files to tables: bytes on disk become named columns, or one refusal that says why.

Rule 1: nothing is guessed. Delimiter and decimal mark are what the caller says; a likely other one is named, not used.
Rule 2: size is bounded before anything is decoded.
CSV columns come back as text, parquet columns as they are typed; `columns` turns them into values.
"""

import codecs
import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from atdm.data.arrow import pa, pacsv, pq
from atdm.errors import DataError, UsageError

MAX_BYTES = 2 * 1024**3  # of one table, packed or unpacked: 10 000 agents for a year of half-hours are larger; split

_DECODED = 1 << 20  # bytes looked at in one go

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".csv.gz")

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


class Table(NamedTuple):
    """The columns asked for, and what was seen beside them."""

    columns: Mapping[str, Any]  # name -> pyarrow ChunkedArray
    ignored: tuple[str, ...]  # names of further columns


def read_table(path: Path, required: Sequence[str], optional: Sequence[str] = (), *, delimiter: str = ",") -> Table:
    """The named columns of a parquet or CSV file (by suffix; .csv.gz too)."""
    if len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
        raise UsageError(f"delimiter {delimiter!r} cannot separate fields: use one character such as ',' or ';'")
    name = path.name.lower()
    try:
        if not name.endswith(_PARQUET + _CSV):
            raise DataError(f"{path}: unknown kind of file: save it as .parquet, .csv or .csv.gz")
        if path.is_dir():
            raise DataError(f"{path}: is a folder: give the file in it")
        _refuse_size(path, path.stat().st_size)
        reader = _read_parquet if name.endswith(_PARQUET) else _read_csv
        table = reader(path, required, optional, delimiter)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file: check the path") from None
    except PermissionError:
        raise DataError(f"{path}: not allowed to read it: change its permissions") from None
    if any(len(column) == 0 for column in table.columns.values()):
        raise DataError(f"{path}: has a header but no rows: export the readings again")
    return table


def _refuse_size(path: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise DataError(
            f"{path}: {size / 1e9:.1f} GB are more than the {MAX_BYTES / 1e9:.1f} GB read at once: split it"
        )


def _choose(path: Path, names: Sequence[str], required: Sequence[str], optional: Sequence[str]) -> list[str]:
    """The columns to read, after refusing missing and doubled ones."""
    wanted = [*required, *(name for name in optional if name in names)]
    if missing := [name for name in required if name not in names]:
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


def shown(cell: str) -> str:
    """A cell as a message quotes it: on one line, short."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def _read_parquet(path: Path, required: Sequence[str], optional: Sequence[str], _delimiter: str) -> Table:
    try:
        with pq.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        names = list(schema.names)
        wanted = _choose(path, names, required, optional)
        unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        _refuse_size(path, max(unpacked, metadata.num_rows * 8 * len(wanted)))
        # texts stay dictionaries: a small file may repeat a long one a billion times
        texts = [name for name in wanted if pa.types.is_string(schema.field(name).type)]
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
            table = file.read(columns=wanted)
        table.validate(full=True)  # texts are UTF-8, offsets within their data
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError, ValueError):
        raise DataError(f"{path}: is not a readable parquet file: export it again, or rename it if it is CSV") from None
    return Table({name: table.column(name) for name in wanted}, tuple(n for n in names if n not in wanted))


def _read_csv(path: Path, required: Sequence[str], optional: Sequence[str], delimiter: str) -> Table:
    content = _unpacked(path)
    if not content.strip():
        raise DataError(f"{path}: is empty: export the readings again")
    if content.startswith(b"PAR1"):
        raise DataError(f"{path}: is a parquet file: rename it to .parquet")
    if b"\0" in content[:65536]:
        raise DataError(f"{path}: is binary or UTF-16, not UTF-8 text: save it as CSV in UTF-8")
    names = _header(path, content, delimiter)
    wanted = _choose(path, names, required, optional)
    _refuse_other_encodings(path, content)

    positions = [str(i) for i in range(len(names))]
    ragged: list[Any] = []

    def note_ragged(row: Any) -> str:
        ragged.append(row)
        return "skip"

    try:
        table = pacsv.read_csv(
            io.BytesIO(content + b"\n"),  # a header without end of line is a header too
            read_options=pacsv.ReadOptions(skip_rows=1, column_names=positions, use_threads=False),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, invalid_row_handler=note_ragged),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(positions, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        if "UTF8" in str(error):
            raise DataError(f"{path}: is not UTF-8 text: save it as CSV in UTF-8") from None
        raise DataError(f"{path}: is not a table of {len(names)} columns: export it again as CSV") from None
    if ragged:
        row = ragged[0]
        why = "decimal commas? write decimal points, or delimit by ';' and say so" if delimiter == "," else "mend it"
        raise DataError(
            f"{path}: data row {row.number - 1} has {row.actual_columns} fields, "
            f"the header {row.expected_columns}: {why}"
        )
    return Table({name: table.column(names.index(name)) for name in wanted}, tuple(n for n in names if n not in wanted))


def _unpacked(path: Path) -> bytes:
    if path.name.lower().endswith(".gz"):
        try:
            with gzip.open(path) as file:
                content = file.read(MAX_BYTES + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise DataError(f"{path}: is not a readable gzip file: pack it again") from None
        _refuse_size(path, len(content))
    else:
        content = path.read_bytes()
    return content.removeprefix(b"\xef\xbb\xbf")  # the byte order mark some spreadsheets write


def _refuse_other_encodings(path: Path, content: bytes) -> None:
    """Before the reader meets such bytes, which it reports on the terminal where a row is ragged besides."""
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(content)
    try:
        for start in range(0, len(view), _DECODED):
            decoder.decode(view[start : start + _DECODED])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text: save it as CSV in UTF-8") from None


def _header(path: Path, content: bytes, delimiter: str) -> list[str]:
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
                    f"{path}: its columns look delimited by {other!r}, not {delimiter!r}: set the delimiter"
                )
    return names
