"""The state of a desk as its page, its HTTP API, its metrics and its sinks show it: one document.

Rule 1: nothing in here is more than the aggregator has by its role: sums, counts, names, words.
Rule 2: times are seconds since 1970, UTC; a reader works out ages itself, so that a document does not grow old.
"""

from typing import Any, Literal

import msgspec

from atdm.deploy.record import AlarmRow, DecisionRow, RunRow

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


def alarm_of(row: AlarmRow, meaning: str, remedy: str, failure: bool) -> Alarm:
    return Alarm(
        name=row.name, since=row.since, words=row.words, meaning=meaning, remedy=remedy, failure=failure
    )  # fmt: skip
