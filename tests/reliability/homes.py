"""The homes of a simulation: what happens to one, what left it, and a twin with other readings.

`Home` is one identity with what survives its process. `Witness` judges what left it by the messages it took and its
words before masks went on them: the rules of docs/spec.md §6 written down a second time, without a look at its account.
`conduct` replays everything that happened to a home on a twin that has the same stamps, keys and randomness and other
readings. The twin is shown the very bytes that the first was shown, sums included, so nothing it does may differ but
for the words under masks: not which messages it sends, when, how long, or with which reason it leaves. (In a second
world of its own the sums, and with them stop and ridge, would rightly be others: those follow from opened integers.)
"""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import SigningKey
from atdm.data.readings import Readings, Weather
from atdm.errors import PeerError
from atdm.options import OwnerChoice
from atdm.protocol.agent import Agent
from atdm.protocol.blind.layouts import open_layout
from atdm.protocol.collect import show_layout
from atdm.protocol.messages import Announce, Keys, Masked, Refuse, Release, ToAgent, ToAggregator, Total
from atdm.protocol.part import Host
from atdm.protocol.plan import DAY, AnyPlan
from atdm.protocol.roster import Roster
from atdm.protocol.rules import Rules
from atdm.protocol.session import Session
from atdm.protocol.store import Entry, disclose
from tests.protocol.world import Killed, Ram, written

ASKINGS, SIGNS, BLOCK, HOLE = 4, 3, 28, 6 * 3600  # of one question or stamp; of a day; days; s
to_agent, to_aggregator = msgspec.msgpack.Decoder(ToAgent), msgspec.msgpack.Decoder(ToAggregator)
Company = frozenset[bytes]  # identities


class Wrong(AssertionError):
    """Something that must never happen did."""


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


_plain: list[np.ndarray] = []  # words before their masks, of the message that is being answered


@contextmanager
def listening() -> Iterator[None]:
    """Hear what an agent is about to mask."""
    true = Session.mask

    def mask(self: Session, words: np.ndarray, nonce: bytes) -> None:
        _plain.append(words.copy())
        true(self, words, nonce)

    with patch.object(Session, "mask", mask):
        yield


