"""A world whose time is virtual: parties of a deployment as tasks of one loop, a year of them in minutes.

    World        the loop, its clocks, and the parties in it
    Party        one computer: its clock may be wrong, and it may be killed
    Broker       stands in for the NATS server: it may be killed, and forgets what nobody hears
    Wire         stands in for transport.nats.Connection, with the same interface

Rule 1: nothing sleeps. Where nothing is left to do now, time is that of the next timer.
Rule 2: a party that is killed runs no further line, no `finally` either, and its locks fall away: kill −9.
Rule 3: messages between two parties arrive in order, or are lost with the connection.
Rule 4: everything follows from the seeds; keys and masks, which are drawn as ever, are in no number that is compared.
"""

import asyncio
import contextlib
import errno
import logging
import os
import random
import selectors
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar
from weakref import WeakSet

import pytest

from atdm.errors import PeerError
from atdm.transport import disk, nats
from atdm.transport.nats import FIRST_PAUSE, LONGEST_PAUSE, NatsConfig

LARGEST = 1 << 20  # bytes of a frame, as a NATS server has it
RESOLUTION = 1e-6  # s; above the rounding of a year's seconds
LAYERS = 20  # of `finally` in one task, at most
T = TypeVar("T")
log = logging.getLogger("atdm.virtual")


@dataclass(slots=True, eq=False)
class Party:
    """One computer. What it has written survives its death; that of its disk is tested elsewhere (test_store.py)."""

    name: str
    skew: float = 0.0  # s by which its time of day is wrong; its monotonic clock is right
    alive: bool = True
    full: bool = False  # its disk
    tasks: WeakSet["asyncio.Task[Any]"] = field(default_factory=WeakSet)
    locks: list[BinaryIO] = field(default_factory=list)  # which its death sets free
    wires: WeakSet["Wire"] = field(default_factory=WeakSet)


EVERYBODY = Party("the world")
PARTY: ContextVar[Party] = ContextVar("party", default=EVERYBODY)
_GRAVES: list[asyncio.Task[Any]] = []  # tasks of the dead: were they collected, their last lines would run


class _Jump(selectors.BaseSelector):
    """Waits by moving the clock on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.next: Callable[[], float] = lambda: 0.0  # when the next timer is due

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every party waits for another one, and nobody for the time")
        self.now += max(0.0, timeout)
        if self.now < (due := self.next()) < self.now + RESOLUTION:
            self.now = due  # the loop lets it ring now: who waited must not find that it is a rounding error too early
        return []

    def register(self, *_: Any) -> Any:
        return None

    def unregister(self, *_: Any) -> Any:
        return None

    def get_map(self) -> Any:
        return {}


class _Loop(asyncio.SelectorEventLoop):
    """Drops whatever a killed party would do next."""

    def __init__(self) -> None:
        self.jump = _Jump()
        super().__init__(self.jump)
        self._clock_resolution = RESOLUTION
        self.jump.next = lambda: self._scheduled[0]._when if self._scheduled else 0.0

    def time(self) -> float:
        return self.jump.now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        own = copy_context() if context is None else context
        if own.get(PARTY, EVERYBODY).alive:
            return super().call_soon(callback, *args, context=own)
        return asyncio.Handle(callback, args, self, own)

    def create_task(self, work: Any, *, name: Any = None, context: Context | None = None) -> "asyncio.Task[Any]":
        task = super().create_task(work, name=name, context=context)
        (PARTY.get() if context is None else context.get(PARTY, EVERYBODY)).tasks.add(task)
        return task

    def forget(self, party: Party) -> None:
        self._ready: deque[asyncio.Handle] = deque(h for h in self._ready if h._context.get(PARTY) is not party)
        for timer in self._scheduled:
            if timer._context.get(PARTY) is party:
                timer.cancel()


class _Clock:
    """What modules of atdm find under the name `time`."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.perf_counter, self.process_time = time.perf_counter, time.process_time

    def time(self) -> float:
        return self._world.now() + PARTY.get().skew

    def time_ns(self) -> int:
        return round(self.time() * 1e9)

    def monotonic(self) -> float:
        return self._world.loop.time()


