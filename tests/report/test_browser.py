"""The report in a real browser: drawn, quiet, asking for nothing, and usable by mouse, keyboard and phone."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atdm.report.bench_page import bench_page

FIGURES = ("prediction", "horizon", "step-load", "step-outdoor", "step-solar", "season", "residual", "acf", "weights",
           "zones")  # fmt: skip


class Tab:
    """A page with what it complained about and asked for."""

    def __init__(self, browser: Any, address: Path | str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address if isinstance(address, str) else address.as_uri())

    def view(self, figure: str) -> list[float]:
        return [float(n) for n in self.page.get_attribute(f"#{figure} svg", "viewBox").split()]

    def keep(self, name: str) -> None:
        """A picture for people, where a folder for them is given."""
        if folder := os.environ.get("ATDM_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.fixture(scope="module")
def tab(browser: Any, page_file: Path) -> Iterator[Tab]:
    opened = Tab(browser, page_file, accept_downloads=True)
    yield opened
    opened.context.close()


def test_it_is_quiet_and_asks_for_nothing(tab: Tab, page_file: Path) -> None:
    tab.page.wait_for_selector("html.live")
    tab.keep("light")
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [page_file.as_uri()]


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_drawn(tab: Tab, name: str) -> None:
    inked = tab.page.eval_on_selector_all(
        f"#{name} svg path:not(.grid):not(.cursor)",
        "paths => paths.map(p => { const b = p.getBoundingClientRect(); return b.width * b.height; })",
    )
    assert inked and max(inked) > 10_000, "a mark covers part of the plot"
    for axis in ("x", "y"):
        assert len(tab.page.query_selector_all(f"#{name} .{axis} span")) >= 2
    assert len(tab.page.inner_text(f"#{name} figcaption")) > 40


@pytest.mark.parametrize("name", FIGURES)
def test_the_data_of_each_figure_downloads_as_csv(tab: Tab, name: str) -> None:
    with tab.page.expect_download() as download:
        tab.page.click(f"#{name} button[data-do=csv]")
    assert download.value.suggested_filename == f"{name}.csv"
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8-sig"))))
    points = tab.page.eval_on_selector(f"#{name} script", "s => JSON.parse(s.textContent).x.values.length")
    assert len(rows) == points + 1 and len({len(row) for row in rows}) == 1
    assert rows[0][0] == "time" if name in ("prediction", "residual", "zones") else rows[0][0] != "time"
    assert tab.complaints == []


def test_tables_download_as_csv(browser: Any, page_file: Path) -> None:
    tab = Tab(browser, page_file)  # a fresh one: chromium lets a page start ten downloads in a row
    with tab.page.expect_download() as download:
        tab.page.click("button[data-table=metrics]")
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8-sig"))))
    assert rows[0] == ["rows", "prediction", "RMSE [K]", "MAPE [%]", "R² [-]"] and len(rows) == 5
    float(rows[1][2])
    tab.context.close()


def test_dragging_zooms_and_reset_shows_all(tab: Tab) -> None:
    whole = tab.view("prediction")
    tab.page.locator("#prediction .plot").scroll_into_view_if_needed()
    box = tab.page.locator("#prediction .plot").bounding_box()
    x, y = box["x"], box["y"] + box["height"] / 2
    tab.page.mouse.move(x + 0.25 * box["width"], y)
    tab.page.mouse.down()
    tab.page.mouse.move(x + 0.75 * box["width"], y, steps=4)
    tab.page.mouse.up()
    left, _, width, _ = tab.view("prediction")
    assert width == pytest.approx(whole[2] / 2, rel=0.02) and left == pytest.approx(whole[2] / 4, rel=0.02)
    tab.page.click("#prediction button[data-do=reset]")
    assert tab.view("prediction") == pytest.approx(whole)


def test_the_keyboard_reads_values_and_zooms(tab: Tab) -> None:
    tab.page.focus("#horizon .plot")
    tab.page.keyboard.press("Home")
    first = tab.page.inner_text("#horizon .tip")
    tab.page.keyboard.press("ArrowRight")
    second = tab.page.inner_text("#horizon .tip")
    assert "model [K]" in first and first != second
    tab.page.keyboard.press("+")
    assert tab.view("horizon")[2] < 100_000
    tab.page.keyboard.press("Escape")
    assert tab.view("horizon")[2] == pytest.approx(100_000)


def test_a_phone_needs_no_sideways_scrolling(browser: Any, page_file: Path) -> None:
    tab = Tab(browser, page_file, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab.page.wait_for_selector("html.live")
    tab.keep("phone")
    widths = tab.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert widths[0] <= widths[1] == 390
    sizes = tab.page.eval_on_selector_all("body *", "all => all.filter(e => e.textContent.trim() && !e.children.length)"
                                          ".map(e => parseFloat(getComputedStyle(e).fontSize))")  # fmt: skip
    assert min(sizes) >= 11
    tab.context.close()


def test_dark_mode_is_dark(browser: Any, page_file: Path) -> None:
    backgrounds = {}
    for scheme in ("light", "dark"):
        tab = Tab(browser, page_file, color_scheme=scheme)
        tab.keep(scheme)
        colour = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        backgrounds[scheme] = sum(int(n) for n in colour.removeprefix("rgb(").removesuffix(")").split(","))
        assert tab.complaints == []
        tab.context.close()
    assert backgrounds["dark"] < 150 < 600 < backgrounds["light"]


def test_without_script_the_figures_are_still_there(browser: Any, page_file: Path) -> None:
    tab = Tab(browser, page_file, java_script_enabled=False)
    assert tab.page.locator("figure svg .line").count() > 5 and tab.page.locator(".x span").count() > 20
    assert not tab.page.locator("#prediction button").first.is_visible()
    tab.context.close()


def test_the_script_labels_log_axes_as_the_page_does(browser: Any, tmp_path: Path) -> None:
    """The same figures with and without script; the tooltip tells values, not logarithms."""
    rows = [
        {"agents": n, "protocol": protocol, "weights": weights, "seconds": s * n, "floor_seconds": s, "messages": 3,
         "setup_seconds": 1e-7 * n * n, "bytes_up_per_agent": 100 * n, "seconds_per_agent": None, "processes": 1,
         "sums": 1, "peak_rss_mb": 1.0}
        for protocol, weights, s in (("plain", "fitted", 1e-4), ("paper", "fitted", 2.0), ("blind", "fitted", 0.01))
        for n in (64, 100, 200, 400, 800, 1600, 3200, 10_000)
    ]  # fmt: skip
    path = tmp_path / "bench.html"
    path.write_text(bench_page(rows), encoding="utf-8")
    still, live = Tab(browser, path, java_script_enabled=False), Tab(browser, path)
    live.page.wait_for_selector("html.live")
    for figure in ("time", "bytes", "floor"):
        live.page.focus(f"#{figure} .plot")
        live.page.keyboard.press("+")
        assert live.view(figure)[2] == pytest.approx(50_000)
        live.page.keyboard.press("Escape")  # drawn anew by the script
        for axis in ("x", "y"):
            labels = [tab.page.locator(f"#{figure} .{axis} span").all_inner_texts() for tab in (still, live)]
            assert labels[0] == labels[1] and len(labels[0]) >= 3
    live.page.keyboard.press("Home")
    live.page.keyboard.press("ArrowRight")
    tip = live.page.inner_text("#floor .tip")
    assert "agents: 100" in tip and "run [s] 1" in tip.replace("\n", " ")
    live.keep("bench")
    assert live.complaints == []
    still.context.close()
    live.context.close()


def test_it_prints(tab: Tab) -> None:
    tab.page.emulate_media(media="print")
    assert not tab.page.locator("#prediction button").first.is_visible()
    assert tab.page.pdf()[:4] == b"%PDF"
    tab.page.emulate_media(media="screen")
