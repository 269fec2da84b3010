"""The live page's state and server: whole first, then changes; bounded; read-only; not for strangers."""

import json
import re
import socket
import sys
import time

import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'atdm[ui]'")

from atdm.cli import main, with_address
from atdm.deploy import events
from atdm.errors import RunAborted, UsageError
from atdm.ui import guard, host
from atdm.ui.host import Address, bind, parse_address
from atdm.ui.live import MOST_LINES, LiveState
from atdm.ui.serve import serving, watching
from tests.clusters import tiny
from tests.deploy.test_rehearse import write_tables
from tests.report.conftest import get

HERE = Address("127.0.0.1", 0)
RESULT = events.ModelReleased(
    status="converged", iterations=5, sums=9, agents=3, rows=100, ridge=100.0,
    metrics={"test": {"free_run": {"r2": 0.87, "rmse": 0.29, "mape": 1.3}}},
    model={"alpha": (0.9,), "beta": (0.1, 0.2), "gamma": (0.3, 0.4), "theta": (0.5, 0.6)},
    seconds=1.5, notes=("a note",),
)  # fmt: skip


def planned(*names: str) -> events.Planned:
    return events.Planned("blind", "order 1", names, 60.0, 60.0)


def fed(*happened: events.AnyEvent) -> LiveState:
    state = LiveState()
    for event in happened:
        state.take(event)
    return state


def sections(state: LiveState):
    return state.since(0)[1]


RUN = (
    planned("a", "b", "c", "d"), events.Joined((0,)), events.Joined((0, 1, 2)), events.Announced(0, (0, 1, 2)),
    events.Asked(1, "Announce", 300), events.Answered(0, "Ready", 100), events.Answered(1, "Ready", 100),
    events.Answered(2, "Ready", 100), events.Company((0, 1), {"c": "too few readings on some days", "d": "no answer"}),
    events.RoundDone(1, "Ready", 0.5, 200, 300), events.Asked(2, "Total", 10), events.Answered(1, "step", 100),
)  # fmt: skip


def test_the_state_of_every_agent_follows_the_run() -> None:
    found = sections(fed(*RUN))
    assert found["names"] == ["a", "b", "c", "d"] and found["states"] == "waxx"
    assert found["now"] == {"round": 2, "what": "next basis total", "answered": 1, "of": 2}
    assert [row["what"] for row in found["rounds"]] == ["who is in, and keys"]
    done = sections(fed(*RUN, RESULT))
    assert (
        done["states"] == "ddxx"
        and done["run"]["status"] == "done"
        and ("test R², free run", "0.870") in done["result"]["facts"]
    )
    assert done["result"]["model"] == [
        ["lag", "α [-]", "β [K/kW]", "γ [-]", "θ [K m²/kW]"], ["t−0", "", "0.10000", "0.30000", "0.50000"],
        ["t−1", "0.90000", "0.20000", "0.40000", "0.60000"],
    ]  # fmt: skip


def test_who_is_out_is_named_with_its_reason_and_the_run_goes_on() -> None:
    found = sections(fed(*RUN))
    assert [(row["agent"], row["text"]) for row in found["out"]] == [
        ("c", "too few readings on some days"), ("d", "no answer"),
    ]  # fmt: skip
    assert (found["run"]["joined"], found["run"]["inside"], found["run"]["status"]) == (3, 2, "running")
    again = sections(fed(*RUN, planned("a", "b", "c", "d")))  # the next days of a window, with another company
    assert again["out"] == [] and again["run"]["inside"] is None and again["states"] == "...."


def test_rows_with_equal_weights_are_told_as_such() -> None:
    learned = events.Learned(({"party": "aggregator", "what": "scalars", "shape": [1], "times": 90},
                              {"party": "aggregator", "what": "state", "shape": [90], "times": 1}))  # fmt: skip
    begun = (events.Planned("collect", "rows", ("a", "b"), 60.0, 60.0), events.Announced(0, (0, 1)))
    round_ = (events.Asked(1, "Keys", 9), events.RoundDone(1, "show", 0.1, 9, 9))
    found = sections(fed(*begun, *round_, learned, RESULT))
    assert [row["means"] for row in found["ledger"]] == ["which rows everybody gave", "the mean temperature"]
    assert ["weights", "equal"] in [list(fact) for fact in found["result"]["facts"]]
    assert not any(name == "ridge λ" for name, _ in found["result"]["facts"])
    assert [row["total"] for row in found["rounds"]] == [True]
    fitted = sections(fed(*RUN, learned, RESULT))
    assert fitted["ledger"][1]["means"] == "the aggregate temperature"
    assert ("ridge λ", "100 K²") in fitted["result"]["facts"]


