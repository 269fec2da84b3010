"""S2: messages that s2-python takes and that mean what the store and the offer do; sessions with managers."""

import asyncio
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from s2python.s2_parser import S2Parser
from websockets.sync.server import serve

from atdm.sinks import s2
from atdm.sinks.send import Sinks
from atdm.sinks.settings import S2
from tests.sinks.conftest import COMFORT, POWER, serving

TOKEN = "canary-token-31Bq"
FRBC = {
    "FRBC.SystemDescription", "FRBC.LeakageBehaviour", "FRBC.UsageForecast", "FRBC.FillLevelTargetProfile",
    "FRBC.StorageStatus", "FRBC.ActuatorStatus",
}  # fmt: skip


@pytest.fixture(scope="module")
def ready(results) -> dict[str, list[dict[str, Any]]]:
    return s2.messages(S2(), results)


def one(ready: dict[str, list[dict[str, Any]]], kind: str) -> dict[str, Any]:
    [found] = [message for part in ready.values() for message in part if message["message_type"] == kind]
    return found


def test_the_models_of_s2_python_read_and_write_every_message(ready):
    kinds = set()
    for message in (message for part in ready.values() for message in part):
        parsed = S2Parser.parse_as_any_message(json.dumps(message))
        assert json.loads(parsed.to_json()) == message
        kinds.add(message["message_type"])
    assert kinds == FRBC | {
        "ResourceManagerDetails", "PowerMeasurement", "PowerForecast", "PEBC.PowerConstraints", "PEBC.EnergyConstraint"
    }  # fmt: skip
    assert one(ready, "ResourceManagerDetails")["available_control_types"] == [s2.FILL, s2.ENVELOPE]


def test_a_message_that_is_none_is_refused():
    with pytest.raises(s2.PeerError, match="no valid S2 message FRBC.StorageStatus"):
        s2.checked({"message_type": "FRBC.StorageStatus", "message_id": str(uuid.uuid4())})


def test_a_manager_that_adds_rates_up_gets_the_level_of_the_store(ready, results):
    """From the messages alone, second by second as S2 says: level −= leakage + usage − fill rate."""
    description = one(ready, "FRBC.SystemDescription")
    mode = description["actuators"][0]["operation_modes"][0]["elements"][0]
    watts, rates = mode["power_ranges"][0], mode["fill_rate"]
    assert [watts["start_of_range"], watts["end_of_range"]] == [1000 * limit for limit in POWER]
    leaks, usage = one(ready, "FRBC.LeakageBehaviour")["elements"], one(ready, "FRBC.UsageForecast")["elements"]
    for before, after in zip(leaks[:-1], leaks[1:], strict=True):
        assert before["fill_level_range"]["end_of_range"] == after["fill_level_range"]["start_of_range"]
    rng = np.random.default_rng(0)
    load = rng.uniform(*POWER, len(usage))
    level, found = one(ready, "FRBC.StorageStatus")["present_fill_level"], []
    for kw, element in zip(load, usage, strict=True):
        seconds = element["duration"] / 1000
        below = [e for e in leaks if e["fill_level_range"]["start_of_range"] <= level]
        leak = below[-1]["leakage_rate"]
        assert level < below[-1]["fill_level_range"]["end_of_range"]
        factor = (1000 * kw - watts["start_of_range"]) / (watts["end_of_range"] - watts["start_of_range"])
        fill = rates["start_of_range"] + factor * (rates["end_of_range"] - rates["start_of_range"])
        level += seconds * (fill - leak - element["usage_rate_expected"])
        found.append(level)
    store = results.storage
    steps = np.arange(1, len(usage) + 1)
    allowed = (1 - store.retention**steps) * s2.WIDTH / 2  # what steps of the leakage may add up to
    assert (np.abs(np.array(found) - store.run(load)) <= allowed + 1e-9).all()


def test_comfort_is_the_target_profile_and_not_the_range(ready, results):
    targets = [e["fill_level_range"] for e in one(ready, "FRBC.FillLevelTargetProfile")["elements"]]
    np.testing.assert_allclose([t["start_of_range"] for t in targets], results.storage.low)
    np.testing.assert_allclose([t["end_of_range"] for t in targets], results.storage.high)
    hard = one(ready, "FRBC.SystemDescription")["storage"]["fill_level_range"]
    assert hard["start_of_range"] < COMFORT[0] and hard["end_of_range"] > COMFORT[1]


