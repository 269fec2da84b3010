"""`blind`: its answer is that of a trusted centre within what it certifies; what parties see is what is said."""

from contextlib import suppress
from dataclasses import replace
from random import Random
from unittest.mock import Mock

import msgspec
import numpy as np
import pandas as pd
import pytest

from atdm.crypto import ring
from atdm.data import Cluster
from atdm.data.quantum import sensor_quantum
from atdm.data.readings import Readings
from atdm.errors import AtdmError, PeerError, RunAborted
from atdm.kernel.design import REFERENCE_TEMP, Design
from atdm.options import fit_options
from atdm.protocol.aggregator import AggregatorState
from atdm.protocol.blind.veil import Veil
from atdm.protocol.messages import Masked
from atdm.protocol.readings import dithered
from atdm.protocol.rules import Rules, refuses
from atdm.run import fit, make_plan, simulate
from tests.clusters import tiny
from tests.protocol.drive import altering, drive, parties
from tests.protocol.test_agreement import difference, swaying

SHORT = Rules(rows_per_parameter=1.0)  # limits as they are by default, on a short window
LIFTED = replace(SHORT, totals=40, agents_per_total=1, clip=1e9, solver_tolerance=1e-9)
CLUSTERS = ["refit64", "sample", "twin_houses"]


# The answer


@pytest.mark.parametrize("weights", [False, "ridge"])
@pytest.mark.parametrize("seed", range(5))
def test_without_limits_it_raises_the_ridge_as_plain_does_and_equals_it_there(seed, weights):
    cluster = swaying(seed, 12 + seed) if weights else tiny(seed, agents=10 + seed, rows=120)
    options = dict(order=1 + seed % 2, ridge=5.0 if weights else 2.0)
    private = fit(cluster, nonnegative=weights, dither=0.0, rules=LIFTED, solver_tolerance=5e-5, **options)
    plain = fit(cluster, "plain", nonnegative=False, **{**options, "ridge": private.ridge})
    model, r2, largest = difference(private, plain)
    assert model < 3e-4 and r2 < 3e-4 and largest < 1e-3
    if weights:
        raised = fit(cluster, "plain", **options).ridge
        assert (private.weights >= 0).all() and raised > 20 * options["ridge"]
        assert 1 / 1.11 < private.ridge / raised < 1.11


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("weights", [False, "ridge"])
def test_by_default_it_forecasts_as_plain_does_at_the_ridge_used(name, weights, request):
    """Five totals, ten messages, R² within 2e-3 or, by ridge, 6e-3."""
    cluster = request.getfixturevalue(name)
    private = fit(cluster, nonnegative=weights)
    plain = fit(cluster, "plain", ridge=private.ridge, nonnegative=False)
    assert difference(private, plain)[1] < (6e-3 if weights else 2e-3)
    assert private.cost.sums <= 5 and private.cost.rounds <= 10
    assert private.cost.bytes_up_per_agent < 110_000 * max(1.0, len(cluster.time) / 1440)
    if weights:
        assert (private.weights > -1e-9).all()


@pytest.mark.parametrize("name", CLUSTERS)
def test_equal_weights_give_the_model_of_the_mean(name, request):
    cluster = request.getfixturevalue(name)
    private, plain = (fit(cluster, protocol, weights="equal", dither=0.0) for protocol in ("blind", "plain"))
    assert max(difference(private, plain)) < 1e-6
    assert private.cost.rounds <= 4 and private.cost.bytes_up_per_agent < 50_000 * max(1.0, len(cluster.time) / 1440)
    assert private.excess == 0.0 and private.converged and private.weighting == "equal"


@pytest.mark.parametrize("seed", range(6))
def test_by_default_there_are_at_most_five_totals_ten_messages_and_no_negative_weight(seed):
    private = fit(swaying(seed, 12 + 3 * seed), order=1, rules=SHORT)
    assert 2 <= private.cost.sums <= 5 and private.cost.rounds <= 10
    assert (private.weights >= 0).all() and abs(private.weights.sum() - 1) < 1e-6


@pytest.mark.parametrize("totals", [2, 3, 5, 12])
@pytest.mark.parametrize("made, ridge", [(tiny, 0.5), (tiny, 5.0), (swaying, 100.0)])
def test_the_certified_excess_is_an_upper_bound(made, ridge, totals):
    """Objective (3) at the answer, and its least value over all weights at the answer's α and λ: everything at hand."""
    for seed in range(4):
        cluster = made(seed, agents=14, rows=120)
        rules = replace(LIFTED, totals=totals, clip=2.0)
        private = fit(cluster, order=1, ridge=ridge, nonnegative=False, dither=0.0, rules=rules)
        columns = Design.build(private.inputs, 1).columns
        rows = np.arange(1, private.inputs.train)  # tiny clusters have no gap
        x = cluster.temperature.loc[private.state.index].to_numpy() - REFERENCE_TEMP
        tau = x[rows] - private.model.alpha[0] * x[rows - 1]
        z = tau - columns @ np.linalg.lstsq(columns, tau, rcond=None)[0]
        gram, ones = z.T @ z + private.ridge * np.eye(14), np.ones(14)
        xi = private.weights[list(cluster.agents)].to_numpy()
        at_answer, least = xi @ gram @ xi, 1.0 / (ones @ np.linalg.solve(gram, ones))
        rounding = 2.0**-34 * private.agents * at_answer / ridge  # of the opened squares, which have 34 bits
        assert -1e-9 <= (at_answer - least) / at_answer <= private.excess + rounding, seed