def test_what_portions_of_a_window_showed_adds_up() -> None:
    """A window is collected a week at a time, each in a run of its own: the ledger is that of all of them."""

    def portion(rows: int) -> tuple[events.AnyEvent, ...]:
        told = [{"party": "aggregator", "what": "scalars", "shape": [1], "times": rows}]
        series = [{"party": "aggregator", "what": "state", "shape": [rows], "times": 1}]
        planned = events.Planned("collect", f"{rows} rows", ("a", "b"), 60.0, 60.0)
        return planned, events.Learned(tuple(told)), events.Learned((*told, *series))

    state = fed(*portion(336), *portion(336), *portion(90))
    assert [(row["what"], row["size"], row["times"]) for row in sections(state)["ledger"]] == [
        ("scalars", "1", 762), ("state", "762", 1),
    ]  # fmt: skip
    assert sections(state)["run"]["plan"] == "90 rows"
    state.take(RESULT)
    assert sections(state)["run"]["plan"] == "", "that was of the last run alone"
    state.written("out/report.html", "It is off by 0.3 K after 24 h.")
    assert sections(state)["run"]["text"] == "Done. It is off by 0.3 K after 24 h."
    metrics = events.Learned(({"party": "aggregator", "what": "metrics", "shape": [15], "times": 1},))
    again = fed(planned("a"), metrics, planned("a"), metrics)
    assert [(row["size"], row["times"]) for row in sections(again)["ledger"]] == [("15", 2)]


def test_refusals_name_the_agent_and_its_reason_once() -> None:
    found = sections(fed(*RUN, events.Refused(1, "b: too short"), events.Ignored(0, 9, "no message"),
                         events.Aborted("agent b: too short")))  # fmt: skip
    assert found["states"][1] == "r" and found["run"]["status"] == "aborted"
    assert [(notice["agent"], notice["text"]) for notice in found["notices"]] == [
        ("b", "refused: too short"), ("a", "9 bytes ignored: no message"),
    ]  # fmt: skip


def test_a_reader_gets_what_changed_since_it_last_looked() -> None:
    state = fed(*RUN)
    version, whole = state.since(0)
    assert whole.keys() == {"run", "names", "states", "out", "now", "rounds", "ledger", "notices", "log", "result"}
    assert state.since(version) == (version, {})
    state.take(events.Said("hello"))
    assert state.since(version)[1] == {"log": ["hello"]}


def test_ten_thousand_agents_and_a_hundred_thousand_events_take_little_time_and_room() -> None:
    state = fed(planned(*(f"agent{i}" for i in range(10_000))), events.Announced(0, tuple(range(10_000))))
    began = time.perf_counter()
    for i in range(10):
        state.take(events.Asked(i + 1, "Total", 1))
        for agent in range(10_000):
            state.take(events.Answered(agent, "step", 100))
            if agent % 100 == 0:
                state.take(events.Said("x" * 100))
        state.take(events.RoundDone(i + 1, "step", 0.1, 1, 1))
    assert time.perf_counter() - began < 5.0
    assert len(sections(state)["log"]) == MOST_LINES
    assert len(json.dumps(sections(state))) < 300_000


# The server


def changes(text: str) -> list[tuple[str, dict]]:
    return [(kind, json.loads(data)) for kind, data in re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)]


