"""The models in Promela: no violation in any state; each rule is missed when it is left out; the code decides alike."""

import re
from collections import Counter
from typing import get_args

import pytest

from atdm.protocol.account import Kind
from tests.assurance import spin
from tests.assurance.accounts import Companies, Questions, replay
from tests.assurance.test_page import PAGE

needs_spin = pytest.mark.skipif(not spin.there(), reason="spin and gcc are not installed: apt install spin gcc")
SEEDS, STEPS = range(1, 61), 4000  # of random runs
SIMULATED = (
    ("questions", spin.SMALL, lambda: Questions(days=2, totals=2, signs=1, askings=1)),
    ("companies", {**spin.FEW, "HONEST": 3, "MEMBERS": 3, "DAYS": 3}, lambda: Companies(days=3, members=3)),
)


@pytest.mark.parametrize("model", spin.CONSTANTS)
def test_the_numbers_of_a_model_are_those_of_the_code(model: str) -> None:
    written = spin.defaults(model)
    assert {name: written[name] for name in spin.CONSTANTS[model]} == spin.CONSTANTS[model]


@pytest.mark.parametrize("model", spin.CONSTANTS)
def test_every_rule_of_a_model_is_left_out_once(model: str) -> None:
    assert sorted(spin.rules(model)) == sorted(rule for name, rule, _ in spin.WITHOUT if name == model)


def test_the_kinds_of_questions_are_those_of_the_code() -> None:
    text = (spin.FOLDER / "questions.pml").read_text(encoding="utf-8")
    kinds = re.findall(r"^#define KIND_(\w+) (\d)$", text, re.M)
    assert [(kind.lower(), int(number)) for kind, number in kinds] == [(k, i) for i, k in enumerate(get_args(Kind))]


def test_every_constant_has_its_real_value_in_some_world() -> None:
    """But for the size of a block and of a company: no world that can be searched whole has 28 days or ten homes."""
    for name, value in spin.CONSTANTS["questions"].items():
        assert any(world[name] == value for model, world in spin.WORLDS if model == "questions")


@needs_spin
@pytest.mark.parametrize("model, world", spin.WORLDS, ids=str)
def test_the_claims_hold_in_every_state_of_a_model(model: str, world: dict[str, int]) -> None:
    checked = spin.check(model, world)
    assert checked.violation == ""
    assert f" {checked.states} states" in PAGE


@needs_spin
@pytest.mark.parametrize("model, rule, world", spin.WITHOUT, ids=lambda part: part if isinstance(part, str) else "")
def test_without_a_rule_the_checker_finds_a_violation(model: str, rule: str, world: dict[str, int]) -> None:
    assert spin.check(model, world, rule).violation


@needs_spin
@pytest.mark.parametrize("model, world, real", SIMULATED, ids=lambda part: part if isinstance(part, str) else "")
def test_the_real_account_decides_as_the_model_does(model: str, world: dict[str, int], real) -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += Counter(replay(spin.simulated(model, world, seed, STEPS), real()))
    print(f"{model}, seeds 1 to 60: {dict(counts)}")
    assert counts["allowed"] > 100 and counts["refused"] > 100
