"""Forecast the aggregate temperature for a load plan and weather to come, with bands by how far off forecasts were.

When the truth is given, the forecast is judged from every origin in the window, beside persistence (the last value
stays), and so are the bands, each drawn with nothing but what was known at its origin. Where the load is forecast too,
bands follow from forecasts whose load was.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from atdm.data.clock import spell
from atdm.errors import UsageError
from atdm.kernel.design import Inputs
from atdm.model.bands import LEVELS, Kind, Record, forecast_errors, half_widths, held
from atdm.model.current import with_all_kinds
from atdm.model.fitted import Model
from atdm.model.horizons import Horizon, horizon_steps, horizons, origins_in
from atdm.model.load import LoadModel
from atdm.model.released import released_rows
from atdm.result import Fit
from atdm.types import FloatArray
from atdm.use.load import LoadSkill, forecast_load, load_bands, load_skill
from atdm.use.planned import load_model
from atdm.use.series import continued, initial_values, last_rows, past_rows, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often a band held the truth at one horizon, over all origins of the window.

    Attributes
    ----------
    level : str
        What the band is said to hold: "80" or "95" [%].
    hours : int
        The horizon [h].
    origins : int
        Forecasts judged.
    share : float
        Of them inside the band [-].
    width : float
        Mean width of the band, end to end [K].
    """

    level: str
    hours: int
    origins: int
    share: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """A trajectory with its bands, and how good it was where the truth is known.

    Attributes
    ----------
    model : str
        Which model made it, in words.
    table : pandas.DataFrame
        By time: aggregate_temp_c, low_80, high_80, low_95, high_95 [°C], load_kw [kW]; with a truth also truth_c [°C];
        where the load was forecast also load_low_80, load_high_80, load_low_95, load_high_95 [kW].
    skill : tuple of Horizon
        Error after 1 h, 6 h and 24 h, over all origins in the window, beside persistence.
    run_rmse : float or None
        Error of the trajectory itself [K].
    coverage : tuple of Coverage
        How often the bands of the temperature held, beside what they say and how wide they were; where the load was
        forecast too, with a truth of temperature and load.
    load_skill : tuple of LoadSkill
        Error of the load where it was forecast too and its truth is known, beside persistence and last week.
    notes : tuple of str
        What the person should know about this forecast.
    """

    model: str
    table: pd.DataFrame
    skill: tuple[Horizon, ...] = ()
    run_rmse: float | None = None
    coverage: tuple[Coverage, ...] = ()
    load_skill: tuple[LoadSkill, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The forecast for JSON; time stamps as text."""
        rows = self.table.reset_index()
        rows["time"] = [t.isoformat() for t in rows["time"]]
        return {
            "model": self.model,
            "trajectory": rows.to_dict("records"),
            "skill": [h.as_dict() for h in self.skill],
            "run_rmse": self.run_rmse,
            "coverage": [asdict(c) for c in self.coverage],
            "load_skill": [s.as_dict() for s in self.load_skill],
            "notes": list(self.notes),
        }


def forecast(
    model: Model | Fit,
    load: pd.Series | FloatArray | None,
    weather: pd.DataFrame,
    initial: Sequence[float] | pd.Series | pd.DataFrame | None = None,
    *,
    truth: pd.Series | pd.DataFrame | None = None,
    start: str | None = None,
    horizon: pd.Timedelta | None = None,
    observed: pd.DataFrame | None = None,
) -> Forecast:
    """The aggregate temperature over the rows of `weather`, whose first M are known, with bands.

    Parameters
    ----------
    model : Model or Fit
        With its record of errors (`atdm fit -o`, or a `Fit`, of which the chosen model is used) there are bands.
    load : pandas.Series, array or None
        Planned heating power of the cluster; None: what it will use if nobody intervenes, forecast too [kW].
    weather : pandas.DataFrame
        outdoor_temp_c [°C] and solar_w_m2 [W/m²] by time.
    initial : sequence of float, pandas.Series or pandas.DataFrame, optional
        The first M aggregate temperatures, or a series that holds them, or a table of aggregate_temp_c and load_kw by
        time; by default those of `truth` [°C].
    truth : pandas.Series or pandas.DataFrame, optional
        The aggregate temperature as it was, to judge the forecast, or a table of it and load_kw [°C].
    start : str, optional
        Time stamp of the first row; by default that of the weather.
    horizon : pandas.Timedelta, optional
        How far to forecast; by default to the end of the weather.
    observed : pandas.DataFrame, optional
        aggregate_temp_c [°C] and load_kw [kW] by time, as `observe` gives them: the run goes on from its last M rows,
        and the bands follow from how well the rows before were forecast, as far as the weather covers them.

    Returns
    -------
    Forecast
        The trajectory with its bands, and how good it was where the truth is known.

    Raises
    ------
    UsageError
        Arguments that do not go together, or too few initial values.
    DataError
        Load or weather lack a value in the window.
    """
    used = model.chosen if isinstance(model, Fit) else model
    usual, said = None, list[str]()
    known_truth = truth
    if isinstance(truth, pd.DataFrame):
        truth = truth["aggregate_temp_c"]
    if observed is not None:
        if isinstance(load, np.ndarray) or initial is not None or start is not None:
            raise UsageError("with observed rows give the load by time, and neither initial values nor a start")
        if load is None:
            initial = last_rows(used.order, used.step, observed)
            start = initial.index[0].isoformat()
        else:
            load, initial, start = continued(used, observed, load)
    if load is None:
        used = with_all_kinds(used)
        usual = load_model(used)
        frame = span(used, weather, None, start, horizon)
        past = past_rows(used.order, known_truth if initial is None else initial, pd.DatetimeIndex(frame.index))
        load, said = forecast_load(used, usual, frame, past)
        initial = past["aggregate_temp_c"]
    elif isinstance(initial, pd.DataFrame):
        initial = initial["aggregate_temp_c"]
    frame = span(used, weather, load if isinstance(load, pd.Series) else None, start, horizon)
    time = pd.DatetimeIndex(frame.index, name="time").as_unit("ns")
    first = initial_values(used, initial if initial is not None else truth, time)
    inputs = used.inputs(load, frame)
    run = used.simulate(load, frame, first).to_numpy()
    table = pd.DataFrame({"aggregate_temp_c": run, "load_kw": inputs.load / used.heat_of_one_kw(frame)}, index=time)
    notes = (*_notes(used, table["load_kw"].to_numpy()), *said)
    record = used.record if observed is None else with_observed(used, observed, weather, usual)
    if record is not None:
        record = record.before(time[used.order])
        for name, level in LEVELS.items():
            half = half_widths(used.coefficients, held(record, level, _kind(usual)).now, len(run) - used.order)
            reach = np.concatenate([np.zeros(used.order), half])
            table[f"low_{name}"], table[f"high_{name}"] = run - reach, run + reach
        if usual is not None:
            table = table.assign(**load_bands(used, usual, record, frame, table["load_kw"]))
    if truth is None:
        return Forecast(model=used.words(), table=table, notes=notes)
    actual = truth.reindex(time).to_numpy(float)
    known = np.isfinite(actual[used.order :])
    if not known.any():
        raise UsageError("the truth has no value in the forecast window: check its time stamps")
    error = (run - actual)[used.order :][known]
    skill: tuple[Horizon, ...] = ()
    of_load: tuple[LoadSkill, ...] = ()
    if usual is None:
        skill = _skill(used, inputs, actual)
    elif isinstance(known_truth, pd.DataFrame) and "load_kw" in known_truth:
        was = known_truth["load_kw"]
        inputs = replace(inputs, load=was.reindex(time).to_numpy(float) * used.heat_of_one_kw(frame))
        of_load = load_skill(used, usual, inputs, actual, frame, was)
    else:
        record = None  # nothing to judge bands by: a forecast starts from the load before it
    return Forecast(
        model=used.words(),
        table=table.assign(truth_c=actual),
        skill=skill,
        run_rmse=float(np.sqrt((error**2).mean())),
        coverage=coverage(used, record, inputs, actual, time, usual) if record is not None else (),
        load_skill=of_load,
        notes=notes,
    )


def _kind(usual: LoadModel | None) -> Kind:
    """Of errors of the temperature."""
    return "planned" if usual is None else "unplanned"


def _skill(model: Model, inputs: Inputs, state: FloatArray) -> tuple[Horizon, ...]:
    return horizons(model.coefficients, inputs, state, model.calendar.step_hours, 0, len(inputs))


def with_observed(
    model: Model, observed: pd.DataFrame, weather: pd.DataFrame, usual: LoadModel | None = None
) -> Record | None:
    """The model's record with its forecasts of the observed rows that it had not seen and that the weather covers.

    usual: also with those that forecast the load by it.
    """
    if model.record is None or model.released is None:
        return model.record
    later = released_rows(observed, weather, model.step)
    rows = model.released.followed_by(later)
    inputs = rows.inputs(model.calendar)
    origins = origins_in(inputs, len(model.released), len(rows), model.order)
    errors = forecast_errors(model.coefficients, usual, inputs, rows.state, origins, model.record.steps)
    return model.record.filled(rows).with_errors(rows.time[origins], errors)


def coverage(
    model: Model,
    record: Record,
    inputs: Inputs,
    state: FloatArray,
    time: pd.DatetimeIndex,
    usual: LoadModel | None = None,
) -> tuple[Coverage, ...]:
    """How often bands of the temperature drawn at every origin of the rows held, beside their widths.

    record: what was known before; usual: forecasts the load, where that is not known.
    """
    kind = _kind(usual)
    origins = origins_in(inputs, 0, len(inputs), model.order)
    errors = forecast_errors(model.coefficients, usual, inputs, state, origins, record.steps)
    both = record.with_errors(time[origins], errors)
    new = np.flatnonzero(both.time >= time[origins[0]]) if len(origins) else np.empty(0, dtype=np.int64)
    answer = []
    for name, level in LEVELS.items():
        drawn = held(both, level, kind).at_origins[new]
        for hours, steps in horizon_steps(model.calendar.step_hours).items():
            error, half = np.abs(both.errors[kind][new, steps - 1]), drawn[:, steps - 1]
            known = np.isfinite(error)
            if known.any():
                inside, width = float((error <= half)[known].mean()), float(2 * half[known].mean())
                answer.append(Coverage(level=name, hours=hours, origins=int(known.sum()), share=inside, width=width))
    return tuple(answer)


def _notes(model: Model, load: FloatArray) -> list[str]:
    if model.record is None or model.released is None:
        return ["the model file has no record of errors, so there are no bands: write it with atdm fit -o, from at "
                "least a week of rows"]  # fmt: skip
    low, high = model.released.load_low, model.released.load_high
    beyond = int(((load < low) | (load > high)).sum())
    if beyond == 0:
        return []
    hours = spell(beyond * model.step)
    return [f"for {hours} the load lies outside the {low:.1f} to {high:.1f} kW that the model has seen"]
