"""The owner's page over HTTP: it reads, but for one POST, the owner's choice, which must come from the page itself."""

from collections.abc import Sequence

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from atdm.errors import AtdmError
from atdm.options import OwnerChoice
from atdm.ui.guard import Guard, changes, from_own_page
from atdm.ui.host import new_token
from atdm.ui.owner import Home, page

MOST_BYTES = 1000  # of a request's body


class Switched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a switch sends."""

    home: int
    choice: OwnerChoice


class OwnerSite:
    """The page, its events and its switches."""

    def __init__(self, homes: Sequence[Home], names: frozenset[str], token: str | None) -> None:
        self.homes, self._word = homes, new_token()
        self.closing = False
        routes = [
            Route("/", self._page), Route("/events", self._events), Route("/choice", self._choose, methods=["POST"]),
        ]  # fmt: skip
        self.app: ASGIApp = Guard(Starlette(routes=routes), names, token)

    def _asked(self, request: Request) -> int:
        """Which home; the first where none is named, or none that is here."""
        given = request.query_params.get("home", "")
        return int(given) if given in map(str, range(len(self.homes))) else 0

    async def _page(self, request: Request) -> Response:
        text, policy = page(self.homes, self._asked(request), self._word)
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    async def _events(self, request: Request) -> Response:
        told = changes(self.homes[self._asked(request)], lambda: self.closing)
        return StreamingResponse(told, media_type="text/event-stream")

    async def _choose(self, request: Request) -> Response:
        if not from_own_page(request, self._word):
            return PlainTextResponse("Use the switches of this page, opened anew.\n", 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return PlainTextResponse("That is longer than a switch.\n", 413)
        try:
            wanted = msgspec.json.decode(body, type=Switched)
            home = self.homes[wanted.home] if wanted.home >= 0 else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError):
            home = None
        if home is None:
            return PlainTextResponse("That is no switch of this page.\n", 400)
        try:
            home.choose(wanted.choice)
        except AtdmError as error:
            return PlainTextResponse(f"{error}\n", 409)
        return Response(status_code=204)
