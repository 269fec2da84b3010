"""Which company sums which days while homes come and go: the operator's choice within the rules of every agent.

    Fleet      what the aggregator remembers of days and homes; chooses the next days to collect (equal weights)
    FleetFile  that memory in a file
    whole      exactly the company of an earlier fit
    without    any of these choices, but for some homes

A home that is out on a day stays, and the day is dropped for all homes, while few days of a block are dropped; beyond
that the home is left out. A home that does not answer is waited for since it was last heard, then left out from the
first day that is not settled. How many days and how long is the operator's setting (`Outages`). `choose` in
protocol/company.py makes one company for a whole window.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from atdm.errors import DataError, RunAborted
from atdm.protocol.account import BLOCK
from atdm.protocol.company import Answers, Choose, owners_needed
from atdm.protocol.plan import MOST_DAYS
from atdm.protocol.roster import Roster, owners_of
from atdm.transport.disk import lock, replace_file
from atdm.types import BoolArray

OutagesName = Literal["wait", "balance", "leave"]


@dataclass(frozen=True, slots=True)
class Outages:
    """What an outage of one home costs: rows of all homes, or that home until the next block."""

    lost_share: (
        float  # of a block's days that are dropped because homes are out on them, before homes are left out  [-]
    )
    patience: float  # s that a silent home is waited for


OUTAGES: dict[OutagesName, Outages] = {
    "wait": Outages(0.3, 48 * 3600.0),
    "balance": Outages(0.1, 24 * 3600.0),
    "leave": Outages(0.0, 0.0),
}  # compared over a quarter in docs/operate.md
OF_THE_PAST = Outages(0.1, 0.0)  # rows that were there before anybody asked: who is silent now will not give them soon


def whole(identities: Collection[str]) -> Choose:
    """The company of an earlier fit, all of it, on the days on which all are in."""

    def chosen(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
        places = [i for i, member in enumerate(roster.members) if member.identity.hex() in identities]
        missing = [roster.members[i].name for i in places if i not in answers]
        if len(places) < len(identities) or missing:
            raise RunAborted(
                f"rows under the weights of a fit need its whole company, {len(identities)} agents; no answer "
                f"from {', '.join(missing[:3]) or 'those gone from the roster'}: collect with equal weights, or "
                "fit again"
            )
        days: BoolArray = np.logical_and.reduce([answers[i] for i in places])
        if not days.any():
            raise RunAborted("no day has the whole company of the fit: collect with equal weights, or fit again")
        return places, days

    return chosen


def without(policy: Choose, identities: Collection[str]) -> Choose:
    """The same choice as if these (identity keys in hex) had not answered."""

    def chosen(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
        some = {
            place: days for place, days in answers.items() if roster.members[place].identity.hex() not in identities
        }
        return policy(some, roster, least)

    return chosen if identities else policy


@dataclass(slots=True)
class Fleet:
    """What the aggregator remembers, by identity key: who summed which day, which days it gave up, who was heard when.

    "When" is the time of the last row asked for, not that of the clock: past rows are collected as they would have been
    live.
    """

    days: dict[int, tuple[str, ...]] = field(default_factory=dict)  # settled day → its company
    lost: set[int] = field(default_factory=set)  # days given up because homes were out on them
    heard: dict[str, float] = field(default_factory=dict)  # last row at which it answered  [s since 1970]
    attempt: int = 0  # number of the last announcement

    def hear(self, identities: Collection[str], now: float) -> None:
        self.heard.update({each: max(now, self.heard.get(each, now)) for each in identities})

    def settle(self, days: Collection[int], company: tuple[str, ...]) -> None:
        self.days.update(dict.fromkeys(days, company))

    def next_days(
        self, first: int, now: float, outages: Outages, late: Callable[[], Collection[int]] = tuple,
        most: int = MOST_DAYS, wanted: BoolArray | None = None, away: Callable[[], Collection[int]] = tuple,
    ) -> Choose:  # fmt: skip
        """The first days of a window, at most so many, that can be summed now by one company; first: the window's first
        UTC day; late: places of agents that have no readings yet of the last days: for these days they count as not
        having answered; wanted: days of which rows are asked for, all where it is None; away: places of agents whose
        owners stay out: nothing is given up for them.

        Raises RunAborted where nothing can be summed yet, and says for whom it waits.
        """

        def chosen(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
            keys = [member.identity.hex() for member in roster.members]
            for key in keys:
                self.heard.setdefault(key, now)  # a home that never came is waited for from now on
            count = len(next(iter(answers.values()))) if answers else 0
            late_ones = [place for place in late() if place in answers]
            out = {keys[place] for place in away()}
            begins = {key: member.since for key, member in zip(keys, roster.members, strict=True) if key not in out}
            behind = {place: int(np.max(np.flatnonzero(answers[place]), initial=-1)) for place in late_ones}
            days, company, waiting = np.zeros(count, dtype=bool), frozenset[str](), set[str]()
            for i in range(count):
                if days.sum() == most:
                    break
                if wanted is not None and not wanted[i]:
                    continue
                inside = frozenset(keys[place] for place, bits in answers.items() if bits[i])
                answered = frozenset(keys[place] for place in answers if i <= behind.get(place, i))
                enrolled = frozenset(key for key, since in begins.items() if since <= first + i)
                found, waiting = self._company(first + i, inside, answered, enrolled, now, outages)
                if waiting or (days.any() and found != company):
                    break
                owners = owners_of([member for member in roster.members if member.identity.hex() in found])
                if owners >= owners_needed(roster, least):
                    days[i], company = True, found
            if not days.any():
                names = sorted(member.name for member in roster.members if member.identity.hex() in waiting)
                hours = f"{outages.patience / 3600:g} h"
                if names:
                    raise RunAborted(f"waiting for {', '.join(names[:5])}, silent for less than {hours}")
                taken = sum(first + i in self.days for i in range(count) if wanted is None or wanted[i])
                others = "on each too few homes are in, or it was given up because homes were out"
                if taken:
                    others = (
                        f"{taken} were summed before with homes that are not all in now, and stay theirs; else {others}"
                    )
                raise RunAborted(
                    f"no day of the window can be summed: {others}; wait for more homes, or choose other days"
                )
            return [place for place, key in enumerate(keys) if key in company], days

        return chosen

    def _company(
        self, day: int, inside: frozenset[str], answered: frozenset[str], enrolled: frozenset[str], now: float,
        outages: Outages,
    ) -> tuple[frozenset[str], set[str]]:  # fmt: skip
        """The company of a day, empty where it cannot be summed; and the homes to wait for before that is decided."""
        nobody = frozenset[str]()
        if day in self.days:
            settled = frozenset(self.days[day])
            return (settled if settled <= inside else nobody), set()
        if day in self.lost:
            return nobody, set()
        block = range(day - day % BLOCK, day - day % BLOCK + BLOCK)
        earlier = [frozenset(self.days[d]) for d in block if d < day and d in self.days]
        later = [frozenset(self.days[d]) for d in block if d > day and d in self.days]
        ceiling = enrolled.intersection(*earlier)
        waiting = {key for key in ceiling - answered if self.heard[key] > now - outages.patience}
        if waiting:
            return nobody, waiting
        if (ceiling & answered) - inside and sum(d in self.lost for d in block) + 1 < outages.lost_share * BLOCK:
            self.lost.add(day)  # cheaper than doing without these homes for the rest of the block
            return nobody, set()
        company = ceiling & inside
        return (company if all(other <= company for other in later) else nobody), set()


class FleetFile:
    """What an aggregator remembers of its fleet, in its own folder: written before anybody is asked for a reading."""

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / "fleet.json", lock(folder)
        self.record = Fleet()
        if self._path.exists():
            try:
                self.record = msgspec.json.decode(self._path.read_bytes(), type=Fleet)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.close()
                raise DataError(f"{self._path} cannot be read: restore it from where it last ran") from None

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> "FleetFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hear(self, names: Sequence[str], now: float) -> None:
        self.record.hear(names, now)
        self.write()

    def settle(self, days: Sequence[int], names: tuple[str, ...]) -> None:
        self.record.settle(days, names)
        self.write()

    def next_attempt(self, now: int) -> int:
        """A number above that of every announcement before, also where the clock was set back: agents that answered
        one and heard no more of it take no other that is not newer.  [about ms since 1970]"""
        self.record.attempt = max(now, self.record.attempt + 1)
        self.write()
        return self.record.attempt

    def write(self) -> None:
        replace_file(self._path, msgspec.json.encode(self.record))
