"""All protocols side by side on the same data: accuracy, cost, and what each gives away."""

from collections.abc import Callable
from typing import Any

import numpy as np

from atdm.data import Cluster
from atdm.errors import AtdmError, UsageError
from atdm.protocol.plan import PROTOCOLS, WEIGHTS, ProtocolName
from atdm.run import Fit, fit

COEFFICIENTS = ("alpha", "beta", "gamma", "theta")


def parse_protocols(text: str) -> tuple[ProtocolName, ...]:
    """ "plain,blind" → names."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    for name in chosen:
        if name not in PROTOCOLS:
            raise UsageError(f"protocol {name!r}: choose among {', '.join(PROTOCOLS)}")
    return tuple(protocol for protocol in PROTOCOLS if protocol in chosen)


VARIANTS: tuple[tuple[str, ProtocolName, dict[str, Any]], ...] = (
    ("plain", "plain", {}),
    ("plain, equal weights", "plain", {"weights": "equal"}),
    ("paper", "paper", {}),
    ("moments", "moments", {}),
    ("blind", "blind", {}),
    ("blind, no dither", "blind", {"dither": 0.0}),  # to compare arithmetic
    ("blind, equal weights", "blind", {"weights": "equal"}),
)


def compare(
    cluster: Cluster,
    protocols: tuple[ProtocolName, ...] = PROTOCOLS,
    *,
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """One row a protocol and way of weighting; differences are to `plain` with the same options and weighting.

    A protocol that refuses says why.
    """
    plain = {weights: fit(cluster, "plain", weights=weights, **options) for weights in WEIGHTS}
    rows = []
    for name, protocol, variant in VARIANTS:
        if protocol not in protocols:
            continue
        if report is not None:
            report(name)
        centre = plain[variant.get("weights", "fitted")]
        try:
            found = centre if protocol == "plain" else fit(cluster, protocol, **options, **variant)
            rows.append({"protocol": name, **_row(found, centre)})
        except AtdmError as error:
            rows.append({"protocol": name, "refused": str(error)})
    return rows


def _row(found: Fit, plain: Fit) -> dict[str, Any]:
    test, cost = found.metrics["test"]["free_run"], found.cost
    apart = max(np.abs(getattr(found.model, n) - getattr(plain.model, n)).max() for n in COEFFICIENTS)
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
