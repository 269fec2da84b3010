"""The model to plan with: the chosen one, if what it says of heat can be known from the rows it was estimated on.

Thermostats heat when it is cold, so in passive data load follows temperature, and least squares takes part of the
thermostat for the building: a model may forecast well and know nothing of what happens when heating is moved. So

Rule 1: order 2 (air and mass), one step ahead, under the rules of model/physical.py. Errors further ahead let the
        thermostat in: they are for forecasts. Where the chosen model has day types, weekdays and weekends are apart and
        no more: a profile of three Sundays, one of them in an experiment, would learn the experiment by heart.
Rule 2: rows of an experiment (`probed`) count as much together as all others together.
Rule 3: the temperature is the plain mean of all homes: weights of a fit prefer quiet ones, which answer less.
Rule 4: the model is refused, not warned about, unless the response to load is excited, known to within MOST_ERROR, the
        same one step ahead and over RUN_HOURS, and the building in it plausible. A refusal says what, and the remedy.
        Known to within: by the residuals and by leaving parts of the rows out, whichever doubts more. Residuals of long
        rows look calm where the thermostat acts within the row, and then say too little.
        Plausible: what no rule can judge is refused too, and so is what a rule of the estimate had to hold back.
Rule 5: who knows the steady gain may state it; then the excitation does not matter, but plausibility does, and where
        the rows do tell what heat does and contradict it, a remark says so.
Rule 6: a cluster that cools is judged as the mirror image of one that heats, by the sign of its mean load.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from atdm.errors import AtdmError
from atdm.kernel.design import Inputs, forcing_columns, lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.bands import BLOCKS
from atdm.model.calendar import Calendar
from atdm.model.diagnostics import Regression, newey_west, season_lags, steady_gains, step_response
from atdm.model.horizons import origins_in, rolling_errors
from atdm.model.physical import Limits, estimate_physical, season_of
from atdm.model.refinement import fitted_to_runs
from atdm.model.released import Released
from atdm.types import BoolArray, FloatArray

ORDER = 2  # air, and the mass behind it
LEAST_SHARE = 0.05  # of the load's variance that weather, clock and past temperature must leave unexplained
MOST_ERROR = 0.3  # standard error of the response after 24 h, as a share of it
RUN_HOURS = 6.0  # over which the response must be what it is one step ahead
AGREEMENT = (0.75, 1 / 0.75)  # the one over the other, after 24 h
LEAST_OUTDOOR_GAIN = 0.05  # below, the weather would hardly matter
MOST_OUTDOOR_GAIN = AGREEMENT[1]  # that rows may ask for: a building has 1 at most, and rows are never quite right
FREE = Limits(outdoor_gain=(0.0, 100.0))  # no limit that any rows reach
STEADY = 2.0  # how many times more or less than was used the model may need
TELLING = 0.1  # share of the largest load, below which the load of a day is too small to compare with
COLDER = 1.0  # K below the outdoor temperature that rounding and mean values may bring an unheated cluster
APART = 2.0  # standard errors of the rows' response, beyond which a stated gain contradicts it
FINE = 1e-6  # step of a derivative, as a share

Reason = Literal["weights", "rows", "heat cools", "excitation", "standard error", "agreement", "outdoor gain",
                 "balance", "unheated", "steady heat"]  # fmt: skip
WEIGHTED = "the temperature is weighted by a fit, which prefers quiet homes, and answers heat unlike the cluster does"
EQUAL = "plan with equal weights (--weights equal), or state the steady gain with --assume-gain K_PER_KW"
LONGER = "use a longer window"
REMEDY = "plan an experiment with atdm probe and fit its days, or state the steady gain with --assume-gain K_PER_KW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no model to plan with."""

    reason: Reason
    words: str  # what was found
    remedy: str  # the way out


