"""S2 (EN 50491-12-2): the cluster as a resource that a customer energy manager (CEM) can plan with.

Rule 1: fill-rate based control (FRBC) is Eq. (8) in °C and seconds: fill level m; leakage (1−z)(m−T)/Δt; usage
        b n_t/Δt, positive where the level falls; filling b f̄ u/Δt, with f̄ the mean heat of one kW over the horizon.
Rule 2: the storage's range is what the load can reach; comfort, Eq. (9), is the target profile, kept as best a CEM can.
Rule 3: the bands of the usage are how far the model was off in one step of the training rows. Errors of the weather
        forecast are not in them.
Rule 4: power-envelope based control (PEBC) is the envelope of the offer: limits of the load, and least and most mean
        power from the start to some hours. Deferred heat is made up for later.
Rule 5: without an offer, or where the load cools, the resource is not controllable: measurement and forecast of the
        load alone are sent.
Rule 6: nobody carries out instructions here: one is answered by REJECTED, and told to the caller.
"""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from atdm.errors import PeerError, RunAborted, UsageError
from atdm.sinks.results import Results, Sent
from atdm.sinks.settings import S2, SILENT
from atdm.use.storage import Storage

VERSION = "0.0.2-beta"  # of the protocol
WIDTH = 0.5  # K of one leakage element, at most: there the leakage is off by at most (1−z) WIDTH/2 per step
MOST_ELEMENTS = 288  # of a profile
ENERGY_HOURS = (1, 3, 6, 12, 24, 48)  # from the start, over which mean power is limited
MOST_BYTES = 1 << 20  # of one answer
LONGEST = 100  # characters of what an energy manager says
FILL, ENVELOPE, NONE = "FILL_RATE_BASED_CONTROL", "POWER_ENVELOPE_BASED_CONTROL", "NOT_CONTROLABLE"

Message = dict[str, Any]


def messages(to: S2, results: Results) -> dict[str, list[Message]]:
    """By when they are sent: "first", "always" and each control type; checked by the models of s2-python."""
    if len(results.forecast) > MOST_ELEMENTS:
        raise UsageError(f"a forecast of {len(results.forecast)} steps: S2 takes {MOST_ELEMENTS}: shorten the horizon")
    electric = results.electric if to.commodity is None else to.commodity == "electricity"
    quantity = "ELECTRIC.POWER.3_PHASE_SYMMETRIC" if electric else "HEAT.THERMAL_POWER"
    commodity = "ELECTRICITY" if electric else "HEAT"
    found = {"first": [], "always": [_measurement(results, quantity), _load_forecast(results, quantity)]}
    if results.offer is not None and results.offer.power[0] >= 0:  # in S2 less than nothing is production, not cooling
        if results.storage is not None:
            found[FILL] = _fill_rate(to, results, results.storage, commodity, quantity)
        found[ENVELOPE] = _envelope(to, results, quantity)
    found["first"] = [_details(to, [kind for kind in (FILL, ENVELOPE) if kind in found] or [NONE], commodity, quantity)]
    return {when: [checked(message) for message in part] for when, part in found.items()}


def checked(message: Message) -> Message:
    """The message as s2-python reads and writes it; refused where its models do."""
    try:
        from s2python.s2_parser import S2Parser
        from s2python.s2_validation_error import S2ValidationError
    except ImportError:
        raise UsageError("s2-python is not installed: pip install 'atdm[s2]'") from None
    try:
        answer: Message = json.loads(S2Parser.parse_as_any_message(message).to_json())
    except S2ValidationError as error:
        raise PeerError(f"no valid S2 message {message.get('message_type')}: {error.msg}") from None
    return answer


def _message(kind: str, **content: Any) -> Message:
    return {"message_type": kind, "message_id": str(uuid.uuid4()), **content}


