"""`atdm observe`: collecting by the time of day, which says which rows have ended and when the next one does.

The roles of the protocol never read the time of day: they count time stamps; deadlines are monotonic (aggregator.py).
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from atdm.data.format import Format
from atdm.deploy.agent import Say, describe_plan, on_signal
from atdm.deploy.aggregator import parse_stamp
from atdm.deploy.collecting import Office, Portion, collect
from atdm.deploy.conductor import AggregatorConfig
from atdm.deploy.fleet import OUTAGES, Outages, whole
from atdm.deploy.observe import Observation, observe_plan, released_by
from atdm.errors import AtdmError, DataError, PeerError, RunAborted, UsageError
from atdm.model.fitted import Model
from atdm.options import WeightsName

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
    outages: Outages = OUTAGES["balance"]  # of homes: what they may cost


def parse_end(text: str | None) -> pd.Timestamp | None:
    """The last stamp of an observation, as written by a person."""
    return parse_stamp(text, Format(), "--end")


def watch_rows(config: AggregatorConfig, model: Model, say: Say, keep: Keep, seeing: Seeing) -> None:
    """`atdm observe`: ask the agents for the rows since a model's fit, once or from row to row until stopped."""
    released_by(model)
    with Office(config, say) as office:
        asyncio.run(Observer(office, model, keep, seeing).run())


@dataclass(slots=True)
class Observer:
    """Collects row by row; the roster is read again each time, so that homes come and go."""

    office: Office
    model: Model
    keep: Keep
    seeing: Seeing
    stopped: bool = False
    unkept: AtdmError | None = None  # why rows could not be kept: going on would lose the next ones too

    async def run(self) -> None:
        this = asyncio.current_task()

        def stop() -> None:
            self.stopped = True
            if this is not None:
                this.cancel()

        with on_signal(stop):
            while True:
                try:
                    await self._collect_what_is_there()
                except (RunAborted, PeerError, DataError, UsageError) as error:
                    if not self.seeing.follow or error is self.unkept:
                        raise
                    self.office.say(f"nothing more collected ({error})")
                if not self.seeing.follow:
                    return
                with contextlib.suppress(asyncio.CancelledError):
                    wait = until_next_row(self.model, time.time() - self.seeing.settle)
                    await asyncio.sleep(0.0 if self.stopped else wait)
                if self.stopped:
                    self.office.say("stopped")
                    return

    async def _collect_what_is_there(self) -> None:
        seeing = self.seeing
        settled = pd.Timestamp(time.time() - seeing.settle, unit="s", tz="UTC")
        last = settled if seeing.until is None else seeing.until
        plan = observe_plan(self.model, last, seeing.back, known=seeing.known(), weights=seeing.weights)
        self.office.say(f"asking for {describe_plan(plan)}")
        policy = whole(released_by(self.model).company) if plan.fit else None
        await collect(self.office, plan, self._keep, policy=policy, outages=seeing.outages)

    def _keep(self, portion: Portion) -> None:
        try:
            self.keep(portion.observation())
        except AtdmError as error:
            self.unkept = error
            raise


def until_next_row(model: Model, now: float) -> float:
    """Seconds from `now` [s since 1970] to the next row of the grid on which a model was fitted, never none."""
    step = model.step.total_seconds()
    return step - math.fmod(now - released_by(model).end.timestamp(), step)
