"""The owner's page over HTTP: who may look, who may switch, and that no value of a reading is in it."""

import asyncio
import http.client
import json
import re
import stat
from contextlib import closing
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from atdm.deploy.owner import Asked, Exchange, choice_of
from atdm.errors import UsageError
from atdm.protocol.company import PAUSED, TOO_FEW
from atdm.protocol.rules import Rules
from atdm.ui import owners_page
from atdm.ui.host import Address
from atdm.ui.owner import allowed, kept_token, runs_of, serving_owner
from tests.deploy.test_owner import CANARY, HEAT
from tests.deploy.theatre import LOOSE, Theatre
from tests.report.conftest import Answer, get

HERE = Address("127.0.0.1", 0)


class Stage:
    """Two homes of a fleet that was fitted once, with canaries in their readings, and the page of both."""

    def __init__(self, folder):
        self.theatre = Theatre(folder, weights="fitted", rules=replace(LOOSE, dither=0.0))
        self.names = self.theatre.stage.names[:2]
        for name in self.names:
            table = pd.read_parquet(self.theatre.stage.data(name))
            table.loc[7, ["indoor_temp_c", "load_kw"]] = CANARY, HEAT
            table.to_parquet(self.theatre.stage.data(name))
        with self.theatre.stage.server() as server:
            asyncio.run(self.theatre.perform(server.url))
        self.seats, self.said = [self.theatre.seat(name) for name in self.names], []

    def state(self, name):
        return self.theatre.state(name)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    made = Stage(tmp_path_factory.mktemp("owner"))
    yield made
    for seat in made.seats:
        seat.close()


@pytest.fixture
def url(stage):
    stage.said.clear()
    with serving_owner(HERE, stage.said.append, stage.seats):
        yield re.search(r"http://\S+/", stage.said[0])[0]
    for name in stage.names:
        for chosen in ("paused", "left"):
            (stage.state(name) / chosen).unlink(missing_ok=True)


