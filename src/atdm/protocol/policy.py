"""The operator's side of companies: which agents sum which days, within the rules that every agent enforces.

    choose   one company for a window: the default of simulations and of fits
    Fleet    what the aggregator remembers of days and homes, and the next days to collect from it (equal weights)
    whole    exactly the company of an earlier fit

A home that is out on some days stays, and those days are lost for all, as long as that costs less than a tenth of the
window (live: of a block); beyond that the home that costs most is left out. A home that does not answer is waited for
`patience` seconds since it was last heard, then left out from the first day that is not settled.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from atdm.errors import RunAborted
from atdm.protocol.account import BLOCK
from atdm.protocol.company import BoolArray, large_enough
from atdm.protocol.roster import Roster

LOST_SHARE = 0.1  # of a window's days that homes may cost before one is left out instead
PATIENCE = 86400.0  # s that a silent home is waited for

Answers = Mapping[int, BoolArray]  # place in the roster → days it is in on
Choose = Callable[[Answers, Roster, int], tuple[list[int], BoolArray]]


def choose(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
    """Places in the roster and days, from everybody's bits."""
    inside = {place: days for place, days in answers.items() if days.any()}
    if not inside:
        raise RunAborted("nobody is in on any day of the window: choose another window")
    worth: BoolArray = np.logical_or.reduce(list(inside.values()))  # days on which anybody is in
    company = sorted(inside)
    while True:
        out = worth & ~np.array([inside[place] for place in company])
        lost: BoolArray = np.logical_or.reduce(out)
        if lost.sum() < LOST_SHARE * worth.sum() or not lost.any() or len(company) == 1:
            break
        won_back = (out & (out.sum(axis=0) == 1)).sum(axis=1)  # days that are lost for this home alone
        worst = min(range(len(company)), key=lambda i: (-won_back[i], -out[i].sum(), company[i]))
        del company[worst]
    _check_size(company, roster, least, len(answers))
    return company, worth & ~lost


def whole(names: Collection[str]) -> Choose:
    """The company of an earlier fit, all of it, on the days on which all are in."""

    def chosen(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
        places = [i for i, member in enumerate(roster.members) if member.name in names]
        missing = [roster.members[i].name for i in places if i not in answers]
        if len(places) < len(names) or missing:
            raise RunAborted(
                f"rows under the weights of a fit need its whole company, {len(names)} agents; without "
                f"{', '.join(missing[:3]) or 'those gone from the roster'}: collect with equal weights, or fit again"
            )
        days: BoolArray = np.logical_and.reduce([answers[i] for i in places])
        if not days.any():
            raise RunAborted("no day has the whole company of the fit: collect with equal weights, or fit again")
        return places, days

    return chosen


def _check_size(company: list[int], roster: Roster, least: int, answered: int) -> None:
    if not large_enough(tuple(roster.members[place] for place in company), roster, least):
        raise RunAborted(
            f"{answered} of {len(roster)} agents answered and {len(company)} are in on the same days: a company needs "
            f"{least} owners and two thirds of the roster; wait for more, or choose other days"
        )


@dataclass(slots=True)
class Fleet:
    """What the aggregator remembers: who summed which day, which days it gave up, who was heard when."""

    days: dict[int, tuple[str, ...]] = field(default_factory=dict)  # settled day → names of its company
    lost: set[int] = field(default_factory=set)  # days given up because homes were out on them
    heard: dict[str, float] = field(default_factory=dict)  # name → last answer  [s since 1970]

    def hear(self, names: Collection[str], now: float) -> None:
        self.heard.update(dict.fromkeys(names, now))

    def settle(self, days: Collection[int], names: tuple[str, ...]) -> None:
        self.days.update(dict.fromkeys(days, names))

    def next_days(self, first: int, now: float, patience: float = PATIENCE) -> Choose:
        """The first days of a window that can be summed now by one company; `first`: the window's first UTC day.

        Raises RunAborted where nothing can be summed yet, and says for whom it waits.
        """

        def chosen(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
            names = [member.name for member in roster.members]
            for name in names:
                self.heard.setdefault(name, now)  # a home that never came is waited for from now on
            count = len(next(iter(answers.values()))) if answers else 0
            days, company, waiting = np.zeros(count, dtype=bool), frozenset[str](), set[str]()
            for i in range(count):
                inside = frozenset(names[place] for place, bits in answers.items() if bits[i])
                answered = frozenset(names[place] for place in answers)
                found, awaited = self._company(first + i, inside, answered, frozenset(names), now - patience)
                waiting |= awaited
                places = [k for k, name in enumerate(names) if name in found]
                sound = large_enough(tuple(roster.members[k] for k in places), roster, least)
                if awaited or (days.any() and found != company):
                    break
                if found and sound:
                    days[i], company = True, found
            if not days.any():
                if waiting:
                    raise RunAborted(f"waiting for {', '.join(sorted(waiting)[:5])}: silent for less than a day")
                raise RunAborted("no day of the window can be summed: too few homes are in on it, or it was given up")
            return [k for k, name in enumerate(names) if name in company], days

        return chosen

    def _company(
        self, day: int, inside: frozenset[str], answered: frozenset[str], enrolled: frozenset[str], since: float
    ) -> tuple[frozenset[str], set[str]]:
        """Who sums a day, nobody where it cannot be; and whom to wait for before that is decided."""
        if day in self.days:
            settled = frozenset(self.days[day])
            return (settled, set()) if settled <= inside else (frozenset(), set())
        if day in self.lost:
            return frozenset(), set()
        block = range(day - day % BLOCK, day - day % BLOCK + BLOCK)
        earlier = [frozenset(self.days[d]) for d in block if d < day and d in self.days]
        later = [frozenset(self.days[d]) for d in block if d > day and d in self.days]
        ceiling = enrolled.intersection(*earlier)
        awaited = {name for name in ceiling - answered if self.heard.get(name, since) > since}
        if awaited:
            return frozenset(), awaited
        out = (ceiling & answered) - inside
        if out and sum(d in self.lost for d in block) + 1 < LOST_SHARE * BLOCK:
            self.lost.add(day)  # cheaper than doing without these homes for the rest of the block
            return frozenset(), set()
        company = ceiling & inside
        return (company, set()) if all(other <= company for other in later) else (frozenset(), set())
