"""Forecast the aggregate temperature for a load plan and weather to come, with bands that were checked.

When the truth is given, the forecast is judged from every possible origin, beside two forecasts that need no model:
persistence (the last value stays) and seasonal-naive (what it was one season before).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from atdm.data.clock import duration, spell
from atdm.errors import UsageError
from atdm.kernel.design import Inputs
from atdm.kernel.thermal import Coefficients
from atdm.model.bands import Training, band, simulate_paths
from atdm.model.fitted import Model
from atdm.run import Fit
from atdm.types import FloatArray, IntArray
from atdm.use.series import continued, initial_values, span

LEVELS = {"80": 0.80, "95": 0.95}  # of the bands, by their name
HORIZONS = ("1h", "6h", "24h", "7d")
PATHS = 1000
LONGEST = pd.Timedelta(days=7)  # of the rolling forecasts that coverage and metrics count


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Error at one horizon, over all origins.

    Attributes
    ----------
    horizon : str
        Such as "24h".
    origins : int
        Origins that have this horizon inside the window.
    rmse : float or None
        Of the model; None where no origin has the horizon [K].
    persistence_rmse : float or None
        Of the last value kept [K].
    seasonal_rmse : float or None
        Of the value one season before [K].
    """

    horizon: str
    origins: int
    rmse: float | None
    persistence_rmse: float | None
    seasonal_rmse: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """A trajectory with its bands, and how good it was where the truth is known.

    Attributes
    ----------
    table : pandas.DataFrame
        By time: aggregate_temp_c, low_80, high_80, low_95, high_95 [°C], load_kw [kW]; with a truth also truth_c [°C].
    skill : tuple of Skill
        Error by horizon, over all origins in the window.
    free_run_rmse : float or None
        Error of the trajectory itself [K].
    coverage : dict or None
        "free_run" or "rolling" → "80" or "95" → share of points inside the band [-].
    notes : tuple of str
        What the person should know about this forecast.
    """

    table: pd.DataFrame
    skill: tuple[Skill, ...] = ()
    free_run_rmse: float | None = None
    coverage: dict[str, dict[str, float]] | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The forecast for JSON; time stamps as text."""
        rows = self.table.reset_index()
        rows["time"] = [t.isoformat() for t in rows["time"]]
        return {
            "trajectory": rows.to_dict("records"),
            "skill": [{name: getattr(s, name) for name in Skill.__dataclass_fields__} for s in self.skill],
            "free_run_rmse": self.free_run_rmse,
            "coverage": self.coverage,
            "notes": list(self.notes),
        }


def trained(fit: Fit) -> Model:
    """The model of a fit together with what bands and limits need of its training rows."""
    c = fit.model.coefficients
    return replace(fit.model, training=Training.of(c, fit.inputs, fit.state.to_numpy(float)))


def forecast(
    model: Model | Fit,
    load: pd.Series | FloatArray,
    weather: pd.DataFrame,
    initial: Sequence[float] | pd.Series | None = None,
    *,
    truth: pd.Series | None = None,
    start: str | None = None,
    horizon: pd.Timedelta | None = None,
    observed: pd.DataFrame | None = None,
    paths: int = PATHS,
    seed: int = 0,
) -> Forecast:
    """The aggregate temperature over the rows of `weather`, whose first M are known, with bands.

    Parameters
    ----------
    model : Model or Fit
        With the residuals of its training rows (`atdm fit -o`, or a `Fit`) the forecast has bands.
    load : pandas.Series or array
        Planned heating power of the cluster [kW].
    weather : pandas.DataFrame
        outdoor_temp_c [°C] and solar_w_m2 [W/m²] by time.
    initial : sequence of float or pandas.Series, optional
        The first M aggregate temperatures, or a series that holds them; by default those of `truth` [°C].
    truth : pandas.Series, optional
        The aggregate temperature as it was, to judge the forecast. Where it reaches back a season, seasonal-naive is
        judged too [°C].
    start : str, optional
        Time stamp of the first row; by default that of the weather.
    horizon : pandas.Timedelta, optional
        How far to forecast; by default to the end of the weather.
    observed : pandas.DataFrame, optional
        aggregate_temp_c [°C] and load_kw [kW] by time, as `observe` gives them: the run goes on from its last M rows.
    paths : int, default 1000
        Simulated runs from which the bands are taken.
    seed : int, default 0
        Of the simulated runs.

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
    used = trained(model) if isinstance(model, Fit) else model
    if observed is not None:
        if not isinstance(load, pd.Series) or initial is not None or start is not None:
            raise UsageError("with observed rows give the load by time, and neither initial values nor a start")
        load, initial, start = continued(used, observed, load)
    frame = span(used, weather, load if isinstance(load, pd.Series) else None, start, horizon)
    time = pd.DatetimeIndex(frame.index, name="time")
    first = initial_values(used, initial if initial is not None else truth, time)
    inputs = used.inputs(load, frame)
    run = used.simulate(load, frame, first)
    table = pd.DataFrame({"aggregate_temp_c": run.to_numpy(), "load_kw": inputs.load}, index=time)
    notes = tuple(_notes(used, inputs))
    if used.training is not None:
        drawn = simulate_paths(used.coefficients, used.training, inputs, first, paths=paths, seed=seed)
        for name, level in LEVELS.items():
            table[f"low_{name}"], table[f"high_{name}"] = band(drawn, level)
    if truth is None:
        return Forecast(table=table, notes=notes)
    actual = truth.reindex(time).to_numpy(float)
    known = np.isfinite(actual[used.order :])
    if not known.any():
        raise UsageError("the truth has no value in the forecast window: check its time stamps")
    error = (run.to_numpy() - actual)[used.order :][known]
    return Forecast(
        table=table.assign(truth_c=actual),
        skill=tuple(_skill(used, inputs, truth, time)),
        free_run_rmse=float(np.sqrt((error**2).mean())),
        coverage=_coverage(used, inputs, actual, table, paths, seed) if used.training is not None else None,
        notes=notes,
    )


