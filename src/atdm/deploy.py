"""Where files, roles and NATS meet: an agent beside its data, and the aggregator that asks for the model.

The roles are those of a simulation (run.py); here each is a process of its own, time passes, and others fail.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pandas as pd

from atdm.crypto.keys import digest
from atdm.data.clock import commonest_step, duration, season_steps
from atdm.data.tables import Format, faults, read_weather, read_zones, weather_faults, zone_faults
from atdm.errors import AtdmError, DataError, PeerError, RunAborted, UsageError
from atdm.events import Aborted, Feed, Finished, Joined, Planned, Report, unseen
from atdm.observe import Observation, collect_observation
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, State
from atdm.protocol.messages import OVERHEAD, one_line
from atdm.protocol.part import Host
from atdm.protocol.plan import AnyPlan, Candidate, ObservePlan, Plan
from atdm.protocol.readings import Readings, Weather, seconds, timestamps
from atdm.protocol.roster import Roster
from atdm.protocol.rules import OFFERED, Rules
from atdm.run import Cost, Fit, choosing, collect, one_blas_thread, plan_over, warnings_of
from atdm.transport.disk import Disk, lock
from atdm.transport.enrolment import AgentKeys, check_weather, read_agent, read_aggregator, read_roster
from atdm.transport.frames import STREAM_BYTES
from atdm.transport.nats import AgentLink, Door, Hub

DEADLINE = 72 * 3600.0  # s that agents may take to answer a message; DESIGN §5.4
FAREWELL = 5.0  # s the aggregator stays to see that everybody heard the end
SETUP_POSTS = 2  # the announcement and the keys

Say = Callable[[str], None]


# Agents


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFiles:
    """Where one agent keeps its things."""

    identity: Path  # folder made by `atdm enroll agent`
    data: Path  # its own readings
    state: Path | None = None  # what it must not forget; beside its keys unless given


@dataclass(slots=True)
class Seat:
    """An agent that is ready to be connected."""

    agent: Agent
    keys: AgentKeys
    _lock: BinaryIO = field(repr=False)

    def close(self) -> None:
        self._lock.close()


def seat_agent(
    files: AgentFiles,
    roster: Path,
    weather: Path,
    rules: Rules,
    *,
    declared: Format | None = None,
    signed_weather: Path | None = None,
    host: Host | None = None,
    say: Say = lambda _: None,
) -> Seat:
    """Check everything that can be checked before anything is sent."""
    declared = Format() if declared is None else declared
    keys = read_agent(files.identity)
    readings, sky = read_own(files.data, weather, keys.name, declared), weather_from(weather, declared)
    if signed_weather is not None:
        check_weather(signed_weather, sky, keys.pinned.authority)
    state = files.identity / "state" if files.state is None else files.state
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {state}: {error.strerror}; choose a folder you may write to") from None
    held = lock(state)
    try:
        agent = Agent(
            identity=keys.identity,
            secret=keys.secret,
            roster=read_roster(roster, keys.pinned.authority),
            authority=keys.pinned.authority,
            readings=readings,
            weather=sky,
            rules=rules,
            random_bytes=os.urandom,
            store=Disk(state / "journal"),
            host=host,
            renew=lambda: _read_again(files.data, weather, keys.name, declared, say),
        )
    except BaseException:
        held.close()
        raise
    return Seat(agent, keys, held)


def read_own(data: Path, weather: Path, name: str, declared: Format) -> Readings:
    """The readings in one agent's own file, under the rules every file is read by. Those later than the weather are for
    observations; up to its end a row without weather serves nobody."""
    zones, sky = read_zones(data, declared), read_weather(weather, declared)
    if tuple(zones.agents) != (name,):
        found = ", ".join(zones.agents[:3])
        raise DataError(f"{data}: holds readings of {found}; this identity is {name}'s: give its own file alone")
    known, last = zones.readings, sky.readings.index[-1]
    until = replace(zones, readings=known[known["time"] <= last]) if (known["time"] <= last).any() else zones
    for fault in chain(faults(until, sky), zone_faults(zones)):
        raise DataError(fault.text)
    weathered = known["time"].isin(sky.readings.dropna().index) | (known["time"] > last)
    rows = known[weathered].dropna()
    return Readings(
        seconds(pd.DatetimeIndex(rows["time"])), rows["indoor_temp_c"].to_numpy(float), rows["load_kw"].to_numpy(float)
    )


def _read_again(data: Path, weather: Path, name: str, declared: Format, say: Say) -> Readings:
    """The file as it is now. What is wrong with it is for the agent's own eyes: it may quote a reading."""
    try:
        return read_own(data, weather, name, declared)
    except DataError as error:
        say(f"{name}: {error}")
        raise DataError("its readings cannot be read at present: see this agent's own log") from None


