"""What Home Assistant's recorder kept of an entity: its states, and statistics of them.

Two ways to the same thing: the recorder's database, and the websocket API of a running server (websocket.py). Facts
about the tables (schema 42 of 2024.3 to 53 of 2026.10):
- a state holds from `last_updated_ts` (seconds since 1970 UTC) on; `last_changed_ts` is NULL where it is the same;
- 5-minute statistics are kept for ten days unless told otherwise, as states are; hourly ones for ever;
- `mean` is time-weighted; `min` and `max` are states as they were; `sum` of an energy counter, resets taken out, is
  that at the END of the row's period;
- times at which the server was off are those between `recorder_runs`. A run that crashed has its end written at the
  next start, so the last state before that is its end;
- at that next start the recorder writes the statistics that are lacking, up to `purge_keep_days` of them: of the last
  state, as if it had held. They are no readings, and `created_ts` is hours late in them. Runs are purged as states are;
- at a start many entities are restored to the state from before, and written again.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from atdm.data.sources.database import Database
from atdm.errors import DataError
from atdm.types import FloatArray

OLDEST_SCHEMA = 42  # of the recorder's tables: Home Assistant 2024.3
PERIODS = {"statistics_short_term": 300, "statistics": 3600}  # s that a row of each table covers

Run = tuple[float, float]  # from when to when the recorder ran  [s]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class States:
    """What an entity was, by time."""

    time: FloatArray  # seconds since 1970 UTC
    state: Sequence[str | None]
    attributes: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Statistics:
    """What the recorder computed of an entity, by the start of each period; `unit` is that of all of them."""

    start: FloatArray  # seconds since 1970 UTC
    mean: FloatArray  # NaN where there is none
    sum: FloatArray  # at the end of the period; NaN where there is none
    extremes: FloatArray  # the lowest and the highest state of each period, which are no means; NaN where there is none
    unit: str | None
    made: FloatArray  # when each was written, seconds since 1970 UTC; NaN where nobody knows


class Recorder(ABC):
    """Where to ask about entities."""

    name: str
    dated: bool  # whether statistics say when they were written

    @abstractmethod
    def states(self, entity: str, since: float) -> States:
        """From a time on."""

    @abstractmethod
    def statistics(self, entity: str, table: str, since: float) -> Statistics:
        """From a time on, of one of the tables of PERIODS."""

    @abstractmethod
    def runs(self) -> list[Run]:
        """When the recorder was running, in order; the last run ends where nothing was written after. Asked after the
        states, which may be all that tells."""

    @abstractmethod
    def temperature_unit(self) -> str | None:
        """Of thermostats, whose states name none; None where the recorder cannot know."""

    @abstractmethod
    def entities(self) -> dict[str, str | None]:
        """Every entity it knows and the unit it last had, by name, for people who look for theirs."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what a question opened."""


