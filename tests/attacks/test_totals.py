"""Totals of quantised sensors fall to lattice reduction where they carry too many bits; few bits and dither stop it."""

import numpy as np
import pytest

from atdm.attacks.totals import algebra, extend, subset_sums
from atdm.attacks.view import Colluder, View
from atdm.protocol.rules import Rules
from tests.attacks.helpers import hits, logger_series, played, tiny, totals_view, truth_of

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
    view = totals_view(series, Rules().totals_cap(agents), bits=16)
    assert algebra(view)[0].series.size == 0


def test_known_days_are_extended_where_the_totals_span_the_zone_and_not_otherwise():
    series = logger_series(agents=12)
    known = series[:300]
    someone = Colluder(place=0, series=np.zeros(600))
    for totals, expected in ((12, 12), (3, 0)):
        seen = totals_view(series, totals, bits=16, dither=0.1)
        view = View(public=seen.public, seen=seen.seen, colluders=(someone,))
        assert hits(truth_of(series), extend(view, known)) == expected
