"""A fortnight of the year in every `make test`, all of it in `make soak`; year.py says what happens and must hold."""

import numpy as np
import pytest

from tests.reliability import year
from tests.reliability.year import (
    ASKINGS,
    DAY,
    FAULTS,
    HOLE,
    Figures,
    Witness,
    Wrong,
    Year,
    drawn_faults,
    rehearse,
    trusted_centre,
)

HOUR = 3600
FEW, MANY = frozenset("ab"), frozenset("abc")
BLOCK_START = 28 * 700


def judge(played: Year, found: Figures, worse: float) -> None:
    """What must hold for the forecasts and the model; the rest was checked as it happened. worse: than a trusted
    centre's, at most."""
    print("", *(f"{count:7d} {what}" for what, count in sorted(played.seen.items())), *found.lines(), sep="\n")
    assert all(played.seen[what] for what in FAULTS), "some fault never happened"
    assert found.ahead <= worse * found.ahead_centre and found.fresh <= worse * found.fresh_centre
    assert found.overdue <= 12.0  # h: its clock was wrong by up to nine


def test_a_fortnight_of_faults_passes_with_every_row_right_and_no_account_beyond_its_limits() -> None:
    with trusted_centre(14, 1) as centre:
        played, found = rehearse(14, 1, centre)
    judge(played, found, 1.5)  # a few dozen forecasts, from a model of a few days
    assert found.rows > 0.6 and played.seen["accounts read"] >= year.HOMES


@pytest.mark.soak
def test_a_year_of_faults() -> None:
    with trusted_centre(365, 1) as centre:
        played, found = rehearse(365, 1, centre)
    judge(played, found, 1.2)
    assert found.rows > 0.7 and played.seen["accounts read"] >= 12 * (year.HOMES - 4)


def test_a_seed_draws_the_same_faults_again_and_every_kind_of_them() -> None:
    first = drawn_faults(3, 0.0, 365, year.HOMES)
    assert first == drawn_faults(3, 0.0, 365, year.HOMES) != drawn_faults(4, 0.0, 365, year.HOMES)
    assert {fault.what for fault in drawn_faults(3, 0.0, 14, year.HOMES)} == set(FAULTS)
    assert [fault.what for fault in first].count("the desk killed") == FAULTS["the desk killed"].a_year


# What checks is checked: each limit passed by one step is found out


def witness(*days: tuple[int, frozenset[str]]) -> Witness:
    """One that gave noon of some days to some companies."""
    found = Witness("a", {})
    for day, company in days:
        found._check([day * DAY + 12 * HOUR], company, 0)
    return found


def test_what_is_within_the_limits_is_not_found_fault_with() -> None:
    seen = witness((BLOCK_START, MANY), (BLOCK_START + 1, FEW), (BLOCK_START + 28, MANY))
    seen._check([BLOCK_START * DAY + HOUR * h for h in range(12, 18)], MANY, BLOCK_START)
    assert seen.shown[BLOCK_START * DAY + 12 * HOUR] == 2


@pytest.mark.parametrize(
    ("day", "hour", "company", "since", "what"),
    [
        (BLOCK_START, 12, FEW, 0, "two companies"),
        (BLOCK_START + 2, 12, MANY, 0, "a company grew"),
        (BLOCK_START - 1, 19, FEW, 0, "beside a change"),
        (BLOCK_START + 2, 5, frozenset("a"), 0, "beside a change"),
        (BLOCK_START + 2, 12, FEW, BLOCK_START + 3, "from"),
    ],
)
def test_a_limit_that_is_passed_is_found(day: int, hour: int, company: frozenset[str], since: int, what: str) -> None:
    seen = witness((BLOCK_START, MANY), (BLOCK_START + 1, FEW))
    with pytest.raises(Wrong, match=what):
        seen._check([day * DAY + hour * HOUR], company, since)


def test_a_stamp_shown_once_too_often_is_found() -> None:
    seen = witness(*[(BLOCK_START, MANY)] * ASKINGS)
    with pytest.raises(Wrong, match=f"shown {ASKINGS + 1} times"):
        seen._check([BLOCK_START * DAY + 12 * HOUR], MANY, 0)


def test_a_homes_gaps_are_filled_up_to_two_hours_and_its_wrong_clock_moves_readings() -> None:
    town = year.build(year.FIRST_DAY, 2, 3, 0, HOUR)
    begin = float(town.time[10])
    faults = [
        year.Fault("a short gap", begin, begin, 0),
        year.Fault("readings lost for hours", begin + 5 * HOUR, begin + 8 * HOUR, 0),
        year.Fault("a home's clock wrong", begin + 20 * HOUR, begin + 22 * HOUR, 0, size=2.0 * HOUR),
    ]
    recorder = year.Recorder("home", town, 0, faults, lambda: float(town.time[-1]))
    known = recorder.complete(town.time)[:, 0]
    true = town.temperature[:, 0]
    assert known[10] == pytest.approx((true[9] + true[11]) / 2)
    assert np.isnan(known[15:18]).all() and np.isnan(known[30:32]).all() and not np.isnan(known[32:]).any()
    assert known[32] == true[30] and known[33] == true[31] and known[34] == true[34]
    assert len(recorder.rows(int(town.time[40])).time) == len(town.time) - 41 and HOLE == 6 * HOUR
