"""The seam between an agent and wherever its home's readings are.

Promise: an agent asks a source for the rows since a stamp and for nothing else. Whoever has readings in a place of
their own writes a class with that one method and names it under the entry point group `atdm.sources` (docs/deploy.md).

Rule 1: rows are in our units, °C and kW, at the start of what they measure; NaN where there is no reading.
Rule 2: a source changes nothing where it reads, and shows no password, token or reading in its repr or an error.
Rule 3: it raises DataError, in one line with the way out, where it cannot read.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from atdm.data.seconds import stamp
from atdm.errors import DataError
from atdm.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows:
    """Readings of one home, by time. It has no repr: readings are private.

    Parameters
    ----------
    time : array of int
        Stamps, increasing: the start of what each row measures [s since 1970 UTC].
    temperature : array of float
        Indoor temperature; NaN where there is no reading [°C].
    load : array of float
        Heating power, cooling negative; NaN where there is no reading [kW].
    notes : tuple of str, default ()
        What was done to the readings, in words.
    agent : str, optional
        Whose they are, where the source says so.
    quantum : float, default 0.0
        Step of the sensor, found in the values that temperatures are means of; 0 where they are no means, or where
        nobody knows [°C].

    Raises
    ------
    DataError
        Where columns differ in length, stamps do not increase, a value is infinite, or the quantum is no step.
    """

    time: IntArray
    temperature: FloatArray
    load: FloatArray
    notes: tuple[str, ...] = ()
    agent: str | None = None
    quantum: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", np.asarray(self.time, dtype=np.int64))
        for name in ("temperature", "load"):
            values: npt.NDArray[np.float64] = np.asarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, values)
            if values.shape != self.time.shape:
                raise DataError(f"a source gave {values.size} values of {name} for {self.time.size} stamps: mend it")
            if np.isinf(values).any():
                raise DataError(f"a source gave an infinite {name}: leave such readings out")
        object.__setattr__(self, "quantum", float(self.quantum))  # numpy's own numbers are none in an agent's state
        if not 0 <= self.quantum < math.inf:
            raise DataError(f"a source gave {self.quantum} °C as the step of its sensor: give a positive one, or 0")
        back = np.flatnonzero(np.diff(self.time) <= 0)
        if len(back):
            at = stamp(int(self.time[back[0] + 1]))
            raise DataError(f"a source gave {at} after a stamp that is not earlier: give rows by time, each once")

    def __len__(self) -> int:
        return len(self.time)

    def after(self, since: int | None) -> "Rows":
        """Those later than a stamp.

        Parameters
        ----------
        since : int or None
            The stamp; None for all [s since 1970 UTC].

        Returns
        -------
        Rows
            With the same notes and quantum.
        """
        first = 0 if since is None else int(np.searchsorted(self.time, since, side="right"))
        return replace(self, time=self.time[first:], temperature=self.temperature[first:], load=self.load[first:])


class Source(ABC):
    """Where one home's readings are.

    Subclass it, give it `name` and `rows`, and name the class as an entry point of the group `atdm.sources`: it is made
    with what stands after the colon of `--source NAME:ADDRESS`, and with options by name, as text.
    """

    name: str  # as messages show it, without password or token

    @abstractmethod
    def rows(self, since: int | None = None) -> Rows:
        """The readings at stamps later than one.

        Parameters
        ----------
        since : int, optional
            The stamp; without it all readings there are [s since 1970 UTC].

        Returns
        -------
        Rows
            By time, on one regular step.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
