"""A run over a real NATS server equals the run in one process, whatever its agents send besides."""

import asyncio
import struct

import msgspec
import numpy as np
import pytest

from atdm.deploy import Choices, Conductor, link_agent, several
from atdm.errors import RunAborted, UsageError
from atdm.protocol.aggregator import State
from atdm.protocol.messages import Announce, Masked, decode_to_agent, encode
from atdm.rehearse import in_process
from atdm.transport import frames
from atdm.transport.enrolment import read_agent
from atdm.transport.frames import Call, Here, Piece
from atdm.transport.nats import AgentLink, Door, Line, subject
from atdm.transport.nkey import nkey_public
from atdm.transport.server import LocalServer
from tests.transport.theatre import ROWS, Theatre


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    return Theatre(tmp_path_factory.mktemp("theatre"))


@pytest.fixture
def fresh(tmp_path):
    """For tests that use up rows: agents release a row once."""
    return Theatre(tmp_path)


@pytest.mark.parametrize("protocol", ["blind", "moments"])
def test_every_released_number_is_that_of_one_process(tmp_path, protocol):
    theatre = Theatre(tmp_path, protocol=protocol)
    alone = in_process(theatre.stage, theatre.plan)
    with theatre.stage.server() as server:
        deployed = asyncio.run(theatre.perform(server.url))
    assert deployed.as_dict()["released"] == alone.as_dict()["released"]
    assert deployed.fit.cost.bytes_up_per_agent == alone.fit.cost.bytes_up_per_agent
    assert deployed.fit.weights is None
    assert {row["party"] for row in deployed.fit.ledger} == {"aggregator"}


def test_agents_of_a_deployment_choose_as_in_one_process_and_keep_their_scores(fresh):
    fresh.plan = several(fresh.plan, Choices(orders=(1, 2), ridges=(2.0, 20.0), horizon="1d", every="1d"))
    alone = in_process(fresh.stage, fresh.plan)
    with fresh.stage.server() as server:
        deployed = asyncio.run(fresh.perform(server.url))
    assert deployed.as_dict()["released"] == alone.as_dict()["released"]
    assert deployed.fit.choice.number == alone.fit.choice.number and deployed.fit.choice.scores is None
    chosen = fresh.plan.candidates[deployed.fit.choice.number]
    assert deployed.as_dict()["chosen"] == {"order": chosen.order, "ridge": chosen.ridge, "period": chosen.period}
    assert len(deployed.fit.model.alpha) == chosen.order


def test_paper_passes_in_messages_larger_than_the_server_takes(tmp_path):
    theatre = Theatre(tmp_path, protocol="paper")
    config = theatre.stage.folder / "nats" / "server.conf"
    config.write_text(config.read_text().replace("max_payload: 1MB", "max_payload: 1KB"))
    with theatre.stage.server() as server:
        deployed = asyncio.run(theatre.perform(server.url))
    expected = in_process(theatre.stage, theatre.plan).fit.model
    np.testing.assert_allclose(deployed.fit.model.alpha, expected.alpha, rtol=1e-6)
    assert deployed.fit.cost.bytes_up_per_agent > 10 * 1024


def test_nothing_unmasked_crosses_the_wire(fresh):
    """A listener on every subject finds no encoding of any agent's readings, and finds them where they are."""
    spy = bytes(range(32))
    config = fresh.stage.folder / "nats" / "server.conf"
    ear = f'users: [\n    {{ nkey: {nkey_public(spy)}, permissions: {{ subscribe: ">" }} }}'
    config.write_text(config.read_text().replace("users: [", ear, 1))
    heard: list[bytes] = []

    async def listen() -> None:
        async def note(_subject: str, data: bytes) -> None:
            frame = frames.decode(data)
            heard.append(frame.body if isinstance(frame, Piece) else b"")

        async def ready() -> None:
            open_ear.set()

        pinned = read_agent(fresh.stage.identity(fresh.stage.names[0])).pinned
        open_ear = asyncio.Event()
        line = Line(Door(servers=(server.url,), ca=pinned.ca, nkey=spy), [">"], note, ready)
        task = asyncio.create_task(line.run())
        await asyncio.wait_for(open_ear.wait(), 10)
        try:
            await fresh.perform(server.url)
            await asyncio.sleep(0.2)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with fresh.stage.server() as server:
        asyncio.run(listen())
    wire = b"\0".join(heard)
    assert sum(map(len, heard)) > 20_000
    patterns = plaintexts(fresh)
    assert len(patterns) > 3000
    public = msgspec.msgpack.encode(fresh.plan)  # a training share of 0.75 is also somebody's 0.75 kW
    assert sum(pattern in public for _, pattern in patterns) <= 2
    assert not [what for what, pattern in patterns if pattern in wire and pattern not in public]
    leak = encode(Masked(run=bytes(32), step=0, phase="load", words=patterns[-1][1]))
    assert any(pattern in leak for _, pattern in patterns)


