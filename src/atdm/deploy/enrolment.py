"""Key folders and the files parties exchange before the first run.

    authority.json     public: the authority's key and the CA of the NATS servers; every party pins it
    NAME/              an agent's folder: identity.key, dither.key, nats.key (0600), authority.json, enrolment.json;
                       begun, once it has an account
    aggregator/        the aggregator's: nats.key (0600), authority.json, enrolment.json
    enrolment.json     public, signed by its own identity: what the authority needs to enrol somebody
    enrolled.json      the authority's record: the roster's number, and every key that was ever in one
    roster.json        public, signed by the authority
    nats/              server.conf, server.pem, server.key: a NATS server for that roster

Rule 1: a private key never leaves the folder it was made in, and never replaces another one.
Rule 2: authority and aggregator are two parties: one folder does not hold both, but for a rehearsal.
Rule 3: a roster is renewed under the next number; a key has one name for life, and once retired or replaced it never
        enrols again.
Rule 4: one command at a time changes the authority's record.
"""

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np

from atdm.crypto.keys import KEY_BYTES, SigningKey, digest, read_key_file, verify, write_key_file
from atdm.data.readings import Weather
from atdm.deploy.server import make_ca, make_server_certificate, server_config
from atdm.errors import DataError, PeerError, UsageError
from atdm.protocol.account import BLOCK
from atdm.protocol.company import owners_needed
from atdm.protocol.plan import DAY
from atdm.protocol.roster import Roster, check_roster, owners_of, sign_roster
from atdm.protocol.rules import Rules
from atdm.protocol.session import RandomBytes
from atdm.transport.disk import lock, replace_file
from atdm.transport.nkey import nkey_public

MOST_FILE_BYTES = 64 << 20  # a roster of 100 000 agents
LONGEST_NAME = 100  # characters
AGGREGATOR: Literal["aggregator"] = "aggregator"
RECORD = "enrolled.json"  # of the authority
T = TypeVar("T")
P = ParamSpec("P")


class Pinned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """authority.json: whom a party was enrolled by, and the certificate authority of its NATS servers."""

    authority: bytes  # Ed25519 public key
    ca: str  # PEM


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """enrolment.json: a party introduces itself. Signed with the identity key, so that nobody enrols another's."""

    role: Literal["agent", "aggregator"]
    name: str
    owner: str
    identity: bytes  # Ed25519 public key
    nkey: str  # public
    signature: bytes

    def fields(self) -> tuple[str | bytes, ...]:
        return ("enrolment", self.role, self.name, self.owner, self.identity, self.nkey)


