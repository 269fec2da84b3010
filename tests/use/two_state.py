"""A cluster whose zones all follow one known two-state model: air and mass, exact discretisation."""

import numpy as np
import pandas as pd
from scipy.linalg import expm

from atdm.data import Cluster

AIR, MASS = 0.5, 6.0  # heat capacities                                      [kWh/K]
INNER, OUTER = 0.8, 5.0  # resistances air to mass, air to outdoors          [K/kW]
SUN = 1.5  # solar gain                                                       [kW per kW/m²]


def dynamics() -> np.ndarray:
    """dT/dt = A T + …, T = (air, mass). [1/h]"""
    return np.array([
        [-(1 / INNER + 1 / OUTER) / AIR, 1 / INNER / AIR],
        [1 / INNER / MASS, -1 / INNER / MASS],
    ])  # fmt: skip


def true_time_constants() -> np.ndarray:
    """Slowest first. [h]"""
    return np.sort(-1 / np.linalg.eigvals(dynamics()).real)[::-1]


def two_state(
    *, agents: int = 12, days: int = 30, step_hours: float = 0.5, noise: float = 0.01, seed: int = 0
) -> Cluster:
    """Zones of the model above under a noisy thermostat; `noise` disturbs their air from step to step. [K]"""
    rng = np.random.default_rng(seed)
    rows = round(days * 24 / step_hours)
    time = pd.date_range("2024-01-01", periods=rows, freq=pd.Timedelta(hours=step_hours), tz="UTC", name="time")
    hour = np.asarray(time.hour) + np.asarray(time.minute) / 60
    outdoor = 5 + 5 * np.sin(2 * np.pi * (hour - 9) / 24) + rng.normal(0, 0.4, rows).cumsum() * 0.5
    solar = np.clip(np.sin(2 * np.pi * (hour - 6) / 24), 0, None) * rng.uniform(0.05, 0.5, rows)
    plan = np.where((hour >= 6) & (hour < 22), 3.5, 2.0) + rng.normal(0, 1.0, rows)  # one signal moves all zones
    load = np.clip(plan[:, None] + rng.normal(0, 0.1, (rows, agents)), 0, None)

    a = dynamics()
    inputs = np.array([[1 / AIR, 1 / OUTER / AIR, SUN / AIR], [0.0, 0.0, 0.0]])
    both = expm(np.block([[a, inputs], [np.zeros((3, 5))]]) * step_hours)
    keep, push = both[:2, :2], both[:2, 2:]
    states = np.full((2, agents), 20.0)
    air = np.empty((rows, agents))
    for t in range(rows):
        air[t] = states[0]
        drive = np.vstack([load[t], np.full(agents, outdoor[t]), np.full(agents, solar[t])])
        states = keep @ states + push @ drive
        states[0] += rng.normal(0, noise, agents)
    names = pd.Index([f"zone{i:02d}" for i in range(agents)], name="agent")
    frame = {"index": time, "columns": names}
    return Cluster.from_frames(
        pd.DataFrame(air, **frame), pd.DataFrame(load, **frame), pd.Series(outdoor, index=time),
        pd.Series(solar, index=time),
    )  # fmt: skip
