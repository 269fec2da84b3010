"""Diagnostics agree with statsmodels, with known models, and warn in the cases they are for."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.diagnostic import acorr_ljungbox
from statsmodels.tsa.stattools import acf as reference_acf

import atdm
from atdm.kernel.design import Inputs
from atdm.kernel.thermal import Coefficients
from atdm.model.diagnostics import (
    Regression,
    autocorrelation,
    diagnose,
    ljung_box,
    newey_west,
    roots,
    season_lags,
    steady_gains,
    step_response,
    time_constants,
)
from tests.clusters import tiny
from tests.use.two_state import true_time_constants, two_state


def model(alpha, beta=(0.05, 0.02), gamma=(0.01, 0.0), theta=(0.3, 0.0), period=4):
    order = len(alpha)
    padded = [np.resize(np.append(v, np.zeros(order)), order + 1) for v in (beta, gamma, theta)]
    return Coefficients(
        alpha=np.array(alpha, float), beta=padded[0], gamma=padded[1], theta=padded[2], occupancy=np.full(period, 0.4)
    )


def simulated(c: Coefficients, rows: int = 400, seed: int = 3, noise: float = 0.05, segment=None):
    rng = np.random.default_rng(seed)
    inputs = Inputs(
        load=rng.gamma(2, 1, rows), outdoor=rng.normal(5, 3, rows), solar=rng.uniform(0, 0.4, rows),
        phase=np.arange(rows) % c.period, segment=np.zeros(rows, np.int64) if segment is None else segment,
        period=c.period, train=rows,
    )  # fmt: skip
    state = np.full(rows, 20.0)
    at = np.arange(c.order, rows)
    forcing = c.forcing(inputs, at) + rng.normal(0, noise, len(at))
    for t, u in zip(at, forcing, strict=True):
        state[t] = u + c.alpha @ state[t - c.order : t][::-1]
    return inputs, state


@pytest.fixture(scope="module")
def fitted():
    return atdm.fit(tiny(rows=200), "plain", order=2)


@pytest.fixture(scope="module")
def estimated(fitted):
    """Of the model that least squares gives, as statsmodels has it."""
    return diagnose(fitted.model.coefficients, fitted.inputs, fitted.state.to_numpy(), 0.5)


def test_whiteness_is_that_of_statsmodels(fitted, estimated):
    d = estimated
    e = Regression.build(fitted.model.coefficients, fitted.inputs, fitted.state.to_numpy()).residuals
    lags = d.whiteness.lags
    table = acorr_ljungbox(e, lags=[lags], model_df=2)
    assert d.whiteness.statistic == pytest.approx(table["lb_stat"].iloc[0], rel=1e-10)
    assert d.whiteness.p_value == pytest.approx(table["lb_pvalue"].iloc[0], rel=1e-8)
    np.testing.assert_allclose(d.autocorrelation, reference_acf(e, nlags=lags, fft=False)[1:], atol=1e-12)


def test_newey_west_is_that_of_statsmodels(fitted, estimated):
    r = Regression.build(fitted.model.coefficients, fitted.inputs, fitted.state.to_numpy())
    lags = season_lags(fitted.model.period, len(r.rows))
    target = fitted.state.to_numpy()[r.rows] - 20.0
    ols = sm.OLS(target, r.columns).fit(cov_type="HAC", cov_kwds={"maxlags": lags, "use_correction": True})
    own = newey_west(r.columns, ols.resid, r.rows, fitted.inputs.segment, lags)
    np.testing.assert_allclose(own, ols.cov_params(), rtol=1e-6, atol=1e-12)
    for name, values in estimated.standard_errors.items():
        assert values.shape == getattr(fitted.model, name).shape
        assert (values > 0).all()


def test_no_product_crosses_a_gap():
    rng = np.random.default_rng(5)
    values = rng.normal(size=60)
    segment = np.repeat([0, 1], 30)
    rows = np.arange(60)
    centred = values - values.mean()
    by_hand = [
        sum(centred[t] * centred[t - k] for t in range(k, 60) if segment[t] == segment[t - k]) / (centred @ centred)
        for k in (1, 2, 3)
    ]
    np.testing.assert_allclose(autocorrelation(values, rows, segment, 3), by_hand, rtol=1e-12)


@pytest.mark.parametrize("step_hours", [0.25, 0.5, 1.0])
def test_time_constants_do_not_depend_on_the_step(step_hours):
    poles = np.exp(-step_hours / np.array([30.0, 2.0]))
    alpha = -np.poly(poles)[1:]
    np.testing.assert_allclose(time_constants(roots(alpha), step_hours), [30.0, 2.0], rtol=1e-9)


@pytest.mark.parametrize("protocol", ["plain", "blind"])
def test_time_constants_of_a_known_two_state_model_are_recovered_within_5_percent(protocol):
    found = atdm.fit(two_state(), protocol).diagnostics
    np.testing.assert_allclose(found.time_constants[:2], true_time_constants(), rtol=0.05)
    assert found.stable
    assert (found.time_constants[2:] < found.step_hours / 2).all()  # an order too many is a mode that is gone at once


def test_gains_are_where_a_long_run_settles():
    c = model([1.2, -0.3])
    after = step_response(c, 2000)
    for name, gain in steady_gains(c).items():
        assert gain == pytest.approx(after[name], rel=1e-9)
    assert all(np.isnan(v) for v in steady_gains(model([1.1, -0.05])).values())


def test_shares_of_variance_add_up_to_one_and_go_to_the_term_that_moves():
    c = model([0.9], beta=(0.5, 0.0), gamma=(0.0, 0.0), theta=(0.0, 0.0))
    inputs, state = simulated(c, noise=0.0)
    share = diagnose(c, inputs, state, 0.5).variance_share
    assert sum(share.values()) == pytest.approx(1.0)
    assert share["load"] > 0.9
    assert abs(share["residual"]) < 1e-9


def test_diagnostics_turn_into_json(fitted):
    document = fitted.diagnostics.as_dict()
    assert isinstance(document["roots"], list)
    assert document["whiteness"]["lags"] == fitted.diagnostics.whiteness.lags
    assert set(document["standard_errors"]) == {"alpha", "beta", "gamma", "theta", "occupancy"}


@pytest.mark.parametrize(
    ("alpha", "changes", "words"),
    [
        ([1.5, -0.49], {}, "unstable"),
        ([1.2, -0.5], {}, "oscillates"),
        ([0.3, 0.4], {}, "alternates"),
        ([0.9], {"beta": np.array([-0.05, 0.0])}, "more heat cools"),
        ([0.9], {"theta": np.array([-0.3, 0.0])}, "more sun cools"),
        ([0.999], {}, "longer than the training data"),
    ],
)
def test_warnings_name_what_is_wrong(alpha, changes, words):
    c = model(alpha)
    inputs, state = simulated(c, rows=60)
    found = diagnose(replace(c, **changes), inputs, state, 0.5)
    assert any(words in warning for warning in found.warnings), found.warnings


def test_a_sound_model_has_no_warning():
    c = model([0.9])
    inputs, state = simulated(c, rows=1500, seed=8)
    assert diagnose(c, inputs, state, 0.5).warnings == ()


def test_correlated_residuals_are_seen():
    c = model([0.9])
    inputs, state = simulated(c, rows=600)
    sensor = np.random.default_rng(0).normal(0, 0.2, 600)  # noise of the reading, which the next step does not repeat
    found = diagnose(c, inputs, state + sensor, 0.5)
    assert found.whiteness.p_value < 1e-3
    assert found.autocorrelation[0] < -0.1


def test_ljung_box_has_order_fewer_degrees():
    assert ljung_box(np.zeros(10), 100, 3).degrees == 7
    assert ljung_box(np.zeros(10), 100, 3).p_value == 1.0
