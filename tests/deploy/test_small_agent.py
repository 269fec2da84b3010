"""An agent beside CSV, SQLite or Home Assistant needs neither pandas nor pyarrow: they are not there in these tests."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pandas as pd
import pytest

from atdm.deploy.enrolment import create_agent, create_authority, create_roster
from tests.clusters import tiny
from tests.deploy.homes import HEAT, ROOM, export

WITHOUT = ("pandas", "pyarrow", "sqlalchemy", "websockets", "matplotlib")
# a program in which these packages are not installed, as far as Python can tell
PROGRAM = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {WITHOUT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from atdm.cli import main
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve homes enrolled; the readings of the first as CSV, in SQLite and in Home Assistant's database."""
    made = tmp_path_factory.mktemp("small")
    cluster = tiny(2, agents=12, rows=24 * 4, step="1h")
    sky = {"time": cluster.time, "outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar}
    pd.DataFrame(sky).to_csv(made / "weather.csv", index=False)
    name = cluster.agents[0]
    own = pd.DataFrame({"time": cluster.time, "agent": name, "indoor_temp_c": cluster.temperature[name].to_numpy(),
                        "load_kw": cluster.load[name].to_numpy()})  # fmt: skip
    own.to_csv(made / "mine.csv", index=False)
    own.to_parquet(made / "mine.parquet", index=False)
    with sqlite3.connect(made / "house.db") as house:
        house.execute("CREATE TABLE r (t INTEGER, room REAL, heat REAL)")
        rows = zip((cluster.time.asi8 // 10**9).tolist(), own["indoor_temp_c"], own["load_kw"], strict=True)
        house.executemany("INSERT INTO r VALUES (?, ?, ?)", rows)
    house.close()
    export(cluster, made / "homes")
    shutil.copy(create_authority(made / "authority", os.urandom), made / "authority.json")
    for each in cluster.agents:
        path = create_agent(made / "keys", each, os.urandom, authority=made / "authority.json")
        shutil.copy(path, made / "authority" / f"{each}-enrolment.json")
    create_roster(made / "authority", made / "roster.json", ["127.0.0.1"])
    return made


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    (folder / "keys" / "zone00" / "begun").unlink(missing_ok=True)  # every test is the first start of its home
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


QUERY = "SELECT t AS time, room AS temperature, heat AS load FROM r WHERE t > :since ORDER BY t"
SOURCES = {
    "csv": ["--source", "mine.csv"],
    "sqlite": ["--source", "sql:house.db", "--query", QUERY],
    "home assistant": ["--source", "homeassistant:homes/zone00/home-assistant_v2.db", "--temperature", ROOM, "--heat",
                       HEAT, "--step", "1h"],
}  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
def test_an_agent_reads_and_waits_without_pandas_and_pyarrow(folder, tmp_path, kind):
    """It gets as far as it can with nobody to connect to: its readings checked, in its roster."""
    process = start(
        folder, "agent", "--identity", "keys/zone00", "--state", str(tmp_path), "--roster", "roster.json", "--weather",
        "weather.csv", "--nats", "tls://127.0.0.1:1", *SOURCES[kind],
    )  # fmt: skip
    try:
        said = [process.stdout.readline()]
        while said[-1] and "checked" not in said[-1]:
            said.append(process.stdout.readline())
        said = [line.split(" ", 2)[2] for line in said]  # without time and level
        assert said[-1] == "zone00: Readings(96 rows) checked, in a roster of 12 agents\n", said
        notes = [
            f"zone00: {entity}: 96 rows from states{step}\n"
            for entity, step in ((ROOM, ", in steps of 0.01 °C"), (HEAT, ""))
        ]
        assert said[:-1] == (notes if kind == "home assistant" else [])
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_owners_page_needs_neither(folder, tmp_path):
    pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")
    process = start(
        folder, "agent", "--identity", "keys/zone00", "--state", str(tmp_path), "--roster", "roster.json", "--weather",
        "weather.csv", "--nats", "tls://127.0.0.1:1", "--source", "mine.csv", "--ui", "127.0.0.1:0",
    )  # fmt: skip
    try:
        said = process.stdout.readline()
        while said and "owner's page" not in said:
            said = process.stdout.readline()
        with urlopen(re.search(r"http://\S+/", said)[0], timeout=30) as answer:
            assert b"<h1>zone00</h1>" in answer.read()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_home_makes_its_keys_without_them(folder, tmp_path):
    process = start(folder, "enroll", "agent", str(tmp_path), "--name", "x", "--authority", "authority.json")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and (tmp_path / "x" / "enrolment.json").exists(), said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--source", "mine.parquet"], "parquet needs pandas and pyarrow: .*or save it as CSV"),
        (["--source", "sql:postgresql://u@h/d", "--query", "SELECT 1"], r"needs SQLAlchemy: pip install 'atdm\[sql\]'"),
    ],
)
def test_what_needs_more_says_what_to_install(folder, tmp_path, words, why):
    process = start(
        folder, "agent", "--identity", "keys/zone00", "--state", str(tmp_path), "--roster", "roster.json", "--weather",
        "weather.csv", "--nats", "tls://127.0.0.1:1", *words,
    )  # fmt: skip
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2 and re.search(why, said) and len(said.splitlines()) == 1, said
