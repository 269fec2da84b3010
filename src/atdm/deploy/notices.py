"""What the authority signed and anybody may carry, and where an agent keeps it: the newest roster, rows of weather.

The aggregator sends an agent what it lacks, before it asks it anything (`pack`); `Kept` is the agent's side.

Rule 1: the authority's signature counts, never who carried it.
Rule 2: a roster is kept if its number is above that of the one kept. A run's roster does not change: the newest one is
        looked up at the next announcement, and the one before stays, for a restart within the run.
Rule 3: a stamp's weather is never replaced once it is kept. Rows far from the agent's own weather are not kept.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from atdm.data.format import Format
from atdm.data.readings import Weather
from atdm.deploy.enrolment import AgentKeys, SignedWeather, json_bytes, read_roster
from atdm.deploy.log import Line
from atdm.deploy.own import weather_from
from atdm.errors import AtdmError, DataError, PeerError
from atdm.protocol.plan import Plan, last_row
from atdm.protocol.readings import weather_hash
from atdm.protocol.roster import Roster, check_roster, place_of
from atdm.transport.disk import replace_file
from atdm.transport.frames import MOST_HELD
from atdm.types import BoolArray

NO_WEATHER = Weather(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
MARK = b"atdm notice\n"  # what a message begins with that asks nothing
NAME_BYTES = 16
MOST_BYTES = 1 << 24  # of one message: a roster of 100 000 agents, or twenty years of weather
Notice = Roster | SignedWeather


class _Carried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    roster: Roster | None = None
    weather: SignedWeather | None = None


def name_of(notice: Notice) -> bytes:
    """By which an agent says that it holds it."""
    return notice.hash()[:NAME_BYTES]


def pack(notices: Sequence[Notice]) -> bytes:
    """A message with at most one notice of each kind."""
    roster = next((notice for notice in notices if isinstance(notice, Roster)), None)
    weather = next((notice for notice in notices if isinstance(notice, SignedWeather)), None)
    return MARK + msgspec.msgpack.encode(_Carried(roster, weather))


def unpack(message: bytes) -> list[Notice]:
    if len(message) > MOST_BYTES:
        raise PeerError(f"a notice of {len(message)} bytes where at most {MOST_BYTES} are expected: ignored")
    try:
        found = msgspec.msgpack.decode(message[len(MARK) :], type=_Carried)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PeerError(f"a notice of {len(message)} bytes that does not decode: ignored") from None
    return [notice for notice in (found.roster, found.weather) if notice is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWeather:
    """An agent's own weather table, if it has one, and how far published rows may be from it."""

    path: Path | None = None
    declared: Format | None = None
    outdoor: float = 5.0  # K
    solar: float = 500.0  # W/m²: a cloud over one of two stations

    def read(self) -> Weather | None:
        return None if self.path is None else weather_from(self.path, self.declared)


