import numpy as np
import pytest
from qpsolvers import solve_qp
from scipy.sparse import csc_matrix

from atdm.kernel.weights import free_weights, nonnegative_weights, solve_ones


def problem(seed: int) -> tuple[np.ndarray, float]:
    """Z with K from 3 to 300, more agents than rows now and then, noisy or nearly collinear columns."""
    rng = np.random.default_rng(seed)
    agents, rows = int(rng.integers(3, 301)), int(rng.integers(20, 200))
    common = rng.normal(size=(rows, 1 + seed % 3))
    own = rng.exponential(1.0, agents) * rng.normal(size=(rows, agents))
    z = common @ rng.normal(size=(common.shape[1], agents)) + own
    if seed % 4 == 0:
        z[:, 1] = z[:, 0]  # two agents with the same series
    return z, float(rng.choice([0.01, 1.0, 100.0]))


def objective(z, ridge, weights):
    return float(((z @ weights) ** 2).sum() + ridge * weights @ weights)


def kkt_violation(z, ridge, weights):
    """Largest relative violation of the optimality conditions of Eq. (4) with ξ ≥ 0."""
    gradient = z.T @ (z @ weights) + ridge * weights
    nu = float(weights @ gradient)
    slack = gradient / nu - 1.0
    return float(max(-slack.min(), np.abs(slack[weights > 0]).max(), -weights.min(), abs(weights.sum() - 1.0)))


@pytest.mark.parametrize("seed", range(24))
def test_nonnegative_weights_match_an_independent_qp_solver(seed):
    z, ridge = problem(seed)
    agents = z.shape[1]
    mine = nonnegative_weights(z, ridge)
    scale = np.abs(z.T @ z).max() + ridge  # the interior-point solver wants numbers near one
    theirs = solve_qp(
        csc_matrix((z.T @ z + ridge * np.eye(agents)) / scale), np.zeros(agents),
        A=csc_matrix(np.ones((1, agents))), b=np.ones(1),
        lb=np.zeros(agents), solver="clarabel", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-12,
    )  # fmt: skip
    theirs = np.clip(theirs, 0, None)
    theirs /= theirs.sum()
    assert (mine >= 0).all() and abs(mine.sum() - 1) < 1e-12
    assert objective(z, ridge, mine) <= objective(z, ridge, theirs) * (1 + 1e-9)
    assert kkt_violation(z, ridge, mine) < 1e-7


@pytest.mark.parametrize("seed", range(6))
def test_the_dual_form_gives_the_primal_weights(seed):
    rng = np.random.default_rng(seed)
    z, ridge = rng.normal(size=(30, 80)), 3.0
    direct = np.linalg.solve(z.T @ z + ridge * np.eye(80), np.ones(80))
    assert np.allclose(solve_ones(z, ridge), direct, rtol=1e-10)
    assert np.allclose(free_weights(z, ridge), direct / direct.sum(), rtol=1e-10)


def test_two_agents_with_the_same_series_get_the_same_weight():
    z, ridge = problem(4)
    for weights in (free_weights(z, ridge), nonnegative_weights(z, ridge)):
        assert weights[0] == pytest.approx(weights[1], abs=1e-10)
