"""Which figures a report has, in which order, and what each caption tells the reader to see."""

import numpy as np
import pandas as pd

from atdm.data import Cluster
from atdm.model.diagnostics import Diagnostics
from atdm.report.chart import Chart, Series
from atdm.report.evidence import (
    diagnosis,
    enough_rows,
    horizon_errors,
    prediction,
    residuals,
    step_hours,
    step_response,
)
from atdm.result import Fit
from atdm.types import FloatArray

ACTUAL, MODEL, OTHER, THIRD = 0, 1, 2, 3  # colours of page.css
ROOM = 0.6  # a prediction may leave the measured range by this share of it before it leaves the figure
HORIZON_SEASONS = 2  # errors and step responses are shown this many seasons ahead
STEPS = (
    ("load", "beta", 1.0, "+1 kW of heating", "the whole cluster heated by 1 kW more"),
    ("outdoor", "gamma", 1.0, "+1 K outside", "it being 1 K warmer outside"),
    ("solar", "theta", 0.1, "+100 W/m² of sun", "100 W/m² more sun"),
)


def accuracy_charts(fit: Fit) -> list[Chart]:
    """How well the model tells the aggregate temperature."""
    if not enough_rows(fit):
        return []
    return [_prediction(fit), _horizon(fit)]


def behaviour_charts(fit: Fit) -> list[Chart]:
    """What the model does when something changes, and over the day."""
    return [*(_step(fit, *step) for step in STEPS), _season(fit)]


def residual_charts(fit: Fit) -> list[Chart]:
    found = diagnosis(fit)
    return [] if found is None else [_residuals(fit, found), _autocorrelation(found)]


def simulation_charts(fit: Fit, cluster: Cluster | None) -> list[Chart]:
    """What only someone who owns all agents can draw; a deployed aggregator has neither weights nor zones."""
    if fit.weights is None:
        return []
    weights = [] if fit.weighting == "equal" else [_weights(fit)]  # a figure of one height tells nothing
    return [*weights, *([_zones(fit, cluster)] if cluster is not None else [])]


def _prediction(fit: Fit) -> Chart:
    told, state, train = prediction(fit), fit.state.to_numpy(float), fit.inputs.train
    low, high = float(state.min()), float(state.max())
    room = ROOM * (high - low)
    season = _hours_text(fit.chosen.season * step_hours(fit))
    held = (
        f" Its band is made to hold 95 % of the measurements; it holds {100 * told.inside:.0f} % of the shaded test "
        f"rows, which the model never saw: all steps up to {season} ahead, from one start each {season}. The table of "
        "bands above has single horizons, from every hour."
        if np.isfinite(told.inside)
        else ""
    )
    caption = f"Blue: the model running alone, given measured temperatures anew every {season}.{held}"
    banded = (Series(name="95 % band [°C]", values=told.low, upper=told.high, colour=MODEL),) if held else ()
    return Chart(
        name="prediction", title="Aggregate temperature, measured and predicted", caption=caption,
        x=seconds_of(fit.state.index), x_label="time (UTC)", y_label="aggregate temperature [°C]", axis="time",
        limits=(low - room, high + room), breaks=fit.inputs.segment,
        shade_from=float(seconds_of(fit.state.index)[train]) if 0 < train < len(state) else None,
        series=(
            *banded,
            Series(name="measured [°C]", values=state, colour=ACTUAL),
            Series(name=f"predicted, anew every {season} [°C]", values=told.values, colour=MODEL),
            Series(name="horizon [steps]", values=told.horizon.astype(float), mark="none"),
        ),
    )  # fmt: skip


