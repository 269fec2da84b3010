"""The commands as a new user runs them."""

import json
import math
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm import cli
from atdm.cli import main, printing
from atdm.data.seconds import length
from atdm.deploy.conductor import DEADLINE, WAIT
from atdm.deploy.fleet import OUTAGES
from atdm.deploy.service_rules import EXAMPLE
from atdm.report.findings import findings_table
from atdm.use.series import parse_start
from tests.clusters import tiny
from tests.data import foreign


@pytest.fixture
def files(tmp_path):
    """A small cluster as the two tables of the contract."""
    cluster = tiny(1, agents=12, rows=160)
    zones = cluster.temperature.stack().rename("indoor_temp_c").to_frame()
    zones["load_kw"] = cluster.load.stack()
    zones = zones.reset_index()
    zones["building"] = zones["agent"].map(lambda name: "b" + str(int(name[4:]) // 3))
    weather = cluster.outdoor.rename("outdoor_temp_c").to_frame()
    weather["solar_w_m2"] = cluster.solar * 1000
    zones.to_parquet(tmp_path / "zones.parquet")
    weather.reset_index().to_csv(tmp_path / "weather.csv", index=False)
    return str(tmp_path / "zones.parquet"), str(tmp_path / "weather.csv")


def run(monkeypatch, capsys, *words) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["atdm", *map(str, words)])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_fit_prints_one_json_object_with_the_contracts_keys(files, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "fit", *files, "--order", 1, "--ridge", 5, "--json")
    document = json.loads(out)
    assert code == 0
    assert {"protocol", "weighting", "agents", "iterations", "status", "converged", "ridge", "rss", "model", "metrics",
            "ledger", "cost", "excess", "out"} <= set(document)  # fmt: skip
    assert set(document["model"]) == {"alpha", "beta", "gamma", "theta", "occupancy"}
    assert {"rounds", "sums", "bytes_up_per_agent", "bytes_down_per_agent", "seconds_per_agent", "seconds_aggregator",
            "setup_seconds", "seconds"} <= set(document["cost"])  # fmt: skip
    assert document["protocol"] == "blind" and document["agents"] == 12 and document["out"] == {}


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_a_private_fit_is_that_of_plain_under_the_same_weights(files, monkeypatch, capsys, weights):
    words = ["--order", 1, "--ridge", 20, "--weights", weights, "--dither", 0, "--json"]
    found = [json.loads(run(monkeypatch, capsys, "fit", *files, "--protocol", protocol, *words)[1])
             for protocol in ("blind", "plain")]  # fmt: skip
    assert [document["weighting"] for document in found] == [weights] * 2
    alphas, scores = ([of(d) for d in found] for of in (alpha_of, r2_of))
    np.testing.assert_allclose(*alphas, atol=1e-7 if weights == "equal" else 5e-3)
    assert abs(scores[0] - scores[1]) < (1e-6 if weights == "equal" else 6e-3)
    assert found[0]["cost"]["rounds"] <= (10 if weights == "fitted" else 4)


def alpha_of(document: dict) -> list[float]:
    return document["model"]["alpha"]


def r2_of(document: dict) -> float:
    return document["metrics"]["test"]["free_run"]["r2"]


def test_fit_writes_a_folder_that_a_model_can_be_loaded_from(files, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "results" / "today"
    code, out, _ = run(monkeypatch, capsys, "fit", *files, "-o", folder, "--order", 1, "--protocol", "plain")
    assert code == 0
    assert {"model.json", "metrics.json", "ledger.json", "report.html"} <= {path.name for path in folder.iterdir()}
    model = atdm.Model.load(folder / "model.json")
    document = json.loads((folder / "model.json").read_text())
    assert document["schema"].startswith("atdm-model/") and document["step_seconds"] == 21600
    assert model.order == 1 and len(model.occupancy) == 4
    assert [path.name for path in tmp_path.glob(".*")] == []  # nothing half-written is left


@pytest.mark.parametrize("words, code, says", [
    (["--order", "0"], 2, "order"), (["--ridge", "-1"], 2, "ridge"), (["--train", "1.5"], 2, "train"),
    (["--season", "7h"], 2, "season"), (["--protocol", "secret"], 2, "secret"), (["--by", "street"], 2, "street"),
    (["--timezone", "Mars/Base"], 2, "Mars/Base"), (["--season", "4w"], 2, "season"),
    (["--season", "7d"], 2, "season of 24 h"), (["--season", "4w", "--protocol", "plain"], 2, "rows"),
    (["--weights", "own"], 2, "own"), (["--weights", "equal", "--protocol", "moments"], 2, "plain and blind"),
    (["--nonnegative", "exact"], 2, "exact"), (["--minimum-norm"], 2, "collinear"),
    (["--order", "4", "--train", "0.5"], 1, "too few rows for the model"),
])  # fmt: skip
def test_a_refused_command_says_so_in_one_line_and_leaves_no_folder(
    words, code, says, files, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "out"
    found, out, err = run(monkeypatch, capsys, "fit", *files, "-o", folder, *words)
    assert found == code and out == ""
    assert says in err and len(err.strip().splitlines()) == 1 and err.startswith("atdm: ")
    assert not folder.exists()


@pytest.mark.parametrize("words, says", [
    ("fit zones.csv", "Missing argument 'weather'; see atdm fit --help"),
    ("fit --wieghts equal", "No such option: --wieghts (Possible options: --weights); see atdm fit --help"),
    ("fit z w --order two", "Invalid value for '--order': write a whole number; see atdm fit --help"),
    ("fit z w --train 0,75", "Invalid value for '--train': write a number, with a decimal point; see atdm fit --help"),
    ("fit z w --weights eqal", "'eqal' is not one of 'fitted', 'equal'; see atdm fit --help"),
    ("enroll agent", "Missing argument 'folder'; see atdm enroll agent --help"),
    ("ft", "No such command 'ft'. Did you mean 'fit'? see atdm --help"),
])  # fmt: skip
def test_a_mistyped_command_line_is_one_line_with_the_way_out(words, says, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, *words.split())
    assert code == 2 and out == "" and err.startswith("atdm: ") and err.endswith(f"{says}\n") and err.count("\n") == 1


def test_units_and_names_in_brackets_are_printed_as_they_are(capsys):
    row = dict.fromkeys(("agents", "recovered", "blank", "rmse_c", "baseline_rmse_c", "seconds"), 1.0)
    said = dict.fromkeys(("protocol", "attack", "adversary", "note", "weights"), "a [b] c")
    with printing.out.capture() as shown:
        printing.out.print(findings_table([{**row, **said}], "flat [a]"))
    assert "time [s]" in shown.get() and "a [b] c" in shown.get() and "flat [a]" in shown.get()


SERVER = ["--nats", "tls://127.0.0.1:1"]


@pytest.mark.parametrize("words", [
    ["fit", "no/zones.parquet", "no/weather.csv"],
    ["import", "no/zones.csv", "-o", "out"],
    ["import", "homeassistant:ws://127.0.0.1:1", "--temperature", "t", "--heat", "h", "--option", "token_file=no/token",
     "-o", "out"],
    ["forecast", "no/model.json", "--weather", "no/weather.csv"],
    ["account", "no/state"],
    ["account", "no/state", "--pause"],
    ["agent", "--identity", "no/keys", "--data", "no/mine.csv", *SERVER],
    ["aggregator", "--identity", "no/aggregator", "--roster", "no/roster.json", *SERVER, "--weather", "no/weather.csv",
     "-o", "out"],
    ["aggregator", "--identity", "no/aggregator", "--roster", "no/roster.json", *SERVER, "--weather", "no/weather.csv",
     "--plan", "no/plan.json", "-o", "out"],
    ["serve", "no/rules.toml"],
    ["send", "no/model.json", "--observed", "no/observed.csv", "--weather", "no/weather.csv", "--to", "mqtt",
     "--settings", "no/sinks.toml"],
    ["enroll", "agent", "keys", "--name", "home"],
    ["enroll", "roster", "no/authority"],
    ["enroll", "retire", "no/authority", "--name", "home"],
    ["enroll", "status", "no/authority"],
], ids=" ".join)  # fmt: skip
def test_a_missing_file_or_folder_exits_with_1_whatever_it_is(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(monkeypatch, capsys, *words)
    assert code == 1 and len(err.strip().splitlines()) == 1, err
    assert "no/" in err or "keys/authority.json is missing" in err
    assert list(tmp_path.iterdir()) == []


def test_check_shows_every_agent_and_exits_with_1_when_a_fit_would_be_refused(files, tmp_path, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "check", *files, "--json")
    assert code == 0 and len(json.loads(out)["agents"]) == 12
    bad = tmp_path / "weather2.csv"
    bad.write_text("\n".join((tmp_path / "weather.csv").read_text().splitlines()[:50]) + "\n")
    code, out, _ = run(monkeypatch, capsys, "check", files[0], bad, "--json")
    assert code == 1 and json.loads(out)["problems"]


def test_check_cuts_no_name_where_nobody_looks_at_a_screen(files, tmp_path, monkeypatch, capsys):
    zones = pd.read_parquet(files[0])
    names = {name: f"{name}, a flat with a long name " + "over the bakery " * 12 for name in zones["agent"].unique()}
    zones.assign(agent=zones["agent"].map(names)).to_parquet(tmp_path / "long.parquet")
    code, out, _ = run(monkeypatch, capsys, "check", tmp_path / "long.parquet", files[1])
    assert code == 0 and "…" not in out
    lines = out.splitlines()
    assert all(any(line.startswith(name.strip()) and " 160 " in line for line in lines) for name in names.values())


def test_the_desk_prints_rules_to_begin_with(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "serve", "--example") == (0, EXAMPLE, "")


def test_a_check_of_the_desks_rules_names_everything_that_is_missing(tmp_path, monkeypatch, capsys):
    rules = tmp_path / "rules.toml"
    rules.write_text(EXAMPLE + '[sinks.mqtt]\npassword_file = "mqtt.password"\nusername = "me"\n')
    code, out, err = run(monkeypatch, capsys, "serve", rules, tmp_path / "model.json", "--check")
    assert code == 1 and out == "" and len(err.strip().splitlines()) == 1
    office = tmp_path / "office" / "aggregator"
    for what in (
        f"{office / 'nats.key'} (fleet.identity)", f"{office / 'authority.json'} (fleet.identity)",
        f"{tmp_path / 'roster.json'} (fleet.roster)", f"{tmp_path / 'weather.csv'} (weather.file)",
        "mqtt.password (sinks.mqtt.password_file)", f"{tmp_path / 'model.json'} (the model to begin with)",
    ):  # fmt: skip
        assert what in err
    (tmp_path / "roster.json").write_text("{}")
    assert "fleet.roster" not in run(monkeypatch, capsys, "serve", rules, "--check")[2]


def test_buildings_as_agents(files, monkeypatch, capsys):
    words = ["--by", "building", "--protocol", "plain", "--order", 1, "--json"]
    code, out, _ = run(monkeypatch, capsys, "fit", *files, *words)
    assert code == 0 and json.loads(out)["agents"] == 4


def test_compare_has_a_row_for_every_protocol(files, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "compare", *files, "--order", 1, "--ridge", 5, "--json")
    rows = {row["protocol"]: row for row in json.loads(out)["rows"]}
    assert code == 0 and set(rows) == {
        "plain", "paper", "moments", "blind", "blind, no dither", "plain, equal weights", "blind, equal weights",
    }  # fmt: skip
    assert rows["paper"]["coefficients_apart"] < 1e-6 and rows["moments"]["coefficients_apart"] < 1e-6
    assert rows["blind"]["aggregator_learned"].startswith("load total 160, state 160, coefficients")


def test_a_fit_that_did_not_converge_exits_with_1_and_writes_only_when_asked(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("atdm.kernel.descent.MAX_ITERATIONS", 1)
    words = ["fit", *files, "--protocol", "plain", "--order", 1, "-o", tmp_path / "out"]
    code, _, err = run(monkeypatch, capsys, *words)
    assert code == 1 and "--write-anyway" in err and not (tmp_path / "out").exists()
    code, _, _ = run(monkeypatch, capsys, *words, "--write-anyway")
    assert code == 0 and (tmp_path / "out" / "model.json").exists()


def test_version_and_help_need_no_extras():
    """In a fresh interpreter in which no optional package can be imported."""
    blocked = ["sklearn", "fpylll", "nats", "nkeys", "playwright", "statsmodels"]
    program = (
        "import sys\n"
        "class Block:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {blocked!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from atdm.cli import main\n"
        "for words in (['--version'], ['--help'], ['fit', '--help'], ['account', '--help']):\n"
        "    sys.argv = ['atdm', *words]\n"
        "    try: main()\n"
        "    except SystemExit as ended: assert not ended.code, words\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"atdm {atdm.__version__}") and done.stdout.count("Usage: ") == 3


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


class Everything:
    commands = {name: cli.load(name) for name in cli.FILES}


COMMANDS = dict(commands(Everything))


@pytest.mark.parametrize("name", cli.FILES)
def test_the_line_of_a_command_in_the_help_is_how_its_own_help_begins(name):
    assert cli.load(name).help.startswith(cli.FILES[name][1])


def test_the_help_needs_none_of_the_libraries_behind_the_commands():
    program = (
        "import sys\nfrom atdm.cli import main\nsys.argv = ['atdm', '--help']\n"
        "try: main()\nexcept SystemExit: print(sorted({'numpy', 'pandas', 'scipy', 'pyarrow'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_of_every_command_says_what_it_is_for(words, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, *words, "--help")
    assert code == 0 and "Usage: " in out
    command = COMMANDS[words]
    assert command.help and all(option.help for option in command.params)


def test_only_simulations_fit_weights_unless_told_to():
    """Equal weights have the stronger claim; fitted ones are what the paper is about."""
    defaults = {" ".join(words): {option.name: option.default for option in command.params}.get("weights", "none")
                for words, command in COMMANDS.items()}  # fmt: skip
    assert {name: default and str(default) for name, default in defaults.items() if default != "none"} == {
        "fit": "fitted", "select": "fitted", "audit": "all",
        "agent": "equal", "aggregator": "equal", "rehearse": "equal", "observe": None,
    }  # fmt: skip


def test_json_has_no_nan(files, monkeypatch, capsys):
    _, out, _ = run(monkeypatch, capsys, "fit", *files, "--protocol", "plain", "--order", 1, "--train", 0.99, "--json")
    assert "NaN" not in out and np.isfinite(json.loads(out)["rss"])


def test_a_fit_from_its_state_folder_can_be_repeated_and_not_varied(files, tmp_path, monkeypatch, capsys):
    """One model is released over a day; the same question gets the same answer."""
    options = ["--order", 1, "--state", tmp_path / "state"]
    found = [json.loads(run(monkeypatch, capsys, "fit", *files, *options, "--json")[1]) for _ in range(2)]
    assert found[0]["model"] == found[1]["model"] and found[0]["metrics"] == found[1]["metrics"]
    for other in (["--ridge", 90], ["--weights", "equal"]):
        code, out, err = run(monkeypatch, capsys, "fit", *files, *options, *other, "-o", tmp_path / "out")
        assert code == 1 and out == "" and "a day of the window" in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture
def model(tmp_path):
    cluster = tiny(1, agents=12, rows=160)
    atdm.fit(cluster, "plain", order=1).model.save(tmp_path / "model.json")
    return tmp_path / "model.json"


def observe(monkeypatch, capsys, model, *words) -> tuple[int, str, str]:
    places = ["--identity", model.parent, "--roster", model.parent / "roster.json", "--nats", "nats://127.0.0.1:1"]
    return run(monkeypatch, capsys, "observe", model, *places, *words)


def test_observe_asks_for_nothing_it_could_not_write_down(monkeypatch, capsys, model):
    monkeypatch.setattr("atdm.cli.aggregator.watch_rows", lambda *_: pytest.fail("rows were asked for"))
    code, _, err = observe(monkeypatch, capsys, model, "-o", model.parent)
    assert code == 2 and "cannot write" in err and not list(model.parent.glob("*.partial"))


def test_observe_asks_for_nothing_beside_a_table_that_it_cannot_read(monkeypatch, capsys, model):
    monkeypatch.setattr("atdm.cli.aggregator.watch_rows", lambda *_: pytest.fail("rows were asked for"))
    target = model.with_name("observed.csv")
    target.write_text("time,load_kw\n2024-01-01T00:00Z,1.0\n")
    code, _, err = observe(monkeypatch, capsys, model)
    assert code == 1 and "observed.csv" in err and len(err.strip().splitlines()) == 1
    assert target.read_text().endswith("1.0\n")


def test_observe_says_which_rows_are_known(monkeypatch, capsys, model):
    seen = []
    monkeypatch.setattr("atdm.cli.aggregator.watch_rows", lambda post, model, say, keep, seeing: seen.append(seeing))
    row = "time,aggregate_temp_c,load_kw,agents\n2024-01-01T00:00Z,19.0,1.0,12\n"
    model.with_name("observed.csv").write_text(row)
    assert observe(monkeypatch, capsys, model, "--weights", "equal", "--outages", "leave")[0] == 0
    assert list(seen[0].known()) == [pd.Timestamp("2024-01-01T00:00Z")]
    assert (seen[0].weights, seen[0].outages, seen[0].follow) == ("equal", OUTAGES["leave"], False)


def test_lengths_of_time_are_written_as_everywhere_or_as_bare_seconds(monkeypatch, capsys, model):
    seen = []
    monkeypatch.setattr(
        "atdm.cli.aggregator.watch_rows", lambda post, model, say, keep, seeing: seen.append((post, seeing))
    )
    for words in (["72h", "5min", "90s"], ["259200", "300", "90"], ["259200.0", "3e2", "90.0"]):
        given = [part for pair in zip(("--deadline", "--wait", "--settle"), words, strict=True) for part in pair]
        assert observe(monkeypatch, capsys, model, *given)[0] == 0
    assert [(post.deadline, post.wait, seeing.settle) for post, seeing in seen] == [(259200.0, 300.0, 90.0)] * 3
    assert observe(monkeypatch, capsys, model)[0] == 0
    post, seeing = seen[-1]
    assert (post.wait, post.deadline, seeing.settle) == (300.0, 300.0, 60.0)
    for wrong in ("3 hours", "-1", "nan", "inf", ""):
        code, _, err = observe(monkeypatch, capsys, model, "--wait", wrong)
        assert code == 2 and "is not a length of time" in err and len(err.strip().splitlines()) == 1, wrong


def test_the_defaults_of_the_aggregators_options_are_those_of_its_class():
    usual = {option.name: option.default for option in COMMANDS["aggregator",].params}
    assert (length(usual["wait"]), length(usual["deadline"])) == (WAIT, DEADLINE)


def test_rows_that_cannot_be_written_down_any_more_are_shown(monkeypatch, capsys, model):
    """A row is shown a few times only."""
    time = pd.date_range("2024-01-01", periods=2, freq="30min", tz="UTC", name="time")
    table = pd.DataFrame({"aggregate_temp_c": [19.0, 19.1], "load_kw": [1.0, 2.0]}, index=time)
    target = model.with_name("observed.csv")

    def watch_rows(post, model, say, keep, seeing):
        target.mkdir()
        keep(atdm.Observation(table=table, asked=2, ledger=[], out={}))

    monkeypatch.setattr("atdm.cli.aggregator.watch_rows", watch_rows)
    code, out, err = observe(monkeypatch, capsys, model)
    assert code and "observed.csv" in err
    assert [row["aggregate_temp_c"] for row in json.loads(out)["rows"]] == [19.0, 19.1]


def test_without_arguments_the_help_is_shown(monkeypatch, capsys):
    for words in ((), ("enroll",)):
        code, out, err = run(monkeypatch, capsys, *words)
        assert code == 2 and "Usage" in out + err and "atdm: " not in err


def test_no_fit_is_begun_that_could_not_be_written(monkeypatch, capsys, files):
    monkeypatch.setattr("atdm.cli.fitting.fit_cluster", lambda *_, **__: pytest.fail("a fit was begun"))
    code, _, err = run(monkeypatch, capsys, "fit", *files, "-o", files[1])
    assert code == 2 and "it is a file" in err


def test_a_start_without_an_offset_is_on_the_clock_of_the_tables():
    assert parse_start("2018-01-30T12:00", "America/New_York") == "2018-01-30T17:00:00+00:00"
    assert parse_start("2018-01-30T12:00", None) == "2018-01-30T12:00:00+00:00"
    assert parse_start("2018-01-30T12:00+02:00", "America/New_York") == "2018-01-30T10:00:00+00:00"


def test_select_keeps_the_model_it_chose(monkeypatch, capsys, files, tmp_path):
    code, out, _ = run(monkeypatch, capsys, "select", *files, "--protocol", "plain", "--json", "-o", tmp_path / "best")
    model = atdm.Model.load(tmp_path / "best" / "model.json")
    assert code == 0 and model.words() == json.loads(out)["words"] and model.made != "estimated"


def test_check_says_what_agents_ask_for_beyond_clean_data(monkeypatch, capsys, files, tmp_path):
    zones = pd.read_parquet(files[0])
    zones[zones["agent"].isin(["zone00", "zone01", "zone02", "zone03"])].to_csv(tmp_path / "few.csv", index=False)
    code, out, _ = run(monkeypatch, capsys, "check", tmp_path / "few.csv", files[1])
    assert code == 0 and "a fit would keep 160 of 160 rows of 4 of 4 agents" in out
    assert "4 agents: those of blind ask for 10" in out and "zone03" in out
    code, out, _ = run(monkeypatch, capsys, "check", tmp_path / "few.csv", files[1], "--json")
    assert code == 0 and any("those of blind ask for 10" in note for note in json.loads(out)["notes"])


def test_every_command_reads_the_tables_of_a_spreadsheet(monkeypatch, capsys, files, tmp_path):
    """Semicolons and decimal commas."""
    zones, weather = tmp_path / "z.csv", tmp_path / "w.csv"
    pd.read_parquet(files[0]).to_csv(zones, index=False, sep=";", decimal=",")
    pd.read_csv(files[1]).to_csv(weather, index=False, sep=";", decimal=",")
    form = ("--delimiter", ";", "--decimal", ",")
    for words in (("compare", "--protocols", "plain"), ("audit", "--protocol", "plain")):
        code, _, err = run(monkeypatch, capsys, words[0], zones, weather, *words[1:], "--order", "1", *form)
        assert code == 0, err


def test_import_writes_tables_that_fit_reads_and_prints_its_account(tmp_path, monkeypatch, capsys):
    words = ["import", *semicolons(tmp_path), "--timezone", "Europe/Berlin"]
    code, out, _ = run(monkeypatch, capsys, *words, "--dry-run")
    assert code == 0 and "before: " in out and "after: zones" in out and "decimal mark ','" in out
    assert not (tmp_path / "ours").exists()
    code, out, _ = run(monkeypatch, capsys, *words, "-o", tmp_path / "ours")
    assert code == 0 and "did: zones: 3 homes, 576 rows of 30 min" in out and "weather.parquet" in out
    assert {path.name for path in (tmp_path / "ours").iterdir()} == {"zones.parquet", "weather.parquet"}
    tables = tmp_path / "ours" / "zones.parquet", tmp_path / "ours" / "weather.parquet"
    assert run(monkeypatch, capsys, "fit", *tables, "--protocol", "plain", "--minimum-norm")[0] == 0
    code, out, _ = run(monkeypatch, capsys, *words, "--json", "-o", tmp_path / "ours")
    document = json.loads(out)
    assert document["homes"] == 3 and document["rows"] == {"zones": 576, "weather": 192}
    assert {"kind", "where", "what"} == set(document["account"][0])


def test_an_import_that_is_refused_leaves_no_folder(tmp_path, monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "import", *semicolons(tmp_path), "-o", tmp_path / "ours")
    assert code == 1 and "say --timezone" in err and not (tmp_path / "ours").exists()
    code, _, err = run(monkeypatch, capsys, "import", *semicolons(tmp_path), "--timezone", "Europe/Berlin")
    assert code == 2 and "-o FOLDER" in err


def semicolons(folder) -> list[str]:
    call = foreign.semicolons_with_decimal_commas_in_latin_letters(folder)
    return [str(call["files"]), "--weather", call["weather"]]


def test_what_a_home_fills_is_settable_counted_and_said(files, tmp_path, monkeypatch, capsys):
    zones = pd.read_parquet(files[0])
    rng = np.random.default_rng(2)
    zones[rng.random(len(zones)) > 0.01].to_parquet(tmp_path / "holes.parquet")
    holes = tmp_path / "holes.parquet", files[1]

    def told(*more):  # noqa: E306
        code, out, _ = run(monkeypatch, capsys, "check", *holes, "--json", *more)
        assert code == 0
        return json.loads(out)

    off, on = told("--fill", "0"), told("--fill", "12h")
    assert sum(agent["filled"] for agent in off["agents"]) == 0 < sum(agent["filled"] for agent in on["agents"])
    assert off["rows_kept"] < on["rows_kept"] == on["rows"] == 160
    assert off["costs"] and off["without"][0]["rows_kept"] >= off["rows_kept"]
    words = ["--protocol", "plain", "--order", 1, "--json"]
    _, filled, _ = run(monkeypatch, capsys, "fit", *holes, *words, "--fill", "12h")
    assert any("filled across gaps of up to 12 h" in note for note in json.loads(filled)["notes"])
    _, summary, _ = run(monkeypatch, capsys, "fit", *holes, *words[:-1], "--fill", "12h")
    assert "filled across gaps of up to 12 h" in summary


def test_a_fit_that_lacks_rows_names_missing_readings_and_a_remedy_that_works(files, tmp_path, monkeypatch, capsys):
    zones = pd.read_parquet(files[0])
    rng = np.random.default_rng(4)
    zones[rng.random(len(zones)) > 0.35].to_parquet(tmp_path / "holes.parquet")
    words = ["fit", tmp_path / "holes.parquet", files[1], "--protocol", "plain"]
    code, _, err = run(monkeypatch, capsys, *words)
    assert code == 1 and "rows were lost to missing readings" in err and "--fill" in err and "atdm check" in err
    assert run(monkeypatch, capsys, *words, "--fill", "4d")[0] == 0


def test_check_of_one_home_says_whether_it_is_fit_to_take_part(files, tmp_path, monkeypatch, capsys):
    zones = pd.read_parquet(files[0])
    own = zones[zones["agent"] == "zone03"]
    own.to_csv(tmp_path / "own.csv", index=False)
    for words in ([tmp_path / "own.csv"], [tmp_path / "own.csv", files[1]]):
        code, out, _ = run(monkeypatch, capsys, "check", *words)
        assert code == 0 and "this home is fit to take part" in out
    own.assign(indoor_temp_c=own["indoor_temp_c"] * 1.8 + 32).to_csv(tmp_path / "own.csv", index=False)
    code, out, _ = run(monkeypatch, capsys, "check", tmp_path / "own.csv")
    assert code == 1 and "looks like °F" in out and "could not take part" in out


@pytest.fixture
def house(tmp_path):
    """One home's half-hours of a week in SQLite, and weather for them."""
    time = pd.date_range("2024-01-01", periods=7 * 48, freq="30min", tz="UTC")
    sky = pd.DataFrame({"time": time, "outdoor_temp_c": 5 + np.sin(np.arange(336) / 9), "solar_w_m2": 50.0})
    sky.assign(solar_w_m2=(np.arange(336) % 48) * 5.0).to_csv(tmp_path / "weather.csv", index=False)
    with sqlite3.connect(tmp_path / "house.db") as made:
        made.execute("CREATE TABLE r (t INTEGER, room REAL, heat REAL)")
        rows = [(int(t.timestamp()), 20 + math.sin(i / 7), 1.0 + i % 3) for i, t in enumerate(time)]
        made.executemany("INSERT INTO r VALUES (?, ?, ?)", rows)
    made.close()
    (tmp_path / "home.toml").write_text(
        f'source = "sql:{tmp_path / "house.db"}"\n'
        'query = "SELECT t AS time, room AS temperature, heat AS load FROM r ORDER BY t"\n'
    )
    return tmp_path


def test_check_and_import_read_a_source(monkeypatch, capsys, house):
    code, out, _ = run(monkeypatch, capsys, "check", "--source", house / "home.toml", house / "weather.csv")
    assert code == 0 and "fit to take part" in out
    code, out, _ = run(monkeypatch, capsys, "import", house / "home.toml", "--agent", "h1", "-o", house / "mine")
    assert code == 0 and "zones.parquet" in out
    zones = pd.read_parquet(house / "mine" / "zones.parquet")
    assert len(zones) == 336 and set(zones["agent"]) == {"h1"} and zones["load_kw"].tolist()[:3] == [1, 2, 3]
    words = ["--query", "SELECT t AS time, room * 1.8 + 32 AS temperature, heat AS load FROM r ORDER BY t"]
    code, out, _ = run(monkeypatch, capsys, "check", "--source", f"sql:{house / 'house.db'}", *words)
    assert code == 1 and "looks like °F" in out and "could not take part" in out


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["check"], 2, "give a table of zones, or --source for one home"),
        (["check", "--source", "influx:x"], 2, "influx: unknown kind of source"),
        (["check", "--source", "sql:none.db"], 2, "give a query (--query)"),
        (["check", "--source", "sql:none.db", "--option", "query"], 2, "write NAME=VALUE"),
        (["import", "sql:none.db", "--query", "SELECT 1"], 2, "nowhere to write: say -o FOLDER, or --dry-run"),
        (["import", "sql:none.db", "--query", "SELECT 1", "-o", "made"], 1, "none.db: no such file"),
    ],
)
def test_what_is_wrong_with_a_source_is_one_line(monkeypatch, capsys, tmp_path, words, code, why):
    monkeypatch.chdir(tmp_path)
    found, out, err = run(monkeypatch, capsys, *words)
    assert (found, len(err.strip().splitlines())) == (code, 1) and why in err and not (tmp_path / "made").exists()