def plaintexts(theatre: Theatre) -> list[tuple[str, bytes]]:
    """Every reading as text, float and fixed point, at every scale the sums use."""
    found = []
    for name in theatre.cluster.agents:
        temps, loads = theatre.cluster.temperature[name].to_numpy(), theatre.cluster.load[name].to_numpy()
        for values, offset in ((temps, 0.0), (temps, 20.0), (loads, 0.0)):
            for value in values - offset:
                found.append((f"{name} float", struct.pack("<d", value)))
                found.append((f"{name} float", struct.pack(">d", value)))
                for bits in (16, 32, 34, 40, 43, 46, 48):
                    words = int(round(value * 2**bits)) % 2**64
                    if words.bit_length() > 16:  # small integers occur by chance
                        found.append((f"{name} fixed {bits}", struct.pack("<Q", words)))
        found += [(f"{name} text", repr(float(value)).encode()) for value in temps if len(repr(float(value))) >= 5]
    return found


def test_two_runs_never_release_a_row_twice(fresh):
    async def twice():
        first = await fresh.perform(server.url)
        return first, await fresh.perform(server.url)

    with fresh.stage.server() as server:
        first, second = asyncio.run(twice())
    assert len(first.fit.state) == 60
    assert len(second.fit.state) == 0
    np.testing.assert_allclose(second.fit.model.alpha, first.fit.model.alpha, atol=1e-3)


def test_an_agent_that_sends_rubbish_twice_and_late_does_no_harm(fresh):
    """Noise on an agent's own subject: no frame, other streams, other slots, doubled frames."""
    name = fresh.stage.names[1]

    async def noisy():
        keys = read_agent(fresh.stage.identity(name))
        door = Door(servers=(server.url,), ca=keys.pinned.ca, nkey=keys.nkey)
        up = subject(keys.pinned.authority, "up", keys.identity.public.hex())

        async def nothing(*_):
            return

        line = Line(door, [], nothing, nothing)
        task = asyncio.create_task(line.run())
        conductor = fresh.conductor(server.url)
        rubbish = [
            b"", b"\xc1" * 50, bytes(5000), frames.encode(Call(bytes(16))), frames.encode(Here(b"?")),
            frames.encode(Piece(bytes(16), 0, 0, 1, False, b"x")),
            frames.encode(Piece(conductor.hub._stream, 9999, 0, 1, False, b"x")),
            frames.encode(Piece(conductor.hub._stream, 0, 0, 1 << 30, False, b"x")),
        ]  # fmt: skip

        async def shout() -> None:
            while True:
                for data in rubbish:
                    await line.send(up, data)
                await asyncio.sleep(0.01)

        noise = asyncio.create_task(shout())
        try:
            return await fresh.perform(server.url, conductor)
        finally:
            for t in (noise, task):
                t.cancel()
            await asyncio.gather(noise, task, return_exceptions=True)

    alone = in_process(fresh.stage, fresh.plan)
    with fresh.stage.server() as server:
        assert asyncio.run(noisy()).as_dict()["released"] == alone.as_dict()["released"]