class Home:
    """One identity. What happens to it is in `log`, what a bystander sees of that in `seen`."""

    def __init__(self, key: SigningKey, seed: str, readings: Readings, weather: Weather, rules: Rules,
                 host: Host | None = None) -> None:  # fmt: skip
        self.key, self.readings, self.weather, self.rules, self.host = key, readings, weather, rules, host or Host()
        self.seed, self.draw = seed, random.Random(seed).randbytes
        self.secret = self.draw(32)
        self.agent: Agent | None = None
        self.choice: OwnerChoice = "takes part"
        self.log: list[tuple[Any, ...]] = []
        self.seen: list[Any] = []
        self.wipe()

    # What happens to a home

    def wipe(self) -> None:
        """Its disk is lost, and with it its account."""
        self.log.append(("wipe",))
        self.store, self.agent, self.witness, self.truth = Ram(), None, Witness(self.rules), self.readings
        self.overheard: tuple[Any, ...] = (b"", [], None)

    def restart(self) -> None:
        self.log.append(("restart",))
        self.agent = None

    def kill(self, writes: int, after: bool) -> None:
        """At a write that comes: just before it, or just after."""
        self.log.append(("kill", writes, after))
        self.store.die, self.store.after = writes, after

    def renew(self, roster: Roster, until: int) -> None:
        """The roster and the readings there are from now on."""
        self.log.append(("renew", roster, until))
        self.roster, self.until = roster, until

    def decide(self, choice: OwnerChoice) -> None:
        """Its owner takes part, or does not for now."""
        self.log.append(("decide", choice))
        self.choice = choice

    def correct(self, by: float) -> None:
        """Its file is corrected, and its agent started again. [K]"""
        self.log.append(("correct", by))
        self.agent = None
        r, left = self.readings, written(self.store).account.time if self.store.snapshot else []
        self.readings = Readings(r.time, r.temperature + by, r.load)
        self.truth = replace(self.truth, temperature=self.truth.temperature + by * ~np.isin(r.time, left))

    def hear(self, data: bytes) -> list[bytes]:
        """One message; what it hands out is judged. Killed: its process ended before it answered."""
        self.log.append(("hear", data))
        veil = None
        try:
            agent = self.started()
            _plain.clear()
            veil = getattr(getattr(agent.part, "_veil", None), "_veil", None)
            replies = agent.receive(data)
        except Killed:
            self.agent = None
            self.seen.append("killed")
            if self.store.entries and disclose(self.store.entries[-1], Entry).message == data:
                self.witness.saw(to_agent.decode(data), [], [], veil, self)  # taken; what it answers leaves later
            raise
        except PeerError as error:
            self.seen.append(str(error))
            raise
        finally:
            if _plain:
                self.overheard = (data, list(_plain), veil)
        said = [to_aggregator.decode(reply) for reply in replies]
        self.seen.append([visible(each) for each in said])
        plain = self.overheard[1] if self.overheard[0] == data else []
        veil = self.overheard[2] if plain else veil
        self.witness.saw(to_agent.decode(data), said, plain, veil, self)
        return replies

    def started(self) -> Agent:
        if self.agent is None:
            self.agent = Agent(
                identity=self.key, secret=self.secret, roster=self.roster, authority=self.roster.authority,
                readings=self.known(), weather=self.weather, rules=self.rules, random_bytes=self.draw,
                store=self.store, host=self.host, renew=self.known, renew_roster=lambda: self.roster,
                owner=lambda: self.choice,
            )  # fmt: skip
        return self.agent

    def look(self) -> Agent:
        """Its agent, for somebody who looks in from outside: started where it is not, whatever kills it."""
        self.log.append(("look",))
        while True:
            with suppress(Killed):
                return self.started()

    def known(self) -> Readings:
        return self.readings.at(np.flatnonzero(self.readings.time < self.until))


def visible(reply: Any) -> tuple:
    """A message as it is seen: everything in it, but of masked words only how many."""
    fields = msgspec.structs.asdict(reply)
    if "words" in fields:
        fields["words"] = len(fields["words"])
    return type(reply).__name__, fields


def conduct(home: Home, readings: Readings) -> str | None:
    """What a twin with these readings did differently; None where nothing shows."""
    twin = Home(home.key, home.seed, readings, home.weather, home.rules)
    for what, *given in home.log[1:]:
        try:
            getattr(twin, what)(*given)
        except (Killed, PeerError):
            pass
        if twin.seen and twin.seen[-1] != home.seen[len(twin.seen) - 1]:
            one, other = home.seen[len(twin.seen) - 1], twin.seen[-1]
            return f"with other readings {other!r:.300} instead of {one!r:.300}"
    one, other = (each.look().own.memory.account for each in (home, twin))
    same = (one.questions, one.days, one.shown.tolist()) == (other.questions, other.days, other.shown.tolist())
    return None if same else "another account with other readings"


def rows_asked(plan: AnyPlan, days: set[int]) -> list[int]:
    asked = getattr(plan, "asked", b"")
    return [
        t for k in range(plan.length)
        if (t := plan.start + k * plan.step_seconds) // DAY in days and (not asked or asked[k // 8] >> k % 8 & 1)
    ]  # fmt: skip


