"""Whether the cluster still behaves as it did: refits on a moving window, compared with the first.

A quantity has drifted when its 95 % band no longer meets that of the first window: some 2.8 standard errors apart,
rare by chance. Standard errors are Newey–West, so that correlated residuals do not raise false alarms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from atdm.data import Cluster
from atdm.data.clock import duration
from atdm.errors import UsageError
from atdm.kernel.design import LAGGED, SYMBOLS
from atdm.model.diagnostics import NORMAL_95, Diagnostics
from atdm.run import Fit, fit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drift:
    """Coefficients and time constants by window.

    Attributes
    ----------
    table : pandas.DataFrame
        window (its last training stamp), quantity, value and its 95 % band low, high [unit of the quantity], drifted.
    warnings : tuple of str
        What has left its band.
    """

    table: pd.DataFrame
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The table for JSON; time stamps as text."""
        rows = self.table.assign(window=[t.isoformat() for t in self.table["window"]])
        return {"rows": rows.to_dict("records"), "warnings": list(self.warnings)}


def refits(cluster: Cluster, *, window: str = "14d", every: str = "7d", **options: Any) -> list[Fit]:
    """Fits of the same cluster on a window moved along its data.

    Parameters
    ----------
    cluster : Cluster
        Readings of all agents and the weather.
    window : str, default "14d"
        Length of the window.
    every : str, default "7d"
        By how much it moves.
    **options
        Those of `fit`.

    Returns
    -------
    list of Fit
        In the order of time.
    """
    length, shift = duration(window), duration(every)
    first, last = cluster.time[0], cluster.time[-1] + cluster.step
    count = int((last - first - length) // shift) + 1
    if count < 2:
        raise UsageError(f"{cluster} holds {max(count, 0)} windows of {window} moved by {every}: give at least two")
    starts = [first + k * shift for k in range(count)]
    return [fit(_rows(cluster, start, start + length), **options) for start in starts]


def drift(fits: Sequence[Fit]) -> Drift:
    """Whether the cluster still behaves as it did: fits compared with the first.

    Parameters
    ----------
    fits : sequence of Fit
        Fits of the same cluster and order, in the order of time.

    Returns
    -------
    Drift
        Coefficients and time constants by window, and which have left their band.
    """
    if len(fits) < 2 or len({f.model.order for f in fits}) > 1:
        raise UsageError("drift compares at least two fits of the same order: see refits")
    table = pd.DataFrame(
        [row for f in fits for row in _quantities(f)], columns=["window", "quantity", "value", "low", "high"]
    )
    reference = table.drop_duplicates("quantity").set_index("quantity")
    low, high = (reference[end].reindex(table["quantity"]).to_numpy() for end in ("low", "high"))
    table["drifted"] = (table["low"] > high) | (table["high"] < low)
    return Drift(table=table, warnings=tuple(_warnings(table, reference)))


def _rows(cluster: Cluster, start: pd.Timestamp, stop: pd.Timestamp) -> Cluster:
    kept = (cluster.time >= start) & (cluster.time < stop)
    return replace(
        cluster, temperature=cluster.temperature[kept], load=cluster.load[kept], outdoor=cluster.outdoor[kept],
        solar=cluster.solar[kept], rows_dropped=0, notes=(),
    )  # fmt: skip


def _quantities(f: Fit) -> Iterator[tuple[pd.Timestamp, str, float, float, float]]:
    found: Diagnostics = f.diagnostics
    when = f.train.index[-1]
    for group in LAGGED:
        values, errors = getattr(f.model, group), found.standard_errors[group]
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
            f"({latest['low']:.4g} to {latest['high']:.4g}) in the window to {latest['window']:%Y-%m-%d}: use a new fit"
        )
    if not np.isfinite(table["value"]).all():
        yield "in some window a time constant is infinite (an unstable model): the window is too short to tell"
