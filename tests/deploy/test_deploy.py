"""A run over a real NATS server equals the run in one process, whatever its agents send besides."""

import asyncio
import struct
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from atdm.data import Cluster
from atdm.deploy.agent import AgentFiles, link_agent, prepare_agent
from atdm.deploy.aggregator import aggregate, fit_of
from atdm.deploy.conductor import Conductor
from atdm.deploy.enrolment import create_roster, read_agent
from atdm.deploy.fleet import FleetFile
from atdm.deploy.notices import OwnWeather
from atdm.deploy.own import weather_from
from atdm.deploy.server import LocalServer
from atdm.errors import DataError, PeerError, RunAborted, UsageError
from atdm.protocol.account import ASKED_TOO_OFTEN, OTHER_WEIGHTING
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind.layouts import open_layout
from atdm.protocol.collect import show_layout
from atdm.protocol.company import TOO_FEW
from atdm.protocol.messages import Announce, decode_to_agent, encode
from atdm.protocol.plan import DAY
from atdm.protocol.session import Session
from atdm.run import fit
from atdm.transport import frames
from atdm.transport.frames import Call, Here, Piece
from atdm.transport.nats import AgentLink, Connection, NatsConfig, subject
from atdm.transport.nkey import nkey_public
from tests.deploy.theatre import AGENTS, LOOSE, PLAN, ROWS, ROWS_A_DAY, Theatre, in_process, kind_of, silent

EXACT = replace(LOOSE, dither=0.0, clip=1e9, solver_tolerance=1e-3)  # so that the answer is that in the clear


@pytest.fixture(autouse=True)
def short_farewell(monkeypatch):
    monkeypatch.setattr("atdm.deploy.conductor.FAREWELL", 1.0)  # s; of an agent that hangs it would take all


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    return Theatre(tmp_path_factory.mktemp("theatre"))


@pytest.fixture
def fresh(tmp_path):
    """For tests that ask for answers: a day has one weighting and one company for good."""
    return Theatre(tmp_path)


@pytest.mark.parametrize(("protocol", "weights"), [("blind", "fitted"), ("blind", "equal"), ("moments", "fitted")])
def test_every_released_number_is_that_of_one_process(tmp_path, protocol, weights):
    theatre = Theatre(tmp_path, protocol=protocol, weights=weights)
    alone = in_process(theatre.stage, theatre.plan)
    with theatre.stage.server() as server:
        deployed = asyncio.run(theatre.perform(server.url))
    assert deployed.as_dict()["released"] == alone.as_dict()["released"]
    assert deployed.fit.cost.bytes_up_per_agent == alone.fit.cost.bytes_up_per_agent
    assert deployed.fit.weights is None and deployed.fit.weighting == weights and deployed.fit.out == {}
    assert {row["party"] for row in deployed.fit.ledger} == {"aggregator"}


def test_paper_passes_in_messages_larger_than_the_server_takes(tmp_path):
    theatre = Theatre(tmp_path, protocol="paper")
    config = theatre.stage.folder / "nats" / "server.conf"
    config.write_text(config.read_text().replace("max_payload: 1MB", "max_payload: 1KB"))
    with theatre.stage.server() as server:
        deployed = asyncio.run(theatre.perform(server.url))
    expected = in_process(theatre.stage, theatre.plan).fit.model
    np.testing.assert_allclose(deployed.fit.model.alpha, expected.alpha, rtol=1e-6)
    assert deployed.fit.cost.bytes_up_per_agent > 10 * 1024


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_nothing_unmasked_crosses_the_wire(tmp_path, weights, monkeypatch):
    """A listener on every subject finds no encoding of any agent's readings; without masks it would."""
    found = []
    for masked in (True, False):
        (tmp_path / str(masked)).mkdir()
        theatre = Theatre(tmp_path / str(masked), weights=weights, rules=EXACT)
        if not masked:
            monkeypatch.setattr(Session, "mask", lambda self, words, nonce: None)
        heard = overheard(theatre)
        assert len(heard) > 8_000
        patterns = plaintexts(theatre)
        assert len(patterns) > 3000
        public = msgspec.msgpack.encode(theatre.plan)  # a training share of 0.75 is also somebody's 0.75 kW
        assert sum(pattern in public for _, pattern in patterns) <= 2
        found.append([what for what, pattern in patterns if pattern in heard and pattern not in public])
    assert found[0] == [] and len(found[1]) > ROWS