def ask(url: str) -> socket.socket:
    """An open stream that is read only when a test does."""
    host, port = url.removeprefix("http://").strip("/").split(":")
    stream = socket.create_connection((host, int(port)), timeout=20)
    stream.sendall(f"GET /events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return stream


def read_until(stream: socket.socket, mark: bytes) -> bytes:
    found = b""
    while mark not in found:
        part = stream.recv(65536)
        assert part, found[-500:]
        found += part
    return found


def url_said(said: list[str]) -> str:
    return re.search(r"http://\S+", said[0])[0]


def test_a_browser_that_comes_late_gets_everything_and_then_changes() -> None:
    state, said = fed(*RUN), []
    with serving(state, HERE, said.append), ask(url_said(said)) as stream:
        first = read_until(stream, b'"log"').decode()
        assert '"states": "waxx"' in first and '"names": ["a", "b", "c", "d"]' in first
        state.take(events.Answered(0, "step", 100))
        then = read_until(stream, b'"aaxx"').decode()
        assert '"names"' not in then and '"rounds"' not in then
        state.take(RESULT)
        read_until(stream, b'"done"')
    # the server has said goodbye


def test_a_browser_that_stops_reading_holds_nothing_and_does_not_hold_up_the_run() -> None:
    state, said = fed(*RUN), []
    with serving(state, HERE, said.append), ask(url_said(said)) as stream:
        began = time.perf_counter()
        for i in range(60_000):
            state.take(events.Said(f"{i} {'x' * 200}"))  # 12 MB
            if i % 20_000 == 0:
                time.sleep(2 * guard.EVERY)
        assert time.perf_counter() - began < 10
        assert len(read_until(stream, b"59999 ")) < 1_000_000


def test_leaving_tells_browsers_that_the_command_has_ended() -> None:
    said: list[str] = []
    with serving(fed(*RUN, RESULT), HERE, said.append):
        stream = ask(url_said(said))
        read_until(stream, b"event: change")  # a browser that watches, not one that is still on its way
    with stream:
        assert b"event: gone" in read_until(stream, b"gone")


HEADERS = ("content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy", "cache-control",
           "cross-origin-opener-policy", "cross-origin-resource-policy")  # fmt: skip


def test_every_answer_forbids_what_it_does_not_need() -> None:
    said: list[str] = []
    with serving(fed(), HERE, said.append) as live:
        url = url_said(said)
        assert get(f"{url}report.html").status == 404
        live.report = "<h1>report</h1>"
        for path, status in (("", 200), ("report.html", 200), ("nowhere", 404)):
            answer = get(url + path)
            assert answer.status == status and set(HEADERS) <= answer.headers.keys()
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "unsafe-eval" not in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store" and "server" not in answer.headers
        page = get(url)
        assert "unsafe-inline" not in page.headers["content-security-policy"]
        assert not re.search(r"""(?:src|href|url\()\s*=?\s*["']?\s*(?:https?:)?//""", page.text)


def test_nothing_can_be_changed_through_it() -> None:
    said: list[str] = []
    with serving(fed(), HERE, said.append):
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            for path in ("", "events", "report.html"):
                assert get(url_said(said) + path, method).status == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_another_sites_name_pointed_here_is_refused(host: str) -> None:
    said: list[str] = []
    with serving(fed(), HERE, said.append):
        for path in ("", "events", "report.html"):
            assert get(url_said(said) + path, Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1:9000", "[::1]:9000"])
def test_a_tunnel_from_another_port_is_not(host: str) -> None:
    said: list[str] = []
    with serving(fed(), HERE, said.append):
        assert get(url_said(said), Host=host).status == 200


def test_an_address_that_others_can_reach_needs_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Address, "loopback", False)  # as it would be for 0.0.0.0
    said: list[str] = []
    with serving(fed(), HERE, said.append) as live:
        live.report = "<h1>report</h1>"
        (line,) = said
        bare, token = re.search(r"(http://\S+/)\?token=(\S{40,})$", line).groups()
        for path in ("", "events", "report.html", "nowhere", "?token=", "?token=" + token[:-1], "events?token=wrong"):
            assert get(bare + path).status == 403
            assert get(bare + path, Cookie="atdm=wrong").status == 403
        entered = get(f"{bare}?token={token}")
        assert entered.status == 303 and entered.headers["location"] == "/"
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie and token not in cookie
        assert get(f"{bare}?token={token}", Host="evil.example").status == 421
        port, shown = bare.rpartition(":")[2].strip("/"), cookie.partition(";")[0]
        page = get(bare, Cookie=shown)
        assert page.status == 200 and token not in page.text
        assert get(f"{bare}report.html", Cookie=shown).status == 200
        assert get(bare, Cookie=f"atdm-{port}={token}").status == 403, "the cookie is not the token"
    second: list[str] = []
    with serving(fed(), HERE, second.append):
        assert token not in second[0], "every run has its own"


def test_pages_of_one_host_do_not_take_each_others_cookies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Address, "loopback", False)
    said: list[str] = []
    with serving(fed(), HERE, said.append), serving(fed(), HERE, said.append):
        opened = [line.partition(": ")[2] for line in said]
        jar = [get(url).headers["set-cookie"].partition(";")[0] for url in opened]
        assert len({cookie.partition("=")[0] for cookie in jar}) == 2
        bare = [url.partition("?")[0] for url in opened]
        assert [get(url, Cookie="; ".join(jar)).status for url in bare] == [200, 200]
        assert get(bare[0], Cookie=jar[1]).status == get(bare[1], Cookie=jar[0]).status == 403
        tunnelled = get(opened[0], Host="localhost:9000").headers["set-cookie"].partition(";")[0]
        assert tunnelled.startswith("atdm-9000=")
        assert get(bare[0], Host="localhost:9000", Cookie=tunnelled).status == 200
        words = {cookie.partition("=")[2] for cookie in jar}
    with serving(fed(), HERE, said.append):
        new = get(said[-1].partition(": ")[2]).headers["set-cookie"].partition(";")[0].partition("=")[2]
        assert new not in words, "a cookie ends with its server"


