"""Home Assistant as a source: what a real one (2025.4.4) was seen to write, in a recorder's database of the tests."""

import numpy as np
import pytest

from atdm.data.importing import import_source
from atdm.data.sources import open_source
from atdm.errors import DataError, UsageError

from .recorded import ENERGY, POWER, TEMPERATURE, Recorded

START, STEP = 1_700_006_400, 1800  # midnight UTC, half-hours
ROOM, HEAT = "sensor.living_temperature", "sensor.heat_pump_power"
NAMES = {"temperature": ROOM, "heat": HEAT}

# The server ran, was off from OFF to ON, and at its start made the statistics that lacked of the last state, and
# restored the counter.
OFF, ON = START + 4 * STEP + 600, START + 12 * STEP + 240
COUNTER = "sensor.heat_energy"


def interrupted(path, *, runs=True, crashed=False):
    """A room that warms by 0.1 °C and a meter that counts 0.1 kWh every 5 min, also while the server was off."""
    made = Recorded(path, 50)
    if runs:
        made.run(START, ON if crashed else OFF, crashed=crashed)
        made.run(ON)
    every = np.arange(START, START + 24 * STEP, 300)
    on = every[(every < OFF) | (every >= ON)]
    seen = np.where(
        (every >= OFF) & (every < ON), every[every < OFF][-1], every
    )  # the state that each period was made of
    written = np.where((every + 300 > OFF) & (every < ON), ON + 60.0, every + 310.0)
    warm, counted = 15.0 + (seen - START) / 3000, (seen - START) / 3000
    if runs:
        again = [ON + 5.0]  # restored before it is read; after a crash to an older value
        value = (every[every < OFF][-2 if crashed else -1] - START) / 3000
        made.states(ROOM, on, (15.0 + (on - START) / 3000).round(1), {**TEMPERATURE, "unit_of_measurement": "°C"})
        made.states(COUNTER, [*on, *again], [*((on - START) / 3000).round(1), round(value, 1)],
                    {**ENERGY, "unit_of_measurement": "kWh"})  # fmt: skip
    table = "statistics_short_term"
    made.statistics(ROOM, table, every, unit="°C", mean=warm, extremes=(warm, warm), made=written)
    made.statistics(COUNTER, table, every, unit="kWh", total=counted, made=written)
    return path


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("crashed", [True, False])
def test_statistics_made_of_the_last_state_while_the_server_was_off_are_no_readings(tmp_path, runs, crashed):
    path = interrupted(tmp_path / "home.db", runs=runs, crashed=crashed)
    rows = open_source(f"homeassistant:{path}", {"temperature": ROOM, "heat": COUNTER}).rows()
    known = ~np.isnan(rows.load)
    np.testing.assert_allclose(rows.load[known], 1.2, atol=0.21)  # 0.1 kWh in 5 min; nothing of what was off in one row
    middle = 15.0 + (rows.time + (STEP - 300) / 2 - START) / 3000
    np.testing.assert_allclose(rows.temperature, middle, atol=0.3)
    lacking = np.setdiff1d(START + STEP * np.arange(24), rows.time[known])
    assert set(START + STEP * np.arange(5, 12)) <= set(lacking.tolist()) and len(lacking) <= 10


def test_an_hours_mean_of_a_few_minutes_is_no_reading_where_that_can_be_seen(tmp_path):
    made = Recorded(tmp_path / "home.db", 50)
    made.run(START - 60)
    hours = START + 3600 * np.arange(8)
    made.states(HEAT, hours, ["1000"] * 8, {**POWER, "unit_of_measurement": "W"})
    fives = np.arange(START + 4 * 3600, START + 8 * 3600, 300)
    fives = fives[(fives < START + 5 * 3600 + 600) | (fives >= START + 6 * 3600)]  # unavailable for 50 min
    for table, start in (("statistics", hours), ("statistics_short_term", fives)):
        made.statistics(ROOM, table, start, unit="°C", mean=np.full(len(start), 20.0))
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", {**NAMES, "step": "1h"}).rows()
    np.testing.assert_array_equal(rows.time[np.isnan(rows.temperature)], [START + 5 * 3600])


def test_a_few_states_after_a_purge_do_not_tell_the_step_of_a_sensor(tmp_path):
    made = Recorded(tmp_path / "home.db", 50)
    made.run(START - 60)
    hours = START + 3600 * np.arange(48)
    low = (20 + np.sin(np.arange(48))).round(1)
    made.statistics(ROOM, "statistics", hours, unit="°C", mean=low + 0.13, extremes=(low, low + 0.3))
    made.statistics(HEAT, "statistics", hours, unit="W", mean=np.full(48, 900.0))
    made.states(ROOM, hours[-3:], ["21.6", "20.4", "20.4"], {**TEMPERATURE, "unit_of_measurement": "°C"})
    rows = open_source(f"homeassistant:{tmp_path / 'home.db'}", {**NAMES, "step": "1h"}).rows()
    assert rows.quantum == pytest.approx(0.1)


def test_entities_are_offered_by_their_unit_and_not_by_their_name(tmp_path):
    made = Recorded(tmp_path / "home.db", 50)
    made.run(START - 60)
    for name, unit in (("sensor.salon", "°C"), ("sensor.chaudiere", "W"), ("sensor.battery_temp", "%")):
        made.states(name, [START], ["20"], {"unit_of_measurement": unit})
    made.states("input_boolean.heater", [START], ["off"], {})
    made.statistics("sensor.long_gone", "statistics", [START - 86400], unit="kWh", total=[1.0])
    source = f"homeassistant:{tmp_path / 'home.db'}"
    with pytest.raises(UsageError, match=r"ENTITY\): there are sensor.salon \(°C\)$"):
        open_source(source, {}).rows()
    with pytest.raises(UsageError, match=r"there are sensor.chaudiere \(W\), sensor.long_gone \(kWh\)$"):
        open_source(source, {"temperature": "sensor.salon"}).rows()
    with pytest.raises(DataError, match="no entity 'sensor.saloon'; did you mean sensor.salon: check"):
        open_source(source, {"temperature": "sensor.saloon", "heat": "sensor.chaudiere"}).rows()


def test_why_there_is_no_row_is_said(tmp_path):
    made = Recorded(tmp_path / "home.db", 50)
    made.run(START)
    for name, unit in ((ROOM, "°C"), (HEAT, "W")):
        made.states(name, [START, START + 120], ["20", "21"], {"unit_of_measurement": unit})
    source = open_source(f"homeassistant:{tmp_path / 'home.db'}", NAMES)
    known = r"\(sensor.living_temperature: no row of 30 min, known from 2023-11-15T00:00:00Z to 2023-11-15T00:02:00Z; "
    with pytest.raises(DataError, match=known):
        import_source(source)


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("homeassistant:homeassistant.local:8123", {}, "a server that runs is asked at ws://HOST:8123"),
        ("homeassistant:home.db", {"token_file": "token"}, "a server that runs is asked at ws://HOST:8123"),
        ("homeassistant:.", {}, "is a folder: give home-assistant_v2.db in it"),
        ("homeassistant", {}, "is no table of ours: write homeassistant:ADDRESS"),
        ("config/home-assistant_v2.db", NAMES, "write homeassistant:config/home-assistant_v2.db"),
    ],
)
def test_an_address_that_is_nearly_right_is_put_right(spec, options, words):
    with pytest.raises(UsageError, match=words):
        open_source(spec, options)
