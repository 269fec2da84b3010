"""The desk's page in a real browser: light, dark, on a phone, by keyboard, and current when something happens."""

import time
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from tests.report.test_browser import Tab
from tests.report.test_desk import EVIL, NAMES, Stage, stage  # noqa: F401 - a fixture
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


def test_it_is_current_within_two_seconds_and_a_zoomed_chart_stays(browser: Any, stage: Stage) -> None:  # noqa: F811
    tab = opened(browser, stage)
    tab.page.focus("#temperature .plot")
    tab.page.keyboard.press("+")
    zoomed = tab.view("temperature")
    began = time.monotonic()
    stage.service.check(stage.now + 8 * 3600)
    stage.board.put(stage.service.state(stage.now + 8 * 3600))
    tab.page.wait_for_selector("[data-health=bad]", timeout=2000)
    assert time.monotonic() - began < 2.0
    assert tab.view("temperature") == zoomed, "what did not change is not drawn anew"
    assert "No row for" in tab.page.inner_text("#alarms") and "What to do" in tab.page.inner_text("#alarms")
    tab.keep("desk-alarm")
    stage.service.check(stage.now)
    stage.show()
    tab.page.wait_for_selector("[data-health=ok]", timeout=2000)
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


def test_when_the_desk_stops_the_page_keeps_what_it_showed(browser: Any, tmp_path: Any) -> None:
    import re

    from atdm.ui.desk import served
    from tests.deploy.test_service import RULES, at, desk_in

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
