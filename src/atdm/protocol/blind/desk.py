"""The aggregator's side of `blind` with fitted weights: it adds masked words and passes totals on; only the release
opens to it, and it takes that only if every agent vouches for the same words."""

import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import digest, verify
from atdm.data.readings import Weather
from atdm.errors import PeerError, RunAborted
from atdm.protocol import messages as wire
from atdm.protocol.blind.layouts import RELEASE, number_count, open_layout
from atdm.protocol.blind.release import Sealed, open_release, unpack_release, vouched
from atdm.protocol.blind.veil import next_context
from atdm.protocol.desk import Desk, Outgoing, RunningTotal
from atdm.protocol.ledger import Notebook
from atdm.protocol.plan import VERSION
from atdm.protocol.session import Run

BOX_BYTES = 48  # a 32-byte secret and its tag


class BlindDesk(Desk):
    leaving = False

    def __init__(self, run: Run, weather: Weather, notebook: Notebook) -> None:
        super().__init__(run, weather, notebook)
        self._secrets = self._seal = False
        self._box = b""  # of the leader, until its key opens
        self._vouched: dict[int, bytes] = {}
        self._context = digest("blind context", run.id)
        self._sums = 0
        largest_sum = 2 * open_layout(run.agents, run.plan.length).words + number_count(run.plan) + 4096  # words
        self._largest = max(BOX_BYTES * run.agents, ring.WORD_BYTES * largest_sum)

    def largest(self) -> int:
        return self._largest

    def receive(self, sender: int, message: wire.ToAggregator) -> list[Outgoing]:
        if isinstance(message, wire.Secrets):
            return self._pass_secrets(sender, message)
        if isinstance(message, wire.Seal):
            return self._pass_seal(sender, message)
        if isinstance(message, wire.Release):
            return self._release(sender, message)
        masked = wire.expect(message, wire.Masked)
        if not self._pile.add(sender, masked.step, masked.phase, masked.words):
            return []
        pile, self._pile = self._pile, RunningTotal(self.run.agents, masked.step + 1)
        self._sums += pile.phase in ("open", "step")
        self.leaving = True  # the answer to the first total, of rows, opens the load
        words = ring.to_bytes(pile.total)
        self._context = next_context(self._context, words)
        return [Outgoing(None, wire.encode(wire.Total(run=self.run.id, step=pile.step, words=words)))]

    def _pass_secrets(self, sender: int, message: wire.Secrets) -> list[Outgoing]:
        if sender != 0 or self._secrets:
            raise PeerError("sealed secrets from somebody who does not lead, or twice: ignored")
        if len(message.boxes) != BOX_BYTES * (self.run.agents - 1):
            raise RunAborted("the leader sealed the group secret for another number of agents")
        self._secrets = True
        boxes = (message.boxes[at : at + BOX_BYTES] for at in range(0, len(message.boxes), BOX_BYTES))
        return [Outgoing(i, wire.encode(wire.Secret(run=self.run.id, box=box))) for i, box in enumerate(boxes, 1)]

    def _pass_seal(self, sender: int, message: wire.Seal) -> list[Outgoing]:
        if sender != 0 or self._seal or message.step != self._pile.step:
            raise PeerError("a seal from somebody who does not lead, or twice: ignored")
        if len(message.box) > Sealed.size(self.run.plan, self._sums) + BOX_BYTES:
            raise RunAborted("the leader's seal is larger than its numbers")
        self._seal, self._context = True, next_context(self._context, message.box)
        data = wire.encode(message)
        return [Outgoing(i, data) for i in range(1, self.run.agents)]

    def _release(self, sender: int, message: wire.Release) -> list[Outgoing]:
        if not self._seal:
            raise PeerError("a part of a release before the seal: ignored")
        if len(message.hash) != 32 or len(message.signature) != 64:
            raise PeerError("a release with a hash or signature of the wrong length: ignored")
        verify(self.run.members[sender].identity, message.signature, "vouch", VERSION, message.hash)
        complete = self._pile.add(sender, message.step, "release", message.words)
        self._vouched[sender] = message.hash
        if sender == 0:
            self._box = message.box
        return self._open() if complete else []

    def _open(self) -> list[Outgoing]:
        try:
            if len(self._pile.total) != RELEASE.words:
                raise PeerError("a key of an impossible length")
            key = RELEASE.decode(self._pile.total, self.run.agents)["key"].astype("<f8").tobytes()
            values = open_release(key, self._box, self.run.id)
            if set(self._vouched.values()) != {vouched(self.run.id, self._context, values)}:
                raise PeerError("not every agent vouches for these numbers")
            outcome = unpack_release(self.run.plan, values, self._sums)
        except (PeerError, ValueError, IndexError, OverflowError):
            raise RunAborted(
                "the release does not open to numbers that every agent vouches for: a participant altered it, or was "
                "shown another run; no result was taken"
            ) from None
        estimate = outcome.estimate
        self.notebook.write("load total", outcome.load)
        self.notebook.write("state", estimate.state)
        self.notebook.write("coefficients", np.concatenate(estimate.coefficients.parts()))
        measured = [v for part in estimate.metrics.values() for kind in part.values() for v in kind.values()]
        self.notebook.write("metrics", [*measured, estimate.rss, estimate.ridge, estimate.solver_residual])
        self.outcome, self.finished = outcome, True
        return [Outgoing(None, wire.encode(wire.Finished(run=self.run.id)))]
