import numpy as np
import pandas as pd
import pytest

from atdm.data import quality, read_cluster
from atdm.errors import DataError

from .builders import DAY, weather_table, write, zones_table


def test_good_tables_have_no_problem(tmp_path):
    result = quality(*write(tmp_path))
    assert (result.problems, result.notes) == ((), ())
    row = result.agents[1]
    assert (row.agent, row.rows, row.gaps, row.missing, row.suspicion) == ("b", 2 * DAY, 0, 0, "")
    assert (row.first, row.last) == (pd.Timestamp("2024-01-08 00:00Z"), pd.Timestamp("2024-01-09 23:30Z"))
    assert row.step == pd.Timedelta("30min") and row.stuck_hours < 2
    values = zones_table().query("agent == 'b'")["indoor_temp_c"]
    assert (row.min, row.max) == (values.min(), values.max())


def test_gaps_missing_and_stuck_readings_are_counted_per_agent(tmp_path):
    zones = zones_table().drop(index=[10, 11, 50])
    zones.loc[20:22, "load_kw"] = np.nan
    zones.loc[zones["agent"] == "c", "indoor_temp_c"] = 21.0
    a, b, c = quality(*write(tmp_path, zones)).agents
    assert (a.rows, a.gaps, a.missing) == (2 * DAY - 3, 2, 6)
    assert (b.rows, b.gaps, b.missing) == (2 * DAY, 0, 0)
    assert c.stuck_hours == 47.5 and c.suspicion == "stuck"


def test_all_problems_are_listed_not_only_the_first(tmp_path):
    zones = zones_table()
    zones.loc[zones["agent"] == "a", "indoor_temp_c"] = zones["indoor_temp_c"] * 1.8 + 32
    zones.loc[zones["agent"] == "b", "load_kw"] *= 1000
    zones.loc[250, "indoor_temp_c"] = 85.0
    result = quality(*write(tmp_path, zones, weather_table(rows=DAY).assign(outdoor_temp_c=280.0)))
    for cause in ("°F", "outside -30 to 70", "looks like W", "looks like K", "48 of 96 stamps"):
        assert sum(cause in problem for problem in result.problems) == 1, cause
    assert [row.suspicion for row in result.agents] == ["looks like °F", "looks like W", "outside -30 to 70 °C, spikes"]


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_agents_are_a_problem(tmp_path, count):
    paths = write(tmp_path, zones_table(("a", "b")[:count]))
    [problem] = quality(*paths).problems
    assert f"{count} agent" in problem and "needs 3" in problem
    assert len(read_cluster(*paths).agents) == count  # one agent's own file is readable all the same


def test_unreadable_zones_leave_an_empty_table_and_a_problem(tmp_path):
    _, weather = write(tmp_path, weather=weather_table().assign(outdoor_temp_c=280.0))
    result = quality(tmp_path / "nowhere.csv", weather)
    assert result.agents == () and len(result.problems) == 2
    assert "no such file" in result.problems[0] and "looks like K" in result.problems[1]


def test_unreadable_weather_leaves_the_table_of_agents(tmp_path):
    zones, weather = write(tmp_path)
    weather.write_text("")
    result = quality(zones, weather)
    assert len(result.agents) == 3 and "weather.csv: is empty" in result.problems[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda z: z.assign(load_kw=z["load_kw"].where(z["agent"] != "b")),
        lambda z: z.assign(time=z["time"] + pd.to_timedelta(np.where(z["agent"] == "b", 7, 0), unit="min")),
        lambda z: z.groupby("agent").head(1),
        lambda z: z.iloc[::-1],
    ],
)
def test_quality_finds_the_problem_the_strict_reader_raises(tmp_path, change):
    paths = write(tmp_path, change(zones_table()))
    with pytest.raises(DataError) as error:
        read_cluster(*paths)
    assert str(error.value) in quality(*paths).problems


def test_notes_are_those_of_the_cluster(tmp_path):
    paths = write(tmp_path, zones_table().drop(index=3).assign(humidity=50))
    assert quality(*paths).notes == read_cluster(*paths).notes != ()
