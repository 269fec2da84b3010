"""A sum that only agents can open.

    wrap     encode → check words → veil (the leader's) → pairwise masks
    unwrap   unveil → check words, range and count, together → fields

Rule 1: a total is opened by `unwrap` alone.
Rule 2: the context hashes every total as received; agents that were shown different totals never open another one.
"""

import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import derive, digest
from atdm.crypto.prg import Stream
from atdm.crypto.ring import CHECK_WORDS
from atdm.crypto.sums import Layout, sum_nonce
from atdm.protocol.part import Host
from atdm.protocol.plan import BLIND_BUDGET
from atdm.protocol.session import Session
from atdm.types import FloatArray, UInt64Array


class Veil:
    """One agent's end of the veiled sums of a run."""

    def __init__(self, session: Session, group: bytes, host: Host) -> None:
        run = session.run
        self._session, self._host = session, host
        self._stream = Stream(derive(group, "veil and check keys", run.id, run.company_hash))
        self._group = digest("group", group)  # tells agents of one host apart that were sealed different secrets
        self.context = digest("blind context", run.id)

    def wrap(self, phase: str, layout: Layout, values: dict[str, FloatArray], *, veiled: bool = True) -> bytes:
        """This agent's words of the next sum, as they leave; the release alone has no veil."""
        self.phase, self.layout, self.veiled = phase, layout, veiled  # of the sum that is under way
        shape = self.context + layout.hash + phase.encode()
        nonce = self._host.once(shape, "nonce", lambda: sum_nonce(self.context, phase, layout))
        words = layout.encode(values)
        if veiled:
            words = self._authenticated(words, nonce)
        self._session.mask(words, nonce)
        return ring.to_bytes(words)

    def _authenticated(self, plain: UInt64Array, nonce: bytes) -> UInt64Array:
        """With check words behind them and, at the leader, the veil on all of them."""
        count = len(plain) + CHECK_WORDS
        stream = self._host.once(
            nonce + self._group, "group stream", lambda: self._stream.words(count + CHECK_WORDS * len(plain), nonce)
        )
        self._veil, self._keys = stream[:count], stream[count:].reshape(CHECK_WORDS, -1)
        words = np.empty(count, dtype=np.uint64)
        words[:-CHECK_WORDS], words[-CHECK_WORDS:] = plain, ring.check_words(plain, self._keys)
        if self._session.leads:
            words += self._veil
        return words

    def unwrap(self, data: bytes) -> tuple[dict[str, FloatArray], bytes]:
        """The fields of the total, and its words without veil, which later questions depend on."""
        shown = self.context + self._group + data
        fields, words, self.context = self._host.once(shown, "opened", lambda: self._opened(data))
        return dict(fields), words

    def _opened(self, data: bytes) -> tuple[dict[str, FloatArray], bytes, bytes]:
        total = ring.from_bytes(data, self.layout.words + CHECK_WORDS)
        total -= self._veil
        words, checks = total[:-CHECK_WORDS], total[-CHECK_WORDS:]
        ring.verify_words(words, checks, self._keys, BLIND_BUDGET)
        fields = self.layout.decode(words, self._session.run.agents)
        for numbers in fields.values():
            numbers.flags.writeable = False  # others of this host have them too
        return fields, words.tobytes(), next_context(self.context, data)

    def size(self) -> int:
        """Bytes of the total that comes next."""
        return ring.WORD_BYTES * (self.layout.words + CHECK_WORDS) if self.veiled else 0

    def forget(self) -> None:
        """The group's keystream, and what was opened with it, are the host's: they end with the run."""
        self._host.forget("group stream")
        self._host.forget("opened")


def next_context(context: bytes, total: bytes) -> bytes:
    """The context after a total; the aggregator, who relays them, follows it too."""
    return digest("blind context", context, total)
