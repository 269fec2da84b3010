"""The protocols answer the same two questions: same data, same options, same model. `blind`: test_blind.py."""

import numpy as np
import pytest

from atdm.data import Cluster
from atdm.errors import UsageError
from atdm.options import fit_options
from atdm.protocol.rules import Rules
from atdm.result import Fit
from atdm.run import fit, make_plan, simulate
from tests.clusters import tiny
from tests.lab.printed import float_masks

COEFFICIENTS = ("alpha", "beta", "gamma", "theta")


def difference(one: Fit, other: Fit) -> tuple[float, float, float]:
    """Largest difference of coefficients, of R² over the test free run, and of weights relative to the largest."""
    model = max(np.abs(getattr(one.model, n) - getattr(other.model, n)).max() for n in COEFFICIENTS)
    r2 = abs(one.metrics["test"]["free_run"]["r2"] - other.metrics["test"]["free_run"]["r2"])
    return model, r2, (one.weights - other.weights).abs().max() / other.weights.abs().max()


def swaying(seed: int, agents: int, rows: int = 120) -> Cluster:
    """Agents that sway in step, some far more than others: free weights are negative for several."""
    cluster, rng = tiny(seed, agents=agents, rows=rows), np.random.default_rng(seed)
    together = np.outer(rng.normal(0, 0.4, rows), rng.uniform(0, 3, agents))
    return Cluster.from_frames(cluster.temperature + together, cluster.load, cluster.outdoor, cluster.solar)


@pytest.mark.parametrize("protocol", ["paper", "moments"])
@pytest.mark.parametrize("weights", [False, "ridge"])
@pytest.mark.parametrize("seed", range(3))
def test_opened_protocols_equal_plain(protocol, weights, seed):
    cluster = tiny(seed, agents=5 + 3 * seed)
    options = dict(order=1 + seed % 2, ridge=0.5, nonnegative=weights)
    assert max(difference(fit(cluster, protocol, **options), fit(cluster, "plain", **options))) < 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_moments_with_the_exact_constraint_equals_plain_where_several_weights_are_zero(seed):
    cluster, options = swaying(seed, 14), dict(order=1, ridge=20.0, nonnegative="exact")
    private, plain = (fit(cluster, name, **options) for name in ("moments", "plain"))
    assert (plain.weights == 0).sum() >= 3
    assert max(difference(private, plain)) < 1e-6


@pytest.mark.parametrize("protocol", ["paper", "moments"])
def test_opened_protocols_equal_plain_on_the_papers_cluster(protocol, refit64):
    if protocol == "moments":  # half a million words an agent: a fortnight is enough to see the equality
        series = (refit64.temperature, refit64.load, refit64.outdoor, refit64.solar)
        refit64 = Cluster.from_frames(*(values.iloc[:600] for values in series))
    private, plain = (fit(refit64, name) for name in (protocol, "plain"))
    assert max(difference(private, plain)) < 1e-6
    assert private.ridge == plain.ridge


@pytest.mark.parametrize("protocol", ["blind", "moments", "paper"])
def test_a_window_with_a_hole_gives_the_plain_fit_of_the_rows_that_are_left(protocol):
    cluster = tiny(5, agents=12, rows=140)
    keep = np.r_[0:60, 70:140]
    series = (cluster.temperature, cluster.load, cluster.outdoor, cluster.solar)
    holed = Cluster.from_frames(*(values.iloc[keep] for values in series))
    options = dict(order=1, ridge=2.0, nonnegative=False, solver_tolerance=1e-4)
    private = fit(holed, protocol, dither=0.0, **options)
    assert len(private.state) == 130
    assert difference(private, fit(holed, "plain", **options))[1] < 2e-3


def test_float_masks_reproduce_the_papers_arithmetic_and_its_rounding(monkeypatch):
    float_masks(monkeypatch)
    cluster = tiny(1, agents=8)
    options = dict(order=1, ridge=5.0, nonnegative=False, tolerance=1e-6)
    plan = make_plan(cluster, fit_options(protocol="paper", **options))
    private = simulate(cluster, plan, Rules())
    plain = fit(cluster, "plain", **options)
    assert 0 < difference(private, plain)[0] < 1e-3


@pytest.mark.parametrize("protocol", ["paper", "blind"])
def test_the_exact_constraint_is_refused_where_it_cannot_be_private(protocol):
    with pytest.raises(UsageError, match="ridge"):
        fit(tiny(0), protocol, nonnegative="exact")


def test_a_fit_is_shown_in_a_few_lines_and_as_a_table():
    found = fit(tiny(0), "plain", order=2)
    assert len(repr(found).splitlines()) == 4 and "protocol plain" in repr(found) and "array(" not in repr(found)
    assert found._repr_html_().count("<tr") == 2 + 3 and "β [K/kW]" in found._repr_html_()
