"""A query as a source: SQLite always, PostgreSQL, MariaDB and DuckDB where they are."""

import logging
import sqlite3
import time as clock
from datetime import UTC, datetime

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from atdm.data.sources import open_source
from atdm.errors import DataError, UsageError

from .recorded import POWER, TEMPERATURE, Recorded
from .servers import PASSWORD, mariadb, postgresql

START, STEP, ROWS = 1_700_006_400, 1800, 96
QUERY = "SELECT t AS time, room AS temperature, heat AS load FROM readings WHERE home = 'h1' ORDER BY t"


def readings() -> list[dict]:
    rng = np.random.default_rng(1)
    return [
        {"t": START + STEP * i, "home": "h1", "room": round(20 + rng.normal(), 3), "heat": round(rng.uniform(), 3)}
        for i in range(ROWS)
    ]


def fill(engine: sa.Engine, kind: sa.types.TypeEngine, convert) -> list[dict]:
    rows = readings()
    table = sa.Table(
        "readings", sa.MetaData(), sa.Column("t", kind), sa.Column("home", sa.String(20)),
        sa.Column("room", sa.Numeric(8, 3)), sa.Column("heat", sa.Double()),
    )  # fmt: skip
    table.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), [{**row, "t": convert(row["t"])} for row in rows])
        connection.execute(table.insert(), [{**rows[0], "t": convert(START + ROWS * STEP), "room": None}])
        connection.execute(table.insert(), [{**rows[0], "t": convert(START), "home": "h2"}])
    return rows


def check(rows, expected):
    np.testing.assert_array_equal(rows.time, [row["t"] for row in expected] + [START + ROWS * STEP])
    np.testing.assert_allclose(rows.temperature[:-1], [row["room"] for row in expected])
    np.testing.assert_allclose(rows.load[:-1], [row["heat"] for row in expected])
    assert np.isnan(rows.temperature[-1])


@pytest.fixture
def sqlite(tmp_path):
    path = tmp_path / "home.db"
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=NullPool)
    return path, fill(engine, sa.Text(), lambda t: datetime.fromtimestamp(t, UTC).isoformat())


@pytest.fixture(scope="module")
def postgres():
    with postgresql() as urls:
        yield urls


@pytest.fixture(scope="module")
def maria():
    with mariadb() as urls:
        yield urls


@pytest.fixture
def password(tmp_path):
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    return str(path)


def test_a_query_of_a_sqlite_file(sqlite):
    path, expected = sqlite
    source = open_source(f"sql:sqlite:///{path}", {"query": QUERY})
    check(source.rows(), expected)
    later = source.rows(START + 90 * STEP)
    np.testing.assert_array_equal(later.time, START + STEP * np.arange(91, ROWS + 1))


def test_a_query_may_ask_for_the_rows_since_a_stamp(sqlite):
    path, expected = sqlite
    query = QUERY.replace("ORDER", "AND CAST(strftime('%s', t) AS INTEGER) > :since ORDER")
    source = open_source(f"sql:{path}", {"query": query})
    check(source.rows(), expected)
    assert len(source.rows(START + 90 * STEP)) == 6 and len(source.rows(START + ROWS * STEP)) == 0


def test_seconds_since_1970_and_a_declared_clock_are_stamps_too(tmp_path):
    path = tmp_path / "home.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE r (s INTEGER, w TEXT, temperature REAL, load REAL)")
        rows = [(START, "2023-11-15 01:00"), (START + 1800, "2023-11-15 01:30")]
        made.executemany("INSERT INTO r VALUES (?, ?, 20, 1)", rows)
    made.close()
    seconds = open_source(f"sql:{path}", {"query": "SELECT s AS time, temperature, load FROM r ORDER BY 1"})
    wall = {"query": "SELECT w AS time, temperature, load FROM r ORDER BY 1"}
    local = open_source(f"sql:{path}", {**wall, "timezone": "Europe/Paris"})
    assert seconds.rows().time.tolist() == local.rows().time.tolist() == [START, START + 1800]
    with pytest.raises(DataError, match="has no time zone"):
        open_source(f"sql:{path}", wall).rows()


