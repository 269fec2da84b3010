"""Active attacks: the adversary plays the aggregator and deviates. Each is mounted on real agents (stage.py).

An attack returns what it learned and, where it was stopped, by whose words. Recovered agents are counted by the scorer.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from atdm.attacks.disclosure import averaged, column_from_outer, from_filtered, from_rosters
from atdm.attacks.score import Guess
from atdm.attacks.separation import separate_totals
from atdm.attacks.stage import Stage, changed
from atdm.crypto import ring
from atdm.crypto.ring import UInt64Array
from atdm.errors import UsageError
from atdm.kernel.design import REFERENCE_TEMP, FloatArray
from atdm.protocol.aggregator import Aggregator, State
from atdm.protocol.blind import SCALAR_BITS, Phase, basis_layout
from atdm.protocol.messages import Ask, Masked, Message, ToAgent, ToAggregator, Total
from atdm.protocol.paper import state_layout, transform_layout
from atdm.protocol.plan import Plan
from atdm.protocol.sums import Layout

LATER = 2  # step of a run at which it is under way in every protocol
LAST = -2 - ring.CHECK_WORDS  # in a total of `blind`: the last data word, before count and check words
SINGLED_OUT = 0.8  # an agent's entry of a direction: its square stays below the cap on leverage


@dataclass(frozen=True, slots=True)
class Mounted:
    """How an attack ended: whether the parties let it through, and what it claims."""

    accepted: bool
    guesses: list[Guess]
    note: str


def _ending(aggregator: Aggregator) -> str:
    if aggregator.state is State.DONE:
        return "let through"
    if not aggregator.reasons:
        return "the run stopped without a result"
    return "stopped: " + aggregator.reasons[0].rstrip(".")


def _mounted(aggregator: Aggregator, guesses: list[Guess] | None = None) -> Mounted:
    return Mounted(aggregator.state is State.DONE, guesses or [], _ending(aggregator))


def offset(stage: Stage, plan: Plan) -> Mounted:
    """`blind`: ask for the smallest ridge agents accept, so that the state rests on the one agent the weather explains
    best, and take half off every squared norm in the totals, so that it seems to rest on three."""
    phases = _Phases()
    least = msgspec.structs.replace(plan, ridge=stage.agents[0].own.rules.ridge[0])
    half = -round(np.ldexp(0.5, basis_layout(len(stage.agents), 1, 1).blocks[-1].bits))

    def alter(place: int, message: ToAgent) -> Message:
        return _shifted(message, {LAST: half}) if phases.total(message) == Phase.BASIS else message

    return _with_state(stage.play(least, alter=alter, watch=phases.watch))


def equivocate(stage: Stage, plan: Plan, victim: int = 1) -> Mounted:
    """`blind`: tell the others that the first direction is a hundred times longer than it is, and one agent that it is
    shorter, so that the first total is that agent's; lower its squared norm until three agents seem to carry it, and
    refuse any further direction."""
    phases, agents = _Phases(), len(stage.agents)
    share = 1.0 / np.sqrt(agents)  # of everybody, as the direction begins
    lengths = [100.0 if place != victim else share / SINGLED_OUT for place in range(agents)]
    entries = share / np.array(lengths)
    seeming = entries.sum() ** 2 / (1.1 * max(3.0, agents / 4))  # so that 1/Σξ² passes
    lower = round(np.ldexp(seeming - entries @ entries, basis_layout(agents, 1, 1).blocks[-1].bits))

    def alter(place: int, message: ToAgent) -> Message:
        phase = phases.total(message)
        if phase == Phase.FLAGS and phases.count(Phase.BASIS):
            return _shifted(message, {0: 1})  # somebody refuses
        if phase == Phase.FLAGS and phases.count(Phase.FLAGS) == 1:
            longer = round(np.ldexp(lengths[place] ** 2 - 1.0, SCALAR_BITS))
            return _shifted(message, {1: 1, LAST: longer})  # somebody holds back: normalise again
        return _shifted(message, {LAST: lower}) if phase == Phase.BASIS else message

    return _with_state(stage.play(plan, alter=alter, watch=phases.watch))


class _Phases:
    """Which sum each step of a run of `blind` is, as agents label their words."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}

    def watch(self, place: int, message: ToAggregator) -> None:
        if isinstance(message, Masked):
            self._of[message.step] = message.phase

    def total(self, message: ToAgent) -> str:
        return self._of[message.step] if isinstance(message, Total) else ""

    def count(self, phase: Phase) -> int:
        return sum(each == phase for each in self._of.values())


