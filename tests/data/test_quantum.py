"""The step of a sensor, found in what it gave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atdm.data.quantum import LEAST_QUANTUM, MOST_QUANTUM, TELLING, UNKNOWN_QUANTUM, sensor_quantum


@given(step=st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5, 5 / 9, 1.0]), seed=st.integers(0, 99))
def test_a_sensor_that_moves_shows_its_step(step, seed):
    rng = np.random.default_rng(seed)
    values = step * (np.round(20 / step) + np.cumsum(rng.integers(-1, 2, 600)))
    values[rng.random(600) < 0.02] = np.nan
    if len(np.unique(values[~np.isnan(values)])) >= TELLING:
        assert sensor_quantum(values) == pytest.approx(step, abs=LEAST_QUANTUM)


def test_few_different_values_tell_no_fine_step():
    assert sensor_quantum(np.array([20.0, 20.01, np.nan])) == UNKNOWN_QUANTUM
    assert sensor_quantum(np.array([20.0, 20.5, 21.0])) == 0.5
    assert sensor_quantum(np.array([20.0])) == UNKNOWN_QUANTUM
    assert sensor_quantum(np.array([18.0, 27.0])) == MOST_QUANTUM
    assert sensor_quantum(np.array([np.nan])) == sensor_quantum(np.zeros(0)) == 0
