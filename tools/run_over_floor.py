"""A private fit beside the keystream floor of the same run, one agent beside a plain fit, and where its time goes:

    python tools/run_over_floor.py ZONES WEATHER
    python tools/run_over_floor.py 64              (the synthetic cluster of `atdm bench`)

Sixteen times in turn, because a shared machine is not as fast one second as the next.
"""

import sys
from collections import Counter
from statistics import median
from time import perf_counter
from typing import Any

import atdm
from atdm.kernel.span import Span
from atdm.protocol import blind
from atdm.protocol.session import Session
from atdm.run import one_blas_thread
from atdm.use.bench import RIDGE_PER_AGENT, measured, synthetic

TIMES = 16
PARTS = {  # none calls another
    "masks": (Session, "mask"),
    "opening totals: veil, check words, range, count": (blind.BlindPart, "_open"),
    "check words and veil of what is sent": (blind.BlindPart, "_authenticated"),
    "encoding": (blind.Layout, "encode"),
    "projection and Gram update": (Span, "add"),
    "descent for the next direction": (blind.BlindPart, "_descend"),
    "the leader's step again": (blind, "verify_leader"),
    "design and own lags": (blind.BlindPart, "_model"),
}


def main(*where: str) -> None:
    cluster = atdm.read_cluster(*where) if len(where) == 2 else synthetic(int(where[0]))
    options: dict[str, Any] = {"ridge": RIDGE_PER_AGENT * len(cluster.agents), "nonnegative": False}
    rows = []
    for _ in range(TIMES):
        run, alone, all_shared = (
            measured(cluster, "blind", options, memory=False, share=share) for share in (None, "nothing", "all")
        )
        with one_blas_thread():
            plain = atdm.fit(cluster, "plain", **options).cost.seconds
        floor = min(found["floor_seconds"] for found in (run, alone, all_shared))
        rows.append((run["seconds"], floor, alone["seconds"], all_shared["seconds"], alone["seconds_per_agent"], plain))
        print(f"run {rows[-1][0]:.3f} s, floor {floor:.3f} s: {rows[-1][0] / floor:.2f}", flush=True)
    for name, of in (("best", min), ("median", median)):
        run, floor, alone, all_shared, own, plain = (of(column) for column in zip(*rows, strict=True))
        print(f"{name}: run over floor {run / floor:.2f}; where agents share nothing {alone / floor:.2f}, everything "
              f"{all_shared / floor:.2f}; one agent that shares nothing {1000 * own:.1f} ms, one plain fit "
              f"{1000 * plain:.1f} ms")  # fmt: skip
    print("ms of one agent that shares nothing, best of each part:")
    for part, seconds in parts_of(cluster, options).items():
        print(f"  {1000 * seconds:5.2f}  {part}")


def parts_of(cluster: atdm.Cluster, options: dict[str, Any]) -> dict[str, float]:
    """Seconds of one agent in each part, mean over all agents, best of a few runs."""
    spent: Counter[str] = Counter()

    def timed(part: str, work: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                spent[part] += perf_counter() - began

        return run

    for part, (owner, name) in PARTS.items():
        setattr(owner, name, timed(part, getattr(owner, name)))
    runs = []
    for _ in range(TIMES):
        spent.clear()
        spent["all of it"] = measured(cluster, "blind", options, memory=False, share="nothing")["seconds_per_agent"]
        runs.append({part: spent[part] / (1 if part == "all of it" else len(cluster.agents)) for part in spent})
    return {part: min(run[part] for run in runs) for part in (*PARTS, "all of it")}


if __name__ == "__main__":
    main(*sys.argv[1:])
