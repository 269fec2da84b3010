"""What the caller declares about tables, without pandas."""

from dataclasses import dataclass

from atdm.data import seconds
from atdm.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What the caller declares about the files."""

    timezone: str | None = None  # of stamps without offset, and of the season
    sort: bool = False
    delimiter: str = ","
    decimal: str = "."
    fill: str = "2h"  # longest span without readings that an agent fills by itself; "0h": none

    def __post_init__(self) -> None:
        seconds.length(self.fill, zero=True)
        if self.timezone is not None:
            seconds.zone(self.timezone)
        if self.decimal not in (".", ",") or self.decimal == self.delimiter:
            raise UsageError(f"decimal {self.decimal!r} cannot be used: choose '.' or ',', other than the delimiter")