class World:
    """Virtual time from `start` [s since 1970] on, for everything in atdm that reads a clock."""

    def __init__(self, start: float, seed: int) -> None:
        self.start, self.loop = start, _Loop()
        self.broker = Broker(random.Random(seed))

    def now(self) -> float:
        """True time.  [s since 1970]"""
        return self.start + self.loop.time()

    async def until(self, when: float) -> None:
        await asyncio.sleep(max(0.0, when - self.now()))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._patched():
            try:
                return self.loop.run_until_complete(work)
            finally:
                left = [task for task in asyncio.all_tasks(self.loop) if task not in _GRAVES]
                for task in left:
                    task.cancel()
                if left:
                    self.loop.run_until_complete(asyncio.wait(left))
                self.loop.close()
                for task in _GRAVES:
                    _bury(task)
                _GRAVES.clear()

    def begin(self, party: Party, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Have a party do something."""
        context = copy_context()
        context.run(PARTY.set, party)
        return self.loop.create_task(work, context=context)

    def kill(self, party: Party) -> None:
        """Kill −9."""
        party.alive = False
        self.loop.forget(party)
        for wire in party.wires:
            self.broker.detach(wire)
        for held in party.locks:
            held.close()
        for task in party.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _GRAVES.append(task)

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        clock = _Clock(self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nats, "Connection", lambda *given: Wire(self.broker, *given))
            patch.setattr(disk, "_force", _force)
            patch.setattr(disk, "_force_folder", lambda _: None)
            for name, module in list(sys.modules.items()):
                if name.split(".")[0] != "atdm":
                    continue
                if getattr(module, "time", None) is time:
                    patch.setattr(module, "time", clock)
                if getattr(module, "time_ns", None) is time.time_ns:
                    patch.setattr(module, "time_ns", clock.time_ns)
                if name != "atdm.transport.disk" and (lock := getattr(module, "lock", None)) is not None:
                    patch.setattr(module, "lock", _remembered(lock))
            yield


def _bury(task: "asyncio.Task[Any]") -> None:
    """Close what a killed task stood in, where nothing it does counts any more."""
    for _ in range(LAYERS):
        with contextlib.suppress(RuntimeError):  # it waits once more while it tidies up
            task.get_coro().close()  # type: ignore[union-attr]
            return


def _force(file: BinaryIO) -> None:
    if PARTY.get().full:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file.flush()


def _remembered(lock: Callable[..., BinaryIO]) -> Callable[..., BinaryIO]:
    def lock_and_remember(*given: Any) -> BinaryIO:
        held = lock(*given)
        PARTY.get().locks.append(held)
        return held

    return lock_and_remember


class Broker:
    """Passes messages on to whoever is connected, in order, and keeps nothing."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.carried = rng, 0
        self.heard: Callable[[str, bytes], None] | None = None  # told of every message before it is passed on
        self._wires: dict[str, dict[Wire, None]] = {}  # by subject, in the order in which they came
        self._up = asyncio.Event()
        self._up.set()

    @property
    def up(self) -> bool:
        return self._up.is_set()

    def stop(self) -> None:
        """The server is killed: what was under way is lost."""
        self._up.clear()
        for wire in {wire: None for wires in self._wires.values() for wire in wires}:
            self.detach(wire)

    def begin(self) -> None:
        self._up.set()

    async def wait(self) -> None:
        await self._up.wait()

    def attach(self, wire: "Wire") -> None:
        for subject in wire.subjects:
            self._wires.setdefault(subject, {})[wire] = None
        wire.attached = True

    def detach(self, wire: "Wire") -> None:
        if wire.attached:
            wire.attached = False
            for subject in wire.subjects:
                del self._wires[subject][wire]
            wire.lost()

    def publish(self, to: str, data: bytes) -> None:
        self.carried += 1
        if self.heard is not None:
            self.heard(to, data)
        if not self.up:
            return
        for subject in (to, to.rpartition(".")[0] + ".*"):
            for wire in self._wires.get(subject, ()):
                wire.inbox.put_nowait((to, data))


class Wire:
    """A connection that opens again, with growing pauses, whenever it breaks."""

    def __init__(
        self,
        broker: Broker,
        config: NatsConfig,
        subjects: Sequence[str],
        received: Callable[[str, bytes], Awaitable[None]],
        opened: Callable[[], Awaitable[None]],
        _name: str = "",
    ) -> None:
        self._broker, self._received, self._opened = broker, received, opened
        self.subjects, self.attached = tuple(subjects), False
        self.inbox: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()
        self.servers, self.refused, self.connections, self.largest = ", ".join(config.servers), "", 0, LARGEST
        PARTY.get().wires.add(self)

    @property
    def connected(self) -> bool:
        return self.attached

    async def send(self, to: str, data: bytes) -> None:
        if self.attached:
            self._broker.publish(to, data)
        if not PARTY.get().alive:  # killed by what was to happen at this message
            await asyncio.get_running_loop().create_future()

    async def flush(self) -> None:
        """What was sent is with the server at once."""

    def lost(self) -> None:
        while not self.inbox.empty():
            self.inbox.get_nowait()
        self.inbox.put_nowait(None)

    async def run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                if not self._broker.up:
                    await self._broker.wait()
                    pause = self._broker.rng.uniform(0.0, LONGEST_PAUSE)  # by now the pauses have grown
                    await asyncio.sleep(pause)
                    continue
                self._broker.attach(self)
                self.connections += 1
                await self._opened()
                while (message := await self.inbox.get()) is not None:
                    try:
                        await self._received(*message)
                    except PeerError as error:
                        log.info("%s, %d bytes: %s", message[0], len(message[1]), error)
                await asyncio.sleep(pause * self._broker.rng.uniform(0.5, 1.0))
        finally:
            self._broker.detach(self)
