"""Bands hold the share of the future they promise, when the model is right."""

import json

import numpy as np
import pytest

import atdm
from atdm.kernel.descent import sp1
from atdm.kernel.design import Design, Inputs
from atdm.kernel.thermal import Coefficients, coefficients
from atdm.model.bands import Training, band, block_bootstrap, simulate_paths

TRUE = Coefficients(
    alpha=np.array([1.3, -0.35]), beta=np.array([0.1, 0.05, 0.0]), gamma=np.array([0.01, 0.0, 0.0]),
    theta=np.array([0.4, 0.0, 0.0]), occupancy=np.array([0.2, 0.5, 0.3, 0.1]),
)  # fmt: skip


def world(rng: np.random.Generator, rows: int, train: int) -> tuple[Inputs, np.ndarray]:
    inputs = Inputs(
        load=rng.gamma(2, 1, rows), outdoor=rng.normal(5, 3, rows), solar=rng.uniform(0, 0.4, rows),
        phase=np.arange(rows) % 4, segment=np.zeros(rows, np.int64), period=4, train=train,
    )  # fmt: skip
    state = np.full(rows, 20.0)
    forcing = TRUE.forcing(inputs, np.arange(2, rows)) + rng.normal(0, 0.1, rows - 2)
    for t in range(2, rows):
        state[t] = forcing[t - 2] + TRUE.alpha @ state[t - 2 : t][::-1]
    return inputs, state


def part(inputs: Inputs, start: int, stop: int) -> Inputs:
    cut = slice(start, stop)
    return Inputs(
        load=inputs.load[cut], outdoor=inputs.outdoor[cut], solar=inputs.solar[cut], phase=inputs.phase[cut],
        segment=inputs.segment[cut], period=inputs.period, train=0,
    )  # fmt: skip


def test_coverage_is_nominal_where_the_model_is_true():
    rng = np.random.default_rng(11)
    inside = {0.8: [], 0.95: []}
    for world_number in range(30):
        inputs, state = world(rng, 300, 250)
        design = Design.build(inputs, 2)
        alpha, _ = sp1(design.projected_lags(state - 20))
        c, _ = coefficients(design, 4, alpha, state)
        training = Training.of(c, inputs, state)
        paths = simulate_paths(c, training, part(inputs, 250, 300), state[250:252], paths=300, seed=world_number)
        for level, hits in inside.items():
            low, high = band(paths, level)
            hits.append(((low <= state[250:]) & (state[250:] <= high))[2:].mean())
    assert np.mean(inside[0.8]) == pytest.approx(0.80, abs=0.06)
    assert np.mean(inside[0.95]) == pytest.approx(0.95, abs=0.04)


def test_blocks_are_runs_of_the_series():
    series = np.arange(50.0)
    drawn = block_bootstrap(series, 5, (4, 23), seed=2)
    assert drawn.shape == (4, 23)
    steps = np.diff(drawn, axis=1)
    inside_block = np.arange(1, 23) % 5 != 0
    assert (steps[:, inside_block] == 1).all()


def test_model_file_keeps_what_the_bands_need(tmp_path, sample):
    from atdm.use.forecast import trained

    fit = atdm.fit(sample, "plain")
    model = trained(fit)
    model.save(tmp_path / "model.json")
    back = atdm.Model.load(tmp_path / "model.json")
    assert back.training is not None and model.training is not None
    np.testing.assert_array_equal(back.training.residuals, model.training.residuals)
    np.testing.assert_array_equal(back.training.covariance, model.training.covariance)
    fit.model.save(tmp_path / "bare.json")
    assert atdm.Model.load(tmp_path / "bare.json").training is None


def test_model_file_with_training_of_another_model_is_refused(tmp_path, sample):
    from atdm.use.forecast import trained

    document = json.loads(trained(atdm.fit(sample, "plain")).to_json())
    document["training"]["covariance"] = [[1.0]]
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(atdm.DataError, match="do not belong together"):
        atdm.Model.load(tmp_path / "model.json")
