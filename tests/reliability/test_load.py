"""A deployment on a real NATS server, run after run, while agents leave and come back: numbers stay right, memory flat.

ATDM_SOAK_MINUTES (30) and ATDM_SOAK_AGENTS (500) say how long and how many. Agents answer the same question four times,
so that every fifth run is of another deployment, with a new server and new keys, by the same process.
"""

import asyncio
import os
import random
import resource
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from atdm.deploy.agent import link_agent
from atdm.errors import RunAborted
from atdm.protocol.account import MOST_ASKINGS
from tests.deploy.theatre import Theatre, in_process, silent

pytest.importorskip("nats", reason="the nats extra is not installed")
MINUTES = float(os.environ.get("ATDM_SOAK_MINUTES", "30"))
MANY = int(os.environ.get("ATDM_SOAK_AGENTS", "500"))
PAUSE = (0.02, 0.4)  # s between two departures
AWAY = (0.0, 1.0)  # s until an agent is back


def resident() -> float:
    """MB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def figures(seen: Counter) -> str:
    ends = {what: times for what, times in seen.items() if what != "restarts"}
    ended = ", ".join(f"{times} {what}" for what, times in sorted(ends.items()))
    return f"{sum(ends.values())} runs ({ended}), {seen['restarts']} restarts"


class Restless:
    """Agents as tasks of one loop; each can be taken down and comes back from its own folder."""

    def __init__(self, theatre: Theatre, url: str, seed: int, seen: Counter) -> None:
        self.theatre, self.url, self.rng, self.seen = theatre, url, random.Random(seed), seen
        self.tasks: dict[str, asyncio.Task] = {}
        self.seats: dict[str, object] = {}
        self.expected = in_process(theatre.stage, theatre.plan).as_dict()["released"]

    def enter(self, name: str) -> None:
        seat = self.theatre.seat(name)
        self.seats[name] = seat
        self.tasks[name] = asyncio.create_task(link_agent(seat, (self.url,), silent).run())

    async def leave(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.seats.pop(name).close()

    async def come_and_go(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(*PAUSE))
            name = self.rng.choice(sorted(self.tasks))
            await self.leave(name)
            await asyncio.sleep(self.rng.uniform(*AWAY))
            self.enter(name)
            self.seen["restarts"] += 1

    async def run_once(self, patience: float) -> None:
        try:
            done = await self.theatre.aggregate(self.url, wait=patience, deadline=patience)
        except RunAborted:
            self.seen["no result"] += 1
            return
        if done.fit.out:
            self.seen["smaller company"] += 1
            return
        assert done.as_dict()["released"] == self.expected, "another number than in one process"
        self.seen["right to the last bit"] += 1

    async def perform(self, runs: int, patience: float) -> None:
        for name in self.theatre.stage.names:
            self.enter(name)
        restless = asyncio.create_task(self.come_and_go())
        try:
            for _ in range(runs):
                await self.run_once(patience)
        finally:
            restless.cancel()
            with suppress(asyncio.CancelledError):
                await restless
            for name in list(self.tasks):
                await self.leave(name)


def act(agents: int, seed: int, seen: Counter, runs: int, patience: float) -> float:
    """One deployment from enrolment to its last run; the memory after it."""
    with tempfile.TemporaryDirectory(prefix="atdm-load-") as folder:
        theatre = Theatre(Path(folder), agents=agents)
        with theatre.stage.server() as server:
            asyncio.run(Restless(theatre, server.url, seed, seen).perform(runs, patience))
    return resident()


@pytest.mark.soak
@pytest.mark.filterwarnings("default")  # connections that are cut leave sockets to the garbage collector
def test_deployments_whose_agents_come_and_go_stay_right_and_do_not_grow() -> None:
    seen, memory, end = Counter(), [], time.monotonic() + 60 * MINUTES
    while time.monotonic() < end:
        memory.append(act(6, len(memory), seen, MOST_ASKINGS, patience=20.0))
    settled = float(np.median(memory[len(memory) // 4 : len(memory) // 2 + 1]))
    print(f"{MINUTES:g} min, {len(memory)} deployments of 6 agents: {figures(seen)}; "
          f"memory {settled:.0f}, then {memory[-1]:.0f} MB")  # fmt: skip
    assert seen["restarts"] > 10 * MINUTES and seen["right to the last bit"] > MINUTES
    assert memory[-1] < 1.2 * settled + 10


@pytest.mark.soak
@pytest.mark.filterwarnings("default")
def test_a_run_of_many_agents_ends_while_some_restart() -> None:
    seen: Counter = Counter()
    memory = act(MANY, 2, seen, 1, patience=300.0)
    print(f"{MANY} agents: {figures(seen)}; memory {memory:.0f} MB")
    assert seen["restarts"] > 0 and seen["no result"] == 0
