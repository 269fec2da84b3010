"""One fine sensor among coarse ones: a sum of readings in steps of half a degree is known modulo that step, and what
the fine one adds to it stands out."""

from dataclasses import replace

import numpy as np
import pytest

from atdm.data import Cluster
from atdm.protocol import part
from atdm.protocol.rules import Rules
from tests.clusters import tiny
from tests.protocol.drive import RULES, drive, parties

STEP, AGENTS = 0.5, 15  # °C of all sensors but one


@pytest.mark.parametrize("weakened", [False, True])
def test_a_finer_sensor_is_not_in_the_sum_of_coarse_ones(weakened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The aggregator alone, equal weights: K·s modulo the step beside the fine readings modulo the step. A guess is off
    by a quarter of a step in the mean."""
    if weakened:
        monkeypatch.setattr(part, "EQUAL_WIDER", 1)
    cluster = tiny(1, agents=AGENTS, rows=200)
    coarse = np.round(cluster.temperature / STEP) * STEP
    coarse.iloc[:, 0] = cluster.temperature.iloc[:, 0]
    mixed = Cluster.from_frames(coarse, cluster.load, cluster.outdoor, cluster.solar)
    aggregator, agents = parties(mixed, weights="equal", rules=replace(RULES, dither=Rules().dither))
    drive(aggregator, agents)
    seen = AGENTS * aggregator.desk.collected.state - coarse.iloc[:, 0]
    off = np.abs((seen + STEP / 2) % STEP - STEP / 2).mean()
    assert (off < 0.06) if weakened else (0.11 < off < 0.14)
