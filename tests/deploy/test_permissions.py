"""Who may connect, and who may say and hear what: asked of the real server."""

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager

import msgspec
import pytest

from atdm.crypto.keys import SigningKey
from atdm.deploy.enrolment import create_roster, read_agent, read_aggregator, read_roster
from atdm.deploy.server import LocalServer, make_ca
from atdm.errors import PeerError, UsageError
from atdm.protocol.roster import sign_roster
from atdm.transport.nats import Connection, NatsConfig, subject
from tests.deploy.theatre import Theatre


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    return Theatre(tmp_path_factory.mktemp("theatre"))


@pytest.fixture(scope="module")
def server(theatre):
    with theatre.stage.server() as running:
        yield running


@pytest.fixture
def keys(theatre):
    return [read_agent(theatre.stage.identity(name)) for name in theatre.stage.names]


@asynccontextmanager
async def connected(nats, subjects=()):
    """A line, and the list of what it hears."""
    heard, ready = [], asyncio.Event()

    async def received(name, data):
        heard.append((name, data))

    async def opened():
        ready.set()

    line = Connection(nats, subjects, received, opened)
    task = asyncio.create_task(line.run())
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait([task, waiting], timeout=10, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield line, heard
    finally:
        for t in (task, waiting):
            t.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)


def door_of(party, server):
    return NatsConfig(servers=(server.url,), ca=party.pinned.ca, nkey=party.nkey)


def aggregators_door(theatre, server):
    nkey, pinned = read_aggregator(theatre.stage.keys / "aggregator")
    return NatsConfig(servers=(server.url,), ca=pinned.ca, nkey=nkey)


def test_the_folder_of_a_home_is_not_taken_for_the_aggregators(theatre):
    with pytest.raises(UsageError, match="is an agent's folder: give the one"):
        read_aggregator(theatre.stage.identity(theatre.stage.names[0]))


def try_to_connect(nats):
    async def attempt():
        async with connected(nats):
            pass

    asyncio.run(attempt())


def test_a_server_of_another_ca_is_refused(keys, server):
    other, _ = make_ca()
    with pytest.raises(PeerError, match="not the server of this enrolment"):
        try_to_connect(NatsConfig(servers=(server.url,), ca=other, nkey=keys[0].nkey))


def test_a_certificate_for_another_name_is_refused(theatre, keys):
    """Signed by the right authority, for somebody else's address."""
    create_roster(theatre.stage.keys, theatre.stage.folder / "other" / "roster.json", ["nats.example.org"])
    with LocalServer(theatre.stage.folder / "other" / "nats") as elsewhere:
        with pytest.raises(PeerError, match="not the server of this enrolment"):
            try_to_connect(door_of(keys[0], elsewhere))


def test_an_unknown_nkey_is_refused(keys, server):
    with pytest.raises(PeerError, match="does not know this party's nkey"):
        try_to_connect(NatsConfig(servers=(server.url,), ca=keys[0].pinned.ca, nkey=os.urandom(32)))


def test_only_tls_addresses_are_accepted(keys):
    with pytest.raises(UsageError, match="only encrypted connections"):
        NatsConfig(servers=("nats://127.0.0.1:4222",), ca=keys[0].pinned.ca, nkey=keys[0].nkey)


def test_the_server_speaks_tls_1_3_from_the_first_byte_and_nothing_less(keys, server):
    context = ssl.create_default_context(cadata=keys[0].pinned.ca)
    with socket.create_connection(("127.0.0.1", server.port), 5) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            assert secure.version() == "TLSv1.3"
    context = ssl.create_default_context(cadata=keys[0].pinned.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", server.port), 5) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_an_agent_cannot_publish_as_another(theatre, keys, server):
    mine, theirs = (subject(k.pinned.authority, "up", k.identity.public.hex()) for k in keys[:2])
    everybody = subject(keys[0].pinned.authority, "down", "all")

    async def attempt():
        async with connected(aggregators_door(theatre, server), [subject(keys[0].pinned.authority, "up", "*")]) as ear:
            async with connected(door_of(keys[1], server), [everybody]) as peer:
                async with connected(door_of(keys[0], server)) as (line, _):
                    for to in (theirs, everybody, "anything.else", mine):
                        await line.send(to, to.encode())
                    await asyncio.sleep(0.3)
                    return ear[1], peer[1], line.refused

    heard, at_peer, refused = asyncio.run(attempt())
    assert heard == [(mine, mine.encode())]
    assert at_peer == []
    assert "permissions violation for publish" in refused.lower()


@pytest.mark.parametrize("wanted", ["another's", "all agents'", "everything", "other agents' answers"])
def test_an_agent_cannot_hear_what_is_not_for_it(theatre, keys, server, wanted):
    authority = keys[0].pinned.authority
    theirs = subject(authority, "down", keys[1].identity.public.hex())
    name = {
        "another's": theirs,
        "all agents'": subject(authority, "down", "*"),
        "everything": ">",
        "other agents' answers": subject(authority, "up", "*"),
    }[wanted]
    own = subject(authority, "down", keys[0].identity.public.hex())

    async def attempt():
        async with connected(door_of(keys[0], server), [own, name]) as (line, heard):
            async with connected(aggregators_door(theatre, server)) as (aggregator, _):
                await aggregator.send(theirs, b"secret")
                await aggregator.send(own, b"for you")
                await asyncio.sleep(0.3)
                return heard, line.refused

    heard, refused = asyncio.run(attempt())
    assert heard == [(own, b"for you")]
    assert "permissions violation for subscription" in refused.lower()


def test_the_aggregator_cannot_speak_as_an_agent(theatre, keys, server):
    up = subject(keys[0].pinned.authority, "up", keys[0].identity.public.hex())

    async def attempt():
        async with connected(aggregators_door(theatre, server), [subject(keys[0].pinned.authority, "up", "*")]) as both:
            line, heard = both
            await line.send(up, b"as an agent")
            await asyncio.sleep(0.2)
            return heard, line.refused

    heard, refused = asyncio.run(attempt())
    assert heard == [] and "permissions violation for publish" in refused.lower()


def test_a_roster_signed_by_somebody_else_is_refused(theatre, tmp_path):
    """By its own authority's signature, or by another authority's key in the file."""
    pinned = read_agent(theatre.stage.identity(theatre.stage.names[0])).pinned
    genuine = read_roster(theatre.stage.roster, pinned.authority)
    impostor = SigningKey(bytes(32))
    forged = sign_roster(impostor, [(m.name, m.owner, m.identity) for m in genuine.members])
    renamed = msgspec.structs.replace(forged, authority=pinned.authority)
    for roster, message in ((forged, "another enrolment authority"), (renamed, "does not verify")):
        path = tmp_path / "roster.json"
        path.write_bytes(msgspec.json.encode(roster))
        with pytest.raises(PeerError, match=message):
            read_roster(path, pinned.authority)
        theatre_roster, theatre.stage = theatre.stage, _with_roster(theatre.stage, path)
        try:
            with pytest.raises(PeerError, match=message):
                theatre.seat(theatre.stage.names[0])
        finally:
            theatre.stage = theatre_roster


def _with_roster(stage, path):
    class Other(type(stage)):
        roster = path

    return Other(stage.folder, stage.names, stage.weather, stage.declared, stage.rules)
