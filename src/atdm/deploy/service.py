"""The aggregator's desk: what is due now, done from what the record holds. It is told the time and has no clock.

    asking   which rows to ask the homes for now
    keep     what they showed, on disk first
    work     everything that needs no home: model, forecast, flexibility, alarms
    state    all of it in one document
    operate  the loop around it

Rule 1: a row that is in the record is never asked for again.
Rule 2: what a restart needs is in the record; nothing else is remembered but what can be worked out from it.
Rule 3: every decision is written down with its reason.
Rule 4: what goes wrong with homes, weather, disk, numbers or sinks raises an alarm, and the desk goes on with the rest.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from atdm.data.clock import duration
from atdm.deploy.alarms import ALARMS, explained
from atdm.deploy.fleet import Fleet
from atdm.deploy.kept_model import KeptModel, within
from atdm.deploy.observe import Observation
from atdm.deploy.record import CUT_OFF, AlarmRow, RecordError, ServiceRecord
from atdm.deploy.service_rules import ServiceRules
from atdm.deploy.service_state import (
    Alarm,
    FleetState,
    FlexibilityState,
    Health,
    Newest,
    Outlook,
    Past,
    State,
    fleet_state,
)
from atdm.errors import AtdmError, DataError
from atdm.kernel.blas import one_blas_thread
from atdm.kernel.finite import without_nan
from atdm.model.fitted import Model
from atdm.protocol.company import bits
from atdm.protocol.plan import DAY, Collect
from atdm.protocol.roster import Roster
from atdm.sinks.results import Results, Sent, gather
from atdm.use.flexibility import Flexibility, flexibility
from atdm.use.forecast import Forecast, forecast
from atdm.use.series import OBSERVED, read_future

TICK = 60.0  # s between two looks at what is due
AFTER_FAILURE = 3600.0  # s until a model is tried again that could not be made
SHOWN_PAST = duration("48h")
SHOWN_RUNS, SHOWN_DECISIONS = 12, 20
AHEAD = duration("24h")

Say = Callable[[str], None]
Keep = Callable[[Observation], None]
CollectRows = Callable[[Collect, Keep], Awaitable[None]]  # ask for the rows of a plan, keep each portion as it comes
Send = Callable[[Results], Awaitable[list[Sent]]]  # carry results to every sink; what fails comes back in words
Look = Callable[[], tuple[Roster, Fleet]]  # the roster of now, and what the aggregator remembers of the fleet


class WeatherFile:
    """The weather of a file; read again when the file changes."""

    def __init__(self, path: Path, timezone: str) -> None:
        self.path, self._timezone = path, timezone
        self._seen: tuple[int, int] | None = None
        self._frame = pd.DataFrame()

    def __call__(self) -> pd.DataFrame:
        try:
            found = self.path.stat()
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror}: write the weather there") from None
        if (found.st_mtime_ns, found.st_size) != self._seen:
            self._frame = read_future(self.path, timezone=self._timezone)
            self._seen = (found.st_mtime_ns, found.st_size)
        return self._frame


@dataclass(slots=True)
class _Unwritten:
    """A portion that could not be written yet."""

    run: int
    found: Observation


class Service:
    """A desk. Times are seconds since 1970, as the caller says."""

    def __init__(
        self, rules: ServiceRules, record: ServiceRecord, weather: Callable[[], pd.DataFrame], look: Look | None = None,
        say: Say = lambda _: None, first_model: Model | None = None,
    ) -> None:  # fmt: skip
        """weather: outdoor_temp_c, solar_w_m2 by time, past and forecast, as it is when asked; first_model: to begin
        with, where the record has none."""
        self.rules, self.record, self._weather, self._look, self._say = rules, record, weather, look, say
        self._step = int(rules.collect.step.total_seconds())
        self._sky: pd.DataFrame | None = None
        self._skies = 0  # how often the weather has changed
        self._outlook: Outlook | None = None
        self._for: tuple[object, ...] = ()  # what the outlook was made from
        self._news: tuple[Model, Forecast] | None = None  # that sinks have not been given yet
        self._flexibility: Flexibility | None = None
        self._offer = FlexibilityState(offered=False, words="not asked for: flexibility.offered is false in the rules")
        self._offered = -math.inf  # when
        self._problems: dict[str, str] = {}  # alarm → words, of the last attempt
        self._failed: dict[str, float] = {}  # when
        self._unwritten: list[_Unwritten] = []
        self._doing = "starting"
        self._shown: State | None = None  # last
        self._kept = KeptModel(rules, record, self._decide, first_model)

    # Collecting

    def asking(self, now: float) -> Collect | None:
        """The rows to ask for now; None where it is not time, or all are there."""
        try:
            return self._due(now) if self._write() else None
        except RecordError as error:
            self._problems["record"] = str(error)
            return None

    def _due(self, now: float) -> Collect | None:
        last_run = next((run for run in self.record.runs(5) if run.words != CUT_OFF), None)
        if last_run is not None and last_run.began > now + TICK:
            self._problems["clock"] = f"the clock went back by {_hours(last_run.began - now)}"
        else:
            self._problems.pop("clock", None)
            if last_run is not None and self._slot(last_run.began) >= self._slot(now):
                return None
        collect, step = self.rules.collect, self._step
        last = int((now - collect.settle.total_seconds()) // step - 1) * step  # a row begins at its stamp
        newest = self.record.newest()
        earliest = self.record.begun - collect.history.total_seconds()
        start = min(newest + step, last - collect.back.total_seconds()) if newest is not None else earliest
        start = max(start, earliest, last - self.rules.model.window.total_seconds())
        first = math.ceil(start / step) * step
        if first > last:
            return None
        stamps = np.arange(first, last + 1, step)
        wanted = ~np.isin(stamps, self.record.known(first, last))
        if not wanted.any():
            return None
        skip = int(np.argmax(wanted))
        asked = b"" if wanted[skip:].all() else bits(wanted[skip:])
        return Collect(step_seconds=step, start=int(stamps[skip]), length=len(stamps) - skip, asked=asked)

    def _slot(self, now: float) -> int:
        """Askings are due at multiples of `every` after midnight UTC, and when rows have settled."""
        collect = self.rules.collect
        return int((now - collect.settle.total_seconds()) // collect.every.total_seconds())

    def next_asking(self, now: float) -> float:
        collect = self.rules.collect
        return (self._slot(now) + 1) * collect.every.total_seconds() + collect.settle.total_seconds()

    def begin(self, plan: Collect, now: float) -> int | None:
        """Note that these rows are going to be asked for; its number, None where that cannot be written."""
        count = plan.length if not plan.asked else int(np.unpackbits(np.frombuffer(plan.asked, np.uint8)).sum())
        try:
            run = self.record.begin_run(now, plan.start, plan.start + (plan.length - 1) * plan.step_seconds, count)
        except RecordError as error:
            self._problems["record"] = str(error)
            return None
        self._doing = f"asking the homes for {count} rows"
        return run

    def keep(self, run: int, found: Observation) -> None:
        """What homes showed, on disk; raises where it could not be written, and holds it until it can."""
        self._unwritten.append(_Unwritten(run, found))
        if not self._write():
            raise RecordError(self._problems["record"])

    def end(self, run: int, now: float, error: AtdmError | None) -> None:
        """The asking is over; error: why it brought less than was hoped for."""
        self._doing = "waiting"
        with self._noted():
            row = next((each for each in self.record.runs(1) if each.id == run), None)
            rows, homes = (0, 0) if row is None else (row.rows, len(row.inside))
            words = f"{rows} rows of {homes} homes" if rows else "no rows"
            words += "" if error is None else f": {error}" if not rows else f"; then {error}"
            self._problems.pop("run", None)
            if not rows:
                self._problems["run"] = words
            self._say(words)
            self.record.end_run(run, now, words)

    def _write(self) -> bool:
        """Write what could not be written before; whether all of it is on disk."""
        try:
            while self._unwritten:
                first = self._unwritten[0]
                self.record.add_rows(first.run, first.found.table, first.found.inside, first.found.out)
                self._unwritten.pop(0)
        except RecordError as error:
            self._problems["record"] = str(error)
            return False
        self._problems.pop("record", None)
        return True

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Rule 4 for the record: what cannot be read or written is its alarm, until the next look."""
        try:
            yield
        except RecordError as error:
            self._problems["record"] = str(error)

    # What needs no home

    def work(self, now: float) -> None:
        """Everything that is due and needs no home."""
        self._write()
        with one_blas_thread():
            self._attempt("weather", now, self._read_weather)
            if (sky := self._sky) is not None:
                self._attempt("model", now, lambda now: self._kept.keep_current(now, sky), AFTER_FAILURE)
                self._attempt("drift", now, self._kept.watch_drift)
                self._attempt("forecast", now, self._look_ahead)
                self._attempt("flexibility", now, self._offer_flexibility)
            self.check(now)

    def _attempt(self, what: str, now: float, task: Callable[[float], None], wait: float = 0.0) -> None:
        """Rule 4; wait: how long nothing is tried after a failure. [s]"""
        if what in self._problems and 0.0 <= now - self._failed.get(what, -math.inf) < wait:
            return
        try:
            task(now)
        except (AtdmError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            if isinstance(error, RecordError):
                self._problems["record"] = str(error)
            if self._problems.get(what) != str(error):
                self._decide(now, what, f"not done: {error}")
            self._problems[what], self._failed[what] = str(error), now
        else:
            self._problems.pop(what, None)

    def _decide(self, now: float, what: str, words: str) -> None:
        self._say(f"{what}: {words}")
        with self._noted():
            self.record.decide(now, what, words)

    def _read_weather(self, now: float) -> None:
        sky = self._weather()
        if not len(sky):
            raise DataError("the weather has no rows: give the past and what is forecast")
        if sky is not self._sky:
            self._sky, self._skies = sky, self._skies + 1

    # Forecast and flexibility

    def _look_ahead(self, now: float) -> None:
        newest, rules = self.record.newest(), self.rules.forecast
        if self._kept.row is None or self._sky is None or newest is None:
            return
        made_from = (newest, self._kept.row.hash, self._skies)
        fresh = self._outlook is not None and within(self._outlook.made, now, rules.every)
        if fresh and made_from == self._for:
            return
        model, step = self._kept.of_now(), self.rules.collect.step
        origin = pd.Timestamp(newest, unit="s", tz="UTC")
        present = pd.Timestamp(now, unit="s", tz="UTC").floor(step)
        end = min(present + rules.horizon - step, self._sky.index[-1])
        if end <= origin:
            raise DataError(
                f"the weather ends {_when(self._sky.index[-1])}, before the last row: nothing to forecast from"
            )
        seen = self._kept.observed(newest - self.rules.model.window.total_seconds())
        found = forecast(model, None, self._sky, observed=seen, horizon=(end - origin) // step * step)
        table = found.table[found.table.index > origin]
        columns = {str(name): [_rounded(v) for v in table[name]] for name in table.columns}
        self._outlook = Outlook(
            made=now, model=self._kept.row.hash, origin=float(newest), step_seconds=self._step,
            time=[stamp.timestamp() for stamp in table.index], columns=columns, notes=list(found.notes),
        )  # fmt: skip
        self._for, self._news = made_from, (model, found)
        document = {"origin": newest, "step_seconds": self._step, "columns": columns}
        self.record.add_forecast(now, self._kept.row.hash, document, _ahead(table, origin))

    def _offer_flexibility(self, now: float) -> None:
        """What can be offered; where nothing can, its reason in words: that is an answer, not a failure."""
        rules = self.rules.flexibility
        newest = self.record.newest()
        if not rules.offered or self._kept.row is None or self._sky is None or newest is None:
            if rules.offered:
                self._offer = FlexibilityState(offered=False, words="there is no model yet")
            return
        if within(self._offered, now, rules.every):
            return
        model, seen, found = self._kept.of_now(), self._kept.observed(newest - DAY), None
        self._offered = now
        try:
            found = flexibility(
                model, self._sky, rules.comfort, observed=seen, horizon=rules.horizon,
                confidence=rules.confidence, assume_gain=rules.assume_gain,
            )  # fmt: skip
        except AtdmError as error:
            offer = FlexibilityState(offered=False, words=str(error), made=now)
        else:
            document = without_nan(found.as_dict())
            offer = FlexibilityState(offered=True, words=_offer_words(found), made=now, document=document)
        if offer.offered != self._offer.offered or self._offer.made is None:  # words have numbers of the hour in them
            self._decide(now, "flexibility", f"{'offered' if offer.offered else 'none offered'}: {offer.words}")
        self._offer, self._flexibility = offer, found

    def news(self, now: float) -> Results | None:
        """What sinks have not been given yet: the forecast and the offer, once each."""
        if self._news is None:
            return None
        try:
            seen = self._kept.observed(now - DAY)
        except RecordError as error:
            self._problems["record"] = str(error)
            return None
        (model, found), self._news = self._news, None
        return gather(
            model, found, self._flexibility, made=pd.Timestamp(now, unit="s", tz="UTC"),
            observed=seen[OBSERVED] if len(seen) else None, refused=self._offer.words,
        )  # fmt: skip

    def sent(self, sent: Sequence[Sent]) -> None:
        """How it went at the sinks."""
        self._problems.pop("sinks", None)
        for failed in (each for each in sent if each.failed):
            self._problems["sinks"] = failed.words()
            self._say(failed.words())

    # Alarms and state

    def model_json(self) -> str | None:
        """The model in use, as model.json."""
        return self._kept.to_json()

    def check(self, now: float) -> None:
        """Compare the state with the limits of the rules; alarms begin and end here."""
        with self._noted():
            self.record.set_alarms(now, self._wrong(now))

    def _wrong(self, now: float) -> dict[str, str]:
        """Alarm → words."""
        words = {name: text for name, text in self._problems.items() if name in ALARMS}
        newest, alarms = self.record.newest(), self.rules.alarms
        age = now - (self.record.begun if newest is None else newest + self._step)
        if age > alarms.no_rows_for.total_seconds():
            words["rows"] = f"no row for {_hours(age)}" if newest is not None else "no row yet"
        if self._sky is not None and "weather" not in words:
            end = self._sky.index[-1]
            if end.timestamp() - now < alarms.weather_ends_within.total_seconds():
                words["weather"] = f"the weather ends {_when(end)}"
        kept = self._kept
        if kept.row is not None and kept.model is not None and kept.model.until is not None:
            old = now - kept.model.until.timestamp()
            if old > alarms.model_older_than.total_seconds():
                said = words.get("model")
                words["model"] = f"the model ends {_hours(old)} ago" + ("" if said is None else f": {said}")
            late = now - (self._outlook.made if self._outlook is not None else kept.row.made)
            if late > 2 * self.rules.forecast.every.total_seconds() + TICK:
                words.setdefault("forecast", f"the last forecast is {_hours(late)} old")
            if (poor := kept.poor()) is not None:
                words["quality"] = poor
        fleet = self._fleet(now)
        if fleet is not None and newest is not None and fleet.enrolled:
            out = fleet.enrolled - fleet.inside
            if fleet.inside < self.rules.fleet.at_least or out > alarms.homes_out * fleet.enrolled:
                words["homes"] = f"{fleet.inside} of {fleet.enrolled} homes take part, {fleet.needed} are needed"
        return words

    def _fleet(self, now: float) -> FleetState | None:
        if self._look is None:
            return None
        try:
            roster, fleet = self._look()
        except AtdmError as error:
            self._problems["run"] = str(error)
            return None
        runs = self.record.runs(1)
        return fleet_state(roster, fleet, runs[0].out if runs else {}, now, self.rules)

    def state(self, now: float) -> State:
        """Everything that a page, a program or a sink may be shown. While the record cannot be read: what was shown
        last, and the alarm."""
        try:
            self._shown = self._state(now)
        except RecordError as error:
            self._problems["record"] = str(error)
            if self._shown is None:
                raise
            before = {alarm.name: alarm for alarm in self._shown.alarms}
            since = before.pop("record").since if "record" in before else now
            alarms = [*before.values(), explained(AlarmRow(name="record", since=since, words=str(error)))]
            self._shown = msgspec.structs.replace(
                self._shown, time=now, doing=self._doing, next_asking=self.next_asking(now), alarms=alarms,
                health=_health(alarms),
            )  # fmt: skip
        return self._shown

    def _state(self, now: float) -> State:
        newest = self.record.newest()
        past = self._kept.observed((newest or 0) - SHOWN_PAST.total_seconds()) if newest is not None else pd.DataFrame()
        last = past.iloc[-1] if len(past) else None
        rows = self.record.alarms()
        if "record" in self._problems and all(row.name != "record" for row in rows):  # that could not be written either
            rows.append(AlarmRow(name="record", since=now, words=self._problems["record"]))
        alarms = [explained(row) for row in rows]
        return State(
            time=now, begun=self.record.begun, rows=self.record.count(), doing=self._doing,
            next_asking=self.next_asking(now), health=_health(alarms),
            now=None if last is None or newest is None else Newest(
                time=float(newest), aggregate_temp_c=float(last["aggregate_temp_c"]), load_kw=float(last["load_kw"]),
                homes=int(last["agents"]),
            ),
            past=Past(
                time=[t.timestamp() for t in past.index] if len(past) else [],
                aggregate_temp_c=past["aggregate_temp_c"].round(4).tolist() if len(past) else [],
                load_kw=past["load_kw"].round(4).tolist() if len(past) else [],
            ),
            forecast=self._outlook, model=self._kept.state(), model_words=self._kept.words(),
            flexibility=self._offer, fleet=self._fleet(now), runs=self.record.runs(SHOWN_RUNS),
            decisions=self.record.decisions(SHOWN_DECISIONS), alarms=alarms,
        )  # fmt: skip


def _health(alarms: Sequence[Alarm]) -> Health:
    why = [alarm.words for alarm in alarms if alarm.failure]
    return Health(ok=not why, why=why)


def _ahead(table: pd.DataFrame, origin: pd.Timestamp) -> dict[str, float | None] | None:
    """The row 24 h after the last one known, for the record."""
    target = origin + AHEAD
    if target not in table.index:
        return None
    names = ("aggregate_temp_c", "low_80", "high_80", "load_kw")
    row = {name: _rounded(table[name][target]) if name in table else None for name in names}
    return {"origin": int(origin.timestamp()), "target": int(target.timestamp()), **row}


def _rounded(value: float) -> float | None:
    return round(float(value), 3) if math.isfinite(value) else None


def _offer_words(found: Flexibility) -> str:
    hours = {name: length.total_seconds() / 3600 for name, length in
             (("least", found.expected.drop), ("most", found.expected.lift))}  # fmt: skip
    low, high = sorted(found.power, key=abs)
    return (
        f"the load can stay at {low:.1f} kW for {hours['least']:g} h, or at {high:.1f} kW for {hours['most']:g} h, "
        f"while the mean temperature stays between {found.comfort[0]:g} and {found.comfort[1]:g} °C"
    )


def _hours(seconds: float) -> str:
    return f"{seconds / DAY:.1f} days" if seconds >= 2 * DAY else f"{seconds / 3600:.1f} h"


def _when(stamp: pd.Timestamp) -> str:
    return f"{stamp.tz_convert('UTC'):%Y-%m-%d %H:%M} UTC"


async def operate(
    service: Service, collect: CollectRows, *, clock: Callable[[], float] = time.time,
    publish: Callable[[State], None] | None = None, send: Send | None = None,
) -> None:  # fmt: skip
    """Run a desk until cancelled. publish: is given the state whenever something happened, and every minute; send: is
    given every forecast, unless it is still busy with an earlier one."""
    sending: asyncio.Future[list[Sent]] | None = None

    def show() -> None:
        if publish is not None:
            with suppress(RecordError):  # nothing could be read from the start: it is tried again, and noted
                publish(service.state(clock()))

    while True:
        plan = service.asking(clock())
        run = None if plan is None else service.begin(plan, clock())
        if plan is not None and run is not None:
            show()
            await _collect(service, collect, plan, run, clock, show)
        service.work(clock())
        show()
        if sending is not None and sending.done():
            service.sent(sending.result())
            sending = None
        if send is not None and sending is None and (news := service.news(clock())) is not None:
            sending = asyncio.ensure_future(send(news))
        await asyncio.sleep(max(1.0, min(TICK, service.next_asking(clock()) - clock())))


async def _collect(
    service: Service, collect: CollectRows, plan: Collect, run: int, clock: Callable[[], float],
    show: Callable[[], None],
) -> None:  # fmt: skip
    """One asking; while it goes on, alarms are looked at as ever."""

    def keep(found: Observation) -> None:
        service.keep(run, found)
        show()

    task, problem = asyncio.ensure_future(collect(plan, keep)), None
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=TICK)
            if not task.done():
                service.check(clock())
                show()
        task.result()
    except AtdmError as error:
        problem = error
    finally:
        if not task.done():  # stopped: the homes are told before the desk goes
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        service.end(run, clock(), problem)
