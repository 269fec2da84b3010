"""The whole deployment on one machine: enrolment, a NATS server, a file per agent, processes of their own; beside it
the same fit in one process, with the same keys, to compare every released number with.

Dither comes from the agents' long-term secrets and nothing else in `blind` or `moments` is random in the answer, so
with the same secrets both must agree to the last bit. `paper` draws fresh transforms and agrees to about 1e-8.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from atdm.data import Cluster
from atdm.data.clock import timestamps
from atdm.data.format import Format
from atdm.deploy.agent import AgentFiles, Say, describe_plan, prepare_agent
from atdm.deploy.aggregator import Deployed, Rows, check_offered, plan_from
from atdm.deploy.enrolment import (
    create_agent,
    create_aggregator,
    create_authority,
    create_roster,
    folder_name,
)  # fmt: skip
from atdm.deploy.events import OnEvent, from_line, unseen
from atdm.deploy.notices import OwnWeather
from atdm.deploy.observe import collect_observation, company_of, observe_plan
from atdm.deploy.own import weather_from
from atdm.deploy.server import LocalServer
from atdm.errors import RunAborted, UsageError
from atdm.kernel.design import COEFFICIENTS
from atdm.model.fitted import Model
from atdm.options import FitOptions
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.part import Host
from atdm.protocol.plan import MOST_DAYS, Plan, last_row
from atdm.protocol.rules import Rules
from atdm.run import check_agents, collect, cost_of, outcome_of, rows_of_plan
from atdm.transport import local

AGENTS_PER_PROCESS = 8
LOOK_EVERY = 0.1  # s between two looks at how the processes do
WAIT = 600.0  # s for processes to start and for each answer: more means that something hangs
MEMORY_BYTES = 2 << 30  # free in memory for the files of a rehearsal to be kept there
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")}


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the deployment gave, what one process gives, and the files the aggregator wrote."""

    deployed: dict[str, Any]
    in_process: dict[str, Any]
    files: dict[str, bytes]
    processes: int
    observed: dict[str, Any] | None = None  # what `atdm observe` printed, beside what one process observes

    @property
    def identical(self) -> bool:
        return bool(self.deployed["released"] == self.in_process["released"])

    @property
    def difference(self) -> float:
        """Largest difference of a coefficient, relative to the largest of its kind."""
        worst = 0.0
        for kind in COEFFICIENTS:
            a, b = (np.asarray(d["model"][kind], dtype=float) for d in (self.deployed, self.in_process))
            worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
        return worst

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.deployed,
            "processes": self.processes,
            "in_process": {
                "identical": self.identical,
                "difference": self.difference,
                "released": self.in_process["released"],
                "model": self.in_process["model"],
                "cost": self.in_process["cost"],
            },
            **({"observed": self.observed} if self.observed is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class Stage:
    """The folder of a rehearsal, with everything enrolled and every file in its place."""

    folder: Path
    names: tuple[str, ...]
    weather: Path
    declared: Format
    rules: Rules

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def roster(self) -> Path:
        return self.folder / "roster.json"

    def identity(self, name: str) -> Path:
        return self.keys / folder_name(name)

    def data(self, name: str) -> Path:
        return self.folder / "data" / f"{self.names.index(name)}.parquet"

    def server(self) -> LocalServer:
        return LocalServer(self.folder / "nats")

    def agents_command(self, names: Sequence[str], url: str) -> list[str]:
        pairs = [part for n in names for part in ("--identity", str(self.identity(n)), "--data", str(self.data(n)))]
        own = ["--dither", repr(self.rules.dither), "--least-agents", str(self.rules.least_agents)]
        own += ["--weights", self.rules.weights, "--least-days", repr(self.rules.least_days)]
        own += [part for protocol in self.rules.protocols for part in ("--protocol", protocol)]
        return [*_program("agent"), *pairs, "--roster", str(self.roster), *self._weather(), "--nats", url, *own]

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    def aggregator_command(self, url: str, plan: Plan, output: Path, *, wait: float = WAIT) -> list[str]:
        written = self.folder / "plan.json"
        written.write_bytes(msgspec.json.encode(plan))
        return [
            *_program("aggregator"), "--identity", str(self.keys / "aggregator"), "--roster", str(self.roster),
            *self._weather(), "--nats", url, "-o", str(output), "--json", "--plan", str(written),
            "--wait", repr(wait), "--deadline", repr(wait), "--write-anyway", "--events", str(self.events),
            "--portion", str(MOST_DAYS),  # one run, as in one process
        ]  # fmt: skip

    def observer_command(self, url: str, model: Path, rows: int, step_seconds: int, end: pd.Timestamp) -> list[str]:
        return [
            *_program("observe"), str(model), "--identity", str(self.keys / "aggregator"), "--roster", str(self.roster),
            "--nats", url, "--json", "--wait", repr(WAIT), "--deadline", repr(WAIT), "--end", end.isoformat(),
            "--back", f"{rows * step_seconds}s",
        ]  # fmt: skip

    def _weather(self) -> list[str]:
        d = self.declared
        zone = ["--timezone", d.timezone] if d.timezone is not None else []
        options = ["--delimiter", d.delimiter, "--decimal", d.decimal, *(["--sort"] if d.sort else [])]
        return ["--weather", str(self.weather), *zone, *options]


def rehearse(
    cluster: Cluster,
    weather: Path,
    options: FitOptions,
    say: Say,
    *,
    declared: Format | None = None,
    rules: Rules | None = None,
    agents_per_process: int = AGENTS_PER_PROCESS,
    report: OnEvent = unseen,
    observe: int = 0,
) -> Rehearsal:
    """Enrol, start everything, fit, compare, and take everything down again, however it ends.

    observe: rows at the end that come into the agents' files after the fit, and are collected then.
    """
    if agents_per_process < 1:
        raise UsageError(f"agents_per_process {agents_per_process}: give at least 1")
    check_offered(options.protocol)
    if not 0 <= observe < len(cluster.time) - 1 or (observe and options.protocol != "blind"):
        raise UsageError(f"observe {observe}: give fewer rows than the cluster's {len(cluster.time)}, under blind")
    rules = replace(Rules() if rules is None else rules, protocols=(options.protocol,), weights=options.weights)
    check_agents(len(cluster.agents), options.protocol, rules, options.weights)
    with tempfile.TemporaryDirectory(prefix="atdm-rehearsal-", dir=_scratch()) as name:
        say(f"enrolling {len(cluster.agents)} agents")
        stage = set_up(Path(name), cluster, weather, Format() if declared is None else declared, rules, later=observe)
        plan = plan_of(stage, cluster, options, later=observe)
        say(f"plan {describe_plan(plan)}")
        groups = [cluster.agents[i : i + agents_per_process] for i in range(0, len(cluster.agents), agents_per_process)]
        with stage.server() as server, running(stage, groups, server.url) as agents:
            say(f"NATS server on {server.url}, {len(groups)} processes with up to {agents_per_process} agents each")
            out = stage.folder / "out"
            deployed = _run_aggregator(stage, stage.aggregator_command(server.url, plan, out), agents, report)
            seen = None
            if observe:
                say(f"{observe} rows more, observed")
                write_data(stage, cluster)
                command = stage.observer_command(
                    server.url, out / "model.json", observe, plan.step_seconds, cluster.time[-1]
                )
                seen = _run_aggregator(stage, command, agents, unseen)
        say("the same in one process")
        alone = _in_process_apart(stage, plan, observe)
        files = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
        observed = None if seen is None else compare_observed(seen, alone["observed"])
        return Rehearsal(deployed, alone, files, len(groups) + 2, observed)


def compare_observed(seen: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    """What was observed over NATS, beside one process with the same keys and beside Σ ξ_i x_i of the bare readings."""
    state = np.array([row["aggregate_temp_c"] for row in seen["rows"]])
    bare = np.array([alone["bare"][row["time"]] for row in seen["rows"]])
    return {
        **seen,
        "identical": seen["rows"] == alone["rows"],
        "difference_c": float(np.abs(state - bare).max()) if len(state) else None,  # rounding and dither [K]
    }


def set_up(
    folder: Path, cluster: Cluster, weather: Path, declared: Format, rules: Rules, later: int = 0
) -> Stage:  # fmt: skip
    """Keys, roster, server configuration and data files, as the parties would have them; later: rows not there yet."""
    stage = Stage(folder, cluster.agents, weather.resolve(), declared, rules)
    create_authority(stage.keys, os.urandom, rehearsal=True)
    create_aggregator(stage.keys, os.urandom, rehearsal=True)
    (folder / "data").mkdir()
    for name in cluster.agents:
        create_agent(stage.keys, name, os.urandom)
    write_data(stage, cluster, later)
    create_roster(stage.keys, stage.roster, ["127.0.0.1", "localhost"])
    return stage


def write_data(stage: Stage, cluster: Cluster, later: int = 0) -> None:
    """Every agent's own file; it appears whole, because the agent may be reading it."""
    rows = slice(0, len(cluster.time) - later)
    for name in cluster.agents:
        table = pd.DataFrame({
            "time": cluster.time[rows], "agent": name, "building": str(cluster.owner[name]),
            "indoor_temp_c": cluster.temperature[name].to_numpy()[rows],
            "load_kw": cluster.load[name].to_numpy()[rows],
        })  # fmt: skip
        unfinished = stage.data(name).with_suffix(".partial")
        table.to_parquet(unfinished)
        unfinished.replace(stage.data(name))


def plan_of(
    stage: Stage, cluster: Cluster, options: FitOptions, rules: Rules | None = None, later: int = 0
) -> Plan:  # fmt: skip
    start, end = cluster.time[0], cluster.time[-1 - later]
    return plan_from(stage.weather, options, rules, declared=stage.declared, start=start, end=end)[0]


@contextmanager
def running(stage: Stage, groups: Sequence[Sequence[str]], url: str) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """The agents' processes; gone when the block is left."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for i, group in enumerate(groups):
            processes.append(spawn(stage.agents_command(group, url), stage.folder / f"agents-{i}.log"))
        yield processes
    finally:
        stop(processes)


def spawn(command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=_environment(),
            start_new_session=True,
        )  # fmt: skip


def stop(processes: Sequence["subprocess.Popen[bytes]"], patience: float = 10.0) -> None:
    """Ask to stop, then end those that do not."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + patience
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run_aggregator(
    stage: Stage, command: Sequence[str], agents: Sequence["subprocess.Popen[bytes]"], report: OnEvent
) -> dict[str, Any]:
    with (stage.folder / "aggregator.log").open("wb") as errors:
        aggregator = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=_environment(),
            start_new_session=True,
        )  # fmt: skip
    told = 0
    try:
        while True:
            try:
                printed, _ = aggregator.communicate(timeout=LOOK_EVERY)
                break
            except subprocess.TimeoutExpired:
                told = _pass_on(stage.events, told, report)
                for i, process in enumerate(agents):
                    if process.poll() is not None:
                        why = _last_line(stage.folder / f"agents-{i}.log")
                        raise RunAborted(f"an agents' process ended: {why}") from None
    finally:
        if aggregator.poll() is None:
            stop([aggregator])
        _pass_on(stage.events, told, report)
    if aggregator.returncode:
        raise RunAborted(_last_line(stage.folder / "aggregator.log").removeprefix("atdm: "))
    document: dict[str, Any] = json.loads(printed)
    return document


def _pass_on(events: Path, told: int, report: OnEvent) -> int:
    """Report the aggregator's events after the first `told` bytes; returns how many bytes have been told then."""
    if not events.exists():
        return told
    with events.open("rb") as file:
        file.seek(told)
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is still being written
            report(from_line(line))
            told += len(line)
    return told


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _in_process_apart(stage: Stage, plan: Plan, observe: int) -> dict[str, Any]:
    """In a process of its own, so that it computes with as many threads as the agents did."""
    task = {
        "folder": str(stage.folder), "names": stage.names, "weather": str(stage.weather),
        "declared": asdict(stage.declared), "rules": asdict(stage.rules),
        "plan": msgspec.json.encode(plan).decode(), "observe": observe,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "atdm.deploy.rehearse"], input=json.dumps(task).encode(), capture_output=True,
        env=_environment(), check=False,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RunAborted(f"the fit in one process failed: {lines[-1] if lines else 'it said nothing'}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def run_beside(stage: Stage, plan: Plan) -> tuple[Deployed, list[Agent], Aggregator]:
    """A fit, and the parties after it; agents know the rows up to its end, and read on when asked for more."""
    weather, host = weather_from(stage.weather, stage.declared), Host()
    states = Path(tempfile.mkdtemp(prefix="beside-", dir=stage.folder))  # other accounts than those of the processes
    agents = []
    for name in stage.names:
        files = AgentFiles(identity=stage.identity(name), data=stage.data(name), state=states / folder_name(name))
        running = prepare_agent(
            files, stage.roster, OwnWeather(path=stage.weather, declared=stage.declared), stage.rules,
            declared=stage.declared, host=host,
            until=last_row(plan), apart=True,
        )  # fmt: skip
        running.close()  # nobody else knows its folder
        agents.append(running.agent)
    roster = agents[0].roster
    agents.sort(key=lambda agent: roster.index(agent.own.identity.public))
    asked = rows_of_plan(plan) if plan.weights == "equal" else plan
    role = Aggregator(plan=asked, roster=roster, weather=weather)
    traffic = local.run(role, agents)
    if plan.weights == "equal":
        rows = Rows()
        rows.take(role)
        outcome = rows.outcome(plan, weather)
    else:
        outcome = outcome_of(role)
    ledger = role.notebook.rows()
    fit = collect(plan, outcome, weather, agents=len(role.members), ledger=ledger, cost=cost_of(traffic, outcome.sums),
                  run=role.run)  # fmt: skip
    return Deployed(fit, ()), agents, role


def _observed_in_process(model: Model, agents: Sequence[Agent], fitted: Aggregator, rows: int) -> dict[str, Any]:
    """The rows after the fit, observed; and Σ ξ_i x_i of the readings as they are, which only a simulation can know."""
    if fitted.run is None or model.origin is None:
        raise RunAborted("the run ended without a result")
    plan = observe_plan(model, model.origin.end + rows * model.step)
    role = Aggregator(
        plan=plan, roster=agents[0].roster, weather=agents[0].own.weather, attempt=1, choose=company_of(model, plan)
    )
    local.run(role, agents)
    found = collect_observation(role, role.notebook.rows())
    time = found.table.index
    state = np.zeros(len(time))
    for agent in agents:
        own = pd.Series(agent.own.readings.temperature, index=timestamps(agent.own.readings.time))
        state += agent.weight * own.reindex(time).to_numpy()
    return {**found.as_dict(), "bare": {row["time"]: s for row, s in zip(found.as_dict()["rows"], state, strict=True)}}


def _scratch() -> str | None:
    """In memory where there is room, unless TMPDIR is set: agents force each answer to disk, and in a deployment each
    has a disk of its own, not all of them one."""
    memory = Path("/dev/shm")  # noqa: S108 - a private folder is made in it
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES
    return str(memory) if roomy and not os.environ.get("TMPDIR") else None


def _program(command: str) -> list[str]:
    return [sys.executable, "-m", "atdm", command]


def _environment() -> dict[str, str]:
    return {**os.environ, **ONE_THREAD, "PYTHONUNBUFFERED": "1"}


def _main() -> None:
    task = json.load(sys.stdin)
    rules = {**task["rules"], **{k: tuple(v) for k, v in task["rules"].items() if isinstance(v, list)}}
    stage = Stage(
        Path(task["folder"]), tuple(task["names"]), Path(task["weather"]), Format(**task["declared"]), Rules(**rules)
    )
    done, agents, role = run_beside(stage, msgspec.json.decode(task["plan"], type=Plan))
    document = done.as_dict()
    if task["observe"]:
        document["observed"] = _observed_in_process(done.fit.model, agents, role, task["observe"])
    print(json.dumps(document))


if __name__ == "__main__":
    _main()
