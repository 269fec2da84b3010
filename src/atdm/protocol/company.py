"""Who is in a run, decided before the first sum and in the open.

    Announce  the aggregator says what it wants to ask, and over which days
    Ready     an agent answers with its key and one bit per UTC day: in, or out with one of a few reasons
    Keys      the aggregator names the company and the days: some of those that are in on all of them

Rule 1: an agent judges a day once, at the first announcement that touches it: in as soon as it has enough of the rows
        asked for, out where it has not and no more can come. Days of which it cannot tell yet are out of this run and
        judged later. Whether its account allows the day is looked up every time.
Rule 2: who does not answer is out. Nobody who is in leaves silently.
Rule 3: a company has at least ten owners and at least two thirds of those in the newest roster.
`judge` and `check_company` are the agent's side; which company the aggregator names, within these rules, is the
operator's choice: `choose` is the usual one for a window.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from atdm.data.gaps import staying
from atdm.data.readings import Readings, possible
from atdm.errors import PeerError, RunAborted
from atdm.options import OwnerChoice
from atdm.protocol.account import Account, Judged
from atdm.protocol.plan import DAY, AnyPlan, Collect, day_count, first_day, last_row
from atdm.protocol.readings import window
from atdm.protocol.roster import Roster, owners_of
from atdm.protocol.rules import Rules, least_owners
from atdm.types import BoolArray, IntArray

if TYPE_CHECKING:
    from atdm.protocol.session import Run

OWNERS_SHARE = (2, 3)  # of the roster's owners that a company needs, as a fraction
LATE = 6 * 3600  # s that readings may be late; longer is an outage

TOO_FEW = "too few readings on some days"
NOT_YET = "no readings yet of some days"
BEFORE_FIRST = "some days are before its first reading"
OTHER_STEP = "rows asked for are not on the grid of this agent's readings"
TOO_EARLY = "days before this agent's key was enrolled"
PAUSED = "its owner has paused it"
LEFT = "its owner has left for good: retire it from the roster"
BY_CHOICE: dict[OwnerChoice, str | None] = {"takes part": None, "paused": PAUSED, "left": LEFT}  # out on all days
Answers = Mapping[int, BoolArray]  # place in the roster → days it is in on
Choose = Callable[[Answers, Roster, int], tuple[list[int], BoolArray]]  # …, roster, least owners → company, days


class Verdict(NamedTuple):
    """An agent's answer: the days it is in on, and why not on the others, in fixed words."""

    days: BoolArray  # by day of the plan
    reason: str


def judge(
    plan: AnyPlan,
    readings: Readings,
    account: Account,
    rules: Rules,
    totals: tuple[int, int],
    fit: bytes,
    since: int = 0,
) -> Verdict:
    """The agent's bit for each day; what is judged for the first time is booked.

    totals: those the plan may ask for, and the most over a day; fit: the one whose weights are meant; since: the first
    day this agent's key may give.
    """
    inside: list[int] = []
    outside: list[int] = []
    reason = ""  # of the first day it is out on
    verdict = np.zeros(day_count(plan), dtype=bool)
    sound = possible(readings)
    own_step = int(np.diff(readings.time).min()) if len(readings.time) > 1 else 0  # s
    for i, day in enumerate(range(first_day(plan), first_day(plan) + day_count(plan))):
        refused = account.refuses(plan, day, *totals, fit) if day >= since else TOO_EARLY
        known = account.days.get(day)
        judged, why = (known.judged, TOO_FEW) if known is not None else (None, "")
        if judged is None:
            judged, why = _first_look(plan, readings, sound, own_step, day, rules.day_share)
            if judged is not None:
                (inside if judged else outside).append(day)
        verdict[i] = refused is None and bool(judged)
        if not verdict[i]:
            reason = reason or refused or why
    if inside or outside:
        account.book(Judged(tuple(inside), tuple(outside)))
    return Verdict(verdict, reason)