def test_a_query_of_postgresql(postgres, password, monkeypatch):
    owner, reader = postgres
    stamp = sa.DateTime(timezone=True)
    expected = fill(sa.create_engine(owner, poolclass=NullPool), stamp, lambda t: datetime.fromtimestamp(t, UTC))
    source = open_source(f"sql:{reader}", {"query": QUERY, "password_file": password})
    check(source.rows(), expected)
    query = QUERY.replace("ORDER", "AND extract(epoch FROM t) > :since ORDER")
    since = open_source(f"sql:{reader}".replace("+psycopg", ""), {"query": query, "password_file": password})
    assert len(since.rows(START + 90 * STEP)) == 6
    monkeypatch.setenv("ATDM_SQL_PASSWORD", PASSWORD)
    check(open_source(f"sql:{reader}", {"query": QUERY}).rows(), expected)


@pytest.mark.parametrize("server", ["postgres", "maria"])
def test_nothing_can_be_written_and_no_statement_runs_for_long(server, password, request):
    """The role may write; the connection may not."""
    owner, reader = request.getfixturevalue(server)
    with sa.create_engine(owner, poolclass=NullPool).begin() as connection:
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS diary (a INTEGER)"))
        if server == "postgres":
            connection.execute(sa.text("GRANT ALL ON diary TO reader"))
    options = {"query": "INSERT INTO diary VALUES (1)", "password_file": password, "timeout": "1s"}
    with pytest.raises(DataError, match="(?i)read.only.*sources only read: give a SELECT"):
        open_source(f"sql:{reader}", options).rows()
    sleep = "SELECT pg_sleep(60)" if server == "postgres" else "SELECT SLEEP(60)"
    began = clock.monotonic()
    with pytest.raises(DataError, match="no answer within 1 s: ask for less"):
        open_source(f"sql:{reader}", {**options, "query": f"{sleep} AS time"}).rows()
    assert clock.monotonic() - began < 50  # it was ended, not waited for
    with sa.create_engine(owner, poolclass=NullPool).connect() as connection:
        assert connection.execute(sa.text("SELECT COUNT(*) FROM diary")).scalar() == 0


@pytest.mark.parametrize("server", ["postgres", "maria"])
def test_the_password_is_in_no_message_repr_or_log(server, tmp_path, password, request, caplog):
    _, reader = request.getfixturevalue(server)
    caplog.set_level(logging.DEBUG)
    wrong = tmp_path / "wrong"
    wrong.write_text("not-" + PASSWORD)
    wrong.chmod(0o600)
    source = open_source(f"sql:{reader}", {"query": "SELECT nothing FROM nowhere", "password_file": password})
    shown = [repr(source), source.name, repr(source.database), str(vars(source)), str(vars(source.database))]
    refused = open_source(f"sql:{reader}", {"query": QUERY, "password_file": str(wrong)})
    for tried, words in ((source, "nowhere"), (refused, "check the user, password_file or ATDM_SQL_PASSWORD")):
        with pytest.raises(DataError, match=words) as error:
            tried.rows()
        assert (
            error.value.__suppress_context__ and error.value.__cause__ is None
        )  # no traceback shows the driver's words
        shown.append(f"{error.value!r} {error.value}")
        assert len(str(error.value).splitlines()) == 1
    shown.append(caplog.text)
    assert PASSWORD not in "\n".join(shown)
    with_password = reader.replace("reader@", f"reader:{PASSWORD}@")
    with pytest.raises(UsageError, match="its URL has a password.*take it out, and give a password_file") as error:
        open_source(f"sql:{with_password}", {"query": QUERY})
    assert PASSWORD not in str(error.value)


def test_a_query_of_mariadb(maria, password):
    owner, reader = maria
    naive = sa.create_engine(owner, poolclass=NullPool)
    expected = fill(naive, sa.DateTime(), lambda t: datetime.fromtimestamp(t, UTC).replace(tzinfo=None))
    with pytest.raises(DataError, match="reserves the word load: write it in backticks"):
        open_source(f"sql:{reader}", {"query": QUERY, "password_file": password}).rows()
    quoted = QUERY.replace("load", "`load`")
    options = {"query": quoted, "password_file": password}
    check(open_source(f"sql:{reader}", {**options, "timezone": "UTC"}).rows(), expected)
    with pytest.raises(DataError, match="has no time zone: write stamps in UTC"):
        open_source(f"sql:{reader}", options).rows()
    seconds = "CAST(UNIX_TIMESTAMP(CONVERT_TZ(t, '+00:00', @@session.time_zone)) AS SIGNED) AS time"
    query = quoted.replace("t AS time", seconds, 1)
    check(open_source(f"sql:{reader.replace('mysql+', 'mariadb+')}", {**options, "query": query}).rows(), expected)


