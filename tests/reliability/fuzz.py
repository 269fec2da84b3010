"""Every decoder and file reader, its valid inputs, and a seeded way to spoil them.

    python -m tests.reliability.fuzz --inputs 1000000 [--from SEED]     all targets in turn; says what it did
    python -m tests.reliability.fuzz --target NAME --seed SEED          replays one input

Whatever is read, the only error that may come out is one of ours (AtdmError), within SECONDS.
"""

import argparse
import io
import json
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

import atdm
from atdm.crypto.keys import SigningKey, read_key_file, write_key_file
from atdm.data.readings import Weather
from atdm.deploy.agent import describe
from atdm.deploy.enrolment import (
    Pinned,
    SignedWeather,
    create_agent,
    create_authority,
    read_agent,
    read_authority,
    read_roster,
)  # fmt: skip
from atdm.deploy.fleet import FleetFile
from atdm.deploy.notices import pack, unpack
from atdm.errors import AtdmError
from atdm.model.fitted import Model
from atdm.protocol.messages import decode_to_agent, decode_to_aggregator
from atdm.protocol.roster import sign_roster
from atdm.protocol.store import Entry, Snapshot, disclose, enclose
from atdm.run import fit
from atdm.transport import frames
from atdm.transport.disk import Disk
from atdm.use.series import read_future, read_observed, read_series
from tests.clusters import tiny
from tests.protocol.world import Ram
from tests.reliability.places import MEMBER, PROTOCOLS, Place, agent_places, desk_places, place, recorded, seat, stand

SECONDS = 5.0  # for one input, on a busy machine
LIMIT = 10**6
INTEGERS = (0, -1, 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 255, 256)
TEXTS = ("", "\x00", "NaN", "inf", "1e400", "-0", "é" * 300, "../..", "null", "2024-13-45T99:99Z", "1,5", "Infinity")
FLOATS = (float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, -0.0, 2.0**63)


@dataclass(frozen=True)
class Target:
    name: str
    samples: tuple[bytes, ...]
    read: Callable[[bytes], object]
    weight: int = 1  # how often, against the others


