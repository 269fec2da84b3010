"""What docs/measurements.md says was measured on the three clusters: the numbers there are these."""

import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.use.flexibility import feasible_loads
from atdm.use.forecast import trained
from atdm.use.select import select
from tests.use.test_flexibility import hit_and_run

# share of test points inside the 80 % and 95 % bands, 7-day runs started daily
COVERAGE = {"sample": (0.92, 0.985), "refit64": (0.81, 0.955), "twin_houses": (0.94, 1.0)}
# order chosen of 1 to 3 on the series of one plain fit; its test free-run R²
CHOSEN = {"sample": (2, 0.8823), "refit64": (2, 0.8701), "twin_houses": (3, 0.8275)}
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


def test_coverage_of_the_bands(name, cluster):
    fit = atdm.fit(cluster, "plain")
    start = str(fit.test.index[0])
    found = atdm.forecast(fit, fit.load, weather_of(cluster), truth=fit.state, start=start)
    assert found.coverage is not None
    assert tuple(found.coverage["rolling"].values()) == pytest.approx(COVERAGE[name], abs=0.02)
    assert found.free_run_rmse == pytest.approx(fit.metrics["test"]["free_run"]["rmse"], rel=0.01)  # M exact rows more
    for skill in found.skill[:3]:
        assert skill.rmse < min(skill.persistence_rmse, skill.seasonal_rmse)


def test_schedules_and_envelope(name, cluster):
    fit = atdm.fit(cluster, "plain")
    model, weather, start = trained(fit), weather_of(cluster), fit.test.index[0]
    price = pd.Series(0.2 + 0.2 * ((weather.index.hour >= 16) & (weather.index.hour < 20)), index=weather.index)
    found = atdm.flexibility(model, weather, COMFORT[name], initial=fit.state, price=price, start=str(start))
    low, high = COMFORT[name]
    for schedule in (found.cheapest, found.baseline, found.dropped, found.lifted):
        assert schedule.temperature.between(low - 1e-6, high + 1e-6).all()
    assert found.cheapest.cost <= found.baseline.cost + 1e-6


@pytest.mark.soak
def test_envelope_holds_ten_thousand_schedules(name, cluster):
    fit = atdm.fit(cluster, "plain")
    model, start = trained(fit), fit.inputs.train
    frame = weather_of(cluster).iloc[start : start + model.order + 48]
    before, initial = fit.load.to_numpy()[start : start + 2], fit.test.to_numpy()[:2]
    power = (0.0, float(model.training.load_high))
    polytope = feasible_loads(model, frame, initial, before, COMFORT[name], power)
    envelope = polytope.envelope().to_numpy()
    inner = np.mean([polytope.best(g) for g in np.random.default_rng(0).normal(size=(200, 48))], axis=0)
    slack = 1e-6 * power[1]
    for load in hit_and_run(polytope, inner, 10_000, np.random.default_rng(1)):
        both = np.column_stack([load, load, np.cumsum(load), np.cumsum(load)])
        assert (both[:, [0, 2]] >= envelope[:, [0, 2]] - slack).all()
        assert (both[:, [1, 3]] <= envelope[:, [1, 3]] + slack).all()


def test_selection(name, cluster):
    found = select(cluster, protocol="plain")
    order, r2 = CHOSEN[name]
    assert found.chosen.candidate.order == order
    assert found.fit.metrics["test"]["free_run"]["r2"] == pytest.approx(r2, abs=1e-4)
