"""Masks: AES-256-CTR keystream, read as little-endian words and added modulo 2^64.

Rule 1: a key and a nonce mask one vector, ever. Two vectors under one mask give away their difference.
Rule 2: a nonce is 12 hashed bytes and 4 zero bytes. The zeros are where CTR counts blocks, so two different nonces
        share no block for as long as a vector stays below 2^32 blocks; wholly hashed nonces could only promise that
        with high probability. A collision in 12 bytes takes a second preimage of a hash, and is refused by Rule 1.
Rule 3: CTR is the cipher of its counters, and all masks of a vector have the same ones. They are written out once and
        enciphered under each key, which spares every mask but the first the setting up of a nonce.
"""

from collections.abc import Iterable, Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB

from atdm.crypto.keys import KEY_BYTES, Field, digest
from atdm.crypto.ring import WORD_BYTES
from atdm.errors import RunAborted, UsageError
from atdm.types import UInt64Array

NONCE_BYTES = 16
_HASHED_BYTES = 12
_COUNTER = bytes(NONCE_BYTES - _HASHED_BYTES)
_MAX_WORDS = 2**33  # 2^32 blocks of two words
# Words masked in one go: counters, keystream and total together stay in a 2 MB cache. Even, so that a chunk ends on a
# block boundary.
_CHUNK = 16384
_BLOCKS = ECB()  # noqa: S305 - AES itself, no mode: what it enciphers are counters
_SPARE = 24  # bytes: half a block, and what a cipher wants beyond what it writes
_ZEROS = memoryview(bytes(WORD_BYTES * _CHUNK))


def nonce(context: bytes, *fields: Field) -> bytes:
    """The nonce of one masked vector: everything both ends must agree on, hashed."""
    return digest("nonce", context, *fields)[:_HASHED_BYTES] + _COUNTER


