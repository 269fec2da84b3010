"""Totals of quantised sensors fall to lattice reduction where they carry too many bits; few bits and dither stop it."""

import numpy as np
import pytest

from atdm.lab.attacks.totals import algebra, extend, subset_sums, unit_steps
from atdm.protocol.rules import Rules
from tests.lab.attacks.helpers import hits, logger_series, played, tiny, totals_view, truth_of

pytest.importorskip("fpylll")
pytest.importorskip("sklearn")


def test_fourteen_sensors_of_a_tenth_of_a_degree_fall_with_32_bits_and_no_dither():
    series = logger_series()
    assert hits(truth_of(series), subset_sums(totals_view(series, 5, bits=32))) >= 8


@pytest.mark.parametrize("quantum", [0.1, 0.5])
def test_they_do_not_fall_with_16_bits_and_dither(quantum):
    series = logger_series(quantum=quantum)
    view = totals_view(series, 4, bits=16, dither=0.1, quantum=quantum)
    assert hits(truth_of(series), subset_sums(view)) == 0


def test_16_bits_alone_would_not_be_enough():
    series = logger_series()
    assert hits(truth_of(series), subset_sums(totals_view(series, 5, bits=16))) >= 8


def test_steps_of_one_row_are_hit_by_chance_and_are_the_blank_of_the_lattice():
    """Sensors of which half hardly ever move: bare unit vectors "recover" those that move once in the rows taken."""
    rng = np.random.default_rng(3)
    often = np.where(np.arange(14) < 7, 1.0, 0.015)
    series = 0.1 * np.cumsum(rng.choice([-1, 1], (600, 14)) * (rng.random((600, 14)) < often), axis=0)
    view = totals_view(series, 3, bits=16, dither=0.1)
    chance = hits(truth_of(series), unit_steps(view))
    assert chance >= 1
    assert hits(truth_of(series), subset_sums(view)) <= chance


def test_a_real_run_gives_the_lattice_nothing():
    view, truth, _ = played(tiny(rows=200), "blind", colluders=(0,))
    assert hits(truth.without([0]), subset_sums(view)) == 0


@pytest.mark.parametrize("agents", [7, 10, 14])
def test_as_many_totals_as_agents_give_everything_away(agents):
    """The cap on totals switched off."""
    series = logger_series(agents=agents)
    assert hits(truth_of(series), algebra(totals_view(series, agents, bits=16, quantum=0.1))) == agents


@pytest.mark.parametrize("agents", [10, 14])
def test_the_cap_leaves_a_space_of_answers(agents):
    series = logger_series(agents=agents)
    view = totals_view(series, Rules().totals_for(agents), bits=16)
    assert algebra(view)[0].series.size == 0


def test_known_days_are_extended_where_the_totals_span_the_zone_and_not_otherwise():
    series = logger_series(agents=12)
    for totals, expected in ((12, 12), (3, 0)):
        seen = totals_view(series, totals, bits=16, dither=0.1).totals()
        assert hits(truth_of(series), extend(seen, series[:300])) == expected


def test_a_view_of_equal_weights_is_the_sum_over_the_others():
    view, truth, _ = played(tiny(), "blind", colluders=(0, 3), weights="equal")
    others = np.delete(truth.series, [0, 3], axis=1).sum(axis=1)
    assert view.totals().shape == (80, 1)
    assert np.abs(view.totals()[:, 0] - others).max() < 0.1  # dither


def test_a_view_of_fitted_weights_has_the_gram_matrix_of_the_others():
    """Of the totals less the colluder's part: what the others put in, from their own coefficients."""
    view, _, stage = played(tiny(rows=160), "blind", colluders=(0,))
    q = np.array([stage.parts[place].parts for place in range(1, 12)])
    gram, ones = view.gram()
    assert np.abs(gram - q.T @ q).max() < 1e-6 and np.abs(ones - q.sum(axis=0)).max() < 1e-6
    assert view.totals().shape == (160, q.shape[1])  # a view without totals would find nobody, whatever the build
