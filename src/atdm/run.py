"""Where data, roles and transport meet: one page from a cluster to a fit.

    plan the run → enrol the agents → carry messages until the aggregator is done → collect what it learned
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter, time_ns
from typing import Any, Literal, cast

import msgspec
import numpy as np
import pandas as pd
from rich.console import Console
from threadpoolctl import threadpool_limits

from atdm.crypto.keys import SigningKey
from atdm.data import Cluster
from atdm.data.clock import season_steps
from atdm.errors import RunAborted, UsageError
from atdm.kernel.descent import Status
from atdm.kernel.design import Inputs, parameter_count
from atdm.kernel.diagnostics import Diagnostics, diagnose
from atdm.kernel.estimate import Estimate, Nonnegative
from atdm.kernel.thermal import Metrics
from atdm.model import Model, Origin
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.choice import Scores
from atdm.protocol.desk import Outcome
from atdm.protocol.ledger import Notebook, Seen
from atdm.protocol.part import VERIFYING, Host
from atdm.protocol.plain import fit_plain
from atdm.protocol.plan import PROTOCOLS, Candidate, MaskName, Plan, ProtocolName, check_plan, train_rows
from atdm.protocol.readings import Readings, Weather, public_inputs, seconds, timestamps, window
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import FEW_AGENTS, OFFERED, Rules, check_agents
from atdm.protocol.session import RandomBytes, Run
from atdm.transport import local
from atdm.transport.disk import StateFolder

Share = Literal["all", "but checks", "nothing"]
SHARED_HOST_ABOVE = 200  # agents; a simulation of more does all arithmetic on opened values once per process
FEW_ROWS = 5  # rows per parameter below which a fit warns


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run took. Bytes and seconds per agent are medians; the leader, who seals the group secret, is apart, and
    so is what agents of one process share (`enrol`)."""

    rounds: int = 0  # messages an agent sends
    sums: int = 0  # N-vector totals opened for the estimation; load, indicators, scalars and release apart
    bytes_up_per_agent: int = 0
    bytes_down_per_agent: int = 0
    seconds_per_agent: float | None = None
    seconds_aggregator: float = 0.0
    setup_seconds: float = 0.0  # keys and masks
    seconds: float = 0.0  # the run without them


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which candidate of its plan a run ended with."""

    number: int
    model: Candidate
    scores: Scores | None  # by candidate; a simulation may read them at an agent, a deployed aggregator has none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """A fitted model, how well it fits, who learned what, and what it cost."""

    protocol: str
    agents: int
    model: Model
    weights: pd.Series | None  # ξ by agent; a simulation owns all agents, a deployed aggregator has none
    iterations: int
    status: Status
    ridge: float  # λ used
    rss: float  # residual sum of squares of Eq. (2) over the training rows  [K²]
    state: pd.Series  # aggregate temperature over the released rows         [°C]
    load: pd.Series  # load of the whole cluster over the released rows      [kW]
    metrics: Metrics
    ledger: list[dict[str, Any]]  # party, what, shape, times
    cost: Cost
    inputs: Inputs  # the model's inputs on the released rows
    solver_residual: float = 0.0
    notes: tuple[str, ...] = ()
    transcript: dict[str, list[Seen]] = field(default_factory=dict)  # what each party saw, when asked for
    choice: Choice | None = None  # where the agents compared candidates

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @property
    def train(self) -> pd.Series:
        return self.state.iloc[: self.inputs.train]

    @property
    def test(self) -> pd.Series:
        return self.state.iloc[self.inputs.train :]

    def series(self) -> pd.DataFrame:
        """What was released, by time: aggregate_temp_c [°C], load_kw [kW] of the cluster, and part (train or test)."""
        parts = np.where(np.arange(len(self.state)) < self.inputs.train, "train", "test")
        return pd.concat([self.state, self.load], axis=1).assign(part=parts)

    @property
    def diagnostics(self) -> Diagnostics:
        """Residuals, poles, gains, standard errors, warnings: from what was released, when asked for."""
        step_hours = self.model.step.total_seconds() / 3600
        return diagnose(self.model.coefficients, self.inputs, self.state.to_numpy(float), step_hours)

    def as_dict(self) -> dict[str, Any]:
        """The object that --json prints; numbers that do not exist are null."""
        document = {
            "protocol": self.protocol,
            "agents": self.agents,
            "iterations": self.iterations,
            "status": str(self.status),
            "converged": self.converged,
            "ridge": self.ridge,
            "rss": self.rss,
            "model": self.model.as_dict(),
            "metrics": self.metrics,
            "ledger": self.ledger,
            "cost": asdict(self.cost),
            "solver_residual": self.solver_residual,
            "notes": list(self.notes),
        }
        if self.choice is not None:
            chosen = self.choice.model
            document["chosen"] = {"order": chosen.order, "ridge": chosen.ridge, "period": chosen.period}
        cleaned: dict[str, Any] = without_nan(document)
        return cleaned


def fit(
    cluster: Cluster,
    protocol: ProtocolName = "blind",
    *,
    order: int = 2,
    ridge: float = 100.0,
    season: str = "24h",
    nonnegative: Nonnegative = "ridge",
    tolerance: float = 1e-12,
    train: float = 0.75,
    solver_tolerance: float = 5e-5,
    dither: float = 0.1,
    progress: bool = False,
    masks: MaskName = "ring",
    minimum_norm: bool = False,
    rules: Rules | None = None,
    transcript: bool = False,
    state: str | Path | None = None,
) -> Fit:
    """Fit the aggregate thermal model of a cluster, every agent being simulated in this process.

    protocol: "blind" (the aggregator learns h, s and the model), "moments", "paper" or "plain": docs/protocols.md.
    order: M; ridge: λ; season: length of the occupants' period; train: share of the rows for training.
    nonnegative: "ridge" raises λ until no weight is negative, "exact" imposes ξ ≥ 0 (plain, moments), False neither.
    dither: width of the agents' secret dither in sensor quanta (blind); rules: the agents' other limits.
    transcript: keep what every party saw (fit.transcript), for an audit.
    state: a folder in which the agents keep their keys, what was seen of them, and what they can build the next fit on;
    without it every fit starts from nothing.
    """
    plan = make_plan(
        cluster, protocol, order=order, ridge=ridge, season=season, nonnegative=nonnegative, tolerance=tolerance,
        train=train, solver_tolerance=solver_tolerance, masks=masks, minimum_norm=minimum_norm,
    )  # fmt: skip
    own = Rules() if rules is None else rules
    own = replace(own, dither=dither)
    check_agents(len(cluster.agents), protocol, own)
    if state is not None and protocol != "blind":
        raise UsageError(f"a state folder is for agents of blind, {protocol} keeps nothing between fits: leave it out")
    with progress_line(progress, protocol, len(cluster.agents)) as report, one_blas_thread():
        if protocol == "plain":
            return _fit_plain(cluster, plan)
        return simulate(cluster, plan, own, transcript=transcript, report=report, state=state)


def one_blas_thread() -> AbstractContextManager[object]:
    """Matrices here are small: more threads of BLAS only wait for each other, up to ten times as long."""
    return cast(AbstractContextManager[object], threadpool_limits(limits=1, user_api="blas"))


def make_plan(
    cluster: Cluster,
    protocol: ProtocolName,
    *,
    order: int = 2,
    ridge: float = 100.0,
    season: str = "24h",
    nonnegative: Nonnegative = "ridge",
    tolerance: float = 1e-12,
    train: float = 0.75,
    solver_tolerance: float = 5e-5,
    masks: MaskName = "ring",
    minimum_norm: bool = False,
) -> Plan:
    """The public parameters of a run over all rows of a cluster."""
    return plan_over(
        cluster.time[0], cluster.time[-1], cluster.step, cluster.timezone, weather_of(cluster), protocol, order=order,
        ridge=ridge, season=season, nonnegative=nonnegative, tolerance=tolerance, train=train,
        solver_tolerance=solver_tolerance, masks=masks, minimum_norm=minimum_norm,
    )  # fmt: skip


def plan_over(
    start: pd.Timestamp,
    end: pd.Timestamp,
    step: pd.Timedelta,
    timezone: str,
    weather: Weather,
    protocol: ProtocolName,
    *,
    order: int = 2,
    ridge: float = 100.0,
    season: str = "24h",
    nonnegative: Nonnegative = "ridge",
    tolerance: float = 1e-12,
    train: float = 0.75,
    solver_tolerance: float = 5e-5,
    masks: MaskName = "ring",
    minimum_norm: bool = False,
) -> Plan:
    """The public parameters of a run over a window, both ends included."""
    if protocol not in PROTOCOLS:
        raise UsageError(f"protocol {protocol!r}: choose one of {', '.join(PROTOCOLS)}")
    if nonnegative not in ("ridge", "exact", False):
        raise UsageError(f"nonnegative {nonnegative!r}: choose 'ridge', 'exact' or False")
    step_seconds = step.total_seconds()
    if step_seconds != int(step_seconds):
        raise UsageError(f"a step of {step_seconds} s: the step must be a whole number of seconds")
    first, last = seconds(pd.DatetimeIndex([start, end])).tolist()
    plan = Plan(
        protocol=protocol,
        order=order,
        ridge=float(ridge),
        period=season_steps(season, step),
        step_seconds=int(step_seconds),
        timezone=timezone,
        start=first,
        length=(last - first) // int(step_seconds) + 1,
        train=float(train),
        nonnegative="free" if nonnegative is False else nonnegative,
        tolerance=float(tolerance),
        solver_tolerance=float(solver_tolerance),
        weather=weather.hash(),
        masks=masks,
        minimum_norm=minimum_norm,
    )
    check_plan(plan)
    return plan


def choosing(plan: Plan, candidates: Sequence[Candidate], horizon: int, every: int) -> Plan:
    """The same run over several candidates, with validation runs of `horizon` steps whose origins are `every` steps
    apart. It starts with the middle one, which is near most others."""
    middle = sorted(candidates, key=lambda c: (c.order, c.period, c.ridge))[len(candidates) // 2]
    several = msgspec.structs.replace(plan.of(middle), candidates=tuple(candidates), horizon=horizon, every=every)
    check_plan(several)
    return several


def weather_of(cluster: Cluster) -> Weather:
    return Weather(seconds(cluster.time), cluster.outdoor.to_numpy(float), cluster.solar.to_numpy(float))


def enrol(
    cluster: Cluster,
    rules: Rules,
    random_bytes: RandomBytes,
    *,
    keep: bool = False,
    state: StateFolder | None = None,
    share: Share | None = None,
) -> tuple[list[Agent], bytes]:
    """One agent object per column, in the order of their identity keys, and the authority that enrolled them.

    share: what this process works out once for agents that were shown the same: "all" of it, as it does for many
    agents; all but how each of them verifies the totals and the leader ("but checks"), as for fewer; or "nothing".
    They take part in any protocol: whoever simulates them holds their readings anyway.
    """
    rules = replace(rules, protocols=OFFERED)
    names = cluster.agents
    if state is None:
        authority = SigningKey(random_bytes(32))
        identities = {name: SigningKey(random_bytes(32)) for name in names}
        roster = sign_roster(authority, [(n, str(cluster.owner[n]), identities[n].public) for n in names])
    else:
        authority = state.authority()
        identities = {name: state.identity(name) for name in names}
        roster = state.roster([(name, str(cluster.owner[name])) for name in names])
    time, weather = seconds(cluster.time), weather_of(cluster)
    if share is None:
        share = "all" if len(names) > SHARED_HOST_ABOVE else "but checks"
    shared = Host(apart=VERIFYING if share == "but checks" else frozenset())
    agents = [
        Agent(
            identity=identities[member.name],
            secret=random_bytes(32) if state is None else state.secret(member.name),
            roster=roster,
            authority=authority.public,
            readings=Readings(
                time, cluster.temperature[member.name].to_numpy(float), cluster.load[member.name].to_numpy(float)
            ),
            weather=weather,
            rules=rules,
            random_bytes=random_bytes,
            store=None if state is None else state.store(member.name),
            host=None if share == "nothing" else shared,
            keep=keep,
        )
        for member in roster.members
    ]
    return agents, authority.public


def simulate(
    cluster: Cluster,
    plan: Plan,
    rules: Rules,
    *,
    transcript: bool = False,
    report: Callable[[str], None] | None = None,
    tap: local.Tap | None = None,
    random_bytes: RandomBytes = os.urandom,
    state: str | Path | None = None,
    share: Share | None = None,
) -> Fit:
    """A whole private run in this process: every party an object of its own, real bytes between them."""
    began = perf_counter()
    with nullcontext() if state is None else StateFolder(Path(state), random_bytes) as folder:
        if share is None and plan.candidates:
            share = "all"  # a comparison is much work, and the same for everybody
        agents, _ = enrol(cluster, rules, random_bytes, keep=transcript, state=folder, share=share)
        roster = agents[0].roster
        aggregator = Aggregator(
            plan=plan, roster=roster, cohorts={member.cohort for member in roster.members}, weather=weather_of(cluster),
            attempt=0 if state is None else time_ns(), keep=transcript,
        )  # fmt: skip
        enrolled = perf_counter() - began
        traffic = local.run(aggregator, agents, tap, report)
    outcome = aggregator.desk.outcome if aggregator.desk is not None else None
    if outcome is None:
        raise RunAborted("the run ended without a result")
    others = range(1, len(agents))
    cost = Cost(
        rounds=int(median(traffic.messages_up[i] for i in others)),
        sums=outcome.sums,
        bytes_up_per_agent=int(median(traffic.bytes_up[i] for i in others)),
        bytes_down_per_agent=int(median(traffic.bytes_down[i] for i in others)),
        seconds_per_agent=median(traffic.seconds[i] for i in others),
        seconds_aggregator=traffic.seconds_aggregator,
        setup_seconds=traffic.setup_seconds + enrolled,
        seconds=traffic.total_seconds - traffic.setup_seconds,
    )
    weights = pd.Series({agent.name: agent.weight for agent in agents}, name="weight").reindex(list(cluster.agents))
    notebooks = [aggregator.notebook, agents[-1].own.notebook]
    seen = {"aggregator": aggregator.notebook.seen, **{a.name: a.own.notebook.seen for a in agents}}
    return collect(
        plan, outcome, weather_of(cluster), agents=len(agents), ledger=_ledger(*notebooks), cost=cost, weights=weights,
        notes=(*cluster.notes, *warnings_of(plan, outcome, len(agents))), transcript=seen if transcript else {},
        scores=agents[-1].scores, run=None if state is None else aggregator.run,
    )  # fmt: skip


def collect(
    plan: Plan,
    outcome: Outcome,
    weather: Weather,
    *,
    agents: int,
    ledger: list[dict[str, Any]],
    cost: Cost,
    weights: pd.Series | None = None,
    notes: tuple[str, ...] = (),
    transcript: dict[str, list[Seen]] | None = None,
    scores: Scores | None = None,
    run: Run | None = None,  # where its agents go on after it
) -> Fit:
    """What the aggregator learned, as people use it."""
    plan = fitted_plan(plan, outcome)
    estimate, index = outcome.estimate, timestamps(outcome.time)
    step = pd.Timedelta(seconds=plan.step_seconds)
    return Fit(
        protocol=plan.protocol,
        agents=agents,
        model=Model(
            coefficients=estimate.coefficients, step=step, timezone=plan.timezone,
            origin=None if run is None or plan.protocol != "blind" else origin_of(run),
        ),  # fmt: skip
        weights=weights,
        iterations=estimate.iterations,
        status=estimate.status,
        ridge=estimate.ridge,
        rss=estimate.rss,
        state=pd.Series(estimate.state, index=index, name="aggregate_temp_c"),
        load=pd.Series(outcome.load, index=index, name="load_kw"),
        metrics=estimate.metrics,
        ledger=ledger,
        cost=cost,
        inputs=replace(
            public_inputs(plan, outcome.time, outcome.load, weather),
            train=int(np.isin(outcome.time, outcome.kept[: train_rows(len(outcome.kept), plan.train)]).sum()),
        ),
        solver_residual=estimate.solver_residual,
        notes=notes,
        transcript=transcript or {},
        choice=None if outcome.chosen is None else Choice(number=outcome.chosen, model=plan.model, scores=scores),
    )


def fitted_plan(plan: Plan, outcome: Outcome) -> Plan:
    """The plan with the model that was released."""
    return plan if outcome.chosen is None else plan.of(plan.candidates[outcome.chosen])


def origin_of(run: Run) -> Origin:
    cohorts = tuple(sorted({member.cohort for member in run.members}))
    return Origin(run=run.id, cohorts=cohorts, end=timestamps(window(run.plan)[-1:])[0])


def _fit_plain(cluster: Cluster, plan: Plan) -> Fit:
    began = perf_counter()
    notebook = Notebook("aggregator")
    outcome, weights = fit_plain(
        plan, seconds(cluster.time), cluster.temperature.to_numpy(float), cluster.load.to_numpy(float),
        weather_of(cluster), notebook,
    )  # fmt: skip
    spent = perf_counter() - began
    return collect(
        plan, outcome, weather_of(cluster), agents=len(cluster.agents), ledger=_ledger(notebook),
        cost=Cost(seconds_aggregator=spent, seconds=spent, bytes_up_per_agent=16 * len(cluster.time)),
        weights=pd.Series(weights, index=list(cluster.agents), name="weight"),
        notes=(*cluster.notes, *warnings_of(plan, outcome, len(cluster.agents))),
    )  # fmt: skip


def warnings_of(plan: Plan, outcome: Outcome, agents: int) -> tuple[str, ...]:
    """What the person should know about a result."""
    plan, notes = fitted_plan(plan, outcome), []
    parameters, rows = parameter_count(plan.order, plan.period), math.floor(len(outcome.kept) * plan.train)
    if rows < FEW_ROWS * parameters:
        notes.append(f"{rows} training rows for {parameters} parameters: expect a poor forecast; use a longer window")
    if plan.protocol == "blind" and agents < FEW_AGENTS:
        notes.append(f"{agents} agents: below {FEW_AGENTS} the totals that peers see are sums of few; use more agents")
    status: Estimate = outcome.estimate
    if status.status is Status.CAPPED:
        notes.append(
            f"the agents' own limits stopped the solver at residual {status.solver_residual:.1e} "
            f"(asked for {plan.solver_tolerance:.0e}): use more agents, or agents that resemble each other less"
        )
    if len(outcome.time) < len(outcome.kept):
        notes.append(
            f"load and state of {len(outcome.kept) - len(outcome.time)} rows were released by an earlier fit and are "
            f"not shown again: fit.state and fit.load cover the other {len(outcome.time)}"
        )
    if status.ridge > plan.ridge:
        notes.append(f"ridge raised from {plan.ridge:g} to {status.ridge:.2f}, the first without a negative weight")
    return tuple(notes)


def _ledger(*notebooks: Notebook) -> list[dict[str, Any]]:
    return [row for notebook in notebooks for row in notebook.rows()]


@contextmanager
def progress_line(wanted: bool, protocol: str, agents: int) -> Iterator[Callable[[str], None] | None]:
    if not wanted:
        yield None
        return
    with Console(stderr=True).status(f"{protocol}: {agents} agents") as line:
        yield lambda text: line.update(f"{protocol}: {agents} agents, {text}")


def without_nan(value: Any) -> Any:
    """The same document with NaN and infinities as null, which JSON has."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
