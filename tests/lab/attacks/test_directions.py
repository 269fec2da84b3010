"""A direction of fitted weights is nobody's series: the clip acts at any ridge, whoever stands out."""

import numpy as np
import pytest

from atdm.data import Cluster
from atdm.kernel.descent import Descent
from atdm.kernel.span import Look
from atdm.protocol.blind import direction
from atdm.protocol.rules import Rules
from tests.protocol.drive import drive, parties


@pytest.mark.parametrize("ridge", [1e-2, 1.0, 100.0, 1e4, 1e6])
def test_no_home_carries_a_direction_whatever_the_ridge(sample, ridge, monkeypatch):
    """With the scale √K/λ of the draft the clip never acted at a large λ: 0.92 of Σp² was one home's on one cluster.
    With 0.3 √K rss/(λν) it never acted at a small one: a home that stands empty was the whole total."""
    cluster = with_an_empty_home(sample)
    first, *later = shares(cluster, ridge)
    assert max(first) < 0.15 and all(max(each) < 0.3 for each in later)
    monkeypatch.setattr(direction, "first_scale", lambda span, agents: np.sqrt(agents) / span.ridge)
    assert max(shares(cluster, ridge)[0]) > 2 * max(first)


def with_an_empty_home(cluster):
    """One zone in place of another: no heat, 120 h to cool down, a sensor of 0.1 °C."""
    outdoor, solar, alone = cluster.outdoor.to_numpy(), cluster.solar.to_numpy(), [15.0]
    for t in range(len(outdoor) - 1):
        alone.append(alone[-1] + 0.5 / 120 * (outdoor[t] + 6 * solar[t] - alone[-1]))
    temperature, load = cluster.temperature.copy(), cluster.load.copy()
    temperature[cluster.agents[20]], load[cluster.agents[20]] = np.round(alone, 1), 0.0
    return Cluster.from_frames(temperature, load, cluster.outdoor, cluster.solar)


def shares(cluster, ridge: float) -> list[np.ndarray]:
    """Each home's share of Σp², direction by direction; some fits end before their release."""
    options = dict(order=2, ridge=ridge, season="24h", solver_tolerance=0.03)
    aggregator, agents = parties(cluster, rules=Rules(dither=0.0), **options)
    parts, step_values = {}, direction.step_values

    def noted(*arguments):
        p, values = step_values(*arguments)
        parts.setdefault(len(arguments[2]), []).append(p)
        return p, values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direction, "step_values", noted)
        drive(aggregator, agents)
    squares = [np.array(each) ** 2 for each in parts.values()]
    return [each / each.sum() for each in squares]


def test_a_home_that_stands_out_does_not_set_the_size_of_a_direction():
    """Of 16 homes one has a step a thousand times that of the others; the next scale is theirs, nearly."""
    own = direction.OwnSeries(np.ones(1), np.eye(2))
    descent = Descent(alpha=np.zeros(1), weights=np.ones(1), previous=np.ones(1))
    found = Look(descent, 1.0, np.ones(1), np.empty((0, 1)))
    sizes = []
    for raw in (1.0, *[1e-3] * 15):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(direction, "residual", lambda *_, raw=raw: (0.0, raw))
            _, values = direction.step_values(found, own, np.ones(1), 1.0, 2e-3, 16, 2.0)
        sizes.append(values["squares"][1])
    assert direction.next_scale(2e-3, sum(sizes)) < 4e-3
