"""Active attacks: the adversary plays the aggregator and deviates. Each is mounted on real agents (stage.py).

An attack returns what it learned and, where it was stopped, by whose words. Recovered agents are counted by the scorer.
Those that need an agent which gives away the group secret are in forge.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations

import msgspec
import numpy as np

from atdm.crypto import ring
from atdm.crypto.sums import Layout
from atdm.data.clock import seconds
from atdm.data.readings import positions
from atdm.errors import PeerError, RunAborted
from atdm.kernel.design import REFERENCE_TEMP, lagged_rows, train_rows
from atdm.lab.attacks.disclosure import averaged, column_from_outer, from_filtered
from atdm.lab.attacks.score import Guess
from atdm.lab.attacks.separation import separate_totals
from atdm.lab.attacks.stage import Released, Stage, changed
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.blind.desk import BlindDesk
from atdm.protocol.blind.layouts import RELEASE, SQUARE_BITS, step_layout
from atdm.protocol.blind.release import open_release, unpack_release
from atdm.protocol.company import Answers, Choose
from atdm.protocol.messages import Ask, Masked, Message, ToAgent, ToAggregator, Total
from atdm.protocol.paper import state_layout, transform_layout
from atdm.protocol.plan import DAY, AnyPlan, Collect, Plan
from atdm.protocol.readings import weather_hash
from atdm.protocol.roster import Roster
from atdm.run import rows_of_plan, weather_of
from atdm.types import BoolArray, FloatArray, UInt64Array

LATER = 2  # step of a run at which it is under way in every protocol
LEFT_OUT = 3  # agents that are left out in turn, where companies are chosen
CHOSEN = (  # λ, M, training share and share of the window; 0: of as few days as agents accept
    (1e3, 1, 0.95, 1.0), (1.0, 1, 0.3, 1.0), (100.0, 2, 0.75, 1 / 3),  # where totals differed most
    (50.0, 2, 0.75, 0.0),  # within the limits of deployed agents
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mounted:
    """How an attack ended: whether the parties let it through, and what it claims."""

    accepted: bool
    guesses: list[Guess]
    note: str


def ending(aggregator: Aggregator) -> str:
    if aggregator.state is AggregatorState.DONE:
        return "let through"
    if not aggregator.reasons:
        return "the run stopped without a result"
    return "stopped: " + aggregator.reasons[0].rstrip(".")


def _mounted(aggregator: Aggregator, guesses: list[Guess] | None = None) -> Mounted:
    return Mounted(aggregator.state is AggregatorState.DONE, guesses or [], ending(aggregator))


def offset(stage: Stage, plan: Plan) -> Mounted:
    """`blind`: add to Σp of the second total, so that SP_II puts its weight there and the release is mostly that total,
    which only agents should see."""
    return _moved(stage, plan, others={}, victim={}, last=1, push=1.0)


def equivocate(stage: Stage, plan: Plan, victim: int = 1) -> Mounted:
    """`blind`: tell the others that the second direction was enormous, so that they add next to nothing to the third
    total, and one agent the truth; then put the weight on that total."""
    enormous = {"squares": round(np.ldexp(1.6e4, SQUARE_BITS))}
    return _moved(stage, plan, others=enormous, victim={victim: {}}, last=2, push=1.8)


def _moved(
    stage: Stage, plan: Plan, others: dict[str, int], victim: dict[int, dict[str, int]], last: int, push: float
) -> Mounted:
    """Add `others` to the words of steps before the last one, and to the last Σp about what its range allows."""
    least = stage.agents[0].own.rules.solver_tolerance
    plan = msgspec.structs.replace(plan, nonnegative="free", totals=last + 1, solver_tolerance=least)
    agents, phases = len(stage.agents), _Phases()
    rows = len(stage.cluster.time)
    layouts = [step_layout(agents, rows, size, plan.clip, False) for size in range(1, last + 1)]
    bits = layouts[-1].blocks[1].bits

    def alter(place: int, message: ToAgent) -> Message:
        if phases.total(message) != "step":
            return message
        number = phases.count("step")
        if number == last:
            return _shifted(message, layouts[number - 1], {"one": round(np.ldexp(push * agents**0.5, bits))})
        return _shifted(message, layouts[number - 1], victim.get(place, others))

    aggregator = stage.play(plan, alter=alter, watch=phases.watch)
    state = _opened(aggregator, plan)
    if state is None:
        return Mounted(False, [], ending(aggregator))
    return Mounted(True, [Guess(series=state[:, None], scaled=False)], "let through")


def _opened(aggregator: Aggregator, plan: Plan) -> FloatArray | None:
    """s of a release as it opens, whether or not the agents vouch for it: a dishonest aggregator does not mind."""
    desk = aggregator.desk
    if not isinstance(desk, BlindDesk):
        return None
    try:
        key = RELEASE.decode(desk._pile.total, len(aggregator.members))["key"]
        values = open_release(key.astype("<f8").tobytes(), desk._box, desk.run.id)
        return unpack_release(plan, values, sums=0).estimate.state - REFERENCE_TEMP
    except (PeerError, ValueError, IndexError):
        return None


class _Phases:
    """Which sum each step of a run of `blind` is, as agents label their words."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}

    def watch(self, place: int, message: ToAggregator) -> None:
        if isinstance(message, Masked):
            self._of[message.step] = message.phase

    def total(self, message: ToAgent) -> str:
        return self._of[message.step] if isinstance(message, Total) else ""

    def count(self, phase: str) -> int:
        return sum(each == phase for each in self._of.values())


