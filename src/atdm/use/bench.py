"""Speed, bytes, memory and scaling, each beside the floor measured in the same run.

The floor is the keystream and the additions of the masks that the run needed, timed alone, in as many processes: no
private sum of these sizes can be faster on this machine. Numbers are ratios within one run, never promises about
another machine.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from atdm.crypto.graph import degree
from atdm.crypto.prg import keystream_floor
from atdm.data import Cluster
from atdm.errors import RunAborted, UsageError
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.messages import Masked, decode_to_aggregator
from atdm.protocol.plan import ProtocolName
from atdm.protocol.rules import Rules
from atdm.run import Share, enrol, fit, make_plan, one_blas_thread, weather_of
from atdm.transport import local, processes
from atdm.transport.local import Progress

ROWS = 1082  # half-hours: 22.5 days, the paper's training rows and its lags
RIDGE_PER_AGENT = 100 / 64  # λ grows with the number of agents as in the paper's own choice for 64
PLAIN_UP_TO = 10_000
PAPER_UP_TO = 64  # above, its upload of rows × agents words per agent is beyond what a laptop simulates in minutes
SEVERAL_PROCESSES_FROM = 1000
BEST_OF = 12  # runs below a second, beside as many floors: a second of a shared machine says little; longer ones: two
FLOOR_AGENTS = 64  # whose masks are timed for the floor; those of more agents take proportionally longer


def synthetic(agents: int, rows: int = ROWS, seed: int = 0) -> Cluster:
    """Agents that follow the model itself with coefficients of their own, sensors in steps of 0.05 °C; seeded."""
    rng = np.random.default_rng(seed)
    time = pd.date_range("2024-01-01", periods=rows, freq="30min", tz="UTC", name="time")
    hour = (np.arange(rows) % 48) / 2
    outdoor = 4 + 3 * np.sin(2 * np.pi * (hour - 9) / 24) + np.cumsum(rng.normal(0, 0.25, rows))
    solar = np.clip(np.sin(2 * np.pi * (hour - 6) / 24), 0, None) * rng.uniform(0.1, 0.6, rows)
    load = rng.gamma(2.0, 0.25, (rows, agents)) * (1 + 0.5 * np.sin(2 * np.pi * (hour - 6) / 24))[:, None]
    keep, gain, sun = rng.uniform(0.9, 0.97, agents), rng.uniform(1, 5, agents), rng.uniform(1, 6, agents)
    people, own = rng.normal(0, 0.3, (48, agents)), rng.exponential(3.0, agents)  # K; some homes are far livelier
    temperature = np.empty((rows, agents))
    temperature[0] = rng.normal(20, 1, agents)
    for t in range(1, rows):
        rest = 14 + 0.3 * outdoor[t] + gain * load[t] + sun * solar[t] + people[t % 48] + own * rng.normal(size=agents)
        temperature[t] = keep * temperature[t - 1] + (1 - keep) * rest
    names = pd.Index([f"agent{i:05d}" for i in range(agents)], name="agent")
    return Cluster.from_frames(
        pd.DataFrame(np.round(temperature / 0.05) * 0.05, index=time, columns=names),
        pd.DataFrame(np.round(load, 4), index=time, columns=names),
        pd.Series(outdoor, index=time),
        pd.Series(solar, index=time),
    )


def parse_sizes(text: str) -> list[int]:
    """ "64,1000" → numbers of agents."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--agents {text}: give whole numbers separated by commas, such as 64,1000") from None
    if not sizes or min(sizes) < 10:
        raise UsageError(f"--agents {text}: blind needs at least 10 agents")
    return sizes


def bench(sizes: list[int], *, seed: int = 0, report: Progress | None = None) -> Iterator[dict[str, Any]]:
    """Rows {agents, protocol, seconds, setup_seconds, floor_seconds, bytes_up_per_agent, sums, peak_rss_mb, …}."""
    for agents in sizes:
        cluster = synthetic(agents, seed=seed)
        for protocol in ("plain", "paper", "blind"):
            limit = {"plain": PLAIN_UP_TO, "paper": PAPER_UP_TO}.get(protocol, math.inf)
            if agents <= limit:
                if report is not None:
                    report(f"{agents} agents, {protocol}")
                yield bench_one(cluster, protocol, report)


