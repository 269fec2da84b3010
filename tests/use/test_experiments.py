"""What a planner must predict: how the temperature changes when heating is moved, from how the load changed.

The runs are of the same buildings in the same weather (docs/planning.md): Δs and Δh are theirs against `passive`.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.kernel.thermal import Coefficients
from atdm.model import planning
from atdm.model.diagnostics import impulse_filter
from atdm.model.horizons import origins_in, rolling_errors
from atdm.model.released import released_rows
from atdm.use.planned import doubt, margins, planned

Experiment = Callable[[str], atdm.Cluster]
MOVED = ("events", "off")  # set points moved on five days; heating off for 36 h
PROBE = pd.DataFrame({"time": [pd.Timestamp("2018-01-26", tz="UTC")], "until": [pd.Timestamp("2018-01-31", tz="UTC")],
                      "setpoint_offset_k": [1.0]})  # fmt: skip


@pytest.fixture(scope="module")
def runs(experiment: Experiment) -> dict[str, atdm.Cluster]:
    return {run: experiment(run) for run in ("passive", "probed", *MOVED)}


def slopes(model: atdm.Model | Coefficients, runs: dict[str, atdm.Cluster], first: int) -> dict[str, float]:
    """Predicted over true change of the mean temperature in the rows from `first` on: least squares through zero."""
    base, found = runs["passive"], {}
    for run in MOVED:
        change = (runs[run].load.sum(axis=1) - base.load.sum(axis=1)).to_numpy()
        truth = (runs[run].temperature.mean(axis=1) - base.temperature.mean(axis=1)).to_numpy()[first:]
        told = impulse_filter(model.alpha, np.convolve(change, model.beta)[: len(change)])[first:]
        found[run] = float(told @ truth / (truth @ truth))
    return found


def estimated(fit: atdm.Fit) -> Coefficients:
    """What would be planned with, refused or not."""
    rows, calendar = fit.released, fit.judged.calendar
    inputs = rows.inputs(calendar, fit.inputs.train)
    return planning._estimate(inputs, rows.state, calendar, rows.probed_rows(), None)[0]


@pytest.mark.parametrize("marked", [False, True])
def test_after_five_days_of_steps_the_response_to_heat_is_true(runs, marked):
    fit = atdm.fit(runs["probed"], "plain", weights="equal", probed=PROBE if marked else None)
    assert fit.planning is not None, fit.notes
    found = slopes(fit.planning, runs, fit.inputs.train)
    print(f"probed, marked {marked}: {found}, {fit.judged.excitation}")
    assert all(0.8 <= slope <= 1.2 for slope in found.values()), found
    assert not any("not for planning" in note for note in fit.notes)
    assert fit.judged.excitation.probed_rows == (217 if marked else 0)  # of the training rows


def test_passive_rows_are_refused_for_what_thermostats_hide(runs):
    fit = atdm.fit(runs["passive"], "plain", weights="equal")
    print(f"passive: {slopes(estimated(fit), runs, fit.inputs.train)}, {fit.judged.excitation}")
    assert fit.planning is None
    assert {refusal.reason for refusal in fit.judged.refusals} == {"standard error", "agreement"}
    with pytest.raises(atdm.UsageError, match="atdm probe"):
        weather = pd.DataFrame({"outdoor_temp_c": runs["passive"].outdoor, "solar_w_m2": 1000 * runs["passive"].solar})
        atdm.flexibility(fit, weather, (18.0, 23.0), initial=fit.state, start=str(fit.test.index[0]))


@pytest.mark.parametrize("run", ["passive", "probed"])
def test_fitted_weights_are_refused(runs, run):
    fit = atdm.fit(runs[run], "plain")
    print(f"{run}, fitted: {slopes(estimated(fit), runs, fit.inputs.train)}")
    assert fit.planning is None and [refusal.reason for refusal in fit.judged.refusals] == ["weights"]


@pytest.mark.parametrize("building", ["SmallHotel", "MediumOffice", "StripMall"])
@pytest.mark.parametrize("run", ["passive", "probed"])
def test_one_building_alone_is_true_or_refused(runs, run, building):
    """Each building is a cluster of its own; where its model may be planned with, its slopes are those of the issue."""
    part = {name: only(cluster, building) for name, cluster in runs.items()}
    fit = atdm.fit(part[run], "plain", weights="equal", probed=PROBE if run == "probed" else None)
    found = None if fit.planning is None else slopes(fit.planning, part, fit.inputs.train)
    told = slopes(estimated(fit), part, fit.inputs.train)
    print(f"{building} {run}: {told}, {[refusal.reason for refusal in fit.judged.refusals]}")
    low, high = (0.7, 1.4) if run == "passive" else (0.8, 1.25)
    assert found is None or all(low <= slope <= high for slope in found.values()), found


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("marked", [False, True])
def test_a_hotel_that_cools_in_january_is_refused_by_hours_too(runs, start, marked):
    """Its slopes hang on which half-hours make an hour: 0.9 and 1.5. Both were planned with."""
    part = longer(only(runs["probed"], "SmallHotel"), start)
    fit = atdm.fit(part, "plain", weights="equal", probed=PROBE if marked else None)
    assert fit.planning is None
    assert {"standard error", "balance"} <= {refusal.reason for refusal in fit.judged.refusals}


@pytest.mark.parametrize("building", ["MediumOffice", "StripMall"])
def test_a_building_that_is_right_by_hours_is_planned_with(runs, building):
    part = {name: longer(only(cluster, building), 0) for name, cluster in runs.items()}
    fit = atdm.fit(part["probed"], "plain", weights="equal", probed=PROBE)
    assert fit.planning is not None, fit.notes
    found = slopes(fit.planning, part, fit.inputs.train)
    assert all(0.8 <= slope <= 1.25 for slope in found.values()), found


def longer(cluster: atdm.Cluster, start: int) -> atdm.Cluster:
    """Hours of half-hours, from row `start` on."""

    def mean(values: pd.DataFrame | pd.Series) -> pd.DataFrame | pd.Series:
        whole = values.iloc[start : start + (len(values) - start) // 2 * 2]
        return whole.groupby(np.arange(len(whole)) // 2).mean().set_axis(whole.index[1::2])

    return atdm.Cluster.from_frames(
        mean(cluster.temperature), mean(cluster.load), mean(cluster.outdoor), mean(cluster.solar), owner=cluster.owner
    )


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_a_confidence_holds_where_the_load_is_really_moved(runs, confidence):
    """Shares of true temperatures inside the margin, what the load was moved by counted against `passive`."""
    fit = atdm.fit(runs["probed"], "plain", weights="equal")
    chosen, used, judged = planned(fit)
    kept = margins(used, chosen.released, chosen.trained, judged, confidence, 48)
    first = fit.state.index[fit.inputs.train]
    spans = {"passive": (first, None), "events": (first, None),
             "off": (pd.Timestamp("2018-02-01", tz="UTC"), pd.Timestamp("2018-02-02T12:00Z"))}  # fmt: skip
    sums = {run: pd.DataFrame({"aggregate_temp_c": c.temperature.mean(axis=1), "load_kw": c.load.sum(axis=1)})
            for run, c in runs.items()}  # fmt: skip
    weather = pd.DataFrame({"outdoor_temp_c": runs["passive"].outdoor, "solar_w_m2": 1000 * runs["passive"].solar})
    for run, (start, stop) in spans.items():
        rows = released_rows(sums[run], weather, used.step)
        inputs, end = rows.inputs(used.calendar), len(rows) if stop is None else int(rows.time.searchsorted(stop))
        origins = origins_in(inputs, int(rows.time.searchsorted(start)), end - 48, used.order)
        errors = np.abs(rolling_errors(used.coefficients, inputs, rows.state, origins, 48))
        change = rows.load - sums["passive"]["load_kw"].reindex(rows.time).to_numpy()
        moved = np.array([impulse_filter(used.alpha, np.convolve(change[o : o + 48], used.beta)[:48]) for o in origins])
        inside = errors <= kept + doubt(judged, confidence) * np.abs(moved)
        shares = [round(float(inside[:, k - 1].mean()), 2) for k in (2, 12, 24, 48)]
        print(f"{confidence} {run}: inside after 1, 6, 12, 24 h {shares}, without the response "
              f"{[round(float((errors <= kept)[:, k - 1].mean()), 2) for k in (2, 12, 24, 48)]}")  # fmt: skip
        assert min(shares) >= confidence - 0.06, (run, shares)


def only(cluster: atdm.Cluster, building: str) -> atdm.Cluster:
    names = [name for name in cluster.agents if cluster.owner[name] == building]
    return atdm.Cluster.from_frames(
        cluster.temperature[names], cluster.load[names], cluster.outdoor, cluster.solar, owner=cluster.owner[names]
    )
