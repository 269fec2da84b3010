"""Whether agents would take part in a run over these tables."""

import pandas as pd

from atdm.data.check import MIN_AGENTS, Quality
from atdm.kernel.design import parameter_count
from atdm.protocol.rules import Rules

DAY = pd.Timedelta("24h")


def short_of(quality: Quality) -> tuple[str, ...]:
    """What agents of `blind` ask for by default, beyond data that are in order."""
    rules, said = Rules(), []
    if MIN_AGENTS <= len(quality.agents) < rules.least_agents:
        said.append(f"{len(quality.agents)} agents: those of blind ask for {rules.least_agents} by default")
    steps = [a.step for a in quality.agents if a.step is not None]
    if steps and DAY >= min(steps):
        needed = rules.rows_per_parameter * parameter_count(2, int(DAY // min(steps)))
        rows = min(a.rows for a in quality.agents)
        if rows < needed:
            said.append(f"{rows} rows: agents of blind ask for {needed:g} by default (order 2, season of 24 h)")
    return tuple(said)
