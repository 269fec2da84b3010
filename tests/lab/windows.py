"""How many agents an aggregator with one curious agent tells apart when it asks for a fit over a part of the window, or
with other numbers, or of a smaller company.

    python -m tests.lab.windows ZONES WEATHER
    python -m tests.lab.windows ZONES WEATHER plans
    python -m tests.lab.windows ZONES WEATHER companies

Everybody follows the protocol; the attack is `chosen plan` of the audit, beside the same attack without totals, on
agents that accept any plan. Parts of the window: with five, four, three and two totals at the usual numbers, the first,
middle and last days. Plans: those that deployed agents accept, with the least and largest λ, several orders and
training shares, over the first and last four weeks and over all rows. Companies: agents drawn at random, the usual
numbers, all rows.
"""

import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd

from atdm.data import Cluster, read_cluster
from atdm.lab.attacks import catalogue, dishonest
from atdm.lab.attacks.catalogue import ATTACKS
from atdm.lab.audit import Finding, audit
from atdm.protocol.rules import Rules

USUAL = (100.0, 2, 0.75)  # λ, M, training share
DAYS, TOTALS, SEEDS = (10, 15, 20, 25, 28), (5, 4, 3, 2), range(4)  # of keys and dither
LEAST_DAYS, SEEDS_OF_PLANS = int(Rules().least_days), range(2)
PLANS = [(ridge, order, train) for ridge in Rules().ridge for order in (1, 2, 4) for train in (0.7, 0.75, 0.9)]
COMPANIES, DRAWN = (14, 20, 32, 48), range(6)  # agents of a company, and how many companies


def told_apart(cluster: Cluster, seed: int, numbers: tuple[float, int, float] = USUAL, totals: int = 5) -> Finding:
    dishonest.CHOSEN = ((*numbers, 1.0),)
    catalogue.ATTACKS = tuple(replace(each, tries=1) for each in ATTACKS if each.name == "chosen plan")
    rules = Rules(totals=totals, ridge=(0.0, math.inf), train=0.0, least_days=0.0)
    found = audit(cluster, "blind", weights="fitted", seed=seed, attacks=("chosen plan",), rules=rules)
    return next(each for each in found if each.attack == "chosen plan")


def parts(cluster: Cluster, days: int) -> list[Cluster]:
    """The first, middle and last days, from midnight on."""
    midnights = cluster.time[cluster.time == cluster.time.normalize()]
    spare = len(midnights) - days
    return [part_of(cluster, midnights[first], days) for first in (0, spare // 2, spare)]


def part_of(cluster: Cluster, start: pd.Timestamp, days: int) -> Cluster:
    rows = (cluster.time >= start) & (cluster.time < start + pd.Timedelta(days=days))
    return Cluster.from_frames(
        cluster.temperature[rows], cluster.load[rows], cluster.outdoor[rows], cluster.solar[rows]
    )


def by_length(cluster: Cluster) -> None:
    for days in DAYS:
        for totals in TOTALS:
            found = [[told_apart(part, seed, totals=totals) for seed in SEEDS] for part in parts(cluster, days)]
            shown = " ".join(f"{np.mean([each.recovered for each in part]):.2f}" for part in found)
            blank = np.mean([each.blank for part in found for each in part])
            print(f"{days} days, {totals} totals: first, middle, last {shown}; without totals {blank:.2f}", flush=True)


def by_plan(cluster: Cluster) -> None:
    first, _, last = parts(cluster, LEAST_DAYS)
    counts = []
    for name, part in ((f"first {LEAST_DAYS} days", first), (f"last {LEAST_DAYS} days", last), ("all rows", cluster)):
        for numbers in PLANS:
            found = [told_apart(part, seed, numbers).recovered for seed in SEEDS_OF_PLANS]
            counts.append(max(found))
            print("{}, λ = {:g}, order {}, training share {:g}:".format(name, *numbers), found, flush=True)
    print(f"of {len(counts)} plans: " + ", ".join(f"{n} in {counts.count(n)}" for n in sorted(set(counts))))


def by_company(cluster: Cluster) -> None:
    for size in COMPANIES:
        found = []
        for seed in DRAWN:
            drawn = np.random.default_rng(seed).choice(np.array(cluster.agents), size, replace=False)
            found.append(told_apart(cluster.select(sorted(drawn.tolist())), seed))
        counts, blanks = ([getattr(each, name) for each in found] for name in ("recovered", "blank"))
        print(f"{size} agents: {counts}, blank {blanks}", flush=True)


def main(zones: str, weather: str, what: str = "lengths") -> None:
    {"lengths": by_length, "plans": by_plan, "companies": by_company}[what](read_cluster(zones, weather))


if __name__ == "__main__":
    main(*sys.argv[1:])
