"""What an agent and a run are compared with, in the edition of atdm that Python finds: one plain fit, and the keystream
and additions of the masks of given sums. So the yardsticks of the day when an aim was set stand beside today's:

    git worktree add ../first 9595650
    PYTHONPATH=../first/src python tools/yardsticks.py ZONES WEATHER WORDS,WORDS,…

WORDS: of each sum, as run_over_floor.py prints them. Medians of sixteen turns, processor time.
"""

import sys
from pathlib import Path
from statistics import median
from time import process_time

import atdm
from atdm import run
from atdm.crypto import prg
from atdm.data import read_cluster

TIMES = 16


def main(zones: str, weather: str, words: str) -> None:
    for measuring in (prg, run):
        measuring.perf_counter = process_time  # type: ignore[attr-defined]
    cluster, sizes = read_cluster(zones, weather), [int(part) for part in words.split(",")]
    agents = len(cluster.agents)
    plain = [run.fit(cluster, "plain", ridge=100 * agents / 64, nonnegative=False).cost.seconds for _ in range(TIMES)]
    floor = [prg.keystream_floor(sizes, agents, agents - 1) for _ in range(TIMES)]
    print(f"{Path(atdm.__file__).parent}: one plain fit {1000 * median(plain):.2f} ms, floor {median(floor):.4f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