def _id(to: S2, what: str) -> str:
    """The same for the same resource, so that a CEM knows it again."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"atdm:{to.name}:{what}"))


def _range(low: float, high: float) -> dict[str, float]:
    return {"start_of_range": low, "end_of_range": high}


def _details(to: S2, kinds: list[str], commodity: str, quantity: str) -> Message:
    return _message(
        "ResourceManagerDetails", resource_id=_id(to, "resource"), name=to.name, manufacturer="atdm",
        model="building cluster", roles=[{"role": "ENERGY_CONSUMER", "commodity": commodity}],
        instruction_processing_delay=0, available_control_types=kinds, provides_forecast=True,
        provides_power_measurement_types=[quantity],
    )  # fmt: skip


def _measurement(results: Results, quantity: str) -> Message:
    last = results.observed.iloc[-1]
    values = [{"commodity_quantity": quantity, "value": 1000 * float(last["load_kw"])}]  # [W]
    return _message("PowerMeasurement", measurement_timestamp=results.observed.index[-1].isoformat(), values=values)


def _load_forecast(results: Results, quantity: str) -> Message:
    """The load if nobody intervenes, with its 95 % band; the 80 % band has no place in S2."""
    names = {"value_expected": "load_kw", "value_lower_95PPR": "load_low_95", "value_upper_95PPR": "load_high_95"}
    watts = {name: 1000 * results.forecast[c] for name, c in names.items() if c in results.forecast}
    elements = [
        {"duration": _milliseconds(results.step),
         "power_values": [{"commodity_quantity": quantity, **{n: float(v.iloc[t]) for n, v in watts.items()}}]}
        for t in range(len(results.forecast))
    ]  # fmt: skip
    return _message("PowerForecast", start_time=results.forecast.index[0].isoformat(), elements=elements)


def _fill_rate(to: S2, results: Results, storage: Storage, commodity: str, quantity: str) -> list[Message]:
    (low, high), (least, most) = storage.range, storage.power
    seconds = storage.step.total_seconds()
    rate = storage.gain * float(storage.heat.mean()) / seconds  # b f̄/Δt, of one kW [K/s]
    mode = {
        "id": _id(to, "heating"), "diagnostic_label": "heating", "abnormal_condition_only": False,
        "elements": [{
            "fill_level_range": _range(low, high),
            "fill_rate": _range(rate * least, rate * most),
            "power_ranges": [{**_range(1000 * least, 1000 * most), "commodity_quantity": quantity}],
        }],
    }  # fmt: skip
    actuator = {
        "id": _id(to, "actuator"), "diagnostic_label": "heaters of the cluster", "supported_commodities": [commodity],
        "operation_modes": [mode], "transitions": [], "timers": [],
    }  # fmt: skip
    store = {
        "diagnostic_label": "buildings of the cluster", "fill_level_label": "degrees Celsius",
        "provides_leakage_behaviour": True, "provides_fill_level_target_profile": True,
        "provides_usage_forecast": True, "fill_level_range": _range(low, high),
    }  # fmt: skip
    made, start = results.made.isoformat(), storage.time[0].isoformat()
    edges = np.linspace(low, high, int(np.ceil((high - low) / WIDTH)) + 1)
    leak = [
        {"fill_level_range": _range(float(a), float(b)),
         "leakage_rate": float((1 - storage.retention) * ((a + b) / 2 - low) / seconds)}
        for a, b in zip(edges[:-1], edges[1:], strict=True)
    ]  # fmt: skip
    span = _milliseconds(storage.step)
    usage = [
        {"duration": span, "usage_rate_expected": storage.gain * need / seconds,
         **{f"usage_rate_{end}_{level}PPR": (storage.gain * need - off) / seconds  # colder than expected: more use
            for level, (under, over) in storage.off.items() for end, off in (("upper", under), ("lower", over))}}
        for need in storage.need.tolist()
    ]  # fmt: skip
    comfort = [
        {"duration": span, "fill_level_range": _range(*ends)}
        for ends in zip(storage.low.tolist(), storage.high.tolist(), strict=True)
    ]
    found = [
        _message("FRBC.SystemDescription", valid_from=made, actuators=[actuator], storage=store),
        _message("FRBC.LeakageBehaviour", valid_from=made, elements=leak),
        _message("FRBC.UsageForecast", start_time=start, elements=usage),
        _message("FRBC.FillLevelTargetProfile", start_time=start, elements=comfort),
        _message("FRBC.StorageStatus", present_fill_level=storage.level),
    ]
    share = (float(results.observed["load_kw"].iloc[-1]) - least) / (most - least)
    if 0 <= share <= 1:  # a load beyond the limits of the offer is none of its modes
        found.append(_message("FRBC.ActuatorStatus", actuator_id=actuator["id"], active_operation_mode_id=mode["id"],
                              operation_mode_factor=share))  # fmt: skip
    return found


def _envelope(to: S2, results: Results, quantity: str) -> list[Message]:
    offer = results.offer
    if offer is None:
        raise UsageError(results.refused)
    start, hours = offer.envelope.index[0], results.step.total_seconds() / 3600
    watts = [1000 * limit for limit in offer.power]
    limits = [
        {"commodity_quantity": quantity, "limit_type": kind, "range_boundary": _range(*watts),
         "abnormal_condition_only": False}
        for kind in ("UPPER_LIMIT", "LOWER_LIMIT")
    ]  # fmt: skip
    end = start + len(offer.envelope) * results.step
    found = [_message(
        "PEBC.PowerConstraints", id=_id(to, "power"), valid_from=start.isoformat(), valid_until=end.isoformat(),
        consequence_type="DEFER", allowed_limit_ranges=limits,
    )]  # fmt: skip
    wanted = {min(round(length / hours), len(offer.envelope)) for length in ENERGY_HOURS} | {len(offer.envelope)}
    for steps in sorted(wanted - {0}):
        row = offer.envelope.iloc[steps - 1]
        found.append(_message(
            "PEBC.EnergyConstraint", id=_id(to, f"energy {steps}"), valid_from=start.isoformat(),
            valid_until=(start + steps * results.step).isoformat(), commodity_quantity=quantity,
            lower_average_power=1000 * float(row["energy_low"]) / (steps * hours),
            upper_average_power=1000 * float(row["energy_high"]) / (steps * hours),
        ))  # fmt: skip
    return found


def _milliseconds(step: pd.Timedelta) -> int:
    return int(step.total_seconds() * 1000)


def send(to: S2, results: Results, sent: list[int]) -> Sent:
    """One session: shake hands, say what there is, send what the CEM chose, end; sent: counts what was taken."""
    if to.url is None:
        raise UsageError("s2: give the url of the energy manager, or look at the messages with --dry-run")
    ready = messages(to, results)
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError:
        raise UsageError("websockets is not installed: pip install 'atdm[s2]'") from None
    token = to.token()
    headers = None if token is None else {"Authorization": f"Bearer {token.reveal()}"}
    try:
        with connect(
            to.url, additional_headers=headers, open_timeout=to.patience, close_timeout=to.patience,
            max_size=MOST_BYTES, proxy=None, logger=SILENT,
        ) as socket:  # fmt: skip
            session = _Session(socket.send, lambda seconds: socket.recv(seconds), to.patience, sent)
            session.run(ready)
    except TimeoutError:
        raise RunAborted(f"no answer within {to.patience:g} s: see whether the energy manager runs") from None
    except (WebSocketException, OSError) as error:
        raise RunAborted(f"the connection failed ({error}): see whether the energy manager runs") from None
    return Sent(to=urlsplit(to.url).netloc, messages=len(sent), notes=tuple(session.notes))


class _Session:
    """The resource manager's side of one S2 session, apart from how bytes travel."""

    def __init__(
        self, give: Callable[[str], None], take: Callable[[float], str | bytes], patience: float, sent: list[int]
    ) -> None:
        self.give, self.take, self.patience, self.sent = give, take, patience, sent
        self.notes: list[str] = []
        self.selected: str | None = None
        self.version: str | None = None

    def run(self, ready: dict[str, list[Message]]) -> None:
        self._must(_message("Handshake", role="RM", supported_protocol_versions=[VERSION]))
        self._until(lambda: self.version is not None)
        if self.version != VERSION:
            raise PeerError(f"the energy manager speaks S2 {self.version}, not {VERSION}")
        self._must(ready["first"][0])
        self._until(lambda: self.selected is not None)
        offered = ready["first"][0]["available_control_types"]
        if self.selected not in (*offered, NONE, "NO_SELECTION"):
            raise PeerError(f"the energy manager selected {self.selected}, of {', '.join(offered)}")
        self.notes.append(f"the energy manager selected {str(self.selected).lower().replace('_', ' ')}")
        for message in [*ready.get(str(self.selected), []), *ready["always"]]:
            refusal = self._say(message)
            if refusal is not None:  # a manager need not know every message
                self.notes.append(refusal)
        self.give(json.dumps(_message("SessionRequest", request="TERMINATE")))

    def _must(self, message: Message) -> None:
        refusal = self._say(message)
        if refusal is not None:
            raise PeerError(refusal)

    def _say(self, message: Message) -> str | None:
        """Send, and wait until it is taken; None, or how it was refused."""
        self.give(json.dumps(message))
        status: list[Message] = []
        self._until(lambda: bool(status), message["message_id"], status)
        if status[0]["status"] != "OK":
            said = " ".join((status[0].get("diagnostic_label") or "no reason given").split())[:LONGEST]
            return f"{message['message_type']} was refused: {status[0]['status']}, {said}"
        self.sent.append(1)
        return None

    def _until(self, done: Callable[[], bool], about: str = "", status: list[Message] | None = None) -> None:
        """Take messages until something has come; answer each."""
        end = time.monotonic() + self.patience
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            try:
                raw = json.loads(self.take(left))
                message = checked(raw)
            except (ValueError, AttributeError, RecursionError):
                raise PeerError("the energy manager sent what is no S2 message") from None
            if message["message_type"] == "ReceptionStatus":
                if status is not None and message["subject_message_id"] == about:
                    status.append(message)
                continue
            self.give(json.dumps(
                {"message_type": "ReceptionStatus", "subject_message_id": message["message_id"], "status": "OK"}
            ))  # fmt: skip
            self._note(message)

    def _note(self, message: Message) -> None:
        kind = message["message_type"]
        if kind == "HandshakeResponse":
            self.version = message["selected_protocol_version"]
        elif kind == "SelectControlType":
            self.selected = message["control_type"]
        elif kind == "SessionRequest":
            raise RunAborted("the energy manager ended the session: try again later")
        elif kind.endswith("Instruction"):
            now = pd.Timestamp.now("UTC").isoformat()
            self.give(json.dumps(_message(
                "InstructionStatusUpdate", instruction_id=message["id"], status_type="REJECTED", timestamp=now
            )))  # fmt: skip
            self.notes.append(f"{kind} was rejected: nobody here carries out instructions")
