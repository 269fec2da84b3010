"""The descent in the span of a few sums, against the same sums at once and against Eq. (2) in the open."""

import numpy as np

from atdm.kernel.descent import lag_filter
from atdm.kernel.design import Design, Inputs
from atdm.kernel.span import Span

ROWS, PERIOD, ORDER = 220, 12, 2


def design(rng: np.random.Generator) -> Design:
    segment = (np.arange(ROWS) > 90).astype(np.int64)  # with a gap
    phase = np.arange(ROWS, dtype=np.int64) % PERIOD
    load, outdoor, solar = rng.normal(size=(3, ROWS))
    inputs = Inputs(
        load=load, outdoor=outdoor, solar=solar, phase=phase, segment=segment, period=PERIOD, train=ROWS - 20
    )
    return Design.build(inputs, ORDER)


def added(span: Span, totals: np.ndarray) -> Span:
    for total in totals:
        row = np.zeros(len(span) + 1)
        row[-1] = 1.0
        span = span.add(total, 0.5, row)
    return span


def test_sums_added_one_by_one_are_those_of_a_whole_basis():
    rng = np.random.default_rng(1)
    start, totals = Span.empty(design(rng), 10.0), rng.normal(size=(7, ROWS))
    one_by_one = added(start, totals)
    at_once = start.filled(totals.T, one_by_one.ones, one_by_one.gram)
    c, alpha = rng.normal(size=7), np.array([0.8, 0.1])
    assert np.allclose(one_by_one.products, at_once.products)
    for mine, theirs in zip(one_by_one.sp1(c), at_once.sp1(c), strict=True):
        assert np.allclose(mine, theirs)
    assert np.allclose(one_by_one.residual_series(alpha, c), at_once.residual_series(alpha, c))
    # in the open: the state's lags, filtered, less what the public columns explain
    x, lags = start.design.columns, (totals.T @ c)[start.design.lagged]
    filtered = lag_filter(alpha) @ lags
    explained = x @ np.linalg.lstsq(x, filtered, rcond=None)[0]
    assert np.allclose(one_by_one.residual_series(alpha, c), filtered - explained)


def test_two_that_go_on_from_one_span_do_not_disturb_each_other():
    rng = np.random.default_rng(2)
    totals, others = rng.normal(size=(2, 2, ROWS))  # few enough to fit into the room that their parent has left
    parent = added(Span.empty(design(rng), 10.0), rng.normal(size=(2, ROWS)))
    alpha, c = np.array([0.8, 0.1]), rng.normal(size=4)
    first = added(parent, totals)
    before = first.residual_series(alpha, c)
    added(parent, others)
    assert (first.residual_series(alpha, c) == before).all()
    alone = added(added(Span.empty(parent.design, 10.0), np.array(parent.sums)), others)
    assert (added(parent, others).residual_series(alpha, c) == alone.residual_series(alpha, c)).all()
