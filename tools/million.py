"""What a million homes would take: costs of a home and of the aggregator, measured at a thousand, multiplied out.

    python tools/million.py [MORE AGENTS …]

One collecting of a day (48 rows, equal weights), as `atdm observe` asks for, in processor time. Each figure is printed
with the measured costs it is made of. Then so many agents more are really run, beside what was predicted for them: up
to 20 000 in this process, above that in two.
"""

import os
import sys
from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np

from atdm.crypto import graph
from atdm.crypto.keys import ExchangeKey, SigningKey, derive, verify
from atdm.crypto.prg import MaskSet, nonce
from atdm.lab.bench import synthetic
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.messages import encode
from atdm.protocol.plan import VERSION, Collect
from atdm.protocol.roster import COLLUDING
from atdm.protocol.rules import Rules
from atdm.run import enrol, weather_of
from atdm.transport import local, processes

ROWS = 48  # half-hours
HOMES = 1_000_000
COMPANIES = (200, 1000, 10_000, HOMES)
HOURS = 24  # collectings a day
MASKS = 2  # of one pair: offer and show
IN_THIS_PROCESS = 20_000  # agents, at most
AGENTS = 1000  # the run from which the costs of one agent are taken


def main(*more: int) -> None:
    cost = {"pair": each(pair_key), "mask": each(mask, 20) / 100, "signature": each(signature)}
    print(f"one shared key and its cipher {1e6 * cost['pair']:.0f} µs, one mask of a day's rows "
          f"{1e6 * cost['mask']:.1f} µs, one signature checked {1e6 * cost['signature']:.0f} µs")  # fmt: skip
    found = collecting(AGENTS)
    keys_and_masks = degree(AGENTS) * (cost["pair"] + MASKS * cost["mask"])
    rest = found["agent"] - keys_and_masks - cost["signature"]  # agents of one process check each signature once
    print(f"{AGENTS} agents with {degree(AGENTS)} neighbours: {1e3 * found['agent']:.1f} ms an agent, of it keys "
          f"and masks {1e3 * keys_and_masks:.1f} ms; the aggregator {1e3 * found['aggregator']:.2f} ms")  # fmt: skip
    print(f"an agent sends {found['up']:.0f} bytes; it is sent {found['keys']:.0f} bytes for each member of its "
          f"company and {found['down']:.0f} bytes beside")  # fmt: skip
    print("\nA million homes, every hour, in companies of")
    print(f"{'':>10}{'companies':>11}{'neighbours':>12}{'ms an agent':>13}{'MB down a day':>15}"
          f"{'aggregator: cores':>19}{'MB/s up':>9}{'MB/s down':>11}")  # fmt: skip
    for size in COMPANIES:
        work = degree(size) * (cost["pair"] + MASKS * cost["mask"]) + size * cost["signature"] + rest
        down = found["keys"] * size + found["down"]
        print(f"{size:>10}{HOMES // size:>11}{degree(size):>12}{1e3 * work:>13.0f}{HOURS * down / 1e6:>15.1f}"
              f"{HOMES * found['aggregator'] / 3600:>19.2f}{HOMES * found['up'] / 3600e6:>9.1f}"
              f"{HOMES * down / 3600e6:>11.0f}")  # fmt: skip
    for agents in more:
        predicted = rest + degree(agents) * (cost["pair"] + MASKS * cost["mask"]) + cost["signature"]
        spent = collecting(agents)
        print(f"{agents} agents in a run: predicted {1e3 * predicted:.1f} ms an agent, measured "
              f"{1e3 * spent['agent']:.1f} ms, {spent['memory']:.0f} MB at most", flush=True)  # fmt: skip


def degree(agents: int) -> int:
    """Of a company of everybody enrolled, an owner each."""
    return graph.degree(agents, COLLUDING * agents // 100)


def each(work: Callable[[], Callable[[], object]], times: int = 200) -> float:
    """Seconds of one call: the median of five series."""
    call, series = work(), []
    for _ in range(5):
        began = process_time()
        for _ in range(times):
            call()
        series.append((process_time() - began) / times)
    return median(series)


def pair_key() -> Callable[[], object]:
    own, other = ExchangeKey(os.urandom(32)), ExchangeKey(os.urandom(32))
    ids = (b"a" * 32, b"b" * 32)

    def shared_and_opened() -> MaskSet:
        key = own.shared(other.public, version=VERSION, run_id=b"r" * 32, ids=ids, roster=b"o" * 32, config=b"c" * 32)
        return MaskSet([(1, derive(key, "mask"))])

    return shared_and_opened


def mask(neighbours: int = 100) -> Callable[[], object]:
    masks = MaskSet((1, os.urandom(32)) for _ in range(neighbours))
    words = np.zeros(2 * ROWS + 1, dtype=np.uint64)
    return lambda: masks.apply(words, nonce(os.urandom(8)))


def signature() -> Callable[[], object]:
    key = SigningKey(os.urandom(32))
    signed = key.sign("ready", b"h" * 32, b"\x80", b"n" * 32, b"x" * 32)
    return lambda: verify(key.public, signed, "ready", b"h" * 32, b"\x80", b"n" * 32, b"x" * 32)


def collecting(agents: int) -> dict[str, float]:
    """One collecting: processor seconds and bytes of one agent, and memory."""
    cluster = synthetic(agents, ROWS)
    everybody, _ = enrol(cluster, Rules(), os.urandom)
    plan = Collect(fit=b"", step_seconds=1800, start=int(cluster.time[0].timestamp()), length=ROWS)
    aggregator = Aggregator(plan=plan, roster=everybody[0].roster, weather=weather_of(cluster))
    began, many = _spent(), agents > IN_THIS_PROCESS
    if many:
        traffic, memory = processes.run(aggregator, everybody, 2, lambda text: print(text, flush=True))
    else:
        traffic, memory = local.run(aggregator, everybody), processes.peak_memory()
    own = traffic.seconds_aggregator
    keys = len(encode(aggregator.run.keys)) if aggregator.run is not None else 0
    return {
        "agent": (_spent() - began - own) / agents,
        "aggregator": own / agents,
        "up": median(traffic.bytes_up),
        "keys": keys / agents,
        "down": median(traffic.bytes_down) - keys,
        "memory": memory,
    }


def _spent() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


local.perf_counter = process_time  # type: ignore[attr-defined]

if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
