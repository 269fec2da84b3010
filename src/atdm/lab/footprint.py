"""What the command takes before it does anything: CPU seconds to start, and memory of an agent that waits."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from atdm.data.format import Format
from atdm.deploy.rehearse import Stage, set_up, spawn, stop
from atdm.errors import RunAborted
from atdm.lab.bench import synthetic
from atdm.protocol.rules import Rules

STARTS = 5  # of each command; the median counts
AGENTS, ROWS = 10, 1440  # of the cluster whose first home is looked at: a month of half-hours
READY_SECONDS = 60.0  # for the agent to say that it has read its file
SETTLE_SECONDS = 3.0  # after that, before its memory is looked at


def footprint() -> list[dict[str, Any]]:
    """Rows of what, cpu_seconds and resident_mb."""
    started = [
        {"what": f"atdm {word}", "cpu_seconds": cpu_seconds([sys.executable, "-m", "atdm", word]), "resident_mb": None}
        for word in ("--version", "--help")
    ]
    return [*started, {"what": "an idle atdm agent, readings in CSV", "cpu_seconds": None, "resident_mb": idle_agent()}]


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a command, the median of a few."""
    spent = []
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(spent)


def idle_agent() -> float:
    """Resident memory of an agent with a month of readings that waits for a server to ask it. [MB]"""
    with tempfile.TemporaryDirectory(prefix="atdm-footprint-") as name:
        folder, cluster = Path(name), synthetic(AGENTS, ROWS)
        weather = folder / "weather.csv"
        cluster.weather.to_csv(weather, index_label="time")
        stage = set_up(folder, cluster, weather, Format(), Rules())
        home = stage.names[0]
        own = stage.data(home).with_suffix(".csv")
        columns = {"agent": home, "indoor_temp_c": cluster.temperature[home], "load_kw": cluster.load[home]}
        pd.DataFrame(columns).to_csv(own, index_label="time")
        with stage.server() as server:
            command = [own.as_posix() if word == str(stage.data(home)) else word
                       for word in stage.agents_command([home], server.url)]  # fmt: skip
            return _resident(stage, command)


def _resident(stage: Stage, command: list[str]) -> float:
    log = stage.folder / "idle.log"
    agent = spawn(command, log)
    try:
        end = time.monotonic() + READY_SECONDS
        while "checked" not in log.read_text():
            if agent.poll() is not None or time.monotonic() > end:
                raise RunAborted(f"the agent did not start: {log.read_text().strip()}")
            time.sleep(0.1)
        time.sleep(SETTLE_SECONDS)
        lines = Path(f"/proc/{agent.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024
    finally:
        stop([agent])
