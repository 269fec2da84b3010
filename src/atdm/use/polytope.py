"""The loads that keep everybody comfortable, as a polytope, and linear programmes that ask for the best of them.

Eq. (2) is linear, so over a horizon the aggregate temperature is s = s⁰ + R u, with u the load from the first free
step on [kW], s⁰ the free run with u = 0 and R the lower triangular matrix of the response to load [K/kW]. Every
question is a linear programme over the same polytope

    (5)   u_low ≤ u ≤ u_high,   comfort_low ≤ s⁰ + d ≤ comfort_high,   d = R u

solved by HiGHS, d being given by its recursion d_t = Σ α_m d_{t−m} + Σ β_m u_{t−m}, which is sparse. The loads are
heating (u ≥ 0) or cooling (u ≤ 0) of the cluster as a whole. What is asked of it is in flexibility.py.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.linalg import toeplitz
from scipy.optimize import linprog
from scipy.sparse import csr_array, diags_array, eye_array, hstack, vstack

from atdm.errors import DataError
from atdm.kernel.descent import lag_filter
from atdm.model.diagnostics import impulse_filter
from atdm.model.fitted import Model
from atdm.types import FloatArray

TIGHT = 1e-9  # feasibility tolerance asked of the solver, in K and kW: re-simulated, comfort holds to 1e-6 K
TOLERANCE = 1e-6  # K and kW by which a given schedule may leave the limits and still count as inside


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Polytope:
    """Eq. (5): the feasible loads, and how to ask for the best of them."""

    time: pd.DatetimeIndex  # of the free steps
    base: FloatArray  # s⁰                    [°C]
    alpha: FloatArray  # of the model         [-]
    beta: FloatArray  # of the model          [K/kW]
    power: tuple[float, float]  # u_low, u_high [kW]
    comfort: tuple[float, float]  # [°C]
    margin: FloatArray | None = None  # kept from both ends of comfort at the usual temperature, by step; None: none [K]
    usual: FloatArray | None = None  # temperature under the usual load, by step                                 [°C]
    doubt: float = 0.0  # share of what moving the load away from that does, which is kept besides                [-]
    heat: FloatArray | None = None  # of one kW of load, by step, where that is electricity; None: one [-]

    def __len__(self) -> int:
        return len(self.base)

    @property
    def limits(self) -> tuple[FloatArray, FloatArray]:
        """Between which the temperature stays, by step. [°C]

        What is kept grows by `doubt` × |s − usual|, so s ≥ low + margin + doubt |s − usual| and likewise above. Both
        have one s at which they hold as an equation, and limits of s they stay.
        """
        kept = np.zeros(len(self)) if self.margin is None else self.margin
        low, high = self.comfort[0] + kept, self.comfort[1] - kept
        if self.usual is None:
            return low, high
        back = np.inf if self.doubt >= 1 else 1 / (1 - self.doubt)  # towards comfort from outside of it
        away = 1 / (1 + self.doubt)
        under, over = low - self.usual, high - self.usual
        return (
            self.usual + np.where(under > 0, np.where(under > 0, under, 1.0) * back, under * away),
            self.usual + np.where(over < 0, np.where(over < 0, over, -1.0) * back, over * away),
        )

    def response(self) -> FloatArray:
        """R: d = R u. [K/kW]"""
        impulse = np.concatenate([self.beta, np.zeros(len(self))])[: len(self)]
        answer: FloatArray = toeplitz(impulse_filter(self.alpha, impulse), np.zeros(len(self)))
        return answer if self.heat is None else answer * self.heat

    def recursion(self, after: int = 0) -> csr_array:
        """[−B | A] with A d = B u: the recursion of d, sparse; d goes on for `after` steps without load."""
        count, whole = len(self), len(self) + after
        memory, push = lag_filter(self.alpha)[:whole], self.beta[:whole]
        a = diags_array(memory, offsets=-np.arange(len(memory)), shape=(whole, whole))
        b = diags_array(push, offsets=-np.arange(len(push)), shape=(whole, count))
        heat = np.ones(count) if self.heat is None else self.heat
        return csr_array(hstack([-b @ diags_array(heat), a]))

    def left_by(self, load: FloatArray, after: int) -> FloatArray:
        """d of a load at the last step and at `after` steps without load that follow. [K]"""
        heat = load if self.heat is None else load * self.heat
        pushed = np.convolve(self.beta, np.concatenate([heat, np.zeros(after)]))[: len(self) + after]
        return impulse_filter(self.alpha, pushed)[len(self) - 1 :]

    def best(
        self,
        cost: FloatArray,
        *,
        fixed: FloatArray | None = None,
        left: FloatArray | None = None,
        tied: int = 0,
    ) -> FloatArray | None:
        """The feasible load of least cost·u; None if there is none.

        fixed: values of the first steps; tied: how many first steps have one load, whichever;
        left: between what, in two columns, d must be at the last step and at those without load that follow. [K]
        """
        bounds, after = self._bounds(0.0), 0
        if left is not None:
            after = len(left) - 1
            bounds[-1] = max(bounds[-1, 0], left[0, 0]), min(bounds[-1, 1], left[0, 1])
            bounds = np.vstack([bounds, left[1:]])
        if (bounds[:, 0] > bounds[:, 1]).any():
            return None  # margins leave no comfort, or the end asked for is outside of it
        if fixed is not None:
            bounds[: len(fixed)] = fixed[:, None]
        equal = self.recursion(after)
        if tied > 1:
            same = diags_array([1.0, -1.0], offsets=[0, 1], shape=(tied - 1, equal.shape[1]))
            equal = csr_array(vstack([equal, same]))
        found = _solve(np.concatenate([cost, np.zeros(len(self) + after)]), equal, bounds)
        return None if found is None else found[: len(self)]

    def violation(self) -> tuple[float, int]:
        """Least achievable distance outside the comfort band [K], and the first step that is that far outside."""
        count, (low, high) = len(self), self.limits
        wide = np.vstack([self._bounds(np.inf), [0.0, np.inf]])  # the last variable is the distance
        equal = csr_array(hstack([self.recursion(), csr_array((count, 1))]))
        none, same, away = csr_array((count, count)), eye_array(count), csr_array(-np.ones((count, 1)))
        rows = csr_array(vstack([hstack([none, same, away]), hstack([none, -same, away])]))
        limits = np.concatenate([high - self.base, self.base - low])
        found = _solve(np.eye(2 * count + 1)[-1], equal, wide, rows, limits)
        if found is None:
            raise DataError("the model's response is too large to compute with: shorten the horizon")
        excess = (rows[:, :-1] @ found[:-1] - limits).reshape(2, -1).max(axis=0)
        return float(found[-1]), int(np.argmax(excess > found[-1] - TOLERANCE))

    def shortfall(self, kept: FloatArray, sign: float) -> float:
        """Least distance by which d misses `kept` at the last step and those without load that follow. [K]

        sign: 1 where d is to be above `kept`, −1 where below.
        """
        count, after = len(self), len(kept) - 1
        free = np.tile([-np.inf, np.inf], (after, 1))
        wide = np.vstack([self._bounds(0.0), free, [0.0, np.inf]])  # the last variable is the distance
        equal = self.recursion(after)
        size = equal.shape[1]
        equal = csr_array(hstack([equal, csr_array((count + after, 1))]))
        ends = diags_array([-sign], offsets=[size - len(kept)], shape=(len(kept), size))
        rows = csr_array(hstack([ends, csr_array(-np.ones((len(kept), 1)))]))
        found = _solve(np.eye(size + 1)[-1], equal, wide, rows, -sign * kept)
        if found is None:
            raise DataError("no schedule keeps comfort: widen comfort")
        return float(found[-1])

    def contains(self, load: FloatArray, tolerance: float = TOLERANCE) -> bool:
        """Whether a load is feasible."""
        both = np.concatenate([load, self.response() @ load])
        bounds = self._bounds(0.0)
        return bool((both >= bounds[:, 0] - tolerance).all() and (both <= bounds[:, 1] + tolerance).all())

    def _bounds(self, slack: float) -> FloatArray:
        """Of u, then of d, with `slack` K added to the comfort band."""
        (low, high), count = self.limits, len(self)
        comfort = np.column_stack([low - slack - self.base, high + slack - self.base])
        return np.vstack([np.tile(self.power, (count, 1)), comfort])

    def envelope(self) -> pd.DataFrame:
        """Highest and lowest power and cumulative sum of power at each step, each by its own programme."""
        count = len(self)
        extremes = np.empty((count, 4))
        for t in range(count):
            single, cumulative = np.zeros(count), np.zeros(count)
            single[t], cumulative[: t + 1] = 1.0, 1.0
            for column, goal in enumerate((single, -single, cumulative, -cumulative)):
                found = self.best(goal)
                extremes[t, column] = np.nan if found is None else np.abs(goal) @ found
        names = ["power_low", "power_high", "energy_low", "energy_high"]
        return pd.DataFrame(extremes, index=self.time, columns=names)

    def held(self) -> pd.DataFrame:
        """The least and most constant load that can be held for 1, 2, … steps from now, comfort kept to the end of the
        horizon: what can be reached and held. Rows end where none can."""
        rows = []
        goal = np.zeros(len(self))
        goal[0] = 1.0
        for steps in range(1, len(self) + 1):
            ends = [self.best(sign * goal, tied=steps) for sign in (1.0, -1.0)]
            if ends[0] is None or ends[1] is None:
                break
            rows.append((ends[0][0], ends[1][0]))
        return pd.DataFrame(np.reshape(rows, (-1, 2)), columns=["low", "high"])

    def longest(self, level: float) -> int:
        """For how many steps from now the load can stay at `level`, comfort kept over the whole horizon.

        A load that stays there for k steps stays there for k − 1, so bisection finds the longest.
        """
        none, some = 0, len(self) + 1
        while some - none > 1:
            middle = (none + some) // 2
            feasible = self.best(np.zeros(len(self)), fixed=np.full(middle, level)) is not None
            none, some = (middle, some) if feasible else (none, middle)
        return none


def feasible_loads(
    model: Model,
    frame: pd.DataFrame,
    initial: FloatArray,
    before: FloatArray,
    comfort: tuple[float, float],
    power: tuple[float, float],
) -> Polytope:
    """Eq. (5) for the rows of `frame` after the first M, whose loads were `before`."""
    order, count = model.order, len(frame) - model.order
    still = model.simulate(np.concatenate([before, np.zeros(count)]), frame, initial).to_numpy()
    return Polytope(
        time=pd.DatetimeIndex(frame.index[order:], name="time"),
        base=still[order:],
        alpha=model.alpha,
        beta=model.beta,
        power=power,
        comfort=comfort,
        heat=model.heat_of_one_kw(frame)[order:],
    )


def _solve(
    cost: FloatArray,
    equal: csr_array,
    bounds: FloatArray,
    rows: csr_array | None = None,
    limits: FloatArray | None = None,
) -> FloatArray | None:
    """The least cost·x with equal x = 0, rows x ≤ limits, within bounds."""
    found = linprog(  # type: ignore[call-overload]  # it takes sparse matrices, but its stubs do not say so
        cost, A_eq=equal, b_eq=np.zeros(equal.shape[0]), A_ub=rows, b_ub=limits, method="highs",
        bounds=[(float(low), float(high)) for low, high in bounds],
        options={"primal_feasibility_tolerance": TIGHT, "dual_feasibility_tolerance": TIGHT},
    )  # fmt: skip
    if found.status == 2:
        return None
    if found.status != 0 or found.x is None:
        raise DataError(f"the linear programme was not solved ({found.message}): shorten the horizon")
    answer: FloatArray = np.clip(found.x, bounds[:, 0], bounds[:, 1])
    return answer
