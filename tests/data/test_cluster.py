import numpy as np
import pandas as pd
import pytest

from atdm.data import Cluster
from atdm.errors import DataError, UsageError
from tests.clusters import tiny


def frames(rows=96, agents=("a1", "a2", "b1")):
    time = pd.date_range("2024-01-08", periods=rows, freq="30min", tz="UTC")
    t = np.arange(rows)[:, None]
    k = np.arange(len(agents))
    temperature = pd.DataFrame(20 + k + np.sin(t / 7 + k), index=time, columns=list(agents))
    load = pd.DataFrame(1 + k + np.cos(t / 5), index=time, columns=list(agents))
    outdoor = pd.Series(np.sin(t[:, 0] / 9), index=time)
    solar = pd.Series(0.3 * np.maximum(0, np.sin(t[:, 0] / 8)), index=time)
    return [temperature, load, outdoor, solar]


OWNER = pd.Series({"a1": "A", "a2": "A", "b1": "B"})


def test_frames_become_a_cluster_unchanged():
    temperature, load, outdoor, solar = frames()
    cluster = Cluster.from_frames(temperature, load, outdoor, solar)
    assert cluster.agents == ("a1", "a2", "b1")
    assert np.array_equal(cluster.temperature, temperature) and np.array_equal(cluster.load, load)
    assert np.array_equal(cluster.outdoor, outdoor) and np.array_equal(cluster.solar, solar)
    assert cluster.owner.to_dict() == {"a1": "a1", "a2": "a2", "b1": "b1"}
    assert (cluster.step, cluster.timezone, cluster.rows_dropped) == (pd.Timedelta("30min"), "UTC", 0)
    assert cluster.notes == ()
    assert (cluster.temperature.index.name, cluster.temperature.columns.name) == ("time", "agent")
    assert str(cluster.time.tz) == "UTC" and cluster.time[0] == temperature.index[0]


def test_later_changes_of_the_frames_do_not_reach_the_cluster():
    given = frames()
    cluster = Cluster.from_frames(*given)
    given[0].iloc[0, 0] = 50.0
    assert cluster.temperature.iloc[0, 0] == 20.0


def test_a_building_has_the_mean_temperature_and_the_summed_load_of_its_zones():
    temperature, load, outdoor, solar = frames()
    homes = Cluster.from_frames(temperature, load, outdoor, solar, owner=OWNER).by_building()
    assert homes.agents == ("A", "B")
    np.testing.assert_allclose(homes.temperature["A"], (temperature["a1"] + temperature["a2"]) / 2)
    np.testing.assert_allclose(homes.load["A"], load["a1"] + load["a2"])
    np.testing.assert_allclose(homes.load.sum(axis=1), load.sum(axis=1))
    assert homes.owner.to_dict() == {"A": "A", "B": "B"}
    assert homes.temperature.columns.name == "agent"


def test_select_keeps_rows_and_the_order_asked_for():
    cluster = Cluster.from_frames(*frames(), owner=OWNER)
    some = cluster.select(["b1", "a1"])
    assert some.agents == ("b1", "a1") and len(some.time) == len(cluster.time)
    assert some.owner.to_dict() == {"b1": "B", "a1": "A"}


@pytest.mark.parametrize("agents", [["nobody"], [], ["a1", "a1"]])
def test_select_refuses_strangers_nobody_and_doubles(agents):
    with pytest.raises(UsageError, match="'a1', 'a2', 'b1'"):
        Cluster.from_frames(*frames()).select(agents)


def test_a_missing_reading_that_is_not_filled_drops_its_row_for_all_and_splits_the_segment():
    given = frames()
    given[0].iloc[10, 1] = np.nan
    given[3].iloc[20] = np.nan
    cluster = Cluster.from_frames(*given, fill="0h")
    assert cluster.rows_dropped == 2 and len(cluster.time) == 94
    assert np.unique(cluster.segment).tolist() == [0, 1, 2]
    assert "2 of 96" in cluster.notes[0] and "'a2' lacks 1" in cluster.notes[0]


def test_phase_is_that_of_the_clock_of_the_cluster():
    cluster = Cluster.from_frames(*frames(), timezone="America/Chicago")
    assert cluster.phase(48)[:2].tolist() == [36, 37]  # 00:00 UTC is 18:00 in Chicago


