"""Home Assistant as a source: entities' histories become half-hourly temperatures and heat.

    homeassistant:/config/home-assistant_v2.db          the recorder's SQLite file, opened read-only
    homeassistant:postgresql://user@host/homeassistant  or mysql://: `atdm[sql]`; password_file or ATDM_SQL_PASSWORD
    homeassistant:ws://homeassistant.local:8123         a running server: `atdm[homeassistant]`; token_file

Rule 1: a row begins at its stamp. Temperature and power are time-weighted means; heat of a counter is its difference.
Rule 2: each row comes from 5-minute statistics where there are, else from states, else from hourly statistics (those
        only for steps of whole hours, half of an hour's mean is not known, and only from before there are others: an
        hour's mean does not say of how much of the hour it is). How many came from where is said.
Rule 3: `unknown`, `unavailable`, times at which the server was off and states older than `hold` are no readings; nor
        are statistics of such times, which Home Assistant makes of the last state when it starts again, nor a
        counter's value restored then, until it moves.
Rule 4: a home has a temperature where all of its rooms have one, and heat where all of its meters do.
Rule 5: means hide the step of a sensor, which scales an agent's dither. So it is looked for in states, and in the
        lowest and highest state of each period of statistics; of several rooms the coarsest counts.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from atdm.data import quantum
from atdm.data.limits import OTHER_TEMPERATURES
from atdm.data.seconds import length, stamp
from atdm.data.sources import held
from atdm.data.sources.database import TIMEOUT, open_database
from atdm.data.sources.held import Series
from atdm.data.sources.recorder import PERIODS, Recorder, RecorderDatabase, Run, States, Statistics
from atdm.data.sources.secret import read_secret
from atdm.data.sources.source import Rows, Source
from atdm.data.units import ENERGY, POWER, TEMPERATURE, celsius
from atdm.errors import DataError, UsageError
from atdm.types import BoolArray, FloatArray, IntArray

HEAT_BY_ACTION = {  # a thermostat's hvac_action -> share of its nominal power
    "heating": 1.0, "preheating": 1.0, "cooling": -1.0,
    "idle": 0.0, "off": 0.0, "fan": 0.0, "drying": 0.0, "defrosting": 0.0,
}  # fmt: skip
HOST = re.compile(r"[\w.-]+:\d+/?")  # somebody's ws:// that was left out
WEBSOCKET = ("ws://", "wss://", "http://", "https://")
NAMED = 8  # entities that a message lists
LISTED = 40  # and that one lists which is there to choose from
LATE = 600  # s after its period at which a row of statistics is written; 10 s is usual
KINDS = {"temperature": tuple(TEMPERATURE), "heat": (*POWER, *ENERGY)}  # units of what may be given
WHAT = {"temperature": "temperature", "heat": "power or energy"}
FROM = {"statistics_short_term": "5-minute statistics", "statistics": "hourly statistics"}

Words = str | Sequence[str]  # one, several separated by commas, or a list


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Entity:
    """What is known of one entity, in °C, kW, or kWh counted. It has no repr: readings are private."""

    name: str
    counts: bool  # a counter: what counts is its difference over a row
    states: Series
    statistics: dict[str, Series]  # table -> means by the start of their period, counters by its end
    quantum: float = 0.0  # of a room: the step of its sensor, 0 where no state shows it  [°C]

    def origins(self, step: int, hold: int) -> list[tuple[str, Series, int]]:
        """Where its rows may come from, the best first: words, values, and how long each of them holds [s]."""
        found = [("states", self.states, hold)]
        for table, series in self.statistics.items():
            if len(series.time) and step % PERIODS[table] == 0:
                place = 0 if table == "statistics_short_term" else len(found)
                found.insert(place, (FROM[table], series, PERIODS[table]))
        return found

    def on(self, starts: IntArray, step: int, hold: int) -> tuple[FloatArray, str]:
        """Its values on rows, and in words how many came from where."""
        values, said = np.full(len(starts), np.nan), []
        for origin, series, holds in self.origins(step, hold):
            each = held.differences if self.counts else held.means
            more = each(series, starts, step, holds)
            if origin == FROM["statistics"]:
                more[starts >= self._finer_from()] = np.nan
            new = np.isnan(values) & ~np.isnan(more)
            values[new] = more[new]
            if new.any():
                said.append(f"{int(new.sum())} rows from {origin}")
        if self.counts:
            values *= 3600 / step  # kWh in a row -> kW
        if said and self.quantum:
            said.append(f"in steps of {quantum.said(self.quantum)}")
        return values, f"{self.name}: {', '.join(said) or self._without_rows(step, hold)}"

    def _finer_from(self) -> float:
        """From when on 5-minute statistics or states say how much of a row is known; an hour's mean does not. [s]"""
        finer = (self.statistics.get("statistics_short_term"), self.states)
        return min((float(series.time[0]) for series in finer if series and len(series.time)), default=math.inf)

    def _without_rows(self, step: int, hold: int) -> str:
        first, last = self.span(step, hold)
        known = f", known from {stamp(int(first))} to {stamp(int(last))}" if first < last else ""
        return f"no row of {step // 60} min{known}"

    def span(self, step: int, hold: int) -> tuple[float, float]:
        """From when to when something is known. [s]"""
        known = [(series.time, holds) for _, series, holds in self.origins(step, hold) if len(series.time)]
        firsts = [float(time[0]) for time, _ in known]
        # means are followed by their period; a counter's time is its end, and states end where their series does
        lasts = [float(time[-1]) + (0 if self.counts or holds == hold else holds) for time, holds in known]
        return min(firsts, default=math.inf), max(lasts, default=-math.inf)


