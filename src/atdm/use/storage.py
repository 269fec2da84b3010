"""The cluster as one leaky store of heat, for programs that plan with storages: FlexMeasures, S2.

Over a horizon the planning model's temperature is s_t = s⁰_t + Σ_k h_k f_{t−k} u_{t−k}, with s⁰ its run without load,
h its response to heat [K/kW], u the load [kW] and f the heat of one kW of load (1 unless the load is electricity). Of h
the slowest mode is the store: its root z and its residue b [K/kW], so that b z^k is its part of h_k. The level m of the
store starts at the temperature of now, and falls without load as the model's temperature does. With T the temperature
that the store is counted from [°C],

    (8)   m_t − T = z (m_{t−1} − T) + b (f_t u_t − n_t),     n_t = (z (s⁰_{t−1} − T) − (s⁰_t − T))/b   [kW]

so the store keeps the share z of what is above T in each step, loses the use n_t and gains the load. What the other
modes add, s_t − m_t = Σ_k (h_k − b z^k) f_{t−k} u_{t−k}, is between e_low,t and e_high,t for all loads within their
limits. So

    (9)   comfort_low − e_low,t ≤ m_t ≤ comfort_high − e_high,t

keeps comfort in the model, whatever the load: nothing is approximated. Loads that keep comfort without (9) are not
offered; the higher the limit of the load, the more of them there are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from atdm.kernel.design import lagged_rows
from atdm.model.diagnostics import impulse_filter, roots
from atdm.model.fitted import Model
from atdm.model.released import Released
from atdm.types import FloatArray

LEVELS = {"68": 0.68, "95": 0.95}  # of the bands of one step, as S2 names them
BESIDE = 0.1  # K that the range is wider than what can be reached, so that rounding leaves nothing outside


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Storage:
    """Eq. (8) and (9) over one horizon.

    Attributes
    ----------
    time : pandas.DatetimeIndex
        Of the free steps: each begins at its stamp.
    step : pandas.Timedelta
        Length of one.
    level : float
        m at the start: the aggregate temperature then [°C].
    low : array of float
        Least level at the end of each step, Eq. (9) [°C].
    high : array of float
        Highest level at the end of each step, Eq. (9) [°C].
    range : tuple of float
        Whole degrees below and above all that the load's limits can reach; the store is counted from the first [°C].
    power : tuple of float
        Limits of the load [kW].
    retention : float
        z: share kept per step [-].
    gain : float
        b: rise of the level by one kW of heat during one step [K/kW].
    heat : array of float
        f, by step: heat of one kW of load; ones where the load is heat [-].
    need : array of float
        n, by step: heat that holds the temperature the store is counted from; negative where that needs cooling [kW].
    off : dict
        "68", "95" → between which values the model was off in that share of the steps of its training rows [K].
    """

    time: pd.DatetimeIndex
    step: pd.Timedelta
    level: float
    low: FloatArray
    high: FloatArray
    range: tuple[float, float]
    power: tuple[float, float]
    retention: float
    gain: float
    heat: FloatArray
    need: FloatArray
    off: dict[str, tuple[float, float]]

    @property
    def hours(self) -> float:
        """Length of one step. [h]"""
        return self.step.total_seconds() / 3600

    @property
    def capacity(self) -> float:
        """Heat that raises the level by 1 K within one step. [kWh/K]"""
        return self.hours / self.gain

    def run(self, load: FloatArray) -> FloatArray:
        """The level at the end of each step.

        Parameters
        ----------
        load : array of float
            By step [kW].

        Returns
        -------
        array of float
            By step [°C].
        """
        return _run(self.level, self.range[0], self.retention, self.gain * (self.heat * load - self.need))

    def as_dict(self) -> dict[str, Any]:
        """The store for JSON."""
        return {
            "level_c": self.level, "low_c": self.low.tolist(), "high_c": self.high.tolist(),
            "range_c": list(self.range), "kwh_per_k": self.capacity, "kept_per_step": self.retention,
            "heat_of_one_kw": self.heat.tolist(), "need_kw": self.need.tolist(),
            "off_k": {level: list(ends) for level, ends in self.off.items()},
        }  # fmt: skip


def equivalent_storage(
    model: Model,
    time: pd.DatetimeIndex,
    unheated: FloatArray,
    heat: FloatArray,
    comfort: tuple[float, float],
    power: tuple[float, float],
    rows: Released,
    stop: int,
) -> Storage | None:
    """Eq. (8) and (9) of a planning model; unheated: the temperature now and then s⁰ by step [°C]; heat: f by step.

    None where the load cools, where more heat does not warm in the slowest mode, or where Eq. (9) leaves nothing of
    comfort. How far the model is off is judged by the first `stop` of the rows it comes from.
    """
    poles, steps = roots(model.alpha), np.arange(len(time))
    if power[0] < 0 or abs(poles[0].imag) > 0 or not 0 < poles[0].real < 1:
        return None
    z = float(poles[0].real)
    residue = model.beta @ z ** -np.arange(len(model.beta)) / np.prod(1.0 - poles[1:] / z)  # partial fractions
    b = float(np.real(residue))
    if b <= 0:
        return None
    response = impulse_filter(model.alpha, np.concatenate([model.beta, np.zeros(len(time))])[: len(time)])
    rest = response - b * z**steps  # of the other modes, by steps ago
    least, most = (limit * heat for limit in power)
    low, high = comfort[0] - _added(rest, least, most), comfort[1] - _added(rest, most, least)  # Eq. (9)
    if (low >= high).any():
        return None
    level = float(unheated[0])
    reached = [_run(level, 0.0, z, b * heat * limit + unheated[1:] - z * unheated[:-1]) for limit in power]
    bottom = float(np.floor(min(reached[0].min(), level, low.min()) - BESIDE))
    above = unheated - bottom
    return Storage(
        time=time,
        step=model.step,
        level=level,
        low=low,
        high=high,
        range=(bottom, float(np.ceil(max(reached[1].max(), level, high.max()) + BESIDE))),
        power=power,
        retention=z,
        gain=b,
        heat=heat,
        need=(z * above[:-1] - above[1:]) / b,
        off=_off(model, rows, stop),
    )


def _added(rest: FloatArray, where_warming: FloatArray, where_cooling: FloatArray) -> FloatArray:
    """What the other modes add for one heat where they warm, another where they cool: e_low or e_high. [K]"""
    count = len(rest)
    answer: FloatArray = (
        np.convolve(rest.clip(min=0), where_warming)[:count] + np.convolve(rest.clip(max=0), where_cooling)[:count]
    )
    return answer


def _run(level: float, base: float, retention: float, push: FloatArray) -> FloatArray:
    """Eq. (8): the level after each step, for what each adds. [°C]"""
    above, found = level - base, np.empty(len(push))
    for t, change in enumerate(push.tolist()):
        above = retention * above + change
        found[t] = above
    return found + base


def _off(model: Model, rows: Released, stop: int) -> dict[str, tuple[float, float]]:
    """Temperature less what the model makes of the steps before, over the training rows: ends of middle shares. [K]"""
    c, inputs = model.coefficients, rows.inputs(model.calendar, stop)
    at = lagged_rows(inputs.segment, c.order, 0, stop)
    memory = np.stack([rows.state[at - m] for m in range(1, c.order + 1)], axis=1)
    errors = rows.state[at] - memory @ c.alpha - c.forcing(inputs, at)
    return {
        name: (float(np.quantile(errors, (1 - share) / 2)), float(np.quantile(errors, (1 + share) / 2)))
        for name, share in LEVELS.items()
    }
