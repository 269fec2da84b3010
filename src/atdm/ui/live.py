"""The state of a run as its operator sees it: events in, sections of a page out.

Rule 1: it knows only what events say (deploy/events.py), which is what the aggregator has by its role.
Rule 2: it is bounded by the size of the run, however many events come: lists that could grow keep their newest.
Rule 3: whoever reads says what it has seen and gets what changed since, so that a reader that stops holds nothing.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from math import prod
from string import Template
from threading import Lock
from typing import Any

from atdm.deploy import events
from atdm.deploy.events import AnyEvent
from atdm.report.learned import GRAVE, meaning
from atdm.report.page import COLUMNS, number
from atdm.report.parts import byte_count, source_hash, static

MOST_LINES = 200  # of the log, the refusals and the ignored messages, each
MOST_ROUNDS = 1000
TOTALS = ("open", "step", "show")  # sums with a series of all agents

# One letter for each agent's state, so that the states of ten thousand agents are one short string.
ABSENT, HERE, ASKED, ANSWERED, REFUSED, OUT, DONE = ".jwarxd"
STATES = {
    ABSENT: "not heard of",
    HERE: "joined",
    ASKED: "asked, no answer yet",
    ANSWERED: "answered",
    REFUSED: "refused",
    OUT: "not in this run",
    DONE: "done",
}
ROUNDS = {
    "Ready": "who is in, and keys",
    "Secrets": "group secret sealed by the leader",
    "offer": "rows that everybody can give",
    "show": "mean temperature and load of these rows",
    "rows": "rows that everybody has",
    "open": "load total and first basis total",
    "step": "next basis total",
    "signs": "residual and signs of the weights, counted",
    "Seal": "the leader's numbers, for the agents to verify",
    "Release": "release of the model",
    "load": "load total",
    "moments": "moments",
    "weights": "weights",
    "clipped": "weights held at zero",
    "state": "aggregate state",
    "transform": "masked transform",
    "Consent": "consent to open the sum",
    "Answer": "answers in the clear",
}


class LiveState:
    """Sections of the page by name, each with the version at which it last changed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version = 0
        self._sections: dict[str, Any] = {}
        self._changed: dict[str, int] = {}
        self._began = time.monotonic()
        self._ended: float | None = None
        self._round_began = 0.0
        self._states: list[str] = []
        self._runs = 0
        self._before: list[dict[str, Any]] = []  # what earlier runs of the same command taught
        self._rows: list[dict[str, Any]] = []  # and this one with them
        begun = {
            "status": "starting", "text": "Starting", "protocol": "", "plan": "", "joined": 0, "inside": None,
            "attempt": None,
        }  # fmt: skip
        self._put("run", begun)
        self._put("states", None)
        for name in ("names", "out", "rounds", "ledger", "notices", "log"):
            self._put(name, [])
        self._put("now", None)
        self._put("result", None)

    def take(self, event: AnyEvent) -> None:
        """Apply one event. Quick, and never waits for a reader."""
        with self._lock:
            handler = self._HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)

    def since(self, version: int) -> tuple[int, dict[str, Any]]:
        """The version now, and the sections that changed after `version` (0: all of them)."""
        with self._lock:
            found = {name: self._sections[name] for name, at in self._changed.items() if at > version}
            if "states" in found:
                found["states"] = "".join(self._states)
            return self._version, found

    def clocks(self) -> dict[str, float]:
        """Seconds that pass whether or not anything happens."""
        now = time.monotonic() if self._ended is None else self._ended
        return {"run": now - self._began, "round": now - self._round_began if self._round_began else 0.0}

    @property
    def ended(self) -> bool:
        return self._ended is not None

    @property
    def stopped(self) -> bool:
        """Ended by whoever runs the command, who then does not want to wait for anything."""
        return bool(self._sections["run"]["status"] == "stopped")

    def written(self, path: str | None, good: str = "") -> None:
        """The report is there, at this path if it was written to disk; good: how good the model is, in a sentence."""
        with self._lock:
            self._put("result", {**(self._sections["result"] or {}), "report": True, "path": path})
            if good:
                self._update("run", text=f"Done. {good}")

    # What events do

    def _put(self, name: str, value: Any) -> None:
        """Sections are replaced, never altered: readers hold the old one."""
        self._version += 1
        self._sections[name], self._changed[name] = value, self._version

    def _update(self, name: str, **values: Any) -> None:
        self._put(name, {**self._sections[name], **values})

    def _append(self, name: str, item: Any, most: int) -> None:
        self._put(name, [*self._sections[name][-(most - 1) :], item])

    def _mark(self, agents: Any, state: str) -> None:
        for agent in agents:
            self._states[agent] = state
        self._put("states", None)  # put together when somebody reads

    def _name(self, agent: int) -> str:
        name: str = self._sections["names"][agent]
        return name

    def _planned(self, event: events.Planned) -> None:
        self._runs, self._before = self._runs + 1, self._rows
        self._states = [ABSENT] * len(event.agents)
        self._put("names", list(event.agents))
        self._put("out", [])
        self._mark((), ABSENT)
        begun = {"status": "gathering", "text": "Waiting for agents", "inside": None}
        self._update("run", protocol=event.protocol, plan=event.plan, **begun)

    def _joined(self, event: events.Joined) -> None:
        self._mark([a for a in event.agents if self._states[a] == ABSENT], HERE)
        self._update("run", joined=len(event.agents))

    def _announced(self, event: events.Announced) -> None:
        self._mark(event.agents, HERE)
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(event.attempt / 1000))
        self._update("run", status="running", text=f"Announced to {len(event.agents)} agents", attempt=when)

    def _company(self, event: events.Company) -> None:
        inside = set(event.agents)
        self._mark([a for a in range(len(self._states)) if a not in inside], OUT)
        self._put("out", [{"agent": name, "text": why} for name, why in event.out.items()])
        self._update("run", inside=len(inside))

    def _asked(self, event: events.Asked) -> None:
        self._round_began = time.monotonic()
        members = [a for a, state in enumerate(self._states) if state in (HERE, ANSWERED, ASKED)]
        self._mark(members, ASKED)
        self._put("now", {"round": event.round, "what": "", "answered": 0, "of": len(members)})
        self._update("run", status="running", text="Running")

    def _answered(self, event: events.Answered) -> None:
        now = self._sections["now"]
        if now is None or self._states[event.agent] != ASKED:
            return
        self._mark([event.agent], ANSWERED)
        what = _words(event.what) if event.what else now["what"]
        self._put("now", {**now, "what": what, "answered": now["answered"] + 1})

    def _ignored(self, event: events.Ignored) -> None:
        text = f"{event.bytes} bytes ignored: {event.reason}"
        self._append("notices", {"agent": self._name(event.agent), "text": text}, MOST_LINES)

    def _refused(self, event: events.Refused) -> None:
        self._mark([event.agent], REFUSED)
        name = self._name(event.agent)
        reason = event.reason.removeprefix(f"{name}: ")  # an agent signs its reason with its name
        self._append("notices", {"agent": name, "text": f"refused: {reason}"}, MOST_LINES)

    def _round_done(self, event: events.RoundDone) -> None:
        row = {
            "round": event.round, "what": _words(event.what), "seconds": event.seconds,
            "up": byte_count(event.bytes_up), "down": byte_count(event.bytes_down), "total": event.what in TOTALS,
        }  # fmt: skip
        self._append("rounds", row, MOST_ROUNDS)
        self._put("now", None)
        self._round_began = 0.0

    def _learned(self, event: events.Learned) -> None:
        self._rows = _together(self._before, event.rows, self._collects)
        self._put("ledger", [
            {
                "what": row["what"], "size": " × ".join(f"{n:,}" for n in row["shape"]), "times": row["times"],
                "numbers": prod(row["shape"]) * row["times"], "means": meaning(row["what"], self._collects),
                "grave": row["what"] in GRAVE,
            }
            for row in self._rows
        ])  # fmt: skip

    def _finished(self, event: events.ModelReleased) -> None:
        test = event.metrics["test"]["free_run"]
        facts = [
            ("test R², free run", number(_float(test["r2"]), 3)),
            ("test RMSE, free run", f"{number(_float(test['rmse']), 3)} K"),
            ("agents", f"{event.agents:,}"),
            ("rows released", f"{event.rows:,}"),
            *self._weights_facts(event),
            *([] if self._collects else [("totals opened", f"{event.sums}")]),
            ("time, set-up apart", f"{event.seconds:.1f} s"),
        ]
        head = ["lag", *(f"{letter} [{unit}]" for _, letter, unit in COLUMNS)]
        model = [head, *([f"t−{m}", *_lag(event.model, m)] for m in range(len(event.model["beta"])))]
        self._end()
        self._mark([a for a, state in enumerate(self._states) if state != OUT], DONE)
        result = {"facts": facts, "model": model, "notes": list(event.notes), "report": False, "path": None}
        self._put("result", result)
        plan = self._sections["run"]["plan"] if self._runs == 1 else ""  # of the last run alone
        self._update("run", status="done", text="Done: the model is there", plan=plan)

    @property
    def _collects(self) -> bool:
        """Rows with equal weights, from which the aggregator estimates the model itself."""
        return bool(self._sections["run"]["protocol"] == "collect")

    def _weights_facts(self, event: events.ModelReleased) -> list[tuple[str, str]]:
        if self._collects:
            return [("weights", "equal")]
        return [("status", f"{event.status}, {event.iterations} iterations"), ("ridge λ", f"{event.ridge:g} K²")]

    def _end(self) -> None:
        self._ended, self._round_began = time.monotonic(), 0.0
        self._put("now", None)

    def _aborted(self, event: events.Aborted) -> None:
        self._end()
        status = "stopped" if event.stopped else "aborted"
        self._update("run", status=status, text=f"Ended without a result: {event.reason}")

    def _said(self, event: events.Said) -> None:
        self._append("log", event.text, MOST_LINES)

    _HANDLERS: dict[type, Callable[["LiveState", Any], None]] = {
        events.Planned: _planned,
        events.Joined: _joined,
        events.Announced: _announced,
        events.Company: _company,
        events.Asked: _asked,
        events.Answered: _answered,
        events.Ignored: _ignored,
        events.Refused: _refused,
        events.RoundDone: _round_done,
        events.Learned: _learned,
        events.ModelReleased: _finished,
        events.Aborted: _aborted,
        events.Said: _said,
    }