class HomeAssistant(Source):
    """Rooms and heat meters of one home, by entity id."""

    def __init__(
        self,
        address: str,
        *,
        temperature: Words = (),
        heat: Words = (),
        areas: Words = (),
        nominal_power: Words = (),
        unit: str = "",
        step: str = "30min",
        hold: str = "24h",
        token_file: str | None = None,
        password_file: str | None = None,
        timeout: str = f"{TIMEOUT}s",
    ) -> None:
        """temperature: entity ids of the rooms, sensors or thermostats. heat: of power sensors, energy counters, or
        thermostats with the nominal_power [kW] of all or of each. areas: of the rooms, in any unit; without them the
        mean is even. unit: of temperatures that say none; °C if the server does not know. hold: how long a state
        counts."""
        self.name = f"homeassistant:{address}"
        self.recorder = _recorder(address, token_file, password_file, length(timeout))
        self.temperature, self.heat = _words(temperature), _words(heat)
        self.areas, self.nominal = _numbers(areas, "areas"), _numbers(nominal_power, "nominal_power")
        self.unit, self.step, self.hold = unit, length(step), length(hold)
        if self.step % 60 or 86400 % self.step:
            raise UsageError(f"step {step!r} does not divide the day in whole minutes: write '30min', '1h', …")
        if unit and unit not in TEMPERATURE:
            raise UsageError(f"unit {unit!r} is none of temperature: write {', '.join(TEMPERATURE)}")
        if self.areas and len(self.areas) != len(self.temperature):
            raise UsageError(f"{len(self.areas)} areas for {len(self.temperature)} rooms: give one for each")
        thermostats = [entity for entity in self.heat if _is_thermostat(entity)]
        if thermostats and len(self.nominal) not in (1, len(thermostats)):
            raise UsageError(f"{thermostats[0]} only says whether it heats: give its nominal_power in kW")

    def rows(self, since: int | None = None) -> Rows:
        try:
            self._check_named()
            names = dict.fromkeys((*self.temperature, *self.heat))
            states = {name: self.recorder.states(name, self._states_from(since)) for name in names}
            runs = self.recorder.runs()
            rooms = [self._room(entity, states[entity], since, runs) for entity in self.temperature]
            meters = [self._meter(entity, states[entity], since, runs) for entity in self.heat]
        finally:
            self.recorder.close()
        starts = self._starts([*rooms, *meters], since)
        known = [entity.on(starts, self.step, self.hold) for entity in (*rooms, *meters)]
        areas = self.areas or [1.0] * len(rooms)
        temperature, load = np.zeros(len(starts)), np.zeros(len(starts))
        for area, (values, _) in zip(areas, known[: len(rooms)], strict=True):
            temperature += area / sum(areas) * values
        for values, _ in known[len(rooms) :]:
            load += values
        some = ~(np.isnan(temperature) & np.isnan(load))
        said = [words for _, words in known]
        notes = (*said, *self._hours_left([*rooms, *meters], starts), *_no_step(rooms, starts), *self._undated(said))
        coarsest = max(room.quantum for room in rooms)
        return Rows(starts[some], temperature[some], load[some], notes, quantum=coarsest)

    def _starts(self, entities: Sequence[Entity], since: int | None) -> IntArray:
        """The rows of which all entities may know something."""
        spans = [entity.span(self.step, self.hold) for entity in entities]
        first, last = max(span[0] for span in spans), min(span[1] for span in spans)
        if not first < last:
            return np.zeros(0, dtype=np.int64)
        begin = math.floor(first / self.step) * self.step
        if since is not None:
            begin = max(begin, (since // self.step + 1) * self.step)
        return np.arange(begin, math.floor(last) - self.step + 1, self.step, dtype=np.int64)

    def _room(self, name: str, states: States, since: int | None, runs: Sequence[Run]) -> Entity:
        """A sensor's states, or the temperature that a thermostat measures. [°C]"""
        thermostat = _is_thermostat(name)
        plain = self.unit or (self.recorder.temperature_unit() if thermostat else None) or ""
        assumed = thermostat and not plain
        plain = "°C" if assumed else plain

        def value(state: str | None, attributes: dict[str, Any]) -> float:
            unit = plain if thermostat else attributes.get("unit_of_measurement") or plain
            read = _number(attributes.get("current_temperature") if thermostat and _is_there(state) else state)
            return math.nan if math.isnan(read) else float(celsius(np.array(read), self._known(name, unit)))

        def in_celsius(values: FloatArray, unit: str) -> FloatArray:
            return celsius(values, self._known(name, unit))

        tables, extremes = ({}, []) if thermostat else self._statistics(name, since, in_celsius, runs, counts=False)
        series = _until_off(states, value, runs)
        step = quantum.coarsest([series.value, *extremes])
        entity = Entity(name, False, series, tables, step)
        self._check_found(entity)
        if assumed:
            self._check_assumed(entity)
        return entity

    def _check_assumed(self, entity: Entity) -> None:
        """A thermostat's states name no unit, and a database does not say which one the server has."""
        known = entity.states.value[~np.isnan(entity.states.value)]
        median = float(np.median(known)) if len(known) else math.nan
        for low, high, unit, _ in OTHER_TEMPERATURES:
            if low <= median <= high and unit in TEMPERATURE:
                said = f"{entity.name} has median {median:.1f}, looks like {unit}"
                raise DataError(f"{self.name}: {said}: give the option unit={unit}")

    def _meter(self, name: str, states: States, since: int | None, runs: Sequence[Run]) -> Entity:
        """Power, energy counted, or a thermostat's report that it heats. [kW, kWh]"""
        if _is_thermostat(name):
            place = [entity for entity in self.heat if _is_thermostat(entity)].index(name)
            nominal = self.nominal[place if len(self.nominal) > 1 else 0]

            def power(state: str | None, attributes: dict[str, Any]) -> float:
                action = attributes.get("hvac_action") if _is_there(state) else None
                return nominal * HEAT_BY_ACTION.get(str(action), math.nan)

            entity = Entity(name, False, _until_off(states, power, runs), {})
            self._check_found(entity)
            return entity
        unit = self._meter_unit(name, states, since)
        counts, scales = unit in ENERGY, ENERGY if unit in ENERGY else POWER

        def value(state: str | None, attributes: dict[str, Any]) -> float:
            own = str(attributes.get("unit_of_measurement") or unit)
            return _number(state) * scales[own] if own in scales else math.nan

        def scaled(values: FloatArray, unit: str) -> FloatArray:
            return values * scales[unit]

        series = _until_off(states, value, runs)
        if counts:
            series = held.unwound(held.moved(series, [begin for begin, _ in runs]), _begun_anew(states, series))
        entity = Entity(name, counts, series, self._statistics(name, since, scaled, runs, counts=counts)[0])
        self._check_found(entity)
        return entity

    def _meter_unit(self, name: str, states: States, since: int | None) -> str:
        """The first unit that is one of power or energy."""
        seen = [attributes.get("unit_of_measurement") for attributes in states.attributes]
        seen += [self.recorder.statistics(name, table, self._states_from(since)).unit for table in PERIODS]
        units = [str(unit) for unit in seen if unit]
        for unit in units:
            if unit in POWER or unit in ENERGY:
                return unit
        if not units:
            self._refuse_unknown(name)
            if not states.state:
                return "kW"  # nothing of that time to be in any unit
        raise DataError(
            f"{self.name}: {name} is in {units[0] if units else 'no unit'}, neither power nor energy: give an entity "
            f"in {', '.join((*POWER, *ENERGY))}, or a thermostat"
        )

    def _statistics(
        self, name: str, since: int | None, convert: Callable[[FloatArray, str], FloatArray], runs: Sequence[Run], *,
        counts: bool,
    ) -> tuple[dict[str, Series], list[FloatArray]]:  # fmt: skip
        """Means at the start of their periods; of a counter its sum, which is that at the end of them. And, by table,
        the states among them."""
        tables, extremes = {}, []
        for table, period in PERIODS.items():
            from_time = 0.0 if since is None else since - self.step - 2.0 * period
            found = self.recorder.statistics(name, table, from_time)
            values = found.sum if counts else found.mean
            filled = _filled_in(found, period, runs, counts=counts)
            known = ~np.isnan(values)
            if (known & ~filled).any() and found.unit is not None:
                series = Series(found.start[known] + (period if counts else 0), convert(values[known], found.unit))
                if counts:
                    on_again = found.start[filled & ~np.append(filled[1:], False)] + period + 1
                    series = held.moved(series, [*(begin for begin, _ in runs), *on_again.tolist()])
                kept = ~filled[known]
                tables[table] = held.series(series.time[kept], series.value[kept])
                extremes.append(convert(found.extremes, found.unit))
        return tables, extremes

    def _known(self, name: str, unit: str) -> str:
        if unit not in TEMPERATURE:
            said = f"is in {unit}, which is none of temperature" if unit else "says no unit"
            raise DataError(
                f"{self.name}: {name} {said}: give another entity, or the option unit={'|'.join(TEMPERATURE)}"
            )
        return unit

    def _states_from(self, since: int | None) -> float:
        return 0.0 if since is None else float(since - self.hold)

    def _check_named(self) -> None:
        """Refuse before reading where the home is not described, and name what there is."""
        for option, given in (("temperature", self.temperature), ("heat", self.heat)):
            if not given:
                units = self._fitting(option)
                said = _listed([f"{name} ({unit})" if unit else name for name, unit in units.items()], LISTED)
                there = f"there are {said}" if said else f"none has a unit of {WHAT[option]}, and none is a thermostat"
                raise UsageError(f"{self.name}: give its entity for {option} (--{option} ENTITY): {there}")

    def _fitting(self, option: str) -> dict[str, str | None]:
        """Entities that may be given for an option, with their units."""
        known = self.recorder.entities()
        return {name: unit for name, unit in known.items() if _is_thermostat(name) or unit in KINDS[option]}

    def _check_found(self, entity: Entity) -> None:
        if not len(entity.states.time) and not entity.statistics:
            self._refuse_unknown(entity.name)

    def _refuse_unknown(self, name: str) -> None:
        """Nothing of an entity: it does not exist, or is not recorded. (Nothing new of a known one is no error.)"""
        known = self.recorder.entities()
        if name not in known:
            fitting = self._fitting("temperature" if name in self.temperature else "heat")
            tails = get_close_matches(_tail(name), map(_tail, fitting), n=3)
            near = [entity for tail in tails for entity in fitting if _tail(entity) == tail]
            said = f"did you mean {' or '.join(near)}" if near else f"there are {_listed(list(fitting), NAMED)}"
            there = f"; {said}" if fitting else ""
            raise DataError(f"{self.name}: has no entity {name!r}{there}: check the id, and that it is recorded")

    def _undated(self, said: Sequence[str]) -> list[str]:
        """Say where times at which the server was off cannot be told."""
        if self.recorder.dated or not any(FROM["statistics"] in words for words in said):
            return []
        return ["hourly statistics may hold hours in which the server was off, as if nothing had changed; its API does "
                "not tell, its database does"]  # fmt: skip

    def _hours_left(self, entities: Sequence[Entity], starts: IntArray) -> list[str]:
        """Say where an hourly step would reach further back."""
        if self.step % PERIODS["statistics"] == 0 or any("statistics" not in e.statistics for e in entities):
            return []
        earliest = max(float(entity.statistics["statistics"].time[0]) for entity in entities)
        if len(starts) and starts[0] - earliest < 86400:
            return []
        return [f"hourly statistics go back to {stamp(int(earliest))}: step=1h would use them"]


def _recorder(address: str, token_file: str | None, password_file: str | None, timeout: int) -> Recorder:
    if address.startswith(WEBSOCKET):
        from atdm.data.sources.websocket import RecorderSocket

        return RecorderSocket(address, token_file, timeout)
    if token_file is not None or (HOST.fullmatch(address) and not Path(address).exists()):
        raise UsageError(
            f"homeassistant:{address}: a server that runs is asked at ws://HOST:8123 (wss:// with TLS), with a "
            "token_file; a database has none"
        )
    if Path(address).is_dir():
        raise UsageError(f"homeassistant:{address}: is a folder: give home-assistant_v2.db in it")
    return RecorderDatabase(open_database(address, read_secret(password_file, "ATDM_SQL_PASSWORD"), timeout))


def _no_step(rooms: Sequence[Entity], starts: IntArray) -> list[str]:
    """Say which rooms' rows are means of values that nobody can see."""
    hidden = [room.name for room in rooms if not room.quantum and len(starts)]
    way_out = "no state is left that shows the step of the sensor: declare it (`atdm agent --quantum`, in °C)"
    return [f"{', '.join(hidden[:NAMED])}: {way_out}"] if hidden else []


def _until_off(states: States, value: Callable[[str | None, dict[str, Any]], float], runs: Sequence[Run]) -> Series:
    """The values of states, not known from the end of each run of the recorder until the next state."""
    values = [value(state, attributes) for state, attributes in zip(states.state, states.attributes, strict=True)]
    if not values:
        return Series(np.zeros(0), np.zeros(0))
    ends = np.array([end for _, end in runs if end > states.time[0]])
    return held.series(
        np.concatenate([states.time, ends]), np.concatenate([np.array(values), np.full(len(ends), np.nan)])
    )


def _filled_in(found: Statistics, period: int, runs: Sequence[Run], *, counts: bool) -> BoolArray:
    """Which statistics the recorder made of the last state, because the server was off.

    Where its runs are known they say so: a mean counts if the server ran for half of the period, a counter if it ran at
    the period's end. Runs of long ago are purged; there, rows in which nothing moved and that were written late.
    """
    end, corners = found.start + period, np.array(runs, dtype=np.float64).ravel()
    if not len(corners):
        on = np.zeros(len(end), dtype=bool)
    elif counts:
        on = np.searchsorted(corners, end, side="right") % 2 == 1  # after a begin, before the end that belongs to it
    else:
        lengths = np.diff(corners, prepend=corners[0])
        ran = np.interp([found.start, end], corners, np.cumsum(lengths * (np.arange(len(corners)) % 2)))
        on = ran[1] - ran[0] >= held.KNOWN_SHARE * period
    low, high = found.extremes.reshape(len(end), 2).T
    late = (found.made > end + LATE) | (np.diff(found.made, prepend=np.nan) < period / 2)  # or at once after another
    still = late & (np.diff(found.sum, prepend=np.nan) == 0 if counts else low == high)
    if counts:
        still |= late & np.append(still[1:], False)  # the server stopped in this one: its end is of the last state too
    return np.where(found.start < min(corners, default=math.inf), still, ~on)


def _begun_anew(states: States, series: Series) -> BoolArray:
    """Whether the meter says, by another `last_reset`, that it began anew before each value of the series."""
    new: dict[float, bool] = {}
    last = None
    for time, attributes in zip(states.time.tolist(), states.attributes, strict=True):
        reset = attributes.get("last_reset")
        new[time] = new.get(time, False) or (reset is not None and last is not None and reset != last)
        last = last if reset is None else reset
    return np.array([new.get(time, False) for time in series.time.tolist()], dtype=bool)


def _listed(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _tail(entity: str) -> str:
    """An entity's name without the part before the point, which most have in common."""
    return entity.partition(".")[2] or entity


def _is_thermostat(entity: str) -> bool:
    return entity.startswith("climate.")


def _is_there(state: str | None) -> bool:
    return state not in (None, "", "unknown", "unavailable")


def _number(text: Any) -> float:
    """A finite number, or NaN."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return math.nan
    return value if math.isfinite(value) else math.nan


def _words(given: Words) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else [part for word in given for part in str(word).split(",")]
    return tuple(part.strip() for part in parts if part.strip())


def _numbers(given: Words, option: str) -> tuple[float, ...]:
    numbers = tuple(_number(word) for word in _words([str(given)] if isinstance(given, int | float) else given))
    if not all(number > 0 for number in numbers):
        raise UsageError(f"{option} {given!r}: give positive numbers, separated by commas")
    return numbers
