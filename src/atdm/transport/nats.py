"""Bytes over NATS: one connection per party, TLS 1.3, every message delivered in order or sent again.

    atdm.<authority>.down.all     aggregator → everybody
    atdm.<authority>.down.<id>    aggregator → one agent           <id>, <authority>: public identity keys in hex
    atdm.<authority>.up.<id>      one agent → aggregator

The server's permissions (server.py) let an agent publish on its own `up` subject only and hear its own `down` subject
and `down.all` only, so a subject names its sender. NATS forgets what nobody listens to; agents come and go. Hence
slots (frames.py): the aggregator keeps its messages and sends those again that an agent has not answered when the
agent says that it is there, and from time to time.

An agent says by name what it holds of what everybody may have (`Here.held`), so that whoever sends knows what it lacks.
Nothing here looks into a message.
"""

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from atdm.errors import PeerError, RunAborted, UsageError
from atdm.transport import frames
from atdm.transport.frames import Assembly, Call, Here, Piece
from atdm.transport.nkey import nkey_seed

FIRST_PAUSE = 0.25  # s before the first attempt to connect again; doubles
LONGEST_PAUSE = 60.0  # s
FIRST_REPEAT = 30.0  # s without an answer after which a message is sent again; doubles
LONGEST_REPEAT = 120.0  # s
KEPT_ANSWERS = (
    2  # slots whose answers can be sent again: the aggregator may post the next slot before all have answered
)
CALL_EVERY = 2.0  # s between calls while agents gather
RESUME_EVERY = 2.0  # s between sending the same again to an agent that asks for it, as it does at every call
CONNECT_TIMEOUT = 10  # s
CLOSE_TIMEOUT = 1.0  # s
WATCH_EVERY = 0.5  # s between looks at whether the connection still stands
PENDING_BYTES = 1 << 30  # waiting in this process for one subscription; all agents answer at once

log = logging.getLogger("atdm.nats")
# asyncio says this of every TLS connection the NATS client closes, and nobody can do anything about it
logging.getLogger("asyncio").addFilter(lambda record: "eof_received() has no effect" not in record.getMessage())


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsConfig:
    """Where the NATS servers are, the CA that certifies them, and this party's own key."""

    servers: tuple[str, ...]  # tls://host:port
    ca: str  # PEM of the certificate authority that signed the servers' certificates
    nkey: bytes = field(repr=False)  # private

    def __post_init__(self) -> None:
        for url in self.servers:
            if not url.startswith("tls://"):
                raise UsageError(f"NATS server {url}: only encrypted connections are made; write tls://host:port")


def subject(authority: bytes, *parts: str) -> str:
    return ".".join(("atdm", authority.hex(), *parts))


