"""`atdm.audit`: run a protocol, mount every attack that applies, and score what each adversary would have learned."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter
from typing import Literal, cast

import numpy as np

from atdm.data import Cluster
from atdm.data.clock import seconds
from atdm.data.readings import positions
from atdm.errors import UsageError
from atdm.kernel.blas import one_blas_thread
from atdm.kernel.design import REFERENCE_TEMP
from atdm.lab.attacks.catalogue import ATTACKS, COLLUDER, LOOKING, Attack, Where, attacks_on
from atdm.lab.attacks.dishonest import Mounted
from atdm.lab.attacks.grid import grid
from atdm.lab.attacks.rotation import pinned, procrustes_residual, rotate_back, rotation
from atdm.lab.attacks.score import NOTHING, Finding, Guess, Truth, best, includes, score
from atdm.lab.attacks.separation import separate_rotated, separate_totals
from atdm.lab.attacks.stage import Released, Stage, repeatable
from atdm.lab.attacks.totals import KNOWN_HOURS, algebra, extend, known_rows, subset_sums, unit_steps
from atdm.lab.attacks.view import View
from atdm.options import PROTOCOLS, WEIGHTS, ProtocolName, WeightsName, fit_options
from atdm.protocol.plan import AnyPlan, Plan
from atdm.protocol.roster import Members
from atdm.protocol.rules import Rules
from atdm.run import check_agents, make_plan, rows_of_plan

MOST_COLLUDERS = 3
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
    attacks: Collection[str] = (),
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
    attacks : collection of str, default ()
        Names of attacks on "blind" to mount (docs/attacks.md); empty: all.

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
    known = {*LOOKING, *(attack.name for attack in ATTACKS)}
    if not set(attacks) <= known:
        raise UsageError(f"attacks {', '.join(sorted(set(attacks) - known))}: choose of {', '.join(sorted(known))}")
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
                one = _Audit(cluster, plan, limits, seed, report or (lambda text: None), frozenset(attacks))
                findings += one.findings()
    return findings


@dataclass(frozen=True, slots=True)
class _Audit:
    """One protocol on one cluster, with one way of weighting."""

    cluster: Cluster
    plan: Plan
    rules: Rules
    seed: int
    report: Progress
    attacks: frozenset[str]  # names of those wanted; empty: all
    claims: list[tuple[str, str, list[Guess]]] = field(default_factory=list)  # attack, adversary, what it claimed
    blanks: dict[str, list[Guess]] = field(default_factory=dict)  # what each adversary would claim without any run

    def findings(self) -> list[Finding]:
        self.report(self.plan.protocol)
        if self.plan.protocol == "plain":
            return [self._plain()]
        stage = self._stage()
        asked: AnyPlan = rows_of_plan(self.plan) if self._equal() else self.plan
        aggregator = stage.play(asked)
        released = Released.of(aggregator)
        views = [stage.view(self.plan, aggregator, places) for places in _coalitions(aggregator.members)]
        self.blanks.update({_name(view): separate_totals(view.without_sums()) for view in views})
        self.blanks["agent"] = self.blanks.get("aggregator+1", [])
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
        """A coalition also claims what fewer of its members would.

        blank: what the same attack claims without any sum; by default what separation makes of the weather and of the
        series of the adversary's own agents.
        """
        self.report(f"{self.plan.protocol}, {self.plan.weights} weights: {attack}, {adversary}")
        began = perf_counter()
        claim = act(*arguments)
        spent = perf_counter() - began
        note = claim.note if isinstance(claim, Mounted) else ""
        guesses = claim.guesses if isinstance(claim, Mounted) else [claim] if isinstance(claim, Guess) else claim
        fewer = [found for name, who, found in self.claims if name == attack and includes(adversary, who)]
        self.claims.append((attack, adversary, guesses))
        guess = best(truth, [*guesses, *chain.from_iterable(fewer)])
        anyway = self.blanks[adversary.removeprefix("dishonest ")]
        return score(
            truth, guess, attack=attack, protocol=self.plan.protocol, weights=self.plan.weights, adversary=adversary,
            seconds=spent, blank=anyway if blank is None else blank, note=note,
        )  # fmt: skip

    def _plain(self) -> Finding:
        series = self.cluster.temperature.to_numpy(float) - REFERENCE_TEMP
        mean = series.mean(axis=1, keepdims=True)
        truth = Truth(series=series, public=mean, agents=series.shape[1])
        weather = np.column_stack([self.cluster.outdoor, self.cluster.solar])
        self.blanks["aggregator"] = [Guess(series=weather, scaled=False)]
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
        for view in views:
            findings.append(self._mount(_others(truth, view), "pinned rotation", _name(view), pinned, view, rotated))
        findings.append(self._mount(truth, "grid of readings", "aggregator", grid, rotated))
        findings.append(self._mount(truth, "source separation", "aggregator", separate_rotated, rotated))
        return findings

    def _wanted(self, attack: str) -> bool:
        return not self.attacks or attack in self.attacks

    def _blind(self, views: list[View], truth: Truth) -> list[Finding]:
        """Everybody follows the protocol."""
        known = known_rows(KNOWN_HOURS, self.plan.step_seconds / 3600, len(truth.series))
        findings = list[Finding]()
        for view in views:
            others, who, seen = _others(truth, view), _name(view), view.public_series()
            theirs = others.series[:known]
            if view.colluders:
                totals = view.totals()
                seen = np.column_stack([totals, seen[:, 1:]])
                if self._wanted("algebra on totals"):
                    findings.append(self._mount(others, "algebra on totals", who, algebra, view))
                if who == "aggregator+1" and self._wanted("lattice on totals"):
                    bare = [unit_steps(view)]
                    findings.append(self._mount(others, "lattice on totals", who, subset_sums, view, blank=bare))
            if self._wanted("source separation"):
                if who == "aggregator+1" and not self._equal():
                    findings.append(self._mount(others, "source separation", "agent", separate_totals, totals))
                both = [*separate_totals(seen), *(separate_totals(totals) if view.colluders else [])]
                findings.append(self._mount(others, "source separation", who, lambda both=both: both))
            if self._wanted("extension of known days"):
                bare = [extend(view.without_sums(), theirs)]
                findings.append(self._mount(others, "extension of known days", who, extend, seen, theirs, blank=bare))
        return findings

    def _active(self, truth: Truth) -> list[Finding]:
        """Each on agents of its own, so that what one attack spent does not stop the next."""
        where: Where = self.plan.weights if self.plan.protocol == "blind" else cast(Where, self.plan.protocol)
        findings = []
        for attack in attacks_on(where):
            if self._wanted(attack.name):
                others = truth.without([COLLUDER]) if attack.adversary.endswith("+1") else truth
                findings.append(self._mount(others, attack.name, attack.adversary, self._tried, others, attack))
        return findings

    def _tried(self, truth: Truth, attack: Attack) -> Mounted:
        """On agents that were asked nothing yet; where it depends on luck, the best of a few."""
        tries = [attack.act(self._stage(n), self.plan, self.seed + n) for n in range(attack.tries)]
        if attack.tries == 1:
            return tries[0]
        luckiest = best(truth, [guess for mounted in tries for guess in mounted.guesses])
        winner = next((m for m in tries if any(guess is luckiest for guess in m.guesses)), tries[0])
        return Mounted(winner.accepted, [luckiest], f"best of {attack.tries}: {winner.note}")


def _coalitions(members: Members) -> list[list[int]]:
    """Nobody, and one to three agents."""
    return [list(range(count)) for count in range(min(MOST_COLLUDERS, len(members) - 2) + 1)]


def _others(truth: Truth, view: View) -> Truth:
    return truth.without([colluder.place for colluder in view.colluders])


def _name(view: View) -> str:
    return f"aggregator+{len(view.colluders)}" if view.colluders else "aggregator"