def flagged(data: bytes) -> list[int]:
    return [k for k in range(8 * len(data)) if data[k // 8] >> k % 8 & 1]


def chained(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


class Witness:
    """What one identity gave, by what left it, and whether that is within its limits."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.plan = rules, None
        self.company: dict[int, Company] = {}  # by day, in the order in which they were settled
        self.grid: dict[int, int] = {}
        self.weighting: dict[int, str] = {}
        self.model: dict[int, bytes] = {}  # day → the fit it was released in, or is shown under
        self.totals: dict[int, set[bytes]] = defaultdict(set)  # day → questions
        self.opens: dict[int, set[bytes]] = defaultdict(set)
        self.signs: dict[int, set[bytes]] = defaultdict(set)
        self.times: Counter = Counter()  # question, or stamp → times answered
        self.words: dict[Any, Any] = {}  # question → the answer; stamp and weighting → numbers
        self.fits: dict[bytes, bytes] = {}  # run → the fit that was released in it
        self.judged: set[tuple[bytes, int, str]] = set()
        self.taken: set[tuple[bytes, int]] = set()
        self.history = b""
        self.shows: list[tuple[bytes, Company, list[int]]] = []  # run, company, stamps whose numbers left
        self.plain: dict[tuple[bytes, int], np.ndarray] = {}  # run, step → words of a fit before veil and masks
        self.opened: list[tuple[bytes, int, np.ndarray]] = []  # run, step, words of a total it took

    def saw(self, message: Any, said: list[Any], plain: list[np.ndarray], veil: np.ndarray | None, home: Home) -> None:
        """A message that was taken, and what left for it; plain: words before masks; veil: of the sum that was open."""
        if any(isinstance(each, Refuse) for each in said):
            return
        if isinstance(message, Announce):
            self.plan, self.roster = message.plan, home.roster
        elif isinstance(message, Keys):
            self._agreed(message)
        if self.plan is None or self.plan.protocol not in ("blind", "collect"):
            return
        left = [each for each in said if isinstance(each, Masked | Release)]
        phases = {(each.run, each.step, getattr(each, "phase", "release")) for each in left}
        if phases and (phases <= self.judged or not plain):
            need(phases <= self.judged, "words left that were never heard before")
            return  # sent again
        self.judged |= phases
        if isinstance(message, Total) and veil is not None and (message.run, message.step) not in self.taken:
            self.taken.add((message.run, message.step))
            words = ring.from_bytes(message.words, len(veil)) - veil
            self.opened.append((message.run, message.step, words))
            self.history = chained(self.history, words[: -ring.CHECK_WORDS].tobytes())  # check keys are a run's own
        for reply, words in zip(left, plain, strict=True):
            part = home.started().part
            if part is not None and self.plan.protocol == "blind":
                self._answered(reply, words, part)
            else:
                self._collected(message, reply, words)

    def _agreed(self, keys: Keys) -> None:
        members = [self.roster.members[k] for k in flagged(keys.company)]
        self.ids, first = frozenset(member.identity for member in members), self.plan.start // DAY
        self.days = {first + k for k in flagged(keys.days)}
        self.rows, self.history = rows_asked(self.plan, self.days), b""
        self.owners, enrolled = ({m.owner for m in some} for some in (members, self.roster.members))
        if self.plan.protocol in ("blind", "collect"):
            need(len(self.owners) >= self.rules.least_agents, "a run of too few owners")
            need(3 * len(self.owners) >= 2 * len(enrolled), "a run of less than two thirds")
        self.since = max(member.since for member in members)
        need(min(self.days) >= self.since, "a day before a key was enrolled")

    # Rows collected

    def _collected(self, message: Any, reply: Masked, words: np.ndarray) -> None:
        if reply.phase == "offer":
            self.gives = words[:-1] == 0  # random words elsewhere
            return
        everybody = ring.from_bytes(message.words, len(self.rows) + 1)[:-1] == 0
        stamps, size = np.array(self.rows)[everybody & self.gives].tolist(), int(everybody.sum())
        fit = self.fits.get(self.plan.fit, self.plan.fit)
        way = fit.hex() if fit else "equal"
        self._given(stamps, way)
        self._shown(reply.run, stamps)
        for day in {t // DAY for t in stamps} if fit else ():
            need(self.model.setdefault(day, fit) == fit, "a day under the weights of two fits")
        own = words[:-1].view(np.int64).reshape(2, size)[:, self.gives[everybody]]
        layout = show_layout(len(self.ids), size, not self.plan.fit)
        self._frozen(way, stamps, own, [block.bits for block in layout.blocks])

    # A fit

    def _answered(self, reply: Masked | Release, words: np.ndarray, part: Any) -> None:
        phase, days = getattr(reply, "phase", "release"), {t // DAY for t in part.kept.tolist()}
        if phase == "rows":
            return
        if phase != "release" and part.session.leads:
            words = words - part._veil._veil
        stamps = part.kept.tolist()
        if phase == "open":
            need(len(stamps) * self.plan.step_seconds >= self.rules.least_days * DAY, "a fit of too few days")
            self.history = chained(sorted(self.ids), self.plan, stamps)
            self._given(stamps, "fitted")
            blocks = open_layout(len(self.ids), len(stamps)).blocks
            own = words.view(np.int64)[: 2 * len(stamps)].reshape(2, -1)
            self._frozen(f"fit by {len(self.ids)}", stamps, own, [block.bits for block in blocks])
        question = chained(self.history, phase)
        self.times[question] += 1
        need(self.times[question] <= ASKINGS, "a question was answered too often")
        most = min((len(self.owners) - self.rules.colluders) // self.rules.agents_per_total, self.rules.totals)
        for day in days:
            if phase in ("open", "step"):
                self.totals[day].add(question)
                need(len(self.totals[day]) <= most, "more totals than a day has room for")
            if phase == "open":
                self.opens[day].add(question)
                need(len(self.opens[day]) == 1, "a day was opened to two fits")
            if phase == "signs":
                self.signs[day].add(question)
                need(len(self.signs[day]) <= SIGNS, "more counts of signs than a day has room for")
            if phase == "release":
                need(self.model.setdefault(day, question) == question, "two models over a day")
        if phase == "release":
            self.fits[reply.run] = question
            self._shown(reply.run, stamps)
        else:
            self.plain[reply.run, reply.step] = words
            answer = words[: -ring.CHECK_WORDS]
            need(np.array_equal(self.words.setdefault(question, answer), answer), "two answers to one question")

    # Both

    def _given(self, stamps: list[int], way: str) -> None:
        """Readings leave: of days that may be given to this company, this way, on this grid."""
        weighting = "equal" if way == "equal" else "fitted"
        for day in sorted({t // DAY for t in stamps}):
            need(day in self.days, "a row of a day that is not in the run")
            need(self.company.setdefault(day, self.ids) == self.ids, "a day summed with two companies")
            need(self.weighting.setdefault(day, weighting) == weighting, "a day shown under two weightings")
            need(self.grid.setdefault(day, self.plan.step_seconds) == self.plan.step_seconds, "a day on two grids")
            for other, known in self.company.items():
                if other // BLOCK == day // BLOCK:
                    larger, smaller = (known, self.ids) if other < day else (self.ids, known)
                    need(smaller <= larger, "companies grew within a block")
        order = list(self.company)
        for t in stamps:
            day, second = divmod(t, DAY)
            need(t >= self.since * DAY + HOLE or not self.since, "a row beside the first midnight of a key")
            for beside, near in ((day - 1, second < HOLE), (day + 1, second >= DAY - HOLE)):
                if near and self.company.get(beside, self.ids) != self.ids:  # one settled later did not show then
                    need(order.index(day) < order.index(beside), "a row beside a change of company")

    def _shown(self, run: bytes, stamps: list[int]) -> None:
        self.times.update(stamps)
        need(max((self.times[t] for t in stamps), default=0) <= ASKINGS, "a stamp was shown too often")
        self.shows.append((run, self.ids, stamps))

    def _frozen(self, way: str, stamps: list[int], numbers: np.ndarray, bits: list[int]) -> None:
        """A stamp's numbers are those that left first, to the rounding."""
        for t, *now in zip(stamps, *numbers.tolist(), strict=True):
            values = [word / 2.0**b for word, b in zip(now, bits, strict=True)]
            first = self.words.setdefault((way, t), values)
            near = all(abs(a - b) <= 2.0**-k for a, b, k in zip(first, values, bits, strict=True))
            need(near, "a reading left again as another number")