def test_a_state_that_would_rest_on_few_agents_is_not_released():
    with pytest.raises(RunAborted, match="too few agents: use a larger ridge"):
        fit(swaying(0, 14), order=1, ridge=0.5, nonnegative=False, rules=SHORT)


@pytest.mark.parametrize("far, said", [(0.05, False), (0.001, True)])
def test_limits_stop_the_search_with_a_note_where_it_ended_far_off_and_no_error(monkeypatch, far, said):
    monkeypatch.setattr("atdm.run.FAR", far)
    private = fit(swaying(2, 12), order=1, solver_tolerance=0.01, rules=replace(SHORT, totals=2))
    assert private.status == "capped" and private.cost.sums == 2 and 0.001 < private.excess < 0.05
    assert any("limits ended the search" in note for note in private.notes) == said
    assert fit(tiny(2), order=1, ridge=50.0, rules=SHORT).status == "converged"


@pytest.mark.parametrize("fine, change, word", [
    (dict(length=112), dict(length=111), "need 28 days"), (dict(order=4), dict(order=5), "order 5"),
    (dict(ridge=50.0), dict(ridge=49.0), "ridge 49"), (dict(ridge=100.0), dict(ridge=101.0), "ridge 101"),
    (dict(train=0.7), dict(train=0.69), "training share"), (dict(clip=2.0), dict(clip=1.9), "limits on totals"),
    (dict(totals=5), dict(totals=6), "limits on totals"), (dict(colluders=2), dict(colluders=0), "limits on totals"),
    (dict(agents_per_total=4), dict(agents_per_total=2), "limits on totals"),
    (dict(solver_tolerance=0.01), dict(solver_tolerance=9e-3), "solver tolerance"),
    (dict(step_seconds=1800, period=48), dict(step_seconds=600, period=144), "at least 15 min"),
    (dict(period=4), dict(period=2), "season of 24 h"), (dict(), dict(minimum_norm=True), "collinear"),
    (dict(), dict(ridge=0.0), "ridge above 0"), (dict(), dict(weights="equal"), "collected"),
    (dict(), dict(protocol="moments"), "blind only"), (dict(), dict(nonnegative="exact"), "not offered"),
])  # fmt: skip
def test_a_plan_outside_the_agents_rules_is_refused_with_a_reason(fine, change, word):
    rules = Rules(weights="fitted", rows_per_parameter=4.0)
    plan = make_plan(tiny(0, rows=150), fit_options(protocol="blind", order=1))
    plan = msgspec.structs.replace(plan, length=1400)  # 11 parameters, 4 steps a day, three quarters for training
    short = [refuses(replace(rules, least_days=0.0), msgspec.structs.replace(plan, length=n)) for n in (59, 58)]
    assert short[0] is None and "too few rows" in short[1]
    assert refuses(rules, msgspec.structs.replace(plan, **fine)) is None
    assert word in refuses(rules, msgspec.structs.replace(plan, **change))
    assert "--weights fitted" in refuses(Rules(rows_per_parameter=4.0), plan)


def test_an_agents_refusal_of_a_plan_is_what_the_aggregator_reads():
    cluster = tiny(0)
    with pytest.raises(AtdmError, match="limits on totals"):
        simulate(cluster, make_plan(cluster, fit_options(protocol="blind", order=1), replace(SHORT, totals=6)), SHORT)


# Who computes and who sees what


def test_agents_that_share_nothing_open_every_total_themselves_and_send_the_same_bytes(monkeypatch):
    cluster = swaying(3, 12)
    plan = make_plan(cluster, fit_options(protocol="blind", order=1), SHORT)
    verified, taps, fits = Mock(wraps=ring.verify_words), [], []
    monkeypatch.setattr(ring, "verify_words", verified)
    for share in (True, False):
        verified.reset_mock()
        seen = []
        fits.append(simulate(cluster, plan, SHORT, random_bytes=Random(5).randbytes, share=share,
                             tap=lambda *message, seen=seen: seen.append(message)))  # fmt: skip
        taps.append(seen)
        assert verified.call_count == (1 if share else 12) * (fits[-1].cost.rounds - 2)  # but the answer, the release
    assert taps[0] == taps[1]
    assert fits[0].state.equals(fits[1].state) and fits[0].weights.equals(fits[1].weights)