def test_bands_of_the_usage_hold_the_share_they_say(ready, results, world):
    """Judged by this test's own one-step forecasts of the training rows with the planning model."""
    fit = world[0]
    model, rows = fit.planning, fit.released
    state, inputs = rows.state, rows.inputs(model.calendar)
    errors = []
    for t in range(2, fit.inputs.train):
        told = model.alpha @ state[[t - 1, t - 2]] + model.occupancy[inputs.phase[t]]
        for weights, series in ((model.beta, rows.load), (model.gamma, rows.outdoor), (model.theta, rows.solar)):
            told += weights @ series[[t, t - 1, t - 2]]
        errors.append(state[t] - told)
    element = one(ready, "FRBC.UsageForecast")["elements"][5]
    seconds, expected = element["duration"] / 1000, element["usage_rate_expected"]
    for level, share in (("68", 0.68), ("95", 0.95)):
        ends = [seconds * (expected - element[f"usage_rate_{end}_{level}PPR"]) for end in ("upper", "lower")]
        assert np.mean((ends[0] <= np.array(errors)) & (np.array(errors) <= ends[1])) == pytest.approx(share, abs=0.01)


def test_energy_limits_are_those_of_the_envelope(ready, results):
    constraints = [m for m in ready[s2.ENVELOPE] if m["message_type"] == "PEBC.EnergyConstraint"]
    assert len(constraints) == 5  # 1, 3, 6, 12 and 24 h
    schedules = (results.offer.expected.dropped, results.offer.expected.lifted)
    for hours, message in zip((1, 3, 6, 12, 24), constraints, strict=True):
        row = results.offer.envelope.iloc[hours - 1]
        assert message["lower_average_power"] * hours / 1000 == pytest.approx(row["energy_low"])
        assert message["upper_average_power"] * hours / 1000 == pytest.approx(row["energy_high"])
        for schedule in schedules:  # each keeps comfort
            mean = 1000 * schedule.load.iloc[:hours].mean()
            assert message["lower_average_power"] - 1e-3 <= mean <= message["upper_average_power"] + 1e-3


def test_without_an_offer_there_is_nothing_to_control(plain):
    ready = s2.messages(S2(commodity="electricity"), plain)
    assert set(ready) == {"first", "always"}
    details = one(ready, "ResourceManagerDetails")
    assert details["available_control_types"] == ["NOT_CONTROLABLE"]
    assert details["provides_power_measurement_types"] == ["ELECTRIC.POWER.3_PHASE_SYMMETRIC"]
    value = one(ready, "PowerForecast")["elements"][0]["power_values"][0]
    assert value["value_lower_95PPR"] < value["value_expected"] < value["value_upper_95PPR"]
    assert value["value_expected"] == pytest.approx(1000 * plain.forecast["load_kw"].iloc[0])


