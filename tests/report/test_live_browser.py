"""The live page in a real browser, during a real rehearsal and in states that a rehearsal seldom shows."""

import json
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

import atdm
from atdm.deploy import events
from atdm.model.horizons import Horizon
from atdm.report.words import goodness
from atdm.ui.host import Address
from atdm.ui.live import LiveState
from atdm.ui.serve import serving
from tests.report.conftest import LiveRun
from tests.report.test_browser import Tab

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
PATIENCE = 90_000  # ms


@pytest.fixture(scope="module")
def tab(browser: Any, live_run: LiveRun) -> Any:
    """There from the start of the run."""
    opened = Tab(browser, live_run.url)
    yield opened
    opened.context.close()


def states(tab: Tab) -> dict[str, str]:
    return dict(tab.page.eval_on_selector_all("#grid .chip", "all => all.map(c => [c.textContent, c.dataset.state])"))


def test_it_shows_every_agent_and_reaches_done(tab: Tab, live_run: LiveRun, cluster: atdm.Cluster) -> None:
    tab.page.wait_for_selector("#link[data-at=live]", timeout=PATIENCE)
    assert tab.page.get_attribute("body", "data-status") != "done", "the page was there before the end"
    tab.page.wait_for_selector("#grid li", timeout=PATIENCE)
    assert sorted(states(tab)) == sorted(cluster.agents)
    tab.keep("live-waiting")
    tab.page.wait_for_selector("body[data-status=done]", timeout=PATIENCE)
    assert set(states(tab).values()) == {"d"} and len(states(tab)) == len(cluster.agents)
    assert tab.page.inner_text("#joined") == tab.page.inner_text("#inside") == "12 of 12"
    assert not tab.page.is_visible("#out") and tab.page.inner_text("#bar-text") == "Done"
    live_run.until("the live page stays until Ctrl-C")


def test_it_ends_with_the_rounds_the_ledger_and_the_result(tab: Tab, live_run: LiveRun) -> None:
    live_run.until("the live page stays until Ctrl-C")
    tab.page.wait_for_selector("#report a", timeout=PATIENCE)
    document = json.loads(live_run.printed)
    judged = [Horizon(**each) for each in document["metrics"]["horizons"]["chosen"]]
    assert tab.page.inner_text("#status") == f"Done. {goodness(judged)}"
    rounds = [int(text) for text in tab.page.locator("#round-rows th").all_inner_texts()]
    assert rounds == list(range(len(rounds), 0, -1)) and len(rounds) > 6
    assert all(float(text) > 0 for text in tab.page.locator("#round-rows td:nth-child(3)").all_inner_texts())
    assert int(tab.page.inner_text("#totals")) == document["cost"]["sums"]
    learned = tab.page.locator("#ledger-rows th").all_inner_texts()
    assert learned == [row["what"] for row in document["ledger"]] == ["load total", "state", "coefficients", "metrics"]
    assert str(live_run.output / "report.html") in tab.page.inner_text("#report")
    assert "every released number is the same to the last bit" in tab.page.inner_text("#lines")
    tab.keep("live-done")
    assert tab.complaints == []
    assert {url for url in tab.requests if not url.startswith("data:")} == {live_run.url, f"{live_run.url}events"}


def test_the_report_opens_from_it(browser: Any, live_run: LiveRun) -> None:
    live_run.until("the live page stays until Ctrl-C")
    late = Tab(browser, live_run.url)
    late.page.click("#report a")
    late.page.wait_for_selector("html.live #prediction svg")
    assert late.complaints == [] and all(url.startswith((live_run.url, "data:")) for url in late.requests)
    late.context.close()


