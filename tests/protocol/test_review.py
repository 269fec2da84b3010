"""Breaks that a reading of the second edition with an adversary's eyes found; docs/spec.md §6 has the rules."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from atdm.data import Cluster
from atdm.kernel.descent import Descent
from atdm.kernel.span import Span
from atdm.protocol.account import NO_ROOM, Account, Answered
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind import direction, script
from atdm.protocol.blind.release import DEVIATES
from atdm.protocol.company import TOO_EARLY
from atdm.protocol.messages import Masked
from atdm.protocol.plan import first_day
from atdm.protocol.rules import Rules
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
    assert agents[0].own.memory.account.days[first_day(aggregator._announce.plan)].totals == 2
    again = announcing(agents, change(aggregator._announce.plan, **other), cluster, attempt=1)
    drive(again, agents)
    assert again.state is AggregatorState.ABORTED and again.desk is None, again.reasons
    same = announcing(agents, aggregator._announce.plan, cluster, attempt=2)
    drive(same, agents)
    assert same.state is AggregatorState.DONE, same.reasons  # the same questions again are free


def test_a_day_is_opened_to_one_question_only():
    account = Account()
    account.book(Answered((5,), b"first", "open", b"plan"))
    assert account.refuses_question((4, 5), b"other", "open", 5) == NO_ROOM
    assert account.refuses_question((4, 5), b"first", "open", 5) is None
    assert account.refuses_question((4, 5), b"step", "total", 5) is None


@pytest.mark.parametrize("ridge", [1e-2, 1.0, 100.0, 1e4, 1e6])
def test_no_home_carries_a_direction_whatever_the_ridge(sample, ridge, monkeypatch):
    """With the scale √K/λ of the draft the clip never acted at a large λ: 0.92 of Σp² was one home's on one cluster.
    With 0.3 √K rss/(λν) it never acted at a small one: a home that stands empty was the whole total."""
    cluster = with_an_empty_home(sample)
    first, *later = shares(cluster, ridge)
    assert max(first) < 0.15 and all(max(each) < 0.3 for each in later)
    monkeypatch.setattr(script, "first_scale", lambda span, agents: np.sqrt(agents) / span.ridge)
    assert max(shares(cluster, ridge)[0]) > 2 * max(first)


def with_an_empty_home(cluster):
    """One zone in place of another: no heat, 120 h to cool down, a sensor of 0.1 °C."""
    outdoor, solar, alone = cluster.outdoor.to_numpy(), cluster.solar.to_numpy(), [15.0]
    for t in range(len(outdoor) - 1):
        alone.append(alone[-1] + 0.5 / 120 * (outdoor[t] + 6 * solar[t] - alone[-1]))
    temperature, load = cluster.temperature.copy(), cluster.load.copy()
    temperature[cluster.agents[20]], load[cluster.agents[20]] = np.round(alone, 1), 0.0
    return Cluster.from_frames(temperature, load, cluster.outdoor, cluster.solar)


def shares(cluster, ridge: float) -> list[np.ndarray]:
    """Each home's share of Σp², direction by direction; some fits end before their release."""
    options = dict(order=2, ridge=ridge, season="24h", solver_tolerance=0.03)
    aggregator, agents = parties(cluster, rules=Rules(dither=0.0), **options)
    parts, step_values = {}, direction.step_values

    def noted(*arguments):
        p, values = step_values(*arguments)
        parts.setdefault(len(arguments[2]), []).append(p)
        return p, values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "step_values", noted)
        drive(aggregator, agents)
    squares = [np.array(each) ** 2 for each in parts.values()]
    return [each / each.sum() for each in squares]


def test_a_home_that_stands_out_does_not_set_the_size_of_a_direction():
    """Of 16 homes one has a step a thousand times that of the others; the next scale is theirs, nearly."""
    own = direction.OwnSeries(np.ones(1), np.eye(2))
    descent = Descent(alpha=np.zeros(1), weights=np.ones(1), previous=np.ones(1))
    found = direction.Look(descent, 1.0, np.ones(1), np.empty((0, 1)))
    sizes = []
    for raw in (1.0, *[1e-3] * 15):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(direction, "residual", lambda *_, raw=raw: (0.0, raw))
            _, values = direction.step_values(found, own, np.ones(1), 1.0, 2e-3, 16, 2.0)
        sizes.append(values["squares"][1])
    assert direction.next_scale(2e-3, sum(sizes)) < 4e-3


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
