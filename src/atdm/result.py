"""What a fit gives: the model, how good it is, who learned what, and what it cost.

What takes a second (the chosen model, its errors, the model to plan with) is worked out when it is asked for.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from html import escape
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from atdm.errors import UsageError
from atdm.kernel.blas import one_blas_thread
from atdm.kernel.descent import Status
from atdm.kernel.design import LAGGED, SYMBOLS, UNITS, Inputs
from atdm.kernel.finite import without_nan
from atdm.kernel.thermal import Metrics
from atdm.model.choosing import Choice, choose
from atdm.model.cop import Cop, estimate_cop
from atdm.model.current import chosen_model
from atdm.model.diagnostics import Diagnostics, diagnose
from atdm.model.fitted import Model
from atdm.model.horizons import Horizon, horizons
from atdm.model.planning import Planning, planning_of
from atdm.model.released import Released
from atdm.options import WeightsName
from atdm.protocol.ledger import Seen

LoadKind = Literal["heat", "electricity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run took.

    Bytes and seconds per agent are medians without the leader, who also seals the group secret and the numbers to be
    released. What agents of one process share is not counted for any of them.

    Attributes
    ----------
    rounds : int, default 0
        Messages an agent sends.
    sums : int, default 0
        N-vector totals opened for the estimation; load, indicators, scalars and release are counted apart.
    bytes_up_per_agent : int, default 0
        What an agent sends [bytes].
    bytes_down_per_agent : int, default 0
        What an agent is sent [bytes].
    seconds_per_agent : float or None
        Time of one agent; None where it is unknown [s].
    seconds_aggregator : float, default 0.0
        Time of the aggregator [s].
    setup_seconds : float, default 0.0
        Time for keys and masks [s].
    seconds : float, default 0.0
        Time of the run without them [s].
    """

    rounds: int = 0
    sums: int = 0
    bytes_up_per_agent: int = 0
    bytes_down_per_agent: int = 0
    seconds_per_agent: float | None = None
    seconds_aggregator: float = 0.0
    setup_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Fit:
    """A fitted model, how well it fits, who learned what, and what it cost.

    Attributes
    ----------
    protocol : str
        "blind", "moments", "paper" or "plain".
    weighting : {"fitted", "equal"}
        How the aggregate temperature is weighted.
    agents : int
        Agents in the run.
    model : Model
        Eq. (2) as the protocol estimated it. `Fit.chosen` is the one to use.
    weights : pandas.Series or None
        ξ by agent [-]. A simulation owns all agents; a deployed aggregator has none of them.
    iterations : int
        Iterations of the descent.
    status : Status
        How the estimation ended.
    ridge : float
        λ used; 0 with equal weights, where it plays no part [K²].
    rss : float
        Residual sum of squares of Eq. (2) over the training rows [K²].
    state : pandas.Series
        Aggregate temperature over the released rows [°C].
    load : pandas.Series
        Load of the whole cluster over the released rows [kW].
    metrics : dict
        "train" or "test" → "one_step" or "free_run" → "rmse" [K], "mape" [%], "r2" [-].
    ledger : list of dict
        Who learned what: party, what, shape, times.
    cost : Cost
        What the run took.
    inputs : Inputs
        The model's inputs on the released rows.
    solver_residual : float, default 0.0
        Relative residual at which the search for weights stopped; 0 where there was none [-].
    said : tuple of str
        What the person should know about the run; `Fit.notes` has that, and why it cannot be planned with.
    out : dict
        Agent that stayed out of the run → why.
    transcript : dict
        Party → what it saw, where `transcript=True` asked for it.
    probed : tuple
        Experiments in the window: from when until when each went on.
    load_kind : {"heat", "electricity"}
        What the load is; of electricity the chosen model has the COP curve (`Fit.released`).
    holidays : frozenset of date
        Local days that may count as Sundays in the chosen model.
    """

    protocol: str
    weighting: WeightsName
    agents: int
    model: Model
    weights: pd.Series | None
    iterations: int
    status: Status
    ridge: float
    rss: float
    state: pd.Series
    load: pd.Series
    metrics: Metrics
    ledger: list[dict[str, Any]]
    cost: Cost
    inputs: Inputs
    solver_residual: float = 0.0
    said: tuple[str, ...] = ()
    out: dict[str, str] = field(default_factory=dict)
    transcript: dict[str, list[Seen]] = field(default_factory=dict)
    probed: tuple[tuple[pd.Timestamp, pd.Timestamp], ...] = ()
    load_kind: LoadKind = "heat"
    holidays: frozenset[date] = frozenset()
    worked_out: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # what was asked for once

    def __repr__(self) -> str:
        first, last, test = self.state.index[0], self.state.index[-1], self.metrics["test"]["free_run"]
        return (
            f"Fit: protocol {self.protocol}, {self.weighting} weights, {self.agents} agents, {self.status}\n"
            f"  {len(self.state)} rows from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC\n"
            f"  order {self.model.order}; test rows in free run: R² {test['r2']:.4f}, RMSE {test['rmse']:.3f} K\n"
            "  .chosen is the model to use, .horizons how good it is, .ledger who learned what"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: these lines, and the coefficients by lag."""
        values = {name: getattr(self.model.coefficients, name) for name in LAGGED}
        table = pd.DataFrame(
            {f"{SYMBOLS[name]} [{UNITS[name]}]": [np.nan, *v] if name == "alpha" else v for name, v in values.items()},
            index=pd.Index([f"t−{m}" for m in range(self.model.order + 1)], name="lag"),
        )
        return f"<pre>{escape(repr(self))}</pre>{table.to_html(na_rep='', float_format='{:.5f}'.format)}"

    @property
    def converged(self) -> bool:
        """Whether the estimation reached its tolerance."""
        return self.status is Status.CONVERGED

    @property
    def excess(self) -> float:
        """How far the objective (3) can be above its least value at this α and λ, as a share of it: gap²·ν·K/λ.

        ν = rss + λΣξ², of which agents checked Σξ² ≤ 1/max(3, K/4) before they released anything.
        """
        if self.solver_residual == 0.0:
            return 0.0
        multiplier = self.rss + self.ridge / max(3.0, self.agents / 4)
        return self.solver_residual**2 * multiplier * self.agents / self.ridge

    @property
    def train(self) -> pd.Series:
        """The aggregate temperature on the training rows [°C]."""
        return self.state.iloc[: self.inputs.train]

    @property
    def test(self) -> pd.Series:
        """The aggregate temperature on the test rows [°C]."""
        return self.state.iloc[self.inputs.train :]

    def series(self) -> pd.DataFrame:
        """What was released, by time: aggregate_temp_c [°C], load_kw [kW] of the cluster, and part (train or test)."""
        parts = np.where(np.arange(len(self.state)) < self.inputs.train, "train", "test")
        return pd.concat([self.state, self.load], axis=1).assign(part=parts)

    @property
    def released(self) -> Released:
        """The rows that the aggregator has: temperature, load and weather."""
        rows = replace(Released.of(self.inputs, self.state), equal=self.weighting == "equal", probed=self.probed)
        if self.load_kind == "heat":
            return rows
        return replace(rows, cop=cast(Cop, self._once("cop", self._find_cop)))

    @property
    def choice(self) -> Choice | None:
        """How order and day types were chosen on the training rows; None where these are too few for any model."""
        return cast(Choice | None, self._once("choice", self._choose))

    @property
    def chosen(self) -> Model:
        """The model that forecasts use: physical, chosen on training rows, with its rows and its record of errors.

        Where the rows are too few to choose, the model that the protocol estimated, without bands.
        """
        return cast(Model, self._once("chosen", self._make_chosen))

    @property
    def judged(self) -> Planning | None:
        """What the training rows say about planning; None where they are too few for any model."""
        return cast(Planning | None, self._once("judged", self._judge_planning))

    @property
    def planning(self) -> Model | None:
        """The model that flexibility uses; None where the response to load cannot be known (`notes` say why)."""
        judged = self.judged
        if judged is None or judged.coefficients is None:
            return None
        return self.chosen.for_planning(judged.coefficients, judged.calendar)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the person should know about this fit; also why it cannot be planned with, where that is so."""
        cop, judged = self.released.cop, self.judged
        return (*self.said, *(() if cop is None else (cop.words(),)), *(() if judged is None else judged.notes()))

    @property
    def horizons(self) -> dict[str, tuple[Horizon, ...]]:
        """Test errors after 1 h, 6 h and 24 h from every origin: of the "chosen" and of the "estimated" model."""
        return cast(dict[str, tuple[Horizon, ...]], self._once("horizons", self._judge))

    @property
    def restarts(self) -> int:
        """How often the free run of the test rows started anew after a gap: each time it is given measured values."""
        tested = self.inputs.segment[self.inputs.train :]
        return len(np.unique(tested)) - 1 if len(tested) else 0

    @property
    def diagnostics(self) -> Diagnostics:
        """Residuals, poles, gains, standard errors, warnings of the chosen model: from what was released."""
        model = self.chosen
        inputs = self.released.inputs(model.calendar, self.inputs.train)
        return diagnose(model.coefficients, inputs, self.state.to_numpy(float), model.calendar.step_hours)

    def _once(self, name: str, work: Callable[[], Any]) -> Any:
        """What takes a second is worked out when it is asked for, and kept."""
        if name not in self.worked_out:
            with one_blas_thread():
                self.worked_out[name] = work()
        return self.worked_out[name]

    def _find_cop(self) -> Cop:
        return estimate_cop(self.inputs, self.state.to_numpy(float), self.model.calendar)

    def _choose(self) -> Choice | None:
        rows = self.released
        try:
            inputs = rows.inputs(self.model.calendar, self.inputs.train)
            return choose(inputs, rows.state, rows.time, self.model.calendar, holidays=self.holidays)
        except UsageError:
            return None

    def _make_chosen(self) -> Model:
        if self.choice is None:
            return self.model
        return chosen_model(self.choice, self.released, self.inputs.train, self.model.origin)

    def _judge_planning(self) -> Planning | None:
        if self.choice is None:
            return None
        return planning_of(self.released, self.inputs.train, self.choice.calendar)

    def _judge(self) -> dict[str, tuple[Horizon, ...]]:
        rows, train, n = self.released, self.inputs.train, len(self.inputs)
        both = (("chosen", self.chosen, rows), ("estimated", self.model, replace(rows, cop=None)))
        return {
            name: horizons(
                model.coefficients, own.inputs(model.calendar, train), own.state, model.calendar.step_hours, train, n
            )
            for name, model, own in both
        }

    def as_dict(self) -> dict[str, Any]:
        """The object that --json prints; numbers that do not exist are null."""
        document = {
            "protocol": self.protocol,
            "weighting": self.weighting,
            "agents": self.agents,
            "iterations": self.iterations,
            "status": str(self.status),
            "converged": self.converged,
            "ridge": self.ridge,
            "rss": self.rss,
            "model": self.model.as_dict(),
            "chosen": self._chosen_document(),
            "planning": None if self.judged is None else self.judged.as_dict(),
            "metrics": {**self.metrics, "horizons": self.horizons_document()},
            "ledger": self.ledger,
            "cost": asdict(self.cost),
            "solver_residual": self.solver_residual,
            "excess": self.excess,
            "out": self.out,
            "notes": list(self.notes),
        }
        cleaned: dict[str, Any] = without_nan(document)
        return cleaned

    def _chosen_document(self) -> dict[str, Any]:
        model = self.chosen
        choice = None if self.choice is None else self.choice.as_dict()
        return {"words": model.words(), **model.as_dict(), **model.calendar.as_dict(), "choice": choice}

    def choice_document(self) -> dict[str, Any]:
        """What `atdm select --json` prints."""
        document: dict[str, Any] = without_nan({**self._chosen_document(), "horizons": self.horizons_document()})
        return document

    def horizons_document(self) -> dict[str, list[dict[str, Any]]]:
        """Test errors at fixed horizons, as JSON has them."""
        return {name: [h.as_dict() for h in found] for name, found in self.horizons.items()}


def percent(share: float) -> str:
    """A small share in words, two digits."""
    return f"{100 * share:.2g} %"