class Kept:
    """What one agent keeps of what was published, in its state folder."""

    def __init__(
        self, folder: Path, keys: AgentKeys, roster: Path | None, weather: OwnWeather, say: Callable[[str], None],
        least: int = 0,
    ) -> None:  # fmt: skip
        """roster: a file that wins where its number is higher; least: the number of the newest that was ever seen."""
        self._keys, self._file, self._own, self._say, self._least = keys, roster, weather, say, least
        self._places = folder / "roster.json", folder / "weather.json"
        self._before = folder / "roster.before.json"
        self._roster = read_roster(self._places[0], keys.pinned.authority) if self._places[0].exists() else None
        self._weather = _read_weather(self._places[1])
        self._seen: deque[bytes] = deque(maxlen=MOST_HELD - 1)  # names of what came, taken or not
        if self._file is not None:
            self._look(self._file)

    def holds(self) -> tuple[bytes, ...]:
        """Names of what need not be sent again."""
        return (*self._seen, *([] if self._roster is None else [name_of(self._roster)]))

    def take(self, message: bytes) -> None:
        """Keep what a message brings, as far as the rules allow; what they do not is said in the agent's own log."""
        try:
            for notice in unpack(message):
                try:
                    self._take_roster(notice) if isinstance(notice, Roster) else self._take_weather(notice)
                except PeerError:
                    self._seen.append(name_of(notice))  # nor wanted another time
                    raise
                self._seen.append(name_of(notice))
        except AtdmError as error:
            self._tell(str(error))

    # Rosters

    def newest(self) -> Roster:
        """The roster with the highest number of those that were published and the one in the file."""
        if self._file is not None:
            try:
                self._look(self._file)
            except AtdmError as error:  # it names this agent's folders
                self._tell(str(error))
                if self._roster is None:
                    raise DataError("its roster cannot be read at present: see this agent's own log") from None
        if self._roster is None:
            raise PeerError("no roster yet: it comes with the first run of an aggregator that has one")
        return self._roster

    def listing(self) -> Roster | None:
        """The newest roster, if there is one and this agent is in it."""
        return self._roster if self._roster is not None and self._listed(self._roster) else None

    def named(self, wanted: bytes) -> Roster | None:
        """The one with this hash, of the newest and the one before it, if this agent is in it."""
        known = [] if self._roster is None else [self._roster]
        with contextlib.suppress(AtdmError):  # where it cannot be read, the run that needs it is lost and nothing else
            known += [read_roster(self._before, self._keys.pinned.authority)] if self._before.exists() else []
        return next((roster for roster in known if roster.hash() == wanted and self._listed(roster)), None)

    def _look(self, path: Path) -> None:
        found = read_roster(path, self._keys.pinned.authority)
        if self._roster is None or found.serial > self._roster.serial:
            if found.serial < self._least:
                raise PeerError(
                    f"{path}: roster {found.serial} is older than {self._least}, which this agent has seen: get the "
                    "newest from the enrolment authority"
                )
            self._keep(found)

    def _take_roster(self, roster: Roster) -> None:
        check_roster(roster, self._keys.pinned.authority)
        if self._roster is not None and roster.serial <= self._roster.serial:
            raise PeerError(f"roster {roster.serial} came, and this agent keeps {self._roster.serial}: ignored")
        if roster.serial < self._least:
            raise PeerError(f"roster {roster.serial} came, and this agent has seen {self._least}: ignored")
        self._keep(roster)
        self._tell(f"was sent roster {roster.serial}, with {len(roster)} agents")

    def _keep(self, roster: Roster) -> None:
        if self._roster is not None:
            replace_file(self._before, json_bytes(self._roster))
        replace_file(self._places[0], json_bytes(roster))
        self._roster = roster
        if not self._listed(roster):
            self._tell(
                f"roster {roster.serial} does not list this agent's key: it was retired or replaced and stays out; ask "
                "the enrolment authority if that is a mistake"
            )

    def _listed(self, roster: Roster) -> bool:
        return place_of(self._keys.identity.public, roster.members) is not None

    # Weather

    def weather(self, plan: Plan) -> Weather:
        """Of the published rows and this agent's own those that the plan's hash names; its own where neither is."""
        ends = plan.start, last_row(plan)
        if weather_hash(self._weather, *ends) == plan.weather:
            return self._weather
        try:
            return self._own.read() or self._weather
        except AtdmError as error:
            self._tell(str(error))
            return self._weather

    def _take_weather(self, signed: SignedWeather) -> None:
        new = signed.rows(self._keys.pinned.authority)
        near = self._near(new)
        fresh = near & ~np.isin(new.time, self._weather.time)
        both = np.isin(new.time, self._weather.time)
        at = np.searchsorted(self._weather.time, new.time[both])
        other = (new.outdoor[both] != self._weather.outdoor[at]) | (new.solar[both] != self._weather.solar[at])
        if other.any():
            self._tell(f"{int(other.sum())} published rows of weather differ from those kept before, which stay")
        if fresh.any():
            self._weather = _joined(self._weather, new, fresh)
            replace_file(self._places[1], json_bytes(SignedWeather.of(self._weather)))
        self._tell(f"{int(fresh.sum())} published rows of weather kept, {len(self._weather.time)} in all")

    def _near(self, new: Weather) -> BoolArray:
        """Rows that are not far from this agent's own, where it has some of the same stamps."""
        own = self._own.read()
        near = np.ones(len(new.time), dtype=bool)
        if own is None:
            return near
        both = np.isin(new.time, own.time)
        at = np.searchsorted(own.time, new.time[both])
        outdoor, solar = np.abs(new.outdoor[both] - own.outdoor[at]), 1000 * np.abs(new.solar[both] - own.solar[at])
        near[both] = (outdoor <= self._own.outdoor) & (solar <= self._own.solar)
        if not near.all():
            self._tell(
                f"{int((~near).sum())} published rows of weather are not kept: they differ from {self._own.path} by up "
                f"to {outdoor.max():.3g} K and {solar.max():.3g} W/m², more than {self._own.outdoor:g} K or "
                f"{self._own.solar:g} W/m²; fits over these rows go on without this home"
            )
        return near

    def _tell(self, text: str) -> None:
        self._say(Line(text, event="notice", agent=self._keys.name))


def _read_weather(path: Path) -> Weather:
    if not path.exists():
        return NO_WEATHER
    try:
        return msgspec.json.decode(path.read_bytes(), type=SignedWeather).unchecked()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, PeerError, RecursionError):
        raise DataError(f"{path} cannot be read: remove it, and the weather is sent again") from None


def _joined(kept: Weather, new: Weather, rows: BoolArray) -> Weather:
    time = np.concatenate([kept.time, new.time[rows]])
    order = np.argsort(time)
    outdoor, solar = (
        np.concatenate([a, b[rows]])[order] for a, b in ((kept.outdoor, new.outdoor), (kept.solar, new.solar))
    )
    return Weather(time[order], outdoor, solar)