@dataclass(frozen=True, slots=True, kw_only=True)
class Excitation:
    """How well the training rows show what heat does."""

    unexplained_share: float  # of the load's variance, by weather, clock and past temperature               [-]
    response_24h: float  # change of s after 24 h of one kW more                                              [K/kW]
    standard_error: float  # of that: Newey–West's, or that of leaving parts out where it is larger           [K/kW]
    agreement: float  # the same response from runs of RUN_HOURS, over this one                               [-]
    probed_rows: int  # of an experiment
    outdoor_gain: float = 1.0  # that the rows ask for, before a rule holds it at 1                           [-]

    @property
    def relative_error(self) -> float:
        return self.standard_error / self.response_24h if self.response_24h > 0 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plausibility:
    """What the model says of situations that everybody can judge. Means are those of the training rows."""

    mean_temp: float  # [°C]
    mean_outdoor: float  # [°C]
    unheated_24h: float | None  # after 24 h without load from there, in mean weather; None: that says nothing [°C]
    unheated_72h: float | None  # after 72 h [°C]
    mean_heat: float  # load used; below 0 where it cools [kW]
    mean_need: float  # load that holds the mean temperature in mean weather [kW]
    most_heat: float  # largest load of a step [kW]
    coldest_outdoor: float  # mean of the coldest day; of the hottest where the load cools, so the next two [°C]
    coldest_heat: float  # load used then [kW]
    coldest_need: float  # load that makes that day's temperatures in the model [kW]
    sun_warms: float = 0.0  # by how much mean sun warms for good [K]

    @property
    def cools(self) -> bool:
        return self.mean_heat < 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planning:
    """The model to plan with or why there is none, and what was measured to decide that."""

    coefficients: Coefficients | None
    calendar: Calendar
    excitation: Excitation | None  # None where the rows do not allow an estimate, or a gain was stated
    plausibility: Plausibility | None
    refusals: tuple[Refusal, ...]
    assumed_gain: float | None = None  # stated by the user [K/kW]
    remarks: tuple[str, ...] = ()  # what the person should know about a model that is planned with

    def notes(self) -> tuple[str, ...]:
        """Why not, for people."""
        return tuple(f"not for planning: {refusal.words}; {refusal.remedy}" for refusal in self.refusals)

    def refusal(self) -> str:
        """All of it in one line, each remedy once."""
        remedies = dict.fromkeys(refusal.remedy for refusal in self.refusals)
        return "; ".join([*(refusal.words for refusal in self.refusals), *remedies])

    def as_dict(self) -> dict[str, Any]:
        return {
            "usable": self.coefficients is not None,
            "refusals": [asdict(refusal) for refusal in self.refusals],
            "excitation": None if self.excitation is None else asdict(self.excitation),
            "plausibility": None if self.plausibility is None else asdict(self.plausibility),
            "assumed_gain": self.assumed_gain,
        }


def plan_model(
    inputs: Inputs,
    state: FloatArray,
    time: pd.DatetimeIndex,
    chosen: Calendar,
    *,
    equal: bool = True,
    probed: BoolArray | None = None,
    assumed_gain: float | None = None,
) -> Planning:
    """The planning model of released rows, estimated on the training rows (those before inputs.train).

    inputs, state [°C], time: by row; chosen: the calendar of the chosen model; equal: whether state is the plain mean;
    probed: which rows belong to an experiment; assumed_gain: steady change of s per kW that an engineer knows. [K/kW]
    """
    calendar = chosen if chosen.day_types == "all days" else replace(chosen, day_types="weekend")
    part, known = calendar.on(inputs, time).training_part(), state[: inputs.train]
    marks = np.zeros(inputs.train, dtype=bool) if probed is None else probed[: inputs.train]
    try:
        found, excitation = _estimate(part, known, calendar, marks, assumed_gain)
        plausibility = _plausibility(found, part, known, calendar)
    except AtdmError as error:
        refusals: tuple[Refusal, ...] = (Refusal(reason="rows", words=str(error), remedy=LONGER),)
        return Planning(coefficients=None, calendar=calendar, excitation=None, plausibility=None, refusals=refusals,
                        assumed_gain=assumed_gain)  # fmt: skip
    if not equal and assumed_gain is None:
        refusals = (Refusal(reason="weights", words=WEIGHTED, remedy=EQUAL),)
    else:
        unjudged = _unjudged(plausibility) if assumed_gain is None else ()
        refusals = (*_unknown(excitation), *unjudged, *_implausible(found, plausibility))
    remarks = _contradicted(found, part, known, calendar, marks) if equal and assumed_gain is not None else ()
    return Planning(
        coefficients=None if refusals else found, calendar=calendar, excitation=excitation, plausibility=plausibility,
        refusals=refusals, assumed_gain=assumed_gain, remarks=() if refusals else tuple(remarks),
    )  # fmt: skip


def planning_of(rows: Released, train: int, chosen: Calendar, assumed_gain: float | None = None) -> Planning:
    """The planning model of the first `train` of the rows a model comes from; chosen: that model's calendar."""
    return plan_model(
        rows.inputs(chosen, train), rows.state, rows.time, chosen, equal=rows.equal, probed=rows.probed_rows(),
        assumed_gain=assumed_gain,
    )  # fmt: skip


