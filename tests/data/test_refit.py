import numpy as np
import pandas as pd
import pytest

from atdm.data import read_refit
from atdm.errors import DataError, UsageError

KWH_PER_M3 = 39.5 * 1.02264 / 3.6
DAYS = pd.date_range("2014-11-01", "2014-11-03", freq="15min", inclusive="left", tz="UTC")
HALF_HOURS = DAYS[::2]

SURVEY = """<?xml version="1.0" encoding="UTF-8"?>
<RefitXML xmlns="http://www.refitsmarthomes.org"><Stock>
  <Climate>
    <Sensor><TimeSeriesVariable id="W1" startDateTime="2014-11-01"
      variableType="Air temperature" units="Deg C"/></Sensor>
    <Sensor><TimeSeriesVariable id="W2" startDateTime="2014-11-01"
      variableType="Average horizontal solar irradiance" units="kW/m^2"/></Sensor>
  </Climate>
  <Building id="Building01">
    <Space id="Space01" type="Kitchen">
      <Sensor><TimeSeriesVariable id="T2" startDateTime="2014-11-02T00:00:00" variableType="Air temperature"/></Sensor>
      <Sensor><TimeSeriesVariable id="T1" startDateTime="2014-11-01T00:00:00" variableType="Air temperature"/></Sensor>
      <Sensor><TimeSeriesVariable id="H1" startDateTime="2014-11-01" variableType="Relative humidity"/></Sensor>
    </Space>
    <Space id="Space02" type="Hall">
      <Sensor><TimeSeriesVariable id="T3" startDateTime="2014-11-01" variableType="Air temperature"/></Sensor>
    </Space>
    <Space id="Space03" type="Loft"/>
    <Meter><Sensor><TimeSeriesVariable id="G1" startDateTime="2014-11-01" variableType="Gas volume"/></Sensor></Meter>
  </Building>
  <Building id="Building08">
    <Space id="Space01" type="Bedroom">
      <Sensor><TimeSeriesVariable id="T4" startDateTime="2014-11-01" variableType="Air temperature"/></Sensor>
    </Space>
    <Meter><Sensor><TimeSeriesVariable id="G8" startDateTime="2014-11-01" variableType="Gas volume"/></Sensor></Meter>
  </Building>
  <Building id="Building09">
    <Space id="Space01" type="Bedroom">
      <Sensor><TimeSeriesVariable id="T9" startDateTime="2014-11-01" variableType="Air temperature"/></Sensor>
    </Space>
  </Building>
</Stock></RefitXML>
"""


def release():
    """The series of the survey above, by id."""
    quarter, half = np.arange(len(DAYS)), np.arange(len(HALF_HOURS))
    day_one = DAYS < pd.Timestamp("2014-11-02T01:00Z")  # an hour longer than the second logger needs it
    day_two = DAYS >= pd.Timestamp("2014-11-02T00:00Z")
    return {
        "W1": pd.Series(8 + np.sin(quarter / 30), index=DAYS),
        "W2": pd.Series(0.3 * np.maximum(0, np.sin(quarter / 15)), index=DAYS),
        "T1": pd.Series(20 + np.sin(quarter / 11), index=DAYS)[day_one],
        "T2": pd.Series(18 + np.sin(quarter / 11), index=DAYS)[day_two],
        "T3": pd.Series(17 + np.sin(half / 5), index=HALF_HOURS),
        "T4": pd.Series(19 + np.sin(half / 6), index=HALF_HOURS),
        "G1": pd.Series(0.1 + 0.01 * (half % 7), index=HALF_HOURS),
        "G8": pd.Series(0.2 + 0.01 * (half % 5), index=HALF_HOURS),
        "H1": pd.Series(50.0 + 0 * half, index=HALF_HOURS),
    }


@pytest.fixture
def write_release(tmp_path):
    def write(series=None, survey=SURVEY):
        long = pd.concat(
            pd.DataFrame(
                {
                    "TimeSeriesVariable/@id": name,
                    "dateTime": values.index.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "data": values.to_numpy(),
                }
            )
            for name, values in (series or release()).items()
        )
        (tmp_path / "survey.xml").write_text(survey, encoding="utf-8")
        long.to_csv(tmp_path / "values.csv", index=False)
        return tmp_path / "survey.xml", tmp_path / "values.csv"

    return write


def test_rooms_become_agents_owned_by_their_home(write_release):
    cluster = read_refit(*write_release(), homes=[8, 1])
    assert cluster.agents == ("Building08/Space01", "Building01/Space01", "Building01/Space02")
    assert cluster.by_building().agents == ("Building08", "Building01")
    assert len(cluster.time) == 96 and cluster.step == pd.Timedelta("30min")
    assert (cluster.rows_dropped, cluster.timezone) == (0, "Europe/London")


def test_quarter_hours_are_averaged_to_half_hours(write_release):
    cluster = read_refit(*write_release(), homes=[1, 8])
    outdoor = release()["W1"].to_numpy().reshape(-1, 2).mean(axis=1)
    np.testing.assert_allclose(cluster.outdoor, outdoor)
    np.testing.assert_allclose(cluster.temperature["Building01/Space02"], release()["T3"])
    assert cluster.solar.max() == pytest.approx(0.3, rel=0.01)


