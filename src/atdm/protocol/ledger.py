"""Who learned what: written at the place where a value arrives, never from a list."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

What = Literal[
    "load total", "state", "coefficients", "metrics", "basis total", "scalars",
    "weights", "moments", "masked transform", "everything",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """One value as it reached a party."""

    what: What
    label: str  # which one of its kind, e.g. "D2" of iteration 3
    value: npt.NDArray[Any]


@dataclass(slots=True, repr=False)
class Notebook:
    """What one party learned, in order. The values themselves are kept only when asked for (`keep`)."""

    party: str
    keep: bool = False
    counts: dict[tuple[What, tuple[int, ...]], int] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)

    def write(self, what: What, value: npt.ArrayLike, label: str = "") -> None:
        array = np.asarray(value)
        shape, times = ((1,), array.size) if what == "scalars" else (array.shape, 1)  # scalars are counted one by one
        self.counts[what, shape] = self.counts.get((what, shape), 0) + times
        if self.keep:
            self.seen.append(Seen(what, label, array.copy()))

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"party": self.party, "what": what, "shape": list(shape), "times": times}
            for (what, shape), times in self.counts.items()
        ]

    def __repr__(self) -> str:
        return f"Notebook({self.party}, {sum(self.counts.values())} values)"
