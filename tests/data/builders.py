"""Small, plausible tables for the tests of this folder."""

from pathlib import Path

import numpy as np
import pandas as pd

DAY = 48  # half-hours


def zones_table(agents=("a", "b", "c"), rows=2 * DAY, start="2024-01-08", freq="30min", tz="UTC"):
    time = pd.date_range(start, periods=rows, freq=freq, tz=tz)
    frames = []
    for number, agent in enumerate(agents):
        t = np.arange(rows)
        frames.append(
            pd.DataFrame(
                {
                    "time": time,
                    "agent": agent,
                    "indoor_temp_c": np.round(20 + number + np.sin(t / 7 + number), 3),
                    "load_kw": np.round(1 + number + 0.5 * np.cos(t / 5), 3),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def weather_table(rows=2 * DAY, start="2024-01-08", freq="30min", tz="UTC"):
    time = pd.date_range(start, periods=rows, freq=freq, tz=tz)
    t = np.arange(rows)
    solar = np.round(np.maximum(0.0, 200 * np.sin(2 * np.pi * (t - 16) / DAY)), 2)
    return pd.DataFrame(
        {"time": time, "outdoor_temp_c": np.round(3 + np.sin(2 * np.pi * t / DAY), 3), "solar_w_m2": solar}
    )


def write(folder: Path, zones=None, weather=None, suffix=".csv"):
    """Both tables as files; returns their paths."""
    paths = folder / f"zones{suffix}", folder / f"weather{suffix}"
    tables = zones_table() if zones is None else zones, weather_table() if weather is None else weather
    for path, table in zip(paths, tables, strict=True):
        if suffix == ".parquet":
            table.to_parquet(path, index=False)
        else:
            table.to_csv(path, index=False)
    return paths
