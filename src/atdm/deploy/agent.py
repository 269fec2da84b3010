"""An agent of a deployment: its keys, its own readings and its state on disk, served over NATS."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from atdm.data.format import Format
from atdm.data.quantum import MOST_QUANTUM
from atdm.data.readings import Readings
from atdm.data.sources.source import Source
from atdm.data.sources.table import Table
from atdm.deploy.enrolment import AgentKeys, read_agent, read_unchecked_roster
from atdm.deploy.log import Line
from atdm.deploy.notices import MARK, MOST_BYTES, NO_WEATHER, Kept, OwnWeather
from atdm.deploy.notify import keep_watchdog, listens, notify
from atdm.deploy.own import HISTORY, OwnReadings
from atdm.deploy.owner import JOURNAL, UNREADABLE, History, choice_of, exchange, no_account, read_head, stamp_now
from atdm.deploy.patience import Patience
from atdm.errors import AtdmError, DataError, PeerError, UsageError, write_error
from atdm.kernel.blas import one_blas_thread
from atdm.protocol.account import Account
from atdm.protocol.agent import Agent
from atdm.protocol.messages import OVERHEAD, Announce, decode_to_agent, one_line
from atdm.protocol.part import Host
from atdm.protocol.plan import AnyPlan, Collect
from atdm.protocol.roster import Roster
from atdm.protocol.rules import Rules
from atdm.protocol.store import Entry, Snapshot, disclose, newest_serial
from atdm.transport.disk import Disk, lock, replace_file
from atdm.transport.nats import AgentLink, NatsConfig

BEGUN = "begun"  # beside the keys once there is an account: from then on none means that it is lost
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOK_SECONDS = 0.5  # between two looks at which connections stand, for systemd

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFiles:
    """Where one agent keeps its things."""

    identity: Path  # folder made by `atdm enroll agent`
    data: Path | Source  # its own readings: a table, or where else they are
    state: Path | None = None  # what it must not forget; beside its keys unless given


@dataclass(slots=True)
class RunningAgent:
    """An agent that is ready to be connected."""

    agent: Agent
    keys: AgentKeys
    kept: Kept  # what was published
    state: Path  # folder of what it must not forget, and of what its owner decides and sees
    history: History
    _lock: BinaryIO = field(repr=False)
    link: AgentLink | None = None  # once it is to be connected

    def close(self) -> None:
        self._lock.close()


def prepare_agent(
    files: AgentFiles,
    roster: Path | None,
    weather: OwnWeather,
    rules: Rules,
    *,
    declared: Format | None = None,
    history: int = HISTORY,
    host: Host | None = None,
    until: int | None = None,
    apart: bool = False,
    say: Say = lambda _: None,
) -> RunningAgent:
    """Check everything that can be checked before anything is sent.

    roster: None where it was published before, or is still to come. until: read no later stamp before asked to.
    apart: with another account than the home's own one, as only a rehearsal that compares two runs may.
    """
    declared = Format() if declared is None else declared
    keys = read_agent(files.identity)
    source = files.data if isinstance(files.data, Source) else Table(files.data, agent=keys.name, declared=declared)
    own = OwnReadings(source, weather.path, keys.name, declared, history)
    readings, sky = own.read(), weather.read()
    if until is not None:
        readings = readings.at(np.flatnonzero(readings.time <= until))
    for note in own.notes:
        say(Line(note, event="note", agent=keys.name))
    state = files.identity / "state" if files.state is None else files.state
    if not apart:
        _refuse_lost_account(files.identity, state)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(error, f"cannot make {state}") from None
    agent: Agent | None = None

    def renew() -> Readings:
        again = own.read_again(say)
        if agent is not None:  # not while it plays its journal again: what it knew then is in there
            _see_step(agent, own)
        return again

    held = lock(state)
    try:
        saved, journal = Disk(state / JOURNAL).read()
        seen = 0 if saved is None else newest_serial(disclose(saved, Snapshot).memory, _entries(journal))
        kept = Kept(state, keys, roster, weather, say, least=seen)
        begun = _roster_of_run(journal, kept, seen)
        agent = Agent(
            identity=keys.identity,
            secret=keys.secret,
            roster=begun or kept.listing(),
            authority=keys.pinned.authority,
            readings=readings,
            weather=sky or NO_WEATHER,
            rules=rules,
            random_bytes=os.urandom,
            store=Disk(state / JOURNAL),
            host=host,
            renew=renew,
            renew_roster=lambda: begun if agent is None and begun else kept.newest(),
            find_weather=kept.weather,
            owner=lambda: choice_of(state),
        )
        _see_step(agent, own)
        if not apart:
            _mark_begun(files.identity, keys.name, say)
    except BaseException:
        held.close()
        raise
    return RunningAgent(agent, keys, kept, state, History(state), held)


def _see_step(agent: Agent, own: OwnReadings) -> None:
    """Let the dither be as wide as the step of the sensor asks for, where rows are means and no longer show it."""
    memory = agent.own.memory
    memory.quantum = max(memory.quantum, min(own.quantum, MOST_QUANTUM))


def _entries(journal: Sequence[bytes]) -> list[Entry]:
    return [disclose(data, Entry) for data in journal]


def _roster_of_run(journal: Sequence[bytes], kept: Kept, seen: int) -> Roster | None:
    """The roster that the unfinished run in a journal was announced for: it goes on under that one, also where a newer
    one has come since. None where there is no run, or where a newer one was asked for since. seen: its number."""
    messages = [entry.message for entry in _entries(journal) if entry.message]
    try:
        first = decode_to_agent(messages[0], len(messages[0])) if messages else None
    except PeerError:  # of another version: the agent says that the run is lost
        return None
    found = kept.named(first.roster) if isinstance(first, Announce) else None
    return found if found is not None and found.serial >= seen else None


def _refuse_lost_account(identity: Path, state: Path) -> None:
    """With its keys and an empty account a home would give again what it gave before, in other companies."""
    if (identity / BEGUN).exists() and not (state / JOURNAL).exists():
        raise DataError(
            f"{state}: holds no account, but {identity} has had one: mount or name the state folder it last ran with; "
            "if that is lost, make a new key (`atdm enroll agent`) for the authority to enrol (`atdm enroll replace`)"
        )


def _mark_begun(identity: Path, name: str, say: Say) -> None:
    """Once the journal is there and before anything is answered; for an account of before this mark, at its next
    start."""
    if (identity / BEGUN).exists():
        return
    try:
        replace_file(identity / BEGUN, f"{stamp_now()}\n".encode())
    except AtdmError as error:  # keys may be where nothing can be written, and the state elsewhere
        text = f"{error}; without the file `{BEGUN}` beside its keys a lost state folder will go unnoticed"
        say(Line(text, event="note", agent=name, level=logging.WARNING))


def read_account(state: Path) -> Account:
    """The account in an agent's state folder, what an unfinished run added included."""
    saved, entries = Disk(state / JOURNAL).read()
    if saved is None:
        raise no_account(state)
    account = disclose(saved, Snapshot).memory.account
    for entry in entries:
        account.apply(disclose(entry, Entry).bookings)
    return account