class Connection:
    """A connection that opens again, with growing pauses, whenever it breaks."""

    def __init__(
        self,
        config: NatsConfig,
        subjects: Sequence[str],
        received: Callable[[str, bytes], Awaitable[None]],
        opened: Callable[[], Awaitable[None]],
        name: str = "",
    ) -> None:
        """name: of the agent whose connection it is, in the log."""
        self._name, self._lost = name, 0.0  # when the connection broke  [s, of the loop]
        self._door, self._subjects, self._received, self._opened = config, subjects, received, opened
        self._client: Any = None
        self.servers = ", ".join(config.servers)
        self.refused = ""  # the server's last complaint about what this party may not do
        self.connections = 0

    @property
    def connected(self) -> bool:
        return self._client is not None and bool(self._client.is_connected)

    def _tell(self, level: int, event: str, text: str) -> None:
        log.log(level, "%s", text, extra={"event": event, "agent": self._name})

    @property
    def largest(self) -> int:
        """Bytes of the largest frame the server takes."""
        return int(self._client.max_payload) if self._client is not None else 1 << 20

    async def send(self, to: str, data: bytes) -> None:
        """Publish. What cannot be published now is dropped: slots without an answer are sent again."""
        client = self._client
        if client is None or not client.is_connected:
            return
        try:
            await client.publish(to, data)
        except Exception as error:  # noqa: BLE001 - the client raises its own, the socket's and asyncio's errors
            log.debug("not sent, %d bytes: %s", len(data), type(error).__name__)

    async def flush(self) -> None:
        """Wait until the server has what was sent, if it is there."""
        client = self._client
        if client is not None and client.is_connected:
            with contextlib.suppress(Exception):
                await client.flush(CLOSE_TIMEOUT)

    async def run(self) -> None:
        """Stay connected until cancelled; raises PeerError if the server is not ours or never knew us. One that did may
        get its right configuration again: that is waited for."""
        pause = FIRST_PAUSE
        try:
            while True:
                closed = asyncio.Event()
                try:
                    self._client = await self._open(closed)
                    for name in self._subjects:
                        await self._client.subscribe(name, cb=self._deliver, pending_bytes_limit=PENDING_BYTES)
                    await self._client.flush(CONNECT_TIMEOUT)
                except PeerError as error:
                    if not self.connections:
                        raise
                    level = logging.INFO if pause == LONGEST_PAUSE else logging.WARNING
                    self._tell(level, "refused", f"{error}, unless it was retired; trying again")
                    pause = LONGEST_PAUSE
                except Exception as error:  # noqa: BLE001 - as in send
                    first = pause == FIRST_PAUSE and not self.connections  # said once, and not every minute
                    text = f"no connection to {self.servers} ({type(error).__name__}): trying again"
                    self._tell(logging.WARNING if first else logging.DEBUG, "unreachable", text)
                else:
                    self._say_connected()
                    self.connections += 1
                    pause = FIRST_PAUSE
                    await self._opened()
                    while self._client.is_connected:  # the client may take long to say that it has closed
                        _stop_if_cancelled()
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(closed.wait(), WATCH_EVERY)
                    self._lost = asyncio.get_running_loop().time()
                    self._tell(logging.WARNING, "lost", f"connection to {self.servers} lost: trying again")
                await self._close()
                _stop_if_cancelled()
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads agents, guards nothing
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            await self._close()

    def _say_connected(self) -> None:
        if not self.connections:
            return self._tell(logging.INFO, "connected", f"connected to {self.servers}")
        away = asyncio.get_running_loop().time() - self._lost
        self._tell(logging.INFO, "back", f"back after {away:.0f} s: connected to {self.servers}")

    async def _deliver(self, message: Any) -> None:
        try:
            await self._received(message.subject, message.data)
        except PeerError as error:
            log.warning("%s, %d bytes: %s", message.subject, len(message.data), error)

    async def _open(self, closed: asyncio.Event) -> Any:
        client = _library().NATS()

        async def on_closed() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            self.refused = str(error)
            log.debug("nats: %s", error)

        try:
            await client.connect(
                servers=list(self._door.servers), tls=_context(self._door.ca), tls_handshake_first=True,
                nkeys_seed_str=nkey_seed(self._door.nkey), connect_timeout=CONNECT_TIMEOUT, error_cb=on_error,
                closed_cb=on_closed, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
            )  # fmt: skip
        except BaseException as error:
            await _shut(client)
            _raise_refusal(error, self._door)
            raise
        return client

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _shut(client)