def weather_from(path: Path, declared: Format | None = None) -> Weather:
    """All complete rows of a weather file; its hash is in the plan, so every party must hold the same rows."""
    table = read_weather(path, Format() if declared is None else declared)
    for fault in weather_faults(table):
        raise DataError(fault.text)
    rows = table.readings.dropna()
    return Weather(
        seconds(pd.DatetimeIndex(rows.index)),
        rows["outdoor_temp_c"].to_numpy(float),
        rows["solar_w_m2"].to_numpy(float) / 1000.0,  # W/m² -> kW/m²
    )


def agent_files(identities: Sequence[Path], data: Sequence[Path], states: Sequence[Path]) -> list[AgentFiles]:
    """One agent for each identity, with the data file (and state folder) at the same place of its list."""
    if len(data) != len(identities) or len(states) not in (0, len(identities)):
        raise UsageError(f"{len(identities)} identities and {len(data)} data files: give one file for each identity")
    folders: Sequence[Path | None] = states or [None] * len(identities)
    return [AgentFiles(identity=i, data=d, state=s) for i, d, s in zip(identities, data, folders, strict=True)]


def serve_files(
    files: Sequence[AgentFiles],
    roster: Path,
    weather: Path,
    rules: Rules,
    servers: Sequence[str],
    say: Say,
    *,
    declared: Format,
    signed_weather: Path | None = None,
) -> None:
    """`atdm agent`: agents of one process share what follows from values that all of them hold (Host)."""
    with contextlib.ExitStack() as held:
        host, seats = Host(), []
        for file in files:
            seat = seat_agent(
                file, roster, weather, rules, declared=declared, signed_weather=signed_weather, host=host, say=say
            )
            held.callback(seat.close)
            agent = seat.agent
            say(f"{agent.name}: {agent.own.readings!r} checked, in a roster of {len(agent.roster)} agents")
            seats.append(seat)
        serve(seats, servers, say)


def serve(seats: Sequence[Seat], servers: Sequence[str], say: Say) -> None:
    """Be there for every run until told to stop (SIGTERM, SIGINT)."""
    with one_blas_thread():
        asyncio.run(_serve(seats, tuple(servers), say))


