"""The owner's page: what a home was asked, what left it, what it has given of each day, and what its owner decides.

Rule 1: it shows what stands in the agent's state folder (account, history, choice) and whether it is connected. It
        changes nothing but the choice.
Rule 2: names, counts, sizes, times and reasons; a reading, a key or a weight is in nothing it makes.
Rule 3: it is bounded: of lists that grow the newest are shown.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from atdm.data.seconds import spell
from atdm.deploy.agent import RunningAgent, read_account
from atdm.deploy.log import Line
from atdm.deploy.owner import Asked, Exchange, choice_of, choose, chosen_since
from atdm.options import OwnerChoice
from atdm.protocol.account import BLOCK
from atdm.protocol.agent import AgentState
from atdm.protocol.plan import DAY
from atdm.protocol.registry import REGISTRY
from atdm.protocol.rules import Rules
from atdm.report.account_text import statement
from atdm.report.parts import byte_count, source_hash, static
from atdm.transport.disk import replace_file
from atdm.ui.host import Address, hosting, new_token

if TYPE_CHECKING:
    from atdm.ui.owner_site import OwnerSite

MOST_EXCHANGES = 2000  # lines of history that are looked at
MOST_RUNS, MOST_MESSAGES, MOST_DAYS = 100, 200, 400
LOOK_SECONDS = 0.5  # between two looks at the state folder
DONE = {"takes part": "resumed", "paused": "paused", "left": "left for good"}  # in the log

Say = Callable[[str], None]


class Home:
    """One agent's sections of the page, by name, each with the version at which it last changed."""

    def __init__(self, running: RunningAgent, say: Say) -> None:
        self._running, self._say = running, say
        self._version, self._looked = 0, 0.0
        self._sections: dict[str, Any] = {}
        self._changed: dict[str, int] = {}
        self._seen: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        return self._running.keys.name

    def since(self, version: int) -> tuple[int, dict[str, Any]]:
        """The version now, and the sections that changed after `version` (0: all of them)."""
        self._look()
        return self._version, {name: self._sections[name] for name, at in self._changed.items() if at > version}

    def clocks(self) -> dict[str, float]:
        return {}

    def choose(self, wanted: OwnerChoice) -> None:
        """The owner used a switch."""
        choose(self._running.state, wanted)
        self._say(Line(f"{DONE[wanted]} by its owner", event=wanted.replace(" ", "-"), agent=self.name))
        self._looked = 0.0

    def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        running, agent = self._running, self._running.agent
        state, link, today = running.state, running.link, int(time.time()) // DAY
        under_way = agent.state in (AgentState.JOINED, AgentState.RUNNING)
        connected = link is not None and link.connection.connected
        roster = running.kept.listing()
        seen = (running.history.version, choice_of(state), connected, under_way, roster and roster.serial, today)
        if seen == self._seen:
            return
        names = {member.identity: member.name for member in agent.roster.members}
        choice, since = choice_of(state), chosen_since(state)
        account = statement(read_account(state), names, choice, since)
        history = running.history.last(MOST_EXCHANGES)
        runs = list(runs_of(history, under_way))
        self._put("home", {
            "name": self.name, "choice": choice, "since": since, "connected": connected, "under_way": under_way,
            "server": link.connection.servers if link is not None else "", "homes": roster and roster.owners(),
            "next_block": _date((today // BLOCK + 1) * BLOCK), "allows": allowed(agent.own.rules),
        })  # fmt: skip
        self._put("facts", _facts(account["days"], history))
        self._put("runs", runs[::-1][:MOST_RUNS])
        self._put("days", [_day(row) for row in account["days"][::-1][:MOST_DAYS]])
        self._put("messages", [_message(each) for each in history[::-1][:MOST_MESSAGES]])
        self._seen = seen

    def _put(self, name: str, value: Any) -> None:
        if name not in self._sections or self._sections[name] != value:
            self._version += 1
            self._sections[name], self._changed[name] = value, self._version


def allowed(rules: Rules) -> list[str]:
    """What the agent's own limits let it take part in, in words for people."""
    words = []
    if "blind" in rules.protocols:
        words.append(
            f"Sums of at least {rules.least_agents} homes: their mean temperature and their heating together. Your "
            "own numbers are hidden in them before they leave."
        )
        if rules.weights == "fitted":
            words.append(
                "Models that the homes fit together, with weights of their own. This protects less well against a "
                "dishonest home than plain sums do."
            )
    words += [
        f"Also the protocol {name}, which shows the aggregator {REGISTRY[name].reveals}."
        for name in rules.protocols
        if name != "blind"
    ]
    return words


def runs_of(history: Sequence[Exchange], under_way: bool) -> Iterator[dict[str, Any]]:
    """Each announcement with what followed it, oldest first."""
    starts = [i for i, each in enumerate(history) if each.message == "Announce"]
    for start, end in pairwise([*starts, len(history)]):
        own = history[start:end]
        kind, text = _outcome(own, under_way and end == len(history))
        taken = [each for each in own if not each.ignored]
        yield {
            "time": own[0].time, "what": _what(own[0].asked), "kind": kind, "outcome": text,
            "window": own[0].asked and [own[0].asked.start, own[0].asked.end],
            "messages": sum(len(each.sent) for each in taken), "bytes": byte_count(sum(each.bytes for each in taken)),
        }  # fmt: skip


def _what(asked: Asked | None) -> str:
    if asked is None:
        return "something that could not be read"
    rows = f"{asked.rows:,} rows of {spell(asked.step)}"
    if asked.protocol == "collect":
        rows = f"up to {rows}"  # a run takes some days of what is announced, the next one goes on with the rest
        how = "" if asked.weights == "equal" else ", weighted as in an earlier fit"
        return f"mean temperature and heating of all homes together{how}: {rows}"
    if asked.protocol == "blind":
        return f"a model of all homes together: {rows}"
    return f"a model under the protocol {asked.protocol}: {rows}"


def _outcome(run: Sequence[Exchange], under_way: bool) -> tuple[str, str]:
    """How a run went for this home: a kind for the page's colours, and words."""
    first, rest = run[0], [each for each in run[1:] if not each.ignored]
    if first.ignored:
        return "out", f"not answered: {first.reason}"
    inside, of = first.days
    if "Refuse" in first.sent or not inside:
        return "out", f"your home stayed out: {_own(first.reason)}"
    part = "" if inside == of else f" on {inside} of {of} days ({first.reason})"
    for each in rest:
        if "Refuse" in each.sent and "not in the company" in each.reason:
            return "out", "the others went on without your home this time"
        if "Refuse" in each.sent:
            return "stopped", f"your home ended it: {_own(each.reason)}"
        if each.message == "Abort":
            return "stopped", f"ended without a result; the aggregator says: {each.reason or 'nothing'}"
        if each.message == "Finished":
            return "done", f"your home took part{part}"
    return ("open", f"under way{part}") if under_way else ("stopped", f"your home took part{part}; no end was heard")


def _own(reason: str) -> str:
    """A refusal without the name that signs it."""
    return reason.partition(": ")[2] or reason


def _facts(days: Sequence[dict[str, Any]], history: Sequence[Exchange]) -> list[tuple[str, str]]:
    given = [day for day in days if day["rows_sent"]]
    sent = [each for each in history if each.sent]
    return [
        ("days given so far", f"{len(given):,}"),
        ("readings in sums", f"{sum(day['rows_sent'] for day in given):,}"),
        ("homes together with yours", _span(day["company"] - 1 for day in given if day["company"])),
        ("messages sent lately", f"{sum(len(each.sent) for each in sent):,}, {byte_count(sum(e.bytes for e in sent))}"),
    ]


def _span(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return "–" if not found else f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _day(row: dict[str, Any]) -> dict[str, Any]:
    """A day of the account, for people."""
    ways = {None: "", "equal": "mean of all homes", "fitted": "model of all homes"}
    return {
        "day": row["day"], "in": {True: "in", False: "out", None: "not asked"}[row["in"]], "way": ways[row["weights"]],
        "sent": row["rows_sent"], "filled": row["rows_filled"], "with": row["with"], "left": row["left"],
    }  # fmt: skip


def _message(each: Exchange) -> dict[str, Any]:
    sent = "nothing, it was ignored" if each.ignored else ", ".join(each.sent) or "nothing"
    return {
        "time": each.time, "asked": each.message, "received": byte_count(each.received), "sent": sent,
        "bytes": byte_count(each.bytes), "reason": each.reason,
    }  # fmt: skip


def _date(day: int) -> str:
    return str(datetime.fromtimestamp(day * DAY, UTC).date())


# The page


def page(homes: Sequence[Home], at: int, word: str) -> tuple[str, str]:
    """The page of one home, and the policy it is to be served with; word: what its switches prove themselves with."""
    style, script = static("page.css") + static("live.css") + static("owner.css"), static("owner.js")
    choice = "".join(
        f'<a href="?home={i}"{" aria-current=page" if i == at else ""}>{escape(home.name)}</a>'
        for i, home in enumerate(homes)
    )
    text = Template(static("owner.html")).substitute(
        style=style, script=script, word=escape(word), home=str(at), name=escape(homes[at].name),
        homes=f'<nav aria-label="Homes">{choice}</nav>' if len(homes) > 1 else "",
    )  # fmt: skip
    policy = (
        f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


@contextmanager
def serving_owner(address: Address, say: Say, agents: Sequence[RunningAgent]) -> Iterator["OwnerSite"]:
    """The page of these agents, from the moment the block is entered."""
    homes, kept = [Home(running, say) for running in agents], agents[0].state / "page-address"
    token = None if address.loopback else kept_token(kept)

    def make(names: frozenset[str]) -> "OwnerSite":
        from atdm.ui.owner_site import OwnerSite

        return OwnerSite(homes, names, token)

    with hosting(make, address) as (site, where):
        if token is not None:  # into no log: it opens the page for as long as the file is there
            replace_file(kept, f"{where.url()}?token={token}\n".encode())
        how = f"; open it by the address in {kept}, which has its token" if token else ""
        say(Line(f"owner's page: {where.url()}{how}", event="page"))
        yield site


def kept_token(kept: Path) -> str:
    """The token in the file of an earlier start, so that a bookmark stays good, or a new one."""
    try:
        found = kept.read_text(encoding="ascii").strip().rpartition("?token=")[2]
    except (OSError, UnicodeDecodeError):
        found = ""
    return found if len(found) >= len(new_token()) else new_token()
