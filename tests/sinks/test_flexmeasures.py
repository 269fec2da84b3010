"""FlexMeasures: what is posted and asked for, to a server that answers as FlexMeasures 1.0.1 did; and to a real one.

ATDM_FLEXMEASURES_PYTHON=…/bin/python     a Python with flexmeasures 1.0.1 and fakeredis: its own schemas, and with
                                          PostgreSQL beside it a real server (in `make soak`)
"""

import json
import logging
import math
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from aiohttp import web
from scipy.optimize import linprog

import atdm
from atdm.deploy.server import _free_port
from atdm.sinks import flexmeasures
from atdm.sinks.results import Results, Sent
from atdm.sinks.send import Sinks
from atdm.sinks.settings import FlexMeasures
from atdm.use.planned import planned
from atdm.use.storage import Storage
from tests.data.servers import binary, command, folder, run
from tests.sinks.conftest import COMFORT, MADE, POWER, serving

HERE = Path(__file__).parent
EMAIL, PASSWORD, TOKEN = "desk@example.org", "not-a-secret-1", "canary-token-55Kp"
SENSORS = {"temperature": 1, "temperature_low": 2, "temperature_high": 3, "load": 4, "load_low": 5, "load_high": 6,
           "schedule": 7}  # fmt: skip
JOB = "5af1af42-0006-470d-9eeb-b240b4ff425b"


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATDM_FLEXMEASURES_PASSWORD", PASSWORD)


def settings(port: int, **more: Any) -> FlexMeasures:
    given = {**SENSORS, "price": "0.3 EUR/kWh", **more}
    return FlexMeasures(url=f"http://127.0.0.1:{port}", email=EMAIL, **given)


