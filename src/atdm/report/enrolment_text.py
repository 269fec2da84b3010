"""The authority's record for people: who is enrolled, since when, and what became of the others."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def status_table(found: dict[str, Any]) -> RenderableType:
    """One row a key, by its first sixteen digits; others that it names by their first eight."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("name", "owner", "key", "gives days from", "state"):
        table.add_column(column)
    for row in found["keys"]:
        state = " ".join(part for part in (row["state"], _detail(row)) if part)
        table.add_row(row["name"], row["owner"], shown_key(row["key"]), row["since"] or "the beginning", state)
    enrolled = sum(row["state"] == "enrolled" for row in found["keys"])
    return Group(table, Text(f"roster {found['roster']}: {enrolled} agents enrolled"))


def shown_key(key: str) -> str:
    """As much of a key in hex as two people compare by telephone; one that begins alike takes 2⁶⁴ tries to find."""
    return f"{key[:8]} {key[8:16]}"


def _detail(row: dict[str, Any]) -> str:
    if row["gone"] is not None:
        return f"by {row['replaced_by'][:8]} on {row['gone']}" if row["replaced_by"] else f"on {row['gone']}"
    return f"in place of {row['replaces'][:8]}" if row["replaces"] else ""
