"""The four protocols answer the same two questions: same data, same options, same model."""

import numpy as np
import pytest

import atdm
from tests.clusters import tiny

# limits that do not bind
EASY = atdm.Rules(least_agents=3, rows_per_parameter=1.0, totals=50, agents_per_total=1, leverage=1.0)
COEFFICIENTS = ("alpha", "beta", "gamma", "theta")


def difference(one: atdm.Fit, other: atdm.Fit) -> tuple[float, float, float]:
    """Largest difference of coefficients, of R² over the test free run, and of weights relative to the largest."""
    model = max(np.abs(getattr(one.model, n) - getattr(other.model, n)).max() for n in COEFFICIENTS)
    r2 = abs(one.metrics["test"]["free_run"]["r2"] - other.metrics["test"]["free_run"]["r2"])
    return model, r2, (one.weights - other.weights).abs().max() / other.weights.abs().max()


@pytest.mark.parametrize("protocol", ["paper", "moments"])
@pytest.mark.parametrize("weights", [False, "ridge"])
@pytest.mark.parametrize("seed", range(4))
def test_opened_protocols_equal_plain(protocol, weights, seed):
    cluster = tiny(seed, agents=5 + 3 * seed)
    options = dict(order=1 + seed % 2, ridge=0.5, nonnegative=weights)
    assert max(difference(atdm.fit(cluster, protocol, **options), atdm.fit(cluster, "plain", **options))) < 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_moments_with_the_exact_constraint_equals_plain_where_several_weights_are_zero(seed):
    cluster = tiny(seed, agents=14, rows=120)
    rng = np.random.default_rng(seed)
    together = np.outer(rng.normal(0, 0.4, 120), rng.uniform(0, 3, 14))  # agents that sway in step, some far more
    swaying = atdm.Cluster.from_frames(cluster.temperature + together, cluster.load, cluster.outdoor, cluster.solar)
    options = dict(order=1, ridge=20.0, nonnegative="exact")
    private, plain = (atdm.fit(swaying, name, **options) for name in ("moments", "plain"))
    assert (plain.weights == 0).sum() >= 3
    assert max(difference(private, plain)) < 1e-6


@pytest.mark.parametrize("protocol", ["paper", "moments"])
@pytest.mark.parametrize("weights", [False, "ridge"])
def test_opened_protocols_equal_plain_on_the_papers_cluster(protocol, weights, refit64):
    if protocol == "moments":  # half a million words an agent: a fortnight is enough to see the equality
        series = (refit64.temperature, refit64.load, refit64.outdoor, refit64.solar)
        refit64 = atdm.Cluster.from_frames(*(values.iloc[:600] for values in series))
    private, plain = (atdm.fit(refit64, name, nonnegative=weights) for name in (protocol, "plain"))
    assert max(difference(private, plain)) < 1e-6
    assert private.ridge == plain.ridge


@pytest.mark.parametrize("seed", range(6))
def test_blind_equals_plain_on_small_clusters(seed):
    """Few agents and limits that do not bind: the basis grows until SP_II is solved."""
    cluster = tiny(seed, agents=10 + seed, rows=120)
    options = dict(order=1, ridge=2.0, nonnegative=False)
    private = atdm.fit(cluster, "blind", dither=0.0, rules=EASY, **options)
    model, r2, weights = difference(private, atdm.fit(cluster, "plain", **options))
    assert private.converged
    assert model < 3e-4 and r2 < 3e-4 and weights < 1e-3


@pytest.mark.parametrize("name", ["refit64", "sample", "twin_houses"])
@pytest.mark.parametrize("weights", [False, "ridge"])
def test_blind_with_default_limits_equals_plain(name, weights, request):
    """The promise of the default protocol, without dither to compare arithmetic, and what the default dither adds."""
    cluster = request.getfixturevalue(name)
    plain = atdm.fit(cluster, "plain", nonnegative=weights)
    private = atdm.fit(cluster, "blind", nonnegative=weights, dither=0.0)
    model, r2, xi = difference(private, plain)
    assert model < 3e-4 and r2 < 3e-4 and xi < 1e-3
    assert private.ridge == plain.ridge
    dithered = atdm.fit(cluster, "blind", nonnegative=weights)
    assert difference(dithered, plain)[1] < 2e-3
    if name == "refit64" and weights is False:
        assert private.cost.sums <= 10
        assert private.cost.rounds <= 40
        assert private.cost.bytes_up_per_agent < 250_000


@pytest.mark.parametrize("name, ridge", [("sample", 300.0), ("refit64", 300.0), ("refit64", 1e3), ("twin_houses", 3e2)])
def test_a_ridge_that_need_not_be_raised_costs_no_total_for_it(name, ridge, request):
    """Directions that span how the weights move with λ are spent only once λ has moved."""
    cluster = request.getfixturevalue(name)
    raising, free = (atdm.fit(cluster, ridge=ridge, nonnegative=n, dither=0.0) for n in ("ridge", False))
    assert raising.ridge == ridge and raising.converged
    assert raising.cost.sums == free.cost.sums
    assert max(difference(raising, atdm.fit(cluster, "plain", ridge=ridge))[:2]) < 3e-4


def test_rows_some_agent_lacks_are_agreed_without_naming_the_agent():
    """A run over a window with a hole gives the plain fit of the rows that are left."""
    cluster = tiny(5, agents=12, rows=140)
    keep = np.r_[0:60, 70:140]
    series = (cluster.temperature, cluster.load, cluster.outdoor, cluster.solar)
    holed = atdm.Cluster.from_frames(*(values.iloc[keep] for values in series))
    options = dict(order=1, ridge=2.0, nonnegative=False)
    for protocol in ("blind", "moments", "paper"):
        private = atdm.fit(holed, protocol, dither=0.0, rules=EASY, **options)
        assert len(private.state) == 130
        assert max(difference(private, atdm.fit(holed, "plain", **options))[:2]) < 3e-4


def test_float_masks_reproduce_the_papers_arithmetic_and_its_rounding():
    cluster = tiny(1, agents=8)
    options = dict(order=1, ridge=5.0, nonnegative=False, tolerance=1e-6)
    private, plain = atdm.fit(cluster, "paper", masks="float", **options), atdm.fit(cluster, "plain", **options)
    assert 0 < difference(private, plain)[0] < 1e-3


@pytest.mark.parametrize("protocol, way_out", [("paper", "ridge"), ("blind", "ridge")])
def test_exact_constraint_is_refused_where_it_cannot_be_private(protocol, way_out):
    with pytest.raises(atdm.UsageError, match=way_out):
        atdm.fit(tiny(0), protocol, nonnegative="exact")
