"""A year of operation on a virtual clock: forty homes, their agents, the NATS server and the aggregator's desk.

    python -m tests.reliability.year --days 365 --seed 1     plays it, says what it found; 1 where something was wrong
    python -m tests.reliability.year --days 56 --outages wait balance leave      under three settings for outages

Real are the agents with their journals on disk and their links, the authority's rosters, and all of `atdm serve` but
its page. Stood in for are the clock, the NATS server and the force that brings bytes to the platter (virtual.py), and
the weather and the homes (town.py). Rows are an hour apart and collected every six hours.

What must hold is checked from what the rehearsal itself knows, never from what the parties say of themselves:

Rule 1: every row collected is the sum over its company of the readings as they were, and none comes twice.
Rule 2: what an identity handed out, told from the messages alone, keeps every limit of docs/spec.md §6 (Witness), and
        its account says the same.
Rule 3: the model is never older than the rules of the desk say, as long as there are rows to update it with.
Rule 4: forecasts of 24 h have an error within 20 % of that of a trusted centre that sees all readings and refits daily.
"""

import argparse
import asyncio
import random
import shutil
import sqlite3
import sys
import tempfile
from base64 import b64decode
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pytest

from atdm.data.clock import seconds
from atdm.data.sources.source import Rows, Source
from atdm.deploy import collecting, service
from atdm.deploy.agent import AgentFiles, RunningAgent, link_agent, prepare_agent, read_account
from atdm.deploy.collecting import Office, Portion
from atdm.deploy.enrolment import (
    create_agent,
    create_aggregator,
    create_authority,
    create_roster,
    read_roster,
    replace_key,
    retire_key,
)  # fmt: skip
from atdm.deploy.fleet import OUTAGES, OutagesName
from atdm.deploy.notices import OwnWeather
from atdm.deploy.observe import Observation
from atdm.deploy.owner import choose
from atdm.deploy.record import ServiceRecord
from atdm.deploy.service_rules import read_rules
from atdm.deploy.service_state import Outlook, State
from atdm.deploy.serving import config_of
from atdm.errors import AtdmError, DataError
from atdm.protocol.messages import Announce, Keys, Masked, ToAgent, ToAggregator, Total
from atdm.protocol.part import Host
from atdm.protocol.plan import Collect
from atdm.protocol.roster import Roster
from atdm.protocol.rules import Rules
from atdm.types import FloatArray, IntArray
from tests.reliability.town import Town, build
from tests.reliability.virtual import PARTY, Party, World

HOMES, JOINING = 40, 5
STEP, EVERY = 3600, 6  # s from row to row; h from one asking to the next
DAY, BLOCK, HOLE, ASKINGS = 86400, 28, 6 * 3600, 4  # s, days, s, times: as docs/spec.md has them
FIRST_DAY = 20096  # 8 January 2025; a block of companies ends eight days later
BEFORE = 3  # days of readings that are there when the desk is first started
FILLED = 2 * 3600  # s between two readings, between which a home fills its gap
QUANTUM = 0.01  # °C of the sensors; agents dither by a tenth of it
SERVERS = ("tls://nats:4222",)
UPDATED = 24 * 3600.0  # s after which the desk updates its model, by its rules
TICK = 3 * 3600.0  # s between two looks of the desk at what is due; its minute is for people who look at the page
RESTART = 600.0  # s after which whatever watches over an agent or the desk starts it again
MOST_MESSAGES = 400  # of one asking, about: faults are set to strike at one of them


class Wrong(AssertionError):
    """Something that must never happen did."""


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


# What goes wrong


@dataclass(frozen=True, slots=True)
class Kind:
    """Of a fault: how many there are in a year, and how long each lasts  [h]."""

    a_year: int
    least: float
    most: float


FAULTS = {
    "a short gap": Kind(200, 1, 1),  # which the home fills by itself
    "readings lost for hours": Kind(60, 3, 10),
    "readings lost for days": Kind(12, 30, 120),
    "readings late": Kind(30, 2, 30),
    "a home's clock wrong": Kind(8, 3, 12),
    "an agent killed": Kind(40, 0.01, 3),
    "a home without power": Kind(10, 4, 60),
    "an agent's disk full": Kind(8, 1, 30),
    "a home paused": Kind(5, 30, 200),
    "a home dead": Kind(4, 240, 240),  # until the authority retires it
    "a home with a new identity": Kind(4, 50, 250),
    "a home joins": Kind(JOINING, 0, 0),
    "the server killed": Kind(14, 0.02, 9),
    "the desk killed": Kind(30, 0.01, 5),
    "the desk's disk full": Kind(4, 1, 12),
    "the desk's clock wrong": Kind(6, 2, 20),
}
OF_RECORDERS = ("a short gap", "readings lost for hours", "readings lost for days", "readings late",
                "a home's clock wrong", "a home without power")  # fmt: skip