def bench_one(cluster: Cluster, protocol: ProtocolName, report: Progress | None = None) -> dict[str, Any]:
    """One protocol, the best of a few runs: weights free, converged, λ scaled with the number of agents."""
    agents = len(cluster.agents)
    options: dict[str, Any] = {"ridge": RIDGE_PER_AGENT * agents, "nonnegative": False}
    row: dict[str, Any] = {"agents": agents, "protocol": protocol}
    if protocol == "plain":
        began = perf_counter()
        found = fit(cluster, "plain", **options)
        return row | {
            "seconds": perf_counter() - began, "setup_seconds": 0.0, "floor_seconds": None, "processes": 1, "sums": 0,
            "bytes_up_per_agent": found.cost.bytes_up_per_agent, "peak_rss_mb": processes.peak_memory(),
            "seconds_per_agent": None, "status": str(found.status),
        }  # fmt: skip
    first = measured(cluster, protocol, options, report)
    if agents >= SEVERAL_PROCESSES_FROM:
        return row | first
    # Watching memory takes time of the one process there is: its peak is that of the first run, its time of others.
    times = BEST_OF if first["seconds"] < 1.0 else 2
    timed = [measured(cluster, protocol, options, report, memory=False) for _ in range(times)]
    fastest = min(timed, key=lambda found: float(found["seconds"]))
    floor = min(found["floor_seconds"] for found in timed)
    return row | fastest | {"floor_seconds": floor, "peak_rss_mb": first["peak_rss_mb"]}


def measured(
    cluster: Cluster,
    protocol: ProtocolName,
    options: dict[str, Any],
    report: Progress | None = None,
    *,
    memory: bool = True,
    share: Share | None = None,
) -> dict[str, Any]:
    """One run, beside its floor; memory: whether its peak is watched; share: as in `enrol`."""
    agents = len(cluster.agents)
    plan, rules = make_plan(cluster, protocol, **options), Rules()
    everybody, _ = enrol(cluster, rules, os.urandom, share=share)
    roster = everybody[0].roster
    aggregator = Aggregator(
        plan=plan, roster=roster, cohorts={member.cohort for member in roster.members}, weather=weather_of(cluster)
    )
    sizes: list[int] = []
    used = min(os.cpu_count() or 1, 2) if agents >= SEVERAL_PROCESSES_FROM else 1
    _watch(aggregator, sizes)
    with one_blas_thread():
        traffic, peak = _run(aggregator, everybody, used, report, memory)
    outcome = aggregator.desk.outcome if aggregator.desk is not None else None
    if outcome is None:
        raise RunAborted("the run ended without a result")
    timed = min(agents, FLOOR_AGENTS)
    floor = processes.at_once(lambda: keystream_floor(sizes, timed, degree(agents)), used) * agents / (timed * used)
    others = range(1, agents)
    return {
        "seconds": traffic.total_seconds - traffic.setup_seconds,
        "setup_seconds": traffic.setup_seconds,
        "floor_seconds": floor,
        "processes": used,
        "sums": outcome.sums,
        "bytes_up_per_agent": int(median(traffic.bytes_up[i] for i in others)),
        "peak_rss_mb": peak,
        "seconds_per_agent": median(traffic.seconds[i] for i in others),
        "status": str(outcome.estimate.status),
    }


def _run(
    aggregator: Aggregator, agents: list[Agent], used: int, report: Progress | None, memory: bool
) -> tuple[local.Traffic, float]:
    if used > 1:
        return processes.run(aggregator, agents, used, report)
    with processes.Memory([]) if memory else nullcontext() as watch:
        traffic = local.run(aggregator, agents, progress=report)
    return traffic, watch.peak if watch is not None else math.nan


def _watch(aggregator: Aggregator, sizes: list[int]) -> None:
    """Note the words of every masked sum, from the messages of one agent."""
    inner: Callable[[int, bytes], Any] = aggregator.receive

    def receive(sender: int, data: bytes) -> Any:
        if sender == 1:
            message = decode_to_aggregator(data, len(data))
            if isinstance(message, Masked):
                sizes.append(len(message.words) // 8)
        return inner(sender, data)

    aggregator.receive = receive  # type: ignore[method-assign]
