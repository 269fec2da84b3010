"""The benchmark measures what it says: a run, its floor, its bytes. Figures themselves are for `make bench`."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import atdm
from atdm.cli import main
from atdm.errors import UsageError
from atdm.lab.bench import ROWS_OF, TIMES, bench_one, options_for, parse_sizes, synthetic
from atdm.report.bench_page import bench_page

KEYS = {"agents", "protocol", "weights", "seconds", "setup_seconds", "floor_seconds", "bytes_up_per_agent", "sums",
        "peak_rss_mb"}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    """Two sizes of few rows, each measured a few times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atdm.lab.bench.TIMES", 3)
        clusters = [synthetic(agents, rows=420) for agents in (12, 24)]
        return [bench_one(cluster, *how) for cluster in clusters for *how, _ in ROWS_OF]


def pair(rows: list[dict], protocol: str, weights: str = "fitted") -> list[dict]:
    return [row for row in rows if (row["protocol"], row["weights"]) == (protocol, weights)]


def test_every_row_has_what_the_contract_promises(rows: list[dict]) -> None:
    for row in rows:
        assert row.keys() >= KEYS
        assert row["protocol"] == "plain" or 0 < row["floor_seconds"] < row["seconds"]
    assert TIMES == 16 and len(rows) == 8


def test_the_bytes_of_blind_do_not_grow_with_the_agents(rows: list[dict]) -> None:
    small, large = pair(rows, "blind", "equal")
    assert abs(large["bytes_up_per_agent"] - small["bytes_up_per_agent"]) < 64 and small["messages"] == 3
    small, large = pair(rows, "blind")
    per_total = small["bytes_up_per_agent"] / (small["sums"] + 1)  # and the load
    assert large["bytes_up_per_agent"] / (large["sums"] + 1) < 1.1 * per_total
    small, large = pair(rows, "paper")
    assert large["bytes_up_per_agent"] > 1.5 * small["bytes_up_per_agent"]


def test_short_runs_are_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([0.9, 0.5, 0.1, 0.3, 0.2, 0.4])  # the first watches memory
    row = {"setup_seconds": 0.0, "floor_seconds": 0.1, "seconds_per_agent": 0.0, "peak_rss_mb": 1.0}
    monkeypatch.setattr("atdm.lab.bench.measured", lambda *_, **__: {"seconds": next(told), **row})
    monkeypatch.setattr("atdm.lab.bench.TIMES", 5)
    assert bench_one(synthetic(10, rows=60), "blind")["seconds"] == 0.3


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_several_processes_give_the_model_of_one(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atdm.lab.bench.SEVERAL_PROCESSES_FROM", 12)
    cluster = synthetic(12, rows=420)
    row = bench_one(cluster, "blind", weights)
    fit = atdm.fit(cluster, "blind", **options_for(12, weights))
    assert row["processes"] == 2 and row["status"] == str(fit.status)
    assert abs(row["sums"] - fit.cost.sums) <= 1  # keys, and with them the dither, differ


def test_the_synthetic_cluster_is_its_seeds() -> None:
    first, again, other = synthetic(10, 60, seed=1), synthetic(10, 60, seed=1), synthetic(10, 60, seed=2)
    np.testing.assert_array_equal(first.temperature, again.temperature)
    assert not np.array_equal(first.temperature, other.temperature)


def test_the_page_draws_every_protocol_and_the_floor(rows: list[dict]) -> None:
    """Sizes in the order of growth, whatever the order of the rows; no number where a protocol was not run."""
    left_out = [row for row in rows if (row["agents"], row["protocol"]) != (24, "paper")]
    page = bench_page(left_out[::-1])
    data = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    time, sent, floor = ({c["name"]: c["values"] for c in figure["columns"]} for figure in data)
    assert all(figure["x"]["values"] == [12, 24] for figure in data)
    assert list(time) == ["plain [s]", "paper [s]", "blind [s]", "blind, equal weights [s]"]
    assert time["paper [s]"][0] > 0 and time["paper [s]"][1] is None
    small, large = pair(rows, "blind")
    assert sent["blind [kB]"] == pytest.approx([small["bytes_up_per_agent"] / 1000, large["bytes_up_per_agent"] / 1000])
    assert floor["floor [s]"] == pytest.approx([small["floor_seconds"], large["floor_seconds"]], rel=1e-4)
    assert page.count("<tr>") == 1 + len(left_out)


def test_the_command_writes_the_page_and_looks_first_whether_it_can(
    rows: list[dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []
    monkeypatch.setattr("atdm.cli.lab.run_bench", lambda sizes, **_: asked.append(sizes) or rows)
    for place, code in (("bench.html", 0), (".", 2)):
        monkeypatch.setattr("sys.argv", ["atdm", "bench", "--agents", "12,24", "--figure", str(tmp_path / place)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
    assert asked == [[12, 24]] and "cannot write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bench.html"]


@pytest.mark.parametrize("text", ["", "64,many", "64,,200", "5"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--agents"):
        parse_sizes(text)
