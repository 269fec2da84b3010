"""`atdm serve` as a process, beside agents and a real NATS server: killed, started again, and looked through for what
it must not have."""

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from atdm.data import Cluster
from atdm.data.clock import seconds
from atdm.data.format import Format
from atdm.deploy.agent import read_account
from atdm.deploy.rehearse import ONE_THREAD, Stage, running, set_up
from atdm.protocol.rules import Rules
from tests.clusters import tiny
from tests.deploy.theatre import write_weather

AGENTS, DAYS, AHEAD = 12, 9, 2 * 48
CANARY = "27.6173"  # °C, a home's reading that is nobody else's business
PATIENCE = 90.0  # s
RULES = """
record = "desk/desk.sqlite"
[fleet]
identity = "{aggregator}"
roster = "{roster}"
servers = ["{url}"]
wait = "20s"
deadline = "20s"
[weather]
file = "{weather}"
[collect]
history = "8d"
outages = "leave"
[model]
first_after = "5d"
[page]
listen = "127.0.0.1:{port}"
[sinks.mqtt]  # where nobody listens: that stops nobody
host = "127.0.0.1"
port = 1
"""


def homes_of_now() -> Cluster:
    """Nine days of half-hours that end now, and weather for two days more."""
    end = pd.Timestamp.now(tz="UTC").floor("30min")
    made = tiny(5, agents=AGENTS, rows=DAYS * 48 + AHEAD, step="30min")
    time_of_now = pd.date_range(end=end + AHEAD * pd.Timedelta("30min"), periods=len(made.time), freq="30min")
    frames = [made.temperature, made.load, made.outdoor, made.solar]
    warm, load, outdoor, solar = (frame.set_axis(time_of_now.rename("time")) for frame in frames)
    warm.iloc[100, 0] = float(CANARY)
    return Cluster.from_frames(warm, load, outdoor, solar, owner=made.owner)


@dataclass
class Desk:
    """A desk's files, and its process while it runs."""

    stage: Stage
    cluster: Cluster
    rules: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None
    log: Path = field(init=False)
    began: int = 0  # where the log of this process begins

    def __post_init__(self) -> None:
        self.log = self.stage.folder / "serve.log"

    @property
    def record(self) -> Path:
        return self.rules.parent / "desk/desk.sqlite"

    def start(self) -> None:
        self.began = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "atdm", "serve", str(self.rules)], stderr=log, stdout=log,
                env={**os.environ, **ONE_THREAD},
            )  # fmt: skip

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(30)

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            token = (self.record.with_suffix(".token")).read_text().strip()
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def until_said(self, words: str) -> None:
        end = time.monotonic() + PATIENCE
        while words not in self.log.read_text()[self.began :] and time.monotonic() < end:
            time.sleep(0.05)

    def until(self, path: str, code: int) -> str:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found, body = self.get(path)
            if found == code:
                return body
            assert self.process is not None and self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError(f"{path} is not {code} within {PATIENCE} s: {self.get(path)} {self.log.read_text()}")

    def rows(self) -> pd.DataFrame:
        if not self.record.exists():
            return pd.DataFrame(columns=["time"])
        with sqlite3.connect(f"file:{self.record}?mode=ro", uri=True) as base:
            return pd.read_sql("SELECT * FROM observed ORDER BY time", base)

    def shown(self, stamps: np.ndarray) -> np.ndarray:
        """How often each home has shown each stamp: homes × stamps."""
        states = [self.stage.identity(name) / "state" for name in self.stage.names]
        return np.array([read_account(state).asked(stamps) for state in states])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    import socket

    cluster = homes_of_now()
    weather = write_weather(cluster, tmp_path / "weather.parquet")
    stage = set_up(tmp_path, cluster, weather, Format(), Rules(), later=AHEAD)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with stage.server() as server, running(stage, [stage.names], server.url):
        rules = tmp_path / "rules.toml"
        rules.write_text(RULES.format(
            aggregator=stage.keys / "aggregator", roster=stage.roster, url=server.url, weather=weather, port=port
        ))  # fmt: skip
        made = Desk(stage, cluster, rules, port)
        yield made
        if made.process is not None and made.process.poll() is None:
            made.end()


def test_killed_at_random_moments_it_loses_nothing_and_asks_for_nothing_twice(desk: Desk) -> None:
    seed = int(os.environ.get("ATDM_SEED", "11"))
    print(f"ATDM_SEED={seed}")
    rng = np.random.default_rng(seed)
    counted: dict[int, np.ndarray] = {}  # stamp that was in the record at a kill → how often homes had shown it then
    for _ in range(4):
        desk.start()
        desk.until_said("page: ")
        time.sleep(rng.uniform(0.0, 3.0))
        desk.end()
        stamps = desk.rows()["time"].to_numpy(np.int64)
        if len(stamps):
            counted |= dict(zip(stamps.tolist(), desk.shown(stamps).T, strict=True))
    desk.start()
    state = json.loads(desk.until("/v1/state", 200))
    desk.until("/v1/forecast", 200)
    state = json.loads(desk.get("/v1/state")[1])
    assert desk.end(signal.SIGTERM) == 0 and "stopped" in desk.log.read_text()

    rows = desk.rows()
    begun, first = state["begun"], -(-int(state["begun"] - 8 * 86400) // 1800) * 1800
    assert rows["time"].tolist() == list(range(first, rows["time"].max() + 1, 1800)) and state["rows"] == len(rows)
    assert rows["time"].max() > begun - 2 * 1800 - 61, "up to the last row that had ended"
    index = pd.to_datetime(rows["time"], unit="s", utc=True)
    mean, total = desk.cluster.temperature.loc[index].mean(axis=1), desk.cluster.load.loc[index].sum(axis=1)
    np.testing.assert_allclose(rows["aggregate_temp_c"], mean, atol=2e-3)
    np.testing.assert_allclose(rows["load_kw"], total, atol=2e-2)
    assert (rows["agents"] == AGENTS).all()
    stamps = rows["time"].to_numpy(np.int64)
    shown = desk.shown(stamps)
    assert shown.min() >= 1 and shown.max() <= 4
    at = {stamp: i for i, stamp in enumerate(stamps.tolist())}
    for stamp, before in counted.items():
        np.testing.assert_array_equal(
            shown[:, at[stamp]], before, err_msg="a row that was on disk is not asked for again"
        )


def test_no_reading_key_or_token_is_where_it_does_not_belong(desk: Desk) -> None:
    desk.start()
    desk.until("/v1/forecast", 200)
    told = [desk.get(path)[1] for path in (
        "/", "/v1/state", "/v1/model", "/v1/model.json", "/v1/fleet", "/v1/forecast", "/v1/flexibility", "/metrics",
        "/health", "/openapi.json",
    )]  # fmt: skip
    assert all(told)
    desk.end(signal.SIGTERM)
    kept = [path.read_bytes() for path in desk.record.parent.iterdir() if path.suffix != ".token"]
    heap = b"\n".join([*(text.encode() for text in told), *kept, desk.log.read_bytes()])
    secrets: dict[str, list[bytes]] = {"a reading": [CANARY.encode()]}
    secrets["a reading as a number"] = [np.float64(CANARY).tobytes(), np.float64(CANARY).byteswap().tobytes()]
    for name in desk.stage.names:
        for file in desk.stage.identity(name).glob("*.key"):
            text = file.read_bytes().split()[-1]
            raw = bytes.fromhex(text.decode()) if file.name != "nats.key" else text
            secrets[f"{name}: {file.name}"] = [text, raw]
    secrets["the token"] = [(desk.record.with_suffix(".token")).read_bytes().strip()]
    assert len(secrets) > 3 * AGENTS
    for what, forms in secrets.items():
        assert not any(form in heap for form in forms), what
    rows = desk.rows().set_index("time")["aggregate_temp_c"]
    mean = rows[int(seconds(desk.cluster.time[[100]])[0])]  # of the row of that reading, which is the aggregator's
    assert np.array(mean, dtype=">f8").tobytes() in heap, "what may be there is found by the same search"


def test_a_check_asks_nobody_and_leaves_nothing(desk: Desk) -> None:
    command = [sys.executable, "-m", "atdm", "serve", str(desk.rules), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, check=True)
    lines = found.stdout.splitlines()
    assert lines[0].startswith(
        f"asks {AGENTS} homes of roster 1 every 1 h for rows of 30 min, where at least 10 owners"
    )
    assert lines[-2:] == ["offers no flexibility", "sends results to mqtt"] and len(lines) == 7
    assert not desk.record.parent.exists()
    desk.rules.write_text(desk.rules.read_text().replace("[collect]", "[colect]"))
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1 and found.stderr.strip().endswith("colect is no rule: did you mean collect?")
