"""Readings with few decimals are a grid, and a rotated grid is turned back by lattice reduction."""

import numpy as np
import pytest

from atdm.lab.attacks.grid import grid, integer_inverse
from atdm.lab.attacks.rotation import rotate_back
from tests.lab.attacks.helpers import hits, played, tiny, truth_of, turned

pytest.importorskip("fpylll")


@pytest.mark.parametrize("protocol", ["paper", "moments"])
def test_every_agent_of_paper_and_moments_is_disclosed_exactly(protocol):
    view, truth, _ = played(tiny(), protocol)
    guess = grid(rotate_back(view))
    pairs = [(i, j) for i, j, _ in truth.matches(guess)]
    assert hits(truth, guess) == 12
    assert np.sqrt(truth.errors(guess, pairs)).max() < 1e-6


def test_agents_with_equal_readings_are_found_together():
    series = np.round(np.random.default_rng(3).normal(size=(200, 8)).cumsum(axis=0), 2)
    series[:, 5] = series[:, 2]
    assert hits(truth_of(series), grid(turned(series))) == 8


def test_nothing_is_claimed_where_readings_are_not_on_a_grid():
    series = np.random.default_rng(3).normal(size=(200, 8)).cumsum(axis=0)
    assert grid(turned(series)).series.size == 0


def test_a_dither_as_wide_as_that_of_blind_hides_the_grid_of_fine_sensors():
    rng = np.random.default_rng(4)
    series = np.round(rng.normal(size=(300, 16)).cumsum(axis=0), 3)
    dithered = series + rng.uniform(-0.5e-4, 0.5e-4, series.shape)
    assert grid(turned(dithered)).series.size == 0


def test_the_inverse_of_a_unimodular_matrix_is_exact():
    rng = np.random.default_rng(5)
    lower = np.tril(rng.integers(-9, 9, (20, 20)), -1) + np.eye(20, dtype=np.int64)
    upper = np.triu(rng.integers(-9, 9, (20, 20)), 1) + np.eye(20, dtype=np.int64)
    small = (np.tril(lower % 2, -1) + np.eye(20, dtype=np.int64)) @ (np.triu(upper % 2, 1) + np.eye(20, dtype=np.int64))
    assert np.array_equal(integer_inverse(small).astype(np.int64) @ small, np.eye(20, dtype=np.int64))
