"""Series that people bring to a model: load plans, prices, aggregate temperatures, future weather."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from atdm.data import columns
from atdm.data.clock import spell, stamp, zone
from atdm.data.files import read_table
from atdm.data.format import Format
from atdm.data.tables import read_weather
from atdm.errors import DataError, UsageError
from atdm.model.fitted import Model
from atdm.model.released import Released, released_rows
from atdm.types import FloatArray

T = TypeVar("T")
StrPath = str | PathLike[str]
OBSERVED = ["aggregate_temp_c", "load_kw"]  # columns


def read_series(path: StrPath, column: str, *, timezone: str | None = None) -> pd.Series:
    """The column of a table `time, <column>` (parquet or CSV), by increasing time in UTC."""
    return _read_columns(path, (column,), (), timezone)[column]


def _read_columns(
    path: StrPath, required: Sequence[str], optional: Sequence[str], timezone: str | None
) -> pd.DataFrame:
    where = Path(path)
    table = read_table(where, ("time", *required), optional)
    time = columns.stamps(table.columns["time"], f"{where}: time", timezone)
    names = [name for name in (*required, *optional) if name in table.columns]
    values = {name: columns.numbers(table.columns[name], f"{where}: {name}") for name in names}
    frame = pd.DataFrame(values, index=time)
    if not frame.index.is_unique:
        twice = stamp(frame.index[frame.index.duplicated()][0])
        raise DataError(f"{where}: {twice} occurs twice: give one value of the whole cluster per stamp")
    return frame.sort_index()


def read_future(path: StrPath, *, timezone: str | None = None) -> pd.DataFrame:
    """Weather to come: outdoor_temp_c [°C], solar_w_m2 [W/m²], indexed by time."""
    return read_weather(path, Format(timezone=timezone)).readings


def span(
    model: Model,
    weather: pd.DataFrame,
    load: pd.Series | None,
    start: str | None,
    horizon: pd.Timedelta | None,
    past: int | None = None,
) -> pd.DataFrame:
    """The rows of the weather a model is run on: from `start`, for `horizon` after the first that are past, gap-free.

    past: how many these are, M if not given.
    """
    known = model.order if past is None else past
    frame = weather.set_index("time") if "time" in weather.columns else weather
    index = pd.DatetimeIndex(frame.index)
    if index.tz is None:
        raise DataError("weather time stamps have no time zone: localise them, e.g. to UTC")
    if load is not None:
        frame = frame[index.isin(load.index)]
    if start is not None:
        frame = frame[pd.DatetimeIndex(frame.index) >= instant(start)]
        if len(frame) and frame.index[0] != instant(start):
            raise UsageError(f"start {start}: weather and load have no such row, next is {stamp(frame.index[0])}")
    if len(frame) <= known:
        raise UsageError(
            f"{len(frame)} rows of weather and load from the start, and the run starts from the first {known}: give "
            "rows beyond the last one observed"
        )
    if horizon is not None:
        asked = int(horizon // model.step)
        if asked < 1 or horizon % model.step != pd.Timedelta(0):
            raise UsageError(f"horizon {spell(horizon)}: give a whole number of the model's steps of "
                             f"{spell(model.step)}, at least one")  # fmt: skip
        if len(frame) < known + asked:
            there = spell((len(frame) - known) * model.step)
            raise UsageError(f"weather and load end {there} after the start, not {spell(horizon)}: shorten the horizon")
        frame = frame.iloc[: known + asked]
    steps = np.diff(pd.DatetimeIndex(frame.index).as_unit("ns").asi8)
    if (steps != model.step.value).any():
        at = stamp(frame.index[int(np.argmax(steps != model.step.value))])
        raise DataError(f"weather and load do not follow the model's {spell(model.step)} step after {at}: fill the gap")
    return frame


def initial_values(model: Model, given: Sequence[float] | pd.Series | None, time: pd.DatetimeIndex) -> FloatArray:
    """The aggregate temperature at the first M stamps: M numbers, or a series that covers those stamps. [°C]"""
    first = time[: model.order]
    if isinstance(given, pd.Series):
        values = given.reindex(first).to_numpy(float)
        if not np.isfinite(values).all():
            raise DataError(f"no aggregate temperature at {stamp(first[int(np.argmin(np.isfinite(values)))])}: "
                            f"the run starts from the first {model.order} stamps of the weather")  # fmt: skip
        return values
    if given is None or len(given) != model.order:
        raise UsageError(_no_start(model.order))
    return np.asarray(given, dtype=float)


def past_rows(
    count: int, given: "Sequence[float] | pd.Series | pd.DataFrame | None", time: pd.DatetimeIndex
) -> pd.DataFrame:
    """aggregate_temp_c [°C] and load_kw [kW] of the first `count` stamps; the load is NaN where nobody gave it.

    given: so many temperatures, or temperatures by time, or a table of aggregate_temp_c and load_kw by time.
    """
    first = time[:count]
    table = pd.DataFrame(np.nan, index=first, columns=OBSERVED)
    if isinstance(given, pd.Series | pd.DataFrame):
        rows = given.to_frame("aggregate_temp_c") if isinstance(given, pd.Series) else given
        for name in table.columns.intersection(rows.columns):
            table[name] = rows[name].reindex(first).to_numpy(float)
        missing = np.flatnonzero(~np.isfinite(table["aggregate_temp_c"].to_numpy()))
        if len(missing):
            raise DataError(f"no aggregate temperature at {stamp(first[missing[0]])}: "
                            f"the run starts from the first {count} stamps of the weather")  # fmt: skip
        return table
    if given is None or len(given) != count:
        raise UsageError(_no_start(count))
    table["aggregate_temp_c"] = np.asarray(given, dtype=float)
    return table


def last_rows(count: int, step: pd.Timedelta, observed: pd.DataFrame) -> pd.DataFrame:
    """The last rows observed that a run goes on from; they must follow each other."""
    last = observed.dropna(subset=OBSERVED).iloc[-count:]
    if len(last) < count or (last.index[1:] - last.index[:-1] != step).any():
        raise DataError(f"the last {count} rows observed are not {spell(step)} apart: observe the others")
    return last[OBSERVED]


def read_observed(path: StrPath, *, timezone: str | None = None) -> pd.DataFrame:
    """What `atdm observe` wrote, by time: aggregate_temp_c [°C] and load_kw [kW] of those in, and how many (agents)."""
    frame = _read_columns(path, OBSERVED, ("agents",), timezone)
    if "agents" not in frame:
        return frame
    counts = frame["agents"].dropna()
    if not ((counts >= 0) & (counts < 2**31) & (counts % 1 == 0)).all():
        raise DataError(f"{path}: agents: some are no counts: give whole numbers, or leave the column out")
    return frame.astype({"agents": "Int64"})


def observed_rows(model: Model, observed: pd.DataFrame, weather: pd.DataFrame) -> Released:
    """The observed rows that the weather covers."""
    rows = released_rows(observed, weather, model.step)
    if not len(rows):
        raise UsageError("the weather covers none of the observed rows: give that of the days observed")
    return rows


def read_truth(path: StrPath, *, timezone: str | None = None) -> pd.DataFrame:
    """What really happened, by time: aggregate_temp_c [°C] and, where the table has it, load_kw [kW]."""
    return _read_columns(path, ("aggregate_temp_c",), ("load_kw",), timezone)


def with_rows(path: StrPath, new: pd.DataFrame) -> pd.DataFrame:
    """The table of a file, if there is one, and new rows. A row is released once, so none is replaced."""
    if not Path(path).exists():
        return new
    old = read_observed(path)
    return pd.concat([old, new[~new.index.isin(old.index)]]).sort_index().rename_axis("time")


def continued(model: Model, observed: pd.DataFrame, plan: pd.Series) -> tuple[pd.Series, pd.Series, str]:
    """How a run goes on from the last M rows observed: their load and then the plan's, their state, and the start."""
    last = last_rows(model.order, model.step, observed)
    load = pd.concat([last["load_kw"], plan[plan.index > last.index[-1]]])
    return load, last["aggregate_temp_c"], last.index[0].isoformat()