def overheard(theatre: Theatre) -> bytes:
    """All that crosses the wire in a run."""
    spy = bytes(range(32))
    config = theatre.stage.folder / "nats" / "server.conf"
    ear = f'users: [\n    {{ nkey: {nkey_public(spy)}, permissions: {{ subscribe: ">" }} }}'
    config.write_text(config.read_text().replace("users: [", ear, 1))
    heard: list[bytes] = []

    async def listen() -> None:
        async def note(_subject: str, data: bytes) -> None:
            frame = frames.decode(data)
            heard.append(frame.body if isinstance(frame, Piece) else b"")

        async def ready() -> None:
            open_ear.set()

        pinned = read_agent(theatre.stage.identity(theatre.stage.names[0])).pinned
        open_ear = asyncio.Event()
        line = Connection(NatsConfig(servers=(server.url,), ca=pinned.ca, nkey=spy), [">"], note, ready)
        task = asyncio.create_task(line.run())
        await asyncio.wait_for(open_ear.wait(), 10)
        try:
            await theatre.perform(server.url)
            await asyncio.sleep(0.2)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with theatre.stage.server() as server:
        asyncio.run(listen())
    return b"\0".join(heard)


def plaintexts(theatre: Theatre) -> list[tuple[str, bytes]]:
    """Every reading as text, float and fixed point, at every scale the sums use."""
    found = []
    layouts = (open_layout(AGENTS, ROWS), show_layout(AGENTS, ROWS, True), show_layout(AGENTS, ROWS, False))
    scales = {block.bits for layout in layouts for block in layout.blocks}
    for name in theatre.cluster.agents:
        temps, loads = theatre.cluster.temperature[name].to_numpy(), theatre.cluster.load[name].to_numpy()
        for values in (temps, temps - 20.0, (temps - 20.0) / np.sqrt(AGENTS), loads):
            for value in values:
                found.append((f"{name} float", struct.pack("<d", value)))
                found.append((f"{name} float", struct.pack(">d", value)))
                for bits in scales:
                    words = int(round(value * 2**bits)) % 2**64
                    if words.bit_length() > 16:  # small integers occur by chance
                        found.append((f"{name} fixed {bits}", struct.pack("<Q", words)))
        found += [(f"{name} text", repr(float(value)).encode()) for value in temps if len(repr(float(value))) >= 5]
    return found


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_a_day_gives_the_same_answer_four_times_and_no_other(tmp_path, weights):
    theatre = Theatre(tmp_path, weights=weights)
    asked = theatre.plan
    other = msgspec.structs.replace(asked, weights="equal" if weights == "fitted" else "fitted")
    too_often = ASKED_TOO_OFTEN if weights == "fitted" else "only 0 rows have readings from every agent"

    async def again():
        async with theatre.agents(server.url):
            answers = [(await theatre.aggregate(server.url)).as_dict()["released"]]
            theatre.plan = other
            with pytest.raises(RunAborted, match=OTHER_WEIGHTING):
                await theatre.aggregate(server.url)
            theatre.plan = asked
            answers += [(await theatre.aggregate(server.url)).as_dict()["released"] for _ in range(3)]
            with pytest.raises(RunAborted, match=too_often):
                await theatre.aggregate(server.url)
            return answers

    with theatre.stage.server() as server:
        assert len(set(asyncio.run(again()))) == 1


def test_an_agent_that_sends_rubbish_twice_and_late_does_no_harm(fresh):
    """Noise on an agent's own subject: no frame, other streams, other slots, doubled frames."""
    name = fresh.stage.names[1]

    async def noisy():
        keys = read_agent(fresh.stage.identity(name))
        nats = NatsConfig(servers=(server.url,), ca=keys.pinned.ca, nkey=keys.nkey)
        up = subject(keys.pinned.authority, "up", keys.identity.public.hex())

        async def nothing(*_):
            return

        line = Connection(nats, [], nothing, nothing)
        task = asyncio.create_task(line.run())
        async with fresh.agents(server.url), fresh.conducting(server.url) as conductor:
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
                return fit_of(conductor, *await asyncio.wait_for(conductor.carry(), 20))
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
            good, self._sent[slot] = self._sent[slot], frames.pack_answers([b"not a message"])
            await receive(self, slot)
            self._sent[slot] = good
        else:
            await receive(self, slot)

    monkeypatch.setattr(AgentLink, "_reply", spoil)
    said: list[str] = []

    async def run():
        async with fresh.agents(server.url):
            return await fresh.aggregate(server.url, said.append)

    with fresh.stage.server() as server:
        deployed = asyncio.run(run())
    assert spoilt and deployed.fit.out == {}
    assert any("ignored 13 bytes from" in text for text in said)


