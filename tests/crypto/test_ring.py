"""Fixed-point numbers in Z_2^64."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from atdm.crypto import ring
from atdm.errors import DataError, PeerError, UsageError

WORDS = st.integers(0, 2**64 - 1)


def words(values):
    return np.array(values, dtype=np.uint64)


@given(values=arrays(np.float64, st.integers(0, 20), elements=st.floats(-1000, 1000)), bits=st.integers(0, 40))
def test_decoding_returns_the_value_within_half_a_quantum(values, bits):
    error = np.abs(ring.decode(ring.encode(values, bits, 1000.0), bits) - values)
    assert (error <= 2.0 ** -(bits + 1)).all()


@given(values=st.lists(st.floats(-4000, 4000), min_size=1, max_size=8))
def test_words_are_the_exact_rounding_also_beyond_53_bits(values):
    expected = [round(Fraction(value) * 2**50) % 2**64 for value in values]
    assert ring.encode(np.array(values), 50, 4000.0).tolist() == expected


@given(
    agents=st.integers(1, 10**6),
    bound=st.floats(1e-6, 1e8),
    budget=st.sampled_from([48, 63]),
)
def test_fractional_bits_is_the_largest_that_fits(agents, bound, budget):
    bits = ring.fractional_bits(agents, bound, budget)

    def fits(f):
        return agents * (Fraction(bound) * 2**f + Fraction(1, 2)) < 2**budget

    assert fits(bits) and not fits(bits + 1)


@pytest.mark.parametrize(
    "bound, expected",  # K = 10, 64, 1000, 10 000
    [(100.0, (53, 50, 46, 43)), (1e4, (46, 43, 39, 36)), (500.0, (50, 48, 44, 40)), (2.5e5, (41, 39, 35, 31))],
)
def test_fractional_bits_match_the_published_table(bound, expected):
    assert tuple(ring.fractional_bits(agents, bound) for agents in (10, 64, 1000, 10_000)) == expected


def test_the_worst_sum_that_fits_decodes_and_has_its_sign():
    agents, bound = 1000, 12345.678
    bits = ring.fractional_bits(agents, bound)
    total = np.zeros(2, dtype=np.uint64)
    for _ in range(agents):
        ring.add_into(total, ring.encode(np.array([bound, -bound]), bits, bound))
    assert ring.decode(total, bits) == pytest.approx([agents * bound, -agents * bound], rel=1e-12)


def test_a_refusal_names_the_place_and_hides_the_value():
    values = np.zeros((3, 4))
    values[1, 2] = 123.456
    with pytest.raises(DataError, match=r"value \[1, 2\] is outside ±100") as raised:
        ring.encode(values, 16, 100.0)
    assert "123" not in str(raised.value)


@pytest.mark.parametrize("bits", [-1, 1001])
def test_absurd_bits_are_refused(bits):
    with pytest.raises(UsageError):
        ring.encode(np.ones(1), bits, 1e-300)
    with pytest.raises(UsageError):
        ring.decode(words([1]), bits)


@pytest.mark.parametrize("agents, bound, budget", [(0, 1.0, 63), (3, 1.0, 64), (3, float("nan"), 63), (3, -1.0, 63)])
def test_absurd_budgets_are_refused(agents, bound, budget):
    with pytest.raises(UsageError):
        ring.fractional_bits(agents, bound, budget)


@given(values=arrays(np.float64, st.integers(0, 12), elements=st.floats(width=64)))
def test_float_patterns_survive_both_ways(values):
    halves = ring.float_words(values)
    assert halves.size == 2 * values.size and (halves < 2**32).all()
    for back in (ring.words_to_floats(halves), ring.raw_words_to_floats(ring.raw_words(values))):
        assert back.tobytes() == values.tobytes()


def test_raw_words_do_not_share_memory_with_the_data():
    values = np.ones(3)
    ring.raw_words(values)[:] = 0
    assert (values == 1).all()


@given(
    rows=st.lists(st.lists(WORDS, min_size=5, max_size=5), min_size=1, max_size=6),
    keys=st.binary(min_size=160, max_size=160),
)
def test_check_words_of_a_sum_are_the_sum_of_check_words(rows, keys):
    keys = ring.from_bytes(keys, 20).reshape(4, 5)
    total, checks = np.zeros(5, dtype=np.uint64), np.zeros(4, dtype=np.uint64)
    for row in rows:
        ring.add_into(total, words(row))
        ring.add_into(checks, ring.check_words(words(row), keys))
    assert ring.check_words(total, keys).tolist() == checks.tolist()


@given(values=st.lists(st.integers(-(2**48), 2**48), min_size=3, max_size=3), keys=st.binary(min_size=96, max_size=96))
def test_an_unchanged_total_in_range_is_accepted(values, keys):
    total, keys = words([value % 2**64 for value in values]), ring.from_bytes(keys, 12).reshape(4, 3)
    ring.verify_words(total, ring.check_words(total, keys), keys)


@pytest.mark.parametrize("value", [2**48 + 1, -(2**48) - 1, 2**63, 2**63 - 1])
def test_a_total_out_of_range_is_refused_although_its_check_words_agree(value):
    total, keys = words([value % 2**64]), words([[1], [2], [3], [4]])
    with pytest.raises(PeerError):
        ring.verify_words(total, ring.check_words(total, keys), keys)


def test_check_words_alone_would_miss_a_flipped_top_bit():
    even_keys = words([[2], [4], [6], [8]])  # one in sixteen draws of four keys is even
    assert ring.check_words(words([7]), even_keys).tolist() == ring.check_words(words([7 + 2**63]), even_keys).tolist()


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(UsageError):
        ring.check_words(words([1, 2]), words([[1], [2], [3], [4]]))
    with pytest.raises(UsageError):
        ring.add_into(words([1, 2]), words([1]))
    with pytest.raises(PeerError):
        ring.verify_words(words([1]), words([1]), words([[1], [2], [3], [4]]))
    with pytest.raises(UsageError):
        ring.verify_words(words([1]), words([1, 2, 3, 4]), words([[1], [2], [3], [4]]), budget_bits=63)


@given(values=st.lists(WORDS, max_size=10))
def test_bytes_are_little_endian_and_return(values):
    data = ring.to_bytes(words(values))
    assert data == b"".join(value.to_bytes(8, "little") for value in values)
    back = ring.from_bytes(data, len(values))
    assert back.tolist() == values and back.flags.writeable
