"""One run as the aggregator sees it: messages in and out of its role, by the clock; others are late, silent, or fail.

Rule 1: until a reading is asked for, a run costs nobody anything: who is silent is waited for no longer than for a
        company to gather (`wait`). From then on its days belong to its company: who is silent has the whole `deadline`.
Rule 2: whose days they are is on disk before a reading is asked for.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

import numpy as np

from atdm.data.readings import Weather
from atdm.deploy.agent import Say, describe_plan
from atdm.deploy.events import Company, Feed, Joined, OnEvent, Planned, unseen
from atdm.deploy.fleet import OF_THE_PAST, FleetFile, Outages, without
from atdm.deploy.notices import Notice, name_of, pack
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.collect import CollectDesk
from atdm.protocol.company import LEFT, NOT_YET, PAUSED, Choose, choose, flags, rows_asked
from atdm.protocol.messages import OVERHEAD
from atdm.protocol.plan import DAY, LEAST_AGENTS, AnyPlan, Collect, day_count, first_day
from atdm.protocol.readings import window
from atdm.protocol.roster import Roster, owners_of
from atdm.result import Cost
from atdm.run import attempt_now
from atdm.transport.frames import STREAM_BYTES
from atdm.transport.nats import Hub, NatsConfig
from atdm.types import IntArray

WAIT = 3600.0  # s that absent agents are waited for before a run goes on without them
DEADLINE = 72 * 3600.0  # s that agents may take to answer a message once readings were asked for
PORTION = 7  # days asked for at once, at most: what a home that falls silent for good can cost
FAREWELL = 5.0  # s the aggregator stays to see that everybody heard the end
SETUP_POSTS = 2  # the announcement and the keys


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorConfig:
    """Who the aggregator is, whom it asks, and how long it waits."""

    identity: Path  # folder made by `atdm enroll aggregator`
    roster: Path
    servers: tuple[str, ...]
    wait: float = WAIT  # s for agents to gather
    deadline: float = DEADLINE  # s for agents to answer a message once readings were asked for
    at_least: int = LEAST_AGENTS  # owners; with fewer nobody is asked
    portion: int = PORTION  # days of rows that one run asks for, at most
    publish_weather: Path | None = None  # rows signed by the authority, for agents that lack them (fitted weights)

    def __post_init__(self) -> None:
        if self.at_least < LEAST_AGENTS:
            raise UsageError(f"at_least {self.at_least}: below {LEAST_AGENTS} a sum gives its parts away; give more")
        if self.portion < 1:
            raise UsageError(f"portion {self.portion}: give at least one day")


class Conductor:
    """One run as the aggregator sees it: messages in and out of the role, by the clock."""

    def __init__(
        self, config: AggregatorConfig, nats: NatsConfig, roster: Roster, plan: AnyPlan, *, weather: Weather, say: Say,
        fleet: FleetFile, report: OnEvent = unseen, expected: Collection[str] | None = None,
        excluded: Mapping[str, str] | None = None, policy: Choose | None = None, outages: Outages = OF_THE_PAST,
        notices: Sequence[Notice] = (),
    ) -> None:  # fmt: skip
        """expected: identities (hex) worth waiting for; None: everybody. excluded: those that are not taken into the
        company, and after what. policy: who sums what; None: the default, by what outages may cost. notices: what
        agents are sent that lack it, beside the roster."""
        self.config, self.roster, self.plan, self.weather, self.say = config, roster, plan, weather, say
        self.report, self.feed, self.fleet = report, Feed(report), fleet
        self.expected, self.excluded, self._policy, self._outages = expected, excluded or {}, policy, outages
        self.stopped = False  # by whoever runs this process
        self.silent: set[str] = set()  # identities (hex) in the company that ended the run by not answering
        self.refused: set[str] = set()  # …, by refusing to go on
        self._notices = (roster, *notices)
        self._first = 0  # slot of the announcement
        self.hub = Hub(nats, roster.authority, os.urandom(STREAM_BYTES), self._limit)
        self.role: Aggregator | None = None
        self.seconds_aggregator = 0.0
        self.posted: list[float] = []  # when messages went out  [s, monotonic]
        self._settled = False

    def _limit(self) -> int:
        """Bytes of the largest answers: a leader sends two messages at once."""
        desk = self.role.desk if self.role is not None else None
        return 2 * ((desk.largest() if desk is not None else len(self.roster)) + OVERHEAD)

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
            await self._notify()
            await self._send(role.start())
            while role.state in (AggregatorState.GATHERING, AggregatorState.RUNNING):
                await self._step(role)
        except asyncio.CancelledError:
            self.stopped = True
            if role.state is not AggregatorState.DONE:  # what was released is released once: it is kept
                await self.hub.post(role.abort("the aggregator was stopped"))
        ended = time.monotonic()
        if role.run is not None:
            self._hear(role)
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
        wanted = wanted if self.expected is None else wanted & set(self.expected)
        self._report_plan()
        self.say(f"waiting for {len(wanted)} agents")
        await self.hub.gather(wanted, self.config.wait, lambda n: self._joined(n, len(wanted)))
        if self.hub.connection.connections == 0:
            where = self.hub.connection.servers
            raise RunAborted(f"no connection to {where} within {self.config.wait:g} s: check address and server")
        there = owners_of([m for m in self.roster.members if m.identity.hex() in self.hub.present])
        if there < self.config.at_least:
            raise RunAborted(
                f"{there} of {self.roster.owners()} homes are there after {self.config.wait:g} s, fewer than the "
                f"{self.config.at_least} that are wanted: nobody was asked; wait for longer, or ask for fewer"
            )
        for why, names in self._missing(wanted).items():
            self.say(f"asking without {listed(names)}: {why}")

    def _missing(self, wanted: Collection[str]) -> dict[str, list[str]]:
        """Why → names of those that a run begins without; wanted: identities (hex) that were waited for."""
        found: dict[str, list[str]] = {}
        for member in self.roster.members:
            key = member.identity.hex()
            if key in self.excluded:
                found.setdefault(f"left out after {self.excluded[key]}", []).append(member.name)
            elif key not in self.hub.present and key in wanted:
                found.setdefault(f"not there within {self.config.wait:g} s", []).append(member.name)
            elif key not in self.hub.present:
                found.setdefault("not there before, so not waited for", []).append(member.name)
        return found

    async def _notify(self) -> None:
        """First of all, in a slot of its own: what was signed since an agent was last here."""
        named = {name_of(notice): notice for notice in self._notices}
        packed = lru_cache(lambda lacking: pack([named[name] for name in lacking]))  # mostly all of them lack the same
        batch = []
        for i, member in enumerate(self.roster.members):
            held = self.hub.held.get(member.identity.hex(), ())
            if lacking := tuple(name for name in named if name not in held):
                batch.append((i, packed(lacking)))
        if batch:
            await self.hub.post(batch)
        self._first = len(self.hub.slots)

    def _last_row(self) -> int:
        return self.plan.start + (self.plan.length - 1) * self.plan.step_seconds

    def _late(self) -> set[int]:
        """Places in the roster of agents whose readings do not reach the window's end yet."""
        answers = {} if self.role is None else self.role.answers
        return {place for place, ready in answers.items() if ready.reason == NOT_YET}

    def _away(self) -> set[int]:
        """Places in the roster of agents whose owners paused them, or left."""
        answers = {} if self.role is None else self.role.answers
        return {place for place, ready in answers.items() if ready.reason in (PAUSED, LEFT)}

    def _hear(self, role: Aggregator) -> None:
        """Note who answered and stayed; those without readings of the last days up to where they have some."""
        late, first = self._late(), first_day(self.plan)
        for place, ready in role.answers.items():
            if self.roster.members[place].identity.hex() in self.silent:
                continue  # one that answers and then hangs would be waited for without end
            inside = np.flatnonzero(flags(ready.days, day_count(self.plan)))
            until = (first + int(inside.max(initial=-1)) + 1) * DAY - 1 if place in late else self._last_row()
            self.fleet.record.hear([self.roster.members[place].identity.hex()], min(until, self._last_row()))
        self.fleet.write()

    def _make_role(self) -> Aggregator:
        policy, attempt = self._policy, self.fleet.next_attempt(attempt_now())
        if policy is None and isinstance(self.plan, Collect):
            asked = np.bincount(window(self.plan) // DAY - first_day(self.plan), rows_asked(self.plan)) > 0  # by day
            policy = self.fleet.record.next_days(
                first_day(self.plan), self._last_row(), self._outages, self._late, self.config.portion, asked,
                self._away,
            )  # fmt: skip
        present = [i for i, m in enumerate(self.roster.members) if m.identity.hex() in self.hub.present]
        self.feed.announced(attempt, present)
        return Aggregator(
            plan=self.plan, roster=self.roster, weather=self.weather, attempt=attempt,
            choose=without(policy or choose, self.excluded), least=self.config.at_least,
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
        patience = self.config.deadline if self.begun else min(self.config.wait, self.config.deadline)
        try:
            agent, slot, answers = await self.hub.next_answers(self.posted[-1] + patience - time.monotonic())
        except TimeoutError:
            if gathering:
                await self._begin(role, role.close())
                return
            company = {member.identity for member in role.members}
            silent = [m for m in (self.roster.members[i] for i in self.hub.silent()) if m.identity in company]
            if len(silent) < len(company):  # else it is the line, and nobody's fault
                self.silent |= {member.identity.hex() for member in silent}
            names = listed([member.name for member in silent] or ["somebody"])
            await self._send(role.abort(f"no answer from {names} within {patience:g} s"))
            return
        began = time.perf_counter()
        batch: list[tuple[int | None, bytes]] = []
        if slot < self._first:
            pass  # a notice: there is nothing to answer
        elif answers is None and slot > self._first:
            self.refused.add(self.roster.members[agent].identity.hex())
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
        if role.state is AggregatorState.ABORTED and role.run is not None and agent in role.refusals:
            self.refused.add(self.roster.members[agent].identity.hex())
        self.seconds_aggregator += time.perf_counter() - began
        await self._begin(role, batch) if gathering else await self._go_on(role, batch)

    def _all_present_answered(self, role: Aggregator) -> bool:
        heard = role.answers.keys() | role.refusals.keys()
        present = {i for i, m in enumerate(self.roster.members) if m.identity.hex() in self.hub.present}
        return present <= heard

    async def _begin(self, role: Aggregator, batch: Sequence[tuple[int | None, bytes]]) -> None:
        """Where the answers are in: say who is in and who is out."""
        if role.run is not None:
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

    @property
    def company(self) -> bool:
        """Whether a company was formed."""
        return self.role is not None and self.role.run is not None

    @property
    def begun(self) -> bool:
        """Whether readings were asked for: from here on the days are those of this company."""
        return self.role is not None and self.role.desk is not None and self.role.desk.leaving

    def days(self) -> tuple[int, ...]:
        """UTC days of which readings are asked for, once the company is chosen."""
        if self.role is None or self.role.run is None:
            return ()
        if isinstance(self.role.desk, CollectDesk):
            return tuple(np.unique(self.rows() // DAY).tolist())
        return self.role.run.days

    def rows(self) -> IntArray:
        """Of rows to collect, the stamps that everybody offered."""
        desk = self.role.desk if self.role is not None else None
        return desk.offered if isinstance(desk, CollectDesk) else np.empty(0, dtype=np.int64)

    def _settle(self, role: Aggregator) -> None:
        """Record which company sums which days before the agents are sent what makes readings leave."""
        if self._settled or not self.begun:
            return
        self.fleet.settle(self.days(), tuple(member.identity.hex() for member in role.members))
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

    def round_seconds(self) -> tuple[float, ...]:
        """How long each round took, key set-up apart."""
        return tuple(np.diff(self.posted[SETUP_POSTS:]).tolist())

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


def listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
