"""How `blind` was broken before, and how drafts of its second edition were: each attack fails on the real build, and
works again where the one rule that answers it is taken out.

The numbers of the breaks are those of DESIGN §5.4; "draft" is an attack on a draft.
"""

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import CubicSpline

from atdm.attacks.dishonest import leaving_out, repeated_runs
from atdm.attacks.forge import Forger
from atdm.attacks.separation import separate_totals
from atdm.attacks.stage import Released, Stage, changed, repeatable
from atdm.attacks.totals import algebra
from atdm.attacks.view import Public, View
from atdm.crypto.keys import digest
from atdm.data import Cluster
from atdm.errors import PeerError, RunAborted
from atdm.kernel.design import Design
from atdm.kernel.span import Span
from atdm.protocol import account, company, plan
from atdm.protocol.account import OTHER_COMPANY, Account, company_hash, identities_in
from atdm.protocol.aggregator import State
from atdm.protocol.blind import desk, direction, script
from atdm.protocol.blind.desk import BlindDesk
from atdm.protocol.blind.layouts import release_layout
from atdm.protocol.blind.release import vouched
from atdm.protocol.collect import CollectPart
from atdm.protocol.ledger import Seen
from atdm.protocol.messages import Announce, Masked, Refuse, Release, Total, encode
from atdm.protocol.plan import DAY, VERSION, Collect
from atdm.protocol.readings import Readings, public_inputs, seconds
from atdm.protocol.rules import Rules
from atdm.run import make_plan, weather_of
from tests.attacks.helpers import hits, truth_of
from tests.clusters import tiny

RULES = Rules(least_agents=3, rows_per_parameter=1)
VICTIM = 4  # a place in the roster


def homes(days=6, *, agents=15, step="1h", seed=0):
    """Homes with levels and days of their own, smooth from one row to the next and different some hours later."""
    rng = np.random.default_rng(seed)
    time = pd.date_range("2024-01-01", periods=days * round(pd.Timedelta("24h") / pd.Timedelta(step)), freq=step,
                         tz="UTC", name="time")  # fmt: skip
    hour = np.arange(len(time)) * pd.Timedelta(step) / pd.Timedelta("1h")
    level, swing, phase = rng.normal(20, 2, agents), rng.uniform(0.2, 0.8, agents), rng.uniform(0, 24, agents)
    knots = np.arange(0, 24 * days + 6, 3)
    wander = CubicSpline(knots, rng.normal(0, 0.4, (len(knots), agents)))(hour)
    temperature = level + swing * np.sin(2 * np.pi * (hour[:, None] - phase) / 24) + wander
    names = pd.Index([f"home{i:02d}" for i in range(agents)], name="agent")
    load = rng.gamma(2.0, 0.5, temperature.shape)
    return Cluster.from_frames(
        pd.DataFrame(np.round(temperature, 2), index=time, columns=names),
        pd.DataFrame(np.round(load, 3), index=time, columns=names),
        pd.Series(5 + rng.normal(size=len(time)), index=time),
        pd.Series(rng.uniform(0.01, 0.5, len(time)), index=time),
    )


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
    if aggregator.state is not State.DONE:
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
