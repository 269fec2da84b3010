"""The homes of a cluster as Home Assistant would have recorded them: one database each, no two alike.

Hours, because only hourly statistics are kept for ever. Every value is written as a server writes it: a text of few
decimals in states, a number in statistics.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from atdm.data import Cluster
from tests.data.recorded import ENERGY, POWER, SCHEMAS, TEMPERATURE, Recorded

HOUR = 3600
ROOM, HEAT, COUNTER, HALL = "sensor.room_temperature", "sensor.heat_power", "sensor.heat_energy", "climate.hall"
DECIMALS = 2  # of a state in °F: the coarsest rounding here, 0.005 °F
ROUNDING_K = 0.005 / 1.8  # largest change of a temperature by it  [K]
NOMINAL = 25.0  # of a burner that is on or off  [kW]


class Home:
    """What one home is to have recorded."""

    def __init__(self, folder: Path, time: np.ndarray, temperature: np.ndarray, load: np.ndarray, schema: int) -> None:
        self.time, self.temperature, self.load = time, temperature, load
        self.file = folder / "home-assistant_v2.db"
        folder.mkdir(parents=True, exist_ok=True)
        self.made = Recorded(self.file, schema)
        self.made.run(float(time[0]) - 90.0)
        self.made.states("sun.sun", [time[-1] + HOUR + 30.0], ["below_horizon"], {})

    def room(self, unit: str, rows: slice = slice(None), entity: str = ROOM, by: float = 0.0) -> None:
        values = self.temperature[rows] + by
        shown = np.round(values * 1.8 + 32, DECIMALS) if unit == "°F" else np.round(values, 4)
        self.made.states(entity, self.time[rows], shown, {**TEMPERATURE, "unit_of_measurement": unit})

    def room_statistics(self, unit: str, rows: slice = slice(None), table: str = "statistics") -> None:
        values = self.temperature[rows] * 1.8 + 32 if unit == "°F" else self.temperature[rows]
        period, parts = (HOUR, 1) if table == "statistics" else (300, 12)
        starts = (self.time[rows][:, None] + period * np.arange(parts)).ravel()
        self.made.statistics(ROOM, table, starts, unit=unit, mean=np.repeat(values, parts))

    def power(self, unit: str, rows: slice = slice(None), entity: str = HEAT, share: float = 1.0) -> None:
        values = share * self.load[rows] * (1000 if unit == "W" else 1)
        self.made.states(entity, self.time[rows], np.round(values, 4), {**POWER, "unit_of_measurement": unit})

    def power_statistics(self, rows: slice = slice(None)) -> None:
        self.made.statistics(HEAT, "statistics", self.time[rows], unit="W", mean=1000 * self.load[rows])

    def counted(self, unit: str) -> None:
        """A counter that starts again every third day, with a state at every full hour."""
        scale = 1000.0 if unit == "Wh" else 1.0
        total, shown = 0.0, [4.0]
        for hour, energy in enumerate(self.load * scale):  # kW over an hour
            total = energy if hour % 72 == 71 else shown[-1] + energy
            shown.append(round(total, 4))
        resets = np.append(0, (np.arange(len(self.load)) + 1) // 72)
        words = [{**ENERGY, "unit_of_measurement": unit, "last_reset": f"day {reset}"} for reset in resets.tolist()]
        self.made.states(COUNTER, np.append(self.time, self.time[-1] + HOUR), shown, words)

    def counter_statistics(self, table: str = "statistics") -> None:
        period, parts = (HOUR, 1) if table == "statistics" else (300, 12)
        starts = (self.time[:, None] + period * np.arange(parts)).ravel()
        sums = 12.5 + np.cumsum(np.repeat(self.load / parts, parts))
        starts, sums = np.append(starts[0] - period, starts), np.append(12.5, sums)
        self.made.statistics(COUNTER, table, starts, unit="kWh", total=sums)

    def thermostat(self, fahrenheit: bool, burner: bool = False) -> None:
        """Its temperature at full hours; its burner is on from the full hour for as long as the heat takes."""
        shown = np.round(self.temperature * 1.8 + 32, DECIMALS) if fahrenheit else self.temperature
        on = np.round(self.load / NOMINAL * HOUR, 0) if burner else np.zeros(len(self.time))
        time, words = [], []
        for when, value, seconds in zip(self.time, shown.tolist(), on, strict=True):
            time.append(when)
            words.append({"current_temperature": value, "hvac_action": "heating" if seconds else "idle"})
            if seconds:
                time.append(when + seconds)
                words.append({"current_temperature": value, "hvac_action": "idle"})
        self.made.states(HALL, time, ["heat"] * len(time), words)


def by_states(home: Home) -> dict[str, Any]:
    home.room("°C"), home.power("W")
    return {"temperature": ROOM, "heat": HEAT}


def by_states_in_fahrenheit(home: Home) -> dict[str, Any]:
    home.room("°F"), home.power("kW")
    return {"temperature": ROOM, "heat": HEAT}


def by_hourly_statistics(home: Home) -> dict[str, Any]:
    home.room_statistics("°C"), home.power_statistics()
    return {"temperature": ROOM, "heat": HEAT}


def by_hourly_statistics_in_fahrenheit_and_a_counter(home: Home) -> dict[str, Any]:
    home.room_statistics("°F"), home.counter_statistics()
    return {"temperature": ROOM, "heat": COUNTER}


def by_five_minute_statistics(home: Home) -> dict[str, Any]:
    home.room_statistics("°C", table="statistics_short_term"), home.counter_statistics("statistics_short_term")
    return {"temperature": ROOM, "heat": COUNTER}


def by_a_counter_with_resets(home: Home) -> dict[str, Any]:
    home.room("°C"), home.counted("Wh")
    return {"temperature": ROOM, "heat": COUNTER}


def by_a_thermostat(home: Home) -> dict[str, Any]:
    home.thermostat(False), home.power("W")
    return {"temperature": HALL, "heat": HEAT}


def by_a_thermostat_in_fahrenheit_that_burns(home: Home) -> dict[str, Any]:
    home.thermostat(True, burner=True)
    return {"temperature": HALL, "heat": HALL, "unit": "°F", "nominal_power": str(NOMINAL)}


def by_two_rooms_and_two_meters(home: Home) -> dict[str, Any]:
    home.room("°C", by=1.5), home.room("°C", entity="sensor.attic", by=-1.5)
    home.power("W", share=0.25), home.power("kW", entity="sensor.second", share=0.75)
    return {"temperature": f"{ROOM},sensor.attic", "heat": [HEAT, "sensor.second"]}


def by_two_rooms_of_their_areas(home: Home) -> dict[str, Any]:
    home.room("°C", by=0.5), home.room("°C", entity="sensor.attic", by=-1.5), home.counted("kWh")
    return {"temperature": [ROOM, "sensor.attic"], "heat": COUNTER, "areas": "60,20"}


def by_states_as_long_as_they_are_kept(home: Home) -> dict[str, Any]:
    """Ten days of states; before that only statistics are left."""
    gone, kept = slice(0, -240), slice(-240, None)
    home.room("°C", kept), home.power("kW", kept)
    home.room_statistics("°C", gone), home.power_statistics(gone)
    return {"temperature": ROOM, "heat": HEAT}


KINDS: tuple[Callable[[Home], dict[str, Any]], ...] = (
    by_states, by_states_in_fahrenheit, by_hourly_statistics, by_hourly_statistics_in_fahrenheit_and_a_counter,
    by_five_minute_statistics, by_a_counter_with_resets, by_a_thermostat, by_a_thermostat_in_fahrenheit_that_burns,
    by_two_rooms_and_two_meters, by_two_rooms_of_their_areas, by_states_as_long_as_they_are_kept,
)  # fmt: skip


def export(cluster: Cluster, folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every agent's database in a folder of its name; agent -> source and options."""
    time = cluster.time.asi8 // 10**9
    found = {}
    for number, name in enumerate(cluster.agents):
        values = (frame[name].to_numpy() for frame in (cluster.temperature, cluster.load))
        home = Home(folder / name, time, *values, schema=SCHEMAS[number % len(SCHEMAS)])
        options = KINDS[number % len(KINDS)](home)
        found[name] = f"homeassistant:{home.file}", {**options, "step": "1h"}
    return found
