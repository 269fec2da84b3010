"""Questions put by forged totals: dishonest aggregator, and one agent that gives away the group secret.

The first total is replaced by a slow bump on every other row. No order 1 explains it, so that its residual e is the
bump, and so is what an agent's readings count for, g ≈ e. With λ large, and a the bump's size,

    p_i·√K = (1 − g·x_i/‖e‖²)/0.3        g·x_i/‖e‖² = w_i/a        beyond the clip where w_i < 0.4a or w_i > 1.6a

The first edition refused by name where a limit was passed: one bit for each agent and run, and each agent may be told a
size of its own. Here words saturate. The same runs show Σ r_i², which is a quadratic form of Σ x_i x_iᵀ.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from atdm.crypto.keys import derive
from atdm.data.clock import seconds
from atdm.errors import PeerError
from atdm.kernel.descent import LADDER
from atdm.kernel.design import Design
from atdm.kernel.span import Span
from atdm.lab.attacks.dishonest import Mounted, ending
from atdm.lab.attacks.forge import Fields, Forger
from atdm.lab.attacks.score import Guess
from atdm.lab.attacks.stage import Stage, changed
from atdm.protocol.account import ASKED_TOO_OFTEN, NO_ROOM
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind.direction import FIRST_SCALE
from atdm.protocol.blind.release import open_release, seal_release, vouched
from atdm.protocol.messages import Masked, Message, Refuse, Release, ToAggregator
from atdm.protocol.plan import MOST_SIGNS, VERSION, Plan
from atdm.protocol.readings import public_inputs
from atdm.run import weather_of
from atdm.types import BoolArray, FloatArray, IntArray

RIDGE = 20.0  # of the plan, in ‖x_i‖² of the colluding agent: every ‖Z_i‖² is then far below λ
BUMPS = 12  # functionals asked for
SPREADS = 4.0  # largest |w_i| looked for, in what the colluding agent finds at itself in the root mean square
TILES = 5  # sizes, each a quarter of the last: one of them meets |w_i|
HALVINGS = 3  # of the quarter in which |w_i| then lies
COUNTINGS = 4  # runs in which counts of signs are asked for
SMALL_RIDGES = (1e-3, 1e-2)  # with which a state rests on few agents, if it ever does
ACCOUNT = {NO_ROOM, ASKED_TOO_OFTEN}  # said by everybody alike


@dataclass(slots=True)
class Oracle:
    """Runs whose first total is a bump of the adversary's choice."""

    stage: Stage
    plan: Plan
    colluder: int
    runs: int = 0
    answered: int = 0  # runs in which agents went on from the forged total
    refusals: int = 0  # by name, for a reason that not everybody has
    _design: Design | None = None
    _sum: FloatArray = field(default_factory=lambda: np.empty(0))  # Σ x_i
    _squares: float = np.nan

    @property
    def stamps(self) -> IntArray:
        """Of all rows, which everybody has."""
        return seconds(self.stage.cluster.time)

    def bump(self, number: int) -> FloatArray:
        """A hat over the window, on every row."""
        rows = len(self.stamps)
        centres = np.linspace(0, self.plan.train * rows - 2, BUMPS)
        hat: FloatArray = np.interp(np.arange(rows), centres, np.eye(BUMPS)[number])
        return hat

    def functional(self, number: int) -> tuple[FloatArray, FloatArray]:
        """(s, g): the forged state whose residual has length one, and what an agent's readings count for."""
        if self._design is None:
            raise PeerError("no total was opened yet")
        shape = self.bump(number)
        shape[1::2] = 0.0
        root = len(self.stage.agents) ** 0.5
        span = Span.empty(self._design, self.plan.ridge).add(shape * root, root, np.ones(1))
        weights = np.array([1 / root])
        alpha, _ = span.sp1(weights)
        size = float(np.linalg.norm(span.residual_series(alpha, weights)))
        return shape / size, span.pull(alpha, weights) / size

    def ask(self, number: int, sizes: FloatArray) -> BoolArray | None:
        """Who refused where each agent was told a bump of its own size; None where the account stopped the run."""
        refused, sent, spent = np.zeros(len(sizes), dtype=bool), False, False
        apart = bool((sizes != sizes[0]).any())

        def act(phase: str, opened: Fields) -> Fields | None:
            if phase == "rows":
                return {}
            if phase == "open":
                if self._design is None:
                    weather = weather_of(self.stage.cluster)
                    inputs = public_inputs(self.plan, self.stamps, opened["load"], weather)
                    self._design = Design.build(inputs, self.plan.order)
                    self._sum = opened["total"] * len(sizes) ** 0.5
                return {"total": sizes[forger.place] * len(sizes) ** 0.5 * self.functional(number)[0]}
            self._squares = float(opened["squares"][0])
            return None

        def watch(place: int, message: ToAggregator) -> None:
            nonlocal sent, spent
            if isinstance(message, Masked) and message.phase == "step":
                sent = True
            elif isinstance(message, Refuse):
                said = message.reason.removeprefix(f"{self.stage.agents[place].name}: ")
                spent |= said in ACCOUNT
                refused[place] |= said not in ACCOUNT

        forger = Forger(self.stage, self.colluder, act, apart=apart)
        self.runs, self._squares = self.runs + 1, np.nan
        self.stage.play(self.plan, alter=forger.alter, watch=watch)
        if spent or not (sent or refused.any()):
            return None
        self.answered, self.refusals = self.answered + 1, self.refusals + int(refused.sum())
        return refused

    def spread(self) -> float:
        """Of w at the colluding agent, over all bumps."""
        own = self.stage.own_series(self.colluder, self.stamps)
        return float(np.sqrt(np.mean([(self.functional(n)[1] @ own) ** 2 for n in range(BUMPS)])))

    def moment(self, number: int, size: float) -> tuple[FloatArray, float] | None:
        """g and gᵀ(Σ x_i x_iᵀ)g, from the Σ r_i² that comes with the next total."""
        agents = len(self.stage.agents)
        if self.ask(number, np.full(agents, size)) is None or not np.isfinite(self._squares):
            return None
        _, g = self.functional(number)
        multiplier = size**2 + self.plan.ridge / agents
        rest = agents * size**4 - 2 * size**3 * float(g @ self._sum)
        return g, (self._squares * multiplier**2 - rest) / size**2


