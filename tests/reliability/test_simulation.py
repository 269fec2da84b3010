"""A thousand seeded runs of every `make test`, a hundred thousand of `make soak`: simulation.py says what happens in
them and what must hold. A failure prints the command that replays it."""

import os
from pathlib import Path

import pytest

from tests.reliability import simulation
from tests.reliability.simulation import (
    CHUNK,
    ENDS,
    FAULTS,
    KINDS,
    Simulation,
    Wrong,
    series,
    simulate,
    simulate_many,
    summary,
)  # fmt: skip

SOAK_RUNS = int(os.environ.get("ATDM_SOAK_RUNS", "100000"))
SOAK_RECORD = Path("out/simulation.jsonl")  # a soak that was stopped goes on from here


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_a_run_ends_with_the_right_numbers_of_its_company_or_without_a_result(first: int) -> None:
    chunk = simulate_many(first)
    print(summary([chunk]))
    assert not chunk.wrong, chunk.wrong[0]
    assert all(chunk.seen[end] for end in ENDS if end != "no rows") and chunk.seen["converged"] > CHUNK // 4
    assert all(chunk.seen[fault] for fault in FAULTS), "some fault never happened"


@pytest.mark.soak
def test_a_hundred_thousand_runs() -> None:
    chunks = series(simulation.LONG, SOAK_RUNS, os.cpu_count() or 1, SOAK_RECORD)
    print(summary(chunks))
    assert sum(chunk.runs for chunk in chunks) == SOAK_RUNS and not any(chunk.wrong for chunk in chunks)


def test_runs_are_of_three_to_sixty_four_agents_of_every_kind() -> None:
    drawn = [Simulation(seed) for seed in range(0, 1000, simulation.MANY_EVERY)]
    assert min(each.size for each in drawn) < 20 and max(each.size for each in drawn) > 50
    assert {each.kind for each in drawn} == set(KINDS) and {each.lifted for each in drawn} == {False, True}
    assert min(simulation.FEW) == 3 and max(simulation.MANY) == 64


def test_a_series_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "CHUNK", 2)
    record = tmp_path / "record.jsonl"
    whole = series(1, 4, record=record)
    record.write_text(record.read_text()[:-20])  # killed while it wrote
    assert len(simulation.recorded(record, simulation.source_hash())) == 1
    again = series(1, 4, record=record)
    assert summary(again) == summary(whole) and len(simulation.recorded(record, simulation.source_hash())) == 2
    assert simulation.recorded(record, "another") == {}


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = Simulation(11), Simulation(11)
    assert first.run() == second.run() and first.sent == second.sent


def test_a_failing_seed_prints_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_attempt", lambda self: 1 / 0)
    with pytest.raises(Wrong, match="replay: python -m tests.reliability.simulation 11$"):
        simulate(11)
