"""A whole deployment in one loop, driven by a seed: messages are delayed, reordered, sent twice, lost, altered, sent to
the wrong party or again from an earlier run; agents are killed at a write, restarted or lose their disk; the aggregator
is restarted.

    python -m tests.reliability.simulation SEED [SEED …]     replays runs and says how each ended
    python -m tests.reliability.simulation --runs 1000 [--from SEED] [--processes 2] [--record FILE]
                                                             a series; with a record it goes on where it was stopped

Every run either ends with the plain fit of its roster, exactly the sum of its loads, or without a result. What must
hold for every message ever handed out is checked where it is handed out (`Simulation.hand_out`).

Words of `moments` and `paper` carry no check words: an altered one would be an altered reading of that agent. The
channel protects them (TLS), so here they are lost, cut or replaced by garbage, but no bit of them is flipped.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import msgspec
import numpy as np

import atdm
from atdm.crypto import ring
from atdm.crypto.keys import SigningKey
from atdm.data import Cluster
from atdm.errors import PeerError
from atdm.kernel.descent import Status
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator, State
from atdm.protocol.blind import LOAD_BOUND, Phase
from atdm.protocol.desk import Outcome, Outgoing
from atdm.protocol.messages import Answer, Consent, Masked, Ready, ToAggregator
from atdm.protocol.part import VERIFYING, Host
from atdm.protocol.readings import Readings, seconds
from atdm.protocol.roster import sign_roster
from atdm.protocol.rules import Rules
from atdm.protocol.store import answer_hash, decode_entry, decode_snapshot
from atdm.protocol.sums import BLIND_BUDGET, OPEN_BUDGET
from atdm.run import fit, make_plan, weather_of
from tests.clusters import tiny
from tests.protocol.world import Killed, Ram

ROWS = 32
FAULTS = ("delay", "duplicate", "drop", "alter", "misdeliver", "replay", "kill", "restart", "lose disk", "aggregator")
TRIES = 8  # of one message
MOST_STEPS = 20_000  # events of one attempt; a run takes a few hundred
CLUSTERS = 4  # for each number of agents, so that plain fits are found once
FEW = (3, 3, *[4] * 6, *[5] * 7, *[6] * 6, 7, 7, 8, 9)  # agents of most runs
MANY = range(10, 65)  # of every 40th: one of 64 agents costs as much as twenty of 5
MANY_EVERY = 40
LONG = 1_000_000  # the first seed of `make soak`
CHUNK = 100  # seeds that a process takes at a time
# Of coefficients; docs/spec.md. `paper` keeps 1e-6 unless an agent's random matrix is nearly singular, which happens:
# 1.7e-6 once in 7000 runs of a few agents (seed 1020088).
ROOMS = ("crypto", "data", "kernel", "protocol")  # whose code a simulated run is made of
TOLERANCE = {"blind": 3e-4, "moments": 1e-6, "paper": 1e-5}
_decoder = msgspec.msgpack.Decoder(ToAggregator)


class Wrong(AssertionError):
    """Something that must never happen did."""


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


@cache
def cluster_of(agents: int, number: int) -> Cluster:
    return tiny(100 * agents + number, agents=agents, rows=ROWS)


@cache
def expected(agents: int, number: int, nonnegative: bool):
    """What a trusted centre finds, and the exact sum of loads in fixed point, for either budget."""
    cluster = cluster_of(agents, number)
    found = fit(cluster, "plain", order=1, ridge=20.0, nonnegative="ridge" if nonnegative else False)
    sums = {}
    for budget in (BLIND_BUDGET, OPEN_BUDGET):
        bits = min(63, ring.fractional_bits(agents, LOAD_BOUND, budget))
        integers = [[round(value * 2**bits) for value in column] for column in cluster.load.to_numpy(float).T]
        sums[budget] = np.array([sum(row) / 2**bits for row in zip(*integers, strict=True)])
    return found, sums


@dataclass(slots=True, eq=False)
class Letter:
    """A message under way. to: an agent's place, or −1−place for what an agent sent to the aggregator."""

    to: int
    data: bytes
    attempt: int
    tries: int = 0


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.protocol = rng.choice(("blind", "blind", "moments", "paper"))
        self.size, self.number = rng.choice(FEW if seed % MANY_EVERY else MANY), rng.randrange(CLUSTERS)
        self.nonnegative = self.protocol != "paper" and rng.random() < 0.1
        few = self.protocol == "blind" and rng.random() < 0.03
        self.least = self.size + 1 if few else 3
        self.rate = rng.choice((0.0, 0.002, 0.005, 0.01, 0.03, 0.1))
        self.faults = rng.sample(FAULTS, rng.randint(1, len(FAULTS)))
        self.patient = rng.random() < 0.8  # whether what was lost is sent again
        self.cluster = cluster_of(self.size, self.number)
        self.weather = weather_of(self.cluster)
        self.plan = make_plan(
            self.cluster, self.protocol, order=1, ridge=20.0, nonnegative="ridge" if self.nonnegative else False
        )
        self.rules = Rules(
            protocols=(self.protocol,), least_agents=self.least, rows_per_parameter=1, agents_per_total=1,
            leverage=1.0, colluders=0, dither=0,
        )  # fmt: skip
        authority = SigningKey(rng.randbytes(32))
        keys = {name: SigningKey(rng.randbytes(32)) for name in self.cluster.agents}
        self.roster = sign_roster(authority, [(n, str(self.cluster.owner[n]), keys[n].public) for n in keys])
        self.keys = [keys[member.name] for member in self.roster.members]
        self.secrets = [rng.randbytes(32) for _ in keys]
        self.stores = [Ram() for _ in keys]
        self.agents: list[Agent | None] = [None] * len(keys)
        shared = rng.random()  # everything, all but the checks, or nothing
        self.host = Host() if shared < 0.35 else Host(apart=VERIFYING) if shared < 0.7 else None
        self.sent: dict[tuple, bytes] = {}
        self.masked: dict[tuple[bytes, int], set[int]] = {}  # run, step → agents whose words left
        self.released: set[int] = set()  # blind: rows shown
        self.air: list[Letter] = []
        self.lost: list[Letter] = []
        self.old: list[Letter] = []
        self.wiped: set[int] = set()
        self.attempt = 0
        self.seen: Counter = Counter()

    def agent(self, i: int) -> Agent:
        if self.agents[i] is None:
            name = self.roster.members[i].name
            columns = (self.cluster.temperature[name].to_numpy(float), self.cluster.load[name].to_numpy(float))
            self.agents[i] = Agent(
                identity=self.keys[i], secret=self.secrets[i], roster=self.roster, authority=self.roster.authority,
                readings=Readings(seconds(self.cluster.time), *columns), weather=self.weather,
                rules=self.rules, random_bytes=self.rng.randbytes, store=self.stores[i], host=self.host,
            )  # fmt: skip
        return self.agents[i]

    # What must hold for whatever an agent hands out

    def hand_out(self, i: int, replies: list[bytes]) -> None:
        for reply in replies:
            message = _decoder.decode(reply)
            if isinstance(message, Ready):
                self.seen["ready"] += 1
            elif isinstance(message, Masked | Consent | Answer):
                key = (i, type(message), message.run, message.step)
                need(self.sent.setdefault(key, reply) == reply, f"agent {i} sent two messages under one context")
            if isinstance(message, Masked):
                need(self.size >= self.least, "words left in a run of too few agents")
                self.masked.setdefault((message.run, message.step), set()).add(i)
                self._written_first(i, message, replies)
            if isinstance(message, Consent):
                there = self.masked[message.run, message.step] | {i}  # it may have died before sending its own
                need(len(there) == self.size, f"agent {i} consented while {self.size - len(there)} had sent nothing")

    def _written_first(self, i: int, message: Masked, replies: list[bytes]) -> None:
        store = self.stores[i]
        if not store.entries and store.snapshot and list(decode_snapshot(store.snapshot).replies) == replies:
            return  # sent again: killed while joining the next run, it still has the last answer of the one before
        need(bool(store.entries), "words left before anything was written down")
        entry = decode_entry(self.stores[i].entries[-1])
        need(entry.answer == answer_hash(replies), "words left that are not the ones written down")
        if message.phase == Phase.BASIS:
            need(len(entry.bookings.charges) > 0, "a total left before it was charged")

    # The loop

    def run(self) -> Counter:
        """Up to two attempts; returns what was seen."""
        for _ in range(2):
            outcome = self._attempt()
            self.seen["attempts"] += 1
            if outcome is None:
                self.seen["no result"] += 1
                continue
            self._check(outcome)
            if self.rng.random() < 0.7:
                break
        return self.seen

    def _attempt(self) -> Outcome | None:
        self.attempt += 1
        cohorts = {member.cohort for member in self.roster.members}
        self.role = Aggregator(
            plan=self.plan, roster=self.roster, cohorts=cohorts, weather=self.weather, attempt=self.attempt
        )
        self._post(self.role.start())
        resent, steps = 0, 0
        while self.role.state in (State.GATHERING, State.RUNNING):
            steps += 1
            need(steps < MOST_STEPS, "the run does not end")
            if not self.air:
                if not self.lost or not self.patient or resent > 200:
                    self._post(self.role.abort("the deadline passed"))
                    break
                self.air, self.lost, resent = self.lost, [], resent + 1
            if not self._event():
                break
        for letter in [one for one in self.air if one.to >= 0]:  # whoever is there hears the end
            self.air.remove(letter)
            self._deliver(letter)
        return self.role.desk.outcome if self.role.state is State.DONE else None

    def _event(self) -> bool:
        """One thing happens. False: the aggregator is gone."""
        rng = self.rng
        letter = self.air[rng.randrange(len(self.air))] if "delay" in self.faults else self.air[0]
        if rng.random() >= self.rate:
            self.air.remove(letter)
            self._deliver(letter)
            return True
        fault = rng.choice(self.faults)
        self.seen[fault] += 1
        if fault == "aggregator":
            self.role.state = State.ABORTED  # its process is gone: agents hear nothing more of this run
            return rng.random() < 0.8
        victim = rng.randrange(self.size)
        if fault == "duplicate":
            self.air.append(Letter(letter.to, letter.data, letter.attempt))
        elif fault == "drop":
            self.air.remove(letter)
            self.lost.append(letter)
        elif fault == "alter":
            self._deliver(Letter(letter.to, self._altered(letter), letter.attempt), true=False)
        elif fault == "misdeliver":
            to = rng.randrange(self.size)
            self._deliver(Letter(to if letter.to >= 0 else -1 - to, letter.data, letter.attempt), true=letter.to >= 0)
        elif fault == "replay" and self.old:
            self._deliver(rng.choice(self.old))
        elif fault == "kill":
            self.stores[victim].die, self.stores[victim].after = rng.randint(1, 2), rng.random() < 0.5
        elif fault == "restart":
            self.agents[victim] = None
        elif fault == "lose disk" and rng.random() < 0.2:
            self.stores[victim], self.agents[victim] = Ram(), None
            self.wiped.add(victim)
        return True

    def _altered(self, letter: Letter) -> bytes:
        data, rng = letter.data, self.rng
        way = rng.randrange(4)
        if way == 0:
            return data[: rng.randrange(len(data) + 1)]
        if way == 1:
            return rng.randbytes(rng.randrange(1, 200))
        if way == 2:
            return data + rng.randbytes(rng.randint(1, 9))
        if letter.to < 0 and self.protocol != "blind" and isinstance(_decoder.decode(data), Masked | Answer):
            return data[:-1]
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]

    def _deliver(self, letter: Letter, *, true: bool = True) -> None:
        if len(self.old) < 400:
            self.old.append(letter)
        if letter.to < 0:
            self._to_aggregator(letter, true)
            return
        i = letter.to
        try:
            replies = self.agent(i).receive(letter.data)
        except PeerError:
            self._send_again(letter, true)
            return
        except Killed:
            self.agents[i] = None
            self._send_again(letter, true)
            return
        self.hand_out(i, replies)
        self.air += [Letter(-1 - i, reply, self.attempt) for reply in replies]

    def _to_aggregator(self, letter: Letter, true: bool) -> None:
        if letter.attempt != self.attempt and self.rng.random() < 0.5:
            return  # most transports drop what belongs to a connection that is gone
        try:
            self._post(self.role.receive(-1 - letter.to, letter.data))
        except PeerError:
            self._send_again(letter, true)

    def _send_again(self, letter: Letter, true: bool) -> None:
        """What was not taken comes again, as from transport/nats.py, until it is taken or the run is another."""
        letter.tries += 1
        if true and letter.attempt == self.attempt and letter.tries < TRIES:
            self.lost.append(letter)

    def _post(self, out: list[Outgoing]) -> None:
        for to, data in out:
            self.air += [Letter(i, data, self.attempt) for i in (range(self.size) if to is None else (to,))]

    # The oracle

    def _check(self, outcome: Outcome) -> None:
        need(self.size >= self.least and len(self.role.members) == self.size, "a result of too few agents")
        found, sums = expected(self.size, self.number, self.nonnegative)
        estimate = outcome.estimate
        self.seen[str(estimate.status)] += 1
        exact = sums[BLIND_BUDGET if self.protocol == "blind" else OPEN_BUDGET]
        rows = np.searchsorted(seconds(self.cluster.time), outcome.time)
        need(np.array_equal(outcome.load, exact[rows]), "the load is not the exact sum over the roster")
        if self.protocol == "blind":
            rows_shown = set(outcome.time.tolist())
            need(len(self.wiped) == self.size or not self.released & rows_shown, "a row was released twice")
            self.released |= rows_shown
        if estimate.status is not Status.CONVERGED:
            need(self.protocol == "blind" and estimate.status is Status.CAPPED, f"status {estimate.status}")
            return
        for name in ("alpha", "beta", "gamma", "theta"):
            mine, theirs = getattr(estimate.coefficients, name), getattr(found.model, name)
            need(np.abs(mine - theirs).max() <= TOLERANCE[self.protocol], f"{name} is not that of the plain fit")
        need(estimate.ridge == found.ridge, "another ridge than the plain fit")


