"""Transcripts and weakened sums for the attack tests."""

import inspect
import textwrap

import numpy as np

from atdm.kernel.design import Inputs
from atdm.lab.attacks.rotation import Rotated
from atdm.lab.attacks.score import Guess, Truth, recovered
from atdm.lab.attacks.stage import Stage
from atdm.lab.attacks.view import Public, View
from atdm.options import fit_options
from atdm.protocol.ledger import Seen
from atdm.protocol.rules import Rules
from atdm.run import make_plan, rows_of_plan
from tests.clusters import tiny

LOOSE = Rules(least_agents=3, rows_per_parameter=1)


def played(cluster, protocol, rules=LOOSE, colluders=(), **options):
    """View of an honest run, the truth in the order of the company, and the stage."""
    plan = make_plan(cluster, fit_options(protocol=protocol, **options))
    stage = Stage(cluster, rules)
    aggregator = stage.play(rows_of_plan(plan) if plan.weights == "equal" else plan)
    series = cluster.temperature[[member.name for member in aggregator.members]].to_numpy(float) - 20.0
    view = stage.view(plan, aggregator, colluders)
    return view, truth_of(series, view.public_series()), stage


def rewritten(monkeypatch, owner, name, old, new):
    """A method whose source has something else in one place."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {name}"
    names = {}
    exec(source.replace(old, new), function.__globals__, names)
    monkeypatch.setattr(owner, name, names[name])


def truth_of(series, public=None):
    rng = np.random.default_rng(0)
    shown = rng.normal(size=(len(series), 1)) if public is None else public
    return Truth(series=series, public=shown, agents=series.shape[1])


def hits(truth: Truth, guesses) -> int:
    """Agents recovered by the best of the claims."""
    claims = [guesses] if isinstance(guesses, Guess) else guesses
    return max((recovered(truth, guess) for guess in claims), default=0)


def turned(series, seed=0) -> Rotated:
    """A series matrix behind a random rotation."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.normal(size=(series.shape[1], series.shape[1])))[0]
    return Rotated(series=series @ q.T, ones=q @ np.ones(series.shape[1]))


def totals_view(series, totals, *, bits, dither=0.0, quantum=0.1, seed=0) -> View:
    """Totals of `blind` by direct arithmetic, with the fractional bits and the dither given."""
    rng = np.random.default_rng(seed)
    agents = series.shape[1]
    readings = series + rng.uniform(-0.5, 0.5, series.shape) * dither * quantum
    first = np.full(agents, agents**-0.5)
    q = np.linalg.qr(np.column_stack([first, rng.normal(size=(agents, totals - 1))]))[0] + 0.3 * first[:, None]
    q[:, 0] = first
    seen = [Seen("basis total", "", np.ldexp(np.rint(np.ldexp(readings * q[:, k], bits)).sum(axis=1), -bits))
            for k in range(totals)]  # fmt: skip
    seen += [Seen("scalars", "gram", q[:, : k + 1].T @ q[:, k]) for k in range(1, totals)]
    seen += [Seen("scalars", "one", q[:, k].sum(keepdims=True)) for k in range(1, totals)]
    return View(public=public_of(len(series), agents), seen=seen)


def public_of(rows, agents) -> Public:
    zeros, whole = np.zeros(rows), np.zeros(rows, dtype=np.int64)
    inputs = Inputs(load=zeros, outdoor=zeros, solar=zeros, phase=whole, segment=whole, period=1, train=rows)
    return Public(agents=agents, order=2, inputs=inputs)


def logger_series(rows=600, agents=14, quantum=0.1, seed=1):
    """Sensors that report on a grid and mostly stay where they are."""
    rng = np.random.default_rng(seed)
    return quantum * np.cumsum(rng.choice([-1, 0, 0, 0, 1], size=(rows, agents)), axis=0)


__all__ = [
    "LOOSE", "hits", "logger_series", "played", "public_of", "rewritten", "tiny", "totals_view", "truth_of", "turned",
]  # fmt: skip
