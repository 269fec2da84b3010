"""The cluster as one leaky store of heat, for programs that plan with storages: FlexMeasures, S2.

Of the planning model one mode is kept, that of its slowest root z; the others count as settled. With
w = Π_{i≠slow}(1 − z_i), b = Σβ/w [K/kW], f_t the heat of one kW of load (1 unless the load is electricity) and T the
temperature that the store is counted from [°C],

    (8)   s_t − T = z (s_{t−1} − T) + b (f_t u_t − n_t),     n_t = (T (1−Σα) − Σγ o_t − Σθ r_t − occ_t)/Σβ   [kW]

n_t is the heat that holds T in the weather of step t, so that the store keeps the share z of what is above T in each
step, loses the use n_t and gains the load. Which T is taken changes no temperature: (1−Σα)/w = 1−z.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from atdm.kernel.design import Inputs
from atdm.model.diagnostics import roots
from atdm.model.fitted import Model
from atdm.model.released import Released
from atdm.types import FloatArray

LEVELS = {"68": 0.68, "95": 0.95}  # of the bands of one step, as S2 names them
BESIDE = 0.1  # K that the range is wider than what can be reached, so that rounding leaves nothing outside


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Storage:
    """Eq. (8) over one horizon.

    Attributes
    ----------
    time : pandas.DatetimeIndex
        Of the free steps: each begins at its stamp.
    step : pandas.Timedelta
        Length of one.
    temperature : float
        Aggregate temperature at the start [°C].
    comfort : tuple of float
        Least and highest aggregate temperature [°C].
    range : tuple of float
        Whole degrees below and above all that the load's limits can reach; the store is counted from the first [°C].
    power : tuple of float
        Limits of the load [kW].
    retention : float
        z: share kept per step [-].
    gain : float
        b: warming by one kW of heat during one step [K/kW].
    heat : array of float
        f, by step: heat of one kW of load; ones where the load is heat [-].
    need : array of float
        n, by step: heat that holds the temperature the store is counted from; negative where that needs cooling [kW].
    off : dict
        "68", "95" → between which values Eq. (8) was off in that share of the steps of the training rows [K].
    """

    time: pd.DatetimeIndex
    step: pd.Timedelta
    temperature: float
    comfort: tuple[float, float]
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
        """Heat that warms the cluster by 1 K within one step. [kWh/K]"""
        return self.hours / self.gain

    def run(self, load: FloatArray) -> FloatArray:
        """Temperature at the end of each step. [°C]

        Parameters
        ----------
        load : array of float
            By step [kW].

        Returns
        -------
        array of float
            By step [°C].
        """
        level, found = self.temperature - self.range[0], np.empty(len(self.time))
        for t, push in enumerate((self.gain * (self.heat * load - self.need)).tolist()):
            level = self.retention * level + push  # Eq. (8)
            found[t] = level
        return found + self.range[0]

    def as_dict(self) -> dict[str, Any]:
        """The store for JSON."""
        return {
            "temperature_c": self.temperature, "range_c": list(self.range), "kwh_per_k": self.capacity,
            "kept_per_step": self.retention, "heat_of_one_kw": self.heat.tolist(), "need_kw": self.need.tolist(),
            "off_k": {level: list(ends) for level, ends in self.off.items()},
        }  # fmt: skip


def equivalent_storage(
    model: Model,
    frame: pd.DataFrame,
    temperature: float,
    comfort: tuple[float, float],
    power: tuple[float, float],
    rows: Released,
    stop: int,
) -> Storage | None:
    """Eq. (8) of a planning model for the weather of `frame` after its first M rows; None where it cools, or where more
    heat does not warm. How far it is off is judged by the first `stop` of the rows the model comes from."""
    poles, heat = roots(model.alpha), float(model.beta.sum())
    rest = float(np.real(np.prod(1.0 - poles[1:])))
    if heat <= 0 or rest <= 0 or power[0] < 0 or abs(poles[0].imag) > 0 or not 0 < poles[0].real < 1:
        return None
    retention, gain = float(poles[0].real), heat / rest
    inputs = model.inputs(np.zeros(len(frame)), frame)

    def counted_from(low: float, high: float) -> Storage:
        return Storage(
            time=pd.DatetimeIndex(frame.index[model.order :], name="time"),
            step=model.step,
            temperature=temperature,
            comfort=comfort,
            range=(low, high),
            power=power,
            retention=retention,
            gain=gain,
            heat=model.heat_of_one_kw(frame)[model.order :],
            need=_need(model, inputs, low)[model.order :],
            off=_off(model, retention, gain, rows, stop),
        )

    trial = counted_from(comfort[0], comfort[1])
    ends = [trial.run(np.full(len(trial.time), limit)) for limit in power]
    low = float(np.floor(min(*ends[0], temperature, comfort[0]) - BESIDE))
    return counted_from(low, float(np.ceil(max(*ends[1], temperature, comfort[1]) + BESIDE)))


def _need(model: Model, inputs: Inputs, temperature: float) -> FloatArray:
    """The heat that would hold a temperature if the inputs of a row lasted. [kW]"""
    others = (
        model.gamma.sum() * inputs.outdoor + model.theta.sum() * inputs.solar + model.occupancy[inputs.phase]
    )  # fmt: skip
    answer: FloatArray = (temperature * (1.0 - model.alpha.sum()) - others) / model.beta.sum()
    return answer


def _off(model: Model, retention: float, gain: float, rows: Released, stop: int) -> dict[str, tuple[float, float]]:
    """Temperature less what Eq. (8) makes of the step before, over the training rows: ends of its middle shares. [K]"""
    inputs = rows.inputs(model.calendar, stop)
    state, follows = rows.state[:stop], np.diff(inputs.segment[:stop]) == 0
    push = gain * (inputs.load - _need(model, inputs, 0.0))[1:stop]
    errors = (state[1:] - retention * state[:-1] - push)[follows]
    return {
        name: (float(np.quantile(errors, (1 - level) / 2)), float(np.quantile(errors, (1 + level) / 2)))
        for name, level in LEVELS.items()
    }
