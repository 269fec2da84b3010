"""The live page over HTTP, as an ASGI application that only reads, behind a guard (guard.py)."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from atdm.report.page import policy
from atdm.ui.guard import Guard, changes
from atdm.ui.live import LiveState, live_page


class Site:
    """The page, its events, and the report once there is one."""

    def __init__(self, state: LiveState, names: frozenset[str], token: str | None) -> None:
        self.state = state
        self.report: str | None = None
        self.closing = False
        routes = [Route("/", self._page), Route("/events", self._events), Route("/report.html", self._report)]
        self.app: ASGIApp = Guard(Starlette(routes=routes), names, token)

    async def _page(self, _: Request) -> Response:
        page, allowed = live_page()
        return HTMLResponse(page, headers={"Content-Security-Policy": allowed})

    async def _events(self, _: Request) -> Response:
        return StreamingResponse(changes(self.state, lambda: self.closing), media_type="text/event-stream")

    async def _report(self, _: Request) -> Response:
        if self.report is None:
            return PlainTextResponse("There is no report yet.\n", 404)
        return HTMLResponse(self.report, headers={"Content-Security-Policy": f"{policy()}; frame-ancestors 'none'"})
