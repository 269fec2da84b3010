"""Between fits: temperature and load of the whole cluster on new rows, as the agents of a fit release them.

The plan of an observation, what the aggregator has afterwards, and an observation in one process; over NATS: deploy.py.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import Any

import numpy as np
import pandas as pd

from atdm.data import Cluster
from atdm.data.clock import duration, stamp
from atdm.errors import RunAborted, UsageError
from atdm.model import Model, Origin
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.desk import Desk
from atdm.protocol.observe import ObserveDesk
from atdm.protocol.plan import ObservePlan
from atdm.protocol.readings import seconds, timestamps
from atdm.protocol.rules import Rules
from atdm.run import enrol, weather_of
from atdm.transport import local
from atdm.transport.disk import StateFolder

BACK = "24h"  # how far back rows are asked for that somebody could not give before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """What the agents released, and who learned what."""

    table: pd.DataFrame  # by time: aggregate_temp_c [°C], load_kw [kW]; rows that every agent gave, each once for ever
    asked: int  # rows asked for, those shown before included
    ledger: list[dict[str, Any]]  # party, what, shape, times

    def as_dict(self) -> dict[str, Any]:
        rows = self.table.reset_index()
        rows["time"] = [t.isoformat() for t in rows["time"]]
        return {"asked": self.asked, "rows": rows.to_dict("records"), "ledger": self.ledger}


def observe(
    cluster: Cluster,
    model: Model,
    *,
    state: str | Path,
    back: str | None = None,
    rules: Rules | None = None,
    dither: float = 0.1,
) -> Observation:
    """State and load on the rows of a cluster after the fit of a model, every agent being simulated in this process.

    state: the folder of the fit (`fit(…, state=…)`), where each agent keeps its weight; a row is shown once for ever.
    back: how far before the last row to begin, such as "24h"; without it right after the fit's window.
    """
    plan = observe_plan(model, cluster.time[-1], None if back is None else duration(back))
    own = replace(Rules() if rules is None else rules, dither=dither)
    with StateFolder(Path(state), os.urandom) as folder:
        agents, _ = enrol(cluster, own, os.urandom, state=folder)
        aggregator = Aggregator(
            plan=plan, roster=agents[0].roster, cohorts=set(released_by(model).cohorts), weather=weather_of(cluster),
            attempt=time_ns(),
        )  # fmt: skip
        members = {member.name for member in aggregator.members}
        present = [agent for agent in agents if agent.name in members]
        local.run(aggregator, present)
    notebooks = (aggregator.notebook, present[-1].own.notebook)
    return collect_observation(aggregator.desk, plan, [row for notebook in notebooks for row in notebook.rows()])


def released_by(model: Model) -> Origin:
    if model.origin is None:
        raise UsageError(
            "the model does not say which agents released it: give the model.json of a blind fit over NATS (atdm "
            "aggregator) or with a state folder"
        )
    return model.origin


def observe_plan(model: Model, last: pd.Timestamp, back: pd.Timedelta | None = None) -> ObservePlan:
    """The rows up to `last` that continue the fit of a model, at most `back` of them counted from the end."""
    origin, step = released_by(model), int(model.step.total_seconds())
    end, now = seconds(pd.DatetimeIndex([origin.end, last])).tolist()
    rows = (now - end) // step
    if rows < 1:
        raise UsageError(f"no row after the fit, which ends at {stamp(origin.end)}: wait for new readings")
    length = rows if back is None else min(rows, max(1, int(back // model.step)))
    return ObservePlan(fit=origin.run, step_seconds=step, start=end + (rows - length + 1) * step, length=length)


def collect_observation(desk: Desk | None, plan: ObservePlan, ledger: Iterable[dict[str, Any]]) -> Observation:
    """What the aggregator learned, as people use it."""
    if not isinstance(desk, ObserveDesk) or desk.observed is None:
        raise RunAborted("the observation ended without a result")
    found = desk.observed
    columns = {"aggregate_temp_c": found.state, "load_kw": found.load}
    table = pd.DataFrame(columns, index=timestamps(found.time), dtype=np.float64)
    return Observation(table=table, asked=plan.length, ledger=list(ledger))
