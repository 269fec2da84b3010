"""What stands before every page: who may ask, what each answer carries, and how a page is told of changes.

Rule 1: a request must name this server in its Host header, so that no other site's name can be pointed at it.
Rule 2: where there is a token, nothing is answered without it. It arrives in the address once and leaves the address
        bar; a cookie that scripts cannot read stands for it until the server ends: browsers send cookies to every port
        of a host, so it is never the token itself. Programs send that as `Authorization: Bearer …`.
Rule 3: every answer carries the headers: its own style and script, no other origin, nothing kept by caches.
Rule 4: a request that changes something is a POST from a page of this server's own, with the word that only that page
        has (`from_own_page`).
"""

import asyncio
import hmac
import ipaddress
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atdm.kernel.finite import without_nan

EVERY = 0.2  # s between two looks at the state
QUIET = 10.0  # s after which something is sent although nothing happened, so that both ends know of each other
SESSION_BYTES = 32
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",  # a page brings its own
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Sections(Protocol):
    """What a page shows, by sections that change."""

    def since(self, version: int) -> tuple[int, dict[str, Any]]:
        """The version now, and the sections that changed after `version` (0: all of them)."""

    def clocks(self) -> dict[str, float]:
        """Seconds that pass whether or not anything happens."""


async def changes(state: Sections, closing: Callable[[], bool]) -> AsyncIterator[str]:
    """Everything, then what changes. Nothing is queued: a reader that was away gets what is new since."""
    seen, sent = 0, 0.0
    while not closing():
        version, sections = state.since(seen)
        if sections or time.monotonic() - sent > QUIET:
            yield _line("change", {**sections, "clocks": state.clocks()})
            seen, sent = version, time.monotonic()
        await asyncio.sleep(EVERY)
    yield _line("change", state.since(seen)[1])
    yield _line("gone", {})


def _line(kind: str, content: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(without_nan(content), allow_nan=False)}\n\n"


class Guard:
    """Before any route: the name and the token. After it: the headers."""

    def __init__(self, app: ASGIApp, names: frozenset[str], token: str | None) -> None:
        self._app, self._names, self._token = app, names, token
        self._session = secrets.token_urlsafe(SESSION_BYTES)  # what the cookie holds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._stop(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, secured)

    def _stop(self, request: Request) -> Response | None:
        """The answer to a request that goes no further."""
        if not self._is_ours(host_of(request.headers.get("host", ""))):
            return PlainTextResponse("This server goes by another name.\n", 421)
        if self._token is None:
            return None
        if "token" in request.query_params:
            return self._enter(request)
        if "authorization" in request.headers:
            if _same(request.headers["authorization"].removeprefix("Bearer "), self._token):
                return None
            return PlainTextResponse("This is not the token.\n", 401, headers={"WWW-Authenticate": "Bearer"})
        if not _same(request.cookies.get(_cookie(request), ""), self._session):
            return PlainTextResponse("Open the address that the command printed at its start: it has the token.\n", 403)
        return None

    def _enter(self, request: Request) -> Response:
        if self._token is None or not _same(request.query_params["token"], self._token):
            return PlainTextResponse("This is not the token of this run.\n", 403)
        moved = RedirectResponse("/", 303)
        moved.set_cookie(_cookie(request), self._session, httponly=True, samesite="lax", secure=_over_tls(request))
        return moved

    def _is_ours(self, host: str) -> bool:
        """One of our names, or an address: only a name can be pointed somewhere else than where it came from."""
        return host in self._names or _is_address(host)


def host_of(header: str) -> str:
    """The name in a Host header; the port may be another one, as with `ssh -L`."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _same(given: str, kept: str) -> bool:
    return hmac.compare_digest(given.encode(), kept.encode())


def _cookie(request: Request) -> str:
    """By the port that the browser asks for, or services of one host would overwrite each other's."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"atdm-{port}" if port.isascii() and port.isdigit() else "atdm"


def _over_tls(request: Request) -> bool:
    """Whether a proxy on this machine says that the browser came to it by https."""
    peer = request.client.host if request.client else ""
    local = _is_address(peer) and ipaddress.ip_address(peer).is_loopback
    return local and request.headers.get("x-forwarded-proto", "").strip().lower() == "https"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def from_own_page(request: Request, word: str) -> bool:
    """Whether a POST comes from a page of this server: browsers name the origin, and only the page has the word."""
    origin = request.headers.get("origin", "")
    ours = origin.partition("://")[2].lower() == request.headers.get("host", "").lower() != ""
    return ours and _same(request.headers.get("x-atdm-word", ""), word)
