"""docs/assurance.md says every claim of the threat model in its words, and names tests that are there."""

import re
from pathlib import Path

import pytest

from tests.assurance import spin
from tests.assurance.accounts import CALENDAR_WITHOUT, COMPANIES_WITHOUT, QUESTIONS_WITHOUT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "assurance.md").read_text(encoding="utf-8")
SPEC = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
THREATS = SPEC[SPEC.index("## 7. Threat model") : SPEC.index("Measured beside it.")]


def claims() -> list[str]:
    """Cells of the table of adversaries but for their names, and the paragraphs below it."""
    rows = [line.strip("| ").split(" | ") for line in THREATS.splitlines() if line.startswith("| ")][1:]
    below = [line for line in THREATS.splitlines() if line.startswith(("A dishonest", "Not claimed", "`paper`"))]
    return [*(cell for _, *cells in rows for cell in cells), *below]


def test_there_are_as_many_claims_as_adversaries_and_ways() -> None:
    assert len(claims()) == 4 * 2 + 3


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim[:40])
def test_every_claim_of_the_threat_model_is_on_the_page_in_its_words(claim: str) -> None:
    assert f"> {claim}\n" in PAGE


NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize("file, name", NAMED, ids=str)
def test_every_test_that_the_page_names_is_there(file: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") if name else (ROOT / file).exists()


def test_the_page_counts_the_rules_that_are_left_out() -> None:
    left_out = len(QUESTIONS_WITHOUT) + len(COMPANIES_WITHOUT) + len(CALENDAR_WITHOUT)
    assert left_out == 15 and "fifteen of the real account" in PAGE
    assert len(spin.WITHOUT) == 18 and "eighteen of the models" in PAGE


def test_one_page_of_the_threat_model_is_in_the_root() -> None:
    page = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    for words in ("Report a vulnerability", "wire version it speaks (2)", "**not claimed**", "Anybody can stop a run"):
        assert words in page
    assert "@" not in page  # no address that nobody reads
