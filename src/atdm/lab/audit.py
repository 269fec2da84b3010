"""`atdm.audit`: run a protocol, mount every attack that applies, and score what each adversary would have learned."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

import numpy as np

from atdm.data import Cluster
from atdm.errors import UsageError
from atdm.kernel.blas import one_blas_thread
from atdm.kernel.design import REFERENCE_TEMP
from atdm.lab.attacks import dishonest, forge
from atdm.lab.attacks.dishonest import Mounted
from atdm.lab.attacks.grid import grid
from atdm.lab.attacks.rotation import pinned, procrustes_residual, rotate_back, rotation
from atdm.lab.attacks.score import NOTHING, Finding, Guess, Truth, best, score
from atdm.lab.attacks.separation import separate_rotated, separate_totals
from atdm.lab.attacks.stage import Released, Stage, repeatable
from atdm.lab.attacks.totals import KNOWN_HOURS, algebra, extend, known_rows, subset_sums
from atdm.lab.attacks.view import View
from atdm.protocol.options import PROTOCOLS, WEIGHTS, ProtocolName, WeightsName, fit_options
from atdm.protocol.plan import AnyPlan, Plan
from atdm.protocol.readings import positions, seconds
from atdm.protocol.roster import Members
from atdm.protocol.rules import Rules, check_agents
from atdm.run import make_plan, rows_of_plan
from atdm.types import FloatArray

MOST_COLLUDERS = 3
TRIES = 3  # of attacks that depend on luck; the best counts
ProtocolChoice = ProtocolName | Literal["all"]
WeightsChoice = WeightsName | Literal["all"]
Progress = Callable[[str], None]
Claim = Guess | list[Guess] | Mounted


def audit(
    cluster: Cluster,
    protocol: ProtocolChoice = "all",
    *,
    order: int = 2,
    ridge: float = 100.0,
    season: str = "24h",
    train: float = 0.75,
    minimum_norm: bool = False,
    weights: WeightsChoice = "all",
    rules: Rules | None = None,
    seed: int = 0,
    report: Progress | None = None,
) -> list[Finding]:
    """What an aggregator, with and without agents on its side, could learn about single agents of this cluster.

    Parameters
    ----------
    cluster : Cluster
        Readings of all agents and the weather.
    protocol : {"all", "plain", "paper", "moments", "blind"}, default "all"
        The protocol to attack; "all" leaves out those the cluster is too small for.
    order : int, default 2
        As in `fit`.
    ridge : float, default 100.0
        As in `fit` [K²].
    season : str, default "24h"
        As in `fit`.
    train : float, default 0.75
        As in `fit` [-].
    minimum_norm : bool, default False
        As in `fit`.
    weights : {"all", "fitted", "equal"}, default "all"
        Ways to weight under "blind".
    rules : Rules, optional
        The agents' own limits; by default those of `Rules`.
    seed : int, default 0
        Of keys, dither and attacks, so that an audit can be repeated.
    report : callable, optional
        Called with a line whenever an attack begins.

    Returns
    -------
    list of Finding
        One for each attack and adversary, also where nothing was recovered.
    """
    chosen: tuple[ProtocolName, ...] = PROTOCOLS if protocol == "all" else (protocol,)
    if any(name not in PROTOCOLS for name in chosen):
        raise UsageError(f"protocol {protocol!r}: choose one of {', '.join(PROTOCOLS)}, or all")
    if weights not in (*WEIGHTS, "all"):
        raise UsageError(f"weights {weights!r}: choose one of {', '.join(WEIGHTS)}, or all")
    limits = Rules() if rules is None else rules
    findings: list[Finding] = []
    with one_blas_thread():
        for name in chosen:
            ways: tuple[WeightsName, ...] = WEIGHTS if name == "blind" and weights == "all" else ("fitted",)
            for way in ways if weights == "all" or name != "blind" else (weights,):
                try:
                    check_agents(len(cluster.agents), name, limits, way)
                    options = fit_options(
                        protocol=name, order=order, ridge=ridge, season=season, train=train, weights=way,
                        minimum_norm=minimum_norm,
                    )  # fmt: skip
                    plan = make_plan(cluster, options, limits)
                except UsageError:
                    if protocol == "all" and name == "blind":
                        continue
                    raise
                findings += _Audit(cluster, plan, limits, seed, report or (lambda text: None)).findings()
    return findings


@dataclass(frozen=True, slots=True)
class _Audit:
    """One protocol on one cluster, with one way of weighting."""

    cluster: Cluster
    plan: Plan
    rules: Rules
    seed: int
    report: Progress
    without: dict[str, FloatArray] = field(default_factory=dict)  # series each adversary has without any run

    def findings(self) -> list[Finding]:
        self.report(self.plan.protocol)
        if self.plan.protocol == "plain":
            return [self._plain()]
        stage = self._stage()
        asked: AnyPlan = rows_of_plan(self.plan) if self._equal() else self.plan
        aggregator = stage.play(asked)
        released = Released.of(aggregator)
        views = [stage.view(self.plan, aggregator, places) for places in _coalitions(aggregator.members)]
        self.without.update({_name(view): view.without_sums() for view in views})
        at = positions(seconds(self.cluster.time), released.kept)
        series = self.cluster.temperature[[m.name for m in aggregator.members]].to_numpy(float)[at] - REFERENCE_TEMP
        truth = Truth(series=series, public=views[0].public_series(), agents=series.shape[1])
        passive = self._blind(views, truth) if self.plan.protocol == "blind" else self._opened(views, truth)
        return [*passive, *self._active(truth)]

    def _stage(self, number: int = 0) -> Stage:
        """New agents, who were asked nothing before."""
        return Stage(self.cluster, self.rules, repeatable(self.seed + number))

    def _equal(self) -> bool:
        return self.plan.protocol == "blind" and self.plan.weights == "equal"

    def _mount(
        self,
        truth: Truth,
        attack: str,
        adversary: str,
        act: Callable[..., Claim],
        *arguments: object,
        blank: list[Guess] | None = None,
    ) -> Finding:
        """blank: what the same attack claims without any sum; by default the series its adversary has anyway."""
        self.report(f"{self.plan.protocol}, {self.plan.weights} weights: {attack}, {adversary}")
        began = perf_counter()
        claim = act(*arguments)
        spent = perf_counter() - began
        note = claim.note if isinstance(claim, Mounted) else ""
        guesses = claim.guesses if isinstance(claim, Mounted) else claim
        guess = guesses if isinstance(guesses, Guess) else best(truth, guesses)
        anyway = self.without[adversary.removeprefix("dishonest ")]
        return score(
            truth, guess, attack=attack, protocol=self.plan.protocol, weights=self.plan.weights, adversary=adversary,
            seconds=spent, blank=[Guess(series=anyway, scaled=False)] if blank is None else blank, note=note,
        )  # fmt: skip

    def _plain(self) -> Finding:
        series = self.cluster.temperature.to_numpy(float) - REFERENCE_TEMP
        mean = series.mean(axis=1, keepdims=True)
        truth = Truth(series=series, public=mean, agents=series.shape[1])
        self.without["aggregator"] = np.column_stack([self.cluster.outdoor, self.cluster.solar])
        claim = Guess(series=series, note="the centre is given all")
        return self._mount(truth, "reading", "aggregator", lambda: claim)

    def _opened(self, views: list[View], truth: Truth) -> list[Finding]:
        """`paper` and `moments`: everything up to one rotation, and what undoes the rotation."""
        rotated = rotate_back(views[0])
        if rotated is None:
            return [self._mount(truth, "rotation", "aggregator", lambda: NOTHING)]
        residual = procrustes_residual(rotated.series, truth.series[: len(rotated.series)])
        note = f"all temperatures up to one rotation, to {residual:.0e} K"
        findings = [self._mount(truth, "rotation", "aggregator", Mounted, True, [rotation(rotated)], note)]
        claims: list[Guess] = []
        for view in views:
            others, who = _others(truth, view), _name(view)
            findings.append(self._mount(others, "pinned rotation", who, _joined, claims, pinned, view, rotated))
        findings.append(self._mount(truth, "grid of readings", "aggregator", grid, rotated))
        blank = separate_totals(self.without["aggregator"])
        findings.append(self._mount(truth, "source separation", "aggregator", separate_rotated, rotated, blank=blank))
        return findings

    def _blind(self, views: list[View], truth: Truth) -> list[Finding]:
        """Everybody follows the protocol. A coalition also claims what fewer of its members would."""
        known = known_rows(KNOWN_HOURS, self.plan.step_seconds / 3600, len(truth.series))
        separated, extended, findings = list[Guess](), list[Guess](), list[Finding]()
        for view in views:
            others, who, seen = _others(truth, view), _name(view), view.public_series()
            theirs, blank = others.series[:known], separate_totals(view.without_sums())
            if view.colluders:
                totals = view.totals()
                seen = np.column_stack([totals, seen[:, 1:]])
                findings.append(self._mount(others, "algebra on totals", who, algebra, view))
                if who == "aggregator+1":
                    findings.append(self._mount(others, "lattice on totals", who, subset_sums, view))
                if who == "aggregator+1" and not self._equal():
                    self.without["agent"] = view.without_sums()
                    findings.append(
                        self._mount(others, "source separation", "agent", separate_totals, totals, blank=blank)
                    )
                separated += separate_totals(totals)
            findings += [
                self._mount(others, "source separation", who, _joined, separated, separate_totals, seen, blank=blank),
                self._mount(
                    others, "extension of known days", who, _joined, extended, extend, seen, theirs,
                    blank=[extend(view.without_sums(), theirs)],
                ),
            ]  # fmt: skip
        return findings

    def _active(self, truth: Truth) -> list[Finding]:
        """Each on agents of its own, so that what one attack spent does not stop the next."""
        plan, who = self.plan, "dishonest aggregator"
        attacks: list[tuple[str, str, Callable[[Stage], Mounted]]]
        if self._equal():
            rows = rows_of_plan(plan)
            attacks = [
                ("equivocation", who, lambda s: dishonest.inconsistent_offer(s, plan)),
                ("vanished agent", who, lambda s: dishonest.withheld(s, rows)),
                ("masked words", "aggregator", lambda s: dishonest.masked_words(s, rows)),
                ("companies that differ", who, lambda s: dishonest.chosen_companies(s, plan)),
                ("companies that differ", f"{who}+1", lambda s: dishonest.chosen_companies(s, plan, 0)),
                ("repeated runs", "aggregator", lambda s: dishonest.repeated_runs(s, plan)),
                ("repeated runs", "aggregator+1", lambda s: dishonest.repeated_runs(s, plan, 0)),
            ]
        elif plan.protocol == "blind":
            attacks = [
                ("offset on a total", who, lambda s: dishonest.offset(s, plan)),
                ("equivocation", who, lambda s: dishonest.equivocate(s, plan)),
                ("vanished agent", who, lambda s: dishonest.withheld(s, plan)),
                ("replay", who, lambda s: dishonest.replay(s, plan)),
                ("masked words", "aggregator", lambda s: dishonest.masked_words(s, plan)),
                ("companies that differ", who, lambda s: dishonest.chosen_companies(s, plan)),
                ("repeated runs", "aggregator", lambda s: dishonest.repeated_runs(s, plan)),
                ("repeated runs", "aggregator+1", lambda s: dishonest.repeated_runs(s, plan, 0)),
            ]
        else:
            attacks = [
                ("inconsistent broadcast", who, lambda s: dishonest.inconsistent_question(s, plan)),
                ("vanished agent", who, lambda s: dishonest.withheld(s, plan)),
                ("replay", who, lambda s: dishonest.replay(s, plan)),
            ]
            if plan.protocol == "paper":
                attacks += [
                    ("chosen weights", who, lambda s: dishonest.chosen_weights(s, plan)),
                    ("masked words", "aggregator", lambda s: dishonest.masked_words(s, plan)),
                    ("appendices A and B", "aggregator", lambda s: dishonest.appendices(s, plan)),
                ]
        others = truth.without([0])  # where an agent helps, it is the first of the roster
        findings = [
            self._mount(others if adversary.endswith("+1") else truth, name, adversary, self._on_new_agents, act)
            for name, adversary, act in attacks
        ]
        if plan.protocol == "blind" and not self._equal():
            findings += [
                self._mount(others, "chosen plan", "aggregator+1", self._tried, others, dishonest.chosen_plan),
                self._mount(others, "steered totals", f"{who}+1", self._tried, others, forge.steered_totals),
                self._mount(others, "live feed", f"{who}+1", self._tried, others, forge.live_feed),
            ]
        return findings

    def _on_new_agents(self, act: Callable[[Stage], Mounted]) -> Mounted:
        return act(self._stage())

    def _tried(self, truth: Truth, act: Callable[[Stage, Plan, int, int], Mounted]) -> Mounted:
        """Attacks that depend on a choice or on luck: the best of a few, each on agents that were asked nothing yet."""
        tries = [act(self._stage(n), self.plan, 0, self.seed + n) for n in range(TRIES)]
        luckiest = best(truth, [guess for mounted in tries for guess in mounted.guesses])
        winner = next((m for m in tries if any(guess is luckiest for guess in m.guesses)), tries[0])
        return Mounted(winner.accepted, [luckiest], f"best of {TRIES}: {winner.note}")


def _joined(found: list[Guess], act: Callable[..., Guess | list[Guess]], *arguments: object) -> list[Guess]:
    """What was found before, and what an attack adds to it."""
    more = act(*arguments)
    found += [more] if isinstance(more, Guess) else more
    return found


def _coalitions(members: Members) -> list[list[int]]:
    """Nobody, and one to three agents."""
    return [list(range(count)) for count in range(min(MOST_COLLUDERS, len(members) - 2) + 1)]


def _others(truth: Truth, view: View) -> Truth:
    return truth.without([colluder.place for colluder in view.colluders])


def _name(view: View) -> str:
    return f"aggregator+{len(view.colluders)}" if view.colluders else "aggregator"