def left_out_errors(rows: Released, train: int, planning: Planning, steps: int) -> FloatArray:
    """Errors of runs over each of BLOCKS parts of the first `train` rows by a planning model of the others, origins ×
    steps; NaN where a run leaves its part. [K]"""
    calendar, marks = planning.calendar, rows.probed_rows()
    inputs, state = rows.inputs(calendar, train).training_part(), rows.state[:train]
    answer = []
    for start, stop, found in _left_out(inputs, state, calendar, marks, planning.assumed_gain):
        origins = origins_in(inputs, start + ORDER, stop, ORDER)
        errors = rolling_errors(found, inputs, state, origins, steps)
        errors[np.add.outer(origins, np.arange(steps)) >= stop] = np.nan
        answer.append(errors)
    return np.vstack(answer)


def _left_out(
    inputs: Inputs, state: FloatArray, calendar: Calendar, probed: BoolArray, assumed_gain: float | None
) -> Iterator[tuple[int, int, Coefficients]]:
    """Each of BLOCKS parts of the training rows, as its first row and the row after it, and the model of the others."""
    used = lagged_rows(inputs.segment, ORDER, 0, inputs.train)
    for start, stop in pairwise(np.linspace(0, inputs.train, BLOCKS + 1).astype(int).tolist()):
        others = used[(used < start) | (used >= stop + ORDER)]
        found = estimate_physical(inputs, state, ORDER, calendar, rows=others, weights=_weights(probed[others]),
                                  limits=_limits(assumed_gain))  # fmt: skip
        yield start, stop, found


def _weights(marked: BoolArray) -> FloatArray:
    """How much rows count: those of an experiment together as much as all others (Rule 2)."""
    weights = np.ones(len(marked))
    if marked.any():
        weights[marked] = max(1.0, float((~marked).sum() / marked.sum()))
    return weights


def _limits(assumed_gain: float | None) -> Limits | None:
    return None if assumed_gain is None else Limits(load_gain=(assumed_gain, assumed_gain))


def _estimate(
    inputs: Inputs, state: FloatArray, calendar: Calendar, probed: BoolArray, assumed_gain: float | None
) -> tuple[Coefficients, Excitation | None]:
    rows = lagged_rows(inputs.segment, ORDER, 0, inputs.train)
    marked = probed[rows]
    weights = _weights(marked)
    found = estimate_physical(inputs, state, ORDER, calendar, weights=weights, limits=_limits(assumed_gain))
    if assumed_gain is not None:
        return found, None
    day = round(24 / calendar.step_hours)
    response = step_response(found, day)["load"]
    error = max(
        _standard_error(found, inputs, state, weights, day), _left_out_error(inputs, state, calendar, probed, day)
    )
    over_hours = fitted_to_runs(found, inputs, state, calendar, inputs.train, RUN_HOURS)
    return found, Excitation(
        unexplained_share=unexplained_share(inputs, state, calendar),
        response_24h=response,
        standard_error=error,
        agreement=step_response(over_hours, day)["load"] / response if response > 0 else float("nan"),
        probed_rows=int(marked.sum()),
        outdoor_gain=_asked_outdoor_gain(found, inputs, state, calendar, weights),
    )


def _contradicted(
    stated: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar, probed: BoolArray
) -> Iterator[str]:
    """That the rows know what heat does, and say otherwise than a stated gain."""
    try:
        _, own = _estimate(inputs, state, calendar, probed, None)
    except AtdmError:  # rows that do not allow an estimate contradict nothing
        return
    response = step_response(stated, round(24 / calendar.step_hours))["load"]
    if own is None or any(_unknown(own)) or abs(response - own.response_24h) <= APART * own.standard_error:
        return
    yield (
        f"with the gain stated 1 kW more for 24 h warms by {response:.3g} K, and the rows, which tell what heat does, "
        f"say {own.response_24h:.3g} ± {own.standard_error:.2g} K: plan without a stated gain, or be sure of it"
    )


def unexplained_share(inputs: Inputs, state: FloatArray, calendar: Calendar) -> float:
    """Share of the load's variance that weather, clock and past temperature do not explain: what excites the model."""
    rows = lagged_rows(inputs.segment, ORDER, 0, inputs.train)
    weather = forcing_columns(inputs, rows, ORDER)[:, ORDER + 1 :]
    past = np.stack([state[rows - m] for m in range(1, ORDER + 1)], axis=1)
    columns = np.column_stack([inputs.load[rows], weather, past - past.mean(axis=0)])
    phase = inputs.phase[rows]
    counts = np.bincount(phase, minlength=inputs.period).astype(float)
    within = columns - season_of(columns, counts, phase, calendar.season)[phase]
    left = within[:, 0] - within[:, 1:] @ np.linalg.lstsq(within[:, 1:], within[:, 0], rcond=None)[0]
    around = inputs.load[rows] - inputs.load[rows].mean()
    spread = float(around @ around)
    return float(left @ left) / spread if spread > 0 else 0.0


