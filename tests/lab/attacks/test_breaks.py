"""How `blind` was broken before, and how drafts of its second edition were: each attack fails on the real build, and
works again where the one rule that answers it is taken out.

The numbers of the breaks are those of docs/spec.md §6; "draft" is an attack on a draft.
"""

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from atdm.crypto.keys import derive
from atdm.data import Cluster
from atdm.errors import PeerError, RunAborted
from atdm.kernel.design import Design
from atdm.lab.attacks.dishonest import leaving_out
from atdm.lab.attacks.forge import Forger
from atdm.lab.attacks.separation import separate_totals
from atdm.lab.attacks.stage import Released, Stage, changed, repeatable
from atdm.protocol import account, company, plan
from atdm.protocol.account import OTHER_COMPANY, Account, company_hash, identities_in
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind import direction, release
from atdm.protocol.blind.desk import BlindDesk
from atdm.protocol.blind.layouts import RELEASE
from atdm.protocol.blind.release import open_release, seal_release, vouched
from atdm.protocol.collect import CollectPart
from atdm.protocol.messages import Announce, Refuse, Release, Total, encode
from atdm.protocol.options import fit_options
from atdm.protocol.plan import DAY, VERSION, Collect
from atdm.protocol.readings import Readings, public_inputs, seconds
from atdm.protocol.rules import Rules
from atdm.run import make_plan, weather_of
from tests.clusters import tiny
from tests.lab.attacks.helpers import hits, truth_of

RULES = Rules(least_agents=3, rows_per_parameter=1)
VICTIM = 4  # a place in the roster


def cluster_of(temperature, step, seed=0):
    """A cluster with these temperatures, rows × agents."""
    base = tiny(seed, agents=temperature.shape[1], rows=len(temperature), step=step)
    frame = pd.DataFrame(np.round(temperature, 2), index=base.time, columns=base.agents)
    return Cluster.from_frames(frame, base.load, base.outdoor, base.solar)


def homes(days=6, *, agents=15, step="1h", seed=0):
    """Homes with levels and days of their own, smooth from one row to the next and different some hours later."""
    rng = np.random.default_rng(seed)
    hour = np.arange(0.0, 24 * days, pd.Timedelta(step) / pd.Timedelta("1h"))[:, None]
    level, swing, phase = rng.normal(20, 2, agents), rng.uniform(0.2, 0.8, agents), rng.uniform(0, 24, agents)
    knots = np.arange(0, 24 * days + 6, 3)
    wander = CubicSpline(knots, rng.normal(0, 0.4, (len(knots), agents)))(hour[:, 0])
    return cluster_of(level + swing * np.sin(2 * np.pi * (hour - phase) / 24) + wander, step)


def rooms(*, agents=12, rows=240, seed=0):
    """Rooms that move rarely and strongly, as opened windows and set points do: easy to tell apart in enough sums."""
    rng = np.random.default_rng(seed)
    moves = 1.5 * rng.laplace(size=(rows, agents)) * (rng.random((rows, agents)) < 0.1)
    temperature = np.zeros((rows, agents))
    for t in range(1, rows):
        temperature[t] = 0.8 * temperature[t - 1] + moves[t]
    return cluster_of(20 + temperature, "6h")


def stage_of(cluster, **rules):
    return Stage(cluster, replace(RULES, **rules), repeatable(1))


