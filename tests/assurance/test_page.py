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


CLAIMS = PAGE[PAGE.index("## Claims") : PAGE.index("## Account and companies")]
PARTS = [part for part in CLAIMS.splitlines() if part.startswith("| ") and not part.startswith("| part of it")]


@pytest.mark.parametrize("claim", re.split(r"^### ", CLAIMS, flags=re.M)[1:], ids=lambda claim: claim.splitlines()[0])
def test_every_claim_links_to_an_attack_on_it(claim: str) -> None:
    assert "](attacks.md#" in claim


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[2:42])
def test_every_part_of_a_claim_links_to_an_attack_on_it(part: str) -> None:
    assert "](attacks.md#" in part or re.search(r"\| \*\*By design\*\*", part)


def test_every_attack_that_the_page_links_to_is_in_that_section() -> None:
    attacks = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    sections = {
        re.sub(r"[^\w -]", "", text.splitlines()[0]).lower().replace(" ", "-"): text
        for text in re.split(r"^## ", attacks, flags=re.M)[1:]
    }
    linked = re.findall(r"\[([\w ]+)\]\(attacks\.md#([\w-]+)\)", PAGE)
    assert len(linked) > 30
    for name, section in linked:
        assert f"\n| {name} | " in sections[section], name


def test_the_page_counts_the_rules_that_are_left_out() -> None:
    left_out = len(QUESTIONS_WITHOUT) + len(COMPANIES_WITHOUT) + len(CALENDAR_WITHOUT)
    assert left_out == 15 and "fifteen of the real account" in PAGE
    assert len(spin.WITHOUT) == 18 and "eighteen of the models" in PAGE


def test_one_page_of_the_threat_model_is_in_the_root() -> None:
    page = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    for words in ("Report a vulnerability", "wire version it speaks (2)", "**not claimed**", "Anybody can stop a run"):
        assert words in page
    assert "@" not in page  # no address that nobody reads
