"""Agents that behave differently are told apart even behind a rotation; agents that look alike are not."""

import numpy as np
import pytest

from atdm.lab.attacks.separation import polar, separate_rotated, separate_totals
from tests.lab.attacks.helpers import hits, truth_of, turned

pytest.importorskip("sklearn")


def switching(seed=0, rows=800, agents=10):
    """Rarely and strongly moving series."""
    rng = np.random.default_rng(seed)
    steps = rng.laplace(size=(rows, agents)) * (rng.random((rows, agents)) < 0.1)
    return steps.cumsum(axis=0)


def test_most_agents_are_separated_from_a_rotation():
    series = switching()
    assert hits(truth_of(series), separate_rotated(turned(series))) >= 8


def test_gaussian_series_of_one_spectrum_cannot_be_separated():
    series = np.random.default_rng(1).normal(size=(800, 24)).cumsum(axis=0)
    assert hits(truth_of(series), separate_rotated(turned(series))) <= 4  # of 24; random walks resemble each other


def test_few_sums_of_many_agents_show_nobody():
    series = switching(agents=30)
    mix = np.linalg.qr(np.random.default_rng(2).normal(size=(30, 5)))[0]
    assert hits(truth_of(series), separate_totals(series @ mix)) == 0


def test_as_many_sums_as_agents_show_most_of_them():
    series = switching()
    mix = np.random.default_rng(2).normal(size=(10, 10))
    assert hits(truth_of(series), separate_totals(series @ mix)) >= 8


def test_the_polar_factor_is_orthonormal():
    matrix = np.random.default_rng(3).normal(size=(6, 4))
    factor = polar(matrix)
    assert np.allclose(factor.T @ factor, np.eye(4))