LASTING = ("a home dead", "a home with a new identity", "a home joins")
STRIKES = ("an agent killed", "the server killed", "the desk killed")  # every other one at a message


@dataclass(frozen=True, slots=True)
class Fault:
    what: str
    begin: float  # s since 1970
    end: float
    home: int  # column of the town; −1: nobody's
    size: float = 0.0  # s by which a clock is wrong
    message: int = 0  # strikes when so many more messages were sent; 0: by the clock


def drawn_faults(seed: int, start: float, days: int, homes: int) -> list[Fault]:
    """All faults of a rehearsal; each kind at least once."""
    rng = random.Random(seed)
    lasting = iter(rng.sample(range(homes), homes))  # a home dies, or is replaced, once
    joining = iter(range(homes, homes + JOINING))
    faults = []
    for what, kind in FAULTS.items():
        for number in range(max(1, round(kind.a_year * days / 365))):
            begin = start + rng.uniform(0.04, 0.96) * days * DAY
            length = 3600 * rng.uniform(kind.least, kind.most)
            home = next(joining) if what == "a home joins" else next(lasting) if what in LASTING else -1
            home = rng.randrange(homes) if home < 0 and not what.startswith("the ") else home
            size = STEP * rng.choice((-2, -1, 1, 2)) if "home's clock" in what else rng.choice((-5, -1, 2, 9)) * 3600.0
            message = rng.randint(1, MOST_MESSAGES) if what in STRIKES and number % 2 else 0
            faults.append(Fault(what, begin, begin + length, home, size if "clock" in what else 0.0, message))
    return sorted(faults, key=lambda fault: fault.begin)


# The homes' side


class Recorder(Source):
    """Where one home's readings are: the first reading of a stamp stays. `at`: when each was written down  [s]."""

    def __init__(self, name: str, town: Town, home: int, faults: Sequence[Fault], now: Callable[[], float]) -> None:
        self.name, self._now = name, now
        stamp, at = town.time.copy(), town.time + 0.0
        there = np.ones(len(stamp), dtype=bool)
        for fault in faults:
            within = (town.time >= fault.begin) & (town.time < fault.end)
            if fault.what == "a short gap":
                within = np.arange(len(stamp)) == np.searchsorted(town.time, fault.begin)
            if fault.what == "a home's clock wrong":
                stamp = np.where(within, town.time + int(fault.size), stamp)
            elif fault.what == "readings late":
                at = np.where(within, np.maximum(at, fault.end), at)
            else:
                there &= ~within
        order = np.lexsort((at, stamp))
        order = order[there[order]]
        first = np.diff(stamp[order], prepend=-1) != 0
        kept = order[first]
        self.time: IntArray = stamp[kept]
        self._at, self._temperature, self._load = at[kept], town.temperature[kept, home], town.load[kept, home]

    def rows(self, since: int | None = None) -> Rows:
        known = (self._at <= self._now()) & (self.time > (-1 if since is None else since))
        return Rows(self.time[known], self._temperature[known], self._load[known])

    def complete(self, grid: IntArray) -> FloatArray:
        """Temperature and load on a grid of stamps, gaps filled where a home fills them, NaN elsewhere; grid × 2."""
        answer = np.full((len(grid), 2), np.nan)
        before = np.searchsorted(self.time, grid, side="right") - 1
        after = np.searchsorted(self.time, grid)
        inside = (before >= 0) & (after < len(self.time))
        b, a = before[inside], after[inside]
        span = self.time[a] - self.time[b]
        share = np.divide(grid[inside] - self.time[b], span, out=np.zeros(len(b)), where=span > 0)
        near = span <= FILLED
        for column, values in enumerate((self._temperature, self._load)):
            answer[inside, column] = np.where(near, (1 - share) * values[b] + share * values[a], np.nan)
        return answer


