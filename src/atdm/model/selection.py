"""Order, ridge and season chosen by forecasts of rows the candidate has not seen, inside the training part.

From each origin the candidate is fitted on the rows before it and runs free for the horizon after it. Whoever can
answer "fit these rows" can select.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from atdm.errors import UsageError
from atdm.kernel.design import Inputs, lagged_rows, parameter_count
from atdm.kernel.thermal import Coefficients, free_run
from atdm.types import FloatArray

FIRST_ORIGIN = 0.5  # share of the training rows before the first origin
ROUNDING = 1e-9  # of R²; below that, candidates differ by arithmetic only


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One combination of the numbers that are chosen.

    Attributes
    ----------
    order : int
        M.
    ridge : float
        λ asked for [K²].
    season : str
        As the user writes it, such as "24h".
    """

    order: int
    ridge: float
    season: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a fit on the first `train` rows gives: the model, and the aggregate state over all rows."""

    coefficients: Coefficients
    state: FloatArray  # [°C], centred or not
    rss: float  # of Eq. (2) over the training rows [K²]
    ridge: float  # λ used


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one candidate did in free runs inside the training part.

    Attributes
    ----------
    candidate : Candidate
        What was tried.
    r2 : float
        Of the free runs, all origins pooled [-].
    rmse : float
        Of the same [K].
    bic : float
        Of the fit on the whole training part; comparable between orders, not between ridges [-].
    ridge : float
        λ used in that fit [K²].
    period : int
        P: steps of the season.
    errors : tuple of float
        By origin: squared error over the mean spread of all; their mean is 1 − R² [-].
    """

    candidate: Candidate
    r2: float
    rmse: float
    bic: float
    ridge: float
    period: int
    errors: tuple[float, ...]

    @property
    def origins(self) -> int:
        """Number of validation runs."""
        return len(self.errors)


Solve = Callable[[Inputs, Candidate], Fitted]  # the fit on the first inputs.train rows


def rolling_origins(inputs: Inputs, horizon: int, every: int) -> list[int]:
    """First rows of the validation runs: all runs end inside the training part."""
    first = max(1, round(FIRST_ORIGIN * inputs.train))
    origins = list(range(first, inputs.train - horizon + 1, every))
    if not origins:
        raise UsageError(
            f"{inputs.train} training rows leave no validation run of {horizon} steps in their second half: "
            "choose a shorter horizon or a longer window"
        )
    return origins


def score(solve: Solve, inputs: Inputs, candidate: Candidate, horizon: int, every: int) -> Score:
    """Rolling-origin validation of one candidate. Rows from inputs.train on are never touched."""
    origins, order = rolling_origins(inputs, horizon, every), candidate.order
    squared, spread, count = [], 0.0, 0
    for origin in origins:
        fitted = solve(replace(inputs, train=origin), candidate)
        state, stop = fitted.state, origin + horizon
        rows = lagged_rows(inputs.segment, order, origin - order, stop)
        run = free_run(fitted.coefficients, inputs, state, origin - order, stop)
        error = run[rows - (origin - order)] - state[rows]
        level = state[origins[0] : inputs.train].mean()  # the same for all runs of a state, so that R² compares them
        squared.append(float((error**2).sum()))
        spread += float(((state[rows] - level) ** 2).sum())
        count += len(rows)
    errors = tuple(value * len(origins) / spread for value in squared)
    final = solve(inputs, candidate)
    return Score(
        candidate=candidate,
        r2=r_squared(errors),
        rmse=float(np.sqrt(sum(squared) / count)),
        bic=bic(final.rss, len(lagged_rows(inputs.segment, order, 0, inputs.train)), order, inputs.period),
        ridge=final.ridge,
        period=inputs.period,
        errors=errors,
    )


def r_squared(errors: Sequence[float]) -> float:
    return 1.0 - math.fsum(errors) / len(errors)


def choose(scores: Sequence[Score]) -> tuple[Score, Score]:
    """The chosen score and the best one.

    Chosen is the simplest candidate that is not worse than the best by more than one standard error of their paired
    difference over the origins (Breiman et al. 1984): a dozen origins cannot tell more, and a simpler model strays
    less far from what it was trained on. Simple means: low order, short season, then large ridge.
    """
    best = max(scores, key=lambda s: s.r2)

    def close(other: Score) -> bool:
        # exactly rounded sums: whoever has the same scores makes the same choice, on any machine
        difference = [a - b for a, b in zip(other.errors, best.errors, strict=True)]
        n = len(difference)
        mean = math.fsum(difference) / n
        variance = math.fsum((d - mean) ** 2 for d in difference) / (n - 1)
        return mean <= math.sqrt(variance / n) + ROUNDING

    near = [s for s in scores if s is best or (best.origins > 1 and close(s))]
    return min(near, key=lambda s: (s.candidate.order, s.period, -s.candidate.ridge)), best


def bic(rss: float, rows: int, order: int, period: int) -> float:
    """n ln(RSS/n) + p ln n (Schwarz 1978), normal residuals, constants left out."""
    return rows * float(np.log(rss / rows)) + parameter_count(order, period) * float(np.log(rows))
