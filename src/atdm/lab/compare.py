"""All protocols side by side on the same data: accuracy, cost, and what each gives away."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from atdm.data import Cluster
from atdm.errors import AtdmError, UsageError
from atdm.kernel.design import LAGGED
from atdm.options import PROTOCOLS, WEIGHTS, FitOptions, ProtocolName, WeightsName, fit_options
from atdm.protocol.rules import Rules
from atdm.result import Fit
from atdm.run import fit_cluster


def parse_protocols(text: str) -> tuple[ProtocolName, ...]:
    """ "plain,blind" → names."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    for name in chosen:
        if name not in PROTOCOLS:
            raise UsageError(f"protocol {name!r}: choose among {', '.join(PROTOCOLS)}")
    return tuple(protocol for protocol in PROTOCOLS if protocol in chosen)


VARIANTS: tuple[tuple[str, ProtocolName, WeightsName, float], ...] = (  # the last: dither, in sensor quanta
    ("plain", "plain", "fitted", 0.1),
    ("plain, equal weights", "plain", "equal", 0.1),
    ("paper", "paper", "fitted", 0.1),
    ("moments", "moments", "fitted", 0.1),
    ("blind", "blind", "fitted", 0.1),
    ("blind, no dither", "blind", "fitted", 0.0),  # to compare arithmetic
    ("blind, equal weights", "blind", "equal", 0.1),
)


def compare(cluster: Cluster, protocols: tuple[ProtocolName, ...] = PROTOCOLS, **options: Any) -> pd.DataFrame:
    """All protocols side by side on the same data, a row each.

    Parameters
    ----------
    cluster : Cluster
        Readings of all agents and the weather.
    protocols : tuple of str, default ("plain", "paper", "moments", "blind")
        Those to compare.
    **options
        Those of `fit`: order, ridge, season, nonnegative, train.

    Returns
    -------
    pandas.DataFrame
        By protocol and way of weighting: accuracy [-], largest difference of coefficients and weights to "plain",
        totals, messages, bytes, seconds [s], and what aggregator and peers learned. `refused` says why a protocol
        would not run.
    """
    return pd.DataFrame(compare_rows(cluster, protocols, fit_options(**options))).set_index("protocol")


def compare_rows(
    cluster: Cluster,
    protocols: tuple[ProtocolName, ...],
    options: FitOptions,
    report: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """One row a protocol and way of weighting; differences are to `plain` with the same options and weighting.

    A protocol that refuses says why.
    """
    centre = replace(options, protocol="plain")
    plain = {weights: fit_cluster(cluster, replace(centre, weights=weights)) for weights in WEIGHTS}
    rows = []
    for name, protocol, weights, dither in VARIANTS:
        if protocol not in protocols:
            continue
        if report is not None:
            report(name)
        try:
            asked = replace(options, protocol=protocol, weights=weights)
            found = plain[weights] if protocol == "plain" else fit_cluster(cluster, asked, Rules(dither=dither))
            rows.append({"protocol": name, **_row(found, plain[weights])})
        except AtdmError as error:
            rows.append({"protocol": name, "refused": str(error)})
    return rows


def _row(found: Fit, plain: Fit) -> dict[str, Any]:
    test, cost = found.metrics["test"]["free_run"], found.cost
    apart = max(np.abs(getattr(found.model.coefficients, n) - getattr(plain.model, n)).max() for n in LAGGED)
    weights = float("nan")
    if found.weights is not None and plain.weights is not None:
        weights = float((found.weights - plain.weights).abs().max() / plain.weights.abs().max())
    return {
        "weights": found.weighting,
        "status": str(found.status),
        "r2": test["r2"],
        "ridge": None if found.weighting == "equal" else found.ridge,
        "coefficients_apart": float(apart),
        "weights_apart": weights,
        "sums": cost.sums,
        "rounds": cost.rounds,
        "bytes_up_per_agent": cost.bytes_up_per_agent,
        "seconds_per_agent": cost.seconds_per_agent,
        "seconds_aggregator": cost.seconds_aggregator,
        "aggregator_learned": learned(found, "aggregator"),
        "peers_learned": learned(found, "agents"),
    }


def learned(found: Fit, party: str) -> str:
    """The ledger of one party in a line; scalars are numbers, the rest are arrays."""
    rows = [row for row in found.ledger if row["party"] == party]
    return ", ".join(
        f"{row['times']} {row['what']}" if row["what"] == "scalars" else
        f"{row['what']} {'×'.join(map(str, row['shape']))}" + (f" ({row['times']} times)" if row["times"] > 1 else "")
        for row in rows
    ) or "nothing"  # fmt: skip
