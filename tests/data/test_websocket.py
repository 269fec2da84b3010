"""Home Assistant over its websocket API, against a server made of what the API answers."""

import json
import logging
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from atdm.data.sources import open_source
from atdm.errors import DataError, UsageError

websockets = pytest.importorskip("websockets.sync.server", reason="pip install 'atdm[homeassistant]'")

START, STEP, ROWS = 1_700_006_400, 1800, 48
TOKEN = "long-lived-" + "x" * 40
ROOM, HEAT, HALL = "sensor.living_temperature", "sensor.heat_energy", "climate.hall"


class FakeServer:
    """Answers what the API does: compressed states with their attributes, statistics in milliseconds."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.history = {HALL: [
            {"s": "heat", "a": {"current_temperature": 68.0, "hvac_action": "heating"}, "lu": START},
            {"s": "heat", "lu": START + 900},  # attributes as before
            {"s": "heat", "a": {"current_temperature": 69.8, "hvac_action": "idle"}, "lu": START + STEP, "lc": START},
            {"s": "unavailable", "a": {}, "lu": START + 2 * STEP},
        ]}  # fmt: skip
        self.meta = {ROOM: ("temperature", "°F"), HEAT: ("energy", "Wh")}

    def answer(self, message: dict) -> object:
        kind = message["type"]
        if kind == "get_config":
            return {"unit_system": {"temperature": "°F"}}
        if kind == "get_states":
            return [{"entity_id": HALL}]
        if kind == "recorder/list_statistic_ids":
            return [{"statistic_id": name} for name in self.meta]
        if kind == "recorder/get_statistics_metadata":
            [name] = message["statistic_ids"]
            if name not in self.meta:
                return []
            unit_class, unit = self.meta[name]
            return [{"statistic_id": name, "unit_class": unit_class, "statistics_unit_of_measurement": unit}]
        if kind == "history/history_during_period":
            assert not message["minimal_response"] and not message["significant_changes_only"]
            return {name: self.history[name] for name in message["entity_ids"] if name in self.history}
        assert kind == "recorder/statistics_during_period" and message["units"]["temperature"] == "°C"
        [name] = message["statistic_ids"]
        if message["period"] != "5minute" or name not in self.meta:
            return {}
        starts = START - 300 + 300 * np.arange(1 + 6 * ROWS)
        values = {"mean": 20.0 + (starts - START) / 86400, "sum": (starts + 300 - START) / 3600 * 2.0}  # °C, kWh
        rows = [{"start": int(t) * 1000, "end": int(t + 300) * 1000} for t in starts]
        for row, mean, total in zip(rows, values["mean"], values["sum"], strict=True):
            row |= {"mean": mean} if name == ROOM else {"sum": total}
        return {name: rows}

    def handle(self, socket: object) -> None:
        socket.send(json.dumps({"type": "auth_required"}))
        hello = json.loads(socket.recv())
        good = hello == {"type": "auth", "access_token": TOKEN}
        socket.send(json.dumps({"type": "auth_ok" if good else "auth_invalid", "message": f"bad token {hello}"}))
        for text in socket if good else ():
            message = json.loads(text)
            self.asked.append(message)
            socket.send(json.dumps({"id": -1, "type": "event"}))  # of somebody's subscription
            result = {"id": message["id"], "type": "result", "success": True, "result": self.answer(message)}
            socket.send(json.dumps(result))


@contextmanager
def serving(server: FakeServer):
    with websockets.serve(server.handle, "127.0.0.1", 0) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{listening.socket.getsockname()[1]}"
        finally:
            listening.shutdown()
            thread.join()


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return str(path)


def test_statistics_come_in_our_units_from_the_server(token):
    server = FakeServer()
    with serving(server) as url:
        source = open_source(f"homeassistant:{url}", {"temperature": ROOM, "heat": HEAT, "token_file": token})
        rows = source.rows()
        later = source.rows(START + 40 * STEP)
    np.testing.assert_array_equal(rows.time, START + STEP * np.arange(ROWS))
    middle = 20.0 + (rows.time - START) / 86400 + (STEP - 300) / 2 / 86400
    np.testing.assert_allclose(rows.temperature, middle, atol=1e-9)
    np.testing.assert_allclose(rows.load, 2.0, atol=1e-9)
    np.testing.assert_array_equal(later.time, rows.time[41:])
    assert [m["id"] for m in server.asked] == sorted({m["id"] for m in server.asked})  # each question its own number


def test_a_thermostat_is_read_from_its_history_in_the_servers_unit(token):
    server = FakeServer()
    with serving(server) as url:
        names = {"temperature": HALL, "heat": HALL, "nominal_power": "4", "token_file": token}
        rows = open_source(f"homeassistant:{url}", names).rows()
    np.testing.assert_array_equal(rows.time, [START, START + STEP])
    np.testing.assert_allclose(rows.temperature, [20, 21])
    np.testing.assert_allclose(rows.load, [4, 0])


def test_times_at_which_the_server_was_off_are_seen_by_states_that_were_made_again(token):
    """Of the server's own entities; a sensor that forces its updates makes every state anew."""
    off, on = START + 10 * STEP, START + 20 * STEP
    server = FakeServer()
    states = [*range(START, off + 301, 300), *range(on + 60, START + ROWS * STEP, 300)]
    server.history |= {
        "zone.home": [{"s": "0", "lu": on}],  # at every start; what was before is purged
        ROOM: [{"s": "68", "a": {"unit_of_measurement": "°F"}, "lu": t} for t in states],
        HEAT: [{"s": str(t % 7), "a": {"unit_of_measurement": "kWh"}, "lu": t} for t in states],
    }
    with serving(server) as url:
        rows = open_source(f"homeassistant:{url}", {"temperature": ROOM, "heat": HEAT, "token_file": token}).rows()
        server.history["zone.home"] = [{"s": "1", "lu": START - 900, "lc": START - 5000}]  # it ran all the time
        again = open_source(f"homeassistant:{url}", {"temperature": ROOM, "heat": HEAT, "token_file": token}).rows()
    both = ~np.isnan(rows.temperature + rows.load)
    lacking = np.setdiff1d(START + STEP * np.arange(ROWS), rows.time[both])
    assert lacking.min() >= off and lacking.max() <= on and len(lacking) >= 10
    assert not np.isnan(again.temperature + again.load)[:ROWS].any() and again.time[ROWS] == START + ROWS * STEP


