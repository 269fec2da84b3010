"""Home Assistant over MQTT: sensors that announce themselves, with state, forecast and flexibility.

    homeassistant/sensor/NAME/KEY/config      what a sensor is; retained
    atdm/NAME/availability                    online; offline by the last will, or when a lasting sender stops; retained
    atdm/NAME/state                           one JSON object, of which each sensor takes its key; retained
    atdm/NAME/forecast                        by series: made, and for each step time, value and ends of its bands

Rule 1: a value that is not known is null, which Home Assistant shows as unknown; nothing is left standing.
Rule 2: sensors expire in Home Assistant when nothing came for `expires` seconds, also if nobody is there to say so.
"""

import contextlib
import json
import threading
from typing import Any, NamedTuple

import pandas as pd

from atdm.errors import RunAborted, UsageError
from atdm.sinks.results import Results
from atdm.sinks.settings import Mqtt

ONLINE, OFFLINE = "online", "offline"
QOS = 1  # at least once
KEEPALIVE = 60  # seconds after which a broker notices a silent sender, and half as many more
MOST_WAITING = 50  # messages while a broker is away; none is lost that the next sending does not bring again
DIGITS = 4  # decimals of a value
FORECAST = {  # series → its column, and by name what stands beside each value
    "temperature": ("aggregate_temp_c", ("low_80", "high_80", "low_95", "high_95")),
    "load": ("load_kw", ("load_low_80", "load_high_80", "load_low_95", "load_high_95")),
}


class Sensor(NamedTuple):
    """One sensor of Home Assistant."""

    name: str
    unit: str
    device_class: str
    forecast: str | None = None  # series that is its attributes


SENSORS = {
    "temperature": Sensor("Temperature", "°C", "temperature"),
    "load": Sensor("Load", "kW", "power"),
    "temperature_next": Sensor("Temperature forecast", "°C", "temperature", "temperature"),
    "load_next": Sensor("Load forecast", "kW", "power", "load"),
    "load_least": Sensor("Least load", "kW", "power"),
    "load_most": Sensor("Most load", "kW", "power"),
    "drop_hours": Sensor("Load can be dropped for", "h", "duration"),
    "lift_hours": Sensor("Load can be raised for", "h", "duration"),
}


class Message(NamedTuple):
    """One message; all are retained."""

    topic: str
    payload: str


def topic(to: Mqtt, what: str) -> str:
    return f"atdm/{to.name}/{what}"


def messages(to: Mqtt, results: Results) -> list[Message]:
    """Everything that is published: sensors first, so that their values find them."""
    return [
        *(Message(f"{to.discovery}/sensor/{to.name}/{key}/config", _json(_config(to, key))) for key in SENSORS),
        Message(topic(to, "availability"), ONLINE),
        Message(topic(to, "state"), _json(_state(results))),
        Message(topic(to, "forecast"), _json(_forecast(results))),
    ]


def _config(to: Mqtt, key: str) -> dict[str, Any]:
    sensor = SENSORS[key]
    config: dict[str, Any] = {
        "name": sensor.name,
        "unique_id": f"atdm_{to.name}_{key}",
        "state_topic": topic(to, "state"),
        "value_template": f"{{{{ value_json.{key} }}}}",
        "unit_of_measurement": sensor.unit,
        "device_class": sensor.device_class,
        "state_class": "measurement",
        "suggested_display_precision": 1,
        "availability_topic": topic(to, "availability"),
        "expire_after": to.expires,
        "qos": QOS,
        "device": {"identifiers": [f"atdm_{to.name}"], "name": to.name, "manufacturer": "atdm",
                   "model": "building cluster"},
        "origin": {"name": "atdm"},
    }  # fmt: skip
    if sensor.forecast is not None:
        config["json_attributes_topic"] = topic(to, "forecast")
        config["json_attributes_template"] = f"{{{{ value_json.{sensor.forecast} | tojson }}}}"
    return config