def _shifted(message: ToAgent, layout: Layout, quanta: dict[str, int]) -> Message:
    """A total with something added to the last word of some of its fields."""
    words = message.words if isinstance(message, Total) else b""
    values, end = ring.from_bytes(words, len(words) // ring.WORD_BYTES), 0
    for block in layout.blocks:
        end += block.size
        change = np.array([quanta.get(block.name, 0) % 2**64], dtype=np.uint64)
        ring.add_into(values[end - 1 : end], change)
    return changed(message, words=ring.to_bytes(values))


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
    if shifted.state is not AggregatorState.DONE:
        return _mounted(shifted)
    straight = stage.play(plan, watch=last_is_missing)
    later, sooner = (next(s.value for s in run.notebook.seen if s.label == "first") for run in (shifted, straight))
    rows = np.arange(1, len(later) + 1, dtype=np.int64)
    return _mounted(shifted, [Guess(series=(later - sooner)[:, None], rows=rows, differences=True)])


def withheld(stage: Stage, plan: AnyPlan, victim: int = 1) -> Mounted:
    """Pretend that one agent vanished in the middle: its words are kept, the others are asked to go on without it."""
    gone = {"yes": False}
    when = {"moments": 1, "collect": 0}.get(plan.protocol, LATER)  # before the one large sum

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


def masked_words(stage: Stage, plan: AnyPlan, sums: int = 4, floats: bool = False) -> Mounted:
    """Average what each agent sent, as if it were numbers: float masks average out, those of a ring do not."""
    uploads: dict[int, list[FloatArray]] = {}

    def watch(place: int, message: ToAggregator) -> None:
        if not isinstance(message, Masked) or message.phase not in ("state", "step", "show"):
            return
        words = ring.from_bytes(message.words, len(message.words) // ring.WORD_BYTES)
        values = words.view(np.float64) if floats else words.astype(np.int64).astype(float) * 2.0**-48
        uploads.setdefault(place, []).append(values)

    aggregator = stage.play(plan, watch=watch, until=lambda a: len(uploads.get(0, [])) >= sums)
    if not uploads:
        return _mounted(aggregator)
    rows = min(len(stage.cluster.time), *(len(v) for parts in uploads.values() for v in parts))
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
    train = train_rows(len(stage.cluster.time), plan.train)
    at = lagged_rows(stage.cluster.segment, plan.order, 0, train)
    series = from_filtered(alphas, filtered, at, train)
    return Mounted(True, [Guess(series=series, scaled=False)], "each agent's own words, as if they were not masked")


def _blocks(words: UInt64Array, layout: Layout) -> tuple[FloatArray, FloatArray]:
    """A1 = τ̂_iW_iᵀ and A2 = W_iW_iᵀ of one upload."""
    first, second, _ = layout.blocks
    agents = int(np.sqrt(second.size))
    series = ring.decode(words[: first.size], first.bits).reshape(-1, agents)
    return series, ring.decode(words[first.size : first.size + second.size], second.bits).reshape(agents, agents)


def leaving_out(*places: int) -> Choose:
    """The company of all that answer, but for these."""

    def chosen(answers: Answers, roster: Roster, least: int) -> tuple[list[int], BoolArray]:
        company = sorted(set(answers) - set(places))
        days: BoolArray = np.logical_and.reduce([answers[place] for place in company])
        if not company or not days.any():
            raise RunAborted("nobody is in")
        return company, days

    return chosen


def repeated_runs(stage: Stage, plan: Plan, colluder: int | None = None) -> Mounted:
    """Ask for the same rows again and again, in every way the plan can differ, and combine all that is released; with
    what a colluding agent was shown in all those runs."""
    return _combined(stage, ((asked, leaving_out()) for asked in _variants(stage, plan)), colluder)


def chosen_companies(stage: Stage, plan: Plan, colluder: int | None = None) -> Mounted:
    """The same rows with everybody, without one agent at a time, and with two only; a colluding agent's own part is
    taken off."""
    others = [place for place in range(len(stage.agents)) if place != colluder]
    ways = [leaving_out(), *(leaving_out(place) for place in others[:LEFT_OUT]), leaving_out(*others[1:])]
    asked: AnyPlan = rows_of_plan(plan) if plan.weights == "equal" else plan
    return _combined(stage, ((asked, way) for way in ways), colluder)


def _variants(stage: Stage, plan: Plan) -> Iterator[AnyPlan]:
    """The plan, and plans over the same rows that differ in what the aggregator may choose."""
    weather, step, day = weather_of(stage.cluster), plan.step_seconds, DAY // plan.step_seconds
    whole: AnyPlan = rows_of_plan(plan) if plan.weights == "equal" else plan
    yield whole
    yield whole

    def over(first: int, rows: int, coarser: int = 1) -> Plan:
        start = plan.start + first * step
        last = start + (rows - 1) * coarser * step
        return msgspec.structs.replace(
            plan, start=start, length=rows, step_seconds=coarser * step, period=max(1, plan.period // coarser),
            weights="fitted", weather=weather_hash(weather, start, last),
        )  # fmt: skip

    fitted = over(0, plan.length)
    for change in ({"ridge": 1.0}, {"ridge": 1e4}, {"order": 1}, {"order": 3}, {"train": 0.5}, {"nonnegative": "free"}):
        yield msgspec.structs.replace(fitted, **change)
    for shorter in (over(day, plan.length - day), over(0, plan.length - day), over(0, plan.length // 2)):
        yield shorter
        yield rows_of_plan(shorter)
    for offset in range(2):
        yield over(offset, (plan.length - offset) // 2, coarser=2)
        yield rows_of_plan(over(offset, (plan.length - offset) // 2, coarser=2))
    yield Collect(step_seconds=step, start=plan.start, length=plan.length)


def chosen_plan(stage: Stage, plan: Plan, colluder: int, number: int) -> Mounted:
    """Everybody follows the protocol, with the limits of deployed agents; the aggregator only asks for numbers and rows
    that make totals differ: a large ridge lets the agent that moves most outweigh the others, few training rows or days
    let directions vary."""
    stage.as_deployed()
    ridge, order, train, share = CHOSEN[number % len(CHOSEN)]
    whole = plan.length * plan.step_seconds // DAY
    days = max(whole - round(whole * share or stage.rules.least_days), 0)  # left out at the beginning
    start, least = plan.start + days * DAY, stage.agents[0].own.rules.solver_tolerance
    wanted = msgspec.structs.replace(
        plan, ridge=ridge, order=order, train=train, nonnegative="free", solver_tolerance=least, start=start,
        length=plan.length - days * DAY // plan.step_seconds,
        weather=weather_hash(weather_of(stage.cluster), start, plan.start + (plan.length - 1) * plan.step_seconds),
    )  # fmt: skip
    aggregator = stage.play(wanted)
    if aggregator.state is not AggregatorState.DONE:
        return _mounted(aggregator)
    totals = stage.view(wanted, aggregator, [colluder]).totals()
    rows = positions(seconds(stage.cluster.time), Released.of(aggregator).kept)
    part = f"{100 * train:.0f} % of {len(rows)} rows for training"
    note = f"{totals.shape[1]} totals at λ = {ridge:g}, order {order}, {part}"
    return Mounted(True, [replace(guess, rows=rows) for guess in separate_totals(totals)], note)


def _combined(stage: Stage, asked: Iterable[tuple[AnyPlan, Choose]], colluder: int | None) -> Mounted:
    """All states of all runs: differences of companies that differ by one, separation of series of the same rows."""
    time, runs = seconds(stage.cluster.time), 0
    sums: list[tuple[int, FloatArray]] = []  # agents, and their number times s by row of the cluster
    for each, choose in asked:
        runs += 1
        aggregator = stage.play(each, choose=choose)
        if aggregator.state is not AggregatorState.DONE:
            continue
        released, agents = Released.of(aggregator), len(aggregator.members)
        at, series = positions(time, released.kept), np.full(len(time), np.nan)
        series[at] = agents * released.state
        if colluder is not None and each.weights == "equal":
            series[at] -= stage.own_series(colluder, released.kept)
        _add(sums, agents, series)
    guesses = []
    for (larger, a), (smaller, b) in permutations(sums, 2):
        rows = np.flatnonzero(np.isfinite(a - b))
        if larger == smaller + 1 and len(rows) > 2:
            guesses.append(Guess(series=(a - b)[rows, None], rows=rows))
    columns = [series for _, series in sums]
    most = int(np.isfinite(columns).sum(axis=0).max()) if columns else 0
    note = f"{runs} runs asked for, {len(sums)} different series released, {most} of one stamp at most"
    if colluder is not None and (totals := _totals(stage, colluder, len(time))):
        columns += totals
        note += f", {len(totals)} totals shown to agents"
    together = np.column_stack(columns) if columns else np.empty((0, 0))
    rows = np.flatnonzero(np.isfinite(together).all(axis=1))
    if len(rows) > 2:
        guesses += [replace(guess, rows=rows) for guess in separate_totals(together[rows])]
    return Mounted(most > 1, guesses, note)


def _add(sums: list[tuple[int, FloatArray]], agents: int, series: FloatArray) -> None:
    """One more series; where it agrees with a known one on the rows of both, the two are one."""
    for count, other in sums:
        both = np.isfinite(series) & np.isfinite(other)
        if count == agents and both.any() and np.array_equal(series[both], other[both]):
            np.copyto(other, series, where=np.isnan(other))
            return
    sums.append((agents, series))


def _totals(stage: Stage, colluder: int, rows: int) -> list[FloatArray]:
    """Different totals of all rows that an agent was shown in all runs."""
    seen = [s.value for s in stage.agents[colluder].own.notebook.seen if s.what == "basis total"]
    whole = [total for total in seen if len(total) == rows]
    return list({total.tobytes(): total for total in whole}.values())


def inconsistent_offer(stage: Stage, plan: Plan, victim: int = 1) -> Mounted:
    """Equal weights: the adversary takes the last row for one that not everybody offered; in one of two runs it tells
    one agent that of the first row instead, so that the sums differ by that agent's changes from row to row."""

    def moved(message: ToAgent | ToAggregator, changes: dict[int, int]) -> Message:
        words = ring.from_bytes(message.words, len(message.words) // ring.WORD_BYTES)  # type: ignore[union-attr]
        for at, change in changes.items():
            words[at : at + 1] += np.array([change % 2**64], dtype=np.uint64)
        return changed(message, words=ring.to_bytes(words))

    def last_is_lacking(place: int, message: ToAggregator) -> Message | None:
        offers = isinstance(message, Masked) and message.phase == "offer"
        return moved(message, {plan.length - 1: 1}) if offers and place == victim else None

    def first_instead(place: int, message: ToAgent) -> Message:
        told = isinstance(message, Total) and place == victim
        return moved(message, {0: 1, plan.length - 1: -1}) if told else message

    shifted = stage.play(rows_of_plan(plan), watch=last_is_lacking, alter=first_instead)
    if shifted.state is not AggregatorState.DONE:
        return _mounted(shifted)
    straight = stage.play(rows_of_plan(plan), watch=last_is_lacking)
    later, sooner = (_states(run)[-1] for run in (shifted, straight))
    claim = len(stage.agents) * (later - sooner)
    rows = np.arange(1, len(claim) + 1, dtype=np.int64)
    return _mounted(shifted, [Guess(series=claim[:, None], rows=rows, differences=True)])
