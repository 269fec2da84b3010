"""FlexMeasures: state and forecast as sensor data with their belief time, the cluster as a storage to schedule.

Rule 1: a value is posted with the time at which it was believed (`prior`): rows observed and forecast alike when the
        forecast was made, so that later beliefs never overwrite earlier ones.
Rule 2: the API takes one value per event and no probabilities: the ends of a band go to sensors of their own.
Rule 3: state of charge is heat above the storage's lowest temperature T, in kWh. FlexMeasures spreads a step's charge
        evenly over the step and lets it decay meanwhile: soc' = z soc + Δt (u − n) (z−1)/ln z. So with Eq. (8) a degree
        is C = (Δt/b) (z−1)/ln z [kWh/K], which makes both the same temperature: soc = C (m − T).
Rule 4: comfort is soc-minima and soc-maxima, which may be missed at a price; soc-min and soc-max are what cannot be
        left. Capacities are hard: relaxed, a heat pump was planned to produce, and the solver was stuck where a kW
        heats more than a kW (FlexMeasures issues 2323, 1780).
"""

import asyncio
import math
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from atdm.errors import DataError, UsageError
from atdm.sinks.results import NO_STORAGE, Results, Sent
from atdm.sinks.settings import SILENT, FlexMeasures
from atdm.types import FloatArray
from atdm.use.flexibility import Flexibility
from atdm.use.storage import Storage

REQUEST_SECONDS = 20.0  # for one request
PLACES = 6  # decimals of a value
TOLERANCE = 1e-3  # kW by which a schedule may leave its limits: solvers round


class Post(NamedTuple):
    """Values of one sensor."""

    sensor: int
    start: pd.Timestamp
    step: pd.Timedelta
    values: list[float]
    unit: str
    prior: pd.Timestamp  # when they were believed

    def words(self) -> dict[str, Any]:
        """What the client's `post_sensor_data` takes."""
        return {
            "start": self.start.isoformat(), "duration": (self.step * len(self.values)).isoformat(),
            "values": self.values, "unit": self.unit, "prior": self.prior.isoformat(),
        }  # fmt: skip


def posts(to: FlexMeasures, results: Results) -> list[Post]:
    """State and forecast for the sensors there are."""
    found = []
    for sensor, column, unit in (
        (to.temperature, "aggregate_temp_c", "°C"),
        (to.load, "load_kw", "kW"),
        (to.temperature_low, f"low_{to.band}", "°C"),
        (to.temperature_high, f"high_{to.band}", "°C"),
        (to.load_low, f"load_low_{to.band}", "kW"),
        (to.load_high, f"load_high_{to.band}", "kW"),
    ):
        for table in (results.observed, results.forecast):
            if sensor is not None and column in table:
                for start, values in _runs(table[column], results.step):
                    found.append(Post(sensor, start, results.step, values, unit, results.made))
    return found


def _runs(series: pd.Series, step: pd.Timedelta) -> Iterator[tuple[pd.Timestamp, list[float]]]:
    """Values without a gap, each with its first stamp: the API takes no missing stamps."""
    known = series.dropna()
    for _, part in known.groupby((known.index.to_series().diff() != step).cumsum().to_numpy()):
        yield part.index[0], [round(float(value), PLACES) for value in part]


def flex_model(storage: Storage) -> dict[str, Any]:
    """The cluster as a FlexMeasures storage (Rules 3 and 4). Schedule it on a power sensor of the model's step."""
    if storage.power[0] > 0:
        raise UsageError(
            f"FlexMeasures is told no least load, and this one is {storage.power[0]:g} kW: let it start at 0"
        )
    z, low = storage.retention, storage.range[0]
    degree = storage.capacity * (z - 1.0) / math.log(z)  # C [kWh/K]

    def charge(temperature: float) -> str:
        return f"{degree * (temperature - low):.6f} kWh"

    def comfort(levels: FloatArray) -> list[dict[str, str]]:
        """At the end of each step; nothing can be done about the start of the first."""
        return [
            {"datetime": (t + storage.step).isoformat(), "value": charge(level)}
            for t, level in zip(storage.time, levels.tolist(), strict=True)
        ]

    def series(values: FloatArray, unit: str) -> list[dict[str, str]]:
        return [
            {"start": t.isoformat(), "end": (t + storage.step).isoformat(), "value": f"{value:.6f} {unit}"}
            for t, value in zip(storage.time, values.tolist(), strict=True)
        ]

    model: dict[str, Any] = {
        "soc-unit": "kWh",
        "soc-at-start": charge(storage.level),
        "soc-min": charge(low),
        "soc-max": charge(storage.range[1]),
        "soc-minima": comfort(storage.low),
        "soc-maxima": comfort(storage.high),
        "power-capacity": f"{storage.power[1]:.6f} kW",
        "consumption-capacity": f"{storage.power[1]:.6f} kW",
        "production-capacity": "0 kW",
        "storage-efficiency": f"{100 * z:.6f} %",
        "soc-usage": [series(storage.need.clip(min=0), "kW")],
        "soc-gain": [series((-storage.need).clip(min=0), "kW")],
    }
    if (storage.heat != 1.0).any():
        model["charging-efficiency"] = series(100 * storage.heat, "%")
    return model