def parse_initial(text: str) -> list[float] | pd.DataFrame:
    """What --initial says: numbers such as 19.2,19.3, or a table of time, aggregate_temp_c[, load_kw]."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return _read_columns(text, ("aggregate_temp_c",), ("load_kw",), None)


def parse_range(text: str, name: str) -> tuple[float, float]:
    """LOW:HIGH."""
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        raise UsageError(f"{name} {text}: write LOW:HIGH, as in 19:22") from None
    if not low < high:
        raise UsageError(f"{name} {text}: the first number must be below the second")
    return low, high


def parse_start(text: str | None, timezone: str | None) -> str | None:
    """What --start says; without an offset it is on the clock of --timezone, like the stamps of the tables."""
    return None if text is None else instant(text, timezone or "UTC").isoformat()


def instant(text: str, timezone: str = "UTC") -> pd.Timestamp:
    """A time stamp as --start says it; without an offset on the clock of `timezone`."""
    try:
        time = pd.Timestamp(text)
        return (time.tz_localize(zone(timezone)) if time.tz is None else time).tz_convert("UTC")
    except (ValueError, TypeError):
        raise UsageError(f"start {text}: write a time stamp such as 2024-01-31T13:30Z") from None


def _no_start(count: int) -> str:
    return f"give the aggregate temperature at the first {count} stamps of the weather (initial), or rows observed"
