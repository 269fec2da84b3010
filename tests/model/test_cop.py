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

    assert abs(found.slope - COP.slope / COP.factor(np.array([found.reference]))[0]) < 3 * found.standard_error
    assert 0 < found.standard_error < found.slope / 5 and not found.unknown and "% more" in found.words()


def test_resistance_heating_has_a_flat_curve():
    world = rows(days=40)
    found = estimate_cop(world.inputs, world.state, world.calendar)
    assert found.slope == 0.0 and "not known" in found.words()
    assert Cop.from_dict(found.as_dict()) == found


def test_a_curve_that_no_heat_pump_has_is_not_taken():
    """Where rows speak for less heat per kW on a warm day, what they show is no COP: thermostats, or the sun."""
    world = rows(days=40)
    wrong = Cop(slope=-0.02, reference=2.0)
    found = estimate_cop(replace(world.inputs, load=world.inputs.load / wrong.factor(world.inputs.outdoor)),
                         world.state, world.calendar)  # fmt: skip
    assert found.slope == 0.0 and "falls where a heat pump's rises" in found.words()


def test_a_curve_too_steep_for_any_heat_pump_is_not_taken():
    world = rows(days=40)
    metered = replace(
        world.inputs, load=world.inputs.load / Cop(slope=0.15, reference=-3.0).factor(world.inputs.outdoor)
    )
    found = estimate_cop(metered, world.state, world.calendar)
    assert found.slope == 0.0 and "or more" in found.words()


def test_cooling_is_heating_seen_in_a_mirror():
    """Temperatures, load and weather with the other sign: a kW cools less on a warm day."""
    world = rows(days=40)
    metered = world.inputs.load / (3.0 * COP.factor(world.inputs.outdoor))
    warm = replace(world.inputs, load=metered)
    cool = replace(warm, load=-metered, outdoor=-warm.outdoor, solar=0.5 - warm.solar)
    heats, cools = (estimate_cop(i, s, world.calendar) for i, s in ((warm, world.state), (cool, -world.state)))
    assert cools.slope == pytest.approx(-heats.slope, abs=1e-4) and cools.reference == pytest.approx(-heats.reference)
    assert cools.standard_error == pytest.approx(heats.standard_error, rel=0.05) and "% less" in cools.words()


def test_a_model_file_of_before_has_no_standard_error():
    assert Cop.from_dict({"slope_per_k": 0.02, "reference_c": 5.0}) == Cop(slope=0.02, reference=5.0)
