"""A fleet that changes, over NATS and as processes: an outage, a death, three homes that join, one with a new key.

Nobody helps: `atdm observe` is called at the end of each day, as a timer would, and goes on as far as the rules allow.
"""

import shutil
import signal
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nats", reason="the nats extra is not installed")

from atdm.data.format import Format  # noqa: E402
from atdm.deploy.agent import read_account  # noqa: E402
from atdm.deploy.aggregator import aggregate, plan_from  # noqa: E402
from atdm.deploy.conductor import AggregatorConfig  # noqa: E402
from atdm.deploy.enrolment import (  # noqa: E402
    create_agent,
    create_aggregator,
    create_authority,
    create_roster,
    read_agent,
    read_roster,
)
from atdm.deploy.fleet import Fleet  # noqa: E402
from atdm.deploy.observe import Observation  # noqa: E402
from atdm.deploy.rehearse import _program, spawn, stop  # noqa: E402
from atdm.deploy.server import LocalServer  # noqa: E402
from atdm.deploy.watch import Seeing, watch_rows  # noqa: E402
from atdm.errors import RunAborted  # noqa: E402
from atdm.model.fitted import Model  # noqa: E402
from atdm.protocol.account import BLOCK, HOLE, MOST_ASKINGS  # noqa: E402
from atdm.protocol.options import fit_options
from atdm.protocol.plan import DAY  # noqa: E402

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

    def enrol(self, homes: list[str], seed: int, since: int | None = None) -> None:
        draw = np.random.default_rng(seed).bytes
        for home in homes:
            create_agent(self.keys, home, draw)
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
        for first in range(0, len(homes), self.per_process):
            group = homes[first : first + self.per_process]
            pairs = [x for h in group for x in ("--identity", str(self.keys / h), "--data", str(self.data(h)))]
            command = [*_program("agent"), *pairs, "--roster", str(self.roster), "--weather", str(self.weather)]
            process = spawn([*command, "--nats", url, "--dither", "0"], self.folder / f"{group[0]}.log")
            self.processes.update(dict.fromkeys(group, process))

    def identities(self) -> dict[str, str]:
        pinned = read_agent(self.keys / next(iter(self.temperature))).pinned.authority
        return {m.identity.hex(): m.name for m in read_roster(self.roster, pinned).members}

    def config(self, url: str, wait: float = 4.0) -> AggregatorConfig:
        return AggregatorConfig(
            identity=self.keys / "aggregator", roster=self.roster, servers=(url,), wait=wait, deadline=20.0
        )


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
            town.enrol([replaced, *late], 4, since=BORDER)  # a new key for the same home, and three new homes
            names |= town.identities()
            server.stop()
            server.start()  # with the users of the new roster
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


def fitted(town: Town, url: str) -> Model:
    """`atdm aggregator` with equal weights over the first four days."""
    bounds = (pd.Timestamp(s, unit="s", tz="UTC") for s in (FIRST * DAY, (FIRST + 4) * DAY - HOUR))
    start, end = bounds
    plan, weather = plan_from(
        town.weather,
        fit_options(protocol="blind", order=1, weights="equal", train=0.7),
        declared=Format(),
        start=start,
        end=end,
    )
    fit = aggregate(town.config(url, wait=60.0), plan, weather, lambda text: None).fit
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
