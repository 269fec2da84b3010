"""docs/reliability.md says what the tests go through."""

from pathlib import Path

import pytest

pytest.importorskip("nats", reason="the nats extra is not installed")

PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_the_page_has_the_counts_of_what_is_gone_through() -> None:
    from tests.reliability.figures import counts

    n = counts()
    for said in (
        f"0 of {n['cells']} cells",
        f"each of {n['places of an agent']} places",
        f"each of {n['places of the aggregator']},",
        f"{n['rows']} of {n['rows']} rows",
        f"{n['mutants']} of {n['mutants']} mutants",
        f"{n['lies']} kinds of lies",
        f"to {n['targets']} targets",
        f"{n['moments']} of {n['moments']} moments ({n['moments in `make test`']} of them",
    ):
        assert said in PAGE, f"docs/reliability.md does not say {said!r}: python -m tests.reliability.figures has all"


def test_the_page_has_a_row_for_every_rule_that_is_taken_out_and_for_every_lie() -> None:
    from tests.reliability.figures import lies_table, mutants_table

    missing = [row for row in [*mutants_table(), *lies_table()] if row not in PAGE]
    assert not missing, "python -m tests.reliability.figures prints the rows"
