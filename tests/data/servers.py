"""Databases of Debian's packages, started on the loopback interface for a test; a test that lacks one skips visibly."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSWORD = "correct-horse-7Qz"


def binary(*names: str) -> str | None:
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/sbin")]
    found = (shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)])) for name in names)
    return next((path for path in found if path), None)


def command(*words: object, user: str | None = None) -> list[str]:
    """As another user where this one is root, which database servers refuse."""
    words = tuple(map(str, words))
    return ["runuser", "-u", user, "--", *words] if user and os.geteuid() == 0 else list(words)


def run(*words: object, user: str | None = None, **options: object) -> None:
    done = subprocess.run(command(*words, user=user), capture_output=True, text=True, timeout=120, **options)
    if done.returncode:
        pytest.skip(f"{Path(str(words[0])).name} does not run here: {done.stderr.strip().splitlines()[-1:]}")


@contextmanager
def folder(user: str) -> Iterator[Path]:
    """A short path (sockets have room for 100 characters) that the server may write to."""
    made = Path(tempfile.mkdtemp(prefix="atdm-db-", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(made, user)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def patiently(*words: object, user: str | None = None) -> None:
    """Until a server answers."""
    for _ in range(150):
        if not subprocess.run(command(*words, user=user), capture_output=True, timeout=60).returncode:
            return
        time.sleep(0.2)
    pytest.skip(f"{Path(str(words[0])).name}: the server did not answer within 30 s")


@contextmanager
def postgresql() -> Iterator[tuple[str, str]]:
    """A server reached by a socket: URLs of its owner and of `reader`, whose password is PASSWORD."""
    tools = [binary(name) for name in ("initdb", "pg_ctl", "psql")]
    if None in tools:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    initdb, pg_ctl, psql = tools
    with folder("postgres") as home:
        rules = home / "hba.conf"
        rules.write_text("local all owner trust\nlocal all all scram-sha-256\n")
        rules.chmod(0o644)
        run(initdb, "-D", home / "data", "-U", "owner", "-A", "trust", "-E", "UTF8", "--no-sync", user="postgres")
        options = f"-k {home} -c listen_addresses='' -c hba_file={rules} -c fsync=off"
        run(pg_ctl, "-D", home / "data", "-o", options, "-l", home / "log", "-w", "start", user="postgres")
        try:
            say = f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'; GRANT pg_read_all_data, pg_write_all_data TO reader"
            run(psql, "-h", home, "-U", "owner", "-d", "postgres", "-c", say, user="postgres")
            yield tuple(f"postgresql+psycopg://{who}@/postgres?host={home}" for who in ("owner", "reader"))
        finally:
            subprocess.run(command(pg_ctl, "-D", home / "data", "-m", "immediate", "stop", user="postgres"),
                           capture_output=True, timeout=60)  # fmt: skip


@contextmanager
def mariadb() -> Iterator[tuple[str, str]]:
    """The same of MariaDB."""
    server, install, client = (binary(*names) for names in (("mariadbd", "mysqld"), ("mariadb-install-db",),
                                                            ("mariadb", "mysql")))  # fmt: skip
    if not (server and install and client):
        pytest.skip("no MariaDB here: apt-get install mariadb-server")
    with folder("mysql") as home:
        run(install, "--no-defaults", f"--datadir={home}/data", "--auth-root-authentication-method=normal",
            "--skip-test-db", user="mysql")  # fmt: skip
        words = command(server, "--no-defaults", f"--datadir={home}/data", f"--socket={home}/s", "--skip-networking",
                        f"--pid-file={home}/pid", "--innodb-flush-log-at-trx-commit=0", user="mysql")  # fmt: skip
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ask = (client, "--no-defaults", f"--socket={home}/s", "-u", "root", "-e")
        try:
            patiently(*ask, "SELECT 1")
            run(*ask, f"CREATE DATABASE home; CREATE USER reader@localhost IDENTIFIED BY '{PASSWORD}'; "
                "GRANT ALL ON home.* TO reader@localhost")  # fmt: skip
            yield tuple(f"mysql+pymysql://{who}@localhost/home?unix_socket={home}/s" for who in ("root", "reader"))
        finally:
            process.terminate()
            process.wait(60)
