"""What Home Assistant's recorder kept, asked for over the websocket API of a running server.

    atdm → server    auth with a long-lived token (or SUPERVISOR_TOKEN in an add-on), then one question after the other
    states           history/history_during_period: s state, a attributes, lu last updated [s]
    statistics       recorder/statistics_during_period, in our units, converted by the server; start in ms

The API does not say when the server was off; 5-minute statistics, which are preferred, have no rows there.
"""

import json
import logging
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from atdm.data.sources.recorder import PERIODS, Recorder, Run, States, Statistics
from atdm.data.sources.secret import read_secret
from atdm.errors import DataError, UsageError

UNITS = {"temperature": "°C", "power": "kW", "energy": "kWh"}  # class of unit -> what the server shall convert to
MOST_BYTES = 1 << 28  # of one answer: a year of states every ten seconds
SILENT = logging.getLogger("atdm.homeassistant.library")  # the library logs every frame when debugging, token included
SILENT.setLevel(logging.WARNING)


class RecorderSocket(Recorder):
    """A server that is running. The connection is made when something is asked, and closed by `close`."""

    def __init__(self, address: str, token_file: str | None, timeout: int) -> None:
        where = urlsplit(address)
        if where.username or where.password or where.query:
            raise UsageError("homeassistant: the address has a password or token in it: give a token_file instead")
        scheme = {"http": "ws", "https": "wss"}.get(where.scheme, where.scheme)
        self.url = f"{scheme}://{where.netloc}{where.path.rstrip('/') or '/api/websocket'}"
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

    def states(self, entity: str, since: float) -> States:
        answer = self._ask(
            "history/history_during_period", start_time=_iso(since), end_time=_iso(time.time()), entity_ids=[entity],
            include_start_time_state=True, significant_changes_only=False, minimal_response=False, no_attributes=False,
        )  # fmt: skip
        rows = answer.get(entity, [])
        attributes: dict[str, Any] = {}
        kept = []
        for row in rows:
            attributes = row.get("a", attributes)  # left out where they are those of the row before
            kept.append(attributes)
        return States(np.array([float(row["lu"]) for row in rows]), [row.get("s") for row in rows], kept)

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
        )

    def runs(self) -> list[Run]:
        return [(0.0, time.time())]

    def temperature_unit(self) -> str | None:
        unit = self._ask("get_config").get("unit_system", {}).get("temperature")
        return str(unit) if unit else None

    def entities(self) -> list[str]:
        found = {str(state.get("entity_id")) for state in self._ask("get_states")}
        return sorted(found | {str(row.get("statistic_id")) for row in self._ask("recorder/list_statistic_ids")})

    def close(self) -> None:
        self._open.close()
        self._socket = None

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
            ) from None
        if not answer.get("success"):
            said = str((answer.get("error") or {}).get("message", "no reason given"))
            raise DataError(f"{self.name}: refused {kind}: {self._token.blot(said)}: check the token's rights")
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