def test_the_ledger_is_what_the_threat_model_says():
    private = fit(tiny(1), order=1, ridge=2.0, rules=SHORT)
    rows = {(row["what"], tuple(row["shape"]), row["times"]) for row in private.ledger if row["party"] == "aggregator"}
    n = len(private.state)
    assert rows == {("load total", (n,), 1), ("state", (n,), 1), ("coefficients", (11,), 1), ("metrics", (15,), 1)}
    peers = {row["what"] for row in private.ledger if row["party"] == "agents"}
    assert peers == {"load total", "state", "coefficients", "basis total", "scalars"}
    assert sum(row["times"] for row in private.ledger if row["what"] == "basis total") == private.cost.sums <= 5


def test_series_exchanged_between_agents_give_the_aggregator_the_same_release():
    """Every agent's data differ, the sums do not: nor does a released bit. Whatever else it sees looks random."""
    cluster = tiny(7, agents=12, rows=100)
    order = list(np.random.default_rng(7).permutation(cluster.agents))
    exchanged = Cluster.from_frames(
        pd.DataFrame(cluster.temperature[order].to_numpy(), cluster.time, cluster.temperature.columns),
        pd.DataFrame(cluster.load[order].to_numpy(), cluster.time, cluster.load.columns),
        cluster.outdoor, cluster.solar,
    )  # fmt: skip
    assert not np.array_equal(cluster.temperature, exchanged.temperature)
    outcomes, veiled = [], []
    for number, data in enumerate((cluster, exchanged)):
        aggregator, agents = parties(data, seed=number)
        keep = altering(Masked, lambda i, message: veiled.append(message.words) or [message])
        drive(aggregator, agents, to_aggregator=keep)
        outcomes.append(aggregator.desk.outcome)
    one, other = outcomes
    assert np.array_equal(one.estimate.state, other.estimate.state) and np.array_equal(one.load, other.load)
    assert np.array_equal(one.estimate.coefficients.alpha, other.estimate.coefficients.alpha)
    seen = np.frombuffer(b"".join(veiled), np.uint8)
    counts, expected = np.bincount(seen, minlength=256), len(seen) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400  # chi-square with 255 degrees of freedom, p ≈ 1e-8


def test_a_tampered_total_never_opens(monkeypatch):
    """10 000 seeded attempts on the totals of real runs: 2^j for every j, or random, on any word, check and count
    words included. Each agent tries each of them before it gets the true total."""
    true_unwrap = Veil.unwrap
    attempts, opened = 0, []
    rng = np.random.default_rng(20240607)

    def attempt(self, data):
        nonlocal attempts
        size = len(data) // 8
        for n in range(60):
            words = ring.from_bytes(data, size)
            word = int(rng.integers(size)) if n % 3 else size - 1 - n // 3 % 6  # count and check words come last
            offset = 1 << int(rng.integers(64)) if n % 2 else int(rng.integers(1, 2**63)) * 2 + 1
            words[word : word + 1] += np.uint64(offset % 2**64)
            attempts += 1
            with suppress(PeerError):
                true_unwrap(self, ring.to_bytes(words))
                opened.append((self.phase, word, offset))
        return true_unwrap(self, data)

    monkeypatch.setattr(Veil, "unwrap", attempt)
    for seed in range(6):
        aggregator, agents = parties(tiny(seed, agents=6, rows=60), seed=seed)
        drive(aggregator, agents)
        assert aggregator.state is AggregatorState.DONE
    assert attempts >= 10_000 and opened == []


@pytest.mark.parametrize("ends", ["finished", "aborted"])
def test_the_keystream_of_the_group_ends_with_the_run(ends):
    aggregator, agents = parties(tiny(4), seed=4)
    held = []

    def to_agent(i, data):
        held.append("group stream" in agents[i].own.host._known)
        return [data[:-1] + b"\0" if ends == "aborted" and len(held) > 40 else data]

    drive(aggregator, agents, to_agent)
    assert (aggregator.state is AggregatorState.DONE) == (ends == "finished")
    assert any(held) and all("group stream" not in agent.own.host._known for agent in agents)


def test_dither_is_secret_small_and_always_the_same_for_a_time_stamp():
    rng = np.random.default_rng(0)
    time = 1_700_000_400 + 1800 * np.arange(5000, dtype=np.int64)
    values = np.round(rng.normal(20, 2, 5000) / 0.05) * 0.05
    readings = Readings(time, values, np.zeros(5000))
    assert sensor_quantum(values) == pytest.approx(0.05)
    whole = dithered(readings, b"k" * 32, 0.1, sensor_quantum(values)).temperature
    part = dithered(Readings(time[700:900], values[700:900], np.zeros(200)), b"k" * 32, 0.1, 0.05).temperature
    other = dithered(readings, b"x" * 32, 0.1, sensor_quantum(values)).temperature
    moved = whole - values
    assert np.array_equal(whole[700:900], part) and not np.array_equal(whole, other)
    assert np.abs(moved).max() <= 0.0025 and 0.9 < moved.std() * 12**0.5 / 0.005 < 1.1
