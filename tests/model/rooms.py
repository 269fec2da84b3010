"""Released rows of a building that is known: air and mass, heated by a plan, or by a thermostat that follows it."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from atdm.data.clock import segments
from atdm.kernel.design import Inputs
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.types import FloatArray

# the building: two real roots, an outdoor gain of 0.9 and 0.5 K per kW for ever, half-hours
ALPHA = np.array([1.45, -0.455])
GAIN_LOAD, GAIN_OUTDOOR = 0.5, 0.9
LASTING = 1.0 - ALPHA.sum()
BETA = GAIN_LOAD * LASTING * np.array([0.5, 0.3, 0.2])
GAMMA = GAIN_OUTDOOR * LASTING * np.array([0.4, 0.4, 0.2])
THETA = np.array([0.05, 0.05, 0.0])


class Rows(NamedTuple):
    inputs: Inputs
    state: FloatArray
    time: pd.DatetimeIndex
    calendar: Calendar
    truth: Coefficients


def rows(*, days: int = 24, excited: float = 3.0, follows: float = 0.0, noise: float = 0.02, seed: int = 0) -> Rows:
    """`excited`: how much of the load nothing explains [kW]; `follows`: kW per K by which it answers temperature."""
    rng = np.random.default_rng(seed)
    n = 48 * days
    time = pd.date_range("2024-01-01", periods=n, freq="30min", tz="UTC")
    calendar = Calendar(step=pd.Timedelta("30min"), timezone="UTC", season=48)
    hour = np.asarray(time.hour) + np.asarray(time.minute) / 60
    outdoor = 2 + 4 * np.sin(2 * np.pi * (hour - 9) / 24) + np.cumsum(rng.normal(0, 0.25, n))
    solar = np.clip(np.sin(2 * np.pi * (hour - 6) / 24), 0, None) * rng.uniform(0.05, 0.4, n)
    profile = 0.01 * np.sin(2 * np.pi * np.arange(48) / 48)
    truth = Coefficients(alpha=ALPHA, beta=BETA, gamma=GAMMA, theta=THETA, occupancy=profile)
    wish = 20 + 1.0 * ((hour >= 6) & (hour < 22))
    state, load = np.full(n, 20.0), np.full(n, 35.0)
    steps = np.repeat(rng.normal(0, excited, -(-n // 8)), 8)[:n]  # blocks of four hours
    for t in range(2, n):
        need = (wish[t] - GAIN_OUTDOOR * outdoor[t]) / GAIN_LOAD
        load[t] = max(need + follows * (wish[t] - state[t - 1]) + steps[t], 0.0)
        pull = BETA @ load[t - 2 : t + 1][::-1] + GAMMA @ outdoor[t - 2 : t + 1][::-1]
        pull += THETA @ solar[t - 2 : t + 1][::-1] + profile[t % 48]
        state[t] = ALPHA @ state[t - 2 : t][::-1] + pull + rng.normal(0, noise)
    inputs = Inputs(load=load, outdoor=outdoor, solar=solar, phase=calendar.phase(time),
                    segment=segments(time, calendar.step), period=48, train=int(0.8 * n))  # fmt: skip
    return Rows(inputs, state, time, calendar, truth)