def post(url, body, **headers):
    host, _, path = url.removeprefix("http://").partition("/")
    with closing(http.client.HTTPConnection(host, timeout=30)) as connection:
        connection.request("POST", f"/{path}", body, {name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())


def word_in(page):
    return re.search(r'name="atdm-word" content="([^"]{40,})"', page)[1]


def first_events(url, home=0):
    """The first event of the stream: all sections."""
    host = url.removeprefix("http://").removesuffix("/")
    with closing(http.client.HTTPConnection(host, timeout=30)) as connection:
        connection.request("GET", f"/events?home={home}")
        answer, text = connection.getresponse(), ""
        while "\n\n" not in text:
            text += answer.readline().decode()
        return text


def switch(url, choice, home=0, **headers):
    own = {"Origin": url.removesuffix("/"), "X_Atdm_Word": word_in(get(url).text)}
    return post(f"{url}choice", json.dumps({"home": home, "choice": choice}), **{**own, **headers})


def test_it_shows_each_home_its_own(stage, url):
    for i, name in enumerate(stage.names):
        page = get(f"{url}?home={i}").text
        assert f"<h1>{name}</h1>" in page and page.count("aria-current=page") == 1
        shown = json.loads(first_events(url, i).partition("data: ")[2])
        assert shown["home"]["name"] == name and shown["home"]["choice"] == "takes part"
        assert [run["outcome"] for run in shown["runs"]] == ["your home took part"]
        assert len(shown["days"]) == 15 and shown["days"][0]["with"] == list(stage.theatre.stage.names)
        assert {line["asked"] for line in shown["messages"]} >= {"Announce", "Keys", "Total"}
    for wrong in ("9", "-1", "x", "00", "%D9%A3"):
        assert f"<h1>{stage.names[0]}</h1>" in get(f"{url}?home={wrong}").text


def test_no_reading_key_or_weight_is_in_the_page_its_events_or_what_it_says(stage, url):
    content = "".join(get(f"{url}?home={i}").text + first_events(url, i) for i in range(2)) + "\n".join(stage.said)
    assert len(content) > 20_000
    for value in (CANARY, HEAT):
        assert f"{value:.4f}"[:-1] not in content
    for seat in stage.seats:
        weights = [fit.weight for fit in seat.agent.own.memory.fits.values()]
        assert weights and not any(repr(w)[:8] in content for w in weights)
        for secret in (seat.keys.nkey, seat.keys.secret):
            assert secret.hex() not in content
        for temperature in np.unique(seat.agent.own.readings.temperature):
            assert len(repr(float(temperature))) < 6 or repr(float(temperature)) not in content


def test_a_switch_works_from_the_page_and_is_said_in_the_log(stage, url):
    name = stage.names[1]
    assert switch(url, "paused", 1).status == 204
    assert choice_of(stage.state(name)) == "paused" and choice_of(stage.state(stage.names[0])) == "takes part"
    assert stage.said[-1] == f"{name}: paused by its owner" and stage.said[-1].event == "paused"
    assert switch(url, "takes part", 1).status == 204 and choice_of(stage.state(name)) == "takes part"
    assert switch(url, "left", 1).status == 204
    refused = switch(url, "takes part", 1)
    assert refused.status == 409 and "left for good" in refused.text


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:1"},
    {"X_Atdm_Word": ""},
    {"X_Atdm_Word": "a" * 43},
    {"Host": "evil.example", "Origin": "http://evil.example"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_nobody_else_can_switch(stage, url, headers):
    answer = switch(url, "left", **headers)
    assert answer.status in (403, 421) and choice_of(stage.state(stage.names[0])) == "takes part"


def test_the_word_is_another_one_at_each_start_and_get_changes_nothing(stage, url):
    word = word_in(get(url).text)
    with serving_owner(HERE, stage.said.append, stage.seats):
        other = re.search(r"http://\S+/", stage.said[-1])[0]
        assert switch(other, "paused", X_Atdm_Word=word).status == 403
    for path in ("choice", "choice?home=0&choice=left"):
        assert get(f"{url}{path}").status == 405
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert get(f"{url}choice", method).status == 405
    assert choice_of(stage.state(stage.names[0])) == "takes part"


@pytest.mark.parametrize(
    ("body", "status"),
    [("", 400), ("{}", 400), ('{"home":0,"choice":"gone"}', 400), ('{"home":-1,"choice":"left"}', 400),
     ('{"home":7,"choice":"left"}', 400), ('{"home":0,"choice":"left","x":1}', 400), ("[" * 999, 400),
     ("\udcff", 400), (" " * 1001, 413)],
)  # fmt: skip
def test_what_is_no_switch_changes_nothing(stage, url, body, status):
    own = {"Origin": url.removesuffix("/"), "X_Atdm_Word": word_in(get(url).text)}
    assert post(f"{url}choice", body.encode("utf-8", "surrogateescape"), **own).status == status
    assert choice_of(stage.state(stage.names[0])) == "takes part"


def test_every_answer_carries_the_headers(url):
    for path in ("", "choice", "nowhere"):
        headers = get(f"{url}{path}").headers
        assert headers["cache-control"] == "no-store" and headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
    assert "form-action 'none'" in get(url).headers["content-security-policy"]


def test_elsewhere_than_loopback_it_needs_the_token_that_is_in_a_file_and_in_no_log(stage, monkeypatch):
    monkeypatch.setattr(Address, "loopback", property(lambda self: False))
    kept, addresses = stage.state(stage.names[0]) / "page-address", []
    for _ in range(2):
        stage.said.clear()
        with serving_owner(HERE, stage.said.append, stage.seats):
            url = re.search(r"http://\S+/", stage.said[0])[0]
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            addresses.append(kept.read_text().strip())
            token = addresses[-1].rpartition("?token=")[2]
            assert len(token) == 43 and not any(token in line for line in stage.said) and str(kept) in stage.said[0]
            assert get(url).status == get(f"{url}events").status == get(f"{url}?token=x").status == 403
            assert post(f"{url}choice", "{}", Origin=url.removesuffix("/")).status == 403
            entered = get(f"{url}?token={token}")
            cookie = entered.headers["set-cookie"]
            assert entered.status == 303 and "HttpOnly" in cookie and "SameSite=lax" in cookie
            assert get(url, Cookie=cookie.partition(";")[0]).status == 200
    assert addresses[0].rpartition("=")[2] == addresses[1].rpartition("=")[2], "a bookmark stays good"
    kept.write_text("http://x/?token=short")
    assert len(kept_token(kept)) == 43
    kept.unlink()
    assert kept_token(kept) != kept_token(kept)


def test_without_an_address_there_is_no_page_and_a_bad_one_is_refused():
    with owners_page(None, print)([]):
        pass
    with pytest.raises(UsageError, match="write HOST:PORT"):
        owners_page("nowhere", print)


# In words


def asked(reason="", days=(3, 3), sent=("Ready",), **other):
    plan = Asked("collect", "equal", 96, 0, 95 * 1800, 1800)
    return Exchange("t", "Announce", 150, sent, 190, reason=reason, asked=plan, days=days, **other)


def reply(message, *sent, reason=""):
    return Exchange("t", message, 10, sent, 100 * len(sent), reason=reason)


@pytest.mark.parametrize(
    ("history", "under_way", "kind", "outcome"),
    [
        ([asked(), reply("Keys", "Masked offer"), reply("Finished")], False, "done", "your home took part"),
        ([asked(TOO_FEW, (2, 3)), reply("Finished")], False, "done", f"your home took part on 2 of 3 days ({TOO_FEW})"),
        ([asked(PAUSED, (0, 3)), reply("Abort")], False, "out", f"your home stayed out: {PAUSED}"),
        ([asked(f"home: {PAUSED}", (0, 0), ("Refuse",))], False, "out", f"your home stayed out: {PAUSED}"),
        ([asked("for another roster", (0, 0), (), ignored=True)], False, "out", "not answered: for another roster"),
        ([asked(), reply("Keys", "Refuse", reason="home: this agent is not in the company")], False, "out",
         "the others went on without your home this time"),
        ([asked(), reply("Total 0", "Refuse", reason="home: check words")], False, "stopped",
         "your home ended it: check words"),
        ([asked(), reply("Abort", reason="<b>x")], False, "stopped",
         "ended without a result; the aggregator says: <b>x"),
        ([asked(), reply("Keys", "Masked offer")], True, "open", "under way"),
        ([asked(), reply("Keys", "Masked offer")], False, "stopped", "your home took part; no end was heard"),
    ],
)  # fmt: skip
def test_each_run_is_told_in_words(history, under_way, kind, outcome):
    (first, second) = runs_of([reply("Total"), asked(), *history], under_way)
    assert first["kind"] == "stopped"
    assert (second["kind"], second["outcome"]) == (kind, outcome)
    assert second["what"] == "mean temperature and heating of all homes together: up to 96 rows of 30 min"
    assert second["window"] == [0, 95 * 1800]


def test_what_it_allows_says_what_other_protocols_show():
    assert len(allowed(Rules())) == 1 and "at least 10 homes" in allowed(Rules())[0]
    more = allowed(Rules(protocols=("blind", "paper"), weights="fitted"))
    assert len(more) == 3 and "protects less" in more[1] and "every reading" in more[2]
