"""The owner's page in a real browser, beside real agents and a real aggregator."""

import asyncio
import re
import threading
import time
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from atdm.deploy.owner import choice_of
from atdm.protocol.company import PAUSED
from atdm.ui.host import Address
from atdm.ui.owner import serving_owner
from tests.deploy.theatre import AGENTS, Theatre
from tests.report.test_browser import Tab
from tests.report.test_live_browser import PHONE, sideways

PATIENCE = 30_000  # ms


class Fleet:
    """Agents, two of them with a page, in a thread; the aggregator asks when it is told to."""

    def __init__(self, folder: Any) -> None:
        self.theatre = Theatre(folder, weights="equal")
        self.names, self.said, self.url = self.theatre.stage.names, [], ""
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        end = time.monotonic() + 60
        while not self.url:
            assert time.monotonic() < end and self._thread.is_alive()
            time.sleep(0.05)

    async def _serve(self) -> None:
        with self.theatre.stage.server() as self.server:
            async with self.theatre.agents(self.server.url, say=self.said.append) as seats:
                shown = [seats[name] for name in self.names[:2]]
                with serving_owner(Address("127.0.0.1", 0), self.said.append, shown):
                    line = next(line for line in self.said if "owner's page" in line)
                    self.url = re.search(r"http://\S+/", line)[0]
                    await self._stop.wait()

    def ask(self) -> Any:
        asking = self.theatre.aggregate(self.server.url)
        return asyncio.run_coroutine_threadsafe(asking, self._loop).result(60)

    def state(self, place: int) -> Any:
        return self.theatre.state(self.names[place])

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
            self._loop.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def tab(browser: Any, fleet: Fleet) -> Any:
    opened = Tab(browser, fleet.url)
    yield opened
    opened.context.close()


def outcomes(tab: Tab) -> list[str]:
    return tab.page.locator("#runs .said").all_inner_texts()


def test_it_follows_a_run_from_nothing_to_the_account(tab: Tab, fleet: Fleet) -> None:
    tab.page.wait_for_selector("#link[data-at=live]", timeout=PATIENCE)
    tab.page.wait_for_selector("#server:has-text('Connected to tls://')", timeout=PATIENCE)
    assert tab.page.is_visible("#no-runs") and tab.page.is_visible("#no-days")
    assert fleet.ask().fit.agents == AGENTS
    tab.page.wait_for_selector("#runs li[data-kind=done]", timeout=PATIENCE)
    assert outcomes(tab) == ["your home took part"]
    tab.page.wait_for_selector("#days tr", timeout=PATIENCE)
    assert tab.page.locator("#days tr").count() == 15
    tab.page.locator("#days details").first.click()
    assert ", ".join(fleet.names) in tab.page.locator("#days details").first.inner_text()
    tab.page.click("#messages summary")
    assert "Masked show" in tab.page.inner_text("#lines")
    assert [tile.split("\n")[-1] for tile in tab.page.locator("#facts div").all_inner_texts()][:3] == ["15", "60", "3"]
    tab.keep("owner-light")
    assert tab.complaints == []
    assert {url for url in tab.requests if not url.startswith("data:")} == {fleet.url, f"{fleet.url}events?home=0"}


def test_a_pause_is_one_press_is_seen_by_the_aggregator_and_ends(tab: Tab, fleet: Fleet) -> None:
    tab.page.focus("#pause")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("body[data-choice=paused]", timeout=PATIENCE)
    assert "stays out of every new question" in tab.page.inner_text("#status")
    assert choice_of(fleet.state(0)) == "paused" and choice_of(fleet.state(1)) == "takes part"
    with pytest.raises(Exception, match="can be summed"):  # the company of these days has this home in it
        fleet.ask()
    tab.page.wait_for_selector("#runs li[data-kind=out]", timeout=PATIENCE)
    assert outcomes(tab)[0] == f"your home stayed out: {PAUSED}"
    tab.keep("owner-paused")
    tab.page.click("#pause")
    tab.page.wait_for_selector("body[data-choice='takes part']", timeout=PATIENCE)
    assert fleet.ask().fit.agents == AGENTS


def test_a_pause_from_elsewhere_is_seen_too(tab: Tab, fleet: Fleet) -> None:
    (fleet.state(0) / "paused").write_text("2026-01-01T00:00:00+00:00\n")
    tab.page.wait_for_selector("body[data-choice=paused]", timeout=PATIENCE)
    (fleet.state(0) / "paused").unlink()
    tab.page.wait_for_selector("body[data-choice='takes part']", timeout=PATIENCE)


