"""How many agents an aggregator with one curious agent tells apart when it asks for a fit over a shorter window, or
with other numbers, or of a smaller company.

    python -m tests.lab.windows ZONES WEATHER [TOTALS]
    python -m tests.lab.windows ZONES WEATHER plans
    python -m tests.lab.windows ZONES WEATHER companies

Everybody follows the protocol; the attack is `chosen plan` of the audit, beside the same attack without totals. At
λ = 100 and order 2 over the last part of the window, with the totals that agents give over so many rows, or with so
many TOTALS at every length; over the whole window with other λ, orders and training shares; or over the whole window,
as usual, of agents drawn at random. Eight seeds of keys and dither each, of plans four, of companies six.
"""

import sys

import numpy as np

from atdm.data import Cluster, read_cluster
from atdm.lab.attacks import dishonest
from atdm.lab.audit import Finding, audit
from atdm.protocol import plan
from atdm.protocol.rules import Rules

SHARES = (0.3, 1 / 3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the window
SEEDS, SEEDS_OF_PLANS = range(8), range(4)
COMPANIES, DRAWN = (14, 20, 32, 48), range(6)  # agents of a company, and how many companies
USUAL = (100.0, 2, 0.75)  # λ, M, training share
PLANS = (
    *((ridge, 2, 0.75) for ridge in (1.0, 10.0, 30.0, 100.0, 120.0, 150.0, 200.0, 300.0)),
    *((100.0, 2, train) for train in (0.5, 0.6, 0.7, 0.9)), (100.0, 1, 0.75), (100.0, 4, 0.75),
)  # fmt: skip


def told_apart(
    cluster: Cluster, share: float, seed: int, totals: int, numbers: tuple[float, int, float] = USUAL
) -> Finding:
    dishonest.CHOSEN = ((*numbers, share),)
    rules = Rules(totals=totals)
    found = audit(cluster, "blind", weights="fitted", seed=seed, attacks=("chosen plan",), rules=rules)
    return max((each for each in found if each.attack == "chosen plan"), key=lambda each: each.recovered)


def main(zones: str, weather: str, totals: str = "") -> None:
    cluster = read_cluster(zones, weather)
    if totals == "plans":
        for numbers in PLANS:
            found = [told_apart(cluster, 1.0, seed, 5, numbers) for seed in SEEDS_OF_PLANS]
            counts, blanks = ([getattr(each, name) for each in found] for name in ("recovered", "blank"))
            print("λ = {:g}, order {}, training share {:g}:".format(*numbers), f"{counts}, blank {blanks}", flush=True)
        return
    if totals == "companies":
        for size in COMPANIES:
            found = []
            for seed in DRAWN:
                drawn = np.random.default_rng(seed).choice(np.array(cluster.agents), size, replace=False)
                found.append(told_apart(cluster.select(sorted(drawn.tolist())), 1.0, seed, 5))
            counts, blanks = ([getattr(each, name) for each in found] for name in ("recovered", "blank"))
            print(f"{size} agents: {counts}, blank {blanks}", flush=True)
        return
    if totals:
        plan.FEW_ROWS = ()
    for share in SHARES:
        found = [told_apart(cluster, share, seed, int(totals or 5)) for seed in SEEDS]
        counts, blanks = (sum(getattr(each, name) for each in found) / len(SEEDS) for name in ("recovered", "blank"))
        print(f"{int(share * len(cluster.time))} rows: {counts:.2f} of {len(cluster.agents) - 1}, blank {blanks:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
