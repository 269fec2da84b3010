"""The desk's page and HTTP API: who may ask, what they are told, in which form, and never a home's own numbers."""

import http.client
import json
import re
import sqlite3
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from atdm.crypto.keys import SigningKey
from atdm.deploy.fleet import Fleet
from atdm.deploy.record import ServiceRecord
from atdm.deploy.service import Service
from atdm.deploy.service_state import State
from atdm.errors import UsageError
from atdm.protocol.roster import sign_roster
from atdm.ui.desk import PARTS, Board, metrics, openapi, served, token_in
from tests.deploy.test_service import RULES, Desk, at, desk_in

DAY = 86400
EVIL = '<img src=x onerror="alert(1)">'
NAMES = (EVIL, "a-name-without-any-place-to-break-it-" * 2, *(f"home-{i:02d}" for i in range(3, 65)))


def fleet_of(now: float) -> tuple[Any, Fleet]:
    """Sixty-four homes, of which some are out, silent and new."""
    keys = {name: SigningKey(bytes([i]) * 32).public for i, name in enumerate(NAMES, 1)}
    roster = sign_roster(SigningKey(b"\xff" * 32), [(n, n, k) for n, k in keys.items()], serial=7)
    inside = [keys[name].hex() for name in NAMES if name not in (EVIL, "home-05", "home-64")]
    heard = {keys[name].hex(): now for name in NAMES if name != "home-64"} | {keys["home-05"].hex(): now - 3 * DAY}
    return roster, Fleet(days={int(now // DAY): tuple(inside)}, heard=heard)


@dataclass
class Stage:
    """A desk with a week behind it, and the page it is shown on."""

    desk: Desk
    service: Service
    board: Board
    url: str
    said: list[str]
    now: float = at(14)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].strip("/"))

    @property
    def token(self) -> str:
        return self.desk.rules.token_file.read_text().strip()

    def show(self) -> None:
        self.board.put(self.service.state(self.now), self.service.model_json())

    def get(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: str | None = None
    ) -> Any:
        """Status, headers, body; with the token unless headers are given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(
            method, path, body, {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        )
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("desk")
    text = RULES + '[flexibility]\noffered = true\n[page]\nlisten = "127.0.0.1:0"\nnames = ["desk.example.org"]\n'
    desk, said = desk_in(folder, text), []
    with ServiceRecord(desk.rules.record, at(12)) as record, served(desk.rules, said.append) as board:
        service = Service(desk.rules, record, desk.weather, lambda: fleet_of(at(14)), desk.said.append)
        for hour in range(0, 49, 6):
            desk.step(service, at(12 + hour / 24))
        url = re.search(r"http://\S+/", said[0])[0]
        made = Stage(desk, service, board, url, said)
        made.show()
        yield made


def test_nothing_is_answered_without_the_token(stage: Stage) -> None:
    for path in ("/", "/events", "/metrics", "/health", "/openapi.json", *PARTS):
        assert stage.get(path, {})[0] == 403, path
        assert stage.get(path, {"Authorization": "Bearer no"})[0] == 401, path
        assert stage.get(path, {"Cookie": "atdm=no"})[0] == 403, path
    assert stage.get("/?token=no", {})[0] == 403
    status, headers, _ = stage.get(f"/?token={stage.token}", {})
    assert status == 303 and "HttpOnly" in headers["set-cookie"] and headers["location"] == "/"
    assert stage.token not in headers["set-cookie"]
    assert stage.get("/", {"Cookie": headers["set-cookie"].partition(";")[0]})[0] == 200
    assert stage.get("/", {"Cookie": f"atdm-{stage.port}={stage.token}"})[0] == 403


def test_the_token_is_in_a_file_of_its_own_and_in_no_log(stage: Stage, tmp_path: Path) -> None:
    path = stage.desk.rules.token_file
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(stage.token) >= 40
    assert stage.token not in "\n".join([*stage.said, *stage.desk.said])
    path = tmp_path / "token"
    first = token_in(path)
    assert token_in(path) == first
    path.chmod(0o644)
    with pytest.raises(UsageError, match="others may read the token"):
        token_in(path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(UsageError, match="too short"):
        token_in(path)


def test_another_name_is_refused_and_a_proxys_name_is_not(stage: Stage) -> None:
    bearer = {"Authorization": f"Bearer {stage.token}"}
    assert stage.get("/health", {**bearer, "Host": "evil.example.org"})[0] == 421
    assert stage.get("/health", {**bearer, "Host": "desk.example.org"})[0] == 200


def test_bodies_and_other_methods_are_refused(stage: Stage) -> None:
    assert stage.get("/v1/state", method="POST")[0] == 405
    assert stage.get("/v1/state", method="POST", body="x" * 100)[0] == 413


def test_whoever_has_no_token_uses_up_nobodys_requests(tmp_path: Path) -> None:
    desk, said = desk_in(tmp_path, RULES + '[page]\nlisten = "127.0.0.1:0"\nrequests_per_minute = 10\n'), []
    with served(desk.rules, said.append) as board:
        here = Stage(desk, None, board, re.search(r"http://\S+/", said[0])[0], said)  # type: ignore[arg-type]
        assert {here.get("/openapi.json", {})[0] for _ in range(14)} == {403}
        assert here.get("/openapi.json")[0] == 200


def test_an_address_has_a_number_of_requests_a_minute(tmp_path: Path) -> None:
    text = RULES + '[page]\nlisten = "127.0.0.1:0"\nrequests_per_minute = 10\nopen_on_loopback = true\n'
    desk, said = desk_in(tmp_path, text), []
    with served(desk.rules, said.append) as board:
        open_stage = Stage(desk, None, board, re.search(r"http://\S+/", said[0])[0], said)  # type: ignore[arg-type]
        codes = [open_stage.get("/openapi.json", {"X-Forwarded-For": f"192.0.2.{i}"})[0] for i in range(14)]
    assert codes[:10] == [200] * 10 and codes.count(429) >= 3, "whatever address a header names"
    assert not desk.rules.token_file.exists(), "the rules say that this machine's programs need none"


def test_every_part_is_what_the_state_says(stage: Stage) -> None:
    state = stage.board.state
    assert state is not None
    for path, (name, kind, _) in PARTS.items():
        status, headers, body = stage.get(path)
        assert status == 200 and headers["content-type"] == "application/json", path
        found = msgspec.json.decode(body, type=kind)
        assert found == (state if name is None else getattr(state, name)), path
    status, _, body = stage.get("/v1/model.json")
    assert status == 200 and json.loads(body)["schema"] == "atdm-model/3"
    assert stage.get("/nothing")[0] == 404


def test_every_answer_carries_the_headers(stage: Stage) -> None:
    for path in ("/", "/v1/state", "/metrics", "/nothing"):
        headers = {name.lower(): value for name, value in stage.get(path)[1].items()}
        assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff", path
        assert "default-src 'none'" in headers["content-security-policy"], path


def test_health_is_true_to_the_state_and_to_a_desk_that_hangs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage.get("/health")[0] == stage.get("/v1/health")[0] == 200
    before, late = stage.board.state, stage.now + 8 * 3600
    stage.service.check(late)
    stage.board.put(stage.service.state(late))
    status, _, body = stage.get("/health")
    assert status == 503 and json.loads(body)["ok"] is False and "no row for" in json.loads(body)["why"][0]
    assert "atdm_healthy 0.0" in stage.get("/metrics")[2]
    stage.service.check(stage.now)
    stage.show()
    assert stage.get("/health")[0] == 200 and before is not None
    monkeypatch.setattr("atdm.ui.desk_site.OLD", 0.0)
    time.sleep(0.01)
    assert stage.get("/health")[0] == 503 and "has said nothing for" in stage.get("/health")[2]


def test_metrics_are_in_prometheus_text_format(stage: Stage) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    families = {family.name: family for family in parser.text_string_to_metric_families(stage.get("/metrics")[2])}
    state = stage.board.state
    assert state is not None and state.now is not None and state.fleet is not None
    assert families["atdm_load_kilowatts"].samples[0].value == state.now.load_kw
    homes = {sample.labels["standing"]: sample.value for sample in families["atdm_homes"].samples}
    assert homes == {"in": 61.0, "out": 1.0, "silent": 1.0, "new": 1.0}
    assert all(family.type == "gauge" and family.documentation for family in families.values())


def test_the_description_is_openapi_and_describes_what_is_sent(stage: Stage) -> None:
    document = json.loads(stage.get("/openapi.json")[2])
    assert document == json.loads(msgspec.json.encode(openapi()))
    validator = pytest.importorskip("openapi_spec_validator", reason="openapi-spec-validator is not installed")
    validator.validate(document)
    jsonschema = pytest.importorskip("jsonschema")
    for path in PARTS:
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        jsonschema.Draft202012Validator(whole).validate(json.loads(stage.get(path)[2]))


def test_the_page_escapes_what_comes_from_outside(stage: Stage) -> None:
    page = stage.get("/")[2]
    assert EVIL not in page and "&lt;img src=x onerror=" in page
    assert "<!--" not in page.partition("<script>")[0], "every section is filled"


def test_a_page_is_told_what_changed_and_nothing_else(stage: Stage) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", stage.port, timeout=10)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {stage.token}"})
    stream = connection.getresponse()
    assert stream.readline() == b"event: change\n"
    first = json.loads(stream.readline().removeprefix(b"data: "))
    assert set(first) == {"head", "alarms", "outlook", "model", "flexibility", "fleet", "runs", "decisions", "clocks"}
    stream.readline()
    stage.service.check(stage.now + 8 * 3600)
    stage.board.put(stage.service.state(stage.now + 8 * 3600))
    assert stream.readline() == b"event: change\n"
    changed = json.loads(stream.readline().removeprefix(b"data: "))
    connection.close()
    stage.service.check(stage.now)
    stage.show()
    assert "Not doing its work" in changed["head"] and "outlook" not in changed, "only what changed is sent"


def test_no_state_yet_is_said(tmp_path: Path) -> None:
    text = RULES + '[page]\nlisten = "127.0.0.1:0"\nopen_on_loopback = true\n'
    desk, said = desk_in(tmp_path, text), []
    with served(desk.rules, said.append) as board:
        early = Stage(desk, None, board, re.search(r"http://\S+/", said[0])[0], said)  # type: ignore[arg-type]
        assert early.get("/health", {})[0] == 503 and early.get("/metrics", {})[0] == 503
        assert early.get("/v1/model.json", {})[0] == 404 and early.get("/", {})[0] == 200


def test_the_state_has_nothing_but_sums_names_and_words(stage: Stage) -> None:
    """Names of every field that is sent; a new one is looked at by whoever adds it to this list."""
    fields: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for key, below in value.items():
                if key not in NAMES:
                    fields.add(key)
                walk(below)
        elif isinstance(value, list):
            for below in value:
                walk(below)

    state = stage.board.state
    assert isinstance(state, State)
    document = msgspec.to_builtins(state)
    document["flexibility"]["document"] = None  # as `atdm flexibility --json`
    walk(document)
    assert fields == {
        "time", "begun", "rows", "doing", "next_asking", "health", "ok", "why", "now", "aggregate_temp_c", "load_kw",
        "homes", "past", "forecast", "made", "model", "origin", "step_seconds", "columns", "notes", "low_80", "high_80",
        "low_95", "high_95", "load_low_80", "load_high_80", "load_low_95", "load_high_95", "words", "hash", "chosen",
        "until", "expected_rmse_24h_k", "rmse_24h_k", "load_rmse_24h_kw", "inside_80", "forecasts_judged",
        "model_words", "flexibility", "offered", "document", "fleet", "serial", "enrolled", "inside", "needed",
        "block_ends", "lost_days", "fit_days", "name", "standing", "heard", "runs", "id", "began", "ended", "first",
        "last", "asked",
        "out", "decisions", "what", "alarms", "h9",
    }  # fmt: skip
    assert metrics(state)
    tables = sqlite3.connect(stage.desk.rules.record).execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    assert {row[0] for row in tables} == {
        "desk", "observed", "companies", "runs", "forecasts", "ahead", "models", "decisions", "alarms",
    }  # fmt: skip
