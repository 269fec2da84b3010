"""Connections of a page: so many and no more, and none that only waits."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from atdm.deploy.events import Said
from atdm.ui import door
from atdm.ui.host import Address, hosting
from atdm.ui.live import LiveState
from atdm.ui.site import Site
from tests.report.conftest import get

ASKED = b"GET /report.html HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def page() -> Iterator[tuple[Site, int]]:
    with hosting(lambda names: Site(LiveState(), names, None), Address("127.0.0.1", 0)) as (site, where):
        yield site, where.port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the other end closes."""
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found


def test_connections_above_the_limit_are_closed_at_once_and_the_others_are_served(monkeypatch):
    monkeypatch.setattr(door, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(door, "PATIENCE", 600.0)
    with page() as (_, port), ExitStack() as held:
        first = [held.enter_context(closing(connect(port))) for _ in range(4)]
        for _ in range(40):
            with closing(connect(port)) as refused:
                assert rest_of(refused) == b""
        for connection in first:
            connection.sendall(ASKED + b"Connection: close\r\n\r\n")
            assert rest_of(connection).startswith(b"HTTP/1.1 404")
        assert get(f"http://127.0.0.1:{port}/").status == 200


@pytest.mark.parametrize(("opening", "answers"), [
    (b"", 0), (ASKED, 0), (ASKED + b"\r\n" + ASKED, 1), (ASKED + b"Content-Length: 9\r\n\r\n.", 1),
])  # fmt: skip
def test_a_connection_without_a_whole_request_is_closed(monkeypatch, opening, answers):
    monkeypatch.setattr(door, "PATIENCE", 0.2)
    with page() as (_, port), closing(connect(port)) as connection:
        connection.sendall(opening)
        assert rest_of(connection).count(b"HTTP/1.1 404") == answers


def test_an_answer_that_lasts_is_not_cut_off(monkeypatch):
    monkeypatch.setattr(door, "PATIENCE", 0.2)
    with page() as (site, port), closing(connect(port)) as stream:
        stream.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(3):
            with closing(connect(port)) as idle:
                assert rest_of(idle) == b""
        site.state.take(Said("still here"))
        found = b""
        while b"still here" not in found:
            assert (more := stream.recv(65536))
            found += more


def test_the_process_may_open_as_many_files_as_the_system_allows():
    resource = pytest.importorskip("resource", reason="this system has no such limit")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        with page():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
