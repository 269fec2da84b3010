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

from atdm.crypto.prg import keystream_floor
from atdm.data import Cluster
from atdm.errors import UsageError
from atdm.kernel.blas import one_blas_thread
from atdm.kernel.descent import Status
from atdm.options import ProtocolName, WeightsName, fit_options
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.messages import Masked, Release, decode_to_aggregator
from atdm.protocol.rules import Rules
from atdm.run import enrol, fit, make_plan, outcome_of, rows_of_plan, weather_of
from atdm.transport import local, processes
from atdm.transport.local import Progress

ROWS = 1082  # half-hours: 22.5 days, the paper's training rows and its lags
RIDGE_PER_AGENT = 100 / 64  # λ grows with the number of agents as in the paper's own choice for 64
PLAIN_UP_TO = 10_000
PAPER_UP_TO = 64  # above, its upload of rows × agents words per agent is beyond what a laptop simulates in minutes
SEVERAL_PROCESSES_FROM = 1000
TIMES = 16  # runs below a second, each beside its floor: a second of a shared machine says little; longer ones: three
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


ROWS_OF: tuple[tuple[ProtocolName, WeightsName, float], ...] = (  # protocol, weights, most agents
    ("plain", "fitted", PLAIN_UP_TO), ("paper", "fitted", PAPER_UP_TO),
    ("blind", "fitted", math.inf), ("blind", "equal", math.inf),
)  # fmt: skip


def bench(sizes: list[int], *, seed: int = 0, report: Progress | None = None) -> Iterator[dict[str, Any]]:
    """Rows {agents, protocol, weights, seconds, setup_seconds, floor_seconds, bytes_up_per_agent, sums, …}."""
    for agents in sizes:
        cluster = synthetic(agents, seed=seed)
        for protocol, weights, most in ROWS_OF:
            if agents <= most:
                if report is not None:
                    report(f"{agents} agents, {protocol}, {weights} weights")
                yield bench_one(cluster, protocol, weights, report)


def options_for(agents: int, weights: WeightsName = "fitted") -> dict[str, Any]:
    """Weights free, λ scaled with the number of agents."""
    return {"ridge": RIDGE_PER_AGENT * agents, "nonnegative": False, "weights": weights}


def bench_one(
    cluster: Cluster, protocol: ProtocolName, weights: WeightsName = "fitted", report: Progress | None = None
) -> dict[str, Any]:
    """One protocol; where a run is short, the median of several."""
    agents = len(cluster.agents)
    options = options_for(agents, weights)
    row: dict[str, Any] = {"agents": agents, "protocol": protocol, "weights": weights}
    if protocol == "plain":
        began = perf_counter()
        found = fit(cluster, "plain", **options)
        return row | {
            "seconds": perf_counter() - began, "setup_seconds": 0.0, "floor_seconds": None, "processes": 1, "sums": 0,
            "messages": 0, "bytes_up_per_agent": found.cost.bytes_up_per_agent,
            "peak_rss_mb": processes.peak_memory(), "seconds_per_agent": None, "status": str(found.status),
        }  # fmt: skip
    first = measured(cluster, protocol, options, report)
    if agents >= SEVERAL_PROCESSES_FROM:
        return row | first
    # Watching memory takes time of the one process there is: its peak is that of the first run, its time of others.
    times = TIMES if first["seconds"] < 1.0 else 3
    timed = [measured(cluster, protocol, options, report, memory=False) for _ in range(times)]
    keys = ("seconds", "setup_seconds", "floor_seconds", "seconds_per_agent")
    return row | first | {key: median(found[key] for found in timed) for key in keys}


def measured(
    cluster: Cluster,
    protocol: ProtocolName,
    options: dict[str, Any],
    report: Progress | None = None,
    *,
    memory: bool = True,
    share: bool = True,
) -> dict[str, Any]:
    """One run, beside its floor; memory: whether its peak is watched; share: as in `enrol`."""
    agents, plan = len(cluster.agents), make_plan(cluster, fit_options(protocol=protocol, **options))
    equal = plan.weights == "equal"
    everybody, _ = enrol(cluster, Rules(), os.urandom, share=share)
    asked = rows_of_plan(plan) if equal else plan
    aggregator = Aggregator(plan=asked, roster=everybody[0].roster, weather=weather_of(cluster))
    sizes: list[int] = []
    used = min(os.cpu_count() or 1, 2) if agents >= SEVERAL_PROCESSES_FROM else 1
    _watch(aggregator, sizes)
    with one_blas_thread():
        traffic, peak = _run(aggregator, everybody, used, report, memory)
    sums, status = 1, Status.CONVERGED  # equal weights: one series, and nothing to search
    if not equal:
        outcome = outcome_of(aggregator)
        sums, status = outcome.sums, outcome.estimate.status
    timed, masks = min(agents, FLOOR_AGENTS), aggregator.run.degree if aggregator.run is not None else 0
    floor = processes.at_once(lambda: keystream_floor(sizes, timed, masks), used) * agents / (timed * used)
    others = range(1, agents)
    return {
        "seconds": traffic.total_seconds - traffic.setup_seconds,
        "setup_seconds": traffic.setup_seconds,
        "floor_seconds": floor,
        "processes": used,
        "words": sizes,
        "sums": sums,
        "messages": int(median(traffic.messages_up[i] for i in others)),
        "bytes_up_per_agent": int(median(traffic.bytes_up[i] for i in others)),
        "peak_rss_mb": peak,
        "seconds_per_agent": median(traffic.seconds[i] for i in others),
        "status": str(status),
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
            if isinstance(message, Masked | Release):
                sizes.append(len(message.words) // 8)
        return inner(sender, data)

    aggregator.receive = receive  # type: ignore[method-assign]
