import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atdm.data import gaps
from atdm.data.cluster import Cluster
from atdm.data.tables import read_cluster
from atdm.errors import DataError, UsageError

from .builders import DAY, weather_table, write, zones_table

PATIENT = settings(max_examples=300, deadline=None)
HALF_HOUR = 1800
START = 1704672000  # 2024-01-08 00:00 UTC
NAN = float("nan")


def filled_day(temperature, load=None, step=HALF_HOUR):
    """A home's readings from midnight on, after filling; without a load of its own it is 1 kW throughout."""
    time = START + step * np.arange(len(temperature))
    values = np.array(temperature, dtype=float)
    loads = np.ones(len(values)) if load is None else np.array(load, dtype=float)
    return gaps.fill(time, values, loads, step)


# ---- one home fills its own gaps


@st.composite
def records(draw):
    """One home's stamps on a grid, some of them absent, some without temperature or load."""
    step = draw(st.sampled_from([300, 900, 1800, 3600, 7200, 10800]))
    kinds = st.sampled_from(["both", "both", "both", "none", "absent", "no load", "no temperature"])
    rows = [(k, kind) for k, kind in enumerate(draw(st.lists(kinds, max_size=40))) if kind != "absent"]
    degrees, kilowatts = st.floats(-30, 70), st.floats(-100, 100)
    temperature = [draw(degrees) if kind in ("both", "no load") else NAN for _, kind in rows]
    load = [draw(kilowatts) if kind in ("both", "no temperature") else NAN for _, kind in rows]
    time = START + draw(st.integers(-(10**6), 10**6)) + step * np.array([k for k, _ in rows], dtype=np.int64)
    return time, np.array(temperature), np.array(load), step


LONGEST = st.sampled_from([0, 1800, 3600, 7199, 7200, 7201, 21600])


def slowly_filled(time, temperature, load, step, longest):
    """The rule as the design words it, stamp by stamp: {stamp: (temperature, load, whether filled)}."""
    given_at = [{t: v for t, v in zip(time.tolist(), values, strict=True) if v == v} for values in (temperature, load)]
    rows = {}
    for stamp in range(int(time[0]), int(time[-1]) + 1, step) if len(time) else []:
        both, filled = [], False
        for readings in given_at:
            if stamp in readings:
                both.append(readings[stamp])
                continue
            before = [t for t in readings if t < stamp]
            after = [t for t in readings if t > stamp]
            if before and after and min(after) - max(before) <= longest:
                ends = [max(before), min(after)]
                both.append(np.interp(stamp, ends, [readings[t] for t in ends]))
                filled = True
        if len(both) == 2:
            rows[stamp] = (*both, filled)
    return rows


