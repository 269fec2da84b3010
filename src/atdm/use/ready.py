"""Whether agents would take part in a run over these tables, and whether one home would with its own."""

import math
from collections.abc import Iterator

import pandas as pd

from atdm.data.check import MIN_AGENTS, AgentQuality, Quality
from atdm.data.clock import spell, stamp
from atdm.protocol.plan import DAY as DAY_SECONDS
from atdm.protocol.plan import LEAST_STEP
from atdm.protocol.rules import Rules

DAY = pd.Timedelta("24h")


def short_of(quality: Quality) -> tuple[str, ...]:
    """What agents of `blind` ask for by default, beyond data that are in order."""
    rules, said = Rules(), []
    if MIN_AGENTS <= len(quality.agents) < rules.least_agents:
        said.append(f"{len(quality.agents)} agents: those of blind ask for {rules.least_agents} by default")
    steps = [a.step for a in quality.agents if a.step is not None]
    if steps and DAY >= min(steps):
        rows = min(a.rows for a in quality.agents) if quality.rows_kept is None else quality.rows_kept
        days = rows * min(steps) / DAY
        if days < rules.least_days:
            said.append(f"{math.floor(10 * days) / 10:g} days: agents of blind fit weights over {rules.least_days:g} "
                        "days or more by default; equal weights need fewer")  # fmt: skip
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