def test_loggers_of_a_room_are_joined_the_earlier_one_to_its_end(write_release):
    room = read_refit(*write_release(), homes=[1, 8]).temperature["Building01/Space01"]
    t1, t2 = release()["T1"], release()["T2"]
    joined = pd.concat([t1, t2[t2.index > t1.index[-1]]]).to_numpy().reshape(-1, 2).mean(axis=1)
    np.testing.assert_allclose(room, joined)


def test_gas_becomes_power_split_evenly_over_the_rooms(write_release):
    cluster = read_refit(*write_release(), homes=[1, 8])
    np.testing.assert_allclose(cluster.by_building().load["Building01"], release()["G1"] * KWH_PER_M3 / 0.5)
    np.testing.assert_allclose(cluster.load["Building01/Space01"], cluster.load["Building01/Space02"])
    assert KWH_PER_M3 == pytest.approx(11.22, abs=0.01)  # kWh per m³, as UK gas bills have it


def test_an_hourly_step_keeps_the_energy(write_release):
    half, hour = (read_refit(*write_release(), homes=[1, 8], step=step) for step in ("30min", "1h"))
    assert hour.step == pd.Timedelta("1h")
    assert hour.load.sum().sum() * 1.0 == pytest.approx(half.load.sum().sum() * 0.5)


def test_start_is_included_and_end_is_not(write_release):
    cluster = read_refit(*write_release(), homes=[1, 8], start="2014-11-01T06:00", end="2014-11-02T06:00Z")
    assert cluster.time[0] == pd.Timestamp("2014-11-01T06:00Z")
    assert cluster.time[-1] == pd.Timestamp("2014-11-02T05:30Z")


def test_a_missing_half_hour_is_filled_by_the_home_or_dropped(write_release):
    series = release()
    series["G8"] = series["G8"].drop(series["G8"].index[30])
    paths = write_release(series)
    cluster = read_refit(*paths, homes=[1, 8])
    assert cluster.rows_dropped == 0 and cluster.filled["Building08/Space01"] == 1
    middle = (series["G8"].iloc[29] + series["G8"].iloc[30]) / 2 * KWH_PER_M3 / 0.5
    assert cluster.load["Building08/Space01"].iloc[30] == pytest.approx(middle)
    cluster = read_refit(*paths, homes=[1, 8], fill="0h")
    assert cluster.rows_dropped == 1 and cluster.segment.max() == 1


def test_a_room_that_is_silent_all_the_time_is_left_out_and_said(write_release):
    series = release()
    del series["T3"]
    cluster = read_refit(*write_release(series), homes=[1, 8])
    assert "Building01/Space02" in cluster.notes[0]
    np.testing.assert_allclose(cluster.load["Building01/Space01"], series["G1"] * KWH_PER_M3 / 0.5)


@pytest.mark.parametrize(
    ("options", "error", "cause"),
    [
        ({"homes": [3]}, DataError, "no Building03: choose homes among Building01, Building08, Building09"),
        ({"homes": [9]}, DataError, "Building09 has no gas meter: leave that home out"),
        ({"homes": []}, UsageError, "homes is empty"),
        ({"homes": [1], "step": "20min"}, UsageError, "'20min' is not a multiple of the 30 min"),
        ({"homes": [1], "start": "someday"}, UsageError, "'someday' is not a time"),
        ({"homes": [1], "start": "2020-01-01"}, DataError, "no room of these homes has a reading"),
    ],
)
def test_what_the_release_does_not_hold_is_refused(write_release, options, error, cause):
    with pytest.raises(error) as refusal:
        read_refit(*write_release(), **options)
    assert cause in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("survey", "cause"),
    [
        ("", "is not XML"),
        ("<a><b></a>", "is not XML"),
        ("<a/>", "has no RefitXML/Stock"),
        (SURVEY.replace("Climate>", "Weather>"), "has no Climate"),
        (SURVEY.replace("Average horizontal", "Some"), "its Climate has no 'Average horizontal solar irradiance'"),
    ],
)
def test_a_survey_of_another_make_is_refused(write_release, survey, cause):
    with pytest.raises(DataError, match="survey.xml") as refusal:
        read_refit(*write_release(survey=survey), homes=[1])
    assert cause in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "is not a CSV with the columns"),
        (b"id,time,value\n1,2,3\n", "is not a CSV with the columns"),
        (b"\x00\xff\xfe", "is not a CSV with the columns"),
        (b"TimeSeriesVariable/@id,dateTime,data\nother,2014-11-01T00:00:00Z,1\n", "has no value of these homes"),
        (b"TimeSeriesVariable/@id,dateTime,data\nT1,2014-11-01T00:00:00Z,hot\n", "data is 'hot'"),
        (b"TimeSeriesVariable/@id,dateTime,data\nT1,yesterday,20\n", "dateTime is 'yesterday'"),
    ],
)
def test_values_of_another_make_are_refused(write_release, content, cause):
    survey, values = write_release()
    values.write_bytes(content)
    with pytest.raises(DataError, match=r"values\.csv") as refusal:
        read_refit(survey, values, homes=[1])
    assert cause in str(refusal.value) and "\n" not in str(refusal.value)


def test_files_that_are_not_there_are_named(tmp_path, write_release):
    survey, values = write_release()
    with pytest.raises(DataError, match=r"nowhere\.xml"):
        read_refit(tmp_path / "nowhere.xml", values, homes=[1])
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        read_refit(survey, tmp_path / "nowhere.csv", homes=[1])
