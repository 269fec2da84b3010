"""Where data, roles and transport meet: one page from a cluster to a fit.

plan the run → enrol the agents → carry messages until the aggregator is done → collect what it learned
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter, time_ns
from typing import Any, NamedTuple, get_args

import pandas as pd
from rich.console import Console

from atdm.crypto.keys import SigningKey
from atdm.data import Cluster
from atdm.data.clock import season_steps, seconds, timestamps
from atdm.data.holidays import days_of
from atdm.data.probe import windows_of
from atdm.data.readings import Readings, Weather
from atdm.errors import DataError, RunAborted, UsageError
from atdm.kernel.blas import one_blas_thread
from atdm.kernel.descent import Status
from atdm.kernel.design import lagged_rows, parameter_count, train_rows
from atdm.kernel.estimate import Nonnegative, of_state
from atdm.model.calendar import Calendar
from atdm.model.fitted import Model, Origin
from atdm.options import FitOptions, ProtocolName, WeightsName, fit_options
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.collect import CollectDesk
from atdm.protocol.desk import Outcome
from atdm.protocol.ledger import Notebook, Seen
from atdm.protocol.part import Host
from atdm.protocol.plain import fit_plain
from atdm.protocol.plan import LEAST_AGENTS, AnyPlan, Collect, Plan, check_plan
from atdm.protocol.readings import public_inputs, weather_hash
from atdm.protocol.registry import OFFERED, REGISTRY
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import Rules, least_owners, too_short
from atdm.protocol.session import RandomBytes, Run
from atdm.result import Cost, Fit, LoadKind, percent
from atdm.transport import local
from atdm.transport.disk import StateFolder
from atdm.types import FloatArray, IntArray

LOAD_KINDS: tuple[LoadKind, ...] = get_args(LoadKind)

FEW_AGENTS = 20  # fitted weights warn below
FEW_ROWS = 5  # rows per parameter below which a fit warns
FAR = 0.05  # share above the best possible objective beyond which a search that the agents' limits ended is remarked on


def fit(
    cluster: Cluster,
    protocol: ProtocolName = "blind",
    *,
    order: int = 2,
    ridge: float = 100.0,
    season: str = "24h",
    nonnegative: Nonnegative = "ridge",
    weights: WeightsName = "fitted",
    tolerance: float = 1e-12,
    train: float = 0.75,
    solver_tolerance: float = 0.03,
    dither: float = 0.1,
    progress: bool = False,
    minimum_norm: bool = False,
    rules: Rules | None = None,
    transcript: bool = False,
    state: str | Path | None = None,
    holidays: str | Iterable[date] | None = None,
    probed: pd.DataFrame | None = None,
    load: LoadKind = "heat",
) -> Fit:
    """Fit the aggregate thermal model of a cluster, every agent being simulated in this process.

    Parameters
    ----------
    cluster : Cluster
        Readings of all agents and the weather.
    protocol : {"blind", "moments", "paper", "plain"}, default "blind"
        Who learns what: docs/protocols.md. Under "blind" the aggregator learns load, aggregate temperature and model.
    order : int, default 2
        M: how many past steps Eq. (2) looks back.
    ridge : float, default 100.0
        λ: weight of the penalty on unequal weights in Eq. (3); no part with equal weights [K²].
    season : str, default "24h"
        Length of the occupants' period; "blind" with fitted weights takes 24 h only.
    nonnegative : {"ridge", "exact", False}, default "ridge"
        "ridge" raises λ until no weight is negative, "exact" imposes ξ ≥ 0 (plain, moments), False does neither.
    weights : {"fitted", "equal"}, default "fitted"
        "fitted": the paper's weights, found by the agents. "equal": the mean of all agents, with a stronger claim
        (plain, blind).
    tolerance : float, default 1e-12
        The descent stops when min(f1 − f2, (f1 − f2)/f2) is below it [-].
    train : float, default 0.75
        Share of the rows for training; the rest is the test part [-].
    solver_tolerance : float, default 0.03
        Relative residual of the weights at which "blind" stops asking for further totals [-].
    dither : float, default 0.1
        Width of the agents' secret dither ("blind"); that of `rules` where it says another one [sensor quanta].
    progress : bool, default False
        Show a line with what is being done.
    minimum_norm : bool, default False
        Take the smallest of all solutions where the data cannot tell coefficients apart, instead of refusing
        (plain, moments, paper, and equal weights).
    rules : Rules, optional
        The agents' own limits; by default those of `Rules`.
    transcript : bool, default False
        Keep what every party saw in `Fit.transcript`, for an audit.
    state : str or Path, optional
        Folder in which the agents keep keys and accounts; without it they forget every fit.
    holidays : str or iterable of date, optional
        Public holidays that may count as Sundays in the chosen model: a country or COUNTRY/REGION ("GB", "US/IL"), a
        file of dates, or dates.
    probed : pandas.DataFrame, optional
        Blocks of an experiment in the window, as `atdm probe` writes them: time, until, setpoint_offset_k [K].
    load : {"heat", "electricity"}, default "heat"
        What the load is. With "electricity" the chosen model has load × outdoor temperature as a further input: the COP
        of heat pumps, found in the released rows.

    Returns
    -------
    Fit
        The model, how well it fits, who learned what, and what it cost.

    Raises
    ------
    UsageError
        Options that do not go together, or too few agents for the protocol.
    DataError
        The data do not determine the model.
    RunAborted
        The run ended without a result; nothing was released.

    Examples
    --------
    >>> import atdm
    >>> fit = atdm.fit(atdm.load_sample(), protocol="plain")
    >>> round(fit.metrics["test"]["free_run"]["r2"], 2)
    0.88
    >>> fit.chosen.words()
    'order 3, weekdays and weekends apart, chosen on training rows and refined on its forecasts of 24 h'
    """
    free, moved = days_of(holidays, cluster.time), () if probed is None else windows_of(probed)
    options = fit_options(
        protocol=protocol, order=order, ridge=ridge, season=season, nonnegative=nonnegative, weights=weights,
        tolerance=tolerance, train=train, solver_tolerance=solver_tolerance, minimum_norm=minimum_norm,
    )  # fmt: skip
    return fit_cluster(
        cluster, options, own_rules(rules, dither), progress=progress, transcript=transcript, state=state,
        holidays=free, probed=moved, load_kind=load,
    )  # fmt: skip


def own_rules(rules: Rules | None, dither: float) -> Rules:
    """The agents' limits, with the dither of whichever of the two says something."""
    usual = Rules()
    if rules is None or rules.dither == usual.dither:
        return replace(rules or usual, dither=dither)
    if dither not in (usual.dither, rules.dither):
        raise UsageError(f"dither {dither:g}, and {rules.dither:g} in the agents' rules: give it once")
    return rules


