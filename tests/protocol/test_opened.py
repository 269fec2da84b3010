"""Sums that open to the aggregator do so only when everybody answered the same question."""

import msgspec
import numpy as np
import pytest

from atdm.protocol import agent as agents_module
from atdm.protocol.aggregator import State
from atdm.protocol.messages import (
    Ask,
    Consent,
    Keys,
    Masked,
    Receipts,
    decode_to_agent,
    decode_to_aggregator,
    encode,
)
from atdm.run import fit
from tests.clusters import tiny
from tests.protocol.drive import drive, parties

BIG = 10**9


def no_total_used(aggregator) -> bool:
    return aggregator.state is not State.DONE and (aggregator.desk is None or aggregator.desk.outcome is None)


@pytest.mark.parametrize("protocol", ["paper", "moments"])
@pytest.mark.parametrize("step", range(4))
def test_an_agent_asked_something_else_spoils_the_sum_instead_of_answering(protocol, step):
    """One agent is sent other numbers (α, ξ̄, rows, (w, b)): receipts or the count word catch it, the run aborts."""
    aggregator, agents = parties(protocol=protocol, seed=step)

    def to_agent(i, data):
        message = decode_to_agent(data, BIG)
        if i == 1 and isinstance(message, Ask) and message.step == step:
            numbers = np.frombuffer(message.values, "<f8")
            other = numbers.copy() if len(numbers) else np.zeros(1)
            other[:1] += 0.25
            return [encode(Ask(run=message.run, step=step, what=message.what, values=other.astype("<f8").tobytes()))]
        return [data]

    drive(aggregator, agents, to_agent)
    assert no_total_used(aggregator)


@pytest.mark.parametrize("protocol", ["paper", "moments", "blind"])
def test_an_agent_shown_other_keys_ends_the_run(protocol):
    aggregator, agents = parties(protocol=protocol)

    def to_agent(i, data):
        message = decode_to_agent(data, BIG)
        if i == 2 and isinstance(message, Keys):
            return [encode(msgspec.structs.replace(message, nonces=message.nonces[32:] + message.nonces[:32]))]
        return [data]

    drive(aggregator, agents, to_agent)
    assert no_total_used(aggregator)
    assert agents[2].state is agents_module.State.ABORTED


@pytest.mark.parametrize("protocol", ["paper", "moments"])
def test_no_agent_consents_while_a_receipt_is_missing(protocol):
    """The false abort: the aggregator claims that an agent is missing. Without its receipt nothing ever opens."""
    aggregator, agents = parties(protocol=protocol)
    consents = []

    def to_agent(i, data):
        message = decode_to_agent(data, BIG)
        if isinstance(message, Receipts):
            return [encode(Receipts(run=message.run, step=message.step, tags=message.tags[:-16]))]
        return [data]

    def to_aggregator(i, reply):
        if isinstance(decode_to_aggregator(reply, BIG), Consent):
            consents.append(i)
        return [reply]

    drive(aggregator, agents, to_agent, to_aggregator)
    assert no_total_used(aggregator) and consents == []


@pytest.mark.parametrize("protocol", ["paper", "moments", "blind"])
@pytest.mark.parametrize("change", ["flip", "shorten", "lengthen", "phase", "step", "run"])
def test_words_of_the_wrong_kind_never_become_a_total(protocol, change):
    aggregator, agents = parties(protocol=protocol, seed=2)
    done = []

    def to_aggregator(i, reply):
        message = decode_to_aggregator(reply, BIG)
        if i != 3 or not isinstance(message, Masked) or message.step != 1 or done:
            return [reply]
        done.append(True)
        fields = dict(run=message.run, step=message.step, phase=message.phase, words=message.words, tags=message.tags)
        fields |= {
            "flip": dict(words=bytes([message.words[0] ^ 1]) + message.words[1:]),
            "shorten": dict(words=message.words[:-8]),
            "lengthen": dict(words=message.words + bytes(8)),
            "phase": dict(phase="release"),
            "step": dict(step=7),
            "run": dict(run=bytes(32)),
        }[change]
        return [encode(Masked(**fields))]

    refused = drive(aggregator, agents, to_aggregator=to_aggregator)
    if protocol != "blind" and change == "flip":
        # one quantum more in the load of one agent, which nobody else can tell from an agent that sent it so
        assert aggregator.state is State.DONE
    else:
        assert no_total_used(aggregator)
    assert refused or aggregator.state in (State.ABORTED, State.DONE)


@pytest.mark.parametrize("protocol", ["paper", "moments", "blind"])
def test_the_same_message_twice_is_answered_once_and_two_different_ones_end_the_run(protocol):
    for different in (False, True):
        aggregator, agents = parties(protocol=protocol, seed=4)

        def to_aggregator(i, reply, different=different):
            message = decode_to_aggregator(reply, BIG)
            if i == 1 and isinstance(message, Masked) and message.step == 1 and different:
                second = bytes([message.words[0] ^ 128]) + message.words[1:]
                other = Masked(run=message.run, step=1, phase=message.phase, words=second, tags=message.tags)
                return [reply, encode(other)]
            return [reply, reply]

        drive(aggregator, agents, to_aggregator=to_aggregator)
        assert aggregator.state is (State.ABORTED if different else State.DONE)


@pytest.mark.parametrize("protocol, rows", [("moments", {"scalars", "load total", "moments", "state"}),
                                            ("paper", {"scalars", "load total", "state", "masked transform",
                                                       "coefficients", "weights"})])  # fmt: skip
def test_the_ledger_names_what_the_aggregator_was_shown(protocol, rows):
    found = fit(tiny(0, agents=6), protocol, order=1, ridge=2.0)
    assert {row["what"] for row in found.ledger if row["party"] == "aggregator"} == rows
    assert not [row for row in found.ledger if row["party"] == "agents"]


def test_paper_sends_its_uploads_once_per_iteration_and_moments_once_at_all():
    cluster = tiny(0, agents=6, rows=80)
    n, k = 80, 6
    paper = fit(cluster, "paper", order=1, ridge=2.0, nonnegative=False, transcript=True)
    uploads = [seen for seen in paper.transcript["aggregator"] if seen.label == "D2"]
    assert len(uploads) == paper.iterations
    train = 60 - 1
    words = paper.iterations * (train * k + k * k + k) + (paper.iterations + 1) * n + 2 * n
    assert 8 * words < paper.cost.bytes_up_per_agent < 8 * words + 250 * paper.cost.rounds  # receipts, seeds, headers
    moments = fit(cluster, "moments", order=1, ridge=2.0, nonnegative=False)
    assert moments.cost.bytes_up_per_agent == pytest.approx(8 * (n * (n + 1) / 2 + 3 * n), rel=0.1)
