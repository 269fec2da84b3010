"""A home whose owner has paused it, or has left, is out in the open, and finishes what it began."""

import msgspec
import pytest

from atdm.options import OwnerChoice
from atdm.protocol.agent import AgentState
from atdm.protocol.company import LEFT, PAUSED, flags
from atdm.protocol.messages import Ready, Refuse
from atdm.protocol.plan import MOST_DAYS
from atdm.protocol.rules import Rules
from atdm.protocol.store import Entry, disclose, enclose
from tests.clusters import tiny
from tests.protocol.world import World

HOME, ROWS, DAYS = 3, 96, 4
WORDS: dict[OwnerChoice, str] = {"takes part": "", "paused": PAUSED, "left": LEFT}


class Owned(World):
    """A world in which one home has an owner who may think again."""

    def __init__(self, choice: OwnerChoice) -> None:
        super().__init__(tiny(4, agents=11, rows=ROWS, step="1h"), 1, Rules(rows_per_parameter=1.0))
        self.choice, self.built = choice, {"owner": lambda: self.choice}

    def says(self) -> tuple[list[bool], str]:
        """The days on which the home is in, and why not on others."""
        ready = self.answer(self.collect(0, ROWS), HOME)
        assert isinstance(ready, Ready)
        return flags(ready.days, DAYS).tolist(), ready.reason


@pytest.mark.parametrize("choice", ["paused", "left"])
@pytest.mark.parametrize("empty", [False, True])
def test_it_is_out_on_all_days_in_fixed_words_and_judges_none(choice, empty):
    """The answer does not depend on what it has: a home without any reading says the same."""
    here = Owned(choice)
    here.hold(HOME, without=range(ROWS if empty else 0))
    assert here.says() == ([False] * DAYS, WORDS[choice])
    assert here.agent(HOME).own.memory.account.days == {}, "what is not looked at is not judged"
    here.choice = "takes part"
    here.hold(HOME)
    assert here.says() == ([True] * DAYS, "")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("then", "now"), [("takes part", "paused"), ("paused", "takes part"), ("paused", "left")])
def test_within_a_run_it_answers_as_before_whatever_was_chosen_since(then, now, restarted):
    """A choice made during a run waits for its end, after a restart within it too."""
    here = Owned(then)
    message = here.announce(here.collect(0, ROWS))
    before = here.agent(HOME).receive(message)
    here.choice = now
    if restarted:
        here.restart(HOME)
    assert here.agent(HOME).state is AgentState.JOINED, "the run is not lost"
    assert here.agent(HOME).receive(message) == before, "the same message, the same bytes"
    assert here.says() == ([now == "takes part"] * DAYS, WORDS[now])


def test_without_its_choice_in_the_journal_the_run_would_be_lost():
    """What the rule is for: the entry without the choice, as it was written before there was one."""
    here = Owned("paused")
    here.says()
    entries = here.stores[HOME].entries
    entry = disclose(entries[0], Entry)
    assert entry.choice == "paused"
    entries[0] = enclose(msgspec.structs.replace(entry, choice="takes part"))
    here.restart(HOME)
    assert here.agent(HOME).state is AgentState.LOST


def test_a_window_too_long_for_bits_is_refused_in_the_same_words():
    here = Owned("paused")
    reply = here.answer(here.collect(0, (MOST_DAYS + 1) * 24), HOME)
    assert reply == Refuse(reason=f"{here.agent(HOME).name}: {PAUSED}")