@PATIENT
@given(record=records(), longest=LONGEST)
def test_filling_is_what_the_rule_says_stamp_by_stamp(record, longest):
    expected = slowly_filled(*record, longest)
    home = gaps.fill(*record, longest)
    assert home.time.tolist() == list(expected)
    np.testing.assert_allclose(home.temperature, [t for t, _, _ in expected.values()], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(home.load, [h for _, h, _ in expected.values()], rtol=1e-12, atol=1e-12)
    assert home.filled.tolist() == [filled for _, _, filled in expected.values()]
    assert home.time.dtype == np.int64 and home.filled.dtype == bool


@PATIENT
@given(record=records(), longest=LONGEST)
def test_what_was_measured_stays_as_it_is(record, longest):
    time, temperature, load, _ = record
    home = gaps.fill(*record, longest)
    whole = ~(np.isnan(temperature) | np.isnan(load))
    assert np.array_equal(home.time[~home.filled], time[whole])
    assert np.array_equal(home.temperature[~home.filled], temperature[whole])
    assert np.array_equal(home.load[~home.filled], load[whole])


@PATIENT
@given(record=records(), longest=LONGEST, cut=st.integers(0, 40))
def test_a_gap_is_filled_once_its_end_is_known_and_the_same_for_ever(record, longest, cut):
    *values, step = record
    early, late = gaps.fill(*(v[:cut] for v in values), step, longest), gaps.fill(*values, step, longest)
    place = np.searchsorted(late.time, early.time)
    assert np.array_equal(late.time[place], early.time)
    for name in ("temperature", "load", "filled"):
        assert np.array_equal(getattr(late, name)[place], getattr(early, name))  # to the bit


@PATIENT
@given(record=records(), longest=LONGEST)
def test_a_missing_row_and_a_row_without_values_are_the_same_gap(record, longest):
    time, temperature, load, step = record
    inner = np.isnan(temperature) & np.isnan(load)
    one = gaps.fill(time, temperature, load, step, longest)
    other = gaps.fill(time[~inner], temperature[~inner], load[~inner], step, longest)
    for name in ("time", "temperature", "load", "filled"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(
    ("step", "missing", "filled"),
    [(1800, 3, True), (1800, 4, False), (900, 7, True), (900, 8, False), (3600, 1, True), (3600, 2, False),
     (7200, 1, False), (2400, 2, True), (2700, 1, True), (2700, 2, False)],
)  # fmt: skip
def test_two_hours_are_the_time_from_reading_to_reading(step, missing, filled):
    home = filled_day([20.0, *[NAN] * missing, 21.0], step=step)
    assert len(home.time) == (missing + 2 if filled else 2)
    assert home.filled.sum() == (missing if filled else 0)


def test_a_gap_is_filled_along_the_line_between_its_ends():
    home = filled_day([20.0, NAN, NAN, NAN, 22.0], [4.0, NAN, NAN, NAN, 0.0])
    assert home.temperature.tolist() == [20.0, 20.5, 21.0, 21.5, 22.0]
    assert home.load.tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert home.filled.tolist() == [False, True, True, True, False]


def test_only_the_value_that_is_missing_is_filled():
    home = filled_day([20.0, NAN, 23.0], [1.0, 5.0, 2.0])
    assert home.temperature.tolist() == [20.0, 21.5, 23.0] and home.load.tolist() == [1.0, 5.0, 2.0]
    assert home.filled.tolist() == [False, True, False]


def test_each_value_has_gaps_of_its_own():
    """The load is away for 3 h, the temperature for 1 h of them: a stamp with a temperature alone is no reading."""
    home = filled_day([20, 20, NAN, 20, 20, 20, 20.0], [1, NAN, NAN, NAN, NAN, NAN, 1.0])
    assert home.time.tolist() == [START, START + 6 * HALF_HOUR] and not home.filled.any()


def test_nothing_is_filled_at_either_end():
    home = filled_day([NAN, 20.0, 21.0, NAN])
    assert home.temperature.tolist() == [20.0, 21.0] and not home.filled.any()


def test_no_part_of_a_longer_gap_is_filled():
    assert filled_day([20.0, *[NAN] * 4, 21.0]).time.tolist() == [START, START + 5 * HALF_HOUR]


@pytest.mark.parametrize("values", [[], [NAN], [NAN, NAN], [20.0]])
def test_a_record_without_two_readings_is_left_as_it_is(values):
    home = filled_day(values)
    assert home.temperature.tolist() == [v for v in values if v == v] and not home.filled.any()


@pytest.mark.parametrize("time", [[0, 1800, 1800], [1800, 0], [0, 1800, 4000]])
def test_stamps_off_the_grid_or_out_of_order_are_refused(time):
    with pytest.raises(DataError, match="1800 s apart: sort or resample"):
        gaps.fill(np.array(time), np.ones(len(time)), np.ones(len(time)), HALF_HOUR)


def test_readings_are_not_shown_by_accident():
    assert "20" not in repr(filled_day([20.0])).split(" at ")[0]


# ---- days on which a home is out


@PATIENT
@given(
    first=st.integers(-200_000, 200_000),
    length=st.integers(1, 300),
    step=st.sampled_from([900, 1800, 3600, 21600, 100_000]),
    data=st.data(),
)
def test_a_home_is_out_on_days_with_less_than_half_of_the_windows_rows(first, length, step, data):
    window = [first + k * step for k in range(length)]
    has = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
    own = [stamp for stamp, there in zip(window, has, strict=True) if there]
    beyond = [first - step, *own, window[-1] + step]  # what lies outside the window does not help
    touched = range(window[0] // 86400, window[-1] // 86400 + 1)
    expected = [
        day
        for day in touched
        if sum(t // 86400 == day for t in own) < sum(t // 86400 == day for t in window) / 2
    ]  # fmt: skip
    assert gaps.days_out(np.array(beyond), first, window[-1], step).tolist() == expected


def test_half_of_the_rows_is_enough():
    day = START + HALF_HOUR * np.arange(48)
    assert gaps.days_out(day[24:], int(day[0]), int(day[-1]), HALF_HOUR).tolist() == []
    assert gaps.days_out(day[25:], int(day[0]), int(day[-1]), HALF_HOUR).tolist() == [START // 86400]


# ---- who stays, and which rows are kept


def slow_company(has, names):
    """The policy as the design words it: leave out, count what is lost, and again."""
    rows = [row for row in range(len(has)) if has[row].count(False) <= len(names) / 3]  # others cannot be won back
    stays = set(range(len(names)))

    def lost(homes):
        return sum(not all(has[row][home] for home in homes) for row in rows)

    def lacks(home):
        return sum(not has[row][home] for row in rows)

    while lost(stays) and lost(stays) >= len(rows) / 10 and len(names) - len(stays) + 1 <= len(names) / 3:
        stays.remove(min(stays, key=lambda home: (lost(stays - {home}), -lacks(home), names[home])))
    return stays, [row for row in range(len(has)) if all(has[row][home] for home in stays)]


@st.composite
def presences(draw):
    """Small tables with outages rather than noise, in which ties and shared outages are common."""
    rows, homes = draw(st.integers(0, 30)), draw(st.integers(1, 9))
    has = np.ones((rows, homes), dtype=bool)
    for _ in range(draw(st.integers(0, 8))):
        first, home = draw(st.integers(0, 30)), draw(st.integers(0, homes - 1))
        has[first : first + draw(st.sampled_from([1, 2, 3, 5, 30])), home] = False
    for row in draw(st.lists(st.integers(0, 30), max_size=2)):
        has[row : row + 1] = False
    names = draw(st.permutations([f"home{i}" for i in range(homes)]))
    return has, names


def test_one_home_with_an_older_file_costs_nobody_else():
    has = np.ones((960, 12), dtype=bool)
    has[:200, 1:] = False
    found = gaps.company(has, [f"home{i}" for i in range(12)])
    assert found.stays.all() and found.kept.sum() == 760


@PATIENT
@given(presence=presences())
def test_who_stays_is_what_leaving_out_one_after_the_other_gives(presence):
    has, names = presence
    stays, kept = slow_company(has.tolist(), names)
    found = gaps.company(has, names)
    assert np.flatnonzero(found.stays).tolist() == sorted(stays)
    assert np.flatnonzero(found.kept).tolist() == kept


@PATIENT
@given(presence=presences(), data=st.data())
def test_the_company_does_not_depend_on_the_order_of_homes_or_rows(presence, data):
    has, names = presence
    homes, rows = (np.array(data.draw(st.permutations(range(n))), dtype=int) for n in reversed(has.shape))
    one, other = gaps.company(has, names), gaps.company(has[rows][:, homes], [names[i] for i in homes])
    assert np.array_equal(one.stays[homes], other.stays) and np.array_equal(one.kept[rows], other.kept)


@PATIENT
@given(presence=presences())
def test_two_thirds_stay_and_a_kept_row_is_had_by_all_of_them(presence):
    has, names = presence
    found = gaps.company(has, names)
    assert 3 * found.stays.sum() >= 2 * len(names)
    assert has[found.kept][:, found.stays].all()


def absent(rows, homes, **outages):
    """A table of homes a, b, c … that have every row but those of their outages."""
    has = np.ones((rows, homes), dtype=bool)
    for name, outage in outages.items():
        has[outage, "abcdefghi".index(name)] = False
    return has, list("abcdefghi"[:homes])


def left(has, names):
    found = gaps.company(has, names)
    return "".join(name for name, stays in zip(names, found.stays, strict=True) if not stays), int(found.kept.sum())


def test_a_tenth_of_the_rows_is_where_a_home_is_left_out():
    assert left(*absent(100, 6, b=slice(0, 9))) == ("", 91)
    assert left(*absent(100, 6, b=slice(0, 10))) == ("b", 100)


@pytest.mark.parametrize(("homes", "parts"), [(3, 10), (10, 10), (20, 20), (50, 50), (64, 50), (1000, 50)])
def test_among_many_homes_a_home_may_cost_no_more_than_it_is_of_all(homes, parts):
    for lost, stays in ((1000 // parts - 1, True), (1000 // parts, False)):
        has = np.ones((1000, homes), dtype=bool)
        has[:lost, 1] = False
        assert gaps.company(has, [f"home{i:04d}" for i in range(homes)]).stays[1] == stays


def test_the_home_without_which_most_rows_are_won_back_goes_first():
    """b and c lack more rows than d, but the same ones: none is won back without b, or without c."""
    assert left(*absent(100, 7, b=slice(0, 9), c=slice(0, 9), d=slice(20, 25))) == ("d", 91)


def test_of_equally_costly_homes_the_one_that_lacks_most_goes_and_then_the_first_by_name():
    assert left(*absent(100, 6, b=slice(0, 8), c=slice(8, 17), d=slice(16, 17))) == ("c", 91)
    assert left(*absent(100, 5, b=slice(0, 12), c=slice(12, 24))) == ("b", 88)


@pytest.mark.parametrize(("homes", "out"), [(1, 0), (2, 0), (3, 1), (5, 1), (6, 2), (8, 2), (9, 3)])
def test_at_most_a_third_is_left_out_and_the_rest_stays(homes, out):
    has = ~np.eye(homes, dtype=bool).repeat(10, axis=0)  # every home has an outage of its own
    found = gaps.company(has | (homes == 1), [f"home{i}" for i in range(homes)])
    assert (~found.stays).sum() == out


def test_rows_that_nobody_has_are_no_reason_to_leave_anybody_out():
    has, names = absent(100, 6, b=slice(0, 5))
    has[50:90] = False
    assert left(has, names) == ("", 55)


# ---- clusters


def fleet(homes=64, days=30, start="2024-01-08", step="30min"):
    time = pd.date_range(start, periods=int(pd.Timedelta(days=days) / pd.Timedelta(step)), freq=step, tz="UTC")
    t, k = np.arange(len(time))[:, None], np.arange(homes)
    names = [f"home{i:02d}" for i in k]
    temperature = pd.DataFrame(20 + np.sin(t / 7 + k) + 0.1 * np.cos(t / 3), index=time, columns=names)
    load = pd.DataFrame(1 + 0.5 * np.cos(t / 5 + k / 3), index=time, columns=names)
    return [temperature, load, pd.Series(np.sin(t[:, 0] / 9), index=time), pd.Series(0.1 + 0 * t[:, 0], index=time)]


def without(series, home, rows):
    for frame in series[:2]:
        frame.iloc[rows, frame.columns.get_loc(home)] = np.nan


def own_notes(cluster):
    return [note for note in cluster.notes if "constant" not in note]


def test_two_percent_missing_at_random_costs_almost_no_row_of_64_homes():
    series = fleet()
    hole = np.random.default_rng(7).random(series[0].shape) < 0.02
    series[0], series[1] = (frame.mask(hole) for frame in series[:2])
    cluster = Cluster.from_frames(*series)
    assert len(cluster.time) >= 1436 and cluster.left_out == {}  # only at the ends is nothing filled
    inner = hole[1:-1].sum()
    assert inner - 40 <= cluster.filled.sum() <= inner
    assert len(Cluster.from_frames(*series, fill="0h").time) < 800
    worst = cluster.filled.idxmax()
    assert own_notes(cluster)[0] == (
        f"{cluster.filled.sum()} readings of 64 agents filled across gaps of up to 2 h, "
        f"most of {worst!r} ({cluster.filled.max()})"
    )


def test_a_home_that_joins_halfway_is_left_out():
    series = fleet()
    without(series, "home09", slice(0, 720))
    cluster = Cluster.from_frames(*series)
    assert len(cluster.time) == 1440 and len(cluster.agents) == 63 and "home09" not in cluster.agents
    assert cluster.left_out == {"home09": "it lacks 720 of 1440 rows, on 15 days more than half"}
    assert own_notes(cluster) == ["agent 'home09' left out: it lacks 720 of 1440 rows, on 15 days more than half"]
    with pytest.raises(UsageError, match="'home09' was left out .it lacks 720 of 1440 rows"):
        cluster.select(["home09"])


def test_an_outage_of_12_hours_costs_its_rows_only():
    series = fleet()
    without(series, "home05", slice(480 + 16, 480 + 40))  # 08:00 to 20:00
    cluster = Cluster.from_frames(*series)
    assert (len(cluster.agents), len(cluster.time), cluster.rows_dropped) == (64, 1416, 24)
    [note] = own_notes(cluster)
    assert note == "24 of 1440 time stamps dropped for all agents, a reading was missing (agent 'home05' lacks 24)"


def test_an_outage_of_more_than_half_a_day_costs_the_day():
    series = fleet(homes=20)
    without(series, "home05", slice(480 + 16, 480 + 41))
    cluster = Cluster.from_frames(*series)
    assert (len(cluster.agents), cluster.rows_dropped) == (20, 48)
    assert not (cluster.time.normalize() == pd.Timestamp("2024-01-18", tz="UTC")).any()
    assert "(agent 'home05' lacks 25, on 1 day more than half)" in own_notes(cluster)[0]


def test_where_more_than_a_third_is_broken_two_thirds_stay():
    series = fleet(homes=30)
    for i in range(15):
        without(series, f"home{i:02d}", slice(96 * i, 96 * i + 96 - i))  # two days each
    cluster = Cluster.from_frames(*series)
    assert list(cluster.left_out) == [f"home{i:02d}" for i in range(10)]
    assert len(cluster.agents) == 20 and len(cluster.time) == 1440 - 5 * 96


@pytest.mark.parametrize("step", ["15min", "30min", "1h"])
def test_a_simulation_has_the_numbers_every_home_comes_to_by_itself(step):
    """Bit for bit: `plain` sees what deployed agents would sum."""
    series = fleet(homes=9, days=6, step=step)
    rng = np.random.default_rng(3)
    series[0], series[1] = (frame.mask(rng.random(frame.shape) < 0.08) for frame in series[:2])
    without(series, "home03", slice(40, 70))
    without(series, "home08", slice(0, len(series[0]) // 2))
    cluster = Cluster.from_frames(*series)
    seconds, step_seconds = series[0].index.as_unit("s").asi8, int(pd.Timedelta(step).total_seconds())
    assert "home08" in cluster.left_out
    common = set(seconds.tolist())
    for home in cluster.agents:
        own = gaps.fill(seconds, series[0][home].to_numpy(), series[1][home].to_numpy(), step_seconds)
        out = gaps.days_out(own.time, int(seconds[0]), int(seconds[-1]), step_seconds)
        common &= set(own.time[~np.isin(own.time // 86400, out)].tolist())
        place = np.searchsorted(own.time, cluster.time.as_unit("s").asi8)
        assert np.array_equal(cluster.temperature[home], own.temperature[place])
        assert np.array_equal(cluster.load[home], own.load[place])
        assert cluster.filled[home] == own.filled.sum()
    assert cluster.time.as_unit("s").asi8.tolist() == sorted(common)


def test_a_stamp_that_all_homes_lack_is_there_where_they_filled_it_and_there_is_weather(tmp_path):
    zones, weather = zones_table(), weather_table()
    holed = zones[~zones["time"].isin(zones["time"][[20, 21, 60]])]
    cluster = read_cluster(*write(tmp_path, holed, weather))
    assert len(cluster.time) == 2 * DAY and cluster.filled.to_dict() == {"a": 3, "b": 3, "c": 3}
    assert (cluster.rows_dropped, cluster.segment.max()) == (0, 0)
    assert cluster.outdoor.iloc[20] == weather["outdoor_temp_c"][20]
    cluster = read_cluster(*write(tmp_path, holed, weather.drop(index=[20, 21])))
    assert len(cluster.time) == 2 * DAY - 2 and cluster.filled.to_dict() == {"a": 1, "b": 1, "c": 1}
    assert (cluster.rows_dropped, cluster.segment.max()) == (0, 1)


def test_files_and_frames_give_the_same_cluster(tmp_path):
    zones = zones_table(tuple("abcdef")).drop(index=[3, 4, 100, 101, 102, 103, *range(192, 250)])
    weather = weather_table()
    one = read_cluster(*write(tmp_path, zones, weather))
    wide = zones.pivot(index="time", columns="agent", values=["indoor_temp_c", "load_kw"])
    sky = weather.set_index("time")
    other = Cluster.from_frames(wide["indoor_temp_c"], wide["load_kw"], sky["outdoor_temp_c"], sky["solar_w_m2"] / 1000)
    for name in ("temperature", "load", "outdoor", "solar", "filled"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert one.left_out == other.left_out == {"c": "it lacks 58 of 96 rows, on 1 day more than half"}
    assert (one.rows_dropped, one.notes) == (other.rows_dropped, other.notes) and one.rows_dropped == 4


def test_rows_lost_because_of_weather_are_no_homes_fault():
    series = fleet(homes=6, days=4)
    series[2].iloc[0:60] = np.nan
    without(series, "home01", slice(0, 60))
    cluster = Cluster.from_frames(*series)
    assert cluster.left_out == {} and cluster.rows_dropped == 60
    series[2].iloc[:] = np.nan
    with pytest.raises(DataError, match="no time stamp has a reading of every agent"):
        Cluster.from_frames(*series)


def test_a_day_of_which_nobody_has_half_is_lost_and_nobody_is_left_out():
    series = [values.drop(values.index[100:140]) for values in fleet(homes=6, days=4)]  # 02:00 to 22:00, day 3
    cluster = Cluster.from_frames(*series)
    assert (cluster.left_out, cluster.rows_dropped, len(cluster.time)) == ({}, 8, 144)
    assert "(on 1 day no agent has half of the rows)" in own_notes(cluster)[0]


def test_a_pause_of_the_whole_cluster_costs_nothing():
    series = [values.drop(values.index[96:480]) for values in fleet(homes=6, days=12)]
    cluster = Cluster.from_frames(*series)
    assert (cluster.rows_dropped, cluster.left_out, own_notes(cluster)) == (0, {}, [])


def test_the_first_and_the_last_day_count_from_and_to_the_windows_rows():
    series = [values.iloc[40:140] for values in fleet(homes=6, days=4)]  # 8 rows of the first day, 44 of the last
    without(series, "home02", slice(4, 8))
    assert Cluster.from_frames(*series, fill="0h").rows_dropped == 4
    without(series, "home02", slice(3, 8))
    assert Cluster.from_frames(*series, fill="0h").rows_dropped == 8


def test_how_long_a_gap_may_be_is_the_callers_choice():
    series = fleet(homes=6, days=4)
    without(series, "home02", slice(20, 25))  # 3 h from reading to reading
    assert Cluster.from_frames(*series).rows_dropped == 5
    longer = Cluster.from_frames(*series, fill="3h")
    assert (longer.rows_dropped, longer.filled["home02"]) == (0, 5)
    assert own_notes(longer) == ["5 readings of agent 'home02' filled across gaps of up to 3 h"]
    assert Cluster.from_frames(*series, fill="0").filled.sum() == 0
    for nonsense in ("1", "", "two hours", "-2h"):
        with pytest.raises(UsageError, match="is not a length of time"):
            Cluster.from_frames(*series, fill=nonsense)


def test_error_codes_are_refused_and_not_filled_over():
    series = fleet(homes=6, days=4)
    series[0].iloc[20, 2] = 85.0
    with pytest.raises(DataError, match="leave the cell empty"):
        Cluster.from_frames(*series)


def test_stamps_between_whole_seconds_are_filled_too(tmp_path):
    zones, weather = (t.assign(time=t["time"] + pd.Timedelta("250ms")) for t in (zones_table(), weather_table()))
    holed = zones[zones["time"] != zones["time"][20]]
    cluster = read_cluster(*write(tmp_path, holed, weather, ".parquet"))
    assert cluster.time.tolist() == weather["time"].tolist() and cluster.filled.to_dict() == {"a": 1, "b": 1, "c": 1}


def test_what_was_filled_and_who_was_left_out_survives_select_and_by_building():
    series = fleet(homes=6, days=4)
    without(series, "home00", 20)
    without(series, "home01", slice(30, 32))
    without(series, "home02", 40)
    without(series, "home05", slice(0, 100))
    owner = pd.Series({f"home{i:02d}": building for i, building in enumerate("BABACC")})
    cluster = Cluster.from_frames(*series, owner=owner)
    assert cluster.filled.to_dict() == {"home00": 1, "home01": 2, "home02": 1, "home03": 0, "home04": 0}
    assert cluster.owner.to_dict() == owner.drop("home05").to_dict()
    some = cluster.select(["home02", "home01"])
    assert some.filled.to_dict() == {"home02": 1, "home01": 2} and list(some.filled.index) == ["home02", "home01"]
    buildings = cluster.by_building()
    assert buildings.filled.to_dict() == {"B": 2, "A": 2, "C": 0} and tuple(buildings.filled.index) == buildings.agents
    assert some.left_out == buildings.left_out == cluster.left_out != {}
    assert some.notes == buildings.notes == cluster.notes
