"""A run whose aggregator the adversary plays: real agents, real bytes, and a hand on every message to them."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec
import numpy as np

from atdm.crypto.keys import SigningKey, derive, digest
from atdm.data import Cluster
from atdm.data.readings import Readings, positions
from atdm.errors import RunAborted
from atdm.kernel.design import REFERENCE_TEMP
from atdm.lab.attacks.view import Colluder, Public, View
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.blind.script import BlindPart
from atdm.protocol.collect import CollectDesk
from atdm.protocol.company import Choose
from atdm.protocol.company import choose as usual_choice
from atdm.protocol.desk import Outgoing
from atdm.protocol.ledger import Seen
from atdm.protocol.messages import Abort, Message, ToAgent, ToAggregator, decode_to_agent, decode_to_aggregator, encode
from atdm.protocol.opened import OpenPart
from atdm.protocol.part import Part
from atdm.protocol.plan import AnyPlan, Plan
from atdm.protocol.readings import dithered, public_inputs
from atdm.protocol.roster import Roster, sign_roster
from atdm.protocol.rules import Rules
from atdm.protocol.session import RandomBytes
from atdm.run import enrol, weather_of
from atdm.transport.local import one_by_one, pump, received
from atdm.types import FloatArray, IntArray

Alter = Callable[[int, ToAgent], Message | None]  # place of the receiver, message → what is delivered instead
Watch = Callable[[int, ToAggregator], Message | None]  # …, and what the adversary takes it for, where that differs


def repeatable(seed: int) -> RandomBytes:
    """Bytes that look random and are the same in every audit with this seed."""
    key, number = digest("audit", seed), count()
    return lambda size: derive(key, "bytes", next(number))[:size]


class Stage:
    """The agents of a cluster, over one or more runs. Places are places in the roster."""

    def __init__(
        self,
        cluster: Cluster,
        rules: Rules,
        random_bytes: RandomBytes = os.urandom,
        share: bool = True,
        seeds: Sequence[bytes] = (),
    ) -> None:
        """seeds: of the keys of the authority and of agents, in the order of `enrol`, where they were there before."""
        self.cluster, self.rules, self._random_bytes = cluster, rules, random_bytes
        self._seeds: list[bytes] = []
        before = iter(seeds)

        def draw(size: int) -> bytes:
            self._seeds.append(next(before, b"") or random_bytes(size))
            return self._seeds[-1]

        self.agents, _ = enrol(cluster, rules, draw, keep=True, share=share)
        self._limit(solver_tolerance=rules.solver_tolerance)  # other limits that a simulation lifts stay lifted
        self.parts: dict[int, Part] = {}  # the last of each agent, which ends with its run
        self.attempts = 0

    def _limit(self, **limits: Any) -> None:
        for agent in self.agents:
            agent.own = replace(agent.own, rules=replace(agent.own.rules, **limits))

    def as_deployed(self) -> None:
        """Agents have the limits on plans that a simulation lifts."""
        self._limit(ridge=self.rules.ridge, train=self.rules.train, least_days=self.rules.least_days)

    def fresh(self) -> "Stage":
        """The same agents, at the same places, as they were when they had been asked nothing yet."""
        return Stage(self.cluster, self.rules, self._random_bytes, seeds=self._seeds[: 1 + 2 * len(self.agents)])

    def enrolled_anew(self, since: int) -> "Stage":
        """The same homes with new keys and empty accounts, in a newer roster of the same authority; since: the first
        UTC day they may give."""
        anew = Stage(self.cluster, self.rules, self._random_bytes, seeds=self._seeds[:1])
        anew.take(anew.roster_of(range(len(anew.agents)), 2, since))
        return anew

    def roster_of(self, places: Iterable[int], serial: int, since: int = 0) -> Roster:
        """Signed by the authority."""
        members = [self.agents[0].roster.members[place] for place in places]
        entries = [(member.name, member.owner, member.identity) for member in members]
        first = {member.identity: since for member in members}
        return sign_roster(SigningKey(self._seeds[0]), entries, serial, first)

    def take(self, roster: Roster) -> None:
        """Every agent is handed a roster of the authority before it answers; whether it takes it is its own rule."""
        for agent in self.agents:
            agent._renew_roster = lambda: roster

    def reads(self, place: int, readings: Readings) -> None:
        """The agent's own file changed."""
        agent = self.agents[place]
        agent.own = replace(agent.own, readings=readings)

    def play(
        self,
        plan: AnyPlan,
        *,
        roster: Roster | None = None,
        alter: Alter | None = None,
        watch: Watch | None = None,
        choose: Choose = usual_choice,
        until: Callable[[Aggregator], bool] | None = None,
    ) -> Aggregator:
        """One run, to its end or until the adversary has seen enough; then everybody is told that it failed.

        roster: whom the adversary announces it to, where not to the agents' own roster.
        """
        weather, roster = weather_of(self.cluster), roster or self._newest()
        known = {agent.own.identity.public: place for place, agent in enumerate(self.agents)}
        places = [known[member.identity] for member in roster.members]
        aggregator = Aggregator(
            plan=plan, roster=roster, weather=weather, attempt=self.attempts, keep=True, choose=choose
        )
        self.attempts += 1

        def hear(place: int, reply: bytes) -> bytes:
            forged = watch(places[place], decode_to_aggregator(reply, len(reply))) if watch is not None else None
            return reply if forged is None else encode(forged)

        deliver = one_by_one(len(roster), lambda place, data: self._deliver(places[place], data, alter))
        enough = False

        def after() -> list[Outgoing] | None:
            nonlocal enough
            if enough or until is None or aggregator.run is None or not until(aggregator):
                return None
            enough = True
            return [Outgoing(None, encode(Abort(run=aggregator.run.id, reason="false")))]

        pump(aggregator, len(roster), deliver, hear=hear, after=after)
        return aggregator

    def _newest(self) -> Roster:
        """The roster that agents look for before they answer."""
        renew = self.agents[0]._renew_roster
        return self.agents[0].roster if renew is None else renew()

    def _deliver(self, place: int, data: bytes, alter: Alter | None) -> list[bytes]:
        if alter is not None:
            changed = alter(place, decode_to_agent(data, len(data)))
            if changed is None:
                return []
            data = encode(changed)
        replies: list[bytes] = received(self.agents[place], data)
        part = self.agents[place].part
        if part is not None:
            self.parts[place] = part
        return replies

    def own_series(self, place: int, stamps: IntArray) -> FloatArray:
        """An agent's temperature at these stamps as it enters sums: dithered, centred. [K]"""
        own = self.agents[place].own
        readings = own.readings.at(positions(own.readings.time, stamps))
        quantum = own.memory.quantum if own.rules.quantum is None else own.rules.quantum
        bare = dithered(readings, own.secret, own.rules.dither, quantum)
        return bare.temperature - REFERENCE_TEMP

    def view(self, plan: Plan, aggregator: Aggregator, colluders: Sequence[int] = ()) -> View:
        """What the aggregator holds together with the agents at these places of the company."""
        released, agents = Released.of(aggregator), len(aggregator.members)
        inputs = public_inputs(plan, released.kept, released.load, weather_of(self.cluster))
        seen: list[Seen] = list(aggregator.notebook.seen)
        places = [aggregator.roster.index(aggregator.members[i].identity) for i in colluders]
        if places:
            seen += [s for s in self.agents[places[0]].own.notebook.seen if s.what in ("basis total", "scalars")]
        equal = plan.protocol == "blind" and plan.weights == "equal"
        if equal:  # the state is a total of known coefficients
            seen.append(Seen("basis total", "", agents * released.state))
        known = []
        for i, place in zip(colluders, places, strict=True):
            part = self.parts[place]
            coefficients = part.parts if isinstance(part, BlindPart) else np.ones(int(equal))
            series = part.x if isinstance(part, OpenPart) else self.own_series(place, released.kept)
            known.append(Colluder(place=i, series=series, coefficients=coefficients))
        public = Public(agents=agents, order=plan.order, inputs=inputs)
        return View(public=public, seen=seen, colluders=tuple(known))


@dataclass(frozen=True, slots=True)
class Released:
    """Rows that a run left with the aggregator."""

    kept: IntArray  # time stamps
    state: FloatArray  # s, centred  [K]
    load: FloatArray  # h            [kW]

    @classmethod
    def of(cls, aggregator: Aggregator) -> "Released":
        desk = aggregator.desk
        if isinstance(desk, CollectDesk) and desk.collected is not None:
            rows = desk.collected
            return cls(rows.time, rows.state - REFERENCE_TEMP, rows.load)
        if desk is None or desk.outcome is None:
            raise RunAborted(aggregator.reasons[0] if aggregator.reasons else "the run gave no result")
        return cls(desk.outcome.kept, desk.outcome.estimate.state - REFERENCE_TEMP, desk.outcome.load)


def changed(message: Message, **values: object) -> Message:
    return msgspec.structs.replace(message, **values)
