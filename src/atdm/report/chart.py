"""One kind of chart: its data, its axes, and its drawing as SVG that stretches while its text does not.

The lines are drawn once, on a fixed grid of integers; the browser stretches the grid to the width it has. Labels are
HTML beside it, so that they stay readable on a phone. The page's script zooms by moving the view box and re-labels the
axes by the rules below (`ticks`); without script the chart is complete, only still.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from atdm.types import FloatArray, IntArray

WIDE, HIGH = 100_000, 10_000  # the drawing's grid; whole numbers keep the file small and zoom twentyfold unseen
DIGITS = 5  # significant digits of embedded data
HOUR, DAY = 3600, 86400
HOUR_STEPS = (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672, 2184, 8736)  # between ticks of hours and of time
MOST_HOURS, MOST_NUMBERS = 8, 6  # ticks

Axis = Literal["time", "hours", "number", "log"]
Mark = Literal["line", "points", "band", "bar", "none"]  # points: joined by a line; none: in the table only


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One column of a chart. A band is two columns, drawn as the area between them."""

    name: str
    values: FloatArray
    upper: FloatArray | None = None  # bands: `values` is the lower edge
    mark: Mark = "line"
    colour: int = 0  # of the palette in page.css
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure: what it shows, in words and numbers."""

    name: str  # of the element and of the CSV file
    title: str
    caption: str  # what to see
    x: npt.NDArray[Any]  # numbers, or time stamps (UTC) as seconds since 1970
    x_label: str
    y_label: str
    series: Sequence[Series]
    axis: Axis = "number"
    y_axis: Axis = "number"  # or log, which has no place for bars: they stand on zero
    limits: tuple[float, float] | None = None  # of y; None: whatever the data span
    breaks: IntArray | None = None  # segment of each row: lines do not cross from one to the next
    shade_from: float | None = None  # x from which the background is shaded
    labels: Sequence[str] = field(default_factory=tuple)  # names of the x values, for the tooltip and the CSV
    small: bool = False


def draw(chart: Chart) -> str:
    """The whole <figure>: drawing, axes, legend, buttons, caption and the data behind it."""
    x0, x1 = x_range(chart)
    y0, y1 = y_range(chart)
    xs = np.rint((placed(chart.x, chart.axis) - x0) / (x1 - x0) * WIDE).astype(np.int64)

    def ys(values: FloatArray) -> FloatArray:
        return np.asarray((y1 - placed(values, chart.y_axis)) / (y1 - y0) * HIGH, dtype=float)

    shade = ""
    if chart.shade_from is not None:
        left = round((chart.shade_from - x0) / (x1 - x0) * WIDE)
        shade = f'<rect class="shade" x="{left}" y="{-HIGH}" width="{WIDE - left}" height="{3 * HIGH}"/>'
    marks = "".join(_mark(chart, s, xs, ys) for s in chart.series if s.mark != "none")
    x_ticks, y_ticks = ticks(x0, x1, chart.axis), ticks(y0, y1, chart.y_axis)
    grid = "".join(f"M0 {round((y1 - v) / (y1 - y0) * HIGH)}h{WIDE}" for v, _ in y_ticks)
    y_text = "".join(f'<span style="top:{(y1 - v) / (y1 - y0):.2%}">{escape(t)}</span>' for v, t in y_ticks)
    x_text = "".join(f'<span style="left:{(v - x0) / (x1 - x0):.2%}">{escape(t)}</span>' for v, t in x_ticks)
    meta = {
        "x": [x0, x1], "y": [y0, y1], "axis": chart.axis, "y_axis": chart.y_axis,
        "hard": list(chart.limits) if chart.limits else None,
    }  # fmt: skip
    kind = "figure small" if chart.small else "figure"
    help_text = "Drag to zoom; with the keyboard: arrows move, plus and minus zoom, Escape resets."
    return f"""
