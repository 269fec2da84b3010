"""`moments`: one secure sum of Σ x_i x_iᵀ and Σ x_i feeds the whole descent, any order and any ridge, offline.

The aggregator learns those moments, which are all temperatures up to one rotation (docs/paper.md), and no weight:
agent i computes ξ_i = x_i·w + b itself. Offered for comparison, and where there are far more agents than rows.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np

from atdm.crypto.sums import Block, Layout, fixed
from atdm.errors import PeerError
from atdm.kernel.descent import RIDGE_GROWTH, RIDGE_STEPS, descend
from atdm.kernel.design import REFERENCE_TEMP, Design, Inputs
from atdm.kernel.moments import ClippedSums, Moments, descend_clipped
from atdm.protocol.opened import TEMP_BOUND, Found, OpenDesk, OpenPart, Question, Share
from atdm.protocol.plan import OPEN_BUDGET
from atdm.types import FloatArray

TRIAL_WEIGHT = 64.0  # bound of a weight while SP_II with ξ ≥ 0 is being solved
NEGATIVE = Layout((Block("negative", 1, 0, 1.0),))  # weights below zero, counted


def moments_layout(agents: int, rows: int) -> Layout:
    return Layout((
        fixed("second", rows * (rows + 1) // 2, agents, TEMP_BOUND**2, OPEN_BUDGET),
        fixed("first", rows, agents, TEMP_BOUND, OPEN_BUDGET),
    ))  # fmt: skip


def clipped_layout(agents: int, rows: int) -> Layout:
    return Layout((
        fixed("state", rows, agents, TRIAL_WEIGHT * TEMP_BOUND, OPEN_BUDGET),
        fixed("sums", 2, agents, TRIAL_WEIGHT**2, OPEN_BUDGET),
    ))  # fmt: skip


class MomentsPart(OpenPart):
    def contribute(self, what: str, numbers: FloatArray) -> Share:
        if what == "moments":
            upper = np.triu_indices(len(self.x))
            values = {"second": np.outer(self.x, self.x)[upper], "first": self.x}
            return moments_layout(self.agents, len(self.x)), values
        if what == "clipped" and len(numbers) == len(self.x) + 1:
            self.weight = max(0.0, float(numbers[:-1] @ self.x + numbers[-1]))
            values = {"state": self.weight * self.x, "sums": np.array([self.weight, self.weight**2])}
            return clipped_layout(self.agents, len(self.x)), values
        if what == "weights" and len(numbers) == len(self.x) + 1:
            self.weight = float(numbers[:-1] @ self.x + numbers[-1])
            return NEGATIVE, {"negative": np.array([float(self.weight < 0)])}
        raise PeerError(f"question {what!r} is not part of moments: ignored")


class MomentsDesk(OpenDesk):
    def find(self, design: Design, inputs: Inputs) -> Found:
        plan, agents, rows = self.run.plan, self.run.agents, len(inputs.load)
        sums = yield Question("moments", moments_layout(agents, rows))
        second = np.zeros((rows, rows))
        second[np.triu_indices(rows)] = sums["second"]
        second = second + np.triu(second, 1).T
        self.notebook.write("moments", second, "second")
        self.notebook.write("moments", sums["first"], "first")
        problem = Moments.build(design, plan.ridge, agents, second, sums["first"])
        if plan.nonnegative != "exact":
            return (yield from self._free(problem))
        descent, state = yield from descend_clipped(problem, plan.tolerance, self._clipped)
        return descent, state, plan.ridge

    def _free(self, problem: Moments) -> Found:
        """The whole descent offline; with "ridge" again for λ·1.1ᵏ until no agent counts its weight as negative."""
        plan = self.run.plan
        for k in range(RIDGE_STEPS + 1):
            ridge = plan.ridge * RIDGE_GROWTH**k
            descent = descend(replace(problem, ridge=ridge), problem.equal(), plan.tolerance)
            negative = (yield Question("weights", NEGATIVE, descent.weights))["negative"]
            self.notebook.write("scalars", negative, "negative")
            if plan.nonnegative != "ridge" or negative[0] == 0:
                break
        state = problem.state(descent.weights)
        self.notebook.write("state", state + REFERENCE_TEMP)
        return descent, state, ridge

    def _clipped(self, weights: FloatArray) -> Generator[Question, Any, ClippedSums]:
        """ξ ≥ 0: every SP_II takes a few of these sums, which show the aggregator Σ x_i max(0, ξ_i)."""
        sums = yield Question("clipped", clipped_layout(self.run.agents, len(weights) - 1), weights)
        self.notebook.write("state", sums["state"] + REFERENCE_TEMP, "clipped")
        total, square = sums["sums"].tolist()
        return sums["state"], total, square
