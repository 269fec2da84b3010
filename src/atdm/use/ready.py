"""Whether agents would take part in a run over these tables, and whether one home would with its own."""

import math
from collections.abc import Iterator

import pandas as pd

from atdm.data.check import MIN_AGENTS, AgentQuality, Quality
from atdm.data.clock import spell, stamp
from atdm.kernel.design import parameter_count
from atdm.protocol.plan import DAY as DAY_SECONDS
from atdm.protocol.plan import LEAST_STEP
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
        needed = math.ceil(training / TRAIN)
        rows = min(a.rows for a in quality.agents) if quality.rows_kept is None else quality.rows_kept
        if rows < needed:
            said.append(f"{rows} rows: agents of blind fit weights from {needed} rows on by default (order 2, season "
                        "of 24 h, three quarters for training); equal weights need fewer")  # fmt: skip
    return tuple(said)


def problems(quality: Quality) -> tuple[str, ...]:
    """Why a fit would refuse these tables, or why a home could not take part with its own file."""
    return (*quality.problems, *(_unfit(quality.agents[0]) if len(quality.agents) == 1 else ()))


def _unfit(home: AgentQuality) -> Iterator[str]:
    """What agents of `blind` never accept of a home, whatever it is asked for."""
    if home.step is None:
        return
    step = int(home.step.total_seconds())
    if step < LEAST_STEP or DAY_SECONDS % step or int(home.first.timestamp()) % step:
        yield (
            f"a step of {spell(home.step)} from {stamp(home.first)}: agents need one of {LEAST_STEP // 60} min or more "
            "that divides the day, counted from midnight UTC: say another --step, or import the table with one"
        )
