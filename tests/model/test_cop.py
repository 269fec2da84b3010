"""A heat pump's curve comes back from rows of electricity, temperature and weather."""

from dataclasses import replace

import numpy as np
import pytest

from atdm.model.cop import Cop, estimate_cop
from tests.model.rooms import rows

COP = Cop(slope=0.025, reference=2.0)  # 3.0 at 2 °C, 2.25 at −8 °C, 3.75 at 12 °C


@pytest.mark.parametrize("seed", range(3))
def test_a_known_curve_is_found_within_five_percent(seed):
    """The rows' load is heat; the electricity for it is heat over the curve."""
    world = rows(days=40, seed=seed)
    metered = replace(world.inputs, load=world.inputs.load / (3.0 * COP.factor(world.inputs.outdoor)))
    found = estimate_cop(metered, world.state, world.calendar)
    seen = np.linspace(*np.quantile(world.inputs.outdoor[: world.inputs.train], [0.02, 0.98]), 20)
    truth = COP.factor(seen) / COP.factor(np.array([found.reference]))
    print(f"seed {seed}: slope {found.slope:.4f}")
    np.testing.assert_allclose(found.factor(seen), truth, rtol=0.05)


def test_resistance_heating_has_a_flat_curve():
    world = rows(days=40)
    assert estimate_cop(world.inputs, world.state, world.calendar).slope == pytest.approx(0.0, abs=0.004)
