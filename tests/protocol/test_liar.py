"""Parties that lie or break off: agents go on with what they verified, or end the run; nothing else is released."""

from dataclasses import replace
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from atdm.crypto import ring
from atdm.crypto.keys import open_sealed, seal
from atdm.errors import PeerError, UsageError
from atdm.protocol.account import ASKED_TOO_OFTEN, GROWN, OTHER_COMPANY
from atdm.protocol.agent import AgentState
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind.release import DEVIATES, Sealed, coefficient_sizes, number_count
from atdm.protocol.blind.script import BlindPart
from atdm.protocol.blind.veil import Veil
from atdm.protocol.desk import Outcome
from atdm.protocol.messages import Masked, Ready, Refuse, Release, Seal, Total, decode_to_agent
from atdm.protocol.plan import VERSION
from atdm.protocol.roster import Roster
from atdm.protocol.session import make_keys
from tests.clusters import tiny
from tests.protocol.drive import altering, drive, nothing_released, parties, said
from tests.protocol.world import LOOSE, World, written

VICTIM, LIAR = 2, 3
change = msgspec.structs.replace


# Altered sums


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", ["offset", "equivocate", "replay", "swap", "zero", "drop", "duplicate"])
def test_an_aggregator_that_departs_from_its_part_gets_nothing(way, seed):
    """Shown wrong totals, different totals, old totals, totals in another order, none or two: no wrong number opens."""
    aggregator, agents = parties(seed=seed)
    rng = np.random.default_rng(seed)
    target, victim, history = int(rng.integers(1, 4)), int(rng.integers(4)), {}
    at, offset = int(rng.integers(10**6)), np.uint64(1 << int(rng.integers(64)))

    def lie(i, message):
        words = ring.from_bytes(message.words, len(message.words) // 8)
        history.setdefault(message.step, words.copy())
        if message.step != target or (way in ("equivocate", "drop") and i != victim):
            return [message]
        if way in ("offset", "equivocate"):
            words[at % len(words)] += offset
        elif way in ("replay", "swap", "zero"):
            words = {"replay": history[target - 1], "swap": words[::-1].copy(), "zero": 0 * words}[way]
        return [change(message, words=ring.to_bytes(words))] * {"drop": 0, "duplicate": 2}.get(way, 1)

    with np.errstate(over="ignore"):
        drive(aggregator, agents, altering(Total, lie))
    if way == "duplicate":  # the same bytes twice are answered with the same bytes, and the run goes on
        assert aggregator.state is AggregatorState.DONE
    else:
        nothing_released(aggregator)


def test_nobody_says_for_another_agent_that_it_has_a_row(monkeypatch):
    aggregator, agents = parties(tiny(3, agents=5, rows=100), seed=3)
    victim, true_wrap = agents[VICTIM], Veil.wrap
    victim.own = replace(victim.own, readings=victim.own.readings.at(np.arange(1, 100)))

    def wrap(self, phase, layout, values, **options):
        if self._session.index == LIAR and phase == "rows":
            values["missing"][0] -= 1.0  # takes back what the victim says of the first row
        return true_wrap(self, phase, layout, values, **options)

    monkeypatch.setattr(Veil, "wrap", wrap)
    drive(aggregator, agents)
    nothing_released(aggregator, "contradicts this agent's own flag")
    assert not len(victim.own.memory.account.time)


# The leader's seal

BLOCKS = ["alpha", "beta", "gamma", "theta", "occupancy", "metrics", "ridge", "rss", "residual", "iterations", "status",
          "weights", "previous", "salt"]  # fmt: skip


def place(block: str, plan, length: int) -> int:
    """Where a block begins among the numbers of a seal."""
    count, each = number_count(plan), coefficient_sizes(plan)
    totals = (length - count - 4) // 2
    starts = [*np.cumsum([0, *each]).tolist(), *range(count - 5, count), count, count + totals, count + 2 * totals]
    return starts[BLOCKS.index(block)]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_leader_whose_numbers_are_off_by_a_millionth_is_found_out(monkeypatch, block):
    true_pack = Sealed.pack
    for wrong in (lambda v: v * (1 + 1e-6) + 1e-300, lambda v: np.nan, lambda v: np.inf, lambda v: -1e300):
        aggregator, agents = parties(tiny(4, agents=5, rows=100), seed=4, share=False)

        def pack(self, wrong=wrong, plan=aggregator._announce.plan):
            numbers = np.frombuffer(true_pack(self), "<f8").copy()
            at = place(block, plan, len(numbers))
            numbers[at] = wrong(numbers[at])
            return numbers.tobytes()

        monkeypatch.setattr(Sealed, "pack", pack)
        drive(aggregator, agents)
        nothing_released(aggregator, "every agent vouches" if block == "salt" else DEVIATES)


def test_a_seal_that_was_altered_is_not_opened():
    aggregator, agents = parties(seed=4)
    drive(aggregator, agents, altering(Seal, lambda i, message: [change(message, box=message.box[:-1] + b"\0")]))
    nothing_released(aggregator)


def test_two_different_seals_end_without_a_release(monkeypatch):
    """A leader that lies and an aggregator that helps: half of the agents see another salt under a valid key."""
    aggregator, agents = parties(seed=4, share=False)
    keys, true_key = [], BlindPart._seal_key
    monkeypatch.setattr(BlindPart, "_seal_key", lambda self: keys.append(true_key(self)) or keys[-1])

    def other(i, message):
        ends = {"purpose": "seal", "sender": aggregator.run.members[0].identity, "receiver": "agents"}
        plain = open_sealed(keys[0], message.box, **ends)
        return [message if i < 2 else change(message, box=seal(keys[0], plain[:-8] + bytes(8), **ends))]

    drive(aggregator, agents, altering(Seal, other))
    nothing_released(aggregator, "every agent vouches")


@pytest.mark.parametrize("sender", [0, 1])
def test_only_the_leader_seals_and_once(sender):
    aggregator, agents = parties(seed=4)

    def forge(i, message):
        more = [Seal(run=message.run, step=message.step, box=b"another")]
        return [message, *more] if i == sender else [message]

    refused = drive(aggregator, agents, to_aggregator=altering(Release if sender else Seal, forge))
    assert aggregator.state is AggregatorState.DONE and any("does not lead, or twice" in text for text in refused)


# The release


@pytest.mark.parametrize("sender", [0, 3])
@pytest.mark.parametrize("what", ["words", "box"])
@pytest.mark.parametrize("at", [0, 9, -1])
def test_a_release_that_one_message_was_altered_in_does_not_open(sender, what, at):
    """One bit of one agent's part of the key, or of the leader's box: no result is left."""

    def flip(i, message):
        data = bytearray(getattr(message, what) or b"a box from somebody who does not lead")
        data[at] ^= 1
        return [change(message, **{what: bytes(data)}) if i == sender else message]

    aggregator, agents = parties(seed=4)
    drive(aggregator, agents, to_aggregator=altering(Release, flip))
    if what == "box" and sender:
        assert aggregator.state is AggregatorState.DONE  # the leader's is the only one that counts
    else:
        nothing_released(aggregator, "does not open")


@pytest.mark.parametrize("signed", [True, False])
def test_one_agent_that_vouches_for_other_words_is_enough(signed):
    aggregator, agents = parties(seed=4)

    def vouch(i, message):
        signature = agents[i].own.identity.sign("vouch", VERSION, bytes(32)) if signed else message.signature
        return [change(message, hash=bytes(32), signature=signature) if i == LIAR else message]

    refused = drive(aggregator, agents, to_aggregator=altering(Release, vouch))
    nothing_released(aggregator, "every agent vouches" if signed else "")
    assert signed or any("does not verify" in text for text in refused)


# Companies and rosters


def answers(here: World, plan) -> dict[int, Ready]:
    announce = here.announce(plan)
    return {i: said(here.agent(i), announce)[0] for i in range(len(here.roster))}


@pytest.mark.parametrize(("left_out", "why"), [
    (set(), ""), ({0, 1, 3, 4}, ""), ({0, 1, 3, 4, 5}, "smaller"), ({VICTIM}, "not in the company"),
])  # fmt: skip
def test_an_agent_looks_at_the_company_that_the_aggregator_names(left_out, why):
    here = World(tiny(1, agents=14, rows=40), 1, replace(LOOSE, least_agents=10))
    company = {i: each for i, each in answers(here, here.collect(0, 8)).items() if i not in left_out}
    (reply,) = said(here.agent(VICTIM), make_keys(here.roster, b"\3", company))
    assert isinstance(reply, Refuse if why else Masked) and why in getattr(reply, "reason", "")


@pytest.mark.parametrize("lie", ["a day somebody is out on", "no day", "another's bits", "own key", "two of one key"])
def test_an_agent_refuses_keys_that_are_not_what_everybody_signed(lie):
    here = World(tiny(1, agents=5, rows=40), 1)
    here.hold(LIAR, without=range(4))  # out on the first day
    ready = answers(here, here.collect(0, 8))
    assert ready[LIAR].days == b"\2" and ready[VICTIM].days == b"\3"
    if lie == "another's bits":
        ready[LIAR] = change(ready[LIAR], days=b"\3")
    elif lie == "own key":
        ready[VICTIM] = change(ready[VICTIM], exchange=bytes(32))
    elif lie == "two of one key":
        ready[LIAR] = ready[0]
    days = {"a day somebody is out on": b"\3", "no day": b"\0"}.get(lie, b"\2")
    assert "refuse" in said(here.agent(VICTIM), make_keys(here.roster, days, ready))[0].reason
    assert here.agent(VICTIM).state is AgentState.ABORTED and not len(written(here.stores[VICTIM]).account.time)


def test_a_company_that_grew_or_another_one_for_a_day_is_refused_by_all_who_were_there():
    here = World(tiny(1, agents=14, rows=60), 1, replace(LOOSE, least_agents=10))
    assert here.run(here.aggregator(here.collect(0, 4)), gone={5}) is not None
    for first, gone, why in ((4, {6}, GROWN), (4, set(), GROWN), (0, set(), OTHER_COMPANY), (0, {5, 6}, OTHER_COMPANY)):
        assert here.run(here.aggregator(here.collect(first, 4)), gone=gone) is None and why in here.reasons[-1]
    assert here.run(here.aggregator(here.collect(4, 4)), gone={5, 6}) is not None


def two_rosters(places: slice = slice(None)) -> tuple[World, Roster, Roster]:
    """A world of six agents, its roster, and a newer one of those at some places."""
    here = World(tiny(1, agents=6, rows=40), 1)
    return here, here.roster, here.signed([member.name for member in here.roster.members[places]], serial=2)


def test_an_agent_looks_for_the_newest_roster_before_it_answers():
    here, old, newer = two_rosters()
    for roster, why in ((newer, "another roster"), (old, "older")):
        here.agent(0)._renew_roster = lambda roster=roster: roster
        with pytest.raises(PeerError, match=why):
            here.agent(0).receive(here.announce(here.collect(0, 4)))


def test_an_agent_never_takes_an_older_roster():
    here, old, newer = two_rosters(slice(5))
    agent, announce = here.agent(0), here.announce(here.collect(0, 4), roster=newer)
    with pytest.raises(PeerError, match="another roster"):  # it cannot look for a newer one
        agent.receive(announce)
    agent._renew_roster = lambda: newer
    agent.receive(announce)
    assert agent.roster is newer and written(here.stores[0]).serial == 2
    agent._renew_roster = lambda: old
    with pytest.raises(PeerError, match="older"):
        agent.receive(here.announce(here.collect(0, 4)))
    for roster, why in ((old, "older"), (change(newer, serial=3), "verify")):
        here.restart(0)
        here.roster = roster
        with pytest.raises(PeerError, match=why):
            here.agent(0)


@pytest.mark.parametrize("joined", [False, True])
def test_an_agent_that_was_retired_takes_no_older_roster_after_a_restart(joined):
    here, _, newer = two_rosters(slice(1, 6))
    agent = here.agent(0)
    if joined:
        agent.receive(here.announce(here.collect(0, 4)))
    agent._renew_roster = lambda: newer
    with pytest.raises(PeerError, match="not in the roster"):
        agent.receive(here.announce(here.collect(0, 4), roster=newer))
    here.restart(0)
    with pytest.raises(PeerError, match="older"):
        here.agent(0)


def test_a_store_that_fails_where_a_newer_roster_is_seen_halts_the_agent_and_tells_nobody():
    here, _, newer = two_rosters()
    agent = here.agent(0)
    agent._renew_roster = lambda: newer
    agent._store.append = Mock(side_effect=UsageError("cannot write: no space"))
    with pytest.raises(UsageError, match="no space"):
        agent.receive(here.announce(here.collect(0, 4), roster=here.signed((), serial=9)))
    assert agent.state is AgentState.HALTED


def test_an_announcement_that_is_ignored_leaves_the_run_under_way_its_roster():
    here, old, newer = two_rosters()
    other = here.announce(here.collect(0, 4), roster=here.signed((), serial=9), attempt=9)

    def overtaken(i: int, data: bytes) -> bool:
        if i == VICTIM and isinstance(decode_to_agent(data, len(data)), Total):
            here.agent(i)._renew_roster = lambda: newer
            with pytest.raises(PeerError, match="another roster"):
                here.agent(i).receive(other)
        return False

    assert here.run(here.aggregator(here.collect(0, 4)), deaf=overtaken) is not None
    victim = here.agent(VICTIM)
    assert victim.roster is old and victim.own.memory.serial == 2
    victim._renew_roster = lambda: old
    with pytest.raises(PeerError, match="older"):
        victim.receive(here.announce(here.collect(4, 4), attempt=10))


def test_an_agent_that_joined_takes_another_announcement_whatever_its_number():
    """Or the greatest number there is would keep it waiting for good; restarted, it is where it was."""
    here, answers = World(tiny(1, agents=6, rows=40), 1), set()
    for attempt in (2**64 - 1, 5, 2**64 - 1, 4):
        announce = here.announce(here.collect(0, 4), attempt=attempt)
        [answer] = here.agent(VICTIM).receive(announce)
        here.restart(VICTIM)
        assert here.agent(VICTIM).state is AgentState.JOINED and here.agent(VICTIM).receive(announce) == [answer]
        answers.add(answer)
    assert len(answers) == 4, "randomness was used twice"
    assert here.run(here.aggregator(here.collect(0, 4))) is not None


# Again


def test_a_fit_is_answered_four_times_with_the_same_numbers_and_booked_once():
    here = World(tiny(3, agents=5, rows=60), 3)
    outcomes = [here.run(here.aggregator(here.plan())) for _ in range(4)]
    assert all(shown(each) == shown(outcomes[0]) for each in outcomes)
    for store in here.stores:
        fits = written(store).account.fits.values()
        assert [(fit.totals, fit.signs, fit.released) for fit in fits] == [(outcomes[0].sums, 1, True)]
    assert here.run(here.aggregator(here.plan())) is None and ASKED_TOO_OFTEN in here.reasons[-1]


def shown(outcome) -> list[float]:
    return (outcome.estimate.state if isinstance(outcome, Outcome) else outcome.state).tolist()


@pytest.mark.parametrize("what", ["fit", "collect"])
@pytest.mark.parametrize("who", [0, 3], ids=["leader", "other"])
def test_a_run_broken_off_at_any_write_and_asked_again_gives_the_same_and_books_nothing_twice(who, what):
    moment, dead = 0, True
    while dead:
        moment += 1
        here = World(tiny(3, agents=5, rows=60), 3)
        plan = here.plan() if what == "fit" else here.collect(0, 60)
        store, agent = here.stores[who], here.agent(who)
        store.die, store.after = moment, moment % 2 == 0
        killed = lambda i, data, here=here, agent=agent: i == who and here.agents[who] is not agent  # noqa: E731
        first, dead = here.run(here.aggregator(plan), deaf=killed), store.die <= 0
        left_out = {who} if len(here.role.members) < 5 else set()  # it was killed before it answered
        again = here.run(here.aggregator(plan), gone=left_out)
        assert again is not None and (first is None or shown(first) == shown(again)), here.reasons
        for i in {0, 1, 2, 3, 4} - left_out:
            fits = written(here.stores[i]).account.fits.values()
            assert [(fit.totals, fit.signs) for fit in fits] == ([(again.sums, 1)] if what == "fit" else [])
    assert moment > (8 if what == "fit" else 4)
