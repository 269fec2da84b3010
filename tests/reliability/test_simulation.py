"""A thousand seeded runs of every `make test`, a hundred thousand of `make soak`: simulation.py says what happens in
them and what must hold. A failure prints the command that replays it."""

import os
from functools import cache
from pathlib import Path

import pytest

from atdm.errors import RunAborted
from atdm.protocol.blind import direction
from tests.reliability import simulation
from tests.reliability.homes import Wrong
from tests.reliability.lies import LIES
from tests.reliability.mutants import MUTANTS, apply, forget
from tests.reliability.simulation import (
    CHUNK,
    ENDS,
    FAULTS,
    KINDS,
    Chunk,
    Simulation,
    series,
    simulate,
    simulate_many,
    summary,
)  # fmt: skip

FOUND = (
    4015229,  # an agent that says it is in for rows of a fit that it does not know
    8006364,  # no bytes at all, to an agent that has heard nothing yet
)
SOAK_RUNS = int(os.environ.get("ATDM_SOAK_RUNS", "100000"))
SOAK_RECORD = Path("out/simulation.jsonl")  # a soak that was stopped goes on from here


@cache
def of_a_thousand(first: int) -> Chunk:
    return simulate_many(first)


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_a_run_ends_with_the_right_numbers_of_its_company_or_without_a_result(first: int) -> None:
    """And whatever a home gives is within its limits, whoever lies, and its conduct tells nothing of its readings."""
    chunk = of_a_thousand(first)
    print(summary([chunk]))
    assert not chunk.wrong, chunk.wrong[0]
    assert all(chunk.seen[end] for end in ENDS if end != "no rows") and chunk.seen["converged"] > CHUNK // 8
    assert all(chunk.seen[fault] for fault in FAULTS), "some fault never happened"


def test_every_lie_is_told_in_a_thousand_runs() -> None:
    chunks = [of_a_thousand(first) for first in range(0, 1000, CHUNK)]
    print(summary(chunks))
    told = {name: sum(chunk.seen[f"lie: {name}"] for chunk in chunks) for name in LIES}
    assert all(told.values()), told


# The oracle could fail


def found_out(lie: str) -> str:
    """What goes wrong first in worlds in which this lie is told."""
    count = len(LIES)
    for seed in range(1 + 2 * list(LIES).index(lie), 40 * count, 2 * count):
        try:
            simulate(seed)
        except Wrong as error:
            return str(error)
    return "nothing"


@pytest.mark.parametrize("group, rule, lie, wrong", [
    ("sum", "a total is checked", "forged total", "a total that is not the sum"),
    ("company", "a day has one", "another company", "two companies"),
    ("company", "two thirds of the owners enrolled", "small company", "two thirds"),
    ("account", "four askings of a question", "same question", "too often"),
    ("account", "one weighting a day", "other weights", "two weightings"),
    ("account", "one grid a day", "another grid", "two grids"),
    ("account", "an answer is in the store before it leaves", "everything twice", "before anything was written down"),
    ("account", "readings stay as they first left", "rows again", "another number"),
    ("release", "everybody vouches for the words that open", "other numbers", "the "),
])  # fmt: skip
def test_a_lie_to_homes_without_the_rule_that_answers_it_is_found_out(
    group: str, rule: str, lie: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = next(each for each in MUTANTS if (each.group, each.rule) == (group, rule))
    apply(mutant, monkeypatch)
    try:
        assert wrong in found_out(lie)
    finally:
        forget()


def test_a_home_that_refuses_out_of_range_shows_its_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first edition did: its twin does something else."""
    true = direction.saturated

    def refusing(value: float, bound: float) -> float:
        if abs(value) > bound:
            raise RunAborted("a residual passes the range of its sum")
        return true(value, bound)

    monkeypatch.setattr(direction, "saturated", refusing)
    assert "shows its readings by what it does" in found_out("secret given away")


@pytest.mark.soak
def test_a_hundred_thousand_runs() -> None:
    chunks = series(simulation.LONG, SOAK_RUNS, os.cpu_count() or 1, SOAK_RECORD)
    print(summary(chunks))
    assert sum(chunk.runs for chunk in chunks) == SOAK_RUNS and not any(chunk.wrong for chunk in chunks)


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_was_wrong_once_is_right(seed: int) -> None:
    assert Simulation(seed).run()["attempts"]


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
