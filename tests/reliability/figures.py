"""The figures of docs/reliability.md that are counts of what the tests go through.

python -m tests.reliability.figures                   prints them
python -m tests.reliability.figures COVERAGE.json     prints the coverage of branches alone
"""

import json
import sys
from pathlib import Path

from tests.deploy.test_kill import FEW, MATRIX
from tests.reliability.fuzz import targets
from tests.reliability.lies import LIES
from tests.reliability.mutants import MUTANTS
from tests.reliability.places import TO_AGENT, TO_AGGREGATOR, agent_places, desk_places
from tests.reliability.rows import SECTIONS
from tests.reliability.test_matrix import VARIANTS


def counts() -> dict[str, int]:
    """What is counted → how many."""
    agents, desks = len(agent_places()), len(desk_places())
    return {
        "places of an agent": agents,
        "places of the aggregator": desks,
        "cells": (agents * len(TO_AGENT) + desks * len(TO_AGGREGATOR)) * len(VARIANTS),
        "rows": sum(map(len, SECTIONS.values())),
        "mutants": len(MUTANTS),
        "lies": len(LIES),
        "targets": len(targets()),
        "moments": len(MATRIX),
        "moments in `make test`": len(FEW),
    }


def mutants_table() -> list[str]:
    """One row a mutant: what it is about, the rule, the claim that fails without it."""
    return [f"| {m.group} | {m.rule} | {m.claim} |" for m in MUTANTS]


def lies_table() -> list[str]:
    """One row a lie: whose, its name, what it does."""
    return [f"| {lie.liar} | {name} | {lie.does} |" for name, lie in LIES.items()]


def branches(report: Path) -> float:
    """Share of branches taken, in percent, from `coverage json`."""
    totals = json.loads(report.read_text())["totals"]
    return 100 * totals["covered_branches"] / totals["num_branches"]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"{branches(Path(sys.argv[1])):.1f} % of branches alone")
    else:
        print("\n".join([*(f"{count} {what}" for what, count in counts().items()), *mutants_table(), *lies_table()]))
