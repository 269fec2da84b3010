"""What happens in a deployed run, as the aggregator sees it: for whoever wants to watch.

Rule 1: an event carries names, counts, sizes, times and reasons, and what the release opened to the aggregator; never
        an agent's reading or weight, of which the aggregator has none under `blind`.
Rule 2: reporting changes nothing: a run whose events nobody takes gives the same bytes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from atdm.protocol.messages import one_line


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Base of all events; the tag in JSON is the class name."""


class Planned(Event, frozen=True):
    """Before anybody is asked: who is in the roster, and what will be asked."""

    protocol: str
    plan: str  # in words
    agents: tuple[str, ...]  # every agent of the roster; other events name an agent by its place here
    wait: float  # s for agents to gather
    deadline: float  # s for agents to answer a message


class Joined(Event, frozen=True):
    """All agents heard of so far."""

    agents: tuple[int, ...]


class Announced(Event, frozen=True):
    """These agents are there and are asked whether they take part."""

    attempt: int  # ms since 1970: orders an aggregator's runs
    agents: tuple[int, ...]


class Company(Event, frozen=True):
    """The run goes on with these agents; who is out, and why, in the agents' own fixed words."""

    agents: tuple[int, ...]
    out: dict[str, str]


class Asked(Event, frozen=True):
    """A message went to everybody, or one to each: a round begins."""

    round: int  # 1: the announcement
    what: str  # the message, by name
    bytes: int  # to all agents together


class Answered(Event, frozen=True):
    """An agent's answer to the latest message came and was taken."""

    agent: int
    what: str  # which sum it belongs to, or the message by name; empty where it had nothing to send
    bytes: int


class Ignored(Event, frozen=True):
    """An agent sent something that does not belong here; it is asked again."""

    agent: int
    bytes: int
    reason: str


class Refused(Event, frozen=True):
    """An agent will not go on; its own words."""

    agent: int
    reason: str


class RoundDone(Event, frozen=True):
    """Everything needed for the next message is there."""

    round: int
    what: str
    seconds: float
    bytes_up: int  # from all agents together
    bytes_down: int  # to all agents together


class Learned(Event, frozen=True):
    """The aggregator's ledger, whole, whenever it has grown."""

    rows: tuple[dict[str, Any], ...]


class ModelReleased(Event, frozen=True):
    """The run released a model."""

    status: str
    iterations: int
    sums: int  # N-vector totals opened for the estimation
    agents: int
    rows: int  # released
    ridge: float
    metrics: dict[str, Any]  # train|test × one_step|free_run × rmse|mape|r2
    model: dict[str, tuple[float, ...]]  # alpha, beta, gamma, theta
    seconds: float  # key set-up apart
    notes: tuple[str, ...]


class Aborted(Event, frozen=True):
    """The run ended without a result."""

    reason: str
    stopped: bool = False  # by whoever runs the aggregator


class Said(Event, frozen=True):
    """A line for people."""

    text: str


AnyEvent = (
    Planned | Joined | Announced | Company | Asked | Answered | Ignored | Refused | RoundDone | Learned | ModelReleased
    | Aborted | Said
)  # fmt: skip
OnEvent = Callable[[AnyEvent], None]

_decoder = msgspec.json.Decoder(AnyEvent)


def to_line(event: AnyEvent) -> bytes:
    """One line of JSON; numbers that do not exist are null."""
    return msgspec.json.encode(event) + b"\n"


def from_line(line: bytes) -> AnyEvent:
    event: AnyEvent = _decoder.decode(line)
    return event


def unseen(_: AnyEvent) -> None:
    """For runs nobody watches."""


class _Head(msgspec.Struct):
    """What of a message may be told: which one it is; of a refusal its reason."""

    type: str = ""
    phase: str = ""  # of masked words
    what: str = ""  # of a question
    reason: str = ""  # of a refusal


_head = msgspec.msgpack.Decoder(_Head)
_LAST = ("Finished", "Abort")  # messages that open no round


class Feed:
    """Turns what passes the aggregator's hands into events, round by round."""

    def __init__(self, report: OnEvent) -> None:
        self.report = report
        self._asked = 0  # how many agents are asked
        self._round, self._what, self._began = 0, "", 0.0
        self._up = self._down = 0
        self._ledger: list[dict[str, Any]] = []

    def announced(self, attempt: int, places: Sequence[int]) -> None:
        self._asked = len(places)
        self.report(Announced(attempt, tuple(places)))

    def sent(self, batch: Iterable[tuple[int | None, bytes]]) -> None:
        """A message went out: the round before is over."""
        self._end_round()
        batch = list(batch)
        head = _read(batch[0][1])
        if head.type in _LAST:
            return
        self._down = sum(len(data) * (self._asked if to is None else 1) for to, data in batch)
        self._round, self._what, self._began = self._round + 1, "", time.monotonic()
        self.report(Asked(self._round, f"{head.type} {head.what}".strip(), self._down))

    def received(self, agent: int, answers: Sequence[bytes], *, latest: bool) -> None:
        """An agent's answers were taken."""
        heads, size = [_read(answer) for answer in answers], sum(map(len, answers))
        self._up += size
        self.refusals(agent, heads)
        what = next((head.phase or head.type for head in heads), "")
        self._what = what or self._what
        if latest:
            self.report(Answered(agent, what, size))

    def refusals(self, agent: int, heads: Iterable[_Head]) -> None:
        for head in heads:
            if head.type == "Refuse":
                self.report(Refused(agent, one_line(head.reason)))

    def too_late(self, agent: int, answers: Sequence[bytes] | None) -> None:
        """Answers after the end: a run ends at its first refusal, the others' reasons are worth knowing too."""
        self.refusals(agent, map(_read, answers or ()))

    def ignored(self, agent: int, answers: Sequence[bytes], reason: str) -> None:
        self.report(Ignored(agent, sum(map(len, answers)), one_line(reason)))

    def ledger(self, rows: list[dict[str, Any]]) -> None:
        if rows != self._ledger:
            self._ledger = rows
            self.report(Learned(tuple(rows)))

    def _end_round(self) -> None:
        if self._began:
            seconds = time.monotonic() - self._began
            self.report(RoundDone(self._round, self._what, seconds, self._up, self._down))
        self._began, self._up = 0.0, 0


def _read(message: bytes) -> _Head:
    try:
        return _head.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Head()
