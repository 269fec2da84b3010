"""The live page over HTTP, as an ASGI application that only reads.

Rule 1: a request must name this server in its Host header, so that no other site's name can be pointed at it.
Rule 2: where there is a token, nothing is answered without it. It arrives in the address once, is moved into a cookie
        that scripts cannot read, and leaves the address bar.
Rule 3: every answer carries the headers: its own style and script, no other origin, nothing kept by caches.
"""

import asyncio
import hmac
import ipaddress
import json
import time
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atdm.kernel.finite import without_nan
from atdm.report.page import policy
from atdm.ui.live import LiveState, live_page

EVERY = 0.2  # s between two looks at the state
QUIET = 10.0  # s after which something is sent although nothing happened, so that both ends know of each other
COOKIE = "atdm"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",  # a page brings its own
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Site:
    """The page, its events, and the report once there is one."""

    def __init__(self, state: LiveState, names: frozenset[str], token: str | None) -> None:
        self.state = state
        self.report: str | None = None
        self.closing = False
        routes = [Route("/", self._page), Route("/events", self._events), Route("/report.html", self._report)]
        self.app: ASGIApp = Guard(Starlette(routes=routes), names, token)

    async def changes(self) -> AsyncIterator[str]:
        """Everything, then what changes. Nothing is queued: a reader that was away gets what is new since."""
        seen, sent = 0, 0.0
        while not self.closing:
            version, sections = self.state.since(seen)
            if sections or time.monotonic() - sent > QUIET:
                yield _line("change", {**sections, "clocks": self.state.clocks()})
                seen, sent = version, time.monotonic()
            await asyncio.sleep(EVERY)
        yield _line("change", self.state.since(seen)[1])
        yield _line("gone", {})

    async def _page(self, _: Request) -> Response:
        page, allowed = live_page()
        return HTMLResponse(page, headers={"Content-Security-Policy": allowed})

    async def _events(self, _: Request) -> Response:
        return StreamingResponse(self.changes(), media_type="text/event-stream")

    async def _report(self, _: Request) -> Response:
        if self.report is None:
            return PlainTextResponse("There is no report yet.\n", 404)
        return HTMLResponse(self.report, headers={"Content-Security-Policy": f"{policy()}; frame-ancestors 'none'"})


def _line(kind: str, content: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(without_nan(content), allow_nan=False)}\n\n"


class Guard:
    """Before any route: the name and the token. After it: the headers."""

    def __init__(self, app: ASGIApp, names: frozenset[str], token: str | None) -> None:
        self._app, self._names, self._token = app, names, token

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
            return self._enter(request.query_params["token"])
        if not self._is_token(request.cookies.get(COOKIE, "")):
            return PlainTextResponse("Open the address that the command printed at its start: it has the token.\n", 403)
        return None

    def _enter(self, given: str) -> Response:
        if not self._is_token(given):
            return PlainTextResponse("This is not the token of this run.\n", 403)
        moved = RedirectResponse("/", 303)
        moved.set_cookie(COOKIE, given, httponly=True, samesite="lax")
        return moved

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self._token or "").encode())

    def _is_ours(self, host: str) -> bool:
        """One of our names, or an address: only a name can be pointed somewhere else than where it came from."""
        return host in self._names or _is_address(host)


def host_of(header: str) -> str:
    """The name in a Host header; the port may be another one, as with `ssh -L`."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
