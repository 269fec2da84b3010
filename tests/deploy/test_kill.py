"""kill -9 of an agent, of the aggregator and of the NATS server, at every kind of message, on real processes.

Whoever was killed is started again. The run goes on, or the next one asks the same questions again: either way every
number is the same to the last bit, and agents have answered no question that they would not have answered otherwise.
"""

import json
import multiprocessing
import os
import time

import pytest

from atdm.deploy.agent import read_account
from atdm.deploy.enrolment import read_agent, read_roster
from tests.deploy.theatre import Theatre, agent_process, aggregator_process, in_process

PATIENCE = 45.0  # s for a scenario

POSTS = {
    "fitted": ("Announce", "Keys", "Secret", *(f"Total {i}" for i in range(4)), "Seal", "Finished"),
    "equal": ("Announce", "Keys", "Total 0", "Finished"),
}
ANSWERS = {
    "fitted": ("Ready", *(f"Masked {phase}" for phase in ("rows", "open", "step", "signs")), "Release"),
    "equal": ("Ready", "Masked offer", "Masked show"),
}
LEADER = [("asked", "Keys"), ("answered", "Secrets"), ("answered", "Masked step"), ("answered", "Seal")]
FEW = {  # for every test run; the others soak
    ("fitted", "agent", ("answered", "Masked step")),
    ("fitted", "leader", ("answered", "Seal")),
    ("fitted", "aggregator", ("after", "Total 2")),
    ("fitted", "server", ("after", "Total 3")),
    ("equal", "agent", ("answered", "Masked show")),
    ("equal", "aggregator", ("before", "Finished")),
}
MATRIX = [
    *((w, "agent", ("asked", kind)) for w, posts in POSTS.items() for kind in posts),
    *((w, "agent", ("answered", kind)) for w, answers in ANSWERS.items() for kind in answers),
    *(("fitted", "leader", moment) for moment in LEADER),
    *((w, victim, (when, kind)) for w, posts in POSTS.items() for victim in ("aggregator", "server")
      for kind in posts for when in ("before", "after")),
]  # fmt: skip


@pytest.fixture(scope="module")
def context():
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.deploy.theatre"])
    return found


class Scene:
    """Three processes and a server; whoever dies is started again, once, without a deadly moment."""

    def __init__(self, context, folder, weights):
        self.theatre = Theatre(folder, weights=weights)
        self.context, self.folder, self.weights = context, folder, weights
        self.server = self.theatre.stage.server()
        self.running = {}
        self.deaths = []

    def play(self, victim, moment):
        pinned = read_agent(self.theatre.stage.identity(self.theatre.stage.names[0])).pinned
        members = read_roster(self.theatre.stage.roster, pinned.authority).members
        one = members[0].name if victim == "leader" else members[-1].name
        others = [member.name for member in members if member.name != one]
        result = self.folder / "result.json"
        self.server.start()
        url, deadly = self.server.url, moment if victim in ("agent", "leader") else None
        jobs = {
            "one": lambda m: (agent_process, (self.folder, self.weights, [one], url, m)),
            "others": lambda m: (agent_process, (self.folder, self.weights, others, url, None)),
            "aggregator": lambda m: (aggregator_process, (self.folder, self.weights, url, m, victim_pid, result)),
        }
        victim_pid = self.server.pid if victim == "server" else None
        try:
            for name, job in jobs.items():
                self._start(name, *job(deadly if name == "one" else None if deadly else moment))
            end = time.monotonic() + PATIENCE
            while not result.exists():
                assert time.monotonic() < end, f"hangs after {self.deaths}"
                for name, process in list(self.running.items()):
                    if not process.is_alive() and not result.exists():
                        process.join()
                        self.deaths.append((name, process.exitcode))
                        assert process.exitcode == -9 and len(self.deaths) == 1, self.deaths
                        self._start(name, *jobs[name](None))
                if victim == "server" and self.server._process.poll() is not None:
                    self.deaths.append(("server", self.server._process.returncode))
                    self.server.start()
                time.sleep(0.02)
            return json.loads(result.read_text())
        finally:
            for process in self.running.values():
                process.kill()
                process.join()
                process.close()
            self.server.stop()

    def _start(self, name, target, arguments):
        self.running[name] = self.context.Process(target=target, args=arguments, daemon=True)
        self.running[name].start()


@pytest.mark.parametrize(("weights", "victim", "moment"), [
    pytest.param(*case, marks=() if case in FEW else pytest.mark.soak, id=" ".join((*case[:2], *case[2])))
    for case in MATRIX
])  # fmt: skip
def test_a_kill_changes_no_number_and_costs_no_question(context, tmp_path, weights, victim, moment):
    scene = Scene(context, tmp_path, weights)
    expected = in_process(scene.theatre.stage, scene.theatre.plan).as_dict()
    found = scene.play(victim, moment)
    late = victim in ("agent", "leader") and moment == ("asked", "Finished")  # the result may be out before it dies
    assert len(scene.deaths) == 1 or late
    assert found["released"] == expected["released"] and found["out"] == {}
    for name in scene.theatre.stage.names:
        account = read_account(scene.theatre.state(name))
        assert len(account.time) == len(scene.theatre.cluster.time)
        if weights == "fitted":
            fits = [account.fit_of(day) for day in account.days]
            assert {(fit.totals, fit.signs) for fit in fits} == {(found["cost"]["sums"], 1)}
        assert account.shown.max() <= (2 if victim == "aggregator" else 1)
