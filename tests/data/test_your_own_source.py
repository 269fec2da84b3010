"""The source that docs/deploy.md shows how to write, installed as a package would install it."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from atdm.data.sources import open_source
from atdm.errors import DataError, UsageError

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
START, STEP, ROWS = 1_704_067_200, 1800, 48


class Readings(BaseHTTPRequestHandler):
    """A gateway that answers as the example says."""

    asked: list[str] = []

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        Readings.asked.append(self.path)
        after = int(parse_qs(urlsplit(self.path).query)["after"][0])
        rows = [{"t": START + STEP * i, "celsius": 20 + i / 10, "watts": 100 * i} for i in range(ROWS)]
        body = json.dumps([row for row in rows if row["t"] > after]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def gateway():
    server = HTTPServer(("127.0.0.1", 0), Readings)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """What pip would have put there: the module, and meta data that name the entry point."""
    page = PAGE.read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    [group, line] = re.search(r'^    \[project.entry-points."(.+)"\]\n    (.+)\n', page, re.M).groups()
    assert len(code.partition("class ")[2].splitlines()) <= 20
    (tmp_path / "my_package.py").write_text(code)
    meta = tmp_path / "my_package-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_source_of_twenty_lines_is_installed_and_read(installed, gateway):
    source = open_source(f"gateway:{gateway}", {"zone": "3"})
    rows = source.rows()
    np.testing.assert_array_equal(rows.time, START + STEP * np.arange(ROWS))
    np.testing.assert_allclose(rows.load, np.arange(ROWS) / 10)
    assert len(source.rows(START + 10 * STEP)) == ROWS - 11
    assert Readings.asked[-1] == f"/api/zones/3/readings?after={START + 10 * STEP}"


def test_the_example_says_in_one_line_that_its_gateway_is_off(installed):
    with pytest.raises(DataError, match="^gateway:http://127.0.0.1:9: does not answer: see that the gateway is on$"):
        open_source("gateway:http://127.0.0.1:9").rows()


def test_without_its_package_the_source_is_not_known(gateway):
    with pytest.raises(UsageError, match="gateway: unknown kind of source: use a path, homeassistant:, sql:"):
        open_source(f"gateway:{gateway}")