@contextmanager
def manager(behave: Callable[[Any], None]) -> Iterator[str]:
    """A websocket server on the loopback interface."""
    with serve(behave, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


class Scripted:
    """A manager that takes everything, selects, and gives one instruction."""

    def __init__(self, select: str) -> None:
        self.select, self.heard = select, []

    def __call__(self, socket: Any) -> None:
        for raw in socket:
            message = json.loads(raw)
            S2Parser.parse_as_any_message(message)
            self.heard.append(message)
            kind = message["message_type"]
            if kind == "ReceptionStatus":
                continue
            say = lambda **content: socket.send(json.dumps({"message_id": str(uuid.uuid4()), **content}))  # noqa: E731
            socket.send(json.dumps(
                {"message_type": "ReceptionStatus", "subject_message_id": message["message_id"], "status": "OK"}
            ))  # fmt: skip
            if kind == "Handshake":
                say(message_type="HandshakeResponse", selected_protocol_version=s2.VERSION)
            elif kind == "ResourceManagerDetails":
                say(message_type="SelectControlType", control_type=self.select)
            elif kind == "PEBC.PowerConstraints":
                element = {"duration": 1000, "upper_limit": 1.0, "lower_limit": 0.0}
                envelope = {"id": str(uuid.uuid4()), "commodity_quantity": "HEAT.THERMAL_POWER",
                            "power_envelope_elements": [element]}  # fmt: skip
                say(
                    message_type="PEBC.Instruction", id=str(uuid.uuid4()), execution_time="2024-01-17T17:00:00Z",
                    abnormal_condition=False, power_constraints_id=message["id"], power_envelopes=[envelope],
                )  # fmt: skip


def test_a_session_sends_what_the_manager_selected_and_rejects_instructions(results):
    cem = Scripted(s2.ENVELOPE)
    with manager(cem) as url:
        [sent] = Sinks({"s2": S2(url=url)}).send(results)
    assert sent.failed is None, sent.failed
    kinds = [message["message_type"] for message in cem.heard]
    assert kinds.count("PEBC.EnergyConstraint") == 5 and not FRBC & set(kinds)
    assert kinds[0] == "Handshake" and kinds[-1] == "SessionRequest" and "PowerForecast" in kinds
    [answer] = [message for message in cem.heard if message["message_type"] == "InstructionStatusUpdate"]
    assert answer["status_type"] == "REJECTED"
    assert any("PEBC.Instruction was rejected" in note for note in sent.notes)


def test_a_token_is_shown_to_the_manager_and_to_nobody_else(results, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    cem, seen = Scripted("NOT_CONTROLABLE"), []

    def guarded(socket: Any) -> None:
        seen.append(socket.request.headers["Authorization"])
        cem(socket)

    with manager(guarded) as url:
        to = S2(url=url, token_file=str(tmp_path / "token"))
        [sent] = Sinks({"s2": to}).send(results)
    assert sent.failed is None and seen == [f"Bearer {TOKEN}"]
    said = [record.getMessage() for record in caplog.records if record.name != "websockets.server"]  # the manager's own
    assert TOKEN not in "\n".join(said) + repr(sent) + repr(to)


def test_the_energy_manager_of_flexmeasures_client_takes_the_store(results):
    """Somebody else's side of S2, which validates by itself. It knows no PowerForecast, and that is said."""
    pytest.importorskip("semver", reason="flexmeasures-client[s2] is not installed")
    import warnings

    from aiohttp import WSMsgType, web

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from flexmeasures_client.s2.cem import CEM
        from flexmeasures_client.s2.control_types.FRBC import FRBC as Handler
        from s2python.common import ControlType

        class Keeping(Handler):
            """Plans nothing."""

            async def trigger_schedule(self, *_: Any) -> None: ...
            async def send_storage_status(self, *_: Any) -> None: ...
            async def send_actuator_status(self, *_: Any) -> None: ...
            async def send_leakage_behaviour(self, *_: Any) -> None: ...
            async def send_usage_forecast(self, *_: Any) -> None: ...
            async def send_fill_level_target_profile(self, *_: Any) -> None: ...

        cem = CEM(fm_client=None, default_control_type=ControlType.FILL_RATE_BASED_CONTROL)
        keeping = Keeping()
        cem.register_control_type(keeping)

    async def talk(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)

        async def produce() -> None:
            while True:
                await socket.send_json(await cem.get_message())

        task = asyncio.create_task(produce())
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                await cem.handle_message(json.loads(message.data))
        task.cancel()
        return socket

    with serving([web.get("/", talk)]) as port, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        [sent] = Sinks({"s2": S2(url=f"ws://127.0.0.1:{port}/")}).send(results)
    assert sent.failed is None, sent.failed
    for history in ("system_description", "leakage_behaviour", "usage_forecast", "fill_level_target_profile",
                    "storage_status", "actuator_status"):  # fmt: skip
        assert len(getattr(keeping, f"_{history}_history")) == 1, history
    assert [note for note in sent.notes if "refused" in note] == [
        "PowerForecast was refused: TEMPORARY_ERROR, no reason given"
    ]


def silent(socket: Any) -> None:
    for _ in socket:
        pass


def garbage(socket: Any) -> None:
    socket.send("[[[")
    silent(socket)


def stranger(socket: Any) -> None:
    socket.send(json.dumps({"message_type": "Nonsense", "message_id": "1"}))
    silent(socket)


def hanging_up(socket: Any) -> None:
    socket.recv()


@pytest.mark.parametrize(
    ("behave", "words"),
    [(silent, "no answer within 1 s"), (garbage, "no S2 message"), (stranger, "no valid S2 message Nonsense"),
     (hanging_up, "the connection failed"), (Scripted("DEMAND_DRIVEN_BASED_CONTROL"), "selected DEMAND_DRIVEN")],
)  # fmt: skip
def test_a_manager_that_misbehaves_is_a_line(results, behave, words):
    with manager(behave) as url:
        [sent] = Sinks({"s2": S2(url=url, patience=1.0)}).send(results)
    assert sent.failed is not None and words in sent.failed and "\n" not in sent.failed


def test_a_manager_that_is_not_there_is_a_line(results):
    [sent] = Sinks({"s2": S2(url="ws://127.0.0.1:1", patience=1.0)}).send(results)
    assert "see whether the energy manager runs" in sent.failed
    [sent] = Sinks({"s2": S2()}).send(results)
    assert "--dry-run" in sent.failed