def test_wrong_answers_are_ignored_and_asked_for_again(fresh, monkeypatch):
    """An agent whose first answers are of no use is asked again and then heard."""
    monkeypatch.setattr("atdm.transport.nats.FIRST_REPEAT", 0.5)
    receive = AgentLink._reply
    spoilt = []

    async def spoil(self, slot):
        if slot == 0 and len(spoilt) < 1:
            spoilt.append(self)
            good, self._last = self._last, frames.pack_answers([b"not a message"])
            await receive(self, slot)
            self._last = good
        else:
            await receive(self, slot)

    monkeypatch.setattr(AgentLink, "_reply", spoil)
    with fresh.stage.server() as server:
        conductor = fresh.conductor(server.url)
        said = []
        conductor.say = said.append
        deployed = asyncio.run(fresh.perform(server.url, conductor))
    assert spoilt and deployed.fit.status in ("converged", "capped")
    assert any("ignored 13 bytes from" in text for text in said)


def test_a_silent_agent_ends_the_run_by_name_and_the_others_wait_for_the_next(theatre):
    async def hang():
        async with theatre.agents(server.url) as seats:
            victim = seats[theatre.stage.names[2]]
            victim.agent.receive = lambda message: []  # takes everything, says nothing
            conductor = theatre.conductor(server.url, deadline=0.7)
            async with conductor.hub:
                with pytest.raises(RunAborted, match=r"no answer from .* within 0\.7 s"):
                    await asyncio.wait_for(conductor.run(), 20)
            return {name: seat.agent.state for name, seat in seats.items() if seat is not victim}

    with theatre.stage.server() as server:
        states = asyncio.run(hang())
    assert set(states.values()) == {"aborted"}


def test_an_aggregator_that_is_told_to_stop_tells_everybody(theatre):
    async def stop_it():
        async with theatre.agents(server.url) as seats:
            seats[theatre.stage.names[2]].agent.receive = lambda message: []
            conductor = theatre.conductor(server.url)
            async with conductor.hub:
                running = asyncio.create_task(conductor.run())
                while not conductor.hub.slots:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.3)
                running.cancel()  # as SIGTERM does
                with pytest.raises(RunAborted, match="the aggregator was stopped"):
                    await asyncio.wait_for(running, 20)
            return [seat.agent.state for name, seat in seats.items() if name != theatre.stage.names[2]]

    with theatre.stage.server() as server:
        assert asyncio.run(stop_it()) == ["aborted"] * 3


@pytest.mark.parametrize("when", ["sending", "farewell"])
def test_what_was_released_is_kept_by_an_aggregator_that_is_told_to_stop(fresh, when, monkeypatch):
    """Its rows are released once for ever."""

    async def stop_at_the_end():
        conductor = fresh.conductor(server.url)
        true_send, true_farewell = Conductor._send, Conductor._farewell

        async def send(self, batch):
            if when == "sending" and self.role.state is State.DONE:
                running.cancel()
            await true_send(self, batch)

        async def farewell(self):
            if when == "farewell":
                running.cancel()
            await asyncio.sleep(0)
            await true_farewell(self)

        monkeypatch.setattr(Conductor, "_send", send)
        monkeypatch.setattr(Conductor, "_farewell", farewell)
        async with fresh.agents(server.url), conductor.hub:
            running = asyncio.create_task(conductor.run())
            return await asyncio.wait_for(running, 20)

    with fresh.stage.server() as server:
        assert len(asyncio.run(stop_at_the_end()).fit.state) == ROWS


def test_an_agent_that_cannot_write_says_so_and_ends(fresh):
    """The client library would only log what its callback raises."""

    def full(message):
        raise UsageError("cannot write journal: No space left on device")

    async def run_out():
        seat = fresh.seat(fresh.stage.names[0])
        seat.agent.receive = full
        conductor = fresh.conductor(server.url)
        try:
            async with fresh.agents(server.url, fresh.stage.names[1:]), conductor.hub:
                running = asyncio.create_task(conductor.run())
                with pytest.raises(UsageError, match="No space left"):
                    await asyncio.wait_for(link_agent(seat, (server.url,), lambda text: None).run(), 20)
                running.cancel()
                with pytest.raises(RunAborted):
                    await running
        finally:
            seat.close()

    with fresh.stage.server() as server:
        asyncio.run(run_out())


def test_a_server_that_is_not_there_is_named(theatre):
    with theatre.stage.server() as server:
        gone = server.url

    async def wait():
        conductor = theatre.conductor(gone, wait=0.5)
        async with conductor.hub:
            await asyncio.wait_for(conductor.run(), 20)

    with pytest.raises(RunAborted, match=f"no connection to {gone} within 0.5 s"):
        asyncio.run(wait())