def simulate(seed: int) -> Counter:
    """One seed; a failure carries the command that replays it."""
    try:
        return Simulation(seed).run()
    except Exception as error:
        command = f"python -m tests.reliability.simulation {seed}"
        raise Wrong(f"seed {seed}: {type(error).__name__}: {error}\nreplay: {command}") from error


@dataclass(frozen=True)
class Chunk:
    """What was seen in some seeds after another, and which of them went wrong."""

    first: int
    runs: int
    seen: Counter
    wrong: tuple[str, ...] = ()


def simulate_many(first: int, runs: int = CHUNK) -> Chunk:
    seen, wrong = Counter(), []
    for seed in range(first, first + runs):
        try:
            seen += simulate(seed)
        except Wrong as error:
            wrong.append(str(error))
    return Chunk(first, runs, seen, tuple(wrong))


def source_hash() -> str:
    """A series is one of one source, as far as it runs here: a record of another is not gone on with."""
    package = Path(atdm.__file__).parent
    files = sorted([*(f for room in ROOMS for f in (package / room).rglob("*.py")), package / "run.py", Path(__file__)])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def recorded(record: Path, source: str) -> dict[int, Chunk]:
    """Chunks of this source that a record holds, by their first seed. A line cut short is not there."""
    known: dict[int, Chunk] = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        with suppress(ValueError):
            found = json.loads(line)
            if found.pop("source") == source:
                known[found["first"]] = Chunk(**{**found, "seen": Counter(found["seen"])})
    return known