<figure class="{kind}" id="{chart.name}" data-chart='{json.dumps(meta)}'>
<h3 id="{chart.name}-title">{escape(chart.title)}</h3>
<div class="top">{_legend(chart)}{_buttons(chart)}</div>
<div class="axes">
<div class="y-name">{escape(chart.y_label)}</div>
<div class="y" aria-hidden="true">{y_text}</div>
<div class="plot" tabindex="0" role="group" aria-roledescription="chart" aria-labelledby="{chart.name}-title" \
aria-describedby="{chart.name}-caption" title="{help_text}">
<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" aria-labelledby="{chart.name}-title">\
<desc>{escape(chart.caption)}</desc>{shade}<path class="grid" d="{grid}"/>{marks}<path class="cursor" d=""/>\
<rect class="pick" width="0" height="{HIGH}"/></svg>
<div class="tip" role="status" hidden></div>
</div>
<div class="x" aria-hidden="true">{x_text}</div>
<div class="x-name">{escape(chart.x_label)}</div>
</div>
<figcaption id="{chart.name}-caption">{escape(chart.caption)}</figcaption>
<script type="application/json">{embedded(table(chart))}</script>
</figure>"""


# Data


def table(chart: Chart) -> dict[str, Any]:
    """The data behind a chart, by column: what is plotted, looked up by the tooltip and downloaded as CSV."""
    drawn = {"name": chart.x_label, "values": _numbers(chart.x, 12)}
    columns: list[dict[str, Any]] = []
    for s in chart.series:
        if s.upper is None:
            columns.append({"name": s.name, "values": _numbers(s.values), "drawn": s.mark != "none"})
        else:
            columns.append({"name": f"{s.name}, lower", "values": _numbers(s.values), "drawn": True})
            columns.append({"name": f"{s.name}, upper", "values": _numbers(s.upper), "drawn": True})
    return {"x": drawn, "columns": columns, "labels": list(chart.labels)}


def embedded(document: Any) -> str:
    """JSON that cannot close the script element it stands in."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _numbers(values: npt.NDArray[Any], digits: int = DIGITS) -> list[float | int | None]:
    """Rounded to what a figure can show; None where there is no number."""
    rounded = (float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in np.asarray(values, dtype=float).tolist())
    return [int(v) if v is not None and v.is_integer() else v for v in rounded]


# Ranges and ticks; page.js labels zoomed views by the same rules


def placed(values: npt.NDArray[Any], axis: Axis) -> FloatArray:
    """Where values stand on an axis: at themselves or, on a log axis, at log₁₀; there zero and less have no place."""
    numbers = np.asarray(values, dtype=float)
    return np.log10(numbers, where=numbers > 0, out=np.full(numbers.shape, np.nan)) if axis == "log" else numbers


def x_range(chart: Chart) -> tuple[float, float]:
    """From the first to the last place, wider where bars and points need room."""
    low, high = placed(chart.x[[0, -1]], chart.axis).tolist()
    marks = {s.mark for s in chart.series}
    if "bar" in marks:
        half = (high - low) / max(len(chart.x) - 1, 1) / 2 or 0.5
    else:
        half = 0.03 * (high - low) if "points" in marks else 0.0
    return (low - half, high + half) if high + half > low - half else (low - 0.5, low + 0.5)


def y_range(chart: Chart) -> tuple[float, float]:
    """What the drawn columns span, a little wider, within the chart's limits."""
    drawn = [v for s in chart.series if s.mark != "none" for v in (s.values, s.upper) if v is not None]
    values = np.concatenate([placed(v, chart.y_axis) for v in drawn])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if any(s.mark == "bar" for s in chart.series):
        low, high = min(low, 0.0), max(high, 0.0)
    if chart.limits is not None:
        low, high = max(low, chart.limits[0]), min(high, chart.limits[1])
    pad = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    return low - pad, high + pad


def ticks(low: float, high: float, axis: Axis) -> list[tuple[float, str]]:
    """Places on an axis and what to write there."""
    if axis == "number":
        return number_ticks(low, high)
    return log_ticks(low, high) if axis == "log" else hour_ticks(low, high, axis)


def number_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / MOST_NUMBERS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(k * step, f"{k * step + 0.0:.{digits}f}".replace("-", "−")) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """From log₁₀ to log₁₀: powers of ten, below three of them also 2 and 5 times these, below one round numbers."""
    if high - low < 1:
        return [(math.log10(v), text) for v, text in number_ticks(10.0**low, 10.0**high)]
    step = math.ceil((high - low) / MOST_NUMBERS)
    powers = range(math.floor(low / step) * step, math.floor(high) + 1, step)
    places = [(k + math.log10(m), m, k) for k in powers for m in ((1, 2, 5) if high - low < 3 else (1,))]
    return [(at, power_label(m, k)) for at, m, k in places if low <= at <= high]


def power_label(factor: int, power: int) -> str:
    """factor · 10^power, written out where that is short."""
    if -3 <= power <= 4:
        return f"{factor * 10.0**power:.{max(0, -power)}f}"
    return f"{factor}e{power}".replace("-", "−")