def fit_cluster(
    cluster: Cluster,
    options: FitOptions,
    rules: Rules | None = None,
    *,
    progress: bool = False,
    transcript: bool = False,
    state: str | Path | None = None,
    holidays: frozenset[date] = frozenset(),
    probed: tuple[tuple[pd.Timestamp, pd.Timestamp], ...] = (),
    load_kind: LoadKind = "heat",
) -> Fit:
    """`fit` with its options in one struct, as the commands have them."""
    if load_kind not in LOAD_KINDS:
        raise UsageError(f"load {load_kind!r}: choose 'heat' or 'electricity'")
    rules = Rules() if rules is None else rules
    plan, agents = make_plan(cluster, options, rules), len(cluster.agents)
    check_agents(agents, plan.protocol, rules, plan.weights)
    _check_rows(cluster, plan, rules)
    if state is not None and REGISTRY[plan.protocol].opened:
        raise UsageError(
            f"a state folder is for agents of blind: leave it out under {plan.protocol}, which shows every reading"
        )
    with progress_line(progress, plan.protocol, agents) as report, one_blas_thread():
        if plan.protocol == "plain":
            found = _fit_plain(cluster, plan)
        else:
            found = simulate(cluster, plan, rules, transcript=transcript, report=report, state=state)
    return replace(found, holidays=holidays, probed=probed, load_kind=load_kind)