def test_a_query_of_duckdb(tmp_path):
    pytest.importorskip("duckdb_engine", reason="no DuckDB here: pip install duckdb-engine")
    url = f"duckdb:///{tmp_path / 'home.duckdb'}"
    expected = fill(sa.create_engine(url, poolclass=NullPool), sa.BigInteger(), lambda t: t)
    source = open_source(f"sql:{url}", {"query": QUERY})
    check(source.rows(), expected)
    with pytest.raises(DataError, match="(?i)read-only.*only read"):
        open_source(f"sql:{url}", {"query": "DELETE FROM readings"}).rows()


@pytest.mark.parametrize("server", ["postgres", "maria"])
def test_home_assistants_recorder_may_be_on_a_server(server, password, request):
    owner, reader = request.getfixturevalue(server)
    made = Recorded(owner)
    time = START + STEP * np.arange(4)
    made.run(START - 60, START + 2 * STEP)
    made.run(START + 3 * STEP)
    made.states("sensor.room", time, [68, 68, "unavailable", 77], {**TEMPERATURE, "unit_of_measurement": "°F"})
    made.states("sensor.heat", time, [1500, 500, 0, 2000], {**POWER, "unit_of_measurement": "W"})
    made.statistics("sensor.room", "statistics", [START - 3600], unit="°F", mean=[50.0])
    made.statistics("sensor.heat", "statistics", [START - 3600], unit="W", mean=[250.0])
    made.states("sun.sun", [START + 4 * STEP + 5], ["below_horizon"], {})
    names = {"temperature": "sensor.room", "heat": "sensor.heat", "password_file": password}
    rows = open_source(f"homeassistant:{reader}", names).rows()
    np.testing.assert_array_equal((rows.time - START) // STEP, [0, 1, 3])
    np.testing.assert_allclose(rows.temperature, [20, 20, 25])
    np.testing.assert_allclose(rows.load, [1.5, 0.5, 2.0])
    hourly = open_source(f"homeassistant:{reader}", {**names, "step": "1h"}).rows()
    np.testing.assert_allclose([hourly.temperature[0], hourly.load[0]], [10, 0.25])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", r"give a query \(--query\) of the columns time, temperature, load"),
        ("SELECT t AS time, room FROM readings", "has no column 'temperature', but 'time', 'room': rename it by AS"),
        (QUERY.replace("ORDER BY t", "ORDER BY t DESC"), "is not later than the one before: add ORDER BY time"),
        (QUERY.replace("room AS", "home AS"), "temperature is no number in data rows 1, 2, 3 and 94 more"),
        (
            QUERY.replace("SELECT t AS", "SELECT home AS"),
            "time is 'h1' in data rows 1, 2, 3 and 94 more, not an ISO 8601",
        ),
        (
            QUERY.replace("SELECT t AS", "SELECT heat AS"),
            "time is '0.[0-9]*' in data rows.*, not a time stamp: give one, or whole sec",
        ),
        ("DROP TABLE readings", "readonly database: sources only read: give a SELECT"),
        ("SELEC", "syntax error: check the query"),
        ("SELECT * FROM readings; DELETE FROM readings", "one SELECT statement|one statement"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS time FROM n WHERE i < 0",
            "no answer within 1 s",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(sqlite, query, words):
    path, _ = sqlite
    before = path.read_bytes()
    with pytest.raises((DataError, UsageError), match=words) as error:
        open_source(f"sql:sqlite:///{path}", {"query": query, "timeout": "1s"}).rows()
    assert len(str(error.value).splitlines()) == 1 and path.read_bytes() == before


def test_a_server_that_is_not_there_is_said(tmp_path):
    source = open_source("sql:postgresql://reader@127.0.0.1:1/home", {"query": QUERY, "timeout": "2s"})
    with pytest.raises(DataError, match="check the address and that the server runs"):
        source.rows()
    with pytest.raises(UsageError, match="malformed: write it like"):
        open_source("sql:://", {"query": QUERY})
    with pytest.raises((UsageError, DataError), match="oracle|dialect|driver"):
        open_source("sql:strange://host/db", {"query": QUERY}).rows()


def test_a_query_that_averages_asks_for_the_step_of_the_sensor(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'h.db'}", poolclass=NullPool)
    fill(engine, sa.Integer(), int)
    grouped = "SELECT t AS time, AVG(room) AS temperature, avg (heat) AS load FROM readings GROUP BY t ORDER BY t"
    for query, asked in ((QUERY, False), (grouped, True)):
        notes = open_source(f"sql:sqlite:///{tmp_path / 'h.db'}", {"query": query}).rows().notes
        assert any("--quantum" in note for note in notes) is asked
