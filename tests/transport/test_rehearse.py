"""`atdm rehearse` and the commands of a deployment, as a person runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from atdm.cli import main
from atdm.use.series import read_observed
from tests.clusters import tiny
from tests.transport.theatre import write_weather

LATER = 8  # rows
RELEASED = ["ledger.json", "metrics.json", "model.json", "report.html"]


def atdm(*arguments, timeout=120, **options):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "atdm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, **options)


def write_tables(cluster, folder: Path) -> tuple[Path, Path]:
    frames = [
        pd.DataFrame({
            "time": cluster.time, "agent": name, "building": str(cluster.owner[name]),
            "indoor_temp_c": cluster.temperature[name].to_numpy(), "load_kw": cluster.load[name].to_numpy(),
        })
        for name in cluster.agents
    ]  # fmt: skip
    pd.concat(frames, ignore_index=True).to_parquet(folder / "zones.parquet", index=False)
    return folder / "zones.parquet", write_weather(cluster, folder / "weather.parquet")


def left_behind() -> list[str]:
    """Servers and agents of rehearsals that are still running, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            working = os.readlink(path.parent / "cwd")
        except OSError:
            continue
        if "atdm-rehearsal-" in line or "atdm-rehearsal-" in working:
            found.append(line)
    return found


def test_a_rehearsal_gives_the_numbers_of_one_process_and_leaves_nothing_running(
    tmp_path, monkeypatch, capsys
):
    cluster = tiny(1, agents=10, rows=100 + LATER)
    zones, weather = write_tables(cluster, tmp_path)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    done = atdm("rehearse", zones, weather, "-o", tmp_path / "out", "--order", 1, "--agents-per-process", 5, "--json",
                "--observe", LATER, "--ridges", "50,100")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ridge"] in (50.0, 100.0)
    assert document["in_process"]["identical"] is True and document["in_process"]["difference"] == 0.0
    assert document["processes"] == 4 and document["agents"] == 10
    assert document["rounds"]["count"] == document["cost"]["rounds"] - 1  # all but the keys
    assert document["rounds"]["median_seconds"] > 0
    assert {"protocol", "iterations", "status", "model", "metrics", "ledger", "cost"} <= document.keys()
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert set(RELEASED) <= set(written)
    assert json.loads((tmp_path / "out" / "model.json").read_text())["alpha"] == document["model"]["alpha"]
    assert list(temporary.iterdir()) == []
    if sys.platform == "linux":
        assert not [line for line in left_behind() if str(temporary) in line]
    seen = document["observed"]
    assert len(seen["rows"]) == seen["asked"] == LATER and seen["identical"] is True
    assert 0 < seen["difference_c"] < 5e-3  # the dither
    observed = read_observed(tmp_path / "out" / "observed.csv")
    assert list(observed.index) == list(cluster.time[-LATER:])
    ahead = forecast_from(observed.iloc[:-3], weather, tmp_path, monkeypatch, capsys)
    assert [row["time"] for row in ahead] == [t.isoformat() for t in cluster.time[-4:]]
    assert ahead[0]["aggregate_temp_c"] == observed["aggregate_temp_c"].iloc[-4]


