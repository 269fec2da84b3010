"""A private fit beside the keystream floor of the same run, and one agent beside a plain fit:

    python tools/run_over_floor.py ZONES WEATHER
    python tools/run_over_floor.py 64              (the synthetic cluster of `atdm bench`)

Sixteen times in turn, because a shared machine is not as fast one second as the next.
"""

import sys
from statistics import median

import atdm
from atdm.crypto.prg import keystream_floor
from atdm.data import Cluster
from atdm.protocol.messages import Masked, decode_to_aggregator
from atdm.protocol.plan import Plan
from atdm.run import make_plan, one_blas_thread, simulate
from atdm.use.bench import RIDGE_PER_AGENT, synthetic

TIMES = 16
ANY_SIZE = 1 << 30  # bytes


def main(*where: str) -> None:
    cluster = atdm.read_cluster(*where) if len(where) == 2 else synthetic(int(where[0]))
    agents = len(cluster.agents)
    options = {"ridge": RIDGE_PER_AGENT * agents, "nonnegative": False}
    plan, rules = make_plan(cluster, "blind", **options), atdm.Rules()
    rows = []
    with one_blas_thread():
        sizes = words_of_every_sum(cluster, plan)
        for _ in range(TIMES):
            run = simulate(cluster, plan, rules).cost.seconds
            floor = keystream_floor(sizes, agents, agents - 1)
            alone = simulate(cluster, plan, rules, share="nothing").cost
            plain = atdm.fit(cluster, "plain", **options).cost.seconds
            rows.append((run, floor, alone.seconds, 1000 * (alone.seconds_per_agent or 0.0), 1000 * plain))
            print(f"run {run:.3f} s, floor {floor:.3f} s: {run / floor:.2f}", flush=True)
    for name, of in (("best", min), ("median", median)):
        run, floor, alone, own, plain = (of(column) for column in zip(*rows, strict=True))
        print(f"{name}: run over floor {run / floor:.2f}, {alone / floor:.2f} where agents share nothing; "
              f"one agent that shares nothing {own:.1f} ms, one plain fit {plain:.1f} ms")  # fmt: skip


def words_of_every_sum(cluster: Cluster, plan: Plan) -> list[int]:
    """From the messages of one agent that does not lead."""
    sizes: list[int] = []

    def tap(sender: str, receiver: str, message: bytes) -> None:
        masked = decode_to_aggregator(message, ANY_SIZE) if sender == cluster.agents[-1] else None
        if isinstance(masked, Masked):
            sizes.append(len(masked.words) // 8)

    simulate(cluster, plan, atdm.Rules(), tap=tap)
    return sizes


if __name__ == "__main__":
    main(*sys.argv[1:])
