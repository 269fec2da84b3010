"""The desk's page in a real browser: light, dark, on a phone, by keyboard, and current when something happens."""

import gc
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from atdm.deploy.record import ServiceRecord
from atdm.deploy.service import Service
from atdm.ui.desk import served
from tests.deploy.test_service import DAY, RULES, STEP, at, desk_in
from tests.report.test_browser import Tab
from tests.report.test_desk import EVIL, NAMES, Stage, fleet_of, stage  # noqa: F401 - a fixture
from tests.report.test_live_browser import PHONE, sideways

PATIENCE = 20_000  # ms


def opened(browser: Any, stage: Stage, **options: Any) -> Tab:  # noqa: F811
    tab = Tab(browser, f"{stage.url}?token={stage.token}", **options)
    tab.page.wait_for_selector("#link[data-at=live]", timeout=PATIENCE)
    tab.page.wait_for_selector("#temperature[data-begun]")
    return tab


def test_it_shows_now_the_next_hours_the_model_the_fleet_and_the_runs(browser: Any, stage: Stage) -> None:  # noqa: F811
    tab = opened(browser, stage)
    tab.keep("desk-light")
    state = stage.board.state
    assert state is not None and state.now is not None
    assert tab.page.url == stage.url, "the token left the address bar"
    assert f"{state.now.aggregate_temp_c:.1f} °C" in tab.page.inner_text("#head")
    assert "All is well" in tab.page.inner_text("#head") and not tab.page.is_visible("#alarms")
    for figure in ("temperature", "load"):
        inked = tab.page.eval_on_selector_all(
            f"#{figure} svg path:not(.grid):not(.cursor)",
            "paths => paths.map(p => { const b = p.getBoundingClientRect(); return b.width * b.height; })",
        )
        assert len(inked) == 4 and min(inked) > 10_000, "two bands, what was, what comes"
    chips = tab.page.locator("#fleet .agents .chip").all_inner_texts()
    assert sorted(chips) == sorted(NAMES) and EVIL in chips
    assert tab.page.locator("#fleet tbody tr").count() == 3
    assert tab.page.locator("#runs tbody tr").count() == 9
    assert "Nothing is offered: " in tab.page.inner_text("#flexibility")
    assert " ago" in tab.page.inner_text("#model")
    assert tab.complaints == []
    assert {url.partition("?")[0] for url in tab.requests if not url.startswith("data:")} == {
        stage.url, f"{stage.url}events",
    }  # fmt: skip
    tab.context.close()


def test_it_follows_what_happens_and_a_zoomed_chart_stays(browser: Any, stage: Stage) -> None:  # noqa: F811
    tab = opened(browser, stage)
    tab.page.focus("#temperature .plot")
    tab.page.keyboard.press("+")
    zoomed = tab.view("temperature")
    stage.service.check(stage.now + 8 * 3600)
    stage.board.put(stage.service.state(stage.now + 8 * 3600))
    tab.page.wait_for_selector("[data-health=bad]", timeout=PATIENCE)
    assert tab.view("temperature") == zoomed, "what did not change is not drawn anew"
    assert "No row for" in tab.page.inner_text("#alarms") and "What to do" in tab.page.inner_text("#alarms")
    tab.keep("desk-alarm")
    stage.service.check(stage.now)
    stage.show()
    tab.page.wait_for_selector("[data-health=ok]", timeout=PATIENCE)
    assert not tab.page.is_visible("#alarms") and tab.complaints == []
    tab.context.close()


def test_a_chart_that_is_drawn_anew_keeps_the_keyboard(browser: Any, stage: Stage) -> None:  # noqa: F811
    tab = opened(browser, stage)
    tab.page.focus("#load .plot")
    before = tab.page.inner_text("#load figcaption")
    stage.now += 3600
    stage.desk.step(stage.service, stage.now)
    stage.show()
    tab.page.wait_for_function("text => document.querySelector('#load figcaption').innerText !== text", arg=before)
    tab.page.wait_for_selector("#load[data-begun]")
    tab.page.keyboard.press("ArrowRight")
    assert "UTC" in tab.page.inner_text("#load .tip b")
    assert tab.complaints == []
    tab.context.close()


