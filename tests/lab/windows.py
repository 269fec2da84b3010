"""How many agents an aggregator with one curious agent tells apart when it asks for a fit over a shorter window.

    python -m tests.lab.windows ZONES WEATHER [TOTALS]

Everybody follows the protocol; the attack is `chosen plan` of the audit, at λ = 100 and order 2, over the last part of
the window, beside the same attack without totals. Eight seeds of keys and dither each. TOTALS: as many as agents give
over a day, five unless given.
"""

import sys

from atdm.data import Cluster, read_cluster
from atdm.lab.attacks import dishonest
from atdm.lab.audit import Finding, audit
from atdm.protocol.rules import Rules

SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the window
SEEDS = range(8)


def told_apart(cluster: Cluster, share: float, seed: int, totals: int) -> Finding:
    dishonest.CHOSEN = ((100.0, 2, 0.75, share),)
    rules = Rules(totals=totals)
    found = audit(cluster, "blind", weights="fitted", seed=seed, attacks=("chosen plan",), rules=rules)
    return max((each for each in found if each.attack == "chosen plan"), key=lambda each: each.recovered)


def main(zones: str, weather: str, totals: str = "5") -> None:
    cluster = read_cluster(zones, weather)
    for share in SHARES:
        found = [told_apart(cluster, share, seed, int(totals)) for seed in SEEDS]
        counts, blanks = (sum(getattr(each, name) for each in found) / len(SEEDS) for name in ("recovered", "blank"))
        print(f"{int(share * len(cluster.time))} rows: {counts:.2f} of {len(cluster.agents) - 1}, blank {blanks:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