def _standard_error(c: Coefficients, inputs: Inputs, state: FloatArray, weights: FloatArray, day: int) -> float:
    """Of the response to load after a day: Newey–West, carried on by its derivatives by α and β. [K/kW]"""
    regression = Regression.build(c, inputs, state)
    root = np.sqrt(weights)
    lags = season_lags(inputs.period, len(regression.rows))
    covariance = newey_west(
        regression.columns * root[:, None], regression.residuals * root, regression.rows, inputs.segment, lags
    )
    point = np.concatenate([c.alpha, c.beta])

    def response(values: FloatArray) -> float:
        moved = replace(c, alpha=values[: c.order], beta=values[c.order :])
        return step_response(moved, day)["load"]

    slope = np.empty(len(point))
    for i, value in enumerate(point):
        shift = np.zeros(len(point))
        shift[i] = FINE * max(abs(float(value)), FINE)
        slope[i] = (response(point + shift) - response(point - shift)) / (2 * shift[i])
    own = covariance[: len(point), : len(point)]
    return float(np.sqrt(max(float(slope @ own @ slope), 0.0)))


def _asked_outdoor_gain(
    held: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar, weights: FloatArray
) -> float:
    """The steady outdoor gain of the same rows where nothing holds it at 1. [-]"""
    gain = steady_gains(held)["outdoor"]
    if gain < 1 - FINE:
        return gain
    return steady_gains(estimate_physical(inputs, state, ORDER, calendar, weights=weights, limits=FREE))["outdoor"]


def _left_out_error(inputs: Inputs, state: FloatArray, calendar: Calendar, probed: BoolArray, day: int) -> float:
    """Of the same: the jackknife over BLOCKS parts in time, however the residuals hang together. [K/kW]

    Large where one part decides and the others say something else: an experiment beside rows that thermostats bent.
    """
    parts = [step_response(c, day)["load"] for _, _, c in _left_out(inputs, state, calendar, probed, None)]
    return float(np.sqrt((BLOCKS - 1) * np.var(parts)))


def _plausibility(c: Coefficients, inputs: Inputs, state: FloatArray, calendar: Calendar) -> Plausibility:
    day = round(24 / calendar.step_hours)
    rows = lagged_rows(inputs.segment, c.order, 0, inputs.train)
    warm, cold = float(state[rows].mean()), float(inputs.outdoor[rows].mean())
    heat, lasting = float(inputs.load[rows].mean()), float(c.beta.sum())
    occupancy, sun = float(c.occupancy[inputs.phase[rows]].mean()), float(inputs.solar[rows].mean())
    others = float(c.gamma.sum()) * cold + float(c.theta.sum()) * sun + occupancy
    need = _over(warm * (1.0 - float(c.alpha.sum())) - others, lasting)
    sign = 1.0 if heat >= 0 else -1.0  # Rule 6
    unheated = [
        warm - step_response(c, days * day)["load"] * heat if heat and sign * (warm - cold) > 0 else None
        for days in (1, 3)
    ]  # fmt: skip
    # the load that makes the temperatures of a day what they were: what was used, and what the model left over Σβ
    memory = np.stack([state[rows - m] for m in range(1, c.order + 1)], axis=1)
    left = state[rows] - memory @ c.alpha - c.forcing(inputs, rows)
    days = rows // day
    number = np.bincount(days)
    whole = np.flatnonzero(number == number.max())
    coldest = whole[np.argmin(sign * np.bincount(days, inputs.outdoor[rows])[whole] / number[whole])]
    there = days == coldest
    used = float(inputs.load[rows][there].mean())
    return Plausibility(
        mean_temp=warm,
        mean_outdoor=cold,
        unheated_24h=unheated[0],
        unheated_72h=unheated[1],
        mean_heat=heat,
        mean_need=need,
        most_heat=float(np.abs(inputs.load[rows]).max()),
        coldest_outdoor=float(inputs.outdoor[rows][there].mean()),
        coldest_heat=used,
        coldest_need=used + _over(float(left[there].mean()), lasting),
        sun_warms=max(steady_gains(c)["solar"] * sun, 0.0),
    )


def _over(value: float, gain: float) -> float:
    return value / gain if gain > 0 else float("inf")


