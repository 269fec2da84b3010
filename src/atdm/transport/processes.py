"""Many agents on several cores: each process hosts a share of them, the aggregator stays in the first.

Masks are not made faster by threads (the cipher holds the interpreter lock), hence processes. They are forked before
the first message, so that none of them holds another's masks. Messages cross pipes as bytes, never as objects.
"""

import contextlib
import multiprocessing
import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import perf_counter
from typing import cast

import msgspec

from atdm.errors import RunAborted
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.desk import Outgoing
from atdm.transport.local import Answer, Progress, Traffic, check_done, pump, received

Packet = list[tuple[int, bytes]]  # receivers and their messages; an empty one is the last
Answers = list[Answer]
_encoder = msgspec.msgpack.Encoder()
_packets, _answers = msgspec.msgpack.Decoder(Packet), msgspec.msgpack.Decoder(Answers)
_EVERYBODY = -1  # instead of a receiver
BATCH = 64  # agents whose messages, or answers, go through a pipe together
MEMORY_EVERY = 0.2  # s between two looks at how much memory is held, at least


def run(
    aggregator: Aggregator, agents: Sequence[Agent], processes: int, progress: Progress | None = None
) -> tuple[Traffic, float]:
    """Carry messages until the run is done; also the most memory that all processes together held.  [MB]"""
    context = multiprocessing.get_context("fork")
    n = len(agents)
    shares = [range(n * p // processes, n * (p + 1) // processes) for p in range(processes)]
    pipes, workers = [], []
    for share in shares:
        here, there = context.Pipe()
        workers.append(context.Process(target=_serve, args=(there, agents, share), daemon=True))
        workers[-1].start()
        there.close()
        pipes.append(here)
    try:
        with Memory([worker.pid or 0 for worker in workers]) as memory:
            traffic = pump(aggregator, n, lambda messages: _asked(messages, pipes, shares), progress=progress)
        for pipe in pipes:
            pipe.send_bytes(_encoder.encode([]))
    except EOFError:
        raise RunAborted("a process with agents ended early: is there enough memory?") from None
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.join(timeout=5)
            worker.kill()
    check_done(aggregator)
    return traffic, memory.peak


class Memory:
    """Watches how much memory this process and others hold together, pages they share counted once (Linux)."""

    def __init__(self, others: Sequence[int]) -> None:
        self.peak = 0.0  # MB
        self._files = [Path(f"/proc/{pid}/smaps_rollup") for pid in (os.getpid(), *others)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = self.peak or peak_memory()  # of this process alone, where the system tells no more

    def _watch(self) -> None:
        while True:
            began = perf_counter()
            with contextlib.suppress(OSError):  # a process has ended
                self.peak = max(self.peak, sum(map(_proportional, self._files)))
            if self._stop.wait(max(MEMORY_EVERY, 50 * (perf_counter() - began))):
                return


def _proportional(file: Path) -> float:
    """A process's resident memory, each page divided by the number of processes that share it.  [MB]"""
    line = next(line for line in file.read_text().splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) / 1024


def at_once(work: Callable[[], float], processes: int) -> float:
    """The largest result of several processes that do the same work at the same time."""
    if processes == 1:
        return work()  # no fork, after which this process would copy every page it writes to
    context = multiprocessing.get_context("fork")
    pipes = []
    for _ in range(processes):
        here, there = context.Pipe()
        context.Process(target=_answer, args=(there, work), daemon=True).start()
        there.close()
        pipes.append(here)
    return max(msgspec.msgpack.decode(pipe.recv_bytes(), type=float) for pipe in pipes)


def _answer(pipe: Connection, work: Callable[[], float]) -> None:
    pipe.send_bytes(_encoder.encode(work()))


def peak_memory() -> float:
    """Largest resident memory of this process so far.  [MB]"""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _serve(pipe: Connection, agents: Sequence[Agent], share: range) -> None:
    while packet := _packets.decode(pipe.recv_bytes()):
        if packet[0][0] == _EVERYBODY:
            packet = [(i, packet[0][1]) for i in share]
        for batch in _batches(packet):  # so that answers do not pile up
            answers: Answers = []
            for i, message in batch:
                start = perf_counter()
                replies = received(agents[i], message)
                answers.append((i, replies, perf_counter() - start))
            pipe.send_bytes(_encoder.encode(answers))


def _batches(packet: Packet) -> list[Packet]:
    return [packet[first : first + BATCH] for first in range(0, len(packet), BATCH)]


def _as_they_come(waiting: dict[Connection, int]) -> Iterator[Answer]:
    """Answers of as many agents as each pipe has to give."""
    while waiting:
        for pipe in wait(list(waiting)):
            answers = _answers.decode(cast(Connection, pipe).recv_bytes())
            waiting[cast(Connection, pipe)] -= len(answers)
            yield from answers
        waiting = {pipe: left for pipe, left in waiting.items() if left}


def _asked(messages: Sequence[Outgoing], pipes: Sequence[Connection], shares: Sequence[range]) -> Iterator[Answer]:
    """Send one message to everybody, or each of several to its receiver, all processes at work; give their answers."""
    if messages[0].to is None:
        for pipe in pipes:
            pipe.send_bytes(_encoder.encode([(_EVERYBODY, messages[0].data)]))
        yield from _as_they_come({pipe: len(share) for pipe, share in zip(pipes, shares, strict=True) if share})
        return
    own = [[(to, data) for to, data in messages if to is not None and to in share] for share in shares]
    for packets in zip_longest(*map(_batches, own), fillvalue=[]):
        asked = {pipe: packet for pipe, packet in zip(pipes, packets, strict=True) if packet}
        for pipe, packet in asked.items():
            pipe.send_bytes(_encoder.encode(packet))
        yield from _as_they_come({pipe: len(packet) for pipe, packet in asked.items()})
