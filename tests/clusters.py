"""Small clusters made from a known model."""

import numpy as np
import pandas as pd

from atdm.data import Cluster


def tiny(seed: int = 0, *, agents: int = 12, rows: int = 80, step: str = "6h", owners: int | None = None) -> Cluster:
    """A few agents that answer the same weather with gains of their own; four steps a day unless said otherwise."""
    rng = np.random.default_rng(seed)
    time = pd.date_range("2024-01-01", periods=rows, freq=step, tz="UTC", name="time")
    hours = time.hour.to_numpy() + 24.0 * np.arange(rows) / 24
    outdoor = 5 + 4 * np.sin(2 * np.pi * hours / 24) + rng.normal(0, 1.5, rows).cumsum() * 0.3
    solar = np.clip(np.sin(2 * np.pi * (time.hour.to_numpy() - 6) / 24), 0, None) * rng.uniform(0.1, 0.5, rows) + 0.01
    load = rng.gamma(2.0, 0.5, (rows, agents))
    keep, gain = rng.uniform(0.6, 0.8, agents), rng.uniform(0.8, 1.6, agents)
    temperature = np.empty((rows, agents))
    temperature[0] = rng.normal(20, 1, agents)
    for t in range(1, rows):
        pull = 3.5 + 0.08 * outdoor[t] + gain * load[t] + 2.0 * solar[t] + 0.1 * rng.normal(size=agents)
        temperature[t] = keep * temperature[t - 1] + (1 - keep) * (pull + 14.0)
    names = pd.Index([f"zone{i:02d}" for i in range(agents)], name="agent")
    owner = pd.Series([f"home{i % (owners or agents)}" for i in range(agents)], index=names)
    return Cluster.from_frames(
        pd.DataFrame(np.round(temperature, 2), index=time, columns=names),
        pd.DataFrame(np.round(load, 3), index=time, columns=names),
        pd.Series(outdoor, index=time),
        pd.Series(solar, index=time),
        owner=owner,
    )
