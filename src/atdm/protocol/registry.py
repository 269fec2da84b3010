"""The protocols, a row each: who does what on either side, which options go with it, and what the aggregator learns.

Plans, rules and roles ask here; a side is imported when a run begins, so that an agent that waits holds little.
"""

from importlib import import_module
from typing import Any, NamedTuple

from atdm.errors import UsageError
from atdm.options import NonnegativeName, WeightsName


class Protocol(NamedTuple):
    """One row. Sides are module:class below this room; a trusted centre has none."""

    agent: str
    aggregator: str
    weights: tuple[WeightsName, ...]
    nonnegative: tuple[NonnegativeName, ...]
    minimum_norm: bool  # whether it fits where inputs are collinear
    opened: bool  # whether its sums show the aggregator every reading
    reveals: str  # to the aggregator, beside load total, aggregate temperature and model


REGISTRY = {
    "plain": Protocol("", "", ("fitted", "equal"), ("ridge", "exact", "free"), True, True, "every reading"),
    "paper": Protocol(
        "paper:PaperPart", "paper:PaperDesk", ("fitted",), ("ridge", "free"), True, True,
        "every reading, to a rotation that the readings' decimals undo, and every weight",
    ),
    "moments": Protocol(
        "moments:MomentsPart", "moments:MomentsDesk", ("fitted",), ("ridge", "exact", "free"), True, True,
        "every reading, to a rotation that the readings' decimals undo",
    ),
    "blind": Protocol(
        "blind.script:BlindPart", "blind.desk:BlindDesk", ("fitted", "equal"), ("ridge", "free"), False, False,
        "nothing",
    ),
    "collect": Protocol("collect:CollectPart", "collect:CollectDesk", ("fitted", "equal"), (), False, False, "nothing"),
}  # fmt: skip
OFFERED = ("blind", "moments", "paper")  # what a person may ask agents for by name


def side(place: str) -> Any:
    """The class of one side of a protocol."""
    module, _, name = place.partition(":")
    if not name:
        raise UsageError(f"agents do not offer it: choose {', '.join(OFFERED)}")
    return getattr(import_module(f"atdm.protocol.{module}"), name)
