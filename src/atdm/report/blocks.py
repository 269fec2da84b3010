"""What a page is built of: headed sections of words, tables and figures. A terminal gets the tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich import table as terminal
from rich.console import Group
from rich.text import Text

from atdm.report import learned, page
from atdm.report.chart import Chart
from atdm.result import Fit


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells as they are read; a page offers them as CSV too."""

    name: str  # of the element and of the CSV file
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)  # columns of words; the others are numbers, and stand right


Block = str | Table | list[Chart] | Fit  # words, a table, figures, who learned what in a fit


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it."""

    name: str  # of the element
    title: str
    blocks: Sequence[Block]


def html_page(command: str, title: str, lead: str, sections: Sequence[Section]) -> str:
    """All sections as one HTML page that opens offline."""
    head = f'<p class="eyebrow">{escape(command)}</p><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>'
    bodies = [page.section(s.name, escape(s.title), "", "".join(map(_html, s.blocks))) for s in sections]
    return page.document(title, head, bodies)


def terminal_tables(sections: Sequence[Section]) -> Group:
    """The tables, each under the heading of its section."""
    found = [(s.title, block) for s in sections for block in s.blocks if isinstance(block, Table)]
    return Group(*(part for title, t in found for part in (Text(title, style="bold"), terminal_table(t), Text())))


def terminal_table(table: Table) -> terminal.Table:
    drawn = terminal.Table(box=None, header_style="dim", pad_edge=False)
    for i, name in enumerate(table.head):
        drawn.add_column(Text(name), justify="left" if i in table.words else "right")
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    return drawn


def _html(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, list):
        return page.drawn(block)
    if isinstance(block, Fit):
        return f"<h3>Protocol {escape(block.protocol)}</h3>{learned.diagram(block)}"
    right = [i not in block.words for i in range(len(block.head))]
    rows = [[cell.replace("-", "−") if right[i] else cell for i, cell in enumerate(row)] for row in block.rows]
    return page.table(block.head, rows, download=block.name, numeric=right)
