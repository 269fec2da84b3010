"""An agent's account of how much of it has been seen, row by row; charged before anything is sent.

A total over some rows with this agent's coefficient q counts one on each of them and adds q² to their leverage,
whoever else was in the sum and whether or not the total ever came back.
"""

from dataclasses import dataclass, field

import numpy as np

from atdm.kernel.design import FloatArray, IntArray
from atdm.protocol.readings import positions


@dataclass(slots=True)
class Exposure:
    time: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    totals: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    leverage: FloatArray = field(default_factory=lambda: np.empty(0))
    released: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def worst(self, rows: IntArray) -> tuple[int, float]:
        """Most totals and most leverage on any of these rows so far."""
        at = positions(self.time, rows)
        at = at[at >= 0]
        return (int(self.totals[at].max()), float(self.leverage[at].max())) if len(at) else (0, 0.0)

    def charge(self, rows: IntArray, q: float) -> None:
        """Book one total before its first word leaves."""
        if np.array_equal(rows, self.time):
            self.totals, self.leverage = self.totals + 1, self.leverage + q * q
            return
        time = np.union1d(self.time, rows)
        old, new = np.searchsorted(time, self.time), np.searchsorted(time, rows)
        totals, leverage = np.zeros(len(time), dtype=np.int64), np.zeros(len(time))
        totals[old], leverage[old] = self.totals, self.leverage
        totals[new] += 1
        leverage[new] += q * q
        self.time, self.totals, self.leverage = time, totals, leverage

    def unreleased(self, rows: IntArray) -> IntArray:
        """Rows of the aggregate state and load that no release has shown yet."""
        return np.setdiff1d(rows, self.released)

    def release(self, rows: IntArray) -> None:
        self.released = np.union1d(self.released, rows)
