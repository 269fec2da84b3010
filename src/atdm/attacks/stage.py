"""A run whose aggregator the adversary plays: real agents, real bytes, and a hand on every message to them."""

import os
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from atdm.attacks.view import Colluder, Public, View
from atdm.data import Cluster
from atdm.kernel.design import FloatArray
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.desk import Outgoing
from atdm.protocol.ledger import Seen
from atdm.protocol.messages import Abort, Message, ToAgent, ToAggregator, decode_to_agent, decode_to_aggregator, encode
from atdm.protocol.part import Part
from atdm.protocol.plan import Plan
from atdm.protocol.readings import public_inputs
from atdm.protocol.rules import Rules
from atdm.protocol.session import RandomBytes
from atdm.run import enrol, weather_of
from atdm.transport.local import received

Alter = Callable[[int, ToAgent], Message | None]  # place of the receiver, message → what is delivered instead
Watch = Callable[[int, ToAggregator], Message | None]  # …, and what the adversary takes it for, where that differs


class Stage:
    """The agents of a cluster, over one or more runs."""

    def __init__(self, cluster: Cluster, rules: Rules, random_bytes: RandomBytes = os.urandom) -> None:
        self.cluster = cluster
        self.agents, _ = enrol(cluster, rules, random_bytes, keep=True)
        self.parts: dict[int, Part] = {}
        self.attempts = 0

    @property
    def cohorts(self) -> set[int]:
        return {member.cohort for member in self.agents[0].roster.members}

    def play(
        self,
        plan: Plan,
        *,
        alter: Alter | None = None,
        watch: Watch | None = None,
        cohorts: set[int] | None = None,
        until: Callable[[Aggregator], bool] | None = None,
    ) -> Aggregator:
        """One run, to its end or until the adversary has seen enough; then everybody is told that it failed."""
        roster = self.agents[0].roster
        chosen = self.cohorts if cohorts is None else cohorts
        weather = weather_of(self.cluster)
        aggregator = Aggregator(
            plan=plan, roster=roster, cohorts=chosen, weather=weather, attempt=self.attempts, keep=True
        )
        self.attempts += 1
        places = [i for i, member in enumerate(roster.members) if member.cohort in chosen]
        inbox = deque(aggregator.start())
        while inbox:
            to, data = inbox.popleft()
            replies: list[tuple[int, bytes]] = []
            for place in range(len(places)) if to is None else (to,):
                replies += [(place, reply) for reply in self._deliver(places[place], place, data, alter)]
            for place, reply in replies:
                forged = watch(place, decode_to_aggregator(reply, len(reply))) if watch is not None else None
                inbox += received(aggregator, place, reply if forged is None else encode(forged))
            if until is not None and aggregator.run is not None and until(aggregator):
                inbox = deque([Outgoing(None, encode(Abort(run=aggregator.run.id, reason="false")))])
                until = None
        return aggregator

    def _deliver(self, agent: int, place: int, data: bytes, alter: Alter | None) -> list[bytes]:
        if alter is not None:
            changed = alter(place, decode_to_agent(data, len(data)))
            if changed is None:
                return []
            data = encode(changed)
        replies: list[bytes] = received(self.agents[agent], data)
        part = self.agents[agent].part
        if part is not None:
            self.parts[agent] = part
        return replies

    def colluder(self, place: int) -> Colluder:
        """An agent's own column as it entered the sums, and its coefficients in them."""
        agent = self.agents[place]
        series: FloatArray = getattr(self.parts[place], "x", np.empty(0))
        directions = np.array([charge.coefficient for charge in agent.own.exposure.book])
        return Colluder(place=place, series=series, directions=directions)

    def view(self, plan: Plan, aggregator: Aggregator, colluders: Sequence[int] = ()) -> View:
        """What the aggregator holds together with the agents at these places of the roster."""
        outcome = aggregator.desk.outcome if aggregator.desk is not None else None
        if outcome is None:
            raise ValueError("the run has no outcome to look at")
        inputs = public_inputs(plan, outcome.kept, outcome.load, weather_of(self.cluster))
        public = Public(agents=len(aggregator.members), order=plan.order, inputs=inputs)
        seen: list[Seen] = list(aggregator.notebook.seen)
        if colluders:
            first = self.agents[colluders[0]]
            seen += [s for s in first.own.notebook.seen if s.what in ("basis total", "scalars")]
        return View(public=public, seen=seen, colluders=tuple(self.colluder(i) for i in colluders))


def changed(message: Message, **values: object) -> Message:
    return msgspec.structs.replace(message, **values)