def _unknown(e: Excitation | None) -> Iterator[Refusal]:
    """What the rows do not tell about heat."""
    if e is None:
        return
    if e.unexplained_share < LEAST_SHARE:
        yield Refusal(
            reason="excitation",
            words=f"weather, clock and past temperature explain all but {100 * e.unexplained_share:.1f} % of the load "
            f"(at least {100 * LEAST_SHARE:.0f} % is needed), so what heat does cannot be told from what calls for it",
            remedy=REMEDY,
        )
    if not e.relative_error <= MOST_ERROR:
        known = f"{e.response_24h:.3g} ± {e.standard_error:.2g} K per kW"
        yield Refusal(
            reason="standard error",
            words=f"the response to load after 24 h is {known}, an error of {100 * e.relative_error:.0f} % "
            f"where {100 * MOST_ERROR:.0f} % is the most to plan with",
            remedy=REMEDY,
        )
    if not AGREEMENT[0] <= e.agreement <= AGREEMENT[1]:
        yield Refusal(
            reason="agreement",
            words=f"heat warms {e.agreement:.2f} times as much when judged over {RUN_HOURS:g} h as over one step "
            f"({AGREEMENT[0]:.2f} to {AGREEMENT[1]:.2f} is taken): thermostats hide what heat does",
            remedy=REMEDY,
        )
    if e.outdoor_gain > MOST_OUTDOOR_GAIN:
        yield Refusal(
            reason="outdoor gain",
            words=f"by these rows one K more outdoors would warm the cluster by {e.outdoor_gain:.2f} K for good, where "
            "a building has 1 at most: what is slow in them is not the building, so a day of heat does something else",
            remedy=REMEDY,
        )


def _unjudged(p: Plausibility) -> Iterator[Refusal]:
    """Where what no building does could not be seen: the rules would pass whatever the response to load."""
    sign, free = _mirror(p)
    if sign * (p.mean_temp - free) < -COLDER:
        does, sun = ("cools", " and sun") if p.cools else ("heats", "")
        yield Refusal(
            reason="balance",
            words=f"the load {does} by {abs(p.mean_heat):.1f} kW in the mean, although weather{sun} alone would leave "
            f"the cluster at {free:.1f} °C, not at {p.mean_temp:.1f} °C: something else than the load holds it there",
            remedy=REMEDY,
        )


def _mirror(p: Plausibility) -> tuple[float, float]:
    """The sign of the load (Rule 6), and where the weather alone would leave the cluster. [°C]

    Nothing takes an unheated building below outdoors; an uncooled one the sun may take above.
    """
    return (-1.0, p.mean_outdoor + p.sun_warms) if p.cools else (1.0, p.mean_outdoor)


def _implausible(c: Coefficients, p: Plausibility) -> Iterator[Refusal]:
    """What no building does."""
    gains = steady_gains(c)
    if not (c.beta.sum() > 0 and gains["load"] > 0):
        yield Refusal(reason="heat cools", words="more heat does not warm in the model of these rows",
                      remedy=REMEDY)  # fmt: skip
        return
    if not LEAST_OUTDOOR_GAIN <= gains["outdoor"] <= 1 + FINE:
        yield Refusal(
            reason="outdoor gain",
            words=f"with one K more outdoors the cluster would settle {gains['outdoor']:.2f} K warmer, where a "
            f"building has {LEAST_OUTDOOR_GAIN:g} to 1",
            remedy="use a window with more change of weather",
        )
    sign, free = _mirror(p)
    if p.unheated_72h is not None and sign * (p.unheated_72h - free) < -COLDER:
        without, beyond = ("cooling", "warmer") if p.cools else ("heat", "colder")
        outdoors = f"{p.mean_outdoor:.1f} °C outdoors" + (f" and {p.sun_warms:.1f} K by the sun" if p.cools else "")
        yield Refusal(
            reason="unheated",
            words=f"after 72 h without {without} the cluster would be at {p.unheated_72h:.1f} °C, {beyond} than the "
            f"{outdoors}: {without} counts for too much in this model",
            remedy=REMEDY,
        )
    for what, need, used in (
        (f"the mean weather ({p.mean_outdoor:.1f} °C)", p.mean_need, p.mean_heat),
        (f"the {'hottest' if p.cools else 'coldest'} day ({p.coldest_outdoor:.1f} °C)", p.coldest_need, p.coldest_heat),
    ):
        if sign * used > TELLING * p.most_heat and not sign * used / STEADY <= sign * need <= sign * used * STEADY:
            yield Refusal(
                reason="steady heat",
                words=f"in {what} the model needs {need:.1f} kW for what took {used:.1f} kW",
                remedy=REMEDY,
            )
            return
