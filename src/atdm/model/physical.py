"""Eq. (2) estimated so that it can be a building: the estimator of every model that is offered for use.

Least squares one step ahead over released rows, as the protocol's own estimate, but under what heat does:

Rule 1: real roots in (0, 1): disturbances decay, none swings or alternates; none lives longer than SLOWEST_HOURS.
Rule 2: outdoor gain Σγ/(1 − Σα) within `Limits.outdoor_gain`, 0 to 1: nobody changes by more than the weather does.
Rule 3: more heat warms: the response to a step of load is not below zero at first, after 6 h, after 24 h or for ever,
        and settles within `Limits.load_gain`.
Rule 4: after 24 h neither warmer weather nor more sun has cooled.
Rule 5: the profile of a day type is pulled towards that of all days with the weight of PULL days, so that two Sundays
        do not decide alone, and a day type that the rows do not have is like all days.

Given the roots, all rules are linear in the other coefficients, so that these are a small convex programme with one
answer (Lawson and Hanson 1974, least distance programming); the search runs over the roots alone, at most three. The
answer depends on nothing but the arguments: no randomness, no agents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize, nnls
from scipy.signal import lfilter

from atdm.errors import UsageError
from atdm.kernel.descent import lag_filter
from atdm.kernel.design import INPUTS, Inputs, forcing_columns, lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model.calendar import Calendar
from atdm.model.diagnostics import roots
from atdm.types import FloatArray, IntArray

SLOWEST_HOURS = 1000.0  # longest time constant; six weeks, beyond any building's and most training windows
FASTEST_STEPS = 0.1  # shortest, in steps: its root is exp(−10), a mode that is gone within one step
APART = 0.1  # least distance of two time constants, in their logarithm: equal roots are complex to a computer
PULL = 1.0  # days
LOOSE = 1e-9  # share of a column's square added to it: inputs that hardly differ share what they explain
DUST = 1e-12  # share of a column's square below which what the season leaves of it is rounding
STARTS = ((200.0, 3.0, 0.5), (40.0, 1.0, 0.25))  # time constants the search starts from, beside least squares' own [h]
FINE = 1e-5  # step of a derivative, in the logarithm of a time constant
LEAST_ROWS = 8  # rows that follow each other, for each lag of an input


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the steady gains must keep to; equal ends fix one of them (an engineer who knows the K per kW)."""

    outdoor_gain: tuple[float, float] = (0.0, 1.0)  # Σγ/(1−Σα)                                 [-]
    load_gain: tuple[float, float] = (0.0, np.inf)  # Σβ/(1−Σα), where s settles per kW for ever [K/kW]


def estimate_physical(
    inputs: Inputs,
    state: FloatArray,
    order: int,
    calendar: Calendar,
    *,
    rows: IntArray | None = None,
    weights: FloatArray | None = None,
    limits: Limits | None = None,
) -> Coefficients:
    """The model of order `order` (1 to 3) of a released aggregate series, under the rules above.

    inputs: load, weather and phase by row; the phase must be that of `calendar` (`calendar.on(inputs, time)`).
    state: aggregate temperature by row [°C]; calendar: season and day types, whose profiles occupancy holds.
    rows: which rows to explain; each needs `order` predecessors in its segment. Default: all such training rows.
    weights: how much each of `rows` counts, e.g. less the older it is; default: all alike.
    limits: bounds of the steady gains; default: outdoor 0 to 1, load at least 0.
    """
    if inputs.period != calendar.period:
        raise ValueError(f"inputs have {inputs.period} season steps, the calendar {calendar.period}")
    used = lagged_rows(inputs.segment, order, 0, inputs.train) if rows is None else rows
    if len(used) < LEAST_ROWS * (order + 1):
        raise UsageError(f"{len(used)} rows that follow each other for a model of order {order}: give a longer window")
    problem = _OneStep.build(inputs, state, order, calendar, used, weights, limits or Limits())
    alpha = problem.search(calendar.step_hours)
    gains = problem.best(alpha)[1]
    memory = np.stack([state[used - m] for m in range(order + 1)])
    left = lag_filter(alpha) @ memory - forcing_columns(inputs, used, order) @ gains
    occupancy = season_of(left, problem.counts, inputs.phase[used], calendar.season, weights)
    return Coefficients.of(alpha, gains, occupancy)


