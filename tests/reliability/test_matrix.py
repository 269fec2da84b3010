"""Every message in every state of both roles: a transition, an answer, or PeerError and nothing changed.

What is accepted where is written down here a second time (`ACCEPTED`), by hand; the roles' own tables, what they do,
and the figures of the documentation must all agree with it.
"""

import importlib.util
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from atdm.errors import PeerError
from atdm.protocol.agent import Agent, AgentState
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.blind.script import BlindPart
from atdm.protocol.collect import Phase as CollectPhase
from atdm.protocol.messages import (
    Abort,
    Announce,
    Answer,
    Ask,
    Consent,
    Finished,
    Keys,
    Masked,
    Ready,
    Receipts,
    Refuse,
    Release,
    Seal,
    Secret,
    Secrets,
    Total,
    encode,
)  # fmt: skip
from atdm.protocol.store import Snapshot, enclose
from tests.clusters import tiny
from tests.protocol.world import LOOSE, World
from tests.reliability.places import (
    AGENTS,
    MEMBER,
    PROTOCOLS,
    TO_AGENT,
    TO_AGGREGATOR,
    Desk,
    Place,
    agent_places,
    agent_state,
    announcement,
    desk_name,
    desk_places,
    phase_of,
    read_down,
    read_up,
    recorded,
    run_id,
    seat,
    stand,
)  # fmt: skip
from tests.reliability.test_ridge import swaying

ROOT = Path(__file__).parent.parent.parent
IGNORED = "ignored"
VARIANTS = ("made up", "other run", "other step")

PHASES = ("rows", "open", "step", "signs")  # in which an agent waits for a total

# What an agent takes in each state or phase. Anything else is ignored.
ACCEPTED: dict[str, set[type]] = {
    "waiting": {Announce},
    "joined": {Announce, Keys, Abort},
    "running/secret": {Announce, Secret, Abort},
    **{f"running/{p}": {Announce, Total, Abort} for p in PHASES},
    "running/seal": {Announce, Seal, Abort},
    "running/release": {Announce, Finished, Abort},
    "running/question": {Announce, Ask, Finished, Abort},
    "running/consent": {Announce, Receipts, Finished, Abort},
    "running/offer": {Announce, Total, Finished, Abort},
    "running/show": {Announce, Finished, Abort},
    "done": {Announce},
    "aborted": {Announce},
    "lost": {Announce, Keys, Secret, Seal, Total, Ask, Receipts},
    "halted": set(),
}
TAKEN: dict[str, set[type]] = {  # by the aggregator
    "gathering": {Ready, Refuse},
    "running/secrets": {Secrets, Masked, Seal, Refuse},
    "running/sum": {Masked, Seal, Refuse},
    "running/release": {Masked, Release, Refuse},
    "running/consent": {Masked, Consent, Refuse},
    "running/collect": {Answer, Refuse},
    "running/offers": {Masked, Refuse},
    "running/shown": {Masked, Refuse},
    "done": set(),
    "aborted": set(),
}