def portion(stage, day, first=0, last=24):
    """Hours of one day, to be collected with equal weights."""
    step = int(stage.cluster.step.total_seconds())
    start = int(seconds(stage.cluster.time)[0]) + day * DAY + first * 3600
    return Collect(step_seconds=step, start=start, length=(last - first) * 3600 // step)


def summed(stage, asked, **how):
    """Σ x_i by stamp; nothing where the agents stopped it."""
    aggregator = stage.play(asked, **how)
    if aggregator.state is not AggregatorState.DONE:
        return {}
    rows = Released.of(aggregator)
    return dict(zip(rows.kept.tolist(), (len(aggregator.members) * rows.state).tolist(), strict=True))


def error(stage, claim, victim=VICTIM):
    """RMSE of a claim {stamp: K from the reference} about one agent; infinite where nothing is claimed. [K]"""
    if not claim:
        return np.inf
    truth = stage.own_series(victim, np.array(sorted(claim)))
    return float(np.sqrt(np.mean((truth - [claim[stamp] for stamp in sorted(claim)]) ** 2)))


def difference(larger, smaller):
    """What one sum has more than another, where they have the same stamps."""
    return {stamp: larger[stamp] - smaller[stamp] for stamp in larger.keys() & smaller.keys()}


def allows(*arguments, **named):
    return None


# Companies


def test_a_day_is_not_summed_with_two_companies_that_differ_by_one_home(monkeypatch):
    """Break (iv)."""

    def attack():
        stage = stage_of(homes())
        everybody = summed(stage, portion(stage, 1))
        assert len(everybody) == 24
        return error(stage, difference(everybody, summed(stage, portion(stage, 1), choose=leaving_out(VICTIM))))

    assert attack() == np.inf
    monkeypatch.setattr(Account, "refuses_company", allows)
    assert attack() < 1e-3


def test_a_company_is_not_made_small_by_dropping_answers(monkeypatch):
    """Draft: an aggregator that drops answers until two homes are left, one of them on its side."""

    def attack():
        stage = stage_of(homes())

        def drop(place, message):
            return None if isinstance(message, Announce) and place not in (0, VICTIM) else message

        pair = summed(stage, portion(stage, 1), alter=drop, choose=leaving_out())
        own = dict(zip(pair, stage.own_series(0, np.array(list(pair), dtype=np.int64)), strict=True))
        return error(stage, difference(pair, own))

    assert attack() == np.inf
    monkeypatch.setattr(company, "large_enough", lambda *a: True)
    assert attack() < 1e-3


def test_a_home_that_left_does_not_return_within_a_block(monkeypatch):
    """Draft: in, out and in again on three days; the middle one lies between two sums that have it."""

    def attack():
        stage = stage_of(homes())
        out = ((), (VICTIM,), ())
        return [bool(summed(stage, portion(stage, day), choose=leaving_out(*out[day]))) for day in range(3)]

    assert attack() == [True, True, False]
    monkeypatch.setattr(account, "BLOCK", 1)
    assert attack() == [True, True, True]


def moves_seen(self, days, company):
    """The draft's rule instead: each agent for itself sees to it that no home moves more than twice in a block."""
    hashed = company_hash(company)
    if any(self._company(day) not in (b"", hashed) for day in days):
        return OTHER_COMPANY
    known = {day: identities_in(self.companies[each.company]) for day, each in self.days.items() if each.company}
    known |= {day: identities_in(company) for day in days}
    ordered = [known[day] for day in sorted(known)]
    for home in set().union(*ordered):
        inside = [home in each for each in ordered]
        if sum(a != b for a, b in zip(inside, inside[1:], strict=False)) > 2:
            return "a home moved more than twice"
    return None


def test_witnesses_split_into_two_groups_do_not_let_a_home_come_and_go(monkeypatch):
    """Draft: a home is in on every other day, at first beside one group of homes, then beside the other: each group
    sees two of its five moves."""

    def attack():
        stage = stage_of(homes())
        moves, inside = 0, None
        for day in range(6):
            witnesses = {place for place in range(15) if place % 2 == day // 3 and place != VICTIM}
            present = witnesses | ({VICTIM} if day % 2 == 0 else set())
            if summed(stage, portion(stage, day), choose=leaving_out(*set(range(15)) - present)):
                moves += inside not in (None, VICTIM in present)
                inside = VICTIM in present
        return moves

    assert attack() == 0  # less than two thirds of the homes are no company
    monkeypatch.setattr(company, "OWNERS_SHARE", (1, 3))  # as the draft had it: room for two groups
    assert attack() == 1  # it may leave; it does not come back
    monkeypatch.setattr(Account, "refuses_company", moves_seen)
    assert attack() == 5


def at_the_edge(stage, before, after, when, victim=VICTIM):
    """Error of what the sum before a moment has more than the one after it, both continued to that moment by a
    polynomial: of the degrees tried, the one that does best. [K]"""

    def continued(sums, degree):
        stamps = np.array(sorted(sums, key=lambda stamp: abs(stamp - when))[:8])
        return np.polyval(np.polyfit((stamps - when) / 3600, [sums[t] for t in stamps.tolist()], degree), 0.0)

    return min(error(stage, {when: continued(before, d) - continued(after, d)}, victim) for d in range(3))


def test_rows_beside_the_midnight_at_which_a_home_leaves_are_not_given(monkeypatch):
    """Draft: both sums continued to that midnight show the home that left."""

    def attack(victim):
        stage = stage_of(homes(step="15min"))
        before = summed(stage, portion(stage, 1))
        after = summed(stage, portion(stage, 2), choose=leaving_out(victim))
        assert before and after
        midnight = int(seconds(stage.cluster.time)[0]) + 2 * DAY
        return min(after) - midnight, at_the_edge(stage, before, after, midnight, victim)

    real = [attack(victim) for victim in range(4)]
    assert all(gap == 6 * 3600 for gap, _ in real)
    monkeypatch.setattr(account, "HOLE", 0)
    weak = [attack(victim) for victim in range(4)]
    assert max(off for _, off in weak) < 0.3
    assert np.median([off for _, off in real]) > 1.0


def test_a_day_given_in_portions_keeps_its_company_when_a_home_dies_at_noon(monkeypatch):
    """Draft: the morning with everybody, the afternoon without the home that died; no midnight lies between them."""

    def attack():
        stage = stage_of(homes(step="15min"))
        morning = summed(stage, portion(stage, 1, 0, 12))
        afternoon = summed(stage, portion(stage, 1, 12, 24), choose=leaving_out(VICTIM))
        noon = int(seconds(stage.cluster.time)[0]) + DAY + 43200
        return at_the_edge(stage, morning, afternoon, noon) if afternoon else np.inf

    assert attack() == np.inf
    monkeypatch.setattr(Account, "refuses_company", allows)
    assert attack() < 0.3


def test_of_two_plans_for_one_day_in_flight_one_company_is_settled(monkeypatch):
    """Draft: both are announced before anything of the day was given. An agent leaves the first run when it joins the
    second; and even if it answered both, its account is looked at again when the readings leave."""

    def attack(answers_both):
        stage = stage_of(homes())
        held, offers = {}, {}

        def hold(place, message):
            if isinstance(message, Total):
                held[place], offers[place] = stage.parts[place], message
                return None
            return message

        waiting = stage.play(portion(stage, 1), alter=hold)
        smaller = summed(stage, portion(stage, 1), choose=leaving_out(VICTIM))
        assert len(smaller) == 24
        for place, part in held.items():
            try:
                replies = part.receive(offers[place]) if answers_both else []
                replies = [encode(reply) for reply in replies] or stage.agents[place].receive(encode(offers[place]))
            except (RunAborted, PeerError):
                return np.inf
            for reply in replies:
                waiting.receive(place, reply)
        rows = Released.of(waiting)
        everybody = dict(zip(rows.kept.tolist(), len(waiting.members) * rows.state, strict=True))
        return error(stage, difference(everybody, smaller))

    assert attack(answers_both=False) == np.inf
    assert attack(answers_both=True) == np.inf
    monkeypatch.setattr(Account, "refuses_company", allows)
    assert attack(answers_both=False) == np.inf
    assert attack(answers_both=True) < 1e-3


# Readings


def reads(stage, place, readings):
    """The agent's file changed."""
    agent = stage.agents[place]
    agent.own = replace(agent.own, readings=readings)


def test_a_home_whose_readings_come_late_is_not_silent_in_a_sum(monkeypatch):
    """Draft: silent zeros. The afternoon is asked for before the home has it, and again when it does."""

    def attack():
        stage = stage_of(homes())
        whole = stage.agents[VICTIM].own.readings
        until = np.flatnonzero(whole.time < portion(stage, 1, 12).start)
        reads(stage, VICTIM, whole.at(until))
        without = summed(stage, portion(stage, 1))
        reads(stage, VICTIM, whole)
        claim = difference(summed(stage, portion(stage, 1)), without)
        return error(stage, {stamp: value for stamp, value in claim.items() if stamp > whole.time[until[-1]]})

    send = CollectPart._send
    assert attack() == np.inf
    silent = lambda self, phase, layout, values, lacks: send(self, phase, layout, values, np.zeros_like(lacks))  # noqa: E731
    monkeypatch.setattr(CollectPart, "_send", silent)
    assert attack() < 1e-3


def test_a_late_correction_of_readings_does_not_show(monkeypatch):
    """Draft: a home first has a placeholder, then what its sensor measured."""

    def attack():
        stage = stage_of(homes())
        measured = stage.agents[VICTIM].own.readings
        reads(stage, VICTIM, Readings(measured.time, np.full(len(measured.time), 20.0), measured.load))
        before = summed(stage, portion(stage, 1))
        reads(stage, VICTIM, measured)
        claim = difference(summed(stage, portion(stage, 1)), before)
        assert len(claim) == 24
        return error(stage, claim)

    assert attack() > 0.5
    monkeypatch.setattr(Account, "as_sent", lambda self, readings, rows: readings)
    assert attack() < 1e-2


# Fitted weights


def temperatures(stage):
    return stage.cluster.temperature[[agent.name for agent in stage.agents]].to_numpy(float) - 20


def plans(cluster):
    """Fits over the same rows that differ in what the aggregator may choose."""
    whole = make_plan(cluster, fit_options(protocol="blind", nonnegative=False, solver_tolerance=0.01))
    for ridge in (0.1, 1.0, 10.0, 100.0):
        for order in (1, 2):
            for train in (0.3, 0.6, 0.9):
                yield msgspec.structs.replace(whole, ridge=ridge, order=order, train=train)


def unlimited(monkeypatch):
    """An account that keeps no count of fits and totals."""
    monkeypatch.setattr(Account, "refuses", allows)
    monkeypatch.setattr(Account, "refuses_question", allows)
    monkeypatch.setattr(Account, "repeatable", lambda self, readings: readings)


def test_refits_do_not_give_the_aggregator_another_series_of_the_same_rows(monkeypatch):
    """Break (ii), by the aggregator alone."""

    def attack():
        stage = stage_of(rooms())
        runs = [stage.play(each) for each in plans(stage.cluster)]
        states = [Released.of(run).state for run in runs if run.state is AggregatorState.DONE]
        return len(states), hits(truth_of(temperatures(stage)), separate_totals(np.column_stack(states)))

    assert attack() == (1, 0)
    unlimited(monkeypatch)
    series, found = attack()
    assert series == 24 and found >= 8


def shown(stage):
    """Different totals of all rows that the first agent was shown."""
    totals = [seen.value for seen in stage.agents[0].own.notebook.seen if seen.what == "basis total"]
    return list({total.tobytes(): total for total in totals}.values())


def test_runs_that_break_off_give_a_curious_agent_no_further_totals(monkeypatch):
    """Breaks of the first edition's caps: what the others never received counts as well."""

    def attack():
        stage = stage_of(rooms())
        for each in list(plans(stage.cluster))[::2]:
            before = len(shown(stage))
            stage.play(each, until=lambda a, before=before: len(shown(stage)) >= before + 2)
        totals = shown(stage)
        others = truth_of(temperatures(stage)).without([0])
        return len(totals), hits(others, separate_totals(np.column_stack(totals)))

    totals, found = attack()
    assert totals <= RULES.totals_for(12) and found == 0
    unlimited(monkeypatch)
    totals, found = attack()
    assert totals >= 12 and found >= 8


def in_span(series, seen):
    """Agents whose own movement is a combination of what was seen, in hindsight."""
    columns, found = np.column_stack([np.ones(len(seen)), seen]), 0
    mean = series.mean(axis=1) - series.mean()
    for x in (series - series.mean(axis=0)).T:
        own = x - mean * (mean @ x) / (mean @ mean)
        found += np.corrcoef(columns @ np.linalg.lstsq(columns, own, rcond=1e-7)[0], own)[0, 1] > 0.9
    return found


def test_coarse_steps_at_several_offsets_do_not_multiply_totals(monkeypatch):
    """Break (iii), by the aggregator and a curious agent, everybody following the protocol. The weakened account counts
    by stamp, as the first edition did, and no stamp is asked for twice."""
    days = CubicSpline(np.arange(42), np.random.default_rng(0).laplace(20, 1, (42, 12)))
    cluster = cluster_of(days(np.arange(960) / 24), "1h")
    whole = make_plan(cluster, fit_options(protocol="blind", nonnegative=False, solver_tolerance=0.01))

    def attack():
        stage = stage_of(cluster)
        weather, series = weather_of(cluster), []
        for offset, ridge in enumerate((100.0, 1.0, 10.0, 0.1)):
            start, length, before = whole.start + 3600 * offset, (whole.length - offset) // 4, len(shown(stage))
            last = start + (length - 1) * 4 * 3600
            stage.play(msgspec.structs.replace(
                whole, step_seconds=4 * 3600, period=6, start=start, length=length, ridge=ridge, order=1,
                weather=weather.hash(start, last),
            ))  # fmt: skip
            at = offset + 4 * np.arange(length)
            series += [CubicSpline(at, total)(np.arange(8, 952)) for total in shown(stage)[before:]]
        return len(series), in_span(temperatures(stage)[8:952, 1:], np.column_stack(series))

    once, found = attack()
    assert once <= RULES.totals_for(12)
    monkeypatch.setattr(plan, "check_grid", allows)
    assert attack() == (once, found)  # a day's totals are counted, whatever its stamps
    unlimited(monkeypatch)
    more, found_more = attack()
    assert more >= 3 * once and found_more >= found + 4


def test_a_day_is_shown_under_one_weighting(monkeypatch):
    """Equal weights after fitted ones, and the other way round: two series of every stamp."""

    def attack(asked):
        stage = stage_of(rooms(rows=120))
        whole = make_plan(stage.cluster, fit_options(protocol="blind"))
        either = {"fitted": whole, "equal": Collect(step_seconds=21600, start=whole.start, length=whole.length)}
        return sum(stage.play(either[weights]).state is AggregatorState.DONE for weights in asked)

    for asked in (("fitted", "equal"), ("equal", "fitted")):
        assert attack(asked) == 1
    monkeypatch.setattr(Account, "refuses", allows)
    for asked in (("fitted", "equal"), ("equal", "fitted")):
        assert attack(asked) == 2


# Forged totals: one agent gives away the group secret


def residual_parts(stage, whole, factor):
    """|p_i|√K of every agent where the first total is shown `factor` times as large, from the data and by lstsq."""
    x, load = temperatures(stage), stage.cluster.load.to_numpy(float).sum(axis=1)
    inputs = public_inputs(whole, seconds(stage.cluster.time), load, weather_of(stage.cluster))
    design = Design.build(inputs, whole.order)

    def outside(values):
        return values - design.columns @ np.linalg.lstsq(design.columns, values, rcond=None)[0]

    lags = [outside(factor * x.mean(axis=1)[rows]) for rows in design.lagged]
    alpha = np.linalg.lstsq(np.column_stack(lags[1:]), lags[0], rcond=None)[0]
    error = lags[0] - np.column_stack(lags[1:]) @ alpha
    z = outside(x[design.lagged[0]] - sum(a * x[rows] for a, rows in zip(alpha, design.lagged[1:], strict=True)))
    square = float(error @ error)
    r = square - z.T @ error
    return np.abs(r) * whole.ridge / ((z**2).sum(axis=0) + whole.ridge) / (direction.FIRST_SCALE * square)


def refuses_beyond(values, bound):
    """Instead of saturating."""
    if (np.abs(values) > bound).any():
        raise RunAborted("a value passes the range of the sum")
    return np.asarray(values, dtype=float)


def test_no_agent_refuses_by_name_where_its_words_are_out_of_range(monkeypatch):
    """Break (i), and the draft's "refuse out of range": forged totals make of every refusal by name one bit about a
    functional of that agent's readings."""

    def attack(factor):
        stage = stage_of(rooms(), dither=0.0)
        whole = make_plan(stage.cluster, fit_options(protocol="blind", nonnegative=False))
        refused = set()

        def act(phase, opened):
            return {"total": factor * opened["total"]} if phase == "open" else {} if phase == "rows" else None

        def watch(place, message):
            if isinstance(message, Refuse):
                refused.add(place)

        stage.play(whole, alter=Forger(stage, 0, act).alter, watch=watch)
        return refused, set(np.flatnonzero(residual_parts(stage, whole, factor) > RULES.clip).tolist())

    factors = (0.5, 1.5, 3.0)
    assert all(not attack(factor)[0] for factor in factors)
    monkeypatch.setattr(direction, "saturated", refuses_beyond)
    learned = [attack(factor) for factor in factors]
    assert all(refused == truth for refused, truth in learned)
    assert any(0 < len(refused) < 12 for refused, _ in learned)


def test_counts_of_signs_are_few_whatever_is_forged(monkeypatch):
    """Draft: free thresholds. Forged counts move the ridge, and every ridge is a new threshold for all weights."""

    def attack():
        stage = stage_of(rooms())
        whole = make_plan(stage.cluster, fit_options(protocol="blind"))
        answers = set()
        for run in range(4):

            def act(phase, opened, run=run):
                if phase == "signs":
                    answers.add(opened["negative"].tobytes() + opened["squares"].tobytes())
                    rungs = np.zeros(len(opened["negative"]))
                    rungs[: 2 + run] = 1.0  # negative weights up to there: go on above
                    return {"negative": rungs}
                return {"squares": np.zeros(2), "negative": np.zeros(14)} if phase == "step" else {}

            stage.play(whole, alter=Forger(stage, 0, act).alter)
        return len(answers)

    assert attack() <= plan.MOST_SIGNS
    monkeypatch.setattr(account, "MOST_SIGNS", 1000)
    assert attack() > 2 * plan.MOST_SIGNS


# The release


def test_a_lying_leader_does_not_get_other_numbers_released(monkeypatch):
    """Draft: hash words in the sum. A sum is linear: whoever alters the numbers corrects the sum of the hashes."""

    def attack(summed):
        stage = stage_of(rooms(rows=120))
        whole = make_plan(stage.cluster, fit_options(protocol="blind"))

        def watch(place, message):
            if place != 0 or not isinstance(message, Release):
                return None
            part, agents = stage.parts[0], len(stage.agents)
            key = derive(part.session.seed, "release key")
            true = open_release(key, message.box, message.run)
            false = true.copy()
            false[0] += 0.25  # α of the first lag
            hashes = [int.from_bytes(vouched(message.run, part._veil.context, words)) for words in (true, false)]
            number = (agents * hashes[1] - (agents - 1) * hashes[0]) % 2**256 if summed else hashes[1]
            hashed = number.to_bytes(32)
            box = seal_release(key, false, message.run)
            signature = part.own.identity.sign("vouch", VERSION, hashed)
            return changed(message, box=box, hash=hashed, signature=signature)

        return stage.play(whole, watch=watch).state is AggregatorState.DONE

    def adds_up(self):
        key = RELEASE.decode(self._pile.total, self.run.agents)["key"].astype("<f8").tobytes()
        wanted = vouched(self.run.id, self._context, open_release(key, self._box, self.run.id))
        total = sum(int.from_bytes(each) for each in self._vouched.values()) % 2**256
        if total == self.run.agents * int.from_bytes(wanted) % 2**256:
            self._vouched = dict.fromkeys(self._vouched, wanted)
        return takes(self)

    takes = BlindDesk._open
    assert not attack(summed=False) and not attack(summed=True)
    monkeypatch.setattr(BlindDesk, "_open", adds_up)
    assert attack(summed=True)


def test_refusals_quote_no_number_that_comes_from_readings(monkeypatch):
    """The first edition said on how many agents a state would have rested. Here it would rest on the one room that the
    weather explains."""

    def attack():
        cluster, noise = tiny(rows=160), np.random.default_rng(0).normal(0, 0.02, 160)
        temperature = cluster.temperature.to_numpy(float).copy()
        for t in range(1, len(temperature)):
            pull = 17 + 0.3 * cluster.outdoor.iloc[t] + 3 * cluster.solar.iloc[t]
            temperature[t, 3] = 0.7 * temperature[t - 1, 3] + 0.3 * pull + noise[t]
        stage = stage_of(cluster_of(temperature, "6h"), agents_per_total=1, colluders=0)
        rules, said = stage.agents[0].own.rules, []

        def watch(place, message):
            if isinstance(message, Refuse):
                said.append(message.reason.removeprefix(stage.agents[place].name))

        stage.play(
            make_plan(stage.cluster, fit_options(protocol="blind", nonnegative=False, ridge=0.001), rules), watch=watch
        )
        return [character for text in said for character in text if character.isdigit()], len(said)

    def quotes(span, weights, agents):
        raise RunAborted(f"the state would rest on {1 / (weights @ span.gram @ weights):.1f} agents")

    digits, refusals = attack()
    assert refusals and not digits
    monkeypatch.setattr(release, "check_effective", quotes)
    assert attack()[0]
