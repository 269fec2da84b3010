"""Drift as a figure: every coefficient and time constant by window, with its band. Needs matplotlib (atdm[report])."""

import math
from pathlib import Path

from atdm.errors import UsageError
from atdm.use.drift import Drift

COLUMNS = 4
PANEL = (3.0, 2.0)  # inches


def drift_figure(found: Drift, path: Path) -> None:
    """Save the figure, in the format of the file's ending; windows that left the first band are marked in red."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib: pip install 'atdm[report]'") from None
    groups = list(found.table.groupby("quantity", sort=False))
    rows = math.ceil(len(groups) / COLUMNS)
    figure = Figure(figsize=(PANEL[0] * COLUMNS, PANEL[1] * rows), layout="constrained")
    panels = iter(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for (name, table), panel in zip(groups, panels, strict=False):
        at, first = range(len(table)), table.iloc[0]
        if math.isfinite(first["low"]) and math.isfinite(first["high"]):
            panel.axhspan(first["low"], first["high"], color="0.9")
        panel.vlines(at, table["low"], table["high"].replace(math.inf, math.nan), color="0.4")
        panel.scatter(at, table["value"].replace(math.inf, math.nan),
                      c=["tab:red" if drifted else "tab:blue" for drifted in table["drifted"]], zorder=3)  # fmt: skip
        panel.set_title(str(name))
        panel.set_xticks(list(at), [f"{t:%d %b}" for t in table["window"]])
    for panel in panels:  # the rest of the last row
        panel.set_axis_off()
    figure.suptitle("Refits by the end of their window, 95 % bands; grey: the first window's")
    figure.savefig(path)
