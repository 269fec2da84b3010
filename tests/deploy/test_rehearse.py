"""`atdm rehearse` and the commands of a deployment, as a person runs them."""

import asyncio
import contextlib
import io
import json
import os
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from atdm.cli import main
from atdm.deploy.agent import read_account
from atdm.deploy.rehearse import rehearse, write_data
from atdm.options import fit_options
from atdm.protocol.rules import Rules
from atdm.use.series import read_observed
from tests.clusters import tiny
from tests.deploy.theatre import ROWS, Theatre, silent, write_weather

LATER = 8  # rows
RELEASED = ["ledger.json", "metrics.json", "model.json", "report.html", "series.csv"]


def cli(*words: object) -> tuple[int, str, str]:
    """What a command of this process ends with and prints; words as they would be typed."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv, code = ["atdm", *map(str, words)], 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def rehearsed(*words: object) -> dict:
    """What `atdm rehearse` prints."""
    code, out, err = cli("rehearse", *words, "--json")
    assert code == 0, err
    return json.loads(out)


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


def test_a_rehearsal_gives_the_numbers_of_one_process_and_leaves_nothing_running(tmp_path, monkeypatch):
    zones, weather = write_tables(tiny(1, agents=10, rows=100), tmp_path)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    document = rehearsed(zones, weather, "-o", tmp_path / "out", "--order", 1, "--agents-per-process", 10)
    assert document["weighting"] == "equal" and document["out"] == {}
    assert document["in_process"]["identical"] is True and document["in_process"]["difference"] == 0.0
    assert document["processes"] == 3 and document["agents"] == 10
    assert document["rounds"]["count"] == 1 and document["cost"]["rounds"] == 3  # keys and offers, then the rows
    assert document["rounds"]["median_seconds"] > 0
    assert {"protocol", "iterations", "status", "model", "metrics", "ledger", "cost"} <= document.keys()
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert set(RELEASED) <= set(written)
    assert json.loads((tmp_path / "out" / "model.json").read_text())["alpha"] == document["chosen"]["alpha"]
    assert list(temporary.iterdir()) == []
    if sys.platform == "linux":
        assert not [line for line in left_behind() if str(temporary) in line]


def test_a_rehearsal_with_fitted_weights_gives_the_numbers_of_one_process(tmp_path):
    """Under the agents' usual limits, and observed under the weights that came out."""
    cluster = tiny(1, agents=10, rows=112 + LATER)  # four weeks, and what is observed
    weather = write_weather(cluster, tmp_path / "weather.parquet")
    done = rehearse(cluster, weather, fit_options(order=1), silent, agents_per_process=10, observe=LATER)
    assert done.identical and done.difference == 0.0
    assert done.deployed["weighting"] == "fitted" and done.deployed["cost"]["sums"] >= 2
    assert done.observed["identical"] and len(done.observed["rows"]) == LATER
    assert 0 < done.observed["difference_c"] < 5e-3  # the dither


def test_a_rehearsal_that_cannot_succeed_says_why_and_writes_nothing(tmp_path):
    """The window is shorter than agents accept: every agent is out, the aggregator says so, all goes down."""
    zones, weather = write_tables(tiny(1, agents=10, rows=40), tmp_path)
    code, out, err = cli("rehearse", zones, weather, "-o", tmp_path / "out", "--order", 1, "--agents-per-process", 10,
                         "--weights", "fitted")  # fmt: skip
    assert code == 1 and out == ""
    last = err.strip().splitlines()[-1]
    assert last.startswith("atdm: ") and "agents say: fitted weights need 28 days" in last
    assert not (tmp_path / "out").exists()


# The commands of a deployment, whose agents have the rules that agents have


CANARY = (23.4567, 7.6543)  # °C and kW of one stamp of one home


class Deployment:
    """Ten homes with the usual rules, and what the operator typed and saw: once for all tests below."""

    def __init__(self, folder: Path) -> None:
        self.theatre = theatre = Theatre(folder, agents=10, rules=Rules(), later=LATER)
        self.home, self.folder = theatre.stage.names[4], folder
        self.plant_canary()
        with theatre.stage.server() as server:
            asyncio.run(self.play(server.url))

    def plant_canary(self) -> None:
        path = self.theatre.stage.data(self.home)
        table = pd.read_parquet(path)
        table.loc[5, ["indoor_temp_c", "load_kw"]] = CANARY
        table.to_parquet(path)

    async def play(self, url: str) -> None:
        stage, time = self.theatre.stage, self.theatre.cluster.time
        who = ["--identity", self.theatre.aggregator, "--roster", stage.roster, "--nats", url]
        ask = ["aggregator", *who, "--weather", stage.weather, "--order", 1, "--end", time[-LATER - 1].isoformat()]
        model, out = self.folder / "out" / "model.json", self.folder / "out"
        self.ran: dict[str, tuple[int, str, str]] = {}
        async with self.theatre.agents(url):
            await self.run("fitted", *ask, "-o", self.folder / "none", "--weights", "fitted")
            await self.run("equal", *ask, "-o", out, "--json")
            write_data(stage, self.theatre.cluster)
            self.plant_canary()
            await self.run("observe", "observe", model, *who, "--end", time[-3].isoformat())
            await self.run("more", "observe", model, *who, "--end", time[-1].isoformat(), "--json")
            await self.run("again", "observe", model, *who, "--end", time[-1].isoformat())
            await self.run("under a fit", "observe", model, *who, "--weights", "fitted")

    async def run(self, name: str, *words: object) -> None:
        self.ran[name] = await asyncio.to_thread(cli, *words)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory) -> Deployment:
    return Deployment(tmp_path_factory.mktemp("deployment"))


