"""What the aggregator of `blind` can and cannot do."""

from collections import Counter
from dataclasses import replace
from random import Random

import msgspec
import numpy as np
import pandas as pd
import pytest

import atdm
from atdm.crypto import ring
from atdm.errors import AtdmError, PeerError, RunAborted
from atdm.protocol import agent as agents_module
from atdm.protocol import blind
from atdm.protocol.aggregator import State
from atdm.protocol.blind import BlindPart, Phase
from atdm.protocol.messages import Masked, Total, decode_to_agent, decode_to_aggregator, encode
from atdm.protocol.release import SEAL_WORDS
from atdm.protocol.session import Session
from atdm.protocol.sums import Layout
from atdm.run import make_plan, simulate
from tests.clusters import tiny
from tests.protocol.drive import drive, parties

BIG = 10**9


def rewritten(data: bytes, change) -> bytes:
    """The same Total with other words; anything else passes."""
    message = decode_to_agent(data, BIG)
    if not isinstance(message, Total):
        return data
    words = ring.from_bytes(message.words, len(message.words) // 8)
    return encode(Total(run=message.run, step=message.step, words=ring.to_bytes(change(words))))


def nothing_released(aggregator, agents) -> bool:
    return aggregator.state is not State.DONE and (aggregator.desk is None or aggregator.desk.outcome is None)


def test_a_tampered_total_never_opens(monkeypatch):
    """10 000 seeded attempts on the totals of real runs: 2^j for every j, or random, on any word, check and count
    words included. Each agent tries each of them before it gets the true total."""
    true_open = BlindPart._open
    attempts, opened = 0, []
    rng = np.random.default_rng(20240607)

    def attempt(self, data):
        nonlocal attempts
        size = len(data) // 8
        for n in range(90):
            words = ring.from_bytes(data, size)
            word = int(rng.integers(size)) if n % 3 else size - 1 - n // 3 % 6  # count and check words come last
            offset = 1 << int(rng.integers(64)) if n % 2 else int(rng.integers(1, 2**63)) * 2 + 1
            words[word : word + 1] += np.uint64(offset % 2**64)
            attempts += 1
            try:
                true_open(self, ring.to_bytes(words))
                opened.append((self.phase, word, offset))
            except PeerError:
                pass
        return true_open(self, data)

    monkeypatch.setattr(BlindPart, "_open", attempt)
    for seed in range(4):
        aggregator, agents = parties(tiny(seed, agents=5, rows=60), seed=seed)
        drive(aggregator, agents)
        assert aggregator.state is State.DONE
    assert attempts >= 10_000 and opened == []


@pytest.mark.parametrize("bit", range(64))
def test_an_offset_on_one_total_ends_the_run_for_everybody(bit):
    aggregator, agents = parties(seed=bit)
    rng = np.random.default_rng(bit)
    target = int(rng.integers(5))

    def to_agent(i, data):
        message = decode_to_agent(data, BIG)
        if isinstance(message, Total) and message.step == target:
            at = int(np.random.default_rng(bit).integers(len(message.words) // 8))

            def change(words):
                words[at : at + 1] += np.uint64(1 << bit)
                return words

            return [rewritten(data, change)]
        return [data]

    drive(aggregator, agents, to_agent)
    assert nothing_released(aggregator, agents)
    assert all(agent.state is agents_module.State.ABORTED for agent in agents)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("way", ["equivocate", "replay", "swap", "drop", "duplicate", "zero"])
def test_an_aggregator_that_departs_from_its_part_gets_nothing(way, seed):
    """Shown different totals, old totals, totals in another order, none or two: no run opens a wrong number."""
    aggregator, agents = parties(seed=seed)
    rng = np.random.default_rng(seed)
    target, victim, history = int(rng.integers(1, 6)), int(rng.integers(4)), {}

    def to_agent(i, data):
        message = decode_to_agent(data, BIG)
        if not isinstance(message, Total):
            return [data]
        history.setdefault(message.step, data)
        if message.step != target:
            return [data]
        if way == "equivocate" and i == victim:
            return [rewritten(data, lambda words: words + np.uint64(rng.integers(1, 2**40)))]
        if way == "replay":
            old = decode_to_agent(history[target - 1], BIG)
            return [encode(Total(run=message.run, step=target, words=old.words))]
        if way == "swap":
            return [rewritten(data, lambda words: words[::-1].copy())]
        if way == "zero":
            return [rewritten(data, np.zeros_like)]
        if way == "drop" and i == victim:
            return []
        return [data, data] if way == "duplicate" else [data]

    drive(aggregator, agents, to_agent)
    if way == "duplicate":  # the same bytes twice are answered with the same bytes, and the run goes on
        assert aggregator.state is State.DONE
    else:
        assert nothing_released(aggregator, agents)


@pytest.mark.parametrize("sender", [0, 1, 3])
@pytest.mark.parametrize("word", [0, 30, -20, -6, -3])
def test_a_release_that_one_message_was_altered_in_does_not_open(sender, word):
    """One bit of one word of one agent, wherever it is: a number, the salt or the hash; what is left is no result."""

    def flipped(i, data):
        message = decode_to_aggregator(data, len(data))
        if i != sender or not isinstance(message, Masked) or message.phase != Phase.RELEASE:
            return [data]
        words = np.frombuffer(message.words, dtype="<u8").copy()
        words[word] ^= np.uint64(1)
        return [encode(msgspec.structs.replace(message, words=words.tobytes()))]

    aggregator, agents = parties(seed=4)
    drive(aggregator, agents, to_aggregator=flipped)
    assert aggregator.state is State.ABORTED and "does not open" in aggregator.reasons[0]
    assert nothing_released(aggregator, agents)


def test_two_clusters_with_the_same_h_and_s_give_the_aggregator_the_same_release(monkeypatch):
    """Series exchanged between agents: every agent's data differ, h and s do not, nor does a released number."""
    cluster = tiny(7, agents=12, rows=100)
    order = list(np.random.default_rng(7).permutation(cluster.agents))
    exchanged = atdm.Cluster.from_frames(
        pd.DataFrame(cluster.temperature[order].to_numpy(), cluster.time, cluster.temperature.columns),
        pd.DataFrame(cluster.load[order].to_numpy(), cluster.time, cluster.load.columns),
        cluster.outdoor, cluster.solar,
    )  # fmt: skip
    views = []
    for number, data in enumerate((cluster, exchanged)):
        sent, plain = [], []
        true_mask = Session.mask

        def mask(self, words, nonce, plain=plain, true_mask=true_mask):
            plain.append((self.index, words.copy()))
            true_mask(self, words, nonce)

        monkeypatch.setattr(Session, "mask", mask)
        aggregator, agents = parties(data, seed=number)

        def keep(i, reply, sent=sent):
            message = decode_to_aggregator(reply, BIG)
            if isinstance(message, Masked):
                sent.append((message.step, i, message.phase, ring.from_bytes(message.words, len(message.words) // 8)))
            return [reply]

        drive(aggregator, agents, to_aggregator=keep)
        monkeypatch.setattr(Session, "mask", true_mask)
        views.append((aggregator, sent, plain))
    (one, sent, _), (other, sent_other, plain_other) = views
    assert not np.array_equal(cluster.temperature, exchanged.temperature)
    a, b = one.desk.outcome, other.desk.outcome
    assert np.array_equal(a.estimate.state, b.estimate.state) and np.array_equal(a.load, b.load)
    assert np.array_equal(a.estimate.coefficients.alpha, b.estimate.coefficients.alpha)
    assert [(s, i, p, len(w)) for s, i, p, w in sent] == [(s, i, p, len(w)) for s, i, p, w in sent_other]

    # Byte identity for suitable masks: give the second cluster's agents masks m' = (first view) − (their own words).
    # They are masks of a real run iff they cancel in the release; in veiled sums what is left over is the veil.
    leftover: dict[int, np.ndarray] = {}
    for (step, _, phase, words), (_, own) in zip(sent, plain_other, strict=True):
        leftover[step] = leftover.get(step, np.zeros_like(words)) + (words - own)
        last = phase == Phase.RELEASE and step
    sealed = slice(-1 - 2 * SEAL_WORDS, -1)  # the leader's fresh salt, and the hash with it
    assert not np.delete(leftover[last], np.r_[sealed]).any() and leftover[last][sealed].all()
    assert all(left.any() for step, left in leftover.items() if step != last)


def test_the_transcript_can_be_made_from_released_values_sizes_and_counts(monkeypatch):
    """The simulator knows what the aggregator learns and nothing else: uniform words that add up to the release."""
    aggregator, agents = parties(seed=3, keep=True)
    steps: dict[int, list[np.ndarray]] = {}
    phases = {}

    def keep(i, reply):
        message = decode_to_aggregator(reply, BIG)
        if isinstance(message, Masked):
            steps.setdefault(message.step, []).append(ring.from_bytes(message.words, len(message.words) // 8))
            phases[message.step] = message.phase
        return [reply]

    drive(aggregator, agents, to_aggregator=keep)
    release = max(steps)
    opened = sum(steps[release][1:], steps[release][0].copy())
    rng = np.random.default_rng(11)
    for step, real in steps.items():
        simulated = [rng.integers(0, 2**64, len(real[0]), dtype=np.uint64) for _ in real]
        if step == release:
            simulated[-1] = opened - sum(simulated[1:-1], simulated[0].copy())
        # the same randomness the other way round: with these masks the real agents would have sent the same bytes
        masks = [s - r for s, r in zip(simulated, real, strict=True)]
        rest = sum(masks[1:], masks[0].copy())
        assert not rest.any() if step == release else rest.any()
    everything = np.concatenate([w for step, real in steps.items() if step != release for w in real])
    counts = np.bincount(everything.view(np.uint8), minlength=256)
    expected = len(everything) * 8 / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400  # chi-square with 255 degrees of freedom, p ≈ 1e-8


def test_the_ledger_of_the_aggregator_is_what_the_threat_model_says():
    fit = atdm.fit(tiny(1, agents=12), "blind", order=1, ridge=2.0, rules=atdm.Rules(rows_per_parameter=1.0))
    rows = {(row["what"], tuple(row["shape"]), row["times"]) for row in fit.ledger if row["party"] == "aggregator"}
    n = len(fit.state)
    assert rows == {("load total", (n,), 1), ("state", (n,), 1), ("coefficients", (11,), 1), ("metrics", (15,), 1)}
    peers = {row["what"] for row in fit.ledger if row["party"] == "agents"}
    assert peers == {"load total", "state", "coefficients", "basis total", "scalars"}
    totals = sum(row["times"] for row in fit.ledger if row["what"] == "basis total")
    assert totals == fit.cost.sums <= atdm.Rules().totals_cap(12)


def test_limits_stop_the_solver_with_a_warning_not_an_error():
    fit = atdm.fit(tiny(2, agents=12), "blind", order=1, ridge=0.5, rules=atdm.Rules(rows_per_parameter=1.0, totals=2))
    assert fit.status == "capped" and fit.cost.sums == 2
    assert any("limits stopped the solver" in note for note in fit.notes)


@pytest.mark.parametrize("rules, options, word", [
    (atdm.Rules(), dict(order=1, season="24h"), "too short"),
    (atdm.Rules(rows_per_parameter=1, order=1), dict(order=2), "order 2"),
    (atdm.Rules(rows_per_parameter=1, ridge=(10.0, 100.0)), dict(order=1, ridge=2.0), "ridge 2"),
    (atdm.Rules(rows_per_parameter=1, season_hours=(30.0, 40.0)), dict(order=1), "season"),
])  # fmt: skip
def test_an_agent_refuses_a_plan_outside_its_own_rules_and_says_why(rules, options, word):
    with pytest.raises(AtdmError, match=word):
        atdm.fit(tiny(0, agents=12, rows=50), "blind", **{"ridge": 20.0, **options}, rules=rules)


def test_dither_is_secret_small_and_always_the_same_for_a_time_stamp():
    from atdm.protocol.readings import Readings, dithered, sensor_quantum

    rng = np.random.default_rng(0)
    time = 1_700_000_400 + 1800 * np.arange(5000, dtype=np.int64)
    values = np.round(rng.normal(20, 2, 5000) / 0.05) * 0.05
    readings = Readings(time, values, np.zeros(5000))
    assert sensor_quantum(values) == pytest.approx(0.05)
    whole = dithered(readings, b"k" * 32, 0.1, None).temperature
    part = dithered(Readings(time[700:900], values[700:900], np.zeros(200)), b"k" * 32, 0.1, 0.05).temperature
    other = dithered(readings, b"x" * 32, 0.1, None).temperature
    moved = whole - values
    assert np.array_equal(whole[700:900], part) and not np.array_equal(whole, other)
    assert np.abs(moved).max() <= 0.0025 and 0.9 < moved.std() * 12**0.5 / 0.005 < 1.1


def test_a_residual_beyond_the_range_of_a_sum_is_not_blamed_on_a_reading(monkeypatch):
    true_layout = blind.scalars_layout

    def narrow(*args):
        return Layout(tuple(replace(b, bound=1e-9) if b.name == "squares" else b for b in true_layout(*args).blocks))

    monkeypatch.setattr(blind, "scalars_layout", narrow)
    with pytest.raises(RunAborted, match="a larger ridge"):
        atdm.fit(tiny(0, agents=10, rows=100), "blind", order=1)


def test_agents_of_one_process_share_arithmetic_and_each_verifies_every_step(monkeypatch):
    """What a process works out once changes no bit of the result; every agent opens every total by itself and, unless
    everything is shared, keeps its own span and looks at every step of the leader."""
    cluster = tiny(3)
    calls: Counter[str] = Counter()

    def counted(owner, name):
        true = getattr(owner, name)

        def count(*args, **kwargs):
            calls[name] += 1
            return true(*args, **kwargs)

        monkeypatch.setattr(owner, name, count)

    for owner, name in ((blind, "verify_leader"), (blind.Span, "add"), (ring, "verify_words"), (blind.Design, "build")):
        counted(owner, name)
    plan = make_plan(cluster, "blind", season="24h", nonnegative=False)
    fits = []
    for share in ("but checks", "nothing", "all"):
        calls.clear()
        fits.append(simulate(cluster, plan, atdm.Rules(), random_bytes=Random(5).randbytes, share=share))
        agents, totals = len(cluster.agents), fits[-1].cost.sums
        assert calls["verify_words"] == agents * (fits[-1].cost.rounds - 2)  # all but the keys and the release
        assert calls["add"] == (agents if share != "all" else 1) * totals
        assert calls["verify_leader"] >= calls["add"] > 0
        assert calls["build"] == (agents if share == "nothing" else 1)
    for fit in fits[1:]:
        assert fit.state.equals(fits[0].state) and fit.weights.equals(fits[0].weights)
        assert fit.model.as_dict()["alpha"] == fits[0].model.as_dict()["alpha"]


@pytest.mark.parametrize("ends", ["finished", "aborted"])
def test_the_keystream_of_the_group_ends_with_the_run(ends):
    aggregator, agents = parties(tiny(4), seed=4)
    held = []

    def to_agent(i, data):
        held.append("group stream" in agents[i].own.host._known)
        return [rewritten(data, np.zeros_like) if ends == "aborted" else data]

    drive(aggregator, agents, to_agent)
    assert any(held) and all("group stream" not in agent.own.host._known for agent in agents)
