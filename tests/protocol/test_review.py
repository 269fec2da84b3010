"""Breaks that a reading of the second edition with an adversary's eyes found; docs/spec.md §6 has the rules."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from atdm.kernel.descent import Descent
from atdm.kernel.span import Span
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind import script
from atdm.protocol.blind.release import DEVIATES
from atdm.protocol.company import TOO_EARLY
from atdm.protocol.messages import Masked
from atdm.protocol.plan import first_day
from tests.clusters import tiny
from tests.protocol.drive import RULES, altering, announcing, drive, parties
from tests.protocol.world import LOOSE, World

change = msgspec.structs.replace


@pytest.mark.parametrize("other", [{"clip": 0.5}, {"ridge": 4.0}, {"solver_tolerance": 0.02}, {"train": 0.7}])
def test_a_second_fit_over_a_day_is_refused_even_if_totals_are_left(other):
    """Two plans that differ in the clip alone gave one home of 64 to 0.001 K, by the difference of two totals."""
    cluster = tiny(1, agents=16, rows=60)
    aggregator, agents = parties(cluster, rules=RULES)
    lost = altering(Masked, lambda i, message: [message] if message.phase != "step" else [])
    drive(aggregator, agents, to_aggregator=lost)
    assert agents[0].own.memory.account.fit_of(first_day(aggregator._announce.plan)).totals == 2
    again = announcing(agents, change(aggregator._announce.plan, **other), cluster, attempt=1)
    drive(again, agents)
    assert again.state is AggregatorState.ABORTED and again.desk is None, again.reasons
    same = announcing(agents, aggregator._announce.plan, cluster, attempt=2)
    drive(same, agents)
    assert same.state is AggregatorState.DONE, same.reasons  # the same questions again are free


def test_a_key_enrolled_later_gives_no_earlier_day():
    """A fleet with new keys has empty accounts: the same days summed again without one home showed that home."""
    here = World(tiny(2, agents=12, rows=60), 5, replace(LOOSE, day_share=0.0))
    plan = here.collect(0, 60)
    here.roster = here.signed(here.cluster.agents, serial=2, since=first_day(plan) + 5)
    role = here.aggregator(plan)
    assert here.run(role) is not None and role.run.days[0] == first_day(plan) + 5
    assert {ready.reason for ready in role.answers.values()} == {TOO_EARLY}

    everybody = lambda answers, roster, least: (list(range(12)), np.ones(len(answers[0]), dtype=bool))  # noqa: E731
    assert here.run(here.aggregator(plan, choose=everybody)) is None and "not in on all days" in here.reasons[0]


def test_a_leader_that_says_its_descent_did_not_converge_releases_nothing(monkeypatch):
    """`previous` was free then, and with it the model."""
    honest = script.estimate_of

    def lie(span: Span, inputs, found: Descent, gap, reached):
        alpha, _ = span.sp1(np.eye(len(span))[0] / span.ones[0] * 1.5)
        weights, _ = span.sp2(alpha)
        return honest(span, inputs, replace(found, alpha=alpha, weights=weights, converged=False), gap, reached)

    monkeypatch.setattr(script, "estimate_of", lie)
    aggregator, agents = parties(share=False)
    drive(aggregator, agents)
    assert aggregator.state is AggregatorState.ABORTED and DEVIATES in aggregator.reasons[0]
