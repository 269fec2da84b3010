"""docs/homeassistant.md from top to bottom: one home follows the page, eleven others are there, over real NATS."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import atdm
from atdm.deploy.enrolment import create_agent, create_aggregator, create_authority, create_roster
from atdm.deploy.server import LocalServer
from tests.clusters import tiny
from tests.deploy.homes import export

PAGE = (Path(__file__).parents[2] / "docs" / "homeassistant.md").read_text(encoding="utf-8")
SERVER = "tls://nats.example.org:4222"
LATE = 120  # s after which a command of the page hangs


def commands() -> list[tuple[list[str], int]]:
    """The words of every command of the page, and the exit code it names."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.S | re.M):
        for line in block.splitlines():
            exit_code = re.search(r"# exit (\d+)", line)
            words = shlex.split(line.removeprefix("$ "), comments=True)
            found.append((words[1:], int(exit_code[1]) if exit_code else 0))
    return found


def described() -> str:
    """The home.toml of the page."""
    [text] = re.findall(r"^    # home\.toml\n((?:    .*\n)+)", PAGE, re.M)
    return "".join(line.removeprefix("    ") + "\n" for line in text.splitlines())


class Village:
    """The page's folder, and what the organisers and the neighbours have done before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cluster = folder, tiny(3, agents=12, rows=24 * 20, step="1h")
        cluster = self.cluster
        sky = {"time": cluster.time, "outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar}
        pd.DataFrame(sky).to_csv(folder / "weather.csv", index=False)
        homes = export(cluster, folder / "neighbours")
        self.authority = folder / "organisers"
        shutil.copy(create_authority(self.authority, os.urandom), folder / "authority.json")
        shutil.copy(folder / "neighbours" / "zone00" / "home-assistant_v2.db", folder)
        (folder / "home.toml").write_text(described())
        self.neighbours = []
        for name in cluster.agents[1:]:
            spec, options = homes[name]
            file = folder / f"{name}.toml"
            lines = {"source": spec, **options}.items()
            file.write_text("\n".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in lines))
            create_agent(folder / "keys", name, os.urandom, authority=folder / "authority.json")
            self.neighbours += ["--identity", f"keys/{name}", "--source", file.name]
        create_aggregator(folder / "office", os.urandom, authority=folder / "authority.json")

    def sign(self) -> None:
        """The organisers get everybody's enrolment, and send back the roster."""
        for path in (*self.folder.glob("keys/*/enrolment.json"), *self.folder.glob("office/*/enrolment.json")):
            shutil.copy(path, self.authority / f"{path.parent.name}-enrolment.json")
        create_roster(self.authority, self.folder / "roster.json", ["127.0.0.1", "localhost"])

    def start(self, words: list[str]) -> "subprocess.Popen[str]":
        with (self.folder / f"agents-{len(words)}.log").open("w") as log:
            return subprocess.Popen(command(words), cwd=self.folder, stdout=log, stderr=log, text=True)

    def run(self, words: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command(words), cwd=self.folder, capture_output=True, text=True, timeout=LATE)


def command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "atdm", *words]


def test_the_page_leads_from_a_database_to_a_home_that_takes_part(tmp_path):
    """Dither apart, which would hide to what accuracy the models agree."""
    village, running, said = Village(tmp_path), [], {}
    exact = ["--dither", "0", "--history", "36500"]  # these homes recorded years ago
    server = None
    try:
        for words, expected in commands():
            words = [server.url if server and word == SERVER else word for word in words]
            if words[0] == "agent":
                running.append(village.start(["agent", *village.neighbours, "--nats", server.url, *exact]))
                running.append(village.start([*words, *exact]))
                continue
            if words[0] == "aggregator":
                words = [*words, "--wait", str(LATE), "--deadline", str(LATE)]
            done = village.run(words)
            assert done.returncode == expected, f"{words}: {done.stdout}{done.stderr}"
            said.setdefault(words[0], []).append(done.stdout + done.stderr)
            if words[:2] == ["enroll", "agent"]:
                village.sign()
                server = LocalServer(tmp_path / "nats").__enter__()
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(LATE)
        if server is not None:
            server.__exit__(None, None, None)

    assert "there are sensor.room_temperature" in said["check"][0] and "fit to take part" in said["check"][1]
    zones = pd.read_parquet(tmp_path / "mine" / "zones.parquet")
    own = village.cluster.temperature["zone00"]
    assert set(zones["agent"]) == {"my-home"}
    np.testing.assert_allclose(zones["indoor_temp_c"], own, atol=1e-4)
    assert "2024-01-01" in said["account"][0]
    model = atdm.Model.load(tmp_path / "out" / "model.json")
    expected = atdm.fit(village.cluster, weights="equal", dither=0.0).chosen
    np.testing.assert_allclose(model.alpha, expected.alpha, atol=2e-3 * np.abs(expected.alpha).max())
    np.testing.assert_allclose(model.beta, expected.beta, atol=2e-3 * np.abs(expected.beta).max())
