"""A table of ours as a source: one home's own file, CSV without pandas or pyarrow, parquet with them.

The file is read again whole each time: let whatever writes it replace it whole, or append whole lines.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atdm.data.format import Format
from atdm.data.quoting import listed_rows
from atdm.data.seconds import instants, stamp
from atdm.data.sources.source import Rows, Source
from atdm.data.text import PARQUET, check_file, numbers, read_cells
from atdm.errors import DataError, UsageError
from atdm.types import BoolArray, FloatArray, IntArray

HOME = ("time", "agent", "indoor_temp_c", "load_kw")
SKY = ("time", "outdoor_temp_c", "solar_w_m2")


@dataclass(frozen=True, slots=True, eq=False)
class Sky:
    """A weather table, by time."""

    source: str
    time: IntArray  # seconds since 1970 UTC, increasing
    outdoor: FloatArray  # [°C], NaN where missing
    solar: FloatArray  # [W/m²], NaN where missing


class Table(Source):
    """A file `time, agent, indoor_temp_c, load_kw` with one agent."""

    def __init__(self, path: str | Path, *, agent: str | None = None, declared: Format | None = None) -> None:
        """agent: whose file it must be."""
        self.path, self.name, self.agent = Path(path), str(path), agent
        self.declared = Format() if declared is None else declared

    def rows(self, since: int | None = None) -> Rows:
        return (self._parquet() if _is_parquet(self.path) else self._csv()).after(since)

    def _csv(self) -> Rows:
        cells, ignored = read_cells(self.path, HOME, ("building",), delimiter=self.declared.delimiter)
        empty = [row for row, name in enumerate(cells["agent"]) if not name]
        if empty:
            rows = listed_rows(empty)
            raise DataError(f"{self.path}: agent is empty in {rows}: every row needs a name; fill it or remove the row")
        found = list(dict.fromkeys(cells["agent"]))
        time = instants(cells["time"], f"{self.path}: time", self.declared.timezone)
        values = [numbers(cells[name], f"{self.path}: {name}", decimal=self.declared.decimal) for name in HOME[2:]]
        agent = self._one(found)
        time, [temperature, load], notes = in_order(
            time, values, self.path, f"agent {agent!r} at ", sort=self.declared.sort
        )
        unused = (f"{self.path}: columns not used: {', '.join(map(repr, ignored[:5]))}",) if ignored else ()
        return Rows(time, temperature, load, (*unused, *notes), agent)

    def _parquet(self) -> Rows:
        try:
            from atdm.data.tables import read_zones
        except ImportError:
            raise UsageError(_needs_pandas(self.path)) from None
        zones = read_zones(self.path, self.declared)
        agent = self._one(list(zones.agents))
        known = zones.readings
        time = known["time"].dt.tz_localize(None).to_numpy().astype("datetime64[s]").astype(np.int64)
        temperature, load = (known[name].to_numpy(float) for name in HOME[2:])
        return Rows(time, temperature, load, zones.notes, agent)

    def _one(self, found: list[str]) -> str:
        if self.agent is not None and found != [self.agent]:
            raise DataError(
                f"{self.path}: holds readings of {', '.join(found[:3])}; this agent is {self.agent}: "
                "give a file with its own readings only"
            )
        if len(found) > 1:
            raise DataError(f"{self.path}: holds readings of {', '.join(found[:3])}: give one home's own file")
        return found[0]


def read_sky(path: Path, declared: Format) -> Sky:
    """A weather table, values not judged yet."""
    if _is_parquet(path):
        try:
            from atdm.data.tables import read_weather
        except ImportError:
            raise UsageError(_needs_pandas(path)) from None
        table = read_weather(path, declared).readings.reset_index()
        time = table["time"].dt.tz_localize(None).to_numpy().astype("datetime64[s]").astype(np.int64)
        return Sky(str(path), time, table["outdoor_temp_c"].to_numpy(float), table["solar_w_m2"].to_numpy(float))
    cells, _ = read_cells(path, SKY, delimiter=declared.delimiter)
    time = instants(cells["time"], f"{path}: time", declared.timezone)
    values = [numbers(cells[name], f"{path}: {name}", decimal=declared.decimal) for name in SKY[1:]]
    time, [outdoor, solar], _ = in_order(time, values, path, "", sort=declared.sort)
    return Sky(str(path), time, outdoor, solar)


def in_order(
    time: IntArray, values: list[FloatArray], path: Path, whose: str, *, sort: bool
) -> tuple[IntArray, list[FloatArray], tuple[str, ...]]:
    """Rows by time without exact doubles; other disorder is refused, unless `sort` allows it."""
    notes = []
    order = np.argsort(time, kind="stable")
    doubled = order[1:][np.diff(time[order]) == 0]
    first = order[np.searchsorted(time[order], time[doubled])]
    table = np.column_stack(values)
    other = doubled[(~_same(table[doubled], table[first])).any(axis=1)]
    if len(other):
        row = int(other.min())
        at = f"{whose}{stamp(int(time[row]))}"
        text = f"{path}: data row {row + 1} gives other values for {at} than a row before it: keep one of them"
        raise DataError(text)
    keep = np.ones(len(time), dtype=bool)
    keep[doubled] = False
    if len(doubled):
        notes.append(f"{path}: {len(doubled)} rows dropped that repeat another one exactly")
    rows = np.flatnonzero(keep)
    back = np.flatnonzero(np.diff(time[rows]) < 0)
    if len(back):
        row = int(rows[back[0] + 1])
        if not sort:
            at = f"{whose}{stamp(int(time[row]))}"
            raise DataError(f"{path}: data row {row + 1}, {at}, goes back in time: sort the file, or ask for sort")
        rows = rows[np.argsort(time[rows], kind="stable")]
        notes.append(f"{path}: rows sorted by time, as asked")
    return time[rows], [column[rows] for column in values], tuple(notes)


def _same(a: FloatArray, b: FloatArray) -> BoolArray:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _is_parquet(path: Path) -> bool:
    check_file(path)
    return path.name.lower().endswith(PARQUET)


def _needs_pandas(path: Path) -> str:
    return f"{path}: parquet needs pandas and pyarrow: pip install pandas pyarrow, or save it as CSV"
