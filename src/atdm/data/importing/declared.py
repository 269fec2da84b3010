"""What the person says about the files; whatever is None is guessed, and the guess is said."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from atdm.data import clock
from atdm.data.importing.units import Quantity, Unit, unit
from atdm.errors import UsageError

Label = Literal["start", "end"]
Ambiguous = Literal["refuse", "leave out"]
Repeated = Literal["refuse", "first", "last", "mean"]
LoadKind = Literal["interval", "counter"]

AGENT = "{agent}"  # stands for the home's name in a column's or a file's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the person says about some files: how they are written, and what their columns are."""

    columns: Mapping[Quantity, str | None]  # "Raumtemp"; "{agent} Temp" for one column per home; "temps.csv:{agent}"
    units: Mapping[Quantity, tuple[str, ...]] = field(default_factory=dict)  # "°F"; "home7=°F" for one home
    option: str = ""  # what stands before the names of these options: "", or "weather-"
    time: str | None = None  # column; "Date+Time" joins two
    time_format: str | None = None  # "DD.MM.YYYY HH:mm", "%d.%m.%Y %H:%M", "epoch s", "epoch ms"
    timezone: str | None = None  # of stamps without offset
    offset: str | None = None  # column of their offsets from UTC
    label: Label = "start"  # whether a stamp is the start or the end of its value's interval
    ambiguous: Ambiguous = "refuse"  # stamps of the hour that a clock change repeats, where the file does not tell
    agent: str | None = None  # column; "{agent}_*" takes the name from the file's
    building: str | None = None
    load_kind: LoadKind | None = None  # of a load in units of energy
    interval: str | None = None  # time that one value of energy is for
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None  # of a workbook; "*": every sheet is a home
    skip_rows: int | None = None  # lines before the header
    missing: tuple[str, ...] = ()  # further cells that mean no reading, such as -99.9
    repeated: Repeated = "refuse"  # several values of one stamp

    def __post_init__(self) -> None:
        if self.timezone is not None:
            clock.zone(self.timezone)
        if self.interval is not None:
            clock.duration(self.interval)
        for name, value, known in (
            ("label", self.label, ("start", "end")),
            ("ambiguous", self.ambiguous, ("refuse", "leave out")),
            ("repeated", self.repeated, ("refuse", "first", "last", "mean")),
            ("load-kind", self.load_kind, (None, "interval", "counter")),
            ("decimal", self.decimal, (None, ".", ",")),
        ):
            if value not in known:
                choices = " or ".join(repr(choice) for choice in known if choice)
                raise UsageError(f"--{name} {value!r}: choose {choices}")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise UsageError(f"--delimiter {self.delimiter!r} is not one character: write ',', ';' or a tab")
        if self.delimiter is not None and self.delimiter == self.decimal:
            raise UsageError(f"--delimiter and --decimal are both {self.decimal!r}: change one of them")
        for quantity in self.units:
            self.unit_of(quantity, "")  # refuses an unknown unit before any file is read

    def unit_of(self, quantity: Quantity, agent: str) -> Unit | None:
        """The unit declared for a home: its own, else that of all; None where none is."""
        of_all = None
        own = None
        for text in self.units.get(quantity, ()):
            name, equals, rest = text.rpartition("=")
            found = unit(rest, quantity, f"--{quantity}-unit")
            if not equals:
                of_all = found
            elif name == agent:
                own = found
        return own or of_all

    def named_in_units(self) -> set[str]:
        """Homes that have a unit of their own."""
        texts = [text for units in self.units.values() for text in units]
        return {text.rpartition("=")[0] for text in texts if "=" in text}

    def length(self) -> pd.Timedelta | None:
        return None if self.interval is None else clock.duration(self.interval)


def strptime_format(text: str) -> str:
    """A format as people write it (DD.MM.YYYY hh:mm AM/PM) as strptime has it; one with % signs is taken as it is."""
    if "%" in text:
        return text
    out = text
    for word, code in (
        ("YYYY", "%Y"), ("YY", "%y"), ("MM", "%m"), ("DD", "%d"), ("HH", "%H"), ("hh", "%I"),
        ("mm", "%M"), ("ss", "%S"), ("AM/PM", "%p"), ("am/pm", "%p"),
    ):  # fmt: skip
        out = out.replace(word, code)
    if "%p" in out:
        out = out.replace("%H", "%I")
    if not re.search(r"%[Yy]", out) or not re.search(r"%d", out):
        raise UsageError(f"--time-format {text!r} has no day and year: write it like 'DD.MM.YYYY HH:mm' or 'epoch s'")
    return out
