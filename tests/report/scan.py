"""Looks for agents' readings and weights in whatever an aggregator has or shows, in every dress we can think of.

A content is undressed first: entities, percent signs, base64, hexadecimal and compressed data, inside each other. What
is left are numbers as written, in the order they stand, and bytes.
"""

import base64
import binascii
import html
import re
import zlib
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

import numpy as np

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){8,}")
DEPTH = 3  # dresses inside each other
MOST = 1 << 24  # bytes of decompressed data
STRIDES = range(1, 9)  # numbers from one of a table's column to the next
RUNS = {1: 16, 2: 8}  # decimals → consecutive readings that do not agree by chance; more decimals round to these
FLOATS = ("<f8", ">f8", "<f4", ">f4")
BITS = (16, 32, 48)  # fixed point, as sums carry numbers
TRIPLES = (12, 24)  # bytes of three numbers


def undressed(content: bytes, depth: int = DEPTH) -> Iterator[bytes]:
    """The content, and what is hidden in it."""
    yield content
    if depth == 0:
        return
    hidden = [unquote_to_bytes(content), _unescaped(content), _inflated(content)]
    hidden += [_from_base64(found) for found in BASE64.findall(content)]
    hidden += [binascii.unhexlify(found) for found in HEX.findall(content)]
    for inner in hidden:
        if inner and inner != content:
            yield from undressed(inner, depth - 1)


def _unescaped(content: bytes) -> bytes:
    return html.unescape(content.decode()).encode() if _is_text(content) else b""


def _from_base64(text: bytes) -> bytes:
    text = text.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    text = text[: len(text) - (len(text) % 4 == 1)]
    return base64.b64decode(text + b"=" * (-len(text) % 4))


def _inflated(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, MOST)  # zlib or gzip
    except zlib.error:
        return b""


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


class Scan:
    """Things an aggregator has or shows, ready to be searched."""

    def __init__(self, *contents: str | bytes) -> None:
        raw = [c.encode() if isinstance(c, str) else c for c in contents]
        layers = {layer for content in raw for layer in undressed(content)}
        self._bytes = b"\0".join(layer for layer in layers if not _is_text(layer) or b"\0" in layer)
        self._words = [NUMBER.findall(layer.replace("−".encode(), b"-")) for layer in layers if _is_text(layer)]
        self._numbers = [np.clip([float(w) for w in words], -1e9, 1e9) for words in self._words if words]
        self._runs = {decimals: set(self._written(decimals)) for decimals in RUNS}
        self._triples = {self._bytes[i : i + n] for n in TRIPLES for i in range(len(self._bytes) - n + 1)}

    def finds_series(self, values: np.ndarray) -> bool:
        """Whether consecutive values stand anywhere: as decimals in a row or a column, or as bytes."""
        return any(
            any(not self._runs[d].isdisjoint(_runs(dress, d)) for d in RUNS)
            or not self._triples.isdisjoint(_triples(dress))
            for dress in dresses(values)
        )

    def finds_weights(self, values: np.ndarray) -> bool:
        """Whether one agent's weight stands anywhere with six digits or as bytes, or most of them in a row."""
        spelt = _spelt(values)
        packed = {values[i : i + 1].astype(kind).tobytes() for i in range(len(values)) for kind in FLOATS}
        return (
            any(not spelt.isdisjoint(words) for words in self._words)
            or any(pattern in self._bytes for pattern in packed)
            or any(_most_of(values, numbers) for numbers in self._columns())
        )

    def _written(self, decimals: int) -> Iterator[bytes]:
        for numbers in self._columns():
            yield from _runs(numbers, decimals)

    def _columns(self) -> Iterator[np.ndarray]:
        """The numbers as they stand, and every second, third … of them."""
        for numbers in self._numbers:
            for stride in STRIDES:
                for first in range(stride):
                    yield numbers[first::stride]


def dresses(values: np.ndarray) -> Iterable[np.ndarray]:
    """A series as it is, centred as the sums have it, in °F and in K."""
    return values, values - 20.0, 1.8 * values + 32.0, values + 273.15


def _runs(values: np.ndarray, decimals: int) -> set[bytes]:
    """Consecutive values, rounded; where most of them are the same number they say nothing and are left out."""
    length = RUNS[decimals]
    if len(values) < length:
        return set()
    units = np.rint(values * 10**decimals).astype(np.int64)
    found = np.lib.stride_tricks.sliding_window_view(units, length)
    return {run.tobytes() for run in found[(np.diff(found, axis=1) != 0).sum(axis=1) >= length // 2]}


def _triples(values: np.ndarray) -> set[bytes]:
    packed = [values.astype(kind) for kind in FLOATS]
    packed += [np.rint(values * 2.0**bits).astype(order) for bits in BITS for order in ("<i8", ">i8")]
    return {numbers[i : i + 3].tobytes() for numbers in packed for i in range(len(numbers) - 2)}


def _spelt(values: np.ndarray) -> set[bytes]:
    """Every value with six significant digits or more; "g" drops zeros at the end, of which two are forgiven."""
    words = {f"{v:.{d}{kind}}" for v in values for d in range(5, 18) for kind in "fe"}
    shortened = {f"{v:.{d}g}" for v in values for d in range(6, 18)}
    return {word.encode() for word in words if _digits(word) >= 6} | {w.encode() for w in shortened if _digits(w) >= 4}


def _digits(word: str) -> int:
    return len(re.sub(r"e.*|[-.]", "", word).lstrip("0"))


def _most_of(weights: np.ndarray, numbers: np.ndarray) -> bool:
    """As many numbers in a row as there are agents, three quarters of them a weight, to two digits."""
    count = len(weights)
    if len(numbers) < count:
        return False
    close = np.abs(numbers[:, None] - weights) <= 0.006 * np.abs(weights)
    hits = np.convolve(close.any(axis=1), np.ones(count), mode="valid")
    rows = np.flatnonzero(hits >= 0.75 * count)
    return any(close[row : row + count].any(axis=0).sum() >= 0.5 * count for row in rows)