def season_of(
    values: FloatArray, counts: FloatArray, phase: IntArray, season: int, weights: FloatArray | None = None
) -> FloatArray:
    """The profiles that explain values best, day types pulled towards all days (Rule 5); one number for each phase.

    At each step k of the season: least Σ_d n_d (m_d − μ − δ_d)² + PULL Σ_d δ_d², m_d the mean of day type d and n_d its
    number of rows. Columns of values (n × c) are treated one by one.
    """
    columns = values[:, None] if values.ndim == 1 else values
    scaled = columns if weights is None else columns * weights[:, None]
    sums = np.stack([np.bincount(phase, column, len(counts)) for column in scaled.T], axis=1)
    types = len(counts) // season
    n = counts.reshape(types, season, 1)
    mean = (sums / np.maximum(counts, 1e-12)[:, None]).reshape(types, season, -1)
    if types == 1:
        profile = mean
    else:
        share = n / (n + PULL)
        total = share.sum(axis=0)
        middle = (share * mean).sum(axis=0) / np.where(total > 0, total, 1.0)
        profile = middle + share * (mean - middle)
    answer: FloatArray = profile.reshape(len(counts), -1)
    return answer[:, 0] if values.ndim == 1 else answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Squares:
    """What least squares for given α needs: ‖y − X b‖² = total − 2 crossᵀb + bᵀ inner b, b = (β, γ, θ)."""

    total: float
    cross: FloatArray
    inner: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneStep:
    """The squares of Eq. (2) as a form in (1, −α, −β, −γ, −θ)."""

    order: int
    gram: FloatArray  # of [lags 0 … M of s | lags of h, o, r] without the season, 4(M+1) square
    turn: FloatArray  # of the square of h, o, r: see `turned`
    counts: FloatArray  # (weighted) rows of each phase
    limits: Limits
    day: int  # steps of 24 h

    @classmethod
    def build(
        cls,
        inputs: Inputs,
        state: FloatArray,
        order: int,
        calendar: Calendar,
        rows: IntArray,
        weights: FloatArray | None,
        limits: Limits,
    ) -> "_OneStep":
        phase = inputs.phase[rows]
        counts = np.bincount(phase, weights, inputs.period).astype(float)
        level = float(state[rows].mean())
        memory = np.stack([state[rows - m] - level for m in range(order + 1)], axis=1)
        columns = np.hstack([memory, forcing_columns(inputs, rows, order)])
        within = columns - season_of(columns, counts, phase, calendar.season, weights)[phase]
        scaled = columns if weights is None else columns * weights[:, None]
        gram = scaled.T @ within  # I − S is symmetric: the squares that the penalised season leaves
        gram = without_dust((gram + gram.T) / 2, np.einsum("ij,ij->j", scaled, columns))
        day = max(1, round(24 / calendar.step_hours))
        turn = turned(gram[order + 1 :, order + 1 :])
        return cls(order=order, gram=gram, turn=turn, counts=counts, limits=limits, day=day)

    def best(self, alpha: FloatArray) -> tuple[float, FloatArray]:
        """Least squares for given α under the rules: what is left, and β, γ, θ."""
        m1, lags = self.order + 1, lag_filter(alpha)
        squares = Squares(
            total=float(lags @ self.gram[:m1, :m1] @ lags),
            cross=self.gram[m1:, :m1] @ lags,
            inner=self.gram[m1:, m1:],
        )
        return constrained(squares, alpha, self.day, self.limits, self.turn)

    def search(self, step_hours: float) -> FloatArray:
        """α that leaves least: that of free least squares where it keeps the rules, else the best of a search."""
        free, lowest = self._free()
        own = log_times(free, step_hours)
        fast, slow = np.log(FASTEST_STEPS * step_hours), np.log(SLOWEST_HOURS)
        if fast < own[-1] and own[0] < slow and (-np.diff(own) > APART).all():
            ours = alpha_of_roots(np.exp(-step_hours / np.exp(own)))
            if np.allclose(ours, free, atol=1e-9) and self.best(ours)[0] <= lowest * (1 + 1e-9):
                return ours
        starts = [own, *(np.log(np.array(hours[: self.order])) for hours in STARTS)]
        return search_roots(lambda alpha: self.best(alpha)[0], starts, step_hours)

    def _free(self) -> tuple[FloatArray, float]:
        """α of least squares without rules, and what that leaves."""
        square = self.gram[1:, 1:]
        size = _sizes(square)
        found = cho_solve((_cholesky(square, size), True), self.gram[1:, 0] / size) / size
        left = self.gram[0, 0] - 2 * self.gram[0, 1:] @ found + found @ square @ found
        return found[: self.order], float(left)


