"""Home Assistant over MQTT: what a subscriber of a real broker (nats-server) gets."""

import json
import logging
import threading
import time
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from atdm.deploy.server import make_ca, make_server_certificate
from atdm.sinks import mqtt
from atdm.sinks.send import Sinks
from atdm.sinks.settings import Mqtt
from tests.sinks.conftest import broker

SECRET = "canary-hunter2-7Qz"


class Listener:
    """A client that keeps the newest payload of each topic."""

    def __init__(self, port: int) -> None:
        self.heard: dict[str, str] = {}
        self.changed = threading.Condition()
        self.client = Client(CallbackAPIVersion.VERSION2)
        self.client.on_message = self._take
        self.client.on_connect = lambda client, *_: client.subscribe([("homeassistant/#", 1), ("atdm/#", 1)])
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert subscribed.wait(20.0)  # what the broker gets while it subscribes may be neither retained yet nor sent

    def _take(self, _client, _data, message) -> None:
        with self.changed:
            self.heard[message.topic] = message.payload.decode()
            self.changed.notify_all()

    def wait(self, topic: str, payload: str | None = None, seconds: float = 20.0) -> str:
        with self.changed:
            there = lambda: topic in self.heard and payload in (None, self.heard[topic])  # noqa: E731
            assert self.changed.wait_for(there, seconds), f"{topic}: {self.heard.get(topic)}"
            return self.heard[topic]

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def listener(open_broker):
    made = Listener(open_broker.mqtt)
    yield made
    made.close()


def test_home_assistant_finds_the_sensors_and_their_values(open_broker, results, caplog):
    """Whoever subscribes later gets everything: all of it is retained."""
    caplog.set_level(logging.DEBUG)
    sinks = Sinks({"mqtt": Mqtt(host="127.0.0.1", port=open_broker.mqtt, name="north")})
    [sent] = sinks.send(results)
    assert sent.failed is None and sent.messages == len(mqtt.SENSORS) + 3
    listener = Listener(open_broker.mqtt)
    state = json.loads(listener.wait("atdm/north/state"))
    for key, sensor in mqtt.SENSORS.items():
        config = json.loads(listener.wait(f"homeassistant/sensor/north/{key}/config"))
        assert config["value_template"] == f"{{{{ value_json.{key} }}}}" and key in state
        assert config["state_topic"] == "atdm/north/state" and config["unit_of_measurement"] == sensor.unit
        assert config["availability_topic"] == "atdm/north/availability" and config["state_class"] == "measurement"
        assert config["unique_id"] == f"atdm_north_{key}" and config["device"]["identifiers"] == ["atdm_north"]
    assert listener.wait("atdm/north/availability") == "online"
    last, offer = results.observed.iloc[-1], results.offer
    assert state["temperature"] == pytest.approx(last["aggregate_temp_c"], abs=1e-4)
    assert state["load_most"] == pytest.approx(offer.envelope["power_high"].iloc[0], abs=1e-4)
    assert state["drop_hours"] == offer.expected.drop.total_seconds() / 3600 and state["no_flexibility"] is None
    ahead = json.loads(listener.wait("atdm/north/forecast"))["load"]["forecast"]
    assert len(ahead) == len(results.forecast)
    assert ahead[3]["high_95"] == pytest.approx(results.forecast["load_high_95"].iloc[3], abs=1e-4)
    sinks.close()
    assert listener.wait("atdm/north/availability", "offline")
    listener.close()


def test_without_an_offer_flexibility_is_unknown_not_left_standing(open_broker, results, plain):
    sinks = Sinks({"mqtt": Mqtt(host="127.0.0.1", port=open_broker.mqtt)}, lasting=False)
    sinks.send(results)
    sinks.send(plain)
    sinks.close()
    listener = Listener(open_broker.mqtt)
    state = json.loads(listener.wait("atdm/atdm/state"))
    assert [state[key] for key in ("load_least", "load_most", "drop_hours", "lift_hours")] == [None] * 4
    assert "comfort band" in state["no_flexibility"] and state["temperature"] is not None
    assert listener.wait("atdm/atdm/availability") == "online"  # values count until they expire
    listener.close()


def test_a_sender_that_dies_is_offline_by_its_last_will(open_broker, listener):
    connection = mqtt.Connection(Mqtt(host="127.0.0.1", port=open_broker.mqtt))
    listener.wait("atdm/atdm/availability", "online")
    connection._client._sock_close()  # as a crash would: no DISCONNECT is sent
    listener.wait("atdm/atdm/availability", "offline")
    listener.wait("atdm/atdm/availability", "online")  # it comes back by itself, and says so
    connection.close(gone=False)


def test_a_broker_that_goes_away_and_comes_back_is_used_again(tmp_path, results):
    settings = {"mqtt": Mqtt(host="127.0.0.1", port=1, patience=2.0)}
    [sent] = Sinks(settings).send(results)
    assert sent.messages == 0 and "see whether the broker runs" in sent.failed and "\n" not in sent.failed
    running = broker(tmp_path)
    running.start()
    sinks = Sinks({"mqtt": Mqtt(host="127.0.0.1", port=running.mqtt, patience=10.0)})
    try:
        assert sinks.send(results)[0].failed is None
        running.kill()
        running.start()
        end = time.monotonic() + 60
        while (sent := sinks.send(results)[0]).failed and time.monotonic() < end:
            assert "did not take" in sent.failed
        assert sent.failed is None
        running.kill()
    finally:
        sinks.close()  # nobody is there to be told
        running.stop()


@pytest.fixture
def password(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    return str(file)


# paho leaves the socket of a failed handshake to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls_and_password(tmp_path, results, password, caplog):
    """Over TLS with its own authority; a wrong password and an unknown authority are refused in one line each."""
    caplog.set_level(logging.DEBUG)
    ca, key = make_ca()
    certificate, own = make_server_certificate(ca, key, ["127.0.0.1"])
    (tmp_path / "ca.pem").write_text(ca)
    (tmp_path / "server.pem").write_text(certificate)
    (tmp_path / "server.key").write_bytes(own)
    more = f'authorization {{ users: [ {{ user: "desk", password: "{SECRET}" }} ] }}'
    tls = 'tls { cert_file: "server.pem", key_file: "server.key" }'
    with broker(tmp_path, more=more, tls=tls) as running:
        right = Mqtt(host="127.0.0.1", port=running.mqtt, tls=True, ca_file=str(tmp_path / "ca.pem"), username="desk",
                     password_file=password)  # fmt: skip
        sinks = Sinks({"mqtt": right}, lasting=False)
        [sent] = sinks.send(results)
        assert sent.failed is None, sent.failed
        sinks.close()
        wrong = tmp_path / "wrong"
        wrong.write_text("something else")
        wrong.chmod(0o600)
        other = Mqtt(host="127.0.0.1", port=running.mqtt, tls=True, ca_file=str(tmp_path / "ca.pem"), username="desk",
                     password_file=str(wrong))  # fmt: skip
        assert "check username and password" in Sinks({"mqtt": other}).send(results)[0].failed
        stranger = Mqtt(host="127.0.0.1", port=running.mqtt, tls=True, username="desk", password_file=password)
        assert "CERTIFICATE_VERIFY_FAILED" in Sinks({"mqtt": stranger}).send(results)[0].failed
    assert SECRET not in caplog.text + repr(sinks.__dict__) + repr(right)