def names_in(state: Path, roster: Path | None) -> dict[bytes, str]:
    """Identity keys → names, for display only: the roster's signature is not checked. None: the one the agent keeps."""
    path = state / "roster.json" if roster is None else roster
    if roster is None and not path.exists():
        return {}
    return {member.identity: member.name for member in read_unchecked_roster(path).members}


def agent_files(
    identities: Sequence[Path], data: Sequence[Path], sources: Sequence[Source], states: Sequence[Path]
) -> list[AgentFiles]:
    """One agent for each identity, with the readings (and state folder) at the same place of its list."""
    if data and sources:
        raise UsageError("--data and --source are both given: give one of the two; a table is a source too")
    readings: Sequence[Path | Source] = data or sources
    if len(readings) != len(identities) or len(states) not in (0, len(identities)):
        raise UsageError(f"{len(identities)} identities and {len(readings)} sources of readings: give one for each")
    folders: Sequence[Path | None] = states or [None] * len(identities)
    return [AgentFiles(identity=i, data=d, state=s) for i, d, s in zip(identities, readings, folders, strict=True)]


def serve_files(
    files: Sequence[AgentFiles],
    roster: Path | None,
    weather: OwnWeather,
    rules: Rules,
    servers: Sequence[str],
    say: Say,
    *,
    declared: Format,
    history: int = HISTORY,
    page: Callable[[Sequence[RunningAgent]], AbstractContextManager[object]] = lambda _: nullcontext(),
) -> None:
    """`atdm agent`: agents of one process share what follows from values that all of them hold (Host); page: the
    owner's, for as long as they run."""
    with contextlib.ExitStack() as held:
        host, agents = Host(), []
        for file in files:
            running = prepare_agent(
                file, roster, weather, rules, declared=declared, history=history, host=host, say=say
            )
            held.callback(running.close)
            listed = running.kept.listing()
            where = "waiting for a roster" if listed is None else f"in a roster of {len(listed)} agents"
            checked = f"{running.agent.own.readings!r} checked, {where}"
            say(Line(checked, event="checked", agent=running.keys.name))
            agents.append(running)
        held.enter_context(page(agents))
        serve(agents, servers, say)


