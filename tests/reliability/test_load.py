"""A deployment on a real NATS server, run after run, while agents leave and come back: numbers stay right, memory flat.

ATDM_SOAK_MINUTES (30) and ATDM_SOAK_AGENTS (500) say how long and how many.
"""

import asyncio
import os
import random
import resource
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from atdm.deploy import link_agent
from atdm.errors import RunAborted
from atdm.run import fit
from tests.transport.theatre import PLAN, Theatre

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


class Company:
    """Agents as tasks of one loop; each can be taken down and comes back from its own folder."""

    def __init__(self, theatre: Theatre, url: str, seed: int) -> None:
        self.theatre, self.url, self.rng = theatre, url, random.Random(seed)
        self.tasks: dict[str, asyncio.Task] = {}
        self.seats: dict[str, object] = {}
        self.seen: Counter = Counter()

    def enter(self, name: str) -> None:
        seat = self.theatre.seat(name)
        self.seats[name] = seat
        self.tasks[name] = asyncio.create_task(link_agent(seat, (self.url,), lambda text: None).run())

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
        conductor = self.theatre.conductor(self.url, wait=patience, deadline=patience)
        try:
            async with conductor.hub:
                done = await asyncio.wait_for(conductor.run(), 4 * patience)
        except RunAborted:
            self.seen["no result"] += 1
            return
        self.seen[str(done.fit.status)] += 1
        if done.fit.converged:
            expected = fit(self.theatre.cluster, "plain", **PLAN).model
            for name in ("alpha", "beta", "gamma", "theta"):
                np.testing.assert_allclose(getattr(done.fit.model, name), getattr(expected, name), atol=2e-3)  # dither

    async def perform(self, until, patience: float) -> list[float]:
        """Runs until told to stop; the memory after each."""
        memory: list[float] = []
        for name in self.theatre.stage.names:
            self.enter(name)
        restless = asyncio.create_task(self.come_and_go())
        try:
            while not until(self.seen):
                await self.run_once(patience)
                memory.append(resident())
        finally:
            restless.cancel()
            with suppress(asyncio.CancelledError):
                await restless
            for name in list(self.tasks):
                await self.leave(name)
        return memory


@pytest.mark.soak
@pytest.mark.filterwarnings("default")  # connections that are cut leave sockets to the garbage collector
def test_a_deployment_whose_agents_come_and_go_stays_right_and_does_not_grow(tmp_path: Path) -> None:
    theatre = Theatre(tmp_path, agents=6)
    end = time.monotonic() + 60 * MINUTES
    with theatre.stage.server() as server:
        company = Company(theatre, server.url, seed=1)
        memory = asyncio.run(company.perform(lambda seen: time.monotonic() > end, patience=20.0))
    settled = float(np.median(memory[len(memory) // 4 : len(memory) // 2]))
    print(f"{MINUTES:g} min, 6 agents: {figures(company.seen)}; memory {settled:.0f}, then {memory[-1]:.0f} MB")
    assert company.seen["restarts"] > 10 * MINUTES and company.seen["converged"] + company.seen["capped"] > MINUTES
    assert memory[-1] < 1.2 * settled + 10


@pytest.mark.soak
@pytest.mark.filterwarnings("default")
def test_a_run_of_many_agents_ends_while_some_restart(tmp_path: Path) -> None:
    theatre = Theatre(tmp_path, agents=MANY)
    with theatre.stage.server() as server:
        company = Company(theatre, server.url, seed=2)
        memory = asyncio.run(company.perform(lambda seen: sum(seen.values()) > seen["restarts"], patience=300.0))
    print(f"{MANY} agents: {figures(company.seen)}; memory {memory[-1]:.0f} MB")
    assert company.seen["restarts"] > 0 and company.seen["no result"] == 0