def _stop_if_cancelled() -> None:
    """The client swallows a cancellation that meets it while it flushes; the task still knows that it was asked."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _shut(client: Any) -> None:
    with contextlib.suppress(Exception):  # the client waits for ever for a connection that failed half-way
        await asyncio.wait_for(client.close(), CLOSE_TIMEOUT)


def _raise_refusal(error: BaseException, config: NatsConfig) -> None:
    where = ", ".join(config.servers)
    if isinstance(error, ssl.SSLCertVerificationError):
        raise PeerError(f"{where}: not the server of this enrolment ({error.verify_message}): check address and CA")
    if "authorization violation" in str(error).lower():
        raise PeerError(f"{where}: does not know this party's nkey: give it the server.conf of the current roster")


def _context(ca: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _library() -> Any:
    try:
        from nats.aio import client
    except ImportError:
        raise UsageError("a deployment needs the NATS client: pip install 'atdm[nats]'") from None
    return _Library(client.Client)


@dataclass(frozen=True, slots=True)
class _Library:
    NATS: Any


class AgentLink:
    """One agent's end: hands over each slot's message once, in order, and sends back what `answer` returns.

    answer(slot, message) → answers, or None when the agent ignored the message, which did not fit its state.
    limit() → bytes of the largest message that may come now.
    held() → names of what the agent need not be sent.
    """

    def __init__(
        self, config: NatsConfig, authority: bytes, identity: bytes, answer: Callable[[int, bytes], list[bytes] | None],
        limit: Callable[[], int], held: Callable[[], tuple[bytes, ...]] = tuple, name: str = "",
    ) -> None:  # fmt: skip
        self._up = subject(authority, "up", identity.hex())
        down = [subject(authority, "down", identity.hex()), subject(authority, "down", "all")]
        self.connection = Connection(config, down, self._received, self._arrived, name)
        self._answer, self._limit, self._held = answer, limit, held
        self._stream = bytes(frames.STREAM_BYTES)
        self._next: int | None = None  # slot to hand over next; None: not known yet in this stream
        self._sent: dict[int, bytes] = {}  # answers to the last slots, for the case that they got lost
        self._assembly = Assembly()
        self._fault: asyncio.Future[None] | None = None  # what keeps the agent from going on

    async def run(self) -> None:
        """Until cancelled, or until the agent fails: then that is raised here, and nothing more is answered."""
        self._fault = asyncio.get_running_loop().create_future()
        line = asyncio.ensure_future(self.connection.run())
        try:
            await asyncio.wait((line, self._fault), return_when=asyncio.FIRST_COMPLETED)
            await (self._fault if self._fault.done() else line)
        finally:
            line.cancel()
            await asyncio.gather(line, return_exceptions=True)

    async def _arrived(self) -> None:
        await self.connection.send(self._up, frames.encode(Here(self._stream, self._held())))

    async def _received(self, _subject: str, data: bytes) -> None:
        frame = frames.decode(data)
        if isinstance(frame, Here):
            raise PeerError("a frame that only agents send: ignored")
        if frame.stream != self._stream:
            self._stream, self._next, self._sent, self._assembly = frame.stream, None, {}, Assembly()
        if isinstance(frame, Call):
            await self._arrived()
            return
        message = self._assembly.add(frame, self._limit())
        if message is not None:
            await self._take(frame, message)

    async def _take(self, frame: Piece, message: bytes) -> None:
        if self._next is None and (frame.resumed or frame.slot == 0):
            self._next = frame.slot
        if self._next is None or frame.slot > self._next:
            await self._arrived()  # something is missing: ask for it
        elif frame.slot == self._next:
            try:
                answers = self._answer(frame.slot, message) if message else []
            except Exception as error:  # the client library would only log it
                if self._fault is None or self._fault.done():
                    raise
                self._fault.set_exception(error)
                return
            self._sent[frame.slot] = frames.pack_answers(answers)
            self._sent.pop(frame.slot - KEPT_ANSWERS, None)
            self._next += 1
            await self._reply(frame.slot)
        elif frame.slot in self._sent:
            await self._reply(frame.slot)

    async def _reply(self, slot: int) -> None:
        for data in frames.split(self._stream, slot, self._sent[slot], self.connection.largest):
            await self.connection.send(self._up, data)


@dataclass(slots=True)
class Peer:
    """What the aggregator's end knows of one agent of the run."""

    subject: str
    answered: int = 0  # slots before this one
    heard: float = 0.0  # when something was last heard, or sent again  [s, monotonic]
    pause: float = FIRST_REPEAT
    resumed: float = float("-inf")  # when all it lacked was last sent again  [s, monotonic]
    resent: int = 0  # slots there were then
    asked: bool = False  # for the same too soon: it gets it a little later
    messages_up: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    assembly: Assembly = field(default_factory=Assembly)


@dataclass(frozen=True, slots=True)
class Slot:
    """One message for every agent: the same for all, or one each, empty where an agent gets none."""

    shared: bytes | None
    own: dict[int, bytes]

    def message(self, agent: int) -> bytes:
        return self.shared if self.shared is not None else self.own.get(agent, b"")


def slots_of(batch: Sequence[tuple[int | None, bytes]]) -> list[Slot]:
    """Consecutive messages to single agents share a slot."""
    slots: list[Slot] = []
    for to, data in batch:
        if to is None:
            slots.append(Slot(data, {}))
        elif slots and slots[-1].shared is None and to not in slots[-1].own:
            slots[-1].own[to] = data
        else:
            slots.append(Slot(None, {to: data}))
    return slots


