"""The commands that use a model, from files to text and JSON."""

import json

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
    assert "seasonal-naive" in text and "80 % bands hold" in text
    assert (tmp_path / "run.csv").read_text().startswith("time,aggregate_temp_c,load_kw,low_80,high_80,low_95,high_95")
    document = json.loads(run(*words, "--json"))
    assert set(document) == {"trajectory", "skill", "free_run_rmse", "coverage", "notes"}
    assert [row["horizon"] for row in document["skill"]] == ["1h", "6h", "24h", "7d"]


def test_forecast_starts_from_numbers_or_from_a_table(files, future):
    series = files / "series.csv"
    words = ["forecast", *future, "--load", series, "--horizon", "6h", "--json"]
    numbers = json.loads(run(*words, "--initial", "19.5,19.6"))
    assert [row["aggregate_temp_c"] for row in numbers["trajectory"][:2]] == [19.5, 19.6]
    assert len(numbers["trajectory"]) == 8
    assert numbers["coverage"] is None
    table = json.loads(run(*words, "--initial", series))
    assert len(table["trajectory"]) == 8


def test_flexibility(files, future, tmp_path):
    words = ["flexibility", *future, "--comfort", "17:21", "--initial", "19,19", "--power", "0:40", "--horizon", "12h"]
    text = run(*words, "--price", files / "price.csv", "--storage", tmp_path / "storage.json")
    assert "can be dropped for" in text and "saves" in text and "equivalent storage" in text
    assert json.loads((tmp_path / "storage.json").read_text())["soc-min"] == "0 kWh"
    document = json.loads(run(*words, "--json"))
    assert document["saving"] is None
    assert len(document["envelope"]) == 12
    assert set(document["schedules"]) == {"dropped", "lifted", "baseline", "cheapest"}


def test_select(files):
    words = ["select", files / "zones.parquet", files / "weather.csv", "--orders", "1,2", "--ridges", "100",
             "--protocol", "plain"]  # fmt: skip
    assert "looked at once" in run(*words)
    document = json.loads(run(*words, "--json"))
    assert document["chosen"] == {"order": 2, "ridge": 100.0, "season": "24h"}
    assert len(document["candidates"]) == 2


def test_fit_writes_what_the_other_commands_read(files, tmp_path):
    out = tmp_path / "out"
    text = run("fit", files / "zones.parquet", files / "weather.csv", "--protocol", "plain", "-o", out)
    assert "time constants" in text
    assert atdm.Model.load(out / "model.json").training is not None
    assert "warnings" in json.loads((out / "metrics.json").read_text())["diagnostics"]
    assert (out / "series.csv").read_text().startswith("time,aggregate_temp_c,load_kw,part")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--comfort", "21:17", "--initial", "19,19"], "first number must be below"),
        (["--comfort", "warm", "--initial", "19,19"], "write LOW:HIGH"),
        (["--comfort", "17:21"], "at the first 2 stamps of the weather"),
        (["--comfort", "17:21", "--initial", "19,19", "--price", "nowhere.csv"], "no such file"),
    ],
)
def test_mistakes_are_named_in_one_line(future, words, message):
    with pytest.raises(atdm.AtdmError, match=message) as refused:
        run("flexibility", *future, *words)
    assert "\n" not in str(refused.value)
