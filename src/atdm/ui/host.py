"""A page on an address: where it listens, the token it needs there, and the server behind it.

The server has a thread of its own and reads a few times a second what it shows; what is shown never waits for it.
"""

import ipaddress
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from atdm.errors import UsageError
from atdm.ui import DEFAULT

if TYPE_CHECKING:
    from starlette.types import ASGIApp

CLOSE_SECONDS = 3.0  # for browsers to be told and the server to end
TOKEN_BYTES = 32


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
    try:
        family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        where = f"the page at {address.host}:{address.port}"
        raise UsageError(f"{where}: {why.lower()}; choose another host or port") from None


def raise_file_limit() -> None:
    """As many open files as the system lets this process have: connections of a page come beside its own files."""
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # a system whose greatest number means none
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


class Served(Protocol):
    """A site: its application, and whether its streams are to end."""

    app: "ASGIApp"
    closing: bool


S = TypeVar("S", bound=Served)


@contextmanager
def hosting(make: Callable[[frozenset[str]], S], address: Address) -> Iterator[tuple[S, Address]]:
    """A site made with the names it goes by, and where it is, from the moment the block is entered."""
    try:
        import uvicorn

        from atdm.ui.door import ACCEPTED_AT_ONCE, Door

        site = make(frozenset({address.name, "localhost"}))
    except ImportError:
        raise UsageError("--ui needs starlette and uvicorn: pip install 'atdm[ui]'") from None
    raise_file_limit()
    listening = bind(address)
    address = Address(address.host, listening.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(
        site.app, log_config=None, access_log=False, log_level="critical", server_header=False, ws="none",
        lifespan="off", http=Door, backlog=ACCEPTED_AT_ONCE, timeout_graceful_shutdown=1, proxy_headers=False,
    ))  # fmt: skip  # proxy_headers: any program on this machine could name another address as its own
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="page", daemon=True)
    thread.start()
    try:
        yield site, address
    finally:
        site.closing = server.should_exit = True
        thread.join(CLOSE_SECONDS)
        listening.close()