def oracle(stage: Stage, plan: Plan, colluder: int, ridge: float | None = None) -> Oracle:
    """The plan as this adversary wants it; ridge: by default so large that it hides ‖Z_i‖²."""
    own = stage.own_series(colluder, seconds(stage.cluster.time))
    large = max(RIDGE * float(((own - own.mean()) ** 2).sum()), 1.0)
    wanted = msgspec.structs.replace(
        plan, order=1, ridge=large if ridge is None else ridge, nonnegative="free", train=0.95
    )
    return Oracle(stage, wanted, colluder)


def refusals_by_name(stage: Stage, plan: Plan, colluder: int) -> Mounted:
    """Each agent's own w for every bump: first which size meets it, then halvings; its series follows."""
    asked, agents = oracle(stage, plan, colluder), len(stage.agents)
    edge = 1.0 - plan.clip * FIRST_SCALE  # |1 − w/a| beyond the clip where w < edge·a
    values, rows = [], []
    if asked.ask(0, np.full(agents, 1.0)) is not None:
        largest = SPREADS * asked.spread()
        for number in range(BUMPS):
            if (found := _values(asked, number, largest, edge)) is None:
                break
            values.append(found)
            rows.append(asked.functional(number)[1])
    note = f"{asked.runs} runs, {asked.answered} answered, {asked.refusals} refusals by name"
    if len(values) < BUMPS:
        return Mounted(asked.refusals > 0, [], note)
    bumps = np.column_stack([asked.bump(number) for number in range(BUMPS)])
    system, ridge = np.array(rows) @ bumps, 1e-3 * np.eye(BUMPS)
    heights = np.linalg.lstsq(np.vstack([system, ridge]), np.vstack([values, np.zeros((BUMPS, agents))]), rcond=None)[0]
    series = bumps @ np.delete(heights, colluder, axis=1)
    return Mounted(True, [Guess(series=series, scaled=False)], note)


def _values(asked: Oracle, number: int, largest: float, edge: float) -> FloatArray | None:
    """w of every agent for one bump; None where the account stopped it."""
    agents = len(asked.stage.agents)
    sign, low = np.zeros(agents), np.full(agents, largest * 4.0**-TILES)
    for way in (1.0, -1.0):
        for tile in range(TILES):
            size = largest * 4.0**-tile / (4 * edge)  # meets |w| from edge·size to four times that
            if (out := asked.ask(number, np.full(agents, way * size))) is None:
                return None
            met = ~out & (sign == 0)
            sign[met], low[met] = way, edge * size
    width = np.full(agents, 4.0)
    for _ in range(HALVINGS):
        width = np.sqrt(width)
        out = asked.ask(number, np.where(sign == 0, 1.0, sign) * low * width / edge)
        if out is None:
            return None
        low = np.where(out, low, low * width)
    middle: FloatArray = sign * low * np.sqrt(width)
    return middle