def check_agents(agents: int, protocol: str, rules: Rules, weights: WeightsName = "fitted") -> None:
    """The minimum a person who starts a simulation meets before any key is made."""
    if agents < LEAST_AGENTS:
        raise UsageError(
            f"{agents} agents: a fit needs at least {LEAST_AGENTS}, or sums would give their parts away; use more, or "
            "atdm check for the file of one home"
        )
    if protocol != "blind":
        return
    if agents < rules.least_agents:
        raise UsageError(
            f"{agents} agents: blind needs at least {rules.least_agents} (agents' rule least_agents, down to "
            f"{LEAST_AGENTS}); use more agents, or another protocol for a simulation"
        )
    if weights == "fitted" and rules.totals_for(agents) < 2:
        raise UsageError(f"{agents} agents: too few for two totals; use weights='equal', or more agents")


def _check_rows(cluster: Cluster, plan: Plan, rules: Rules) -> None:
    """Name missing readings as the cause where without them there would be rows enough."""
    rows, parameters = len(cluster.time), parameter_count(plan.order, plan.period)
    usable = len(lagged_rows(cluster.segment, plan.order, 0, train_rows(rows, plan.train)))
    fitted = plan.protocol == "blind" and plan.weights == "fitted"
    asked = fitted and too_short(rules, plan, usable + plan.order, math.inf) is not None
    if cluster.rows_dropped and (asked or usable < parameters + 2):
        least = math.ceil(rules.rows_per_parameter * parameters) if asked else parameters + 2
        raise DataError(
            f"{usable} usable training rows, {least} are needed for {parameters} parameters: {cluster.rows_dropped} of "
            f"{rows + cluster.rows_dropped} rows were lost to missing readings; fill longer gaps (fill, --fill), or "
            "leave out the agents and days that `atdm check` names"
        )


class Window(NamedTuple):
    """The rows a plan is about, both ends included, and the weather of all of them."""

    start: pd.Timestamp
    end: pd.Timestamp
    step: pd.Timedelta
    timezone: str
    weather: Weather


def window_of(cluster: Cluster) -> Window:
    return Window(cluster.time[0], cluster.time[-1], cluster.step, cluster.timezone, weather_of(cluster))


def make_plan(over: Cluster | Window, options: FitOptions, rules: Rules | None = None) -> Plan:
    """The public parameters of a run; rules: limits that the agents are known to have, where not the usual ones."""
    start, end, step, timezone, weather = window_of(over) if isinstance(over, Cluster) else over
    step_seconds = step.total_seconds()
    if step_seconds != int(step_seconds):
        raise UsageError(f"a step of {step_seconds} s: the step must be a whole number of seconds")
    first, last = seconds(pd.DatetimeIndex([start, end])).tolist()
    limits = Rules() if rules is None else rules
    plan = Plan(
        protocol=options.protocol,
        weights=options.weights,
        order=options.order,
        ridge=float(options.ridge),
        period=season_steps(options.season, step),
        step_seconds=int(step_seconds),
        timezone=timezone,
        start=first,
        length=(last - first) // int(step_seconds) + 1,
        train=float(options.train),
        nonnegative=options.nonnegative,
        tolerance=float(options.tolerance),
        solver_tolerance=float(options.solver_tolerance),
        weather=weather_hash(weather, first, last),
        minimum_norm=options.minimum_norm,
        totals=limits.totals,
        agents_per_total=limits.agents_per_total,
        colluders=limits.colluders,
        clip=limits.clip,
    )
    check_plan(plan)
    return plan


