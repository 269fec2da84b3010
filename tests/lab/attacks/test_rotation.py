"""Two iterations of `paper`, or the moments, are all temperatures up to one rotation; small clusters have none left."""

import numpy as np
import pytest

from atdm.lab.attacks.rotation import pinned, procrustes_residual, rotate_back, rotation
from tests.lab.attacks.helpers import hits, played, tiny


@pytest.mark.parametrize("protocol", ["paper", "moments"])
def test_the_closed_form_gives_every_temperature_up_to_one_rotation(protocol):
    view, truth, _ = played(tiny(rows=200), protocol)
    rotated = rotate_back(view)
    assert procrustes_residual(rotated.series, truth.series[: len(rotated.series)]) < 1e-9


def test_one_iteration_is_not_enough():
    view, _, _ = played(tiny(), "paper", tolerance=0.9)
    few = type(view)(public=view.public, seen=[s for i, s in enumerate(view.seen) if _of_first_iteration(view.seen, i)])
    assert rotate_back(few) is None


def _of_first_iteration(seen, i):
    return sum(s.label == seen[i].label and s.what == seen[i].what for s in seen[:i]) == 0


def test_four_agents_of_paper_are_disclosed_completely():
    view, truth, _ = played(tiny(agents=4, rows=120), "paper")
    guess = pinned(view, rotate_back(view))
    assert hits(truth, guess) == 4
    assert np.sqrt(truth.errors(guess, [(i, j) for i, j, _ in truth.matches(guess)])).max() < 1e-6


def test_colluders_pin_as_many_directions_as_they_are():
    view, truth, _ = played(tiny(agents=6), "moments", colluders=(0, 1, 2, 3))
    guess = pinned(view, rotate_back(view))
    others = truth.without([0, 1, 2, 3])
    assert "5 of 6" in guess.note
    assert hits(others, guess) == 2


def test_twelve_agents_stay_mixed():
    view, truth, _ = played(tiny(), "moments")
    guess = pinned(view, rotate_back(view))
    assert "1 of 12 directions pinned" in guess.note
    assert hits(truth, guess) == 0


def test_a_random_rotation_recovers_nobody():
    view, truth, _ = played(tiny(), "moments")
    rotated = rotate_back(view)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    assert hits(truth, rotation(type(rotated)(series=rotated.series @ turn, ones=rotated.ones))) <= 1