def storage_model(offer: Flexibility) -> dict[str, Any]:
    """The flex-model of an offer; refused where the cluster is no storage."""
    if offer.storage is None:
        raise UsageError(NO_STORAGE)
    return flex_model(offer.storage)


def flex_context(price: int | str | None) -> dict[str, Any]:
    """What a schedule is judged by (Rule 4)."""
    context: dict[str, Any] = {"relax-soc-constraints": True, "relax-capacity-constraints": False}
    if price is not None:
        context["consumption-price"] = {"sensor": price} if isinstance(price, int) else price
    return context


def _trigger(to: FlexMeasures, storage: Storage) -> dict[str, Any]:
    """What the client's `trigger_schedule` takes."""
    return {
        "start": storage.time[0].isoformat(), "duration": (storage.step * len(storage.time)).isoformat(),
        "flex_model": flex_model(storage), "flex_context": flex_context(to.price),
    }  # fmt: skip


def messages(to: FlexMeasures, results: Results) -> list[dict[str, Any]]:
    """Everything that would be sent."""
    found = [{"post": f"sensors/{post.sensor}/data", **post.words()} for post in posts(to, results)]
    if to.schedule is not None and results.storage is not None:
        found.append({"post": f"schedule of sensor {to.schedule}", **_trigger(to, results.storage)})
    return found


def send(to: FlexMeasures, results: Results, sent: list[int]) -> Sent:
    """Post, ask for a schedule, read it back; sent: counts what was taken, also where this raises."""
    return asyncio.run(_send(to, results, sent))


async def _send(to: FlexMeasures, results: Results, sent: list[int]) -> Sent:
    try:
        from flexmeasures_client.client import FlexMeasuresClient
    except ImportError:
        raise UsageError("flexmeasures-client is not installed: pip install 'atdm[flexmeasures]'") from None
    where = urlsplit(to.url)
    secure = where.scheme == "https"
    client = FlexMeasuresClient(
        email=to.email, password=to.password().reveal(), host=str(where.hostname),
        port=where.port or (443 if secure else 80), ssl=secure, request_timeout=REQUEST_SECONDS,
        request_retry_timeout=2 * REQUEST_SECONDS, max_request_attempts=2, request_retry_interval=1.0,
        job_polling_timeout=to.patience, job_polling_interval=1.0, logger=SILENT,
    )  # fmt: skip
    notes, schedule = [], None
    try:
        for post in posts(to, results):
            await client.post_sensor_data(post.sensor, **post.words())
            sent.append(1)
        if to.schedule is not None:
            if results.storage is None:
                notes.append(f"no schedule: {results.no_storage}")
            else:
                asked = _trigger(to, results.storage)
                answer = await client.trigger_and_get_schedule(sensor_id=to.schedule, unit="kW", **asked)
                sent.append(1)
                schedule = _read(answer, results.storage)
                notes.append(f"a schedule of {schedule.sum() * results.storage.hours:.1f} kWh came back")
    finally:
        await client.close()  # type: ignore[no-untyped-call]
    return Sent(to=where.netloc, messages=len(sent), notes=tuple(notes), schedule=schedule)


def _read(answer: Any, storage: Storage) -> pd.Series:
    """The load of each step [kW]; refused unless it is one."""
    try:
        values = np.asarray(answer["values"], dtype=float)
        start, step = pd.Timestamp(answer["start"]), pd.Timedelta(answer["duration"]) / len(values)
        ours = (answer["unit"], start, step, len(values)) == ("kW", storage.time[0], storage.step, len(storage.time))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise DataError("the schedule that came back cannot be read: look at the server's version") from None
    if not ours:
        raise DataError(
            f"the schedule that came back has {len(values)} steps of {step} from {start}, not {len(storage.time)} of "
            f"{storage.step}: give the power sensor the model's step"
        )
    if not ((values > -TOLERANCE) & (values < storage.power[1] + TOLERANCE)).all():
        raise DataError(f"the schedule that came back leaves 0 to {storage.power[1]:g} kW: look at the server's sensor")
    return pd.Series(values + 0.0, index=storage.time, name="load_kw")  # no -0.0