class Hub:
    """The aggregator's end. `gather` says who is there, `begin` fixes who is in the run, `post` and `answers` carry it.

    limit() → bytes of the largest set of answers an agent may send now.
    """

    def __init__(self, config: NatsConfig, authority: bytes, stream: bytes, limit: Callable[[], int]) -> None:
        self._authority, self._stream, self._limit = authority, stream, limit
        self._all = subject(authority, "down", "all")
        self.connection = Connection(config, [subject(authority, "up", "*")], self._received, self._call)
        self.present: set[str] = set()  # identities in hex
        self.held: dict[str, tuple[bytes, ...]] = {}  # what each said last that it need not be sent
        self.peers: list[Peer] = []
        self.slots: list[Slot] = []
        self._place: dict[str, int] = {}
        self._answers: asyncio.Queue[tuple[int, int, list[bytes] | None]] = asyncio.Queue()
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Hub":
        self._tasks = [asyncio.create_task(self.connection.run()), asyncio.create_task(self._repeat())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def gather(self, wanted: set[str], seconds: float, progress: Callable[[int], None]) -> None:
        """Call until everybody wanted is present or the time is over."""
        clock = asyncio.get_running_loop()
        end, before = clock.time() + seconds, -1
        while not wanted <= self.present and clock.time() < end:
            self._check()
            await self._call()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(CALL_EVERY, max(0.0, end - clock.time()))):
                    await self._news.wait()
            self._news.clear()
            if (there := len(wanted & self.present)) != before:
                progress(there)
                before = there

    def begin(self, identities: Sequence[bytes]) -> None:
        now = asyncio.get_running_loop().time()
        names = [identity.hex() for identity in identities]
        self._place = {name: i for i, name in enumerate(names)}
        self.peers = [Peer(subject(self._authority, "down", name), heard=now) for name in names]

    async def post(self, batch: Sequence[tuple[int | None, bytes]]) -> None:
        """Send messages to everybody (None) or to one agent of the run."""
        for slot in slots_of(batch):
            number = len(self.slots)
            self.slots.append(slot)
            if slot.shared is not None:
                await self._send(self._all, number, slot.shared)
            for i, peer in enumerate(self.peers):
                peer.bytes_down += len(slot.message(i))
                if slot.shared is None:
                    await self._send(peer.subject, number, slot.message(i))

    async def next_answers(self, seconds: float) -> tuple[int, int, list[bytes] | None]:
        """(agent, slot, answers) as they come in; TimeoutError after so long without any."""
        if self._answers.empty():
            self._check()
        async with asyncio.timeout(seconds):  # wait_for would lose a cancellation that meets an answer
            return await self._answers.get()

    def accept(self, agent: int, answers: Sequence[bytes]) -> None:
        """Count an answer that the aggregator accepted."""
        peer = self.peers[agent]
        peer.messages_up += len(answers)
        peer.bytes_up += sum(map(len, answers))

    def reject(self, agent: int, slot: int) -> None:
        """The answers to this slot were not accepted: after a pause the agent is asked again."""
        peer = self.peers[agent]
        peer.answered = min(peer.answered, slot)

    def silent(self) -> list[int]:
        """Agents that have not answered everything."""
        return [i for i, peer in enumerate(self.peers) if peer.answered < len(self.slots)]

    def _check(self) -> None:
        """Raise what ended the connection for good."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error if isinstance(error, PeerError) else RunAborted(f"the connection ended: {error}")

    async def _call(self) -> None:
        await self.connection.send(self._all, frames.encode(Call(self._stream)))

    async def _send(self, to: str, slot: int, message: bytes, *, resumed: bool = False) -> None:
        for data in frames.split(self._stream, slot, message, self.connection.largest, resumed=resumed):
            await self.connection.send(to, data)

    async def _received(self, name: str, data: bytes) -> None:
        sender = name.rpartition(".")[2]
        frame = frames.decode(data)
        if isinstance(frame, Call):
            raise PeerError("a frame that only the aggregator sends: ignored")
        if isinstance(frame, Here):
            self.held[sender] = frame.held
        if sender not in self.present:  # or every answer to a call would bring on the next call at once
            self.present.add(sender)
            self._news.set()
        place = self._place.get(sender)
        if place is None:
            return
        peer = self.peers[place]
        peer.heard, peer.pause = asyncio.get_running_loop().time(), FIRST_REPEAT
        if isinstance(frame, Here):
            peer.asked = True
            await self._resume_if_due(place)
        elif frame.stream == self._stream and frame.slot == peer.answered < len(self.slots):
            whole = peer.assembly.add(frame, self._limit())
            if whole is not None:
                answers = frames.unpack_answers(whole)
                peer.answered += 1
                self._answers.put_nowait((place, frame.slot, answers))

    async def _resume(self, agent: int) -> None:
        """Send again what this agent has not answered."""
        peer = self.peers[agent]
        peer.asked, peer.resent, peer.resumed = False, len(self.slots), asyncio.get_running_loop().time()
        for number in range(peer.answered, len(self.slots)):
            message = self.slots[number].message(agent)
            await self._send(peer.subject, number, message, resumed=number == peer.answered)

    async def _resume_if_due(self, agent: int) -> None:
        """What is new at once, since subjects may overtake each other; the same not as often as an agent likes."""
        peer = self.peers[agent]
        if len(self.slots) > peer.resent or asyncio.get_running_loop().time() - peer.resumed >= RESUME_EVERY:
            await self._resume(agent)

    async def _repeat(self) -> None:
        """For agents that seem to have missed something although their connection stands, or asked too soon."""
        clock = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1.0)
            for i in self.silent():
                peer = self.peers[i]
                if clock.time() - peer.heard > peer.pause:
                    peer.heard, peer.pause = clock.time(), min(2 * peer.pause, LONGEST_REPEAT)
                    await self._resume(i)
                elif peer.asked:
                    await self._resume_if_due(i)