def diagrams():
    spec = importlib.util.spec_from_file_location("state_diagrams", ROOT / "tools" / "state_diagrams.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DIAGRAMS = diagrams()


def name_of(cell) -> str:
    return cell.name.replace("/", "-") + (f"-{cell.protocol}" if "/" in cell.name else "")


# An agent


def made_up(kind: type, agent: Agent, protocol: str, variant: str) -> bytes:
    """A message of this kind that fits the agent's run and step in form, with contents nobody computed."""
    part = agent.part
    run, step = run_id(agent) if variant != "other run" else b"\x01" * 32, getattr(part, "step", 0)
    step += variant == "other step"
    layout = part.asked.layout if isinstance(part, BlindPart) and part.asked else getattr(part, "layout", None)
    words = (10 if layout is None else layout.words) + 4
    announce = announcement(protocol)
    newer = 0 if variant == "other run" else 99
    return encode({
        Announce: lambda: msgspec.structs.replace(announce, attempt=newer),
        Keys: lambda: Keys(company=b"\x0f", days=b"\x01\x00", answers=bytes(2 * AGENTS), nonces=bytes(32 * AGENTS),
                           exchange=bytes(32 * AGENTS), signatures=bytes(64 * AGENTS)),
        Secret: lambda: Secret(run=run, box=bytes(48)),
        Seal: lambda: Seal(run=run, step=step, box=bytes(100)),
        Total: lambda: Total(run=run, step=step, words=bytes(8 * words)),
        Ask: lambda: Ask(run=run, step=step, what="your readings", values=b""),
        Receipts: lambda: Receipts(run=run, step=step, tags=bytes(16 * (AGENTS - 1))),
        Finished: lambda: Finished(run=run),
        Abort: lambda: Abort(run=run, reason="made up"),
    }[kind]())  # fmt: skip


def outcome(agent: Agent, data: bytes) -> tuple[str, list[str]]:
    try:
        replies = agent.receive(data)
    except PeerError:
        return IGNORED, []
    return str(agent.state), [type(read_up(reply)).__name__ for reply in replies]


def expected(place: Place, kind: type, variant: str) -> tuple[str, list[str]]:
    refused = ("aborted", ["Refuse"])
    if kind not in ACCEPTED[place.name]:
        return IGNORED, []
    if kind is Announce:
        stale = variant == "other run" and place.name.startswith("running")
        return (IGNORED, []) if stale else ("joined", ["Ready"])
    if place.name == "lost" or kind is Keys:
        return refused
    if variant == "other run" or (variant == "other step" and kind in (Total, Receipts)) or kind is Ask:
        return IGNORED, []
    return {Finished: ("done", []), Abort: ("aborted", [])}.get(kind, refused)


def everything(agent: Agent) -> tuple:
    """All that a message may have changed."""
    part, store = agent.part, agent._store
    memory = enclose(Snapshot(agent._identity.public, agent.own.memory))
    return (agent.state, phase_of(agent), getattr(part, "step", -1), getattr(part, "context", b""), memory,
            store.snapshot, tuple(store.entries), agent._last[0])  # fmt: skip


@pytest.mark.parametrize("place", agent_places(), ids=lambda p: f"{name_of(p)}-{'member' if p.who else 'leader'}")
def test_an_agent_answers_or_ignores_every_message_in_every_state(place: Place) -> None:
    """One agent takes all messages that must not matter, and then still the one that belongs next."""
    steady = stand(place)
    before = everything(steady)
    for kind, variant in product(TO_AGENT, VARIANTS):
        due = expected(place, kind, variant)
        agent = steady if due[0] == IGNORED else stand(place)
        assert outcome(agent, made_up(kind, agent, place.protocol, variant)) == due, (kind.__name__, variant)
        if agent is not steady:
            handler = Agent.TRANSITIONS[agent_state(place), kind].__name__
            assert due[0] in DIAGRAMS.targets("agent", handler, kind.__name__), "not in the figure"
        assert everything(steady) == before, (kind.__name__, variant)
    history = recorded(place.protocol).down[place.who]
    if not place.then and place.messages < len(history):
        data, replies = history[place.messages]
        assert steady.receive(data) == replies, "an ignored message changed what comes after it"


@pytest.mark.parametrize("place", agent_places(), ids=lambda p: f"{name_of(p)}-{'member' if p.who else 'leader'}")
def test_the_message_that_belongs_next_is_accepted_where_the_table_says(place: Place) -> None:
    history = recorded(place.protocol).down[place.who]
    if place.then or place.messages == len(history):
        return
    data, replies = history[place.messages]
    kind = type(read_down(data))
    assert kind in ACCEPTED[place.name] and (agent_state(place), kind) in Agent.TRANSITIONS
    agent = stand(place)
    assert agent.receive(data) == replies and agent.receive(data) == replies  # and twice the same bytes


def test_the_table_of_an_agent_is_the_one_written_down_here() -> None:
    accepted = {(name.split("/")[0], kind) for name, kinds in ACCEPTED.items() for kind in kinds}
    assert {(str(state), kind) for state, kind in Agent.TRANSITIONS} == accepted
    assert {name.split("/")[0] for name in ACCEPTED} == {str(state) for state in AgentState}
    assert {place.name for place in agent_places()} == set(ACCEPTED), "some place is never stood in"


# The aggregator


def forged(kind: type, role: Aggregator, variant: str) -> bytes:
    run = b"\x01" * 32 if variant == "other run" or role.run is None else role.run.id
    desk = role.desk
    step = desk._pile.step if desk is not None else 0
    step += variant == "other step"
    question = getattr(desk, "_question", None)
    layout = None if question is None else question.layout
    words = bytes(80 if layout is None else 8 * layout.words)
    phase = question.what if question is not None else "rows"
    return encode({
        Ready: lambda: Ready(days=b"\x01\x00", reason="", nonce=bytes(32), exchange=bytes(32), signature=bytes(64)),
        Secrets: lambda: Secrets(run=run, boxes=bytes(48)),
        Seal: lambda: Seal(run=run, step=step, box=bytes(100)),
        Release: lambda: Release(run=run, step=step, words=words, hash=bytes(32), signature=bytes(64)),
        Masked: lambda: Masked(run=run, step=step, phase=phase, words=words, tags=bytes(16 * (AGENTS - 1))),
        Consent: lambda: Consent(run=run, step=step, seed=bytes(32)),
        Answer: lambda: Answer(run=run, step=step, values=bytes(8)),
        Refuse: lambda: Refuse(reason="somebody: made up"),
    }[kind]())  # fmt: skip


def due(desk: Desk, kind: type, variant: str, leads: bool) -> str:
    """State after a well-formed message with made-up contents, from the agent whose turn it is."""
    if kind not in TAKEN[desk.name]:
        return IGNORED
    if kind is Refuse:
        return "gathering" if desk.name == "gathering" else "aborted"
    if kind in (Ready, Release) or variant == "other run" or (variant == "other step" and kind is not Secrets):
        return IGNORED  # not signed; of another run or step
    if kind is Seal and (not leads or desk.protocol != "blind"):
        return IGNORED
    if kind is Secrets:
        return "aborted"  # boxes for another number of agents
    if kind is Masked and desk.name == "running/consent":
        return "aborted"  # a second one, and different
    return "running"


def contents(role: Aggregator) -> tuple:
    desk = role.desk
    pile = getattr(desk, "_pile", None)
    return (role.state, tuple(role.reasons), sorted(role.answers), sorted(role.refusals), desk_name(role),
            None if pile is None else (pile.step, pile.phase, pile.total.tobytes(), frozenset(pile._from)),
            getattr(desk, "_context", b""),
            *(sorted(getattr(desk, name, {})) for name in ("_tags", "_seeds", "_answers", "_vouched")))  # fmt: skip


@pytest.mark.parametrize("desk", desk_places(), ids=name_of)
def test_the_aggregator_takes_or_ignores_every_message_in_every_state(desk: Desk) -> None:
    steady, history = seat(desk), recorded(desk.protocol).up
    before = contents(steady)
    sender = history[desk.messages][0] if desk.messages < len(history) else 0
    for kind, variant in product(TO_AGGREGATOR, VARIANTS):
        expected = due(desk, kind, variant, sender == 0)
        role = steady if expected == IGNORED else seat(desk)
        try:
            role.receive(sender, forged(kind, role, variant))
            found = str(role.state)
        except PeerError:
            found = IGNORED
        assert found == expected, (kind.__name__, variant)
        if role is not steady:
            handler = Aggregator.TRANSITIONS[before[0], kind].__name__
            leads = DIAGRAMS.targets("aggregator", handler, kind.__name__)
            assert ("same" if found == before[0] else found) in leads, "not in the figure"
        assert contents(steady) == before, (kind.__name__, variant)
    if not desk.refused and desk.messages < len(history):
        untouched = seat(desk)
        assert steady.receive(*history[desk.messages]) == untouched.receive(*history[desk.messages])


@pytest.mark.parametrize("desk", desk_places(), ids=name_of)
@pytest.mark.parametrize("sender", [-1, AGENTS, 10**6])
def test_the_aggregator_ignores_whoever_is_not_in_the_roster(desk: Desk, sender: int) -> None:
    role = seat(desk)
    before = contents(role)
    with pytest.raises(PeerError, match="not in the roster"):
        role.receive(sender, encode(Refuse(reason="x")))
    assert contents(role) == before


@pytest.mark.parametrize("kind", [Masked, Seal, Release, Refuse])
def test_the_aggregator_ignores_whoever_is_not_in_the_company(kind: type) -> None:
    """Enrolled, and heard while answers are gathered; then left out."""
    world = World(tiny(3, agents=AGENTS, rows=60), 3)
    role = world.aggregator(world.plan())
    for i in (0, 2, 3):
        role.receive(i, world.agent(i).receive(role.start()[0].data)[0])
    role.close()
    assert [role.roster.members.index(member) for member in role.members] == [0, 2, 3]
    before = contents(role)
    with pytest.raises(PeerError, match="not in the company"):
        role.receive(1, forged(kind, role, "made up"))
    assert contents(role) == before


def test_the_table_of_the_aggregator_is_the_one_written_down_here() -> None:
    taken = {(name.split("/")[0], kind) for name, kinds in TAKEN.items() for kind in kinds}
    assert {(str(state), kind) for state, kind in Aggregator.TRANSITIONS} == taken
    assert {desk.name for desk in desk_places()} == set(TAKEN), "some place is never stood in"


# The figures


def test_state_figures_are_current() -> None:
    for name, content in DIAGRAMS.figures().items():
        path = ROOT / "docs" / "figures" / name
        assert path.read_text(encoding="utf-8") == content, "run python tools/state_diagrams.py"


def test_phases_follow_each_other_as_in_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, ask = set(), BlindPart._ask

    def watched(self, asked):
        before = "secret" if self.asked is None else self.asked.phase
        if before != "secret" or not self.session.leads:
            seen.add((before, asked.phase))
        return ask(self, asked)

    monkeypatch.setattr(BlindPart, "_ask", watched)
    world = World(swaying(1), 1, replace(LOOSE, totals=3))  # raises λ in its final span
    assert world.run(world.aggregator(world.plan(nonnegative="ridge"))) is not None
    assert seen == {(a, b) for a, targets in DIAGRAMS.PHASES["blind"].items() for b in targets}


def test_the_figures_have_every_phase() -> None:
    named = {phase for phases in DIAGRAMS.PHASES.values() for phase in phases}
    assert named == {name.removeprefix("running/") for name in ACCEPTED if name.startswith("running/")}
    assert list(DIAGRAMS.PHASES["collect"]) == list(get_args(CollectPhase))


def test_a_leader_and_a_member_stand_in_every_phase_but_those_of_its_own_boxes() -> None:
    leader = {place.name for place in agent_places() if place.who != MEMBER}
    members = {place.name for place in agent_places() if place.who == MEMBER}
    assert members - leader == {"running/secret", "running/seal"} and leader <= members
    assert set(PROTOCOLS) == {place.protocol for place in agent_places()}
