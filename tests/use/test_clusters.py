"""What docs/measurements.md says was measured on the three clusters: the numbers there are these."""

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.use.planned import planned
from atdm.use.polytope import feasible_loads
from tests.use.test_flexibility import hit_and_run

COMFORT = {"sample": (17.0, 21.5), "refit64": (18.0, 20.0), "twin_houses": (20.0, 22.0)}


@pytest.fixture(params=["sample", "refit64", "twin_houses"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(name: str, request: pytest.FixtureRequest) -> atdm.Cluster:
    found: atdm.Cluster = request.getfixturevalue(name)
    return found


def weather_of(cluster: atdm.Cluster) -> pd.DataFrame:
    return pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar})


def test_schedules_and_envelope(name, cluster):
    fit = atdm.fit(cluster, "plain", weights="equal")
    weather, rows, (low, high) = weather_of(cluster), fit.series(), COMFORT[name]
    price = pd.Series(0.2 + 0.2 * ((weather.index.hour >= 16) & (weather.index.hour < 20)), index=weather.index)
    asked = {"initial": rows, "price": price, "start": str(fit.test.index[0])}
    if name == "sample":  # its rows do not tell what heat does
        with pytest.raises(atdm.UsageError, match="atdm probe"):
            atdm.flexibility(fit, weather, (low, high), **asked)
        asked["assume_gain"] = 0.1
    found = atdm.flexibility(fit, weather, (low, high), **asked)
    for schedule in (found.cheapest, found.expected.dropped, found.expected.lifted):
        assert schedule.temperature.between(low - 1e-6, high + 1e-6).all()
    if not any("baseline leaves" in note for note in found.notes):
        assert found.cheapest.cost <= found.baseline.cost + 1e-6


def test_what_the_cheapest_schedule_saves_and_that_none_of_it_is_missing_the_day_after(name, cluster):
    fit = atdm.fit(cluster, "plain", weights="equal")
    weather, rows, start = weather_of(cluster), fit.series(), fit.state.index[fit.inputs.train - 3]
    price = pd.Series(0.2 + 0.2 * ((weather.index.hour >= 16) & (weather.index.hour < 20)), index=weather.index)
    gain = 0.1 if name == "sample" else None
    comfort, share = {"sample": ((17.0, 21.5), 24), "refit64": ((17.0, 20.0), 36), "twin_houses": ((20.0, 25.0), 19)}[
        name
    ]
    found = atdm.flexibility(fit, weather, comfort, initial=rows, price=price, start=str(start), assume_gain=gain)
    model, day = planned(fit, gain).used, len(found.envelope)
    window = weather.iloc[weather.index.get_loc(found.envelope.index[0]) - 2 :].iloc[: 2 + 2 * day]
    past, after = rows.loc[window.index[:2]], np.full(len(window) - 2 - day, found.baseline.load.mean())
    cheapest, baseline = (
        model.simulate(np.concatenate([past["load_kw"], plan.load, after]), window, past["aggregate_temp_c"].to_numpy())
        for plan in (found.cheapest, found.baseline)
    )
    print(name, f"saves {100 * found.saving / found.baseline.cost:.0f} %")
    assert round(100 * found.saving / found.baseline.cost) == share
    assert (cheapest - baseline).iloc[1 + day :].min() >= -1e-6


@pytest.mark.soak
def test_envelope_holds_ten_thousand_schedules(name, cluster):
    fit = atdm.fit(cluster, "plain")
    model, start = fit.chosen, fit.inputs.train
    frame = weather_of(cluster).iloc[start : start + model.order + 48]
    before, initial = fit.load.to_numpy()[start : start + model.order], fit.test.to_numpy()[: model.order]
    power = (0.0, float(model.released.load_high))
    polytope = feasible_loads(model, frame, initial, before, COMFORT[name], power)
    envelope = polytope.envelope().to_numpy()
    inner = np.mean([polytope.best(g) for g in np.random.default_rng(0).normal(size=(200, 48))], axis=0)
    slack = 1e-6 * power[1]
    for load in hit_and_run(polytope, inner, 10_000, np.random.default_rng(1)):
        both = np.column_stack([load, load, np.cumsum(load), np.cumsum(load)])
        assert (both[:, [0, 2]] >= envelope[:, [0, 2]] - slack).all()
        assert (both[:, [1, 3]] <= envelope[:, [1, 3]] + slack).all()
