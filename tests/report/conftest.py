"""Fits to report on, made once, and a browser to look at their pages with."""

import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import atdm
from tests.clusters import tiny
from tests.deploy.test_rehearse import write_tables


@pytest.fixture(scope="session")
def cluster() -> atdm.Cluster:
    return tiny(3, agents=12, rows=200)


@pytest.fixture(scope="session")
def simulated(cluster: atdm.Cluster) -> atdm.Fit:
    """Every agent in this process: the fit has their weights."""
    return atdm.fit(cluster, order=1)


@pytest.fixture(scope="session")
def equal(cluster: atdm.Cluster) -> atdm.Fit:
    """With equal weights: the agents showed rows, the model is the aggregator's own."""
    return atdm.fit(cluster, order=1, weights="equal")


@pytest.fixture(scope="session")
def deployed(simulated: atdm.Fit) -> atdm.Fit:
    """What the aggregator of a deployment ends with."""
    return replace(simulated, weights=None, transcript={})


@pytest.fixture(scope="module")  # its event loop must not outlive the module
def browser() -> Iterator[Any]:
    """A chromium that is installed; nothing is downloaded."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'atdm[browser]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        pytest.skip("no chromium on this machine: `make browser`, or install one")
    with api.sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        except api.Error as error:
            pytest.skip(f"chromium does not start here: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def page_file(simulated: atdm.Fit, cluster: atdm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from atdm.report.page import fit_page

    path = tmp_path_factory.mktemp("page") / "report.html"
    findings = [{"attack": "rotation", "adversary": "aggregator", "agents": 12, "recovered": 0, "rmse_c": 0.9}]
    path.write_text(fit_page(simulated, "twelve zones", cluster=cluster, findings=findings), encoding="utf-8")
    return path


class LiveRun:
    """`atdm rehearse --ui` as a person starts it, with a reader of everything its page is sent."""

    def __init__(self, zones: Path, weather: Path, folder: Path) -> None:
        self.output, self._printed, self._said = folder / "out", folder / "stdout", folder / "stderr"
        options = {
            "--order": 1, "--dither": 0, "--weights": "fitted", "--agents-per-process": 6, "--ui": "127.0.0.1:0",
            "-o": self.output,
        }  # fmt: skip
        words = ["rehearse", zones, weather, "--json", *(word for option in options.items() for word in option)]
        with self._printed.open("wb") as stdout, self._said.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "atdm", *map(str, words)], stdout=stdout, stderr=stderr,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        self.url = self.until(r"live page: (http://127\.0\.0\.1:\d+/)\n")[1]
        self.page = self.stream = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, pattern: str, patience: float = 90.0) -> re.Match[str]:
        """Wait for words on stderr."""
        end = time.monotonic() + patience
        while not (found := re.search(pattern, self._said.read_text())):
            assert time.monotonic() < end and self.process.poll() is None, self._said.read_text()
            time.sleep(0.05)
        return found

    def finish(self) -> None:
        """Wait until the page is all that is left; then Ctrl-C."""
        if self.process.returncode is None:
            self.until("done; the live page stays until Ctrl-C")
            self.process.send_signal(signal.SIGINT)
            assert self.process.wait(20) == 0
            self._reader.join(10)

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(20)

    def _read(self) -> None:
        self.page = get(self.url).text
        self.stream = get(f"{self.url}events").text


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


def get(url: str, method: str = "GET", **headers: str) -> Answer:
    """What a server says, whole; redirects are not followed."""
    host, _, path = url.removeprefix("http://").partition("/")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=90)) as connection:
        connection.request(method, f"/{path}", headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())


@pytest.fixture(scope="session")
def live_run(cluster: atdm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    """Under way when a test first asks for it."""
    pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")
    folder = tmp_path_factory.mktemp("live")
    run = LiveRun(*write_tables(cluster, folder), folder)
    yield run
    run.close()