def _horizon(fit: Fit) -> Chart:
    steps = min(HORIZON_SEASONS * fit.chosen.season, max((len(fit.inputs) - fit.inputs.train) // 2, 1))
    errors = horizon_errors(fit, steps)
    hours = np.arange(1, steps + 1) * step_hours(fit)
    first, last = errors["model"][0], errors["model"][-1]
    caption = (
        f"How far the model is off when it runs alone for that long, over starts spread through the test rows: "
        f"{first:.2g} K after one step, {last:.2g} K after {_hours_text(hours[-1])}. Below both dashed lines it beats "
        "saying that the temperature stays as it is, and saying that it is as one day ago."
        if np.isfinite(first)
        else "Too few test rows without a gap to run the model for that long."
    )
    return Chart(
        name="horizon", title="Error by horizon", caption=caption, x=hours, x_label="hours ahead", y_label="RMSE [K]",
        axis="hours",
        series=(
            Series(name="model [K]", values=errors["model"], colour=MODEL),
            Series(name="no change [K]", values=errors["no change"], colour=OTHER, dashed=True),
            Series(name="as a day ago [K]", values=errors["a day ago"], colour=THIRD, dashed=True),
        ),
    )  # fmt: skip


def _step(fit: Fit, name: str, gains: str, size: float, title: str, words: str) -> Chart:
    model = fit.chosen
    steps = HORIZON_SEASONS * model.season + 1
    response = size * step_response(model.coefficients, getattr(model, gains), steps)
    hours = np.arange(steps) * step_hours(fit)
    one_season = model.season
    caption = (
        f"From hour 0 on, {words}: after {_hours_text(hours[one_season])} the aggregate temperature is "
        f"{_signed(response[one_season])} K from where it would have been."
    )
    return Chart(
        name=f"step-{name}", title=title, caption=caption, x=hours, x_label="hours after the step", axis="hours",
        y_label="change of temperature [K]", series=(Series(name="response [K]", values=response, colour=MODEL),),
        small=True,
    )  # fmt: skip


def _season(fit: Fit) -> Chart:
    model = fit.chosen
    profiles = model.occupancy.reshape(-1, model.season)
    mean = float(model.occupancy.mean())
    hours = np.arange(model.season) * step_hours(fit)
    top = _clock(float(hours[int(np.argmax(profiles[0]))]))
    kinds = " on weekdays" if len(profiles) > 1 else ""
    caption = (
        f"What occupants, schedules and everything else that follows the clock ({model.timezone}) add at each "
        f"step, beside heating, weather and sun: most at {top}{kinds}. The mean, {_minus(mean)} K, is taken off."
    )
    names = {1: ("all days",), 2: ("weekdays", "weekends"), 3: ("weekdays", "Saturdays", "Sundays")}[len(profiles)]
    return Chart(
        name="season", title="The season: what the clock adds", caption=caption, x=hours,
        x_label="hours after midnight", axis="hours", y_label="against the mean [K per step]", small=True,
        series=tuple(
            Series(name=f"{name} − mean [K]", values=profile - mean, colour=colour)
            for name, profile, colour in zip(names, profiles, (MODEL, OTHER, THIRD), strict=False)
        ),
    )  # fmt: skip


def _residuals(fit: Fit, found: Diagnostics) -> Chart:
    rows, errors = residuals(fit)
    train = int((rows < fit.inputs.train).sum())
    x, spread = seconds_of(fit.state.index)[rows], found.residual_std
    far = float((np.abs(errors) > 3 * spread).mean())
    caption = (
        "Measured minus predicted one step ahead. A good model leaves no pattern: no drift, no daily rhythm, the same "
        f"width in the shaded test rows. {100 * far:.1f} % of the rows lie beyond three standard deviations of "
        f"training ({3 * spread:.2g} K); a normal distribution would have 0.3 %."
    )
    return Chart(
        name="residual", title="Residuals, one step ahead", caption=caption, x=x, x_label="time (UTC)",
        y_label="residual [K]", axis="time", breaks=np.cumsum(np.diff(rows, prepend=rows[0]) > 1),
        shade_from=float(x[train]) if 0 < train < len(rows) else None,
        series=(Series(name="residual [K]", values=errors, colour=MODEL),),
    )  # fmt: skip


def _autocorrelation(found: Diagnostics) -> Chart:
    acf, limit = found.autocorrelation, found.autocorrelation_bound
    lags, outside = len(acf), int((np.abs(acf) > limit).sum())
    caption = (
        f"How much a training residual tells about later ones. {outside} of {lags} lags are outside ±{limit:.3f}, "
        "where 5 % of them would be by chance: what is outside is structure the model does not have "
        f"(Ljung–Box p = {found.whiteness.p_value:.1g})."
    )
    return Chart(
        name="acf", title="Autocorrelation of the residuals", caption=caption, x=np.arange(1, lags + 1),
        x_label="lag [steps]", y_label="correlation [-]",
        series=(
            Series(name="95 % limits [-]", values=np.full(lags, -limit), upper=np.full(lags, limit), colour=OTHER),
            Series(name="autocorrelation [-]", values=acf, mark="bar", colour=MODEL),
        ),
    )  # fmt: skip


def _weights(fit: Fit) -> Chart:
    weights = pd.Series(fit.weights).sort_values(ascending=False)
    values = weights.to_numpy(float)
    caption = (
        f"The weight of each agent in the aggregate temperature, largest first; they add up to one. In effect "
        f"{1 / float(values @ values):.0f} of {len(values)} agents carry it. Only a simulation can show this: in a "
        "deployment under blind every agent knows its own weight, and nobody else does."
    )
    return Chart(
        name="weights", title="Weights", caption=caption, x=np.arange(1, len(values) + 1), x_label="agent, by weight",
        y_label="weight ξ [-]", labels=[str(name) for name in weights.index],
        series=(Series(name="weight [-]", values=values, mark="bar", colour=MODEL),),
    )  # fmt: skip


def _zones(fit: Fit, cluster: Cluster) -> Chart:
    zones = cluster.temperature.reindex(fit.state.index).to_numpy(float)
    low, quarter, three, high = np.nanquantile(zones, [0.05, 0.25, 0.75, 0.95], axis=1)
    caption = (
        "The aggregate temperature among the agents' own: 90 % of them are in the outer band, half in the inner one. "
        "Only a simulation can show this; a deployed aggregator sees the line, never the bands."
    )
    return Chart(
        name="zones", title="The aggregate among the zones", caption=caption, x=seconds_of(fit.state.index),
        x_label="time (UTC)", y_label="temperature [°C]", axis="time", breaks=fit.inputs.segment,
        series=(
            Series(name="5 to 95 % of agents [°C]", values=low, upper=high, colour=OTHER),
            Series(name="25 to 75 % of agents [°C]", values=quarter, upper=three, colour=OTHER),
            Series(name="aggregate [°C]", values=fit.state.to_numpy(float), colour=ACTUAL),
        ),
    )  # fmt: skip


def seconds_of(index: pd.Index) -> FloatArray:
    return np.asarray(pd.DatetimeIndex(index).as_unit("s").asi8, dtype=float)


def _hours_text(hours: float) -> str:
    return f"{hours:g} h" if hours < 96 else f"{hours / 24:g} days"


def _clock(hours: float) -> str:
    minutes = round(hours * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _signed(value: float) -> str:
    return f"{value:+.2g}".replace("-", "−")


def _minus(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
