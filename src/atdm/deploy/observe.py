"""Temperature and load of the whole cluster on new rows, as the agents release them: under equal weights, or under
those of a fit. The plan, what the aggregator has afterwards, and collecting in one process; over NATS: watch.py.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from atdm.data import Cluster
from atdm.data.clock import duration, seconds, stamp, timestamps
from atdm.data.readings import positions
from atdm.deploy.fleet import whole
from atdm.errors import RunAborted, UsageError
from atdm.model.fitted import Model, Origin
from atdm.options import WeightsName
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.collect import CollectDesk
from atdm.protocol.company import Choose, bits, choose
from atdm.protocol.plan import Collect
from atdm.protocol.readings import window
from atdm.protocol.rules import Rules
from atdm.run import attempt_now, enrol, own_rules, weather_of
from atdm.transport import local
from atdm.transport.disk import StateFolder

BACK = "72h"  # how far back rows are asked for that somebody could not give before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """What the agents released, and who learned what.

    Attributes
    ----------
    table : pandas.DataFrame
        By time: aggregate_temp_c [°C], load_kw [kW] of those in, and how many they were (agents).
    asked : int
        Rows asked for.
    ledger : list of dict
        Who learned what: party, what, shape, times.
    out : dict
        Agent that stayed out → why.
    inside : tuple of str
        Agents that were in.
    """

    table: pd.DataFrame
    asked: int
    ledger: list[dict[str, Any]]
    out: dict[str, str]
    inside: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The rows for JSON; time stamps as text."""
        rows = self.table.reset_index()
        rows["time"] = [t.isoformat() for t in rows["time"]]
        return {"asked": self.asked, "rows": rows.to_dict("records"), "ledger": self.ledger, "out": self.out}


def observe(
    cluster: Cluster,
    model: Model,
    *,
    state: str | Path,
    back: str | None = None,
    weights: WeightsName | None = None,
    rules: Rules | None = None,
    dither: float = 0.1,
) -> Observation:
    """Aggregate temperature and load on the rows after the fit of a model, every agent being simulated in this process.

    Parameters
    ----------
    cluster : Cluster
        Readings that reach beyond the window of the fit.
    model : Model
        The model of a fit under "blind" with a state folder.
    state : str or Path
        The folder of that fit (`fit(…, state=…)`), where each agent keeps its account.
    back : str, optional
        How far before the last row to begin, such as "24h"; by default right after the fit's window.
    weights : {"fitted", "equal"}, optional
        By default those of the model.
    rules : Rules, optional
        The agents' own limits; by default those of `Rules`.
    dither : float, default 0.1
        Width of the agents' secret dither; that of `rules` where it says another one [sensor quanta].

    Returns
    -------
    Observation
        The rows that every agent gave.

    Raises
    ------
    UsageError
        The model does not say which agents released it, or there is no row after its window.
    RunAborted
        The agents refused, or the run ended without a result.
    """
    plan = observe_plan(model, cluster.time[-1], None if back is None else duration(back), weights=weights)
    own = own_rules(rules, dither)
    with StateFolder(Path(state), os.urandom) as folder:
        agents, _ = enrol(cluster, own, os.urandom, state=folder)
        aggregator = Aggregator(
            plan=plan, roster=agents[0].roster, weather=weather_of(cluster), attempt=attempt_now(),
            choose=company_of(model, plan), least=own.least_agents,
        )  # fmt: skip
        local.run(aggregator, agents)
    ledger = [row for notebook in (aggregator.notebook, agents[-1].own.notebook) for row in notebook.rows()]
    return collect_observation(aggregator, ledger)


def company_of(model: Model, plan: Collect) -> Choose:
    """Rows under the weights of a fit need its whole company; under equal ones those that are in make one."""
    return whole(released_by(model).company) if plan.fit else choose


def released_by(model: Model) -> Origin:
    if model.origin is None:
        raise UsageError(
            "the model does not say which agents released it: give the model.json of a blind fit over NATS (atdm "
            "aggregator) or with a state folder"
        )
    return model.origin


def observe_plan(
    model: Model,
    last: pd.Timestamp,
    back: pd.Timedelta | None = None,
    *,
    known: pd.DatetimeIndex | None = None,
    weights: WeightsName | None = None,
) -> Collect:
    """The rows up to `last` that continue the fit of a model, at most `back` of them counted from the end, without
    those that are known already."""
    origin, step = released_by(model), int(model.step.total_seconds())
    if weights == "fitted" and not origin.run:
        raise UsageError("the model was fitted with equal weights and has no others: observe with equal weights")
    end, now = seconds(pd.DatetimeIndex([origin.end, last])).tolist()
    rows = (now - end) // step
    if rows < 1:
        raise UsageError(f"no row after the fit, which ends at {stamp(origin.end)}: wait for new readings")
    length = rows if back is None else min(rows, max(1, int(back // model.step)))
    fit = b"" if weights == "equal" else origin.run
    plan = Collect(fit=fit, step_seconds=step, start=end + (rows - length + 1) * step, length=length)
    if known is None or not len(known):
        return plan
    wanted = positions(np.sort(seconds(known)), window(plan)) < 0
    if not wanted.any():
        raise UsageError("all rows up to now have been collected: wait for new readings")
    first = int(np.argmax(wanted))  # so that a window of nothing but known rows is not announced
    return msgspec.structs.replace(
        plan, start=plan.start + first * step, length=length - first, asked=bits(wanted[first:])
    )


def collect_observation(role: Aggregator, ledger: Iterable[dict[str, Any]]) -> Observation:
    """What the aggregator learned, as people use it."""
    desk = role.desk
    if not isinstance(desk, CollectDesk) or desk.collected is None:
        raise RunAborted("collecting ended without a result")
    found = desk.collected
    columns = {"aggregate_temp_c": found.state, "load_kw": found.load}
    table = pd.DataFrame(columns, index=timestamps(found.time), dtype=np.float64).assign(agents=desk.run.agents)
    inside = tuple(member.name for member in role.members)
    return Observation(table=table, asked=len(desk.run.rows()), ledger=list(ledger), out=role.out(), inside=inside)
