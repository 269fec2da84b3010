"""A year of weather and of homes that live in it, from a seed: what the year's rehearsal (year.py) takes readings from.

A home is two capacities, air and walls, behind one loss coefficient; its heating follows a thermostat. Loss and
thermostat are those of a zone of the bundled sample: its mean load over the mean difference to outdoors, and its mean
temperature by half-hour on weekdays and weekends. The rest is drawn. In summer nobody heats, and windows are opened.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.signal import lfilter

import atdm
from atdm.types import FloatArray, IntArray

DAY = 86400  # s
INNER = 600  # s of one step of the simulation
LATITUDE = np.radians(42.0)


@dataclass(frozen=True, slots=True, eq=False)
class Town:
    """Truth, by stamp and home."""

    time: IntArray  # s since 1970, on the grid of the readings
    outdoor: FloatArray  # °C
    solar: FloatArray  # kW/m²
    names: tuple[str, ...]
    temperature: FloatArray  # °C, stamps × homes; as a sensor with steps of 0.01 °C shows it
    load: FloatArray  # kW, stamps × homes; to 1 W

    def weather(self) -> pd.DataFrame:
        """As files have it."""
        index = pd.to_datetime(self.time, unit="s", utc=True).as_unit("ns").rename("time")
        return pd.DataFrame(
            {"outdoor_temp_c": self.outdoor.round(2), "solar_w_m2": (1000 * self.solar).round(1)}, index
        )


def build(first_day: int, days: int, homes: int, seed: int, step: int) -> Town:
    """Homes from midnight of a UTC day on; step: of the readings  [s]."""
    rng = np.random.default_rng((seed, days, homes))
    inner = first_day * DAY + np.arange(0, days * DAY, INNER, dtype=np.int64)
    outdoor, solar = _weather(inner, rng)
    names, temperature, load = _live(inner, outdoor, solar, homes, rng)
    each = step // INNER  # a reading is the temperature at its stamp, and the mean of power and weather after it
    mean = [values.reshape(-1, each, *values.shape[1:]).mean(axis=1) for values in (outdoor, solar, load)]
    return Town(inner[::each], mean[0], mean[1], names, temperature[::each].round(2), mean[2].round(3))


def _smooth(rng: np.random.Generator, count: int, steps: float) -> FloatArray:
    """Noise of unit variance that forgets itself in so many steps."""
    keep = np.exp(-1 / steps)
    noise = rng.normal(0, np.sqrt(1 - keep**2), count)
    values: FloatArray = lfilter([1.0], [1.0, -keep], noise, zi=[keep * rng.normal()])[0]
    return values


def _weather(time: IntArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Seasons of a continental climate, days, fronts and clouds."""
    year, hour = 2 * np.pi * (time / DAY % 365.25) / 365.25, time % DAY / 3600
    winter = np.cos(year - 2 * np.pi * 18 / 365.25)  # coldest on 18 January
    fronts, clouds = _smooth(rng, len(time), 60 * 3600 / INNER), _smooth(rng, len(time), 24 * 3600 / INNER)
    clear = 1 / (1 + np.exp(1.5 * clouds))
    tilt = -np.radians(23.4) * np.cos(year + 2 * np.pi * 10 / 365.25)
    height = np.sin(LATITUDE) * np.sin(tilt) + np.cos(LATITUDE) * np.cos(tilt) * np.cos(2 * np.pi * (hour - 12) / 24)
    solar = np.clip(height, 0, None) * (0.15 + 0.75 * clear)
    swing = (2.0 + 4.0 * clear) * np.cos(2 * np.pi * (hour - 15) / 24)
    return 9.5 - 14.0 * winter + (5.0 + 1.5 * winter) * fronts + swing, solar


def _live(
    time: IntArray, outdoor: FloatArray, solar: FloatArray, homes: int, rng: np.random.Generator
) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
    """Temperature of the air and heating power of every home."""
    sample = atdm.load_sample()
    zones = list(sample.agents)[:homes]
    known, slot = sample.temperature[zones], 2 * sample.time.hour + sample.time.minute // 30
    weekend = sample.time.day_of_week >= 5
    profile = np.stack([known[weekend == kind].groupby(slot[weekend == kind]).mean() for kind in (False, True)])
    loss = (sample.load[zones].mean() / (known.mean() - sample.outdoor.mean())).to_numpy().clip(0.03, 0.2)  # kW/K
    n = len(zones)
    air, wall = loss * rng.uniform(6, 14, n), loss * rng.uniform(40, 90, n)  # kWh/K
    inside = loss * rng.uniform(3, 6, n)  # between air and walls  [kW/K]
    window = loss * rng.uniform(5, 25, n)  # m²
    most, people = loss * rng.uniform(45, 60, n), loss * rng.uniform(1.0, 4.0, n)  # kW
    shift = rng.integers(-3, 4, n)  # half-hours by which a home lives earlier or later
    mood = np.stack([_smooth(rng, len(time), 12 * 3600 / INNER) for _ in range(n)], axis=1)
    hours = INNER / 3600
    t_air, t_wall = profile[0, 0].copy(), profile[0].mean(axis=0)
    temperature, load = np.empty((len(time), n)), np.empty((len(time), n))
    half_hour = time // 1800 % 48
    weekday = ((time // DAY + 3) % 7 >= 5).astype(int)  # 1970 began on a Thursday
    column = np.arange(n)
    for i in range(len(time)):
        wanted = profile[weekday[i], (half_hour[i] + shift) % 48, column] + 0.2 * mood[i]
        heat = np.clip(2.0 * loss * 10 * (wanted - t_air), 0, most)
        open_windows = loss * (1 + 3 * np.clip(t_air - 24.5, 0, 2))
        gains = people * (1.0 + 0.5 * np.sin(2 * np.pi * (half_hour[i] - 26) / 48)) + 0.6 * window * solar[i]
        temperature[i], load[i] = t_air, heat
        to_air = open_windows * (outdoor[i] - t_air) + inside * (t_wall - t_air) + heat + gains
        t_wall = t_wall + hours * (inside * (t_air - t_wall) + 0.4 * window * solar[i]) / wall
        t_air = t_air + hours * to_air / air
    return tuple(f"home{i:02d}" for i in range(n)), temperature, load