def test_a_phone_needs_no_sideways_scrolling_and_dark_is_dark(browser: Any, live_run: LiveRun) -> None:
    live_run.until("the live page stays until Ctrl-C")
    shades = {}
    for scheme in ("light", "dark"):
        phone = Tab(browser, live_run.url, color_scheme=scheme, **PHONE)
        phone.page.wait_for_selector("body[data-status=done]")
        phone.keep(f"live-phone-{scheme}")
        assert sideways(phone) == (390, 390)
        colour = phone.page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades[scheme] = sum(int(n) for n in colour.removeprefix("rgb(").removesuffix(")").split(","))
        phone.context.close()
    assert shades["dark"] < 150 < 600 < shades["light"]


def test_when_the_command_ends_the_page_keeps_what_it_showed(tab: Tab, live_run: LiveRun) -> None:
    live_run.finish()
    tab.page.wait_for_selector("#link[data-at=ended]", timeout=10_000)
    assert "the command has ended" in tab.page.inner_text("#link") and len(states(tab)) == 12
    assert tab.complaints == []


def sideways(tab: Tab) -> tuple[int, int]:
    wide, seen = tab.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return wide, seen


EVIL = "<img src=x onerror=alert(1)>"
NAMES = (EVIL, "a-name-without-any-place-to-break-it-" * 2, *(f"building{i % 40:02d}-zone{i:03d}" for i in range(498)))


@pytest.fixture
def staged() -> Any:
    """A page whose run is made by hand, of five hundred agents."""
    state, said = LiveState(), []
    members = tuple(range(490))
    out = dict.fromkeys(NAMES[490:], f"no answer {EVIL}")
    for event in (events.Planned("blind", "order 2", NAMES, 60.0, 60.0), events.Joined(members),
                  events.Announced(0, members), events.Company(members, out),
                  events.Asked(1, "Keys", 300)):  # fmt: skip
        state.take(event)
    with serving(state, Address("127.0.0.1", 0), said.append):
        yield state, said[0].removeprefix("live page: ")


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
def test_five_hundred_agents_fit_and_refusals_say_why(browser: Any, staged: Any, options: Any) -> None:
    state, url = staged
    tab = Tab(browser, url, **options)
    tab.page.wait_for_selector("#grid li:nth-child(500)")
    assert sorted(states(tab)) == sorted(NAMES) and list(states(tab).values()).count("w") == 490
    state.take(events.Answered(3, "Ready", 100))
    state.take(events.Refused(0, f"{EVIL} the window is too short"))
    state.take(events.Learned(({"party": "aggregator", "what": "moments", "shape": [9, 9], "times": 1},)))
    state.take(events.Aborted("agent: the window is too short"))
    tab.page.wait_for_selector("body[data-status=aborted]")
    assert "refused: <img src=x onerror=alert(1)> the window is too short" in tab.page.inner_text("#notices")
    assert states(tab)[EVIL] == "r" and tab.page.locator("main img").count() == 0
    assert tab.page.locator("#absent li").count() == 10 and f"no answer {EVIL}" in tab.page.inner_text("#absent")
    assert list(states(tab).values()).count("x") == 10 and tab.page.inner_text("#inside") == "490 of 500"
    assert "Ended without a result" in tab.page.inner_text("#status") and not tab.page.is_visible("#result")
    assert tab.page.locator("#ledger-rows tr.grave").count() == 1
    tab.keep(f"live-refused-{len(options)}")
    wide, seen = sideways(tab)
    assert wide <= seen
    assert tab.complaints == []
    tab.context.close()


def test_it_is_read_aloud_and_worked_by_keyboard(browser: Any, staged: Any) -> None:
    tab = Tab(browser, staged[1], reduced_motion="reduce")
    tab.page.wait_for_selector("#grid li")
    assert tab.page.get_attribute("#status", "aria-live") == "polite"
    assert tab.page.locator("#grid li").nth(5).inner_text().splitlines()[-1] in ("asked, no answer yet",)
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    focusable = tab.page.eval_on_selector_all(".scroll, .log", "all => all.every(e => e.tabIndex === 0)")
    assert focusable
    tab.context.close()
