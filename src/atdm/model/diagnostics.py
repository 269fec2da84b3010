"""Whether to trust a fitted model: residuals, poles, gains, standard errors, and warnings in plain words.

Everything follows from the released aggregate series and the public inputs, so the aggregator computes it alone.
Standard errors are conditional on the weights ξ, which define what the aggregate temperature is.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.special import chdtrc

from atdm.kernel.descent import lag_filter
from atdm.kernel.design import COEFFICIENTS, INPUTS, REFERENCE_TEMP, Design, Inputs
from atdm.kernel.thermal import Coefficients
from atdm.types import ComplexArray, FloatArray, IntArray

DRAWS = 1000  # of the coefficients, for the bands of the time constants
NORMAL_95 = 1.959964  # half-width of a normal 95 % interval, in standard deviations
TERMS = ("initial", *(i.name for i in INPUTS), "season", "residual")
EFFECTS = {i.name: i.backwards for i in INPUTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whiteness:
    """Ljung–Box test that the residuals carry nothing a model could still use.

    Attributes
    ----------
    lags : int
        Lags tested.
    statistic : float
        Q = n (n+2) Σ_k r_k²/(n−k) [-].
    degrees : int
        Degrees of freedom, lags − M.
    p_value : float
        Chance of so large a Q with white residuals [-].
    """

    lags: int
    statistic: float
    degrees: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """The health of one fit, over its training rows.

    Attributes
    ----------
    rows : int
        Training rows with M predecessors.
    step_hours : float
        Length of one step [h].
    residual_std : float
        Standard deviation of the residuals, one step ahead [K].
    autocorrelation : array of float
        Of the residuals at lags 1, 2, … [-].
    autocorrelation_bound : float
        95 % of white residuals stay within ± this [-].
    whiteness : Whiteness
        Ljung–Box test of the residuals.
    roots : array of complex
        Roots of z^M − Σ α_m z^(M−m), the slowest first [-].
    stable : bool
        Whether all roots are inside the unit circle.
    time_constants : array of float
        Of the roots, the slowest first; infinite where a root does not decay [h].
    time_constant_bands : array of float
        Their 95 % bands, M × 2 [h].
    gains : dict
        Where the aggregate temperature settles per unit of load [K/kW], outdoor [-] and solar [K/(kW/m²)].
    response_24h : dict
        Its change after 24 h of one unit more, in the same units.
    standard_errors : dict
        Newey–West, of alpha, beta, gamma, theta and occupancy, in their units.
    condition : float
        Of the regression, columns scaled to unit norm [-].
    variance_share : dict
        Share of the variance of the aggregate temperature by term, adding up to 1 [-].
    warnings : tuple of str
        What to distrust, and what to do.
    """

    rows: int
    step_hours: float
    residual_std: float
    autocorrelation: FloatArray
    autocorrelation_bound: float
    whiteness: Whiteness
    roots: ComplexArray
    stable: bool
    time_constants: FloatArray
    time_constant_bands: FloatArray
    gains: dict[str, float]
    response_24h: dict[str, float]
    standard_errors: dict[str, FloatArray]
    condition: float
    variance_share: dict[str, float]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: roots as their moduli, arrays as lists."""
        document = {**asdict(self), "roots": np.abs(self.roots)}
        document["standard_errors"] = {name: values.tolist() for name, values in self.standard_errors.items()}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in document.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Eq. (2) as one regression over the training rows, for its residuals and their consequences."""

    rows: IntArray
    columns: FloatArray  # [lags of s − 20 °C | X], n × p
    residuals: FloatArray  # ε of Eq. (2) with the fitted coefficients          [K]

    @classmethod
    def build(cls, c: Coefficients, inputs: Inputs, state: FloatArray) -> "Regression":
        design = Design.build(inputs, c.order, minimum_norm=True)
        rows = design.rows
        memory = np.stack([state[rows - m] for m in range(1, c.order + 1)], axis=1)
        residuals = state[rows] - c.forcing(inputs, rows) - memory @ c.alpha
        return cls(rows=rows, columns=np.hstack([memory - REFERENCE_TEMP, design.columns]), residuals=residuals)

    def condition(self) -> float:
        norms = np.linalg.norm(self.columns, axis=0)
        values = np.linalg.svd(self.columns / np.where(norms > 0, norms, 1.0), compute_uv=False)
        return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")


def diagnose(c: Coefficients, inputs: Inputs, state: FloatArray, step_hours: float) -> Diagnostics:
    """Whether to trust a fitted model: residuals, poles, gains, standard errors, and warnings in plain words.

    `Fit.diagnostics` calls it for a fit.

    Parameters
    ----------
    c : Coefficients
        The fitted coefficients.
    inputs : Inputs
        The model's inputs on the released rows.
    state : array of float
        Aggregate temperature on the same rows [°C].
    step_hours : float
        Length of one step [h].

    Returns
    -------
    Diagnostics
        The health of the fit over its training rows.
    """
    regression = Regression.build(c, inputs, state)
    residuals, rows = regression.residuals, regression.rows
    season = min(c.period, max(1, round(24 / step_hours)))  # occupants repeat themselves daily
    lags = max(c.order + 1, min(season, len(rows) // 5))
    acf = autocorrelation(residuals, rows, inputs.segment, lags)
    covariance = newey_west(regression.columns, residuals, rows, inputs.segment, season_lags(season, len(rows)))
    poles = roots(c.alpha)
    found = Diagnostics(
        rows=len(rows),
        step_hours=step_hours,
        residual_std=float(residuals.std()),
        autocorrelation=acf,
        autocorrelation_bound=NORMAL_95 / float(np.sqrt(len(rows))),
        whiteness=ljung_box(acf, len(rows), c.order),
        roots=poles,
        stable=bool((np.abs(poles) < 1).all()),
        time_constants=time_constants(poles, step_hours),
        time_constant_bands=_time_constant_bands(c.alpha, covariance, step_hours),
        gains=steady_gains(c),
        response_24h=step_response(c, max(1, round(24 / step_hours))),
        standard_errors=split(np.sqrt(np.diag(covariance).clip(min=0)), c.order),
        condition=regression.condition(),
        variance_share=variance_share(c, inputs, state, regression),
        warnings=(),
    )
    values = {name: getattr(found, name) for name in Diagnostics.__dataclass_fields__}
    return Diagnostics(**{**values, "warnings": tuple(_warnings(found, step_hours))})


def autocorrelation(values: FloatArray, rows: IntArray, segment: IntArray, lags: int) -> FloatArray:
    """Correlation of a series with itself 1 … `lags` steps before; no product crosses a gap."""
    series = _spread(values - values.mean(), rows, segment, lags)
    products = np.array([series[k:] @ series[: len(series) - k] for k in range(1, lags + 1)])
    answer: FloatArray = products / (series @ series)
    return answer


def ljung_box(acf: FloatArray, rows: int, order: int) -> Whiteness:
    """Q = n (n+2) Σ_k r_k²/(n−k), χ² with (lags − M) degrees for white residuals (Ljung and Box 1978)."""
    lag = np.arange(1, len(acf) + 1)
    statistic = float(rows * (rows + 2) * (acf**2 / (rows - lag)).sum())
    degrees = len(acf) - order
    return Whiteness(
        lags=len(acf), statistic=statistic, degrees=degrees, p_value=float(chdtrc(degrees, statistic))
    )  # fmt: skip


def season_lags(period: int, rows: int) -> int:
    """Lags for the Newey–West estimate: one season, for occupants repeat themselves daily; at most a quarter."""
    return max(1, min(period, rows // 4))


def newey_west(columns: FloatArray, residuals: FloatArray, rows: IntArray, segment: IntArray, lags: int) -> FloatArray:
    """Covariance of least-squares coefficients that stays honest when residuals are correlated (Newey and West 1987).

    (XᵀX)⁻¹ S (XᵀX)⁻¹ · n/(n−p),  S = Σ_{|l| ≤ L} (1 − |l|/(L+1)) Σ_t g_t g_{t−l}ᵀ,  g_t = x_t ε_t

    S is summed as Σ_j w_j w_jᵀ/(L+1), w_j the sum of g over the j-th window of L+1 steps: two steps l apart share
    L+1−l windows.
    """
    scale = np.linalg.norm(columns, axis=0)
    scale[scale == 0] = 1.0
    scaled = columns / scale
    scores = _spread(scaled * residuals[:, None], rows, segment, lags)
    cumulated = np.cumsum(np.pad(scores, ((lags + 1, lags), (0, 0))), axis=0)
    windows = cumulated[lags + 1 :] - cumulated[: -lags - 1]
    middle = windows.T @ windows / (lags + 1)
    inverse = np.linalg.pinv(scaled.T @ scaled, hermitian=True)
    count, parameters = columns.shape
    answer: FloatArray = inverse @ middle @ inverse * (count / (count - parameters)) / np.outer(scale, scale)
    return answer


def roots(alpha: FloatArray) -> ComplexArray:
    """Poles of the model: roots of z^M − Σ α_m z^(M−m), the slowest (largest) first."""
    found = np.roots(lag_filter(alpha)).astype(np.complex128)
    # np.roots drops trailing zero coefficients, whose roots are zero
    found = np.concatenate([found, np.zeros(len(alpha) - len(found), dtype=np.complex128)])
    return found[np.argsort(-np.abs(found), kind="stable")]


def time_constants(poles: ComplexArray, step_hours: float) -> FloatArray:
    """τ = −Δt/ln|z|: time in which the mode of a discrete root z falls to 1/e. [h]"""
    size = np.abs(poles)
    with np.errstate(divide="ignore"):
        return np.where(size < 1, -step_hours / np.log(np.where(size < 1, size, 0.5)), np.inf)


def steady_gains(c: Coefficients) -> dict[str, float]:
    """Σβ/(1−Σα) and so on: where s settles per unit held for ever; NaN for a model that does not settle."""
    settles = bool((np.abs(roots(c.alpha)) < 1).all())
    lasting = 1.0 - float(c.alpha.sum())
    sums = {i.name: float(gains.sum()) for i, gains in zip(INPUTS, c.gains(), strict=True)}
    return {name: value / lasting if settles else float("nan") for name, value in sums.items()}


def step_response(c: Coefficients, steps: int) -> dict[str, float]:
    """Change of s after `steps` steps of one unit more of an input."""
    answer = {}
    for i, gains in zip(INPUTS, c.gains(), strict=True):
        forcing = np.cumsum(np.concatenate([gains, np.zeros(steps)]))[:steps]
        answer[i.name] = float(impulse_filter(c.alpha, forcing)[-1])
    return answer


def impulse_filter(alpha: FloatArray, forcing: FloatArray) -> FloatArray:
    """y_t = Σ α_m y_{t−m} + forcing_t from rest, along the first axis."""
    run: FloatArray = lfilter([1.0], lag_filter(alpha), forcing, axis=0)
    return run


def variance_share(c: Coefficients, inputs: Inputs, state: FloatArray, regression: Regression) -> dict[str, float]:
    """How much of the variance of s each term of Eq. (2) carries once the memory Σ α s has passed it on.

    Eq. (2) is linear, so s is exactly the sum of six responses: to the first M values of a segment, load, outdoor
    temperature, sun, season and residuals, each counted from its mean (the season takes what the means leave).
    The share of a term is cov(term, s)/var(s): shares add up to 1, and one is negative where its term works against
    the others. NaN for an unstable model, whose responses grow without end and only together make a temperature.
    """
    if (np.abs(roots(c.alpha)) >= 1).any():
        return dict.fromkeys(TERMS, float("nan"))
    rows, order = regression.rows, c.order
    m1 = order + 1
    lags = (regression.columns[:, order + k * m1 : order + (k + 1) * m1] for k in range(len(INPUTS)))
    responses = (columns @ gains for columns, gains in zip(lags, c.gains(), strict=True))
    forcing = np.column_stack(
        [np.zeros(len(rows)), *responses, c.occupancy[inputs.phase[rows]], regression.residuals]
    )  # fmt: skip
    forcing -= forcing.mean(axis=0)
    level = float(state[rows].mean())
    memory = regression.columns[:, :order] + (REFERENCE_TEMP - level)
    season = TERMS.index("season")
    forcing[:, season] += (state[rows] - level) - memory @ c.alpha - forcing.sum(axis=1)
    run = np.zeros((inputs.train, len(TERMS)))
    run[:, 0] = state[: inputs.train] - level  # rows without M predecessors are given
    for t, u in zip(rows.tolist(), forcing, strict=True):
        run[t] = u + c.alpha @ run[t - order : t][::-1]
    total = state[rows] - state[rows].mean()
    shares = (run[rows] - run[rows].mean(axis=0)).T @ total / (total @ total)
    return {name: float(share) for name, share in zip(TERMS, shares, strict=True)}


def split(values: FloatArray, order: int) -> dict[str, FloatArray]:
    """All coefficients in the order of the regression's columns, by name: α, β, γ, θ, occupancy."""
    ends = np.cumsum([order, *[order + 1] * len(INPUTS)])
    return dict(zip(COEFFICIENTS, np.split(values, ends), strict=True))