def test_an_aggregator_asks_for_equal_weights_unless_told_otherwise(deployment):
    code, out, err = deployment.ran["equal"]
    document = json.loads(out)
    assert code == 0, err
    assert document["weighting"] == "equal" and document["agents"] == 10 and document["out"] == {}
    assert sorted(path.name for path in (deployment.folder / "out").iterdir()) == sorted([*RELEASED, "observed.csv"])
    readings = deployment.theatre.cluster.temperature.copy()
    readings.iloc[5, readings.columns.get_loc(deployment.home)] = CANARY[0]
    series = pd.read_csv(deployment.folder / "out" / "series.csv")
    np.testing.assert_allclose(series["aggregate_temp_c"], readings.iloc[:-LATER].mean(axis=1), atol=1e-3)


def test_agents_with_the_usual_rules_are_out_of_a_fitted_run_and_the_folder_does_not_appear(deployment):
    code, out, err = deployment.ran["fitted"]
    assert code == 1 and out == "" and not (deployment.folder / "none").exists()
    said = [line for line in err.splitlines() if line.startswith("atdm: ")]
    assert said == err.splitlines()[-1:] and "agents say: fitted weights" in said[0] and "--weights fitted" in said[0]


def test_observed_rows_are_kept_in_a_table_that_grows(deployment):
    first, second, third, other = (deployment.ran[name] for name in ("observe", "more", "again", "under a fit"))
    assert first[0] == second[0] == 0, first[2] + second[2]
    document = json.loads(second[1])
    assert document["asked"] == len(document["rows"]) == 2
    observed, cluster = read_observed(deployment.folder / "out" / "observed.csv"), deployment.theatre.cluster
    assert list(observed.index) == list(cluster.time[-LATER:]) and set(observed["agents"]) == {10}
    np.testing.assert_allclose(observed["aggregate_temp_c"], cluster.temperature.iloc[-LATER:].mean(axis=1), atol=1e-3)
    np.testing.assert_allclose(observed["load_kw"], cluster.load.iloc[-LATER:].sum(axis=1), atol=1e-6)
    for code, out, err in (third, other):
        assert code == 2 and out == "" and len(err.strip().splitlines()) == 1
    assert "all rows up to now have been collected" in third[2] and "fitted with equal weights" in other[2]


def test_a_forecast_goes_on_from_the_last_rows_observed(deployment, tmp_path):
    """For a load plan of 10 kW."""
    observed, stage = read_observed(deployment.folder / "out" / "observed.csv"), deployment.theatre.stage
    observed.iloc[:-3].rename_axis("time").to_csv(tmp_path / "observed.csv")
    time = deployment.theatre.cluster.time
    pd.DataFrame({"time": time[-3:], "load_kw": 10.0}).to_csv(tmp_path / "plan.csv", index=False)
    code, out, err = cli("forecast", deployment.folder / "out" / "model.json", "--weather", stage.weather, "--load",
                         tmp_path / "plan.csv", "--observed", tmp_path / "observed.csv", "--json")  # fmt: skip
    assert code == 0, err
    ahead = json.loads(out)["trajectory"]
    assert [row["time"] for row in ahead] == [t.isoformat() for t in time[-4:]]
    assert ahead[0]["aggregate_temp_c"] == observed["aggregate_temp_c"].iloc[-4]


def test_a_home_reads_in_its_account_what_it_gave_and_no_reading(deployment):
    state, roster = deployment.theatre.state(deployment.home), deployment.theatre.stage.roster
    account = read_account(state)
    (at,) = np.flatnonzero(account.load == CANARY[1])
    assert abs(account.temperature[at] - CANARY[0]) < 1e-3  # it is there to hide, with its dither
    printed = []
    for options in ([], ["--roster", roster], ["--json"], ["--roster", roster, "--json"]):
        code, out, err = cli("account", state, *options)
        assert code == 0 and err == ""
        printed.append(out)
    for text in printed:
        for value in (*CANARY, account.temperature[at]):
            forms = (repr(float(value))[:5], struct.pack("<d", value).hex(), struct.pack(">d", value).hex())
            assert not [form for form in forms if form in text]
    bare, named, bare_json, named_json = printed
    assert "zone00" in named and bare == named  # the agent keeps the roster
    days = json.loads(named_json)["days"]
    assert len(days) == ROWS // 4 and days[0]["day"] == "2024-01-01"
    for day in days:
        assert day["in"] is True and day["weights"] == "equal" and day["company"] == 10 and day["totals"] == 0
        assert day["rows_sent"] == day["rows_shown"] == 4 and day["rows_repeated"] == day["rows_filled"] == 0
        assert day["left"] == "nothing: all rows shown"
        assert day["with"] == sorted(deployment.theatre.stage.names)
    assert [day | {"with": 0} for day in json.loads(bare_json)["days"]] == [day | {"with": 0} for day in days]
    assert bare.splitlines()[1].split()[:5] == ["2024-01-01", "in", "equal", "10", "4"]


