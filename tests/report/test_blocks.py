"""Blocks: the same table in a page and in a terminal, and nothing from outside that acts as markup."""

from io import StringIO

from rich.console import Console

from atdm.report.blocks import Section, Table, html_page, terminal_tables

SECTIONS = [
    Section("one", "One <b>", ["Words <i> of *nobody*.", Table("t", ["row", "K [K]"], [["a-b [red]", "-1e-3"]])]),
    Section("two", "Two", ["Words only."]),
]


def test_a_page_escapes_all_and_has_minus_signs_in_numbers_only() -> None:
    page = html_page("atdm", "Title <i>", "Lead <i>.", SECTIONS)
    assert all(f"{word} &lt;i&gt;" in page for word in ("Title", "Lead", "Words")) and "<i>" not in page
    assert "One &lt;b&gt;</h2>" in page and "*nobody*" in page
    assert '<th scope="row">a-b [red]</th><td class="num">−1e−3</td>' in page


def test_a_terminal_gets_the_tables_as_they_are() -> None:
    console = Console(record=True, width=80, file=StringIO())
    console.print(terminal_tables(SECTIONS))
    assert console.export_text().split("\n")[:3] == ["One <b>", "row        K [K]", "a-b [red]  -1e-3"]