def forecast_from(observed, weather: Path, folder: Path, monkeypatch, capsys) -> list[dict]:
    """`atdm forecast --observed` for a plan of 10 kW."""
    observed.rename_axis("time").to_csv(folder / "observed.csv")
    time = pd.read_parquet(weather)["time"].iloc[-3:]
    pd.DataFrame({"time": time, "load_kw": 10.0}).to_csv(folder / "plan.csv", index=False)
    words = ["forecast", folder / "out" / "model.json", "--weather", weather, "--load", folder / "plan.csv",
             "--observed", folder / "observed.csv", "--json"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["atdm", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)["trajectory"]


def test_a_rehearsal_that_cannot_succeed_says_why_and_writes_nothing(tmp_path):
    """The window is shorter than agents accept: every agent refuses, the aggregator says so, all goes down."""
    zones, weather = write_tables(tiny(1, agents=10, rows=40), tmp_path)
    done = atdm("rehearse", zones, weather, "-o", tmp_path / "out", "--order", 1, "--agents-per-process", 10)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("atdm: agent zone") and "too short" in last
    assert not (tmp_path / "out").exists()


def test_commands_refuse_in_one_line_with_the_way_out(tmp_path, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["atdm", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            return ended.code or 0, capsys.readouterr().err
        return 0, capsys.readouterr().err

    homes, authority, roster = tmp_path / "homes", tmp_path / "authority", tmp_path / "roster.json"
    assert run("enroll", "authority", authority) == (0, "")
    assert run("enroll", "agent", homes, "--name", "a", "--authority", authority / "authority.json") == (0, "")
    zones, weather = write_tables(tiny(1, agents=3, rows=40), tmp_path)
    own = ["agent", "--identity", homes / "a", "--roster", roster, "--data", zones, "--weather", weather, "--nats"]
    post = ["aggregator", "--identity", homes / "a", "--roster", roster, "--weather", weather, "--nats", "tls://x:1"]
    watch = ["observe", tmp_path / "model.json", *post[1:5], "--nats", "tls://x:1"]
    bare, post = post, [*post, "-o", tmp_path / "results"]
    for arguments, code, why in (
        (["enroll", "aggregator", authority], 2, "must be somebody else"),
        (["enroll", "roster", authority, "-o", roster], 2, "collect them"),
        ([*own, "tls://127.0.0.1:1"], 1, "this identity is a's: give its own file alone"),
        ([*own, "tls://x:1", "--data", zones], 2, "give one file for each identity"),
        (bare, 2, "Missing option '-o'"),
        ([*bare, "-o", zones], 2, "it is a file"),
        ([*post, "--protocol", "plain"], 2, "choose blind, moments, paper"),
        ([*post, "--start", "yesterday"], 2, "write a time such as"),
        ([*post, "--end", "1999-01-01"], 2, "the weather goes from"),
        ([*post, "--orders", "1,2", "--protocol", "moments"], 2, "under blind only"),
        ([*post, "--orders", "1,two"], 2, "not a list of numbers"),
        ([*post, "--ridges", "100", "--seasons", "24h,12h"], 2, "roster.json: cannot be read"),
        (post, 2, "roster.json: cannot be read"),
        (["rehearse", zones, weather, "--agents-per-process", 0], 2, "give at least 1"),
        (["rehearse", zones, weather, "--observe", 40], 2, "give fewer rows"),
        (["rehearse", zones, weather, "--observe", 4, "--protocol", "moments"], 2, "under blind"),
        ([*watch, "--end", "yesterday"], 2, "write a time such as"),
        ([*watch, "--back", "long"], 2, "long"),
        (watch, 1, "model.json: cannot be read"),
        (["rehearse", zones, weather, "--protocol", "plain"], 2, "choose blind, moments, paper"),
    ):
        ended, said = run(*arguments)
        assert (ended, len(said.strip().splitlines())) == (code, 1), said
        assert why in said
    assert not roster.exists()


@pytest.mark.soak
def test_the_papers_cluster_gives_the_same_numbers_over_nats(tmp_path, refit64):
    folder = Path(os.environ["ATDM_REFIT64"])
    for protocol in ("blind", "paper"):
        done = atdm("rehearse", folder / "zones.parquet", folder / "weather.parquet", "--protocol", protocol, "--json",
                    timeout=600)  # fmt: skip
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["in_process"]["difference"] < 1e-6
        assert document["in_process"]["identical"] or protocol == "paper"


@pytest.mark.soak
def test_five_hundred_agents_in_a_handful_of_processes(tmp_path):
    zones, weather = write_tables(tiny(2, agents=500, rows=240), tmp_path)
    done = atdm("rehearse", zones, weather, "--order", 1, "--agents-per-process", 100, "--json", timeout=1800)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["agents"] == 500 and document["in_process"]["identical"]
    print(document["rounds"], document["cost"])