async def _serve(seats: Sequence[Seat], servers: tuple[str, ...], say: Say) -> None:
    stop = asyncio.Event()
    with on_signal(stop.set):
        links = [link_agent(seat, servers, say) for seat in seats]
        tasks = [asyncio.create_task(link.run()) for link in links]
        tasks.append(asyncio.create_task(_wait(stop)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    say("stopped")


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def link_agent(seat: Seat, servers: tuple[str, ...], say: Say) -> AgentLink:
    agent, keys = seat.agent, seat.keys

    def answer(_slot: int, message: bytes) -> list[bytes] | None:
        try:
            replies = agent.receive(message)
        except PeerError as error:
            say(f"{agent.name}: was sent {describe(message)}; sent nothing ({error})")
            return None
        sent = ", ".join(describe(reply) for reply in replies) or "nothing"
        say(f"{agent.name}: was asked {describe(message)}; sent {sent}")
        return replies

    door = Door(servers=servers, ca=keys.pinned.ca, nkey=keys.nkey)
    return AgentLink(door, keys.pinned.authority, keys.identity.public, answer)


def describe(data: bytes) -> str:
    """A message by name and size, for people; of its values only the plan, which is public, and reasons."""
    try:
        message: dict[str, Any] = msgspec.msgpack.decode(data)
        kind = str(message["type"])
        detail = " ".join(str(message[key]) for key in ("phase", "what", "step") if key in message)
        if kind == "Announce":
            detail = describe_plan(msgspec.convert(message["plan"], AnyPlan))
        elif kind in ("Abort", "Refuse"):
            detail = f"({message['reason']})"
    except (msgspec.MsgspecError, RecursionError, TypeError, KeyError, ValueError, OverflowError):
        return f"something unreadable, {len(data)} bytes"
    return one_line(" ".join(part for part in (kind, detail) if part)) + f", {len(data)} bytes"


def describe_plan(plan: AnyPlan) -> str:
    first, last = timestamps(np.array([plan.start, plan.start + (plan.length - 1) * plan.step_seconds]))
    rows = f"{plan.length} rows from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    if isinstance(plan, ObservePlan):
        return f"(observation of fit {plan.fit[:4].hex()}, {rows})"
    others = f" and {len(plan.candidates) - 1} other candidates" if plan.candidates else ""
    return f"(protocol {plan.protocol}, order {plan.order}, ridge {plan.ridge:g}{others}, {rows})"


# Aggregator


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Who the aggregator is, whom it asks, and how long it waits."""

    identity: Path  # folder made by `atdm enroll aggregator`
    roster: Path
    servers: tuple[str, ...]
    wait: float = DEADLINE  # s for agents to gather
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
    weather: Path, protocol: Any, *, declared: Format, start: str | None, end: str | None, **options: Any
) -> tuple[Plan, Weather]:
    """A plan over the window of a weather file, or part of it, and that weather."""
    sky = weather_from(weather, declared)
    stamps = timestamps(sky.time)
    step = pd.Timedelta(seconds=commonest_step(np.diff(sky.time)))
    first = stamps[0] if start is None else parse_stamp(start, declared, "--start")
    last = stamps[-1] if end is None else parse_stamp(end, declared, "--end")
    if not stamps[0] <= first < last <= stamps[-1]:
        raise UsageError(f"a window from {first} to {last}: the weather goes from {stamps[0]} to {stamps[-1]}")
    return plan_over(first, last, step, declared.timezone or "UTC", sky, protocol, **options), sky


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the agents of a run choose from: all combinations; what is empty is the plan's own."""

    orders: Sequence[int] = ()
    ridges: Sequence[float] = ()
    seasons: Sequence[str] = ()
    horizon: str = "24h"  # of a validation run
    every: str = "24h"  # between the origins of these


def several(plan: Plan, choices: Choices) -> Plan:
    """The plan with the choices as candidates, or as it is where there is nothing to choose."""
    if not (choices.orders or choices.ridges or choices.seasons):
        return plan
    step = pd.Timedelta(seconds=plan.step_seconds)
    periods = [season_steps(season, step) for season in choices.seasons] or [plan.period]
    combinations = product(periods, choices.orders or [plan.order], choices.ridges or [plan.ridge])
    candidates = [Candidate(order, float(ridge), period) for period, order, ridge in combinations]
    return choosing(plan, candidates, int(duration(choices.horizon) // step), int(duration(choices.every) // step))


def parse_stamp(text: str, declared: Format, option: str) -> pd.Timestamp:
    try:
        time = pd.Timestamp(text)
        return time.tz_convert("UTC") if time.tzinfo else time.tz_localize(declared.timezone or "UTC").tz_convert("UTC")
    except (ValueError, TypeError):
        raise UsageError(f"{option} {text}: write a time such as 2014-01-01T00:00Z") from None


def check_offered(protocol: str) -> None:
    """Refuse a protocol that no agent knows before anybody is asked."""
    if protocol not in OFFERED:
        raise UsageError(f"--protocol {protocol}: agents do not offer it; choose {', '.join(OFFERED)}")


def aggregate(post: Post, plan: Plan, weather: Weather, say: Say, report: Report = unseen) -> Deployed:
    """Gather the agents, run the protocol with them, and keep what they release; `report` hears how it goes."""
    check_offered(plan.protocol)
    nkey, pinned = read_aggregator(post.identity)
    roster = read_roster(post.roster, pinned.authority)
    door = Door(servers=post.servers, ca=pinned.ca, nkey=nkey)
    return asyncio.run(_aggregate(Conductor(post, door, roster, plan, weather, say, report)))


async def _aggregate(conductor: "Conductor") -> Deployed:
    this = asyncio.current_task()
    with on_signal(lambda: this.cancel() if this is not None else None):
        try:
            async with conductor.hub:
                return await conductor.run()
        except AtdmError as error:
            conductor.report(Aborted(str(error), stopped=conductor.stopped))
            raise


class Conductor:
    """One run as the aggregator sees it: messages in and out of the role, by the clock."""

    def __init__(
        self, post: Post, door: Door, roster: Roster, plan: AnyPlan, weather: Weather, say: Say,
        report: Report = unseen, cohorts: set[int] | None = None,  # None: those that are complete in time
    ) -> None:  # fmt: skip
        self.post, self.roster, self.plan, self.weather, self.say = post, roster, plan, weather, say
        self.report, self.feed = report, Feed(report)
        self.cohorts = cohorts
        self.stopped = False  # by whoever runs this process
        self.hub = Hub(door, roster.authority, os.urandom(STREAM_BYTES), self._limit)
        self.role: Aggregator | None = None
        self.seconds_aggregator = 0.0
        self.posted: list[float] = []  # when messages went out  [s, monotonic]

    def _limit(self) -> int:
        """Bytes of the largest answers: a leader sends two messages at once."""
        desk = self.role.desk if self.role is not None else None
        return 2 * ((desk.largest() if desk is not None else 0) + OVERHEAD)

    async def run(self) -> Deployed:
        """A fit."""
        role, ended = await self._carry()
        if role.run is None or role.desk is None or role.desk.outcome is None:
            raise RunAborted("the run ended without a result")
        plan, outcome = role.run.plan, role.desk.outcome
        fit = collect(
            plan, outcome, self.weather, agents=len(role.members), ledger=role.notebook.rows(),
            cost=self._cost(outcome.sums, ended), notes=warnings_of(plan, outcome, len(role.members)), run=role.run,
        )  # fmt: skip
        rounds = np.diff(self.posted[SETUP_POSTS:])
        self.report(finished(fit))
        return Deployed(fit, tuple(rounds.tolist()))

    async def observe(self) -> Observation:
        role, _ = await self._carry()
        if role.run is None:
            raise RunAborted("the run ended without a result")
        return collect_observation(role.desk, role.run.observation, role.notebook.rows())

    async def _carry(self) -> tuple[Aggregator, float]:
        """The role after its run, and when that was over."""
        try:
            role = self.role = await self._gather()
        except asyncio.CancelledError:
            self.stopped = True
            raise RunAborted("the aggregator was stopped before a run began") from None
        self.hub.begin([member.identity for member in role.members])
        try:
            await self._send(role.start())
            while role.state in (State.GATHERING, State.RUNNING):
                await self._step(role)
        except asyncio.CancelledError:
            self.stopped = True
            if role.state is not State.DONE:  # what was released is released once: it is kept
                await self.hub.post(role.abort("the aggregator was stopped"))
        ended = time.monotonic()
        with contextlib.suppress(asyncio.CancelledError):
            await self._farewell()
        if role.state is not State.DONE:
            raise RunAborted(role.reasons[0] if role.reasons else "the run ended without a result")
        return role, ended

    async def _gather(self) -> Aggregator:
        """Wait for everybody; when the time is over, go on with the cohorts that are complete, if any will do."""
        members = [m for m in self.roster.members if self.cohorts is None or m.cohort in self.cohorts]
        wanted = {member.identity.hex() for member in members}
        self._report_plan()
        self.say(f"waiting for {len(wanted)} agents")
        await self.hub.gather(wanted, self.post.wait, lambda n: self._joined(n, len(wanted)))
        if self.hub.line.connections == 0:
            where = self.hub.line.servers
            raise RunAborted(f"no connection to {where} within {self.post.wait:g} s: check address and server")
        missing = [m for m in members if m.identity.hex() not in self.hub.present]
        cohorts = {m.cohort for m in members} - {m.cohort for m in missing}
        if not cohorts or self.cohorts not in (None, cohorts):
            why = "no cohort is complete without them" if self.cohorts is None else "the fit was made with them"
            raise RunAborted(
                f"{_listed([m.name for m in missing])} did not come within {self.post.wait:g} s, and {why}: "
                "start these agents, or wait longer"
            )
        if missing:
            self.say(f"going on without the cohorts of {_listed([m.name for m in missing])}")
        attempt = time.time_ns() // 1_000_000  # orders an aggregator's runs; nothing secret rests on the clock
        self.feed.announced(attempt, [i for i, m in enumerate(self.roster.members) if m.cohort in cohorts])
        return Aggregator(plan=self.plan, roster=self.roster, cohorts=cohorts, weather=self.weather, attempt=attempt)

    def _report_plan(self) -> None:
        members = self.roster.members
        names, cohorts = tuple(m.name for m in members), tuple(m.cohort for m in members)
        words = describe_plan(self.plan).strip("()")
        self.report(Planned(self.plan.protocol, words, names, cohorts, self.post.wait, self.post.deadline))

    def _joined(self, count: int, wanted: int) -> None:
        self.say(f"joined {count} of {wanted} agents")
        present = (i for i, m in enumerate(self.roster.members) if m.identity.hex() in self.hub.present)
        self.report(Joined(tuple(present)))

    async def _send(self, batch: Sequence[tuple[int | None, bytes]]) -> None:
        self.posted.append(time.monotonic())
        self.feed.sent(batch)
        await self.hub.post(batch)

    async def _step(self, role: Aggregator) -> None:
        """Take one agent's answers; end the run when somebody is silent for too long."""
        left = self.posted[-1] + self.post.deadline - time.monotonic()
        try:
            agent, slot, answers = await self.hub.next_answers(left)
        except TimeoutError:
            silent = _listed([role.members[i].name for i in self.hub.silent()] or ["somebody"])
            await self._send(role.abort(f"no answer from {silent} within {self.post.deadline:g} s"))
            return
        if answers is None:
            why = "does not know this run any more" if slot else "ignored the announcement: its own output says why"
            await self._send(role.abort(f"agent {role.members[agent].name} {why}"))
            return
        began = time.perf_counter()
        batch: list[tuple[int | None, bytes]] = []
        try:
            for answer in answers:
                batch += role.receive(agent, answer)
            self.hub.accept(agent, answers)
            self.feed.received(agent, answers, latest=slot == len(self.hub.slots) - 1)
        except PeerError as error:
            self.feed.ignored(agent, answers, str(error))
            self.say(f"ignored {sum(map(len, answers))} bytes from {role.members[agent].name}: {error}")
            self.hub.reject(agent, slot)
        self.seconds_aggregator += time.perf_counter() - began
        if batch:
            self.feed.ledger(role.notebook.rows())
            await self._send(batch)

    async def _farewell(self) -> None:
        """Stay until everybody heard the end, but not long."""
        end = time.monotonic() + FAREWELL
        with contextlib.suppress(TimeoutError, PeerError, RunAborted):
            while self.hub.silent() and (left := end - time.monotonic()) > 0:
                agent, _, answers = await self.hub.next_answers(left)
                self.feed.too_late(agent, answers)

    def _cost(self, sums: int, ended: float) -> Cost:
        others = self.hub.peers[1:]  # the leader apart
        begun = self.posted[SETUP_POSTS]
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


def finished(fit: Fit) -> Finished:
    """A fit in a few numbers, for whoever watches."""
    model = {name: tuple(map(float, getattr(fit.model, name))) for name in ("alpha", "beta", "gamma", "theta")}
    return Finished(
        status=str(fit.status), iterations=fit.iterations, sums=fit.cost.sums, agents=fit.agents, rows=len(fit.state),
        ridge=fit.ridge, metrics=fit.metrics, model=model, seconds=fit.cost.seconds, notes=fit.notes,
    )  # fmt: skip


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@contextlib.contextmanager
def on_signal(act: Callable[[], object]) -> Any:
    """Call `act` on SIGTERM and SIGINT instead of dying."""
    loop = asyncio.get_running_loop()
    held = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread, or Windows
            loop.add_signal_handler(number, act)
            held.append(number)
    try:
        yield
    finally:
        for number in held:
            loop.remove_signal_handler(number)
