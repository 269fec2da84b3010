import numpy as np
import pandas as pd
import pytest

from atdm.data import clock
from atdm.errors import UsageError

HALF_HOUR = pd.Timedelta(minutes=30)


def test_a_gap_starts_a_new_segment():
    time = pd.date_range("2024-01-01", periods=6, freq="30min", tz="UTC")[[0, 1, 3, 4, 5]]
    assert clock.segments(time, HALF_HOUR).tolist() == [0, 0, 1, 1, 1]
    assert clock.segments(time[:0], HALF_HOUR).tolist() == []


def test_phase_counts_steps_after_utc_midnight():
    time = pd.date_range("2024-01-03T22:30Z", periods=5, freq="30min")
    assert clock.phase(time, HALF_HOUR, "UTC", 48).tolist() == [45, 46, 47, 0, 1]


def test_phase_follows_the_local_wall_clock():
    time = pd.DatetimeIndex([pd.Timestamp("2024-01-15 12:00Z"), pd.Timestamp("2024-07-15 11:00Z")])
    assert clock.phase(time, HALF_HOUR, "America/New_York", 48).tolist() == [14, 14]


@pytest.mark.parametrize(("date", "hours"), [("2024-03-31", 23), ("2024-10-27", 25), ("2024-06-01", 24)])
def test_days_of_23_and_25_hours_keep_the_clock(date, hours):
    first = pd.Timestamp(date, tz="Europe/London")
    time = pd.date_range(first, periods=2 * hours, freq="30min").tz_convert("UTC")
    index = clock.phase(time, HALF_HOUR, "Europe/London", 48)
    wall = time.tz_convert("Europe/London")
    assert index.tolist() == (2 * wall.hour + wall.minute // 30).tolist()
    assert (index[0], index[-1]) == (0, 47)
    assert (clock.segments(time, HALF_HOUR) == 0).all()


def test_a_weekly_season_starts_on_monday():
    monday = pd.DatetimeIndex([pd.Timestamp("2024-01-08", tz="Asia/Tokyo")])
    assert clock.phase(monday, HALF_HOUR, "Asia/Tokyo", 336).tolist() == [0]


def test_phase_does_not_depend_on_where_the_series_starts():
    time = pd.date_range("2024-03-20", periods=1000, freq="30min", tz="UTC")
    whole = clock.phase(time, HALF_HOUR, "Europe/Berlin", 48)
    assert np.array_equal(whole[123:], clock.phase(time[123:], HALF_HOUR, "Europe/Berlin", 48))


@pytest.mark.parametrize(("season", "steps"), [("24h", 48), ("1d", 48), ("1w", 336), ("30min", 1), ("24 H", 48)])
def test_season_in_steps(season, steps):
    assert clock.season_steps(season, HALF_HOUR) == steps


@pytest.mark.parametrize("season", ["", "h", "-24h", "0h", "45min", "1.5h", "a day", "999999999999999w"])
def test_a_season_that_is_no_multiple_of_the_step_is_refused_in_one_line(season):
    with pytest.raises(UsageError) as error:
        clock.season_steps(season, HALF_HOUR)
    assert repr(season) in str(error.value) and "\n" not in str(error.value)


def test_no_time_at_all_is_a_length_only_where_it_is_allowed():
    assert clock.duration("0h", zero=True) == pd.Timedelta(0)
    with pytest.raises(UsageError, match="'0h' is not a length of time"):
        clock.duration("0h")


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc", "America", "x" * 300])
def test_an_unknown_time_zone_is_refused(name):
    with pytest.raises(UsageError, match="IANA"):
        clock.zone(name)


@pytest.mark.parametrize(
    ("length", "words"), [("30min", "30 min"), ("1h", "1 h"), ("90min", "90 min"), ("1d", "1 d"), ("15s", "15 s")]
)
def test_lengths_are_spelled_as_people_do(length, words):
    assert clock.spell(clock.duration(length)) == words


@pytest.mark.parametrize("name", ["localtime", "posixrules", "Factory", "Nowhere"])
def test_what_is_another_zone_on_every_machine_is_none(name):
    with pytest.raises(UsageError, match="unknown time zone"):
        clock.zone(name)


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Africa/Monrovia"])
@pytest.mark.parametrize(("step", "period"), [("30min", 48), ("1h", 24), ("15min", 96), ("30min", 336)])
def test_the_phase_without_pandas_is_the_phase_with_it(timezone, step, period):
    """Over a year with both clock changes, and before the zones had whole minutes."""
    from atdm.data import seconds

    length = pd.Timedelta(step)
    for start in ("2024-01-01", "1971-06-01", "2024-03-30T23:00"):
        time = pd.date_range(start, periods=24 * 400, freq="1h", tz="UTC")
        found = seconds.phase(time.as_unit("s").asi8, int(length.total_seconds()), timezone, period)
        np.testing.assert_array_equal(found, clock.phase(time, length, timezone, period))