def _first_look(
    plan: AnyPlan, readings: Readings, sound: BoolArray, own_step: int, day: int, share: float
) -> tuple[bool | None, str]:
    """In or out for good: whether the day's rows up to the plan's last, from midnight on, are there to that share and
    all possible. None where it cannot be told yet; and why not in. A day judged out is lost for this agent, so it is
    not while readings are hours late, before the first one, or where there are enough on a grid of its own [s]."""
    time, step = readings.time, plan.step_seconds
    if len(time) == 0 or time[-1] < max(day * DAY, plan.start):
        return None, NOT_YET
    last = min(last_row(plan), (day + 1) * DAY - 1)
    at = slice(*np.searchsorted(time, (day * DAY, last + 1)).tolist())
    own, fine, needed = time[at], sound[at].all(), share * ((last - day * DAY) // step + 1)
    if fine and ((own - plan.start) % step == 0).sum() >= needed:
        return True, ""
    late = last - (last - plan.start) % step - int(time[-1])  # s from the newest reading to the last row asked for
    if 0 < late <= LATE:
        return None, NOT_YET
    if day < time[0] // DAY:
        return None, BEFORE_FIRST
    if fine and len(own) * own_step >= needed * step:
        return None, OTHER_STEP
    return False, TOO_FEW


def bits(flags: BoolArray) -> bytes:
    """Flags as bytes on the wire, the first in the lowest bit."""
    return np.packbits(flags, bitorder="little").tobytes()


def flags(data: bytes, count: int) -> BoolArray:
    if len(data) != -(-count // 8):
        raise PeerError(f"{len(data)} bytes for {count} flags: refused")
    unpacked = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if unpacked[count:].any():
        raise PeerError("flags beyond the last: refused")
    return unpacked[:count].astype(bool)


def rows_of(plan: AnyPlan, days: BoolArray) -> IntArray:
    """The stamps of a plan's window that lie on the days of the run."""
    time = window(plan)
    asked = days[time // DAY - first_day(plan)]
    if isinstance(plan, Collect):
        asked = asked & rows_asked(plan)
    return time[asked]


def rows_asked(plan: Collect) -> BoolArray:
    return flags(plan.asked, plan.length) if plan.asked else np.ones(plan.length, dtype=bool)


def owners_needed(roster: Roster, least: int) -> int:
    """For a company (Rule 3)."""
    part, whole = OWNERS_SHARE
    return max(least, -(-part * roster.owners() // whole))


def check_company(run: "Run", roster: Roster, account: Account, rules: Rules) -> None:
    """An agent's own look at the company that the aggregator named."""
    if run.owners < owners_needed(roster, least_owners(rules, run.announced.protocol)):
        raise RunAborted("the company is smaller than this agent accepts: too few owners, or less than two thirds")
    if min(run.days) < run.since:
        raise RunAborted("a member of the company was enrolled later than a day of the run")
    if (reason := account.refuses_company(run.days, run.company)) is not None:
        raise RunAborted(reason)


def choose(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
    """Places in the roster and days, from everybody's bits.

    A home that is out on some days stays, and those days are lost for all, as long as that costs less than a home is
    worth (data/gaps.py, Rule 4: of K homes 1/K of the days); beyond that the home that costs most days is left out.
    """
    places = [place for place in sorted(answers) if answers[place].any()]
    if not places:
        raise RunAborted("nobody is in on any day of the window: choose another window")
    inside = np.array([answers[place] for place in places])
    worth = inside.any(axis=0)  # days on which anybody is in
    stays = staying(~inside[:, worth].T, places, len(places) - 1)
    company = [place for place, stay in zip(places, stays, strict=True) if stay]
    if owners_of([roster.members[place] for place in company]) < owners_needed(roster, least):
        raise RunAborted(
            f"{len(answers)} of {len(roster)} agents answered and {len(company)} are in on the same days: a company "
            f"needs {least} owners and two thirds of the roster; wait for more, or choose other days"
        )
    return company, np.logical_and.reduce(inside[stays])
