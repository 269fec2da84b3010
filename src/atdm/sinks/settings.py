"""Which sinks there are and how to reach them: a TOML table with one table for each, or a file of that.

[mqtt]
host = "homeassistant.local"
username = "atdm"
password_file = "/etc/atdm/mqtt.password"
"""

import ipaddress
import logging
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from atdm.data.seconds import length
from atdm.data.settings import read_toml
from atdm.data.sources.secret import Secret, read_secret
from atdm.errors import DataError, UsageError

SILENT = logging.getLogger("atdm.sinks.library")  # of libraries that log passwords and tokens when debugging
SILENT.disabled = True
TOKEN = "ATDM_S2_TOKEN"  # environment variable

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]  # a part of topics and identifiers
SensorId = Annotated[int, msgspec.Meta(ge=1)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
LENGTHS = ("patience", "expires")
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one sink."""

    def check(self) -> None:
        """Raise where values do not go together."""


class FlexMeasures(Settings, frozen=True, kw_only=True):
    """A FlexMeasures server, and the ids of its sensors. Power sensors have the model's step."""

    url: Text  # https://…
    email: Text
    temperature: SensorId | None = None  # aggregate temperature, observed and forecast                    [°C]
    temperature_low: SensorId | None = None  # ends of its band
    temperature_high: SensorId | None = None
    load: SensorId | None = None  # of the cluster, observed and forecast                                  [kW]
    load_low: SensorId | None = None
    load_high: SensorId | None = None
    band: Literal["80", "95"] = "80"  # which band goes to the sensors of its ends                         [%]
    schedule: SensorId | None = None  # power sensor that a schedule is asked for; none: no schedule       [kW]
    price: SensorId | Text | None = None  # sensor, or a fixed one such as "0.3 EUR/kWh"; none: the asset's own
    password_file: Text | None = None  # else ATDM_FLEXMEASURES_PASSWORD
    patience: Seconds = 120.0  # for the schedule to be made                                               [s]
    insecure: bool = False  # send the password unencrypted to another machine

    def check(self) -> None:
        where = urlsplit(self.url)
        if where.scheme not in ("http", "https") or not where.hostname or where.path not in ("", "/"):
            raise UsageError(f"url {self.url}: write https://HOST or https://HOST:PORT")
        if where.username or where.password or where.query:
            raise UsageError("url: has a password in it: give a password_file instead")
        if not re.fullmatch(r".+@.+\..+", self.email):
            raise UsageError(f"email {self.email}: is no e-mail address")
        _guard(where.hostname, where.scheme == "https", self.insecure, "write https://, or insecure = true")

    def password(self) -> Secret:
        return _password(self.password_file, "ATDM_FLEXMEASURES_PASSWORD")


class S2(Settings, frozen=True, kw_only=True):
    """A customer energy manager (CEM) that speaks S2 over a websocket."""

    url: Text | None = None  # wss://…; none: messages can be printed, not sent
    name: Name = "atdm"  # of the resource
    commodity: Literal["heat", "electricity"] | None = None  # of the load; none: as the model was fitted
    patience: Seconds = 20.0  # for each answer                                                            [s]
    token_file: Text | None = None  # bearer token, else ATDM_S2_TOKEN, else none
    insecure: bool = False  # send the token unencrypted to another machine

    def check(self) -> None:
        if self.url is None:
            return
        where = urlsplit(self.url)
        if where.scheme not in ("ws", "wss") or not where.hostname:
            raise UsageError(f"url {self.url}: write wss://HOST:PORT/PATH")
        if where.username or where.password or where.query:
            raise UsageError("url: has a password or token in it: give a token_file instead")
        if self.token_file is not None or self.token() is not None:
            _guard(where.hostname, where.scheme == "wss", self.insecure, "write wss://, or insecure = true")

    def token(self) -> Secret | None:
        return read_secret(self.token_file, TOKEN)


class Mqtt(Settings, frozen=True, kw_only=True):
    """An MQTT broker that Home Assistant listens to."""

    host: Text = "localhost"
    port: Port | None = None  # none: 8883 with TLS, 1883 without
    tls: bool = False
    ca_file: Text | None = None  # certificates to trust instead of the system's
    username: Text | None = None
    password_file: Text | None = None  # else ATDM_MQTT_PASSWORD
    name: Name = "atdm"  # of the device, and part of its topics
    discovery: Name = "homeassistant"  # first part of the topics that announce sensors
    expires: Annotated[int, msgspec.Meta(ge=1, le=7 * 86400)] = 7200  # sensors are unavailable after that silence [s]
    patience: Seconds = 20.0  # for connecting, and for each message                                       [s]
    insecure: bool = False  # send the password unencrypted to another machine

    def check(self) -> None:
        if self.ca_file is not None and not self.tls:
            raise UsageError("ca_file: is for TLS: write tls = true")
        if self.username is not None:
            _guard(self.host, self.tls, self.insecure, "write tls = true, or insecure = true")
        elif self.password_file is not None:
            raise UsageError("password_file: belongs to a user: give a username too")

    def password(self) -> Secret:
        return _password(self.password_file, "ATDM_MQTT_PASSWORD")

    @property
    def port_used(self) -> int:
        return self.port or (8883 if self.tls else 1883)


KINDS: dict[str, type[Settings]] = {"flexmeasures": FlexMeasures, "s2": S2, "mqtt": Mqtt}


def read_sinks(path: Path) -> dict[str, Settings]:
    """Kind → settings, of every sink that a TOML file has a table for."""
    return parse_sinks(read_toml(path, "write a table for each sink, such as [mqtt]"), str(path))


def parse_sinks(table: Mapping[str, Any], where: str) -> dict[str, Settings]:
    """Kind → settings, of a table of tables; where: what it is part of, for messages."""
    found = {}
    for kind, content in table.items():
        if kind not in KINDS:
            raise DataError(f"{where}: no sink is called {kind!r}{_meant(kind, KINDS)}: there are {', '.join(KINDS)}")
        try:
            found[kind] = msgspec.convert(_in_seconds(content), KINDS[kind])
            found[kind].check()
        except msgspec.ValidationError as error:
            unknown = re.search(r"unknown field `(.*?)`", str(error))
            meant = _meant(unknown[1], KINDS[kind].__struct_fields__) if unknown else ""
            raise DataError(f"{where}: [{kind}]: {error}{meant}: see docs/sinks.md") from None
        except UsageError as error:
            raise DataError(f"{where}: [{kind}]: {error}") from None
    return found


def _in_seconds(content: Any) -> Any:
    """A sink's table; its lengths of time may be written "2h" as elsewhere, or as a number of seconds."""
    if not isinstance(content, Mapping):
        return content
    written = {key: length(value) for key, value in content.items() if key in LENGTHS and isinstance(value, str)}
    return {**content, **written}


def choose_sinks(path: Path | None, kinds: Sequence[str]) -> dict[str, Settings]:
    """Kind → settings of these sinks, or of all that the file has; without a table there usual ones do, if they can."""
    described = {} if path is None else read_sinks(path)
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"no sink is called {kind!r}{_meant(kind, KINDS)}: there are {', '.join(KINDS)}")
        if kind not in described and any(field.required for field in msgspec.structs.fields(KINDS[kind])):
            raise UsageError(
                f"{kind} has to be described: write a table [{kind}] into a file, and give it by --settings"
            )
    found = {kind: described.get(kind) or KINDS[kind]() for kind in kinds} if kinds else described
    if not found:
        raise UsageError(f"no sink is named: give --to ({', '.join(KINDS)}), or --settings with a table for each")
    return found


def _meant(word: str, names: Any) -> str:
    near = get_close_matches(word, list(names), 1)
    return f" (is {near[0]} meant?)" if near else ""


def _password(path: str | None, variable: str) -> Secret:
    found = read_secret(path, variable)
    if found is None:
        raise UsageError(f"there is no password: give password_file, or set {variable}")
    return found


def _guard(host: str, encrypted: bool, insecure: bool, remedy: str) -> None:
    """Refuse to send a password unencrypted to another machine."""
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost"
    if not (encrypted or here or insecure):
        raise UsageError(f"the password would travel to {host} unencrypted: {remedy}")
