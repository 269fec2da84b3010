"""The aggregator of a deployment: it asks a fleet for rows or for a model, and goes on where agents fall silent.

The roles are those of a simulation (run.py); here each is a process of its own, time passes, and others fail.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

import msgspec
import numpy as np
import pandas as pd

from atdm.crypto.keys import digest
from atdm.data.clock import commonest_step, timestamps
from atdm.data.format import Format
from atdm.data.readings import Weather
from atdm.deploy.agent import Say, on_signal
from atdm.deploy.collecting import Attempts, Office, Portion, collect, spelled
from atdm.deploy.conductor import AggregatorConfig, Conductor
from atdm.deploy.events import Aborted, ModelReleased, OnEvent, unseen
from atdm.deploy.own import weather_from
from atdm.errors import AtdmError, DataError, RunAborted, UsageError
from atdm.kernel.design import LAGGED, Design
from atdm.options import FitOptions
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.collect import CollectDesk
from atdm.protocol.desk import Outcome
from atdm.protocol.plan import DAY, Plan
from atdm.protocol.readings import public_inputs, window
from atdm.protocol.registry import OFFERED
from atdm.protocol.rules import Rules
from atdm.result import Cost, Fit
from atdm.run import Window, make_plan, model_of_rows, outcome_of, rows_of_plan
from atdm.run import collect as collect_fit


@dataclass(frozen=True, slots=True)
class Deployed:
    """A fit by parties of their own, and how long its rounds took."""

    fit: Fit
    round_seconds: tuple[float, ...]  # key set-up apart

    def as_dict(self) -> dict[str, Any]:
        """Fit.as_dict, the rounds, and a digest of every released number for comparisons to the last bit."""
        rounds = {
            "count": len(self.round_seconds),
            "median_seconds": median(self.round_seconds) if self.round_seconds else None,
            "slowest_seconds": max(self.round_seconds, default=None),
        }
        return {**self.fit.as_dict(), "rounds": rounds, "released": released_digest(self.fit)}


def released_digest(fit: Fit) -> str:
    """One hash over the model, the metrics, h and s as the aggregator got them."""
    model = fit.model.coefficients
    metrics = [v for part in fit.metrics.values() for kind in part.values() for v in kind.values()]
    arrays = [
        model.alpha, model.beta, model.gamma, model.theta, model.occupancy, fit.state.to_numpy(), fit.load.to_numpy(),
        np.array([*metrics, fit.rss, fit.ridge, fit.solver_residual, fit.iterations], dtype=float),
    ]  # fmt: skip
    return digest("released", *(np.asarray(a, dtype="<f8").tobytes() for a in arrays)).hex()


def plan_from(
    weather: Path, options: FitOptions, rules: Rules | None = None, *, declared: Format,
    start: pd.Timestamp | None = None, end: pd.Timestamp | None = None,
) -> tuple[Plan, Weather]:  # fmt: skip
    """A plan over the window of a weather file, or part of it, and that weather."""
    sky = weather_from(weather, declared)
    stamps = timestamps(sky.time)
    step = pd.Timedelta(seconds=commonest_step(np.diff(sky.time)))
    first = stamps[0] if start is None else start
    last = stamps[-1] if end is None else end
    if not stamps[0] <= first < last <= stamps[-1]:
        raise UsageError(f"a window from {first} to {last}: the weather goes from {stamps[0]} to {stamps[-1]}")
    return make_plan(Window(first, last, step, declared.timezone or "UTC", sky), options, rules), sky


def read_plan(path: Path) -> Plan:
    """A plan from a file. Only its form is checked here; agents judge its numbers."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): give a plan as JSON") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is not a plan that this version reads ({error}); write it again") from None


def parse_stamp(text: str | None, declared: Format, option: str) -> pd.Timestamp | None:
    if text is None:
        return None
    try:
        time = pd.Timestamp(text)
        return time.tz_convert("UTC") if time.tzinfo else time.tz_localize(declared.timezone or "UTC").tz_convert("UTC")
    except (ValueError, TypeError):
        raise UsageError(f"{option} {text}: write a time such as 2014-01-01T00:00Z") from None


def parse_day(text: str | None, option: str) -> int | None:
    """A UTC day as its number since 1970."""
    stamp = parse_stamp(text, Format(), option)
    return None if stamp is None else int(stamp.timestamp()) // DAY


def check_offered(protocol: str) -> None:
    """Refuse a protocol that no agent knows before anybody is asked."""
    if protocol not in OFFERED:
        raise UsageError(f"protocol {protocol}: agents do not offer it; choose {', '.join(OFFERED)}")


def aggregate(config: AggregatorConfig, plan: Plan, weather: Weather, say: Say, report: OnEvent = unseen) -> Deployed:
    """Gather the agents, run the protocol with them, and keep what they release; `report` hears how it goes."""
    check_offered(plan.protocol)
    _check_weather(plan, weather)
    with Office(config, say, report) as office:
        return asyncio.run(_aggregate(office, plan, weather))


def _check_weather(plan: Plan, weather: Weather) -> None:
    """Refuse before anybody is asked what no load could determine: homes answer for a row four times and no more, and
    what they showed is not kept where it cannot be fitted."""
    kept = np.intersect1d(window(plan), weather.time)
    any_load = np.cos(np.arange(len(kept), dtype=float) ** 1.5)  # no sum of columns of the weather or the clock
    try:
        Design.build(public_inputs(plan, kept, any_load, weather), plan.order, minimum_norm=plan.minimum_norm)
    except DataError as error:
        raise DataError(f"{error} (by the weather and the clock alone: no home was asked)") from None


