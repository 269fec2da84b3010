"""Fits to report on, made once, and a browser to look at their pages with."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atdm
from tests.clusters import tiny


@pytest.fixture(scope="session")
def cluster() -> atdm.Cluster:
    return tiny(3, agents=12, rows=200)


@pytest.fixture(scope="session")
def simulated(cluster: atdm.Cluster) -> atdm.Fit:
    """Every agent in this process: the fit has their weights."""
    return atdm.fit(cluster, order=1)


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
