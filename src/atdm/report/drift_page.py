"""Drift as a page: every coefficient and time constant by window, with its band."""

import numpy as np
import pandas as pd

from atdm.kernel.design import SYMBOLS, UNITS
from atdm.report.blocks import Section, html_page
from atdm.report.chart import Chart, Series
from atdm.report.figures import MODEL, OTHER, THIRD, seconds_of
from atdm.use.drift import Drift

UNIT = {SYMBOLS[name]: UNITS[name] for name in SYMBOLS} | {"τ": "h"}


def drift_page(found: Drift) -> str:
    """What has left the first window's band, in words and figures."""
    lead = "The same model fitted to one window after the other: does the cluster still behave as it did in the first?"
    changes = found.warnings or ("No quantity has left the 95 % band of the first window.",)
    charts = [_chart(str(name), rows) for name, rows in found.table.groupby("quantity", sort=False)]
    return html_page("atdm drift", "Drift", lead, [
        Section("changes", "What has changed", changes),
        Section("quantities", "Every quantity by window", [charts]),
    ])  # fmt: skip


def _chart(name: str, rows: pd.DataFrame) -> Chart:
    value, low, high = (rows[key].to_numpy(float) for key in ("value", "low", "high"))
    drifted, unit = rows["drifted"].to_numpy(bool), f"[{UNIT[name[0]]}]"
    first = np.full_like(low, low[0]), np.full_like(high, high[0])
    series = [
        Series(name=f"first band {unit}", values=first[0], upper=first[1], colour=THIRD),
        Series(name=f"95 % band {unit}", values=low, upper=high, colour=MODEL),
        Series(name=f"value {unit}", values=value, mark="points", colour=MODEL),
    ]
    if drifted.any():
        moved = np.where(drifted, value, np.nan)
        series.append(Series(name=f"drifted {unit}", values=moved, mark="points", colour=OTHER))
    return Chart(
        name=name.partition(" ")[0], title=name, x=seconds_of(pd.Index(rows["window"])), axis="time",
        x_label="last training row of the window (UTC)", y_label=unit, series=series, small=True,
        caption=f"Its band meets that of the first window in {int((~drifted).sum())} of {len(rows)} windows.",
    )  # fmt: skip