async def _aggregate(office: Office, plan: Plan, weather: Weather) -> Deployed:
    this = asyncio.current_task()
    with on_signal(lambda: this.cancel() if this is not None else None):
        try:
            found = await (_collect_and_fit if plan.weights == "equal" else _fit)(office, plan, weather)
        except AtdmError as error:
            office.report(Aborted(str(error), stopped=office.stopped))
            raise
    office.report(finished(found.fit))
    return found


async def _fit(office: Office, plan: Plan, weather: Weather) -> Deployed:
    """Fitted weights: one run of one company, formed again without homes that broke it off before a reading left."""
    tries = Attempts(office.say)
    while True:
        conductor = office.conductor(plan, weather, expected=tries.expected, excluded=tries.excluded)
        try:
            async with conductor.hub:
                return fit_of(conductor, *await conductor.carry())
        except RunAborted as error:
            if conductor.begun and conductor.silent and plan.protocol == "blind":
                raise RunAborted(
                    f"{error}; readings of {spelled(conductor.days())} were asked for, so that only this company can "
                    "fit these days: repeat the command when all of it is back, or fit days before or after them"
                ) from None
            if conductor.begun:
                raise
            tries.again(conductor, error)


def fit_of(conductor: Conductor, role: Aggregator, ended: float) -> Deployed:
    """What a run with fitted weights released."""
    outcome, plan = outcome_of(role), cast(Plan, conductor.plan)
    fit = collect_fit(
        plan, outcome, conductor.weather, agents=len(role.members), ledger=role.notebook.rows(),
        cost=conductor.cost(outcome.sums, ended), out=role.out(), run=role.run,
    )  # fmt: skip
    return Deployed(fit, conductor.round_seconds())


async def _collect_and_fit(office: Office, plan: Plan, weather: Weather) -> Deployed:
    """Equal weights: collect the window, in portions of days that one company can sum, and fit what was shown."""
    portions: list[Portion] = []
    await collect(office, rows_of_plan(plan), portions.append)
    portions.sort(key=lambda portion: portion.run.days)
    rows, last = Rows(), portions[-1]
    for portion in portions:
        rows.take(portion.role)
    agents, outcome = np.array(rows.agents), rows.outcome(plan, weather)
    changed = (f"companies of {agents.min()} to {agents.max()} agents: load is scaled to {agents[-1]}",)
    fit = collect_fit(
        plan, outcome, weather, agents=int(agents[-1]), ledger=_ledger(portions), cost=_cost(portions, outcome.sums),
        notes=changed if agents.min() < agents.max() else (), out=last.role.out(), run=last.run,
    )  # fmt: skip
    return Deployed(fit, tuple(seconds for portion in portions for seconds in portion.conductor.round_seconds()))


def _ledger(portions: Sequence[Portion]) -> list[dict[str, Any]]:
    """What all portions together showed: rows add up to one series."""
    counts: dict[str, list[int]] = {}
    for row in (row for portion in portions for row in portion.role.notebook.rows()):
        size = row["times"] if row["what"] == "scalars" else row["shape"][0]
        counts.setdefault(row["what"], []).append(size)
    return [
        {"party": "aggregator", "what": what, "shape": [1] if what == "scalars" else [sum(sizes)],
         "times": sum(sizes) if what == "scalars" else 1}
        for what, sizes in counts.items()
    ]  # fmt: skip


def _cost(portions: Sequence[Portion], sums: int) -> Cost:
    """Of all portions together."""
    costs = [portion.conductor.cost(sums, portion.ended) for portion in portions]
    names = (
        "rounds", "bytes_up_per_agent", "bytes_down_per_agent", "seconds_aggregator", "setup_seconds", "seconds",
    )  # fmt: skip
    return Cost(sums=sums, seconds_per_agent=None, **{name: sum(getattr(c, name) for c in costs) for name in names})


@dataclass(slots=True)
class Rows:
    """A series that grows from run to run; the company may differ from one run to the next."""

    time: list[int] = field(default_factory=list)
    state: list[float] = field(default_factory=list)  # s of those in  [°C]
    load: list[float] = field(default_factory=list)  # h of those in   [kW]
    agents: list[int] = field(default_factory=list)  # how many they were

    def take(self, role: Aggregator) -> None:
        """Add what a run showed."""
        desk = role.desk
        if role.run is None or not isinstance(desk, CollectDesk) or desk.collected is None:
            raise RunAborted("collecting ended without a result")
        found = desk.collected
        self.time += found.time.tolist()
        self.state += found.state.tolist()
        self.load += found.load.tolist()
        self.agents += [role.run.agents] * len(found.time)

    def outcome(self, plan: Plan, weather: Weather) -> Outcome:
        """The model of the average home, scaled to the number of homes in the last company."""
        agents, load = np.array(self.agents), np.array(self.load)
        scaled = load if len(set(self.agents)) < 2 else load / agents * agents[-1]
        return model_of_rows(plan, np.array(self.time), np.array(self.state), scaled, weather)


def finished(fit: Fit) -> ModelReleased:
    """A fit in a few numbers, for whoever watches."""
    model = {name: tuple(map(float, getattr(fit.model.coefficients, name))) for name in LAGGED}
    return ModelReleased(
        status=str(fit.status), iterations=fit.iterations, sums=fit.cost.sums, agents=fit.agents, rows=len(fit.state),
        ridge=fit.ridge, metrics=fit.metrics, model=model, seconds=fit.cost.seconds, notes=fit.notes,
    )  # fmt: skip
