"""`moments`: one secure sum of Σ x_i x_iᵀ and Σ x_i feeds the whole descent, any order and any ridge, offline.

The aggregator learns those moments, which are all temperatures up to one rotation (docs/spec.md §4), and no weight:
agent i computes ξ_i = x_i·w + b itself. Offered for comparison, and where there are far more agents than rows.
"""

from dataclasses import replace

import numpy as np

from atdm.crypto.ring import FloatArray
from atdm.errors import PeerError
from atdm.kernel.descent import RIDGE_GROWTH, RIDGE_STEPS, Descent, Status, descend
from atdm.kernel.design import REFERENCE_TEMP, Design
from atdm.kernel.estimate import complete
from atdm.kernel.moments import Moments
from atdm.protocol.desk import Outcome
from atdm.protocol.opened import TEMP_BOUND, OpenDesk, OpenPart, Script, Sum
from atdm.protocol.readings import public_inputs
from atdm.protocol.sums import OPEN_BUDGET, Block, Layout, fixed


def moments_layout(agents: int, rows: int) -> Layout:
    return Layout((
        fixed("second", rows * (rows + 1) // 2, agents, TEMP_BOUND**2, OPEN_BUDGET),
        fixed("first", rows, agents, TEMP_BOUND, OPEN_BUDGET),
    ))  # fmt: skip


NEGATIVE = Layout((Block("negative", 1, 0, 1.0),))


class MomentsPart(OpenPart):
    def contribute(self, what: str, numbers: FloatArray) -> tuple[Layout, dict[str, FloatArray]]:
        if what == "moments":
            upper = np.triu_indices(len(self.x))
            values = {"second": np.outer(self.x, self.x)[upper], "first": self.x}
            return moments_layout(self.agents, len(self.x)), values
        if what == "weights" and len(numbers) == len(self.x) + 1:
            self._weight = float(numbers[:-1] @ self.x + numbers[-1])
            return NEGATIVE, {"negative": np.array([float(self._weight < 0)])}
        raise PeerError(f"question {what!r} is not part of moments: ignored")


class MomentsDesk(OpenDesk):
    def script(self) -> Script:
        plan, agents = self.run.plan, self.run.agents
        kept, load = yield from self.public_rows()
        inputs = public_inputs(plan, kept, load, self.weather)
        design = Design.build(inputs, plan.order, minimum_norm=plan.minimum_norm)

        sums = yield Sum("moments", moments_layout(agents, len(kept)), np.empty(0))
        second = np.zeros((len(kept), len(kept)))
        second[np.triu_indices(len(kept))] = sums["second"]
        second = second + np.triu(second, 1).T
        self.notebook.write("moments", second, "second")
        self.notebook.write("moments", sums["first"], "first")

        problem = Moments.build(design, plan.ridge, agents, second, sums["first"])
        k = 0
        while True:  # nonnegative="ridge": λ·1.1ᵏ until no agent counts its weight as negative
            ridge = plan.ridge * RIDGE_GROWTH**k
            descent: Descent = descend(replace(problem, ridge=ridge), problem.equal(), plan.tolerance)
            negative = (yield Sum("weights", NEGATIVE, descent.weights))["negative"]
            self.notebook.write("scalars", negative, "negative")
            if plan.nonnegative != "ridge" or negative[0] == 0 or k == RIDGE_STEPS:
                break
            k += 1
        state = problem.state(descent.weights) + REFERENCE_TEMP
        self.notebook.write("state", state)
        estimate = complete(
            design, inputs, alpha=descent.alpha, state=state, ridge=ridge, iterations=descent.iterations,
            status=Status.CONVERGED if descent.converged else Status.NOT_CONVERGED,
        )  # fmt: skip
        return Outcome(estimate, load, kept, kept, 0)
