"""Nobody's readings or weights are in what the aggregator of a deployment ends with, or shows while it runs."""

import base64
import gzip
import html
import json
import zlib
from urllib.parse import quote

import numpy as np
import pytest

import atdm
from atdm.report.page import fit_page
from tests.report.conftest import LiveRun
from tests.report.scan import Scan


@pytest.fixture(scope="module")
def truth(cluster: atdm.Cluster, live_run: LiveRun) -> atdm.Fit:
    """The same fit with everybody in this process: its weights are those of the run's agents."""
    fit = atdm.fit(cluster, order=1, dither=0.0)
    live_run.finish()
    np.testing.assert_allclose(json.loads(live_run.printed)["model"]["alpha"], fit.model.alpha, rtol=1e-9)
    return fit


def everything(run: LiveRun) -> list[str | bytes]:
    """The report and every other file, the live page, all it was sent, and what was printed."""
    files = {path.name: path.read_bytes() for path in run.output.iterdir()}
    assert {"report.html", "model.json", "series.csv", "ledger.json", "metrics.json"} <= files.keys()
    return [*files.values(), run.page, run.stream, run.printed]


def test_the_files_and_the_live_page_of_a_deployed_run_have_nothing_of_any_agent(
    live_run: LiveRun, truth: atdm.Fit, cluster: atdm.Cluster
) -> None:
    scan, weights = Scan(*everything(live_run)), truth.weights
    assert weights is not None and not scan.finds_weights(weights.to_numpy())
    for agent in cluster.agents:
        for readings in (cluster.temperature[agent], cluster.load[agent]):
            assert not scan.finds_series(readings.to_numpy(float)), agent
    assert scan.finds_series(truth.state.to_numpy(float)), "what was released is there, and found"
    report = (live_run.output / "report.html").read_text(encoding="utf-8")
    assert not [agent for agent in cluster.agents if agent in report]
    assert 'id="weights"' not in report and 'id="zones"' not in report


def test_the_page_of_a_simulation_shows_weights_and_is_caught(simulated: atdm.Fit, cluster: atdm.Cluster) -> None:
    assert simulated.weights is not None
    assert Scan(fit_page(simulated, "simulated", cluster=cluster)).finds_weights(simulated.weights.to_numpy())


def decimals(form: str):  # type: ignore[no-untyped-def]
    return lambda values: json.dumps({"values": [float(form.format(v)) for v in values.tolist()]})


def packed(kind: str):  # type: ignore[no-untyped-def]
    return lambda values: base64.b64encode(values.astype(kind).tobytes()).decode()


ENCODINGS = {
    "JSON, 2 decimals": decimals("{:.2f}"),
    "JSON, 3 digits": decimals("{:.3g}"),
    "JSON, 5 digits": decimals("{:.5g}"),
    "JSON, all digits": decimals("{!r}"),
    "JSON in an attribute": lambda values: f'<i data-x="{html.escape(json.dumps({"v": values.tolist()}))}">',
    "a column of a table": lambda values: "\n".join(f"2024-01-01T00:00Z,{v:.3f},7" for v in values),
    "table cells": lambda values: "".join(f"<tr><td>{i}</td><td>{v:.4f}</td></tr>" for i, v in enumerate(values)),
    "percent signs": lambda values: quote(json.dumps(values.tolist())),
    "centred": lambda values: json.dumps((values - 20.0).round(3).tolist()),
    "base64, float64 little-endian": packed("<f8"),
    "base64, float64 big-endian": packed(">f8"),
    "base64, float32 little-endian": packed("<f4"),
    "base64, float32 big-endian": packed(">f4"),
    "base64, safe for addresses": lambda values: base64.urlsafe_b64encode(values.tobytes()).decode().rstrip("="),
    "base64, fixed point": lambda values: base64.b64encode(np.rint(values * 2**16).astype("<i8").tobytes()).decode(),
    "base64 of JSON": lambda values: base64.b64encode(json.dumps(values.tolist()).encode()).decode(),
    "hexadecimal": lambda values: values.tobytes().hex(),
    "compressed floats": lambda values: base64.b64encode(zlib.compress(values.tobytes())).decode(),
    "compressed text": lambda values: base64.b64encode(gzip.compress(json.dumps(values.tolist()).encode())).decode(),
}  # fmt: skip


WORTHLESS_FOR_WEIGHTS = ("JSON, 2 decimals", "centred", "base64, fixed point")  # nothing is left of a twelfth in them


@pytest.fixture(scope="module")
def innocent(deployed: atdm.Fit) -> str:
    return fit_page(deployed, "deployed")


@pytest.mark.parametrize("how", ENCODINGS)
def test_the_scan_finds_one_agents_series_and_the_weights_in_any_dress(
    innocent: str, simulated: atdm.Fit, cluster: atdm.Cluster, how: str
) -> None:
    assert simulated.weights is not None
    weights, temperature = simulated.weights.to_numpy(), cluster.temperature["zone03"].to_numpy(float)
    load, other = cluster.load["zone04"].to_numpy(float), cluster.temperature["zone05"].to_numpy(float)
    planted = "".join(f"<div>{ENCODINGS[how](values)}</div>" for values in (temperature, load, weights))
    scan = Scan(innocent.replace("</main>", f"{planted}</main>"))
    assert scan.finds_series(temperature) and scan.finds_series(load)
    assert scan.finds_weights(weights) or how in WORTHLESS_FOR_WEIGHTS
    assert not scan.finds_series(other), "and says so of nobody else"


@pytest.mark.parametrize("weight", [0.08461234567, 0.08461896123, 0.08461003210], ids=["digits", "one 0", "two 0s"])
@pytest.mark.parametrize("form", ["{:.8f}", "{:.6g}", "{:.10e}", "{!r}"])
def test_the_scan_finds_a_single_weight(innocent: str, simulated: atdm.Fit, form: str, weight: float) -> None:
    assert simulated.weights is not None
    weights = simulated.weights.to_numpy().copy()
    assert not Scan(innocent).finds_weights(weights)
    weights[4] = weight  # known digits: those of a run differ from run to run, and end in a 0 now and then
    assert Scan(f"{innocent}<p>{form.format(weight)}</p>").finds_weights(weights)


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", ">f4"])
def test_the_scan_finds_the_bytes_of_a_single_weight(simulated: atdm.Fit, kind: str) -> None:
    assert simulated.weights is not None
    weights = simulated.weights.to_numpy()
    hidden = base64.b64encode(b"some header " + weights[4:5].astype(kind).tobytes()).decode()
    assert Scan(f"<p>{hidden}</p>").finds_weights(weights)
