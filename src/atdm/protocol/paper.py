"""`paper`: Algorithm 1 of Hou et al., as published: masked sums for SP_I and the load, random-matrix encryption for
SP_II, every weight returned to the aggregator.

What it reveals is not what its authors believed (docs/paper.md): all temperatures up to one rotation, and all weights.
It is here to be compared and audited. Differences from the page, all in its favour: masks live in a ring, sums open
under consent, an agent uses the weight it computed itself instead of one it is told, and f2 is evaluated from the
returned weights and the next aggregate state.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from atdm.crypto.keys import derive
from atdm.crypto.prg import Stream, nonce
from atdm.crypto.sums import Layout, fixed
from atdm.errors import PeerError, RunAborted
from atdm.kernel.descent import MAX_ITERATIONS, RIDGE_GROWTH, RIDGE_STEPS, advance, descend, gap, misfit, sp1, start
from atdm.kernel.design import REFERENCE_TEMP, Design, Inputs
from atdm.kernel.rotation import RotatedColumns, Upload, transformed_weights
from atdm.protocol.opened import TEMP_BOUND, Found, OpenDesk, OpenPart, Question, Share
from atdm.protocol.part import AgentContext
from atdm.protocol.plan import OPEN_BUDGET
from atdm.protocol.session import Session
from atdm.types import FloatArray, IntArray

W_MEAN, W_DEVIATION = 0.1, 0.1  # of the entries of W; paper §V
W_BOUND = 2.0  # 19 standard deviations
MOST_WEIGHT = 2.0
ALPHA_BOUND = 4.0  # Σ|α|; a larger filter is not a thermal model
FILTERED_BOUND = 2.0 * (1 + ALPHA_BOUND) * TEMP_BOUND  # of τ̂ times an entry of W


def state_layout(agents: int, rows: int) -> Layout:
    return Layout((fixed("state", rows, agents, 2 * TEMP_BOUND, OPEN_BUDGET),))


def transform_layout(agents: int, rows: int) -> Layout:
    """A1 = τ̂_i W_iᵀ, A2 = W_i W_iᵀ and W_i."""
    return Layout((
        fixed("series", rows * agents, agents, FILTERED_BOUND, OPEN_BUDGET),
        fixed("gram", agents * agents, agents, W_BOUND**2, OPEN_BUDGET),
        fixed("ones", agents, agents, W_BOUND, OPEN_BUDGET),
    ))  # fmt: skip


class PaperPart(OpenPart):
    """Agent i: s_i = ξ_i x_i, a fresh column W_i every iteration, and ξ_i = W_iᵀ ξ̄."""

    def __init__(self, session: Session, own: AgentContext) -> None:
        super().__init__(session, own)
        self._columns: list[FloatArray] = []

    def contribute(self, what: str, numbers: FloatArray) -> Share | FloatArray:
        if what == "state":
            if np.isnan(self.weight):
                self.weight = 1.0 / self.agents
            return state_layout(self.agents, len(self.x)), {"state": self.weight * self.x}
        if what == "transform":
            return self._transform(numbers[: self.plan.order], numbers[self.plan.order :])
        if what == "weights":
            return self._weight(numbers)
        raise PeerError(f"question {what!r} is not part of paper: ignored")

    def _transform(self, alpha: FloatArray, wanted: FloatArray) -> Share:
        if not np.abs(alpha).sum() <= ALPHA_BOUND or not ((wanted >= self.plan.order) & (wanted < len(self.x))).all():
            raise RunAborted("asked for a filter or for rows that no thermal model needs")
        rows: IntArray = wanted.astype(np.int64)
        column = normal_words(self.session.seed, self.step, self.agents)
        self._columns.append(column)
        filtered = self.x[rows] - sum(a * self.x[rows - m] for m, a in enumerate(alpha, 1))
        series, gram = np.outer(filtered, column).ravel(), np.outer(column, column).ravel()
        return transform_layout(self.agents, len(rows)), {"series": series, "gram": gram, "ones": column}

    def _weight(self, numbers: FloatArray) -> FloatArray:
        """(iteration, ξ̄): the weight goes back to the aggregator, as Algorithm 1 has it."""
        iteration = int(numbers[0]) if len(numbers) == 1 + self.agents else -1
        if not 0 <= iteration < len(self._columns):
            raise PeerError("weights of an iteration that did not take place: ignored")
        self.weight = float(self._columns[iteration] @ numbers[1:])
        if not abs(self.weight) <= MOST_WEIGHT:
            raise RunAborted("asked for a weight no aggregate state has")
        return np.array([self.weight])


def normal_words(seed: bytes, step: int, size: int) -> FloatArray:
    """One agent's column of W: N(0.1, 0.1²) from its own secret."""
    words = Stream(derive(seed, "W", step)).words(size, nonce(b"W", step))
    return W_MEAN + W_DEVIATION * ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53)


