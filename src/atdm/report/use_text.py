"""What the commands that use a model print: diagnostics, selection, forecast, flexibility and drift."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from atdm.data.clock import spell
from atdm.deploy.observe import Observation
from atdm.model.diagnostics import Diagnostics
from atdm.report.words import under
from atdm.use.drift import Drift
from atdm.use.flexibility import Flexibility
from atdm.use.forecast import Forecast
from atdm.use.select import Selection

SHOWN = 12  # rows of a trajectory on the screen; the whole is in --json and --output


def diagnostics_text(d: Diagnostics) -> RenderableType:
    """Diagnostics of a fit in a few lines, warnings last."""
    table = _table("diagnostics of the training rows", "", right=1)
    slow = ", ".join(
        f"{tau:.3g} h ({low:.3g} to {high:.3g})"
        for tau, (low, high) in zip(d.time_constants, d.time_constant_bands, strict=True)
    )
    table.add_row("time constants (95 %)", slow)
    response = d.response_24h
    table.add_row("after 24 h of one more kW, K outdoors, kW/m² of sun",
                  f"{response['load']:+.3g} K, {response['outdoor']:+.3g} K, {response['solar']:+.3g} K")  # fmt: skip
    white = d.whiteness
    table.add_row("residual", f"{d.residual_std:.4f} K, Ljung–Box p {white.p_value:.2g} ({white.lags} lags)")
    share = ", ".join(f"{name} {value:.0%}" for name, value in d.variance_share.items() if np.isfinite(value))
    table.add_row("share of variance", share or "none: the model is unstable")
    table.add_row("condition of the design", f"{d.condition:.0f}")
    return Group(table, *_warnings(d.warnings))


def selection_table(found: Selection) -> RenderableType:
    """Candidates, and the test part of the chosen one."""
    table = _table("order", "ridge", "season", "ridge used", "R²", "RMSE [K]", "BIC", "", right=7)
    for s in found.scores:
        c = s.candidate
        mark = "chosen" if s is found.chosen else "best R²" if s is found.best else ""
        table.add_row(
            str(c.order), f"{c.ridge:g}", c.season, f"{s.ridge:.4g}", f"{s.r2:.4f}", f"{s.rmse:.4f}", f"{s.bic:.1f}",
            mark, style="bold" if s is found.chosen else None,
        )  # fmt: skip
    run = found.fit.metrics["test"]["free_run"]
    head = Text(
        f"{under(found.fit.protocol, found.fit.weighting)}; free runs of {spell(found.question.horizon)} from "
        f"{found.chosen.origins} origins in the training part of what was released, weights as they are; chosen: the "
        "simplest within one standard error of the best\n"
    )
    end = Text(
        f"\ntest part, looked at once ({found.fit.protocol}): free run R² {run['r2']:.4f}, RMSE {run['rmse']:.4f} K, "
        f"MAPE {run['mape']:.4f} %", style="bold",
    )  # fmt: skip
    return Group(head, table, end, *_warnings(found.notes))


def forecast_table(found: Forecast) -> RenderableType:
    """A trajectory in a dozen rows, then how good it was where the truth is known."""
    names = [name for name in found.table.columns if name != "load_kw"]
    table = _table("UTC", *(_label(name) for name in names), "load kW", right=len(names) + 1)
    rows = np.unique(np.linspace(0, len(found.table) - 1, SHOWN).round().astype(int))
    for time, row in found.table.iloc[rows].iterrows():
        table.add_row(_when(time), *(f"{row[name]:.2f}" for name in names), f"{row['load_kw']:.2f}")
    parts: list[RenderableType] = [table]
    if found.skill:
        judged = _table("horizon", "origins", "RMSE [K]", "persistence", "seasonal-naive", right=4)
        for s in found.skill:
            errors = (s.rmse, s.persistence_rmse, s.seasonal_rmse)
            judged.add_row(s.horizon, str(s.origins), *("–" if e is None else f"{e:.4f}" for e in errors))
        parts += [Text(f"\nRMSE of this run {found.free_run_rmse:.4f} K; from every origin in it:"), judged]
    for kind, words in (("free_run", "this run"), ("rolling", "7-day runs started daily")):
        if found.coverage is not None:
            shares = ", ".join(f"{level} % bands hold {share:.1%}" for level, share in found.coverage[kind].items())
            parts.append(Text(f"{words}: {shares} of the points"))
    return Group(*parts, *_warnings(found.notes))


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
    """Envelope, durations, cheapest schedule, storage."""
    (low, high), (least, most) = found.comfort, found.power
    head = Text(
        f"comfort {low:g} to {high:g} °C, load {least:g} to {most:g} kW\n"
        f"from now the load can be dropped for {_hours(found.drop)}, raised for {_hours(found.lift)}\n"
    )
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
    parts: list[RenderableType] = [head, table]
    if found.cheapest is not None:
        parts.append(Text(
            f"\ncheapest schedule {found.cheapest.cost:.2f} ({found.cheapest.energy:.1f} kWh), baseline "
            f"{found.baseline.cost:.2f} ({found.baseline.energy:.1f} kWh): saves {found.saving:.2f}"
        ))  # fmt: skip
    if found.storage is not None:
        s = found.storage
        parts.append(Text(
            f"equivalent storage: {s['soc-max']}, now {s['soc-at-start']}, keeps {s['storage-efficiency']} per step, "
            f"up to {s['consumption-capacity']}"
        ))  # fmt: skip
    return Group(*parts, *_warnings(found.notes))


def drift_table(found: Drift) -> RenderableType:
    """Quantities by window with their bands; those that left the first window's are marked."""
    windows = list(dict.fromkeys(found.table["window"]))
    table = _table("quantity", *(f"to {w:%Y-%m-%d}" for w in windows), right=len(windows))
    for name, rows in found.table.groupby("quantity", sort=False):
        cells = [
            f"{r.value:.4g} ({r.low:.3g} to {r.high:.3g}){' *' if r.drifted else ''}" for r in rows.itertuples()
        ]  # fmt: skip
        table.add_row(Text(str(name)), *cells)  # as it is: [h] would be read as markup
    return Group(table, *_warnings(found.warnings))


def _table(*names: str, right: int = 0) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i >= len(names) - right else "left")
    return table


def _label(name: str) -> str:
    return {"aggregate_temp_c": "forecast °C", "truth_c": "truth °C"}.get(name, name.replace("_", " ") + " %")


def _when(time: Any) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _hours(length: pd.Timedelta) -> str:
    return f"{length.total_seconds() / 3600:g} h" if length else "no time"


def _warnings(notes: tuple[str, ...]) -> list[RenderableType]:
    return [Text(f"note: {note}", style="yellow") for note in notes]
