"""Whether agents would take part in a run over these tables."""

import math

import pandas as pd

from atdm.data.check import MIN_AGENTS, Quality
from atdm.kernel.design import parameter_count
from atdm.protocol.rules import Rules

DAY = pd.Timedelta("24h")
TRAIN = 0.75  # of the rows, unless somebody asks for another share


def short_of(quality: Quality) -> tuple[str, ...]:
    """What agents of `blind` ask for by default, beyond data that are in order."""
    rules, said = Rules(), []
    if MIN_AGENTS <= len(quality.agents) < rules.least_agents:
        said.append(f"{len(quality.agents)} agents: those of blind ask for {rules.least_agents} by default")
    steps = [a.step for a in quality.agents if a.step is not None]
    if steps and DAY >= min(steps):
        training = rules.rows_per_parameter * parameter_count(2, int(DAY // min(steps)))
        needed, rows = math.ceil(training / TRAIN), min(a.rows for a in quality.agents)
        if rows < needed:
            said.append(f"{rows} rows: agents of blind fit weights from {needed} rows on by default (order 2, season "
                        "of 24 h, three quarters for training); equal weights need fewer")  # fmt: skip
    return tuple(said)
