"""Everything that is gone through whole, with how much of it there is: the figures of docs/assurance.md.

python -m tests.assurance
"""

from tests.assurance import masks, spin
from tests.assurance.accounts import (
    CALENDAR_WITHOUT,
    COMPANIES_WITHOUT,
    QUESTIONS_WITHOUT,
    Calendar,
    Companies,
    Questions,
    replay,
    search,
)
from tests.assurance.test_accounts import CALENDAR, COMPANIES, QUESTIONS
from tests.assurance.test_models import SEEDS, SIMULATED, STEPS


def said(world: dict[str, int]) -> str:
    return " ".join(f"{name} {value}" for name, value in world.items())


def accounts() -> None:
    for kind, worlds in ((Questions, QUESTIONS), (Companies, COMPANIES), (Calendar, CALENDAR)):
        for world in worlds:
            found = search(kind(**world))
            what = found.violation or "nothing found"
            print(f"account, {kind.__name__.lower()}, {said(world)}: {found.states} states, {what}")
    for kind, rules, world in (
        (Questions, QUESTIONS_WITHOUT, {"days": 2, "askings": 1}), (Companies, COMPANIES_WITHOUT, {"days": 3}),
        (Calendar, CALENDAR_WITHOUT, {"days": 4}),
    ):  # fmt: skip
        for rule, ignored in rules.items():
            print(f"account without “{rule}”: {search(kind(**world, ignored=ignored)).violation}")


def models() -> None:
    if not spin.there():
        print("models: spin or gcc is not installed")
        return
    for model, world in spin.WORLDS:
        checked = spin.check(model, world)
        print(f"model, {model}, {said(world)}: {checked.states} states, {checked.violation or 'nothing found'}")
    for model, rule, world in spin.WITHOUT:
        print(f"model, {model}, without {rule}: violated {spin.check(model, world, rule).violation}")
    for model, world, real in SIMULATED:
        counts = [replay(spin.simulated(model, world, seed, STEPS), real()) for seed in SEEDS]
        both = {verdict: sum(count[verdict] for count in counts) for verdict in ("allowed", "refused")}
        print(f"model, {model}, decisions that the real account took alike: {both}")


def rings() -> None:
    for claim in (masks.sums_are_right, masks.uniform_given_the_sum, masks.colluder_sees_the_sum_of_the_others,
                  masks.not_given_is_not_to_be_told, masks.veil_hides_the_total):  # fmt: skip
        print(f"masks modulo {masks.MODULUS}, {masks.AGENTS} agents, {claim.__name__.replace('_', ' ')}: {claim()}")


if __name__ == "__main__":
    accounts()
    rings()
    models()
