"""Every rule of `blind` taken out in turn: some claim of the tests must then fail (mutants.py says which)."""

import pytest

from atdm.errors import AtdmError
from tests.reliability.mutants import MUTANTS, apply

IDS = [mutant.rule.replace(" ", "-") for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_rule_that_is_taken_out_is_missed(mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.killer()  # holds with the rule in place,
    apply(mutant, monkeypatch)
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception, AtdmError)):  # and not without it
        mutant.killer()


def test_every_item_of_the_rules_has_mutants() -> None:
    assert {mutant.rule[0] for mutant in MUTANTS} >= {"1", "2", "3", "4", "6", "7", "8", "9"}
