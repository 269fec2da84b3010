"""What the cluster can offer while everybody stays comfortable: how low and high, for how long, and what is cheapest.

Each answer is the load of one linear programme over Eq. (5) (polytope.py), simulated again by the planning model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from atdm.data.clock import stamp
from atdm.errors import DataError, UsageError
from atdm.model.fitted import Model
from atdm.model.planning import Planning
from atdm.model.released import Released
from atdm.result import Fit
from atdm.types import FloatArray
from atdm.use.planned import doubt, expected_load, load_model, margins, planned, rows_of, settled_load
from atdm.use.polytope import TIGHT, TOLERANCE, Polytope, feasible_loads
from atdm.use.series import last_rows, past_rows, span
from atdm.use.storage import Storage, equivalent_storage

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


def _offer(polytope: Polytope, plan: "_Planner", baseline: Schedule, confidence: float | None) -> Offer | None:
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
