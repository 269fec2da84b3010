"""What the commands that use a model print: diagnostics, selection, forecast, flexibility and drift."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from atdm.deploy.observe import Observation
from atdm.model.current import Update
from atdm.model.diagnostics import Diagnostics
from atdm.report.words import under
from atdm.result import Fit
from atdm.use.drift import Drift
from atdm.use.flexibility import Flexibility
from atdm.use.forecast import Coverage, Forecast

LABELS = {"aggregate_temp_c": "forecast °C", "truth_c": "truth °C", "load_kw": "load kW"}
SHOWN = 12  # rows of a trajectory on the screen; the whole is in --json and --output


def diagnostics_text(d: Diagnostics) -> RenderableType:
    """Diagnostics of a fit in a few lines, warnings last."""
    table = _table("diagnostics of the chosen model, training rows", "", right=1)
    times = zip(d.time_constants, d.time_constant_bands, strict=True)
    slow = ", ".join(
        f"{tau:.3g} h ({low:.3g} to {_or_infinity(high)})" if tau > d.step_hours / 2 else "under half a step"
        for tau, (low, high) in times
    )
    table.add_row("time constants (95 %)", slow)
    response = d.response_24h
    table.add_row("after 24 h of one more kW, K outdoors, kW/m² of sun",
                  f"{response['load']:+.3g} K, {response['outdoor']:+.3g} K, {response['solar']:+.3g} K")  # fmt: skip
    white = d.whiteness
    table.add_row("residual", f"{d.residual_std:.4f} K, Ljung–Box p {white.p_value:.2g} ({white.lags} lags)")
    share = ", ".join(f"{name} {100 * value:.0f} %" for name, value in d.variance_share.items() if np.isfinite(value))
    table.add_row("share of variance", share or "none: the model is unstable")
    table.add_row("condition of the design", f"{d.condition:.0f}")
    return Group(table, *_warnings(d.warnings))


def choice_table(fit: Fit) -> RenderableType:
    """Candidates as they did on training rows, and the test part of the chosen one."""
    choice = fit.choice
    if choice is None:
        return Text(f"{fit.inputs.train} training rows are too few to choose a model from", style="yellow")
    table = _table("order", "day types", "holidays", "parameters", "RMSE [K]", "above the best [K²]",
                   "standard error [K²]", "", right=5)  # fmt: skip
    best = choice.best
    for s, (above, error) in zip(choice.scores, choice.margins(), strict=True):
        c = s.candidate
        mark = "chosen" if c == choice.candidate else "lowest error" if s is best else ""
        kinds = c.day_types + (", refined" if c.refined else "")
        table.add_row(str(c.order), kinds, "as Sundays" if c.holidays else "", str(s.parameters), f"{s.rmse:.4f}",
                      f"{above:.2g}", f"{error:.2g}" if np.isfinite(error) else "–", mark,
                      style="bold" if mark == "chosen" else None)  # fmt: skip
    head = Text(
        f"{under(fit.protocol, fit.weighting)}; forecasts of 24 h inside the training part of what was released, "
        "weights as they are; chosen: the simplest within one standard error of the best (of the difference of their "
        "mean square errors); refined on its forecasts it is compared with itself as it was\n"
    )
    return Group(head, table, Text(), horizons_table(fit), *_warnings(choice.notes))


def horizons_table(fit: Fit) -> RenderableType:
    """How far off the models are on the test rows."""
    found = fit.horizons
    table = _table("test rows: error [K] after", *(f"{h.hours} h" for h in found["chosen"]), right=len(found["chosen"]))
    table.add_row("the chosen model", *(_kelvin(h.rmse) for h in found["chosen"]), style="bold")
    table.add_row("no change (persistence)", *(_kelvin(h.persistence_rmse) for h in found["chosen"]))
    table.add_row("as the protocol estimated it", *(_kelvin(h.rmse) for h in found["estimated"]))
    table.add_row("origins", *(str(h.origins) for h in found["chosen"]))
    return table


def forecast_table(found: Forecast) -> RenderableType:
    """A trajectory in a dozen rows, then how good it was where the truth is known."""
    names = sorted(map(str, found.table.columns), key=lambda name: name.startswith("load"))  # temperatures first
    table = _table("UTC", *map(_label, names), right=len(names))
    rows = np.unique(np.linspace(0, len(found.table) - 1, SHOWN).round().astype(int))
    for time, row in found.table.iloc[rows].iterrows():
        table.add_row(_when(time), *(f"{row[name]:.2f}" for name in names))
    parts: list[RenderableType] = [Text(f"model: {found.model}\n"), table, *_more(len(rows), len(found.table))]
    if found.skill:
        judged = _table("from every origin", "origins", "error [K]", "no change [K]", right=3)
        for h in found.skill:
            judged.add_row(f"after {h.hours} h", str(h.origins), _kelvin(h.rmse), _kelvin(h.persistence_rmse))
        parts += [Text(f"\nerror of this run {_kelvin(found.run_rmse)} K"), judged]
    if found.load_skill:
        judged = _table("load, from every origin", "origins", "error, kW", "no change, kW", "last week, kW",
                        "temperature, K", right=5)  # fmt: skip
        for s in found.load_skill:
            errors = (s.rmse, s.persistence_rmse, s.week_rmse)
            cells = ["–" if e is None else f"{e:.3g}" for e in errors]
            judged.add_row(f"after {s.horizon}", str(s.origins), *cells, _kelvin(s.temperature_rmse))
        parts += [Text(f"\nerror of this run {_kelvin(found.run_rmse)} K"), judged]
    if found.coverage:
        parts += [Text(), coverage_table(found.coverage)]
    return Group(*parts, *_warnings(found.notes))


def coverage_table(found: Sequence[Coverage]) -> RenderableType:
    """Bands: what they say, what they held, and how wide they were."""
    table = _table("bands", "said to hold", "held", "mean width [K]", "origins", right=4)
    for c in found:
        table.add_row(f"after {c.hours} h", f"{c.level} %", f"{100 * c.share:.0f} %", f"{c.width:.2f}", str(c.origins))
    return table


def update_text(found: Update) -> RenderableType:
    """What an update did, and what it was worth."""
    model = found.model
    table = _table("new rows: error [K] after", *found.old_rmse, right=len(found.old_rmse))
    table.add_row("the model as it was", *(_kelvin(e) for e in found.old_rmse.values()))
    table.add_row("updated every day, on days not seen", *(_kelvin(e) for e in found.new_rmse.values()), style="bold")
    lines = [Text(f"{found.rows} new rows, {1000 * found.seconds / found.rows:.1f} ms a row; now {model.words()}")]
    if found.drifted is not None and found.expected_rmse is not None:
        was = "had drifted" if found.drifted else "had not drifted"
        lines.append(Text(
            f"the model {was}: after 24 h it was off by {_kelvin(found.old_rmse.get('24h'))} K where "
            f"{_kelvin(found.expected_rmse)} K was to be expected"
        ))  # fmt: skip
    if found.helped is not None:
        more = "lower" if found.helped >= 0 else "higher"
        lines.append(Text(f"updating made the error after 24 h {100 * abs(found.helped):.0f} % {more}"))
    return Group(table, Text(), *lines, Text(f"{len(model.versions)} earlier versions are kept with their errors"))


def observation_text(found: Observation, path: Path) -> str:
    out = "; ".join(f"without {name}: {why}" for name, why in list(found.out.items())[:SHOWN])
    if not len(found.table):
        none = f"no new row of the {found.asked} asked for: each was shown before, or somebody has no reading yet"
        return f"{none}; {out}" if out else none
    last = found.table.iloc[-1]
    told = (
        f"{len(found.table)} new rows of the {found.asked} asked for, up to {_when(found.table.index[-1])} UTC, of "
        f"{last['agents']:.0f} agents: {last['aggregate_temp_c']:.2f} °C, {last['load_kw']:.2f} kW; in {path}"
    )
    return f"{told}; {out}" if out else told


def flexibility_table(found: Flexibility) -> RenderableType:
    """Envelope, durations, cheapest schedule, storage; first why the model may be planned with."""
    (low, high), (least, most) = found.comfort, found.power
    lines = [_why(found), f"comfort {low:g} to {high:g} °C, load {least:g} to {most:.4g} kW"]
    for offer in (found.expected, found.confident):
        if offer is not None:
            sure = "" if offer.confidence is None else f"with {100 * offer.confidence:g} % confidence "
            can = f"dropped for {_hours(offer.drop)}, raised for {_hours(offer.lift)}"
            lines.append(f"{sure}from now the load can be {can}")
    head = Text("\n".join(line for line in lines if line) + "\n")
    table = _table("UTC", "least kW", "most kW", "least kWh", "most kWh", "baseline kW", "°C", right=6)
    if found.cheapest is not None:
        table.add_column("cheapest kW", justify="right")
        table.add_column("°C", justify="right")
    rows = np.unique(np.linspace(0, len(found.envelope) - 1, SHOWN).round().astype(int))
    for i in rows.tolist():
        line = found.envelope.iloc[i]
        cells = [*line.tolist(), found.baseline.load.iloc[i], found.baseline.temperature.iloc[i]]
        if found.cheapest is not None:
            cells += [found.cheapest.load.iloc[i], found.cheapest.temperature.iloc[i]]
        table.add_row(_when(line.name), *(f"{value:.2f}" for value in cells))
    parts: list[RenderableType] = [head, table, *_more(len(rows), len(found.envelope))]
    if found.cheapest is not None:
        saves = "" if found.saving is None else f": saves {found.saving:.2f}, in the currency of the prices"
        parts.append(Text(
            f"\ncheapest schedule {found.cheapest.cost:.2f} ({found.cheapest.energy:.1f} kWh), baseline "
            f"{found.baseline.cost:.2f} ({found.baseline.energy:.1f} kWh){saves}"
        ))  # fmt: skip
    if found.storage is not None:
        s = found.storage
        parts.append(Text(
            f"equivalent storage: {s.capacity:.4g} kWh per K, keeps {100 * s.retention:.2f} % per step of what is "
            f"above {s.range[0]:g} °C, up to {s.power[1]:.4g} kW"
        ))  # fmt: skip
    return Group(*parts, *_warnings(found.notes))


def _why(found: Flexibility) -> str:
    e, gain = found.planning.excitation, found.planning.assumed_gain
    if e is None:
        return "" if gain is None else f"planned with a steady gain of {gain:g} K per kW, as stated"
    return (
        f"1 kW more for 24 h warms by {e.response_24h:.3g} ± {e.standard_error:.2g} K; weather, clock and past "
        f"temperature leave {100 * e.unexplained_share:.0f} % of the load unexplained"
    )


def drift_table(found: Drift) -> RenderableType:
    """Quantities by window with their bands; those that left the first window's are marked."""
    windows = list(dict.fromkeys(found.table["window"]))
    table = _table("quantity", *(f"to {w:%Y-%m-%d}" for w in windows), right=len(windows))
    for name, rows in found.table.groupby("quantity", sort=False):
        cells = [
            f"{r.value:.4g} ({r.low:.3g} to {r.high:.3g}){' *' if r.drifted else ''}" for r in rows.itertuples()
        ]  # fmt: skip
        table.add_row(str(name), *cells)
    return Group(table, *_warnings(found.warnings))


def _table(*names: str, right: int = 0) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i >= len(names) - right else "left")
    return table


def _or_infinity(hours: float) -> str:
    return f"{hours:.3g}" if np.isfinite(hours) else "∞"


def _kelvin(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _label(name: str) -> str:
    if name in LABELS:
        return LABELS[name]
    return f"{name.replace('_', ' ')} % {'kW' if name.startswith('load') else '°C'}"  # an end of a band


def _more(shown: int, of: int) -> list[RenderableType]:
    return [Text(f"{shown} of {of} rows; -o writes all of them", style="dim")] if shown < of else []


def _when(time: Any) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _hours(length: pd.Timedelta) -> str:
    return f"{length.total_seconds() / 3600:g} h" if length else "no time"


def _warnings(notes: tuple[str, ...]) -> list[RenderableType]:
    return [Text(f"note: {note}", style="yellow") for note in notes]
