"""Sums that open to the aggregator do so only when everybody answered the same question."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from atdm.protocol import agent as agents_module
from atdm.protocol.account import OTHER_WEIGHTING
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.messages import Ask, Consent, Keys, Masked, Receipts
from atdm.protocol.rules import Rules
from atdm.run import fit
from tests.clusters import tiny
from tests.protocol.drive import altering, drive, nothing_released, parties
from tests.protocol.world import World, written

change = msgspec.structs.replace
OPENED = ["paper", "moments"]


@pytest.mark.parametrize("protocol", OPENED)
@pytest.mark.parametrize("step", range(4))
def test_an_agent_asked_something_else_spoils_the_sum_instead_of_answering(protocol, step):
    """One agent is sent other numbers (α, ξ̄, rows, (w, b)): receipts or the count word catch it, the run aborts."""
    aggregator, agents = parties(protocol=protocol, seed=step)

    def other(i, ask):
        numbers = np.frombuffer(ask.values, "<f8").copy() if ask.values else np.zeros(1)
        numbers[:1] += 0.25
        return [change(ask, values=numbers.astype("<f8").tobytes()) if (i, ask.step) == (1, step) else ask]

    drive(aggregator, agents, altering(Ask, other))
    nothing_released(aggregator)


@pytest.mark.parametrize("protocol", [*OPENED, "blind"])
def test_an_agent_shown_other_keys_ends_the_run(protocol):
    aggregator, agents = parties(protocol=protocol)

    def other(i, keys):
        return [change(keys, nonces=keys.nonces[32:] + keys.nonces[:32]) if i == 2 else keys]

    drive(aggregator, agents, altering(Keys, other))
    nothing_released(aggregator)
    assert agents[2].state is agents_module.AgentState.ABORTED


@pytest.mark.parametrize("protocol", OPENED)
def test_no_agent_consents_while_a_receipt_is_missing(protocol):
    """The false abort: the aggregator claims that an agent is missing. Without its receipt nothing ever opens."""
    aggregator, agents = parties(protocol=protocol)
    consents = []
    fewer = altering(Receipts, lambda i, message: [change(message, tags=message.tags[:-16])])
    drive(aggregator, agents, fewer, altering(Consent, lambda i, message: consents.append(i) or [message]))
    nothing_released(aggregator)
    assert consents == []


@pytest.mark.parametrize("protocol", [*OPENED, "blind"])
@pytest.mark.parametrize("what", ["flip", "shorten", "lengthen", "phase", "step", "run"])
def test_words_of_the_wrong_kind_never_become_a_total(protocol, what):
    aggregator, agents = parties(protocol=protocol, seed=2)
    done = []

    def other(i, message):
        if i != 3 or message.step != 1 or done:
            return [message]
        done.append(True)
        words = message.words
        return [change(message, **{
            "flip": dict(words=bytes([words[0] ^ 1]) + words[1:]), "shorten": dict(words=words[:-8]),
            "lengthen": dict(words=words + bytes(8)), "phase": dict(phase="release"), "step": dict(step=7),
            "run": dict(run=bytes(32)),
        }[what])]  # fmt: skip

    drive(aggregator, agents, to_aggregator=altering(Masked, other))
    assert done
    # one quantum more in the load of one agent is what nobody else can tell from an agent that sent it so
    if protocol == "blind" or what != "flip":
        nothing_released(aggregator)


@pytest.mark.parametrize("protocol", [*OPENED, "blind"])
@pytest.mark.parametrize("different", [False, True])
def test_the_same_message_twice_is_answered_once_and_two_different_ones_end_the_run(protocol, different):
    aggregator, agents = parties(protocol=protocol, seed=4)

    def twice(i, message):
        other = change(message, words=bytes([message.words[0] ^ 128]) + message.words[1:])
        return [message, other if different and (i, message.step) == (1, 1) else message]

    drive(aggregator, agents, to_aggregator=altering(Masked, twice))
    assert aggregator.state is (AggregatorState.ABORTED if different else AggregatorState.DONE)


@pytest.mark.parametrize("protocol, rows", [("moments", {"scalars", "load total", "moments", "state"}),
                                            ("paper", {"scalars", "load total", "state", "masked transform",
                                                       "coefficients", "weights"})])  # fmt: skip
def test_the_ledger_names_what_the_aggregator_was_shown(protocol, rows):
    found = fit(tiny(0, agents=6), protocol, order=1, ridge=2.0)
    assert {row["what"] for row in found.ledger if row["party"] == "aggregator"} == rows
    assert not [row for row in found.ledger if row["party"] == "agents"]


def test_paper_sends_its_uploads_once_per_iteration_and_moments_once_at_all():
    cluster, n, k, train = tiny(0, agents=6, rows=80), 80, 6, 60 - 1
    paper = fit(cluster, "paper", order=1, ridge=2.0, nonnegative=False, transcript=True)
    assert len([seen for seen in paper.transcript["aggregator"] if seen.label == "D2"]) == paper.iterations
    words = paper.iterations * (train * k + k * k + k) + (paper.iterations + 1) * n + 2 * n
    assert 8 * words < paper.cost.bytes_up_per_agent < 8 * words + 250 * paper.cost.rounds  # receipts, seeds, headers
    moments = fit(cluster, "moments", order=1, ridge=2.0, nonnegative=False)
    assert moments.cost.bytes_up_per_agent == pytest.approx(8 * (n * (n + 1) / 2 + 3 * n), rel=0.1)


@pytest.mark.parametrize("protocol", OPENED)
@pytest.mark.parametrize("opened_first", [True, False])
def test_what_others_open_does_not_show_a_home_that_allows_blind_only(protocol: str, opened_first: bool) -> None:
    """The mean of twelve homes and the sum of the eleven that also allow `moments` gave the twelfth to 0.001 K and 1e-9
    kW, to the aggregator alone: opened days were on nobody's account."""
    here = World(tiny(3, agents=12, rows=80), 1, Rules())
    for i in range(12):
        agent = here.agent(i)
        offered = ("blind",) if i == 5 else ("blind", protocol)
        agent.own = replace(agent.own, rules=replace(agent.own.rules, protocols=offered))
    opened, collected = here.plan(protocol=protocol), here.collect(0, 80)
    first, then = (opened, collected) if opened_first else (collected, opened)
    assert here.run(here.aggregator(first)) is not None, here.reasons
    role = here.aggregator(then)
    assert here.run(role) is None and role.run is None
    assert {ready.reason for i, ready in role.answers.items() if i != 5} == {OTHER_WEIGHTING}
    if opened_first:
        days = written(here.stores[1]).account.days.values()
        assert {known.weights for known in days} == {"opened"} and {known.step for known in days} == {6 * 3600}
        assert here.run(here.aggregator(opened)) is not None  # the same homes again: nothing new
