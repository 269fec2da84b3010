"""Keep a model current from observed rows, the weights of the agents as they are. No agent is asked."""

from collections.abc import Iterable
from datetime import date

import pandas as pd

from atdm.data.holidays import days_of
from atdm.model import current
from atdm.model.current import HALF_LIFE, WINDOW, Update
from atdm.model.fitted import Model
from atdm.use.series import observed_rows


def update(
    model: Model,
    observed: pd.DataFrame,
    weather: pd.DataFrame,
    *,
    half_life: pd.Timedelta | None = HALF_LIFE,
    window: pd.Timedelta = WINDOW,
    choose: bool = False,
    holidays: str | Iterable[date] | None = None,
) -> Update:
    """The model estimated anew from its own rows and those observed since, the weights of the agents as they are.

    Parameters
    ----------
    model : Model
        With the rows it comes from, as `atdm fit -o` writes it or `Fit.chosen` has it.
    observed : pandas.DataFrame
        aggregate_temp_c [°C] and load_kw [kW] by time, as `observe` gives them.
    weather : pandas.DataFrame
        outdoor_temp_c [°C] and solar_w_m2 [W/m²] by time; it must cover the observed rows.
    half_life : pandas.Timedelta or None, default 30 days
        In which a row's weight falls to half; None: all rows count alike.
    window : pandas.Timedelta, default 92 days
        Older rows are dropped.
    choose : bool, default False
        Choose order and day types again.
    holidays : str or iterable of date, optional
        As in `fit`, for that choice; by default those of the model.

    Returns
    -------
    Update
        The model of now, whether the old one had drifted, and by how much updating lowers the error.

    Raises
    ------
    UsageError
        The model has no rows to go on from, or there is no row after them.
    """
    rows = observed_rows(model, observed, weather)
    free = days_of(holidays, rows.time) if holidays is not None else model.calendar.holidays
    return current.update(
        model, rows, half_life=half_life, window=window, choose_again=choose, holidays=frozenset(free)
    )
