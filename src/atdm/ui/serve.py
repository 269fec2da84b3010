"""Watching a run: a live page on an address, a file of events, or both; what `--ui` and `--events` ask for.

The server has a thread of its own and reads the state a few times a second; the run never waits for it.
"""

import contextlib
import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from atdm.deploy.events import Aborted, AnyEvent, Said, to_line
from atdm.errors import AtdmError, UsageError
from atdm.ui import DEFAULT
from atdm.ui.live import LiveState

if TYPE_CHECKING:
    from atdm.ui.site import Site

MOST_CONNECTIONS = 64
CLOSE_SECONDS = 3.0  # for browsers to be told and the server to end
TOKEN_BYTES = 32

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the page is served."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        ip = _ip(self.host)
        return ip.is_loopback if ip is not None else self.host == "localhost"

    @property
    def name(self) -> str:
        """What to call it from elsewhere; on all interfaces by the machine's own name."""
        ip = _ip(self.host)
        return socket.gethostname().lower() if ip is not None and ip.is_unspecified else self.host

    def url(self) -> str:
        return f"http://[{self.name}]:{self.port}/" if ":" in self.name else f"http://{self.name}:{self.port}/"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def parse_address(text: str) -> Address:
    """`HOST:PORT`, with brackets around an IPv6 address."""
    host, _, port = text.strip().lower().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--ui {text}: write HOST:PORT, such as {DEFAULT}")
    return Address(host, int(port))


def bind(address: Address) -> socket.socket:
    """A listening socket, or one line that says why not."""
    where = f"--ui {address.host}:{address.port}"
    try:
        family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        raise UsageError(f"{where}: {why.lower()}; choose another host or port") from None


@contextmanager
def serving(state: LiveState, address: Address, say: Say) -> Iterator["Site"]:
    """The page, from the moment the block is entered; its address, with the token if it needs one, is said once."""
    try:
        import uvicorn

        from atdm.ui.site import Site
    except ImportError:
        raise UsageError("--ui needs starlette and uvicorn: pip install 'atdm[ui]'") from None
    listening = bind(address)
    address = Address(address.host, listening.getsockname()[1])
    token = None if address.loopback else secrets.token_urlsafe(TOKEN_BYTES)
    site = Site(state, frozenset({address.name, "localhost"}), token)
    server = uvicorn.Server(uvicorn.Config(
        site.app, log_config=None, access_log=False, log_level="critical", server_header=False, ws="none",
        lifespan="off", http="h11", limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=1,
    ))  # fmt: skip
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="live page", daemon=True)
    thread.start()
    say(f"live page: {address.url()}" + (f"?token={token}" if token else ""))
    try:
        yield site
    finally:
        site.closing = server.should_exit = True
        thread.join(CLOSE_SECONDS)
        listening.close()


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

    def written(self, report: str, path: Path | None) -> None:
        """The run's report, as a page and where it is on disk."""
        if self.site is not None:
            self.site.report = report
        self.state.written(None if path is None else str(path))


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
