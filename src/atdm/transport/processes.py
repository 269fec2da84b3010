"""Many agents on several cores: each process hosts a share of them, the aggregator stays in the first.

Masks are not made faster by threads (the cipher holds the interpreter lock), hence processes. They are forked before
the first message, so that none of them holds another's masks. Messages cross pipes as bytes, never as objects.
"""

import multiprocessing
import resource
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from time import perf_counter

import msgspec

from atdm.errors import RunAborted
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, State
from atdm.transport.local import Progress, Traffic, received

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(tuple[int, bytes])
_answers = msgspec.msgpack.Decoder(list[tuple[int, list[bytes], float]])
_END = -2  # instead of a receiver


def run(
    aggregator: Aggregator, agents: Sequence[Agent], processes: int, progress: Progress | None = None
) -> tuple[Traffic, float]:
    """Carry messages until the run is done; also the largest memory of all processes together.  [MB]"""
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
        traffic = _carry(aggregator, pipes, shares, n, progress)
        peaks = [_finish(pipe) for pipe in pipes]
    except EOFError:
        raise RunAborted("a process with agents ended early: is there enough memory?") from None
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.join(timeout=30)
            worker.kill()
    if aggregator.state is not State.DONE:
        raise RunAborted(aggregator.reasons[0] if aggregator.reasons else "the run stopped without a result")
    return traffic, sum(peaks) + peak_memory()


def at_once(work: Callable[[], float], processes: int) -> float:
    """The largest answer of as many processes that do the same work at the same time."""
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
    while True:
        to, data = _decoder.decode(pipe.recv_bytes())
        if to == _END:
            pipe.send_bytes(_encoder.encode(peak_memory()))
            return
        answers = []
        for i in share if to < 0 else (to,):
            start = perf_counter()
            replies = received(agents[i], data)
            answers.append((i, replies, perf_counter() - start))
        pipe.send_bytes(_encoder.encode(answers))


def _finish(pipe: Connection) -> float:
    pipe.send_bytes(_encoder.encode((_END, b"")))
    return msgspec.msgpack.decode(pipe.recv_bytes(), type=float)


def _carry(
    aggregator: Aggregator, pipes: list[Connection], shares: list[range], agents: int, progress: Progress | None
) -> Traffic:
    traffic = Traffic([0] * agents, [0] * agents, [0] * agents, [0.0] * agents)
    began = perf_counter()
    inbox = deque(aggregator.start())
    while inbox:
        to, data = inbox.popleft()
        packet = _encoder.encode((-1 if to is None else to, data))
        asked = [pipe for pipe, share in zip(pipes, shares, strict=True) if to is None or to in share]
        for pipe in asked:
            pipe.send_bytes(packet)
        keys_made = aggregator.state is State.RUNNING and traffic.setup_seconds == 0.0
        for pipe in asked:
            for i, replies, spent in _answers.decode(pipe.recv_bytes()):
                traffic.bytes_down[i] += len(data)
                traffic.seconds[i] += spent
                for reply in replies:
                    traffic.messages_up[i] += 1
                    traffic.bytes_up[i] += len(reply)
                    start = perf_counter()
                    inbox += received(aggregator, i, reply)
                    traffic.seconds_aggregator += perf_counter() - start
        if keys_made:
            traffic.setup_seconds, traffic.seconds = perf_counter() - began, [0.0] * agents
        if progress is not None:
            progress(f"message {traffic.messages_up[-1]} of every agent")
    traffic.total_seconds = perf_counter() - began
    return traffic
