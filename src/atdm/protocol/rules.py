"""What an agent accepts and how much of itself it lets be seen. Set beside the data, never by the aggregator."""

from dataclasses import dataclass

import numpy as np

from atdm.errors import UsageError
from atdm.kernel.design import IntArray, parameter_count
from atdm.protocol.plan import LEAST_AGENTS, ObservePlan, Plan, check_observe_plan, check_plan
from atdm.protocol.readings import window
from atdm.protocol.store import Consented

FEW_AGENTS = 20  # `blind` warns below
OFFERED = ("blind", "moments", "paper")  # protocols that agents know
DAY = 86400  # s


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """An agent's own limits; the defaults are those of docs/spec.md §7."""

    protocols: tuple[str, ...] = ("blind",)  # it takes part in; the others show the aggregator more
    least_agents: int = 10  # in `blind`; 3 elsewhere, where the ledger says what is revealed anyway
    leverage: float = 0.75  # most of l_i = Σ_k q_ik², the share of this agent in any combination of totals
    totals: int = 14  # most totals over any row of its data,
    agents_per_total: int = 3  # and at most one for so many agents that do not collude
    colluders: int = 1  # agents assumed to share what they see
    dither: float = 0.1  # width of the secret dither, in quanta of the sensor
    quantum: float | None = None  # °C; None: the commonest smallest gap between distinct readings
    ridge: tuple[float, float] = (1e-3, 1e12)  # λ accepted
    order: int = 4  # largest M accepted
    season_hours: tuple[float, float] = (1.0, 168.0)
    rows_per_parameter: float = 5.0  # rows of the window for each parameter of the model, at least
    rows_per_day: int = 96  # most rows of a day (UTC) shown, for an observation: finer ones show single switchings
    days_after_fit: int = 92  # for which its weights serve observations; after that the agent wants a new fit

    def __post_init__(self) -> None:
        if not self.protocols or not set(self.protocols) <= set(OFFERED):
            raise UsageError(f"protocols {', '.join(self.protocols)}: agents offer {', '.join(OFFERED)}")
        if self.least_agents < LEAST_AGENTS:
            raise UsageError(f"least_agents {self.least_agents}: no protocol is offered below {LEAST_AGENTS} agents")
        if not (0 < self.leverage <= 1 and self.totals >= 1 and self.agents_per_total >= 1):
            raise UsageError("rules out of range: leverage in (0, 1], totals ≥ 1, agents_per_total ≥ 1")
        if not (self.colluders >= 0 and self.dither >= 0):
            raise UsageError("rules out of range: colluders ≥ 0, dither ≥ 0")
        if not (self.rows_per_day >= 0 and self.days_after_fit >= 0):
            raise UsageError("rules out of range: rows_per_day ≥ 0, days_after_fit ≥ 0 (0: no observation)")

    def totals_cap(self, agents: int) -> int:
        """min((K − c)/3, 14): far fewer sums than unknown series, so that the sums do not determine them."""
        return min((agents - self.colluders) // self.agents_per_total, self.totals)

    def reason_to_refuse(self, plan: Plan, agents: int) -> str | None:
        """Why this plan is not acceptable, in one line; None when it is."""
        try:
            check_plan(plan)
        except UsageError as error:
            return str(error)
        if plan.protocol not in self.protocols:
            return f"protocol {plan.protocol}: this agent takes part in {', '.join(self.protocols)} only"
        least = self.least_agents if plan.protocol == "blind" else LEAST_AGENTS
        if agents < least:
            return f"{agents} agents take part, this agent asks for at least {least} under {plan.protocol}"
        if plan.protocol != "blind":
            return None
        reasons = (self._reason_to_refuse_model(plan.of(candidate)) for candidate in plan.models())
        return next((reason for reason in reasons if reason is not None), None)

    def _reason_to_refuse_model(self, plan: Plan) -> str | None:
        hours = plan.period * plan.step_seconds / 3600
        low, high = self.ridge
        if not low <= plan.ridge <= high:
            return f"ridge {plan.ridge:g} is outside the {low:g} … {high:g} this agent accepts"
        if plan.order > self.order:
            return f"order {plan.order} is above the {self.order} this agent accepts"
        if not self.season_hours[0] <= hours <= self.season_hours[1]:
            return f"a season of {hours:g} h is outside the {self.season_hours} h this agent accepts"
        return self.too_short(plan, plan.length)

    def too_short(self, plan: Plan, rows: int) -> str | None:
        """Why so many rows are too few for a plan's model, if they are."""
        needed = self.rows_per_parameter * parameter_count(plan.order, plan.period)
        if rows < needed:
            return f"a window of {rows} rows is too short, this agent asks for {needed:g} or more"
        return None

    def reason_not_to_observe(
        self, plan: ObservePlan, fit: Consented | None, shown: IntArray, agents: int
    ) -> str | None:
        """Why these rows are not to be observed; fit: the one the plan names, if this agent took part in it with the
        same others; shown: rows of any time whose state and load were released."""
        try:
            check_observe_plan(plan)
        except UsageError as error:
            return str(error)
        if fit is None:
            return "this agent has no weight of that fit with these agents: observe their last fit, or fit again"
        if agents < self.least_agents:
            return f"{agents} agents take part, this agent asks for at least {self.least_agents} to be observed"
        rows = window(plan)
        if plan.step_seconds != fit.step_seconds or (plan.start - fit.end) % fit.step_seconds:
            return f"the rows are not those of the fit's {fit.step_seconds} s grid: observe rows that continue the fit"
        if plan.start <= fit.end:
            return "rows of the fit's own window are not observed: ask for rows after it"
        if int(rows[-1]) > fit.end + self.days_after_fit * DAY:
            return f"rows more than {self.days_after_fit} days after the fit: fit again, then observe that fit"
        same_days = shown[np.isin(shown // DAY, rows // DAY)]
        _, counts = np.unique(np.union1d(same_days, rows) // DAY, return_counts=True)
        if counts.max() > self.rows_per_day:
            return f"more than {self.rows_per_day} rows of a day would be shown: observe a fit with a longer step"
        return None


def check_agents(agents: int, protocol: str, rules: Rules) -> None:
    """The minimum a person who starts a simulation meets before any key is made."""
    if agents < LEAST_AGENTS:
        raise UsageError(f"{agents} agents: none is offered below {LEAST_AGENTS}, sums would give their parts away")
    if protocol == "blind" and agents < rules.least_agents:
        raise UsageError(
            f"{agents} agents: blind needs at least {rules.least_agents} (agents' rule least_agents, down to "
            f"{LEAST_AGENTS}); use more agents, or another protocol for a simulation"
        )
