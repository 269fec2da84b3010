"""One agent that adds to sums what is not its own to say: honest agents keep to their own account, or end the run."""

from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import pytest

from atdm.kernel.descent import Status
from atdm.protocol import blind
from atdm.protocol.aggregator import Aggregator, State
from atdm.protocol.blind import BlindPart, Phase
from atdm.protocol.messages import Refuse, decode_to_aggregator
from atdm.protocol.readings import Readings, seconds
from atdm.protocol.rules import OFFERED, Rules
from atdm.run import make_plan, weather_of
from tests.clusters import tiny
from tests.protocol.drive import RULES, drive, parties

VICTIM, LIAR = 2, 11
DENIED = "denies what this agent said of itself"


def lying(monkeypatch, phase: Phase, field: str, offset) -> None:
    """From now on one agent adds to a field of the sums of one phase."""
    true_send = BlindPart._send

    def send(self, at, layout, values):
        if self.session.index == LIAR and at is phase and field in values:
            values = {**values, field: values[field] + offset}
        return true_send(self, at, layout, values)

    monkeypatch.setattr(BlindPart, "_send", send)


@pytest.fixture
def lie(monkeypatch):
    return partial(lying, monkeypatch)


def gathered(**options):
    aggregator, agents = parties(tiny(3, agents=12, rows=200), seed=3, **options)
    return aggregator, agents, agents[VICTIM]


def change(agent, **parts) -> None:
    agent.own = replace(agent.own, **parts)


def ends(aggregator, agents, why: str) -> None:
    drive(aggregator, agents)
    assert aggregator.state is State.ABORTED and why in aggregator.reasons[0], aggregator.reasons


@pytest.mark.parametrize("rules, flags", [(dict(totals=1), (-1.0, 0.0)), (dict(leverage=0.05), (0.0, -1.0))],
                         ids=["refused", "limited"])  # fmt: skip
def test_nobody_takes_back_another_agents_refusal(lie, rules, flags) -> None:
    aggregator, agents, victim = gathered()
    change(victim, rules=replace(victim.own.rules, **rules))
    lie(Phase.FLAGS, "flags", np.array(flags))
    ends(aggregator, agents, DENIED)
    assert len(victim.own.exposure.book) <= 1


def test_nobody_says_for_another_agent_that_it_has_a_row(lie) -> None:
    aggregator, agents, victim = gathered()
    own, has = victim.own.readings, np.arange(200) % 50 != 7
    change(victim, readings=Readings(own.time[has], own.temperature[has], own.load[has]))
    lie(Phase.ROWS, "missing", np.where(has, 0.0, -1.0))
    ends(aggregator, agents, DENIED)
    assert not victim.own.exposure.book


def test_nobody_says_for_another_agent_that_a_row_is_new(lie) -> None:
    aggregator, agents, victim = gathered()
    shown = victim.own.readings.time[:20]
    victim.own.exposure.release(shown)
    lie(Phase.ROWS, "released", np.where(np.arange(200) < 20, -1.0, 0.0))
    ends(aggregator, agents, DENIED)
    assert np.array_equal(victim.own.exposure.released, shown)


def test_nobody_says_for_another_agent_that_stored_directions_serve_again(lie) -> None:
    aggregator, agents, victim = gathered()
    drive(aggregator, agents)
    assert aggregator.state is State.DONE
    first = len(victim.own.exposure.book)
    longer = tiny(3, agents=12, rows=240)
    for agent in agents:
        temperature, load = longer.temperature[agent.name], longer.load[agent.name]
        grown = Readings(seconds(longer.time), temperature.to_numpy(float), load.to_numpy(float))
        change(agent, readings=grown, weather=weather_of(longer))
    change(victim, rules=replace(victim.own.rules, totals=1))
    roster = victim.roster
    again = Aggregator(
        plan=make_plan(longer, "blind", order=1, ridge=2.0, nonnegative=False), roster=roster,
        cohorts={member.cohort for member in roster.members}, weather=weather_of(longer), attempt=1,
    )  # fmt: skip
    lie(Phase.LOAD, "refused", -1.0)
    ends(again, agents, DENIED)
    assert len(victim.own.exposure.book) == first


@pytest.mark.parametrize("phase, field, offset", [
    (Phase.SCALARS, "squares", np.array([0.5, 0.0])),  # a longer norm makes every q, and what is charged, smaller
    (Phase.SCALARS, "squares", np.array([0.0, -50.0])),
    (Phase.BASIS, "gram", -0.9),
])  # fmt: skip
def test_a_lie_about_lengths_ends_the_run(lie, phase, field, offset) -> None:
    aggregator, agents, _ = gathered()
    lie(phase, field, offset)
    ends(aggregator, agents, "somebody sent what it should not")


def test_too_few_rows_that_everybody_has_are_refused_like_a_window_too_short() -> None:
    aggregator, agents, victim = gathered(rules=replace(RULES, rows_per_parameter=10.0))
    own = victim.own.readings
    change(victim, readings=Readings(own.time[:60], own.temperature[:60], own.load[:60]))
    ends(aggregator, agents, "a window of 60 rows is too short")


@pytest.mark.parametrize("at, value", [(0, np.nan), (-1, np.inf)], ids=["coefficient", "state"])
def test_a_leader_releases_numbers_or_nothing(monkeypatch, at, value) -> None:
    true_pack = blind.pack_release

    def pack(*args):
        numbers = true_pack(*args)
        numbers[at] = value
        return numbers

    monkeypatch.setattr(blind, "pack_release", pack)
    aggregator, agents, _ = gathered()
    ends(aggregator, agents, "the release does not open")


def test_a_leader_releases_the_rows_it_says(monkeypatch) -> None:
    true_bitmaps = BlindPart._bitmaps

    def one_less(self):
        kept, fresh = true_bitmaps(self)
        return kept, fresh & ~np.uint64(1)

    monkeypatch.setattr(BlindPart, "_bitmaps", one_less)
    aggregator, agents, _ = gathered()
    ends(aggregator, agents, "the release does not open")


@pytest.mark.parametrize("protocol", ["moments", "paper", "plain"])
def test_an_agent_takes_part_in_blind_alone_unless_its_owner_says_more(protocol: str) -> None:
    aggregator, agents, victim = gathered(protocol="moments" if protocol == "plain" else protocol)
    change(victim, rules=replace(victim.own.rules, protocols=("blind",)))
    if protocol == "plain":
        plan = msgspec.structs.replace(aggregator._announce.plan, protocol="plain")
        aggregator._announce = msgspec.structs.replace(aggregator._announce, plan=plan)
    [(_, announcement)] = aggregator.start()
    [reply] = victim.receive(announcement)
    refused = decode_to_aggregator(reply, 10**6)
    assert isinstance(refused, Refuse) and f"protocol {protocol}: this agent takes part in blind only" in refused.reason
    assert Rules().protocols == ("blind",) and "plain" not in OFFERED


def test_agents_with_other_limits_decide_alike(sample) -> None:
    """One of 64 allows four totals; nobody's rules but its flags may change what the others do."""
    plan = dict(order=2, ridge=30.0, nonnegative="ridge")
    aggregator, agents = parties(sample, seed=1, rules=Rules(), **plan)
    change(agents[7], rules=replace(agents[7].own.rules, totals=4))
    drive(aggregator, agents)
    assert aggregator.state is State.DONE, aggregator.reasons
    assert aggregator.desk.outcome.estimate.status is Status.CAPPED and aggregator.desk.outcome.sums == 4
