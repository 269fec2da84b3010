"""A run reports what happens to whoever watches, and gives the same bytes if nobody does."""

import asyncio

import msgspec
import pytest

from atdm import events
from atdm.deploy import Conductor
from atdm.errors import RunAborted
from atdm.events import from_line, to_line
from atdm.rehearse import in_process
from tests.transport.theatre import AGENTS, Theatre


def watched(theatre: Theatre, url: str, seen: list[events.AnyEvent], **options: float) -> Conductor:
    conductor = theatre.conductor(url, **options)
    conductor.report, conductor.feed.report = seen.append, seen.append
    return conductor


@pytest.mark.parametrize("protocol", ["blind", "moments"])
def test_a_run_tells_its_rounds_in_order_and_its_numbers_are_those_of_an_unwatched_one(tmp_path, protocol):
    theatre, seen = Theatre(tmp_path, protocol=protocol), []
    alone = in_process(theatre.stage, theatre.plan)
    with theatre.stage.server() as server:
        deployed = asyncio.run(theatre.perform(server.url, watched(theatre, server.url, seen)))
    assert deployed.as_dict()["released"] == alone.as_dict()["released"]
    kinds = list(dict.fromkeys(type(event) for event in seen))
    assert kinds[0] is events.Planned and kinds[-1] is events.Finished
    planned = seen[0]
    assert sorted(planned.agents) == sorted(theatre.stage.names)
    (announced,) = [e for e in seen if isinstance(e, events.Announced)]
    assert announced.agents == tuple(range(AGENTS))
    done = [e for e in seen if isinstance(e, events.RoundDone)]
    asked = [e for e in seen if isinstance(e, events.Asked)]
    assert [e.round for e in done] == [e.round for e in asked] == list(range(1, len(done) + 1))
    assert all(e.seconds > 0 for e in done) and done[0].what == "Ready"
    if protocol == "blind":
        assert [e.what for e in done if e.what in ("rows", "load", "release")] == ["rows", "load", "release"]
        assert sum(e.what == "basis" for e in done) == deployed.fit.cost.sums
    for place in range(AGENTS):  # the leader's secret may go out before the others have said that they got the keys
        answered = sum(isinstance(e, events.Answered) and e.agent == place for e in seen)
        assert len(done) - 1 <= answered <= len(done)
    assert sum(e.bytes_up for e in done) >= AGENTS * deployed.fit.cost.bytes_up_per_agent
    ledgers = [e.rows for e in seen if isinstance(e, events.Learned)]
    assert list(ledgers[-1]) == deployed.fit.ledger and len(ledgers) == (1 if protocol == "blind" else len(ledgers))
    assert seen[-1].metrics == deployed.fit.metrics and seen[-1].status == deployed.fit.status


def test_events_survive_a_file(tmp_path):
    theatre, seen = Theatre(tmp_path), []
    with theatre.stage.server() as server:
        asyncio.run(theatre.perform(server.url, watched(theatre, server.url, seen)))
    seen += [events.Ignored(0, 5, "x"), events.Refused(1, "y\nz"), events.Aborted("w", stopped=True), events.Said("v")]
    assert {type(e) for e in seen} == set(events.AnyEvent.__args__)
    lines = [to_line(e) for e in seen]
    assert all(line.count(b"\n") == 1 for line in lines)
    assert [from_line(line) for line in lines] == seen


def test_every_agent_that_refuses_is_reported_with_its_reason(tmp_path):
    theatre, seen = Theatre(tmp_path), []
    theatre.plan = msgspec.structs.replace(theatre.plan, ridge=1e-9)
    with theatre.stage.server() as server, pytest.raises(RunAborted, match="ridge 1e-09 is outside"):
        asyncio.run(theatre.perform(server.url, watched(theatre, server.url, seen)))
    refused = {e.agent: e.reason for e in seen if isinstance(e, events.Refused)}
    names = seen[0].agents
    assert sorted(refused) == list(range(AGENTS))
    assert all("ridge 1e-09 is outside" in reason and names[agent] in reason for agent, reason in refused.items())
    assert not [e for e in seen if isinstance(e, events.Finished | events.Learned)]
