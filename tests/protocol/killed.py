"""A process of its own for one agent, killed with SIGKILL at every write of its journal: run by test_store.py.

    python -m tests.protocol.killed FOLDER MOMENTS

MOMENTS: how many of before, within and after each write to try. Prints, as JSON, how often the process was killed and
how many runs came to a result.
"""

import json
import os
import signal
import sys
from pathlib import Path

from atdm.protocol.store import Store
from atdm.transport.disk import Disk
from tests.clusters import tiny
from tests.protocol.world import Killed, World

AGENTS, LEADER, SEED = 4, 0, 3
MOMENTS = ("before", "within", "after")


class Deadly(Store):
    """A journal that kills its process at one of its writes."""

    def __init__(self, disk: Disk, write: int, moment: str) -> None:
        self.disk, self.left, self.moment = disk, write, moment

    def read(self) -> tuple[bytes | None, list[bytes]]:
        return self.disk.read()

    def replace(self, snapshot: bytes) -> None:
        self._write(self.disk.replace, snapshot)

    def append(self, entry: bytes) -> None:
        self._write(self.disk.append, entry)

    def _write(self, write, data: bytes) -> None:
        self.left -= 1
        before = self.disk.path.stat().st_size if self.disk.path.exists() else 0
        if self.left != 0 or self.moment != "before":
            write(data)
        if self.left == 0:
            if self.moment == "within" and write == self.disk.append:  # a frame that was half written
                os.truncate(self.disk.path, (before + self.disk.path.stat().st_size) // 2)
            os.kill(os.getpid(), signal.SIGKILL)


class Process:
    """The agent behind two pipes; a new process, from the journal, whenever there is none."""

    def __init__(self, world: World, path: Path, write: int, moment: str) -> None:
        self.world, self.path, self.write, self.moment = world, path, write, moment
        self.pid, self.deaths = 0, 0

    def receive(self, data: bytes) -> list[bytes]:
        if not self.pid:
            self._start()
        _put(self.to, [data])
        replies = _get(self.back)
        if replies is None:
            os.waitpid(self.pid, 0)
            self.pid, self.write = 0, 0  # the next life is not killed
            self.deaths += 1
            raise Killed
        return replies

    def _start(self) -> None:
        to_child, to = os.pipe()
        back, from_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(to)
                os.close(back)
                self.world.stores[LEADER] = Deadly(Disk(self.path), self.write, self.moment)
                agent = World.agent(self.world, LEADER)
                while (messages := _get(to_child)) is not None:
                    _put(from_child, agent.receive(messages[0]))
            finally:
                os._exit(0)  # never back into the test's own loop
        os.close(to_child)
        os.close(from_child)
        self.to, self.back = os.fdopen(to, "wb", 0), os.fdopen(back, "rb", 0)

    def stop(self) -> None:
        if self.pid:
            self.to.close()
            os.waitpid(self.pid, 0)
            self.pid = 0


def _put(pipe, messages: list[bytes]) -> None:
    handle = pipe if isinstance(pipe, int) else pipe.fileno()
    data = b"".join(len(part).to_bytes(8, "little") + part for part in (len(messages).to_bytes(1, "little"), *messages))
    while data:
        data = data[os.write(handle, data) :]


def _get(pipe) -> list[bytes] | None:
    handle = pipe if isinstance(pipe, int) else pipe.fileno()

    def read(size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = os.read(handle, size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    try:
        count = read(int.from_bytes(read(8), "little"))[0]
        return [read(int.from_bytes(read(8), "little")) for _ in range(count)]
    except EOFError:
        return None


def live(folder: Path, write: int, moment: str) -> tuple[int, bool]:
    """One run with the leader killed once; `World.hand_out` compares every message it ever sent."""
    world = World(tiny(SEED, agents=AGENTS, rows=60), SEED)
    path = folder / f"{write}-{moment}.journal"
    process = Process(world, path, write, moment)
    world.stores[LEADER] = Disk(path)
    world.agent = lambda i: process if i == LEADER else World.agent(world, i)
    outcome = world.run(world.aggregator(world.plan()))
    process.stop()
    return process.deaths, outcome is not None


def main(folder: Path, moments: int) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    deaths, done = 0, 0
    for write in range(1, 100):
        results = [live(folder, write, MOMENTS[(write + k) % len(MOMENTS)]) for k in range(moments)]
        if not any(killed for killed, _ in results):
            break
        deaths, done = deaths + sum(k for k, _ in results), done + sum(d for _, d in results)
    print(json.dumps({"writes": write - 1, "deaths": deaths, "done": done}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