def test_a_lost_answer_that_nobody_waited_for_is_asked_for_again(fresh, monkeypatch):
    """What the leader seals goes out as soon as the leader has answered: an agent may be a message ahead by then."""
    monkeypatch.setattr("atdm.transport.nats.FIRST_REPEAT", 0.3)
    reply, lost = AgentLink._reply, set()

    async def lossy(self, slot):
        if frames.unpack_answers(self._sent[slot]) == [] and (self, slot) not in lost:
            lost.add((self, slot))
        else:
            await reply(self, slot)

    monkeypatch.setattr(AgentLink, "_reply", lossy)
    alone = in_process(fresh.stage, fresh.plan)
    with fresh.stage.server() as server:
        deployed = asyncio.run(fresh.perform(server.url))
    assert len(lost) >= 2 * (AGENTS - 1)
    assert deployed.as_dict()["released"] == alone.as_dict()["released"]


def mute(monkeypatch, seat, slot: int) -> None:
    """From this message on the agent hangs: 0 is the announcement, 1 the keys; a notice, which an agent that comes late
    gets before them, does not count."""
    reply, victim, noticed = AgentLink._reply, seat.keys.identity.public.hex(), set()

    async def some(self, number):
        if number == 0 and frames.unpack_answers(self._sent[0]) == []:
            noticed.add((self._up, self._stream))
        if not (self._up.endswith(victim) and number >= slot + ((self._up, self._stream) in noticed)):
            await reply(self, number)

    monkeypatch.setattr(AgentLink, "_reply", some)


@pytest.mark.parametrize("weights", ["equal", "fitted"])
def test_who_falls_silent_before_a_reading_left_is_left_out_and_the_others_go_on(tmp_path, weights, monkeypatch):
    """It answers the announcement, each time, and nothing after it."""
    theatre, said = Theatre(tmp_path, agents=5, weights=weights, rules=EXACT, solver_tolerance=1e-3), []
    victim = theatre.stage.names[2]

    async def hang():
        async with theatre.agents(server.url) as seats:
            mute(monkeypatch, seats[victim], 1)
            return (await theatre.aggregate(server.url, said.append, wait=1.0)).fit

    with theatre.stage.server() as server:
        found = asyncio.run(hang())
    assert f"broken off before any reading left: no answer from {victim} within 1 s; asking again" in said
    assert f"asking without {victim}: left out after falling silent in a run before" in said
    assert not any("not there" in text for text in said)
    expected = fit(without(theatre.cluster, victim), "plain", **{**PLAN, "weights": weights})
    assert found.agents == 4 and found.out == {victim: "left out"}
    np.testing.assert_allclose(found.state, expected.state, atol=1e-7 if weights == "equal" else 1e-3)


def test_who_falls_silent_after_a_reading_left_costs_a_fit_its_days_and_says_which_would_do(fresh, monkeypatch):
    async def hang():
        async with fresh.agents(server.url) as seats:
            victim = max(seats, key=lambda name: seats[name].keys.identity.public)  # not the leader
            mute(monkeypatch, seats[victim], 3)  # the total of rows
            with pytest.raises(RunAborted) as caught:
                await fresh.aggregate(server.url, deadline=0.7)
            return victim, str(caught.value), {seat.agent.state for name, seat in seats.items() if name != victim}

    with fresh.stage.server() as server:
        victim, text, states = asyncio.run(hang())
    days = f"{fresh.cluster.time[0]:%Y-%m-%d} to {fresh.cluster.time[-1]:%Y-%m-%d}"
    assert text == (
        f"no answer from {victim} within 0.7 s; readings of {days} were asked for, so that only this company can fit "
        "these days: repeat the command when all of it is back, or fit days before or after them"
    )
    assert states == {"aborted"}


