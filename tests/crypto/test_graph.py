"""The mask graph: its degree, symmetry and order.

The parameter finder of federated-compute has two bounds: ours, and one for the shares of its recovery from dropouts,
which we do not have. With both, its published values come out; ours alone is compared with counting.
"""

from collections import Counter
from itertools import combinations
from math import comb, ldexp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atdm.crypto import graph
from atdm.errors import UsageError

SIZES = (10, 20, 64, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)

# sigma = eta = 40: degree for each of SIZES
HONEST = {
    (0.33, 0.30): [8, 14, 42, 64, 122, 222, 296, 360, 416, 446, 494],
    (0.10, 0.30): [6, 10, 26, 40, 64, 96, 114, 124, 134, 140, 150],
    (0.33, 0.10): [6, 10, 28, 42, 68, 104, 126, 138, 148, 156, 168],
}

# google-parfait/federated-compute, fcp/secagg/server/graph_parameter_finder_test.cc; sigma = 40, eta = 20.
# (agents, colluding, dropping): degree, against a server that follows the protocol
PUBLISHED = {
    (100, 0.45, 0.45): 92,
    (1000, 0.45, 0.45): 822,
    (10_000, 0.45, 0.45): 3494,
    (10, 0.33, 0.33): 8,
    (100, 0.33, 0.33): 68,
    (1000, 0.33, 0.33): 286,
    (10_000, 0.33, 0.33): 422,
    (100_000, 0.33, 0.33): 480,
    (10, 0.05, 0.33): 4,
    (100, 0.05, 0.33): 28,
    (1000, 0.05, 0.33): 72,
    (10_000, 0.05, 0.33): 86,
    (100_000, 0.05, 0.33): 96,
    (1_000_000, 0.05, 0.33): 102,
    (10, 0.33, 0.05): 4,
    (100, 0.33, 0.05): 34,
    (1000, 0.33, 0.05): 78,
    (10_000, 0.33, 0.05): 92,
    (1_000_000, 0.33, 0.05): 110,
}


def finder_degree(agents: int, colluding: float, dropping: float, sigma: int = 40, eta: int = 40) -> int:
    """As the finder has it: connected, and more survivors than colluders among anybody's neighbours."""
    colluders, dropped = int(round(colluding * agents, 9)), int(round(dropping * agents, 9))
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, agents + 1)))])  # of factorials
    for k in range(graph.regular_degree(agents, colluders + dropped, sigma), agents, 2):
        collude, stay = chances(agents, colluders, k, logs), chances(agents, agents - dropped, k, logs)
        more, fewer = np.append(np.cumsum(collude[::-1])[::-1][1:], 0.0), np.append(0.0, np.cumsum(stay)[:-1])
        corrupt = np.argmax(more * agents <= ldexp(1.0, -sigma - 1))  # more of the neighbours collude but rarely
        if corrupt < np.flatnonzero(fewer * agents <= ldexp(1.0, -eta))[-1]:
            return k
    raise AssertionError("no degree")


def chances(agents: int, marked: int, k: int, logs: np.ndarray) -> np.ndarray:
    """That x of k neighbours are marked, for x = 0 … k."""
    x = np.arange(max(0, k - (agents - marked)), min(marked, k) + 1)
    inside = logs[marked] - logs[x] - logs[marked - x]
    outside = logs[agents - marked] - logs[k - x] - logs[agents - marked - k + x]
    answer = np.zeros(k + 1)
    answer[x] = np.exp(inside + outside - (logs[agents] - logs[k] - logs[agents - k]))
    return answer


@pytest.mark.parametrize("rates", HONEST)
def test_with_shares_degrees_match_the_table(rates):
    assert [finder_degree(agents, *rates) for agents in SIZES] == HONEST[rates]


@pytest.mark.parametrize("case", PUBLISHED, ids=str)
def test_with_shares_degrees_match_the_published_parameter_finder(case):
    assert finder_degree(*case, eta=20) == PUBLISHED[case]