def test_a_phone_needs_no_sideways_scrolling_and_dark_is_dark(browser: Any, stage: Stage) -> None:  # noqa: F811
    shades = {}
    for scheme in ("light", "dark"):
        phone = opened(browser, stage, color_scheme=scheme, **PHONE)
        phone.keep(f"desk-phone-{scheme}")
        assert sideways(phone) == (390, 390)
        colour = phone.page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades[scheme] = sum(int(n) for n in colour.removeprefix("rgb(").removesuffix(")").split(","))
        phone.context.close()
    assert shades["dark"] < 150 < 600 < shades["light"]
    dark = opened(browser, stage, color_scheme="dark")
    dark.keep("desk-dark")
    dark.context.close()


def memory() -> float:
    """Of this process. [MB]"""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def browser_memory(tab: Tab) -> tuple[float, int]:
    """Of the page: heap of its script [MB] and nodes."""
    session = tab.context.new_cdp_session(tab.page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return found["JSHeapUsedSize"] / 1e6, int(found["Nodes"])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read where Linux has it")
@pytest.mark.parametrize("hours", [5, pytest.param(24, marks=pytest.mark.soak)])
def test_simulated_hours_beside_a_browser(browser: Any, tmp_path: Path, hours: int) -> None:
    """A minute after the other: the page follows every row, health is true, memory stays; how fast is printed."""
    text = RULES + '[alarms]\nno_rows_for = "1h"\n[page]\nlisten = "127.0.0.1:0"\nrequests_per_minute = 100000\n'
    desk, said, late, wrong = desk_in(tmp_path, text), [], [], []
    start, outage = at(12), range(int(0.4 * hours * 60), int(0.8 * hours * 60))  # minutes in which homes give nothing
    with ServiceRecord(desk.rules.record, start) as record, served(desk.rules, said.append) as board:
        service = Service(desk.rules, record, desk.weather, lambda: fleet_of(at(14)), desk.said.append)
        desk.step(service, start)
        staged = Stage(desk, service, board, re.search(r"http://\S+/", said[0])[0], said)
        staged.show()
        tab = opened(browser, staged)
        begun, marks, seen = desk.rules.alarms.no_rows_for.total_seconds(), [], max(desk.homes.shown)
        for minute in range(1, hours * 60 + 1):
            now = staged.now = start + 60 * minute
            gone = range(int(start), int(start + 3 * DAY))
            desk.homes.lacking = {stamp for stamp in gone if stamp % STEP == 0} if minute in outage else set()
            desk.step(service, now)
            board.put(service.state(now))
            shown = max(desk.homes.shown)
            if shown != seen:
                began, seen = time.monotonic(), shown
                tab.page.wait_for_selector(f'#head time[data-at="{shown}"]', state="attached", timeout=10_000)
                late.append(time.monotonic() - began)
            expected = 200 if now - (shown + STEP) <= begun else 503
            if staged.get("/health")[0] != expected:
                wrong.append(minute)
            if minute in (hours * 15, hours * 60):  # a quarter in, and at the end
                marks.append((memory(), *browser_memory(tab)))
        codes = {row.name for row in service.record.alarms()}
        complaints = tab.complaints
        tab.context.close()
    (rss0, heap0, nodes0), (rss1, heap1, nodes1) = marks
    print(
        f"{hours} h: {len(late)} rows on the page after {max(late):.2f} s at most; memory {rss0:.0f} → {rss1:.0f} MB, "
        f"browser {heap0:.1f} → {heap1:.1f} MB, {nodes0} → {nodes1} nodes; record {desk.rules.record.stat().st_size} B"
    )
    assert wrong == [] and codes <= {"homes"} and complaints == []
    assert len(late) > hours / 4
    assert rss1 - rss0 < 15 and heap1 - heap0 < 5 and nodes1 < 2 * nodes0


def test_when_the_desk_stops_the_page_keeps_what_it_showed(browser: Any, tmp_path: Any) -> None:
    desk, said = desk_in(tmp_path, RULES + '[page]\nlisten = "127.0.0.1:0"\nopen_on_loopback = true\n'), []
    service = desk.open(at(3))
    with served(desk.rules, said.append) as board:
        board.put(service.state(at(3)))
        tab = Tab(browser, re.search(r"http://\S+/", said[0])[0])
        tab.page.wait_for_selector("#link[data-at=live]", timeout=PATIENCE)
        assert "There is no model yet" in tab.page.inner_text("#outlook")
    tab.page.wait_for_selector("#link[data-at=ended]", timeout=PATIENCE)
    assert "the desk has stopped" in tab.page.inner_text("#link") and tab.complaints == []
    service.record.close()
    tab.context.close()
