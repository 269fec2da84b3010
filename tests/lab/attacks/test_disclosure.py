"""What follows from values that should not get out, and that the real protocols do not let them out."""

import numpy as np
import pytest

from atdm.kernel.rotation import Upload, filter_matrix, rotated, rotated_ones, unrotate
from atdm.lab.attacks.disclosure import (
    averaged,
    column_from_outer,
    from_filtered,
)  # fmt: skip
from atdm.lab.attacks.dishonest import appendices, masked_words
from atdm.lab.attacks.rotation import Rotated
from atdm.lab.attacks.stage import Stage
from atdm.options import fit_options
from atdm.protocol import opened
from atdm.protocol.session import Session
from atdm.run import make_plan
from atdm.types import FloatArray, IntArray
from tests.lab.attacks.helpers import LOOSE, hits, tiny, truth_of
from tests.lab.printed import float_masks

ROWS = np.arange(2, 200)


@pytest.fixture
def series():
    return np.random.default_rng(0).normal(size=(200, 6)).cumsum(axis=0)


def upload(series, alpha, seed):
    w = np.random.default_rng(seed).normal(0.1, 0.1, (series.shape[1], series.shape[1]))
    filtered = filter_matrix(np.array(alpha), ROWS, len(series)) @ series
    return Upload(np.array(alpha), w @ w.T, w.sum(axis=1), filtered @ w.T)


def test_appendix_a_two_filtered_series_give_the_temperature(series):
    alphas = [np.array([1.4, -0.45]), np.array([1.2, -0.25])]
    filtered = [filter_matrix(a, ROWS, len(series)) @ series for a in alphas]
    assert np.abs(from_filtered(alphas, filtered, ROWS, len(series)) - series).max() < 1e-9


def test_appendix_b_an_outer_product_gives_the_secret_column():
    rng = np.random.default_rng(1)
    column, bar = rng.normal(0.1, 0.1, 8), rng.normal(size=8)
    assert np.allclose(column_from_outer(np.outer(column, column), bar, column @ bar), column)


def from_states(with_all: FloatArray, without_one: FloatArray, weight: float) -> FloatArray:
    """SP_I with and without one agent under the same weights: the difference is ξ_i x_i, and ξ_i was sent back."""
    answer: FloatArray = (with_all - without_one) / weight
    return answer


def from_gram(complete: Rotated, later: Upload, rows: IntArray) -> FloatArray:
    """One agent gone after two iterations: the Gram matrix of τ̂ lost its τ̂_iτ̂_iᵀ, of rank one (up to sign). [K]

    F YYᵀFᵀ is known for every filter F from the closed form; the later upload gives the same for those who stayed.
    """
    filtered = filter_matrix(later.alpha, rows, len(complete.series)) @ complete.series
    stayed = rotated(later)
    # Gram matrices in the coordinates of Y₀: I − P Pᵀ has rank one, its vector is where the agent's axis went
    left = np.linalg.lstsq(filtered, stayed, rcond=None)[0]
    values, vectors = np.linalg.eigh(np.eye(complete.agents) - left @ left.T)
    axis = vectors[:, -1]
    along = float(complete.ones @ axis)
    answer: FloatArray = complete.series @ axis * (1.0 if along >= 0 else -1.0)
    return answer


def test_one_agent_missing_from_sp1_is_disclosed(series):
    weights = np.full(6, 1 / 6)
    total, less = series @ weights, series[:, 1:] @ weights[1:]
    assert np.abs(from_states(total, less, weights[0]) - series[:, 0]).max() < 1e-9


def test_one_agent_missing_from_a_later_gram_matrix_is_disclosed(series):
    """`paper` with an agent vanishing after the second iteration, where the others went on without it."""
    first, second = upload(series, [1.4, -0.45], 1), upload(series, [1.2, -0.25], 2)
    third = upload(series[:, 1:], [1.3, -0.35], 3)
    complete = Rotated(series=unrotate(first, second, ROWS, len(series)), ones=rotated_ones(second))
    assert np.abs(from_gram(complete, third, ROWS) - series[:, 0]).max() < 1e-6


def test_float_masks_of_small_size_leak_and_ring_masks_do_not(monkeypatch):
    cluster = tiny()
    plan = make_plan(cluster, fit_options(protocol="paper", tolerance=1e-6))
    for floats in (False, True):
        if floats:
            float_masks(monkeypatch, 0.01)
        stage = Stage(cluster, LOOSE)
        mounted = masked_words(stage, plan, floats=floats)
        names = [member.name for member in stage.agents[0].roster.members]
        truth = truth_of(cluster.temperature[names].to_numpy(float) - 20)
        assert (hits(truth, mounted.guesses) > 6) == floats


def test_float_masks_that_hide_destroy_the_sum(monkeypatch):
    """At 5e13 a mask hides readings to the last bit of float64, and the aggregate temperature is lost with them."""
    float_masks(monkeypatch, 5e13)
    cluster = tiny()
    stage = Stage(cluster, LOOSE)
    plan = make_plan(cluster, fit_options(protocol="paper"))
    aggregator = stage.play(plan, until=lambda a: any(s.what == "state" for s in a.notebook.seen))
    state = next(s.value for s in aggregator.notebook.seen if s.what == "state")
    assert np.abs(state - cluster.temperature.mean(axis=1)).max() > 0.05


def test_unmasked_uploads_of_paper_would_disclose_everybody_and_masked_ones_nobody(monkeypatch):
    cluster = tiny()
    truth_in = {}

    def recovered():
        stage = Stage(cluster, LOOSE)
        mounted = appendices(stage, make_plan(cluster, fit_options(protocol="paper", nonnegative=False)))
        names = [member.name for member in stage.agents[0].roster.members]
        truth_in["series"] = cluster.temperature[names].to_numpy(float) - 20
        return hits(truth_of(truth_in["series"]), mounted.guesses), mounted.guesses[0].series

    assert recovered()[0] == 0
    monkeypatch.setattr(Session, "mask", lambda self, words, nonce: None)
    monkeypatch.setattr(opened, "Stream", NoStream)
    count, series = recovered()
    assert count == 12
    assert np.abs(series - truth_in["series"][: len(series)]).max() < 1e-6


class NoStream:
    """A self mask of zeros."""

    def __init__(self, seed):
        pass

    def add(self, words, nonce):
        pass

    subtract = add


def test_masks_of_one_mean_average_out():
    rng = np.random.default_rng(2)
    value = rng.normal(size=50)
    uploads = [value + rng.uniform(-1, 1, 50) for _ in range(4000)]
    assert np.abs(averaged(uploads) - value).max() < 0.1