def test_a_phone_needs_no_sideways_scrolling_and_dark_is_dark(browser: Any, fleet: Fleet) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        phone = Tab(browser, f"{fleet.url}?home=1", color_scheme=scheme, **PHONE)
        phone.page.wait_for_selector("#days tr", timeout=PATIENCE)
        phone.keep(f"owner-phone-{scheme}")
        assert sideways(phone) == (390, 390)
        small = phone.page.eval_on_selector_all(
            "main button", "all => all.filter(b => b.offsetHeight).map(b => b.offsetHeight)"
        )
        assert min(small) >= 44
        colour = phone.page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades[scheme] = sum(int(n) for n in colour.removeprefix("rgb(").removesuffix(")").split(","))
        assert phone.complaints == []
        phone.context.close()
    assert shades["dark"] < 150 < 600 < shades["light"]


def test_it_is_read_aloud_and_worked_by_keyboard(browser: Any, fleet: Fleet) -> None:
    tab = Tab(browser, fleet.url, reduced_motion="reduce")
    tab.page.wait_for_selector("#days tr", timeout=PATIENCE)
    assert tab.page.get_attribute("#status", "aria-live") == "polite"
    assert tab.page.get_attribute("#fault", "role") == "alert"
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    assert tab.page.eval_on_selector_all(".scroll", "all => all.every(e => e.tabIndex === 0)")
    tab.page.focus("#leave")
    tab.page.keyboard.press("Enter")
    assert tab.page.is_visible("#sure") and tab.page.evaluate("document.activeElement.id") == "stay"
    tab.page.keyboard.press("Escape")
    assert not tab.page.is_visible("#sure") and choice_of(fleet.state(0)) == "takes part"
    tab.context.close()


def test_leaving_asks_first_is_for_good_and_says_whom_to_tell(browser: Any, fleet: Fleet) -> None:
    tab = Tab(browser, f"{fleet.url}?home=1")
    tab.page.wait_for_selector("body[data-choice='takes part']", timeout=PATIENCE)
    tab.page.click("#leave")
    tab.keep("owner-leaving")
    assert choice_of(fleet.state(1)) == "takes part"
    tab.page.click("#really")
    tab.page.wait_for_selector("body[data-choice=left]", timeout=PATIENCE)
    assert "atdm enroll retire" in tab.page.inner_text("#gone") and choice_of(fleet.state(1)) == "left"
    assert not tab.page.is_visible("#pause") and not tab.page.is_visible("#leave")
    tab.keep("owner-left")
    word = tab.page.get_attribute("meta[name=atdm-word]", "content")
    status = tab.page.evaluate(
        """async (word) => (await fetch("choice", {method: "POST", headers: {"X-Atdm-Word": word},
           body: JSON.stringify({home: 1, choice: "takes part"})})).status""", word,
    )  # fmt: skip
    assert status == 409
    tab.context.close()


def test_another_site_cannot_press_a_switch(browser: Any, fleet: Fleet, tmp_path: Any) -> None:
    """A form and a fetch of a page from elsewhere: nothing changes, whatever the browser lets through."""
    before = choice_of(fleet.state(0))
    evil = tmp_path / "evil.html"
    evil.write_text(f"""<form id=f method=post action="{fleet.url}choice" enctype=text/plain>
        <input name='{{"home":0,"choice":"left","x":"' value='"}}'></form><script>
        fetch("{fleet.url}choice", {{method: "POST", mode: "no-cors", body: '{{"home":0,"choice":"left"}}'}})
          .finally(() => document.getElementById("f").submit());</script>""")
    tab = Tab(browser, evil)
    tab.page.wait_for_url(f"{fleet.url}choice", timeout=PATIENCE)
    assert "Use the switches of this page" in tab.page.inner_text("body") and choice_of(fleet.state(0)) == before
    tab.context.close()


def test_when_the_agent_stops_the_page_keeps_what_it_showed(tab: Tab, fleet: Fleet) -> None:
    fleet.close()
    tab.page.wait_for_selector("#link[data-at=ended]", timeout=PATIENCE)
    assert tab.page.locator("#days tr").count() == 15
    tab.page.click("#pause")
    tab.page.wait_for_selector("#fault:not([hidden])", timeout=PATIENCE)
    assert "Nothing was changed" in tab.page.inner_text("#fault") and choice_of(fleet.state(0)) == "takes part"
