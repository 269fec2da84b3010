"""Masks and veil, gone through key by key: the real code on every choice of keys there is, in the integers modulo 8.

A keystream is a list here instead of AES: position p of every vector stands for the p-th choice of all keys, so that
one call of the real MaskSet or Veil masks the same word under every choice. Words are taken modulo 8 afterwards, which
is a homomorphism of the ring of 2^64 the code computes in; nothing in the argument depends on the modulus. What it
leaves to belief is that AES-256-CTR under an unknown key cannot be told from uniform words.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atdm.crypto import prg, ring
from atdm.crypto.prg import MaskSet, pair_sign
from atdm.crypto.sums import Block, Layout
from atdm.protocol.blind import veil as veils
from atdm.protocol.part import Host

MODULUS, AGENTS = 8, 3
PAIRS = tuple(combinations(range(AGENTS), 2))
EVERY = tuple(range(MODULUS))  # values of a key
Words = NDArray[np.uint64]
View = Counter[tuple[int, ...]]  # what somebody sees → under how many choices of keys


class Listed:
    """A cipher whose keystream is a list: block n of it, by the counter at the end of what is enciphered, is its words
    2n and 2n + 1; zeros follow."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def update_into(self, blocks: Any, buffer: Any) -> None:
        counters = np.frombuffer(blocks, dtype=">u4").reshape(-1, 4)[:, 3].astype(np.int64)
        at = (2 * counters[:, None] + np.arange(2)).ravel()
        stream = np.where(at < len(self._words), self._words[np.minimum(at, len(self._words) - 1)], np.uint64(0))
        buffer[: len(blocks)] = stream.astype("<u8").tobytes()


def identity(agent: int) -> bytes:
    return bytes([agent]) * 32


def key_of(pair: tuple[int, int]) -> bytes:
    return bytes([10 * pair[0] + pair[1]]) * 32


@contextmanager
def listed(keys: dict[tuple[int, int], Words]) -> Iterator[None]:
    """The real masks with keystreams from lists."""
    real, by_key = prg._open, {key_of(pair): words for pair, words in keys.items()}
    prg._open = lambda key, mode: Listed(by_key[key])  # type: ignore[assignment,return-value]
    try:
        yield
    finally:
        prg._open = real


def choices(how_many: int, values: Sequence[int] = EVERY) -> list[Words]:
    """Every choice of so many keys: one list each, by position."""
    return [np.array(each, dtype=np.uint64) for each in zip(*product(values, repeat=how_many), strict=True)]


def mask_set(agent: int, pairs: Sequence[tuple[int, int]]) -> MaskSet:
    others = [(pair, pair[1] if pair[0] == agent else pair[0]) for pair in pairs if agent in pair]
    return MaskSet((pair_sign(identity(agent), identity(other)), key_of(pair)) for pair, other in others)


NONCE = prg.nonce(b"", "one sum")


def masked(
    inputs: Sequence[Words | int],
    keys: dict[tuple[int, int], Words],
    make: Callable[[int, Sequence[tuple[int, int]]], MaskSet] = mask_set,
) -> list[Words]:
    """Each agent's words as they leave, by choice of keys."""
    size = len(next(iter(keys.values())))
    with listed(keys):
        found = []
        for agent, value in enumerate(inputs):
            words = np.zeros(size, dtype=np.uint64) + np.asarray(value, dtype=np.uint64)
            make(agent, tuple(keys)).apply(words, NONCE)
            found.append(words % np.uint64(MODULUS))
    return found


def view(*columns: Words) -> View:
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def pair_keys(pairs: Sequence[tuple[int, int]] = PAIRS, values: Sequence[int] = EVERY) -> dict[tuple[int, int], Words]:
    return dict(zip(pairs, choices(len(pairs), values), strict=True))


# What is claimed


def sums_are_right(make: Callable[..., MaskSet] = mask_set) -> bool:
    """Masks cancel: the sum of what leaves is the sum of what was put in, under every choice of keys."""
    keys = pair_keys()
    for inputs in product(EVERY, repeat=AGENTS):
        if ((sum(masked(inputs, keys, make)) - np.uint64(sum(inputs))) % np.uint64(MODULUS)).any():
            return False
    return True