def test_an_address_of_a_page_is_that_of_its_server(token):
    names = {"temperature": ROOM, "heat": HEAT, "token_file": token}
    for address in ("http://host:8123/lovelace/0", "ws://host:8123/", "http://host:8123"):
        assert open_source(f"homeassistant:{address}", names).recorder.url == "ws://host:8123/api/websocket"


def test_a_question_that_the_server_does_not_know_is_said_with_what_to_configure(token):
    class Bare(FakeServer):
        def handle(self, socket):
            socket.send(json.dumps({"type": "auth_required"}))
            socket.recv()
            socket.send(json.dumps({"type": "auth_ok"}))
            message = json.loads(socket.recv())
            error = {"code": "unknown_command", "message": "Unknown command."}
            socket.send(json.dumps({"id": message["id"], "type": "result", "success": False, "error": error}))

    with (
        serving(Bare()) as url,
        pytest.raises(DataError, match="Unknown command: let Home Assistant.*have `history:` in"),
    ):
        open_source(f"homeassistant:{url}", {"temperature": ROOM, "heat": HEAT, "token_file": token}).rows()


def test_a_wrong_token_and_a_missing_server_are_said_without_the_token(tmp_path, token, monkeypatch):
    names = {"temperature": ROOM, "heat": HEAT}
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-token")
    wrong.chmod(0o600)
    with serving(FakeServer()) as url:
        with pytest.raises(DataError, match="refused the token: make a new one") as refused:
            open_source(f"homeassistant:{url}", {**names, "token_file": str(wrong)}).rows()
        source = open_source(f"homeassistant:{url}", {**names, "token_file": token})
        with pytest.raises(DataError, match="has no entity 'sensor.nothing'"):
            open_source(f"homeassistant:{url}", {**names, "heat": "sensor.nothing", "token_file": token}).rows()
    with pytest.raises(DataError, match="check the address, and that Home Assistant runs") as gone:
        source.rows()
    for text in (str(refused.value), str(gone.value), repr(source), repr(source.recorder), str(vars(source.recorder))):
        assert TOKEN not in text and "not-the-token" not in text
    with pytest.raises(UsageError, match="has a password or token in it: give a token_file"):
        open_source(f"homeassistant:ws://x:{TOKEN}@host:8123", {**names, "token_file": token})
    with pytest.raises(UsageError, match="give a token_file: a long-lived access token"):
        open_source("homeassistant:ws://host:8123", names)
    monkeypatch.setenv("SUPERVISOR_TOKEN", TOKEN)
    addon = open_source("homeassistant:ws://supervisor/core/websocket", names)
    assert addon.recorder.url == "ws://supervisor/core/websocket" and TOKEN not in str(vars(addon.recorder))


def test_neither_the_token_nor_a_reading_is_in_a_log_of_any_level(token, caplog):
    caplog.set_level(logging.DEBUG)
    with serving(FakeServer()) as url:
        names = {"temperature": ROOM, "heat": HEAT, "token_file": token}
        assert len(open_source(f"homeassistant:{url}", names).rows())
    said = "".join(record.getMessage() for record in caplog.records if record.name != "websockets.server")
    assert TOKEN not in said and "statistics" not in said


def test_a_token_file_that_others_may_read_is_refused(token):
    import os

    os.chmod(token, 0o644)
    with pytest.raises(UsageError, match="others may read it: chmod 600"):
        open_source("homeassistant:ws://host:8123", {"temperature": ROOM, "heat": HEAT, "token_file": token})
