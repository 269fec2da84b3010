"""Public holidays: of a country or a part of it, or from a file of dates."""

from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pandas as pd

from atdm.errors import DataError, UsageError

YEARS_AHEAD = 5  # a model is used after its window: so long its calendar knows holidays by country


def days_of(holidays: str | Iterable[date] | None, time: pd.DatetimeIndex) -> frozenset[date]:
    """Local days that are holidays.

    holidays: a country as in ISO 3166 ("GB"), with a region after a stroke ("US/IL", "DE/BY"); a file with one date
    such as 2024-12-25 on each line; or dates. time: the window, which says the years.
    """
    if holidays is None:
        return frozenset()
    if not isinstance(holidays, str):
        return frozenset(holidays)
    if Path(holidays).is_file():
        return _from_file(Path(holidays))
    return _of_country(holidays, range(time[0].year - 1, time[-1].year + YEARS_AHEAD + 1))


def _from_file(path: Path) -> frozenset[date]:
    days = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise DataError(f"{path}: cannot be read as text: give a file of dates such as 2024-12-25") from None
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        try:
            days.append(date.fromisoformat(text))
        except ValueError:
            raise DataError(f"{path}: line {number}: {text[:40]!r} is no date: write it as 2024-12-25") from None
    if not days:
        raise DataError(f"{path}: no date in it: write one such as 2024-12-25 on each line")
    return frozenset(days)


def _of_country(text: str, years: range) -> frozenset[date]:
    try:
        from holidays import country_holidays
    except ImportError:
        raise UsageError(
            f"holidays {text}: no such file, and countries need a package: pip install 'atdm[holidays]'"
        ) from None
    country, _, region = text.partition("/")
    try:
        return frozenset(country_holidays(country.upper(), subdiv=region or None, years=years))
    except NotImplementedError:
        raise UsageError(
            f"holidays {text}: no such file, country or region: write a country such as GB or US/IL, or give a file "
            "with one date a line"
        ) from None
