"""How large the record of a desk is after a year: `python -m tests.deploy.record_size --homes 40`."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from atdm.deploy.record import ModelRow, ServiceRecord

COLUMNS = ("aggregate_temp_c", "low_80", "high_80", "low_95", "high_95", "load_kw", "load_low_80", "load_high_80",
           "load_low_95", "load_high_95")  # fmt: skip
MODEL_BYTES = 400_000, 3_000  # of a model with a quarter of half-hours, and of its coefficients alone


def year(folder: Path, homes: int, days: int = 365) -> int:
    """Bytes of a record of half-hours, with an asking and a forecast of 48 h an hour and a model a day."""
    rng = np.random.default_rng(1)
    names = [f"home-{i:04d}" for i in range(homes)]
    with ServiceRecord(folder / "desk.sqlite", 0.0) as record:
        record._base.execute("PRAGMA synchronous=OFF")  # only its size is of interest
        for hour in range(24 * days):
            now = 3600 * hour
            run = record.begin_run(now, now, now + 1800, 2)
            table = pd.DataFrame(
                {"aggregate_temp_c": rng.normal(20, 1, 2), "load_kw": rng.normal(50, 9, 2), "agents": homes},
                index=pd.to_datetime([now, now + 1800], unit="s", utc=True),
            )
            record.add_rows(
                run, table, names[: homes - hour // (24 * 28) % 3], {names[-1]: "no readings yet of some days"}
            )
            record.end_run(run, now + 9, "2 rows of so many homes")
            columns = {name: np.round(rng.normal(30, 20, 96), 3).tolist() for name in COLUMNS}
            ahead = {"origin": now, "target": now + 86400, "aggregate_temp_c": 20.0, "low_80": 19.0, "high_80": 21.0,
                     "load_kw": 50.0}  # fmt: skip
            record.add_forecast(now, "0" * 16, {"origin": now, "step_seconds": 1800, "columns": columns}, ahead)
            if hour % 24 == 0:
                row = ModelRow(hash=f"{hour:016d}", made=now, chosen=0.0, agents=homes, why="updated with 48 rows")
                record.add_model(row, "x" * MODEL_BYTES[0], "x" * MODEL_BYTES[1])
                record.decide(now, "model", "updated with 48 rows: order 3, weekdays and weekends apart, chosen")
    return (folder / "desk.sqlite").stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--homes", type=int, default=40)
    parser.add_argument("--days", type=int, default=365)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{given.homes} homes, {given.days} days: {year(Path(folder), given.homes, given.days) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