def rolling_errors(c: Coefficients, inputs: Inputs, state: FloatArray, origins: IntArray, steps: int) -> FloatArray:
    """Forecast − truth of free runs from many origins at once, origins × steps; NaN beyond the last row. [K]

    An origin is the first row forecast; the M values before it are known.
    """
    rows = np.arange(c.order, len(inputs))
    forcing = np.full(len(inputs) + steps, np.nan)
    forcing[rows] = c.forcing(inputs, rows)
    padded = np.concatenate([state, np.full(steps, np.nan)])
    memory = np.stack([state[origins - m] for m in range(1, c.order + 1)])
    errors = np.empty((len(origins), steps))
    for k in range(steps):
        value = forcing[origins + k] + c.alpha @ memory
        memory = np.vstack([value, memory[:-1]])
        errors[:, k] = value - padded[origins + k]
    return errors


def _skill(model: Model, inputs: Inputs, truth: pd.Series, time: pd.DatetimeIndex) -> list[Skill]:
    state = truth.reindex(time).to_numpy(float)
    origins = np.arange(model.order, len(inputs))
    longest = int(LONGEST // model.step)
    errors = rolling_errors(model.coefficients, inputs, state, origins, longest)
    answer = []
    for text in HORIZONS:
        steps = int(duration(text) // model.step)
        if steps == 0:
            continue
        reached = np.flatnonzero(np.isfinite(errors[:, steps - 1]))
        target = origins[reached] + steps - 1
        seasons = -(-steps // model.period) * model.period  # back to the last season known at the origin
        before = truth.reindex(time[target] - seasons * model.step).to_numpy(float)
        answer.append(Skill(
            horizon=text,
            origins=len(reached),
            rmse=_rms(errors[reached, steps - 1]),
            persistence_rmse=_rms(state[origins[reached] - 1] - state[target]),
            seasonal_rmse=_rms(before - state[target]) if np.isfinite(before).all() else None,
        ))  # fmt: skip
    return answer


def _coverage(
    model: Model, inputs: Inputs, actual: FloatArray, table: pd.DataFrame, paths: int, seed: int
) -> dict[str, dict[str, float]]:
    """Share of the known points inside the bands: of this free run, and of 7-day runs started once a season."""
    order, longest = model.order, int(LONGEST // model.step)
    inside: dict[str, dict[str, list[FloatArray]]] = {"free_run": {}, "rolling": {}}
    for name in LEVELS:
        low, high = table[f"low_{name}"].to_numpy(), table[f"high_{name}"].to_numpy()
        inside["free_run"][name] = [_inside(low[order:], high[order:], actual[order:])]
        inside["rolling"][name] = []
    for number, first in enumerate(range(0, len(inputs) - order, model.period)):
        stop = min(first + order + longest, len(inputs))
        known = actual[first : first + order]
        if model.training is None or not np.isfinite(known).all():
            continue
        part = inputs.between(first, stop)
        drawn = simulate_paths(model.coefficients, model.training, part, known, paths=paths, seed=seed + 2 + number)
        for name, level in LEVELS.items():
            low, high = band(drawn[:, order:], level)
            inside["rolling"][name].append(_inside(low, high, actual[first + order : stop]))
    return {
        kind: {name: float(np.concatenate(parts).mean()) for name, parts in levels.items()}
        for kind, levels in inside.items()
    }


def _inside(low: FloatArray, high: FloatArray, actual: FloatArray) -> FloatArray:
    known = np.isfinite(actual)
    return ((low <= actual) & (actual <= high))[known].astype(float)


def _rms(values: FloatArray) -> float | None:
    return float(np.sqrt((values**2).mean())) if len(values) else None


def _notes(model: Model, inputs: Inputs) -> list[str]:
    if model.training is None:
        return ["the model file holds no residuals, so there are no bands: write it with atdm fit -o"]
    low, high = model.training.load_low, model.training.load_high
    beyond = int(((inputs.load < low) | (inputs.load > high)).sum())
    if beyond == 0:
        return []
    hours = spell(beyond * model.step)
    return [f"for {hours} the load lies outside the {low:.1f} to {high:.1f} kW the model was trained on"]
