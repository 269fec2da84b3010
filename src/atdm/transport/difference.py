"""One text of bytes told by another: what stays is named by place, what is new stands there in full.

An agent's account grows by some hundred bytes a run and has hundreds of thousands. It is arrays by time, one behind the
other, so that a run adds a little in each of them. Whatever was found, `difference` tells nothing that `rebuilt` would
not make the same of.
"""

from collections.abc import Iterator

import numpy as np

ANCHOR = 32  # bytes by which the two are found to go on alike
NEAR = 2048  # bytes of the old text that are looked through anchor by anchor; beyond, in steps that double

Part = tuple[int, int] | bytes  # place and length in the old text, or new bytes


def difference(old: bytes, new: bytes) -> tuple[Part, ...]:
    """What makes the new text of the old one. Short where they differ in few places; correct in any case."""
    parts: list[Part] = []
    i = j = 0
    while j < len(new):
        alike = _alike(old, i, new, j)
        if alike:
            parts.append((i, alike))
            i, j = i + alike, j + alike
        if j < len(new):
            i, meet = _meet(old, i, new, j)
            parts.append(new[j:meet])
            j = meet
    return tuple(part for part in parts if part)


def rebuilt(old: bytes, parts: tuple[Part, ...]) -> bytes:
    """The new text. ValueError: the parts are not of this old text."""
    made = []
    for part in parts:
        if isinstance(part, bytes):
            made.append(part)
            continue
        place, length = part
        if not (0 <= place and 0 < length <= len(old) - place):
            raise ValueError("a part beyond the end")
        made.append(old[place : place + length])
    return b"".join(made)


def _alike(old: bytes, i: int, new: bytes, j: int) -> int:
    """How many bytes from there on are the same."""
    length = min(len(old) - i, len(new) - j)
    if length <= 0:
        return 0
    other = np.frombuffer(old, np.uint8, length, i) != np.frombuffer(new, np.uint8, length, j)
    first = int(other.argmax())
    return first if other[first] else length


def _meet(old: bytes, i: int, new: bytes, j: int) -> tuple[int, int]:
    """From where on in both they may be the same again; the ends of both where no place is found."""
    for place in _places(i, len(old) - ANCHOR):
        found = new.find(old[place : place + ANCHOR], j)
        if found >= 0:
            return place, found
    return len(old), len(new)


def _places(first: int, last: int) -> Iterator[int]:
    skip = 0
    while first + skip <= last:
        yield first + skip
        skip += ANCHOR if skip < NEAR else skip
