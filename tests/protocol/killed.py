"""A process of its own for one agent, killed with SIGKILL at every write of its journal: run by test_store.py.

    python -m tests.protocol.killed FOLDER MOMENTS

MOMENTS: how many of before, within and after each write to try. Prints, as JSON, how often the process was killed and
how many runs came to a result.
"""

import json
import os
import signal
import sys
from multiprocessing import get_context
from pathlib import Path

from atdm.transport.disk import Disk
from tests.clusters import tiny
from tests.protocol.world import Killed, World

AGENTS, LEADER, SEED = 4, 0, 3
MOMENTS = ("before", "within", "after")
FORK = get_context("fork")


class Deadly(Disk):
    """A journal that kills its process at one of its writes."""

    def __init__(self, path: Path, write: int, moment: str) -> None:
        super().__init__(path)
        self.left, self.moment = write, moment

    def replace(self, snapshot: bytes) -> None:
        self._write(super().replace, snapshot)

    def append(self, entry: bytes) -> None:
        self._write(super().append, entry, whole=False)

    def _write(self, write, data: bytes, whole: bool = True) -> None:
        self.left -= 1
        before = self.path.stat().st_size if self.path.exists() else 0
        if self.left != 0 or self.moment != "before":
            write(data)
        if self.left == 0:
            if self.moment == "within" and not whole:  # a frame that was half written
                os.truncate(self.path, (before + self.path.stat().st_size) // 2)
            os.kill(os.getpid(), signal.SIGKILL)


class Process:
    """The agent behind a pipe; a new process, from the journal, whenever there is none."""

    def __init__(self, world: World, path: Path, write: int, moment: str) -> None:
        self.world, self.path, self.write, self.moment = world, path, write, moment
        self.process, self.deaths = None, 0

    def receive(self, data: bytes) -> list[bytes]:
        if self.process is None:
            self.pipe, other = FORK.Pipe()
            self.process = FORK.Process(target=self._live, args=(other,), daemon=True)
            self.process.start()
            other.close()
        try:
            self.pipe.send(data)
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            self.process, self.write = None, 0  # the next life is not killed
            self.deaths += 1
            raise Killed from None

    def _live(self, pipe) -> None:
        self.world.stores[LEADER] = Deadly(self.path, self.write, self.moment)
        agent = World.agent(self.world, LEADER)
        while True:
            pipe.send(agent.receive(pipe.recv()))


def live(folder: Path, write: int, moment: str) -> tuple[int, bool]:
    """One run with the leader killed once; `World.hand_out` compares every message it ever sent."""
    world = World(tiny(SEED, agents=AGENTS, rows=60), SEED)
    path = folder / f"{write}-{moment}.journal"
    process = Process(world, path, write, moment)
    world.stores[LEADER] = Disk(path)
    world.agent = lambda i: process if i == LEADER else World.agent(world, i)
    outcome = world.run(world.aggregator(world.plan()))
    if process.process is not None:
        process.process.kill()
    return process.deaths, outcome is not None


def main(folder: Path, moments: int) -> None:
    deaths, done = 0, 0
    for write in range(1, 100):
        results = [live(folder, write, MOMENTS[(write + k) % len(MOMENTS)]) for k in range(moments)]
        if not any(killed for killed, _ in results):
            break
        deaths, done = deaths + sum(k for k, _ in results), done + sum(d for _, d in results)
    print(json.dumps({"writes": write - 1, "deaths": deaths, "done": done}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