def _together(before: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], collects: bool) -> list[dict[str, Any]]:
    """Two ledgers as one. Rows collected in portions add up to one series; anything else came so many times."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (*before, *rows):
        series = collects and row["times"] == 1 and len(row["shape"]) == 1
        key = (row["party"], row["what"], *(() if series else row["shape"]))
        known = found.get(key)
        if known is None:
            found[key] = dict(row)
        elif series:
            known["shape"] = [known["shape"][0] + row["shape"][0]]
        else:
            known["times"] += row["times"]
    return list(found.values())


def _lag(model: dict[str, tuple[float, ...]], m: int) -> list[str]:
    """The coefficients of one lag; α has none at lag 0."""
    alpha = number(model["alpha"][m - 1], 5) if m else ""
    return [alpha, *(number(model[name][m], 5) for name, _, _ in COLUMNS[1:])]


def _words(what: str) -> str:
    return ROUNDS.get(what, what or "no words of agents")


def _float(value: float | None) -> float:
    return float("nan") if value is None else value


# The page


@cache
def live_page() -> tuple[str, str]:
    """The page, and the policy it is to be served with: its own style and script, its own server, nothing else."""
    style, script = static("page.css") + static("live.css"), static("live.js")
    legend = "".join(
        f'<li><span class="chip" data-state="{letter}">{escape(text)}</span> <b data-count="{letter}">0</b></li>'
        for letter, text in STATES.items()
    )
    page = Template(static("live.html")).substitute(style=style, script=script, legend=legend)
    policy = (
        f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy
