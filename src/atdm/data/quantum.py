"""The step of a temperature sensor, found in the values it gave.

An agent's dither is as wide as a share of that step. Means over a row hide it, so whoever makes means looks for it in
the values they are made of. (protocol/readings.py looks for it in rows that are not means, in the same way.)
"""

import numpy as np

from atdm.types import FloatArray

LEAST = 1e-4  # °C; finer steps are not looked for
UNKNOWN, MOST = 0.1, 2.0  # °C; the step of a sensor of which little was seen and that looks finer, and the largest
TELLING = 10  # different values, from which on they tell the step


def sensor_quantum(values: FloatArray) -> float:
    """The commonest smallest gap between distinct values of one sensor, 1e-4 to 2; 0 where it gave none. [°C]

    values: in any order; NaN: none [°C].
    """
    distinct = np.unique(np.rint(values[~np.isnan(values)] / LEAST))
    if not len(distinct):
        return 0.0
    gaps, counts = np.unique(np.diff(distinct), return_counts=True)
    found = float(gaps[np.argmax(counts)]) * LEAST if len(gaps) else LEAST
    return min(found if len(distinct) >= TELLING else max(found, UNKNOWN), MOST)


def said(quantum: float) -> str:
    """A step in words, to the last digit that is looked for."""
    return f"{round(quantum, 4):g} °C"