def _shifted(message: ToAgent, quanta: dict[int, int]) -> Message:
    """A total with something added to some of its words."""
    words = message.words if isinstance(message, Total) else b""
    values = ring.from_bytes(words, len(words) // ring.WORD_BYTES)
    for at, change in quanta.items():
        ring.add_into(values[at:][:1], np.array([change % 2**64], dtype=np.uint64))
    return changed(message, words=ring.to_bytes(values))


def _with_state(aggregator: Aggregator) -> Mounted:
    """The released state, taken for one agent's temperature."""
    states = _states(aggregator)
    return _mounted(aggregator, [Guess(series=states[-1][:, None])] if states else [])


def inconsistent_question(stage: Stage, plan: Plan, victim: int = 1) -> Mounted:
    """Ask one agent for another filter (`paper`), or for rows one step later than the others (`moments`): sums of two
    runs then differ by its changes from row to row."""
    if plan.protocol == "moments":
        return _other_rows(stage, plan, victim)

    def alter(place: int, message: ToAgent) -> Message:
        if isinstance(message, Ask) and message.what == "transform" and place == victim:
            numbers = np.frombuffer(message.values, dtype="<f8").copy()
            numbers[0] = 1.0 - numbers[0]
            return changed(message, values=numbers.tobytes())
        return message

    return _mounted(stage.play(plan, alter=alter))


def _other_rows(stage: Stage, plan: Plan, victim: int) -> Mounted:
    """The adversary takes the last row for missing; in one of the runs one agent leaves out the first row instead."""

    def last_is_missing(place: int, message: ToAggregator) -> Message | None:
        if not isinstance(message, Masked) or message.phase != "rows" or place != victim:
            return None
        words = ring.from_bytes(message.words, len(message.words) // ring.WORD_BYTES)
        ring.add_into(words[plan.length - 1 : plan.length], np.ones(1, dtype=np.uint64))
        return changed(message, words=ring.to_bytes(words))

    def one_later(place: int, message: ToAgent) -> Message:
        if isinstance(message, Ask) and message.what == "load" and place == victim:
            numbers = np.frombuffer(message.values, dtype="<f8").copy()
            numbers[0], numbers[-1] = 1.0, 0.0
            return changed(message, values=numbers.tobytes())
        return message

    shifted = stage.play(plan, watch=last_is_missing, alter=one_later)
    if shifted.state is not State.DONE:
        return _mounted(shifted)
    straight = stage.play(plan, watch=last_is_missing)
    later, sooner = (next(s.value for s in run.notebook.seen if s.label == "first") for run in (shifted, straight))
    rows = np.arange(1, len(later) + 1, dtype=np.int64)
    return _mounted(shifted, [Guess(series=(later - sooner)[:, None], rows=rows, differences=True)])


def withheld(stage: Stage, plan: Plan, victim: int = 1) -> Mounted:
    """Pretend that one agent vanished in the middle: its words are kept, the others are asked to go on without it."""
    gone = {"yes": False}
    when = LATER if plan.protocol != "moments" else LATER - 1  # before its one large sum

    def alter(place: int, message: ToAgent) -> Message | None:
        if isinstance(message, Ask | Total) and message.step >= when:
            gone["yes"] = True
        return None if gone["yes"] and place == victim else message

    return _mounted(stage.play(plan, alter=alter))


def replay(stage: Stage, plan: Plan) -> Mounted:
    """Send everybody an old message in place of the new one. An agent of `paper` that answered its first question for
    the state again, with its new weight and the old masks, would give itself away by the difference."""
    before: dict[int, ToAgent] = {}
    words: dict[int, list[UInt64Array]] = {}

    def alter(place: int, message: ToAgent) -> Message:
        if plan.protocol == "paper":
            if not isinstance(message, Ask) or message.what != "state":
                return message
            return before.setdefault(place, message)
        if not isinstance(message, Ask | Total):
            return message
        old = before.get(place, message)
        before[place] = message
        return old if message.step == LATER else message

    def watch(place: int, message: ToAggregator) -> None:
        if isinstance(message, Masked) and message.phase == "state":
            words.setdefault(place, []).append(ring.from_bytes(message.words, len(message.words) // ring.WORD_BYTES))

    aggregator = stage.play(plan, alter=alter, watch=watch)
    if any(len(words.get(place, [])) < 2 for place in range(len(aggregator.members))):
        return _mounted(aggregator)
    bits = state_layout(len(words), 1).blocks[0].bits
    twice = [ring.decode(words[i][1] - words[i][0], bits)[:-1] for i in range(len(words))]  # (ξ_i′ − ξ_i) x_i
    guess = Guess(series=np.column_stack(twice), scaled=False)
    return Mounted(True, [guess], "each agent answered one question twice under the same masks")


def chosen_weights(stage: Stage, plan: Plan, victim: int = 0) -> Mounted:
    """`paper`: answer SP_II with a unit vector instead of ξ̄; where agents took their weight from the aggregator,
    the next aggregate state would be one agent's temperature."""

    def alter(place: int, message: ToAgent) -> Message:
        if isinstance(message, Ask) and message.what == "weights":
            numbers = np.frombuffer(message.values, dtype="<f8").copy()
            numbers[1:] = np.eye(len(numbers) - 1)[victim]
            return changed(message, values=numbers.tobytes())
        return message

    aggregator = stage.play(plan, alter=alter, until=lambda a: len(_states(a)) >= 2)
    states = _states(aggregator)[1:]
    claims = [Guess(series=np.column_stack(states), scaled=False)] if states else []
    return Mounted(bool(states), claims, "an agent computes its weight itself, from its own secret column")


def _states(aggregator: Aggregator) -> list[FloatArray]:
    return [s.value - REFERENCE_TEMP for s in aggregator.notebook.seen if s.what == "state"]


def masked_words(stage: Stage, plan: Plan, sums: int = 4) -> Mounted:
    """Average what each agent sent, as if it were numbers: float masks average out, those of a ring do not."""
    uploads: dict[int, list[FloatArray]] = {}

    def watch(place: int, message: ToAggregator) -> None:
        if not isinstance(message, Masked) or message.phase not in ("state", "basis"):
            return
        words = ring.from_bytes(message.words, len(message.words) // ring.WORD_BYTES)
        if plan.masks == "float":
            values = words.view(np.float64)
        else:
            values = words.astype(np.int64).astype(float) * 2.0**-48
        uploads.setdefault(place, []).append(values)

    aggregator = stage.play(plan, watch=watch, until=lambda a: len(uploads.get(0, [])) >= sums)
    if not uploads:
        return _mounted(aggregator)
    rows = min(len(v) for parts in uploads.values() for v in parts)
    rows = min(rows, plan.length)
    series = np.column_stack([averaged([v[:rows] for v in uploads[i][:sums]]) for i in sorted(uploads)])
    return Mounted(True, [Guess(series=series, scaled=False)], f"masked words of {len(uploads[0])} sums averaged")


def appendices(stage: Stage, plan: Plan) -> Mounted:
    """`paper`: take each agent's own upload as if it were unmasked. Appendix B gives its column of W from W_iW_iᵀ, that
    its τ̂_i from τ̂_iW_iᵀ, and Appendix A its temperature from the τ̂_i of two iterations."""
    words: dict[int, list[UInt64Array]] = {}

    def watch(place: int, message: ToAggregator) -> None:
        if isinstance(message, Masked) and message.phase == "transform":
            parts = words.setdefault(place, [])
            parts.append(ring.from_bytes(message.words, len(message.words) // ring.WORD_BYTES))

    aggregator = stage.play(plan, watch=watch, until=lambda a: len(words.get(0, [])) > 2)
    seen = aggregator.notebook.seen
    alphas = [s.value for s in seen if s.label == "alpha"][:2]
    bars = [s.value for s in seen if s.label == "bar"]
    weights = [s.value for s in seen if s.label == "xi"]
    if len(alphas) < 2:
        return Mounted(False, [], "fewer than two iterations")
    agents, rows = len(aggregator.members), len(next(s.value for s in seen if s.label == "D2"))
    filtered = []
    for step in range(2):
        blocks = [_blocks(words[i][step], transform_layout(agents, rows)) for i in range(agents)]
        columns = [column_from_outer(outer, bars[step], weights[step][i]) for i, (_, outer) in enumerate(blocks)]
        shares = [w / max(float(w @ w), np.finfo(float).tiny) for w in columns]
        filtered.append(np.column_stack([series @ w for (series, _), w in zip(blocks, shares, strict=True)]))
    at = np.arange(plan.order, rows + plan.order, dtype=np.int64)
    series = from_filtered(alphas, filtered, at, rows + plan.order)
    return Mounted(True, [Guess(series=series, scaled=False)], "each agent's own words, as if they were not masked")


def _blocks(words: UInt64Array, layout: Layout) -> tuple[FloatArray, FloatArray]:
    """A1 = τ̂_iW_iᵀ and A2 = W_iW_iᵀ of one upload."""
    first, second, _ = layout.blocks
    agents = int(np.sqrt(second.size))
    series = ring.decode(words[: first.size], first.bits).reshape(-1, agents)
    return series, ring.decode(words[first.size : first.size + second.size], second.bits).reshape(agents, agents)


def smaller_rosters(stage: Stage, plan: Plan) -> Mounted:
    """`blind`: run again with every smaller roster the agents accept, and combine the released states.

    Rosters are unions of whole cohorts, so the smallest difference between two of them is a cohort.
    """
    full = stage.play(plan)
    states, refusals = [_states(full)[-1]], []
    everybody = sorted(stage.cohorts)
    attempts = [set(everybody) - {cohort} for cohort in everybody] if len(everybody) > 1 else [set()]
    agents = len(full.members)
    claims: list[FloatArray] = []
    for cohorts in attempts:
        try:
            smaller = stage.play(plan, cohorts=cohorts)
        except UsageError as error:
            refusals.append(str(error))
            continue
        if smaller.state is State.DONE and len(_states(smaller)[-1]) == len(states[0]):
            claims.append(from_rosters(states[0], _states(smaller)[-1], agents))
        else:
            refusals.append(_ending(smaller))
    guesses = [Guess(series=np.column_stack(claims), scaled=False)] if claims else []
    note = f"{len(everybody)} cohorts; {len(refusals)} of {len(attempts)} smaller rosters showed no further state"
    return Mounted(bool(claims), guesses, note)


def restarted(stage: Stage, plan: Plan, attempts: int = 3) -> Mounted:
    """`blind`, with one agent's help: let runs fail after their totals are out, and start again for more of them.

    The colluding agent sees every total, also the last one of each run, which the others never received.
    """
    for _ in range(attempts):
        stage.play(plan, until=lambda a: _opened(stage) >= 3)
    aggregator = stage.play(plan)
    return _with_all_totals(stage, aggregator, f"{attempts} runs failed on purpose")


def overlapping(stage: Stage, plan: Plan, shift: int) -> Mounted:
    """`blind`, with one agent's help: a second fit over a window that overlaps the first."""
    first = stage.play(msgspec.structs.replace(plan, length=plan.length - shift))
    later = msgspec.structs.replace(plan, start=plan.start + shift * plan.step_seconds, length=plan.length - shift)
    second = stage.play(later)
    return _with_all_totals(stage, second if second.state is State.DONE else first, "two windows", shift)


def _opened(stage: Stage) -> int:
    return sum(s.what == "basis total" for s in stage.agents[0].own.notebook.seen)


def _with_all_totals(stage: Stage, aggregator: Aggregator, note: str, shift: int = 0) -> Mounted:
    totals = [s.value for s in stage.agents[0].own.notebook.seen if s.what == "basis total" and s.label == ""]
    longest = max((len(v) for v in totals), default=0)
    distinct = _distinct([v for v in totals if len(v) == longest])
    if not distinct:
        return Mounted(False, [], note + ": no totals")
    most = int(stage.agents[1].own.exposure.totals.max())
    guesses = separate_totals(np.column_stack(distinct))
    return Mounted(True, guesses, f"{note}; {most} totals on a row in all, {_ending(aggregator)}")


def _distinct(totals: list[FloatArray]) -> list[FloatArray]:
    kept: list[FloatArray] = []
    for total in totals:
        if not any(np.array_equal(total, other) for other in kept):
            kept.append(total)
    return kept
