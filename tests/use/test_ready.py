"""What `atdm check` says about agents is what agents do."""

from types import SimpleNamespace

import pandas as pd
import pytest

from atdm.protocol.options import fit_options
from atdm.protocol.rules import Rules
from atdm.run import make_plan
from atdm.use.ready import short_of
from tests.clusters import tiny


@pytest.mark.parametrize("rows, enough", [(393, False), (394, True)])
def test_rows_are_called_too_few_where_agents_with_fitted_weights_would_stay_out(rows, enough):
    one = SimpleNamespace(step=pd.Timedelta("30min"), rows=rows)
    said = short_of(SimpleNamespace(agents=[one] * 12))
    plan = make_plan(tiny(agents=12, rows=rows, step="30min"), fit_options(protocol="blind"))
    assert (Rules().too_short(plan, rows) is None) == enough == (said == ())
    assert enough or "equal weights need fewer" in said[0]


def test_agents_are_called_too_few_below_the_usual_minimum():
    one = SimpleNamespace(step=pd.Timedelta("30min"), rows=1000)
    assert short_of(SimpleNamespace(agents=[one] * 10)) == ()
    assert "9 agents" in short_of(SimpleNamespace(agents=[one] * 9))[0]
