"""What Home Assistant's recorder kept, asked for over the websocket API of a running server.

    atdm → server    auth with a long-lived token (or SUPERVISOR_TOKEN in an add-on), then one question after the other
    states           history/history_during_period: s state, a attributes, lu last updated [s]
    statistics       recorder/statistics_during_period, in our units, converted by the server; start in ms

The API does not say when the server was off. Where a state of `zone.home` or `sun.sun` repeats the one before it and
is yet a new one (without lc, last changed), the server started, and ran before for as long as a state was written.
"""

import json
import logging
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from atdm.data.sources.recorder import PERIODS, Recorder, Run, States, Statistics
from atdm.data.sources.secret import read_secret
from atdm.errors import DataError, UsageError

UNITS = {"temperature": "°C", "power": "kW", "energy": "kWh"}  # class of unit -> what the server shall convert to
ALWAYS_THERE = ("zone.home", "sun.sun")  # of a server itself, written at each start; the sun every 20 min besides
MOST_BYTES = 1 << 28  # of one answer: a year of states every ten seconds
SILENT = logging.getLogger("atdm.homeassistant.library")  # the library logs every frame when debugging, token included
SILENT.setLevel(logging.WARNING)


class RecorderSocket(Recorder):
    """A server that is running. The connection is made when something is asked, and closed by `close`."""

    dated = False

    def __init__(self, address: str, token_file: str | None, timeout: int) -> None:
        where = urlsplit(address)
        if where.username or where.password or where.query:
            raise UsageError("homeassistant: the address has a password or token in it: give a token_file instead")
        scheme = {"http": "ws", "https": "wss"}.get(where.scheme, where.scheme)
        path = where.path.rstrip("/")
        path = path if path.endswith("/websocket") else "/api/websocket"  # another is that of a page in a browser
        self.url = f"{scheme}://{where.netloc}{path}"
        self.name, self.timeout = self.url, timeout
        token = read_secret(token_file, "SUPERVISOR_TOKEN")
        if token is None:
            raise UsageError(
                f"{self.name}: give a token_file: a long-lived access token of your profile page, in a file of mode 600"
            )
        self._token = token
        self._socket: Any = None
        self._open = ExitStack()
        self._number = 0
        self._metadata: dict[str, tuple[str | None, str | None]] = {}
        self._written: list[float] = []  # times of states seen since the connection was made

    def states(self, entity: str, since: float) -> States:
        rows = self._history(entity, since)
        attributes: dict[str, Any] = {}
        kept = []
        for row in rows:
            attributes = row.get("a", attributes)  # left out where they are those of the row before
            kept.append(attributes)
        return States(np.array([float(row["lu"]) for row in rows]), [row.get("s") for row in rows], kept)

    def _history(self, entity: str, since: float, *, bare: bool = False) -> list[dict[str, Any]]:
        answer = self._ask(
            "history/history_during_period", start_time=_iso(since), end_time=_iso(time.time()), entity_ids=[entity],
            include_start_time_state=True, significant_changes_only=False, minimal_response=False, no_attributes=bare,
        )  # fmt: skip
        rows: list[dict[str, Any]] = answer.get(entity, [])
        self._written += [float(row["lu"]) for row in rows]
        return rows

    def statistics(self, entity: str, table: str, since: float) -> Statistics:
        unit_class, unit = self._unit(entity)
        answer = self._ask(
            "recorder/statistics_during_period", start_time=_iso(since), statistic_ids=[entity],
            period="5minute" if PERIODS[table] == 300 else "hour", types=["mean", "sum", "min", "max"],
            units=UNITS,
        )  # fmt: skip
        rows = answer.get(entity, [])
        return Statistics(
            np.array([row["start"] / 1000 for row in rows], dtype=np.float64),
            np.array([row.get("mean") for row in rows], dtype=np.float64),
            np.array([row.get("sum") for row in rows], dtype=np.float64),
            np.array([row.get(name) for row in rows for name in ("min", "max")], dtype=np.float64),
            UNITS.get(unit_class or "", unit),
            np.full(len(rows), np.nan),
        )

    def runs(self) -> list[Run]:
        starts: set[float] = set()
        for entity in ALWAYS_THERE:
            rows = self._history(entity, 0.0, bare=True)  # what was before the first is purged: it may be a start too
            pairs = pairwise([*rows[:1], *rows])
            starts |= {float(row["lu"]) for last, row in pairs if row.get("s") == last.get("s") and "lc" not in row}
        begins, written = [0.0, *sorted(starts)], np.sort(self._written)
        places = np.searchsorted(written, begins[1:])
        ends = [float(written[place - 1]) if place else begin for place, begin in zip(places, begins[1:], strict=True)]
        return [(begin, end) for begin, end in zip(begins, [*ends, time.time()], strict=True) if begin < end]

    def temperature_unit(self) -> str | None:
        unit = self._ask("get_config").get("unit_system", {}).get("temperature")
        return str(unit) if unit else None

    def entities(self) -> dict[str, str | None]:
        found = {str(row.get("statistic_id")): row.get("statistics_unit_of_measurement")
                 for row in self._ask("recorder/list_statistic_ids")}  # fmt: skip
        for state in self._ask("get_states"):
            name, unit = str(state.get("entity_id")), (state.get("attributes") or {}).get("unit_of_measurement")
            found[name] = unit or found.get(name)
        return dict(sorted(found.items()))

    def close(self) -> None:
        self._open.close()
        self._socket = None
        self._written = []

    def _unit(self, entity: str) -> tuple[str | None, str | None]:
        if entity not in self._metadata:
            rows = self._ask("recorder/get_statistics_metadata", statistic_ids=[entity])
            found = (rows[0].get("unit_class"), rows[0].get("statistics_unit_of_measurement")) if rows else (None, None)
            self._metadata[entity] = found
        return self._metadata[entity]

    def _ask(self, kind: str, **content: Any) -> Any:
        try:
            from websockets.exceptions import WebSocketException
        except ImportError:
            raise UsageError("Home Assistant's websocket needs websockets: pip install 'atdm[homeassistant]'") from None
        try:
            if self._socket is None:
                self._socket = self._connected()
            self._number += 1
            self._socket.send(json.dumps({"id": self._number, "type": kind, **content}))
            while True:
                answer = json.loads(self._socket.recv(timeout=self.timeout))
                if answer.get("id") == self._number and answer.get("type") == "result":
                    break
        except TimeoutError:
            raise DataError(f"{self.name}: no answer within {self.timeout} s: check that the server runs") from None
        except (WebSocketException, OSError, ValueError, AttributeError) as error:
            raise DataError(
                f"{self.name}: {self._token.blot(str(error))}: check the address, and that Home Assistant runs"
                f"{'; without TLS it is ws://' if self.url.startswith('wss:') else ''}"
            ) from None
        if not answer.get("success"):
            refusal = answer.get("error") or {}
            said = self._token.blot(str(refusal.get("message", "no reason given")).rstrip("."))
            remedy = "check the token's rights"
            if refusal.get("code") == "unknown_command":
                remedy = (
                    f"let Home Assistant finish its start, and have `{kind.partition('/')[0]}:` in its configuration"
                )
            raise DataError(f"{self.name}: refused {kind}: {said}: {remedy}")
        return answer.get("result") or {}

    def _connected(self) -> Any:
        from websockets.sync.client import connect

        # no proxy: the server is on the home's network, and its token is for nobody in between
        connection = connect(
            self.url, open_timeout=min(self.timeout, 30), max_size=MOST_BYTES, proxy=None, logger=SILENT
        )
        socket = self._open.enter_context(connection)
        json.loads(socket.recv(timeout=self.timeout))  # auth_required
        socket.send(json.dumps({"type": "auth", "access_token": self._token.reveal()}))
        if json.loads(socket.recv(timeout=self.timeout)).get("type") != "auth_ok":
            raise DataError(f"{self.name}: refused the token: make a new one on your profile page")
        return socket


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(max(moment, 0.0), UTC).isoformat()
