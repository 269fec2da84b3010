"""The plan of a run: every public parameter, fixed before the first masked word and bound into every key."""

import math
from typing import Literal, get_args

import msgspec

from atdm.crypto.keys import digest
from atdm.data.clock import zone
from atdm.errors import UsageError
from atdm.kernel.design import parameter_count

ProtocolName = Literal["plain", "paper", "moments", "blind"]
NonnegativeName = Literal["ridge", "exact", "free"]
MaskName = Literal["ring", "float"]

VERSION = 1
PROTOCOLS: tuple[ProtocolName, ...] = get_args(ProtocolName)
MOST_ROWS = 2**22  # of a window: eight years of minutes; an announcement must not make anybody allocate more
MOST_CANDIDATES = 64  # that one run compares
MOST_VALIDATIONS = 4096  # fits of a comparison, which every agent makes
LEAST_AGENTS = 3  # below that a sum gives its parts away, whatever the protocol


class Candidate(msgspec.Struct, frozen=True, array_like=True):
    """One of the models from which the agents of a run choose."""

    order: int  # M
    ridge: float  # λ
    period: int  # P


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fit"):
    """What the aggregator proposes and every agent checks against its own rules."""

    version: int = VERSION
    protocol: ProtocolName
    order: int  # M
    ridge: float  # λ
    period: int  # P, steps in a season
    step_seconds: int
    timezone: str  # the clock whose midnight starts the season
    start: int  # time stamp of the window's first row, seconds since 1970 UTC
    length: int  # rows of the window, gaps included
    train: float  # share of the kept rows used for training
    nonnegative: NonnegativeName
    tolerance: float
    solver_tolerance: float
    weather: bytes  # hash of the weather every party must hold
    masks: MaskName = "ring"
    minimum_norm: bool = False
    candidates: tuple[Candidate, ...] = ()  # compared within the run, which starts with order, ridge and period above
    horizon: int = 0  # steps of their validation runs,
    every: int = 0  # and steps between two origins

    def hash(self) -> bytes:
        return digest("plan", msgspec.msgpack.encode(self))

    @property
    def model(self) -> Candidate:
        return Candidate(self.order, self.ridge, self.period)

    def models(self) -> tuple[Candidate, ...]:
        """All models a run of this plan may end with."""
        return self.candidates or (self.model,)

    def of(self, candidate: Candidate) -> "Plan":
        """The same run with this candidate as its model."""
        return msgspec.structs.replace(self, order=candidate.order, ridge=candidate.ridge, period=candidate.period)

    def widest(self) -> tuple[int, int]:
        """Largest order and largest period of all models: messages have room for them, so that no size tells which
        one is at hand."""
        return max(c.order for c in self.models()), max(c.period for c in self.models())

    def most_origins(self) -> int:
        """Validation runs of one candidate, at most: they start in the second half of the training rows."""
        return self.length // (2 * self.every) + 1 if self.candidates else 0


class ObservePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="observe"):
    """Rows after a fit whose state and load the aggregator asks for; all else is fixed by the fit."""

    version: int = VERSION
    fit: bytes  # id of the run that released the model
    step_seconds: int
    start: int  # time stamp of the first row, seconds since 1970 UTC
    length: int  # rows

    @property
    def protocol(self) -> Literal["observe"]:
        return "observe"

    def hash(self) -> bytes:
        return digest("observe plan", msgspec.msgpack.encode(self))


AnyPlan = Plan | ObservePlan


def check_observe_plan(plan: ObservePlan) -> None:
    """Refuse what is no observation, in one line each."""
    if plan.version != VERSION:
        raise UsageError(f"plan version {plan.version}, this side speaks {VERSION}: update one of them")
    if not (plan.step_seconds >= 1 and 1 <= plan.length <= MOST_ROWS):
        raise UsageError(f"{plan.length} rows every {plan.step_seconds} s: observe between 1 and {MOST_ROWS} rows")
    if abs(plan.start) + plan.length * plan.step_seconds >= 2**53:
        raise UsageError("an observation off the calendar: give rows after the fit")


def check_plan(plan: Plan) -> None:
    """Refuse options outside their meaning, in one line each."""

    def need(condition: bool, message: str) -> None:
        if not condition:
            raise UsageError(message)

    need(plan.version == VERSION, f"plan version {plan.version}, this side speaks {VERSION}: update one of them")
    for model in (plan.model, *plan.candidates):
        need(model.order >= 1, f"order {model.order}: give an order of at least 1")
        need(math.isfinite(model.ridge) and model.ridge >= 0, f"ridge {model.ridge}: give a finite number ≥ 0")
        need(model.period >= 1, "season must be at least one step")
    need(plan.step_seconds >= 1, "step must be at least one second")
    zone(plan.timezone)
    need(0 < plan.train < 1, f"train {plan.train}: give a share between 0 and 1, such as 0.75")
    need(0 < plan.tolerance < 1, f"tolerance {plan.tolerance}: give a number between 0 and 1, such as 1e-12")
    need(0 < plan.solver_tolerance < 1, f"solver tolerance {plan.solver_tolerance}: give one in (0, 1), such as 5e-5")
    need(plan.length <= MOST_ROWS, f"window of {plan.length} rows: give one of at most {MOST_ROWS}")
    end = abs(plan.start) + plan.length * plan.step_seconds
    need(end < 2**53, f"a window that ends {end} s from 1970: give one on the calendar")
    size = max(parameter_count(model.order, model.period) for model in (plan.model, *plan.candidates))
    need(size < plan.length, f"window of {plan.length} rows for {size} parameters: give more rows, or a shorter season")
    check_candidates(plan)
    if plan.nonnegative == "exact" and plan.protocol == "paper":
        raise UsageError("nonnegative='exact' is not possible under paper: the transformed problem hides which weight "
                         "is whose; use 'ridge' or False, or protocol plain or moments")  # fmt: skip
    if plan.nonnegative == "exact" and plan.protocol == "blind":
        raise UsageError("nonnegative='exact' is not offered under blind: it would show peers, by difference, who left "
                         "the free set; use 'ridge' or False, or protocol plain or moments")  # fmt: skip
    if plan.masks == "float" and plan.protocol != "paper":
        raise UsageError("masks='float' is the paper's own arithmetic and goes with protocol='paper' only")


def check_candidates(plan: Plan) -> None:
    """Refuse a comparison that is none, or more work than agents should be given."""
    if not plan.candidates:
        if plan.horizon or plan.every:
            raise UsageError("a horizon or origins without candidates: name what to compare")
        return
    if plan.protocol != "blind":
        raise UsageError(f"agents compare candidates under blind only, not under {plan.protocol}: leave them out")
    if plan.model not in plan.candidates or len(set(plan.candidates)) < len(plan.candidates):
        raise UsageError("candidates: name each once, and start with one of them")
    if not (1 <= plan.horizon <= plan.length and 1 <= plan.every <= plan.length):
        raise UsageError(f"horizon {plan.horizon} and every {plan.every}: give steps of 1 to the {plan.length} rows")
    fits = len(plan.candidates) * plan.most_origins()
    if len(plan.candidates) > MOST_CANDIDATES or fits > MOST_VALIDATIONS:
        raise UsageError(
            f"{len(plan.candidates)} candidates with {fits} validation runs: give at most {MOST_CANDIDATES} and "
            f"{MOST_VALIDATIONS}, or origins further apart"
        )


def train_rows(rows: int, share: float) -> int:
    """Rows of the training part; `round` takes away what 0.29 · 100 = 28.999… leaves."""
    return int(round(rows * share, 9))