class Recorded:
    """Answers recorded from a FlexMeasures 1.0.1 server, and what was asked."""

    def __init__(self, **schedule: Any) -> None:
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.schedule = {"start": "2024-01-17T16:00:00+00:00", "duration": "P1DT0H0M0S", "unit": "kW",
                         "values": [5.0] * 24, "status": "PROCESSED", **schedule}  # fmt: skip
        self.polls = 0

    def routes(self) -> list[Any]:
        api = "/api/v3_0"
        return [
            web.post("/api/requestAuthToken", self.login),
            web.post(api + "/sensors/{sensor}/data", self.data),
            web.get(api + "/sensors/{sensor}", self.sensor),
            web.post(api + "/assets/{asset}/schedules/trigger", self.trigger),
            web.get(api + "/jobs/{job}", self.job),
            web.get(api + "/sensors/{sensor}/schedules/{job}", self.planned),
        ]

    def answer(self, code: int = 200, /, **content: Any) -> web.Response:
        return web.json_response(content, status=code, headers={"FlexMeasures-Version": "1.0.1"})

    async def login(self, request: web.Request) -> web.Response:
        told = await request.json()
        if told != {"email": EMAIL, "password": PASSWORD}:
            return self.answer(401, errors=["User password does not match."], status=401)
        return self.answer(auth_token=TOKEN, user_id=1, status=200)

    async def data(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == TOKEN
        if request.match_info["sensor"] == "99":
            return self.answer(404, message="Sensor 99 not found", status=404)
        self.posts.append((request.match_info["sensor"], await request.json()))
        return self.answer(message="Request has been processed.", status="PROCESSED")

    async def sensor(self, request: web.Request) -> web.Response:
        number = int(request.match_info["sensor"])
        return self.answer(id=number, generic_asset_id=1, unit="kW", event_resolution="PT1H", attributes="{}")

    async def trigger(self, request: web.Request) -> web.Response:
        self.posts.append(("trigger", await request.json()))
        return self.answer(202, job=JOB, schedule=JOB, status="ACCEPTED", message="accepted for processing")

    async def job(self, request: web.Request) -> web.Response:
        self.polls += 1
        return self.answer(202, status="QUEUED") if self.polls == 1 else self.answer(status="FINISHED", message="done")

    async def planned(self, request: web.Request) -> web.Response:
        assert request.query["unit"] == "kW"
        return self.answer(**self.schedule)


def send(server: Recorded, results: Results, **more: Any) -> Any:
    with serving(server.routes()) as port:
        [sent] = Sinks({"flexmeasures": settings(port, **more)}).send(results)
    return sent


def test_state_and_forecast_are_posted_with_when_they_were_believed(results, caplog):
    caplog.set_level(logging.DEBUG)
    server = Recorded()
    sent = send(server, results)
    assert sent.failed is None, sent.failed
    assert sent.messages == len(server.posts) == 9
    by_sensor: dict[str, list[dict[str, Any]]] = {}
    for sensor, body in server.posts[:-1]:
        by_sensor.setdefault(sensor, []).append(body)
        assert pd.Timestamp(body["prior"]) == MADE
    state, forecast = by_sensor["1"]
    assert (state["start"], state["unit"]) == ("2024-01-16T16:00:00+00:00", "°C")
    np.testing.assert_allclose(state["values"], results.observed["aggregate_temp_c"], atol=1e-6)
    assert forecast["start"] == "2024-01-17T16:00:00+00:00" and forecast["duration"] == "P1DT0H0M0S"
    for sensor, column in (("2", "low_80"), ("3", "high_80"), ("5", "load_low_80"), ("6", "load_high_80")):
        [band] = by_sensor[sensor]  # the API takes no probabilities: sensors of their own
        np.testing.assert_allclose(band["values"], results.forecast[column], atol=1e-6)
    assert sent.schedule.tolist() == [5.0] * 24 and sent.schedule.index[0] == results.storage.time[0]
    for secret in (PASSWORD, TOKEN):
        assert secret not in caplog.text + repr(sent) + repr(settings(1))


def test_a_gap_in_what_was_observed_is_not_filled(results):
    holes = results.observed.drop(results.observed.index[[5, 6, 11]])
    found = [p for p in flexmeasures.posts(settings(1), replace(results, observed=holes)) if p.sensor == 4][:-1]
    assert [len(post.values) for post in found] == [5, 4, 12]
    assert [post.start for post in found] == [results.observed.index[i] for i in (0, 7, 12)]


def test_what_is_asked_of_a_schedule(results):
    """Comfort may be missed at a price; limits may not; a heater never produces."""
    server = Recorded()
    send(server, results)
    kind, asked = server.posts[-1]
    assert kind == "trigger" and asked["flex-context"] == {
        "relax-soc-constraints": True, "relax-capacity-constraints": False, "consumption-price": "0.3 EUR/kWh"
    }  # fmt: skip
    [model] = asked["flex-model"]
    assert model["sensor"] == 7 and model["production-capacity"] == "0 kW"
    number = lambda text: float(text.split()[0])  # noqa: E731
    minima, maxima = ([number(v["value"]) for v in model[f"soc-{name}"]] for name in ("minima", "maxima"))
    assert number(model["soc-min"]) == 0 <= min(minima) and max(maxima) <= number(model["soc-max"])
    assert flexmeasures.flex_context(8)["consumption-price"] == {"sensor": 8}


def soc_run(model: dict[str, Any], load: np.ndarray) -> np.ndarray:
    """State of charge after each step by FlexMeasures' own arithmetic (apply_stock_changes_and_losses, "linear")."""
    number = lambda text: float(text.split()[0])  # noqa: E731
    keep, soc = number(model["storage-efficiency"]) / 100, number(model["soc-at-start"])
    usage, gain = ([number(v["value"]) for v in model[f"soc-{name}"][0]] for name in ("usage", "gain"))
    efficiency = [number(v["value"]) / 100 for v in model.get("charging-efficiency", [])] or [1.0] * len(load)
    found = []
    for kw, less, more, share in zip(load, usage, gain, efficiency, strict=True):
        soc = keep * soc + (share * kw - less + more) * (keep - 1) / math.log(keep)  # steps of one hour
        found.append(soc)
    return np.array(found)


@pytest.mark.parametrize("electric", [False, True])
def test_state_of_charge_is_the_level_of_the_store(results, electric):
    store = results.storage
    if electric:
        store = replace(store, heat=np.linspace(0.8, 1.2, len(store.time)))
    model = flexmeasures.flex_model(store)
    load = np.random.default_rng(1).uniform(*POWER, len(store.time))
    degree = store.capacity * (store.retention - 1) / math.log(store.retention)
    np.testing.assert_allclose(soc_run(model, load) / degree + store.range[0], store.run(load), atol=1e-5)
    ends = [float(v["value"].split()[0]) / degree + store.range[0] for v in model["soc-minima"]]
    np.testing.assert_allclose(ends, store.low, atol=1e-5)


def test_without_an_offer_no_schedule_is_asked_for_and_the_reason_is_said(plain):
    server = Recorded()
    sent = send(server, plain)
    assert sent.failed is None and sent.messages == 8 and all(kind != "trigger" for kind, _ in server.posts)
    assert sent.notes == ("no schedule: no flexibility was asked for: give a comfort band",)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [({"values": [1.0] * 12}, "give the power sensor the model's step"), ({"values": [-9.0] * 24}, "leaves 0 to 40 kW"),
     ({"values": [float("nan")] * 24}, "leaves 0 to 40 kW"), ({"values": ["x"]}, "cannot be read"),
     ({"unit": "MW"}, "give the power sensor"), ({"values": []}, "cannot be read")],
)  # fmt: skip
def test_a_schedule_that_is_none_is_not_believed(results, schedule, words):
    sent = send(Recorded(**schedule), results)
    assert sent.failed is not None and words in sent.failed and sent.schedule is None and sent.messages == 9


