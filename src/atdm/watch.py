"""`atdm observe`: observations by the clock on the wall, which says what rows are over and when the next one is.

No other place of a deployment reads the time of day: agents count time stamps, and deadlines are monotonic (deploy.py).
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from atdm.data.tables import Format
from atdm.deploy import Conductor, Post, Say, describe_plan, on_signal, parse_stamp
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.model import Model
from atdm.observe import Observation, observe_plan, released_by
from atdm.protocol.readings import Weather
from atdm.protocol.roster import Roster
from atdm.transport.enrolment import read_aggregator, read_roster
from atdm.transport.nats import Door

Keep = Callable[[Observation], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeing:
    """Which rows an observation asks for, and when."""

    back: pd.Timedelta  # rows that somebody could not give are asked for again for so long
    until: pd.Timestamp | None = None  # last row; None: the last that has settled
    follow: bool = False
    settle: float = 60.0  # s after a row's time stamp until its reading is expected to be in every agent's file


def parse_end(text: str | None) -> pd.Timestamp | None:
    """What --end of an observation says."""
    return None if text is None else parse_stamp(text, Format(), "--end")


def observe(post: Post, model: Model, say: Say, keep: Keep, seeing: Seeing) -> None:
    """`atdm observe`: ask the agents of a model's fit for the rows since, once or from row to row until stopped."""
    nkey, pinned = read_aggregator(post.identity)
    roster = read_roster(post.roster, pinned.authority)
    if not roster.has_cohorts(released_by(model).cohorts):
        raise UsageError(f"{post.roster}: has not the cohorts of the model's fit: give the roster it was made with")
    door = Door(servers=post.servers, ca=pinned.ca, nkey=nkey)
    asyncio.run(_observe(post, door, roster, model, say, keep, seeing))


async def _observe(
    post: Post, door: Door, roster: Roster, model: Model, say: Say, keep: Keep, seeing: Seeing
) -> None:
    this, stopped = asyncio.current_task(), []

    def stop() -> None:
        stopped.append(True)
        if this is not None:
            this.cancel()

    with on_signal(stop):
        while True:
            settled = pd.Timestamp(time.time() - seeing.settle, unit="s", tz="UTC")
            found = None
            try:
                found = await _observe_once(post, door, roster, model, say, seeing, settled)
            except (RunAborted, PeerError, UsageError) as error:
                if not seeing.follow:
                    raise
                say(f"nothing observed ({error}): trying again with the next row")
            if found is not None:
                keep(found)  # where that fails, going on would lose the next rows too
            if not seeing.follow:
                return
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.0 if stopped else until_next_row(model, time.time() - seeing.settle))
            if stopped:
                say("stopped")
                return


async def _observe_once(
    post: Post, door: Door, roster: Roster, model: Model, say: Say, seeing: Seeing, settled: pd.Timestamp
) -> Observation:
    plan = observe_plan(model, settled if seeing.until is None else seeing.until, seeing.back)
    say(f"asking for {describe_plan(plan)}")
    nothing = np.empty(0)
    weather = Weather(nothing.astype(np.int64), nothing, nothing)  # an observation needs none
    conductor = Conductor(post, door, roster, plan, weather, say, cohorts=set(released_by(model).cohorts))
    async with conductor.hub:
        return await conductor.observe()


def until_next_row(model: Model, now: float) -> float:
    """Seconds from `now` [s since 1970] to the next row of the grid on which a model was fitted, never none."""
    step = model.step.total_seconds()
    return step - math.fmod(now - released_by(model).end.timestamp(), step)