def test_an_aggregator_that_is_told_to_stop_tells_everybody(theatre, monkeypatch):
    async def stop_it():
        async with theatre.agents(server.url) as seats, theatre.conducting(server.url) as conductor:
            mute(monkeypatch, seats[theatre.stage.names[2]], 1)
            running = asyncio.create_task(conductor.carry())
            while len(conductor.hub.slots) < 2:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
            running.cancel()  # as SIGTERM does
            with pytest.raises(RunAborted, match="the aggregator was stopped"):
                await asyncio.wait_for(running, 20)
            return [seat.agent.state for name, seat in seats.items() if name != theatre.stage.names[2]]

    with theatre.stage.server() as server:
        assert asyncio.run(stop_it()) == ["aborted"] * (AGENTS - 1)


def test_a_stop_that_meets_an_answer_is_not_lost(theatre):
    async def meet(steps: int):
        async with theatre.conducting("tls://127.0.0.1:1") as conductor:
            waiting = asyncio.create_task(conductor.hub.next_answers(5.0))
            await asyncio.sleep(0)
            conductor.hub._answers.put_nowait((0, 0, []))
            for _ in range(steps):
                await asyncio.sleep(0)
            in_time = waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            return in_time, waiting.cancelled()

    met = [asyncio.run(meet(steps)) for steps in range(4)]
    assert set(met) == {(True, True), (False, False)}


@pytest.mark.parametrize("when", ["sending", "farewell"])
def test_what_was_released_is_kept_by_an_aggregator_that_is_told_to_stop(fresh, when, monkeypatch):
    """Asking again is possible a few times only."""

    async def stop_at_the_end():
        true_send, true_farewell = Conductor._send, Conductor._farewell

        async def send(self, batch):
            if when == "sending" and self.role.state is AggregatorState.DONE:
                running.cancel()
            await true_send(self, batch)

        async def farewell(self, role):
            if when == "farewell":
                running.cancel()
            await asyncio.sleep(0)
            await true_farewell(self, role)

        monkeypatch.setattr(Conductor, "_send", send)
        monkeypatch.setattr(Conductor, "_farewell", farewell)
        async with fresh.agents(server.url), fresh.conducting(server.url) as conductor:
            running = asyncio.create_task(conductor.carry())
            return fit_of(conductor, *await asyncio.wait_for(running, 20))

    with fresh.stage.server() as server:
        assert len(asyncio.run(stop_at_the_end()).fit.state) == ROWS


def test_an_agent_that_cannot_write_says_so_and_ends(fresh):
    """The client library would only log what its callback raises."""

    def full(message):
        raise UsageError("cannot write journal: No space left on device")

    async def run_out():
        seat = fresh.seat(fresh.stage.names[0])
        seat.agent.receive = full
        try:
            async with fresh.agents(server.url, fresh.stage.names[1:]), fresh.conducting(server.url) as conductor:
                running = asyncio.create_task(conductor.carry())
                with pytest.raises(UsageError, match="No space left"):
                    await asyncio.wait_for(link_agent(seat, (server.url,), print).run(), 20)
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
    with pytest.raises(RunAborted, match=f"no connection to {gone} within 0.5 s"):
        asyncio.run(theatre.aggregate(gone, wait=0.5))


# Companies


def without(cluster: Cluster, name: str) -> Cluster:
    others = [agent for agent in cluster.agents if agent != name]
    return Cluster.from_frames(cluster.temperature[others], cluster.load[others], cluster.outdoor, cluster.solar)


@pytest.mark.parametrize("weights", ["equal", "fitted"])
def test_an_absent_agent_is_out_and_the_fit_is_that_of_the_others(tmp_path, weights):
    """Compared with the same model in the clear, estimated from the others' readings alone."""
    theatre = Theatre(tmp_path, agents=5, weights=weights, rules=EXACT, solver_tolerance=1e-3)
    absent, said = theatre.stage.names[0], []

    async def go_on():
        async with theatre.agents(server.url, theatre.stage.names[1:]):
            return await theatre.aggregate(server.url, said.append, wait=0.7)

    with theatre.stage.server() as server:
        found = asyncio.run(go_on()).fit
    expected = fit(without(theatre.cluster, absent), "plain", **{**PLAN, "weights": weights})
    close = 1e-7 if weights == "equal" else 1e-3
    assert found.agents == 4 and found.out == {absent: "no answer"}
    assert f"asking without {absent}: not there within 0.7 s" in said and f"without {absent}: no answer" in said
    assert any(f"{absent} (no answer)" in note for note in found.notes)
    np.testing.assert_allclose(found.state, expected.state, atol=close)
    np.testing.assert_allclose(found.load, expected.load, atol=1e-6)
    for name in ("alpha", "beta", "gamma", "theta", "occupancy"):
        np.testing.assert_allclose(getattr(found.model, name), getattr(expected.model, name), atol=close)


