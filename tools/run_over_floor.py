"""Private fits beside the keystream floor of the same run, one agent beside a plain fit, and where its time goes:

    python tools/run_over_floor.py ZONES WEATHER
    python tools/run_over_floor.py 64              (the synthetic cluster of `atdm bench`)

Medians of sixteen turns, because a shared machine is not as fast one second as the next; and processor time, not time
of day: everything here is one process on one core, and what other processes take says nothing about it.
"""

import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from statistics import median
from time import process_time
from typing import Any

from atdm import run
from atdm.crypto import prg
from atdm.crypto.sums import Layout
from atdm.data import Cluster, read_cluster
from atdm.kernel.design import Design
from atdm.kernel.span import Span
from atdm.lab.bench import TIMES, measured, options_for, synthetic
from atdm.protocol.blind import direction, script, veil
from atdm.protocol.part import AgentContext
from atdm.protocol.session import Session
from atdm.transport import local

PARTS: dict[str, tuple[tuple[Any, str], ...]] = {  # none calls another
    "masks": ((Session, "mask"),),
    "opening totals: veil, check words, range, count": ((veil.Veil, "unwrap"),),
    "check words and veil of what is sent": ((veil.Veil, "_authenticated"),),
    "encoding": ((Layout, "encode"),),
    "design, own lags": ((Design, "build"), (direction.OwnSeries, "build")),
    "adding a total to the span": ((Span, "add"),),
    "descent for the next direction": ((Span, "look"),),
    "own words of a step": ((direction, "step_values"), (direction, "signs_values")),
    "verifying the release": ((script, "verify"),),
    "words and hash of the release": ((script, "released_words"), (script, "vouched")),
    "own readings as they are sent": ((AgentContext, "sendable"),),
    "settling days, booking": ((script.BlindPart, "_settle"), (script.BlindPart, "_book")),
}


for measuring in (local, prg, run):
    measuring.perf_counter = process_time  # type: ignore[attr-defined]


def main(*where: str) -> None:
    cluster = read_cluster(*where) if len(where) == 2 else synthetic(int(where[0]))
    options = options_for(len(cluster.agents))
    print(f"{len(cluster.agents)} agents, {len(cluster.time)} rows; medians of {TIMES}")
    ways = {"weights free": options, "no weight negative, by ridge, as usual": options | {"nonnegative": "ridge"}}
    for how, asked in (*ways.items(), ("equal weights", options | {"weights": "equal"})):
        found = measured(cluster, "blind", asked, memory=False)
        sent, words = found["bytes_up_per_agent"] / 1000, ",".join(map(str, found["words"]))
        print(f"{how}: {found['messages']} messages and {sent:.1f} kB up per agent, sums of {words} words")
    for how, asked in ways.items():
        compare(how, cluster, asked)
    print("ms of one agent that shares nothing, weights free, median of each part:")
    for part, seconds in parts_of(cluster, options).items():
        print(f"  {1000 * seconds:5.2f}  {part}")


def compare(how: str, cluster: Cluster, options: dict[str, Any]) -> None:
    turns = [turn(cluster, options) for _ in range(TIMES)]
    middle = {key: median(found[key] for found in turns) for key in turns[0]}
    own, plain, call = (1000 * middle[key] for key in ("agent alone", "plain", "plain, the whole call"))
    print(f"{how}: one agent sharing nothing {own:.2f} ms, one plain fit {plain:.2f} ms: {own / plain:.2f}")
    print(f"  the plain fit with its checks and result, as called, {call:.2f} ms: {own / call:.2f}")
    for shares in ("sharing", "sharing nothing"):
        run, floor = middle[shares], middle[f"floor, {shares}"]
        over = median(found[shares] / found[f"floor, {shares}"] for found in turns)
        print(f"  all agents in one process, {shares}: {run:.3f} s, floor {floor:.3f} s: {over:.2f}")


def turn(cluster: Cluster, options: dict[str, Any]) -> dict[str, float]:
    """Everything that is compared, in the same few seconds."""
    shared, alone = (measured(cluster, "blind", options, memory=False, share=share) for share in (True, False))
    began = process_time()
    plain = run.fit(cluster, "plain", **options)
    return {
        "plain, the whole call": process_time() - began,
        "sharing": shared["seconds"],
        "floor, sharing": shared["floor_seconds"],
        "sharing nothing": alone["seconds"],
        "floor, sharing nothing": alone["floor_seconds"],
        "agent alone": alone["seconds_per_agent"],
        "plain": plain.cost.seconds,
    }


def parts_of(cluster: Cluster, options: dict[str, Any]) -> dict[str, float]:
    """Seconds of one agent in each part, mean over all agents, median of the runs."""
    spent: Counter[str] = Counter()

    def timed(part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def work_timed(*args: Any, **kwargs: Any) -> Any:
            began = process_time()
            try:
                return work(*args, **kwargs)
            finally:
                spent[part] += process_time() - began

        return work_timed

    for part, places in PARTS.items():
        for owner, name in places:
            setattr(owner, name, timed(part, getattr(owner, name)))
    runs = []
    for _ in range(TIMES):
        spent.clear()
        whole = measured(cluster, "blind", options, memory=False, share=False)["seconds_per_agent"]
        runs.append({part: spent[part] / len(cluster.agents) for part in PARTS} | {"all of it": whole})
    return {part: median(run[part] for run in runs) for part in (*PARTS, "all of it")}


if __name__ == "__main__":
    main(*sys.argv[1:])
