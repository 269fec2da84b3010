"""Files to tables: bytes on disk become named columns, or one refusal that says why.

CSV columns come back as text, parquet columns as they are typed; `columns` turns them into values. What CSV may look
like is in text.py.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from atdm.data.arrow import pa, pacsv, pq
from atdm.data.text import (
    PARQUET,
    check_delimiter,
    check_file,
    choose,
    content_of,
    header,
    ragged,
    refuse_other_encodings,
    refuse_size,
)  # fmt: skip
from atdm.errors import DataError


class Table(NamedTuple):
    """The columns asked for, and what was seen beside them."""

    columns: Mapping[str, Any]  # name -> pyarrow ChunkedArray
    ignored: tuple[str, ...]  # names of further columns


def read_table(path: Path, required: Sequence[str], optional: Sequence[str] = (), *, delimiter: str = ",") -> Table:
    """The named columns of a parquet or CSV file (by suffix; .csv.gz too)."""
    check_delimiter(delimiter)
    check_file(path)
    reader = _read_parquet if path.name.lower().endswith(PARQUET) else _read_csv
    table = reader(path, required, optional, delimiter)
    if any(len(column) == 0 for column in table.columns.values()):
        raise DataError(f"{path}: has a header but no rows: export the readings again")
    return table


def _read_parquet(path: Path, required: Sequence[str], optional: Sequence[str], _delimiter: str) -> Table:
    try:
        with pq.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        names = list(schema.names)
        wanted = choose(path, names, required, optional)
        unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        refuse_size(path, max(unpacked, metadata.num_rows * 8 * len(wanted)))
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
    content = content_of(path)
    names = header(path, content, delimiter)
    wanted = choose(path, names, required, optional)
    refuse_other_encodings(path, content)

    positions = [str(i) for i in range(len(names))]
    uneven: list[Any] = []

    def note_uneven(row: Any) -> str:
        uneven.append(row)
        return "skip"

    try:
        table = pacsv.read_csv(
            io.BytesIO(content + b"\n"),  # a header without end of line is a header too
            read_options=pacsv.ReadOptions(skip_rows=1, column_names=positions, use_threads=False),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, invalid_row_handler=note_uneven),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(positions, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        if "UTF8" in str(error):
            raise DataError(f"{path}: is not UTF-8 text: save it as CSV in UTF-8") from None
        raise DataError(f"{path}: is not a table of {len(names)} columns: export it again as CSV") from None
    if uneven:
        row = uneven[0]
        raise DataError(ragged(path, row.number - 1, row.actual_columns, row.expected_columns, delimiter))
    return Table({name: table.column(names.index(name)) for name in wanted}, tuple(n for n in names if n not in wanted))
