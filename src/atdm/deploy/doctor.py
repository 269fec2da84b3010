"""What a bug report needs, and nothing that must stay secret: versions, clock, modes of files, servers in reach.

Rule 1: no file is opened but authority.json, which is public. Of others the mode is told, and whether they are empty.
Rule 2: no name that somebody chose is told: not of a home, a folder, a server or a file that atdm does not make.
"""

import os
import platform
import re
import socket
import ssl
import stat
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from atdm.deploy.enrolment import read_authority
from atdm.errors import AtdmError, UsageError
from atdm.protocol.plan import DAY, VERSION

CONNECT_SECONDS = 5.0  # a server that takes longer is not in reach
LEAST_DAYS = 30  # of a server's certificate: time to sign a roster and carry its files to the server
RENEW = "let the authority sign the roster again (`atdm enroll roster`) and give the server its new files"
EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL
OURS = (  # files that atdm makes; of others only the number is told
    "authority.json", "authority.key", "begun", "ca.key", "dither.key", "enrolled.json", "enrolment.json",
    "history.jsonl", "identity.key", "journal", "journal.base", "nats.key", "roster.before.json", "roster.json",
    "server.conf", "server.key", "server.pem", "weather.json", ".lock",
)  # fmt: skip
PRIVATE = (
    "authority.key", "ca.key", "dither.key", "identity.key", "journal", "journal.base", "nats.key", "server.key",
)  # fmt: skip


def examine(
    atdm: str, folders: Mapping[str, Path], servers: Sequence[str], authority: Path | None = None
) -> dict[str, Any]:
    """Everything there is to say; atdm: its version; folders: what one is called → where it is. `problems` has what
    keeps a party from running, in words."""
    files = {what: _folder(path) for what, path in folders.items()}
    reached = [_reach(number, server, authority) for number, server in enumerate(servers, 1)]
    problems = [f"{what}: {row['problem']}" for what, rows in files.items() for row in rows if row.get("problem")]
    problems += [f"server {row['server']}: {row['answer']}" for row in reached if not row["reached"]]
    problems += [
        f"server {row['server']}: its certificate ends in {days} days: {RENEW}"
        for row in reached
        if (days := row.get("certificate_days", LEAST_DAYS)) < LEAST_DAYS
    ]
    return {
        "versions": {"atdm": atdm, **versions()},
        "packages": packages(),
        "clock": clock(),
        "files": files,
        "servers": reached,
        "problems": problems,
    }


def versions() -> dict[str, str]:
    return {
        "wire": str(VERSION),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "openssl": ssl.OPENSSL_VERSION,
    }


def packages() -> dict[str, dict[str, str | None]]:
    """Extra → package → version, None where it is not installed; "" has those that atdm cannot do without."""
    found: dict[str, dict[str, str | None]] = {}
    for line in _declared():
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if name is not None and name[0] != "atdm" and (extra is None or extra[1] not in ("dev", "docs", "release")):
            found.setdefault(extra[1] if extra else "", {})[name[0]] = _installed(name[0])
    return found


def _declared() -> list[str]:
    """Requirements of the distribution that brought this code, the whole one or the one for a home."""
    for name in ("atdm", "atdm-agent"):
        try:
            return requires(name) or []
        except PackageNotFoundError:
            continue
    return []


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def clock() -> dict[str, Any]:
    """Deadlines follow the monotonic clock, days the stamps of readings; UTC is compared with other parties' by eye."""
    info = time.get_clock_info("monotonic")
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "zone": time.tzname[0],
        "monotonic": info.monotonic and not info.adjustable,
        "resolution_s": info.resolution,
    }


def _folder(path: Path) -> list[dict[str, Any]]:
    """Modes of a folder and of what is in it; an agent's state may lie within its identity."""
    try:
        inside = sorted(path.iterdir()) + sorted((path / "state").glob("*"))
        rows = [_row("the folder", path.stat(), folder=True)]
        rows += [
            _row(str(each.relative_to(path).with_name(_name(each))), each.stat(), folder=False)
            for each in inside
            if _name(each) in OURS and each.is_file()
        ]
        others = sum(_name(each) not in OURS and each.is_file() for each in inside)
    except OSError as error:
        return [{"name": "the folder", "problem": f"cannot be read ({error.strerror}): check the path"}]
    return rows + ([{"name": f"{others} other files"}] if others else [])


def _name(path: Path) -> str:
    """Without the hash in that of a journal's base."""
    return "journal.base" if path.name.startswith("journal.base-") else path.name


def _row(name: str, found: os.stat_result, *, folder: bool) -> dict[str, Any]:
    mode = stat.S_IMODE(found.st_mode)
    row: dict[str, Any] = {"name": name, "mode": f"{mode:04o}", "owner": "this user" if _own(found) else "another user"}
    if not folder:
        row["size"] = "empty" if found.st_size == 0 else "not empty"
    private = name.removeprefix("state/") in PRIVATE
    if private and mode & 0o077:
        row["problem"] = f"{name} can be read by others: run chmod 600 on it"
    elif private and not found.st_size:
        row["problem"] = f"{name} is empty: restore the folder"
    return row


def _own(found: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or found.st_uid == os.getuid()


def _reach(number: int, server: str, authority: Path | None) -> dict[str, Any]:
    """Whether a NATS server answers, under TLS 1.3 and, where authority.json is known, with its certificate."""
    parts = urlsplit(server)
    try:
        host, port = parts.hostname, parts.port or 4222
    except ValueError:
        host, port = None, 0
    if parts.scheme != "tls" or not host:
        raise UsageError("--nats: only encrypted connections are made; write tls://host:port")
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
            if authority is None:
                return {"server": number, "reached": True, "answer": "answers; not asked for its certificate"}
            context = ssl.create_default_context(cadata=read_authority(authority).ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            with context.wrap_socket(connection, server_hostname=host) as secured:
                days = _days_left(secured.getpeercert() or {})
                answer = f"answers with {secured.version()} and a certificate of this enrolment for {days} more days"
                return {"server": number, "reached": True, "answer": answer, "certificate_days": days}
    except ssl.SSLCertVerificationError as error:
        answer = (
            f"its certificate has ended, or a clock is wrong: {RENEW}"
            if error.verify_code == EXPIRED
            else "not the server of this enrolment: check address and authority.json"
        )
    except (ssl.SSLError, ConnectionResetError):
        answer = "answers, but not with TLS 1.3 from the first byte: check that it runs the server.conf of the roster"
    except socket.gaierror:
        answer = "its name is not known here: check the address and the network"
    except TimeoutError:
        answer = f"no answer within {CONNECT_SECONDS:g} s: check address, port and firewall"
    except OSError:
        answer = "no connection: check that the server runs, address, port and firewall"
    except AtdmError:
        answer = "authority.json cannot be read: get it again from the enrolment authority"
    return {"server": number, "reached": False, "answer": answer}


def _days_left(certificate: Mapping[str, Any]) -> int:
    return int((ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()) // DAY)
