"""Every attack on `blind` where the rule that answers it is taken out, beside the same attack on the real build.

    python -m tests.lab.weakened [NAME …]     the table of docs/attacks.md; some minutes

A rule is taken out by a limit of `Rules`, where there is one, or by one function or constant that is replaced for as
long as the attack lasts; there is no switch for it in the product.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import CubicSpline

from atdm.crypto import ring
from atdm.crypto.keys import digest
from atdm.data import Cluster
from atdm.errors import RunAborted
from atdm.lab.attacks.catalogue import ATTACKS, COLLUDER, LOOKING
from atdm.lab.attacks.score import Finding, Guess, Truth, best, score
from atdm.lab.attacks.stage import Stage, changed, repeatable
from atdm.lab.audit import _Audit
from atdm.options import fit_options
from atdm.protocol import account, agent, collect, company, part, plan
from atdm.protocol.account import OTHER_WEIGHTING, Account
from atdm.protocol.agent import Agent
from atdm.protocol.blind import direction, release, veil
from atdm.protocol.blind.desk import BlindDesk
from atdm.protocol.blind.layouts import RELEASE
from atdm.protocol.blind.release import open_release, vouched
from atdm.protocol.collect import CollectPart
from atdm.protocol.plan import DAY
from atdm.protocol.rules import Rules
from atdm.protocol.session import Session
from atdm.run import make_plan
from tests.clusters import tiny
from tests.lab.attacks.helpers import logger_series

Patch = pytest.MonkeyPatch
RULES = Rules(least_agents=3, rows_per_parameter=1)  # of both builds: the clusters are small


# Clusters on which an attack has something to find


def cluster_of(temperature: np.ndarray, step: str, seed: int = 0) -> Cluster:
    """A cluster with these temperatures, rows × agents."""
    base = tiny(seed, agents=temperature.shape[1], rows=len(temperature), step=step)
    frame = pd.DataFrame(np.round(temperature, 2), index=base.time, columns=base.agents)
    return Cluster.from_frames(frame, base.load, base.outdoor, base.solar)


@cache
def homes(days: int = 6, *, agents: int = 15, step: str = "1h", seed: int = 0) -> Cluster:
    """Homes with levels and days of their own, smooth from one row to the next and different some hours later."""
    rng = np.random.default_rng(seed)
    hour = np.arange(0.0, 24 * days, pd.Timedelta(step) / pd.Timedelta("1h"))[:, None]
    level, swing, phase = rng.normal(20, 2, agents), rng.uniform(0.2, 0.8, agents), rng.uniform(0, 24, agents)
    knots = np.arange(0, 24 * days + 6, 3)
    wander = CubicSpline(knots, rng.normal(0, 0.4, (len(knots), agents)))(hour[:, 0])
    return cluster_of(level + swing * np.sin(2 * np.pi * (hour - phase) / 24) + wander, step)


def homes_by_the_quarter() -> Cluster:
    return homes(step="15min")


@cache
def rooms(*, agents: int = 12, rows: int = 240, step: str = "6h", seed: int = 0) -> Cluster:
    """Rooms that move rarely and strongly, as opened windows and set points do: easy to tell apart in enough sums."""
    rng = np.random.default_rng(seed)
    moves = 1.5 * rng.laplace(size=(rows, agents)) * (rng.random((rows, agents)) < 0.1)
    temperature = np.zeros((rows, agents))
    for t in range(1, rows):
        temperature[t] = 0.8 * temperature[t - 1] + moves[t]
    return cluster_of(20 + temperature, step)


@cache
def few_rooms() -> Cluster:
    """Eight of them, with sensors of half a degree."""
    moving = rooms(agents=8, rows=480, step="3h", seed=1)
    return cluster_of(np.round(2 * moving.temperature.to_numpy(float)) / 2, "3h")


@cache
def slow(days: int = 40, step: str = "1h", knots: float = 0.5) -> Cluster:
    """Rooms that drift from one knot to the next, so many days apart: the same series on every grid."""
    count = int(days / knots) + 3
    drift = CubicSpline(knots * np.arange(count), np.random.default_rng(0).laplace(20, 1, (count, 12)))
    hours = pd.Timedelta(step) / pd.Timedelta("1h")
    return cluster_of(drift(np.arange(0, days * 24, hours) / 24), step)


def drifting() -> Cluster:
    return slow(14, "6h", 2.0)


@cache
def warming() -> Cluster:
    """Homes that all become warmer from day to day."""
    cluster = homes()
    trend = 0.02 * np.arange(len(cluster.time))[:, None]  # K an hour
    return cluster_of(cluster.temperature.to_numpy(float) + trend, "1h")


@cache
def one_explained() -> Cluster:
    """One room follows the weather exactly: a state with a small ridge would rest on it."""
    cluster, noise = tiny(rows=160), np.random.default_rng(0).normal(0, 0.02, 160)
    temperature = cluster.temperature.to_numpy(float).copy()
    for t in range(1, len(temperature)):
        pull = 17 + 0.3 * cluster.outdoor.iloc[t] + 3 * cluster.solar.iloc[t]
        temperature[t, 3] = 0.7 * temperature[t - 1, 3] + 0.3 * pull + noise[t]
    return cluster_of(temperature, "6h")


@cache
def loggers() -> Cluster:
    return cluster_of(20 + logger_series(rows=400), "6h")


@cache
def tiny160() -> Cluster:
    return tiny(rows=160)


@cache
def tiny24() -> Cluster:
    return tiny(agents=24, rows=160)


# Rules taken out


def allows(*arguments: object, **named: object) -> None:
    return None


def any_company(patch: Patch) -> None:
    patch.setattr(Account, "refuses_company", allows)


def any_size(patch: Patch) -> None:
    patch.setattr(company, "owners_needed", lambda *a: 0)


def takes_older(patch: Patch) -> None:
    def sees(self: Agent, roster: Any) -> None:
        self.own.memory.serial = roster.serial

    patch.setattr(Agent, "_see_roster", sees)


def no_first_day(patch: Patch) -> None:
    whole = Stage.roster_of
    patch.setattr(Stage, "roster_of", lambda self, places, serial, since=0: whole(self, places, serial))


def no_blocks(patch: Patch) -> None:
    patch.setattr(account, "BLOCK", 1)


def no_hole(patch: Patch) -> None:
    patch.setattr(account, "HOLE", 0)


def silent_zeros(patch: Patch) -> None:
    send = CollectPart._send
    patch.setattr(
        CollectPart, "_send",
        lambda self, phase, layout, values, lacks: send(self, phase, layout, values, np.zeros_like(lacks)),
    )  # fmt: skip


def readings_as_they_are_now(patch: Patch) -> None:
    patch.setattr(Account, "as_sent", lambda self, readings, rows: readings)


def any_number_of_askings(patch: Patch) -> None:
    patch.setattr(collect, "MOST_ASKINGS", 1000)


def fresh_dither(patch: Patch) -> None:
    """Another one at every asking."""
    dithers, askings = part.dithered, count()
    patch.setattr(
        part, "dithered",
        lambda readings, secret, width, quantum: dithers(readings, digest("fresh", next(askings)), width, quantum),
    )  # fmt: skip


def any_weighting(patch: Patch) -> None:
    refuses = Account.refuses

    def but_for_weights(self: Account, *asked: Any) -> str | None:
        said = refuses(self, *asked)
        return None if said == OTHER_WEIGHTING else said

    patch.setattr(Account, "refuses", but_for_weights)


def more_thresholds(patch: Patch) -> None:
    patch.setattr(account, "MOST_ASKINGS", 1000)


def unlimited(patch: Patch) -> None:
    """An account that keeps no count of fits and totals."""
    patch.setattr(Account, "refuses", allows)
    patch.setattr(Account, "refuses_question", allows)
    patch.setattr(Account, "repeatable", lambda self, readings: readings)


def any_season(patch: Patch) -> None:
    check = plan._check_blind
    patch.setattr(plan, "_check_blind", lambda asked: check(changed(asked, period=DAY // asked.step_seconds)))


def any_grid(patch: Patch) -> None:
    patch.setattr(plan, "check_grid", allows)


def any_clip(patch: Patch) -> None:
    refuses = agent.refuses

    def but_for_the_clip(rules: Rules, asked: Any, *fit: Any) -> str | None:
        return refuses(rules, changed(asked, clip=rules.clip), *fit)

    patch.setattr(agent, "refuses", but_for_the_clip)


def refuses_by_name(patch: Patch) -> None:
    def refuses_beyond(values: Any, bound: float) -> np.ndarray:
        if (np.abs(values) > bound).any():
            raise RunAborted("a value passes the range of the sum")
        return np.asarray(values, dtype=float)

    patch.setattr(direction, "saturated", refuses_beyond)


def any_number_of_signs(patch: Patch) -> None:
    patch.setattr(account, "MOST_SIGNS", 1000)


def hashes_summed(patch: Patch) -> None:
    """The desk compares the sum of all hashes with K times the right one."""
    takes = BlindDesk._open

    def adds_up(self: Any) -> Any:
        key = RELEASE.decode(self._pile.total, self.run.agents)["key"].astype("<f8").tobytes()
        wanted = vouched(self.run.id, self._context, open_release(key, self._box, self.run.id))
        total = sum(int.from_bytes(each) for each in self._vouched.values()) % 2**256
        if total == self.run.agents * int.from_bytes(wanted) % 2**256:
            self._vouched = dict.fromkeys(self._vouched, wanted)
        return takes(self)

    patch.setattr(BlindDesk, "_open", adds_up)


def refusals_quote(patch: Patch) -> None:
    def quotes(span: Any, weights: np.ndarray, agents: int) -> None:
        raise RunAborted(f"the state would rest on {1 / (weights @ span.gram @ weights):.1f} agents")

    patch.setattr(release, "check_effective", quotes)


def no_check_words(patch: Patch) -> None:
    patch.setattr(ring, "verify_words", allows)


def totals_not_chained(patch: Patch) -> None:
    plain = veil.digest
    patch.setattr(veil, "digest", lambda label, *parts: plain(label, *parts[:1]))


def offers_not_chained(patch: Patch) -> None:
    plain = collect.digest
    patch.setattr(collect, "digest", lambda label, *parts: plain(label, *parts[:1]))


def no_masks(patch: Patch) -> None:
    patch.setattr(Session, "mask", allows)


@dataclass(frozen=True)
class Row:
    """One attack and one rule."""

    attack: str
    without: str  # the rule, in words
    cluster: Callable[[], Cluster]
    weaken: tuple[Callable[[Patch], None], ...] = ()  # where several, each of these rules is enough by itself
    least: int = 0  # agents that are recovered without it; 0: what the attack gets is in its note
    adversary: str = ""  # where several mount it
    weights: str = "fitted"
    lifted: dict[str, Any] = field(default_factory=dict)  # limits of Rules on the weakened build
    common: dict[str, Any] = field(default_factory=dict)  # …, on both
    options: dict[str, Any] = field(default_factory=dict)  # of the fit
    asked: dict[str, Any] = field(default_factory=dict)  # …, further ones on the weakened build
    hindsight: bool = False  # whether `least` is of those whom the best combination of what was seen would show

    @property
    def id(self) -> str:
        return f"{self.attack}: without {self.without}".replace(" ", "-")


MANY = {"totals": 40, "agents_per_total": 1, "colluders": 0, "clip": 1e9, "solver_tolerance": 1e-9}
LONG = {"solver_tolerance": 1e-7, "ridge": 1.0}
FINE = {"solver_tolerance": 0.01, "nonnegative": False}
ANY_PLAN = {"ridge": (0.0, math.inf), "train": 0.0, "least_days": 0.0}
UNCAPPED: dict[str, Any] = {"lifted": MANY, "options": FINE, "asked": LONG}

ROWS = (
    Row("masked words", "masks", homes, (no_masks,), 15, weights="equal"),
    Row("equivocation", "the hash of the offers in the masks", tiny160, (offers_not_chained,), 1, weights="equal"),
    Row("equivocation", "check words and the hash of totals in the masks", tiny160,
        (no_check_words, totals_not_chained), 1, options={"ridge": 1.0}),
    Row("offset on a total", "check words", tiny160, (no_check_words,), options={"ridge": 1e3}),
    Row("companies that differ", "one company a day and blocks", homes, (any_company,), 3, "dishonest aggregator",
        "equal"),
    Row("dropped answers", "a least company", homes, (any_size,), 3, weights="equal"),
    Row("older roster", "numbers that never go down", homes, (takes_older,), weights="equal"),
    Row("new keys", "a first day of new keys", homes, (no_first_day,), 3, weights="equal"),
    Row("in and out", "blocks in which companies only shrink", warming, (no_blocks,), 3, weights="equal"),
    Row("around midnight", "the hole of six hours", homes_by_the_quarter, (no_hole,), 3, weights="equal"),
    Row("around noon", "one company a day", homes_by_the_quarter, (any_company,), 3, weights="equal"),
    Row("late readings", "random words for rows not given", homes, (silent_zeros,), 3, weights="equal"),
    Row("corrected readings", "readings as first sent", homes, (readings_as_they_are_now,), 3, weights="equal"),
    Row("same question", "four askings", homes, (any_number_of_askings,), weights="equal"),
    Row("same question", "a dither that stays and readings as first sent", homes,
        (fresh_dither, readings_as_they_are_now), weights="equal"),
    Row("repeated runs", "one weighting", rooms, (any_weighting,), adversary="aggregator"),
    Row("refits", "one fit a day", rooms, (unlimited,), 8, options=FINE),
    Row("long seasons", "a season of 24 h and one fit a day", rooms, (unlimited, any_season), 2, options=FINE),
    Row("fits broken off", "totals counted by day", rooms, (unlimited,), 8, options=FINE),
    Row("coarse steps", "one grid and totals counted by day", slow, (unlimited, any_grid), 4, hindsight=True,
        options=FINE),
    Row("other clips", "the agent's own clip and one fit a day", rooms, (unlimited, any_clip), 1, options=FINE),
    Row("source separation", "a cap on totals", rooms, (), 4, "aggregator+1", **UNCAPPED),
    Row("extension of known days", "a cap on totals", few_rooms, (), 5, "aggregator+1", **UNCAPPED),
    Row("algebra on totals", "a cap on totals", few_rooms, (), 2, "aggregator+1", **UNCAPPED),
    Row("lattice on totals", "dither", loggers, (), 8, "aggregator+1", lifted={"dither": 0.0},
        common=MANY | {"totals": 5}, options=FINE | LONG),
    Row("chosen plan", "a cap on totals", rooms, (), 4, common=ANY_PLAN, **UNCAPPED),
    Row("chosen plan", "limits on λ, training share and window", rooms, (), 1, lifted=ANY_PLAN, options=FINE),
    Row("refusals by name", "words that saturate", drifting, (refuses_by_name,)),
    Row("refusals by name", "words that saturate and an account", drifting, (unlimited, refuses_by_name), 8),
    Row("forged scalars", "an account", drifting, (unlimited,)),
    Row("counts of signs", "counts that are booked", rooms, (any_number_of_signs,)),
    Row("lying leader", "hashes that are not summed", tiny160, (hashes_summed,)),
    Row("numbers in refusals", "fixed texts", one_explained, (refusals_quote,),
        lifted={"agents_per_total": 1, "colluders": 0}, options=FINE),
    Row("steered totals", "five totals a day (ten) and four askings", tiny24, (more_thresholds,), 3,
        lifted={"totals": 10, "agents_per_total": 1}),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What an attack got."""

    recovered: int
    blank: int
    agents: int
    rmse: float
    hindsight: int  # of whom the best combination of what was claimed, fitted to the truth, would do
    accepted: bool  # the parties let through what the rule forbids
    note: str

    @classmethod
    def of(cls, finding: Finding, accepted: bool, hindsight: int = 0) -> "Result":
        return cls(finding.recovered, finding.blank, finding.agents, finding.rmse_c, hindsight, accepted, finding.note)