def forged_scalars(stage: Stage, plan: Plan, colluder: int) -> Mounted:
    """Second moments of all agents' readings, one for each forged run."""
    asked = oracle(stage, plan, colluder, ridge=1.0)
    found = [] if asked.ask(0, np.ones(len(stage.agents))) is None else moments(asked)
    most = plan.totals_for(len(stage.agents))
    note = f"{asked.runs} runs, {len(found)} numbers gᵀ(Σ x_i x_iᵀ)g opened"
    return Mounted(len(found) >= most, [], note)


def moments(asked: Oracle) -> list[tuple[FloatArray, float]]:
    """(g, gᵀ(Σ x_i x_iᵀ)g) of every bump for which agents go on."""
    size, found = asked.spread(), []
    for number in range(BUMPS):
        if (one := asked.moment(number, size)) is None:
            break
        found.append(one)
    return found


def counts_of_signs(stage: Stage, plan: Plan, colluder: int) -> Mounted:
    """Forged counts move the ridge, and every ridge is a new threshold for all weights."""
    answers: set[bytes] = set()

    def forging(negative: int) -> Callable[[str, Fields], Fields | None]:
        def act(phase: str, opened: Fields) -> Fields | None:
            if phase == "signs":
                answers.add(opened["negative"].tobytes() + opened["squares"].tobytes())
                rungs = np.zeros(len(opened["negative"]))
                rungs[:negative] = 1.0  # negative weights up to there: go on above
                return {"negative": rungs}
            nobody = {"squares": np.zeros(2), "negative": np.zeros(len(LADDER))}
            return nobody if phase == "step" else {}

        return act

    wanted = msgspec.structs.replace(plan, nonnegative="ridge")
    for run in range(COUNTINGS):
        stage.play(wanted, alter=Forger(stage, colluder, forging(2 + run)).alter)
    note = f"{len(answers)} different counts of negative weights, {MOST_SIGNS} allowed"
    return Mounted(len(answers) > MOST_SIGNS, [], note)


def lying_leader(stage: Stage, plan: Plan, leader: int) -> Mounted:
    """It releases another α than everybody verified, and vouches for it; it also tries the hash that would correct the
    sum of all hashes."""
    outcomes = []
    for corrects in (False, True):
        new = stage.fresh()

        def lie(place: int, message: ToAggregator, new: Stage = new, corrects: bool = corrects) -> Message | None:
            if place != leader or not isinstance(message, Release):
                return None
            part, agents = new.parts[leader], len(new.agents)
            key = derive(part.session.seed, "release key")
            true = open_release(key, message.box, message.run)
            false = true.copy()
            false[0] += 0.25
            context = part._veil.context  # type: ignore[attr-defined]
            right, wrong = (int.from_bytes(vouched(message.run, context, words)) for words in (true, false))
            number = (agents * wrong - (agents - 1) * right) % 2**256 if corrects else wrong
            signature = part.own.identity.sign("vouch", VERSION, number.to_bytes(32))
            box = seal_release(key, false, message.run)
            return changed(message, box=box, hash=number.to_bytes(32), signature=signature)

        outcomes.append(new.play(plan, watch=lie))
    taken = [each for each in outcomes if each.state is AggregatorState.DONE]
    return Mounted(bool(taken), [], "false numbers taken" if taken else ending(outcomes[-1]))


def numbers_in_refusals(stage: Stage, plan: Plan) -> Mounted:
    """Fits that end because their state would rest on few agents: what the agents then say."""
    said: list[str] = []

    for ridge in SMALL_RIDGES:
        new, opened = stage.fresh(), [False]

        def watch(place: int, message: ToAggregator, new: Stage = new, opened: list[bool] = opened) -> None:
            if isinstance(message, Masked) and message.phase == "step":
                opened[0] = True
            elif isinstance(message, Refuse) and opened[0]:
                said.append(message.reason.removeprefix(new.agents[place].name))

        new.play(msgspec.structs.replace(plan, ridge=ridge, nonnegative="free"), watch=watch)
    quoted = sum(any(map(str.isdigit, text)) for text in said)
    return Mounted(quoted > 0, [], f"{len(said)} refusals, {quoted} with a number")
