"""Every rule taken out in turn: some claim of the tests must then fail (mutants.py says which)."""

import pytest

from atdm.errors import AtdmError
from tests.reliability.mutants import MUTANTS, apply, forget

IDS = [f"{mutant.group} {mutant.rule}".replace(" ", "-") for mutant in MUTANTS]
FAILURES = (
    AssertionError, AttributeError, KeyError, ValueError, OverflowError, MemoryError, StopIteration,
    pytest.fail.Exception, AtdmError,
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_rule_that_is_taken_out_is_missed(mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.killer()  # holds with the rule in place,
    apply(mutant, monkeypatch)
    try:
        with pytest.raises(FAILURES):  # and not without it
            mutant.killer()
    finally:
        forget()


def test_every_rule_is_taken_out_once() -> None:
    assert len(set(IDS)) == len(IDS)
    assert {mutant.group for mutant in MUTANTS} == {
        "sum", "company", "account", "in or out", "rules", "search", "release", "collect", "opened", "keys", "roster",
        "messages",
    }  # fmt: skip
