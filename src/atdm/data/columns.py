"""Columns to values: text or typed parquet columns become numbers, names and UTC stamps.

Rule 1: a missing reading stays missing (NaN). Anything else that is no number is refused, with its rows.
Rule 2: a stamp means one instant, or it is refused.
Rows are counted from 1, the first after the header.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from atdm.data import clock
from atdm.data.arrow import pa, pc
from atdm.data.quoting import listed_rows, shown
from atdm.data.seconds import ISO
from atdm.data.text import MISSING, no_number
from atdm.errors import DataError


def numbers(column: Any, where: str, *, decimal: str = ".") -> npt.NDArray[np.float64]:
    """The values of a number column, NaN where there is none."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy()
    elif _is_text(kind):
        values = _parsed(pc.utf8_trim_whitespace(column.cast(pa.string())), where, decimal)
    else:
        raise DataError(f"{where} is of type {_kind(kind)}, not a number: store it as float64")
    if np.isinf(values).any():
        rows = np.flatnonzero(np.isinf(values))
        raise DataError(f"{where} is infinite in {listed_rows(rows)}: leave such cells empty")
    return np.asarray(values, dtype=np.float64)


def _parsed(cells: Any, where: str, decimal: str) -> npt.NDArray[np.float64]:
    absent = pc.or_kleene(pc.is_in(cells, value_set=pa.array(MISSING)), pc.is_null(cells))
    points = cells
    if decimal != ".":
        pointless = pc.replace_substring(cells, ".", "?")  # so that a point stays no number
        points = pc.replace_substring(pointless, decimal, ".")
    try:
        parsed = pc.cast(pc.if_else(absent, pa.scalar("nan"), points), pa.float64())
    except pa.ArrowInvalid:
        texts = points.to_pylist()
        bad = [
            i
            for i, (text, no) in enumerate(zip(texts, absent.to_pylist(), strict=True))
            if not no and not _is_number(text)
        ]
        raise DataError(no_number(cells[bad[0]].as_py(), bad, where, decimal)) from None
    return np.asarray(parsed.to_numpy(), dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        pa.scalar(text).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def names(column: Any, where: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Codes and names of a column of names, in order of first appearance."""
    kind = column.type
    if pa.types.is_integer(kind):
        column = column.cast(pa.string())
    elif not _is_text(kind):
        raise DataError(f"{where} is of type {_kind(kind)}, not a name: store it as text")
    encoded = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
    chunks = encoded.unify_dictionaries().chunks
    entries = [*(str(name or "").strip() for name in chunks[0].dictionary.to_pylist()), ""]  # the last stands for null
    raw = np.concatenate([chunk.indices.fill_null(len(entries) - 1).to_numpy() for chunk in chunks])
    codes, unique = pd.factorize(np.array(entries, dtype=object)[raw])
    found = [str(name) for name in unique]
    if "" in found:
        rows = listed_rows(np.flatnonzero(codes == found.index("")))
        raise DataError(f"{where} is empty in {rows}: every row needs a name; fill it or remove the row")
    return codes.astype(np.int64), found


def stamps(column: Any, where: str, timezone: str | None) -> pd.DatetimeIndex:
    """Instants in UTC. A stamp without offset is the wall clock of `timezone`, and refused where there is none."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        if column.null_count:
            raise DataError(f"{where} is empty in {listed_rows(np.flatnonzero(column.is_null()))}: remove such rows")
        aware = kind.tz is not None
        try:
            # the zone a stamp is shown in does not change the instant, and may have a name nobody knows
            index = pd.DatetimeIndex(column.cast(pa.timestamp("ns", "UTC" if aware else None)).to_pandas())
        except pa.ArrowInvalid:
            raise DataError(f"{where} lies outside the years 1678 to 2261: correct the stamps") from None
    elif _is_text(kind):
        index, aware = _parsed_stamps(pc.utf8_trim_whitespace(column.cast(pa.string())).to_pandas(), where)
    else:
        raise DataError(f"{where} is of type {_kind(kind)}, not a time stamp: store it as timestamp in UTC")
    if aware:
        return index
    return _from_wall_clock(index, where, timezone)


def _parsed_stamps(cells: pd.Series, where: str) -> tuple[pd.DatetimeIndex, bool]:
    codes, unique = pd.factorize(cells.fillna(""))  # every agent repeats the same stamps: parse each once
    matches = [ISO.fullmatch(cell) for cell in unique]
    offset = np.array([match is not None and match["offset"] is not None for match in matches])
    bad = np.array([match is None for match in matches])
    if not bad.any():
        if offset.any() and not offset.all():
            rows = listed_rows(np.flatnonzero(~offset[codes]))
            raise DataError(
                f"{where} has an offset in some rows and none in {rows}: write all of them in UTC, ending in Z"
            )
        try:
            parsed = pd.to_datetime(pd.Series(unique), format="ISO8601", utc=bool(offset.all()), errors="coerce")
            index = pd.DatetimeIndex(parsed).as_unit("ns")
        except (ValueError, OverflowError):
            raise DataError(f"{where} lies outside the years 1678 to 2261: correct the stamps") from None
        bad = np.asarray(index.isna())
    if bad.any():
        rows = listed_rows(np.flatnonzero(bad[codes]))
        raise DataError(
            f"{where} is {shown(unique[int(np.argmax(bad))])} in {rows}, not an ISO 8601 time stamp: "
            "write it like 2024-01-31T13:30Z, or let `atdm import` read the file"
        )
    return index[codes], bool(offset.all())


def _from_wall_clock(index: pd.DatetimeIndex, where: str, timezone: str | None) -> pd.DatetimeIndex:
    if timezone is None:
        raise DataError(
            f"{where} has no time zone: write stamps in UTC, ending in Z, or declare the time zone (timezone)"
        )
    zone = clock.zone(timezone)
    local = index.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    lost = np.asarray(local.isna())
    if lost.any():
        rows = np.flatnonzero(lost)
        skipped = index[rows[:1]].tz_localize(zone, ambiguous="NaT", nonexistent="shift_forward").notna()[0]
        fault = "does not exist" if skipped else "happens twice"
        raise DataError(
            f"{where} {index[rows[0]]} in {listed_rows(rows)} {fault} in {timezone} (the clock changes): "
            "write stamps in UTC, ending in Z"
        )
    return local.tz_convert("UTC").as_unit("ns")


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _kind(kind: Any) -> str:
    return shown(" ".join(str(kind).split()))
