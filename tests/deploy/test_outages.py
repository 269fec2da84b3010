"""What an outage of one home costs is the operator's setting: a day of all homes, or the home until the next block."""

import numpy as np
import pytest

from atdm.crypto.keys import SigningKey
from atdm.deploy.enrolment import growth_note
from atdm.deploy.fleet import OUTAGES, Fleet
from atdm.errors import RunAborted
from atdm.protocol.account import BLOCK
from atdm.protocol.plan import DAY
from atdm.protocol.roster import Roster, sign_roster

HOMES, FIRST, DAYS = 12, 28 * 700, 6  # days from the first one of a block
NOW = (FIRST + DAYS) * DAY - 1.0


@pytest.fixture(scope="module")
def roster() -> Roster:
    keys = [SigningKey(bytes([i]) * 32) for i in range(HOMES + 1)]
    return sign_roster(keys[-1], [(f"home{i}", f"home{i}", key.public) for i, key in enumerate(keys[:-1])], 1)


def answers(*out: tuple[int, int], silent: tuple[int, ...] = ()) -> dict[int, np.ndarray]:
    """Everybody is in on all days but for (home, day), and but for those who do not answer."""
    found = {place: np.ones(DAYS, dtype=bool) for place in range(HOMES) if place not in silent}
    for place, day in out:
        found[place][day] = False
    return found


def collected(fleet: Fleet, roster: Roster, setting: str, given: dict[int, np.ndarray], away: tuple[int, ...] = ()):
    """(homes, day) of all days that runs one after the other sum."""
    summed: list[tuple[int, int]] = []
    first = FIRST
    while first < FIRST + DAYS:
        left = {place: days[first - FIRST :] for place, days in given.items()}
        choose = fleet.next_days(first, NOW, OUTAGES[setting], away=lambda: away)
        try:
            company, days = choose(left, roster, 10)
        except RunAborted:
            return summed
        settled = [first + int(day) for day in np.flatnonzero(days)]
        fleet.settle(settled, tuple(roster.members[place].identity.hex() for place in company))
        summed += [(len(company), day - FIRST) for day in settled]
        first = settled[-1] + 1
    return summed


def test_a_day_out_costs_the_day_or_the_home_as_the_setting_says(roster):
    given = answers((3, 1))
    assert collected(Fleet(), roster, "balance", given) == [(12, day) for day in (0, 2, 3, 4, 5)]
    assert collected(Fleet(), roster, "leave", given) == [(12, 0), *((11, day) for day in (1, 2, 3, 4, 5))]


def test_days_are_given_up_up_to_the_settings_share_of_a_block(roster):
    given = answers(*((3, day) for day in range(1, DAYS)))
    for setting in ("wait", "balance"):
        lost = [day for day in range(1, DAYS) if day < OUTAGES[setting].lost_share * BLOCK]
        kept = collected(Fleet(), roster, setting, given)
        assert kept == [(12, 0), *((11, day) for day in range(1, DAYS) if day not in lost)], setting


def test_a_silent_home_is_waited_for_as_long_as_the_setting_says(roster):
    given, key = answers(silent=(5,)), roster.members[5].identity.hex()
    for setting, outages in OUTAGES.items():
        for silence in (outages.patience - 1.0, outages.patience):
            fleet = Fleet(heard={key: NOW - silence})
            assert len(collected(fleet, roster, setting, given)) == (0 if silence < outages.patience else DAYS)


def test_nothing_is_given_up_for_a_home_whose_owner_stays_out(roster):
    given = answers(*((3, day) for day in range(DAYS)))
    for setting in OUTAGES:
        assert collected(Fleet(), roster, setting, given, away=(3,)) == [(11, day) for day in range(DAYS)]
        assert collected(Fleet(), roster, setting, given, away=(3,)) != collected(Fleet(), roster, "wait", given)


def test_where_days_belong_to_homes_that_are_gone_it_is_said(roster):
    """After a home was retired: a window that was summed before cannot be summed again without it."""
    fleet = Fleet()
    assert len(collected(fleet, roster, "leave", answers())) == DAYS
    choose = fleet.next_days(FIRST, NOW, OUTAGES["leave"])
    with pytest.raises(RunAborted, match="6 were summed before with homes that are not all in now, and stay theirs"):
        choose(answers(*((2, day) for day in range(DAYS))), roster, 10)
    with pytest.raises(RunAborted, match="can be summed: on each too few homes are in"):
        Fleet().next_days(FIRST, NOW, OUTAGES["leave"])(
            answers(*((home, day) for day in range(DAYS) for home in range(6))), roster, 10
        )


def grown(homes: int, since: int) -> Roster:
    """The twelve, and those who came later."""
    keys = [SigningKey(bytes([i]) * 32) for i in range(homes + 1)]
    members = [(f"home{i}", f"home{i}", key.public) for i, key in enumerate(keys[:-1])]
    return sign_roster(keys[-1], members, 2, {key.public: since for key in keys[HOMES:-1]})


@pytest.mark.parametrize("setting", OUTAGES)
def test_nothing_is_given_up_for_a_home_that_was_not_enrolled_yet(setting):
    """Its key gives no day before it came: it is out on them for good."""
    everybody, came = grown(14, FIRST + 3), 3
    given = {place: np.arange(DAYS) >= (came if member.since else 0) for place, member in enumerate(everybody.members)}
    assert collected(Fleet(), everybody, setting, given) == [(12, day) for day in range(DAYS)]


def test_an_authority_is_told_what_too_many_new_homes_in_a_block_cost():
    assert growth_note(grown(18, FIRST + 3), FIRST + 3) is None
    note = growth_note(grown(19, FIRST + 3), FIRST + 3)
    assert "12 owners" in note and "needs 13" in note and "up to 6 owners" in note and "2023-09-27" in note
    assert growth_note(grown(19, FIRST + 3), FIRST + BLOCK) is None  # in the next block they are all there
    assert growth_note(grown(19, 0), FIRST) is None
