"""A home whose owner has paused it, or has left, is out in the open, and finishes what it began."""

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from atdm.protocol.agent import Agent, AgentState
from atdm.protocol.company import LEFT, PAUSED, flags
from atdm.protocol.messages import Announce, Ready, ToAggregator, encode
from atdm.protocol.options import OwnerChoice, fit_options
from atdm.protocol.plan import MOST_DAYS, Collect, day_count
from atdm.protocol.rules import Rules
from atdm.protocol.store import Entry, decode_entry, encode_entry
from atdm.run import enrol, make_plan
from tests.clusters import tiny
from tests.protocol.drive import seeded
from tests.protocol.world import Ram

CLUSTER = tiny(4, agents=11, rows=96, step="1h")
RULES = Rules(rows_per_parameter=1.0)
PLAN = make_plan(CLUSTER, fit_options(protocol="blind", order=1, weights="equal"), RULES)
ROWS = Collect(step_seconds=PLAN.step_seconds, start=PLAN.start, length=PLAN.length)


@dataclass
class Owner:
    choice: OwnerChoice = "takes part"


def a_home(owner: Owner, store: Ram, seed: int = 1) -> Agent:
    agents, _ = enrol(CLUSTER, RULES, seeded(seed))
    model = agents[3]
    return Agent(
        identity=model._identity, secret=model.own.secret, roster=model.roster, authority=model.roster.authority,
        readings=model.own.readings, weather=model.own.weather, rules=RULES, random_bytes=seeded(seed + 1),
        store=store, owner=lambda: owner.choice,
    )  # fmt: skip


def announce(home: Agent, attempt: int = 1, plan=ROWS) -> bytes:
    return encode(Announce(plan=plan, roster=home.roster.hash(), attempt=attempt))


def answer(home: Agent, message: bytes) -> tuple[list[bool], str]:
    (reply,) = home.receive(message)
    ready = msgspec.msgpack.decode(reply, type=ToAggregator)
    assert isinstance(ready, Ready)
    return flags(ready.days, day_count(ROWS)).tolist(), ready.reason


@pytest.mark.parametrize(("choice", "reason"), [("paused", PAUSED), ("left", LEFT)])
def test_it_is_out_on_all_days_in_fixed_words_and_judges_none(choice, reason):
    owner, store = Owner(choice), Ram()
    home = a_home(owner, store)
    assert answer(home, announce(home)) == ([False] * 4, reason)
    assert home.own.memory.account.days == {}, "what is not looked at is not judged"
    owner.choice = "takes part"
    assert answer(home, announce(home, 2)) == ([True] * 4, "")


def test_the_answer_does_not_depend_on_what_it_has():
    """Two homes, one without any reading: paused, they differ in key and nonce alone."""
    said = []
    for empty in (False, True):
        home = a_home(Owner("paused"), Ram())
        if empty:
            none = home.own.readings.at(np.empty(0, dtype=np.int64))
            object.__setattr__(home.own, "readings", none)
        said.append(answer(home, announce(home)))
    assert said[0] == said[1]


def test_a_choice_made_during_a_run_waits_for_its_end():
    owner, store = Owner(), Ram()
    home = a_home(owner, store)
    message = announce(home)
    before = home.receive(message)
    owner.choice = "paused"
    assert home.receive(message) == before, "the same message, the same bytes"
    assert home.state is AgentState.JOINED
    assert answer(home, announce(home, 2)) == ([False] * 4, PAUSED)


@pytest.mark.parametrize(("then", "now"), [("takes part", "paused"), ("paused", "takes part"), ("paused", "left")])
def test_a_restart_within_a_run_answers_as_before_whatever_was_chosen_since(then, now):
    owner, store = Owner(then), Ram()
    home = a_home(owner, store)
    message = announce(home)
    before = home.receive(message)
    owner.choice = now
    again = a_home(owner, store, seed=1)
    assert again.state is AgentState.JOINED, "the run is not lost"
    assert again.receive(message) == before
    assert answer(again, announce(again, 2))[1] == {"takes part": "", "paused": PAUSED, "left": LEFT}[now]


def test_without_its_choice_in_the_journal_the_run_would_be_lost():
    """What the rule is for: the entry without the choice, as it was written before there was one."""
    owner, store = Owner("paused"), Ram()
    home = a_home(owner, store)
    home.receive(announce(home))
    entry = decode_entry(store.entries[0])
    assert entry.choice == "paused"
    store.entries[0] = encode_entry(msgspec.structs.replace(entry, choice="takes part"))
    assert a_home(owner, store).state is AgentState.LOST


def test_journals_from_before_there_was_a_choice_are_read():
    entry = Entry(message=b"m", answer=b"h", bookings=())
    body = msgspec.msgpack.decode(encode_entry(entry))
    assert decode_entry(encode_entry(entry)).choice == "takes part"
    del body[1]["choice"]
    assert decode_entry(msgspec.msgpack.encode(body)) == entry


def test_a_window_too_long_for_bits_is_refused_in_the_same_words():
    home = a_home(Owner("paused"), Ram())
    long = msgspec.structs.replace(ROWS, length=(MOST_DAYS + 1) * 24)
    (reply,) = home.receive(announce(home, plan=long))
    refusal = msgspec.msgpack.decode(reply)
    assert refusal["type"] == "Refuse" and refusal["reason"] == f"{home.name}: {PAUSED}"
