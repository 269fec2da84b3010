"""The aggregator's side of `blind`: it adds masked words and passes totals on; only the release opens to it."""

from atdm.crypto import ring
from atdm.errors import PeerError, RunAborted
from atdm.protocol.blind import Phase, rows_layout
from atdm.protocol.choice import choice_layout
from atdm.protocol.desk import Desk, Outcome, Outgoing, Pile
from atdm.protocol.ledger import Notebook
from atdm.protocol.messages import Finished, Masked, Secret, Secrets, ToAggregator, Total, encode, expect
from atdm.protocol.readings import Weather
from atdm.protocol.release import release_layout, unpack_release, unsealed_release
from atdm.protocol.session import Run

MOST_STORED = 64  # directions of an earlier run, at most
BOX_BYTES = 48  # a 32-byte secret and its tag


class BlindDesk(Desk):
    def __init__(self, run: Run, weather: Weather, notebook: Notebook) -> None:
        super().__init__(run, weather, notebook)
        self._pile = Pile(run.agents, 0)
        self._secrets: bytes | None = None
        self._sums = 0
        plan = run.plan
        largest_sum = 2 * rows_layout(plan.length).words + 4 * plan.widest()[1] + 4096  # words: rows, or the release
        largest_sum += choice_layout(len(plan.candidates), plan.most_origins()).words  # or what candidates scored
        largest_sum += min(run.agents, MOST_STORED) * plan.length  # or stored directions over new rows
        self._largest = max(BOX_BYTES * run.agents, ring.WORD_BYTES * largest_sum)

    def begin(self) -> list[Outgoing]:
        return []

    def largest(self) -> int:
        return self._largest

    def receive(self, sender: int, message: ToAggregator) -> list[Outgoing]:
        if isinstance(message, Secrets):
            return self._pass_on(sender, message)
        masked = expect(message, Masked)
        if not self._pile.add(sender, masked.step, masked.phase, masked.words):
            return []
        pile, self._pile = self._pile, Pile(self.run.agents, masked.step + 1)
        if pile.phase == Phase.RELEASE:
            return self._open(pile)
        self._sums += pile.phase == Phase.BASIS
        if pile.phase == Phase.EXTEND:
            self._sums += -(-len(pile.total) // self.run.plan.length)  # as many totals as it would fill
        return [Outgoing(None, encode(Total(run=self.run.id, step=pile.step, words=ring.to_bytes(pile.total))))]

    def _pass_on(self, sender: int, message: Secrets) -> list[Outgoing]:
        if sender != 0 or self._secrets is not None:
            raise PeerError("sealed secrets from somebody who does not lead, or twice: ignored")
        if len(message.boxes) != BOX_BYTES * (self.run.agents - 1):
            raise RunAborted("the leader sealed the group secret for another number of agents")
        self._secrets = message.boxes
        return [
            Outgoing(i, encode(Secret(run=self.run.id, box=message.boxes[BOX_BYTES * (i - 1) : BOX_BYTES * i])))
            for i in range(1, self.run.agents)
        ]

    def _open(self, pile: Pile) -> list[Outgoing]:
        plan = self.run.plan
        rows = (len(pile.total) - release_layout(plan, 0).words) // 2
        layout = release_layout(plan, rows)
        if len(pile.total) != layout.words:
            raise RunAborted("the release has an impossible length")
        try:
            numbers = unsealed_release(layout.decode(pile.total, self.run.agents)["release"])
            released = unpack_release(plan, numbers)
        except (PeerError, ValueError, IndexError, OverflowError):
            raise RunAborted("the release does not open: somebody saw another run, or did not consent") from None
        estimate, c = released.estimate, released.estimate.coefficients
        self.notebook.write("load total", released.load)
        self.notebook.write("state", estimate.state)
        self.notebook.write("coefficients", [*c.alpha, *c.beta, *c.gamma, *c.theta, *c.occupancy])
        measured = [v for part in estimate.metrics.values() for kind in part.values() for v in kind.values()]
        which = [] if released.chosen is None else [released.chosen]
        self.notebook.write("metrics", [*measured, estimate.rss, estimate.ridge, estimate.solver_residual, *which])
        self.outcome = Outcome(estimate, released.load, released.time, released.kept, self._sums, released.chosen)
        self.finished = True
        return [Outgoing(None, encode(Finished(run=self.run.id)))]
