"""Every place where a party can stand: reached by replaying a recorded run, one message after the other.

A recording is a run of honest parties whose randomness follows from a seed; replaying its messages to a fresh party
brings it to the same place, byte for byte.
"""

import random
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from atdm.errors import UsageError
from atdm.protocol.agent import Agent, AgentState
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.blind.desk import BlindDesk
from atdm.protocol.blind.script import BlindPart
from atdm.protocol.collect import CollectDesk, CollectPart
from atdm.protocol.desk import Outgoing
from atdm.protocol.messages import Abort, Announce, Message, ToAgent, ToAggregator, encode
from atdm.protocol.opened import OpenDesk, OpenPart
from atdm.protocol.plan import AnyPlan
from atdm.protocol.session import announce_hash
from atdm.protocol.store import Entry, disclose, enclose
from atdm.run import weather_of
from tests.clusters import tiny
from tests.protocol.world import Ram, World

PROTOCOLS = ("blind", "moments", "paper", "collect")
SEED, AGENTS, ROWS = 3, 4, 60
LEADER, MEMBER = 0, 1
TO_AGENT = tuple(ToAgent.__args__)
TO_AGGREGATOR = tuple(ToAggregator.__args__)
_down, _up = msgspec.msgpack.Decoder(ToAgent), msgspec.msgpack.Decoder(ToAggregator)


def read_down(data: bytes) -> Message:
    return _down.decode(data)


def read_up(data: bytes) -> Message:
    return _up.decode(data)


@dataclass
class Failing(Ram):
    """A store that can be told to fail."""

    broken: bool = False

    def _write(self, write) -> None:
        if self.broken:
            raise UsageError("the disk is full")
        super()._write(write)


class Recorder(World):
    """A world in which every agent has randomness of its own, and that remembers who was sent what."""

    def __init__(self) -> None:
        super().__init__(tiny(SEED, agents=AGENTS, rows=ROWS), SEED)
        self.stores = [Failing() for _ in self.stores]
        self.down: dict[int, list[tuple[bytes, list[bytes]]]] = {i: [] for i in range(AGENTS)}
        self.up: list[tuple[int, bytes]] = []  # what reached the aggregator

    def agent(self, i: int) -> Agent:
        fresh = self.agents[i] is None
        agent = super().agent(i)
        if fresh:
            agent._random_bytes = random.Random(f"agent {i}").randbytes
        return agent

    def deliver(self, i: int, data: bytes) -> list[bytes]:
        replies = super().deliver(i, data)
        self.down[i].append((data, replies))
        return replies

    def aggregator(self, plan: AnyPlan, **options) -> Aggregator:
        role = super().aggregator(plan, **options)
        receive = role.receive

        def heard(sender: int, data: bytes) -> list[Outgoing]:
            self.up.append((sender, data))
            return receive(sender, data)

        role.receive = heard
        return role

    def plan_of(self, protocol: str) -> AnyPlan:
        return self.collect(0, 12) if protocol == "collect" else self.plan(protocol=protocol)


@lru_cache
def recorded(protocol: str) -> Recorder:
    world = Recorder()
    if world.run(world.aggregator(world.plan_of(protocol))) is None:
        raise AssertionError(world.reasons)
    return world


@dataclass(frozen=True)
class Place:
    """A party stands here after so many messages of its recording."""

    name: str  # a state, or a state and a phase
    protocol: str
    who: int
    messages: int
    then: str = ""  # what happens to it after them


def phase_of(agent: Agent) -> str:
    part = agent.part
    if isinstance(part, BlindPart):
        return f"{agent.state}/{part.asked.phase if part.asked is not None else 'secret'}"
    if isinstance(part, CollectPart):
        return f"{agent.state}/{part.phase}"
    if isinstance(part, OpenPart):
        return f"{agent.state}/{'consent' if part._seed else 'question'}"
    return str(agent.state)


