"""`atdm send`: from files to sinks, or to the messages on standard output."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import atdm
from atdm.sinks.send import Sinks
from atdm.sinks.settings import S2, FlexMeasures, Mqtt
from tests.sinks.conftest import MADE
from tests.use.test_commands import run


@pytest.fixture(scope="module")
def words(world, tmp_path_factory) -> list[object]:
    fit, weather, observed = world
    folder: Path = tmp_path_factory.mktemp("send")
    fit.chosen.save(folder / "model.json")
    weather.rename_axis("time").reset_index().to_csv(folder / "weather.csv", index=False)
    observed.to_csv(folder / "observed.csv")
    return ["send", folder / "model.json", "--observed", folder / "observed.csv", "--weather", folder / "weather.csv"]


def test_a_dry_run_prints_one_message_a_line_and_needs_no_sink(words):
    text = run(
        *words, "--to", "s2", "--to", "mqtt", "--comfort", "16:22", "--power", "0:40", "--made", MADE, "--dry-run"
    )
    messages = [json.loads(line) for line in text.splitlines()]
    kinds = {message.get("message_type") for message in messages}
    assert {"FRBC.SystemDescription", "PEBC.PowerConstraints", "PowerForecast"} <= kinds
    assert {message["topic"] for message in messages if message["to"] == "mqtt"} >= {"atdm/atdm/state"}


def test_results_arrive_and_a_sink_that_is_down_is_exit_1(words, open_broker, tmp_path):
    path = tmp_path / "sinks.toml"
    path.write_text(f'[mqtt]\nhost = "127.0.0.1"\nport = {open_broker.mqtt}\n')
    assert "mqtt 127.0.0.1" in run(*words, "--settings", path)
    document = json.loads(run(*words, "--settings", path, "--json"))
    assert document["sent"][0]["failed"] is None and document["sent"][0]["messages"] == 11
    path.write_text('[mqtt]\nhost = "127.0.0.1"\nport = 1\npatience = 1\n')
    done = subprocess.run([sys.executable, "-m", "atdm", *map(str, words), "--settings", str(path)], text=True,
                          capture_output=True, timeout=120)  # fmt: skip
    assert done.returncode == 1 and "mqtt: failed after 0 messages" in done.stdout and "Traceback" not in done.stderr


def test_comfort_is_refused_where_the_response_to_load_is_not_known(world, words, tmp_path):
    fitted = atdm.fit(atdm.load_sample(), "plain", weights="equal")
    assert fitted.planning is None
    fitted.chosen.save(tmp_path / "model.json")
    sky = fitted.chosen.released
    import pandas as pd

    table = pd.DataFrame({"outdoor_temp_c": sky.outdoor, "solar_w_m2": 1000 * sky.solar}, index=sky.time)
    table.rename_axis("time").reset_index().to_csv(tmp_path / "weather.csv", index=False)
    fitted.series()[["aggregate_temp_c", "load_kw"]].iloc[:-60].to_csv(tmp_path / "observed.csv")
    files = ["send", tmp_path / "model.json", "--observed", tmp_path / "observed.csv", "--weather",
             tmp_path / "weather.csv", "--to", "mqtt", "--dry-run"]  # fmt: skip
    with pytest.raises(atdm.UsageError, match="atdm probe"):
        run(*files, "--comfort", "17:21")
    assert "no_flexibility" in run(*files)  # state and forecast are there all the same


def test_a_forecast_counts_as_made_after_the_rows_it_starts_from(words):
    with pytest.raises(atdm.UsageError, match="had not ended then"):
        run(*words, "--to", "mqtt", "--made", "2024-01-17T15:30Z", "--dry-run")


def test_sinks_are_tried_one_by_one_and_none_stops_the_others(results, monkeypatch):
    sinks = Sinks(
        {"s2": S2(url="ws://127.0.0.1:1", patience=1.0), "mqtt": Mqtt(host="127.0.0.1", port=1, patience=1.0)}
    )
    first, second = sinks.send(results)
    assert first.failed and second.failed
    monkeypatch.setattr("atdm.sinks.s2.messages", lambda *_: 1 / 0)  # a fault of our own is no reason to stop either
    assert sinks.send(results)[0].failed == "division by zero"
    sinks.close()


@pytest.mark.parametrize(
    ("module", "to"),
    [
        ("flexmeasures_client.client", FlexMeasures(url="http://127.0.0.1:1", email="a@b.c")),
        ("s2python.s2_parser", S2(url="ws://127.0.0.1:1")),
        ("paho.mqtt.client", Mqtt()),
    ],
)
def test_a_library_that_is_not_installed_is_named(results, monkeypatch, module, to):
    monkeypatch.setitem(sys.modules, module, None)
    [sent] = Sinks({"any": to}).send(results)
    assert "is not installed: pip install 'atdm[" in sent.failed


def test_the_command_line_does_not_import_what_it_does_not_send_with():
    code = (
        "import sys; from atdm.cli import load; load('send'); load('flexibility');"
        "heavy = {'pydantic', 'aiohttp', 's2python', 'paho', 'flexmeasures_client', 'websockets'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