def test_an_agent_that_is_there_and_does_not_answer_is_out(tmp_path, monkeypatch):
    theatre = Theatre(tmp_path, agents=5)
    victim = theatre.stage.names[2]

    async def go_on():
        async with theatre.agents(server.url) as seats:
            mute(monkeypatch, seats[victim], 0)
            return await theatre.aggregate(server.url, wait=0.7)

    with theatre.stage.server() as server:
        assert asyncio.run(go_on()).fit.out == {victim: "no answer"}


def test_an_owner_who_allows_equal_weights_only_is_out_of_a_fitted_run_with_that_reason(tmp_path):
    theatre = Theatre(tmp_path, agents=5)
    cautious, said = theatre.stage.names[3], []

    async def go_on():
        async with theatre.agents(server.url, rules={cautious: replace(LOOSE, weights="equal")}):
            return await theatre.aggregate(server.url, said.append)

    with theatre.stage.server() as server:
        found = asyncio.run(go_on()).fit
    reason = "fitted weights: this agent's owner allows equal weights only (--weights fitted allows both)"
    assert found.agents == 4 and found.out == {cautious: reason} and found.as_dict()["out"] == found.out
    assert f"without {cautious}: {reason}" in said


@pytest.mark.parametrize("weights", ["fitted", "equal"])
def test_weather_that_no_load_could_be_told_from_is_refused_before_anybody_is_asked(tmp_path, weights):
    """Homes answer for a row four times: a fit that cannot come to anything should cost none of them."""
    theatre = Theatre(tmp_path, weights=weights)
    dull = weather_from(theatre.stage.weather)
    dull = replace(dull, solar=np.where(dull.time % DAY == 0, 0.3, 0.1))  # the same every day
    config = theatre.config("tls://127.0.0.1:1")  # nobody listens there
    with pytest.raises(
        DataError, match=r"do not determine .*solar.* \(by the weather and the clock alone: no home was"
    ):
        aggregate(config, theatre.plan, dull, silent)


@pytest.mark.parametrize(("weights", "says"), [
    ("fitted", "3 of 5 agents answered and 3 are in on the same days: a company needs 3 owners and two thirds of the "
               "roster; wait for more, or choose other days"),
    ("equal", "no day of the window can be summed: on each too few homes are in, or it was given up because homes were "
              "out; wait for more homes, or choose other days"),
])  # fmt: skip
def test_too_few_agents_are_refused_in_one_line_and_nothing_is_settled(tmp_path, weights, says):
    theatre = Theatre(tmp_path, weights=weights, agents=5)

    async def try_it():
        async with theatre.agents(server.url, theatre.stage.names[:3]):
            with pytest.raises(RunAborted, match=says) as caught:
                await theatre.aggregate(server.url, wait=0.7)
            return str(caught.value)

    with theatre.stage.server() as server:
        assert "\n" not in asyncio.run(try_it())
    with FleetFile(theatre.aggregator) as fleet:
        assert fleet.record.days == {}


