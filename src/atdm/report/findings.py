"""Findings of an audit, as a table for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from atdm.lab.attacks.score import includes


def findings_table(rows: Sequence[Mapping[str, Any]], name: str) -> RenderableType:
    """One line for each attack and adversary; what was recovered stands out."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("protocol", "attack", "adversary"):
        table.add_column(column, no_wrap=True)
    for column in ("recovered", "blank", "error [K]", "baseline [K]", "time [s]"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("note", ratio=1)
    for row in rows:
        style = "bold red" if row["recovered"] > row["blank"] else ""
        table.add_row(
            _protocol(row), row["attack"], row["adversary"],
            Text(f"{row['recovered']} of {row['agents']}", style=style), str(row["blank"]),
            f"{row['rmse_c']:.2g}", f"{row['baseline_rmse_c']:.2g}", f"{row['seconds']:.1f}", row["note"],
        )  # fmt: skip
    return Group(Text(name, style="bold"), table, Text(), *_verdicts(rows), Text(LEGEND, style="dim"))


LEGEND = (
    "Recovered: the reconstruction correlates at |r| > 0.9 with what sets the agent apart from the cluster mean. "
    "Blank: how many the same attack recovers where it is given the weather and no sum. The error is that of the "
    "recovered agents, and of the baseline where there are none; the baseline is the best guess from load, state and "
    "weather alone."
)


def _protocol(row: Mapping[str, Any]) -> str:
    return f"{row['protocol']}, {row['weights']} weights" if row["protocol"] == "blind" else str(row["protocol"])


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[Text]:
    """The worst case of each protocol, by adversary; a coalition can do whatever fewer of its members can."""
    lines = []
    for protocol, who in dict.fromkeys((_protocol(row), row["adversary"]) for row in rows):
        able = [row for row in rows if _protocol(row) == protocol and includes(who, row["adversary"])]
        row = max(able, key=lambda each: int(each["recovered"]))
        how = f" ({row['attack']})" if row["recovered"] else ""
        lines.append(Text(f"{protocol}, {who}: {row['recovered']} of {row['agents']}{how}"))
    return lines
