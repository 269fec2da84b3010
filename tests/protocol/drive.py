"""A run in hand: parties of a tiny cluster, and a loop in which a test can alter any message."""

import hashlib
from collections import deque
from collections.abc import Callable

import atdm
from atdm.errors import PeerError
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.plan import Plan
from atdm.run import enrol, make_plan, weather_of
from tests.clusters import tiny

RULES = atdm.Rules(least_agents=3, rows_per_parameter=1.0, dither=0.0)
Alter = Callable[[int, bytes], list[bytes]]  # receiving agent, message → what it gets instead


def seeded(seed: int) -> Callable[[int], bytes]:
    """Bytes that look random and come back with the seed."""
    state = [hashlib.sha256(f"seed {seed}".encode()).digest()]

    def draw(n: int) -> bytes:
        state[0] = hashlib.sha256(state[0]).digest()
        return hashlib.shake_256(state[0]).digest(n)

    return draw


def parties(cluster=None, *, protocol="blind", seed=0, rules=RULES, keep=False, **options):
    cluster = tiny(seed, agents=4, rows=60) if cluster is None else cluster
    plan: Plan = make_plan(cluster, protocol, **{"order": 1, "ridge": 2.0, "nonnegative": False, **options})
    agents, _ = enrol(cluster, rules, seeded(seed), keep=keep)
    roster = agents[0].roster
    cohorts = {member.cohort for member in roster.members}
    aggregator = Aggregator(plan=plan, roster=roster, cohorts=cohorts, weather=weather_of(cluster), keep=keep)
    return aggregator, agents


def drive(aggregator, agents, to_agent: Alter | None = None, to_aggregator: Alter | None = None) -> list[str]:
    """Carry messages until nobody has anything to say; returns what was refused as not belonging."""
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
    return refused