def series(first: int, runs: int, processes: int = 1, record: Path | None = None) -> list[Chunk]:
    """Chunk after chunk in processes of their own; each is recorded as it ends and, in the next call, not run again."""
    source = source_hash()
    known = recorded(record, source) if record is not None else {}
    starts = range(first, first + runs, CHUNK)
    done = [known[start] for start in starts if start in known]
    left = [(start, min(CHUNK, first + runs - start)) for start in starts if start not in known]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for task in as_completed([pool.submit(simulate_many, *each) for each in left]):
            chunk = task.result()
            done.append(chunk)
            for failure in chunk.wrong:
                print(failure, flush=True)
            if record is not None:
                record.parent.mkdir(parents=True, exist_ok=True)
                with record.open("a") as file:  # a line of its own, also after one that was cut short
                    file.write("\n" + json.dumps({"source": source, **vars(chunk)}))
    return done


def summary(chunks: list[Chunk]) -> str:
    """The figures of docs/reliability.md."""
    seen = sum((chunk.seen for chunk in chunks), Counter())
    runs, wrong = sum(chunk.runs for chunk in chunks), sum(len(chunk.wrong) for chunk in chunks)
    ends = ", ".join(f"{seen[key]} {key}" for key in ("converged", "capped", "no result"))
    return f"{wrong} wrong of {runs} runs; {seen['attempts']} attempts: {ends}; faults: " + ", ".join(
        f"{seen[fault]} {fault}" for fault in FAULTS
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    for seed in args.seeds:
        one = Simulation(seed)
        print(f"seed {seed}: {one.protocol}, {one.size} agents, rate {one.rate}, {', '.join(one.faults)}")
        print(dict(one.run()))
    if not args.runs:
        return 0
    began = time.monotonic()
    chunks = series(args.first, args.runs, args.processes, args.record)
    print(f"seeds from {args.first}: {summary(chunks)}")
    print(f"{time.monotonic() - began:.0f} s in {args.processes} processes")
    return int(any(chunk.wrong for chunk in chunks))


if __name__ == "__main__":
    sys.exit(main())
