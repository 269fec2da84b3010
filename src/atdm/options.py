"""The options of a fit: one struct from the command line to the plan. Nothing heavy is imported here."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from atdm.errors import UsageError

ProtocolName = Literal["plain", "paper", "moments", "blind"]
WeightsName = Literal["fitted", "equal"]
NonnegativeName = Literal["ridge", "exact", "free"]
OwnerChoice = Literal["takes part", "paused", "left"]  # of a home, about all runs; left: for good

PROTOCOLS: tuple[ProtocolName, ...] = get_args(ProtocolName)
WEIGHTS: tuple[WeightsName, ...] = get_args(WeightsName)
SIGNS: tuple[NonnegativeName, ...] = get_args(NonnegativeName)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """What a person may set about a fit; the meaning of each is in `atdm.fit`."""

    protocol: ProtocolName = "blind"
    order: int = 2  # M
    ridge: float = 100.0  # λ
    season: str = "24h"
    weights: WeightsName = "fitted"
    nonnegative: NonnegativeName = "ridge"
    tolerance: float = 1e-12
    solver_tolerance: float = 0.03
    train: float = 0.75
    minimum_norm: bool = False

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UsageError(f"protocol {self.protocol!r}: choose one of {', '.join(PROTOCOLS)}")
        if self.weights not in WEIGHTS:
            raise UsageError(f"weights {self.weights!r}: choose {' or '.join(map(repr, WEIGHTS))}")
        if self.nonnegative not in SIGNS:
            raise UsageError(f"nonnegative {self.nonnegative!r}: choose 'ridge', 'exact' or False")


def fit_options(**given: Any) -> FitOptions:
    """Options by name; nonnegative=False, the public way to say "free", included."""
    known = {field.name for field in fields(FitOptions)}
    for name in given:
        if name not in known:
            raise TypeError(f"a fit has no option {name!r}: choose among {', '.join(sorted(known))}")
    if given.get("nonnegative") is False:
        given["nonnegative"] = "free"
    return FitOptions(**given)
