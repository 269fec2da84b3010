"""The commands that use a model, from files to text and JSON."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import atdm
from atdm.cli import app


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def future(files, world) -> list[object]:
    return [files / "model.json", "--weather", files / "weather.csv", "--start", world.start.isoformat()]


def test_forecast(files, future, tmp_path):
    series = files / "series.csv"
    words = ["forecast", *future, "--load", series, "--truth", series]
    text = run(*words, "-o", tmp_path / "run.csv")
    assert "no change [K]" in text and "said to hold" in text and "model: order" in text
    assert (tmp_path / "run.csv").read_text().startswith("time,aggregate_temp_c,load_kw,low_80,high_80,low_95,high_95")
    document = json.loads(run(*words, "--json"))
    assert set(document) == {"model", "trajectory", "skill", "run_rmse", "coverage", "load_skill", "notes"}
    assert [row["hours"] for row in document["skill"]] == [1, 6, 24]


def test_forecast_starts_from_numbers_or_from_a_table(files, future, world):
    series = files / "series.csv"
    words = ["forecast", *future, "--load", series, "--horizon", "6h", "--json"]
    given = [19.5, 19.6, 19.7][: world.model.order]
    numbers = json.loads(run(*words, "--initial", ",".join(map(str, given))))
    assert [row["aggregate_temp_c"] for row in numbers["trajectory"][: len(given)]] == given
    assert len(numbers["trajectory"]) == len(given) + 6
    assert numbers["coverage"] == []
    table = json.loads(run(*words, "--initial", series))
    assert len(table["trajectory"]) == len(given) + 6


def test_select(files, tmp_path):
    words = ["select", files / "zones.parquet", files / "weather.csv", "--protocol", "plain"]
    text = run(*words)
    assert "chosen: the simplest within" in text and "no change (persistence)" in text
    (tmp_path / "days.txt").write_text("2024-01-01  # New Year\n2024-01-17\n")
    document = json.loads(run(*words, "--json", "--holidays", tmp_path / "days.txt"))
    assert {c["holidays"] for c in document["choice"]["candidates"]} == {True, False}
    assert [h["hours"] for h in document["horizons"]["chosen"]] == [1, 6, 24]


def test_update_and_drift_work_from_the_same_file(files, world, tmp_path):
    """From a model of the training rows, as if the test rows were observed."""
    cut = replace(world.model, released=world.model.released.between(None, world.start),
                  record=world.model.record.before(world.start))  # fmt: skip
    cut.save(tmp_path / "model.json")
    words = [tmp_path / "model.json", "--observed", files / "series.csv", "--weather", files / "weather.csv"]
    assert "τ1 [h]" in run("drift", *words, "--window", "7d", "--every", "4d", "--page", tmp_path / "drift.html")
    assert (tmp_path / "drift.html").exists()
    document = json.loads(run("update", *words, "-o", tmp_path / "new.json", "--json"))
    assert document["rows"] == len(world.fit.test) and document["drifted"] is False
    assert atdm.Model.load(tmp_path / "model.json").versions == ()
    text = run("update", *words, "--half-life", "0d", "--choose")
    assert "the model had not drifted" in text and "ms a row" in text and "updating made the error" in text
    assert len(atdm.Model.load(tmp_path / "model.json").versions) == 1


def test_fit_writes_what_the_other_commands_read(files, tmp_path):
    out = tmp_path / "out"
    text = run("fit", files / "zones.parquet", files / "weather.csv", "--protocol", "plain", "-o", out)
    assert "time constants" in text and "model to use: order" in text and "no change (persistence)" in text
    model = atdm.Model.load(out / "model.json")
    assert model.made in ("chosen", "refined") and model.record is not None
    metrics = json.loads((out / "metrics.json").read_text())
    assert "warnings" in metrics["diagnostics"] and metrics["horizons"]["chosen"][2]["hours"] == 24
    assert (out / "series.csv").read_text().startswith("time,aggregate_temp_c,load_kw,part")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--comfort", "21:17", "--initial", "19,19"], "first number must be below"),
        (["--comfort", "warm", "--initial", "19,19"], "write LOW:HIGH"),
        (["--comfort", "17:21"], "stamps of the weather \\(initial\\)"),
        (["--comfort", "17:21", "--initial", "19,19", "--price", "nowhere.csv"], "no such file"),
    ],
)
def test_mistakes_are_named_in_one_line(future, words, message):
    with pytest.raises(atdm.AtdmError, match=message) as refused:
        run("flexibility", *future, *words)
    assert "\n" not in str(refused.value)
