"""`plain`: a trusted centre that gets all data. The baseline, and what the other protocols must agree with."""

import numpy as np

from atdm.data.readings import Weather
from atdm.kernel.estimate import estimate, of_state
from atdm.protocol.desk import Outcome
from atdm.protocol.ledger import Notebook
from atdm.protocol.plan import Plan
from atdm.protocol.readings import public_inputs
from atdm.types import FloatArray, IntArray


def fit_plain(
    plan: Plan, time: IntArray, temperature: FloatArray, load: FloatArray, weather: Weather, notebook: Notebook
) -> tuple[Outcome, FloatArray]:
    """The fit and the weights; temperature and load are N × K, one column an agent."""
    notebook.write("everything", temperature)
    notebook.write("everything", load)
    total = load.sum(axis=1)
    inputs = public_inputs(plan, time, total, weather)
    if plan.weights == "equal":
        state = temperature.mean(axis=1)
        answer = of_state(inputs, state, order=plan.order, minimum_norm=plan.minimum_norm)
        return Outcome(answer, total, time, 0), np.full(temperature.shape[1], 1.0 / temperature.shape[1])
    answer, weights = estimate(
        inputs,
        temperature,
        order=plan.order,
        ridge=plan.ridge,
        nonnegative=False if plan.nonnegative == "free" else plan.nonnegative,
        tolerance=plan.tolerance,
        minimum_norm=plan.minimum_norm,
    )
    return Outcome(answer, total, time, 0), weights
