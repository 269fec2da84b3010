"""A query as a source: the owner's database, the owner's words.

    sql:postgresql://user@host/name   Timescale too; mysql:// and mariadb://; duckdb:///file; `atdm[sql]`
    sql:sqlite:///file.db             by the standard library

Rule 1: the query gives the columns time, temperature [°C] and load [kW], on one regular step; others are not used. It
        may say `:since` for the stamp after which rows are wanted (seconds since 1970 UTC).
Rule 2: time is a stamp with its offset, whole seconds since 1970 UTC, or, where a timezone is declared, that clock's.
Rule 3: a query may average. What it made means of is not seen here, so that whoever runs the agent is asked for the
        step of the sensor.
Rule 4: read-only, with a time-out, and no password in the URL: see database.py.
"""

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from atdm.data.quoting import listed_rows, shown
from atdm.data.seconds import instants, length, moments
from atdm.data.sources.database import TIMEOUT, open_database
from atdm.data.sources.secret import read_secret
from atdm.data.sources.source import Rows, Source
from atdm.errors import DataError, UsageError
from atdm.types import FloatArray, IntArray

COLUMNS = ("time", "temperature", "load")
_MEANS = re.compile(r"\b(avg|mean)\s*\(", re.IGNORECASE)
_SINCE = re.compile(r"(?<![:\w]):since\b")


class Sql(Source):
    """The rows of one home that a query gives."""

    def __init__(
        self,
        address: str,
        *,
        query: str = "",
        timezone: str | None = None,
        password_file: str | None = None,
        timeout: str = f"{TIMEOUT}s",
    ) -> None:
        if not query.strip():
            raise UsageError(f"sql: give a query (--query) of the columns {', '.join(COLUMNS)}")
        self.database = open_database(address, read_secret(password_file, "ATDM_SQL_PASSWORD"), length(timeout))
        self.name, self.query, self.timezone = f"sql:{self.database.name}", query, timezone

    def rows(self, since: int | None = None) -> Rows:
        values = {"since": -(2**31) if since is None else since} if _SINCE.search(self.query) else {}
        names, rows = self.database.query(self.query, **values)
        if missing := [name for name in COLUMNS if name not in names]:
            seen = ", ".join(map(shown, names[:8]))
            raise DataError(f"{self.name}: the query has no column {missing[0]!r}, but {seen}: rename it by AS")
        places = [names.index(name) for name in COLUMNS]
        columns = [[row[place] for row in rows] for place in places]
        time = _times(columns[0], f"{self.name}: time", self.timezone)
        temperature, load = (_numbers(columns[i], f"{self.name}: {COLUMNS[i]}") for i in (1, 2))
        back = np.flatnonzero(np.diff(time) <= 0)
        if len(back):
            raise DataError(
                f"{self.name}: data row {back[0] + 2} is not later than the one before: add ORDER BY time, and give "
                "each stamp once"
            )
        ignored = [name for name in names if name not in COLUMNS]
        notes = [f"{self.name}: columns not used: {', '.join(ignored[:5])}"] if ignored else []
        if _MEANS.search(self.query):
            step = "means hide the step of the temperature sensor: declare it (`atdm agent --quantum`, in °C)"
            notes.append(f"{self.name}: {step}")
        return Rows(time, temperature, load, tuple(notes)).after(since)


def _times(cells: Sequence[Any], where: str, timezone: str | None) -> IntArray:
    if all(isinstance(cell, str) for cell in cells):
        return instants([cell.strip() for cell in cells], where, timezone)
    if all(isinstance(cell, datetime) for cell in cells):
        return moments(cells, where, timezone)
    bad = [row for row, cell in enumerate(cells) if not isinstance(cell, int | float | Decimal) or cell != cell // 1]
    if bad:
        kind = "a day" if isinstance(cells[bad[0]], date) else shown(str(cells[bad[0]]))
        text = f"{where} is {kind} in {listed_rows(bad)}, not a time stamp: give one, or whole seconds since 1970"
        raise DataError(text)
    return np.array([int(cell) for cell in cells], dtype=np.int64)


def _numbers(cells: Sequence[Any], where: str) -> FloatArray:
    values, bad = np.full(len(cells), np.nan), []
    for row, cell in enumerate(cells):
        try:
            values[row] = np.nan if cell is None else float(cell)
        except (TypeError, ValueError):
            bad.append(row)
    if bad:
        raise DataError(f"{where} is no number in {listed_rows(bad)}: convert it in the query, or leave it NULL")
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise DataError(f"{where} is infinite in {listed_rows(infinite)}: give NULL there")
    return values
