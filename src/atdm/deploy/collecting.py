"""Collecting rows from whoever is there, in as many runs as it takes: the one way of `atdm aggregator`, `atdm observe`
and `atdm serve`.

Rule 1: each portion is kept as it comes, before anybody is asked for the next.
Rule 2: a run that breaks off before a reading was asked for is formed again without those that broke it off. One that
        breaks off later has settled its days with them: other days go on without them, and these are asked for once
        more at the end, in case they are back.
Rule 3: nobody is asked without end: a few runs in a row may fail before any reading left, and a stamp is shown four
        times at most (the agents' account).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from atdm.data.readings import Weather
from atdm.deploy.agent import Say
from atdm.deploy.conductor import AggregatorConfig, Conductor
from atdm.deploy.enrolment import SignedWeather, read_aggregator, read_roster, read_signed_weather
from atdm.deploy.events import OnEvent, unseen
from atdm.deploy.fleet import FleetFile
from atdm.deploy.notices import NO_WEATHER
from atdm.deploy.observe import Observation, collect_observation
from atdm.errors import AtdmError, RunAborted, UsageError
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.company import bits, rows_asked
from atdm.protocol.plan import DAY, AnyPlan, Collect, Plan
from atdm.protocol.readings import weather_hash, window
from atdm.protocol.session import Run
from atdm.transport.nats import NatsConfig

ATTEMPTS = 3  # runs in a row that may break off before any reading left


class Office:
    """The aggregator's keys and its memory of the fleet, for as long as it asks; the roster is read for every run."""

    def __init__(self, config: AggregatorConfig, say: Say, report: OnEvent = unseen) -> None:
        nkey, pinned = read_aggregator(config.identity)
        self.config, self.say, self.report, self.authority = config, say, report, pinned.authority
        self.nats = NatsConfig(servers=config.servers, ca=pinned.ca, nkey=nkey)
        self.fleet = FleetFile(config.identity)
        self._last: Conductor | None = None

    def conductor(self, plan: AnyPlan, weather: Weather = NO_WEATHER, **options: Any) -> Conductor:
        """For one run; collecting needs no weather. Options as Conductor takes them."""
        roster = read_roster(self.config.roster, self.authority)
        if self.config.publish_weather is not None and isinstance(plan, Plan):
            options = {"notices": (self._signed_weather(self.config.publish_weather, plan),), **options}
        self._last = Conductor(
            self.config, self.nats, roster, plan, weather=weather, say=self.say, report=self.report, fleet=self.fleet,
            **options,
        )  # fmt: skip
        return self._last

    def _signed_weather(self, path: Path, plan: Plan) -> SignedWeather:
        signed, rows = read_signed_weather(path, self.authority), window(plan)
        if weather_hash(signed.rows(self.authority), int(rows[0]), int(rows[-1])) != plan.weather:
            raise UsageError(f"{path}: has other rows than the plan's weather: sign the weather file of the fit")
        return signed

    @property
    def stopped(self) -> bool:
        """Whether the last run was stopped by whoever runs this process."""
        return self._last is not None and self._last.stopped

    def __enter__(self) -> "Office":
        return self

    def __exit__(self, *_: object) -> None:
        self.fleet.close()


@dataclass(slots=True)
class Attempts:
    """Who is asked again after a run that broke off, and how often."""

    say: Say
    expected: set[str] | None = None  # identities (hex) that were there last; None: nobody knows yet
    excluded: dict[str, str] = field(default_factory=dict)  # that fell silent in a run, or refused in two; after what
    refused: set[str] = field(default_factory=set)  # in one: an agent that restarted may only have lost its run
    failures: list[str] = field(default_factory=list)  # in a row, before any reading left

    def after(self, conductor: Conductor) -> None:
        silent = dict.fromkeys(conductor.silent, "falling silent in a run before")
        refused = dict.fromkeys(conductor.refused & self.refused, "refusing to go on in two runs")
        self.excluded = {**refused, **silent, **self.excluded}
        self.refused |= conductor.refused
        self.expected = conductor.hub.present - self.excluded.keys()

    def again(self, conductor: Conductor, error: AtdmError) -> None:
        """After a run that broke off before any reading left; raises where asking again makes no sense."""
        self.failures.append(str(error))
        if conductor.stopped or not conductor.company or len(self.failures) == ATTEMPTS:
            raise type(error)("; then: ".join(dict.fromkeys(self.failures))) from None
        self.after(conductor)
        self.say(f"broken off before any reading left: {error}; asking again")