def test_a_window_is_collected_in_stretches_of_companies(tmp_path):
    """A home is without readings for days 5 to 9: two days are given up for it, then the others go on without it, also
    when it is back: within a block of 28 days companies only shrink."""
    theatre = Theatre(tmp_path, weights="equal", rules=EXACT)
    gone, said = theatre.stage.names[1], []
    theatre.forget(gone, np.arange(5 * ROWS_A_DAY, 10 * ROWS_A_DAY))
    day = np.arange(ROWS) // ROWS_A_DAY
    all_of_them, the_others = day < 5, day > 6

    async def twice():
        async with theatre.agents(server.url):
            first = await theatre.aggregate(server.url, said.append)
        async with theatre.agents(server.url):  # and so after a restart of everybody
            return first, await theatre.aggregate(server.url)

    with theatre.stage.server() as server:
        first, second = asyncio.run(twice())
    fitted, cluster, others = first.fit, theatre.cluster, without(theatre.cluster, gone)
    state = np.concatenate([cluster.temperature[all_of_them].mean(axis=1), others.temperature[the_others].mean(axis=1)])
    load = np.concatenate([cluster.load[all_of_them].mean(axis=1), others.load[the_others].mean(axis=1)])
    assert list(fitted.state.index) == list(cluster.time[all_of_them | the_others])
    np.testing.assert_allclose(fitted.state, state, atol=1e-9)
    np.testing.assert_allclose(fitted.load, (AGENTS - 1) * load, atol=1e-6)  # of the fleet as it is now
    assert fitted.agents == AGENTS - 1 and fitted.out == {gone: "left out"}
    assert "companies of 3 to 4 agents: load is scaled to 3" in fitted.notes
    reasons = [text.removeprefix(f"without {gone}: ") for text in said if text.startswith("without")]
    assert reasons == [TOO_FEW, "left out"]
    assert "20 rows collected; going on with later days" in said
    with FleetFile(theatre.aggregator) as fleet:
        start = theatre.plan.start // DAY
        assert {d - start: len(company) for d, company in fleet.record.days.items()} == {
            **dict.fromkeys(range(5), AGENTS), **dict.fromkeys(range(7, 15), AGENTS - 1)
        }  # fmt: skip
        assert {d - start for d in fleet.record.lost} == {5, 6}
    assert second.as_dict()["released"] == first.as_dict()["released"]


def test_portions_add_up_to_the_numbers_of_one_run(tmp_path):
    theatre, said = Theatre(tmp_path, weights="equal"), []
    alone = in_process(theatre.stage, theatre.plan)

    async def run():
        async with theatre.agents(server.url):
            return await theatre.aggregate(server.url, said.append, portion=4)

    with theatre.stage.server() as server:
        found = asyncio.run(run())
    assert found.as_dict()["released"] == alone.as_dict()["released"]
    assert found.fit.ledger == alone.fit.ledger and found.fit.model.origin.end == theatre.cluster.time[-1]
    assert found.fit.cost.rounds == 4 * 3 and len(found.round_seconds) == 4
    assert said.count(f"{4 * ROWS_A_DAY} rows collected; going on with later days") == 3


@pytest.mark.parametrize("back", [True, False])
def test_days_of_a_home_that_fell_silent_wait_for_it_while_others_go_on(tmp_path, monkeypatch, back):
    """The answer that carries its readings does not come; it is back at the end, or never."""
    theatre, said, reply = Theatre(tmp_path, weights="equal", rules=EXACT), [], AgentLink._reply
    victim, streams = theatre.stage.names[2], []

    async def run():
        async with theatre.agents(server.url) as seats:
            key = seats[victim].keys.identity.public.hex()

            async def some(self, number):
                if self._stream not in streams:
                    streams.append(self._stream)
                mute = self._up.endswith(key) and (number >= 2 if self._stream == streams[0] else not back)
                if not mute:
                    await reply(self, number)

            monkeypatch.setattr(AgentLink, "_reply", some)
            return (await theatre.aggregate(server.url, said.append, portion=5, wait=1.5, deadline=1.5)).fit

    with theatre.stage.server() as server:
        found = asyncio.run(run())
    cluster, others = theatre.cluster, without(theatre.cluster, victim)
    days, last = np.arange(ROWS) // ROWS_A_DAY, f"{cluster.time[4 * ROWS_A_DAY]:%Y-%m-%d}"
    first = f"{cluster.time[0]:%Y-%m-%d} to {last}"
    assert f"broken off after readings of {first} were asked for: no answer from {victim} within 1.5 s" in said
    assert any(text.startswith(f"lost, unless all of that company come back: {first}") for text in said) is (not back)
    mean = np.where(days < 5, cluster.temperature.mean(axis=1), others.temperature.mean(axis=1))
    # none within six hours of the midnight at which the company changed
    given = (days > 4) & ~((days == 5) & (np.arange(ROWS) % ROWS_A_DAY == 0))
    if back:
        given |= (days < 5) & ~((days == 4) & (np.arange(ROWS) % ROWS_A_DAY == ROWS_A_DAY - 1))
    assert list(found.state.index) == list(cluster.time[given])
    np.testing.assert_allclose(found.state, mean[given], atol=1e-9)


