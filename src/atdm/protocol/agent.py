"""An agent: one party with one agent's readings. Message in, messages out; no files, no network, no clock.

Rule 1: everything an agent knows of the world is in its constructor and in the messages it accepted.
Rule 2: a message that does not belong here changes nothing and raises PeerError. A message that shows the run to be
        wrong ends the run for this agent (RunAborted), before anything is released.
Rule 3: the same message twice gets the same bytes back.
Rule 4: randomness comes in by argument, once per run; everything else is derived from it.
"""

from collections.abc import Callable
from enum import StrEnum

from atdm.crypto.keys import SigningKey, digest
from atdm.errors import DataError, PeerError, RunAborted, UsageError
from atdm.protocol.blind import BlindPart
from atdm.protocol.exposure import Exposure
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import (
    Abort,
    Announce,
    Ask,
    Finished,
    Keys,
    Message,
    Receipts,
    Refuse,
    Secret,
    ToAgent,
    Total,
    decode_to_agent,
    encode,
    expect,
)  # fmt: skip
from atdm.protocol.moments import MomentsPart
from atdm.protocol.paper import PaperPart
from atdm.protocol.part import Host, Own, Part
from atdm.protocol.readings import Readings, Weather
from atdm.protocol.roster import Roster, check_roster
from atdm.protocol.rules import Rules
from atdm.protocol.session import RandomBytes, Session, agree, make_ready

PARTS: dict[str, type[Part]] = {"blind": BlindPart, "moments": MomentsPart, "paper": PaperPart}


class State(StrEnum):
    WAITING = "waiting"  # for an announcement
    JOINED = "joined"  # accepted a plan, waiting for everybody's keys
    RUNNING = "running"  # the protocol's own table decides
    DONE = "done"
    ABORTED = "aborted"


class Agent:
    """Built from one agent's own file; nothing else is in reach."""

    def __init__(
        self,
        *,
        identity: SigningKey,
        secret: bytes,
        roster: Roster,
        authority: bytes,
        readings: Readings,
        weather: Weather,
        rules: Rules,
        random_bytes: RandomBytes,
        exposure: Exposure | None = None,
        host: Host | None = None,
        keep: bool = False,
    ) -> None:
        check_roster(roster, authority)
        self.name = roster.members[roster.index(identity.public)].name
        self.own = Own(
            readings=readings,
            weather=weather,
            rules=rules,
            secret=secret,
            exposure=Exposure() if exposure is None else exposure,
            notebook=Notebook("agents", keep),
            host=Host() if host is None else host,
        )
        self.state = State.WAITING
        self.part: Part | None = None
        self.weight = float("nan")  # ξ_i of the last finished run
        self._identity, self.roster, self._random_bytes = identity, roster, random_bytes
        self._last: tuple[bytes, list[bytes]] = (b"", [])

    def __repr__(self) -> str:
        return f"Agent({self.name}, {self.state})"

    def receive(self, data: bytes) -> list[bytes]:
        """Answer one message from the aggregator."""
        seen = digest("message", data)
        if seen == self._last[0]:
            return self._last[1]
        message = decode_to_agent(data, self._limit())
        handler = self.TRANSITIONS.get((self.state, type(message)))
        if handler is None:
            raise PeerError(f"{type(message).__name__} while {self.state}: ignored by agent {self.name}")
        try:
            replies = [encode(reply) for reply in handler(self, message)]
        except (RunAborted, DataError, UsageError) as error:
            replies = [encode(self._refuse(str(error)))]
        self._last = (seen, replies)
        return replies

    def _limit(self) -> int:
        """Bytes of the largest message that can come next."""
        if self.part is not None:
            return self.part.largest()
        return 128 * len(self.roster) if self.state is State.JOINED else 0

    def _join(self, message: ToAgent) -> list[Message]:
        """(waiting, Announce): accept or refuse the plan."""
        announce = expect(message, Announce)
        members = self.roster.restrict(set(announce.cohorts)).members
        reason = self._reason_to_refuse(announce, [member.identity for member in members])
        if reason is not None:
            return [self._refuse(reason)]
        self._announce, self._members = announce, members
        self._seed = self._random_bytes(32)
        ready, self._exchange = make_ready(self._identity, announce, self._seed)
        self.state = State.JOINED
        return [ready]

    def _reason_to_refuse(self, announce: Announce, identities: list[bytes]) -> str | None:
        if announce.roster != self.roster.hash():
            return "the run is for another roster than this agent's: renew the roster on both sides"
        if self._identity.public not in identities:
            return "this agent's cohort is not part of the announced run"
        if announce.plan.weather != self.own.weather.hash():
            return "the plan's weather is not this agent's: use the file signed by the enrolment authority"
        return self.own.rules.reason_to_refuse(announce.plan, len(identities))

    def _agree(self, message: ToAgent) -> list[Message]:
        """(joined, Keys): check everybody's keys, make the masks, begin the protocol."""
        try:
            run = agree(self._announce, self._members, expect(message, Keys))
            session = Session(run, run.index(self._identity.public), self._exchange, self._seed)
        except PeerError as error:
            raise RunAborted(str(error)) from None
        self.part = PARTS[run.plan.protocol](session, self.own)
        self.state = State.RUNNING
        return self.part.begin()

    def _run(self, message: ToAgent) -> list[Message]:
        """(running, …): the protocol's own table."""
        if self.part is None:
            raise PeerError("no run is under way: ignored")
        replies = self.part.receive(message)
        if self.part.finished:
            self.weight, self.state, self.part = self.part.weight, State.DONE, None
        return replies

    def _stop(self, message: ToAgent) -> list[Message]:
        """(…, Abort): forget the run."""
        self.state, self.part = State.ABORTED, None
        return []

    def _refuse(self, reason: str) -> Refuse:
        self.state, self.part = State.ABORTED, None
        return Refuse(reason=f"{self.name}: {reason}")

    TRANSITIONS: dict[tuple[State, type], Callable[["Agent", ToAgent], list[Message]]] = {
        (State.WAITING, Announce): _join,
        (State.DONE, Announce): _join,
        (State.ABORTED, Announce): _join,
        (State.JOINED, Keys): _agree,
        (State.JOINED, Abort): _stop,
        (State.RUNNING, Secret): _run,
        (State.RUNNING, Total): _run,
        (State.RUNNING, Ask): _run,
        (State.RUNNING, Receipts): _run,
        (State.RUNNING, Finished): _run,
        (State.RUNNING, Abort): _stop,
    }
