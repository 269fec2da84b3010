"""How many agents an aggregator with one curious agent tells apart when it asks for a fit over a shorter window.

    python -m tests.lab.windows ZONES WEATHER

Everybody follows the protocol; the attack is `chosen plan` of the audit, at λ = 100 and order 2, over the last part of
the window. Two seeds of keys and dither each.
"""

import sys

from atdm.data import Cluster, read_cluster
from atdm.lab.attacks import dishonest
from atdm.lab.audit import audit

SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the window


def told_apart(cluster: Cluster, share: float, seed: int) -> int:
    dishonest.CHOSEN = ((100.0, 2, 0.75, share),)
    found = audit(cluster, "blind", weights="fitted", seed=seed, attacks=("chosen plan",))
    return max(finding.recovered for finding in found if finding.attack == "chosen plan")


def main(zones: str, weather: str) -> None:
    cluster = read_cluster(zones, weather)
    for share in SHARES:
        counts = [told_apart(cluster, share, seed) for seed in (0, 1)]
        print(f"{int(share * len(cluster.time))} rows: {' and '.join(map(str, counts))} of {len(cluster.agents) - 1}")


if __name__ == "__main__":
    main(*sys.argv[1:])
