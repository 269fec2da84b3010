"""What `atdm check` says about agents is what agents do."""

from types import SimpleNamespace

import pandas as pd
import pytest

from atdm.data import quality
from atdm.options import fit_options
from atdm.protocol.rules import Rules, refuses
from atdm.run import make_plan
from atdm.use.ready import problems, short_of
from tests.clusters import tiny
from tests.data.builders import DAY, write, zones_table


def homes(rows: int = 1344, count: int = 12, kept: int | None = None) -> SimpleNamespace:
    """Half-hours; 1344 are four weeks."""
    return SimpleNamespace(agents=[SimpleNamespace(step=pd.Timedelta("30min"), rows=rows)] * count, rows_kept=kept)


@pytest.mark.parametrize("rows, enough", [(1343, False), (1344, True)])
def test_days_are_called_too_few_where_agents_with_fitted_weights_would_stay_out(rows, enough):
    plan = make_plan(tiny(agents=12, rows=rows, step="30min"), fit_options(protocol="blind"))
    said = short_of(homes(rows))
    assert (refuses(Rules(weights="fitted"), plan) is None) == enough == (said == ())
    assert enough or said == ("27.9 days: agents of blind fit weights over 28 days or more by default; equal weights "
                              "need fewer",)  # fmt: skip


def test_agents_are_called_too_few_below_the_usual_minimum():
    assert short_of(homes(count=10)) == () and "9 agents" in short_of(homes(count=9))[0]


def test_rows_lost_to_missing_readings_are_no_rows():
    assert short_of(homes(2000, kept=1344)) == () and "27.9 days" in short_of(homes(2000, kept=1343))[0]


def test_a_home_is_fit_to_take_part_with_its_own_file(tmp_path):
    zones, weather = write(tmp_path, zones_table(("a",)))
    assert problems(quality(zones, weather)) == problems(quality(zones)) == ()


@pytest.mark.parametrize(
    "freq, start", [("10min", "2024-01-08"), ("35min", "2024-01-08"), ("30min", "2024-01-08 00:10")]
)
def test_a_home_whose_grid_agents_refuse_is_not(tmp_path, freq, start):
    zones, _ = write(tmp_path, zones_table(("a",), freq=freq, start=start))
    [problem] = problems(quality(zones))
    assert "say another --step" in problem and "divides the day" in problem


def test_a_home_that_has_half_of_no_day_is_not(tmp_path):
    whole = zones_table(("a",), rows=4 * DAY)
    zones, _ = write(tmp_path, whole[(whole["time"].dt.hour < 11) | (whole.index == len(whole) - 1)])
    [problem] = problems(quality(zones))
    assert "no agent has half of the rows" in problem
