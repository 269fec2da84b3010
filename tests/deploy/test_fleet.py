"""A fleet that changes, over NATS and as processes: an outage, a death, three homes that join, one with a new key.

Nobody helps: `atdm observe` is called at the end of each day, as a timer would, and goes on as far as the rules allow.
"""

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nats", reason="the nats extra is not installed")

from atdm.data.format import Format  # noqa: E402
from atdm.data.readings import Weather  # noqa: E402
from atdm.deploy.agent import read_account  # noqa: E402
from atdm.deploy.aggregator import Deployed, aggregate, plan_from  # noqa: E402
from atdm.deploy.conductor import AggregatorConfig, Conductor  # noqa: E402
from atdm.deploy.enrolment import (  # noqa: E402
    create_agent,
    create_aggregator,
    create_authority,
    create_roster,
    read_agent,
    read_roster,
    replace_key,
    retire_key,
)
from atdm.deploy.fleet import Fleet  # noqa: E402
from atdm.deploy.observe import Observation  # noqa: E402
from atdm.deploy.rehearse import _program, spawn, stop  # noqa: E402
from atdm.deploy.server import LocalServer, reload_server  # noqa: E402
from atdm.deploy.watch import Seeing, watch_rows  # noqa: E402
from atdm.errors import RunAborted  # noqa: E402
from atdm.model.fitted import Model  # noqa: E402
from atdm.options import fit_options
from atdm.protocol.account import BLOCK, HOLE, MOST_ASKINGS  # noqa: E402
from atdm.protocol.plan import DAY, Plan  # noqa: E402
from tests.deploy.theatre import kind_of  # noqa: E402

BORDER = 710 * BLOCK  # a day at which a block of 28 days begins
HOUR = 3600
FIRST, LAST = BORDER - 8, BORDER + 2  # days of data
SEED = 7


class Town:
    """Homes with files that grow, their processes, and the aggregator's folder."""

    def __init__(self, folder: Path, homes: list[str], per_process: int) -> None:
        self.folder, self.per_process = folder, per_process
        self.keys, self.roster = folder / "keys", folder / "roster.json"
        rng = np.random.default_rng(SEED)
        self.time = np.arange(FIRST * DAY, (LAST + 1) * DAY, HOUR)
        hours = self.time / HOUR
        outdoor = 5 + 4 * np.sin(2 * np.pi * hours / 24) + 0.3 * rng.normal(size=len(hours)).cumsum()
        solar = 300 * np.clip(np.sin(2 * np.pi * (hours % 24 - 6) / 24), 0, None) * rng.uniform(0.3, 1, len(hours))
        self.weather = folder / "weather.csv"
        pd.DataFrame({"time": self.stamps(), "outdoor_temp_c": outdoor, "solar_w_m2": solar}).to_csv(
            self.weather, index=False
        )
        self.temperature = {h: np.round(20 + rng.normal(0, 1) + 0.1 * rng.normal(size=len(hours)).cumsum(), 2)
                            for h in homes}  # fmt: skip
        self.load = {h: np.round(rng.gamma(2.0, 0.5, len(hours)), 3) for h in homes}
        self.absent = {h: np.zeros(len(hours), dtype=bool) for h in homes}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "data").mkdir()
        create_authority(self.keys, np.random.default_rng(1).bytes, rehearsal=True)
        create_aggregator(self.keys, np.random.default_rng(2).bytes, rehearsal=True)

    def stamps(self) -> pd.DatetimeIndex:
        return pd.DatetimeIndex(pd.to_datetime(self.time, unit="s", utc=True))

    def enrol(self, homes: list[str], seed: int, since: int | None = None, new_keys: Sequence[str] = ()) -> None:
        draw = np.random.default_rng(seed).bytes
        for home in homes:
            create_agent(self.keys, home, draw)
        for home in new_keys:  # on the day before they give again, as the town's own clock has it
            with pytest.MonkeyPatch.context() as clock:
                clock.setattr("atdm.deploy.enrolment.today", lambda: since - 1)
                replace_key(self.keys, home)
        create_roster(self.keys, self.roster, ["127.0.0.1"], since)

    def write(self, until: int, homes: list[str]) -> None:
        """Every home's file as it is after the row `until`."""
        for home in homes:
            there = (self.time <= until) & ~self.absent[home]
            table = pd.DataFrame({
                "time": self.stamps()[there], "agent": home, "indoor_temp_c": self.temperature[home][there],
                "load_kw": self.load[home][there],
            })  # fmt: skip
            partial = self.data(home).with_suffix(".partial")
            table.to_csv(partial, index=False)
            partial.replace(self.data(home))

    def data(self, home: str) -> Path:
        return self.folder / "data" / f"{home}.csv"

    def start(self, homes: list[str], url: str) -> None:
        """With their keys and readings, and nothing else."""
        for first in range(0, len(homes), self.per_process):
            group = homes[first : first + self.per_process]
            pairs = [x for h in group for x in ("--identity", str(self.keys / h), "--data", str(self.data(h)))]
            process = spawn(
                [*_program("agent"), *pairs, "--nats", url, "--dither", "0"], self.folder / f"{group[0]}.log"
            )
            self.processes.update(dict.fromkeys(group, process))

    def identities(self) -> dict[str, str]:
        pinned = read_agent(self.keys / next(iter(self.temperature))).pinned.authority
        return {m.identity.hex(): m.name for m in read_roster(self.roster, pinned).members}

    def config(self, url: str, wait: float = 4.0, **options: Any) -> AggregatorConfig:
        return AggregatorConfig(
            identity=self.keys / "aggregator", roster=self.roster, servers=(url,), wait=wait,
            **{"deadline": 20.0, **options},
        )  # fmt: skip

    def plan(self, first: int, last: int) -> tuple[Plan, Weather]:
        """Equal weights over these days."""
        start, end = (pd.Timestamp(s, unit="s", tz="UTC") for s in (first * DAY, (last + 1) * DAY - HOUR))
        options = fit_options(protocol="blind", order=1, weights="equal", train=0.7)
        return plan_from(self.weather, options, declared=Format(), start=start, end=end)