@pytest.mark.parametrize("why", ["too few homes are left", "told to stop"])
def test_what_was_shown_before_collecting_ended_is_fitted(tmp_path, why, monkeypatch):
    """Two of four homes are without readings from day 10 on; or the aggregator is told to stop there."""
    theatre, said, farewell = Theatre(tmp_path, weights="equal", rules=EXACT), [], Conductor._farewell
    gone = theatre.stage.names[: 2 if why == "too few homes are left" else 1]
    for name in gone:
        theatre.forget(name, np.arange(10 * ROWS_A_DAY, ROWS))

    async def stop_then(self, role):
        asyncio.current_task().cancel()  # as SIGTERM does
        await farewell(self, role)

    async def run():
        async with theatre.agents(server.url):
            return await theatre.aggregate(server.url, said.append)

    if why == "told to stop":
        monkeypatch.setattr(Conductor, "_farewell", stop_then)
    with theatre.stage.server() as server:
        found = asyncio.run(run()).fit
    shown = slice(0, 10 * ROWS_A_DAY)
    np.testing.assert_allclose(found.state, theatre.cluster.temperature[shown].mean(axis=1), atol=1e-9)
    assert found.agents == AGENTS and found.cost.rounds == 3 and found.cost.seconds >= 0
    assert any(text.startswith("the rest of the window was not collected") for text in said) is (len(gone) == 2)


@pytest.mark.parametrize("weights", ["equal", "fitted"])
def test_whose_days_they_are_is_on_disk_before_a_reading_is_asked_for(tmp_path, weights, monkeypatch):
    """An aggregator that dies then still knows the company that agents hold it to."""
    theatre = Theatre(tmp_path, weights=weights)
    send, written = Conductor._send, []

    async def look_and_send(self, batch):
        kind, file = kind_of(batch[0][1]), theatre.aggregator / "fleet.json"
        settled = msgspec.json.decode(file.read_bytes())["days"] if file.exists() else {}
        written.append((kind, len(settled)))
        await send(self, batch)

    monkeypatch.setattr(Conductor, "_send", look_and_send)
    with theatre.stage.server() as server:
        asyncio.run(theatre.perform(server.url))
    days = dict(reversed(written))  # when a kind of message went out first
    assert days["Announce"] == days["Keys"] == 0
    assert days["Total 0"] == ROWS // ROWS_A_DAY  # the rows that everybody has; the answer carries readings


# Rosters


def test_running_agents_take_a_newer_roster_from_its_file_and_never_an_older_one(fresh):
    said: list[str] = []

    async def renew():
        async with fresh.agents(server.url, say=said.append) as seats:
            first = await fresh.aggregate(server.url)
            create_roster(fresh.stage.keys, fresh.stage.roster, ["127.0.0.1"])
            second = await fresh.aggregate(server.url)
            serials = {seat.agent.roster.serial for seat in seats.values()}
            fresh.stage.roster.write_bytes(old)
            with pytest.raises(RunAborted, match="agents say: ignored the announcement: its own output says why"):
                await fresh.aggregate(server.url)
            assert {seat.agent.roster.serial for seat in seats.values()} == {2}
            return first, second, serials

    old = fresh.stage.roster.read_bytes()
    with fresh.stage.server() as server:
        first, second, serials = asyncio.run(renew())
    assert serials == {2} and second.as_dict()["released"] == first.as_dict()["released"]
    assert sum("roster 1 came, and this agent keeps 2: ignored" in text for text in said) == AGENTS
    name = fresh.stage.names[0]
    with closing(fresh.seat(name)) as seat:  # nor after a restart
        assert seat.agent.roster.serial == 2
    (fresh.state(name) / "roster.json").unlink()  # nor where what was published is lost
    with pytest.raises(PeerError, match="roster.json: roster 1 is older than 2.*get the newest from the enrolment"):
        fresh.seat(name)
    assert not (fresh.state(name) / "roster.json").exists()  # refused before it is kept


# The account


