"""The state of a desk for whoever reads it over HTTP: its page by sections, its metrics, its description.

The desk puts a state here whenever something happened; readers have a thread of their own and never hold it up.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from atdm import __version__
from atdm.deploy.service_rules import ServiceRules
from atdm.deploy.service_state import FleetState, FlexibilityState, Health, ModelState, Outlook, State
from atdm.errors import UsageError
from atdm.report.desk_page import desk_sections
from atdm.transport.disk import replace_file
from atdm.ui.host import Address, hosting, new_token, parse_address

if TYPE_CHECKING:
    from atdm.ui.desk_site import DeskSite

LEAST_TOKEN = 20  # characters
PARTS = {  # path → what of the state it gives, its type, and what it is
    "/v1/state": (None, State, "Everything"),
    "/v1/health": ("health", Health, "Whether the desk does its work: 200, or 503 with the reasons"),
    "/v1/forecast": ("forecast", Outlook, "Temperature and load of the next hours, with bands"),
    "/v1/flexibility": ("flexibility", FlexibilityState, "What the cluster can offer, or why nothing is offered"),
    "/v1/model": ("model", ModelState, "The model in use"),
    "/v1/fleet": ("fleet", FleetState, "Who is enrolled, and who takes part"),
}


class Board:
    """The newest state, and the sections of the page with the version at which each last changed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state: State | None = None
        self._model: str | None = None
        self._put_at = time.monotonic()
        self._version = 0
        self._sections: dict[str, str] = {}
        self._changed: dict[str, int] = {}

    def put(self, state: State, model: str | None = None) -> None:
        """A state to show from now on; model: its model.json, where that changed."""
        sections = desk_sections(state)
        with self._lock:
            self._state, self._put_at = state, time.monotonic()
            self._model = self._model if model is None else model
            self._version += 1
            for name, body in sections.items():
                if self._sections.get(name) != body:
                    self._sections[name], self._changed[name] = body, self._version

    @property
    def state(self) -> State | None:
        return self._state

    @property
    def model_json(self) -> str | None:
        return self._model

    @property
    def age(self) -> float:
        """Since the desk last said how it is. [s]"""
        return time.monotonic() - self._put_at

    def sections(self) -> dict[str, str]:
        with self._lock:
            return dict(self._sections)

    def since(self, version: int) -> tuple[int, dict[str, Any]]:
        """The version now, and the sections that changed after `version` (0: all of them)."""
        with self._lock:
            return self._version, {name: self._sections[name] for name, at in self._changed.items() if at > version}

    def clocks(self) -> dict[str, float]:
        """The desk's time. [s since 1970]"""
        return {} if self._state is None else {"now": self._state.time + self.age}


# In the words of others


def metrics(state: State) -> str:
    """The state in Prometheus' text format 0.0.4."""
    return "".join(
        f"# HELP atdm_{name} {about}\n# TYPE atdm_{name} gauge\n"
        + "".join(f"atdm_{name}{labels} {value!r}\n" for labels, value in values)
        for name, about, values in _gauges(state)
    )


Values = list[tuple[str, float]]  # labels, value


def _gauges(state: State) -> Iterator[tuple[str, str, Values]]:
    now, model, fleet = state.now, state.model, state.fleet
    yield "healthy", "1 where the desk does its work, else 0.", [("", float(state.health.ok))]
    yield "observed_rows", "Rows observed since the desk was first started.", [("", float(state.rows))]
    if now is not None:
        yield "newest_row_timestamp_seconds", "Stamp of the newest row observed.", [("", now.time)]
        yield "mean_temperature_celsius", "Mean temperature of the homes in.", [("", now.aggregate_temp_c)]
        yield "load_kilowatts", "Load of the homes in.", [("", now.load_kw)]
    if model is not None:
        yield "model_made_timestamp_seconds", "When the model was last updated.", [("", model.made)]
        if model.until is not None:
            yield "model_until_timestamp_seconds", "Last row the model comes from.", [("", model.until)]
        if model.rmse_24h_k is not None:
            yield "error_24h_kelvin", "RMSE of the last 7 days' forecasts 24 h ahead.", [("", model.rmse_24h_k)]
        if model.inside_80 is not None:
            yield "inside_80_ratio", "Share of these forecasts inside the 80 % band.", [("", model.inside_80)]
    if state.forecast is not None:
        yield "forecast_made_timestamp_seconds", "When the last forecast was made.", [("", state.forecast.made)]
    if fleet is not None:
        standings = ("in", "out", "silent", "new")
        counts = [(f'{{standing="{s}"}}', float(sum(h.standing == s for h in fleet.homes))) for s in standings]
        yield "homes", "Homes by standing.", counts
    names = [(f'{{name="{alarm.name}"}}', 1.0) for alarm in state.alarms]
    yield "alarms", "Alarms of now.", names or [("", 0.0)]
    yield "flexibility_offered", "1 where flexibility is offered, else 0.", [("", float(state.flexibility.offered))]


