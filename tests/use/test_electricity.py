"""Electricity as load: a cluster of heat pumps whose curve is known, from its zones to a schedule."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import atdm
from tests.use.two_state import two_state

SLOPE, REFERENCE = 0.025, 5.0  # COP 3.0 at 5 °C, 2.5 % of that more per K


def curve(outdoor):
    return 1 + SLOPE * (outdoor - REFERENCE)


@pytest.fixture(scope="module")
def cluster():
    heat = two_state(days=40, agents=6, step_hours=1.0)
    return replace(heat, load=heat.load.div(3.0 * curve(heat.outdoor), axis=0))


@pytest.fixture(scope="module")
def fit(cluster):
    return atdm.fit(cluster, "plain", weights="equal", load="electricity")


def test_the_curve_is_found_within_five_percent(cluster, fit):
    cop = fit.released.cop
    seen = np.linspace(cluster.outdoor.min(), cluster.outdoor.max(), 30)
    truth = curve(seen) / curve(cop.reference)
    print(f"slope {cop.slope:.4f} 1/K about {cop.reference:.1f} °C, true {SLOPE / curve(cop.reference):.4f}")
    np.testing.assert_allclose(cop.factor(seen), truth, rtol=0.05)
    assert cop.words() in fit.notes and "standard error" in cop.words()


def test_the_model_forecasts_better_than_one_of_plain_load(cluster, fit):
    plain = atdm.fit(cluster, "plain", weights="equal")
    after_a_day = [found.horizons["chosen"][-1].rmse for found in (fit, plain)]
    assert after_a_day[0] < 0.9 * after_a_day[1]
    assert fit.model.as_dict() == plain.model.as_dict()  # what the protocol estimated stays


def test_programmes_stay_linear_and_keep_comfort(cluster, fit, tmp_path):
    weather = pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar})
    start, rows = fit.test.index[0], fit.series()
    price = pd.Series(0.2 + 0.1 * (weather.index.hour >= 16), index=weather.index)
    fit.chosen.save(tmp_path / "model.json")
    model = atdm.Model.load(tmp_path / "model.json")
    comfort = (float(fit.state.quantile(0.1)), float(fit.state.quantile(0.9)))
    found = atdm.flexibility(model, weather, comfort, initial=rows, price=price, start=str(start))
    count = max(model.order, 2)
    frame = weather.loc[start:].iloc[: count + 24]
    load = np.concatenate([rows["load_kw"].loc[start:].to_numpy()[:count], found.cheapest.load.to_numpy()])
    first = rows["aggregate_temp_c"].loc[start:].to_numpy()[:count]
    run = fit.planning.simulate(load[count - 2 :], frame.iloc[count - 2 :], first[-2:])
    np.testing.assert_allclose(run.iloc[2:], found.cheapest.temperature, atol=1e-3)
    assert found.cheapest.temperature.between(comfort[0] - 1e-6, comfort[1] + 1e-6).all()
    told = atdm.forecast(model, None, weather, rows, start=str(start), horizon=pd.Timedelta("24h"))
    truth = rows["load_kw"].reindex(told.table.index)
    assert np.sqrt(((told.table["load_kw"] - truth) ** 2).mean()) < 1.5 * truth.std()


def test_another_kind_of_load_is_refused(cluster):
    with pytest.raises(atdm.UsageError, match="'heat' or 'electricity'"):
        atdm.fit(cluster, "plain", load="gas")