def uniform_given_the_sum(keys: dict[tuple[int, int], Words] | None = None) -> bool:
    """For every input, every triple of words with the right sum leaves under equally many choices of keys."""
    keys = pair_keys() if keys is None else keys
    for inputs in product(EVERY, repeat=AGENTS):
        seen = view(*masked(inputs, keys))
        possible = {w for w in product(EVERY, repeat=AGENTS) if (sum(w) - sum(inputs)) % MODULUS == 0}
        if set(seen) != possible or len(set(seen.values())) != 1:
            return False
    return True


def colluder_sees_the_sum_of_the_others(keys: dict[tuple[int, int], Words] | None = None) -> bool:
    """The last agent tells the aggregator its keys: what both see of the others depends on their sum alone."""
    keys, known = pair_keys() if keys is None else keys, AGENTS - 1
    seen: dict[tuple[int, int], View] = {}
    for inputs in product(EVERY, repeat=AGENTS):
        words = masked(inputs, keys)
        told = [stream for pair, stream in keys.items() if known in pair]
        honest = sum(inputs[:known]) % MODULUS
        found = view(*words, *told)
        if seen.setdefault((honest, inputs[known]), found) != found:
            return False
    return True


def not_given_is_not_to_be_told(random: Sequence[int] = EVERY) -> bool:
    """Rows collected: whoever cannot give a row puts in a random word. What leaves is then the same, whoever they are
    and however many; where all can give it, the sum is zero."""
    everybody, words = None, choices(len(PAIRS) + AGENTS)
    streams, drawn = words[: len(PAIRS)], words[len(PAIRS) :]
    keys = dict(zip(PAIRS, streams, strict=True))
    kept = np.isin(drawn, random).all(axis=0)
    for cannot in product((False, True), repeat=AGENTS):
        inputs = [word if lacks else np.uint64(0) for word, lacks in zip(drawn, cannot, strict=True)]
        left = masked(inputs, keys)
        if not any(cannot):
            if (sum(left) % np.uint64(MODULUS)).any():
                return False
            continue
        found = view(*(column[kept] for column in left))
        everybody = everybody or found
        if found != everybody:
            return False
    return True


def veil_hides_the_total(veiled: bool = True) -> bool:
    """The leader's veil on a sum: what the aggregator sees is the same for every input, the total included; and agents
    who take it off find the sum. With the real Veil."""
    streams = choices(len(PAIRS) + 1)
    size = len(streams[0])
    layout = Layout((Block("word", size, 0, float(MODULUS)),))
    keys = {pair: np.append(s, np.zeros(5, np.uint64)) for pair, s in zip(PAIRS, streams[:-1], strict=True)}
    real, first = veils.Stream, None
    veils.Stream = lambda _: Drawn(streams[-1] if veiled else np.zeros(size, np.uint64))  # type: ignore[assignment,misc]
    try:
        for inputs in product(EVERY, repeat=AGENTS):
            parts, ends = [], []
            with listed(keys):
                for agent, value in enumerate(inputs):
                    end = veils.Veil(session(agent), bytes(32), Host())  # type: ignore[arg-type]
                    parts.append(end.wrap("word", layout, {"word": np.full(size, float(value))}))
                    ends.append(end)
            words = [ring.from_bytes(part, layout.words + ring.CHECK_WORDS) for part in parts]
            opened, _ = ends[-1].unwrap(ring.to_bytes(sum(words)))
            if not (opened["word"] == sum(inputs)).all():
                return False
            found = view(*(each[:size] % np.uint64(MODULUS) for each in words))
            first = first or found
            if found != first:
                return False
        return True
    finally:
        veils.Stream = real  # type: ignore[misc]


class Drawn:
    """The group's stream: the veil from a list, then zeros."""

    def __init__(self, veil: Words) -> None:
        self._veil = veil

    def words(self, count: int, nonce: bytes) -> Words:
        found = np.zeros(count, dtype=np.uint64)
        found[: len(self._veil)] = self._veil
        return found


def session(agent: int) -> SimpleNamespace:
    masks = mask_set(agent, PAIRS)
    run = SimpleNamespace(id=bytes(32), company_hash=bytes(32), agents=AGENTS)
    return SimpleNamespace(run=run, leads=agent == 0, mask=masks.apply)


def passing(offset: int, bits: int) -> int:
    """Of all keys of one check word in the ring of 2^bits, those under which a total off by this much passes."""
    keys = np.arange(1 << bits, dtype=np.uint64)
    return int(((keys * np.uint64(offset)) % np.uint64(1 << bits) == 0).sum())