def constrained(
    squares: Squares, alpha: FloatArray, day: int, limits: Limits, turn: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """Least squares under Rules 2 to 4: what is left, and (β, γ, θ)."""
    turn = turned(squares.inner) if turn is None else turn
    free = turn @ squares.cross  # the free answer is turnᵀ free
    rule, bound = _rules(alpha, day, limits)
    across = rule @ turn.T
    need = bound - across @ free
    moved = free if (need <= 0).all() else free + _least_distance(across, need)
    gains = moved @ turn
    return float(squares.total - 2 * squares.cross @ gains + gains @ squares.inner @ gains), gains


def turned(inner: FloatArray) -> FloatArray:
    """T with TᵀT the inverse of a square form: in coordinates T⁻ᵀ b the form is a distance."""
    size = _sizes(inner)
    return np.asarray(solve_triangular(_cholesky(inner, size), np.diag(1 / size), lower=True), dtype=np.float64)


def search_roots(
    left: Callable[[FloatArray], float], starts: Sequence[FloatArray], step_hours: float, tolerance: float = 1e-9
) -> FloatArray:
    """α with real roots (Rule 1) for which left(α) is least: the best of searches from `starts`, logarithms of time
    constants in hours, the slowest first. tolerance: of the logarithm of left."""
    order = len(starts[0])
    fast, slow = np.log(FASTEST_STEPS * step_hours), np.log(SLOWEST_HOURS)
    bounds = [(fast, slow)] + [(APART, slow - fast)] * (order - 1)

    def alpha_of(point: FloatArray) -> FloatArray:
        """point: logarithm of the slowest time constant, and by how much each of the others is below the last."""
        logs = np.maximum(point[0] - np.cumsum([0.0, *point[1:]]), fast - APART * np.arange(order))
        return alpha_of_roots(np.exp(-step_hours / np.exp(logs)))

    def value(point: FloatArray) -> float:
        return float(np.log(max(left(alpha_of(point)), np.finfo(float).tiny)))

    how = {"maxiter": 60, "ftol": tolerance, "gtol": 1e-6, "eps": FINE}
    found = []
    for logs in starts:
        point = np.clip([logs[0], *-np.diff(logs)], *np.transpose(bounds))
        found.append(minimize(value, point, method="L-BFGS-B", bounds=bounds, options=cast(Any, how)))
    return alpha_of(min(found, key=lambda f: float(f.fun)).x)


def log_times(alpha: FloatArray, step_hours: float) -> FloatArray:
    """Logarithms of the time constants of α's roots, in hours, slowest first; roots that do not decay count as slow."""
    size = np.clip(np.abs(roots(alpha)), 1e-6, 1 - 1e-9)
    return np.asarray(np.log(-step_hours / np.log(size)), dtype=np.float64)


def alpha_of_roots(poles: FloatArray) -> FloatArray:
    """α whose z^M − Σ α_m z^(M−m) has these roots."""
    return np.asarray(-np.poly(poles)[1:], dtype=np.float64)


def impulse_response(alpha: FloatArray, steps: int) -> FloatArray:
    """What is left of a push of one after 0 … steps−1 steps."""
    unit = np.zeros(steps)
    unit[0] = 1.0
    return np.asarray(lfilter([1.0], lag_filter(alpha), unit), dtype=np.float64)


def _rules(alpha: FloatArray, day: int, limits: Limits) -> tuple[FloatArray, FloatArray]:
    """rule @ (β, γ, θ) ≥ bound for Rules 2 to 4, each row scaled to its largest number."""
    m1, lasting = len(alpha) + 1, 1.0 - float(alpha.sum())
    last = max(day - 1, m1)  # the day's last step, as model/diagnostics.py has it
    settle = np.concatenate([np.zeros(m1), np.cumsum(impulse_response(alpha, last + 1))])

    def after(steps: int) -> FloatArray:
        """Response so many steps after a step of an input: this times its lags' numbers."""
        return settle[m1 + steps - np.arange(m1)]

    def of(name: str, numbers: FloatArray) -> FloatArray:
        """A rule about one input; the others do not matter."""
        return np.concatenate([numbers if i.name == name else np.zeros(m1) for i in INPUTS])

    one = np.ones(m1)
    lowest, highest = limits.load_gain
    cold, warm = limits.outdoor_gain
    early = sorted({*range(m1 + 1), day // 4, last})
    rows: list[tuple[FloatArray, float]] = [(of("load", after(k)), 0.0) for k in early if k <= last]
    rows.append((of("load", one), lowest * lasting))
    if np.isfinite(highest):
        rows.append((of("load", -one), -highest * lasting))
    rows += [
        (of("outdoor", one), cold * lasting),
        (of("outdoor", -one), -warm * lasting),
        (of("outdoor", after(last)), 0.0),
        (of("solar", after(last)), 0.0),
    ]
    rule, bound = np.stack([r for r, _ in rows]), np.array([b for _, b in rows])
    scale = np.abs(rule).max(axis=1)
    return rule / scale[:, None], bound / scale


def _least_distance(rule: FloatArray, bound: FloatArray) -> FloatArray:
    """The shortest y with rule @ y ≥ bound (Lawson and Hanson 1974, ch. 23)."""
    system = np.vstack([rule.T, bound])
    target = np.zeros(len(system))
    target[-1] = 1.0
    multipliers, _ = nnls(system, target)
    residual = system @ multipliers - target
    answer: FloatArray = -residual[:-1] / residual[-1]
    return answer


def without_dust(gram: FloatArray, whole: FloatArray) -> FloatArray:
    """A form without the columns of which the season leaves nothing but rounding; whole: their squares before."""
    kept = np.diag(gram) > DUST * whole
    return np.where(np.outer(kept, kept), gram, 0.0)


def _sizes(square: FloatArray) -> FloatArray:
    """Norms of the columns; one where a column is zero."""
    size = np.sqrt(np.maximum(np.diag(square), 0.0))
    return np.where(size > 0, size, 1.0)


def _cholesky(square: FloatArray, size: FloatArray) -> FloatArray:
    """L of a form whose columns are scaled to unit norm, loosened so that it has one whatever the rounding."""
    values, vectors = np.linalg.eigh(square / np.outer(size, size))
    return np.asarray(np.linalg.cholesky((vectors * (values.clip(min=0.0) + LOOSE)) @ vectors.T), dtype=np.float64)
