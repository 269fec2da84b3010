"""Watching a run: a live page on an address, a file of events, or both; what `--ui` and `--events` ask for."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from atdm.deploy.events import Aborted, AnyEvent, Said, to_line
from atdm.errors import AtdmError, UsageError
from atdm.ui.host import Address, hosting, new_token, parse_address
from atdm.ui.live import LiveState

if TYPE_CHECKING:
    from atdm.ui.site import Site

Say = Callable[[str], None]


@contextmanager
def serving(state: LiveState, address: Address, say: Say) -> Iterator["Site"]:
    """The live page, from the moment the block is entered; its address is said once, with the token if it needs one."""
    token = None if address.loopback else new_token()

    def make(names: frozenset[str]) -> "Site":
        from atdm.ui.site import Site

        return Site(state, names, token)

    with hosting(make, address) as (site, where):
        say(f"live page: {where.url()}" + (f"?token={token}" if token else ""))
        yield site


class Watch:
    """Where a command reports what happens."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.state = LiveState()
        self.site: Site | None = None
        self.file: BinaryIO | None = None

    def report(self, event: AnyEvent) -> None:
        """Never fails and never waits: watching a run must not disturb it."""
        self.state.take(event)
        if self.file is not None:
            try:
                self.file.write(to_line(event))
            except OSError as error:
                self.file = None
                self._say(f"no more events are written: {error.strerror}")

    def say(self, text: str) -> None:
        """A line for people, here and on the page."""
        self._say(text)
        self.report(Said(text))

    def written(self, report: str, path: Path | None, good: str = "") -> None:
        """The run's report, as a page and where it is on disk; good: how good the model is, in a sentence."""
        if self.site is not None:
            self.site.report = report
        self.state.written(None if path is None else str(path), good)


@contextmanager
def watching(ui: str | None, linger: float | None, events: Path | None, say: Say) -> Iterator[Watch]:
    """Watch a command. A page stays after the end, for `linger` seconds or, if None, until Ctrl-C."""
    watch = Watch(say)
    with ExitStack() as held:
        if events is not None:
            watch.file = held.enter_context(_opened(events))
        if ui is None:
            yield watch
            return
        watch.site = held.enter_context(serving(watch.state, parse_address(ui), say))
        try:
            yield watch
        except AtdmError as error:
            if not watch.state.ended:
                watch.report(Aborted(str(error)))
            if not watch.state.stopped:
                _stay(linger, say, f"ended without a result ({error})")
            raise
        _stay(linger, say, "done")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise UsageError(f"--events {path}: {error.strerror}; choose a file you may write to") from None


def _stay(linger: float | None, say: Say, how: str) -> None:
    if linger is not None and linger <= 0:
        return
    say(f"{how}; the live page stays " + ("until Ctrl-C" if linger is None else f"for {linger:g} s"))
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait(linger)
