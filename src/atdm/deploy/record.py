"""What a desk keeps, in one SQLite file: rows observed, forecasts, decisions, runs, alarms and models.

Rule 1: what homes showed is on disk before anything else happens with it (WAL, synchronous=FULL).
Rule 2: a row observed is written once; the file itself refuses to change or delete it.
Rule 3: one writer: the record is locked for as long as it is open; others may read it.
Rule 4: nothing in here is more than the aggregator may have by its role: sums, counts, names, words.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from atdm.data.clock import seconds, timestamps
from atdm.errors import DataError, write_error
from atdm.transport.disk import lock

APPLICATION = 0x6174646D  # "atdm": what the file says it belongs to
VERSION = 1  # of the tables
AHEAD = ("origin", "target", "aggregate_temp_c", "low_80", "high_80", "load_kw")
CUT_OFF = "cut off: the desk was stopped"  # how a run ended of which nobody wrote the end
SCHEMA = """
CREATE TABLE desk (begun REAL NOT NULL);
CREATE TABLE observed (
    time INTEGER PRIMARY KEY, aggregate_temp_c REAL NOT NULL, load_kw REAL NOT NULL, agents INTEGER NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (id)
);
CREATE TRIGGER observed_once BEFORE UPDATE ON observed BEGIN SELECT RAISE(ABORT, 'a row is observed once'); END;
CREATE TRIGGER observed_stays BEFORE DELETE ON observed BEGIN SELECT RAISE(ABORT, 'a row observed stays'); END;
CREATE TABLE companies (id INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, began REAL NOT NULL, ended REAL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    asked INTEGER NOT NULL, rows INTEGER NOT NULL DEFAULT 0, company INTEGER REFERENCES companies (id),
    out TEXT NOT NULL DEFAULT '{}', words TEXT NOT NULL DEFAULT ''
);
CREATE TABLE forecasts (made REAL PRIMARY KEY, model TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE ahead (
    origin INTEGER PRIMARY KEY, target INTEGER NOT NULL, aggregate_temp_c REAL NOT NULL, low_80 REAL, high_80 REAL,
    load_kw REAL NOT NULL
);
CREATE INDEX ahead_target ON ahead (target);
CREATE TABLE models (
    hash TEXT PRIMARY KEY, made REAL NOT NULL, chosen REAL NOT NULL, agents INTEGER NOT NULL, why TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE TABLE decisions (id INTEGER PRIMARY KEY, time REAL NOT NULL, what TEXT NOT NULL, words TEXT NOT NULL);
CREATE TABLE alarms (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, since REAL NOT NULL, until REAL, words TEXT NOT NULL
);
CREATE UNIQUE INDEX alarms_now ON alarms (name) WHERE until IS NULL;
"""
# desk: when it was first started. Times are s since 1970: first, last, origin, target and those observed are stamps of
# rows, the others of the clock. ahead: what was forecast for 24 h after the last row known, judged when that comes.


class RecordError(DataError):
    """The record cannot be read or written now; the desk holds what it has and tries again."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One time that homes were asked for rows."""

    id: int
    began: float  # s since 1970
    ended: float | None  # None: under way, or cut off
    first: int  # stamp of the first row asked for  [s since 1970]
    last: int
    asked: int  # rows
    rows: int  # that came
    inside: list[str]  # names of the homes that were in
    out: dict[str, str]  # name → why it was not
    words: str  # how it ended


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was in use."""

    hash: str
    made: float  # s since 1970
    chosen: float  # when order and day types were chosen  [s since 1970]
    agents: int  # homes whose load it speaks of
    why: str


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the desk decided, and why."""

    time: float  # s since 1970
    what: str
    words: str


class AlarmRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, since when."""

    name: str
    since: float  # s since 1970
    words: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """How forecasts 24 h ahead did, once the truth was known."""

    forecasts: int
    inside: float | None  # share inside the 80 % band; None where none has one
    rmse_k: float
    load_rmse_kw: float


class ServiceRecord:
    """The file, open for one desk."""

    def __init__(self, path: Path, now: float) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, f"cannot make {path.parent}") from None
        self._lock = lock(path.parent, f".{path.name}.lock")
        try:
            if not path.exists():
                path.touch(mode=0o600)  # its journals follow it
            self._base = sqlite3.connect(path, isolation_level=None)
            self._open(now)
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        self._base.close()
        self._lock.close()

    def __enter__(self) -> "ServiceRecord":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, now: float) -> None:
        try:
            check_version(self._base, self.path)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=FULL")
            if self._base.execute("PRAGMA user_version").fetchone()[0] == 0:
                self._base.executescript(
                    f"BEGIN; {SCHEMA} PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION}; COMMIT;"
                )
            with self._written():
                if not self._base.execute("SELECT 1 FROM desk").fetchone():
                    self._base.execute("INSERT INTO desk VALUES (?)", (now,))
                self._base.execute("UPDATE runs SET ended = began, words = ? WHERE ended IS NULL", (CUT_OFF,))
        except sqlite3.DatabaseError as error:
            raise DataError(f"{self.path}: cannot be used ({error}): restore it from a copy") from None

    @contextmanager
    def _written(self) -> Iterator[None]:
        """All of it or nothing, on disk at the end of the block."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            yield
            self._base.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # where that fails too, the next block begins with it
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
            raise RecordError(f"cannot write {self.path}: {error}; free the disk, the desk tries again") from None

    def _read(self, query: str, *values: object) -> list[Any]:
        try:
            return self._base.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise RecordError(f"cannot read {self.path}: {error}; check the disk, the desk tries again") from None

    @property
    def begun(self) -> float:
        """When the desk was first started. [s since 1970]"""
        return float(self._read("SELECT begun FROM desk")[0][0])

    # Rows observed, and the runs they came from

    def begin_run(self, now: float, first: int, last: int, asked: int) -> int:
        """Note that rows are going to be asked for; its number."""
        with self._written():
            found = self._base.execute(
                "INSERT INTO runs (began, first, last, asked) VALUES (?, ?, ?, ?)", (now, first, last, asked)
            )
        return int(found.lastrowid or 0)

    def add_rows(self, run: int, table: pd.DataFrame, inside: Sequence[str], out: dict[str, str]) -> int:
        """Rows as homes showed them (aggregate_temp_c, load_kw, agents by time); how many of them are new."""
        stamps = seconds(pd.DatetimeIndex(table.index)).tolist()
        values = [table[name].tolist() for name in ("aggregate_temp_c", "load_kw", "agents")]
        with self._written():
            before = self._base.total_changes
            self._base.executemany(
                "INSERT OR IGNORE INTO observed VALUES (?, ?, ?, ?, ?)",
                [(*row, run) for row in zip(stamps, *values, strict=True)],
            )
            new = self._base.total_changes - before
            names = _json(list(inside))
            self._base.execute("INSERT OR IGNORE INTO companies (names) VALUES (?)", (names,))
            self._base.execute(
                "UPDATE runs SET rows = rows + ?, out = ?, company = (SELECT id FROM companies WHERE names = ?) "
                "WHERE id = ?",
                (new, _json(out), names, run),
            )
        return new

    def end_run(self, run: int, now: float, words: str) -> None:
        with self._written():
            self._base.execute("UPDATE runs SET ended = ?, words = ? WHERE id = ?", (now, words, run))

    def runs(self, most: int) -> list[RunRow]:
        """The newest first."""
        rows = self._read(
            "SELECT r.id, began, ended, first, last, asked, rows, coalesce(names, '[]'), out, words "
            "FROM runs r LEFT JOIN companies c ON c.id = r.company ORDER BY r.id DESC LIMIT ?",
            most,
        )
        return [
            RunRow(id=i, began=began, ended=ended, first=first, last=last, asked=asked, rows=rows,
                   inside=_parsed(inside), out=_parsed(out), words=words)
            for i, began, ended, first, last, asked, rows, inside, out, words in rows
        ]  # fmt: skip

    def newest(self) -> int | None:
        """Stamp of the newest row observed. [s since 1970]"""
        found = self._read("SELECT max(time) FROM observed")[0][0]
        return None if found is None else int(found)

    def known(self, first: int, last: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Stamps of the rows observed between two stamps, both included. [s since 1970]"""
        rows = self._read("SELECT time FROM observed WHERE time BETWEEN ? AND ? ORDER BY time", first, last)
        return np.array([row[0] for row in rows], dtype=np.int64)

    def count(self) -> int:
        """Rows observed."""
        return int(self._read("SELECT count(*) FROM observed")[0][0])

    def observed(self, since: int) -> pd.DataFrame:
        """By time: aggregate_temp_c [°C], load_kw [kW] of those in, and how many they were (agents)."""
        rows = self._read(
            "SELECT time, aggregate_temp_c, load_kw, agents FROM observed WHERE time >= ? ORDER BY time", since
        )
        time, *columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        names = ("aggregate_temp_c", "load_kw", "agents")
        index = timestamps(np.array(time, dtype=np.int64))
        return pd.DataFrame(dict(zip(names, map(list, columns), strict=True)), index=index, dtype=float)

    # Forecasts, models, decisions, alarms

    def add_forecast(self, made: float, model: str, document: dict[str, Any], ahead: dict[str, Any] | None) -> None:
        """A forecast, and of it the row 24 h ahead, which is kept from the first forecast of an origin."""
        with self._written():
            self._base.execute("INSERT OR REPLACE INTO forecasts VALUES (?, ?, ?)", (made, model, _json(document)))
            if ahead is not None:
                self._base.execute(
                    "INSERT OR IGNORE INTO ahead VALUES (?, ?, ?, ?, ?, ?)",
                    [ahead[name] for name in AHEAD],
                )

    def judged(self, since: int) -> Judged | None:
        """Of forecasts for rows since a stamp; None where no truth is known."""
        (found,) = self._read(
            """SELECT count(*), avg(o.aggregate_temp_c BETWEEN a.low_80 AND a.high_80),
                      avg((o.aggregate_temp_c - a.aggregate_temp_c) * (o.aggregate_temp_c - a.aggregate_temp_c)),
                      avg((o.load_kw - a.load_kw) * (o.load_kw - a.load_kw))
               FROM ahead a JOIN observed o ON o.time = a.target WHERE a.target >= ?""",
            since,
        )
        if not found[0]:
            return None
        return Judged(forecasts=found[0], inside=found[1], rmse_k=found[2] ** 0.5, load_rmse_kw=found[3] ** 0.5)

    def add_model(self, row: ModelRow, document: str, shortened: str | None = None) -> None:
        """The model in use from now on; shortened: what stays of the one before, whose rows are kept here anyway."""
        with self._written():
            if shortened is not None:
                self._base.execute(
                    "UPDATE models SET document = ? WHERE rowid = (SELECT max(rowid) FROM models)",
                    (shortened,),
                )
            self._base.execute(
                "INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?, ?)",
                (row.hash, row.made, row.chosen, row.agents, row.why, document),
            )

    def model(self) -> tuple[ModelRow, str] | None:
        """The model in use and its document."""
        rows = self._read("SELECT hash, made, chosen, agents, why, document FROM models ORDER BY rowid DESC LIMIT 1")
        if not rows:
            return None
        names = ("hash", "made", "chosen", "agents", "why")
        return ModelRow(**dict(zip(names, rows[0][:-1], strict=True))), str(rows[0][-1])

    def decide(self, now: float, what: str, words: str) -> None:
        with self._written():
            self._base.execute("INSERT INTO decisions (time, what, words) VALUES (?, ?, ?)", (now, what, words))

    def decisions(self, most: int) -> list[DecisionRow]:
        """The newest first."""
        rows = self._read("SELECT time, what, words FROM decisions ORDER BY id DESC LIMIT ?", most)
        return [DecisionRow(time=time, what=what, words=words) for time, what, words in rows]

    def set_alarms(self, now: float, words: dict[str, str]) -> None:
        """Exactly these are wrong now: new ones begin, others end; words may change while one lasts."""
        current = {alarm.name: alarm.words for alarm in self.alarms()}
        if current == words:
            return
        with self._written():
            for name in current.keys() - words.keys():
                self._base.execute("UPDATE alarms SET until = ? WHERE name = ? AND until IS NULL", (now, name))
            for name, text in words.items():
                self._base.execute(
                    "INSERT INTO alarms (name, since, words) VALUES (?, ?, ?) "
                    "ON CONFLICT (name) WHERE until IS NULL DO UPDATE SET words = excluded.words",
                    (name, now, text),
                )

    def alarms(self) -> list[AlarmRow]:
        """Those of now, the oldest first."""
        rows = self._read("SELECT name, since, words FROM alarms WHERE until IS NULL ORDER BY id")
        return [AlarmRow(name=name, since=since, words=words) for name, since, words in rows]


def stored_rows(path: Path) -> int:
    """Rows in a record that another process may have open; refuses a file that is none."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            check_version(base, path)
            return int(base.execute("SELECT count(*) FROM observed").fetchone()[0])
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path}: cannot be used ({error}): restore it from a copy") from None


def check_version(base: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of another program or of another version; an empty one will do."""
    owner, version = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and owner != APPLICATION:
        raise DataError(f"{path}: is not the record of a desk: choose another file")
    if version > VERSION:
        raise DataError(
            f"{path}: was written by a newer atdm (tables {version}, this one reads {VERSION}): update atdm"
        )
    if tables and version < VERSION:
        raise DataError(
            f"{path}: was written by an older atdm (tables {version}): carry it over as docs/operate.md says"
        )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _parsed(text: str) -> Any:
    return msgspec.json.decode(text)
