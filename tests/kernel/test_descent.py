"""What must hold for any data: symmetry, invariance, descent."""

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.data import Cluster
from atdm.errors import DataError, UsageError
from atdm.kernel.descent import Columns, descend
from atdm.kernel.design import Design
from tests.clusters import tiny

OPTIONS = dict(order=1, ridge=5.0, nonnegative=False)


def plain(cluster, **options):
    return atdm.fit(cluster, "plain", **{**OPTIONS, **options})


def changed(cluster: Cluster, temperature: pd.DataFrame) -> Cluster:
    return Cluster.from_frames(temperature, cluster.load, cluster.outdoor, cluster.solar, owner=cluster.owner)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weights", [False, "exact", "ridge"])
def test_permuting_agents_permutes_the_weights_and_nothing_else(seed, weights):
    cluster = tiny(seed)
    order = list(np.random.default_rng(seed).permutation(cluster.agents))
    one, other = plain(cluster, nonnegative=weights), plain(cluster.select(order), nonnegative=weights)
    assert np.allclose(one.model.alpha, other.model.alpha, atol=1e-9)
    assert np.allclose(one.weights[order], other.weights, atol=1e-9)
    assert list(other.weights.index) == order


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_added_to_all_temperatures_moves_only_the_season(seed):
    cluster = tiny(seed)
    one, other = plain(cluster), plain(changed(cluster, cluster.temperature + 3.0))
    for name in ("alpha", "beta", "gamma", "theta"):
        assert np.allclose(getattr(one.model, name), getattr(other.model, name), atol=1e-8)
    moved = 3.0 * (1 - one.model.alpha.sum())
    assert np.allclose(other.model.occupancy, one.model.occupancy + moved, atol=1e-7)
    assert np.allclose(one.weights, other.weights, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("exact", [False, True])
def test_the_objective_never_rises(seed, exact):
    cluster = tiny(seed)
    inputs = plain(cluster).inputs
    projected = Design.build(inputs, 1).projected_lags(cluster.temperature.to_numpy() - 20)
    agents = len(cluster.agents)
    found = descend(Columns(projected=projected, ridge=5.0, nonnegative=exact), np.full(agents, 1 / agents), 1e-12)
    assert found.converged
    assert (np.diff(found.objectives) < 1e-10 * found.objectives[0]).all()


def test_no_lag_crosses_a_gap():
    """Two halves a week apart give the equations of each half alone, not those of a wrong neighbour."""
    cluster = tiny(3, rows=120)
    keep = np.r_[0:50, 78:120]
    series = (cluster.temperature, cluster.load, cluster.outdoor, cluster.solar)
    fit = plain(Cluster.from_frames(*(values.iloc[keep] for values in series)), train=0.9)
    s, inputs = fit.state.to_numpy(), fit.inputs
    rows = Design.build(inputs, 1).rows
    assert 50 not in rows and 49 in rows and 51 in rows
    columns = [s[rows - 1], *(v[rows - m] for v in (inputs.load, inputs.outdoor, inputs.solar) for m in (0, 1))]
    columns += [(inputs.phase[rows] == k).astype(float) for k in range(4)]
    a = np.column_stack(columns)
    oracle = np.linalg.lstsq(a, s[rows], rcond=None)[0]
    assert np.allclose(fit.model.alpha, oracle[:1], atol=1e-5)
    assert fit.rss == pytest.approx(((s[rows] - a @ oracle) ** 2).sum(), rel=1e-5)


def test_one_step_of_sp1_is_ordinary_least_squares_on_lags_and_inputs():
    cluster = tiny(1)
    fit = plain(cluster, tolerance=0.999)  # one iteration
    s = cluster.temperature.mean(axis=1).to_numpy()
    inputs = fit.inputs
    rows = Design.build(inputs, 1).rows
    a = np.column_stack([
        s[rows - 1], *(v[rows - m] for v in (inputs.load, inputs.outdoor, inputs.solar) for m in (0, 1)),
        *((inputs.phase[rows] == k).astype(float) for k in range(4)),
    ])  # fmt: skip
    assert fit.iterations == 1
    assert fit.model.alpha[0] == pytest.approx(np.linalg.lstsq(a, s[rows], rcond=None)[0][0], rel=1e-9)


@pytest.mark.parametrize("options, word", [
    (dict(order=0), "order"), (dict(ridge=-1.0), "ridge"), (dict(ridge=float("nan")), "ridge"),
    (dict(ridge=float("inf")), "ridge"), (dict(train=1.0), "train"), (dict(train=0.0), "train"),
    (dict(season="7h"), "season"), (dict(season="soon"), "soon"), (dict(tolerance=0.0), "tolerance"),
    (dict(order=40), "rows"), (dict(nonnegative="maybe"), "nonnegative"),
    (dict(ridge=0.0, nonnegative="ridge"), "ridge"),
])  # fmt: skip
def test_options_out_of_range_are_refused_in_one_line(options, word):
    cluster = tiny(0)
    if options.get("ridge") == 0.0:  # two equal series leave the weights undetermined
        frame = cluster.temperature.copy()
        frame.iloc[:, 1] = frame.iloc[:, 0]
        cluster = changed(cluster, frame)
    with pytest.raises(UsageError) as caught:
        plain(cluster, **options)
    assert word in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("protocol", ["plain", "paper", "moments", "blind"])
def test_fewer_than_three_agents_are_refused_by_every_protocol(agents, protocol):
    cluster = tiny(0)
    with pytest.raises(UsageError, match="agents"):
        atdm.fit(cluster.select(cluster.agents[:agents]), protocol, order=1, rules=atdm.Rules(least_agents=3))


def test_inputs_the_data_cannot_tell_apart_are_named_and_solved_only_when_asked():
    cluster = tiny(0)
    dark = Cluster.from_frames(cluster.temperature, cluster.load, cluster.outdoor, cluster.solar * 0)
    with pytest.raises(DataError, match=r"solar\[t-0\].*minimum-norm"):
        plain(dark)
    fit = plain(dark, minimum_norm=True)
    assert np.allclose(fit.model.theta, 0, atol=1e-12)
    assert fit.converged


def test_ten_thousand_agents_fit_in_the_dual_form_within_memory():
    """K ≫ n: the n × n form. Sizes of a real case are in the benchmark; here the shape is what counts."""
    cluster = tiny(2, agents=600, rows=60)
    fit = plain(cluster, ridge=50.0)
    assert fit.converged and abs(fit.weights.sum() - 1) < 1e-9
