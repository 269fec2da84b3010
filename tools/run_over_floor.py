"""How long a private fit takes beside the keystream floor of the same run: python tools/run_over_floor.py ZONES WEATHER

Pairs of run and floor, eight times, because a shared machine is not as fast one second as the next.
"""

import sys

import atdm
from atdm.crypto.prg import keystream_floor
from atdm.protocol.messages import Masked, decode_to_aggregator
from atdm.run import make_plan, one_blas_thread, simulate

PAIRS = 8
ANY_SIZE = 1 << 30  # bytes


def main(zones: str, weather: str) -> None:
    cluster = atdm.read_cluster(zones, weather)
    plan, agents, sizes = make_plan(cluster, "blind", nonnegative=False), len(cluster.agents), []

    def tap(sender: str, receiver: str, message: bytes) -> None:
        """The words of every sum, from the messages of one agent that does not lead."""
        masked = decode_to_aggregator(message, ANY_SIZE) if sender == counted else None
        if isinstance(masked, Masked):
            sizes.append(len(masked.words) // 8)

    with one_blas_thread():
        counted = cluster.agents[-1]
        simulate(cluster, plan, atdm.Rules(), tap=tap)
        pairs = [
            (simulate(cluster, plan, atdm.Rules()).cost.seconds, keystream_floor(sizes, agents, agents - 1))
            for _ in range(PAIRS)
        ]
    for run, floor in pairs:
        print(f"run {run:.3f} s, floor {floor:.3f} s: {run / floor:.2f}")
    run, floor = (min(column) for column in zip(*pairs, strict=True))
    print(f"best run over best floor: {run / floor:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
