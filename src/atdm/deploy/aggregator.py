"""The aggregator of a deployment: it asks a fleet for rows or for a model, and goes on where agents fall silent.

The roles are those of a simulation (run.py); here each is a process of its own, time passes, and others fail.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import msgspec
import numpy as np
import pandas as pd

from atdm.crypto.keys import digest
from atdm.data.clock import commonest_step
from atdm.data.format import Format
from atdm.deploy.agent import Say, describe_plan, on_signal
from atdm.deploy.enrolment import (
    read_aggregator,
    read_roster,
)  # fmt: skip
from atdm.deploy.events import Aborted, Company, Feed, Joined, ModelReleased, OnEvent, Planned, unseen
from atdm.deploy.fleet import FleetFile
from atdm.deploy.observe import Observation, collect_observation
from atdm.deploy.own import weather_from
from atdm.errors import AtdmError, PeerError, RunAborted, UsageError
from atdm.kernel.design import LAGGED
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.collect import CollectDesk
from atdm.protocol.company import NOT_YET, Choose, choose, flags
from atdm.protocol.desk import Outcome
from atdm.protocol.messages import OVERHEAD
from atdm.protocol.options import FitOptions
from atdm.protocol.plan import DAY, LEAST_AGENTS, AnyPlan, Collect, Plan, day_count, first_day
from atdm.protocol.readings import Weather, timestamps
from atdm.protocol.registry import OFFERED, REGISTRY
from atdm.protocol.roster import Roster
from atdm.protocol.rules import Rules
from atdm.result import Cost, Fit
from atdm.run import Window, attempt_now, collect, make_plan, model_of_rows, outcome_of, rows_of_plan
from atdm.transport.frames import STREAM_BYTES
from atdm.transport.nats import Hub, NatsConfig

WAIT = 3600.0  # s that absent agents are waited for before a run goes on without them
DEADLINE = 72 * 3600.0  # s that agents may take to answer a message
FAREWELL = 5.0  # s the aggregator stays to see that everybody heard the end
SETUP_POSTS = 2  # the announcement and the keys


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorConfig:
    """Who the aggregator is, whom it asks, and how long it waits."""

    identity: Path  # folder made by `atdm enroll aggregator`
    roster: Path
    servers: tuple[str, ...]
    wait: float = WAIT  # s for agents to gather
    deadline: float = DEADLINE  # s for agents to answer a message


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
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: is not a plan that this version reads ({error}); write it again") from None


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
    nkey, pinned = read_aggregator(config.identity)
    roster = read_roster(config.roster, pinned.authority)
    nats = NatsConfig(servers=config.servers, ca=pinned.ca, nkey=nkey)
    with FleetFile(config.identity) as fleet:
        conduct = partial(Conductor, config, nats, roster, weather=weather, say=say, report=report, fleet=fleet)
        work = _collect_and_fit(conduct, plan) if plan.weights == "equal" else _fit(conduct, plan)
        return asyncio.run(work)


async def _fit(conduct: Callable[..., "Conductor"], plan: Plan) -> Deployed:
    conductor = conduct(plan)
    this = asyncio.current_task()
    with on_signal(lambda: this.cancel() if this is not None else None):
        try:
            async with conductor.hub:
                return await conductor.run()
        except AtdmError as error:
            conductor.report(Aborted(str(error), stopped=conductor.stopped))
            raise


async def _collect_and_fit(conduct: Callable[..., "Conductor"], plan: Plan) -> Deployed:
    """Equal weights: collect the window, in stretches of days that one company can sum, and fit what was shown."""
    rows = Rows()
    conductor = conduct(rows_of_plan(plan))
    this = asyncio.current_task()
    with on_signal(lambda: this.cancel() if this is not None else None):
        try:
            while True:
                async with conductor.hub:
                    role, ended = await conductor.carry()
                left, last = rows.take(role, rows_of_plan(plan)), conductor
                if left is None or conductor.stopped:
                    break
                conductor.say(f"{len(rows.time)} rows collected; going on with the days of another company")
                conductor = conduct(left, expected=conductor.hub.present)
        except RunAborted as error:
            if not len(rows.time):
                conductor.report(Aborted(str(error), stopped=conductor.stopped))
                raise
            conductor.say(f"the rest of the window was not collected: {error}")
    try:
        fit = rows.fit(plan, last, role, ended)
    except AtdmError as error:
        last.report(Aborted(str(error)))
        raise
    last.report(finished(fit))
    return Deployed(fit, tuple(np.diff(last.posted[SETUP_POSTS:]).tolist()))


@dataclass(slots=True)
class Rows:
    """A series that grows from run to run; the company may differ from one run to the next."""

    time: list[int] = field(default_factory=list)
    state: list[float] = field(default_factory=list)  # s of those in  [°C]
    load: list[float] = field(default_factory=list)  # h of those in   [kW]
    agents: list[int] = field(default_factory=list)  # how many they were
    asked_days: set[int] = field(default_factory=set)

    def take(self, role: Aggregator, whole: Collect) -> Collect | None:
        """Add what a run showed; the rest of the window, where days are left that it did not cover."""
        desk = role.desk
        if role.run is None or not isinstance(desk, CollectDesk) or desk.collected is None:
            raise RunAborted("collecting ended without a result")
        found = desk.collected
        self.time += found.time.tolist()
        self.state += found.state.tolist()
        self.load += found.load.tolist()
        self.agents += [role.run.agents] * len(found.time)
        self.asked_days |= set(range(first_day(role.run.announced), max(role.run.days) + 1))
        start = (max(self.asked_days) + 1) * DAY
        rows = (whole.start + whole.length * whole.step_seconds - start) // whole.step_seconds
        return msgspec.structs.replace(whole, start=start, length=rows) if rows > 0 else None

    def outcome(self, plan: Plan, weather: Weather) -> Outcome:
        """The model of the average home, scaled to the number of homes in the last company."""
        agents, load = np.array(self.agents), np.array(self.load)
        scaled = load if len(set(self.agents)) < 2 else load / agents * agents[-1]
        return model_of_rows(plan, np.array(self.time), np.array(self.state), scaled, weather)

    def fit(self, plan: Plan, conductor: "Conductor", role: Aggregator, ended: float) -> Fit:
        agents, outcome = np.array(self.agents), self.outcome(plan, conductor.weather)
        changed = (f"companies of {agents.min()} to {agents.max()} agents: load is scaled to {agents[-1]}",)
        return collect(
            plan, outcome, conductor.weather, agents=int(agents[-1]), ledger=role.notebook.rows(),
            cost=conductor.cost(outcome.sums, ended), notes=changed if agents.min() < agents.max() else (),
            out=role.out(), run=role.run,
        )  # fmt: skip


class Conductor:
    """One run as the aggregator sees it: messages in and out of the role, by the clock."""

    def __init__(
        self, config: AggregatorConfig, nats: NatsConfig, roster: Roster, plan: AnyPlan, *, weather: Weather, say: Say,
        fleet: FleetFile,
        report: OnEvent = unseen, expected: set[str] | None = None, policy: Choose | None = None,
        patience: float = 0.0,
    ) -> None:  # fmt: skip
        """expected: identities (hex) worth waiting for; None: everybody. policy: who sums what; None: the default, with
        silent homes waited for so many seconds."""
        self.config, self.roster, self.plan, self.weather, self.say = config, roster, plan, weather, say
        self.report, self.feed, self.fleet = report, Feed(report), fleet
        self.expected, self._policy, self._patience = expected, policy, patience
        self.stopped = False  # by whoever runs this process
        self.hub = Hub(nats, roster.authority, os.urandom(STREAM_BYTES), self._limit)
        self.role: Aggregator | None = None
        self.seconds_aggregator = 0.0
        self.posted: list[float] = []  # when messages went out  [s, monotonic]
        self._settled = False

    def _limit(self) -> int:
        """Bytes of the largest answers: a leader sends two messages at once."""
        desk = self.role.desk if self.role is not None else None
        return 2 * ((desk.largest() if desk is not None else len(self.roster)) + OVERHEAD)

    async def run(self) -> Deployed:
        """A fit."""
        role, ended = await self.carry()
        outcome = outcome_of(role)
        fit = collect(
            cast(Plan, self.plan), outcome, self.weather, agents=len(role.members), ledger=role.notebook.rows(),
            cost=self.cost(outcome.sums, ended), out=role.out(), run=role.run,
        )  # fmt: skip
        rounds = np.diff(self.posted[SETUP_POSTS:])
        self.report(finished(fit))
        return Deployed(fit, tuple(rounds.tolist()))

    async def observation(self) -> Observation:
        role, _ = await self.carry()
        return collect_observation(role, role.notebook.rows())

    async def carry(self) -> tuple[Aggregator, float]:
        """The role after its run, and when that was over."""
        try:
            await self._gather()
        except asyncio.CancelledError:
            self.stopped = True
            raise RunAborted("the aggregator was stopped before a run began") from None
        role = self.role = self._make_role()
        self.hub.begin([member.identity for member in self.roster.members])
        try:
            await self._send(role.start())
            while role.state in (AggregatorState.GATHERING, AggregatorState.RUNNING):
                await self._step(role)
        except asyncio.CancelledError:
            self.stopped = True
            if role.state is not AggregatorState.DONE:  # what was released is released once: it is kept
                await self.hub.post(role.abort("the aggregator was stopped"))
        ended = time.monotonic()
        try:
            await self._farewell(role)
        except asyncio.CancelledError:
            self.stopped = True
        if role.state is not AggregatorState.DONE:
            raise RunAborted(role.reasons[0] if role.reasons else "the run ended without a result")
        return role, ended

    async def _gather(self) -> None:
        """Wait for everybody who is expected; who is not there when the time is over is out."""
        wanted = {member.identity.hex() for member in self.roster.members}
        wanted = wanted if self.expected is None else wanted & self.expected
        self._report_plan()
        self.say(f"waiting for {len(wanted)} agents")
        await self.hub.gather(wanted, self.config.wait, lambda n: self._joined(n, len(wanted)))
        if self.hub.connection.connections == 0:
            where = self.hub.connection.servers
            raise RunAborted(f"no connection to {where} within {self.config.wait:g} s: check address and server")
        missing = [m.name for m in self.roster.members if m.identity.hex() not in self.hub.present]
        if missing:
            self.say(f"asking without {_listed(missing)}: not there within {self.config.wait:g} s")

    def _last_row(self) -> int:
        return self.plan.start + (self.plan.length - 1) * self.plan.step_seconds

    def _late(self) -> set[int]:
        """Places in the roster of agents whose readings do not reach the window's end yet."""
        answers = {} if self.role is None else self.role.answers
        return {place for place, ready in answers.items() if ready.reason == NOT_YET}

    def _hear(self, role: Aggregator) -> None:
        """Note who answered; those without readings of the last days up to where they have some."""
        late, first = self._late(), first_day(self.plan)
        for place, ready in role.answers.items():
            inside = np.flatnonzero(flags(ready.days, day_count(self.plan)))
            until = (first + int(inside.max(initial=-1)) + 1) * DAY - 1 if place in late else self._last_row()
            self.fleet.record.hear([self.roster.members[place].identity.hex()], min(until, self._last_row()))
        self.fleet.write()

    def _make_role(self) -> Aggregator:
        policy, attempt = self._policy, attempt_now()
        if policy is None and isinstance(self.plan, Collect):
            policy = self.fleet.record.next_days(first_day(self.plan), self._last_row(), self._patience, self._late)
        present = [i for i, m in enumerate(self.roster.members) if m.identity.hex() in self.hub.present]
        self.feed.announced(attempt, present)
        return Aggregator(
            plan=self.plan, roster=self.roster, weather=self.weather, attempt=attempt, choose=policy or choose,
            least=LEAST_AGENTS,
        )  # fmt: skip

    def _report_plan(self) -> None:
        names = tuple(member.name for member in self.roster.members)
        words = describe_plan(self.plan).strip("()")
        self.report(Planned(self.plan.protocol, words, names, self.config.wait, self.config.deadline))

    def _joined(self, count: int, wanted: int) -> None:
        self.say(f"joined {count} of {wanted} agents")
        present = (i for i, m in enumerate(self.roster.members) if m.identity.hex() in self.hub.present)
        self.report(Joined(tuple(present)))

    async def _send(self, batch: Sequence[tuple[int | None, bytes]]) -> None:
        self.posted.append(time.monotonic())
        self.feed.sent(batch)
        await self.hub.post(batch)

    async def _step(self, role: Aggregator) -> None:
        """Take one agent's answers; go on without those that do not answer, or end the run once it has begun."""
        gathering = role.state is AggregatorState.GATHERING
        patience = min(self.config.wait, self.config.deadline) if gathering else self.config.deadline
        try:
            agent, slot, answers = await self.hub.next_answers(self.posted[-1] + patience - time.monotonic())
        except TimeoutError:
            if gathering:
                await self._begin(role, role.close())
                return
            company = {member.name for member in role.members}
            names = [self.roster.members[i].name for i in self.hub.silent()]
            silent = _listed([name for name in names if name in company] or ["somebody"])
            await self._send(role.abort(f"no answer from {silent} within {self.config.deadline:g} s"))
            return
        began = time.perf_counter()
        batch: list[tuple[int | None, bytes]] = []
        if answers is None and slot:
            batch = list(role.abort(f"agent {self.roster.members[agent].name} does not know this run any more"))
        elif answers is None:
            batch = list(role.ignored(agent))
        else:
            try:
                for answer in answers:
                    batch += role.receive(agent, answer)
                self.hub.accept(agent, answers)
                self.feed.received(agent, answers, latest=slot == len(self.hub.slots) - 1)
            except PeerError as error:
                self.feed.ignored(agent, answers, str(error))
                self.say(f"ignored {sum(map(len, answers))} bytes from {self.roster.members[agent].name}: {error}")
                self.hub.reject(agent, slot)
        if role.state is AggregatorState.GATHERING and not batch and self._all_present_answered(role):
            batch = list(role.close())
        self.seconds_aggregator += time.perf_counter() - began
        await self._begin(role, batch) if gathering else await self._go_on(role, batch)

    def _all_present_answered(self, role: Aggregator) -> bool:
        heard = role.answers.keys() | role.refusals.keys()
        present = {i for i, m in enumerate(self.roster.members) if m.identity.hex() in self.hub.present}
        return present <= heard

    async def _begin(self, role: Aggregator, batch: Sequence[tuple[int | None, bytes]]) -> None:
        """Where the answers are in: say who is in and who is out."""
        if role.run is not None:
            self._hear(role)
            inside = {member.name for member in role.members}
            places = tuple(i for i, m in enumerate(self.roster.members) if m.name in inside)
            self.report(Company(places, role.out()))
            for name, why in role.out().items():
                self.say(f"without {name}: {why}")
        if batch:
            await self._send(batch)

    async def _go_on(self, role: Aggregator, batch: Sequence[tuple[int | None, bytes]]) -> None:
        if not batch:
            return
        self._settle(role)
        self.feed.ledger(role.notebook.rows())
        await self._send(batch)

    def _settle(self, role: Aggregator) -> None:
        """Record which company sums which days before the agents are sent the keys that settle it."""
        if self._settled or role.run is None or not REGISTRY[role.run.announced.protocol].account:
            return
        days = role.run.days
        if isinstance(role.desk, CollectDesk):
            days = tuple(np.unique(role.desk.offered // DAY).tolist())
        self.fleet.settle(days, tuple(member.identity.hex() for member in role.members))
        self._settled = True

    async def _farewell(self, role: Aggregator) -> None:
        """Stay until everybody in the run, or until it began everybody present, heard the end, but not long."""
        end = time.monotonic() + FAREWELL
        company = {m.identity for m in role.members if role.run is not None or m.identity.hex() in self.hub.present}
        others = {i for i, member in enumerate(self.roster.members) if member.identity not in company}
        with contextlib.suppress(TimeoutError, PeerError, RunAborted):
            while set(self.hub.silent()) - others and (left := end - time.monotonic()) > 0:
                agent, _, answers = await self.hub.next_answers(left)
                self.feed.too_late(agent, answers)

    def cost(self, sums: int, ended: float) -> Cost:
        answered = [peer for peer in self.hub.peers if peer.messages_up > 1]
        others = answered[1:] or answered  # the leader apart
        begun = self.posted[min(SETUP_POSTS, len(self.posted) - 1)]
        return Cost(
            rounds=int(median(peer.messages_up for peer in others)),
            sums=sums,
            bytes_up_per_agent=int(median(peer.bytes_up for peer in others)),
            bytes_down_per_agent=int(median(peer.bytes_down for peer in others)),
            seconds_per_agent=None,  # theirs to know
            seconds_aggregator=self.seconds_aggregator,
            setup_seconds=begun - self.posted[0],
            seconds=ended - begun,
        )


def finished(fit: Fit) -> ModelReleased:
    """A fit in a few numbers, for whoever watches."""
    model = {name: tuple(map(float, getattr(fit.model.coefficients, name))) for name in LAGGED}
    return ModelReleased(
        status=str(fit.status), iterations=fit.iterations, sums=fit.cost.sums, agents=fit.agents, rows=len(fit.state),
        ridge=fit.ridge, metrics=fit.metrics, model=model, seconds=fit.cost.seconds, notes=fit.notes,
    )  # fmt: skip


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