def test_behind_a_proxy_with_tls_the_cookie_goes_nowhere_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Address, "loopback", False)
    said: list[str] = []
    with serving(fed(), HERE, said.append):
        url = said[0].partition(": ")[2]
        for scheme, secure in (("https", True), ("http", False)):
            entered = get(url, Host="localhost", **{"X-Forwarded-Proto": scheme}).headers["set-cookie"]
            assert ("; Secure" in entered) is secure and entered.startswith("atdm=")


def test_the_token_is_asked_for_wherever_the_address_is_not_this_machine_alone() -> None:
    assert all(parse_address(text).loopback for text in ("127.0.0.1:1", "localhost:1", "[::1]:1", "127.8.8.8:1"))
    assert not any(parse_address(text).loopback for text in ("0.0.0.0:1", "[::]:1", "192.168.1.5:1", "host.example:1"))
    assert parse_address("[::1]:8765").url() == "http://[::1]:8765/"
    assert socket.gethostname().lower() in parse_address("0.0.0.0:1").url()


@pytest.mark.parametrize("text", ["", "8765", "localhost", "127.0.0.1:", ":8765", "127.0.0.1:x", "a:70000", "a:-1"])
def test_a_bad_address_is_one_line_with_the_way_out(text: str) -> None:
    with pytest.raises(UsageError, match="write HOST:PORT, such as 127.0.0.1:8765"):
        parse_address(text)


def test_an_address_that_cannot_be_had_ends_the_command_before_anybody_is_asked(tmp_path, monkeypatch, capsys) -> None:
    zones, weather = write_tables(tiny(1, agents=3, rows=40), tmp_path)
    with bind(HERE) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        for address, why in ((busy, "in use"), ("host.invalid:8765", "choose another"), ("nonsense:x", "HOST:PORT")):
            for words in (
                [
                    "aggregator",
                    "--identity",
                    "x",
                    "--roster",
                    "y",
                    "--weather",
                    weather,
                    "--nats",
                    "tls://x:1",
                    "-o",
                    tmp_path / "out",
                ],
                ["rehearse", zones, weather, "--least-agents", "3"],
            ):
                monkeypatch.setattr(sys, "argv", ["atdm", *map(str, words), "--ui", address])
                with pytest.raises(SystemExit) as ended:
                    main()
                said = capsys.readouterr().err.strip().splitlines()
                assert ended.value.code == 2 and len(said) == 1 and why in said[0]


def test_a_bare_ui_means_the_usual_address() -> None:
    assert with_address(["rehearse", "z", "w", "--ui"]) == ["rehearse", "z", "w", "--ui=127.0.0.1:8765"]
    assert with_address(["rehearse", "--ui", "z", "w"]) == ["rehearse", "--ui=127.0.0.1:8765", "z", "w"]
    assert with_address(["aggregator", "--ui", "--json"]) == ["aggregator", "--ui=127.0.0.1:8765", "--json"]
    given = ["aggregator", "--ui", "0.0.0.0:80", "--json"]
    assert with_address(given) == given


# What a command does with it


def test_the_page_stays_for_as_long_as_asked_and_the_file_keeps_every_event(tmp_path) -> None:
    said: list[str] = []
    file = tmp_path / "events.jsonl"
    began = time.monotonic()
    with watching("127.0.0.1:0", 0.3, file, said.append) as watch:
        for event in (*RUN, RESULT):
            watch.report(event)
        watch.written("<p>report</p>", tmp_path / "report.html")
    assert 0.3 <= time.monotonic() - began < 10
    assert said[-1] == "done; the live page stays for 0.3 s"
    assert [events.from_line(line) for line in file.read_bytes().splitlines()] == [*RUN, RESULT]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_failed_can_still_be_looked_at_unless_it_was_stopped_by_hand(stopped: bool) -> None:
    said: list[str] = []
    with pytest.raises(RunAborted), watching("127.0.0.1:0", 0.1, None, said.append) as watch:
        if stopped:
            watch.report(events.Aborted("stopped", stopped=True))
        raise RunAborted("no answer from zone03")
    expected = [] if stopped else ["ended without a result (no answer from zone03); the live page stays for 0.1 s"]
    assert said[1:] == expected and watch.state.ended


def test_a_full_disk_ends_the_file_and_not_the_run(tmp_path) -> None:
    class Full:
        def write(self, _: bytes) -> int:
            raise OSError(28, "No space left on device")

    said: list[str] = []
    with watching(None, None, tmp_path / "events.jsonl", said.append) as watch:
        watch.file = Full()
        watch.report(events.Said("one"))
        watch.report(events.Said("two"))
    assert said == ["no more events are written: No space left on device"]


def test_without_the_extra_the_way_out_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UsageError, match=r"pip install 'atdm\[ui\]'"), serving(LiveState(), HERE, print):
        pass
    assert host.DEFAULT == "127.0.0.1:8765"
