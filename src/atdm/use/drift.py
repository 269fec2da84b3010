"""Whether the cluster still behaves as it did: estimates on a moving window of released rows, compared with the first.

A quantity has drifted when its 95 % band no longer meets that of the first window: some 2.8 standard errors apart,
rare by chance. Standard errors are Newey–West, so that correlated residuals do not raise false alarms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from atdm.data.clock import duration
from atdm.errors import UsageError
from atdm.kernel.design import LAGGED, SYMBOLS
from atdm.model.diagnostics import NORMAL_95, diagnose
from atdm.model.fitted import Model
from atdm.model.physical import estimate_physical
from atdm.model.released import Released
from atdm.use.series import observed_rows

LEAST_PART = 0.5  # of a window's rows that must be there, below which its bands tell little


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drift:
    """Coefficients and time constants by window.

    Attributes
    ----------
    table : pandas.DataFrame
        window (its last stamp), quantity, value and its 95 % band low, high [unit of the quantity], drifted.
    warnings : tuple of str
        What has left its band, and how many windows were left out for lack of rows.
    """

    table: pd.DataFrame
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The table for JSON; time stamps as text."""
        rows = self.table.assign(window=[t.isoformat() for t in self.table["window"]])
        return {"rows": rows.to_dict("records"), "warnings": list(self.warnings)}


def drift(
    model: Model,
    observed: pd.DataFrame | None = None,
    weather: pd.DataFrame | None = None,
    *,
    window: str = "14d",
    every: str = "7d",
) -> Drift:
    """Whether the cluster still behaves as it did: the model estimated on a moving window of released rows.

    Parameters
    ----------
    model : Model
        With the rows it comes from, as `atdm fit -o` writes it or `Fit.chosen` has it.
    observed, weather : pandas.DataFrame, optional
        As in `update` [°C, kW; °C, W/m²]; without them the model's own rows are compared.
    window : str, default "14d"
        Length of the window.
    every : str, default "7d"
        By how much it moves.

    Returns
    -------
    Drift
        Coefficients and time constants by window, and which have left the band of the first one. Windows that are
        mostly gap are left out, and a warning says so.

    Raises
    ------
    UsageError
        The model holds no rows, or fewer than two windows of them.
    """
    if model.released is None:
        raise UsageError("the model file holds no rows to compare: write it with atdm fit -o")
    rows = model.released
    if observed is not None and weather is not None:
        rows = rows.followed_by(observed_rows(model, observed, weather))
    length, shift = duration(window), duration(every)
    count = int((rows.time[-1] + model.step - rows.time[0] - length) // shift) + 1
    if count < 2:
        raise UsageError(f"{len(rows)} rows hold {max(count, 0)} windows of {window}, moved by {every}: two are needed")
    found, gaps = [], []
    for start in (rows.time[0] + k * shift for k in range(count)):
        part, last = rows.between(start, start + length), start + length - model.step
        try:
            if len(part) < LEAST_PART * (length / model.step):
                raise UsageError("mostly gap")
            found.append(list(_quantities(model, part, last)))
        except UsageError:  # of too few rows, or too few that follow each other
            gaps.append(last)
    if len(found) < 2:
        raise UsageError(f"{len(gaps)} of {count} windows of {window} have too few rows that follow each other, and "
                         "two are needed: give a longer --window, or more rows")  # fmt: skip
    table = pd.DataFrame(
        [row for part in found for row in part], columns=["window", "quantity", "value", "low", "high"]
    )  # fmt: skip
    reference = table.drop_duplicates("quantity").set_index("quantity")
    low, high = (reference[end].reindex(table["quantity"]).to_numpy() for end in ("low", "high"))
    table["drifted"] = (table["low"] > high) | (table["high"] < low)
    warnings = list(_warnings(table, reference))
    if gaps:
        warnings.append(f"{len(gaps)} of {count} windows are mostly gap and left out, the first that to "
                        f"{gaps[0]:%Y-%m-%d}")  # fmt: skip
    return Drift(table=table, warnings=tuple(warnings))


def _quantities(
    model: Model, rows: Released, when: pd.Timestamp
) -> Iterator[tuple[pd.Timestamp, str, float, float, float]]:
    inputs = rows.inputs(model.calendar)
    c = estimate_physical(inputs, rows.state, model.order, model.calendar)
    found = diagnose(c, inputs, rows.state, model.calendar.step_hours)
    for group in LAGGED:
        values, errors = getattr(c, group), found.standard_errors[group]
        for m, (value, error) in enumerate(zip(values, errors, strict=True), 1 if group == "alpha" else 0):
            half = NORMAL_95 * float(error)
            yield when, f"{SYMBOLS[group]}{m}", float(value), float(value) - half, float(value) + half
    for m, (value, (low, high)) in enumerate(zip(found.time_constants, found.time_constant_bands, strict=True), 1):
        yield when, f"τ{m} [h]", float(value), float(low), float(high)


def _warnings(table: pd.DataFrame, reference: pd.DataFrame) -> Iterator[str]:
    windows = table["window"].nunique()
    for name, rows in table[table["drifted"]].groupby("quantity", sort=False):
        latest, before = rows.iloc[-1], reference.loc[name]
        yield (
            f"{name} has left its band in {len(rows)} of {windows} windows: {before['value']:.4g} "
            f"({before['low']:.4g} to {before['high']:.4g}) at first, {latest['value']:.4g} "
            f"({latest['low']:.4g} to {latest['high']:.4g}) in that to {latest['window']:%Y-%m-%d}: run atdm update"
        )
    if not np.isfinite(table["value"]).all():
        yield "in some window a time constant is not finite: the window is too short to tell"
