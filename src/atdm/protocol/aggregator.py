"""The aggregator: gathers, adds, relays. Message in, messages out; no files, no network, no clock.

Rule 1: it holds no agent's data and no group secret; what it can open is what the notebook says it learned.
Rule 2: a message that does not belong here changes nothing and raises PeerError; two different messages of one agent
        for one step end the run.
"""

from collections.abc import Callable
from enum import StrEnum

from atdm.crypto.keys import digest
from atdm.errors import PeerError, RunAborted, UsageError
from atdm.protocol.desk import Desk, Outgoing
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import (
    Abort,
    Announce,
    Answer,
    Consent,
    Keys,
    Masked,
    Ready,
    Refuse,
    Secrets,
    ToAggregator,
    decode_to_aggregator,
    encode,
    expect,
    one_line,
)  # fmt: skip
from atdm.protocol.moments import MomentsDesk
from atdm.protocol.observe import ObserveDesk
from atdm.protocol.paper import PaperDesk
from atdm.protocol.plan import AnyPlan
from atdm.protocol.readings import Weather
from atdm.protocol.relay import BlindDesk
from atdm.protocol.roster import Roster
from atdm.protocol.session import Run, agree, announce_hash, check_ready

DESKS: dict[str, type[Desk]] = {
    "blind": BlindDesk, "moments": MomentsDesk, "paper": PaperDesk, "observe": ObserveDesk,
}  # fmt: skip


class State(StrEnum):
    GATHERING = "gathering"  # waiting for every agent's keys
    RUNNING = "running"  # the protocol's desk decides
    DONE = "done"
    ABORTED = "aborted"


class Aggregator:
    """One run for one plan and one set of cohorts."""

    def __init__(
        self,
        *,
        plan: AnyPlan,
        roster: Roster,
        cohorts: set[int],
        weather: Weather,
        attempt: int = 0,
        keep: bool = False,
    ) -> None:
        if plan.protocol not in DESKS:
            raise UsageError(f"protocol {plan.protocol}: agents do not offer it; choose blind, moments or paper")
        self.members = roster.restrict(frozenset(cohorts)).members
        self.notebook = Notebook("aggregator", keep)
        self.state = State.GATHERING
        self.reasons: list[str] = []
        self.run: Run | None = None
        self.desk: Desk | None = None
        self._announce = Announce(plan=plan, roster=roster.hash(), cohorts=tuple(sorted(cohorts)), attempt=attempt)
        self._weather = weather
        self._ready: dict[int, Ready] = {}
        self._seen: dict[int, bytes] = {}  # hash of the last message of each agent

    def __repr__(self) -> str:
        return f"Aggregator({len(self.members)} agents, {self.state})"

    def start(self) -> list[Outgoing]:
        return [Outgoing(None, encode(self._announce))]

    def receive(self, sender: int, data: bytes) -> list[Outgoing]:
        """One message from the agent at this place of the roster."""
        if not 0 <= sender < len(self.members):
            raise PeerError("message from somebody who is not in the roster: ignored")
        seen = digest("message", data)
        if self._seen.get(sender) == seen:
            return []  # sent again, byte for byte
        limit = self.desk.largest() if self.desk is not None else 0
        message = decode_to_aggregator(data, limit)
        handler = self.TRANSITIONS.get((self.state, type(message)))
        if handler is None:
            raise PeerError(f"{type(message).__name__} of {self.members[sender].name} while {self.state}: ignored")
        try:
            out = handler(self, sender, message)
        except RunAborted as error:
            return self.abort(str(error))
        self._seen[sender] = seen
        return out

    def abort(self, reason: str) -> list[Outgoing]:
        """End the run without a result and tell everybody."""
        self.state = State.ABORTED
        self.reasons.append(reason)
        run = self.run.id if self.run else announce_hash(self._announce)
        return [Outgoing(None, encode(Abort(run=run, reason=reason)))]

    def _gather(self, sender: int, message: ToAggregator) -> list[Outgoing]:
        """(gathering, Ready): when all keys are here, everybody gets all of them."""
        ready = expect(message, Ready)
        if sender in self._ready:
            raise RunAborted(f"agent {self.members[sender].name} sent two different keys for one run")
        check_ready(self.members[sender], self._announce, ready)
        self._ready[sender] = ready
        if len(self._ready) < len(self.members):
            return []
        answers = [self._ready[i] for i in range(len(self.members))]
        keys = Keys(
            nonces=b"".join(a.nonce for a in answers),
            exchange=b"".join(a.exchange for a in answers),
            signatures=b"".join(a.signature for a in answers),
        )
        self._ready.clear()
        try:
            self.run = agree(self._announce, self.members, keys)
        except PeerError as error:  # each is signed, together they are no run
            raise RunAborted(str(error)) from None
        self.desk = DESKS[self.run.announced.protocol](self.run, self._weather, self.notebook)
        self.state = State.RUNNING
        return [Outgoing(None, encode(keys)), *self.desk.begin()]

    def _run(self, sender: int, message: ToAggregator) -> list[Outgoing]:
        """(running, …): the protocol's desk."""
        if self.desk is None or isinstance(message, Ready | Refuse) or message.run != self.desk.run.id:
            raise PeerError("message of another run: ignored")
        out = self.desk.receive(sender, message)
        if self.desk.finished:
            self.state = State.DONE
        return out

    def _refused(self, sender: int, message: ToAggregator) -> list[Outgoing]:
        """(…, Refuse): one agent's refusal ends the run for everybody."""
        return self.abort(f"agent {one_line(expect(message, Refuse).reason)}")

    TRANSITIONS: dict[tuple[State, type], Callable[["Aggregator", int, ToAggregator], list[Outgoing]]] = {
        (State.GATHERING, Ready): _gather,
        (State.GATHERING, Refuse): _refused,
        (State.RUNNING, Secrets): _run,
        (State.RUNNING, Masked): _run,
        (State.RUNNING, Consent): _run,
        (State.RUNNING, Answer): _run,
        (State.RUNNING, Refuse): _refused,
    }
