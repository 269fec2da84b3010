"""Breaks that a reading of the second edition with an adversary's eyes found; docs/spec.md §6 has the rules."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from atdm.crypto.keys import SigningKey
from atdm.errors import PeerError
from atdm.kernel.descent import Descent
from atdm.kernel.span import Span
from atdm.protocol.account import NO_ROOM, Account, Answered
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.blind import direction, script
from atdm.protocol.blind.release import DEVIATES
from atdm.protocol.company import TOO_EARLY
from atdm.protocol.messages import Masked
from atdm.protocol.options import fit_options
from atdm.protocol.plan import DAY, first_day
from atdm.protocol.readings import Readings, seconds
from atdm.protocol.registry import OFFERED
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import Rules
from atdm.run import make_plan, rows_of_plan, weather_of
from tests.clusters import tiny
from tests.protocol.drive import RULES, altering, announcing, drive, parties, seeded

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


@pytest.mark.parametrize("ridge", [1.0, 100.0, 1e4, 1e6])
def test_no_home_carries_the_first_direction_whatever_the_ridge(sample, ridge, monkeypatch):
    """With the scale √K/λ of the draft the clip never acted at a large λ: 0.92 of Σp² was one home's on one cluster."""
    shares = first_shares(sample, ridge)
    assert max(shares) < 0.15
    monkeypatch.setattr(script, "first_scale", lambda span, agents: np.sqrt(agents) / span.ridge)
    assert max(first_shares(sample, ridge)) >= max(shares) - 1e-9


def first_shares(cluster, ridge: float) -> np.ndarray:
    """Each home's share of Σp² in the first direction."""
    aggregator, agents = parties(
        cluster, rules=Rules(dither=0.0), order=2, ridge=ridge, season="24h", solver_tolerance=0.03
    )
    parts = {}
    step_values = direction.step_values

    def noted(*arguments):
        p, values = step_values(*arguments)
        if len(arguments[2]) == 1:
            parts[len(parts)] = p
        return p, values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "step_values", noted)
        drive(aggregator, agents)
    squares = np.array(list(parts.values())) ** 2
    return squares / squares.sum()


def test_a_key_enrolled_later_gives_no_earlier_day():
    """A fleet with new keys has empty accounts: the same days summed again without one home showed that home."""
    cluster = tiny(2, agents=12, rows=60)
    draw, rules = seeded(5), replace(RULES, protocols=OFFERED, weights="fitted", day_share=0.0)
    authority, time = SigningKey(draw(32)), seconds(cluster.time)
    keys = {name: SigningKey(draw(32)) for name in cluster.agents}
    enrolled = {keys[name].public: int(time[0]) // DAY + 5 for name in cluster.agents}  # five days later
    roster = sign_roster(authority, [(n, n, keys[n].public) for n in cluster.agents], 2, enrolled)
    columns = {n: (cluster.temperature[n].to_numpy(float), cluster.load[n].to_numpy(float)) for n in cluster.agents}
    agents = [
        Agent(
            identity=keys[m.name], secret=draw(32), roster=roster, authority=authority.public, rules=rules,
            readings=Readings(time, *columns[m.name]), weather=weather_of(cluster), random_bytes=draw,
        )
        for m in roster.members
    ]  # fmt: skip
    plan = rows_of_plan(make_plan(cluster, fit_options(protocol="blind", weights="equal", order=1)))
    role = Aggregator(plan=plan, roster=roster, weather=weather_of(cluster))
    drive(role, agents)
    assert {r.reason for r in role.answers.values()} == {TOO_EARLY}
    assert role.state is AggregatorState.DONE and role.run.days[0] == first_day(plan) + 5

    everybody = lambda answers, roster, least: (list(range(12)), np.ones(len(answers[0]), dtype=bool))  # noqa: E731
    forced = Aggregator(plan=plan, roster=roster, weather=weather_of(cluster), attempt=1, choose=everybody)
    drive(forced, agents)
    assert forced.state is AggregatorState.ABORTED and "not in on all days" in forced.reasons[0]


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


def test_an_agent_looks_for_the_newest_roster_before_it_answers():
    cluster = tiny(3, agents=4, rows=60)
    aggregator, agents = parties(cluster)
    roster, authority = agents[0].roster, SigningKey(seeded(0)(32))  # the first bytes that `enrol` draws
    newer = sign_roster(authority, [(m.name, m.owner, m.identity) for m in roster.members], roster.serial + 1)
    assert newer.authority == roster.authority
    agents[0]._renew_roster = lambda: newer
    with pytest.raises(PeerError, match="another roster"):
        agents[0].receive(aggregator.start()[0].data)
    agents[0]._renew_roster = lambda: roster
    with pytest.raises(PeerError, match="older"):
        agents[0].receive(aggregator.start()[0].data)
