"""Drift is called where a cluster changes, and not where it does not."""

import json
import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import atdm
from atdm.report.drift_page import drift_page
from atdm.report.use_text import drift_table
from tests.use import two_state as known


def model_of(cluster: atdm.Cluster) -> atdm.Model:
    """Order 2, all days alike, with all rows."""
    fit = atdm.fit(cluster, "plain", weights="equal", train=0.5)
    return replace(fit.model, released=fit.released, trained=fit.inputs.train)


def observed(cluster: atdm.Cluster) -> pd.DataFrame:
    return pd.DataFrame({"aggregate_temp_c": cluster.temperature.mean(axis=1), "load_kw": cluster.load.sum(axis=1)})


def columns_of(page):
    """Figure → column → values, read from the data in the page."""
    found = re.findall(r'<figure[^>]* id="(\w+)".*?<script type="application/json">(.*?)</script>', page, re.S)
    return {name: {c["name"]: c["values"] for c in json.loads(text)["columns"]} for name, text in found}


def test_a_cluster_that_stays_the_same_does_not_drift():
    found = atdm.drift(model_of(known.two_state(days=28, agents=6, step_hours=1.0)))
    assert found.table["window"].nunique() == 3
    assert not found.table["drifted"].any()
    assert found.warnings == ()
    tau = found.table[found.table["quantity"] == "τ1 [h]"]
    np.testing.assert_allclose(tau["value"], known.true_time_constants()[0], rtol=0.05)


def test_a_cluster_that_changes_is_reported(monkeypatch):
    before = known.two_state(days=14, agents=6, step_hours=1.0)
    monkeypatch.setattr(known, "OUTER", 2.0)  # the windows stay open
    after = known.two_state(days=14, agents=6, step_hours=1.0)
    shift = before.time[-1] - before.time[0] + before.step
    found = atdm.drift(
        model_of(before), observed(after).shift(freq=shift), after.weather.shift(freq=shift), every="14d"
    )
    drifted = found.table[found.table["drifted"]]["quantity"].tolist()
    assert "τ1 [h]" in drifted
    assert any("τ1 [h] has left its band" in warning for warning in found.warnings)
    assert found.as_dict()["rows"][0]["quantity"] == "α1"
    marked = {name: columns.get("drifted [h]") for name, columns in columns_of(drift_page(found)).items()}
    tau = found.table[found.table["quantity"] == "τ1 [h]"]["value"].iloc[-1]
    assert marked["τ1"] == [None, pytest.approx(tau, rel=1e-4)] and not marked["α1"]


def test_drift_is_drawn_and_printed():
    found = atdm.drift(model_of(known.two_state(days=28, agents=6, step_hours=2.0)))
    drawn = columns_of(drift_page(found))
    assert len(drawn) == 13  # one figure a quantity
    beta = found.table[found.table["quantity"] == "β1"]
    np.testing.assert_allclose(drawn["β1"]["95 % band [K/kW], lower"], beta["low"], rtol=1e-4)
    assert len(set(drawn["β1"]["first band [K/kW], upper"])) == 1
    console = Console(record=True, width=200, file=StringIO(), markup=False)  # as that of the commands
    console.print(drift_table(found))
    assert "τ2 [h]" in console.export_text()


def test_windows_that_are_mostly_gap_are_left_out_and_said():
    """One of them used to refuse all: nobody was told that the cluster had changed."""
    model = model_of(known.two_state(days=56, agents=6, step_hours=2.0))
    first = model.released.time[0]
    before = model.released.between(None, first + pd.Timedelta("15D"))
    holed = replace(model, released=before.followed_by(model.released.between(first + pd.Timedelta("29D"), None)))
    found = atdm.drift(holed)
    assert found.table["window"].nunique() == 5 and not found.table["drifted"].any()
    assert found.warnings == ("2 of 7 windows are mostly gap and left out, the first that to 2024-01-28",)
    early = model.released.between(None, first + pd.Timedelta("13D"))
    late = replace(model, released=early.followed_by(model.released.between(first + pd.Timedelta("50D"), None)))
    with pytest.raises(atdm.UsageError, match="6 of 7 windows of 14d have too few rows"):
        atdm.drift(late)


def test_what_cannot_be_compared_is_refused():
    cluster = known.two_state(days=16, agents=6, step_hours=2.0)
    with pytest.raises(atdm.UsageError, match="two are needed"):
        atdm.drift(model_of(cluster))
    with pytest.raises(atdm.UsageError, match="no rows to compare"):
        atdm.drift(atdm.fit(cluster, "plain", weights="equal").model)
