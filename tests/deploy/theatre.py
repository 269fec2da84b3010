"""A tiny deployment on a real NATS server: files and keys in a folder, parties as tasks of one loop or as processes."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from atdm.data import Cluster
from atdm.data.format import Format
from atdm.deploy.agent import AgentFiles, RunningAgent, link_agent, prepare_agent
from atdm.deploy.aggregator import Deployed, aggregate
from atdm.deploy.collecting import Office
from atdm.deploy.conductor import AggregatorConfig, Conductor
from atdm.deploy.events import unseen
from atdm.deploy.notices import OwnWeather
from atdm.deploy.own import weather_from
from atdm.deploy.rehearse import Stage, plan_of, run_beside, set_up
from atdm.options import fit_options
from atdm.protocol.plan import AnyPlan, Plan
from atdm.protocol.registry import OFFERED
from atdm.protocol.rules import Rules
from tests.clusters import tiny

LOOSE = Rules(
    protocols=OFFERED, weights="fitted", least_agents=3, rows_per_parameter=1.0, agents_per_total=1, colluders=0,
    ridge=(1.0, 100.0), least_days=0.0,
)  # fmt: skip
AGENTS, ROWS, ROWS_A_DAY = 4, 60, 4
PLAN = {"order": 1, "ridge": 20.0, "nonnegative": False, "weights": "fitted"}


def write_weather(cluster: Cluster, path: Path) -> Path:
    table = {"time": cluster.time, "outdoor_temp_c": cluster.outdoor.to_numpy(), "solar_w_m2": 1000 * cluster.solar}
    pd.DataFrame(table).to_parquet(path, index=False)
    return path


def silent(text: str) -> None:
    """For lines that nobody reads."""


class Theatre:
    """One enrolled cluster, and the plan to fit it."""

    def __init__(
        self, folder: Path, *, agents: int = AGENTS, protocol: str = "blind", rules: Rules = LOOSE, later: int = 0,
        **plan: Any,
    ) -> None:  # fmt: skip
        """later: rows at the end that are in nobody's file yet."""
        self.cluster, self.rules = tiny(0, agents=agents, rows=ROWS), rules
        weather = write_weather(self.cluster, folder / "weather.parquet")
        self.stage: Stage = set_up(folder, self.cluster, weather, Format(), rules, later=later)
        self.plan: Plan = plan_of(
            self.stage, self.cluster, fit_options(protocol=protocol, **{**PLAN, **plan}), rules, later=later
        )

    @property
    def aggregator(self) -> Path:
        return self.stage.keys / "aggregator"

    def seat(
        self, name: str, rules: Rules | None = None, say: Callable[[str], None] = lambda text: None
    ) -> RunningAgent:
        files = AgentFiles(identity=self.stage.identity(name), data=self.stage.data(name))
        return prepare_agent(
            files,
            self.stage.roster,
            OwnWeather(path=self.stage.weather),
            self.rules if rules is None else rules,
            say=say,
        )

    def state(self, name: str) -> Path:
        return self.stage.identity(name) / "state"

    def forget(self, name: str, rows: np.ndarray) -> None:
        """Take rows out of an agent's file."""
        table = pd.read_parquet(self.stage.data(name))
        table[~table["time"].isin(self.cluster.time[rows])].to_parquet(self.stage.data(name))

    def config(self, url: str, **options: Any) -> AggregatorConfig:
        """The whole window in one portion unless said otherwise, as in one process."""
        usual = {"wait": 20.0, "deadline": 20.0, "portion": ROWS}
        return AggregatorConfig(
            identity=self.aggregator, roster=self.stage.roster, servers=(url,), **{**usual, **options}
        )

    @asynccontextmanager
    async def conducting(
        self, url: str, plan: AnyPlan | None = None, *, wait: float = 20.0, deadline: float = 20.0, **options: Any
    ) -> AsyncIterator[Conductor]:
        """A run of this loop, for tests that look into it; connected for as long as the block lasts."""
        say, report = options.pop("say", silent), options.pop("report", unseen)
        with Office(self.config(url, wait=wait, deadline=deadline), say, report) as office:
            conductor = office.conductor(
                self.plan if plan is None else plan, weather_from(self.stage.weather), **options
            )
            async with conductor.hub:
                yield conductor

    @asynccontextmanager
    async def agents(
        self,
        url: str,
        names: Sequence[str] | None = None,
        say: Callable[[str], None] = silent,
        rules: dict[str, Rules] | None = None,
    ) -> AsyncIterator[dict[str, RunningAgent]]:
        """Agents connected for as long as the block lasts; rules: of those that have others than usual."""
        wanted = self.stage.names if names is None else names
        seats = {name: self.seat(name, (rules or {}).get(name), say) for name in wanted}
        tasks = [asyncio.create_task(link_agent(seat, (url,), say).run()) for seat in seats.values()]
        try:
            yield seats
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for seat in seats.values():
                seat.close()

    async def aggregate(
        self, url: str, say: Callable[[str], None] = silent, *, report: Any = None, **config: Any
    ) -> Deployed:
        """`atdm aggregator` in a thread, with a loop of its own, beside agents that are there."""
        told = {} if report is None else {"report": report}
        return await asyncio.to_thread(
            aggregate, self.config(url, **config), self.plan, weather_from(self.stage.weather), say, **told
        )

    async def perform(self, url: str, *, report: Any = None) -> Deployed:
        """The run with everybody in it."""
        async with self.agents(url):
            return await self.aggregate(url, report=report)


