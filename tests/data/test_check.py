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


def test_two_agents_are_a_problem_and_one_is_a_home_with_its_own_file(tmp_path):
    paths = write(tmp_path, zones_table(("a", "b")))
    [problem] = quality(*paths).problems
    assert "2 agents" in problem and "needs 3" in problem and len(read_cluster(*paths).agents) == 2
    own, weather = write(tmp_path, zones_table(("a",)))
    assert quality(own, weather).problems == quality(own).problems == ()


def test_without_weather_the_homes_are_judged_alone(tmp_path):
    zones, weather = write(tmp_path, zones_table().drop(index=[10, 11, 50, 60, 61, 62, 63, 64]))
    alone, beside = quality(zones), quality(zones, weather)
    assert alone == beside and alone.rows_kept == 2 * DAY - 5
    hot, _ = write(tmp_path, zones_table().assign(indoor_temp_c=70.0))
    assert any("looks like °F" in problem for problem in quality(hot).problems)


def test_a_thermostat_that_keeps_its_set_point_raises_no_suspicion(tmp_path):
    """Rooms that are held at 21 °C for most of the day, by sensors of a tenth and of half a degree."""
    rng = np.random.default_rng(8)
    hour = np.arange(8 * DAY) % DAY / 2
    for quantum in (0.1, 0.5):
        zones = zones_table(rows=8 * DAY)
        held = np.where((hour > 6) & (hour < 22), 21.0, 18.0 + 2.5 * np.exp(-((hour - 22) % 24) / 4))
        room = held + 0.4 * quantum * rng.uniform(-1, 1, len(hour))
        zones["indoor_temp_c"] = np.tile(np.round(room / quantum) * quantum, 3) + np.repeat([0, 1, 2], 8 * DAY)
        result = quality(*write(tmp_path, zones, weather_table(rows=8 * DAY)))
        assert [row.suspicion for row in result.agents] == [""] * 3 and result.notes == ()
        assert min(row.stuck_hours for row in result.agents) > 1


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
        lambda z: z.assign(load_kw=z["load_kw"].where(z["agent"] == "a")),
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


def test_notes_are_those_of_the_cluster_and_a_verdict_where_rows_are_lost(tmp_path):
    paths = write(tmp_path, zones_table().drop(index=3).assign(humidity=50))
    assert quality(*paths).notes == read_cluster(*paths).notes != ()
    verdict = (
        "a fit would keep 95 of 96 rows; most are lost by 'a' (1)",
        "leaving the costliest out would keep more rows: without 'a' 96",
    )
    assert quality(*paths, fill="0h").notes == (*read_cluster(*paths, fill="0h").notes, *verdict)


def test_what_a_fit_would_fill_keep_and_leave_out_is_said(tmp_path):
    agents = tuple("abcdef")
    zones = zones_table(agents, rows=4 * DAY)
    first = {agent: 4 * DAY * number for number, agent in enumerate(agents)}
    gone = [*range(first["b"] + 10, first["b"] + 13), *range(first["c"] + 20, first["c"] + 28)]
    gone += [*range(first["e"] + 2 * DAY, first["e"] + 4 * DAY)]
    result = quality(*write(tmp_path, zones.drop(index=gone), weather_table(rows=4 * DAY)))
    assert result.problems == ()
    rows = {row.agent: (row.missing, row.filled, row.days_out) for row in result.agents}
    assert rows == {"a": (0, 0, 0), "b": (3, 3, 0), "c": (8, 0, 0), "d": (0, 0, 0), "e": (96, 0, 2), "f": (0, 0, 0)}
    why = "it lacks 96 of 192 rows, on 2 days more than half"
    assert {row.agent: row.left_out for row in result.agents if row.left_out} == {"e": why}
    assert (result.rows, result.rows_kept, result.costs) == (192, 184, {"c": 8})
    assert result.notes == (
        "3 readings of agent 'b' filled across gaps of up to 2 h",
        f"agent 'e' left out: {why}",
        "8 of 192 time stamps dropped for all agents, a reading was missing (agent 'c' lacks 8)",
        "agent 'e' is out on days with less than half of the rows: "
        "2024-01-10 (0 of 48 rows), 2024-01-11 (0 of 48 rows)",
        "a fit would keep 184 of 192 rows; most are lost by 'c' (8)",
        "leaving the costliest out would keep more rows: without 'c' 192",
    )
    [e] = [row for row in result.agents if row.agent == "e"]
    assert [(day.day, day.has, day.of) for day in e.out_on] == [("2024-01-10", 0, 48), ("2024-01-11", 0, 48)]
    assert result.without == (("c", 192),)


def test_what_leaving_agents_out_would_give_is_what_it_gives(tmp_path):
    """Two homes that lack the same rows, and one that lacks others: told before, then tried."""
    zones = zones_table(tuple("abcdefgh"), rows=8 * DAY)
    first = {agent: 8 * DAY * number for number, agent in enumerate("abcdefgh")}
    gone = [first[agent] + row for agent, rows in (("b", range(20, 29)), ("c", range(20, 28)), ("f", range(90, 97)))
            for row in rows]  # fmt: skip
    zones, weather = zones.drop(index=gone), weather_table(rows=8 * DAY)
    found = quality(*write(tmp_path, zones, weather)).without
    assert [agent for agent, _ in found] == ["f", "b", "c"]
    for number, (_, rows) in enumerate(found, 1):
        out = [agent for agent, _ in found[:number]]
        assert quality(*write(tmp_path, zones[~zones["agent"].isin(out)], weather)).rows_kept == rows


def test_what_a_fit_would_keep_is_not_said_before_the_problems_are_mended(tmp_path):
    result = quality(*write(tmp_path, weather=weather_table().assign(outdoor_temp_c=280.0)))
    assert (result.rows, result.rows_kept, result.costs) == (None, None, {})
    assert {(row.filled, row.days_out, row.left_out) for row in result.agents} == {(None, None, "")}


def test_agents_left_out_do_not_count_towards_the_three_every_protocol_needs(tmp_path):
    zones = zones_table()
    paths = write(tmp_path, zones[(zones["agent"] != "b") | (zones["time"] < "2024-01-09")])
    [problem] = quality(*paths).problems
    assert "2 agents (without 1 left out), every protocol needs 3" in problem
    assert read_cluster(*paths).agents == ("a", "c")