def test_repr_shows_no_reading():
    assert repr(Cluster.from_frames(*frames())) == (
        "Cluster(3 agents, 96 rows of 30 min, 2024-01-08T00:00:00Z to 2024-01-09T23:30:00Z)"
    )


def naive(given):
    given[:] = [frame.tz_localize(None) for frame in given]


def other_index(given):
    given[1] = given[1].iloc[1:]


def other_agents(given):
    given[1] = given[1].rename(columns={"a1": "x"})


def unsorted(given):
    given[:] = [frame.iloc[::-1] for frame in given]


def irregular(given):
    given[:] = [frame.set_axis([*frame.index[:-1], frame.index[-1] + pd.Timedelta("7min")]) for frame in given]


def half_seconds(given):
    time = pd.date_range("2024-01-08", periods=96, freq="500ms", tz="UTC")
    given[:] = [frame.set_axis(time) for frame in given]


def one_row(given):
    given[:] = [frame.iloc[:1] for frame in given]


def put(number, value):
    def change(given):
        given[number] = given[number].astype(object)
        if given[number].ndim == 2:
            given[number].iloc[3, 0] = value
        else:
            given[number].iloc[3] = value

    return change


def times(number, factor, plus=0.0):
    def change(given):
        given[number] = given[number] * factor + plus

    return change


def all_missing(given):
    given[0][["a2", "b1"]] = np.nan  # one of three may be left out, not both


@pytest.mark.parametrize(
    ("change", "cause", "remedy"),
    [
        (naive, "time zone", "tz_localize"),
        (other_index, "load: its time stamps differ", "same index"),
        (other_agents, "same agents", "align"),
        (unsorted, "does not increase", "sort"),
        (irregular, "irregular step", "resample"),
        (half_seconds, "no whole number of seconds", "resample"),
        (one_row, "two time stamps", "more rows"),
        (put(0, "warm"), "temperature: holds something that is not a number", "float64"),
        (put(1, np.inf), "load: holds infinite values", "NaN"),
        (put(0, 85.0), "agent 'a1' is 85 at 2024-01-08T01:30:00Z, outside -30 to 70 °C", "leave the cell empty"),
        (times(0, 1.8, 32), "looks like °F", "(F - 32) / 1.8"),
        (times(0, 1, 273.15), "looks like K", "subtract 273.15"),
        (times(2, 1, 273.15), "outdoor has median 273", "subtract 273.15"),
        (times(1, 1000), "looks like W, not kW", "divide by 1000"),
        (times(3, 1000), "solar is", "check the unit"),
        (all_missing, "no time stamp has a reading of every agent", "leave agents or days out"),
    ],
)
def test_frames_are_held_to_the_rules_of_files(change, cause, remedy):
    given = frames()
    change(given)
    with pytest.raises(DataError) as error:
        Cluster.from_frames(*given)
    message = str(error.value)
    assert cause in message and remedy in message and "\n" not in message


@pytest.mark.parametrize("owner", [pd.Series({"a1": "A"}), OWNER.where(OWNER == "A"), pd.concat([OWNER, OWNER])])
def test_every_agent_needs_one_owner(owner):
    with pytest.raises(DataError, match="single building for each agent"):
        Cluster.from_frames(*frames(), owner=owner)


def test_one_agent_is_a_cluster_too():
    assert Cluster.from_frames(*frames(agents=("only",))).agents == ("only",)


def test_long_tables_give_the_cluster_of_wide_frames():
    wide = tiny(3, agents=5, rows=60)
    zones = pd.concat(
        pd.DataFrame({"time": wide.time, "agent": name, "indoor_temp_c": wide.temperature[name].to_numpy(),
                      "load_kw": wide.load[name].to_numpy(), "building": f"house of {name}"})
        for name in wide.agents
    )  # fmt: skip
    weather = wide.weather.reset_index(names="time")
    long = Cluster.from_frames(zones, weather)
    assert long.agents == wide.agents and set(long.owner) == {f"house of {name}" for name in wide.agents}
    np.testing.assert_array_equal(long.temperature, wide.temperature)
    np.testing.assert_array_equal(long.load, wide.load)
    np.testing.assert_allclose(long.solar, wide.solar, rtol=1e-15)
    with pytest.raises(DataError, match="weather: has no column solar_w_m2"):
        Cluster.from_frames(zones, weather.drop(columns="solar_w_m2"))
    with pytest.raises(DataError, match="has two rows"):
        Cluster.from_frames(pd.concat([zones, zones[:1]]), weather)
