"""A run in hand: parties of a tiny cluster, and a loop in which a test can alter any message."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from atdm.data import Cluster
from atdm.errors import PeerError
from atdm.options import fit_options
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.messages import ToAggregator, encode
from atdm.protocol.rules import Rules, least_owners
from atdm.run import enrol, make_plan, rows_of_plan, weather_of
from tests.clusters import tiny

RULES = Rules(least_agents=3, rows_per_parameter=1.0, agents_per_total=1, colluders=0, dither=0.0)
Alter = Callable[[int, bytes], list[bytes]]  # receiving or sending agent, message → what goes on instead
decoded = msgspec.msgpack.Decoder(ToAggregator).decode


def seeded(seed: int) -> Callable[[int], bytes]:
    """Bytes that look random and come back with the seed."""
    return random.Random(f"seed {seed}").randbytes


def parties(
    cluster: Cluster | None = None, *, protocol: str = "blind", seed: int = 0, rules: Rules = RULES,
    keep: bool = False, share: bool = True, **options: Any,
) -> tuple[Aggregator, list[Agent]]:  # fmt: skip
    """An aggregator with a plan over all rows, and everybody who is enrolled; weights="equal": rows to collect."""
    cluster = tiny(seed, agents=4, rows=60) if cluster is None else cluster
    options = {"order": 1, "ridge": 2.0, "nonnegative": False, **options}
    plan = make_plan(cluster, fit_options(protocol=protocol, **options), rules)
    agents, _ = enrol(cluster, rules, seeded(seed), keep=keep, share=share)
    return announcing(agents, plan if plan.weights == "fitted" else rows_of_plan(plan), cluster, keep=keep), agents


def announcing(agents: list[Agent], plan: Any, cluster: Cluster, **options: Any) -> Aggregator:
    """One more run of the same agents."""
    options = {"least": least_owners(agents[0].own.rules, plan.protocol), **options}
    return Aggregator(plan=plan, roster=agents[0].roster, weather=weather_of(cluster), **options)


def drive(
    aggregator: Aggregator, agents: list[Agent], to_agent: Alter | None = None, to_aggregator: Alter | None = None
) -> list[str]:
    """Carry messages until nobody has anything to say; returns what was refused as not belonging. Agents that say
    nothing to the announcement are out."""
    refused, inbox = [], deque(aggregator.start())
    while inbox:
        to, data = inbox.popleft()
        for i in range(len(agents)) if to is None else (to,):
            for message in to_agent(i, data) if to_agent else [data]:
                try:
                    replies = agents[i].receive(message)
                except PeerError as error:
                    refused.append(str(error))
                    continue
                for reply in replies:
                    for altered in to_aggregator(i, reply) if to_aggregator else [reply]:
                        try:
                            inbox += aggregator.receive(i, altered)
                        except PeerError as error:
                            refused.append(str(error))
        if not inbox and aggregator.state is AggregatorState.GATHERING:
            inbox += aggregator.close()
    return refused


def nothing_released(aggregator: Aggregator, why: str = "") -> None:
    assert aggregator.state is not AggregatorState.DONE and (aggregator.desk is None or aggregator.desk.outcome is None)
    assert why in " ".join(aggregator.reasons), aggregator.reasons


def said(agent: Agent, message: Any) -> list[Any]:
    """What an agent answers to a message, or the error with which it ignores it."""
    try:
        return [decoded(reply) for reply in agent.receive(message if isinstance(message, bytes) else encode(message))]
    except PeerError as error:
        return [error]


def altering(kind: type, change: Callable[[int, Any], list]) -> Alter:
    """For `drive`: messages of one kind become what change(agent, message) gives; others pass."""

    def alter(i: int, data: bytes) -> list[bytes]:
        if msgspec.msgpack.decode(data)["type"] != kind.__name__:
            return [data]
        return [encode(each) for each in change(i, msgspec.msgpack.decode(data, type=kind))]

    return alter