class RecorderDatabase(Recorder):
    """The recorder's own database: SQLite, MariaDB or PostgreSQL."""

    dated = True

    def __init__(self, database: Database) -> None:
        self.database, self.name = database, database.name
        self._checked = False

    def states(self, entity: str, since: float) -> States:
        rows = self._query(
            "SELECT s.last_updated_ts, s.state, s.attributes_id FROM states s "
            "JOIN states_meta m ON s.metadata_id = m.metadata_id "
            "WHERE m.entity_id = :entity AND s.last_updated_ts >= :since ORDER BY s.last_updated_ts, s.state_id",
            entity=entity, since=since,
        )  # fmt: skip
        found = self._query(
            "SELECT a.attributes_id, a.shared_attrs FROM state_attributes a WHERE a.attributes_id IN "
            "(SELECT s.attributes_id FROM states s JOIN states_meta m ON s.metadata_id = m.metadata_id "
            "WHERE m.entity_id = :entity AND s.last_updated_ts >= :since)",
            entity=entity, since=since,
        )  # fmt: skip
        shared = {key: _attributes(text) for key, text in found}
        return States(
            np.array([row[0] for row in rows], dtype=np.float64),
            [row[1] for row in rows],
            [shared.get(row[2], {}) for row in rows],
        )

    def statistics(self, entity: str, table: str, since: float) -> Statistics:
        units = self._query("SELECT m.unit_of_measurement FROM statistics_meta m WHERE m.statistic_id = :entity",
                            entity=entity)  # fmt: skip
        rows = self._query(
            f"SELECT t.start_ts, t.mean, t.sum, t.min, t.max, t.created_ts FROM {table} t "
            "JOIN statistics_meta m ON t.metadata_id = m.id "
            "WHERE m.statistic_id = :entity AND t.start_ts >= :since ORDER BY t.start_ts",
            entity=entity, since=since,
        )  # fmt: skip
        values = np.array([tuple(row) for row in rows], dtype=np.float64).reshape(len(rows), 6)  # NULL becomes NaN
        mean, total, extremes = values[:, 1], values[:, 2], values[:, 3:5].ravel()
        return Statistics(values[:, 0], mean, total, extremes, units[0][0] if units else None, values[:, 5])

    def runs(self) -> list[Run]:
        newest = self._newest()
        rows = self._query("SELECT r.start, r.end, r.closed_incorrect FROM recorder_runs r ORDER BY r.start")
        found: list[Run] = []
        for number, (start, end, crashed) in enumerate(rows):
            begun = _seconds(start)
            if end is None and number == len(rows) - 1:
                until = newest
            elif end is None or crashed:
                following = _seconds(rows[number + 1][0]) if number + 1 < len(rows) else np.inf
                query = "SELECT MAX(s.last_updated_ts) FROM states s WHERE s.last_updated_ts < :next"
                until = self._query(query, next=min(following, 1e12))[0][0]
            else:
                until = _seconds(end)
            if until is not None and until > begun:
                found.append((begun, float(until)))
        return found

    def _newest(self) -> float | None:
        """When something was last written: a quiet home has no new state for hours, but statistics."""
        states = self._query("SELECT MAX(s.last_updated_ts) FROM states s")
        made = self._query("SELECT t.created_ts FROM statistics_short_term t ORDER BY t.start_ts DESC LIMIT 1")
        return max((float(row[0]) for row in (*states, *made) if row[0] is not None), default=None)

    def temperature_unit(self) -> str | None:
        return None

    def entities(self) -> dict[str, str | None]:
        found = {str(row[0]): row[1] for row in self._query(
            "SELECT m.statistic_id, m.unit_of_measurement FROM statistics_meta m"
        )}  # fmt: skip
        newest = self._query(  # one look at the index for each entity; a sort of all states would take minutes
            "SELECT m.entity_id, (SELECT a.shared_attrs FROM states s "
            "JOIN state_attributes a ON s.attributes_id = a.attributes_id "
            "WHERE s.metadata_id = m.metadata_id ORDER BY s.last_updated_ts DESC LIMIT 1) FROM states_meta m"
        )
        for name, text in newest:
            unit = _attributes(text).get("unit_of_measurement")
            found[str(name)] = str(unit) if unit else found.get(str(name))
        return dict(sorted(found.items()))

    def close(self) -> None:
        """Nothing stays open: each query has a connection of its own."""

    def _query(self, text: str, **values: Any) -> list[Sequence[Any]]:
        if not self._checked:
            self._check_schema()
            self._checked = True
        return self.database.query(text, **values)[1]

    def _check_schema(self) -> None:
        try:
            _, rows = self.database.query("SELECT MAX(c.schema_version) FROM schema_changes c")
        except DataError as error:
            if "schema_changes" not in str(error):
                raise
            rows = []
        if not rows or rows[0][0] is None:
            raise DataError(
                f"{self.name}: is no recorder database of Home Assistant: give home-assistant_v2.db, or its URL"
            )
        if int(rows[0][0]) < OLDEST_SCHEMA:
            raise DataError(
                f"{self.name}: has schema {rows[0][0]}, of a Home Assistant before 2024.3: update Home Assistant, "
                "and let it start once"
            )


def _attributes(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(moment: Any) -> float:
    """A DATETIME of any of the databases, which is UTC."""
    when = moment if isinstance(moment, datetime) else datetime.fromisoformat(str(moment))
    return (when.replace(tzinfo=UTC) if when.tzinfo is None else when).timestamp()