def openapi() -> dict[str, Any]:
    """What programs can ask, in OpenAPI 3.1; the schemas are those of the structs that are sent."""
    kinds = [kind for _, kind, _ in PARTS.values()]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")

    def answer(words: str, schema: Any, kind: str = "application/json") -> dict[str, Any]:
        return {"description": words, "content": {kind: {"schema": schema}}}

    none_yet = {"description": "There is none yet"}
    shared = {
        "401": {"description": "The token is wrong"},
        "403": {"description": "There is no token"},
        "429": {"description": "Too many requests from this address"},
    }
    paths: dict[str, Any] = {}
    for (path, (_, _, words)), schema in zip(PARTS.items(), schemas, strict=True):
        other = {"503": answer("Not doing its work", schema)} if path == "/v1/health" else {"404": none_yet}
        responses = {"200": answer(words, schema), **other, **shared}
        paths[path] = {"get": {"summary": words, "operationId": path.rpartition("/")[2], "responses": responses}}
    text = {"type": "string"}
    for path, words, schema, kind in (
        ("/v1/model.json", "The model in use with its rows, as `atdm forecast` reads it", {"type": "object"},
         "application/json"),
        ("/metrics", "The state in Prometheus' text format", text, "text/plain"),
    ):  # fmt: skip
        name = path.rpartition("/")[2].replace(".", "_")
        responses = {"200": answer(words, schema, kind), "404": none_yet, **shared}
        paths[path] = {"get": {"summary": words, "operationId": name, "responses": responses}}
    paths["/health"] = {"get": {**paths["/v1/health"]["get"], "operationId": "health_short"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "atdm serve", "version": __version__,
            "description": "State, forecast and flexibility of a cluster of homes. Times are seconds since 1970, UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }  # fmt: skip


# On an address


def address_of(rules: ServiceRules) -> Address:
    """Where the rules say the desk is served."""
    try:
        return parse_address(rules.page.listen)
    except UsageError:
        raise UsageError(f"page.listen = {rules.page.listen}: write HOST:PORT, such as 127.0.0.1:8765") from None


@contextmanager
def served(rules: ServiceRules, say: Callable[[str], None]) -> Iterator[Board]:
    """The desk's page and API from the moment the block is entered; how to open it is said once, without the token."""
    address, board = address_of(rules), Board()
    token = None if address.loopback and rules.page.open_on_loopback else token_in(rules.token_file)

    def make(names: frozenset[str]) -> "DeskSite":
        from atdm.ui.desk_site import DeskSite

        return DeskSite(
            board, names | {name.lower() for name in rules.page.names}, token, rules.page.requests_per_minute
        )

    with hosting(make, address) as (_, where):
        say(f"page: {where.url()}" + ("" if token is None else f"?token=… with the token in {rules.token_file}"))
        yield board


def token_in(path: Path) -> str:
    """The token of a file that nobody else may read; made where there is none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, f"{new_token()}\n".encode())
    try:
        if sys.platform != "win32" and path.stat().st_mode & 0o077:
            raise UsageError(f"others may read the token in {path}: chmod 600 {path}")
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"cannot read the token in {path}: delete it, and a new one is made") from None
    if len(token) < LEAST_TOKEN:
        raise UsageError(f"the token in {path} is too short: delete it, and a new one is made")
    return token