@pytest.mark.parametrize("per_process", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_a_fleet_goes_on_by_itself_within_the_rules(tmp_path: Path, per_process: int) -> None:
    first = [f"home{i:02d}" for i in range(17)]
    late = ["home17", "home18", "home19"]
    town = Town(tmp_path, first + late, per_process)
    steady, dies, replaced = [h for h in first if h not in ("home07", "home09")], "home09", "home07"
    town.enrol(first, 3)
    town.absent["home05"] |= (town.time >= (BORDER - 3) * DAY + 6 * HOUR) & (town.time < (BORDER - 2) * DAY + 12 * HOUR)
    names: dict[str, str] = {}
    rows: list[Observation] = []
    table = pd.DataFrame()

    def end_of(day: int, hour: int = 23) -> int:
        return day * DAY + hour * HOUR

    server = LocalServer(tmp_path / "nats")
    with server:
        try:
            town.write(end_of(BORDER - 5), first)
            town.start(steady, server.url)
            town.start([dies], server.url)
            town.start([replaced], server.url)
            names |= town.identities()
            model = fitted(town, server.url)

            def collect(day: int, hour: int = 23, wait: float = 4.0) -> None:
                nonlocal table
                town.write(end_of(day, hour), list(town.processes))
                found: list[Observation] = []
                seeing = Seeing(
                    back=pd.Timedelta("72h"), known=lambda: pd.DatetimeIndex(table.index),
                    until=pd.Timestamp(end_of(day, hour), unit="s", tz="UTC"),
                )  # fmt: skip
                try:
                    watch_rows(town.config(server.url, wait), model, lambda text: None, found.append, seeing)
                except RunAborted:
                    pass  # nothing can be summed yet, or the day is lost: the next call goes on
                rows.extend(found)
                table = pd.concat([table, *(each.table for each in found)])

            collect(BORDER - 4)
            collect(BORDER - 3)  # home05 has six hours of this day: the day is given up, the home stays
            collect(BORDER - 2)  # and is back at noon
            collect(BORDER - 1, 12)
            stop([town.processes.pop(replaced)], patience=0.1)  # its card is dead
            collect(BORDER - 1)  # settled with a home that is gone: the rest of the day is lost
            shutil.rmtree(town.keys / replaced)
            town.enrol([replaced, *late], 4, since=BORDER, new_keys=[replaced])  # for the same home; three new homes
            names |= town.identities()
            assert reload_server(tmp_path / "nats")  # with the users of the new roster
            town.write(end_of(BORDER), [replaced, *late])
            town.start([replaced], server.url)
            town.start(late, server.url)
            collect(BORDER, wait=60.0)  # a new block: all twenty
            process = town.processes.pop(dies)
            process.send_signal(signal.SIGKILL)
            process.wait()
            collect(BORDER + 1)  # silent for a day: left out from here on
            collect(BORDER + 2)
        finally:
            stop(list(town.processes.values()))

    fleet = msgspec.json.decode((town.keys / "aggregator" / "fleet.json").read_bytes(), type=Fleet)
    assert fleet.lost == {BORDER - 3}
    by_day = table.groupby(pd.DatetimeIndex(table.index).floor("D"))
    counted = {int(day.timestamp()) // DAY - BORDER: (len(part), set(part["agents"])) for day, part in by_day}
    assert counted == {-4: (24, {17}), -2: (12, {17}), -1: (13, {17}), 0: (18, {20}), 1: (18, {19}), 2: (24, {19})}
    check_rows(table, fleet, town, names)
    check_rules(table, fleet, town)


class Killer:
    """Ends processes for good, each just before the aggregator sends a kind of message for the n-th time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, town: Town, moments: dict[tuple[str, int], str]) -> None:
        self.town, self.moments, self.sent = town, moments, Counter[str]()
        send, killer = Conductor._send, self

        async def kill_and_send(self: Conductor, batch: Sequence[tuple[int | None, bytes]]) -> None:
            killer.look(kind_of(batch[0][1]))
            await send(self, batch)

        monkeypatch.setattr(Conductor, "_send", kill_and_send)

    def look(self, kind: str) -> None:
        self.sent[kind] += 1
        victim = self.moments.get((kind, self.sent[kind]))
        if victim is not None:
            process = self.town.processes.pop(victim)
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("per_process", [6, pytest.param(1, marks=pytest.mark.soak)])
def test_homes_die_join_and_return_and_a_model_comes_without_a_person(
    tmp_path: Path, per_process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty agents. One dies before a reading left, one after; three join, one returns with a new key. No file is
    copied, no agent that lives is touched."""
    first, late = [f"home{i:02d}" for i in range(20)], ["home20", "home21", "home22"]
    early, replaced = "home09", "home07"
    town, said = Town(tmp_path, first + late, per_process), list[str]()
    town.enrol(first, 3)
    killer = Killer(monkeypatch, town, {("Keys", 1): early, ("Total 0", 2): replaced})
    others = [home for home in first if home not in (early, replaced)]

    def fit(days: tuple[int, int], wait: float) -> Deployed:
        config = town.config(server.url, wait, deadline=4.0, portion=2, at_least=15)
        return aggregate(config, *town.plan(*days), said.append)

    with LocalServer(tmp_path / "nats") as server:
        try:
            town.write(BORDER * DAY - HOUR, first)
            for homes in (others, [early], [replaced]):
                town.start(homes, server.url)
            wait_for_logs(town, "waiting for a roster")
            names = town.identities()
            before = fit((BORDER - 8, BORDER - 1), 4.0).fit

            shutil.rmtree(town.keys / replaced)
            retire_key(town.keys, early)
            town.enrol([replaced, *late], 4, since=BORDER, new_keys=[replaced])
            names |= town.identities()
            assert reload_server(tmp_path / "nats")
            town.write(LAST * DAY + 23 * HOUR, [*others, replaced, *late])
            town.start([replaced], server.url)
            town.start(late, server.url)
            killer.moments = {}
            after = fit((BORDER, LAST), 60.0)
            weather = pd.read_csv(town.weather)
            longer = weather.iloc[-48:].assign(time=pd.to_datetime(weather["time"].iloc[-48:]) + pd.Timedelta("2D"))
            pd.concat([weather, longer]).to_csv(town.weather, index=False)
            again = fit((BORDER, LAST), 60.0)
        finally:
            stop(list(town.processes.values()))

    fleet = msgspec.json.decode((town.keys / "aggregator" / "fleet.json").read_bytes(), type=Fleet)
    days = [str(pd.Timestamp(day * DAY, unit="s").date()) for day in range(BORDER - 8, BORDER)]
    assert f"broken off before any reading left: no answer from {early} within 4 s; asking again" in said
    why = f"no answer from {replaced} within 4 s"
    assert f"broken off after readings of {days[2]} to {days[3]} were asked for: {why}" in said
    assert f"asking once more for {days[2]} to {days[3]}, in case everybody is back" in said
    assert f"lost, unless all of that company come back: {days[2]} to {days[3]} ({why})" in said
    given = {int(stamp.timestamp()) // DAY - BORDER for stamp in before.state.index}
    assert given == {-8, -7, -4, -3, -2, -1} and before.agents == 18
    assert after.fit.agents == 22 and after.fit.out == {} and len(after.fit.state) == 3 * 24 - HOLE // HOUR
    assert again.as_dict()["released"] == after.as_dict()["released"]
    counts = {day - BORDER: len(company) for day, company in fleet.days.items()}
    assert counts == {**dict.fromkeys(range(-8, -4), 19), **dict.fromkeys(range(-4, 0), 18), 0: 22, 1: 22, 2: 22}
    for result in (before, after.fit):
        table = pd.DataFrame({"aggregate_temp_c": result.state, "load_kw": result.load / result.agents})
        for stamp, row in table.iterrows():
            at = int(np.searchsorted(town.time, int(stamp.timestamp())))
            homes = [names[key] for key in fleet.days[int(stamp.timestamp()) // DAY]]
            assert row["aggregate_temp_c"] == pytest.approx(np.mean([town.temperature[h][at] for h in homes]), abs=1e-9)
            assert row["load_kw"] == pytest.approx(np.mean([town.load[h][at] for h in homes]), abs=1e-6)


def wait_for_logs(town: Town, text: str) -> None:
    """Until every home has said it in the log of its process."""
    end = time.monotonic() + 60.0
    while sum(path.read_text().count(text) for path in town.folder.glob("*.log")) < len(town.processes):
        assert time.monotonic() < end, [path.read_text()[-300:] for path in town.folder.glob("*.log")]
        time.sleep(0.1)


def fitted(town: Town, url: str) -> Model:
    """`atdm aggregator` with equal weights over the first four days."""
    fit = aggregate(town.config(url, wait=60.0), *town.plan(FIRST, FIRST + 3), lambda text: None).fit
    inside = np.isin(town.time, np.arange(FIRST * DAY, (FIRST + 4) * DAY, HOUR))
    mean = np.mean([town.temperature[h][inside] for h in town.processes], axis=0)
    assert np.abs(fit.state.to_numpy() - mean).max() < 1e-9
    return fit.model


def check_rows(table: pd.DataFrame, fleet: Fleet, town: Town, names: dict[str, str]) -> None:
    """Every row is the mean and the sum over the company of its day."""
    assert not table.index.duplicated().any()
    for stamp, row in table.iterrows():
        at = int(np.searchsorted(town.time, int(stamp.timestamp())))
        homes = [names[key] for key in fleet.days[int(stamp.timestamp()) // DAY]]
        assert len(homes) == row["agents"]
        assert row["aggregate_temp_c"] == pytest.approx(np.mean([town.temperature[h][at] for h in homes]), abs=1e-9)
        assert row["load_kw"] == pytest.approx(sum(town.load[h][at] for h in homes), abs=1e-6)


def check_rules(table: pd.DataFrame, fleet: Fleet, town: Town) -> None:
    """Companies only shrink within a block, agents say the same in their accounts, and no row lies beside a change."""
    for day, company in fleet.days.items():
        for other, theirs in fleet.days.items():
            if other // BLOCK == day // BLOCK and other > day:
                assert set(theirs) <= set(company)
    stamps = np.sort([int(t.timestamp()) for t in table.index])
    for day in fleet.days:
        if fleet.days.get(day - 1, fleet.days[day]) != fleet.days[day]:
            assert not ((stamps >= day * DAY) & (stamps < day * DAY + HOLE)).any()
    for home in town.processes:
        account = read_account(town.keys / home / "state")
        assert account.shown.max() <= MOST_ASKINGS
        for day, known in account.days.items():
            if known.company:
                joined = b"".join(sorted(bytes.fromhex(key) for key in fleet.days[day]))
                assert account.companies[known.company] == joined, (home, day - BORDER)
