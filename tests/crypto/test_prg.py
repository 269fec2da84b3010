"""Keystreams and masks."""

import hashlib
import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from atdm.crypto import graph, prg, ring
from atdm.errors import RunAborted, UsageError

KEY = bytes(range(32))
NONCE = prg.nonce(b"context")


def pair_key(i, j, seed=b""):
    return hashlib.sha256(b"%d %d " % (min(i, j), max(i, j)) + seed).digest()


def masks_of(index, neighbours, seed=b""):
    return prg.MaskSet((1 if index < other else -1, pair_key(index, other, seed)) for other in neighbours)


def expected_stream(count, nonce=NONCE):
    stream = Cipher(algorithms.AES256(KEY), modes.CTR(nonce)).encryptor().update(bytes(8 * count))
    return np.frombuffer(stream, dtype="<u8")


@pytest.mark.parametrize("count", [0, 1, 3, 1082, 16384, 16385, 76_000])
def test_stream_is_aes_ctr_whatever_the_length(count):
    assert (prg.Stream(KEY).words(count, NONCE) == expected_stream(count)).all()
    words = np.arange(count, dtype=np.uint64)
    prg.Stream(KEY).add(words, NONCE)
    assert (words == np.arange(count, dtype=np.uint64) + expected_stream(count)).all()
    prg.Stream(KEY).subtract(words, NONCE)
    assert (words == np.arange(count)).all()


def test_mask_set_equals_its_streams_one_by_one():
    signed_keys = [((-1) ** i, pair_key(0, i)) for i in range(1, 8)]
    count = 40_001
    words = np.zeros(count, dtype=np.uint64)
    for sign, key in signed_keys:
        stream = prg.Stream(key)
        (stream.add if sign == 1 else stream.subtract)(words, NONCE)
    masked = np.zeros(count, dtype=np.uint64)
    prg.MaskSet(signed_keys).apply(masked, NONCE)
    assert (masked == words).all()


def test_a_short_vector_after_a_long_one_starts_its_stream_anew():
    stream = prg.Stream(KEY)
    stream.words(50_000, NONCE)
    other = prg.nonce(b"other")
    assert (stream.words(5, other) == expected_stream(5, other)).all()


