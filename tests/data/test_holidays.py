"""Holidays by country, from a file, or as dates; what is neither is refused with the way out."""

from datetime import date

import pandas as pd
import pytest

import atdm
from atdm.data.holidays import days_of

TIME = pd.DatetimeIndex(["2018-01-08T00:00Z", "2018-02-06T00:00Z"])


def test_of_a_country_and_of_a_region():
    pytest.importorskip("holidays", reason="holidays is not installed: pip install 'atdm[holidays]'")
    assert date(2018, 1, 15) in days_of("US", TIME)  # Martin Luther King's day
    assert date(2018, 1, 2) in days_of("GB/SCT", TIME) and date(2018, 1, 2) not in days_of("gb/ENG", TIME)
    assert {2017, 2018, 2023} <= {day.year for day in days_of("US", TIME)}  # a model is used after its window


def test_from_a_file_and_as_dates(tmp_path):
    (tmp_path / "days.txt").write_text("# ours\n2018-01-15\n\n2018-02-01  # a fair\n")
    assert days_of(str(tmp_path / "days.txt"), TIME) == {date(2018, 1, 15), date(2018, 2, 1)}
    assert days_of([date(2018, 1, 15)], TIME) == {date(2018, 1, 15)}
    assert days_of(None, TIME) == frozenset()


@pytest.mark.parametrize(
    ("content", "words"),
    [("15.1.2018\n", "line 1: '15.1.2018' is no date"), ("\n#\n", "no date in it"), (b"\xff\xfe\x00", "as text")],
)
def test_a_file_that_is_none_is_refused(tmp_path, content, words):
    path = tmp_path / "days.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(atdm.DataError, match=words):
        days_of(str(path), TIME)


@pytest.mark.parametrize("text", ["Atlantis", "US/Bavaria", "nowhere.txt"])
def test_a_place_nobody_knows_is_refused(text):
    with pytest.raises(atdm.UsageError, match="no such file"):
        days_of(text, TIME)


def test_holidays_as_sundays_make_the_sample_better(sample):
    """The 15th of January 2018 was a holiday in Chicago."""
    with_holidays = atdm.fit(sample, "plain", holidays=[date(2018, 1, 15)])
    without = atdm.fit(sample, "plain")
    assert with_holidays.choice.candidate.holidays
    assert with_holidays.choice.best.rmse < without.choice.best.rmse
