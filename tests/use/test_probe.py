"""An experiment is balanced, keeps comfort, depends on nothing but its seed, and its files are what others read."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml

import atdm
from atdm.data.probe import read_probe, windows_of
from atdm.report.probe_files import probe_files
from atdm.use.probe import plan_probe

START = pd.Timestamp("2024-01-22T00:00", tz="Europe/Berlin")


@pytest.fixture(scope="module")
def probe():
    return plan_probe(START, setpoint=20.5, comfort=(19.0, 22.0), timezone="Europe/Berlin", seed=3)


def test_five_days_of_four_hours_up_down_and_as_usual(probe):
    blocks = probe.blocks
    assert len(blocks) == 30 and blocks["time"][0] == START
    assert (blocks["until"] - blocks["time"] == pd.Timedelta("4h")).all()
    assert (blocks["until"][:-1].to_numpy() == blocks["time"][1:].to_numpy()).all()
    assert blocks["setpoint_offset_k"].value_counts().to_dict() == {1.0: 10, -1.0: 10, 0.0: 10}
    assert probe.hours_moved == 80


def test_the_same_seed_is_the_same_plan_and_another_one_is_not(probe):
    again = plan_probe(START, setpoint=20.5, comfort=(19.0, 22.0), timezone="Europe/Berlin", seed=3)
    other = plan_probe(START, setpoint=20.5, comfort=(19.0, 22.0), timezone="Europe/Berlin", seed=4)
    assert again.blocks.equals(probe.blocks) and not other.blocks.equals(probe.blocks)


def test_steps_say_little_about_the_time_of_day(probe):
    offsets = probe.blocks["setpoint_offset_k"].to_numpy().reshape(5, 6)
    drawn = np.random.default_rng(0).permuted(np.tile(offsets.ravel(), (500, 1)), axis=1).reshape(500, 5, 6)
    usual = np.median((drawn.mean(axis=1) ** 2).sum(axis=1))
    assert (offsets.mean(axis=0) ** 2).sum() < 0.3 * usual


def test_comfort_limits_are_kept():
    tight = plan_probe(START, setpoint=20.0, comfort=(19.5, 20.6), seed=0)
    points = 20.0 + tight.blocks["setpoint_offset_k"]
    assert points.min() == 19.5 and points.max() == pytest.approx(20.6)
    with pytest.raises(atdm.UsageError, match="widen --comfort"):
        plan_probe(START, setpoint=20.0, comfort=(19.9, 20.1))
    with pytest.raises(atdm.UsageError, match="widen --comfort"):
        plan_probe(START, setpoint=23.0, comfort=(19.0, 22.0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block": "5h"}, "whole number of blocks"),
        ({"days": 1}, "at least 12"),
        ({"step": 0.0}, "up to 3 K"),
        ({"setpoint": 20.0}, "give both or neither"),
        ({"timezone": "Mars/Base"}, "unknown time zone"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(options, words):
    with pytest.raises(atdm.UsageError, match=words) as refused:
        plan_probe(START, **options)
    assert "\n" not in str(refused.value)


def test_the_table_is_read_back_and_says_when_the_experiment_was(probe, tmp_path):
    path = tmp_path / "probe.csv"
    path.write_text(probe_files(probe)["probe.csv"])
    blocks = read_probe(path)
    pd.testing.assert_frame_equal(blocks, probe.blocks, check_dtype=False)
    assert windows_of(blocks) == ((START, START + pd.Timedelta("5D")),)
    assert len(windows_of(blocks.drop(index=7))) == 2


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("2024-01-22T00:00Z,2024-01-21T00:00Z,1", "ends before it starts"),
        ("2024-01-22T00:00Z,2024-01-22T09:00Z,1\n2024-01-22T04:00Z,2024-01-22T08:00Z,-1", "after the"),
        ("2024-01-22T00:00Z,2024-01-22T04:00Z,", "complete the table"),
        ("2024-01-22T00:00Z,2024-01-22T04:00Z,0", "no block moves"),
    ],
)
def test_a_table_that_is_no_experiment_is_refused(tmp_path, rows, words):
    path = tmp_path / "probe.csv"
    path.write_text("time,until,setpoint_offset_k\n" + rows + "\n")
    with pytest.raises(atdm.DataError, match=words):
        read_probe(path)


def test_the_calendar_has_an_event_for_each_move(probe):
    text = probe_files(probe)["probe.ics"]
    assert text.startswith("BEGIN:VCALENDAR\r\nVERSION:2.0\r\n") and text.endswith("END:VCALENDAR\r\n")
    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    events = text.split("BEGIN:VEVENT")[1:]
    moved = probe.blocks[probe.blocks["setpoint_offset_k"] != 0]
    assert len(events) == len(moved)
    first = dict(line.split(":", 1) for line in events[0].split("\r\n") if ":" in line and "VEVENT" not in line)
    assert pd.Timestamp(first["DTSTART"]) == moved["time"].iloc[0]
    assert pd.Timestamp(first["DTEND"]) == moved["until"].iloc[0]
    assert first["SUMMARY"] == f"Set points {moved['setpoint_offset_k'].iloc[0]:+g} K"
    assert len({line for line in text.split("\r\n") if line.startswith("UID")}) == len(events)


def moves(probe, ticks, trigger="0"):
    """When the automation acts at these ticks, and the set point; its templates rendered as Home Assistant does."""
    jinja2 = pytest.importorskip("jinja2")
    (found,) = yaml.safe_load(probe_files(probe)["home-assistant.yaml"])
    world = jinja2.Environment()
    templates = {n: world.from_string(v) if isinstance(v, str) else v for n, v in found["variables"].items()}
    condition = world.from_string(found["conditions"][0]["value_template"])
    temperature = world.from_string(found["actions"][0]["data"]["temperature"])
    made = {}
    for tick in ticks:
        known = {"utcnow": lambda tick=tick: tick, "timedelta": pd.Timedelta, "trigger": {"id": trigger}}
        for name, value in templates.items():
            known[name] = value.render(known) if isinstance(value, jinja2.Template) else value
        if condition.render(known) == "True":
            made[tick] = float(temperature.render(known))
    return made


@pytest.mark.parametrize(
    ("start", "block"),
    [("2026-01-26T00:00Z", "4h"), ("2026-01-26T00:03Z", "4h"), ("2026-01-26T00:00:30Z", "4h"),
     ("2026-01-26T00:00Z", "96min")],
)  # fmt: skip
def test_the_automation_acts_once_on_every_start_within_five_minutes(start, block):
    """It compared whole minutes: blocks off its ticks were never acted on, and the experiment moved nothing."""
    probe = plan_probe(pd.Timestamp(start), block=block, setpoint=20.5, comfort=(19.0, 22.0))
    ticks = pd.date_range("2026-01-25T12:00:00.1Z", "2026-02-01T12:00Z", freq="5min")
    made = moves(probe, ticks)
    starts = [*probe.blocks["time"], probe.blocks["until"].iloc[-1]]
    assert len(made) == len(starts)
    assert all(pd.Timedelta(0) <= at - due <= pd.Timedelta("5min") for at, due in zip(made, starts, strict=True))
    np.testing.assert_allclose(list(made.values()), [*(20.5 + probe.blocks["setpoint_offset_k"]), 20.5])


def test_a_restart_makes_up_for_what_was_missed_until_a_day_after_the_end(probe):
    first, end = probe.blocks["time"].iloc[0], probe.blocks["until"].iloc[-1]
    hours = [pd.Timedelta(hours=h) for h in (-1, 1, 9, 121, 150)]  # of 120
    made = moves(probe, [first + h for h in hours], "restart")
    offsets = probe.blocks["setpoint_offset_k"]
    assert end - first == pd.Timedelta("120h")
    assert made == {
        first + hours[1]: 20.5 + offsets[0], first + hours[2]: 20.5 + offsets[2], first + hours[3]: 20.5
    }  # fmt: skip


def test_the_automation_sets_every_block_and_returns_at_the_end(probe):
    (found,) = yaml.safe_load(probe_files(probe, ["climate.hall"])["home-assistant.yaml"])
    offsets = found["variables"]["offsets"]
    assert len(offsets) == len(probe.blocks) + 1 and list(offsets.values())[-1] == 0
    starts = pd.to_datetime(list(offsets)[:-1], format="%Y%m%dT%H%M%SZ", utc=True)
    assert (starts == pd.DatetimeIndex(probe.blocks["time"])).all()
    assert found["actions"][0]["target"]["entity_id"] == ["climate.hall"]
    assert found["variables"]["usual"] == 20.5 and (found["variables"]["low"], found["variables"]["high"]) == (19, 22)
    json.dumps(found)
