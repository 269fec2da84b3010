"""The commands of planning, from files to text, JSON and pages: flexibility, the forecast of the load, probe."""

import json

import pandas as pd
import pytest

import atdm
from tests.use.test_commands import run


@pytest.fixture
def future(files, world) -> list[object]:
    return [files / "model.json", "--weather", files / "weather.csv", "--start", world.start.isoformat()]


def test_flexibility(files, future, tmp_path):
    words = ["flexibility", *future, "--comfort", "15:22", "--initial", "19,19", "--power", "0:40", "--horizon", "12h"]
    text = run(*words, "--price", files / "price.csv", "--storage", tmp_path / "storage.json", "--confidence", "0.9",
               "-o", tmp_path / "offer")  # fmt: skip
    assert "can be dropped for" in text and "saves" in text and "equivalent storage" in text
    assert "with 90 % confidence" in text and "1 kW more for 24 h warms by" in text
    storage = json.loads((tmp_path / "storage.json").read_text())
    assert len(storage["soc-minima"]) == len(storage["soc-maxima"]) == 12 and storage["production-capacity"] == "0 kW"
    document = json.loads(run(*words, "--json"))
    assert document["saving"] is None and document["confident"] is None
    assert len(document["envelope"]) == 12 and document["planning"]["usable"]
    assert set(document["schedules"]) == {"dropped", "lifted", "baseline", "cheapest"}


def test_flexibility_writes_tables_json_and_a_page(files, future, tmp_path):
    folder = tmp_path / "offer"
    words = ["flexibility", *future, "--comfort", "15:22", "--initial", files / "series.csv", "--power", "0:40",
             "--horizon", "12h", "--price", files / "price.csv", "--confidence", "0.9", "-o", folder]  # fmt: skip
    text = run(*words)
    assert "is not given" not in text  # the table has the load of the past rows
    assert {path.name for path in folder.iterdir()} == {
        "envelope.csv", "schedules.csv", "held.csv", "flexibility.json", "flexibility.html"
    }  # fmt: skip
    assert json.loads((folder / "flexibility.json").read_text())["confident"]["confidence"] == 0.9
    page = (folder / "flexibility.html").read_text()
    for name in ("power", "energy", "held", "temperature", "load", "cost"):
        assert f'<figure class="figure" id="{name}"' in page
    assert "default-src 'none'" in page and "http" not in page.split("<body")[1].replace("http://www.w3.org", "")
    envelope = pd.read_csv(folder / "envelope.csv")
    assert len(envelope) == 12 and "confident_power_low" in envelope
    schedules = pd.read_csv(folder / "schedules.csv")
    assert {"baseline_kw", "cheapest_kw", "cheapest_temp_c", "confident_cheapest_kw"} <= set(schedules)


def test_a_refusal_leaves_no_folder(files, future, tmp_path, world):
    fitted = atdm.fit(world.cluster, "plain", train=0.7).chosen
    fitted.save(tmp_path / "model.json")
    words = ["flexibility", tmp_path / "model.json", *future[1:], "--comfort", "15:22", "--initial", "19,19", "-o",
             tmp_path / "offer"]  # fmt: skip
    with pytest.raises(atdm.UsageError, match="--weights equal"):
        run(*words)
    assert not (tmp_path / "offer").exists()
    stated = run(*words, "--power", "0:40", "--assume-gain", "0.9")
    assert "as stated" in stated and (tmp_path / "offer").exists()


def test_forecast_of_the_load(files, future, tmp_path):
    words = ["forecast", *future, "--truth", files / "series.csv"]
    text = run(*words, "-o", tmp_path / "run.csv")
    assert "last week, kW" in text and "no change, kW" in text
    table = pd.read_csv(tmp_path / "run.csv")
    assert {"load_kw", "load_low_80", "load_high_95", "low_80", "truth_c"} <= set(table)
    assert not table.isna().any().any()
    assert (table["load_low_95"] <= table["load_low_80"]).all() and (table["load_low_80"] <= table["load_kw"]).all()
    document = json.loads(run(*words, "--json"))
    assert [row["horizon"] for row in document["load_skill"]] == ["1h", "6h", "24h"] and document["skill"] == []


def test_probe_and_fit_with_its_rows(files, tmp_path):
    plan = ["probe", "--start", "2024-01-03T00:00Z", "--setpoint", "20", "--comfort", "18:22", "-o", tmp_path / "plan"]
    text = run(*plan, "--entity", "climate.hall")
    assert "30 blocks, set points moved for 80 h" in text
    assert {path.name for path in (tmp_path / "plan").iterdir()} == {"probe.csv", "probe.ics", "home-assistant.yaml"}
    assert len(json.loads(run(*plan, "--json"))["blocks"]) == 30
    words = ["fit", files / "zones.parquet", files / "weather.csv", "--protocol", "plain", "--weights", "equal"]
    document = json.loads(run(*words, "--probed", tmp_path / "plan" / "probe.csv", "--json"))
    assert document["planning"]["excitation"]["probed_rows"] == 120  # five days of hours
