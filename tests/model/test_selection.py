"""Selection looks at the training part only, and prefers simple models where data cannot tell."""

from dataclasses import replace

import numpy as np
import pytest

from atdm.errors import UsageError
from atdm.model.selection import Candidate, Fitted, Score, bic, choose, rolling_origins, score
from tests.model.test_bands import TRUE, world


def scored(order: int, ridge: float, errors: list[float]) -> Score:
    return Score(
        candidate=Candidate(order=order, ridge=ridge, season="24h"), r2=1 - float(np.mean(errors)), rmse=0.1, bic=0.0,
        ridge=ridge, period=4, errors=tuple(errors),
    )  # fmt: skip


def test_the_true_model_is_scored_nearly_one_and_a_wrong_one_less():
    inputs, state = world(np.random.default_rng(1), 200, 200)
    asked = []

    def solve(part, candidate):
        asked.append(part.train)
        wrong = replace(TRUE, beta=TRUE.beta * 0.5) if candidate.ridge == 2 else TRUE
        return Fitted(coefficients=wrong, state=state, rss=1.0, ridge=candidate.ridge)

    right = score(solve, inputs, Candidate(order=2, ridge=1.0, season="24h"), 12, 4)
    wrong = score(solve, inputs, Candidate(order=2, ridge=2.0, season="24h"), 12, 4)
    assert right.r2 > 0.7 > wrong.r2
    assert 1 - np.mean(right.errors) == pytest.approx(right.r2)
    assert right.origins == len(rolling_origins(inputs, 12, 4))
    assert asked[: right.origins] == rolling_origins(inputs, 12, 4)


def test_every_validation_run_ends_inside_the_training_part():
    inputs, _ = world(np.random.default_rng(1), 200, 150)
    origins = rolling_origins(inputs, 24, 4)
    assert min(origins) >= 75
    assert max(origins) + 24 <= 150
    with pytest.raises(UsageError, match="shorter horizon"):
        rolling_origins(inputs, 100, 4)


def test_the_simplest_within_one_standard_error_is_chosen():
    best = scored(3, 100, [0.10, 0.20, 0.10, 0.20])
    close = scored(2, 100, [0.30, 0.05, 0.25, 0.05])
    poor = scored(1, 100, [0.90, 0.80, 0.90, 0.80])
    chosen, highest = choose([poor, close, best])
    assert (chosen, highest) == (close, best)


def test_of_equal_orders_the_larger_ridge_is_chosen():
    a, b = scored(2, 30, [0.1, 0.2, 0.15]), scored(2, 300, [0.12, 0.19, 0.15])
    assert choose([a, b])[0] is b


def test_bic_counts_every_parameter():
    assert bic(10.0, 100, 2, 48) - bic(10.0, 100, 1, 48) == pytest.approx(4 * np.log(100))


def test_candidates_that_differ_by_rounding_only_are_close():
    a, b = scored(2, 30, [0.1, 0.2, 0.15]), scored(2, 300, [0.1 + 1e-16, 0.2 + 1e-16, 0.15 + 1e-16])
    assert choose([a, b])[0] is b


def test_the_training_part_has_no_other_row():
    inputs, _ = world(np.random.default_rng(1), 200, 150)
    part = inputs.training_part()
    assert len(part) == part.train == 150 and len(part.load) == len(part.segment) == len(part.solar) == 150
