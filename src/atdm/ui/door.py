"""The connections of a page's server, so that a stranger cannot use up what the process needs for its own files.

Rule 1: above MOST_CONNECTIONS a connection is closed at once, before anything is read from it.
Rule 2: a connection is closed on which nothing is being answered and no request has come for PATIENCE seconds.

uvicorn has no such limits: its `limit_concurrency` looks at requests, and a connection without one stays open.
"""

import asyncio
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

MOST_CONNECTIONS = 64
ACCEPTED_AT_ONCE = 16  # connections that can be open for a moment before they are closed by Rule 1
PATIENCE = 10.0  # s


class Door(asyncio.Protocol):
    """Stands before uvicorn's protocol of one connection."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        self._made_of, self._open = (config, server_state, app_state, _loop), server_state.connections
        self._http: H11Protocol | None = None  # None: not let in
        self._timer: asyncio.TimerHandle | None = None
        self._seen: RequestResponseCycle | None = None  # the newest request at the last look

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a socket's is one
        if len(self._open) >= MOST_CONNECTIONS:
            transport.abort()
            return
        self._http = H11Protocol(*self._made_of)
        self._http.connection_made(transport)
        self._look_later(self._http)

    def _look_later(self, http: H11Protocol) -> None:
        self._timer = http.loop.call_later(PATIENCE, self._look, http)

    def _look(self, http: H11Protocol) -> None:
        newest: RequestResponseCycle | None = http.cycle
        if newest is None or (newest is self._seen and newest.response_complete):
            http.transport.abort()
        else:
            self._seen = newest
            self._look_later(http)

    def data_received(self, data: bytes) -> None:
        if self._http is not None:
            self._http.data_received(data)

    def eof_received(self) -> None:
        if self._http is not None:
            self._http.eof_received()

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._http is not None:
            self._http.connection_lost(error)
