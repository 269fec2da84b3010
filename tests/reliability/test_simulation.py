"""A thousand seeded runs of every `make test`, a hundred thousand of `make soak`: simulation.py says what happens in
them and what must hold. A failure prints the command that replays it."""

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.reliability.simulation import FAULTS, LONG, Simulation, Wrong, simulate, simulate_many

CHUNK = 100
SOAK_RUNS = int(os.environ.get("ATDM_SOAK_RUNS", "100000"))


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_a_run_ends_with_the_plain_fit_of_its_roster_or_without_a_result(first: int) -> None:
    done, seen = simulate_many(first, CHUNK)
    print(dict(seen))
    assert done == CHUNK and seen["converged"] > CHUNK // 3 and seen["no result"] > 0
    assert all(seen[fault] for fault in FAULTS), "some fault never happened"


@pytest.mark.soak
def test_a_hundred_thousand_runs() -> None:
    starts = range(LONG, LONG + SOAK_RUNS, CHUNK)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        results = list(pool.map(simulate_many, starts, [CHUNK] * len(starts)))
    seen = sum((part for _, part in results), Counter())
    print(f"{sum(done for done, _ in results)} runs: {dict(seen)}")
    assert sum(done for done, _ in results) == CHUNK * len(starts)


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = Simulation(11), Simulation(11)
    assert first.run() == second.run() and first.sent == second.sent


def test_a_failing_seed_prints_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_attempt", lambda self: 1 / 0)
    with pytest.raises(Wrong, match="replay: python -m tests.reliability.simulation 11$"):
        simulate(11)
