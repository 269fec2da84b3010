"""Home Assistant as a source: what comes out of a recorder's database is what the home did."""

import sqlite3

import numpy as np
import pytest

from atdm.data.quantum import sensor_quantum
from atdm.data.sources import open_source
from atdm.data.units import ENERGY, POWER, TEMPERATURE
from atdm.errors import DataError, UsageError

from .recorded import ENERGY as COUNTER
from .recorded import POWER as POWER_SENSOR
from .recorded import SCHEMAS, Recorded
from .recorded import TEMPERATURE as SENSOR

START, STEP, ROWS = 1_700_006_400, 1800, 96  # midnight UTC, half-hours, two days
END = START + ROWS * STEP
ROOM, HEAT = "sensor.living_temperature", "sensor.heat_pump_power"
NAMES = {"temperature": ROOM, "heat": HEAT}


def home(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stamps, temperatures [°C] and heat [kW] of a home's rows."""
    rng = np.random.default_rng(seed)
    time = START + STEP * np.arange(ROWS)
    return (
        time,
        np.round(20 + np.sin(np.arange(ROWS) / 7) + rng.normal(0, 0.1, ROWS), 2),
        rng.integers(0, 4000, ROWS) / 1000,
    )


@pytest.fixture
def database(tmp_path):
    """A home that has run all the time, room in °C and heat in W, by states."""
    time, temperature, load = home()
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    made.states(ROOM, time, temperature, {**SENSOR, "unit_of_measurement": "°C"})
    made.states(HEAT, time, 1000 * load, {**POWER_SENSOR, "unit_of_measurement": "W"})
    made.states("sun.sun", [END + 1], ["below_horizon"], {})
    return made, tmp_path / "home.db"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_states_of_every_schema_become_the_rows_they_were(tmp_path, schema):
    time, temperature, load = home()
    made = Recorded(tmp_path / "home.db", schema)
    made.run(START - 60)
    made.states(ROOM, time, temperature * 1.8 + 32, {**SENSOR, "unit_of_measurement": "°F"})
    made.states(HEAT, time, 1000 * load, {**POWER_SENSOR, "unit_of_measurement": "W"})
    made.states("sun.sun", [END + 1], ["below_horizon"], {})
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", NAMES).rows()
    np.testing.assert_array_equal(rows.time, time)
    np.testing.assert_allclose(rows.temperature, temperature, atol=1e-9)
    np.testing.assert_allclose(rows.load, load, atol=1e-9)
    assert rows.notes == (f"{ROOM}: 96 rows from states, in steps of 0.01 °C", f"{HEAT}: 96 rows from states")


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(("table", "period"), [("statistics", 3600), ("statistics_short_term", 300)])
def test_statistics_of_every_schema_become_the_rows_they_were(tmp_path, schema, table, period):
    """With no state left, from means of the room and sums of the counter, each at the end of its period."""
    step = max(period, STEP)
    time, temperature, load = home()
    time = START + step * np.arange(ROWS)
    made = Recorded(tmp_path / "home.db", schema)
    parts = step // period
    starts = (time[:, None] + period * np.arange(parts)).ravel()
    made.statistics(ROOM, table, starts, unit="°C", mean=np.repeat(temperature, parts))
    counted = 1000.0 + np.cumsum(np.repeat(load * period / 3600, parts))
    made.statistics("sensor.heat_energy", table, np.append(starts[0] - period, starts), unit="kWh",
                    total=np.append(1000.0, counted))  # fmt: skip
    source = open_source(
        f"homeassistant:{tmp_path / 'home.db'}",
        {"temperature": ROOM, "heat": "sensor.heat_energy", "step": f"{step // 60}min"},
    )
    rows = source.rows()
    np.testing.assert_array_equal(rows.time, time)
    np.testing.assert_allclose(rows.temperature, temperature, atol=1e-9)
    np.testing.assert_allclose(rows.load, load, atol=1e-9)
    assert ("hourly" if period == 3600 else "5-minute") in rows.notes[0]


def test_half_hours_are_not_made_of_hourly_statistics_and_that_is_said(database):
    made, path = database
    before = START - 86400 * 3
    hours = before + 3600 * np.arange(72)
    made.statistics(ROOM, "statistics", hours, unit="°C", mean=np.full(72, 19.0))
    made.statistics(HEAT, "statistics", hours, unit="W", mean=np.full(72, 500.0))
    rows = open_source(f"homeassistant:{path}", NAMES).rows()
    assert rows.time[0] == START and len(rows) == ROWS
    assert rows.notes[-1] == "hourly statistics go back to 2023-11-12T00:00:00Z: step=1h would use them"
    hourly = open_source(f"homeassistant:{path}", {**NAMES, "step": "1h"}).rows()
    assert hourly.time[0] == before and len(hourly) == 72 + 48
    np.testing.assert_allclose(hourly.temperature[:72], 19.0)
    np.testing.assert_allclose(hourly.load[:72], 0.5)


def test_means_are_weighted_by_time(tmp_path):
    """A room that was at 20 °C for twenty minutes and at 23 °C for ten was at 21 °C in that half-hour."""
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    made.states(ROOM, [START, START + 1200], [20, 23], {**SENSOR, "unit_of_measurement": "°C"})
    made.states(HEAT, [START, START + 600, START + 605], [0, 3000, 0], {**POWER_SENSOR, "unit_of_measurement": "W"})
    made.states("sun.sun", [START + 2 * STEP + 5], ["below_horizon"], {})
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", NAMES).rows()
    np.testing.assert_allclose(rows.temperature, [21, 23])
    np.testing.assert_allclose(rows.load, [3 * 5 / 1800, 0])


@pytest.mark.parametrize("word", ["unknown", "unavailable", "", None])
def test_states_that_are_none_leave_the_row_without_a_reading(tmp_path, word):
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    made.states(ROOM, START + STEP * np.arange(4), [20, word, 21, 22], {**SENSOR, "unit_of_measurement": "°C"})
    made.states(HEAT, [START], [1], {**POWER_SENSOR, "unit_of_measurement": "kW"})
    made.states("sun.sun", [START + 4 * STEP + 5], ["below_horizon"], {})
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", NAMES).rows()
    np.testing.assert_allclose(rows.temperature, [20, np.nan, 21, 22])
    np.testing.assert_allclose(rows.load, [1, 1, 1, 1])


@pytest.mark.parametrize("crashed", [False, True])
def test_while_the_server_was_off_nothing_is_known(tmp_path, crashed):
    """A run that crashed has its end written at the next start: the last state before that is its end."""
    made = Recorded(tmp_path / "home.db")
    off, on = START + 2 * STEP, START + 5 * STEP
    made.run(START - 60, on if crashed else off, crashed=crashed)
    made.run(on)
    for entity, unit, kind in ((ROOM, "°C", SENSOR), (HEAT, "kW", POWER_SENSOR)):
        made.states(entity, [START, on], [20, 22], {**kind, "unit_of_measurement": unit})
    made.states("sun.sun", [off, on + 2 * STEP + 5], ["above_horizon", "below_horizon"], {})
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", NAMES).rows()
    np.testing.assert_array_equal((rows.time - START) // STEP, [0, 1, 5, 6])
    np.testing.assert_allclose(rows.temperature, [20, 20, 22, 22])


def test_a_state_older_than_its_hold_is_none(tmp_path):
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    made.states(ROOM, [START], [20], {**SENSOR, "unit_of_measurement": "°C"})
    made.states(HEAT, [START], [1], {**POWER_SENSOR, "unit_of_measurement": "kW"})
    made.states("sun.sun", [START + 100 * STEP], ["below_horizon"], {})
    assert len(open_source(f"homeassistant:{tmp_path / 'home.db'}", NAMES).rows()) == 48
    assert len(open_source(f"homeassistant:{tmp_path / 'home.db'}", {**NAMES, "hold": "2h"}).rows()) == 4


def test_a_counter_that_starts_again_counts_on(tmp_path):
    """Two resets, one that the meter says (`last_reset`) at a higher value; and a glitch, which is none."""
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    read = [10.0, 11.0, 0.5, 1.0, 0.97, 1.5, 2.0]
    resets = ["a", "a", "a", "a", "a", "a", "b"]
    words = [{**COUNTER, "unit_of_measurement": "kWh", "last_reset": reset} for reset in resets]
    made.states("sensor.heat_energy", START + STEP * np.arange(7), read, words)
    made.states(ROOM, [START], [20], {**SENSOR, "unit_of_measurement": "°C"})
    made.states("sun.sun", [START + 7 * STEP], ["below_horizon"], {})
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", {**NAMES, "heat": "sensor.heat_energy"}).rows()
    np.testing.assert_allclose(rows.load[:6], 2 * np.array([1.0, 0.5, 0.5, 0.0, 0.5, 2.0]), atol=1e-12)


def test_energy_is_what_lies_between_the_ends_of_a_row(tmp_path):
    """Half-hour energy from 5-minute sums takes in the first and the last of them (max − min would lose one)."""
    made = Recorded(tmp_path / "home.db")
    starts = START - 300 + 300 * np.arange(1 + 2 * 6)
    made.statistics("sensor.heat_energy", "statistics_short_term", starts, unit="Wh", total=100.0 * np.arange(13))
    made.statistics(ROOM, "statistics_short_term", starts, unit="K", mean=np.full(13, 293.15))
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", {**NAMES, "heat": "sensor.heat_energy"}).rows()
    np.testing.assert_array_equal(rows.time, [START, START + STEP])
    np.testing.assert_allclose(rows.load, [1.2, 1.2])  # 600 Wh in half an hour
    np.testing.assert_allclose(rows.temperature, [20, 20])


def test_a_thermostat_gives_temperature_and_heat_by_its_nominal_power(tmp_path):
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    times = START + np.array([0, 600, 1800, 2700, 5400])
    words = [
        {"current_temperature": 68.0, "hvac_action": "heating"},
        {"current_temperature": 68.0, "hvac_action": "idle"},
        {"current_temperature": 69.8, "hvac_action": "preheating"},
        {"current_temperature": 69.8, "hvac_action": "off"},
        {"current_temperature": None, "hvac_action": "idle"},
    ]
    made.states("climate.hall", times, ["heat"] * 4 + ["unavailable"], words)
    made.states("sun.sun", [START + 4 * STEP], ["below_horizon"], {})
    names = {"temperature": "climate.hall", "heat": "climate.hall", "nominal_power": "6", "unit": "°F"}
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", names).rows()
    np.testing.assert_allclose(rows.temperature, [20, 21, 21])
    np.testing.assert_allclose(rows.load, [2, 3, 0])
    with pytest.raises(UsageError, match="only says whether it heats: give its nominal_power"):
        open_source(f"homeassistant:{tmp_path / 'home.db'}", {**names, "nominal_power": ""})
    with pytest.raises(DataError, match="climate.hall has median 68.9.*give the option unit=°F"):
        open_source(f"homeassistant:{tmp_path / 'home.db'}", {**names, "unit": ""}).rows()


@pytest.mark.parametrize(("areas", "mean"), [("", 21.0), ("30,10", 20.5), ([30.0, 10.0], 20.5)])
def test_rooms_are_averaged_evenly_or_by_area_and_meters_summed(tmp_path, areas, mean):
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    made.states("sensor.a", [START], [20], {**SENSOR, "unit_of_measurement": "°C"})
    made.states("sensor.b", [START, START + STEP], [71.6, "unavailable"], {**SENSOR, "unit_of_measurement": "°F"})
    made.states("sensor.p", [START], [1500], {**POWER_SENSOR, "unit_of_measurement": "W"})
    made.states("sensor.q", [START], [0.5], {**POWER_SENSOR, "unit_of_measurement": "kW"})
    made.states("sun.sun", [START + 2 * STEP + 5], ["below_horizon"], {})
    names = {"temperature": ["sensor.a", "sensor.b"], "heat": "sensor.p, sensor.q", "areas": areas}
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", names).rows()
    np.testing.assert_allclose(rows.temperature, [mean, np.nan])  # where a room is missing, the mean is another's
    np.testing.assert_allclose(rows.load, [2, 2])


def test_rows_since_a_stamp_are_the_last_of_all_rows(database):
    _, path = database
    source = open_source(f"homeassistant:{path}", NAMES)
    whole = source.rows()
    for since in (START - 7200, START + 10 * STEP, START + 10 * STEP + 1, END - STEP):
        part, expected = source.rows(since), whole.after(since)
        np.testing.assert_array_equal(part.time, expected.time)
        np.testing.assert_allclose(part.temperature, expected.temperature, atol=1e-9)
        np.testing.assert_allclose(part.load, expected.load, atol=1e-9)
    assert len(source.rows(END)) == 0


def test_rows_grow_as_the_recorder_writes(database):
    made, path = database
    source = open_source(f"homeassistant:{path}", NAMES)
    known = source.rows()
    made.states(ROOM, [END], [18], {**SENSOR, "unit_of_measurement": "°C"})
    made.states("sun.sun", [END + STEP + 1], ["above_horizon"], {})
    new = source.rows(int(known.time[-1]))
    assert new.time.tolist() == [END] and new.temperature.tolist() == [18.0]
    assert new.load[0] == pytest.approx(known.load[-1])  # it holds until something else is written


def test_the_database_is_opened_read_only_and_may_be_in_use(database):
    _, path = database
    before = path.read_bytes()
    with sqlite3.connect(path) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("BEGIN IMMEDIATE")
        assert len(open_source(f"homeassistant:{path}", NAMES).rows()) == ROWS
        writer.rollback()
        writer.execute("PRAGMA journal_mode=DELETE")
    writer.close()
    assert len(path.read_bytes()) == len(before)
    source = open_source(f"homeassistant:{path}", NAMES)
    for words in ("DELETE FROM states", "DROP TABLE states", "CREATE TABLE x (a)"):
        with pytest.raises(DataError, match="readonly.*only read"):
            source.recorder.database.query(words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heat": HEAT}, r"give its entity for temperature \(--temperature ENTITY\): there are sensor.living_temp"),
        ({"temperature": ROOM}, r"give its entity for heat \(--heat ENTITY\): there are sensor.heat_pump_power"),
        (
            {**NAMES, "temperature": "sensor.living_temp"},
            "has no entity 'sensor.living_temp'; did you mean sensor.living_temperature",
        ),
        ({**NAMES, "temperature": HEAT}, "sensor.heat_pump_power is in W, which is none of temperature"),
        ({**NAMES, "heat": ROOM}, "sensor.living_temperature is in °C, neither power nor energy"),
        ({**NAMES, "areas": "1,2"}, "2 areas for 1 rooms"),
        ({**NAMES, "areas": "-1"}, "give positive numbers"),
        ({**NAMES, "step": "7min"}, "does not divide the day"),
        ({**NAMES, "unit": "C"}, "unit 'C' is none of temperature: write °C, °F, K"),
        ({**NAMES, "colour": "red"}, "homeassistant: has no option 'colour': it takes temperature, heat, areas"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(database, options, words):
    with pytest.raises((DataError, UsageError), match=words):
        open_source(f"homeassistant:{database[1]}", options).rows()


def test_databases_that_are_none_of_home_assistant_are_refused(tmp_path):
    path = tmp_path / "home.db"
    with pytest.raises(DataError, match="no such file"):
        open_source(f"homeassistant:{path}", NAMES).rows()
    path.write_text("time,agent\n" * 100)
    with pytest.raises(DataError, match="not a database"):
        open_source(f"homeassistant:{path}", NAMES).rows()
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE readings (time, value)")
    other.close()
    with pytest.raises(DataError, match="is no recorder database of Home Assistant"):
        open_source(f"homeassistant:{path}", NAMES).rows()
    Recorded(tmp_path / "old.db", 41)
    with pytest.raises(DataError, match="schema 41, of a Home Assistant before 2024.3: update"):
        open_source(f"homeassistant:{tmp_path / 'old.db'}", NAMES).rows()


def test_units_are_those_of_physics():
    """Against the SI definitions: a kWh is 3.6 MJ, a BTU 1055.05585262 J, a calorie 4.184 J."""
    assert ENERGY["J"] * 3.6e6 == pytest.approx(ENERGY["kWh"]) and ENERGY["GJ"] == pytest.approx(1e3 / 3.6)
    assert [ENERGY["Gcal"] / 1e9, ENERGY["cal"]] == pytest.approx([4.184 * ENERGY["J"]] * 2)
    assert POWER["BTU/h"] == pytest.approx(1055.05585262 / 3600 / 1000)
    assert POWER["mW"] * 1e9 == pytest.approx(POWER["MW"])
    assert [celsius_of(32.0, "°F"), celsius_of(212.0, "°F"), celsius_of(0.0, "K")] == pytest.approx([0, 100, -273.15])


def celsius_of(value: float, unit: str) -> float:
    factor, offset = TEMPERATURE[unit]
    return value * factor + offset


def coarse(step: float, seed: int = 4, days: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """When a sensor of this step changed, and to what [°C]: many times a row, as a room with a thermostat does."""
    rng = np.random.default_rng(seed)
    time = np.sort(START + rng.choice(days * 86400, 40 * days, replace=False))
    return time, step * np.round((20 + 3 * np.sin(time / 9e4) + rng.normal(0, step, len(time))) / step)


@pytest.mark.parametrize(("unit", "step", "found"), [("°C", 0.5, 0.5), ("°C", 0.1, 0.1), ("°F", 5 / 9, 5 / 9)])
def test_the_step_of_a_sensor_is_told_from_its_states_because_means_hide_it(tmp_path, unit, step, found):
    time, temperature = coarse(step)
    shown = np.round(temperature * 1.8 + 32) if unit == "°F" else np.round(temperature, 1)
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    made.states(ROOM, time, shown, {**SENSOR, "unit_of_measurement": unit})
    made.states(HEAT, time, np.full(len(time), 800), {**POWER_SENSOR, "unit_of_measurement": "W"})
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", NAMES).rows()
    assert sensor_quantum(rows.temperature) < 0.01  # what an agent saw before
    assert rows.quantum == pytest.approx(found, abs=1e-4)
    assert rows.after(int(rows.time[5])).quantum == rows.quantum


def test_of_several_rooms_the_coarsest_step_counts(tmp_path):
    made = Recorded(tmp_path / "home.db")
    made.run(START - 60)
    for entity, step in ((ROOM, 0.1), ("sensor.kitchen_temperature", 0.5), ("sensor.bath_temperature", 0.01)):
        time, temperature = coarse(step)
        made.states(entity, time, np.round(temperature, 2), {**SENSOR, "unit_of_measurement": "°C"})
    made.states(HEAT, time, np.full(len(time), 800), {**POWER_SENSOR, "unit_of_measurement": "W"})
    rooms = [ROOM, "sensor.kitchen_temperature", "sensor.bath_temperature"]
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", {"temperature": rooms, "heat": HEAT}).rows()
    assert rows.quantum == pytest.approx(0.5)
    assert [note.rpartition("steps of ")[2] for note in rows.notes[:3]] == ["0.1 °C", "0.5 °C", "0.01 °C"]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_where_states_are_gone_the_lowest_and_highest_of_each_hour_tell_the_step(tmp_path, schema):
    rng, hours = np.random.default_rng(5), START + 3600 * np.arange(240)
    low = np.round(20 + 2 * np.sin(np.arange(240) / 9)) + 0.5 * rng.integers(0, 3, 240)
    made = Recorded(tmp_path / "home.db", schema)
    made.statistics(ROOM, "statistics", hours, unit="°C", mean=low + rng.uniform(0, 0.5, 240),
                    extremes=(low, low + 0.5))  # fmt: skip
    made.statistics(HEAT, "statistics", hours, unit="W", mean=np.full(240, 900.0))
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", {**NAMES, "step": "1h"}).rows()
    assert len(rows) == 240 and rows.quantum == pytest.approx(0.5)
    assert rows.notes[0] == f"{ROOM}: 240 rows from hourly statistics, in steps of 0.5 °C"


def test_where_nothing_tells_the_step_the_owner_is_asked_to_declare_it(tmp_path):
    hours = START + 3600 * np.arange(48)
    made = Recorded(tmp_path / "home.db")
    made.statistics(ROOM, "statistics", hours, unit="°C", mean=np.linspace(19, 21, 48))
    made.statistics(HEAT, "statistics", hours, unit="W", mean=np.full(48, 900.0))
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", {**NAMES, "step": "1h"}).rows()
    assert rows.quantum == 0
    assert rows.notes[-1].startswith(f"{ROOM}: no state is left that shows the step of the sensor")
    assert "--quantum" in rows.notes[-1]
