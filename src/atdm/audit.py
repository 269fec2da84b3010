"""`atdm.audit`: run a protocol, mount every attack that applies, and score what each adversary would have learned."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from atdm.attacks import dishonest
from atdm.attacks.dishonest import Mounted
from atdm.attacks.grid import grid
from atdm.attacks.rotation import pinned, procrustes_residual, rotate_back, rotation
from atdm.attacks.score import NOTHING, Finding, Guess, Truth, best, score
from atdm.attacks.separation import separate_rotated, separate_totals
from atdm.attacks.stage import Stage
from atdm.attacks.totals import KNOWN_HOURS, algebra, extend, known_rows, subset_sums
from atdm.attacks.view import View
from atdm.data import Cluster
from atdm.errors import RunAborted, UsageError
from atdm.kernel.design import REFERENCE_TEMP, IntArray
from atdm.protocol.plan import PROTOCOLS, Plan, ProtocolName
from atdm.protocol.readings import positions, seconds
from atdm.protocol.roster import Member
from atdm.protocol.rules import Rules, check_agents
from atdm.run import make_plan

MOST_COLLUDERS = 3
ProtocolChoice = ProtocolName | Literal["all"]
Report = Callable[[str], None]


def audit(
    cluster: Cluster,
    protocol: ProtocolChoice = "all",
    *,
    order: int = 2,
    ridge: float = 100.0,
    season: str = "24h",
    train: float = 0.75,
    minimum_norm: bool = False,
    rules: Rules | None = None,
    report: Report | None = None,
) -> list[Finding]:
    """What an aggregator, with and without agents on its side, could learn about single agents of this cluster.

    protocol: one of them, or "all", which leaves out those the cluster is too small for. One finding for each attack
    and adversary, also when nothing was recovered.
    """
    chosen: tuple[ProtocolName, ...] = PROTOCOLS if protocol == "all" else (protocol,)
    if any(name not in PROTOCOLS for name in chosen):
        raise UsageError(f"protocol {protocol!r}: choose one of {', '.join(PROTOCOLS)}, or all")
    limits = Rules() if rules is None else rules
    findings: list[Finding] = []
    for name in chosen:
        try:
            check_agents(len(cluster.agents), name, limits)
        except UsageError:
            if protocol == "all" and name == "blind":
                continue
            raise
        plan = make_plan(
            cluster, name, order=order, ridge=ridge, season=season, train=train, minimum_norm=minimum_norm
        )
        findings += _Audit(cluster, plan, limits, report or (lambda text: None)).findings()
    return findings


@dataclass(frozen=True, slots=True)
class _Audit:
    """One protocol on one cluster."""

    cluster: Cluster
    plan: Plan
    rules: Rules
    report: Report

    def findings(self) -> list[Finding]:
        self.report(self.plan.protocol)
        if self.plan.protocol == "plain":
            return [self._plain()]
        stage = Stage(self.cluster, self.rules)
        aggregator = stage.play(self.plan)
        if aggregator.desk is None or aggregator.desk.outcome is None:
            raise RunAborted(aggregator.reasons[0] if aggregator.reasons else "the run to audit gave no result")
        views = [stage.view(self.plan, aggregator, places) for places in _coalitions(aggregator.members)]
        truth = self._truth(views[0], aggregator.members, aggregator.desk.outcome.kept)
        passive = self._blind(views, truth) if self.plan.protocol == "blind" else self._opened(views, truth)
        return [*passive, *self._active(truth)]

    def _truth(self, view: View, members: tuple[Member, ...], kept: IntArray) -> Truth:
        """Columns in the order of the roster."""
        at = positions(seconds(self.cluster.time), kept)
        series = self.cluster.temperature[[m.name for m in members]].to_numpy(float)[at] - REFERENCE_TEMP
        return Truth(series=series, public=view.public_series(), agents=series.shape[1])

    def _mount(
        self,
        truth: Truth,
        attack: str,
        adversary: str,
        act: Callable[..., Guess | list[Guess] | Mounted],
        *arguments: object,
    ) -> Finding:
        self.report(f"{self.plan.protocol}: {attack}, {adversary}")
        began = perf_counter()
        claim = act(*arguments)
        spent = perf_counter() - began
        note = claim.note if isinstance(claim, Mounted) else ""
        guesses = claim.guesses if isinstance(claim, Mounted) else claim
        guess = guesses if isinstance(guesses, Guess) else best(truth, guesses)
        return score(
            truth, guess, attack=attack, protocol=self.plan.protocol, adversary=adversary, seconds=spent, note=note
        )

    def _plain(self) -> Finding:
        series = self.cluster.temperature.to_numpy(float) - REFERENCE_TEMP
        mean = series.mean(axis=1, keepdims=True)
        truth = Truth(series=series, public=mean, agents=series.shape[1])
        return self._mount(truth, "reading", "aggregator", lambda: Guess(series=series, note="the centre is given all"))

    def _opened(self, views: list[View], truth: Truth) -> list[Finding]:
        """`paper` and `moments`: everything up to one rotation, and what undoes the rotation."""
        began = perf_counter()
        rotated = rotate_back(views[0])
        if rotated is None:
            return [self._mount(truth, "rotation", "aggregator", lambda: NOTHING)]
        spent = perf_counter() - began
        residual = procrustes_residual(rotated.series, truth.series[: len(rotated.series)])
        found = score(
            truth, rotation(rotated), attack="rotation", protocol=self.plan.protocol, adversary="aggregator",
            seconds=spent, note=f"all temperatures up to one rotation, to {residual:.0e} K",
        )  # fmt: skip
        findings = [found]
        for view in views:
            findings.append(self._mount(_others(truth, view), "pinned rotation", _name(view), pinned, view, rotated))
        findings.append(self._mount(truth, "grid of readings", "aggregator", grid, rotated))
        findings.append(self._mount(truth, "source separation", "aggregator", separate_rotated, rotated))
        return findings

    def _blind(self, views: list[View], truth: Truth) -> list[Finding]:
        step_hours = self.plan.step_seconds / 3600
        known = truth.series[: known_rows(KNOWN_HOURS, step_hours, len(truth.series))]
        alone, with_one = views[0], views[1]
        others = _others(truth, with_one)
        findings = [
            self._mount(truth, "source separation", "aggregator", separate_totals, alone.public_series()),
            self._mount(truth, "extension of known days", "aggregator", extend, alone, known),
            self._mount(others, "source separation", "agent", separate_totals, with_one.totals()),
            self._mount(others, "lattice on totals", _name(with_one), subset_sums, with_one),
        ]
        for view in views[1:]:
            others, who = _others(truth, view), _name(view)
            theirs = others.series[: len(known)]
            findings += [
                self._mount(others, "source separation", who, separate_totals, view.totals()),
                self._mount(others, "extension of known days", who, extend, view, theirs),
                self._mount(others, "algebra on totals", who, algebra, view),
            ]
        return findings

    def _active(self, truth: Truth) -> list[Finding]:
        """Each on agents of its own, so that one attack's exposure does not stop the next."""
        plan, who = self.plan, "dishonest aggregator"

        def on_new_agents(act: Callable[[Stage], Mounted]) -> Callable[[], Mounted]:
            return lambda: act(Stage(self.cluster, self.rules))

        attacks: list[tuple[str, str, Callable[[Stage], Mounted]]]
        if plan.protocol == "blind":
            day = max(1, round(86400 / plan.step_seconds))
            attacks = [
                ("offset on a total", who, lambda s: dishonest.offset(s, plan)),
                ("equivocation", who, lambda s: dishonest.equivocate(s, plan)),
                ("vanished agent", who, lambda s: dishonest.withheld(s, plan)),
                ("replay", who, lambda s: dishonest.replay(s, plan)),
                ("masked words", "aggregator", lambda s: dishonest.masked_words(s, plan)),
                ("rosters that differ", who, lambda s: dishonest.smaller_rosters(s, plan)),
                ("false abort and restart", "aggregator+1", lambda s: dishonest.restarted(s, plan)),
                ("overlapping windows", "aggregator+1", lambda s: dishonest.overlapping(s, plan, day)),
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
        helper = truth.without([0])  # where an agent helps, it is the first of the roster
        return [
            self._mount(truth if adversary != "aggregator+1" else helper, name, adversary, on_new_agents(act))
            for name, adversary, act in attacks
        ]


def _coalitions(members: tuple[Member, ...]) -> list[list[int]]:
    """Nobody, one to three agents of different owners where possible, and all agents of the largest owner."""
    owners: dict[str, list[int]] = {}
    for place, member in enumerate(members):
        owners.setdefault(member.owner, []).append(place)
    firsts = [places[0] for places in owners.values()]
    order = firsts + [place for place in range(len(members)) if place not in firsts]
    largest = max(owners.values(), key=len)
    small = [order[:count] for count in range(min(MOST_COLLUDERS, len(members) - 2) + 1)]
    return [*small, largest] if MOST_COLLUDERS < len(largest) < len(members) - 1 else small


def _others(truth: Truth, view: View) -> Truth:
    return truth.without([colluder.place for colluder in view.colluders])


def _name(view: View) -> str:
    return f"aggregator+{len(view.colluders)}" if view.colluders else "aggregator"
