"""The plan of a run: every public parameter, fixed before the first masked word and bound into every key."""

import math
from typing import Literal

import msgspec

from atdm.crypto.keys import digest
from atdm.data.seconds import zone
from atdm.errors import UsageError
from atdm.kernel.design import parameter_count
from atdm.options import NonnegativeName, ProtocolName, WeightsName
from atdm.protocol.registry import REGISTRY

ShownAs = Literal["fitted", "equal", "opened"]  # how a day was given: opened under `moments` or `paper`
VERSION = 2  # of the wire: 1 was the first edition, whose `blind` did not keep its claims (docs/spec.md §9)
MOST_ROWS = 2**22  # of a window: eight years of minutes; an announcement must not make anybody allocate more
MOST_DAYS = 36525  # of a window: a hundred years, for each of which an agent answers with a bit
LEAST_AGENTS = 3  # below that a sum gives its parts away, whatever the protocol
DAY = 86400  # s, a UTC day
LEAST_STEP = 900  # s: finer rows show single switchings, and several grids of one day show one series several times
WITHOUT_EXACT = {  # why a protocol cannot hold single weights at zero
    "paper": "the transformed problem hides which weight is whose",
    "blind": "it would show peers, by difference, who left the free set",
}
BLIND_BUDGET = 48  # bits; totals of `blind` stay within ±2^48 quanta, which makes its check words strong
OPEN_BUDGET = 63
MOST_SIGNS = 3  # times that the signs of the weights are counted in the final span


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fit"):
    """A fit: what the aggregator proposes and every agent checks against its own rules."""

    version: int = VERSION
    protocol: ProtocolName
    weights: WeightsName = "fitted"  # equal ones are not announced: their rows are collected (Collect), then fitted
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
    weather: bytes  # hash of the weather in the window, which every party must hold
    masks: Literal["ring"] = "ring"  # what is announced with any other does not decode
    minimum_norm: bool = False
    # The agents' limits as this run keeps them (`blind`); an agent refuses a plan that is laxer than its own rules.
    totals: int = 5  # totals over any day, the first among them,
    agents_per_total: int = 3  # and at most one for so many owners
    colluders: int = 1  # beside those assumed to share what they see
    clip: float = 2.0  # |p_i| ≤ clip/√K

    def hash(self) -> bytes:
        return digest("plan", msgspec.msgpack.encode(self))

    def totals_for(self, owners: int) -> int:
        """min((owners − c)/3, 5): far fewer sums than unknown series, so that the sums do not determine them."""
        return min((owners - self.colluders) // self.agents_per_total, self.totals)


class Collect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="collect"):
    """Rows whose state and load the aggregator asks for: under equal weights, or under those of a fit."""

    version: int = VERSION
    step_seconds: int
    start: int  # time stamp of the first row, seconds since 1970 UTC
    length: int  # rows
    fit: bytes = b""  # id of the run that released the model whose weights are meant; empty: equal weights
    asked: bytes = b""  # a bit for each row: those that the aggregator lacks; empty: all

    @property
    def protocol(self) -> Literal["collect"]:
        return "collect"

    @property
    def weights(self) -> WeightsName:
        return "fitted" if self.fit else "equal"

    def hash(self) -> bytes:
        return digest("collect plan", msgspec.msgpack.encode(self))


AnyPlan = Plan | Collect


def first_day(plan: AnyPlan) -> int:
    """The UTC day (number since 1970) of a plan's first row."""
    return plan.start // DAY


def last_row(plan: AnyPlan) -> int:
    """Time stamp of a plan's last row."""
    return plan.start + (plan.length - 1) * plan.step_seconds


def day_count(plan: AnyPlan) -> int:
    """UTC days that a plan's window touches."""
    return last_row(plan) // DAY - first_day(plan) + 1


