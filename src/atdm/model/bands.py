"""Bands by how far off past forecasts were: adaptive conformal prediction, horizon by horizon.

Rule 1: a band at k steps is as wide as a quantile of the errors that forecasts k steps ahead have had: those of
        leave-block-out forecasts of the training rows, and those made before their truth was known.
Rule 2: which quantile follows from how often the bands held (Gibbs and Candès 2021): each error outside widens the next
        ones, each inside narrows them a little, RATE a day in all. A forecast counts once its truth is known.
Rule 3: errors are kept for up to 24 h ahead. Beyond, bands widen as a disturbance spreads through the model's memory.
Rule 4: a forecast is judged by forecasts made as it was. Errors of the temperature where the load was known, of the
        temperature where the load was forecast too, and of that load are three kinds, of the same origins.

So bands hold what they say also where the model is off, as long as it is off as it was; a cluster that is used in a new
way leaves them for about two days.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from atdm.kernel.design import COEFFICIENTS, Inputs
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.model.horizons import origins_in, rolling_errors
from atdm.model.load import LoadModel
from atdm.model.physical import impulse_response
from atdm.model.released import Released, rounded
from atdm.types import FloatArray, IntArray

Kind = Literal["planned", "unplanned", "load"]
KINDS: dict[Kind, str] = {  # of errors → how a file names them
    "planned": "k",  # temperature under a known load                                       [K]
    "unplanned": "unplanned_k",  # temperature where the load was forecast too              [K]
    "load": "load_kw",  # that load, as heat (Eq. 7)                                        [kW]
}
Errors = Mapping[Kind, FloatArray]
LEVELS = {"80": 0.80, "95": 0.95}  # of the bands, by their name
RATE = 0.5  # by which the share left outside may move in a day of nothing but misses
NARROWEST, WIDEST = 0.6, 0.005  # shares left outside, between which Rule 2 stays
PARTS = 100  # leave-block-out errors are kept as so many quantiles and their ends
BLOCKS = 5  # of the training rows, each forecast by a model of the others
DIGITS = 4  # significant digits of quantiles and errors: as they are in a file, and used
KEPT = pd.Timedelta(days=28)  # of errors of past forecasts; older ones are forgotten
APART = pd.Timedelta("1h")  # between kept origins, where steps are shorter


def forecast_errors(
    c: Coefficients, usual: LoadModel | None, inputs: Inputs, state: FloatArray, origins: IntArray, steps: int
) -> dict[Kind, FloatArray]:
    """Forecast − truth from many origins, origins × steps each; NaN where not known. usual: without it, under the known
    load alone."""
    found: dict[Kind, FloatArray] = {"planned": rolling_errors(c, inputs, state, origins, steps)}
    if usual is not None:
        found["load"], found["unplanned"] = usual.errors(c, inputs, state, origins, steps)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecaster:
    """A model that made forecasts of a record, kept until the truth of the last of them is known."""

    since: pd.Timestamp  # first origin it forecast from; the last is the one before the next forecaster's first
    coefficients: Coefficients
    calendar: Calendar
    usual: LoadModel | None = None  # what it forecast the load with; earlier files have none

    def as_dict(self) -> dict[str, Any]:
        numbers = {name: getattr(self.coefficients, name).tolist() for name in COEFFICIENTS}
        usual = None if self.usual is None else self.usual.as_dict()
        return {"since": self.since.isoformat(), **self.calendar.as_dict(), **numbers, "usual": usual}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Forecaster":
        numbers = {name: np.asarray(saved[name], dtype=float) for name in COEFFICIENTS}
        since = pd.Timestamp(saved["since"]).tz_convert("UTC")
        usual = None if saved.get("usual") is None else LoadModel.from_dict(saved["usual"])
        found = cls(
            since=since, coefficients=Coefficients(**numbers), calendar=Calendar.from_dict(saved), usual=usual
        )  # fmt: skip
        sizes = {len(gains) for gains in found.coefficients.gains()} | {found.coefficients.order + 1}
        sound = all(v.ndim == 1 and len(v) and np.isfinite(v).all() for v in numbers.values()) and not pd.isna(since)
        if not sound or len(sizes) != 1 or found.coefficients.period != found.calendar.period:
            raise ValueError("a model of a record of errors does not belong together")
        if usual is not None and (usual.order != found.coefficients.order or len(usual.use) != found.calendar.period):
            raise ValueError("the load of a model of a record of errors does not belong to it")
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """How far off forecasts were. It follows from released rows; it holds no agent's readings."""

    step: pd.Timedelta
    expected: Errors  # quantiles of |error| of leave-block-out forecasts, (PARTS + 1) × steps each
    origins: int  # forecasts they come from
    time: pd.DatetimeIndex  # first row forecast of forecasts made before their truth was known
    errors: Errors  # forecast − truth of these, origins × steps each; NaN where not known
    forecasters: tuple[Forecaster, ...] = ()  # of those whose truth was not all known, the oldest first

    @property
    def steps(self) -> int:
        return int(self.expected["planned"].shape[1])

    def with_errors(self, time: pd.DatetimeIndex, errors: Errors, forecasters: tuple[Forecaster, ...] = ()) -> "Record":
        """The record with later forecasts; of the time before the first of them nothing is lost but what is old.

        errors: kinds that are not there stay unknown. forecasters: who made them, so that errors whose truth is not
        known yet can be filled in later.
        """
        if not len(time):
            return self
        new = _thinned(time, self.step, self.time[-1] if len(self.time) else None)
        all_time = pd.DatetimeIndex(self.time.append(time[new]))
        keep = np.asarray(all_time > all_time[-1] - KEPT) if len(all_time) else np.zeros(0, dtype=bool)
        unknown = np.full((len(time), self.steps), np.nan)
        both = {
            kind: np.vstack([known, rounded(errors.get(kind, unknown)[new], DIGITS)])[keep]
            for kind, known in self.errors.items()
        }
        mine = self.time[-1] + self.step if len(self.time) else time[0]  # an origin in both keeps its forecast
        made = {one.since: one for one in self.forecasters}
        made |= {max(one.since, mine): one for one in forecasters}  # of several before it, the last
        everyone = tuple(replace(one, since=since) for since, one in sorted(made.items()))
        found = replace(self, time=all_time[keep], errors=both, forecasters=everyone)
        return found._without_the_done(time[-1])

    def filled(self, rows: Released) -> "Record":
        """The record with what rows observed since say about forecasts whose truth was not known."""
        errors = {kind: known.copy() for kind, known in self.errors.items()}
        for one, made in zip(self.forecasters, self._made_by(), strict=True):
            open_ = made[np.any([np.isnan(known[made]).any(axis=1) for known in errors.values()], axis=0)]
            if not len(open_):
                continue
            order = one.coefficients.order
            part = rows.between(self.time[open_[0]] - 2 * order * self.step, None)
            inputs = part.inputs(one.calendar)
            origins = origins_in(inputs, 0, len(part), order)
            _, at, own = np.intersect1d(self.time[open_].asi8, part.time[origins].asi8, return_indices=True)
            found = forecast_errors(one.coefficients, one.usual, inputs, part.state, origins[own], self.steps)
            for kind in errors.keys() & found.keys():
                known = errors[kind][open_[at]]
                errors[kind][open_[at]] = np.where(np.isnan(known), rounded(found[kind], DIGITS), known)
        return replace(self, errors=errors)

    def of_size(self, ratio: float) -> "Record":
        """The same errors, of a cluster with `ratio` times the load."""

        def sized(errors: Errors) -> Errors:
            return {kind: rounded(known * ratio, DIGITS) if kind == "load" else known for kind, known in errors.items()}

        same = (
            replace(
                one, coefficients=replace(one.coefficients, beta=one.coefficients.beta / ratio),
                usual=None if one.usual is None else one.usual.of_size(ratio),
            )
            for one in self.forecasters
        )  # fmt: skip
        return replace(self, expected=sized(self.expected), errors=sized(self.errors), forecasters=tuple(same))

    def before(self, start: pd.Timestamp) -> "Record":
        """What was known at `start`."""
        known = np.asarray(self.time < start)
        ends = np.add.outer(self.time[known].asi8, self.step.value * np.arange(self.steps))
        errors = {kind: np.where(ends < start.value, all_[known], np.nan) for kind, all_ in self.errors.items()}
        made = tuple(one for one in self.forecasters if one.since < start)
        return replace(self, time=self.time[known], errors=errors, forecasters=made)

    def with_kinds_of(self, other: "Record") -> "Record":
        """The record with what another expects of the kinds that this one lacks, none of whose errors are known."""
        unknown = np.full((len(self.time), self.steps), np.nan)
        return replace(
            self,
            expected={**other.expected, **self.expected},
            errors={**dict.fromkeys(other.expected, unknown), **self.errors},
        )

    def _made_by(self) -> list[IntArray]:
        """Which origins each forecaster made."""
        first = self.time.searchsorted(pd.DatetimeIndex([one.since for one in self.forecasters], tz="UTC"))
        ends = [*first[1:].tolist(), len(self.time)] if len(first) else []
        return [np.arange(a, b, dtype=np.int64) for a, b in zip(first.tolist(), ends, strict=True)]

    def _without_the_done(self, last: pd.Timestamp) -> "Record":
        """The record without forecasters all of whose forecasts end by `last`."""
        open_ = np.asarray(self.time + self.steps * self.step > last + self.step)
        made = zip(self.forecasters, self._made_by(), strict=True)
        return replace(self, forecasters=tuple(one for one, own in made if open_[own].any()))

    def as_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = {"origins": self.origins, "time": [t.isoformat() for t in self.time]}
        for kind, expected in self.expected.items():
            rows = self.errors[kind]
            document[f"expected_{KINDS[kind]}"] = expected.tolist()
            document[f"errors_{KINDS[kind]}"] = [[None if np.isnan(e) else float(e) for e in row] for row in rows]
        return {**document, "forecasters": [one.as_dict() for one in self.forecasters]}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], step: pd.Timedelta) -> "Record":
        time = pd.DatetimeIndex([pd.Timestamp(t) for t in saved["time"]], tz="UTC").as_unit("ns")
        expected: dict[Kind, FloatArray] = {}
        errors: dict[Kind, FloatArray] = {}
        for kind, name in KINDS.items():
            if kind != "planned" and f"expected_{name}" not in saved:  # earlier files have one kind alone
                continue
            expected[kind] = np.asarray(saved[f"expected_{name}"], dtype=float)
            known = np.array([[np.nan if e is None else float(e) for e in row] for row in saved[f"errors_{name}"]])
            errors[kind] = known.reshape(len(time), expected["planned"].shape[1])
        shape = (PARTS + 1, expected["planned"].shape[1])
        sound = all(e.shape == shape and np.isfinite(e).all() for e in expected.values())
        if not sound or not (np.diff(time.asi8) > 0).all():
            raise ValueError("a record of errors does not belong together")
        made = tuple(Forecaster.from_dict(one) for one in saved.get("forecasters", []))  # earlier files have none
        if any(a.since >= b.since for a, b in pairwise(made)) or any(one.calendar.step != step for one in made):
            raise ValueError("models of a record of errors do not belong together")
        return cls(
            step=step, expected=expected, origins=int(saved["origins"]), time=time, errors=errors, forecasters=made
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Half-widths of one level and kind: at each recorded origin as it would have been drawn then, and now."""

    at_origins: FloatArray  # origins × steps
    now: FloatArray  # steps


def record_of(expected: Errors, step: pd.Timedelta) -> Record:
    """A record that knows leave-block-out errors alone (origins × steps each, NaN where not known)."""
    first = expected["planned"]
    none = pd.DatetimeIndex([], tz="UTC").as_unit("ns")
    return Record(
        step=step, expected={kind: _quantiles(errors) for kind, errors in expected.items()},
        origins=int(np.isfinite(first[:, 0]).sum()), time=none,
        errors={kind: np.empty((0, first.shape[1])) for kind in expected},
    )  # fmt: skip


def _quantiles(errors: FloatArray) -> FloatArray:
    """Of |error| by steps ahead; where none is known, those of the last step that has some."""
    columns = [column[np.isfinite(column)] for column in np.abs(errors).T]
    known = [column for column in columns if len(column)]
    if not known:
        raise ValueError("no forecast of a left-out block is known")
    at = np.linspace(0, 1, PARTS + 1)
    return rounded(np.stack([np.quantile(own if len(own) else known[-1], at) for own in columns], axis=1), DIGITS)


def held(record: Record, level: float, kind: Kind = "planned") -> Held:
    """Replay what Rule 2 would have drawn at each origin of the record, and draw it now."""
    stamps = record.time.asi8
    rate = RATE * (max(APART, record.step) / pd.Timedelta("24h"))  # shared among the origins kept of a day
    stands_for = max(1.0, APART / record.step)  # origins that a kept one stands for
    answer = [
        _replay(stamps, record.errors[kind][:, k], record.expected[kind][:, k], record.origins, stands_for,
                record.step.value * (k + 1), 1.0 - level, rate)
        for k in range(record.steps)
    ]  # fmt: skip
    return Held(at_origins=np.stack([drawn for drawn, _ in answer], axis=1), now=np.array([now for _, now in answer]))


def _replay(
    stamps: IntArray, errors: FloatArray, expected: FloatArray, origins: int, stands_for: float, ahead: int,
    outside: float, rate: float,
) -> tuple[FloatArray, float]:  # fmt: skip
    """One horizon: the half-width at each origin, and now."""
    size, ends = np.abs(errors).tolist(), (stamps + ahead).tolist()
    first: list[float] = expected.tolist()
    seen: list[float] = []  # sorted, as the others are
    each = origins / len(first)  # errors that a quantile stands for
    share, known = outside, 0
    drawn = np.empty(len(errors))
    missed = np.zeros(len(errors), dtype=bool)

    def learn(until: float) -> None:
        nonlocal share, known
        while known < len(size) and ends[known] <= until:
            if math.isfinite(size[known]):
                share = min(max(share + rate * (outside - missed[known]), WIDEST), NARROWEST)
                insort(seen, size[known])
            known += 1

    def width() -> float:
        """The least of all errors that so many do not exceed."""
        many = (1.0 - share) * (each * len(first) + stands_for * len(seen))
        at = bisect_left(first, many, key=lambda e: each * bisect_right(first, e) + stands_for * bisect_right(seen, e))
        lacking = math.ceil((many - each * at) / stands_for)  # of those seen, where the answer is one of them
        answers = [*first[at : at + 1], *(seen[lacking - 1 : lacking] if lacking > 0 else [])]
        return min(answers) if answers else max(first[-1], *seen[-1:])

    for i, stamp in enumerate(stamps.tolist()):
        learn(stamp)
        drawn[i] = width()
        missed[i] = size[i] > drawn[i]  # False where the error is not known
    learn(math.inf)
    return drawn, width()


def half_widths(c: Coefficients, known: FloatArray, steps: int) -> FloatArray:
    """Half-widths 1 … steps ahead from those of up to 24 h (Rule 3). [K]"""
    if steps <= len(known):
        return known[:steps]
    spread = np.sqrt(np.cumsum(impulse_response(c.alpha, steps) ** 2))
    beyond = known[-1] * spread[len(known) :] / spread[len(known) - 1]
    return np.concatenate([known, beyond])


def _thinned(time: pd.DatetimeIndex, step: pd.Timedelta, last: pd.Timestamp | None) -> IntArray:
    """Which of the origins after `last` are kept: the first of each hour, where steps are shorter, whatever minute it
    is stamped with."""
    apart = APART.value if step < APART else 1
    before = np.iinfo(np.int64).min if last is None else last.value // apart
    bucket = time.asi8 // apart
    kept: IntArray = np.flatnonzero((bucket > before) & (np.diff(bucket, prepend=bucket[0] - 1) > 0))
    return kept