@dataclass(frozen=True, slots=True)
class Portion:
    """A run that showed its rows."""

    conductor: Conductor
    role: Aggregator
    ended: float  # s, monotonic

    @property
    def run(self) -> Run:
        if self.role.run is None:
            raise RunAborted("the run ended without a company")
        return self.role.run

    def observation(self) -> Observation:
        return collect_observation(self.role, self.role.notebook.rows())


Keep = Callable[[Portion], None]


async def collect(office: Office, plan: Collect, keep: Keep, **options: Any) -> None:
    """Ask for the rows of a plan; options as Conductor takes them. Raises RunAborted where nothing was collected."""
    await _Collecting(office, keep, options, Attempts(office.say)).run(plan)


@dataclass(frozen=True, slots=True)
class _Broken:
    """A run that broke off after its days were settled."""

    days: tuple[int, ...]
    why: str


@dataclass(slots=True)
class _Collecting:
    office: Office
    keep: Keep
    options: dict[str, Any]
    attempts: Attempts
    days: set[int] = field(default_factory=set)  # of which rows were kept
    portions: int = 0

    async def run(self, plan: Collect) -> None:
        broken, problem = await self._through(plan)
        if broken and not self.office.stopped:
            days = sorted({day for each in broken for day in each.days})
            self.office.say(f"asking once more for {spelled(days)}, in case everybody is back")
            there = (self.attempts.expected or set()) | self.attempts.excluded.keys()
            self.attempts = Attempts(self.office.say, expected=there)
            await self._through(rows_on(plan, days))
        lost = [f"{spelled(left)} ({each.why})" for each in broken if (left := set(each.days) - self.days)]
        for text in lost:
            self.office.say(f"lost, unless all of that company come back: {text}")
        if not self.portions:
            raise problem or RunAborted(f"nothing was collected, and these days are lost: {'; '.join(lost)}")
        if problem is not None and not self.office.stopped:
            self.office.say(f"the rest of the window was not collected: {problem}")

    async def _through(self, plan: Collect) -> tuple[list[_Broken], AtdmError | None]:
        """Run after run over the days of a plan; what broke off after it began, and what ended it before the end."""
        left: Collect | None = plan
        broken: list[_Broken] = []
        while left is not None and not self.office.stopped:
            tries = self.attempts
            try:
                conductor = self.office.conductor(
                    left, expected=tries.expected, excluded=tries.excluded, **self.options
                )
            except AtdmError as error:  # the roster cannot be read
                return broken, error
            try:
                async with conductor.hub:
                    role, ended = await conductor.carry()
            except AtdmError as error:
                if conductor.begun and not conductor.stopped:
                    tries.after(conductor)
                    broken.append(_Broken(conductor.days(), str(error)))
                    self.office.say(f"broken off after readings of {spelled(broken[-1].days)} were asked for: {error}")
                    left = rows_after(left, max(conductor.days()))
                    continue
                try:
                    tries.again(conductor, error)
                except AtdmError as final:
                    return broken, final
                continue
            tries.after(conductor)
            tries.failures.clear()
            portion = Portion(conductor, role, ended)
            self.keep(portion)
            self.portions, self.days = self.portions + 1, self.days | set(conductor.days())
            left = rows_after(left, max(portion.run.days))
            if left is not None:
                self.office.say(f"{len(conductor.rows())} rows collected; going on with later days")
        return broken, None


def rows_on(plan: Collect, days: Collection[int]) -> Collect:
    """Of the rows of a plan those on some days."""
    wanted = rows_asked(plan) & np.isin(window(plan) // DAY, sorted(days))
    return msgspec.structs.replace(plan, asked=bits(wanted))


def rows_after(plan: Collect, day: int) -> Collect | None:
    """Of the rows of a plan those after a day; None where there are none."""
    later = rows_asked(plan) & (window(plan) // DAY > day)
    if not later.any():
        return None
    first = int(np.argmax(later))
    asked = b"" if later[first:].all() else bits(later[first:])
    return msgspec.structs.replace(
        plan, start=plan.start + first * plan.step_seconds, length=plan.length - first, asked=asked
    )


def spelled(days: Collection[int]) -> str:
    """UTC days for people: the first and the last, and how many, where some between them are missing."""
    first, last = (datetime.fromtimestamp(day * DAY, UTC).date() for day in (min(days), max(days)))
    if first == last:
        return f"{first}"
    return f"{first} to {last}" + ("" if len(days) == max(days) - min(days) + 1 else f" ({len(days)} days)")