def need(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(message)


def check_window(plan: AnyPlan) -> None:
    """A plan that this side can read, over rows and days that can be counted."""
    need(plan.version == VERSION, f"plan version {plan.version}, this side speaks {VERSION}: update one of them")
    need(plan.step_seconds >= 1 and 1 <= plan.length <= MOST_ROWS,
         f"{plan.length} rows every {plan.step_seconds} s: ask for between 1 and {MOST_ROWS} rows")  # fmt: skip
    need(abs(plan.start) + plan.length * plan.step_seconds < 2**53, "rows off the calendar: ask for others")
    need(day_count(plan) <= MOST_DAYS, f"rows over {day_count(plan)} days: ask for at most {MOST_DAYS}")


def check_grid(plan: AnyPlan) -> None:
    """`blind` sums a day on one grid only; two plans with different grids would show one slow series twice."""
    step = plan.step_seconds
    if step < LEAST_STEP or DAY % step or plan.start % step:
        raise UsageError(
            f"rows every {step} s from {plan.start} s: blind needs a step of at least 15 min that divides the day, and "
            "stamps counted from midnight UTC; resample the readings"
        )


def check_collect(plan: Collect) -> None:
    """Refuse what cannot be collected, in one line each."""
    check_window(plan)
    need(len(plan.asked) in (0, -(-plan.length // 8)), f"{len(plan.asked)} bytes of flags for {plan.length} rows")
    check_grid(plan)


def check_plan(plan: Plan) -> None:
    """Refuse options outside their meaning, in one line each."""
    check_window(plan)
    need(plan.order >= 1, f"order {plan.order}: give an order of at least 1")
    need(math.isfinite(plan.ridge) and plan.ridge >= 0, f"ridge {plan.ridge}: give a finite number ≥ 0")
    need(plan.period >= 1, "season must be at least one step")
    zone(plan.timezone)
    need(0 < plan.train < 1, f"train {plan.train}: give a share between 0 and 1, such as 0.75")
    need(0 < plan.tolerance < 1, f"tolerance {plan.tolerance}: give a number between 0 and 1, such as 1e-12")
    need(0 < plan.solver_tolerance < 1, f"solver tolerance {plan.solver_tolerance}: give one in (0, 1), such as 0.03")
    size = parameter_count(plan.order, plan.period)
    need(size < plan.length, f"window of {plan.length} rows for {size} parameters: give more rows, or a shorter season")
    offered = REGISTRY[plan.protocol]
    if plan.weights not in offered.weights:
        ways = [name for name, row in REGISTRY.items() if plan.weights in row.weights and name != "collect"]
        raise UsageError(f"weights={plan.weights!r} is offered by {' and '.join(ways)}, not {plan.protocol}")
    if plan.weights == "fitted" and plan.nonnegative not in offered.nonnegative:
        raise UsageError(
            f"nonnegative={plan.nonnegative!r} is not offered under {plan.protocol}: {WITHOUT_EXACT[plan.protocol]}; "
            "use 'ridge' or False, or protocol plain or moments"
        )
    if plan.weights == "fitted" and plan.minimum_norm and not offered.minimum_norm:
        raise UsageError(
            f"{plan.protocol} does not fit where inputs are collinear: use a window in which they vary, equal weights, "
            "or protocol plain or moments"
        )
    if plan.protocol == "blind":
        _check_blind(plan)


def _check_blind(plan: Plan) -> None:
    check_grid(plan)
    if plan.weights == "equal":
        return  # nothing else is the agents' business
    need(plan.period * plan.step_seconds == DAY, "blind fits weights with a season of 24 h; other day types are chosen "
         "afterwards, on what was released")  # fmt: skip
    need(plan.ridge > 0, "ridge 0: blind needs a ridge above 0")
    need(plan.totals >= 2 and plan.agents_per_total >= 1 and plan.colluders >= 0 and plan.clip > 0,
         "limits out of range: totals ≥ 2, agents_per_total ≥ 1, colluders ≥ 0, clip > 0")  # fmt: skip