def spoiled(data: bytes, rng: random.Random) -> bytes:
    """A valid input with something wrong in it: in its bytes, or in the structure they encode."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(WAYS)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return rng.randbytes(3)
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return rng.choice((data[:a], data[b:], data[:a] + data[b:], data + data[a:b], data[:b] + data[a:]))


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    what = rng.choice(
        (
            rng.randbytes(rng.randint(1, 8)),
            b"\xdf\xff\xff\xff\xff",
            b"\xc6\xff\xff\xff\xff",
            b"[" * 3000,
            b"\x91" * 3000,
            b"\x81" * 500,
            b'"',
            b"\n",
            b",",
            b";",
            b"\xef\xbb\xbf",
            b"\xff",
            b"\x00",
        )
    )
    return data[:at] + what + data[at:]  # fmt: skip


def _number(data: bytes, rng: random.Random) -> bytes:
    """Another number or word where one stands in a text."""
    text = data.decode("latin-1")
    digits = [i for i, c in enumerate(text) if c.isdigit()]
    if not digits:
        return _flip(data, rng)
    at = rng.choice(digits)
    word = rng.choice([*map(str, INTEGERS), *TEXTS, *map(repr, FLOATS)])
    return data[:at] + word.encode("utf-8", "ignore") + data[at + 1 :]


def _structure(data: bytes, rng: random.Random) -> bytes:
    """Another value somewhere in a msgpack or JSON document; the document stays well-formed."""
    for decode, encode in ((json.loads, lambda tree: json.dumps(tree).encode()), (_unpack, msgspec.msgpack.encode)):
        try:
            return encode(_altered(decode(data), rng, 0))
        except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
            continue
    return _flip(data, rng)


def _unpack(data: bytes) -> object:
    return msgspec.msgpack.decode(data)


def _altered(tree: object, rng: random.Random, depth: int) -> object:
    if isinstance(tree, dict) and tree and rng.random() < 0.9:
        key = rng.choice(list(tree))
        if rng.random() < 0.15:
            return {k: v for k, v in tree.items() if k != key} if rng.random() < 0.5 else {**tree, "more": 1}
        return {**tree, key: _altered(tree[key], rng, depth + 1)}
    if isinstance(tree, list) and tree and rng.random() < 0.9:
        at = rng.randrange(len(tree))
        if rng.random() < 0.15:
            return tree[:at] + tree[at + 1 :] if rng.random() < 0.5 else tree + [tree[at]]
        return [*tree[:at], _altered(tree[at], rng, depth + 1), *tree[at + 1 :]]
    if isinstance(tree, bytes) and rng.random() < 0.7:
        return _cut(tree, rng) if rng.random() < 0.5 else _flip(tree, rng)
    return rng.choice((None, True, [], {}, [[]], b"", rng.choice(INTEGERS), rng.choice(TEXTS), rng.choice(FLOATS)))


SCRATCH = tempfile.TemporaryDirectory(prefix="atdm-spoiled-")  # gone with the process

WAYS = (_flip, _flip, _cut, _insert, _number, _structure, _structure, _structure)


def file_reader(read: Callable[[Path], object], suffix: str, mode: int = 0o600) -> Callable[[bytes], object]:
    """The same for something that reads a path."""
    path = Path(tempfile.mkdtemp(dir=SCRATCH.name)) / f"file{suffix}"

    def call(data: bytes) -> object:
        path.write_bytes(data)
        path.chmod(mode)
        return read(path)

    return call


# Live roles: an input is a message to a party that stands somewhere in a run


class Live:
    """Gives messages to a party; brings up a new one where the last one took something in."""

    def __init__(self, make: Callable[[], object], give: Callable[[object, bytes], object]) -> None:
        self.make, self.give, self.party = make, give, None

    def __call__(self, data: bytes) -> object:
        if self.party is None:
            self.party = self.make()
        party, self.party = self.party, None
        try:
            return self.give(party, data)
        except atdm.PeerError:
            self.party = party
            raise


def agent_target(place: Place) -> Target:
    history = recorded(place.protocol).down[place.who]
    samples = tuple(data for data, _ in history[max(0, place.messages - 2) : place.messages + 3])
    live = Live(lambda: stand(place), lambda agent, data: agent.receive(data))
    who = "member" if place.who == MEMBER else "leader"
    return Target(f"{who} {place.name} {place.protocol}", samples, live)


def desk_target(desk) -> Target:
    history = recorded(desk.protocol).up
    sender = history[desk.messages][0] if desk.messages < len(history) else 0
    samples = tuple(data for _, data in history[max(0, desk.messages - 2) : desk.messages + 3])
    live = Live(lambda: seat(desk), lambda role, data: role.receive(sender, data))
    return Target(f"aggregator {desk.name} {desk.protocol}", samples, live)


@lru_cache
def targets() -> tuple[Target, ...]:
    draw = random.Random(7).randbytes
    folder = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    down = tuple({data for p in PROTOCOLS for data, _ in recorded(p).down[MEMBER]})
    up = tuple({data for p in PROTOCOLS for _, data in recorded(p).up})
    agent = stand(place("done"))
    snapshot = enclose(Snapshot(agent._identity.public, agent.own.memory))
    store: Ram = stand(place("running/step"))._store
    disk = Disk(folder / "journal")
    disk.replace(store.snapshot)
    for entry in store.entries:
        disk.append(entry)
    pieces = tuple(frames.split(bytes(16), 3, bytes(500), 300))
    authority = SigningKey(draw(32))
    roster = sign_roster(authority, [(f"zone{i}", f"home{i}", SigningKey(draw(32)).public) for i in range(9)])
    hours = 3600 * np.arange(5)
    sky = SignedWeather.of(Weather(hours, hours / 7, hours / 9e5), authority)
    write_key_file(folder / "a.key", draw(32))
    create_authority(folder / "authority", draw)
    request = create_agent(folder / "authority", "zone", draw)
    pinned = (folder / "authority" / "authority.json").read_bytes()
    model = fit(tiny(0, agents=4, rows=40), "plain", order=1, ridge=2.0).model
    cluster = tiny(0, agents=3, rows=24)
    tables = written_tables(cluster)

    def enrolled(path: Path) -> object:
        request.write_bytes(path.read_bytes())
        return read_agent(request.parent)

    def fleet(data: bytes) -> object:
        (folder / "fleet.json").write_bytes(data)
        with FleetFile(folder) as file:
            return file.record.days

    def cluster_from(zones: bytes | None = None, weather: bytes | None = None, suffix: str = ".csv") -> object:
        paths = [folder / f"zones{suffix}", folder / f"weather{suffix}"]
        for path, kind, given in zip(paths, ("zones", "weather"), (zones, weather), strict=True):
            path.write_bytes(tables[kind + suffix] if given is None else given)
        return atdm.read_cluster(*paths)

    return (
        Target("decode_to_agent", down, lambda data: decode_to_agent(data, LIMIT), 40),
        Target("decode_to_aggregator", up, lambda data: decode_to_aggregator(data, LIMIT), 40),
        Target("deploy.describe", down + up, describe, 10),
        Target("a snapshot", (snapshot, store.snapshot), lambda data: disclose(data, Snapshot), 20),
        Target("an entry", tuple(store.entries), lambda data: disclose(data, Entry), 20),
        Target("frames.decode", pieces, frames.decode, 20),
        Target("frames.unpack_answers", (frames.pack_answers([b"abc", b""]),), frames.unpack_answers, 20),
        Target("notices.unpack", (pack([roster, sky]), pack([sky])), unpack, 20),
        Target("journal", (disk.path.read_bytes(),), file_reader(lambda path: Disk(path).read(), ".journal"), 4),
        Target("Model.load", (model.to_json().encode(),), file_reader(Model.load, ".json"), 4),
        Target("roster.json", (msgspec.json.encode(roster),),
               file_reader(lambda path: read_roster(path, authority.public), ".json"), 4),
        Target("authority.json", (pinned, msgspec.json.encode(Pinned(bytes(32), "x"))),
               file_reader(read_authority, ".json"), 4),
        Target("enrolment.json", (request.read_bytes(),), file_reader(enrolled, ".json"), 4),
        Target("key file", ((folder / "a.key").read_bytes(),), file_reader(read_key_file, ".key"), 4),
        Target("fleet.json", (b'{"days":{"19723":["zone0"]},"lost":[19724],"heard":{"zone0":1.5}}',), fleet, 4),
        Target("zones.csv", (tables["zones.csv"],), lambda data: cluster_from(zones=data)),
        Target("weather.csv", (tables["weather.csv"],), lambda data: cluster_from(weather=data)),
        Target("zones.parquet", (tables["zones.parquet"],), lambda data: cluster_from(zones=data, suffix=".parquet")),
        Target("series.csv", (tables["series.csv"],),
               file_reader(lambda path: read_series(path, "load_kw"), ".csv")),
        Target("future.csv", (tables["weather.csv"],), file_reader(read_future, ".csv")),
        Target("observed.csv", (tables["observed.csv"],), file_reader(read_observed, ".csv")),
        *(agent_target(place) for place in agent_places() if place.name != "halted"),
        *(desk_target(desk) for desk in desk_places()),
    )  # fmt: skip


def written_tables(cluster: atdm.Cluster) -> dict[str, bytes]:
    zones = pd.DataFrame({
        "time": cluster.time.repeat(len(cluster.agents)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "agent": list(cluster.agents) * len(cluster.time),
        "indoor_temp_c": cluster.temperature.to_numpy().ravel(),
        "load_kw": cluster.load.to_numpy().ravel(),
    })  # fmt: skip
    weather = pd.DataFrame({
        "time": cluster.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "outdoor_temp_c": cluster.outdoor.to_numpy(),
        "solar_w_m2": cluster.solar.to_numpy() * 1000,
    })  # fmt: skip
    files: dict[str, bytes] = {}
    for name, frame in (("zones", zones), ("weather", weather)):
        files[f"{name}.csv"] = frame.to_csv(index=False).encode()
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        files[f"{name}.parquet"] = buffer.getvalue()
    series = zones[["time", "load_kw"]].drop_duplicates("time")
    rows = {"series.csv": series, "observed.csv": series.assign(aggregate_temp_c=20.5, agents=3)}
    return {**files, **{name: frame.to_csv(index=False).encode() for name, frame in rows.items()}}


def made(target: Target, seed: int) -> bytes:
    rng = random.Random(seed)
    return spoiled(rng.choice(target.samples), rng) if rng.random() < 0.95 else rng.randbytes(rng.randrange(300))


def attempt(target: Target, data: bytes) -> str:
    """ "read", or the name of our own error. Anything else comes out as it is."""
    began = time.perf_counter()
    try:
        shown = target.read(data)
        found = "read"
        if isinstance(shown, str) and not shown.isprintable():
            raise AssertionError(f"text that is not one printable line: {shown!r}")
    except AtdmError as error:
        found = type(error).__name__
        if "\n" in str(error).strip():
            raise AssertionError(f"an error of more than one line: {error}") from None
    if time.perf_counter() - began > SECONDS:
        raise AssertionError(f"{target.name} took {time.perf_counter() - began:.0f} s")
    return found


def fuzz(target: Target, first: int, inputs: int) -> Counter:
    seen: Counter = Counter()
    for seed in range(first, first + inputs):
        try:
            seen[attempt(target, made(target, seed))] += 1
        except Exception as error:
            command = f'python -m tests.reliability.fuzz --target "{target.name}" --seed {seed}'
            raise AssertionError(f"{target.name}: {type(error).__name__}: {error}\nreplay: {command}") from error
    return seen


def fuzz_all(inputs: int, first: int = 0) -> dict[str, Counter]:
    """At least so many inputs over all targets, by their weights."""
    total = sum(target.weight for target in targets())
    return {t.name: fuzz(t, first, -(-inputs * t.weight // total)) for t in targets()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--target")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.target:
        target = next(target for target in targets() if target.name == args.target)
        data = made(target, args.seed)
        print(data[:300])
        print(attempt(target, data))
    if args.inputs:
        targets()
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        seen = fuzz_all(args.inputs, args.first)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        count = sum(sum(part.values()) for part in seen.values())
        took = time.process_time() - began
        print(f"{count} inputs, {len(seen)} targets, {took:.0f} s, {grown:.0f} MB more at the peak")
        print({name: dict(part) for name, part in seen.items()})


if __name__ == "__main__":
    main()
