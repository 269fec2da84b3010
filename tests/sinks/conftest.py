"""Results of the known cluster, to be sent."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import atdm
from atdm.deploy.server import LocalServer, _free_port
from atdm.sinks.results import Results, compute
from tests.use.two_state import two_state

MADE = pd.Timestamp("2024-01-17T16:05Z")
COMFORT, POWER = (16.0, 22.0), (0.0, 40.0)


@pytest.fixture(scope="session")
def world() -> tuple[atdm.Fit, pd.DataFrame, pd.DataFrame]:
    """A fit that may be planned with, the weather, and what was observed until MADE."""
    cluster = two_state(days=20, agents=6, step_hours=1.0)
    fit = atdm.fit(cluster, "plain", train=0.7, weights="equal")
    weather = pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar})
    return fit, weather, fit.series()[["aggregate_temp_c", "load_kw"]].iloc[:400]


@pytest.fixture(scope="session")
def results(world) -> Results:
    fit, weather, observed = world
    return compute(fit.chosen, weather, observed, made=MADE, comfort=COMFORT, power=POWER)


@pytest.fixture(scope="session")
def plain(world) -> Results:
    """Without flexibility."""
    fit, weather, observed = world
    return compute(fit.chosen, weather, observed, made=MADE)


class Broker(LocalServer):
    """nats-server as an MQTT broker; `mqtt` is its port."""

    mqtt: int


def broker(folder: Path, *, more: str = "", tls: str = "") -> Broker:
    made = Broker(folder)
    made.mqtt = _free_port()
    (folder / "server.conf").write_text(
        f'server_name: "test"\njetstream {{ store_dir: "{folder}/js" }}\n'
        f'mqtt {{ host: "127.0.0.1", port: {made.mqtt}\n{tls}\n}}\n{more}\n'
    )
    return made


@pytest.fixture
def open_broker(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path) as running:
        yield running


@contextmanager
def serving(routes: list[Any]) -> Iterator[int]:
    """An aiohttp server on the loopback interface, in a thread of its own: its port."""
    from aiohttp import web

    loop, started, port = asyncio.new_event_loop(), threading.Event(), []

    def work() -> None:
        asyncio.set_event_loop(loop)
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(app)
        loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        loop.run_until_complete(site.start())
        port.append(runner.addresses[0][1])
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(20)
    try:
        yield port[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
