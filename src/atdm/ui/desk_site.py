"""The desk over HTTP: its page and its API, as an ASGI application that only reads, behind a guard (guard.py).

Rule 1: whoever asks shows the token: in the header `Authorization: Bearer …`, or in the cookie that the page's address
        leaves. On the loopback interface the rules may do without.
Rule 2: a request has no body, and an address has a number of requests in a minute. The address is the connection's:
        what a header says of another one can be forged. Whoever has no token is refused without being counted, which
        costs as little, and so uses up nothing of those who come by the same proxy.
Rule 3: nothing changes anything.
"""

import time
from collections import OrderedDict
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from atdm.deploy.service_state import Health
from atdm.report.desk_page import desk_page, frame
from atdm.ui.desk import PARTS, Board, metrics, openapi
from atdm.ui.guard import Guard, changes

MOST_ADDRESSES = 1024  # that are counted at once; the one heard of least recently is forgotten
OLD = 600.0  # s without a word of the desk after which it is not healthy: it says something every minute


class DeskSite:
    """The page, its events, and what programs can ask."""

    def __init__(self, board: Board, names: frozenset[str], token: str | None, requests_per_minute: int) -> None:
        self.board, self.closing = board, False
        routes = [
            Route("/", self._page), Route("/events", self._events), Route("/openapi.json", self._openapi),
            Route("/health", self._part), Route("/metrics", self._metrics), Route("/v1/model.json", self._model),
            *(Route(path, self._part) for path in PARTS),
        ]  # fmt: skip
        self.app: ASGIApp = Guard(Limit(Starlette(routes=routes), requests_per_minute), names, token)

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(desk_page(self.board.sections()), headers={"Content-Security-Policy": frame()[1]})

    async def _events(self, _: Request) -> Response:
        return StreamingResponse(changes(self.board, lambda: self.closing), media_type="text/event-stream")

    async def _part(self, request: Request) -> Response:
        state, path = self.board.state, request.url.path
        name, _, _ = PARTS["/v1/health" if path == "/health" else path]
        if state is None:
            return PlainTextResponse("The desk is starting: ask again.\n", 503)
        found: Any = state if name is None else getattr(state, name)
        if found is None:
            return PlainTextResponse(f"There is no {name} yet.\n", 404)
        if name == "health" and self.board.age > OLD:
            found = Health(ok=False, why=[*found.why, f"the desk has said nothing for {self.board.age:.0f} s"])
        code = 503 if name == "health" and not found.ok else 200
        return Response(msgspec.json.encode(found), code, media_type="application/json")

    async def _model(self, _: Request) -> Response:
        if self.board.model_json is None:
            return PlainTextResponse("There is no model yet.\n", 404)
        return Response(self.board.model_json, media_type="application/json")

    async def _metrics(self, _: Request) -> Response:
        if self.board.state is None:
            return PlainTextResponse("The desk is starting: ask again.\n", 503)
        return Response(metrics(self.board.state), media_type="text/plain; version=0.0.4")

    async def _openapi(self, _: Request) -> Response:
        return Response(msgspec.json.encode(openapi()), media_type="application/json")


class Limit:
    """Rule 2, before a page looks at a request."""

    def __init__(self, app: ASGIApp, per_minute: int) -> None:
        self._app, self._per_second, self._most = app, per_minute / 60.0, float(per_minute)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address → requests left, when  [s]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._stop(Request(scope)) if scope["type"] == "http" else None
        await (self._app if answer is None else answer)(scope, receive, send)

    def _stop(self, request: Request) -> Response | None:
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            return PlainTextResponse("A request to the desk has no body.\n", 413, headers={"Connection": "close"})
        if not self._take(request.client.host if request.client else ""):
            return PlainTextResponse("Too many requests: ask less often.\n", 429, headers={"Retry-After": "60"})
        return None

    def _take(self, address: str) -> bool:
        now = time.monotonic()
        left, when = self._left.pop(address, (self._most, now))
        left = min(self._most, left + (now - when) * self._per_second)
        self._left[address] = (max(left - 1.0, 0.0), now)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1.0
