"""How messages quote what is in a file: a cell, some rows."""

from collections.abc import Sequence

from atdm.types import IntArray


def listed_rows(rows: Sequence[int] | IntArray) -> str:
    """The first of some row numbers, in words; they are counted from 1."""
    first = ", ".join(str(int(row) + 1) for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"data row{'s' if len(rows) > 1 else ''} {first}{more}"


def shown(cell: str) -> str:
    """A cell as a message quotes it: on one line, short."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")
