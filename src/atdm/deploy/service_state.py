"""The state of a desk as its page, its HTTP API, its metrics and its sinks show it: one document.

Rule 1: nothing in here is more than the aggregator has by its role: sums, counts, names, words.
Rule 2: times are seconds since 1970, UTC; a reader works out ages itself, so that a document does not grow old.
"""

import re
from typing import Any, Literal

import msgspec

from atdm.deploy.fleet import OUTAGES, Fleet
from atdm.deploy.record import DecisionRow, RunRow
from atdm.deploy.service_rules import ServiceRules
from atdm.protocol.account import BLOCK
from atdm.protocol.company import owners_needed
from atdm.protocol.plan import DAY
from atdm.protocol.roster import Roster

Standing = Literal["in", "out", "silent", "new"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the document."""


class Newest(Part, frozen=True, kw_only=True):
    """The newest row observed."""

    time: float  # its stamp
    aggregate_temp_c: float
    load_kw: float  # of the homes in
    homes: int


class Outlook(Part, frozen=True, kw_only=True):
    """What comes if nobody intervenes, by row; the past before it, for the picture."""

    made: float
    model: str  # its hash
    origin: float  # stamp of the last row known
    step_seconds: int
    time: list[float]  # stamps of the rows forecast
    columns: dict[str, list[float | None]]  # aggregate_temp_c, low_80 … [°C]; load_kw, load_low_80 … [kW]
    notes: list[str]


class Past(Part, frozen=True, kw_only=True):
    """The rows before: those of the last days."""

    time: list[float]
    aggregate_temp_c: list[float]
    load_kw: list[float]  # as if all homes of now had been in


class ModelState(Part, frozen=True, kw_only=True):
    """The model in use."""

    words: str
    hash: str
    made: float
    chosen: float  # when order and day types were chosen
    until: float | None  # last row it comes from
    homes: int  # whose load it speaks of
    why: str
    expected_rmse_24h_k: float | None  # when it was made
    rmse_24h_k: float | None  # of the last 7 days' forecasts
    load_rmse_24h_kw: float | None
    inside_80: float | None  # share of these inside the 80 % band
    forecasts_judged: int
    notes: list[str]  # which coefficients have moved


class FlexibilityState(Part, frozen=True, kw_only=True):
    """What the cluster can offer, or why nothing is offered."""

    offered: bool
    words: str
    made: float | None = None
    document: dict[str, Any] | None = None  # as `atdm flexibility --json` prints it


class Home(Part, frozen=True, kw_only=True):
    """One home as the aggregator knows it."""

    name: str
    standing: Standing
    why: str
    heard: float | None  # last row at which it answered


class FleetState(Part, frozen=True, kw_only=True):
    """Who is enrolled, and who takes part."""

    serial: int  # of the roster
    enrolled: int
    inside: int  # in the company of the last day
    needed: int  # owners that a company needs
    block_ends: float  # when companies may grow again
    lost_days: int  # of this block, given up because homes were out
    fit_days: int  # days that this block's homes have summed
    homes: list[Home]


class Alarm(Part, frozen=True, kw_only=True):
    """What is wrong, what that means, what to do."""

    name: str
    since: float
    words: str
    meaning: str
    remedy: str
    failure: bool  # whether the desk is not doing its work


class Health(Part, frozen=True, kw_only=True):
    """Whether the desk does its work."""

    ok: bool
    why: list[str]


class State(Part, frozen=True, kw_only=True):
    """Everything."""

    time: float
    begun: float
    rows: int  # observed since then
    doing: str  # what is going on
    next_asking: float
    health: Health
    now: Newest | None
    past: Past
    forecast: Outlook | None
    model: ModelState | None
    model_words: str  # why there is none yet
    flexibility: FlexibilityState
    fleet: FleetState | None
    runs: list[RunRow]
    decisions: list[DecisionRow]
    alarms: list[Alarm]


def fleet_state(roster: Roster, fleet: Fleet, out: dict[str, str], now: float, rules: ServiceRules) -> FleetState:
    """The fleet as the aggregator knows it; out: who was not in the last run, and why."""
    today = int(now // DAY)
    block = range(today - today % BLOCK, today - today % BLOCK + BLOCK)
    settled = [day for day in block if day in fleet.days]
    last = max((day for day in fleet.days if day <= today), default=None)  # maybe of the block before
    company = None if last is None else set(fleet.days[last])
    newest = max(fleet.heard.values(), default=None)
    silent = rules.collect.every.total_seconds() + OUTAGES[rules.collect.outages].patience
    homes = []
    for member in sorted(roster.members, key=lambda member: _natural(member.name)):
        key = member.identity.hex()
        heard = fleet.heard.get(key)
        standing: Standing = "in" if company is not None and key in company else "out"
        why = out.get(member.name, "")
        if heard is None or member.since > today:
            standing, why = "new", why or "enrolled, not heard of yet"
        elif newest is not None and newest - heard >= silent:
            standing, why = "silent", "does not answer"
        elif standing == "out" and company is not None:
            why = why or "left out of this block's company, in again with the next block"
        homes.append(Home(name=member.name, standing=standing, why=why if standing != "in" else "", heard=heard))
    return FleetState(
        serial=roster.serial, enrolled=len(roster), inside=sum(home.standing == "in" for home in homes),
        needed=owners_needed(roster, rules.fleet.at_least), block_ends=float(block.stop * DAY),
        lost_days=sum(day in fleet.lost for day in block), fit_days=len(settled), homes=homes,
    )  # fmt: skip


def _natural(name: str) -> list[tuple[int, str]]:
    """home-9 before home-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
