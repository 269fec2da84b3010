"""No order of questions, companies, restarts and kills gets more out of the real account than is claimed."""

import pytest

from tests.assurance.accounts import (
    CALENDAR_WITHOUT,
    COMPANIES_WITHOUT,
    QUESTIONS_WITHOUT,
    Calendar,
    Companies,
    Questions,
    search,
)
from tests.assurance.test_page import PAGE

# Worlds that are searched whole; one constant at a time has its real value.
QUESTIONS = (
    {"days": 2, "totals": 2, "signs": 1, "askings": 1},
    {"days": 1, "totals": 2, "signs": 1, "askings": 2},
    {"days": 1, "totals": 5, "signs": 1, "askings": 1},
    {"days": 1, "totals": 1, "signs": 3, "askings": 1},
    {"days": 1, "totals": 1, "signs": 0, "askings": 4},
)
COMPANIES = ({"days": 3, "members": 3}, {"days": 3, "members": 4})
CALENDAR = ({"days": 4, "fitted_days": 2, "of_days": 3},)


@pytest.mark.parametrize("world", QUESTIONS, ids=str)
def test_no_day_is_answered_beyond_its_limit_nor_put_into_a_second_model(world: dict[str, int]) -> None:
    found = search(Questions(**world))
    assert found.violation == "", found.path
    assert found.accounts > 30, "a world in which nothing happens shows nothing"
    assert f" {found.states} states" in PAGE


@pytest.mark.parametrize("world", COMPANIES, ids=str)
def test_no_day_is_summed_with_two_companies_nor_with_one_that_grew(world: dict[str, int]) -> None:
    found = search(Companies(**world))
    assert found.violation == "", found.path
    assert found.accounts > 30, "a world in which nothing happens shows nothing"
    assert f" {found.states} states" in PAGE


@pytest.mark.parametrize("world", CALENDAR, ids=str)
def test_no_day_is_judged_twice_given_before_its_key_or_fitted_beyond_the_years_limit(world: dict[str, int]) -> None:
    found = search(Calendar(**world))
    assert found.violation == "", found.path
    assert found.accounts > 30, "a world in which nothing happens shows nothing"
    assert f" {found.states} states" in PAGE


EXPECTED = {  # rule taken out → what an observer then sees
    "a day is shown under one weighting": "a day in two ways",
    "a day has one grid": "a day on two grids",
    "a day that a fit asked is in no other plan": "a day in two ways",
    "a fit is not opened over a day that has a total": "a day opened to two fits",
    "totals over a day": "too many totals over a day",
    "counts of signs over a day": "too many counts of signs over a day",
    "one model over a day": "two models over a day",
    "askings of a question and of a stamp": "a stamp was shown too often",
    "a day has one company": "a day in two companies",
    "within a block companies only shrink": "a company that grew within a block",
    "six hours beside a change are not given": "rows on both sides of a change of company",
    "a company is large enough": "a company too small",
    "a day is judged once": "a day judged twice",
    "a key enrolled later gives no earlier day": "a day before its key was enrolled",
    "fitted weights touch few days of a year": "fits over too many days",
}


def test_every_rule_is_taken_out_once() -> None:
    assert list(EXPECTED) == [*QUESTIONS_WITHOUT, *COMPANIES_WITHOUT, *CALENDAR_WITHOUT]


@pytest.mark.parametrize("rule", EXPECTED)
def test_without_a_rule_the_search_finds_what_it_is_there_for(rule: str) -> None:
    if rule in QUESTIONS_WITHOUT:
        found = search(Questions(days=2, askings=1, ignored=QUESTIONS_WITHOUT[rule]))
    elif rule in COMPANIES_WITHOUT:
        found = search(Companies(days=3, ignored=COMPANIES_WITHOUT[rule]))
    else:
        found = search(Calendar(days=4, ignored=CALENDAR_WITHOUT[rule]))
    assert found.violation == EXPECTED[rule]


@pytest.mark.parametrize("world", [Questions(booked_first=False), Companies(days=2, booked_first=False)],
                         ids=["questions", "companies"])  # fmt: skip
def test_an_answer_that_leaves_before_it_is_booked_is_found(world: Questions | Companies) -> None:
    assert search(world).violation