def serve(agents: Sequence[RunningAgent], servers: Sequence[str], say: Say) -> None:
    """Be there for every run until told to stop (SIGTERM, SIGINT)."""
    with one_blas_thread():
        asyncio.run(_serve(agents, tuple(servers), say))


async def _serve(agents: Sequence[RunningAgent], servers: tuple[str, ...], say: Say) -> None:
    stop = asyncio.Event()

    def stopping() -> None:
        notify("STOPPING=1", "STATUS=stopping")
        stop.set()

    with on_signal(stopping):
        links = [link_agent(running, servers, say) for running in agents]
        tasks = [asyncio.create_task(link.run()) for link in links]
        homes = set(tasks)
        tasks += [asyncio.create_task(each) for each in (_wait(stop), keep_watchdog(), _tell_systemd(links))]
        left = set(tasks)
        try:
            while True:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                unknown = {task for task in done & homes if isinstance(task.exception(), PeerError)}
                if done - unknown or not left & homes:
                    break
                for task in unknown:  # a home that is not enrolled yet, or no longer, does not take the others with it
                    say(Line(f"{task.exception()}; other homes here go on", event="lost", level=logging.WARNING))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    say(Line("stopped", event="stopped"))


async def _tell_systemd(links: Sequence[AgentLink]) -> None:
    """Ready once all are connected; and how many are, whenever that changes."""
    ready, before = False, -1
    while listens():
        now = sum(link.connection.connected for link in links)
        if now != before:
            notify(f"STATUS={now} of {len(links)} agents connected to {links[0].connection.servers}")
        if now == len(links) and not ready:
            notify("READY=1")
            ready = True
        before = now
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.Event().wait()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def link_agent(running: RunningAgent, servers: tuple[str, ...], say: Say) -> AgentLink:
    agent, keys, patience = running.agent, running.keys, Patience(running.agent)

    def answer(_slot: int, message: bytes) -> list[bytes] | None:
        if message.startswith(MARK):
            running.kept.take(message)
            return []
        try:
            patience.admit(message)
            replies = agent.receive(message)
        except PeerError as error:
            say(Line(f"was sent {describe(message)}; sent nothing ({error})", event="ignored", agent=keys.name))
            remember(message, None, str(error))
            return None
        patience.answered(message)
        sent = ", ".join(describe(reply) for reply in replies) or "nothing"
        say(Line(f"was asked {describe(message)}; sent {sent}", event="asked", agent=keys.name))
        remember(message, replies)
        return replies

    def remember(message: bytes, replies: list[bytes] | None, why: str = "") -> None:
        try:
            running.history.add(exchange(message, replies, why))
        except AtdmError as error:
            say(Line(str(error), event="history", agent=keys.name, level=logging.WARNING))

    def limit() -> int:
        return max(agent.limit() + OVERHEAD, MOST_BYTES)

    nats = NatsConfig(servers=servers, ca=keys.pinned.ca, nkey=keys.nkey)
    running.link = AgentLink(
        nats, keys.pinned.authority, keys.identity.public, answer, limit, running.kept.holds, keys.name
    )
    return running.link


def describe(data: bytes) -> str:
    """A message by name and size, for people; of its values only the plan, which is public, and reasons."""
    try:
        message = read_head(data)
        kind = str(message["type"])
        detail = " ".join(str(message[key]) for key in ("phase", "what", "step") if key in message)
        if kind == "Announce":
            detail = describe_plan(msgspec.convert(message["plan"], AnyPlan))
        elif kind in ("Abort", "Refuse"):
            detail = f"({message['reason']})"
    except UNREADABLE:
        return f"something unreadable, {len(data)} bytes"
    return one_line(" ".join(part for part in (kind, detail) if part)) + f", {len(data)} bytes"


def describe_plan(plan: AnyPlan) -> str:
    ends = (plan.start, plan.start + (plan.length - 1) * plan.step_seconds)
    first, last = (EPOCH + timedelta(seconds=second) for second in ends)
    rows = f"{plan.length} rows from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    if isinstance(plan, Collect):
        how = f"weights of fit {plan.fit[:4].hex()}" if plan.fit else "equal weights"
        return f"(rows to collect under {how}, {rows})"
    return f"(protocol {plan.protocol}, {plan.weights} weights, order {plan.order}, ridge {plan.ridge:g}, {rows})"


@contextlib.contextmanager
def on_signal(act: Callable[[], object]) -> Any:
    """Call `act` on SIGTERM and SIGINT instead of dying."""
    loop = asyncio.get_running_loop()
    held = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread, or Windows
            loop.add_signal_handler(number, act)
            held.append(number)
    try:
        yield
    finally:
        for number in held:
            loop.remove_signal_handler(number)
