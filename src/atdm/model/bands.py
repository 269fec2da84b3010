"""Bands by how far off past forecasts were: adaptive conformal prediction, horizon by horizon.

Rule 1: a band at k steps is as wide as a quantile of the errors that forecasts k steps ahead have had: those of
        leave-block-out forecasts of the training rows, and those made before their truth was known.
Rule 2: which quantile follows from how often the bands held (Gibbs and Candès 2021): each error outside widens the next
        ones, each inside narrows them a little, RATE a day in all. A forecast counts once its truth is known.
Rule 3: errors are kept for up to 24 h ahead. Beyond, bands widen as a disturbance spreads through the model's memory.

So bands hold what they say also where the model is off, as long as it is off as it was; a cluster that is used in a new
way leaves them for about two days.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from atdm.kernel.thermal import Coefficients
from atdm.model.physical import impulse_response
from atdm.model.released import rounded
from atdm.types import FloatArray, IntArray

LEVELS = {"80": 0.80, "95": 0.95}  # of the bands, by their name
RATE = 0.5  # by which the share left outside may move in a day of nothing but misses
NARROWEST, WIDEST = 0.6, 0.005  # shares left outside, between which Rule 2 stays
PARTS = 100  # leave-block-out errors are kept as so many quantiles and their ends
BLOCKS = 5  # of the training rows, each forecast by a model of the others
DIGITS, PLACES = 4, 4  # significant digits of a quantile, decimals of an error: as they are in a file, and used
KEPT = pd.Timedelta(days=28)  # of errors of past forecasts; older ones are forgotten
APART = pd.Timedelta("1h")  # between kept origins, where steps are shorter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """How far off forecasts were. It follows from released rows; it holds no agent's readings."""

    step: pd.Timedelta
    expected: FloatArray  # quantiles of |error| of leave-block-out forecasts, (PARTS + 1) × steps      [K]
    origins: int  # forecasts they come from
    time: pd.DatetimeIndex  # first row forecast of forecasts made before their truth was known
    errors: FloatArray  # forecast − truth of these, origins × steps; NaN where not known               [K]

    @property
    def steps(self) -> int:
        return int(self.expected.shape[1])

    def with_errors(self, time: pd.DatetimeIndex, errors: FloatArray) -> "Record":
        """The record with later forecasts; of the time before the first of them nothing is lost but what is old."""
        thin = _thinned(time, self.step)
        later = time[thin] > self.time[-1] if len(self.time) else np.ones(len(thin), dtype=bool)
        all_time = pd.DatetimeIndex(self.time.append(time[thin][later]))
        both = np.vstack([self.errors, np.round(errors[thin][later], PLACES)])
        keep = np.asarray(all_time > all_time[-1] - KEPT) if len(all_time) else np.zeros(0, dtype=bool)
        return Record(
            step=self.step, expected=self.expected, origins=self.origins, time=all_time[keep], errors=both[keep]
        )

    def before(self, start: pd.Timestamp) -> "Record":
        """What was known at `start`."""
        known = np.asarray(self.time < start)
        ends = np.add.outer(self.time[known].asi8, self.step.value * np.arange(self.steps))
        errors = np.where(ends < start.value, self.errors[known], np.nan)
        return Record(
            step=self.step, expected=self.expected, origins=self.origins, time=self.time[known], errors=errors
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "expected_k": self.expected.tolist(),
            "origins": self.origins,
            "time": [t.isoformat() for t in self.time],
            "errors_k": [[None if np.isnan(e) else float(e) for e in row] for row in self.errors],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], step: pd.Timedelta) -> "Record":
        expected = np.asarray(saved["expected_k"], dtype=float)
        time = pd.DatetimeIndex([pd.Timestamp(t) for t in saved["time"]], tz="UTC").as_unit("ns")
        errors = np.array([[np.nan if e is None else float(e) for e in row] for row in saved["errors_k"]])
        errors = errors.reshape(len(time), expected.shape[1])
        if expected.shape[0] != PARTS + 1 or not np.isfinite(expected).all() or not (np.diff(time.asi8) > 0).all():
            raise ValueError("a record of errors does not belong together")
        return cls(step=step, expected=expected, origins=int(saved["origins"]), time=time, errors=errors)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Half-widths of one level: at each recorded origin as it would have been drawn then, and now."""

    at_origins: FloatArray  # origins × steps [K]
    now: FloatArray  # steps                  [K]


def record_of(expected: FloatArray, step: pd.Timedelta) -> Record:
    """A record that knows leave-block-out errors alone (origins × steps, NaN where not known)."""
    quantiles = np.linspace(0, 1, PARTS + 1)
    size = np.abs(expected)
    columns = [column[np.isfinite(column)] for column in size.T]
    known = [column for column in columns if len(column)]
    if not known:
        raise ValueError("no forecast of a left-out block is known")
    table = np.stack([np.quantile(column if len(column) else known[-1], quantiles) for column in columns], axis=1)
    none = pd.DatetimeIndex([], tz="UTC").as_unit("ns")
    return Record(
        step=step, expected=rounded(table, DIGITS), origins=int(np.isfinite(size[:, 0]).sum()), time=none,
        errors=np.empty((0, expected.shape[1])),
    )  # fmt: skip


def held(record: Record, level: float) -> Held:
    """Replay what Rule 2 would have drawn at each origin of the record, and draw it now."""
    stamps = record.time.asi8
    rate = RATE * (APART / pd.Timedelta("24h") if record.step < APART else record.step / pd.Timedelta("24h"))
    stands_for = max(1.0, APART / record.step)  # origins that a kept one stands for
    answer = [
        _replay(stamps, record.errors[:, k], record.expected[:, k], record.origins, stands_for,
                record.step.value * (k + 1), 1.0 - level, rate)
        for k in range(record.steps)
    ]  # fmt: skip
    return Held(at_origins=np.stack([drawn for drawn, _ in answer], axis=1), now=np.array([now for _, now in answer]))


def _replay(
    stamps: IntArray, errors: FloatArray, expected: FloatArray, origins: int, stands_for: float, ahead: int,
    outside: float, rate: float,
) -> tuple[FloatArray, float]:  # fmt: skip
    """One horizon: the half-width at each origin, and now."""
    size = np.abs(errors)
    pool, weights = expected, np.full(len(expected), origins / len(expected))
    share, known = outside, 0
    drawn = np.empty(len(errors))
    missed = np.zeros(len(errors), dtype=bool)

    def learn(until: int) -> None:
        nonlocal pool, weights, share, known
        while known < len(errors) and stamps[known] + ahead <= until:
            if np.isfinite(size[known]):
                share = min(max(share + rate * (outside - missed[known]), WIDEST), NARROWEST)
                at = int(np.searchsorted(pool, size[known]))
                pool, weights = np.insert(pool, at, size[known]), np.insert(weights, at, stands_for)
            known += 1

    def width() -> float:
        total = np.cumsum(weights)
        at = int(np.searchsorted(total, (1.0 - share) * total[-1]))
        return float(pool[min(at, len(pool) - 1)])

    for i, stamp in enumerate(stamps.tolist()):
        learn(stamp)
        drawn[i] = width()
        missed[i] = size[i] > drawn[i]  # False where the error is not known
    learn(np.iinfo(np.int64).max)
    return drawn, width()


def half_widths(c: Coefficients, known: FloatArray, steps: int) -> FloatArray:
    """Half-widths 1 … steps ahead from those of up to 24 h (Rule 3). [K]"""
    if steps <= len(known):
        return known[:steps]
    spread = np.sqrt(np.cumsum(impulse_response(c.alpha, steps) ** 2))
    beyond = known[-1] * spread[len(known) :] / spread[len(known) - 1]
    return np.concatenate([known, beyond])


def _thinned(time: pd.DatetimeIndex, step: pd.Timedelta) -> IntArray:
    """Which of the origins are kept: those on whole hours, where steps are shorter."""
    if step >= APART:
        return np.arange(len(time), dtype=np.int64)
    kept: IntArray = np.flatnonzero(time.asi8 % APART.value == 0)
    return kept
