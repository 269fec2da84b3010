"""What `atdm compare` prints."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def compare_table(rows: list[dict[str, Any]]) -> RenderableType:
    """Protocols side by side; differences are to plain with the same weighting."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("protocol", "R²", "ridge", "coefficients apart", "weights apart", "totals", "messages", "kB up",
                   "ms/agent", "s aggregator"):  # fmt: skip
        table.add_column(column, justify="left" if column == "protocol" else "right")
    lines: list[RenderableType] = []
    for row in rows:
        if "refused" in row:
            lines.append(Text(f"{row['protocol']}: {row['refused']}", style="yellow"))
            continue
        own, ridge = row["seconds_per_agent"], row["ridge"]
        table.add_row(
            row["protocol"], f"{row['r2']:.4f}", "" if ridge is None else f"{ridge:.4g}",
            f"{row['coefficients_apart']:.1e}", f"{row['weights_apart']:.1e}",
            str(row["sums"]), str(row["rounds"]), f"{row['bytes_up_per_agent'] / 1000:.0f}",
            "" if own is None else f"{1000 * own:.0f}", f"{row['seconds_aggregator']:.2f}",
        )  # fmt: skip
        words = f"the aggregator learned {row['aggregator_learned']}; peers learned {row['peers_learned']}"
        lines.append(Text.assemble((f"{row['protocol']}: ", "bold"), words))
    return Group(table, Text(), *lines)