def stand(place: Place) -> Agent:
    """A fresh agent, brought to its place."""
    world, history = Recorder(), recorded(place.protocol).down[place.who]
    agent, store = world.agent(place.who), world.stores[place.who]
    for data, replies in history[: place.messages]:
        if agent.receive(data) != replies:
            raise AssertionError("a replayed message was answered otherwise")
    if place.then == "abort":
        agent.receive(encode(Abort(run=run_id(agent), reason="told to")))
    elif place.then == "broken disk":
        store.broken = True
        try:
            agent.receive(history[place.messages][0])
        except UsageError:
            store.broken = False
    elif place.then == "lost":
        last = disclose(store.entries[-1], Entry)
        store.entries[-1] = enclose(msgspec.structs.replace(last, answer=bytes(32)))
        world.restart(place.who)
        agent = world.agent(place.who)
    return agent


def run_id(agent: Agent) -> bytes:
    if agent.part is not None:
        return agent.part.session.run.id
    return announce_hash(agent._announce) if hasattr(agent, "_announce") else bytes(32)


@lru_cache
def agent_places() -> tuple[Place, ...]:
    """The first time an agent stands in each state and phase, for every protocol, as leader and as member."""
    found: dict[tuple, Place] = {}
    for protocol in PROTOCOLS:
        for who in (LEADER, MEMBER):
            agent = Recorder().agent(who)
            for n, (data, _) in enumerate([*recorded(protocol).down[who], (b"", [])]):
                name = phase_of(agent)
                key = (name, protocol if "/" in name else "", who)
                found.setdefault(key, Place(name, protocol, who, n))
                if data:
                    agent.receive(data)
    for who in (LEADER, MEMBER):
        for then, name in (("abort", "aborted"), ("broken disk", "halted"), ("lost", "lost")):
            found[name, "", who] = Place(name, "blind", who, 4, then)
    return tuple(found.values())


def place(name: str, who: int = MEMBER, protocol: str = "blind") -> Place:
    """Where an agent stands in this state or phase."""
    here = (p for p in agent_places() if (p.name, p.who) == (name, who))
    return next(p for p in here if p.protocol == protocol or "/" not in name)


def agent_state(place: Place) -> AgentState:
    return AgentState(place.name.split("/")[0])


# The aggregator


@dataclass(frozen=True)
class Desk:
    """The aggregator stands here after so many messages of a recorded run."""

    name: str
    protocol: str
    messages: int
    refused: bool = False


def desk_name(role: Aggregator) -> str:
    if isinstance(role.desk, BlindDesk) and role.state is AggregatorState.RUNNING:
        return f"running/{'secrets' if not role.desk._secrets else 'release' if role.desk._seal else 'sum'}"
    if isinstance(role.desk, OpenDesk) and role.state is AggregatorState.RUNNING:
        if role.desk._question.layout is None:
            return "running/collect"
        return "running/consent" if len(role.desk._tags) == len(role.members) else "running/sum"
    if isinstance(role.desk, CollectDesk) and role.state is AggregatorState.RUNNING:
        return "running/offers" if role.desk._pile.step == 0 else "running/shown"
    return str(role.state)


def seat(desk: Desk) -> Aggregator:
    past = recorded(desk.protocol)
    announce = past.role._announce
    role = Aggregator(
        plan=announce.plan, roster=past.roster, weather=weather_of(past.cluster), attempt=announce.attempt
    )
    for sender, data in past.up[: desk.messages]:
        role.receive(sender, data)
    if desk.refused:
        role.abort("told to")
    return role


@lru_cache
def desk_places() -> tuple[Desk, ...]:
    found: dict[tuple, Desk] = {}
    for protocol in PROTOCOLS:
        role = seat(Desk("", protocol, 0))
        for n, (sender, data) in enumerate([*recorded(protocol).up, (0, b"")]):
            name = desk_name(role)
            found.setdefault((name, protocol if "/" in name else ""), Desk(name, protocol, n))
            if data:
                role.receive(sender, data)
    found["aborted", ""] = Desk("aborted", "blind", 6, refused=True)
    return tuple(found.values())


def announcement(protocol: str) -> Announce:
    data, _ = recorded(protocol).down[MEMBER][0]
    message = read_down(data)
    if not isinstance(message, Announce):
        raise AssertionError("a run begins with an announcement")
    return message