def _state(results: Results) -> dict[str, Any]:
    last, ahead, offer = results.observed.iloc[-1], results.forecast.iloc[0], results.offer
    now = None if offer is None else offer.envelope.iloc[0]
    return {
        "observed": results.observed.index[-1].isoformat(),
        "temperature": _rounded(last["aggregate_temp_c"]),
        "load": _rounded(last["load_kw"]),
        "temperature_next": _rounded(ahead["aggregate_temp_c"]),
        "load_next": _rounded(ahead["load_kw"]),
        "load_least": None if now is None else _rounded(now["power_low"]),
        "load_most": None if now is None else _rounded(now["power_high"]),
        "drop_hours": None if offer is None else offer.expected.drop.total_seconds() / 3600,
        "lift_hours": None if offer is None else offer.expected.lift.total_seconds() / 3600,
        "no_flexibility": results.refused if offer is None else None,
    }


def _forecast(results: Results) -> dict[str, Any]:
    """Attributes by series. Short names: Home Assistant keeps no history of attributes above 16 kB."""
    table = results.forecast
    found = {}
    for series, (column, bands) in FORECAST.items():
        names = {"value": column, **{b.removeprefix("load_"): b for b in bands if b in table}}
        found[series] = {
            "made": results.made.isoformat(),
            "forecast": [
                {"time": t.isoformat(), **{name: _rounded(table.at[t, c]) for name, c in names.items()}}
                for t in table.index
            ],
        }
    return found


def _rounded(value: Any) -> float | None:
    return None if pd.isna(value) else round(float(value), DIGITS)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


class Connection:
    """A connection to a broker, whose last will says offline. It is made again by itself when it is lost."""

    def __init__(self, to: Mqtt) -> None:
        try:
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
        except ImportError:
            raise UsageError("paho-mqtt is not installed: pip install 'atdm[mqtt]'") from None
        self.to = to
        self._answered, self._refused = threading.Event(), ""
        client = self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311)
        client.connect_timeout = to.patience
        client.max_queued_messages_set(MOST_WAITING)
        client.will_set(topic(to, "availability"), OFFLINE, QOS, retain=True)
        if to.username is not None:
            client.username_pw_set(to.username, to.password().reveal())
        if to.tls:
            client.tls_set(to.ca_file)
        client.on_connect = self._connected
        try:
            client.connect(to.host, to.port_used, KEEPALIVE)
        except OSError as error:
            raise RunAborted(f"no connection ({error}): see whether the broker runs, and host, port and tls") from None
        client.loop_start()
        if not self._answered.wait(to.patience):
            self._stop()
            raise RunAborted(f"the broker did not answer within {to.patience:g} s: see host, port and tls")
        if self._refused:
            self._stop()
            raise RunAborted(f"the broker refused ({self._refused}): check username and password")

    def __repr__(self) -> str:
        return f"Connection({self.to.host}:{self.to.port_used})"

    def _connected(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._refused = str(reason) if reason.is_failure else ""
        if not self._refused:  # the will may have said otherwise while the connection was lost
            client.publish(topic(self.to, "availability"), ONLINE, QOS, retain=True)
        self._answered.set()

    def publish(self, messages: list[Message], sent: list[int]) -> None:
        """Each is taken by the broker before the next; sent: counts them."""
        for message in messages:
            done = self._client.publish(message.topic, message.payload, QOS, retain=True)
            try:
                done.wait_for_publish(self.to.patience)
                taken = done.is_published()
            except (RuntimeError, ValueError):
                taken = False
            if not taken:
                raise RunAborted(f"the broker did not take {message.topic} within {self.to.patience:g} s")
            sent.append(1)

    def close(self, gone: bool) -> None:
        """End it; gone: and say that nobody will send from now on."""
        if gone:
            with contextlib.suppress(RuntimeError, ValueError):  # not connected: the will has said it
                self._client.publish(topic(self.to, "availability"), OFFLINE, QOS, retain=True).wait_for_publish(2.0)
        self._stop()

    def _stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