def test_a_server_that_refuses_is_a_line(results, monkeypatch):
    sent = send(Recorded(), results, temperature=99)
    assert "404" in sent.failed and sent.messages == 0
    monkeypatch.setenv("ATDM_FLEXMEASURES_PASSWORD", "canary-wrong-8Hh")
    sent = send(Recorded(), results)
    assert "password does not match" in sent.failed and "canary" not in sent.failed
    [sent] = Sinks({"flexmeasures": settings(1)}).send(results)
    assert "Cannot connect" in sent.failed and "\n" not in sent.failed
    monkeypatch.delenv("ATDM_FLEXMEASURES_PASSWORD")
    assert "ATDM_FLEXMEASURES_PASSWORD" in Sinks({"flexmeasures": settings(1)}).send(results)[0].failed


def interpreter() -> str:
    found = os.environ.get("ATDM_FLEXMEASURES_PYTHON")
    if not found:
        pytest.skip("ATDM_FLEXMEASURES_PYTHON is not set: a Python with flexmeasures and fakeredis")
    return found


def test_the_schemas_of_flexmeasures_take_the_flex_model(results):
    asked = {"start": results.storage.time[0].isoformat(), "flex-model": flexmeasures.flex_model(results.storage),
             "flex-context": flexmeasures.flex_context("0.3 EUR/kWh")}  # fmt: skip
    done = subprocess.run([interpreter(), HERE / "flexmeasures_schema.py"], input=json.dumps(asked), text=True,
                          capture_output=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["soc_at_start"] == pytest.approx(float(asked["flex-model"]["soc-at-start"].split()[0]) / 1000)
    assert found["minima"] == found["maxima"] == found["usage"] == 24
    assert found["relaxed"] == {"soc": True, "capacity": False}


@contextmanager
def real_server() -> Iterator[tuple[int, dict[str, int]]]:
    """FlexMeasures with PostgreSQL on the loopback interface: its port, and the ids of its sensors."""
    python = interpreter()
    tools = [binary(name) for name in ("initdb", "pg_ctl", "createdb", "psql")]
    if None in tools:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    initdb, pg_ctl, createdb, psql = tools
    with folder("postgres") as home:
        run(initdb, "-D", home / "data", "-U", "fm", "-A", "trust", "-E", "UTF8", "--no-sync", user="postgres")
        options = f"-k {home} -c listen_addresses='' -c fsync=off"
        run(pg_ctl, "-D", home / "data", "-o", options, "-l", home / "log", "-w", "start", user="postgres")
        process = None
        try:
            run(createdb, "-h", home, "-U", "fm", "fm", user="postgres")
            extensions = "CREATE EXTENSION cube; CREATE EXTENSION earthdistance"
            run(psql, "-h", home, "-U", "fm", "-d", "fm", "-c", extensions, user="postgres")
            port = _free_port()
            url = f"postgresql+psycopg2://fm@/fm?host={home}"
            process = subprocess.Popen([python, HERE / "flexmeasures_server.py", url, str(port)], text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=home,
                                       env={**os.environ, "HOME": str(home)})  # fmt: skip
            alarm = threading.Timer(300, process.kill)
            alarm.start()
            ready = next((line for line in process.stdout if line.startswith('{"temperature"')), None)
            alarm.cancel()
            assert ready is not None, "the server ended before it was ready"
            yield port, json.loads(ready)
        finally:
            if process is not None:
                process.kill()
                process.communicate()
            subprocess.run(command(pg_ctl, "-D", home / "data", "-m", "immediate", "stop", user="postgres"),
                           capture_output=True, timeout=60)  # fmt: skip


@pytest.mark.soak
def test_a_real_server_takes_everything_and_plans_within_comfort(results, world):
    """Its schedule is the least load for the store (by a linear programme of this test's own), and keeps comfort in the
    whole planning model, of which the store is one mode. Also where a kW heats more or less than that."""
    store = results.storage
    pumps = replace(store, heat=np.linspace(0.8, 1.2, len(store.time)))
    electric = replace(results, offer=replace(results.offer, storage=pumps))
    with real_server() as (port, sensors):
        sinks = Sinks({"flexmeasures": settings(port, **{name: sensors[name] for name in SENSORS})})
        sent = [patient(sinks, each) for each in (results, electric)]
        data = asked(port, sensors["temperature"], results)
    known = np.concatenate([results.observed["aggregate_temp_c"], results.forecast["aggregate_temp_c"]])
    np.testing.assert_allclose(data, known, atol=1e-5)
    loads = [each.schedule.to_numpy() for each in sent]
    for load, each in zip(loads, (store, pumps), strict=True):
        assert load.sum() == pytest.approx(least_load(each), rel=1e-4)
    fit, weather, observed = world
    rows, past = weather.loc[observed.index[-2] :].iloc[: len(store.time) + 2], observed.iloc[-2:]
    whole = (
        planned(fit.chosen)
        .used.simulate(np.concatenate([past["load_kw"], loads[0]]), rows, past["aggregate_temp_c"].to_numpy())
        .iloc[2:]
    )
    print(f"{sent[0].words()}; the least is {least_load(store):.1f} kWh; {whole.min():.2f} °C at least")
    assert COMFORT[0] - 1e-3 <= whole.min() and whole.max() <= COMFORT[1] + 1e-3


def patient(sinks: Sinks, results: Results) -> Sent:
    """The first requests of a server that has just started may take longer than the client waits."""
    for _ in range(3):
        [sent] = sinks.send(results)
        if sent.failed is None:
            return sent
    pytest.fail(str(sent.failed))


def least_load(store: Storage) -> float:
    """Of all that keep the store within its limits, over steps of an hour. [kWh]"""
    count = len(store.time)
    lags = np.subtract.outer(np.arange(count), np.arange(count))
    response = np.where(lags >= 0, store.gain * store.retention ** np.maximum(lags, 0), 0.0) * store.heat
    base = store.run(np.zeros(count))
    found = linprog(np.ones(count), A_ub=np.vstack([response, -response]),
                    b_ub=np.concatenate([store.high - base, base - store.low]), bounds=[POWER] * count)  # fmt: skip
    assert found.status == 0
    return float(found.fun)


def asked(port: int, sensor: int, results: Results) -> list[float]:
    """What the server has on a sensor, asked through its API."""
    import asyncio

    from flexmeasures_client.client import FlexMeasuresClient

    async def ask() -> dict[str, Any]:
        client = FlexMeasuresClient(email=EMAIL, password=PASSWORD, host="127.0.0.1", port=port)
        try:
            return await client.get_sensor_data(
                sensor, start=results.observed.index[0], duration="P2D", unit="°C", resolution="PT1H"
            )
        finally:
            await client.close()

    return asyncio.run(ask())["values"]


def test_cooling_has_no_storage(world):
    fit, weather, _ = world
    summer = weather.assign(outdoor_temp_c=32.0)
    offer = atdm.flexibility(fit, summer, (20.0, 24.0), initial=[22.0, 22.0], power=(-40.0, 0.0))
    with pytest.raises(atdm.UsageError, match="no equivalent storage"):
        flexmeasures.storage_model(offer)