def test_an_account_that_is_not_there_is_refused_in_one_line(deployment, tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        code, out, err = cli("account", folder)
        assert code == 1 and out == "" and len(err.strip().splitlines()) == 1
        assert "give the state folder of `atdm agent`" in err


def test_commands_refuse_in_one_line_with_the_way_out(tmp_path):
    def run(*arguments):
        code, _, err = cli(*arguments)
        return code, err

    homes, authority, roster = tmp_path / "homes", tmp_path / "authority", tmp_path / "roster.json"
    assert run("enroll", "authority", authority) == (0, "")
    assert run("enroll", "agent", homes, "--name", "a", "--authority", authority / "authority.json") == (0, "")
    assert run("enroll", "aggregator", homes, "--authority", authority / "authority.json") == (0, "")
    zones, weather = write_tables(tiny(1, agents=3, rows=40), tmp_path)
    own = ["agent", "--identity", homes / "a", "--roster", roster, "--data", zones, "--weather", weather, "--nats"]
    config = [
        "aggregator",
        "--identity",
        homes / "aggregator",
        "--roster",
        roster,
        "--weather",
        weather,
        "--nats",
        "tls://x:1",
    ]
    watch = ["observe", tmp_path / "model.json", *config[1:5], "--nats", "tls://x:1"]
    bare, config = config, [*config, "-o", tmp_path / "results"]
    for arguments, code, why in (
        (["enroll", "aggregator", authority], 2, "must be somebody else"),
        (["enroll", "roster", authority, "-o", roster], 2, "collect them"),
        (["enroll", "roster", authority, "-o", roster, "--since", "soon"], 2, "write a time such as"),
        ([*own, "tls://127.0.0.1:1"], 1, "this agent is a: give a file with its own readings only"),
        ([*own, "tls://x:1", "--data", zones], 2, "sources of readings: give one for each"),
        (bare, 2, "Missing option '-o'"),
        ([*bare, "-o", zones], 2, "it is a file"),
        ([*config, "--protocol", "plain"], 2, "choose blind, moments, paper"),
        ([*config, "--start", "yesterday"], 2, "write a time such as"),
        ([*config, "--end", "1999-01-01"], 2, "the weather goes from"),
        ([*config, "--weights", "fitted", "--season", "7d"], 2, "a season of 24 h"),
        ([*config, "--weights", "fitted", "--minimum-norm"], 2, "does not fit where inputs are collinear"),
        ([*config, "--weights", "own"], 2, "'fitted', 'equal'"),
        (config, 1, "roster.json: cannot be read"),
        ([*config, "--identity", homes / "a"], 2, "is an agent's folder"),
        (["rehearse", zones, weather, "--agents-per-process", 0], 2, "give at least 1"),
        (["rehearse", zones, weather, "--observe", 40], 2, "give fewer rows"),
        (["rehearse", zones, weather, "--observe", 4, "--protocol", "moments"], 2, "under blind"),
        ([*watch, "--end", "yesterday"], 2, "write a time such as"),
        ([*watch, "--back", "long"], 2, "long"),
        ([*watch, "--outages", "shrug"], 2, "shrug"),
        ([*watch, "--weights", "own"], 2, "'fitted', 'equal'"),
        (watch, 1, "model.json: cannot be read"),
        (["rehearse", zones, weather, "--protocol", "plain"], 2, "choose blind, moments, paper"),
    ):
        ended, said = run(*arguments)
        assert (ended, len(said.strip().splitlines())) == (code, 1), said
        assert why in said
    assert not roster.exists() and not (tmp_path / "results").exists()


@pytest.mark.soak
@pytest.mark.parametrize("options", [["--weights", "equal"], ["--weights", "fitted"], ["--protocol", "paper"]])
def test_the_papers_cluster_gives_the_same_numbers_over_nats(refit64, options):
    folder = Path(os.environ["ATDM_REFIT64"])
    options = options if "paper" not in options else [*options, "--weights", "fitted"]
    document = rehearsed(folder / "zones.parquet", folder / "weather.parquet", *options)
    assert document["in_process"]["difference"] < 1e-6
    assert document["in_process"]["identical"] or "paper" in options


@pytest.mark.soak
@pytest.mark.parametrize("weights", ["equal", "fitted"])
def test_five_hundred_agents_in_a_handful_of_processes(tmp_path, weights):
    zones, weather = write_tables(tiny(2, agents=500, rows=240), tmp_path)
    document = rehearsed(zones, weather, "--order", 1, "--agents-per-process", 100, "--weights", weights)
    assert document["agents"] == 500 and document["in_process"]["identical"]
    print(document["rounds"], document["cost"])
