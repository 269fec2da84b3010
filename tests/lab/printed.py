"""`paper` with the masks that the paper prints: real numbers, summed without a modulus.

Everything else is as in the package, receipts and consent too. Small masks leak and large ones destroy the sum
(docs/paper.md, Lemma 1), so that no agent knows this arithmetic; tests put it in the place of the package's own.
"""

import msgspec
import numpy as np
import pytest

from atdm.crypto.keys import derive
from atdm.crypto.prg import Stream
from atdm.crypto.sums import Layout, sum_nonce
from atdm.protocol import messages as wire
from atdm.protocol import paper
from atdm.protocol.desk import Outgoing
from atdm.types import FloatArray


class PrintedPart(paper.PaperPart):
    size = 1e3  # of the masks, uniform in ±size; the paper leaves it open

    def _mask(self, ask: wire.Ask, layout: Layout, values: dict[str, FloatArray]) -> wire.Masked:
        sent = super()._mask(ask, layout, values)
        masked = np.concatenate([values[block.name] for block in layout.blocks])
        for peer in self.session.neighbours:
            key = derive(self.session.pair_key(peer), "float mask")
            words = Stream(key).words(len(masked), sum_nonce(self.context, ask.what, layout))
            masked += (1 if self.session.index < peer else -1) * self.size * ((words >> np.uint64(11)) * 2.0**-52 - 1.0)
        numbers = np.append(masked, 0.0)  # nobody counts who sent
        return msgspec.structs.replace(sent, words=numbers.astype("<f8").tobytes())


class PrintedDesk(paper.PaperDesk):
    def _add(self, sender: int, message: wire.Masked) -> list[Outgoing]:
        out = super()._add(sender, message)  # whether it belongs here; a sum of these words modulo 2⁶⁴ means nothing
        first = len(self._tags) == 1
        numbers = np.frombuffer(message.words, dtype="<f8")
        self.floats = numbers if first else self.floats + numbers
        return out

    def _opened(self, layout: Layout) -> dict[str, FloatArray]:
        parts = np.split(self.floats[:-1], np.cumsum([block.size for block in layout.blocks])[:-1])
        named = zip(layout.blocks, parts, strict=True)
        return {block.name: np.rint(part) if block.bits == 0 else part for block, part in named}  # counts are exact


def float_masks(monkeypatch: pytest.MonkeyPatch, size: float = PrintedPart.size) -> None:
    """From here on `paper` runs as it is printed, with masks of this size."""
    monkeypatch.setattr(PrintedPart, "size", size)
    monkeypatch.setattr(paper, "PaperPart", PrintedPart)
    monkeypatch.setattr(paper, "PaperDesk", PrintedDesk)
