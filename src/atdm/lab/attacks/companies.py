"""Attacks on who is in a sum, and on what a home gives of itself: differences of two sums with equal weights.

Each picks a few homes and claims their temperature. The rules that answer them are in docs/spec.md §6.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from atdm.data.clock import seconds
from atdm.data.readings import Readings, positions
from atdm.lab.attacks.dishonest import Mounted, ending, leaving_out
from atdm.lab.attacks.score import Guess
from atdm.lab.attacks.stage import Released, Stage
from atdm.protocol.account import BLOCK, MOST_ASKINGS
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.messages import Announce, Message, ToAgent
from atdm.protocol.plan import DAY, AnyPlan, Collect, Plan
from atdm.run import rows_of_plan

VICTIMS = (1, 2, 3)  # places of the homes that are picked; the colluding agent, where there is one, is the first
MOVES = 5  # days on which a home is in and out by turns
NEAR = 8  # rows on each side of a change from which a sum is continued to it
DEGREES = (0, 1, 2)  # of the polynomial that does so; the best counts
ASKINGS = 6  # of one question

Sums = dict[int, float]  # stamp → Σ x_i over the company, centred [K]


class Asker:
    """Asks homes for rows with equal weights, and keeps what they said where they did not give them."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    def __call__(self, stage: Stage, asked: AnyPlan, out: Sequence[int] = (), **how: object) -> Sums:
        """Σ x_i by stamp, over all but `out`; nothing where it was stopped."""
        aggregator = stage.play(asked, choose=leaving_out(*out), **how)  # type: ignore[arg-type]
        if aggregator.state is not AggregatorState.DONE:
            self.stopped.append(ending(aggregator))
            return {}
        rows = Released.of(aggregator)
        return dict(zip(rows.kept.tolist(), (len(aggregator.members) * rows.state).tolist(), strict=True))

    def mounted(self, stage: Stage, claims: dict[int, Sums], accepted: bool | None = None) -> Mounted:
        """claims: place → its temperature by stamp, centred [K]."""
        note = self.stopped[0] if self.stopped else ""
        guess = named(stage, claims)
        return Mounted(bool(guess) if accepted is None else accepted, guess, note)


def named(stage: Stage, claims: dict[int, Sums], note: str = "") -> list[Guess]:
    """One claim about all of these homes."""
    claims = {place: claim for place, claim in claims.items() if claim}
    if not claims:
        return []
    stamps = np.array(sorted(set().union(*claims.values())), dtype=np.int64)
    series = np.full((len(stamps), len(claims)), np.nan)
    for column, claim in zip(series.T, claims.values(), strict=True):
        column[np.searchsorted(stamps, sorted(claim))] = [claim[stamp] for stamp in sorted(claim)]
    rows = positions(seconds(stage.cluster.time), stamps)
    return [Guess(series=series, rows=rows, about=tuple(claims), note=note)]


def difference(larger: Sums, smaller: Sums) -> Sums:
    """What one sum has more than another, where they have the same stamps."""
    return {stamp: larger[stamp] - smaller[stamp] for stamp in larger.keys() & smaller.keys()}


