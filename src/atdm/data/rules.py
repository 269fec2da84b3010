"""What readings must look like, and what is odd about them.

A *fault* stops a fit: another unit, or a value no room has (an error code). An *oddity* is only said.
Rule: nothing is clipped, filled or converted here; a message names the conversion and the person makes it. Readings
are judged as they came: a home's own gaps of up to 2 h are filled after that (gaps.py), and nothing else is imputed.
Frames have one column per agent (or the one column "" for weather, which is nobody's); NaN is no reading.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from atdm.data.clock import spell, stamp
from atdm.types import IntArray

INDOOR_C = (-30.0, 70.0)  # the usual error codes -40, 85 and 127 lie outside
OUTDOOR_C = (-60.0, 60.0)
LOAD_KW = (-10_000.0, 10_000.0)
SOLAR_W_M2 = (-20.0, 1500.0)  # pyranometers read a little below 0 at night; the solar constant is 1361

WATT_PEAK = 500.0  # a median agent that peaks above this is taken for watts [kW]
WATT_RATIO = 300.0  # so is one agent that peaks this many times above the median one [-]
DARK_PEAK = 2.0  # a day or more that peaks below this is taken for kW/m² [W/m²]
STUCK_HOURS = 24.0  # rooms drift by a sensor's resolution within a day
SPIKE_K = 10.0  # a jump per step that no heater makes [K]


class Finding(NamedTuple):
    """Something about some agents: `short` for a table cell, `text` for a line of its own."""

    agents: tuple[str, ...]
    short: str
    text: str


def temperature_faults(frame: pd.DataFrame, where: str, bounds: tuple[float, float]) -> Iterator[Finding]:
    """Temperatures in °F or K, or outside `bounds`. [°C]"""
    median = frame.median()
    for low, high, unit, conversion in (
        (50.0, 110.0, "°F", "convert with (F - 32) / 1.8"),
        (250.0, 320.0, "K", "subtract 273.15"),
    ):
        if agents := _chosen(median.between(low, high)):
            text = f"{where}{_of(agents)} has median {median[agents[0]]:.1f}, looks like {unit}, not °C: {conversion}"
            yield Finding(agents, f"looks like {unit}", text)
            frame = frame.drop(columns=list(agents))  # one cause is enough
    yield from outside(frame, where, bounds, "°C")


def load_faults(frame: pd.DataFrame, where: str) -> Iterator[Finding]:
    """Loads in W, or beyond any building. [kW]"""
    size = frame.abs()
    peak = size.where(size > 0).quantile(0.99, interpolation="lower")  # an error code or two are no peak
    typical = float(peak.median())
    if typical > WATT_PEAK:
        watts = peak > WATT_PEAK
    else:
        watts = (peak > WATT_RATIO) & (peak > WATT_RATIO * typical)
    if agents := _chosen(watts):
        text = (
            f"{where}{_of(agents)} peaks at {peak[agents[0]]:.0f}, looks like W, not kW: "
            "divide by 1000 (an agent that large in kW: give its zones as agents)"
        )
        yield Finding(agents, "looks like W", text)
        frame = frame.drop(columns=list(agents))
    yield from outside(frame, where, LOAD_KW, "kW")


def solar_faults(solar: pd.DataFrame, where: str, span: pd.Timedelta) -> Iterator[Finding]:
    """Solar irradiance in kW/m², or beyond the sun. `span`: the time covered. [W/m²]"""
    peak = float(solar.max().max())
    if 0.0 < peak < DARK_PEAK and span >= pd.Timedelta(days=1):  # a short night may be that dark
        text = f"{where} peaks at {peak:.3g}, looks like kW/m², not W/m²: multiply by 1000"
        yield Finding((), "looks like kW/m²", text)
    yield from outside(solar, where, SOLAR_W_M2, "W/m²")


def outside(frame: pd.DataFrame, where: str, bounds: tuple[float, float], unit: str) -> Iterator[Finding]:
    """Values out of bounds, the earliest named."""
    low, high = bounds
    beyond = (frame < low) | (frame > high)
    if agents := _chosen(beyond.any()):
        values = frame[agents[0]]
        first = values.index[beyond[agents[0]].to_numpy()][0]
        text = (
            f"{where}{_of(agents)} is {values.loc[first]:g} at {stamp(first)}, outside {low:g} to {high:g} {unit}: "
            "check the unit; if it is a sensor's error code, leave the cell empty"
        )
        yield Finding(agents, f"outside {low:g} to {high:g} {unit}", text)


def oddities(temperature: pd.DataFrame, load: pd.DataFrame, segment: IntArray, step: pd.Timedelta) -> Iterator[Finding]:
    """Stuck, jumping or copied series: worth a look, no reason to refuse."""
    hours = stuck_hours(temperature, segment, step)
    if agents := _chosen(hours > STUCK_HOURS):
        yield Finding(
            agents, "stuck", f"the temperature of {listed(agents)} does not change for more than a day: stuck?"
        )
    if agents := _chosen(load.nunique() == 1):
        yield Finding(agents, "constant load", f"the load of {listed(agents)} is constant: not metered?")
    jump = temperature.diff()[np.diff(segment, prepend=-1) == 0].abs().max()
    if agents := _chosen(jump > SPIKE_K):
        text = f"the temperature of {listed(agents)} jumps by more than {SPIKE_K:g} K in {spell(step)}: spikes?"
        yield Finding(agents, "spikes", text)
    alike: dict[bytes, list[str]] = {}
    for agent in temperature.columns:
        alike.setdefault(temperature[agent].to_numpy().tobytes(), []).append(str(agent))
    for group in alike.values():
        if len(group) > 1:
            text = f"the temperatures of {listed(group)} are identical: one sensor under several names?"
            yield Finding(tuple(group), "identical to another agent", text)


def weather_oddities(weather: pd.DataFrame) -> Iterator[Finding]:
    """Weather that does not change."""
    for name in weather.columns[(weather.nunique() == 1).to_numpy()]:
        yield Finding((), "constant", f"{name} is constant: not measured?")


def stuck_hours(frame: pd.DataFrame, segment: IntArray, step: pd.Timedelta) -> pd.Series:
    """Longest time each column stays at one value within a segment. [h]"""
    values = frame.to_numpy()
    run = np.zeros(values.shape[1])
    longest = run.copy()
    for row in range(1, len(values)):
        same = (values[row] == values[row - 1]) & (segment[row] == segment[row - 1])
        run = (run + 1.0) * same
        np.maximum(longest, run, out=longest)
    return pd.Series(longest * (step / pd.Timedelta(hours=1)), index=frame.columns)


def listed(agents: Sequence[str]) -> str:
    """Some agents in words, the first five by name."""
    named = ", ".join(repr(agent) for agent in agents[:5])
    return named + (f" and {len(agents) - 5} more" if len(agents) > 5 else "")


def _chosen(mask: pd.Series) -> tuple[str, ...]:
    return tuple(str(agent) for agent in mask.index[mask.to_numpy(dtype=bool)])


def _of(agents: Sequence[str]) -> str:
    if agents[0] == "":
        return ""
    return f" of agent {agents[0]!r}" + (f" and {len(agents) - 1} more" if len(agents) > 1 else "")
