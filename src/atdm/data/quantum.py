"""The step of a temperature sensor, found in the values it gave.

An agent's dither is as wide as a share of that step. Means over a row hide it, so whoever makes means looks for it in
the values they are made of; the agent itself looks in its rows.
"""

from collections.abc import Sequence

import numpy as np

from atdm.types import FloatArray

LEAST_QUANTUM = 1e-4  # °C; finer steps are not looked for
UNKNOWN_QUANTUM = 0.1  # °C; the step of a sensor of which little was seen and that looks finer,
MOST_QUANTUM = 2.0  # °C; and the largest
TELLING = 10  # different values, from which on they tell the step


def sensor_quantum(values: FloatArray) -> float:
    """The commonest smallest gap between distinct values of one sensor, 1e-4 to 2; 0 where it gave none. [°C]

    values: in any order; NaN: none [°C].
    """
    distinct = _distinct(values)
    if not len(distinct):
        return 0.0
    gaps, counts = np.unique(np.diff(distinct), return_counts=True)
    found = float(gaps[np.argmax(counts)]) * LEAST_QUANTUM if len(gaps) else LEAST_QUANTUM
    return min(found if len(distinct) >= TELLING else max(found, UNKNOWN_QUANTUM), MOST_QUANTUM)


def coarsest(several: Sequence[FloatArray]) -> float:
    """The largest step found in several sets of values of one sensor; 0 where it gave none. [°C]

    A set of few values, as there is after a purge, tells none: two states an hour apart may differ by anything.
    """
    telling = [values for values in several if len(_distinct(values)) >= TELLING]
    return max(map(sensor_quantum, telling), default=0.0) or sensor_quantum(np.concatenate([*several, np.zeros(0)]))


def coarser(quantum: float, temperature: FloatArray) -> float:
    """The step of a sensor of which so much was known before: never a finer one. A first hour in which it did not move
    looks finer than it is."""
    return max(quantum, sensor_quantum(temperature))


def _distinct(values: FloatArray) -> FloatArray:
    found: FloatArray = np.unique(np.rint(values[~np.isnan(values)] / LEAST_QUANTUM))
    return found


def said(quantum: float) -> str:
    """A step in words, to the last digit that is looked for."""
    return f"{round(quantum, 4):g} °C"