def test_the_default_degree_is_complete_to_200_and_logarithmic_above():
    sizes = (3, 64, 200, 1000, 10_000, 1_000_000)
    assert [graph.degree(agents, 33 * agents // 100) for agents in sizes] == [2, 63, 199, 78, 88, 100]
    assert [graph.degree(1000, colluding) for colluding in (0, 495, 800, 950)] == [30, 124, 472, 999]


def test_those_who_collude_with_most_of_the_agents_do_not_cut_off_the_others():
    """A third of the owners may have many rooms each. Counted as a third of the agents they would."""
    agents, honest, seeds = 2000, set(range(150)), range(5)
    for colluding, whole in ((1850, 5), (660, 0)):
        k = graph.degree(agents, colluding)
        assert sum(connected(graph.Graph.build(agents, bytes([seed]), k), honest) for seed in seeds) == whole


@pytest.mark.parametrize(("agents", "degree", "lost"), [(12, 4, 5), (14, 6, 7), (16, 4, 4), (13, 2, 3)])
def test_honest_agents_fall_apart_no_more_often_than_the_bound_says(agents, degree, lost):
    """Every choice of lost agents, one by one."""
    mesh = graph.Graph.build(agents, b"seed", degree)
    apart = sum(not connected(mesh, set(range(agents)) - set(chosen)) for chosen in combinations(range(agents), lost))
    chance = apart / comb(agents, lost)
    assert 0 < chance
    promised = max(sigma for sigma in range(-9, 40) if graph.regular_degree(agents, lost, sigma) <= degree)
    assert chance <= ldexp(1.0, -promised - 1)


def connected(mesh: graph.Graph, honest: set[int]) -> bool:
    reached = frontier = {min(honest)}
    while frontier:
        frontier = {other for i in frontier for other in mesh.neighbours(i)} & honest - reached
        reached = reached | frontier
    return reached == honest


@given(agents=st.integers(2, 40), seed=st.binary(min_size=1, max_size=32), data=st.data())
@settings(max_examples=60)
def test_graph_is_symmetric_regular_and_connected(agents, seed, data):
    degrees = [k for k in range(1, agents) if k % 2 == 0 or k == agents - 1]
    mesh = graph.Graph.build(agents, seed, data.draw(st.sampled_from(degrees)))
    sets = [set(mesh.neighbours(i)) for i in range(agents)]
    assert all(len(found) == mesh.degree and i not in found for i, found in enumerate(sets))
    assert all(i in sets[j] for i in range(agents) for j in sets[i])
    assert connected(mesh, set(range(agents)))


def test_ten_thousand_agents_share_one_graph():
    mesh = graph.Graph.build(10_000, b"seed", graph.degree(10_000, 3300))
    own = mesh.neighbours(1234)
    assert len(own) == 88 and own == sorted(own)
    assert all(1234 in mesh.neighbours(other) for other in own)


def test_the_seed_decides_the_graph():
    one, two = (graph.Graph.build(300, seed, 10) for seed in (b"one", b"two"))
    assert one.neighbours(0) != two.neighbours(0)
    assert "seed" not in repr(one) and len(repr(one)) < 40


def test_every_order_of_four_is_equally_likely():
    """Chi-square with 23 degrees of freedom over the seeds 0..4799: stays below the 0.999 quantile, 49.7."""
    counts = Counter(tuple(graph.permutation(4, number.to_bytes(2, "big"))) for number in range(4800))
    assert len(counts) == 24
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 49.7


def test_words_that_would_bias_the_draw_are_skipped():
    assert graph._below(3, iter([2**64 - 1, 5])) == 2  # 2^64 - 1 is the one word beyond the last full run of three


@pytest.mark.parametrize("arguments", [(1, b"s", 1), (10, b"s", 0), (10, b"s", 10), (10, b"s", 3), (10, b"", 4)])
def test_impossible_graphs_are_refused(arguments):
    with pytest.raises(UsageError):
        graph.Graph.build(*arguments)