def hour_ticks(low: float, high: float, axis: Axis) -> list[tuple[float, str]]:
    """Round hours of a span of hours, or round hours and midnights (UTC) of a span of time in seconds."""
    unit = HOUR if axis == "time" else 1
    step = unit * next((s for s in HOUR_STEPS if (high - low) / (unit * s) <= MOST_HOURS), HOUR_STEPS[-1])
    ticks = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [(float(t), time_label(t) if axis == "time" else str(t)) for t in ticks]


def time_label(seconds: int) -> str:
    stamp = pd.Timestamp(seconds, unit="s")
    return f"{stamp:%H:%M}" if seconds % DAY else f"{stamp.day} {stamp:%b}"


# Marks


def _mark(chart: Chart, s: Series, xs: IntArray, ys: Any) -> str:
    style = f"s{s.colour}{' dashed' if s.dashed else ''}"
    if s.mark == "bar":
        return f'<path class="bars {style}" d="{_bars(xs, ys(s.values), float(ys(np.zeros(1))[0]))}"/>'
    segment = chart.breaks if chart.breaks is not None else np.zeros(len(xs), dtype=np.int64)
    parts = []
    low, high = ys(s.values), None if s.upper is None else ys(s.upper)
    present = np.isfinite(low) if high is None else np.isfinite(low) & ~np.isnan(high)  # a band may reach infinity
    for run in _runs(segment, present):
        if high is None:
            parts.append(_path(xs[run], low[run]))
        else:
            edge = np.concatenate([high[run], low[run][::-1]])
            parts.append(_path(np.concatenate([xs[run], xs[run][::-1]]), edge) + "z")
    drawn = f'<path class="{"line" if high is None else "band"} {style}" d="{"".join(parts)}"/>'
    if s.mark == "points":
        dots = "".join(_path(xs[[i]], low[[i]]) for i in np.flatnonzero(present))
        drawn += f'<path class="points {style}" d="{dots}"/>'
    return drawn


def _runs(segment: IntArray, present: npt.NDArray[np.bool_]) -> list[IntArray]:
    """Rows that a line may join: same segment, no missing value between."""
    rows = np.flatnonzero(present)
    if len(rows) == 0:
        return []
    cuts = np.flatnonzero((np.diff(rows) != 1) | (np.diff(segment[rows]) != 0)) + 1
    return [np.asarray(part, dtype=np.int64) for part in np.split(rows, cuts)]


def _path(xs: IntArray, ys: FloatArray) -> str:
    """A polyline in relative whole-number steps; values far outside the view are drawn at its edge."""
    y = np.rint(np.clip(ys, -3 * HIGH, 4 * HIGH)).astype(np.int64)
    steps = " ".join(f"{a} {b}" for a, b in zip(np.diff(xs).tolist(), np.diff(y).tolist(), strict=True))
    return f"M{xs[0]} {y[0]}" + (f"l{steps}" if steps else "h1")


def _bars(xs: IntArray, ys: FloatArray, base: float) -> str:
    width = max(1, round(0.7 * (float(np.diff(xs).min()) if len(xs) > 1 else WIDE / 2)))
    return "".join(
        f"M{x - width // 2} {round(base)}h{width}V{round(y)}h{-width}z"
        for x, y in zip(xs.tolist(), np.clip(ys, -3 * HIGH, 4 * HIGH).tolist(), strict=True)
        if math.isfinite(y)
    )


def _legend(chart: Chart) -> str:
    shown = [s for s in chart.series if s.mark != "none"]
    keys = "".join(
        f'<li><i class="key {s.mark if s.upper is None else "band"} s{s.colour}{" dashed" if s.dashed else ""}"></i>'
        f"{escape(s.name)}</li>"
        for s in shown
    )
    return f'<ul class="legend">{keys}</ul>'


def _buttons(chart: Chart) -> str:
    names = (("reset", "Reset", "Show all"), ("in", "+", "Zoom in"), ("out", "−", "Zoom out"))
    of = escape(chart.title, quote=True)
    zoom = "".join(
        f'<button type="button" data-do="{key}" aria-label="{what}: {of}">{sign}</button>' for key, sign, what in names
    )
    csv = f'<button type="button" data-do="csv" aria-label="Download the data as CSV: {of}">CSV</button>'
    return f'<div class="tools">{zoom}{csv}</div>'
