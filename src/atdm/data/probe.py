"""An experiment on a cluster: by how much all set points are moved together, and when.

The file is a table `time, until, setpoint_offset_k`, one block a row: from `time` until `until` every thermostat of the
cluster stands this much above (below) where it would stand. `atdm probe` writes it, `atdm fit --probed` reads it.
"""

from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from atdm.data import columns
from atdm.data.clock import stamp
from atdm.data.files import read_table
from atdm.errors import DataError

COLUMNS = ("time", "until", "setpoint_offset_k")


def read_probe(path: str | PathLike[str], *, timezone: str | None = None) -> pd.DataFrame:
    """The blocks of an experiment: time and until (UTC), setpoint_offset_k [K]."""
    where = Path(path)
    table = read_table(where, COLUMNS)
    blocks = pd.DataFrame({
        "time": columns.stamps(table.columns["time"], f"{where}: time", timezone),
        "until": columns.stamps(table.columns["until"], f"{where}: until", timezone),
        "setpoint_offset_k": columns.numbers(table.columns["setpoint_offset_k"], f"{where}: setpoint_offset_k"),
    }).sort_values("time", ignore_index=True)  # fmt: skip
    if blocks.isna().any().any():
        raise DataError(f"{where}: some blocks have no start, end or offset: complete the table")
    ends, starts = blocks["until"].to_numpy(), blocks["time"].to_numpy()
    wrong = np.flatnonzero((ends <= starts) | np.append(ends[:-1] > starts[1:], False))
    if len(wrong):
        raise DataError(f"{where}: the block of {stamp(blocks['time'][wrong[0]])} ends before it starts, or after the "
                        "next one does: correct its times")  # fmt: skip
    if not (blocks["setpoint_offset_k"] != 0).any():
        raise DataError(f"{where}: no block moves a set point: give the experiment as it was carried out")
    return blocks


def windows_of(blocks: pd.DataFrame) -> tuple[tuple[pd.Timestamp, pd.Timestamp], ...]:
    """From when until when the experiment went on, moved or not; blocks that follow each other are one window."""
    windows: list[tuple[pd.Timestamp, pd.Timestamp]] = []
    for start, stop in zip(blocks["time"], blocks["until"], strict=True):
        if windows and windows[-1][1] == start:
            windows[-1] = windows[-1][0], stop
        else:
            windows.append((start, stop))
    return tuple(windows)
