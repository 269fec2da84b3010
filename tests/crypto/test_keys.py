"""Hashes, keys, signatures, boxes, tags, key files."""

import hmac
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atdm.crypto import keys
from atdm.errors import DataError, PeerError, UsageError

SEED = bytes(range(32))
FIELDS = st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=6), st.integers()), max_size=5)
RUN = {"version": 1, "run_id": b"run", "ids": (b"a", b"b"), "roster": bytes(32), "config": b"\1" * 32}
ENDS = {"purpose": "test", "sender": b"a", "receiver": b"b"}


@given(one=FIELDS, other=FIELDS)
def test_different_fields_pack_differently(one, other):
    same = [(type(f), f) for f in one] == [(type(f), f) for f in other]
    assert (keys.pack("p", *one) == keys.pack("p", *other)) == same


@given(content=st.binary(min_size=2, max_size=12), data=st.data())
def test_moving_a_byte_between_fields_changes_the_digest(content, data):
    cut = data.draw(st.integers(0, len(content) - 1))
    here, there = (content[:cut], content[cut:]), (content[: cut + 1], content[cut + 1 :])
    assert keys.digest(*here) != keys.digest(*there)


def test_purposes_do_not_share_bytes():
    assert len({keys.pack(purpose, b"x") for purpose in ("digest", "derive", "signature", "seal", "tag", "pair")}) == 6


def test_a_float_cannot_be_packed():
    with pytest.raises(UsageError, match="float"):
        keys.digest(1.5)


@pytest.mark.parametrize("length", [0, 255 * 32 + 1])
def test_hkdf_length_is_bounded(length):
    with pytest.raises(UsageError):
        keys.derive(SEED, "x", length=length)


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"run_id": b"other"}, {"ids": (b"a", b"c")}, {"roster": b"\2" * 32}, {"config": b"\2" * 32}],
    ids=lambda change: next(iter(change)),
)
def test_everything_bound_to_a_pair_key_changes_it(change):
    a, b = keys.ExchangeKey(SEED), keys.ExchangeKey(SEED[::-1])
    assert a.shared(b.public, **RUN) == b.shared(a.public, **{**RUN, "ids": RUN["ids"][::-1]})
    assert a.shared(b.public, **RUN) != a.shared(b.public, **{**RUN, **change})


@given(plaintext=st.binary(max_size=100), associated=FIELDS)
def test_a_box_opens_to_what_was_sealed(plaintext, associated):
    box = keys.seal(SEED, plaintext, *associated, **ENDS)
    assert keys.open_sealed(SEED, box, *associated, **ENDS) == plaintext


@given(position=st.integers(0, 8 * 22 - 1))
def test_every_bit_of_a_box_counts(position):
    box = bytearray(keys.seal(SEED, b"secret", **ENDS))
    box[position // 8] ^= 1 << position % 8
    with pytest.raises(PeerError):
        keys.open_sealed(SEED, bytes(box), **ENDS)


def test_the_two_directions_of_a_pair_share_no_keystream():
    there = keys.seal(SEED, bytes(64), **ENDS)
    back = keys.seal(SEED, bytes(64), **{**ENDS, "sender": b"b", "receiver": b"a"})
    assert sum(x == y for x, y in zip(there, back, strict=True)) < 10


def test_signature_and_tag_accept_their_own():
    signer = keys.SigningKey(SEED)
    keys.verify(signer.public, signer.sign("x", 1), "x", 1)
    tagger, message = keys.Tagger(SEED), keys.pack("tag", "x", 1)
    tagger.check(tagger.tag(message), message)
    assert len(tagger.tag(message)) == keys.TAG_BYTES


@pytest.mark.parametrize("secret_holder", [keys.SigningKey, keys.ExchangeKey])
def test_repr_shows_no_secret_and_a_short_seed_is_refused(secret_holder):
    shown = repr(secret_holder(SEED))
    assert SEED.hex() not in shown and repr(SEED) not in shown
    with pytest.raises(UsageError, match="31 bytes"):
        secret_holder(SEED[:31])


def test_key_file_returns_the_key_and_is_private(tmp_path):
    path = tmp_path / "agent.key"
    keys.write_key_file(path, SEED)
    assert keys.read_key_file(path) == SEED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["agent.key"]


def test_key_file_is_never_overwritten(tmp_path):
    path = tmp_path / "agent.key"
    keys.write_key_file(path, SEED)
    with pytest.raises(UsageError, match="never overwritten"):
        keys.write_key_file(path, bytes(32))
    assert keys.read_key_file(path) == SEED


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_key_file_open_to_others_is_refused(tmp_path, mode):
    path = tmp_path / "agent.key"
    keys.write_key_file(path, SEED)
    path.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600") as raised:
        keys.read_key_file(path)
    assert SEED.hex() not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"atdm-key-1 00\n", b"\xff" * 76, b"atdm-key-1 " + b"0" * 64 + b"\n\n"])
def test_key_file_with_other_content_is_refused(tmp_path, content):
    path = tmp_path / "agent.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(DataError, match="not a key file"):
        keys.read_key_file(path)


def test_key_file_that_cannot_be_reached_is_refused(tmp_path):
    for path in (tmp_path / "missing.key", tmp_path):
        with pytest.raises(DataError, match="key file"):
            keys.read_key_file(path)
    with pytest.raises(UsageError, match="cannot write"):
        keys.write_key_file(tmp_path / "missing" / "agent.key", SEED)


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UsageError, match="No space left"):
        keys.write_key_file(tmp_path / "agent.key", SEED)
    assert list(tmp_path.iterdir()) == []


def test_a_tagger_gives_the_tags_of_one_key_and_refuses_others():
    key, packed = bytes(range(32)), keys.pack("receipt", b"context")
    tagger = keys.Tagger(key)
    reference = hmac.new(key, packed, "sha256").digest()[: keys.TAG_BYTES]
    assert tagger.tag(packed) == tagger.tag(packed) == reference
    tagger.check(reference, packed)
    with pytest.raises(PeerError):
        tagger.check(reference, packed + b"x")