def rows_of_plan(plan: Plan) -> Collect:
    """What is asked of agents where a fit has equal weights."""
    return Collect(step_seconds=plan.step_seconds, start=plan.start, length=plan.length)


def weather_of(cluster: Cluster) -> Weather:
    return Weather(seconds(cluster.time), cluster.outdoor.to_numpy(float), cluster.solar.to_numpy(float))


def enrol(
    cluster: Cluster,
    rules: Rules,
    random_bytes: RandomBytes,
    *,
    keep: bool = False,
    state: StateFolder | None = None,
    share: bool = True,
) -> tuple[list[Agent], bytes]:
    """One agent object per column, in the order of their identity keys, and the authority that enrolled them.

    share: whether this process works out once what follows from opened sums for all agents that were shown the same.
    Each agent is an owner of its own. They take part in any protocol, and on any day: whoever simulates them holds
    their readings anyway, and the cluster has only rows that all of them have.
    """
    lifted: dict[str, Any] = dict.fromkeys(("train", "solver_tolerance", "least_days", "day_share"), 0.0)
    rules = replace(rules, protocols=OFFERED, weights="fitted", ridge=(0.0, math.inf), **lifted)
    names = cluster.agents
    if state is None:
        authority = SigningKey(random_bytes(32))
        identities = {name: SigningKey(random_bytes(32)) for name in names}
        roster = sign_roster(authority, [(name, name, identities[name].public) for name in names])
    else:
        authority = state.authority()
        identities = {name: state.identity(name) for name in names}
        roster = state.roster(names)
    time, weather, host = seconds(cluster.time), weather_of(cluster), Host()
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
            host=host if share else None,
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
    share: bool = True,
) -> Fit:
    """A whole private run in this process: every party an object of its own, real bytes between them."""
    began = perf_counter()
    asked: AnyPlan = rows_of_plan(plan) if plan.protocol == "blind" and plan.weights == "equal" else plan
    with nullcontext() if state is None else StateFolder(Path(state), random_bytes) as folder:
        agents, _ = enrol(cluster, rules, random_bytes, keep=transcript, state=folder, share=share)
        aggregator = Aggregator(
            plan=asked, roster=agents[0].roster, weather=weather_of(cluster),
            attempt=0 if state is None else attempt_now(), keep=transcript, least=least_owners(rules, asked.protocol),
        )  # fmt: skip
        enrolled = perf_counter() - began
        traffic = local.run(aggregator, agents, tap, report)
    if isinstance(aggregator.desk, CollectDesk) and aggregator.desk.collected is not None:
        found = aggregator.desk.collected
        outcome = model_of_rows(plan, found.time, found.state, found.load, weather_of(cluster))
    else:
        outcome = outcome_of(aggregator)
    cost = cost_of(traffic, outcome.sums, enrolled)
    weights = pd.Series({agent.name: agent.weight for agent in agents}, name="weight").reindex(list(cluster.agents))
    notebooks = [aggregator.notebook, agents[-1].own.notebook]
    seen = {"aggregator": aggregator.notebook.seen, **{a.name: a.own.notebook.seen for a in agents}}
    return collect(
        plan, outcome, weather_of(cluster), agents=len(aggregator.members), ledger=_ledger(*notebooks), cost=cost,
        weights=weights, notes=cluster.notes, transcript=seen if transcript else {}, out=aggregator.out(),
        run=None if state is None else aggregator.run,
    )  # fmt: skip


def attempt_now() -> int:
    """ms since 1970: orders an aggregator's runs; nothing secret rests on the clock."""
    return time_ns() // 1_000_000