@pytest.mark.parametrize("folder", ["beside the keys", "elsewhere"])
def test_a_home_that_has_lost_its_account_does_not_begin_another_under_the_same_key(fresh, tmp_path, folder):
    name, said = fresh.stage.names[0], []
    identity, state = fresh.stage.identity(name), tmp_path / "elsewhere" if folder == "elsewhere" else fresh.state(name)

    def seat():
        files = AgentFiles(identity=identity, data=fresh.stage.data(name), state=state)
        return closing(prepare_agent(files, fresh.stage.roster, OwnWeather(), LOOSE, say=said.append))

    for _ in range(2):  # started, and started again
        with seat():
            assert (identity / "begun").exists()
    away = state.rename(tmp_path / "away")  # a volume that is not mounted
    with pytest.raises(DataError, match="holds no account, but .* has had one: .*`atdm enroll replace`"), seat():
        pass
    assert not state.exists()  # nothing is left where it may be mounted
    away.rename(state)
    with seat() as found:
        assert found is not None
    (state / "journal").unlink()  # nor where the folder is there and empty
    with pytest.raises(DataError, match="holds no account"), seat():
        pass
    in_process(fresh.stage, fresh.plan)  # which has accounts of its own, and says nothing of the home's
    assert said == []


def test_an_account_of_before_the_mark_is_marked_at_its_next_start(fresh):
    name = fresh.stage.names[0]
    for _ in range(2):
        fresh.seat(name).close()
        (fresh.stage.identity(name) / "begun").unlink()
    fresh.seat(name).close()
    assert (fresh.stage.identity(name) / "begun").exists()


def test_keys_where_nothing_can_be_written_are_said_and_do_not_stop_a_home(fresh, monkeypatch):
    monkeypatch.setattr("atdm.deploy.agent.replace_file", Mock(side_effect=UsageError("cannot write to keys")))
    said: list[str] = []
    fresh.seat(fresh.stage.names[0], say=said.append).close()
    assert len(said) == 1 and "cannot write to keys; without the file `begun`" in said[0]


def test_a_rehearsal_in_one_process_leaves_no_mark_on_its_homes(fresh):
    in_process(fresh.stage, fresh.plan)
    assert not any((fresh.stage.identity(name) / "begun").exists() for name in fresh.stage.names)


# Plans that are not what they should be


def test_an_agent_that_was_shown_another_plan_is_not_in_the_run(tmp_path, monkeypatch):
    """Every agent signs the announcement with its answer."""
    theatre, take, altered = Theatre(tmp_path, agents=5), AgentLink._take, []

    async def tamper(self, frame, message):
        if frame.slot == 0 and altered in ([], [self]):
            announce = decode_to_agent(message, 0)
            assert isinstance(announce, Announce)
            message = encode(msgspec.structs.replace(announce, plan=msgspec.structs.replace(announce.plan, ridge=3.0)))
            altered[:] = [self]
        await take(self, frame, message)

    monkeypatch.setattr(AgentLink, "_take", tamper)
    with theatre.stage.server() as server:

        async def run():
            async with theatre.agents(server.url):
                return await theatre.aggregate(server.url, wait=1.0)

        found = asyncio.run(run()).fit
    assert altered and found.agents == 4 and list(found.out.values()) == ["no answer"]
    assert found.ridge == PLAN["ridge"]


def test_a_plan_beyond_the_agents_rules_is_refused_in_their_words(theatre):
    plan, theatre.plan = theatre.plan, msgspec.structs.replace(theatre.plan, ridge=1e-9)
    try:
        with theatre.stage.server() as server, pytest.raises(RunAborted, match="agents say: ridge 1e-09 is outside"):
            asyncio.run(theatre.perform(server.url))
    finally:
        theatre.plan = plan


def test_other_weather_than_the_plans_is_refused(tmp_path):
    theatre = Theatre(tmp_path)
    theatre.plan = msgspec.structs.replace(theatre.plan, weather=bytes(32))
    with theatre.stage.server() as server, pytest.raises(RunAborted, match="weather is not this agent's"):
        asyncio.run(theatre.perform(server.url))


@pytest.mark.parametrize(("weights", "asked", "sent"), [
    ("fitted", "protocol blind, fitted weights, order 1, ridge 20, 60 rows", "sent Masked step"),
    ("equal", "rows to collect under equal weights, 60 rows", "sent Masked show"),
])  # fmt: skip
def test_agents_print_names_and_sizes_and_never_values(tmp_path, weights, asked, sent):
    theatre, said = Theatre(tmp_path, weights=weights), []

    async def run():
        async with theatre.agents(server.url, say=said.append):
            await theatre.aggregate(server.url)

    with theatre.stage.server() as server:
        asyncio.run(run())
    text = "\n".join(said)
    assert f"was asked Announce ({asked}" in text and sent in text
    readings = {repr(float(v)) for name in theatre.cluster.agents for v in theatre.cluster.temperature[name]}
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