class SignedWeather(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """weather.json: rows of weather that the authority vouches for."""

    time: bytes  # int64 [s]
    outdoor: bytes  # float64 [°C]
    solar: bytes  # float64 [kW/m²]
    signature: bytes

    @classmethod
    def of(cls, weather: Weather, authority: SigningKey | None = None) -> "SignedWeather":
        """Signed, or, where an agent keeps what it checked, as it is."""
        columns = (weather.time.astype("<i8"), weather.outdoor.astype("<f8"), weather.solar.astype("<f8"))
        time, outdoor, solar = (column.tobytes() for column in columns)
        draft = cls(time, outdoor, solar, b"")
        signature = b"" if authority is None else authority.sign("weather", draft.hash())
        return msgspec.structs.replace(draft, signature=signature)

    def hash(self) -> bytes:
        return digest("signed weather", self.time, self.outdoor, self.solar)

    def rows(self, authority: bytes) -> Weather:
        """Raise unless the authority vouches for them."""
        verify(authority, self.signature, "weather", self.hash())
        return self.unchecked()

    def unchecked(self) -> Weather:
        if not len(self.time) == len(self.outdoor) == len(self.solar) or len(self.time) % 8:
            raise PeerError("rows of weather with columns of different lengths: ignored")
        time = np.frombuffer(self.time, dtype="<i8").astype(np.int64)
        outdoor, solar = (np.frombuffer(column, dtype="<f8").astype(float) for column in (self.outdoor, self.solar))
        if (np.diff(time) <= 0).any() or not (np.isfinite(outdoor).all() and np.isfinite(solar).all()):
            raise PeerError("rows of weather that are not in order of time, or not numbers: ignored")
        return Weather(time, outdoor, solar)


class AgentKeys(msgspec.Struct, frozen=True):
    """What an agent's folder holds."""

    name: str
    identity: SigningKey
    secret: bytes  # long-term; the dither comes from it
    nkey: bytes
    pinned: Pinned

    def __repr__(self) -> str:
        return f"AgentKeys({self.name})"


# Made once


def create_authority(folder: Path, random_bytes: RandomBytes, *, rehearsal: bool = False) -> Path:
    """The enrolment authority: its signing key, and the certificate authority of the NATS servers."""
    if (folder / AGGREGATOR).exists() and not rehearsal:
        raise UsageError(
            f"{folder} holds an aggregator: the authority must be somebody else, or it could enrol agents of its own; "
            "use another folder on another machine (--rehearsal to try things out)"
        )
    _make(folder)
    seed = random_bytes(KEY_BYTES)
    write_key_file(folder / "authority.key", seed)
    ca, key = make_ca()
    _write_private(folder / "ca.key", key)
    _write_register(folder, Register())
    return _write(folder / "authority.json", Pinned(SigningKey(seed).public, ca))


def create_agent(
    folder: Path, name: str, random_bytes: RandomBytes, *, owner: str | None = None, authority: Path | None = None
) -> Path:
    """An agent's folder below `folder`; gives the path of the file to send to the authority."""
    return _create(folder, "agent", name, name if owner is None else owner, random_bytes, authority)


def create_aggregator(
    folder: Path, random_bytes: RandomBytes, *, authority: Path | None = None, rehearsal: bool = False
) -> Path:
    """The aggregator's folder below `folder`; gives the path of the file to send to the authority."""
    if (folder / "authority.key").exists() and not rehearsal:
        raise UsageError(
            f"{folder} holds the enrolment authority: the aggregator must be somebody else, or it could enrol agents "
            "of its own; use another folder on another machine (--rehearsal to try things out)"
        )
    return _create(folder, AGGREGATOR, AGGREGATOR, AGGREGATOR, random_bytes, authority)


class Enrolled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One identity key that is or was in a roster."""

    name: str
    owner: str
    since: int  # first UTC day it may give
    gone: int | None = None  # UTC day on which it was retired or replaced
    successor: str = ""  # the key in hex that replaced it


class Register(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """enrolled.json in the authority's folder: the roster's number, which only grows, and every key there ever was."""

    serial: int = 0
    keys: dict[str, Enrolled] = {}  # by identity key in hex

    def now(self, name: str) -> str:
        """The key under which a name is enrolled now, in hex."""
        found = [key for key, known in self.keys.items() if known.name == name and known.gone is None]
        if not found:
            raise UsageError(f"{name}: is in no roster: `atdm enroll status` lists who is enrolled")
        return found[0]

    def end(self, key: str, day: int, successor: str = "") -> "Register":
        ended = msgspec.structs.replace(self.keys[key], gone=day, successor=successor)
        return Register(self.serial, {**self.keys, key: ended})


def _alone(work: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """Rule 4. Two commands that read the record, work and write all of it would undo each other's retirements and sign
    two rosters with one number."""

    @wraps(work)
    def locked(folder: Path, /, *args: P.args, **options: P.kwargs) -> T:
        with lock(folder) if (folder / RECORD).exists() else nullcontext():  # no authority's: nothing will be written
            return work(folder, *args, **options)

    return locked


@_alone
def create_roster(
    folder: Path, output: Path, hosts: Sequence[str], since: int | None = None
) -> tuple[Roster, Path | None]:
    """Sign the roster of all enrolment files below the authority's folder; write it and the NATS server's files.

    Its number is one more than that of the roster written before. Keys that come after the first roster give no day
    before `since` (a UTC day number; tomorrow if not given). Gives the roster, and the folder for the server
    unless no aggregator has enrolled yet.
    """
    pinned = read_authority(folder / "authority.json")
    authority = SigningKey(read_key_file(folder / "authority.key"))
    requests = list(_requests(folder).values())
    agents = [request for request in requests if request.role == "agent"]
    aggregators = [request for request in requests if request.role == AGGREGATOR]
    if not agents:
        raise UsageError(f"{folder}: no enrolment.json of any agent: collect them from the agents into this folder")
    if len(aggregators) > 1:
        raise UsageError(f"{folder}: enrolment files of {len(aggregators)} aggregators: keep one of them")
    known = _register(folder)
    _check_gone_keys(agents, known)
    _check_new_keys(agents)
    _check_known_keys(agents, known)
    first = 0 if known.serial == 0 else today() + 1 if since is None else since  # its home may have given this morning
    earliest = {each.successor: (each.gone or 0) + 1 for each in known.keys.values() if each.successor}
    named = {a.identity.hex(): a for a in agents}
    keys = {
        key: known.keys.get(key, Enrolled(a.name, a.owner, max(first, earliest.get(key, 0))))  # as long as the old gave
        for key, a in named.items()
    }
    days = {bytes.fromhex(key): each.since for key, each in keys.items()}
    roster = sign_roster(authority, [(a.name, a.owner, a.identity) for a in agents], known.serial + 1, days)
    nats = output.parent / "nats"
    files = server_files(folder, pinned, agents, aggregators[0].nkey, hosts) if aggregators else {}
    _write_register(folder, Register(roster.serial, known.keys | keys))
    _write(output, roster)
    if files:
        _make(nats)
    for name, content in files.items():
        replace_file(nats / name, content)
    return roster, nats if files else None


def growth_note(roster: Roster, day: int) -> str | None:
    """What follows where more homes came within a block of 28 days than companies of that block can do without."""
    block = day - day % BLOCK
    before = owners_of([member for member in roster.members if member.since <= block])
    least = Rules().least_agents
    needed, most = owners_needed(roster, least), before // 2
    if not least <= before < needed:  # too few for any company, or enough for one
        return None
    return (
        f"{before} owners were there when this block of {BLOCK} days began, and a company now needs {needed}: days of "
        f"the block that the new homes cannot give are lost, and if some were collected all that follow; to lose few, "
        f"add up to {most} owners in a block, or sign on its last day, {_date(block + BLOCK - 1)}"
    )


@_alone
def replace_key(folder: Path, name: str) -> Enrolled:
    """The same home with a new key, as after a dead disk: the old one never enrols again, the new one is in the next
    roster and gives days from then on. Gives what is known of the old one."""
    known = _register(folder)
    old = known.now(name)
    new = [r for r in _requests(folder).values() if r.name == name and r.identity.hex() != old]
    if len(new) != 1:
        raise UsageError(
            f"{name}: {len(new)} enrolment files with a new key below {folder}: put there the one file that its owner "
            "sent, made by `atdm enroll agent` in a new folder"
        )
    if new[0].owner != known.keys[old].owner:
        raise UsageError(
            f"{name}: the new key names the owner {new[0].owner!r}, the old one {known.keys[old].owner!r}: a key is "
            "replaced for the same owner; else retire the old one and enrol the new one under another name"
        )
    ended = known.end(old, today())
    _check_gone_keys(new, ended)
    _check_known_keys(new, ended)
    return _end(folder, known, old, new[0].identity.hex())


@_alone
def retire_key(folder: Path, name: str) -> Enrolled:
    """A home leaves for good: its key is in no later roster and never enrols again."""
    known = _register(folder)
    return _end(folder, known, known.now(name))


def _end(folder: Path, known: Register, key: str, successor: str = "") -> Enrolled:
    ended = known.end(key, today(), successor)
    _write_register(folder, ended)
    for path, request in _requests(folder).items():
        if request.identity.hex() == key:
            path.rename(path.with_name(f"{path.name}.gone"))
    return ended.keys[key]


def enrolment_status(folder: Path) -> dict[str, Any]:
    """Who is enrolled, since when, and what became of the others; days as UTC dates."""
    known = _register(folder)
    files = {r.identity.hex(): r for r in _requests(folder).values() if r.role == "agent"}
    before = {each.successor: key for key, each in known.keys.items() if each.successor}
    new = {key: Enrolled(r.name, r.owner, 0) for key, r in files.items() if key not in known.keys}
    rows = [
        {
            "name": each.name, "owner": each.owner, "key": key, "state": _state(key, each, key in files, key in new),
            "since": _date(each.since) if each.since else None, "gone": None if each.gone is None else _date(each.gone),
            "replaced_by": each.successor or None, "replaces": before.get(key),
        }
        for key, each in sorted((known.keys | new).items(), key=lambda item: (_by_number(item[1].name), item[1].since))
    ]  # fmt: skip
    return {"roster": known.serial, "keys": rows}


def _by_number(name: str) -> list[tuple[int, str]]:
    """Sorts home-2 before home-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _state(key: str, known: Enrolled, there: bool, new: bool) -> str:
    if known.gone is not None:
        return "replaced" if known.successor else "retired"
    return "waits for a roster" if new else "enrolled" if there else "left out: its file is gone"


def today() -> int:
    return int(time.time()) // DAY


def _date(day: int) -> str:
    return str(datetime.fromtimestamp(day * DAY, UTC).date())


def _requests(folder: Path) -> dict[Path, Request]:
    return {path: _read_request(path) for path in sorted(folder.glob("**/*enrolment.json"))}


def _register(folder: Path) -> Register:
    """The authority's record, which is there from its first day."""
    record = folder / RECORD
    if not record.exists():
        raise DataError(
            f"{record} is missing: restore the record from a backup; without it numbers would begin anew, which agents "
            "refuse, and retired keys come back"
        )
    return _read(record, Register, "the authority's record of rosters")


def _write_register(folder: Path, register: Register) -> None:
    replace_file(folder / RECORD, json_bytes(register))  # on disk before the roster it stands for is


def _check_gone_keys(agents: Sequence[Request], known: Register) -> None:
    for agent in agents:
        before = known.keys.get(agent.identity.hex())
        if before is not None and before.gone is not None:
            raise UsageError(
                f"{agent.name}: this key was retired on {_date(before.gone)} and never enrols again: remove its "
                "file; its home makes a new key (`atdm enroll agent`)"
            )


def _check_known_keys(agents: Sequence[Request], known: Register) -> None:
    """A key has one name, and a name that is in use one key."""
    for agent in agents:
        before = known.keys.get(agent.identity.hex())
        if before is not None and (before.name, before.owner) != (agent.name, agent.owner):
            raise UsageError(
                f"{agent.name}: its key was enrolled before as {before.name!r} of owner {before.owner!r}: a key has "
                "one name for life; make a new one (`atdm enroll agent`)"
            )
        in_use = any(each.name == agent.name and each.gone is None for each in known.keys.values())
        if before is None and in_use:
            raise UsageError(
                f"{agent.name}: is enrolled with another key: run `atdm enroll replace` if this is the same home with "
                "a new one, or choose another name"
            )


def _check_new_keys(agents: Sequence[Request]) -> None:
    """A second enrolment with a key that is there already would count one home twice."""
    for what in ("identity", "nkey", "name"):
        seen: dict[object, str] = {}
        for agent in agents:
            value = getattr(agent, what)
            if value in seen:
                key = "name" if what == "name" else "key"
                raise UsageError(
                    f"agents {seen[value]!r} and {agent.name!r} enrolled with the same {key}: keep one of the two files"
                    + ("; where one is a new key of the same home, `atdm enroll replace`" if what == "name" else "")
                )
            seen[value] = agent.name


def server_files(
    folder: Path, pinned: Pinned, agents: Sequence[Request], aggregator: str, hosts: Sequence[str]
) -> dict[str, bytes]:
    certificate, key = make_server_certificate(pinned.ca, _read_private(folder / "ca.key"), hosts)
    config = server_config(pinned.authority, {a.identity: a.nkey for a in agents}, aggregator)
    return {"server.conf": config.encode(), "server.pem": certificate.encode(), "server.key": key}


def sign_weather(folder: Path, weather: Weather, output: Path) -> Path:
    """Vouch for rows of weather, so that agents need no table of their own."""
    return _write(output, SignedWeather.of(weather, SigningKey(read_key_file(folder / "authority.key"))))


def _create(
    folder: Path,
    role: Literal["agent", "aggregator"],
    name: str,
    owner: str,
    random_bytes: RandomBytes,
    authority: Path | None,
) -> Path:
    for text in (name, owner):
        if not _is_name(text):
            raise UsageError(f"name {text!r}: give 1 to {LONGEST_NAME} printable characters")
    source = folder / "authority.json" if authority is None else authority
    if not source.exists():
        raise DataError(
            f"{source} is missing: get authority.json from the enrolment authority, and give its path (--authority)"
        )
    pinned = read_authority(source)
    target = folder / folder_name(name)
    if (target / "enrolment.json").exists():
        raise UsageError(f"{target} exists: keys are never replaced; choose another name, or move the folder away")
    _make(target)
    nkey, identity = random_bytes(KEY_BYTES), random_bytes(KEY_BYTES)
    write_key_file(target / "nats.key", nkey)
    write_key_file(target / "identity.key", identity)
    if role == "agent":
        write_key_file(target / "dither.key", random_bytes(KEY_BYTES))
    _write(target / "authority.json", pinned)
    key = SigningKey(identity)
    draft = Request(role, name, owner, key.public, nkey_public(nkey), b"")
    signed = msgspec.structs.replace(draft, signature=key.sign(*draft.fields()))
    return _write(target / "enrolment.json", signed)


def folder_name(name: str) -> str:
    """A name as one folder: no slashes, no dots in front."""
    return quote(name, safe=" ").replace(".", "%2E", 1) if name.startswith(".") else quote(name, safe=" ")


# Read back


def read_authority(path: Path) -> Pinned:
    pinned = _read(path, Pinned, "an authority.json written by `atdm enroll authority`")
    if len(pinned.authority) != KEY_BYTES:
        raise DataError(f"{path}: the authority's key has the wrong length: get the file again")
    return pinned


def read_agent(folder: Path) -> AgentKeys:
    """All keys of an agent's folder; refuses key files that others may read."""
    request = _read_request(folder / "enrolment.json")
    identity = SigningKey(read_key_file(folder / "identity.key"))
    if request.role != "agent" or request.identity != identity.public:
        raise DataError(f"{folder}: enrolment.json is not this identity's: restore the folder `enroll agent` made")
    return AgentKeys(
        name=request.name,
        identity=identity,
        secret=read_key_file(folder / "dither.key"),
        nkey=read_key_file(folder / "nats.key"),
        pinned=read_authority(folder / "authority.json"),
    )


def read_aggregator(folder: Path) -> tuple[bytes, Pinned]:
    """The aggregator's nkey, and whom it was enrolled by."""
    if (folder / "dither.key").exists():
        raise UsageError(f"{folder}: is an agent's folder: give the one that `atdm enroll aggregator` made")
    return read_key_file(folder / "nats.key"), read_authority(folder / "authority.json")


def read_unchecked_roster(path: Path) -> Roster:
    return _read(path, Roster, "a roster.json written by `atdm enroll roster` (of the first edition: write it anew)")


def read_roster(path: Path, authority: bytes) -> Roster:
    """A roster, if it is signed by this authority."""
    roster = read_unchecked_roster(path)
    try:
        check_roster(roster, authority)
    except PeerError as error:
        raise PeerError(f"{path}: {error}") from None
    return roster


def read_signed_weather(path: Path, authority: bytes) -> SignedWeather:
    """Rows of weather, if this authority vouches for them."""
    signed = _read(path, SignedWeather, "a file written by `atdm enroll weather`")
    try:
        signed.rows(authority)
    except PeerError as error:
        raise PeerError(f"{path}: {error}") from None
    return signed


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


def _read_request(path: Path) -> Request:
    request = _read(path, Request, "an enrolment.json written by `atdm enroll`")
    try:
        verify(request.identity, request.signature, *request.fields())
    except PeerError:
        raise PeerError(f"{path}: not signed by the identity it names: get the file again from its owner") from None
    if not (_is_name(request.name) and _is_name(request.owner)):  # whoever wrote it, it is shown on pages
        raise PeerError(f"{path}: names that are not 1 to {LONGEST_NAME} printable characters: get the file again")
    if not re.fullmatch(r"U[A-Z2-7]{55}", request.nkey):  # it goes into the server's configuration
        raise PeerError(f"{path}: has no public nkey: get the file again from its owner")
    return request


def _read(path: Path, kind: type[T], what: str) -> T:
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise DataError(f"{path}: too large to be {what}")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): give {what}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DataError(f"{path}: is not {what}: get it again") from None


def json_bytes(document: msgspec.Struct) -> bytes:
    return (json.dumps(msgspec.to_builtins(document), indent=1, ensure_ascii=False) + "\n").encode()


def _write(path: Path, document: msgspec.Struct) -> Path:
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(json_bytes(document))
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose a folder you may write to") from None
    return path


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}; choose a folder you may write to") from None


def _write_private(path: Path, content: bytes) -> None:
    """A file only its owner may read; never replaces one."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists: a key is never overwritten; move it away or choose another folder") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose a folder you may write to") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _read_private(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                raise UsageError(f"{path} can be read by others: run `chmod 600 {path}`")
            return file.read(1 << 16)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check the path") from None