def _time_constant_bands(alpha: FloatArray, covariance: FloatArray, step_hours: float) -> FloatArray:
    order = len(alpha)
    values, vectors = np.linalg.eigh(covariance[:order, :order])
    draws = np.random.default_rng(0).standard_normal((DRAWS, order)) @ (vectors * np.sqrt(values.clip(min=0))).T
    times = np.array([time_constants(roots(alpha + draw), step_hours) for draw in draws])
    # an observed value each, not an interpolated one: between a number and infinity there is nothing
    bands: FloatArray = np.quantile(times, [0.025, 0.975], axis=0, method="nearest").T
    return bands


def _spread(values: FloatArray, rows: IntArray, segment: IntArray, gap: int) -> FloatArray:
    """The values on one time line, zeros where rows are missing and `gap` zeros between segments."""
    part = np.unique(segment[rows], return_inverse=True)[1]
    at = rows - rows[0] + gap * part
    line = np.zeros((int(at[-1]) + 1, *values.shape[1:]))
    line[at] = values
    return line


def _warnings(d: Diagnostics, step_hours: float) -> Iterator[str]:
    largest = float(np.abs(d.roots[0]))
    if not d.stable:
        doubling = np.log(2) / np.log(largest) * step_hours if largest > 1 else np.inf
        yield (
            f"the model is unstable (root {largest:.4f}): in a free run errors double every {doubling:.0f} h; "
            "forecast hours, not weeks"
        )
    elif d.time_constants[0] > d.rows * step_hours:
        slowest = f"the slowest time constant, {d.time_constants[0]:.0f} h"
        yield f"{slowest}, is longer than the training data: use a longer window before you rely on it"
    if (np.abs(d.roots.imag) > 1e-9).any():
        yield "the model oscillates by itself (complex roots), which heat flow alone does not do: try another order"
    elif (d.roots.real < -1e-9).any():
        yield "the model alternates from step to step (a negative root), which heat flow does not do: try a lower order"
    for name, words in EFFECTS.items():
        if d.response_24h[name] < 0:
            yield f"{words} in this model ({d.response_24h[name]:.3g} after 24 h of one unit more): do not plan with it"
