"""What the cluster can offer while everybody stays comfortable, by linear programming on the fitted model.

Eq. (2) is linear, so over a horizon the aggregate temperature is s = s⁰ + R u, with u the load from the first free
step on [kW], s⁰ the free run with u = 0 and R the lower triangular matrix of the response to load [K/kW]. Every
question below is a linear programme over the same polytope

    (5)   u_low ≤ u ≤ u_high,   comfort_low ≤ s⁰ + d ≤ comfort_high,   d = R u

solved by HiGHS, d being given by its recursion d_t = Σ α_m d_{t−m} + Σ β_m u_{t−m}, which is sparse. The loads are
heating (u ≥ 0) or cooling (u ≤ 0) of the cluster as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import toeplitz
from scipy.optimize import linprog
from scipy.sparse import csr_array, diags_array, eye_array, hstack, vstack

from atdm.data.clock import stamp
from atdm.errors import DataError, UsageError
from atdm.kernel.descent import lag_filter
from atdm.model.diagnostics import impulse_filter
from atdm.model.fitted import Model
from atdm.model.planning import Planning
from atdm.model.released import Released
from atdm.result import Fit
from atdm.types import FloatArray
from atdm.use.planned import doubt, expected_load, load_model, margins, planned, rows_of, settled_load
from atdm.use.series import last_rows, past_rows, span
from atdm.use.storage import Storage, equivalent_storage

TIGHT = 1e-9  # feasibility tolerance asked of the solver, in K and kW: re-simulated, comfort holds to 1e-6 K
TOLERANCE = 1e-6  # K and kW by which a given schedule may leave the limits and still count as inside
DAY = pd.Timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """A load plan and the temperature it leads to.

    Attributes
    ----------
    load : pandas.Series
        Load of the cluster [kW].
    temperature : pandas.Series
        Aggregate temperature, simulated again by the model [°C].
    energy : float
        Energy used [kWh].
    cost : float or None
        Its price; None where none is given [currency].
    """

    load: pd.Series
    temperature: pd.Series
    energy: float
    cost: float | None

    def as_dict(self) -> dict[str, Any]:
        """The schedule for JSON."""
        return {
            "load_kw": self.load.tolist(), "aggregate_temp_c": self.temperature.tolist(),
            "energy_kwh": self.energy, "cost": self.cost,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """What loads keep the temperature within comfort, or within the narrower limits that make it so with confidence.

    Attributes
    ----------
    confidence : float or None
        With which the temperature is within comfort at each step, as far as left-out parts of the training rows and the
        standard error of the response to load tell; None: as expected, without a margin [-].
    margin : pandas.DataFrame
        By time: low, high: kept from the lower and the upper end of comfort [K].
    envelope : pandas.DataFrame
        By time: power_low, power_high [kW]; energy_low, energy_high since the start [kWh].
    held : pandas.DataFrame
        By length of time: low, high: the least and most load that can be held for so long from now [kW].
    drop : pandas.Timedelta
        How long the load can stay at its least from now.
    lift : pandas.Timedelta
        How long the load can stay at its most from now.
    dropped : Schedule
        The least load for `drop`, then whatever comfort needs.
    lifted : Schedule
        The most load for `lift`, then whatever comfort needs.
    cheapest : Schedule or None
        The cheapest load for the price; None without one.
    colder : float
        By how much `cheapest` is colder (cooling: warmer) than the baseline at its end or in the 24 h after, where
        comfort leaves no other choice; what it costs less than the baseline is then no saving. 0 otherwise [K].
    """

    confidence: float | None
    margin: pd.DataFrame
    envelope: pd.DataFrame
    held: pd.DataFrame
    drop: pd.Timedelta
    lift: pd.Timedelta
    dropped: Schedule
    lifted: Schedule
    cheapest: Schedule | None
    colder: float

    def as_dict(self) -> dict[str, Any]:
        """The offer for JSON; time stamps as text."""
        envelope = self.envelope.reset_index()
        envelope["time"] = [t.isoformat() for t in envelope["time"]]
        return {
            "confidence": self.confidence,
            "margin_low_k": self.margin["low"].tolist(),
            "margin_high_k": self.margin["high"].tolist(),
            "envelope": envelope.to_dict("records"),
            "held": [
                {"hours": length.total_seconds() / 3600, "low": row.low, "high": row.high}
                for length, row in zip(self.held.index, self.held.itertuples(index=False), strict=True)
            ],
            "drop_hours": self.drop.total_seconds() / 3600,
            "lift_hours": self.lift.total_seconds() / 3600,
            "schedules": {
                "dropped": self.dropped.as_dict(),
                "lifted": self.lifted.as_dict(),
                "cheapest": None if self.cheapest is None else self.cheapest.as_dict(),
            },
            "cheapest_colder_k": self.colder,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flexibility:
    """What one cluster can offer over one horizon.

    Attributes
    ----------
    comfort : tuple of float
        Least and highest aggregate temperature [°C].
    power : tuple of float
        Limits of the load [kW].
    price : pandas.Series or None
        By time; None where none was given [currency/kWh].
    baseline : Schedule
        The load without flexibility.
    expected : Offer
        What keeps the expected temperature within comfort.
    confident : Offer or None
        What keeps comfort with the confidence asked for; None where nothing does, and a note says so.
    storage : Storage or None
        The cluster as one leaky store of heat; None where it cools, or comfort is too narrow for the most load.
    planning : Planning
        What is known of the cluster's response to load, and how plausible it is.
    notes : tuple of str
        What the person should know about this offer.
    """

    comfort: tuple[float, float]
    power: tuple[float, float]
    price: pd.Series | None
    baseline: Schedule
    expected: Offer
    confident: Offer | None
    storage: Storage | None
    planning: Planning
    notes: tuple[str, ...]

    @property
    def envelope(self) -> pd.DataFrame:
        """By time: power_low, power_high [kW]; energy_low, energy_high since the start [kWh], as expected."""
        return self.expected.envelope

    @property
    def cheapest(self) -> Schedule | None:
        """The cheapest load for the price, as expected; None without one."""
        return self.expected.cheapest

    @property
    def saving(self) -> float | None:
        """What the cheapest schedule costs less than the baseline, in the currency of the price.

        None without a price, and where the schedule leaves the cluster colder than the baseline does.
        """
        if self.cheapest is None or self.cheapest.cost is None or self.baseline.cost is None or self.expected.colder:
            return None
        return self.baseline.cost - self.cheapest.cost

    def as_dict(self) -> dict[str, Any]:
        """The offer for JSON; time stamps as text. What is expected stands on top, what is confident beside it."""
        expected = self.expected.as_dict()
        expected["schedules"]["baseline"] = self.baseline.as_dict()
        return {
            "comfort_c": list(self.comfort),
            "power_kw": list(self.power),
            **expected,
            "confident": None if self.confident is None else self.confident.as_dict(),
            "saving": self.saving,
            "storage": None if self.storage is None else self.storage.as_dict(),
            "planning": self.planning.as_dict(),
            "notes": list(self.notes),
        }


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


def flexibility(
    model: Model | Fit,
    weather: pd.DataFrame,
    comfort: tuple[float, float],
    *,
    initial: Sequence[float] | pd.Series | pd.DataFrame | None = None,
    price: pd.Series | None = None,
    baseline: pd.Series | None = None,
    power: tuple[float, float] | None = None,
    start: str | None = None,
    horizon: pd.Timedelta = DAY,
    observed: pd.DataFrame | None = None,
    confidence: float | None = None,
    assume_gain: float | None = None,
) -> Flexibility:
    """What the cluster can offer over a horizon while its temperature stays comfortable.

    Parameters
    ----------
    model : Model or Fit
        Of which the planning model is used; refused where the response to load cannot be known.
    weather : pandas.DataFrame
        outdoor_temp_c [°C] and solar_w_m2 [W/m²] by time; its first rows, as many as `initial` has, are past.
    comfort : tuple of float
        Least and highest aggregate temperature [°C].
    initial : sequence of float, pandas.Series or pandas.DataFrame, optional
        The first two aggregate temperatures (three where the forecasting model has order 3), or a series that holds
        them, or a table of aggregate_temp_c and load_kw by time; needed unless `observed` is given [°C].
    price : pandas.Series, optional
        By time; with it the cheapest schedule is found [currency/kWh].
    baseline : pandas.Series, optional
        The load without flexibility; by default what the cluster is expected to use if nobody intervenes [kW].
    power : tuple of float, optional
        Limits of the load, on one side of zero; by default from nothing to the most seen in training [kW].
    start : str, optional
        Time stamp of the first row; by default that of the weather.
    horizon : pandas.Timedelta, default 24 h
        How far to plan.
    observed : pandas.DataFrame, optional
        aggregate_temp_c [°C] and load_kw [kW] by time, as `observe` gives them: the offer starts after its last row.
    confidence : float, optional
        With which the temperature shall be within comfort at each step: a second offer, beside the expected one. It
        keeps a margin: as far as runs over left-out parts of the training rows were off, and where load is moved
        standard errors of the response besides; a stated gain is taken as certain [-].
    assume_gain : float, optional
        Steady change of the aggregate temperature per kW that you know, where the rows do not show it [K/kW].

    Returns
    -------
    Flexibility
        The envelope of power and energy, how long the load can stay low or high, and schedules.

    Raises
    ------
    UsageError
        The response to load cannot be known from the rows of the model; comfort cannot be kept, with the least
        distance by which it is missed; power on both sides of zero; limits that are no finite numbers or the wrong way
        round; a horizon that is no whole number of steps.
    DataError
        Weather or price lack a value in the window.
    """
    if confidence is not None and not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence:g}: give a share between 0 and 1, as in 0.9")
    if not -np.inf < comfort[0] < comfort[1] < np.inf:
        raise UsageError(f"comfort {comfort[0]:g}:{comfort[1]:g}: give two numbers, the first below the second")
    if power is not None and not -np.inf < power[0] <= power[1] < np.inf:
        raise UsageError(f"power {power[0]:g}:{power[1]:g}: give two numbers, the first not above the second")
    chosen, used, planning = planned(model, assume_gain)
    rows, count = rows_of(chosen), max(chosen.order, used.order)
    if observed is not None:
        if initial is not None or start is not None:
            raise UsageError("with observed rows give neither initial values nor a start")
        initial = last_rows(count, used.step, observed)
        start = initial.index[0].isoformat()
    frame = span(used, weather, None, start, horizon, count)
    past = past_rows(count, initial, pd.DatetimeIndex(frame.index))
    if baseline is not None:
        past = past.assign(load_kw=past["load_kw"].fillna(baseline.reindex(past.index)))
    limits, notes = _limits(rows, chosen.trained, power)
    usual = load_model(chosen)
    past, said = settled_load(chosen, usual, frame, past)
    notes += said
    undisturbed, _ = expected_load(chosen, usual, frame, past)
    if baseline is None:
        baseline = pd.Series(undisturbed, index=frame.index[count:])
    recent, own = past.iloc[-used.order :], frame.iloc[count - used.order :]
    first, before = recent["aggregate_temp_c"].to_numpy(), recent["load_kw"].to_numpy()
    polytope = feasible_loads(used, own, first, before, comfort, limits)
    _refuse_infeasible(polytope)
    plan = _Planner(used, own, first, before, _prices(price, polytope.time), limits)
    reference, said = _baseline(polytope, plan, baseline)
    confident = None
    if confidence is not None:
        kept = margins(used, rows, chosen.trained, planning, confidence, len(polytope))
        if planning.excitation is None:
            said.append(
                "the confidence takes the stated gain as certain: where load is moved, it holds no better than that"
            )
        warmth = plan.schedule(undisturbed).temperature.to_numpy()
        narrower = replace(polytope, margin=kept, usual=warmth, doubt=doubt(planning, confidence))
        confident = _offer(narrower, plan, reference, confidence)
        if confident is None:
            said.append(f"with a confidence of {100 * confidence:g} % no load keeps comfort: the temperature may be "
                        f"{kept.max():.2f} K off, more where load is moved, so "
                        "widen comfort or shorten the horizon")  # fmt: skip
    expected_offer = _offer(polytope, plan, reference, None)
    if expected_offer is None:
        raise DataError("no schedule keeps comfort: widen comfort")
    for offer in (expected_offer, confident):
        if offer is not None and offer.colder:
            sure = "" if offer.confidence is None else f" with a confidence of {100 * offer.confidence:g} %"
            way = "colder" if plan.sign > 0 else "warmer"
            said.append(f"the cheapest load{sure} ends up to {offer.colder:.2f} K {way} than the baseline, which "
                        "comfort does not allow it to follow: what it costs less is no saving")  # fmt: skip
    return Flexibility(
        comfort=comfort,
        power=limits,
        price=None if plan.price is None else pd.Series(plan.price, index=polytope.time, name="price_per_kwh"),
        baseline=reference,
        expected=expected_offer,
        confident=confident,
        storage=equivalent_storage(
            used,
            polytope.time,
            np.concatenate([first[-1:], polytope.base]),
            used.heat_of_one_kw(own)[used.order :],
            comfort,
            limits,
            rows,
            chosen.trained,
        ),
        planning=planning,
        notes=(*notes, *planning.remarks, *said),
    )


def _offer(polytope: "Polytope", plan: "_Planner", baseline: Schedule, confidence: float | None) -> Offer | None:
    """Everything that is asked of one polytope; None where it is empty."""
    if polytope.best(np.zeros(len(polytope))) is None:
        return None
    step, hours = plan.model.step, plan.model.step.total_seconds() / 3600
    drop, lift = sorted(polytope.power, key=abs)
    times = {level: polytope.longest(level) for level in (drop, lift)}
    envelope = polytope.envelope()
    envelope[["energy_low", "energy_high"]] *= hours
    held = polytope.held()
    held.index = pd.TimedeltaIndex([step * (k + 1) for k in range(len(held))], name="length")
    (low, high), (least, most) = polytope.limits, polytope.comfort
    cheapest, colder = _cheapest(polytope, plan, baseline)
    return Offer(
        confidence=confidence,
        margin=pd.DataFrame({"low": low - least, "high": most - high}, index=polytope.time),
        envelope=envelope,
        held=held,
        drop=times[drop] * step,
        lift=times[lift] * step,
        dropped=plan.schedule(plan.held(polytope, drop, times[drop])),
        lifted=plan.schedule(plan.held(polytope, lift, times[lift])),
        cheapest=cheapest,
        colder=colder,
    )


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


@dataclass(frozen=True, slots=True)
class _Planner:
    """Turns loads of the free steps into schedules."""

    model: Model
    frame: pd.DataFrame
    initial: FloatArray
    before: FloatArray
    price: FloatArray | None  # per kWh, of the free steps
    limits: tuple[float, float]

    @property
    def sign(self) -> float:
        """Energy is paid for whether it heats or cools."""
        return 1.0 if self.limits[1] > 0 else -1.0

    def schedule(self, load: FloatArray) -> Schedule:
        whole = np.concatenate([self.before, load])
        run = self.model.simulate(whole, self.frame, self.initial).iloc[self.model.order :]
        energy = load * self.sign * (self.model.step.total_seconds() / 3600)
        return Schedule(
            load=pd.Series(load, index=run.index, name="load_kw"),
            temperature=run,
            energy=float(energy.sum()),
            cost=None if self.price is None else float(self.price @ energy),
        )

    def held(self, polytope: Polytope, level: float, steps: int) -> FloatArray:
        """The load at `level` for some steps, then the least energy that keeps comfort."""
        found = polytope.best(np.full(len(polytope), self.sign), fixed=np.full(steps, level))
        if found is None:
            raise DataError("no schedule keeps comfort: widen comfort")
        return found


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


def _refuse_infeasible(polytope: Polytope) -> None:
    outside, step = polytope.violation()
    if outside <= TOLERANCE:
        return
    (low, high), (least, most) = polytope.comfort, polytope.power
    raise UsageError(
        f"comfort {low:g}:{high:g} cannot be kept with {least:g} to {most:g} kW: at best {outside:.3f} K outside, "
        f"first at {stamp(polytope.time[step])}; widen it by that much, or give other limits of power"
    )


def _limits(rows: Released, stop: int, power: tuple[float, float] | None) -> tuple[tuple[float, float], list[str]]:
    """Limits of the load on one side of zero."""
    if power is not None:
        low, high = power
        if low < 0 < high:
            raise UsageError(f"power {low:g}:{high:g} both heats and cools: give limits on one side of zero")
        return power, []
    low, high = float(rows.load[:stop].min()), float(rows.load[:stop].max())
    low, high = (0.0, high) if high >= -low else (low, 0.0)
    return (low, high), [f"power limits {low:.1f} to {high:.1f} kW: from nothing to the most seen in training"]


def _prices(price: pd.Series | None, time: pd.DatetimeIndex) -> FloatArray | None:
    if price is None:
        return None
    values = price.reindex(time).to_numpy(float)
    if not np.isfinite(values).all():
        missing = time[~np.isfinite(values)]
        raise DataError(f"no price at {stamp(missing[0])} ({len(missing)} steps): give one for every step of the model")
    return values


def _baseline(polytope: Polytope, plan: _Planner, given: pd.Series) -> tuple[Schedule, list[str]]:
    load = given.reindex(polytope.time).to_numpy(float)
    if not np.isfinite(load).all():
        missing = polytope.time[~np.isfinite(load)]
        raise DataError(f"no baseline at {stamp(missing[0])} ({len(missing)} steps): give one for every step")
    reference = plan.schedule(load)
    low, high = polytope.comfort
    outside = float(max(low - reference.temperature.min(), reference.temperature.max() - high, 0.0))
    notes = []
    if outside > TOLERANCE:
        notes.append(f"the baseline leaves comfort by {outside:.2f} K: the saving is not like for like")
    elif not polytope.contains(load):
        notes.append("the baseline leaves the power limits: the saving is not like for like")
    return reference, notes


def _cheapest(polytope: Polytope, plan: _Planner, baseline: Schedule) -> tuple[Schedule | None, float]:
    """Cheapest feasible load that leaves no less heat than the baseline: no heat is borrowed from the day after.

    The last temperature alone does not tell: a short heating before the end warms the air and leaves the mass cold.
    So with the same load after the horizon, whichever, it is no colder (cooling: no warmer) for a day. What load and
    weather then are does not matter, for they are the same on both sides and the model is linear. Where comfort does
    not allow that, it is colder by as little as can be, and by how much is the second value. [K]
    """
    if plan.price is None:
        return None, 0.0
    cost = plan.price * plan.sign
    kept = polytope.left_by(baseline.load.to_numpy(), max(1, round(DAY / plan.model.step)))

    def ending(short: float) -> FloatArray | None:
        least, most = kept - plan.sign * short, np.full(len(kept), plan.sign * np.inf)
        return polytope.best(cost, left=np.sort(np.column_stack([least, most]), axis=1))

    colder, found = 0.0, ending(TIGHT)  # TIGHT: rounding is not infeasible
    if found is None:
        colder = polytope.shortfall(kept, plan.sign)
        found = ending(colder + TOLERANCE)
    if found is None:
        raise DataError("no schedule keeps comfort: widen comfort")
    return plan.schedule(found), colder if colder > TOLERANCE else 0.0
