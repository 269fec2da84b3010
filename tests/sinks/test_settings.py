"""Settings of sinks: from a TOML file or table, refused in one line with the way out."""

from pathlib import Path

import pytest

import atdm
from atdm.sinks.settings import S2, FlexMeasures, Mqtt, choose_sinks, parse_sinks, read_sinks

RIGHT = {
    "flexmeasures": {"url": "https://fm.example.org", "email": "desk@example.org", "schedule": 7},
    "s2": {"url": "wss://cem.example.org/s2"},
    "mqtt": {"host": "homeassistant.local", "tls": True, "username": "atdm"},
}


def test_a_file_has_a_table_for_each_sink(tmp_path: Path):
    path = tmp_path / "sinks.toml"
    path.write_text('[mqtt]\nhost = "127.0.0.1"\nport = 1884\n[s2]\nname = "north"\n')
    assert read_sinks(path) == {"mqtt": Mqtt(host="127.0.0.1", port=1884), "s2": S2(name="north")}
    assert choose_sinks(path, ["s2"]) == {"s2": S2(name="north")}
    assert choose_sinks(None, ["mqtt"]) == {"mqtt": Mqtt()}
    assert set(parse_sinks(RIGHT, "rules.toml")) == {"flexmeasures", "s2", "mqtt"}


def test_lengths_of_time_are_written_as_elsewhere_or_in_seconds():
    written = parse_sinks({"mqtt": {"expires": "2h", "patience": "1min"}, "s2": {"patience": "30s"}}, "x")
    assert written == {"mqtt": Mqtt(expires=7200, patience=60.0), "s2": S2(patience=30.0)}
    assert written == parse_sinks({"mqtt": {"expires": 7200, "patience": 60}, "s2": {"patience": 30.0}}, "x")


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("mqtt", {"expires": "2 hours"}, "is not a length of time"),
        ("mqtt", {"patience": "2h"}, "$.patience"),
        ("mqt", {}, "no sink is called 'mqt' (is mqtt meant?)"),
        ("mqtt", {"hots": "x"}, "unknown field `hots` (is host meant?)"),
        ("mqtt", {"port": 70000}, "$.port"),
        ("mqtt", {"name": "a/#"}, "$.name"),
        ("mqtt", {"tls": False}, "would travel to homeassistant.local unencrypted"),
        ("mqtt", {"tls": False, "ca_file": "ca.pem"}, "write tls = true"),
        ("mqtt", {"username": None, "password_file": "x"}, "give a username too"),
        ("mqtt", {"password": "x"}, "unknown field `password`"),
        ("flexmeasures", {"url": "http://fm.example.org"}, "write https://, or insecure = true"),
        ("flexmeasures", {"url": "https://me:pw@fm.example.org"}, "give a password_file instead"),
        ("flexmeasures", {"url": "fm.example.org"}, "write https://HOST"),
        ("flexmeasures", {"email": "desk"}, "is no e-mail address"),
        ("flexmeasures", {"temperature": 0}, "$.temperature"),
        ("s2", {"url": "http://cem"}, "write wss://HOST"),
        ("s2", {"url": "ws://cem.example.org", "token_file": "t"}, "write wss://"),
        ("s2", {"url": "wss://cem?token=abc"}, "give a token_file instead"),
    ],
)
def test_what_is_wrong_is_one_line(kind: str, change: dict, words: str):
    with pytest.raises(atdm.DataError) as caught:
        parse_sinks({kind: {**RIGHT.get(kind, {}), **change}}, "rules.toml")
    assert words in str(caught.value) and str(caught.value).startswith("rules.toml: ") and "\n" not in str(caught.value)


def test_insecure_has_to_be_said_and_this_machine_needs_none():
    parse_sinks({"mqtt": {"host": "10.0.0.2", "username": "a", "insecure": True}}, "x")
    parse_sinks({"mqtt": {"host": "127.0.0.1", "username": "a"}}, "x")
    parse_sinks({"flexmeasures": {"url": "http://localhost:5000", "email": "a@b.c"}}, "x")


def test_what_has_no_usual_settings_has_to_be_described(tmp_path: Path):
    with pytest.raises(atdm.UsageError, match=r"write a table \[flexmeasures\]"):
        choose_sinks(None, ["flexmeasures"])
    with pytest.raises(atdm.UsageError, match="no sink is named"):
        choose_sinks(None, [])
    with pytest.raises(atdm.DataError, match="cannot be read"):
        read_sinks(tmp_path / "none.toml")


def test_a_password_file_that_others_may_read_is_refused(tmp_path: Path):
    path = tmp_path / "password"
    path.write_text("canary-1")
    path.chmod(0o644)
    found = FlexMeasures(url="https://fm.example.org", email="a@b.c", password_file=str(path))
    with pytest.raises(atdm.UsageError, match="chmod 600"):
        found.password()
