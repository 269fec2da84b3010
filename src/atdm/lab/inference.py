"""The paper's own privacy experiment (its §V-D): guess temperatures and W by least squares on all the equations the
aggregator has, from a start near the truth, beside the closed form that needs no start and no iteration.

K = 6, L = 3, entries N(20, 1), starts at the truth plus U[−1, 1] (the paper prints [−1, −1]).
"""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from scipy.optimize import least_squares

from atdm.kernel.rotation import Upload, filter_matrix, unrotate
from atdm.types import FloatArray

AGENTS, ITERATIONS, ORDER = 6, 3, 2
PERIODS = (1, 2, 3, 4, 6, 12, 24, 48)
STARTS = 20
EVALUATIONS = 40  # at most, for each start
ALPHAS = ((1.22, -0.24), (1.46, -0.47), (1.48, -0.49))  # of three iterations, as a descent finds them


@dataclass(frozen=True, slots=True)
class Inference:
    """One number of periods T."""

    periods: int
    errors: tuple[float, ...]  # root mean square error of the temperatures, one for each start     [K]
    seconds: tuple[float, ...]
    closed_error: float  # of the closed form, up to its one rotation; NaN where T is too small     [K]
    closed_seconds: float


@dataclass(frozen=True, slots=True)
class System:
    """Eqs. (type 1–3) of the paper for one random instance: residuals and their Jacobian in (τ, W¹, W², W³)."""

    filters: tuple[FloatArray, ...]
    weights: tuple[FloatArray, ...]  # ξ^(l)
    bars: tuple[FloatArray, ...]  # ξ̄^(l)
    uploads: tuple[Upload, ...]
    states: tuple[FloatArray, ...]  # τ ξ^(l)
    truth: FloatArray

    @classmethod
    def draw(cls, periods: int, rng: np.random.Generator) -> "System":
        series = rng.normal(20, 1, (periods + ORDER, AGENTS))
        rows = np.arange(ORDER, periods + ORDER)
        filters: list[FloatArray] = []
        weights, bars, secrets = list[FloatArray](), list[FloatArray](), list[FloatArray]()
        uploads: list[Upload] = []
        for alpha in ALPHAS:
            w, xi = rng.normal(20, 1, (AGENTS, AGENTS)), rng.dirichlet(np.full(AGENTS, 5.0))
            f = filter_matrix(np.array(alpha), rows, len(series))
            filters.append(f)
            weights.append(xi)
            bars.append(np.asarray(np.linalg.solve(w.T, xi), dtype=np.float64))
            uploads.append(Upload(np.array(alpha), w @ w.T, w.sum(axis=1), f @ series @ w.T))
            secrets.append(w)
        truth = np.concatenate([series.ravel(), *(w.ravel() for w in secrets)])
        states = tuple(series @ xi for xi in weights)
        return cls(tuple(filters), tuple(weights), tuple(bars), tuple(uploads), states, truth)

    def split(self, z: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        size = AGENTS * AGENTS
        series = z[: len(z) - ITERATIONS * size].reshape(-1, AGENTS)
        secrets = z[len(z) - ITERATIONS * size :].reshape(ITERATIONS, AGENTS, AGENTS)
        return series, list(secrets)

    def residuals(self, z: FloatArray) -> FloatArray:
        series, secrets = self.split(z)
        parts: list[FloatArray] = []
        for l, w in enumerate(secrets):  # noqa: E741 - the paper's letter
            upload = self.uploads[l]
            parts += [
                series @ self.weights[l] - self.states[l],
                (w @ w.T - upload.gram)[np.triu_indices(AGENTS)],
                w.sum(axis=1) - upload.ones,
                w.T @ self.bars[l] - self.weights[l],
                (self.filters[l] @ series @ w.T - upload.series).ravel(),
            ]
        return np.concatenate(parts)

    def jacobian(self, z: FloatArray) -> FloatArray:
        series, secrets = self.split(z)
        eye, size = np.eye(AGENTS), AGENTS * AGENTS
        rows = []
        for l, w in enumerate(secrets):  # noqa: E741
            filtered = self.filters[l] @ series
            gram = np.einsum("ia,jk->ijak", eye, w) + np.einsum("ja,ik->ijak", eye, w)
            nothing = np.empty(0)
            by_series = [
                np.kron(np.eye(len(series)), self.weights[l]),
                nothing,
                nothing,
                nothing,
                np.kron(self.filters[l], w),
            ]
            by_secret = [
                np.zeros((len(series), size)),
                gram.reshape(AGENTS, AGENTS, size)[np.triu_indices(AGENTS)],
                np.kron(eye, np.ones(AGENTS)),
                np.kron(self.bars[l], eye),
                np.einsum("tj,kl->tklj", filtered, eye).reshape(-1, size),
            ]
            for d_series, d_secret in zip(by_series, by_secret, strict=True):
                block = np.zeros((len(d_secret), len(z)))
                if d_series.size:
                    block[:, : series.size] = d_series
                at = series.size + l * size
                block[:, at : at + size] = d_secret
                rows.append(block)
        return np.vstack(rows)


def infer(periods: int, starts: int, rng: np.random.Generator) -> Inference:
    system = System.draw(periods, rng)
    true_series, _ = system.split(system.truth)
    errors, spent = [], []
    for _ in range(starts):
        began = perf_counter()
        start = system.truth + rng.uniform(-1, 1, system.truth.size)
        found = least_squares(system.residuals, start, jac=system.jacobian, max_nfev=EVALUATIONS).x
        spent.append(perf_counter() - began)
        errors.append(float(np.sqrt(((system.split(found)[0] - true_series) ** 2).mean())))
    return Inference(periods, tuple(errors), tuple(spent), *_closed_form(system, true_series))


def _closed_form(system: System, true_series: FloatArray) -> tuple[float, float]:
    if len(true_series) < 2 * AGENTS:
        return float("nan"), float("nan")
    began = perf_counter()
    rows = np.arange(ORDER, len(true_series))
    rotated = unrotate(system.uploads[0], system.uploads[1], rows, len(true_series))
    spent = perf_counter() - began
    left, _, right = np.linalg.svd(rotated.T @ true_series)
    return float(np.sqrt(((rotated @ (left @ right) - true_series) ** 2).mean())), spent
