"""`atdm observe`: collecting by the time of day, which says which rows have ended and when the next one does.

The roles of the protocol never read the time of day: they count time stamps; deadlines are monotonic (aggregator.py).
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from atdm.data.format import Format
from atdm.deploy.agent import Say, describe_plan, on_signal
from atdm.deploy.aggregator import AggregatorConfig, Conductor, parse_stamp
from atdm.deploy.enrolment import read_aggregator, read_roster
from atdm.deploy.fleet import PATIENCE, FleetFile, whole
from atdm.deploy.observe import Observation, observe_plan, released_by
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.model.fitted import Model
from atdm.protocol.company import plan_days
from atdm.protocol.options import WeightsName
from atdm.protocol.readings import Weather, timestamps
from atdm.transport.nats import NatsConfig

Keep = Callable[[Observation], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeing:
    """Which rows are asked for, and when."""

    back: pd.Timedelta  # how long rows that some agent could not give are asked for again
    known: Callable[[], pd.DatetimeIndex]  # rows that are there already
    weights: WeightsName | None = None  # None: those of the model
    until: pd.Timestamp | None = None  # last row; None: the last that has settled
    follow: bool = False
    settle: float = 60.0  # s after a row's time stamp until its reading is expected to be in every agent's file
    patience: float = PATIENCE  # s that a silent home is waited for before days are summed without it


def parse_end(text: str | None) -> pd.Timestamp | None:
    """The last stamp of an observation, as written by a person."""
    return parse_stamp(text, Format(), "--end")


def watch_rows(config: AggregatorConfig, model: Model, say: Say, keep: Keep, seeing: Seeing) -> None:
    """`atdm observe`: ask the agents for the rows since a model's fit, once or from row to row until stopped."""
    nkey, pinned = read_aggregator(config.identity)
    nats = NatsConfig(servers=config.servers, ca=pinned.ca, nkey=nkey)
    released_by(model)
    with FleetFile(config.identity) as fleet:
        asyncio.run(Observer(config, nats, pinned.authority, model, say, keep, seeing, fleet).run())


@dataclass(slots=True)
class Observer:
    """Collects row by row; the roster is read again each time, so that homes come and go."""

    config: AggregatorConfig
    nats: NatsConfig
    authority: bytes
    model: Model
    say: Say
    keep: Keep
    seeing: Seeing
    fleet: FleetFile
    stopped: bool = False

    async def run(self) -> None:
        this = asyncio.current_task()

        def stop() -> None:
            self.stopped = True
            if this is not None:
                this.cancel()

        with on_signal(stop):
            while True:
                await self._collect_what_is_there()
                if not self.seeing.follow:
                    return
                with contextlib.suppress(asyncio.CancelledError):
                    wait = until_next_row(self.model, time.time() - self.seeing.settle)
                    await asyncio.sleep(0.0 if self.stopped else wait)
                if self.stopped:
                    self.say("stopped")
                    return

    async def _collect_what_is_there(self) -> None:
        """One run after the other while days are left that another company can sum."""
        collected, more, tried = False, True, pd.DatetimeIndex([], tz="UTC")
        while more and not self.stopped:
            try:
                found, tried, more = await self._once(tried)
            except (RunAborted, PeerError, UsageError) as error:
                if not self.seeing.follow and not collected:
                    raise
                self.say(f"nothing more collected ({error})")
                return
            collected = True
            self.keep(found)  # where that fails, going on would lose the next rows too

    async def _once(self, tried: pd.DatetimeIndex) -> tuple[Observation, pd.DatetimeIndex, bool]:
        """What one run shows, the rows tried so far, and whether the window has days that no run covered."""
        seeing = self.seeing
        settled = pd.Timestamp(time.time() - seeing.settle, unit="s", tz="UTC")
        last = settled if seeing.until is None else seeing.until
        known = tried.union(seeing.known()) if len(tried) else seeing.known()
        plan = observe_plan(self.model, last, seeing.back, known=known, weights=seeing.weights)
        self.say(f"asking for {describe_plan(plan)}")
        nothing = np.empty(0)
        conductor = Conductor(
            self.config, self.nats, read_roster(self.config.roster, self.authority), plan, say=self.say,
            fleet=self.fleet,
            weather=Weather(nothing.astype(np.int64), nothing, nothing),  # collecting needs none
            policy=whole(released_by(self.model).company) if plan.fit else None, patience=seeing.patience,
        )  # fmt: skip
        async with conductor.hub:
            found = await conductor.observation()
        run = conductor.role.run if conductor.role is not None else None
        if run is None:
            return found, tried, False
        return found, tried.union(timestamps(run.rows())), max(run.days) < int(plan_days(plan)[-1])


def until_next_row(model: Model, now: float) -> float:
    """Seconds from `now` [s since 1970] to the next row of the grid on which a model was fitted, never none."""
    step = model.step.total_seconds()
    return step - math.fmod(now - released_by(model).end.timestamp(), step)