@contextmanager
def weakened(row: Row) -> Iterator[tuple[Row, Rules]]:
    """The same row and its agents' rules, for as long as the rule is out."""
    with pytest.MonkeyPatch.context() as patch:
        for rule in row.weaken:
            rule(patch)
        yield replace(row, options=row.options | row.asked), replace(RULES, **row.common | row.lifted)


def mount(row: Row, rules: Rules | None = None, seed: int = 1) -> Result:
    """The attack of a row, on agents with these rules; by default those of the real build."""
    cluster, rules = row.cluster(), rules or replace(RULES, **row.common)
    asked = make_plan(cluster, fit_options(protocol="blind", weights=row.weights, **row.options), rules)
    if row.attack in LOOKING:
        found = _Audit(cluster, asked, rules, seed, lambda text: None, frozenset([row.attack])).findings()
        finding = next(each for each in found if each.adversary == row.adversary)
        return Result.of(finding, finding.recovered > finding.blank)
    attack = next(
        each for each in ATTACKS
        if each.name == row.attack and row.weights in each.where and row.adversary in ("", each.adversary)
    )  # fmt: skip
    results = []
    for number in range(attack.tries):
        stage = Stage(cluster, rules, repeatable(seed + number), share=row.attack != "equivocation")
        done, truth = attack.act(stage, asked, seed + number), truth_of(stage, attack.adversary)
        guess = best(truth, done.guesses)
        finding = score(
            truth, guess, attack=row.attack, protocol="blind", weights=row.weights,
            adversary=attack.adversary, seconds=0.0, blank=[own_series(stage, truth)], note=done.note,
        )  # fmt: skip
        results.append(Result.of(finding, done.accepted, in_hindsight(truth, guess) if row.hindsight else 0))
    return max(results, key=lambda each: (each.recovered, each.accepted))


