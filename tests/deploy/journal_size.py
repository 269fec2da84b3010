"""What an agent writes to its disk in a year: `python -m tests.deploy.journal_size --days 365 --every 1`.

A real agent among three, by an aggregator that asks every few hours for the hours since; bytes of files written and
how often the disk was made to write. With more homes only Keys are longer, by some 130 bytes each (`--homes`).
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from atdm.transport import disk, local
from tests.clusters import tiny
from tests.protocol.world import World

FRAME = 48  # bytes of a frame besides its content


class Counting:
    """Bytes and writes of one agent's journal."""

    def __init__(self) -> None:
        self.bytes, self.writes = 0, 0

    def force(self, file: object) -> None:
        """In place of fsync."""
        file.flush()
        self.writes += 1

    def replaced(self, write: object) -> object:
        def replace_file(path: Path, data: bytes) -> None:
            self.bytes += len(data)
            write(path, data)

        return replace_file


class Watched(disk.Disk):
    """A journal that is counted."""

    def __init__(self, path: Path, counting: Counting) -> None:
        super().__init__(path)
        self.counting = counting

    def append(self, entry: bytes) -> None:
        self.counting.bytes += len(entry) + FRAME
        super().append(entry)


def year(folder: Path, days: int, every: int, homes: int = 3) -> Counting:
    """every: hours between two askings."""
    counting = Counting()
    with ExitStack() as held:
        world = World(tiny(1, agents=homes, rows=24 * days + 24, step="1h"), 1)
        held.enter_context(patch.object(disk, "_force", counting.force))
        held.enter_context(patch.object(disk, "_force_folder", lambda _: None))
        held.enter_context(patch.object(disk, "replace_file", counting.replaced(disk.replace_file)))
        world.stores = [Watched(folder / "journal", counting), *world.stores[1:]]
        agents = [world.agent(i) for i in range(homes)]
        for row in range(0, 24 * days, every):
            local.run(world.aggregator(world.collect(row, every)), agents)
    return counting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--homes", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = year(Path(folder), given.days, given.every, given.homes)
        on_disk = sum(path.stat().st_size for path in Path(folder).iterdir())
    print(
        f"{given.days} days, rows of an hour asked for every {given.every} h, {given.homes} homes: "
        f"{found.bytes / 1e6:.1f} MB in {found.writes} writes; {on_disk / 1e3:.0f} kB at the end"
    )


if __name__ == "__main__":
    main()