def test_absent_agents_are_named(theatre):
    async def wait():
        conductor = theatre.conductor(server.url, wait=0.5)
        async with theatre.agents(server.url, theatre.stage.names[1:]), conductor.hub:
            await asyncio.wait_for(conductor.run(), 20)

    with theatre.stage.server() as server, pytest.raises(RunAborted, match=f"{theatre.stage.names[0]} did not come"):
        asyncio.run(wait())


def test_whole_cohorts_go_on_without_one_that_is_incomplete(tmp_path):
    theatre = Theatre(tmp_path, agents=16)
    conductor_members = []

    async def go_on():
        conductor = theatre.conductor(server.url, wait=2.0)
        async with theatre.agents(server.url, theatre.stage.names[1:]), conductor.hub:
            await asyncio.wait_for(conductor.run(), 20)
            conductor_members.extend(conductor.role.members)

    with theatre.stage.server() as server:
        asyncio.run(go_on())
    absent = theatre.stage.names[0]
    assert len(conductor_members) == 8 and absent not in {m.name for m in conductor_members}


def test_a_plan_altered_on_its_way_to_one_agent_ends_the_run(theatre, monkeypatch):
    """The plan is signed by every agent with its keys: agents that saw different plans share no run."""
    take = AgentLink._take
    altered = []

    async def tamper(self, frame, message):
        if frame.slot == 0 and not altered:
            announce = decode_to_agent(message, 0)
            assert isinstance(announce, Announce)
            other = msgspec.structs.replace(announce, plan=msgspec.structs.replace(announce.plan, ridge=3.0))
            message = encode(other)
            altered.append(self)
        await take(self, frame, message)

    monkeypatch.setattr(AgentLink, "_take", tamper)
    monkeypatch.setattr("atdm.deploy.FAREWELL", 0.5)
    with theatre.stage.server() as server:
        conductor = theatre.conductor(server.url, deadline=1.0)
        with pytest.raises(RunAborted):
            asyncio.run(theatre.perform(server.url, conductor))
    assert altered and conductor.role.state is State.ABORTED and conductor.role.run is None


def test_a_plan_beyond_an_agents_rules_is_refused(theatre):
    plan, theatre.plan = theatre.plan, msgspec.structs.replace(theatre.plan, ridge=1e-9)
    try:
        with theatre.stage.server() as server, pytest.raises(RunAborted, match="ridge 1e-09 is outside"):
            asyncio.run(theatre.perform(server.url))
    finally:
        theatre.plan = plan


def test_other_weather_than_the_plans_is_refused(tmp_path):
    theatre = Theatre(tmp_path)
    theatre.plan = msgspec.structs.replace(theatre.plan, weather=bytes(32))
    with theatre.stage.server() as server, pytest.raises(RunAborted, match="weather is not this agent's"):
        asyncio.run(theatre.perform(server.url))


def test_agents_print_names_and_sizes_and_never_values(fresh):
    said: list[str] = []

    async def run():
        conductor = fresh.conductor(server.url)
        async with fresh.agents(server.url, say=said.append), conductor.hub:
            await asyncio.wait_for(conductor.run(), 20)

    with fresh.stage.server() as server:
        asyncio.run(run())
    text = "\n".join(said)
    assert "was asked Announce (protocol blind, order 1, ridge 2, 60 rows" in text
    assert "sent Masked basis" in text
    readings = {repr(float(v)) for name in fresh.cluster.agents for v in fresh.cluster.temperature[name]}
    assert not [value for value in readings if len(value) > 4 and value in text]


def test_the_server_may_restart_between_two_messages(fresh, monkeypatch):
    """Everybody connects again and what was lost is sent again."""
    alone = in_process(fresh.stage, fresh.plan)
    send, hits = Conductor._send, []
    server = LocalServer(fresh.stage.folder / "nats")

    async def restart(self, batch):
        hits.append(1)
        if len(hits) == 5:
            server.kill()
            await send(self, batch)
            server.start()
        else:
            await send(self, batch)

    monkeypatch.setattr(Conductor, "_send", restart)
    with server:
        deployed = asyncio.run(fresh.perform(server.url))
    assert deployed.as_dict()["released"] == alone.as_dict()["released"]
