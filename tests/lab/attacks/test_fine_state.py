"""A weighted mean shown to its last bit gives away the sums it is made of: each total is whole quanta of 2⁻¹⁶ K, and
their combination, in all digits of a float64, is a lattice problem that is solved in an instant."""

import msgspec
import numpy as np
import pytest

from atdm.data.sample import load_sample
from atdm.lab.attacks.grid import lll
from atdm.options import fit_options
from atdm.protocol.blind import release
from atdm.protocol.blind.layouts import TOTAL_BITS
from atdm.run import enrol, make_plan
from atdm.types import FloatArray
from tests.protocol.drive import RULES, announcing, drive, seeded

ROWS = 44  # quiet ones, which the attack takes


def hidden_steps(state: FloatArray, sums: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and a basis of the steps from row to row of the sums in s, as whole quanta; from s alone."""
    fine = [int(v) for v in np.rint((state - 20.0) * 2.0**48)]
    steps = np.array([after - before for before, after in zip(fine, fine[1:], strict=False)], dtype=object)
    size = np.abs(steps).astype(float)
    rows = np.sort([row for row in np.argsort(size) if size[row] > 0][:ROWS])
    unit = np.eye(ROWS, dtype=int).tolist()
    short = lll([[int(steps[row]), *unit[i]] for i, row in enumerate(rows)])[: ROWS - sums]
    vanishing = [[entry * 2**40 for entry in row[1:]] for row in short]  # orthogonal to the sums, if short enough
    kernel = lll([[*(row[t] for row in vanishing), *unit[t]] for t in range(ROWS)])
    found = [row[ROWS - sums :] for row in kernel if not any(row[: ROWS - sums])]
    return rows, np.array(found, dtype=float)


@pytest.mark.parametrize("weakened", [False, True])
def test_the_totals_are_not_in_the_last_bits_of_the_state(weakened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fpylll")
    if weakened:
        monkeypatch.setattr(release, "STATE_QUANTUM", 2.0**-60)
    cluster = load_sample()
    agents, _ = enrol(cluster, RULES, seeded(0), keep=True)
    plan = make_plan(cluster, fit_options(protocol="blind", ridge=100.0, nonnegative=False), RULES)
    plan = msgspec.structs.replace(plan, totals=2)  # which an aggregator may ask for, and an agent takes for stricter
    aggregator = announcing(agents, plan, cluster)
    drive(aggregator, agents)
    outcome = aggregator.desk.outcome
    assert outcome.sums == 2
    totals = np.array([entry.value for entry in agents[1].own.notebook.seen if entry.what == "basis total"])
    rows, found = hidden_steps(outcome.estimate.state, 2)
    truth = (np.diff(totals, axis=1) * 2.0**TOTAL_BITS)[:, rows].T
    left = truth - found.T @ np.linalg.lstsq(found.T, truth, rcond=None)[0] if len(found) else truth
    apart = np.sqrt((left**2).mean() / (truth**2).mean())
    assert (apart < 1e-9) if weakened else (apart > 0.5)
