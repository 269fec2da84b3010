"""One fine sensor among coarse ones: a sum of readings in steps of half a degree is known modulo that step, and what
the fine one adds to it stands out."""

from dataclasses import replace

import numpy as np
import pytest

from atdm.data import Cluster
from atdm.protocol.rules import Rules
from tests.clusters import tiny
from tests.protocol.drive import RULES, drive, parties

STEP, AGENTS = 0.5, 15  # °C of all sensors but one


@pytest.mark.parametrize("dither, hidden", [(Rules().dither, False), (1.0, True)])
def test_a_dither_of_a_whole_step_hides_a_finer_sensor(dither: float, hidden: bool) -> None:
    """The aggregator alone, equal weights: K·s modulo the step beside the fine readings modulo the step. A guess is off
    by a quarter of a step in the mean; what a tenth of a step leaves is on the page of attacks."""
    cluster = tiny(1, agents=AGENTS, rows=200)
    coarse = np.round(cluster.temperature / STEP) * STEP
    coarse.iloc[:, 0] = cluster.temperature.iloc[:, 0]
    mixed = Cluster.from_frames(coarse, cluster.load, cluster.outdoor, cluster.solar)
    aggregator, agents = parties(mixed, weights="equal", rules=replace(RULES, dither=dither))
    drive(aggregator, agents)
    seen = AGENTS * aggregator.desk.collected.state - coarse.iloc[:, 0]
    off = np.abs((seen + STEP / 2) % STEP - STEP / 2).mean()
    assert (0.11 < off < 0.14) if hidden else (off < 0.06)
