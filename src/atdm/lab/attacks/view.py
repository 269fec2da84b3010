"""What an adversary holds: public knowledge, what the parties on its side saw, and those parties' own data."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from atdm.kernel.design import REFERENCE_TEMP, Inputs, lagged_rows
from atdm.kernel.rotation import Upload
from atdm.protocol.ledger import Seen
from atdm.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """Known to everybody once the load total is."""

    agents: int  # K
    order: int  # M
    inputs: Inputs  # load total, weather, season and segments, over the rows of the fit

    @property
    def train(self) -> int:
        return self.inputs.train

    def filter_rows(self) -> IntArray:
        """Rows at which τ̂ is uploaded."""
        return lagged_rows(self.inputs.segment, self.order, 0, self.train)


@dataclass(frozen=True, slots=True, kw_only=True)
class Colluder:
    """An agent on the adversary's side, with everything of its own."""

    place: int  # in the company
    series: FloatArray  # its temperature, centred at the reference [K]
    coefficients: FloatArray = field(default_factory=lambda: np.empty(0))  # its own q_i in the totals (blind)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    public: Public
    seen: Sequence[Seen]
    colluders: tuple[Colluder, ...] = ()

    def values(self, what: str, label: str = "") -> list[FloatArray]:
        return [s.value for s in self.seen if s.what == what and s.label == label]

    def states(self) -> list[FloatArray]:
        """s of every iteration, centred. [K]"""
        return [value - REFERENCE_TEMP for value in self.values("state")]

    def uploads(self) -> list[Upload]:
        """D1, d2, D2 and α of every transformed SP_II (`paper`)."""
        gram, ones, series = (self.values("masked transform", name) for name in ("D1", "d2", "D2"))
        alphas = self.values("coefficients", "alpha")
        return [Upload(*parts) for parts in zip(alphas, gram, ones, series, strict=True)]

    def totals(self) -> FloatArray:
        """V, N × j (`blind`), less what the colluders put in themselves. [K]"""
        totals = self.values("basis total")
        if not totals:
            return np.empty((len(self.public.inputs), 0))
        series = np.column_stack(totals)
        for colluder in self.colluders:
            used = colluder.coefficients[: series.shape[1]]
            series[:, : len(used)] -= np.outer(colluder.series, used)
        return series

    def gram(self) -> tuple[FloatArray, FloatArray]:
        """QᵀQ and Qᵀ1 of the totals, as every agent was told, less the colluders' part."""
        rows = [np.ones(1), *self.values("scalars", "gram")]
        ones = np.concatenate([[self.public.agents**0.5], *self.values("scalars", "one")])
        gram = np.zeros((len(rows), len(rows)))
        for k, row in enumerate(rows):
            gram[k, : k + 1] = gram[: k + 1, k] = row
        for colluder in self.colluders:
            q = np.zeros(len(rows))
            q[: len(colluder.coefficients)] = colluder.coefficients
            gram, ones = gram - np.outer(q, q), ones - q
        return gram, ones

    def public_series(self) -> FloatArray:
        """Released or public series: the last s, h, outdoor temperature and solar, N × up to 4."""
        inputs = self.public.inputs
        return np.column_stack([*self.states()[-1:], inputs.load, inputs.outdoor, inputs.solar])

    def without_sums(self) -> FloatArray:
        """What the adversary has without any run: the weather, and its own agents' temperatures."""
        inputs = self.public.inputs
        return np.column_stack([inputs.outdoor, inputs.solar, *(colluder.series for colluder in self.colluders)])
