"""What is sent: rows observed, the forecast made from them, and the offer of flexibility."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from atdm.data.clock import stamp
from atdm.errors import UsageError
from atdm.model.fitted import Model
from atdm.use.flexibility import Flexibility, flexibility
from atdm.use.forecast import Forecast, forecast
from atdm.use.series import OBSERVED
from atdm.use.storage import Storage

BACK = pd.Timedelta(hours=24)  # of observed rows that are sent: what a sink missed that was down for so long
NO_OFFER = "no flexibility was asked for: give a comfort band"
NO_STORAGE = (
    "no equivalent storage: the load cools, more heat does not warm, or comfort is too narrow for the most load: lower "
    "the limit of power"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Results:
    """The newest results of a cluster, as every sink gets them."""

    made: pd.Timestamp  # when the forecast was made: nobody believed it earlier
    step: pd.Timedelta  # each row begins at its stamp and lasts so long
    observed: pd.DataFrame  # by time: aggregate_temp_c [°C], load_kw [kW]
    forecast: pd.DataFrame  # by time after that: aggregate_temp_c, load_kw and their bands, as in Forecast.table
    offer: Flexibility | None = None  # from the first row of the forecast on
    refused: str = NO_OFFER  # why there is no offer
    electric: bool = False  # whether the load is electricity, not heat

    @property
    def storage(self) -> Storage | None:
        return None if self.offer is None else self.offer.storage

    @property
    def no_storage(self) -> str:
        """Why there is none."""
        return self.refused if self.offer is None else NO_STORAGE


def compute(
    model: Model,
    weather: pd.DataFrame,
    observed: pd.DataFrame,
    *,
    made: pd.Timestamp | None = None,
    comfort: tuple[float, float] | None = None,
    power: tuple[float, float] | None = None,
    horizon: pd.Timedelta = BACK,
    assume_gain: float | None = None,
) -> Results:
    """Forecast and, where comfort is given, flexibility from the last rows observed on; made: now if not given."""
    found = forecast(model, None, weather, horizon=horizon, observed=observed)
    offer = None
    if comfort is not None:
        offer = flexibility(model, weather, comfort, power=power, horizon=horizon, observed=observed,
                            assume_gain=assume_gain)  # fmt: skip
    recent = observed[observed.index > observed.index[-1] - BACK]
    return gather(model, found, offer, made=made or pd.Timestamp.now("UTC"), observed=recent)


def gather(
    model: Model,
    found: Forecast,
    offer: Flexibility | None = None,
    *,
    made: pd.Timestamp,
    observed: pd.DataFrame | None = None,
    refused: str = NO_OFFER,
) -> Results:
    """Results of one model: its forecast, whose first M rows were known, and the offer made beside it.

    observed: rows to send as they were, aggregate_temp_c [°C] and load_kw [kW] by time; the first M of the forecast
    where none are given. A sink that was down catches up from them. refused: why there is no offer.
    """
    known, later = found.table.iloc[: model.order], found.table.iloc[model.order :]
    rows = (known if observed is None else observed)[OBSERVED].dropna()
    if not len(rows):
        raise UsageError("no row was observed: give at least the one that the forecast starts from")
    if made < rows.index[-1] + model.step:
        raise UsageError(
            f"made {stamp(made)}: the row of {stamp(rows.index[-1])} had not ended then: give a later time"
        )
    cop = None if model.released is None else model.released.cop
    return Results(
        made=made, step=model.step, observed=rows, forecast=later, offer=offer, refused=refused,
        electric=cop is not None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sent:
    """What became of one sending."""

    to: str  # which sink, where
    messages: int = 0  # that it took
    failed: str | None = None  # why not all of them, in one line
    notes: tuple[str, ...] = ()
    schedule: pd.Series | None = None  # load that the sink planned, by time [kW]

    def words(self) -> str:
        """In one line, for people."""
        if self.failed is not None:
            return f"{self.to}: failed after {self.messages} messages: {self.failed}"
        return "; ".join([f"{self.to}: {self.messages} messages taken", *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON; time stamps as text."""
        plan = self.schedule
        return {
            "to": self.to, "messages": self.messages, "failed": self.failed, "notes": list(self.notes),
            "schedule": None if plan is None else
            [{"time": str(t), "load_kw": float(v)} for t, v in plan.items()],
        }  # fmt: skip
