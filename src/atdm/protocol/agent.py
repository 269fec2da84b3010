"""An agent: one party with one agent's readings. Message in, messages out; no files, no network, no clock.

Rule 1: everything an agent knows of the world is in its constructor and in the messages it accepted.
Rule 2: a message that does not belong here changes nothing of the run and raises PeerError; if a newer roster is found
        with it, its number is kept. A message that shows the run to be wrong ends the run for this agent (RunAborted),
        before anything is released.
Rule 3: the same message twice gets the same bytes back.
Rule 4: randomness comes in by argument, once per run; everything else is derived from it.
Rule 5: what a message did is in the store before its answer is handed out. An agent that is built again from its store
        answers as before, byte for byte, or, where it cannot, not at all: its run is lost, its account of what was
        seen is not.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import numpy as np

from atdm.crypto.keys import SigningKey
from atdm.data.quantum import coarser
from atdm.data.readings import Readings, Weather
from atdm.errors import DataError, PeerError, RunAborted, UsageError, ending_the_run
from atdm.options import OwnerChoice
from atdm.protocol import messages as wire
from atdm.protocol.company import BY_CHOICE, Verdict, check_company, judge
from atdm.protocol.ledger import Notebook
from atdm.protocol.part import AgentContext, Host, Part
from atdm.protocol.plan import MOST_DAYS, AnyPlan, Collect, Plan, day_count, last_row
from atdm.protocol.readings import weather_hash
from atdm.protocol.registry import REGISTRY, side
from atdm.protocol.roster import NOBODY, Roster, check_roster, place_of
from atdm.protocol.rules import Rules, refuses
from atdm.protocol.session import RandomBytes, Session, announce_hash, begin_run, make_ready
from atdm.protocol.store import Entry, Memory, Snapshot, Store, answer_hash, disclose, enclose, newest_serial

Handler = Callable[["Agent", wire.ToAgent], list[wire.Message]]
TO_PART = (wire.Secret, wire.Seal, wire.Total, wire.Ask, wire.Receipts)  # of a run under way
ANNOUNCEMENT = 2**16  # bytes, of the flags of the rows it asks for: some 500 000 rows
ANY_MESSAGE = 2**24  # bytes; an agent that lost its run no longer knows what should come, and only refuses it


class AgentState(StrEnum):
    WAITING = "waiting"  # for an announcement
    JOINED = "joined"  # accepted a plan, waiting for everybody's keys
    RUNNING = "running"  # the protocol's own table decides
    DONE = "done"
    ABORTED = "aborted"
    LOST = "lost"  # a run was under way before a restart and cannot be resumed byte for byte
    HALTED = "halted"  # the store failed: only a restart helps


class Agent:
    """Built from one agent's own file; nothing else is in reach."""

    def __init__(
        self,
        *,
        identity: SigningKey,
        secret: bytes,
        roster: Roster | None,
        authority: bytes,
        readings: Readings,
        weather: Weather,
        rules: Rules,
        random_bytes: RandomBytes,
        store: Store | None = None,
        host: Host | None = None,
        keep: bool = False,
        renew: Callable[[], Readings] | None = None,
        renew_roster: Callable[[], Roster] | None = None,
        find_weather: Callable[[Plan], Weather] | None = None,
        owner: Callable[[], OwnerChoice] = lambda: "takes part",
    ) -> None:
        """roster: None where it is still to come, by renew_roster. renew: the readings as they are now, for plans that
        reach beyond those known; renew_roster: the roster as it is now, for announcements of another one; find_weather:
        the weather for a plan, as far as it is known now; owner: whether the owner takes part, asked at each
        announcement and before a run begins: from then on it is finished, because nobody is silent in a run."""
        self.name = "an agent without a roster"
        self.own = AgentContext(
            readings=readings,
            weather=weather,
            rules=rules,
            identity=identity,
            secret=secret,
            memory=Memory(serial=(roster or NOBODY).serial),
            notebook=Notebook("agents", keep),
            host=Host() if host is None else host,
        )
        self.state = AgentState.WAITING
        self.part: Part | None = None
        self.weight = float("nan")  # ξ_i of the last finished run
        self._identity, self.roster, self._random_bytes = identity, roster or NOBODY, random_bytes
        self._last: tuple[bytes, list[bytes]] = (b"", [])
        self._announce: wire.Announce  # of the run that was joined last
        self._owner = owner
        self._choice: OwnerChoice = "takes part"  # when it was last asked
        self._store, self._renew, self._renew_roster, self._authority = store, renew, renew_roster, authority
        self._find_weather = find_weather
        if roster is not None:
            check_roster(roster, authority)
            self.name = roster.members[roster.index(identity.public)].name
        if store is not None:
            self._resume(store)
        self._see_quantum()
        if roster is not None:
            known = self.own.memory.serial
            self._see_roster(roster)
            self._keep_serial(known)

    def __repr__(self) -> str:
        return f"Agent({self.name}, {self.state})"

    def receive(self, data: bytes) -> list[bytes]:
        """Answer one message from the aggregator."""
        seen, replies = self._last
        if data and data == seen:  # before the first message nothing was seen, which is no message
            return replies
        known = self.own.memory.serial
        try:
            replies = self._answer(data)
        except PeerError:
            self._keep_serial(known)
            raise
        state, self.state = self.state, AgentState.HALTED  # for as long as it is not known what the store holds
        self._save(state, data, replies)
        self.state, self._last = state, (data, replies)
        return replies

    def _answer(self, data: bytes) -> list[bytes]:
        message = wire.decode_to_agent(data, self.limit())
        handler = self.TRANSITIONS.get((self.state, type(message)))
        if handler is None:
            raise PeerError(f"{type(message).__name__} while {self.state}: ignored by agent {self.name}")
        try:
            return [wire.encode(reply) for reply in handler(self, message)]
        except (RunAborted, DataError, UsageError) as error:
            return [wire.encode(self._refuse(str(error)))]

    # What survives a restart

    def _save(self, state: AgentState, data: bytes, replies: list[bytes]) -> None:
        """Write down an accepted message: between runs as a snapshot, within a run as an entry."""
        bookings = self.own.memory.account.booked()
        if self._store is None:
            return
        if state not in (AgentState.JOINED, AgentState.RUNNING):
            self._store.replace(self._snapshot(data, replies))
            return
        seed = b""
        if state is AgentState.JOINED:  # what came before this run is over, and on which days this agent is in judged
            self._store.replace(self._snapshot(*self._last))
            seed, bookings = self._seed, ()
        entry = Entry(message=data, answer=answer_hash(replies), seed=seed, choice=self._choice, bookings=bookings)
        self._store.append(enclose(entry))

    def _keep_serial(self, known: int) -> None:
        """Write down the number of a newer roster that came with nothing this agent accepts."""
        if self._store is not None and self.own.memory.serial > known:
            state, self.state = self.state, AgentState.HALTED
            self._store.append(enclose(Entry(serial=self.own.memory.serial)))
            self.state = state

    def _snapshot(self, seen: bytes, replies: list[bytes]) -> bytes:
        return enclose(Snapshot(self._identity.public, self.own.memory, seen, tuple(replies)))

    def _resume(self, store: Store) -> None:
        """Take up where the store ends, by playing the messages of the unfinished run again."""
        saved, journal = store.read()
        if saved is None:
            saved = self._snapshot(b"", [])
            store.replace(saved)
        snapshot, entries = disclose(saved, Snapshot), [disclose(data, Entry) for data in journal]
        if snapshot.identity != self._identity.public:
            raise UsageError(f"the state given to agent {self.name} is another agent's: give it its own folder")
        self.own = replace(self.own, memory=snapshot.memory)
        self._last = (snapshot.seen, list(snapshot.replies))
        snapshot.memory.serial = newest_serial(snapshot.memory, entries)
        if not self._play([entry for entry in entries if entry.message]):
            memory = disclose(saved, Snapshot).memory  # as before the run, and what the run is known to have cost
            memory.serial = self.own.memory.serial
            for entry in entries:
                memory.account.apply(entry.bookings)
            self.own = replace(self.own, memory=memory)
            self.state, self.part = AgentState.LOST, None

    def _play(self, entries: list[Entry]) -> bool:
        """Whether every message gives the answer it gave before."""
        draw, owner = self._random_bytes, self._owner
        try:
            for entry in entries:
                self._random_bytes = lambda _, seed=entry.seed: seed  # type: ignore[misc]
                self._owner = lambda choice=entry.choice: choice  # type: ignore[misc]
                replies = self._answer(entry.message)
                if answer_hash(replies) != entry.answer or self.own.memory.account.booked() != entry.bookings:
                    return False
                self._last = (entry.message, replies)
        except (PeerError, ValueError):
            return False
        finally:
            self._random_bytes, self._owner = draw, owner
        return True

    def limit(self) -> int:
        """Bytes of the largest message that can come next."""
        if self.state is AgentState.LOST:
            return ANY_MESSAGE
        if self.part is not None:
            return max(ANNOUNCEMENT, self.part.largest())
        if self.state is AgentState.JOINED:
            return ANNOUNCEMENT + (129 + day_count(self._announce.plan) // 8) * len(self.roster)
        return ANNOUNCEMENT

    def _join(self, message: wire.ToAgent) -> list[wire.Message]:
        """(waiting, Announce): say on which days this agent is in."""
        announce = wire.expect(message, wire.Announce)
        under_way = self.state is AgentState.RUNNING  # while joined, nothing has left yet
        if under_way and announce.attempt <= self._announce.attempt:
            raise PeerError(f"announcement no newer than the run that agent {self.name} is in: ignored")
        self._find_roster(announce.roster)
        self._leave(AgentState.WAITING)  # a run of which no end was heard is over when another begins
        self._choice = self._owner()
        verdict = self._verdict(announce.plan)
        self._announce, self._seed = announce, self._random_bytes(32)
        ready, self._exchange = make_ready(self._identity, announce, self._seed, verdict)
        self.state = AgentState.JOINED
        return [ready]

    def _find_roster(self, wanted: bytes) -> None:
        """The newest roster there is, and no other: with an older one a company could be made small."""
        newest = self._renew_roster() if self._renew_roster is not None else self.roster
        self._see_roster(newest)
        name = newest.members[newest.index(self._identity.public)].name
        if wanted != newest.hash():  # a run under way keeps the roster it was announced for
            raise PeerError("the run is for another roster than this agent's: renew the roster on both sides")
        self.name, self.roster = name, newest

    def _see_roster(self, roster: Roster) -> None:
        """Never an older one, after a restart neither, whether or not this agent is in it or takes the run."""
        if roster is self.roster and self.own.memory.serial == roster.serial:
            return
        check_roster(roster, self._authority)
        if roster.serial < self.own.memory.serial:
            raise PeerError(f"roster {roster.serial} is older than {self.own.memory.serial}, which this agent has seen")
        self.own.memory.serial = roster.serial

    def _see_quantum(self) -> None:
        """What left stays as it was (account.py), so that a step found coarser later is no difference. Values between
        two readings that the agent made itself say nothing of its sensor."""
        measured = self.own.readings.temperature[~self.own.readings.filled]
        self.own.memory.quantum = coarser(self.own.memory.quantum, measured)

    def _verdict(self, plan: AnyPlan) -> Verdict:
        """In or out, day by day; out everywhere where its owner stays out, or this agent's rules refuse the plan."""
        reason = BY_CHOICE[self._choice] or self._reason_to_stay_out(plan)
        if reason is not None and not 0 < day_count(plan) <= MOST_DAYS:
            raise RunAborted(reason)  # too many days to answer one by one, or none
        if reason is not None:
            return Verdict(np.zeros(day_count(plan), dtype=bool), reason)
        known = self.own.readings.time  # read on before a run; within it readings stay as they are
        if self._renew is not None and (len(known) == 0 or last_row(plan) > known[-1]):
            self.own = replace(self.own, readings=self._renew())
            self._see_quantum()
        owners = self.roster.owners()
        totals = (plan.totals_for(owners) if isinstance(plan, Plan) else 0, self.own.rules.totals_for(owners))
        fit = self.own.memory.fits[plan.fit].hash if isinstance(plan, Collect) and plan.fit else b""
        since = self.roster.members[self.roster.index(self._identity.public)].since
        return judge(plan, self.own.readings, self.own.memory.account, self.own.rules, totals, fit, since)

    def _reason_to_stay_out(self, plan: AnyPlan) -> str | None:
        rules, memory = self.own.rules, self.own.memory
        if isinstance(plan, Collect):
            return refuses(rules, plan, memory.fits.get(plan.fit))
        if (reason := refuses(rules, plan)) is not None:
            return reason
        if self._find_weather is not None:
            self.own = replace(self.own, weather=self._find_weather(plan))
        if plan.weather != weather_hash(self.own.weather, plan.start, last_row(plan)):
            return "the plan's weather is not this agent's: publish the rows that the enrolment authority signed"
        return memory.account.refuses_fit(plan) if plan.protocol == "blind" else None

    def _agree(self, message: wire.ToAgent) -> list[wire.Message]:
        """(joined, Keys): check the company and everybody's keys, make the masks, begin the protocol."""
        self._choice = self._owner()  # keys may come long after the announcement, and nothing has left yet
        if (reason := BY_CHOICE[self._choice]) is not None:
            raise RunAborted(reason)
        with ending_the_run():
            self._find_roster(self._announce.roster)
            run = begin_run(self._announce, self.roster, wire.expect(message, wire.Keys))
            place = place_of(self._identity.public, run.members)
            if place is None:
                raise RunAborted("this agent is not in the company")
            session = Session(run, place, self._exchange, self._seed)
        plan, memory = run.announced, self.own.memory
        check_company(run, self.roster, memory.account, self.own.rules)
        if isinstance(plan, Collect) and plan.fit:
            if plan.fit not in memory.fits or memory.fits[plan.fit].company != run.company:
                raise RunAborted("rows under the weights of a fit need its whole company: collect with equal weights")
        if isinstance(plan, Plan) and plan.protocol == "blind" and plan.totals_for(run.owners) < 2:
            raise RunAborted("the company is too small for two totals: collect with equal weights")
        self.part = side(REGISTRY[plan.protocol].agent)(session, self.own)
        self.state = AgentState.RUNNING
        return self.part.begin()

    def _run(self, message: wire.ToAgent) -> list[wire.Message]:
        """(running, …): the protocol's own table."""
        if self.part is None or not isinstance(message, wire.RunMessage) or message.run != self.part.session.run.id:
            raise PeerError("message of another run: ignored")
        replies = self.part.receive(message)
        if self.part.finished:
            self.weight = self.part.weight
            self._leave(AgentState.DONE)
        return replies

    def _stop(self, message: wire.ToAgent) -> list[wire.Message]:
        """(…, Abort): forget the run."""
        known = (announce_hash(self._announce), None if self.part is None else self.part.session.run.id)
        if wire.expect(message, wire.Abort).run not in known:
            raise PeerError("end of another run: ignored")
        self._leave(AgentState.ABORTED)
        return []

    def _say_lost(self, message: wire.ToAgent) -> list[wire.Message]:
        """(lost, …): end for everybody what this agent cannot resume."""
        return [self._refuse("this agent restarted and cannot resume byte for byte: run again")]

    def _refuse(self, reason: str) -> wire.Refuse:
        self._leave(AgentState.ABORTED)
        return wire.Refuse(reason=f"{self.name}: {reason}")

    def _leave(self, state: AgentState) -> None:
        """The run is over for this agent; what it learned for later runs stays."""
        if self.part is not None:
            self.part.remember()
        self.state, self.part = state, None

    TRANSITIONS: dict[tuple[AgentState, type], Handler] = {
        **dict.fromkeys(((state, wire.Announce) for state in AgentState if state != AgentState.HALTED), _join),
        (AgentState.JOINED, wire.Keys): _agree,
        (AgentState.JOINED, wire.Abort): _stop,
        **dict.fromkeys(((AgentState.RUNNING, kind) for kind in (*TO_PART, wire.Finished)), _run),
        (AgentState.RUNNING, wire.Abort): _stop,
        **dict.fromkeys(((AgentState.LOST, kind) for kind in (wire.Keys, *TO_PART)), _say_lost),
    }