class Stream:
    """Keystream of one key."""

    __slots__ = ("_cipher", "_used")

    def __init__(self, key: bytes) -> None:
        self._cipher = _open(key, CTR(bytes(NONCE_BYTES)))
        self._used = _Used()

    def __repr__(self) -> str:
        return f"Stream({len(self._used)} nonces used)"

    def add(self, words: UInt64Array, nonce: bytes) -> None:
        """Add the keystream to words, in place."""
        words += self._keystream(words, nonce)

    def subtract(self, words: UInt64Array, nonce: bytes) -> None:
        """Subtract the keystream from words, in place."""
        words -= self._keystream(words, nonce)

    def words(self, count: int, nonce: bytes) -> UInt64Array:
        """`count` keystream words."""
        return self._keystream(np.empty(count, dtype=np.uint64), nonce)

    def _keystream(self, like: UInt64Array, nonce: bytes) -> UInt64Array:
        self._used.spend(nonce, like)
        words = np.empty(like.size, dtype="<u8")
        self._cipher.reset_nonce(nonce)
        buffer = words.data.cast("B")
        for first in range(0, len(buffer), len(_ZEROS)):
            part = buffer[first : first + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        return words


class MaskSet:
    """All pairwise masks of one agent: one key per neighbour, added (+1) or subtracted (-1).

    Both ends of a pair use the same nonce and opposite signs, so the masks of a whole graph add up to zero.
    The keys belong to this set: give them to no Stream. About 1 kB of memory per neighbour.
    """

    __slots__ = ("_plus", "_minus", "_used")

    def __init__(self, signed_keys: Iterable[tuple[int, bytes]]) -> None:
        self._plus: list[CipherContext] = []
        self._minus: list[CipherContext] = []
        self._used = _Used()
        seen: set[bytes] = set()
        for sign, key in signed_keys:
            if sign not in (1, -1):
                raise UsageError(f"mask sign {sign}: give +1 to one end of a pair and -1 to the other")
            if key in seen:
                raise UsageError("two neighbours have the same pair key: every pair needs its own, check the roster")
            seen.add(key)
            (self._plus if sign == 1 else self._minus).append(_open(key, _BLOCKS))

    def __repr__(self) -> str:
        return f"MaskSet({len(self)} masks, {len(self._used)} nonces used)"

    def __len__(self) -> int:
        return len(self._plus) + len(self._minus)

    def apply(self, words: UInt64Array, nonce: bytes) -> None:
        """Put all masks on words, in place."""
        self._used.spend(nonce, words)  # one look-up covers all keys: they are always used together
        counters = _counters(nonce, words.size)
        buffer = bytearray(WORD_BYTES * min(words.size, _CHUNK) + _SPARE)
        for first in range(0, words.size, _CHUNK):
            part, blocks = words[first : first + _CHUNK], counters[first // 2 : (first + _CHUNK) // 2].data.cast("B")
            stream = np.frombuffer(buffer, dtype="<u8", count=part.size)
            for ciphers, combine in ((self._plus, np.add), (self._minus, np.subtract)):
                for cipher in ciphers:
                    cipher.update_into(blocks, buffer)
                    combine(part, stream, part)


def _counters(nonce: bytes, words: int) -> npt.NDArray[np.uint32]:
    """The blocks that CTR enciphers for so many words: the nonce, counting up in its last four bytes."""
    blocks = np.empty((-(-words // 2), 4), dtype=">u4")
    blocks[:] = np.frombuffer(nonce, dtype=">u4")
    blocks[:, 3] = np.arange(len(blocks))
    return blocks


def words_at(key: bytes, positions: npt.NDArray[np.int64]) -> UInt64Array:
    """One pseudo-random word for each position: half of the AES-256 encryption of the position.

    A position always gets the same word, whichever others are asked for (so the dither of a time stamp never changes).
    For that reason it must not be used to encrypt messages.
    """
    _check_key(key)
    blocks = np.zeros((len(positions), 2), dtype="<i8")
    blocks[:, 0] = positions
    encrypted = Cipher(AES256(key), ECB()).encryptor().update(blocks.tobytes())  # noqa: S305 - AES itself, no mode
    return np.frombuffer(encrypted, dtype="<u8")[::2].astype(np.uint64)


def pair_sign(own: bytes, peer: bytes) -> int:
    """+1 for the smaller identity of a pair, -1 for the larger."""
    if own == peer:
        raise UsageError("an agent has no mask with itself: check the roster for a repeated identity")
    return 1 if own < peer else -1


def keystream_floor(sizes: Sequence[int], agents: int, masks: int) -> float:
    """The least time a run's masks can take: keystream and additions, and nothing else of the run. [s]

    `sizes` are the words of its sums, `masks` the neighbours of each agent. As in a run, every mask has its own cipher
    and they take turns in the same order: a cipher still in the cache would be faster than in any run. Best of three
    passes.
    """
    everybody = [MaskSet((1, digest("floor", i, j)) for j in range(masks)) for i in range(agents)]
    best = float("inf")
    for turn in range(3):
        start = perf_counter()
        for place, size in enumerate(sizes):
            fresh = nonce(b"floor", turn, place)
            for own in everybody:
                own.apply(np.zeros(size, dtype=np.uint64), fresh)
        best = min(best, perf_counter() - start)
    return best


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise UsageError(f"mask key is {len(key)} bytes: give {KEY_BYTES} bytes, as derive() returns")


def _open(key: bytes, mode: CTR | ECB) -> CipherContext:
    _check_key(key)
    return Cipher(AES256(key), mode).encryptor()


class _Used:
    """Nonces spent so far."""

    __slots__ = ("_nonces",)

    def __init__(self) -> None:
        self._nonces: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._nonces)

    def spend(self, nonce: bytes, words: UInt64Array) -> None:
        if len(nonce) != NONCE_BYTES or not nonce.endswith(_COUNTER):
            raise UsageError(f"a mask nonce is {_HASHED_BYTES} hashed bytes and {len(_COUNTER)} zeros: use nonce()")
        if words.ndim != 1 or words.dtype != np.uint64 or words.size >= _MAX_WORDS:
            raise UsageError(f"masks go on one row of uint64 words, got {words.dtype} of shape {words.shape}")
        if nonce in self._nonces:
            raise RunAborted(
                "this mask was used before: resend the stored bytes or start a new run; nothing was masked"
            )
        self._nonces.add(nonce)
