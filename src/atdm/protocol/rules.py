"""What an agent accepts and how much of itself it lets be seen. Set beside the data, never by the aggregator."""

from dataclasses import dataclass

from atdm.data.quantum import MOST_QUANTUM
from atdm.errors import UsageError
from atdm.kernel.design import parameter_count, train_rows
from atdm.options import WEIGHTS, WeightsName
from atdm.protocol.plan import DAY, LEAST_AGENTS, AnyPlan, Collect, Plan, check_collect, check_plan, last_row, need
from atdm.protocol.registry import OFFERED, REGISTRY
from atdm.protocol.store import Consented

EQUAL_ONLY = "fitted weights: this agent's owner allows equal weights only (--weights fitted allows both)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """An agent's own limits; the defaults are those of docs/spec.md §8.

    Parameters
    ----------
    protocols : tuple of str, default ("blind",)
        Protocols the agent takes part in; all others show the aggregator more.
    weights : {"equal", "fitted"}, default "equal"
        "fitted" allows both ways of weighting.
    least_agents : int, default 10
        Fewest owners in a company of "blind"; elsewhere 3, where the ledger says what is shown.
    totals : int, default 5
        Most totals over any day of its data.
    agents_per_total : int, default 3
        At most one total for so many owners that do not collude.
    colluders : int, default 1
        Agents assumed to share what they see.
    clip : float, default 2.0
        Most of ``|p_i|·√K``, this agent's part of a total [-].
    dither : float, default 0.1
        Width of the secret dither [sensor quanta].
    quantum : float, optional
        Step of the sensor, at most 2; by default the commonest smallest gap between distinct readings, the largest
        found so far; 0.1 while there are fewer than ten different ones [°C].
    ridge : tuple of float, default (50.0, 100.0)
        Least and largest λ accepted; outside, totals rest on the homes that stand out [K²].
    train : float, default 0.7
        Least training share accepted; with fewer rows totals rest on the homes that stand out too [-].
    solver_tolerance : float, default 0.01
        Least accepted [-].
    order : int, default 4
        Largest M accepted.
    rows_per_parameter : float, default 5.0
        Least kept training rows for each parameter of the model [-].
    least_days : float, default 28.0
        Least rows of a fit that everybody has; in fewer, totals rest on the homes that stand out, and a year has room
        for more fits [d].
    day_share : float, default 0.5
        Share of a day's rows that the agent needs to be in on it [-].
    days_after_fit : int, default 92
        Days for which the weights of a fit serve collecting; after that the agent wants a new fit.

    Raises
    ------
    UsageError
        A limit outside its range.
    """

    protocols: tuple[str, ...] = ("blind",)
    weights: WeightsName = "equal"
    least_agents: int = 10
    totals: int = 5
    agents_per_total: int = 3
    colluders: int = 1
    clip: float = 2.0
    dither: float = 0.1
    quantum: float | None = None
    ridge: tuple[float, float] = (50.0, 100.0)
    train: float = 0.7
    solver_tolerance: float = 0.01
    order: int = 4
    rows_per_parameter: float = 5.0
    least_days: float = 28.0
    day_share: float = 0.5
    days_after_fit: int = 92

    def __post_init__(self) -> None:
        if not self.protocols or not set(self.protocols) <= set(OFFERED):
            raise UsageError(f"protocols {', '.join(self.protocols)}: agents offer {', '.join(OFFERED)}")
        if self.weights not in WEIGHTS:
            raise UsageError(f"weights {self.weights!r}: choose {' or '.join(WEIGHTS)}")
        if self.least_agents < LEAST_AGENTS:
            raise UsageError(f"least_agents {self.least_agents}: no protocol is offered below {LEAST_AGENTS} agents")
        if not (self.totals >= 1 and self.agents_per_total >= 1 and self.clip > 0 and self.least_days >= 0):
            raise UsageError("rules out of range: totals ≥ 1, agents_per_total ≥ 1, clip > 0, least_days ≥ 0")
        if not (self.colluders >= 0 and self.dither >= 0 and self.days_after_fit >= 0 and 0 <= self.day_share <= 1):
            raise UsageError("rules out of range: colluders, dither and days_after_fit ≥ 0, day_share in [0, 1]")
        if self.quantum is not None and not 0 < self.quantum <= MOST_QUANTUM:
            raise UsageError(f"quantum {self.quantum} °C: declare the step of the sensor, above 0 and at most 2 °C")

    def totals_for(self, owners: int) -> int:
        """Most totals over a day: far fewer sums than unknown series, so that the sums do not determine them.

        Parameters
        ----------
        owners : int
            Owners in the company.

        Returns
        -------
        int
            min((owners − colluders)/agents_per_total, totals), rounded down.
        """
        return min((owners - self.colluders) // self.agents_per_total, self.totals)


def least_owners(rules: Rules, protocol: str) -> int:
    """Owners in a company below which the agent takes no part."""
    return LEAST_AGENTS if REGISTRY[protocol].opened else rules.least_agents


def refuses(rules: Rules, plan: AnyPlan, fit: Consented | None = None) -> str | None:
    """Why the agent is out of a plan, whatever its readings: a fixed text. fit: the one whose weights are meant, if
    the agent took part in it."""
    try:
        _check_rows(rules, plan, fit) if isinstance(plan, Collect) else _check_fit(rules, plan)
    except UsageError as error:
        return str(error)
    return None


def _check_fit(rules: Rules, plan: Plan) -> None:
    check_plan(plan)
    offered = ", ".join(rules.protocols)
    need(plan.protocol in rules.protocols, f"protocol {plan.protocol}: this agent takes part in {offered} only")
    if plan.protocol != "blind":
        return
    need(plan.weights == "fitted", "equal weights are collected, not fitted by agents")
    need(rules.weights == "fitted", EQUAL_ONLY)
    low, high = rules.ridge
    need(low <= plan.ridge <= high, f"ridge {plan.ridge:g} is outside the {low:g} … {high:g} this agent accepts")
    need(plan.train >= rules.train,
         f"a training share of {plan.train:g} is below the {rules.train:g} this agent accepts")  # fmt: skip
    need(plan.order <= rules.order, f"order {plan.order} is above the {rules.order} this agent accepts")
    strict = plan.totals <= rules.totals and plan.agents_per_total >= rules.agents_per_total
    need(strict and plan.colluders >= rules.colluders and plan.clip == rules.clip,
         "the plan's limits on totals are not this agent's")  # fmt: skip
    need(plan.solver_tolerance >= rules.solver_tolerance,
         f"a solver tolerance below {rules.solver_tolerance:g}: the last totals would rest on few homes")  # fmt: skip
    if (reason := too_short(rules, plan, train_rows(plan.length, plan.train), plan.length)) is not None:
        raise UsageError(reason)


def _check_rows(rules: Rules, plan: Collect, fit: Consented | None) -> None:
    check_collect(plan)
    need("blind" in rules.protocols, f"collecting: this agent takes part in {', '.join(rules.protocols)} only")
    if not plan.fit:
        return
    need(rules.weights == "fitted", EQUAL_ONLY)
    if fit is None:
        raise UsageError("this agent has no weight of that fit: collect with equal weights, or fit again")
    need(plan.step_seconds == fit.step_seconds and plan.start > fit.end,
         "the rows do not continue the fit on its grid: ask for rows after it")  # fmt: skip
    need(last_row(plan) <= fit.end + rules.days_after_fit * DAY,
         f"rows more than {rules.days_after_fit} days after the fit: fit again")  # fmt: skip


def too_short(rules: Rules, plan: Plan, rows: int, kept: float) -> str | None:
    """Why so many training rows without a gap, of so many that everybody has, are too few for a plan's model."""
    if kept * plan.step_seconds < rules.least_days * DAY:
        return f"fitted weights need {rules.least_days:g} days of rows that all have: ask for more, or equal weights"
    needed = rules.rows_per_parameter * parameter_count(plan.order, plan.period)
    if rows < needed:
        return f"too few rows for the model: this agent asks for {needed:g} training rows or more"
    return None