@lru_cache(maxsize=64)
def _told(data: bytes) -> object:
    return msgspec.msgpack.decode(data, type=ToAgent)


@dataclass(slots=True)
class Witness:
    """What one identity handed out, from the messages alone."""

    key: str
    rosters: dict[bytes, Roster]  # by hash, all that were ever signed
    company: dict[int, frozenset[str]] = field(default_factory=dict)  # by day
    shown: Counter[int] = field(default_factory=Counter)  # by stamp
    _announced: Announce | None = None
    _keys: Keys | None = None
    _newest: int = 0
    _last: bytes = b""

    def note(self, message: bytes, replies: Sequence[bytes]) -> None:
        if message == self._last:
            return  # asked again, and answered with the same bytes
        self._last, told = message, _told(message)
        if isinstance(told, Announce) and replies:
            self._announced, self._keys = told, None
        elif isinstance(told, Keys) and replies:
            self._keys = told
        elif isinstance(told, Total) and replies:
            masked = msgspec.msgpack.decode(replies[0], type=ToAggregator)
            if isinstance(masked, Masked) and masked.phase == "show":
                self._shows(told)

    def _shows(self, total: Total) -> None:
        need(self._announced is not None and self._keys is not None, f"{self.key} shows rows that nobody asked for")
        assert self._announced is not None and self._keys is not None
        plan, roster = self._announced.plan, self.rosters[self._announced.roster]
        need(plan.protocol == "collect" and not plan.fit and plan.step_seconds == STEP, "not rows of equal weights")
        need(roster.serial >= self._newest, f"{self.key} answers for an older roster")
        self._newest = roster.serial
        first = plan.start // DAY
        days = first + np.flatnonzero(np.unpackbits(np.frombuffer(self._keys.days, np.uint8), bitorder="little"))
        stamps = plan.start + STEP * np.arange(plan.length, dtype=np.int64)
        if plan.asked:
            asked = np.unpackbits(np.frombuffer(plan.asked, np.uint8), bitorder="little")[: plan.length]
            stamps = stamps[asked.astype(bool)]
        stamps = stamps[np.isin(stamps // DAY, days)]
        open_words = np.frombuffer(total.words, "<u8")[: len(stamps)] == 0
        inside = np.unpackbits(np.frombuffer(self._keys.company, np.uint8), bitorder="little")[: len(roster.members)]
        members = [member for member, is_in in zip(roster.members, inside, strict=True) if is_in]
        company = frozenset(member.identity.hex() for member in members)
        owners, all_owners = len({m.owner for m in members}), len({m.owner for m in roster.members})
        need(self.key in company, f"{self.key} is not in the company it gives to")
        need(owners >= 10 and 3 * owners >= 2 * all_owners, f"a company of {owners} of {all_owners} owners")
        self._check(stamps[open_words].tolist(), company, max(member.since for member in members))

    def _check(self, stamps: list[int], company: frozenset[str], since: int) -> None:
        for day in sorted({stamp // DAY for stamp in stamps}):
            need(day >= since, f"day {day}: a member may give days from {since} on only")
            known = self.company.get(day)
            need(known in (None, company), f"{self.key}: day {day} summed with two companies")
            for other in range(day - day % BLOCK, day - day % BLOCK + BLOCK):
                theirs = self.company.get(other, company)
                need(theirs >= company if other < day else theirs <= company, f"{self.key}: a company grew at {day}")
        for stamp in stamps:
            day = stamp // DAY
            for midnight, beyond in ((day * DAY, day - 1), ((day + 1) * DAY, day + 1)):
                changed = self.company.get(beyond, company) != company
                need(not changed or abs(stamp - midnight) >= HOLE, f"{self.key}: {stamp} beside a change of company")
            self.shown[stamp] += 1
            need(self.shown[stamp] <= ASKINGS, f"{self.key}: {stamp} shown {self.shown[stamp]} times")
        self.company.update(dict.fromkeys((stamp // DAY for stamp in stamps), company))


class House:
    """One home's computer and its recorder. It runs its agent unless something keeps it from that."""

    def __init__(self, year: "Year", home: int, faults: Sequence[Fault]) -> None:
        self.year, self.home, self.name = year, home, year.town.names[home]
        recorded = [fault for fault in faults if fault.home == home and fault.what in OF_RECORDERS]
        self.recorder = Recorder(self.name, year.town, home, recorded, year.world.now)
        self.party = Party(self.name)
        self.held: set[Fault | str] = set()  # what keeps the agent from running
        self.identity, self.witness = Path(), Witness("", {})
        self.keys = 0

    def make_keys(self) -> None:
        """A new identity, and an empty state with it."""
        self.keys += 1
        folder = self.year.keys / f"{self.name}-{self.keys}"
        folder.mkdir()
        enrolment = create_agent(folder, self.name, self.year.bytes, authority=self.year.keys / "authority.json")
        self.identity = enrolment.parent
        key = msgspec.json.decode(enrolment.read_bytes())["identity"]
        self.witness = Witness(b64decode(key).hex(), self.year.rosters)
        self.year.witnesses[self.witness.key] = self.witness
        self.year.home_of[self.witness.key] = self.home

    def hold(self, why: Fault | str) -> None:
        if not self.held:
            self.year.world.kill(self.party)
        self.held.add(why)

    def free(self, why: Fault | str) -> None:
        self.held.discard(why)
        if not self.held:
            self.start()

    def start(self) -> None:
        self.party = Party(self.name, full=self.party.full)
        self.year.begin(self.party, self._live(self.witness))

    async def _live(self, witness: Witness) -> None:
        """The agent, started again whenever it ends: `Restart=on-failure`."""
        while True:
            with suppress(AtdmError):
                files = AgentFiles(identity=self.identity, data=self.recorder)
                running = prepare_agent(files, None, OwnWeather(), Rules(quantum=QUANTUM), host=Host())
                try:
                    running.agent.receive = _witnessed(running, witness)  # type: ignore[method-assign]
                    await link_agent(running, SERVERS, lambda _: None).run()
                finally:
                    running.close()
            self.year.seen["an agent started again"] += 1
            await asyncio.sleep(RESTART)


def _witnessed(running: RunningAgent, witness: Witness) -> Callable[[bytes], list[bytes]]:
    receive = running.agent.receive

    def receive_and_note(message: bytes) -> list[bytes]:
        replies = receive(message)
        witness.note(message, replies)
        return replies

    return receive_and_note


# The aggregator's side

RULES = """\
record = "desk/desk.sqlite"
[fleet]
identity = "keys/aggregator"
roster = "roster.json"
servers = ["tls://nats:4222"]
wait = "1min"
deadline = "10min"
[weather]
file = "weather.csv"
[collect]
step = "1h"
every = "{every}h"
history = "3d"
outages = "{outages}"
[model]
first_after = "7d"
[forecast]
every = "{every}h"
[alarms]
no_rows_for = "24h"
"""


def town_of(days: int, seed: int) -> Town:
    """A rehearsal's; its weather reaches as far as the last forecast."""
    return build(FIRST_DAY - BEFORE, days + BEFORE + 3, HOMES + JOINING, seed, STEP)


class Made(NamedTuple):
    """A forecast."""

    when: float  # s since 1970
    origin: int  # last row known  [s since 1970]
    values: dict[int, float]  # by stamp  [°C]

    @classmethod
    def of(cls, when: float, outlook: Outlook) -> "Made":
        values = zip(outlook.time, outlook.columns["aggregate_temp_c"], strict=True)
        return cls(when, int(outlook.origin), {int(stamp): value for stamp, value in values if value is not None})


class Year:
    """One rehearsal."""

    def __init__(self, folder: Path, days: int, seed: int, outages: OutagesName, every: int) -> None:
        """every: h from one asking to the next."""
        self.folder, self.days, self.seed, self.outages, self.every = folder, days, seed, outages, every
        self.start = float(FIRST_DAY * DAY)
        self.end = self.start + days * DAY
        self.world, self.bytes = World(self.start, seed), random.Random(seed).randbytes
        self.town = town_of(days, seed)
        self.faults = drawn_faults(seed, self.start, days, HOMES)
        self.keys, self.roster = folder / "keys", folder / "roster.json"
        self.rosters: dict[bytes, Roster] = {}
        self.witnesses: dict[str, Witness] = {}
        self.home_of: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self.houses = [House(self, home, self.faults) for home in range(HOMES + JOINING)]
        self.truth = np.stack([house.recorder.complete(self.town.time) for house in self.houses], axis=1)
        self.rows: dict[int, tuple[float, float, frozenset[int]]] = {}  # stamp → state, load, homes
        self.desk = Party("desk")
        self.desk_down: set[Fault] = set()
        self.server_down: set[Fault] = set()
        self.record: ServiceRecord | None = None
        self.forecasts: list[Made] = []
        self.model, self.model_since, self.overdue = "", 0.0, 0.0  # its hash, since when; how long it was due  [s]
        self.failed: asyncio.Future[None]
        self._due: float | None = None
        self._armed: list[list[Any]] = []
        self.said: deque[str] = deque(maxlen=200)
        self.verbose = False

    def hear(self, text: str) -> None:
        self.said.append(f"{datetime.fromtimestamp(self.world.now(), UTC):%m-%d %H:%M} {text}")
        if self.verbose:
            print(self.said[-1], flush=True)

    def begin(self, party: Party, work: Coroutine[Any, Any, None]) -> None:
        """Have a party live; what ends it that is no error of ours, or Wrong, ends the rehearsal."""
        self.world.begin(party, work).add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)

    # Before it begins

    def enrol(self) -> None:
        create_authority(self.keys, self.bytes, rehearsal=True)
        create_aggregator(self.keys, self.bytes, rehearsal=True)
        for house in self.houses[:HOMES]:
            house.make_keys()
        self.town.weather().to_csv(self.folder / "weather.csv", date_format="%Y-%m-%dT%H:%M:%SZ")
        (self.folder / "rules.toml").write_text(RULES.format(outages=self.outages, every=self.every))

    def sign(self) -> None:
        roster, _ = create_roster(self.keys, self.roster, ["localhost"])
        self.rosters[roster.hash()] = roster

    def play(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "TICK", TICK)
            self.world.broker.heard = self._carried
            self.world.run(self._play())

    async def _play(self) -> None:
        self.failed = self.world.loop.create_future()
        self.enrol()
        self.sign()
        for house in self.houses[:HOMES]:
            house.start()
        self._start_desk()
        tasks = [asyncio.ensure_future(self._suffer(fault)) for fault in self.faults]
        tasks += [asyncio.ensure_future(self._look_at_accounts())]
        ending = asyncio.ensure_future(self.world.until(self.end))
        while not ending.done():
            done, left = await asyncio.wait([ending, self.failed, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            tasks = [task for task in left if task is not ending and task is not self.failed]
        self.check_accounts()
        self.check_record()

    # What goes wrong

    def _carried(self, _to: str, _data: bytes) -> None:
        for armed in self._armed:
            armed[0] -= 1
        for _, strike in [armed for armed in self._armed if armed[0] <= 0]:
            strike()
        self._armed = [armed for armed in self._armed if armed[0] > 0]

    async def _suffer(self, fault: Fault) -> None:
        """One fault, from when it strikes until it is mended."""
        await self.world.until(fault.begin)
        self.seen[fault.what] += 1
        if fault.message:
            struck = asyncio.Event()
            self._armed.append([fault.message, struck.set])
            self._armed[-1][1] = lambda: (self._strike(fault), struck.set())
            await struck.wait()
            await asyncio.sleep(fault.end - fault.begin)
        else:
            self._strike(fault)
            await self.world.until(fault.end)
        self._mend(fault)

    def _strike(self, fault: Fault) -> None:
        self.hear(f"fault: {fault.what} {fault.home} until {fault.end - self.start:.0f}")
        house = self.houses[fault.home]
        if fault.what in ("an agent killed", "a home without power", *LASTING[:2]):
            house.hold(fault)
        elif fault.what == "a home paused":
            choose(house.identity / "state", "paused")
        elif fault.what == "an agent's disk full":
            house.party.full = True
        elif fault.what == "the server killed":
            self.server_down.add(fault)
            self.world.broker.stop()
        elif fault.what == "the desk killed":
            self.desk_down.add(fault)
            self._kill_desk()
        elif fault.what == "the desk's disk full":
            self.desk.full = True
            self._squeeze()
        elif fault.what == "the desk's clock wrong":
            self.desk.skew = fault.size

    def _mend(self, fault: Fault) -> None:
        house = self.houses[fault.home]
        if fault.what in ("an agent killed", "a home without power"):
            house.free(fault)
        elif fault.what == "a home paused":
            with suppress(DataError):  # it has a new key meanwhile, and no account yet
                choose(house.identity / "state", "takes part")
        elif fault.what == "an agent's disk full":
            house.party.full = False
        elif fault.what == "a home dead":
            retire_key(self.keys, house.name)
            self.sign()
        elif fault.what in ("a home with a new identity", "a home joins"):
            house.make_keys()
            if fault.what == "a home with a new identity":
                replace_key(self.keys, house.name)
            self.sign()
            house.free(fault)
        elif fault.what == "the server killed":
            self.server_down.discard(fault)
            if not self.server_down:
                self.world.broker.begin()
        elif fault.what == "the desk killed":
            self.desk_down.discard(fault)
            if not self.desk_down:
                self._start_desk()
        elif fault.what == "the desk's disk full":
            self.desk.full = False
            self._squeeze()
        elif fault.what == "the desk's clock wrong":
            self.desk.skew = 0.0

    # The desk

    def _kill_desk(self) -> None:
        self.world.kill(self.desk)
        if self.record is not None:
            self.record.close()

    def _squeeze(self) -> None:
        """A full disk, as the desk's record meets it."""
        if self.record is not None and self.desk.alive:
            pages = self.record._base.execute("PRAGMA page_count").fetchone()[0] if self.desk.full else 1 << 30
            self.record._base.execute(f"PRAGMA max_page_count = {pages}")

    def _start_desk(self) -> None:
        self._due = None
        self.desk = Party("desk", skew=self.desk.skew, full=self.desk.full)
        self.begin(self.desk, self._serve())

    async def _serve(self) -> None:
        """`atdm serve`, started again whenever it ends."""
        while True:
            try:
                await self._operate()
            except AtdmError as error:
                self.hear(f"desk: {error}")
            self.seen["the desk started again"] += 1
            await asyncio.sleep(RESTART)

    async def _operate(self) -> None:
        rules = read_rules(self.folder / "rules.toml")
        with ServiceRecord(rules.record, self._clock()) as record, Office(config_of(rules), self.hear) as office:
            self.record = record
            self._squeeze()
            sky = service.WeatherFile(rules.weather.file, rules.weather.timezone)
            look = lambda: (read_roster(rules.fleet.roster, office.authority), office.fleet.record)  # noqa: E731
            desk = service.Service(rules, record, sky, look, self.hear)

            async def collect(plan: Collect, keep: Callable[[Observation], None]) -> None:
                def kept(portion: Portion) -> None:
                    found = portion.observation()
                    self._check_rows(found, portion)
                    keep(found)

                await collecting.collect(office, plan, kept, outages=OUTAGES[rules.collect.outages])

            await service.operate(desk, collect, clock=self._clock, publish=self._published)

    def _clock(self) -> float:
        return self.world.now() + PARTY.get().skew

    def _published(self, state: State) -> None:
        """Rule 3, and what was forecast."""
        self.seen["states published"] += 1
        now, outlook = self.world.now(), state.forecast
        if outlook is not None and (not self.forecasts or self.forecasts[-1].origin != outlook.origin):
            self.forecasts.append(Made.of(now, outlook))
        if state.model is None or state.now is None or state.model.until is None:
            return
        if state.model.hash != self.model:
            self.model, self.model_since, self._due = state.model.hash, now, None
        if state.now.time <= state.model.until or now - self.model_since < UPDATED:
            self._due = None  # nothing to update it with, or updated less than a day ago
        elif self._due is None:
            self._due = now
        else:
            self.overdue = max(self.overdue, now - self._due)

    # What must hold

    def _expected(self, stamp: int, homes: frozenset[int]) -> tuple[float, float]:
        """Mean temperature and summed load of some homes, as their recorders have them."""
        own = self.truth[(stamp - int(self.town.time[0])) // STEP, sorted(homes)]
        return float(own[:, 0].mean()), float(own[:, 1].sum())

    def _check_rows(self, found: Observation, portion: Portion) -> None:
        """Rule 1, as the rows come."""
        keys = [member.identity.hex() for member in portion.run.members]
        homes = frozenset(self.home_of[key] for key in keys)
        need(len(homes) == len(keys), "a home is in the company twice")
        for time_, row in zip(seconds(found.table.index).tolist(), found.table.itertuples(), strict=True):
            state, load = self._expected(time_, homes)
            off = abs(row.aggregate_temp_c - state), abs(row.load_kw - load)
            need(off[0] <= 0.05 * QUANTUM + 1e-6 and off[1] <= 1e-6, f"row {time_} is off by {off}")
            for key in keys:
                need(self.witnesses[key].company.get(time_ // DAY) == frozenset(keys), f"{key}: not of its company")
            need(time_ not in self.rows or self.rows[time_] == (row.aggregate_temp_c, row.load_kw, homes), "changed")
            self.rows[time_] = (row.aggregate_temp_c, row.load_kw, homes)
        self.seen["runs with rows"] += 1

    async def _look_at_accounts(self) -> None:
        while True:
            await asyncio.sleep(30 * DAY)
            self.check_accounts()

    def check_accounts(self) -> None:
        """Rule 2: what the account on disk says is what the messages say."""
        for house in self.houses:
            if not (house.identity / "state" / "journal").exists():
                continue
            account = read_account(house.identity / "state")
            shown = {int(t): int(n) for t, n in zip(account.time, account.shown, strict=True) if n}
            need(shown == dict(house.witness.shown), f"{house.name}: its account says otherwise than its messages")
            need(max(shown.values(), default=0) <= ASKINGS, f"{house.name}: a stamp was shown too often")
            for day, known in account.days.items():
                need(not known.fit and not account.fits, f"{house.name}: day {day} entered a fit")
                need(known.weights in (None, "equal") and known.step in (0, STEP), f"{house.name}: day {day}")
            self.seen["accounts read"] += 1

    def check_record(self) -> None:
        """Rule 1, at the end: everything that was shown is in the record, once."""
        with closing(sqlite3.connect(self.folder / "desk" / "desk.sqlite")) as base:
            table = base.execute("SELECT time, aggregate_temp_c, load_kw, agents FROM observed").fetchall()
        stamps = [row[0] for row in table]
        need(len(set(stamps)) == len(stamps), "a row is in the record twice")
        for stamp, state, load, agents in table:
            need(stamp in self.rows, f"row {stamp} is in the record and was never collected")
            known = self.rows[stamp]
            need((state, load, agents) == (known[0], known[1], len(known[2])), f"row {stamp} changed in the record")
        self.seen["rows in the record"] = len(stamps)
        lost = set(self.rows) - set(stamps)
        need(not lost, f"{len(lost)} rows that homes showed are not in the record, first {min(lost, default=0)}")


# How well it did


@dataclass(frozen=True, slots=True)
class Figures:
    """What a rehearsal is judged by."""

    outages: OutagesName
    days: int
    rows: float  # share of the hours that were collected  [-]
    home_rows: float  # share of (hour, home) that is in a row collected, of those of 40 homes  [-]
    fresh: float  # 24 h after now: RMSE of the desk's forecast  [K]
    fresh_centre: float  # …, of a trusted centre's
    ahead: float  # 24 h after the last row known  [K]
    ahead_centre: float
    overdue: float  # h that an update of the model was due, at most

    def lines(self) -> list[str]:
        return [
            f"rows collected                     {self.rows:7.1%}",
            f"rows × homes                       {self.home_rows:7.1%}",
            f"error 24 h after the last row      {self.ahead:7.3f} K, trusted centre {self.ahead_centre:.3f} K "
            f"({self.ahead / self.ahead_centre - 1:+.0%})",
            f"error 24 h from now                {self.fresh:7.3f} K, trusted centre {self.fresh_centre:.3f} K "
            f"({self.fresh / self.fresh_centre - 1:+.0%})",
            f"longest that an update was due     {self.overdue:7.1f} h",
        ]


def centre_forecasts(days: int, seed: int, every: int) -> list["Made"]:
    """Those of a trusted centre: the same desk, shown all readings of the forty homes as soon as they are made."""
    town, made = town_of(days, seed), []
    index = pd.to_datetime(town.time, unit="s", utc=True).rename("time")
    both = {"aggregate_temp_c": town.temperature[:, :HOMES].mean(axis=1), "load_kw": town.load[:, :HOMES].sum(axis=1)}
    table, start = pd.DataFrame(both, index).assign(agents=HOMES), float(FIRST_DAY * DAY)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.toml").write_text(RULES.format(outages="balance", every=every))
        rules, sky = read_rules(Path(folder) / "rules.toml"), town.weather()
        with ServiceRecord(Path(folder) / "centre.sqlite", start) as record:
            desk = service.Service(rules, record, lambda: sky)
            for now in np.arange(start + 60, start + days * DAY, every * 3600).tolist():
                plan = desk.asking(now)
                run = None if plan is None else desk.begin(plan, now)
                if plan is None or run is None:
                    raise Wrong("the centre does not ask for what is there")
                ends = pd.to_datetime([plan.start, plan.start + (plan.length - 1) * STEP], unit="s", utc=True)
                desk.keep(run, Observation(table=table[ends[0] : ends[1]], asked=plan.length, ledger=[], out={}))
                desk.end(run, now, None)
                desk.work(now)
                outlook = desk.state(now).forecast
                if outlook is not None:
                    made.append(Made.of(now, outlook))
    return made


def figures(year: Year, centre: Sequence[Made]) -> Figures:
    """The desk's forecasts beside those of a trusted centre, at the same hours."""
    first, town = int(year.town.time[0]), year.town
    made, by_origin = [each.when for each in year.forecasts], {each.origin: each for each in year.forecasts}
    fresh: list[tuple[float, float]] = []  # errors of the desk and of the centre  [K]
    ahead: list[tuple[float, float]] = []

    def error(of: Made, target: int, homes: Collection[int]) -> float:
        return of.values[target] - float(town.temperature[(target - first) // STEP, sorted(homes)].mean())

    for theirs in centre:
        latest = bisect_right(made, theirs.when + 1800.0) - 1  # half an hour later the desk has asked for the same rows
        now_and = int(theirs.when) // STEP * STEP + DAY
        if latest < 0 or max(now_and, theirs.origin + DAY) > year.end:
            continue
        ours = year.forecasts[latest]
        if now_and in ours.values:
            fresh.append((error(ours, now_and, year.rows[ours.origin][2]), error(theirs, now_and, range(HOMES))))
        if (ours := by_origin.get(theirs.origin, ours)).origin == theirs.origin:
            target = theirs.origin + DAY
            ahead.append((error(ours, target, year.rows[ours.origin][2]), error(theirs, target, range(HOMES))))
    hours = year.days * DAY // STEP
    within = [homes for stamp, (_, _, homes) in year.rows.items() if year.start <= stamp < year.end]
    rms = [float(np.sqrt(np.mean(np.square(column)))) for both in (fresh, ahead) for column in zip(*both, strict=True)]
    return Figures(
        year.outages, year.days, len(within) / hours, sum(map(len, within)) / hours / HOMES, *rms, year.overdue / 3600
    )


Centre = Future[list[Made]]


def rehearse(
    days: int, seed: int, centre: Centre, outages: OutagesName = "balance", every: int = EVERY, *, verbose: bool = False
) -> tuple[Year, Figures]:
    """Play it in a folder of its own. Where something is wrong, what was said last is printed."""
    folder = Path(tempfile.mkdtemp(prefix="atdm-year-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    year = Year(folder, days, seed, outages, every)
    year.verbose = verbose
    try:
        year.play()
        return year, figures(year, centre.result())
    except BaseException:
        print(*year.said, sep="\n")
        print(f"replay: python -m tests.reliability.year --days {days} --seed {seed} --every {every}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def trusted_centre(days: int, seed: int, every: int = EVERY) -> Iterator[Centre]:
    """Its forecasts, made in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        yield other.submit(centre_forecasts, days, seed, every)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.year")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=EVERY, help="hours from one asking to the next")
    parser.add_argument("--outages", nargs="+", choices=list(OUTAGES), default=["balance"], help="one after the other")
    parser.add_argument("--verbose", action="store_true", help="print what the desk says")
    given = parser.parse_args(arguments)
    with trusted_centre(given.days, given.seed, given.every) as centre:
        for outages in given.outages:
            began = process_time()
            year, found = rehearse(given.days, given.seed, centre, outages, given.every, verbose=given.verbose)
            print(f"{given.days} days, seed {given.seed}, outages: {outages}, asked every {given.every} h")
            print(*(f"{count:7d} {what}" for what, count in sorted(year.seen.items())), sep="\n")
            print(*found.lines(), sep="\n")
            print(f"{process_time() - began:.0f} s of computing, {year.world.broker.carried} messages", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
