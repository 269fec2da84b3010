"""Frames: whatever is cut is put together again, and nobody can make a receiver keep more than it allows."""

import nkeys
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atdm.errors import PeerError
from atdm.transport import frames
from atdm.transport.frames import Assembly, Piece, decode, encode, split
from atdm.transport.nats import slots_of
from atdm.transport.nkey import nkey_public, nkey_seed

STREAM = bytes(range(16))


@given(message=st.binary(max_size=3000), room=st.integers(128, 500), order=st.randoms(use_true_random=False))
def test_a_message_survives_cutting_shuffling_and_doubling(message, room, order):
    pieces = [decode(data) for data in split(STREAM, 7, message, frames.FRAME_BYTES + room)]
    assert all(len(encode(piece)) <= frames.FRAME_BYTES + room for piece in pieces)
    doubled = pieces[:-1] * 2 if len(pieces) > 1 else []
    order.shuffle(doubled)
    assembly = Assembly()
    for piece in doubled:
        assert assembly.add(piece, len(message)) is None
    assert assembly.add(pieces[-1], len(message)) == message


@given(data=st.binary(max_size=200))
@settings(max_examples=500)
def test_bytes_that_are_no_frame_are_refused(data):
    try:
        frame = decode(data)
    except PeerError:
        return
    assert decode(encode(frame)) == frame  # hypothesis found a frame


@pytest.mark.parametrize("piece", [
    Piece(STREAM, 0, 1, 1, False, b""), Piece(STREAM, 0, -1, 1, False, b""), Piece(STREAM, -1, 0, 1, False, b""),
    Piece(STREAM, 0, 0, 0, False, b""), Piece(STREAM[:15], 0, 0, 1, False, b""),
    Piece(STREAM, 1 << 40, 0, 1, False, b""),
])  # fmt: skip
def test_impossible_numbers_are_refused(piece):
    with pytest.raises(PeerError, match="impossible"):
        decode(encode(piece))


def test_a_message_above_its_limit_is_dropped_before_it_is_whole():
    assembly = Assembly()
    pieces = [decode(data) for data in split(STREAM, 0, bytes(4000), frames.FRAME_BYTES + 200)]
    with pytest.raises(PeerError, match="more than the 3000 bytes"):
        for piece in pieces:
            assembly.add(piece, 3000)
    assert not assembly._open


def test_parts_without_content_are_refused():
    """They would never reach a limit of bytes."""
    assembly = Assembly()
    with pytest.raises(PeerError, match="an empty part"):
        assembly.add(Piece(STREAM, 0, 0, 5, False, b""), 1000)
    assert not assembly._open


def test_parts_are_not_so_small_that_they_cost_more_than_the_message():
    assembly, limit = Assembly(), 10 * frames.PART_BYTES
    for count in (12, 2**31):
        for part in range(5):
            with pytest.raises(PeerError, match=f"in {count} parts where at most {limit} bytes"):
                assembly.add(Piece(STREAM, 0, part, count, False, b"x"), limit)
    assert not assembly._open and not assembly._bytes
    assert assembly.add(Piece(STREAM, 0, 0, 11, False, b"x"), limit) is None


def test_a_part_that_comes_again_counts_once():
    assembly = Assembly()
    for _ in range(5):
        assert assembly.add(Piece(STREAM, 0, 0, 2, False, bytes(600)), 1000) is None
    assert assembly.add(Piece(STREAM, 0, 1, 2, False, bytes(400)), 1000) == bytes(1000)
    assert not assembly._open and not assembly._bytes


def test_a_flood_of_beginnings_is_forgotten():
    assembly = Assembly()
    for slot in range(100):
        assembly.add(Piece(STREAM, slot, 0, 2, False, bytes(10)), 1000)
    assert len(assembly._open) <= frames.MOST_OPEN + 1


def test_every_agent_has_one_message_in_every_slot():
    slots = slots_of([(None, b"all"), (1, b"one"), (2, b"two"), (1, b"again"), (None, b"end")])
    assert [[slot.message(i) for slot in slots] for i in range(3)] == [
        [b"all", b"", b"", b"end"],
        [b"all", b"one", b"again", b"end"],
        [b"all", b"two", b"", b"end"],
    ]


@given(seed=st.binary(min_size=32, max_size=32))
def test_nkeys_are_spelled_as_the_nats_library_spells_them(seed):
    assert nkey_seed(seed).encode() == nkeys.encode_seed(seed, nkeys.PREFIX_BYTE_USER)
    assert nkey_public(seed).encode() == nkeys.from_seed(bytearray(nkey_seed(seed).encode())).public_key
