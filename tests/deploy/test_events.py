"""A run reports what happens to whoever watches, and gives the same bytes if nobody does."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from atdm.deploy import events
from atdm.deploy.events import from_line, to_line
from atdm.errors import RunAborted
from tests.deploy.theatre import AGENTS, LOOSE, Theatre, in_process

ROUNDS = {
    ("blind", "fitted"): ["Ready", "Secrets", "rows", "open", "step", "signs", "Seal", "Release"],
    ("blind", "equal"): ["Ready", "offer", "show"],
}


def of(kind: type, seen: list[events.AnyEvent]) -> list:
    return [event for event in seen if isinstance(event, kind)]


@pytest.mark.parametrize(("protocol", "weights"), [*ROUNDS, ("moments", "fitted")])
def test_a_run_tells_its_rounds_in_order_and_its_numbers_are_those_of_an_unwatched_one(tmp_path, protocol, weights):
    """In events that survive a file."""
    theatre, seen = Theatre(tmp_path, protocol=protocol, weights=weights), []
    alone = in_process(theatre.stage, theatre.plan)
    with theatre.stage.server() as server:
        deployed = asyncio.run(theatre.perform(server.url, report=seen.append))
    assert deployed.as_dict()["released"] == alone.as_dict()["released"]
    kinds = list(dict.fromkeys(type(event) for event in seen))
    assert kinds[0] is events.Planned and kinds[-1] is events.ModelReleased
    assert sorted(seen[0].agents) == sorted(theatre.stage.names) and f"{weights} weights" in seen[0].plan
    (announced,), (company,) = of(events.Announced, seen), of(events.Company, seen)
    assert announced.agents == company.agents == tuple(range(AGENTS)) and company.out == {}
    done, asked = of(events.RoundDone, seen), of(events.Asked, seen)
    assert [e.round for e in done] == [e.round for e in asked] == list(range(1, len(done) + 1))
    assert all(e.seconds > 0 for e in done)
    if protocol == "blind":
        assert list(dict.fromkeys(e.what for e in done)) == ROUNDS[protocol, weights]
        assert sum(e.what in ("open", "step", "show") for e in done) == deployed.fit.cost.sums
    for place in range(AGENTS):  # the leader's two boxes may go out before the others have said that they wait for them
        answered = sum(e.agent == place for e in of(events.Answered, seen))
        assert len(done) - 2 <= answered <= len(done)
    assert sum(e.bytes_up for e in done) >= AGENTS * deployed.fit.cost.bytes_up_per_agent
    ledgers = [e.rows for e in of(events.Learned, seen)]
    assert list(ledgers[-1]) == deployed.fit.ledger
    assert len(ledgers) == 1 or (protocol, weights) != ("blind", "fitted")  # nothing before the release
    assert seen[-1].metrics == deployed.fit.metrics and seen[-1].status == deployed.fit.status
    survive_a_file(seen)


def survive_a_file(seen: list[events.AnyEvent]) -> None:
    rare = [events.Ignored(0, 5, "x"), events.Refused(1, "y\nz"), events.Aborted("w", stopped=True), events.Said("v")]
    assert {type(event) for event in (*seen, *rare)} == set(events.AnyEvent.__args__)
    lines = [to_line(event) for event in (*seen, *rare)]
    assert all(line.count(b"\n") == 1 for line in lines)
    assert [from_line(line) for line in lines] == [*seen, *rare]


def test_who_is_in_and_who_is_out_is_told_before_the_keys(tmp_path):
    theatre, seen = Theatre(tmp_path, agents=5), []
    cautious = theatre.stage.names[1]

    async def run():
        async with theatre.agents(server.url, rules={cautious: replace(LOOSE, weights="equal")}):
            await theatre.aggregate(server.url, report=seen.append)

    with theatre.stage.server() as server:
        asyncio.run(run())
    (company,), names = of(events.Company, seen), seen[0].agents
    assert {names[i] for i in company.agents} == set(theatre.stage.names) - {cautious}
    assert list(company.out) == [cautious] and "allows equal weights only" in company.out[cautious]
    keys = next(e for e in of(events.Asked, seen) if e.what == "Keys")
    assert seen.index(company) < seen.index(keys)


def test_a_run_that_nobody_takes_part_in_ends_with_their_reason(tmp_path):
    theatre, seen = Theatre(tmp_path), []
    theatre.plan = msgspec.structs.replace(theatre.plan, ridge=1e-9)
    with theatre.stage.server() as server, pytest.raises(RunAborted, match="ridge 1e-09 is outside"):
        asyncio.run(theatre.perform(server.url, report=seen.append))
    assert isinstance(seen[-1], events.Aborted) and "ridge 1e-09 is outside" in seen[-1].reason
    assert not of(events.ModelReleased, seen) and not of(events.Learned, seen) and not of(events.Company, seen)


def test_an_agent_that_will_not_go_on_is_reported_with_its_reason(tmp_path):
    """The company is smaller than two of them accept, which they see when it is named."""
    theatre, seen = Theatre(tmp_path, agents=5), []
    strict = dict.fromkeys(theatre.stage.names[:2], replace(LOOSE, least_agents=5))

    async def run():
        async with theatre.agents(server.url, theatre.stage.names[:-1], rules=strict):
            with pytest.raises(RunAborted, match="the company is smaller than this agent accepts"):
                await theatre.aggregate(server.url, wait=2.0, report=seen.append)

    with theatre.stage.server() as server:
        asyncio.run(run())
    names, refused = seen[0].agents, of(events.Refused, seen)
    assert {names[e.agent] for e in refused} == set(strict)
    assert all(e.reason.startswith(f"{names[e.agent]}: the company is smaller") for e in refused)