def cost_of(traffic: local.Traffic, sums: int, enrolled: float = 0.0) -> Cost:
    """What a run in one process took; the first agent leads and is left out of the medians."""
    return Cost(
        rounds=int(median(traffic.messages_up[1:])),
        sums=sums,
        bytes_up_per_agent=int(median(traffic.bytes_up[1:])),
        bytes_down_per_agent=int(median(traffic.bytes_down[1:])),
        seconds_per_agent=median(traffic.seconds[1:]),
        seconds_aggregator=traffic.seconds_aggregator,
        setup_seconds=traffic.setup_seconds + enrolled,
        seconds=traffic.total_seconds - traffic.setup_seconds,
    )


def outcome_of(aggregator: Aggregator) -> Outcome:
    """What the aggregator has after a fit."""
    desk = aggregator.desk
    if desk is None or desk.outcome is None:
        raise RunAborted("the run ended without a result")
    return desk.outcome


def model_of_rows(plan: Plan, time: IntArray, state: FloatArray, load: FloatArray, weather: Weather) -> Outcome:
    """With equal weights the aggregator estimates the model itself, from what was shown."""
    if len(time) <= plan.order:
        raise RunAborted(f"only {len(time)} rows have readings from every agent: choose another window")
    inputs = public_inputs(plan, time, load, weather)
    return Outcome(of_state(inputs, state, order=plan.order, minimum_norm=plan.minimum_norm), load, time, 1)


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
    out: dict[str, str] | None = None,
    transcript: dict[str, list[Seen]] | None = None,
    run: Run | None = None,  # where its agents go on after it
) -> Fit:
    """What the aggregator learned, as people use it."""
    estimate, index = outcome.estimate, timestamps(outcome.kept)
    step = pd.Timedelta(seconds=plan.step_seconds)
    found = Fit(
        protocol=plan.protocol,
        weighting=plan.weights,
        agents=agents,
        model=Model(
            coefficients=estimate.coefficients,
            calendar=Calendar(step=step, timezone=plan.timezone, season=plan.period),
            origin=None if run is None or plan.protocol != "blind" else origin_of(run),
        ),
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
        inputs=public_inputs(plan, outcome.kept, outcome.load, weather),
        solver_residual=estimate.solver_residual,
        said=notes,
        out=out or {},
        transcript=transcript or {},
    )  # fmt: skip
    return replace(found, said=(*notes, *warnings_of(found, plan)))


def origin_of(run: Run) -> Origin:
    plan = run.announced
    end = timestamps(run.rows()[-1:])[0]
    company = tuple(member.identity.hex() for member in run.members)
    return Origin(run=run.id if isinstance(plan, Plan) else plan.fit, company=company, end=end)


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
        weights=pd.Series(weights, index=list(cluster.agents), name="weight"), notes=cluster.notes,
    )  # fmt: skip


def warnings_of(fit: Fit, plan: Plan) -> tuple[str, ...]:
    """What the person should know about a result."""
    notes = []
    parameters, rows = parameter_count(plan.order, plan.period), math.floor(len(fit.state) * plan.train)
    if rows < FEW_ROWS * parameters:
        notes.append(f"{rows} training rows for {parameters} parameters: expect a poor forecast; use a longer window")
    if plan.protocol == "blind" and plan.weights == "fitted":
        if fit.agents < FEW_AGENTS:
            notes.append(f"{fit.agents} agents: below {FEW_AGENTS} the totals that peers see are sums of few")
        if fit.status is Status.CAPPED and fit.excess > FAR:
            notes.append(
                f"the agents' limits ended the search after {fit.cost.sums} totals, within {percent(fit.excess)} of "
                "the best possible weights at this ridge; more owners or a larger ridge bring it closer"
            )
    if fit.ridge > plan.ridge:
        notes.append(f"ridge raised from {plan.ridge:g} to {fit.ridge:.2f}, the first without a negative weight")
    if fit.out:
        names = ", ".join(f"{name} ({why})" for name, why in list(fit.out.items())[:3])
        notes.append(f"{len(fit.out)} agents stayed out: {names}{', …' if len(fit.out) > 3 else ''}")
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
