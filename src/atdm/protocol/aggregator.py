"""The aggregator: gathers, adds, relays. Message in, messages out; no files, no network, no clock.

Rule 1: it holds no agent's data and no group secret; what it can open is what the notebook says it learned.
Rule 2: a message that does not belong here changes nothing and raises PeerError; two different messages of one agent
        for one step end the run.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from atdm.crypto.keys import digest
from atdm.data.readings import Weather
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.protocol import messages as wire
from atdm.protocol.company import Choose, bits, choose, flags
from atdm.protocol.desk import Desk, Outgoing
from atdm.protocol.ledger import Notebook
from atdm.protocol.plan import LEAST_AGENTS, AnyPlan, day_count
from atdm.protocol.registry import REGISTRY, side
from atdm.protocol.roster import Members, Roster
from atdm.protocol.session import Run, announce_hash, begin_run, check_ready, make_keys

Handler = Callable[["Aggregator", int, wire.ToAggregator], list[Outgoing]]
TO_DESK = (wire.Secrets, wire.Seal, wire.Masked, wire.Release, wire.Consent, wire.Answer)


class AggregatorState(StrEnum):
    GATHERING = "gathering"  # waiting for agents' answers to the announcement
    RUNNING = "running"  # the protocol's desk decides
    DONE = "done"
    ABORTED = "aborted"


class Aggregator:
    """One run for one plan. Who is in it is known once the answers are in (`close`)."""

    def __init__(
        self,
        *,
        plan: AnyPlan,
        roster: Roster,
        weather: Weather,
        attempt: int = 0,
        keep: bool = False,
        choose: Choose = choose,
        least: int = LEAST_AGENTS,
    ) -> None:
        """choose: the policy that makes a company of the answers; least: owners below which no run is tried."""
        self._desk = side(REGISTRY[plan.protocol].aggregator)
        if plan.protocol == "blind" and plan.weights == "equal":
            raise UsageError("equal weights are collected: announce the rows to collect, then fit what they give")
        self.roster = roster
        self.notebook = Notebook("aggregator", keep)
        self.state = AggregatorState.GATHERING
        self.reasons: list[str] = []
        self.run: Run | None = None
        self.desk: Desk | None = None
        self.answers: dict[int, wire.Ready] = {}  # by place in the roster
        self.refusals: dict[int, str] = {}  # of those that could not answer, or ended the run
        self._announce = wire.Announce(plan=plan, roster=roster.hash(), attempt=attempt)
        self._weather, self._choose, self._least = weather, choose, least
        self._company: Sequence[int] = range(len(roster))  # places in the roster: of everybody until it is chosen
        self._place: dict[int, int] = {}  # in the roster → in the company
        self._seen: dict[int, bytes] = {}  # hash of the last message of each agent

    def __repr__(self) -> str:
        return f"Aggregator({len(self.roster)} agents enrolled, {self.state})"

    @property
    def members(self) -> Members:
        """The company, once it is chosen; until then everybody who is asked."""
        return self.roster.members if self.run is None else self.run.members

    def out(self) -> dict[str, str]:
        """Who is not in the company, and why, in the agents' own fixed words."""
        said = {i: wire.one_line(ready.reason) or "left out" for i, ready in self.answers.items()}
        why = {**self.refusals, **said}
        outside = [i for i in range(len(self.roster)) if i not in self._place]
        return {self.roster.members[i].name: why.get(i, "no answer") for i in outside}

    def start(self) -> list[Outgoing]:
        return [Outgoing(None, wire.encode(self._announce))]

    def receive(self, sender: int, data: bytes) -> list[Outgoing]:
        """One message from the agent at this place of the roster; what goes out is addressed by those places."""
        if not 0 <= sender < len(self.roster):
            raise PeerError("message from somebody who is not in the roster: ignored")
        seen = digest("message", data)
        if self._seen.get(sender) == seen:
            return []  # sent again, byte for byte
        limit = self.desk.largest() if self.desk is not None else day_count(self._announce.plan)
        message = wire.decode_to_aggregator(data, limit)
        handler = self.TRANSITIONS.get((self.state, type(message)))
        if handler is None:
            name = self.roster.members[sender].name
            raise PeerError(f"{type(message).__name__} of {name} while {self.state}: ignored")
        try:
            out = handler(self, sender, message)
        except RunAborted as error:
            return self.abort(str(error))
        self._seen[sender] = seen
        return out

    def _addressed(self, out: list[Outgoing]) -> list[Outgoing]:
        """A desk speaks of places in the company; the transport knows those of the roster."""
        everybody = [None] if len(self._company) == len(self.roster) else self._company
        return [
            Outgoing(place, data) for to, data in out for place in (everybody if to is None else [self._company[to]])
        ]

    def abort(self, reason: str) -> list[Outgoing]:
        """End the run without a result and tell everybody."""
        self.state = AggregatorState.ABORTED
        self.reasons.append(reason)
        run = self.run.id if self.run else announce_hash(self._announce)
        return self._addressed([Outgoing(None, wire.encode(wire.Abort(run=run, reason=reason)))])

    def _gather(self, sender: int, message: wire.ToAggregator) -> list[Outgoing]:
        """(gathering, Ready): one more answer; when all are here, the company is chosen."""
        ready = wire.expect(message, wire.Ready)
        if sender in self.answers:
            raise RunAborted(f"agent {self.roster.members[sender].name} sent two different keys for one run")
        check_ready(self.roster.members[sender], self._announce, ready)
        self.answers[sender] = ready
        return self._close_if_all_are_heard()

    def _stays_out(self, sender: int, message: wire.ToAggregator) -> list[Outgoing]:
        """(gathering, Refuse): an agent that cannot answer, for instance because its file cannot be read."""
        self.refusals[sender] = wire.one_line(wire.expect(message, wire.Refuse).reason)
        return self._close_if_all_are_heard()

    def ignored(self, sender: int) -> list[Outgoing]:
        """An agent that did not take the announcement is out; its own output says why."""
        self.refusals[sender] = "ignored the announcement: its own output says why"
        return self._close_if_all_are_heard() if self.state is AggregatorState.GATHERING else []

    def _close_if_all_are_heard(self) -> list[Outgoing]:
        return self.close() if len(self.answers.keys() | self.refusals.keys()) == len(self.roster) else []

    def close(self) -> list[Outgoing]:
        """Choose the company and begin; wait no longer: who has not answered is out."""
        count = day_count(self._announce.plan)
        answers = {place: flags(ready.days, count) for place, ready in self.answers.items()}
        try:
            company, days = self._choose(answers, self.roster, self._least)
            keys = make_keys(self.roster, bits(days), {place: self.answers[place] for place in company})
            self.run = begin_run(self._announce, self.roster, keys)
        except PeerError as error:  # each is signed, together they are no run
            return self.abort(str(error))
        except RunAborted as error:
            said = {wire.one_line(ready.reason) for ready in self.answers.values() if ready.reason}
            reasons = sorted(said | set(self.refusals.values()))
            return self.abort(f"{error}; agents say: {'; '.join(reasons[:3])}" if reasons else str(error))
        self._company, self._place = company, {place: i for i, place in enumerate(company)}
        self.desk = self._desk(self.run, self._weather, self.notebook)
        self.state = AggregatorState.RUNNING
        return self._addressed([Outgoing(None, wire.encode(keys)), *self.desk.begin()])

    def _run(self, sender: int, message: wire.ToAggregator) -> list[Outgoing]:
        """(running, …): the protocol's desk."""
        if self.desk is None or not isinstance(message, wire.RunMessage) or message.run != self.desk.run.id:
            raise PeerError("message of another run: ignored")
        if sender not in self._place:
            raise PeerError(f"message of {self.roster.members[sender].name}, who is not in the company: ignored")
        out = self._addressed(self.desk.receive(self._place[sender], message))
        if self.desk.finished:
            self.state = AggregatorState.DONE
        return out

    def _refused(self, sender: int, message: wire.ToAggregator) -> list[Outgoing]:
        """(running, Refuse): one member's refusal ends the run for everybody."""
        if sender not in self._place:
            raise PeerError(f"refusal of {self.roster.members[sender].name}, who is not in the company: ignored")
        self.refusals[sender] = wire.one_line(wire.expect(message, wire.Refuse).reason)
        return self.abort(f"agent {self.refusals[sender]}")

    TRANSITIONS: dict[tuple[AggregatorState, type], Handler] = {
        (AggregatorState.GATHERING, wire.Ready): _gather,
        (AggregatorState.GATHERING, wire.Refuse): _stays_out,
        **dict.fromkeys(((AggregatorState.RUNNING, kind) for kind in TO_DESK), _run),
        (AggregatorState.RUNNING, wire.Refuse): _refused,
    }