@given(
    rows=st.integers(3, 12).flatmap(
        lambda agents: st.lists(
            st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=4), min_size=agents, max_size=agents
        )
    ),
    seed=st.binary(min_size=1, max_size=8),
    regular=st.booleans(),
)
@settings(max_examples=60)
def test_masked_sum_is_the_plain_sum(rows, seed, regular):
    agents = len(rows)
    mesh = graph.Graph.build(agents, seed, 2 * ((agents - 1) // 2) if regular else agents - 1)
    total = np.zeros(4, dtype=np.uint64)
    for i, row in enumerate(rows):
        words = np.array(row, dtype=np.uint64)
        masks_of(i, mesh.neighbours(i), seed).apply(words, NONCE)
        ring.add_into(total, words)
    assert total.tolist() == [sum(column) % 2**64 for column in zip(*rows, strict=True)]


def test_two_views_of_the_context_do_not_cancel():
    words = [np.zeros(8, dtype=np.uint64) for _ in range(2)]
    masks_of(0, [1]).apply(words[0], prg.nonce(b"context", 1))
    masks_of(1, [0]).apply(words[1], prg.nonce(b"context", 2))
    assert (words[0] + words[1] != 0).all()


def test_other_inputs_of_equal_sum_explain_the_same_messages_in_10_000_cases():
    """Perfect hiding, by construction: whatever was sent, masks exist under which other data would have sent it."""
    source = prg.Stream(hashlib.sha256(b"hiding").digest())
    for case in range(10_000):
        agents = 3 + case % 8
        draw = source.words(3 * agents * 2, prg.nonce(b"hiding", case)).reshape(3, agents, 2)
        data, other = draw[0], draw[1]
        other[-1] += data.sum(axis=0) - other.sum(axis=0)
        pair_masks = np.zeros((agents, agents, 2), dtype=np.uint64)  # antisymmetric, along a path of the graph
        for i in range(agents - 1):
            pair_masks[i, i + 1], pair_masks[i + 1, i] = draw[2, i], -draw[2, i]
        messages = data + pair_masks.sum(axis=1)

        shift = np.cumsum(data - other, axis=0)  # carry each agent's difference on to the next
        for i in range(agents - 1):
            pair_masks[i, i + 1] += shift[i]
            pair_masks[i + 1, i] -= shift[i]
        assert ring.to_bytes(other + pair_masks.sum(axis=1)) == ring.to_bytes(messages)


def test_masked_bytes_look_uniform():
    """Smoke test, not proof: chi-square over 256 byte values, for extreme inputs, with fixed keys."""
    for name, value in (("zeros", 0), ("ones", 2**64 - 1), ("large", 2**63)):
        words = np.full(250_000, value, dtype=np.uint64)
        masks_of(0, range(1, 4), b"chi-square " + name.encode()).apply(words, NONCE)
        counts = np.bincount(np.frombuffer(ring.to_bytes(words), dtype=np.uint8), minlength=256)
        expected = 8 * words.size / 256
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("holder", [prg.Stream(KEY).add, masks_of(0, [1, 2]).apply], ids=["stream", "mask set"])
def test_a_nonce_is_accepted_once(holder):
    holder(np.zeros(4, dtype=np.uint64), NONCE)
    untouched = np.zeros(4, dtype=np.uint64)
    with pytest.raises(RunAborted, match="used before"):
        holder(untouched, NONCE)
    assert (untouched == 0).all()
    holder(untouched, prg.nonce(b"another"))
    assert (untouched != 0).all()


@pytest.mark.parametrize("words", [np.zeros(3), np.zeros((2, 2), dtype=np.uint64), np.zeros(3, dtype=np.int64)])
def test_only_one_row_of_words_is_masked(words):
    with pytest.raises(UsageError, match="one row of uint64"):
        prg.Stream(KEY).add(words, NONCE)


def test_one_key_for_two_neighbours_is_refused():
    with pytest.raises(UsageError, match="same pair key"):
        prg.MaskSet([(1, KEY), (-1, KEY)])


def test_signs_of_a_pair_are_opposite():
    assert prg.pair_sign(b"a", b"b") == -prg.pair_sign(b"b", b"a") == 1
    with pytest.raises(UsageError):
        prg.pair_sign(b"a", b"a")


def test_repr_shows_no_key():
    for holder in (prg.Stream(KEY), prg.MaskSet([(1, KEY)])):
        assert KEY.hex() not in repr(holder) and repr(KEY) not in repr(holder)
        assert "nonces used" in repr(holder)


def test_nonces_leave_the_block_counter_free():
    assert prg.nonce(b"a", 1)[12:] == bytes(4)
    assert (
        len({prg.nonce(b"a", 1), prg.nonce(b"a", 2), prg.nonce(b"b", 1), prg.nonce(b"a", "1"), prg.nonce(b"a1")}) == 5
    )


def test_the_floor_grows_with_the_work():
    few, many = prg.keystream_floor([1082], 2, 5), prg.keystream_floor([1082, 1082, 60], 20, 50)
    assert 0 < few < many
    assert prg.keystream_floor([20_000], 1, 1) > 0


def test_the_word_at_a_position_is_half_of_the_cipher_of_it():
    """Through counter mode, whose first block is the cipher of its counter."""
    positions = np.array([7, -3, 2**40, 7])
    expected = []
    for p in positions.tolist():
        block = p.to_bytes(8, "little", signed=True) + bytes(8)
        first = Cipher(algorithms.AES256(KEY), modes.CTR(block)).encryptor().update(bytes(8))
        expected.append(int.from_bytes(first, "little"))
    words = prg.words_at(KEY, positions)
    assert words.tolist() == expected and words[0] == words[3] and words[0] != prg.words_at(bytes(32), positions)[0]
    with pytest.raises(UsageError, match="31 bytes"):
        prg.words_at(KEY[:31], positions)