def whole_days(stage: Stage, count: int) -> list[int]:
    """The first so many whole UTC days in a row that lie in one block; fewer where there are no more."""
    numbers, rows = np.unique(seconds(stage.cluster.time) // DAY, return_counts=True)
    wanted = max(2, DAY // int(stage.cluster.step.total_seconds()))  # two rows at least, to be halved
    whole = set(numbers[rows == wanted].tolist())
    runs = [[day + n for n in range(count) if day + n in whole] for day in sorted(whole)]
    fitting = [run for run in runs if run and run[0] // BLOCK == run[-1] // BLOCK]
    return max(fitting, key=len, default=[])


def portion(stage: Stage, day: int, first: int = 0, last: int = 24) -> Collect:
    """Hours of one day."""
    step = int(stage.cluster.step.total_seconds())
    return Collect(step_seconds=step, start=day * DAY + first * 3600, length=(last - first) * 3600 // step)


def each_victim(stage: Stage, days: int) -> Iterator[tuple[int, Stage, list[int]]]:
    """A home, agents that were asked nothing yet, and whole days of one block; nothing where the data have too few."""
    found = whole_days(stage, days)
    for victim in victims(stage) if len(found) == days else ():
        yield victim, stage.fresh(), found


def victims(stage: Stage) -> tuple[int, ...]:
    return tuple(place for place in VICTIMS if place < len(stage.agents))


def small_company(stage: Stage, plan: Plan, colluder: int) -> Mounted:
    """All answers but those of the colluding agent and of one home are dropped."""
    ask, claims = Asker(), {}
    for victim in victims(stage):

        def drop(place: int, message: ToAgent, kept: tuple[int, int] = (colluder, victim)) -> Message | None:
            return None if isinstance(message, Announce) and place not in kept else message

        new = stage.fresh()
        pair = ask(new, rows_of_plan(plan), alter=drop)
        stamps = np.array(sorted(pair), dtype=np.int64)
        claims[victim] = difference(pair, dict(zip(sorted(pair), new.own_series(colluder, stamps), strict=True)))
    return ask.mounted(stage, claims)


def older_roster(stage: Stage, plan: Plan) -> Mounted:
    """The roster as it was when few homes had enrolled is handed out again: two thirds of few are few."""
    ask, few = Asker(), range(stage.rules.least_agents)
    old = stage.roster_of(few, 0)
    stage.take(old)
    found = ask(stage, rows_of_plan(plan), roster=old)
    note = f"rows of a company of {len(old)} of {len(stage.agents)} homes" if found else "; ".join(ask.stopped)
    return Mounted(bool(found) and 3 * len(few) < 2 * len(stage.agents), [], note)


def new_keys(stage: Stage, plan: Plan) -> Mounted:
    """Homes that enrol anew have empty accounts: the same rows once more, without one of them."""
    ask, claims = Asker(), {}
    for victim, new, days in each_victim(stage, 1):
        everybody = ask(new, portion(new, days[0]))
        anew = new.enrolled_anew(int(seconds(stage.cluster.time)[-1]) // DAY + 1)
        place = [agent.name for agent in anew.agents].index(new.agents[victim].name)
        again = ask(anew, portion(anew, days[0]), [place])
        claims[victim] = difference(everybody, again)
    return ask.mounted(stage, claims)


def _days_without(stage: Stage, out: Callable[[int], bool]) -> dict[int, tuple[list[Sums], list[int]]]:
    """For each victim the sums of some days in a row, on some of which it is left out; and the days it came back."""
    ask, found = Asker(), {}
    for victim, new, days in each_victim(stage, MOVES):
        sums = [ask(new, portion(new, day), [victim] if out(number) else []) for number, day in enumerate(days)]
        back = [n for n in range(1, len(days)) if out(n - 1) and not out(n) and sums[n]]
        found[victim] = sums, back
    return found


def by_hour(days: Sequence[Sums]) -> Sums:
    """The mean of some days at each time of the day."""
    hours = {stamp % DAY for day in days for stamp in day}
    return {hour: float(np.mean([v for day in days for t, v in day.items() if t % DAY == hour])) for hour in hours}


def in_and_out(stage: Stage, plan: Plan) -> Mounted:
    """A home is in on every other day: what the days before and after have more, in the mean, is its level, however
    all homes drift."""
    found = _days_without(stage, lambda number: number % 2 == 1)
    claims, returned = {}, 0
    for victim, (days, back) in found.items():
        returned += len(back)
        middle = [number - 1 for number in back if days[number - 2] and days[number - 1]]
        more = [difference(by_hour([days[n - 1], days[n + 1]]), by_hour([days[n]])) for n in middle]
        levels = [value for each in more for value in each.values()]
        stamps = set().union(*(days[n] for n in middle))
        claims[victim] = dict.fromkeys(stamps, float(np.mean(levels))) if levels else {}
    return Mounted(returned > 0, named(stage, claims), f"it came back {returned} times in {len(found)} trials")


def home_that_left(stage: Stage, plan: Plan) -> Mounted:
    """Within the rules: some days with a home, then some without it. Its level, if all others keep theirs."""
    found = _days_without(stage, lambda number: number >= MOVES // 2)
    claims = {}
    for victim, (days, _) in found.items():
        before, after = by_hour(days[: MOVES // 2]), by_hour(days[MOVES // 2 :])
        levels = list(difference(before, after).values())
        stamps = set().union(*days[MOVES // 2 :])
        claims[victim] = dict.fromkeys(stamps, float(np.mean(levels))) if levels else {}
    return Mounted(True, named(stage, claims), "not claimed")


def continued(sums: Sums, when: int, degree: int) -> float:
    """A sum at a moment, from the rows nearest to it."""
    stamps = np.array(sorted(sums, key=lambda stamp: abs(stamp - when))[:NEAR])
    values = [sums[stamp] for stamp in stamps.tolist()]
    return float(np.polyval(np.polyfit((stamps - when) / 3600, values, min(degree, len(stamps) - 1)), 0.0))


def _across(stage: Stage, days: int, parts: Callable[[Stage, list[int]], tuple[Collect, Collect, int]]) -> Mounted:
    """Rows before a moment with everybody, rows after it without one home, both continued to the moment."""
    ask, guesses = Asker(), []
    sums: dict[int, tuple[Sums, Sums, int]] = {}
    for victim, new, found in each_victim(stage, days):
        before, after, when = parts(new, found)
        sums[victim] = ask(new, before), ask(new, after, [victim]), when
    sums = {place: each for place, each in sums.items() if each[0] and each[1]}
    gaps = [min(abs(t - when) for t in after) / 3600 for _, after, when in sums.values()]
    for degree in DEGREES:
        claims = {
            place: {when: continued(before, when, degree) - continued(after, when, degree)}
            for place, (before, after, when) in sums.items()
        }
        guesses += named(stage, claims, f"continued by degree {degree} over {max(gaps, default=0):g} h")
    return Mounted(bool(guesses), guesses, ask.stopped[0] if ask.stopped else "")


def around_midnight(stage: Stage, plan: Plan) -> Mounted:
    """A home is left out from a midnight on: both sums are continued to it."""
    return _across(stage, 2, lambda new, days: (portion(new, days[0]), portion(new, days[1]), days[1] * DAY))


def around_noon(stage: Stage, plan: Plan) -> Mounted:
    """The same within a day, given in two portions."""

    def halves(new: Stage, days: list[int]) -> tuple[Collect, Collect, int]:
        return portion(new, days[0], 0, 12), portion(new, days[0], 12, 24), days[0] * DAY + DAY // 2

    return _across(stage, 1, halves)


def late_readings(stage: Stage, plan: Plan) -> Mounted:
    """A day is asked for before a home has its afternoon, and again when it does."""
    ask, claims, early = Asker(), {}, 0
    for victim, new, days in each_victim(stage, 1):
        whole, noon = new.agents[victim].own.readings, days[0] * DAY + DAY // 2
        new.reads(victim, whole.at(np.flatnonzero(whole.time < noon)))
        without = ask(new, portion(new, days[0]))
        early += sum(stamp >= noon for stamp in without)
        new.reads(victim, whole)
        found = difference(ask(new, portion(new, days[0])), without)
        claims[victim] = {stamp: value for stamp, value in found.items() if stamp >= noon}
    return Mounted(early > 0, named(stage, claims), f"{early} rows opened before a home had them")


def corrected_readings(stage: Stage, plan: Plan) -> Mounted:
    """A home has a placeholder of 20 °C at first, and later what its sensor measured."""
    ask, claims, changed = Asker(), {}, False
    for victim, new, days in each_victim(stage, 1):
        measured = new.agents[victim].own.readings
        new.reads(victim, Readings(measured.time, np.full(len(measured.time), 20.0), measured.load))
        before = ask(new, portion(new, days[0]))
        new.reads(victim, measured)
        found = difference(ask(new, portion(new, days[0])), before)
        changed |= any(found.values())
        claims[victim] = found
    return ask.mounted(stage, claims, accepted=changed)


def same_question(stage: Stage, plan: Plan) -> Mounted:
    """The same rows again and again: every other answer would be a further series."""
    ask = Asker()
    answers = [ask(stage, rows_of_plan(plan)) for _ in range(ASKINGS)]
    given = [answer for answer in answers if answer]
    different = len({tuple(sorted(answer.items())) for answer in given})
    note = f"{ASKINGS} askings, {len(given)} answered, {different} different"
    return Mounted(len(given) > MOST_ASKINGS or different > 1, [], note)
