"""A recorder database of Home Assistant, made from the facts about its tables: schema 42, 50 or 53.

What the versions differ in: 43 added `last_reported_ts` to states; 48 to 50 `mean_weight` to statistics and `mean_type`
to their meta data; 51 to 53 `unit_class`. Columns of older versions stay, unused. Any database SQLAlchemy reaches.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

SCHEMAS = (42, 50, 53)
TEMPERATURE = {"state_class": "measurement", "device_class": "temperature", "friendly_name": "Room"}
POWER = {"state_class": "measurement", "device_class": "power", "friendly_name": "Heat"}
ENERGY = {"state_class": "total_increasing", "device_class": "energy", "friendly_name": "Heat counted"}
UNIT_CLASS = {"°C": "temperature", "°F": "temperature", "K": "temperature", "W": "power", "kW": "power",
              "Wh": "energy", "kWh": "energy"}  # fmt: skip


def tables(schema: int) -> dict[str, sa.Table]:
    """The tables that matter for readings, every column of them."""
    meta, real = sa.MetaData(), sa.Double()
    unused, id_type = sa.CHAR(1), sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    moment = sa.DateTime(timezone=True)

    def key(name: str) -> sa.Column[Any]:
        return sa.Column(name, id_type, primary_key=True)

    def legacy(*names: str) -> list[sa.Column[Any]]:
        return [sa.Column(name, unused) for name in names]

    reported = [sa.Column("last_reported_ts", real)] if schema >= 43 else []
    kind = [sa.Column("mean_type", sa.SmallInteger, nullable=False)] if schema >= 50 else []
    unit_class = [sa.Column("unit_class", sa.String(255))] if schema >= 53 else []
    sa.Table(
        "states", meta, key("state_id"), *legacy("entity_id", "attributes", "event_id", "last_changed", "last_updated"),
        sa.Column("state", sa.String(255)), sa.Column("last_changed_ts", real), *reported,
        sa.Column("last_updated_ts", real, index=True), sa.Column("old_state_id", id_type),
        sa.Column("attributes_id", id_type), *legacy("context_id", "context_user_id", "context_parent_id"),
        sa.Column("origin_idx", sa.SmallInteger), sa.Column("context_id_bin", sa.LargeBinary(16)),
        sa.Column("context_user_id_bin", sa.LargeBinary(16)), sa.Column("context_parent_id_bin", sa.LargeBinary(16)),
        sa.Column("metadata_id", id_type), sa.Index("ix_states_metadata_id_last_updated_ts", "metadata_id",
                                                    "last_updated_ts"),
    )  # fmt: skip
    sa.Table("state_attributes", meta, key("attributes_id"), sa.Column("hash", sa.BigInteger, index=True),
             sa.Column("shared_attrs", sa.Text))  # fmt: skip
    sa.Table("states_meta", meta, key("metadata_id"), sa.Column("entity_id", sa.String(255), unique=True))
    for name in ("statistics", "statistics_short_term"):
        sa.Table(
            name, meta, key("id"), *legacy("created", "start", "last_reset"), sa.Column("created_ts", real),
            sa.Column("metadata_id", id_type), sa.Column("start_ts", real, index=True), sa.Column("mean", real),
            *([sa.Column("mean_weight", real)] if schema >= 50 else []),
            sa.Column("min", real), sa.Column("max", real), sa.Column("last_reset_ts", real),
            sa.Column("state", real), sa.Column("sum", real),
        )  # fmt: skip
    sa.Table(
        "statistics_meta", meta, key("id"), sa.Column("statistic_id", sa.String(255), unique=True),
        sa.Column("source", sa.String(32)), sa.Column("unit_of_measurement", sa.String(255)), *unit_class,
        sa.Column("has_mean", sa.Boolean), sa.Column("has_sum", sa.Boolean), sa.Column("name", sa.String(255)), *kind,
    )  # fmt: skip
    sa.Table("recorder_runs", meta, key("run_id"), sa.Column("start", moment), sa.Column("end", moment),
             sa.Column("closed_incorrect", sa.Boolean), sa.Column("created", moment))  # fmt: skip
    sa.Table("schema_changes", meta, key("change_id"), sa.Column("schema_version", sa.Integer),
             sa.Column("changed", moment))  # fmt: skip
    return dict(meta.tables)


class Recorded:
    """A home's recorder database; what is added is written at once."""

    def __init__(self, where: Path | str, schema: int = 53) -> None:
        url = f"sqlite:///{where}" if isinstance(where, Path) else where
        self.engine, self.schema = sa.create_engine(url, poolclass=NullPool), schema
        self.tables = tables(schema)
        self.known: dict[tuple[str, str], int] = {}
        next(iter(self.tables.values())).metadata.create_all(self.engine)
        self._add("schema_changes", [{"schema_version": schema, "changed": datetime.now(UTC)}])

    def run(self, start: float, end: float | None = None, *, crashed: bool = False) -> None:
        """The recorder ran; without an end it still does."""
        stop = None if end is None else datetime.fromtimestamp(end, UTC)
        begun = datetime.fromtimestamp(start, UTC)
        self._add("recorder_runs", [{"start": begun, "end": stop, "closed_incorrect": crashed, "created": begun}])

    def states(
        self, entity: str, time: Sequence[float], state: Sequence[Any],
        attributes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    ) -> None:  # fmt: skip
        """What the entity was from each time on; attributes of all, or of each."""
        each = [attributes] * len(time) if isinstance(attributes, Mapping) else attributes
        owner = self._id("states_meta", "metadata_id", "entity_id", entity)
        rows = []
        for when, value, words in zip(time, state, each, strict=True):
            text = None if value is None else str(value)
            shared = self._id("state_attributes", "attributes_id", "shared_attrs", json.dumps(words))
            rows.append({"metadata_id": owner, "state": text, "last_updated_ts": float(when), "attributes_id": shared})
        self._add("states", rows)

    def statistics(
        self, entity: str, table: str, start: Sequence[float], *, unit: str, mean: Sequence[float] | None = None,
        total: Sequence[float] | None = None, extremes: tuple[Sequence[float], Sequence[float]] | None = None,
        made: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        """Rows of a table of statistics; total: the counter's sum at the end of each period; extremes: the lowest and
        the highest state, unknown unless given; made: when each was written, 10 s after its period unless given."""
        meta = {"source": "recorder", "unit_of_measurement": unit, "has_mean": mean is not None,
                "has_sum": total is not None}  # fmt: skip
        meta |= {"mean_type": 0 if mean is None else 1} if self.schema >= 50 else {}
        meta |= {"unit_class": UNIT_CLASS.get(unit)} if self.schema >= 53 else {}
        owner = self._id("statistics_meta", "id", "statistic_id", entity, **meta)
        low, high = (None, None) if extremes is None else extremes
        columns = {"mean": mean, "min": low, "max": high, "state": total, "sum": total}
        period = 300 if table == "statistics_short_term" else 3600
        written = np.asarray(start) + period + 10.0 if made is None else made
        rows = [
            {"metadata_id": owner, "start_ts": float(when), "created_ts": float(written[i])}
            | {name: None if values is None else float(values[i]) for name, values in columns.items()}
            for i, when in enumerate(start)
        ]
        self._add(table, rows)

    def _id(self, table: str, key: str, column: str, value: str, **more: Any) -> int:
        """The number of a row with this value; a new one where there is none."""
        if (table, value) not in self.known:
            number = sum(name == table for name, _ in self.known) + 1
            self._add(table, [{key: number, column: value, **more}])
            self.known[table, value] = number
        return self.known[table, value]

    def _add(self, table: str, rows: list[dict[str, Any]]) -> None:
        if rows:
            with self.engine.begin() as connection:
                if self.engine.dialect.name == "sqlite":
                    connection.execute(sa.text("PRAGMA synchronous = OFF"))  # nobody needs it after a power cut
                connection.execute(self.tables[table].insert(), rows)


def steps(time: np.ndarray, values: np.ndarray, every: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Values at a coarse step as the same values every few seconds, as a sensor that reports often has them."""
    often = np.arange(0, step, every)
    return (time[:, None] + often).ravel(), np.repeat(values, len(often))