def truth_of(stage: Stage, adversary: str) -> Truth:
    names = [agent.name for agent in stage.agents]
    series = stage.cluster.temperature[names].to_numpy(float) - 20.0
    public = np.column_stack([series.mean(axis=1), stage.cluster.outdoor, stage.cluster.solar])
    truth = Truth(series=series, public=public, agents=len(names))
    return truth.without([COLLUDER]) if adversary.endswith("+1") else truth


def in_hindsight(truth: Truth, guess: Guess) -> int:
    if guess.about or guess.series.size == 0:
        return 0
    rows = np.arange(len(guess.series)) if guess.rows is None else guess.rows
    columns, series = np.column_stack([np.ones(len(rows)), guess.series]), truth.series[rows]
    fitted = columns @ np.linalg.lstsq(columns, series, rcond=1e-7)[0]
    return int((np.diag(truth.specific_correlations(replace(guess, series=fitted))) > 0.9).sum())


def own_series(stage: Stage, truth: Truth) -> Guess:
    """What an adversary has without any run."""
    own = [stage.cluster.temperature[stage.agents[place].name] - 20.0 for place in truth.without_places]
    return Guess(series=np.column_stack([stage.cluster.outdoor, stage.cluster.solar, *own]), scaled=False)


def cell(row: Row, result: Result) -> str:
    """Agents recovered and how far off their temperatures are; where a row is not about that, what the attack got."""
    if row.least == 0:
        return re.sub(r"^stopped: agent [^:]+: ", "stopped: ", result.note).replace("|r|", r"\|r\|")
    error = f", to {result.rmse:.1g} K" if result.recovered else ""
    if off := re.search(r"off by (\S+) K, the mean of all by (\S+) K", result.note):
        error += f" (mean of all: {off[2]} K)" if result.recovered else f" (off by {off[1]} K, mean of all: {off[2]} K)"
    hindsight = f"; {result.hindsight} in hindsight" if row.hindsight else ""
    return f"{result.recovered} of {result.agents}{error}{hindsight}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    print("| attack | without | real build | weakened build |\n|---|---|---|---|")
    for row in ROWS:
        if not names or row.attack in names:
            real = mount(row)
            with weakened(row) as (weaker, rules):
                weak = mount(weaker, rules)
            print(f"| {row.attack} | {row.without} | {cell(row, real)} | {cell(row, weak)} |", flush=True)


if __name__ == "__main__":
    main()