class PaperDesk(OpenDesk):
    """The BLA of Algorithm 1."""

    def find(self, design: Design, inputs: Inputs) -> Found:
        """SP_I by a masked sum, SP_II by the transformed problem, until the gap closes."""
        plan, agents, rows = self.run.plan, self.run.agents, len(inputs.load)
        self.uploads: list[Upload] = []
        descent = start(np.full(agents, 1.0 / agents))
        state = yield from self._state(rows)
        while not descent.converged and descent.iterations < MAX_ITERATIONS:
            alpha, rss = sp1(design.projected_lags(state))
            f1 = rss + plan.ridge * float(descent.weights @ descent.weights)
            upload = yield from self._upload(design, alpha)
            bar = transformed_weights(design, upload, plan.ridge)
            weights = yield from self._weights(descent.iterations, bar)
            state = yield from self._state(rows)
            f2 = misfit(design.projected_lags(state), alpha) + plan.ridge * float(weights @ weights)
            closed = abs(gap(f1, f2)) < plan.tolerance  # one far below zero is noise of the masks, not convergence
            descent = replace(advance(descent, alpha, f1, weights, f2, plan.tolerance), converged=closed)
        if plan.nonnegative == "ridge" and (descent.weights < 0).any():
            return (yield from self._larger_ridge(design, inputs.train, rows))
        return descent, state, plan.ridge

    def _larger_ridge(self, design: Design, train: int, rows: int) -> Found:
        """nonnegative="ridge" without new uploads: two of them hold everything but a rotation, so the whole descent
        can be repeated in rotated coordinates with any λ; the agents only turn the answer into weights."""
        plan = self.run.plan
        if len(self.uploads) < 2:
            yield from self._upload(design, self.uploads[0].alpha * 0.99)
        first, second = self.uploads[:2]
        problem = RotatedColumns.build(design, plan.ridge, first, second, train)
        for k in range(1, RIDGE_STEPS + 1):
            ridge = plan.ridge * RIDGE_GROWTH**k
            descent = descend(replace(problem, ridge=ridge), problem.equal(), plan.tolerance)
            weights = yield from self._weights(1, second.transformed(descent.weights))
            if (weights >= 0).all():
                break
        state = yield from self._state(rows)
        return descent, state, ridge

    def _state(self, rows: int) -> Any:
        total = (yield Question("state", state_layout(self.run.agents, rows)))["state"]
        self.states += 1
        self.notebook.write("state", total + REFERENCE_TEMP)
        return total

    def _upload(self, design: Design, alpha: FloatArray) -> Any:
        agents, rows = self.run.agents, len(design.rows)
        total = yield Question("transform", transform_layout(agents, rows), np.concatenate([alpha, design.rows]))
        gram, series = total["gram"].reshape(agents, agents), total["series"].reshape(rows, agents)
        upload = Upload(alpha, gram, total["ones"], series)
        self.uploads.append(upload)
        for name, value in (("D1", upload.gram), ("d2", upload.ones), ("D2", upload.series), ("alpha", alpha)):
            self.notebook.write("masked transform" if name != "alpha" else "coefficients", value, name)
        return upload

    def _weights(self, iteration: int, bar: FloatArray) -> Any:
        answers = yield Question("weights", None, np.append(float(iteration), bar))
        if any(answer.shape != (1,) for answer in answers):
            raise RunAborted("an agent returned something else than its weight")
        weights = np.concatenate(answers)
        if not (np.abs(weights) <= MOST_WEIGHT).all():
            raise RunAborted("an agent returned a weight no aggregate state has")
        self.notebook.write("weights", bar, "bar")
        self.notebook.write("weights", weights, "xi")
        return weights
