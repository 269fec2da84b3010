"""What readings must look like, and what is odd about them.

A *fault* stops a fit: another unit, or a value no room has (an error code). An *oddity* is only said.
Rule: nothing is clipped, filled or converted here; a message names the conversion and the person makes it. Readings
are judged as they came: a home's own gaps of up to 2 h are filled after that (gaps.py), and nothing else is imputed.
Frames have one column per agent (or the one column "" for weather, which belongs to no agent); NaN is no reading.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from atdm.data.clock import spell, stamp
from atdm.data.limits import DARK_PEAK, LOAD_KW, OTHER_TEMPERATURES, SOLAR_W_M2, WATT_PEAK
from atdm.types import IntArray

WATT_RATIO = 300.0  # an agent that peaks this many times above the median one is taken for watts [-]
STUCK_HOURS = 24.0  # rooms drift by the resolution of a fine sensor within a day
STUCK_HOURS_COARSE = 72.0  # and by half a degree within three
COARSE_K = 0.3  # resolution from which a sensor is coarse [K]
SPIKE_K = 10.0  # a jump per step that no heater makes [K]
SET_POINT_LEVELS = 12  # a series with more distinct values is measured
SET_POINT_JUMP_K = 1.0  # a set-point changes by that much at once, a room does not [K]
HEATED_OUTDOOR_C = 24.0  # nobody heats when it is that warm outside, on half of the occasions [°C]
OUTDOOR_RANGE_K = 45.0  # the outdoor temperature of a month moves within less [K]


class Finding(NamedTuple):
    """Something about some agents: `short` for a table cell, `text` for a line of its own."""

    agents: tuple[str, ...]
    short: str
    text: str
    unit: str | None = None  # the values look like, where that is what is wrong
    value: float | None = None  # the first that is out of bounds, where that is what is wrong


def temperature_faults(frame: pd.DataFrame, where: str, bounds: tuple[float, float]) -> Iterator[Finding]:
    """Temperatures in °F or K, or outside `bounds`. [°C]"""
    median = frame.median()
    for low, high, unit, conversion in OTHER_TEMPERATURES:
        if agents := _chosen(median.between(low, high)):
            text = f"{where}{_of(agents)} has median {median[agents[0]]:.1f}, looks like {unit}, not °C: {conversion}"
            yield Finding(agents, f"looks like {unit}", text, unit)
            frame = frame.drop(columns=list(agents))  # one cause is enough
    tenths = (frame.abs().quantile(0.9) > max(bounds)) & (frame.abs().quantile(0.9) < 10 * max(bounds))
    if agents := _chosen(tenths & (frame.where(frame % 1 != 0).count() == 0)):
        text = f"{where}{_of(agents)} has whole numbers beyond {max(bounds):g}, looks like 0.1°C, not °C: divide by 10"
        yield Finding(agents, "looks like 0.1°C", text, "0.1°C")
        frame = frame.drop(columns=list(agents))
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
        yield Finding(agents, "looks like W", text, "W")
        frame = frame.drop(columns=list(agents))
    yield from outside(frame, where, LOAD_KW, "kW")


def solar_faults(solar: pd.DataFrame, where: str, span: pd.Timedelta) -> Iterator[Finding]:
    """Solar irradiance in kW/m², or beyond the sun. `span`: the time covered. [W/m²]"""
    peak = float(solar.max().max())
    if 0.0 < peak < DARK_PEAK and span >= pd.Timedelta(days=1):  # a short night may be that dark
        text = f"{where} peaks at {peak:.3g}, looks like kW/m², not W/m²: multiply by 1000"
        yield Finding((), "looks like kW/m²", text, "kW/m²")
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
        yield Finding(agents, f"outside {low:g} to {high:g} {unit}", text, value=float(values.loc[first]))


def oddities(temperature: pd.DataFrame, load: pd.DataFrame, segment: IntArray, step: pd.Timedelta) -> Iterator[Finding]:
    """Stuck, jumping or copied series: worth a look, no reason to refuse."""
    hours = stuck_hours(temperature, segment, step)
    levels = {agent: np.unique(temperature[agent].dropna()) for agent in temperature.columns}
    coarse = pd.Series({agent: len(own) > 1 and float(np.diff(own).min()) >= COARSE_K for agent, own in levels.items()})
    if agents := _chosen(hours > np.where(coarse, STUCK_HOURS_COARSE, STUCK_HOURS)):
        yield Finding(
            agents, "stuck", f"the temperature of {listed(agents)} does not change for more than a day: stuck?"
        )
    if agents := tuple(str(agent) for agent, own in levels.items() if _is_set_point(temperature[agent], own)):
        text = f"the temperature of {listed(agents)} only jumps between {len(levels[agents[0]])} values: a set-point?"
        yield Finding(agents, "set-point", text)
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


def _is_set_point(temperature: pd.Series, levels: np.ndarray) -> bool:
    """Whether a series jumps by a degree and more between few values: rooms, by a coarse sensor, go step by step."""
    if not 2 <= len(levels) <= SET_POINT_LEVELS:
        return False
    moves = temperature.dropna().diff().abs()
    moves = moves[moves > 0]
    return bool((moves >= SET_POINT_JUMP_K).mean() > 0.5 and len(moves) < 0.25 * len(temperature))


def unlike_the_rest(load: pd.DataFrame) -> Iterator[Finding]:
    """Loads so much below those of the others that they may be in another unit. [kW]"""
    size = load.abs()
    peak = size.where(size > 0).quantile(0.99, interpolation="lower")
    if len(peak) > 2 and (agents := _chosen(peak * WATT_RATIO < peak.median())):
        text = (
            f"the load of {listed(agents)} peaks at {peak[agents[0]]:.3g} kW, that of the median home at "
            f"{peak.median():.3g} kW: in another unit than the rest?"
        )
        yield Finding(agents, "other unit", text)


def outdoor_oddities(outdoor: pd.Series, load: pd.DataFrame | None) -> Iterator[Finding]:
    """Outdoor temperatures that may be °F: warm while homes heat, or moving more than any month does. [°C]"""
    if load is not None:
        total = load.mean(axis="columns").reindex(outdoor.index)
        heated = outdoor[total > 0.25 * total.max()]
        if len(heated) and heated.median() > HEATED_OUTDOOR_C:
            warm = f"{heated.median():.1f} (median) while homes heat"
            text = f"the outdoor temperature is {warm}: looks like °F or tenths, not °C"
            yield Finding((), "looks like °F", text, "°F")
            return
    time = pd.DatetimeIndex(outdoor.index)
    if len(time) < 2:
        return
    month = outdoor.groupby((time - time[0]) // pd.Timedelta("30D"))
    if (spread := float((month.max() - month.min()).max())) > OUTDOOR_RANGE_K:
        text = f"the outdoor temperature moves by {spread:.0f} K within a month: looks like °F or tenths, not °C"
        yield Finding((), "looks like °F", text, "°F")


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