# Processes of their own, which are ended by SIGKILL at a chosen moment

Moment = tuple[str, str]  # when, and with which kind of message


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def kind_of(message: bytes) -> str:
    """What a moment is named by: type, with the phase of masked words and the step of totals."""
    document = msgspec.msgpack.decode(message)
    detail = document.get("phase", document.get("step", "") if document["type"] == "Total" else "")
    return f"{document['type']} {detail}".strip()


def agent_process(folder: Path, weights: str, names: Sequence[str], url: str, moment: Moment | None) -> None:
    """Serve these agents; die when asked with a kind of message, or with the answer written down but not sent."""
    theatre = reopen(folder, weights)
    when, kind = moment or ("", "")

    def deadly(receive: Callable[[bytes], list[bytes]]) -> Callable[[bytes], list[bytes]]:
        def receive_and_die(message: bytes) -> list[bytes]:
            if when == "asked" and kind == kind_of(message):
                kill(os.getpid())
            replies = receive(message)
            if when == "answered" and kind in map(kind_of, replies):
                kill(os.getpid())
            return replies

        return receive_and_die

    async def main() -> None:
        seats = [theatre.seat(name) for name in names]
        for seat in seats:
            seat.agent.receive = deadly(seat.agent.receive)
        await asyncio.gather(*(link_agent(seat, (url,), silent).run() for seat in seats))

    asyncio.run(main())


def aggregator_process(
    folder: Path, weights: str, url: str, moment: Moment | None, victim: int | None, result: Path
) -> None:
    """Aggregate; before or after sending a kind of message, kill somebody (None: this process)."""
    theatre = reopen(folder, weights)
    send = Conductor._send
    left = [moment]

    async def send_and_kill(self: Conductor, batch: Sequence[tuple[int | None, bytes]]) -> None:
        when, kind = left[0] or ("", "")
        here = kind in [kind_of(data) for _, data in batch]
        if here:
            left[0] = None
        if here and when == "before":
            kill(os.getpid() if victim is None else victim)
        await send(self, batch)
        if here and when == "after":
            await self.hub.connection.flush()
            kill(os.getpid() if victim is None else victim)

    Conductor._send = send_and_kill
    done = aggregate(theatre.config(url), theatre.plan, weather_from(theatre.stage.weather), silent)
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(done.as_dict()))
    partial.replace(result)


def reopen(folder: Path, weights: str) -> Theatre:
    """The theatre of another process's folder."""
    theatre = Theatre.__new__(Theatre)
    theatre.cluster, theatre.rules = tiny(0, agents=AGENTS, rows=ROWS), LOOSE
    theatre.stage = Stage(folder, theatre.cluster.agents, folder / "weather.parquet", Format(), LOOSE)
    theatre.plan = plan_of(
        theatre.stage, theatre.cluster, fit_options(protocol="blind", **{**PLAN, "weights": weights}), LOOSE
    )
    return theatre


def in_process(stage: Stage, plan: Plan) -> Deployed:
    """The same parties with the same keys and files, as objects of one process."""
    return run_beside(stage, plan)[0]
