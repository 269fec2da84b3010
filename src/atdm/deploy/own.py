"""An agent's own readings and the weather it holds, from where they are; read on whenever they are asked for.

Rule 1: what is wrong with readings may quote one. Whoever starts the agent is told; the log, which is kept and sent on,
        says it without numbers; other parties get a fixed text.
Rule 2: of a source that is not a file only the last days are asked for again; earlier rows stay as they were read.
Rule 3: a source is asked for no rows from before the home's weather begins; where it has none, for those of the last
        `history` days. A file without weather is read whole.
Rule 4: a source may be somebody else's code. Whatever it raises keeps this home out of a run and ends no process, which
        may serve other homes; of an exception that is not ours only the type is said, because its words may quote
        a reading or a password.
Rule 5: what is done to readings here is said: at the start with the source's notes, later in the log, once.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from atdm.data.format import Format
from atdm.data.own import not_later, own_readings, possible, weather_faults
from atdm.data.readings import Readings, Weather
from atdm.data.seconds import length, stamp
from atdm.data.sources.source import Rows, Source
from atdm.data.sources.table import Sky, Table, read_sky
from atdm.deploy.log import Line
from atdm.errors import DataError, UsageError

NUMBER = re.compile(r"\d[\d.,]*")
HISTORY = 400  # days
DAY = 86400  # s
BACK = 72 * 3600  # s before the newest row that are asked for again: late readings, as `atdm observe --back` has it


class OwnReadings:
    """One agent's readings. Its source is asked when it is read, and answers with what it has then."""

    def __init__(
        self, source: Source, weather: Path | None, name: str, declared: Format, history: int = HISTORY
    ) -> None:
        self.source, self.weather, self.name, self.declared, self.history = source, weather, name, declared, history
        self.quantum = 0.0  # °C, the coarsest step found in values that the source made means of
        self._rows: Rows | None = None
        self._done: tuple[str, ...] = ()  # to the rows of the last reading, in words

    def read(self) -> Readings:
        """What there is now, judged and filled; readings from before the weather begins are not read."""
        sky = None if self.weather is None else read_sky(self.weather, self.declared)
        first = self._first(sky)
        rows = self._since(first)
        self.quantum = max(self.quantum, rows.quantum)
        if rows.agent is not None and rows.agent != self.name:
            raise DataError(
                f"{self.source.name}: holds readings of {rows.agent}; this agent is {self.name}: give its own readings"
            )
        if not len(rows):
            said = "; ".join(rows.notes)
            since = "" if first is None else f" since {stamp(first + 1)}"
            why = ", where the weather begins" if sky is not None else ""
            raise DataError(
                f"{self.source.name}: has no readings{since}{why}{f' ({said})' if said else ''}: check that it has "
                "some of that time"
            )
        rows, late = not_later(rows, int(time.time()), self.source.name)
        judged, impossible = possible(rows, self.source, self.source.name)
        own = own_readings(judged, self.source, sky, length(self.declared.fill, zero=True))
        self._rows, self._done = rows, (*late, *impossible)  # as read: what is lacking is counted over all of them
        return own

    def read_again(self, say: Callable[[str], None]) -> Readings:
        """What there is now, for a run that asks for later rows."""
        before = self._done
        try:
            readings = self.read()
        except (DataError, UsageError) as error:
            text = f"{NUMBER.sub('…', str(error))} (`atdm check` with the same options shows the numbers left out here)"
            say(Line(text, event="readings", agent=self.name, level=logging.WARNING))
            raise DataError("its readings cannot be read at present: see this agent's own log") from None
        for note in (each for each in self._done if each not in before):
            say(Line(note, event="note", agent=self.name, level=logging.WARNING))
        return readings

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the readings, in words."""
        return () if self._rows is None else (*self._rows.notes, *self._done)

    def _first(self, sky: Sky | None) -> int | None:
        """The stamp after which readings are wanted; None: all."""
        if sky is not None:
            return int(sky.time[0]) - 1
        return None if isinstance(self.source, Table) else int(time.time()) - self.history * DAY

    def _since(self, first: int | None) -> Rows:
        known = None if isinstance(self.source, Table) else self._rows  # a file is read whole in any case
        if known is None or first is None:
            return self._ask(first)
        since = min(int(known.time[-1]), int(time.time())) - BACK  # a clock that was ahead leaves rows to ask for again
        if since <= first:
            return self._ask(first)
        return _joined(known.after(first), self._ask(since), since)

    def _ask(self, since: int | None) -> Rows:
        try:
            rows = self.source.rows(since)
        except (DataError, UsageError):
            raise
        except Exception as error:
            if isinstance(self.source, Table) and not isinstance(error, OSError):
                raise  # ours to mend
            text = f"{self.source.name}: cannot be read ({type(error).__name__}): see that it is there and answers"
            raise DataError(text) from None
        if not isinstance(rows, Rows):
            raise DataError(f"{self.source.name}: gave a {type(rows).__name__}, not Rows: mend its package")
        return rows


def _joined(known: Rows, now: Rows, since: int) -> Rows:
    """Rows up to a stamp as they were read, and what a source says now of the time after it."""
    kept = slice(0, int(np.searchsorted(known.time, since, side="right")))
    columns = ((known.time, now.time), (known.temperature, now.temperature), (known.load, now.load))
    stamps, temperature, load = (np.concatenate([old[kept], new]) for old, new in columns)
    return replace(now, time=stamps, temperature=temperature, load=load)


def weather_from(path: Path, declared: Format | None = None) -> Weather:
    """All complete rows of a weather file; its hash is in the plan, so every party must hold the same rows."""
    sky = read_sky(path, Format() if declared is None else declared)
    for fault in weather_faults(sky):
        raise DataError(fault)
    rows = ~(np.isnan(sky.outdoor) | np.isnan(sky.solar))
    return Weather(sky.time[rows], sky.outdoor[rows], sky.solar[rows] / 1000.0)  # W/m² -> kW/m²
