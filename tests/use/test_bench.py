"""The benchmark measures what it says: a run, its floor, its bytes. Figures themselves are for `make bench`."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import atdm
from atdm.errors import UsageError
from atdm.report.bench_figure import bench_figure
from atdm.use.bench import RIDGE_PER_AGENT, bench_one, parse_sizes, synthetic

KEYS = {"agents", "protocol", "seconds", "setup_seconds", "floor_seconds", "bytes_up_per_agent", "sums", "peak_rss_mb"}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    """Two sizes of few rows."""
    protocols = ("plain", "paper", "blind")
    return [bench_one(synthetic(agents, rows=300), name) for agents in (12, 24) for name in protocols]


def test_every_row_has_what_the_contract_promises(rows: list[dict]) -> None:
    for row in rows:
        assert row.keys() >= KEYS
        assert row["protocol"] == "plain" or 0 < row["floor_seconds"] < row["seconds"]


def test_the_bytes_of_blind_do_not_grow_with_the_agents(rows: list[dict]) -> None:
    small, large = (row for row in rows if row["protocol"] == "blind")
    per_total = small["bytes_up_per_agent"] / small["sums"]
    assert large["bytes_up_per_agent"] / large["sums"] < 1.2 * per_total
    small, large = (row for row in rows if row["protocol"] == "paper")
    assert large["bytes_up_per_agent"] > 1.5 * small["bytes_up_per_agent"]


def test_several_processes_give_the_model_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atdm.use.bench.SEVERAL_PROCESSES_FROM", 12)
    cluster = synthetic(12, rows=300)
    row = bench_one(cluster, "blind")
    fit = atdm.fit(cluster, "blind", ridge=12 * RIDGE_PER_AGENT, nonnegative=False)
    assert row["processes"] == 2 and row["status"] == str(fit.status)
    assert abs(row["sums"] - fit.cost.sums) <= 1  # keys, and with them the dither, differ


def test_the_synthetic_cluster_is_its_seeds() -> None:
    first, again, other = synthetic(10, 60, seed=1), synthetic(10, 60, seed=1), synthetic(10, 60, seed=2)
    np.testing.assert_array_equal(first.temperature, again.temperature)
    assert not np.array_equal(first.temperature, other.temperature)


def test_the_figure_shows_every_protocol(rows: list[dict], tmp_path: Path) -> None:
    bench_figure(rows, tmp_path / "bench.svg")
    text = (tmp_path / "bench.svg").read_text()
    ElementTree.fromstring(text)
    assert all(f"<!-- {name} -->" in text for name in ("plain", "paper", "blind", "floor of blind", "agents"))


@pytest.mark.parametrize("text", ["", "64,many", "64,,200", "5"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--agents"):
        parse_sizes(text)
