"""Read-only questions to a database: a SQLite file by the standard library, any other by SQLAlchemy.

Rule 1: nothing can be written: the connection itself is read-only, whatever the query says.
Rule 2: no statement takes longer than its time-out; a home's own work comes first.
Rule 3: the password is in no URL, argument list, repr or message.
"""

import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from atdm.data.sources.secret import Secret
from atdm.errors import DataError, UsageError

TIMEOUT = 60  # s that a statement may take
MOST_ROWS = 20_000_000  # of one answer: half-hours of a thousand years; a query with more is a mistake
STEPS = 10_000  # instructions of SQLite's machine between two looks at the clock

Row = Sequence[Any]


class Database(ABC):
    """Something that answers queries with named parameters (`:name`)."""

    name: str  # as messages show it, without the password

    @abstractmethod
    def query(self, text: str, **values: Any) -> tuple[list[str], list[Row]]:
        """The names of the columns, and the rows."""


def open_database(url: str, password: Secret | None, timeout: int = TIMEOUT) -> Database:
    """The database at a path of a SQLite file, or at an SQLAlchemy URL without password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return SqliteFile(Path(url), timeout)
    if scheme in ("sqlite", "sqlite+pysqlite"):
        return SqliteFile(Path(unquote(rest.partition("?")[0].removeprefix("/"))), timeout)
    return Server(url, password, timeout)


class SqliteFile(Database):
    """A SQLite file; another program may be writing it."""

    def __init__(self, path: Path, timeout: int = TIMEOUT) -> None:
        self.path, self.timeout, self.name = path, timeout, str(path)

    def query(self, text: str, **values: Any) -> tuple[list[str], list[Row]]:
        if not self.path.is_file():
            raise DataError(f"{self.path}: no such file: check the path")
        over = time.monotonic() + self.timeout
        try:
            address = f"file:{quote(str(self.path.resolve()))}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=self.timeout)) as connection:
                connection.set_progress_handler(lambda: time.monotonic() > over, STEPS)
                cursor = connection.execute(text, values)
                names = [column[0] for column in cursor.description or ()]
                return names, _bounded(cursor.fetchmany(MOST_ROWS + 1), self.name)
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise DataError(_too_slow(self.name, self.timeout)) from None
            raise DataError(f"{self.name}: {error}: {_remedy(str(error))}") from None
        except sqlite3.Error as error:
            raise DataError(f"{self.name}: {error}: give a SQLite database and one SELECT statement") from None


class Server(Database):
    """A database that SQLAlchemy reaches: PostgreSQL, Timescale, MariaDB, MySQL, DuckDB."""

    def __init__(self, url: str, password: Secret | None, timeout: int = TIMEOUT) -> None:
        try:
            import sqlalchemy
        except ImportError:
            raise UsageError("a database other than a SQLite file needs SQLAlchemy: pip install 'atdm[sql]'") from None
        try:
            address = sqlalchemy.make_url(url)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise UsageError("the database's URL is malformed: write it like postgresql://user@host/name") from None
        if address.password is not None or "password" in address.query:
            raise UsageError(
                f"{address.host or address.database}: its URL has a password, which other programs can see: take it "
                "out, and give a password_file, or set ATDM_SQL_PASSWORD"
            )
        self.name, self.timeout = str(address), timeout
        self._password = Secret("") if password is None else password
        if self._password.reveal():
            address = address.set(password=self._password.reveal())
        self._address = address.set(drivername=_DRIVERS.get(address.drivername, address.drivername))

    def query(self, text: str, **values: Any) -> tuple[list[str], list[Row]]:
        import sqlalchemy

        late: list[bool] = []
        try:
            with self._connection() as connection, _deadline(connection, self.timeout, late):
                result = connection.execute(sqlalchemy.text(text), values)
                names, rows = list(result.keys()), result.fetchmany(MOST_ROWS + 1)
        except sqlalchemy.exc.ResourceClosedError:
            raise DataError(f"{self.name}: the query returned no rows: give one SELECT statement") from None
        except (sqlalchemy.exc.SQLAlchemyError, OSError, ValueError) as error:
            said = self._password.blot(str(getattr(error, "orig", None) or error).strip().partition("\n")[0])
            if late or "timeout" in said.lower() or "max_statement_time" in said:
                raise DataError(_too_slow(self.name, self.timeout)) from None
            raise DataError(f"{self.name}: {said}: {_remedy(said)}") from None
        except ImportError as error:
            raise UsageError(f"{self.name}: needs the driver {error.name}: pip install {error.name}") from None
        return names, _bounded([tuple(row) for row in rows], self.name)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection of its own that cannot write; agents ask rarely, so none is kept open."""
        import sqlalchemy
        from sqlalchemy.pool import NullPool

        arguments: dict[str, Any] = {}
        kind = self._address.get_backend_name()
        if kind == "duckdb":
            arguments["read_only"] = True
        elif kind in ("postgresql", "mysql", "mariadb"):
            arguments["connect_timeout"] = min(self.timeout, 30)
        engine = sqlalchemy.create_engine(
            self._address, poolclass=NullPool, hide_parameters=True, connect_args=arguments
        )
        with engine.connect() as connection:
            if getattr(connection.dialect, "is_mariadb", False):
                kind = "mariadb"  # people write mysql:// for both
            for statement in _GUARDS.get(kind, ()):
                connection.execute(sqlalchemy.text(statement.format(s=self.timeout, ms=1000 * self.timeout)))
            connection.commit()
            try:
                yield connection
            finally:
                connection.rollback()


_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}

_GUARDS = {  # said before the query
    "postgresql": ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET statement_timeout = {ms}"),
    "mysql": ("SET SESSION TRANSACTION READ ONLY", "SET SESSION max_execution_time = {ms}"),
    "mariadb": ("SET SESSION TRANSACTION READ ONLY", "SET SESSION max_statement_time = {s}"),
}


@contextmanager
def _deadline(connection: Any, seconds: int, late: list[bool]) -> Iterator[None]:
    """DuckDB has no limit of its own: it is interrupted, and `late` is not empty once that happened."""
    inner = getattr(connection.connection, "driver_connection", None)
    interrupt = getattr(inner, "interrupt", None) if connection.dialect.name == "duckdb" else None
    if interrupt is None:
        yield
        return

    def stop() -> None:
        late.append(True)
        interrupt()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _bounded(rows: list[Row], name: str) -> list[Row]:
    if len(rows) > MOST_ROWS:
        raise DataError(f"{name}: more than {MOST_ROWS} rows: ask for the readings of one home only")
    return rows


def _too_slow(name: str, seconds: int) -> str:
    return f"{name}: no answer within {seconds} s: ask for less, add an index on the time, or set a longer timeout"


def _remedy(said: str) -> str:
    said = said.lower()
    for words, remedy in (
        ("readonly", "sources only read: give a SELECT statement"),
        ("read-only", "sources only read: give a SELECT statement"),
        ("read only", "sources only read: give a SELECT statement"),
        ("near 'load", "MariaDB reserves the word load: write it in backticks"),
        ("locked", "another program holds it: try again, or read a copy"),
        ("password", "check the user, password_file or ATDM_SQL_PASSWORD"),
        ("access denied", "check the user, password_file or ATDM_SQL_PASSWORD"),
        ("connect", "check the address and that the server runs"),
        ("no such table", "check the query against the tables there are"),
        ("does not exist", "check the query against the tables there are"),
        ("unable to open", "it must be readable, and beside a database in use its -wal and -shm files too"),
        ("not a database", "give a SQLite database"),
    ):
        if words in said:
            return remedy
    return "check the query"
