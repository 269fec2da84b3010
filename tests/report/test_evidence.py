"""The numbers behind the figures, against the kernel's own metrics and straight simulation."""

from dataclasses import replace

import numpy as np
import pytest

import atdm
from atdm.kernel.thermal import free_run
from atdm.report.evidence import enough_rows, horizon_errors, prediction, residuals, runs, step_response


def test_runs_cover_every_row_once_and_never_cross_a_gap(simulated: atdm.Fit) -> None:
    rows = len(simulated.inputs)
    inputs = replace(simulated.inputs, segment=np.repeat([0, 1, 2], [70, 3, rows - 73]).astype(np.int64))
    found = runs(inputs, 2, inputs.period)
    drawn = np.concatenate([np.arange(first, stop) for _, first, stop in found])
    assert len(np.unique(drawn)) == len(drawn)
    for given, first, stop in found:
        assert len(set(inputs.segment[given:stop])) == 1 and given <= first < stop and stop - first <= inputs.period
        assert (given < inputs.train) == (stop <= inputs.train)


def test_bands_hold_the_prediction_and_most_measurements(simulated: atdm.Fit) -> None:
    told = prediction(simulated)
    ahead = told.horizon > 0
    assert (told.low[ahead] < told.high[ahead]).all()
    assert 0.7 < told.inside <= 1.0
    assert told.horizon.max() <= simulated.chosen.season
    again = prediction(simulated)
    assert np.array_equal(told.low, again.low), "the same fit gives the same page"


def test_error_after_one_step_is_the_one_step_error(simulated: atdm.Fit) -> None:
    rows, errors = residuals(simulated)
    steps, starts = 4, rows[rows >= simulated.inputs.train]
    starts = starts[starts + steps <= len(simulated.inputs)]
    expected = np.sqrt(np.mean(errors[np.isin(rows, starts)] ** 2))
    assert horizon_errors(simulated, steps)["model"][0] == pytest.approx(expected, rel=1e-9)


def test_step_response_is_the_difference_of_two_simulations(simulated: atdm.Fit) -> None:
    c, inputs, state = simulated.model.coefficients, simulated.inputs, simulated.state.to_numpy(float)
    raised = replace(inputs, load=inputs.load + (np.arange(len(inputs)) >= 10))
    change = free_run(c, raised, state, 0, len(inputs)) - free_run(c, inputs, state, 0, len(inputs))
    assert np.allclose(step_response(c, c.beta, 30), change[10:40], atol=1e-9)


def test_a_run_that_released_few_rows_is_recognised(simulated: atdm.Fit) -> None:
    few = replace(simulated.inputs, train=3)
    assert enough_rows(simulated) and not enough_rows(replace(simulated, inputs=few))
