"""What `atdm check` says about agents is what agents do."""

from types import SimpleNamespace

import pandas as pd
import pytest

from atdm.data import quality
from atdm.kernel.design import train_rows
from atdm.options import fit_options
from atdm.protocol.rules import Rules, too_short
from atdm.run import make_plan
from atdm.use.ready import problems, short_of
from tests.clusters import tiny
from tests.data.builders import DAY, write, zones_table


@pytest.mark.parametrize("rows, enough", [(393, False), (394, True)])
def test_rows_are_called_too_few_where_agents_with_fitted_weights_would_stay_out(rows, enough):
    one = SimpleNamespace(step=pd.Timedelta("30min"), rows=rows)
    said = short_of(SimpleNamespace(agents=[one] * 12, rows_kept=None))
    plan = make_plan(tiny(agents=12, rows=rows, step="30min"), fit_options(protocol="blind"))
    assert (too_short(Rules(), plan, train_rows(rows, plan.train)) is None) == enough == (said == ())
    assert enough or "equal weights need fewer" in said[0]


def test_agents_are_called_too_few_below_the_usual_minimum():
    one = SimpleNamespace(step=pd.Timedelta("30min"), rows=1000)
    assert short_of(SimpleNamespace(agents=[one] * 10, rows_kept=None)) == ()
    assert "9 agents" in short_of(SimpleNamespace(agents=[one] * 9, rows_kept=None))[0]


def test_rows_lost_to_missing_readings_are_no_rows(tmp_path):
    one = SimpleNamespace(step=pd.Timedelta("30min"), rows=1000)
    assert short_of(SimpleNamespace(agents=[one] * 12, rows_kept=394)) == ()
    assert "393 rows" in short_of(SimpleNamespace(agents=[one] * 12, rows_kept=393))[0]


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
