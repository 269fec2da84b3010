"""What travels on the wire: messages cut into frames that fit the server's limit, put together again within bounds.

A stream is one aggregator's run, named by 16 random bytes. Its messages are numbered slots: every agent has exactly
one message (perhaps an empty one) in every slot and gives exactly one answer to it (perhaps an empty one). So a
message that was lost is known by its number, and sent again.
"""

from collections.abc import Iterator

import msgspec

from atdm.errors import PeerError

STREAM_BYTES = 16
FRAME_BYTES = 128  # of a frame beside its part of the message, at most
PART_BYTES = 128  # that a part costs its receiver beside its content: objects and a place in a table
MOST_OPEN = 4  # incomplete messages kept per sender
MOST_HELD = 4  # names of notices that an agent says it holds
_NAME_BYTES = 32  # of each, at most
_MOST_SLOTS = 1 << 31


class Piece(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="piece"):
    """Part of the message, or of the answer, of one slot."""

    stream: bytes
    slot: int
    part: int
    parts: int
    resumed: (
        bool  # whether sending was resumed at this slot: the aggregator has this agent's answers to all earlier ones
    )
    body: bytes


class Call(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="call"):
    """The aggregator asks who is there."""

    stream: bytes


class Here(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="here"):
    """An agent says that it is there, on arrival or when called; what it has not answered yet is sent again."""

    stream: bytes
    held: tuple[bytes, ...] = ()  # names of what it need not be sent; they mean something to whoever gives them


Frame = Piece | Call | Here
_decoder = msgspec.msgpack.Decoder(Frame)
_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(list[bytes] | None)


def encode(frame: Frame) -> bytes:
    return _encoder.encode(frame)


def decode(data: bytes) -> Frame:
    """The frame in some bytes from another party; PeerError if they are none."""
    try:
        frame: Frame = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PeerError(f"{len(data)} bytes that do not decode as a frame: ignored") from None
    if isinstance(frame, Piece):
        sound = 0 <= frame.part < frame.parts <= _MOST_SLOTS and 0 <= frame.slot < _MOST_SLOTS
        if not sound or len(frame.stream) != STREAM_BYTES:
            raise PeerError("frame with impossible numbers: ignored")
    if isinstance(frame, Here) and (len(frame.held) > MOST_HELD or any(len(n) > _NAME_BYTES for n in frame.held)):
        raise PeerError("frame with more names than an agent may hold: ignored")
    return frame


def split(stream: bytes, slot: int, message: bytes, largest: int, *, resumed: bool = False) -> Iterator[bytes]:
    """Frames of at most `largest` bytes."""
    room = largest - FRAME_BYTES
    parts = max(1, -(-len(message) // room))
    for part in range(parts):
        body = message[part * room : (part + 1) * room]
        yield encode(Piece(stream, slot, part, parts, resumed, body))


class Assembly:
    """Puts one sender's messages together; holds no more than a few, within the bytes it is allowed."""

    def __init__(self) -> None:
        self._open: dict[tuple[bytes, int], dict[int, bytes]] = {}
        self._bytes: dict[tuple[bytes, int], int] = {}

    def add(self, piece: Piece, limit: int) -> bytes | None:
        """The whole message once its last part is here."""
        key = (piece.stream, piece.slot)
        if piece.parts > 1 + limit // PART_BYTES:  # or a message of tiny parts would cost many times its bytes
            self._drop(key)
            raise PeerError(f"message in {piece.parts} parts where at most {limit} bytes are expected: ignored")
        if piece.parts == 1:
            self._drop(key)
            if len(piece.body) > limit:
                raise PeerError(f"message of {len(piece.body)} bytes where at most {limit} are expected: ignored")
            return piece.body
        if not piece.body:
            raise PeerError("an empty part of a message: ignored")
        parts = self._open.setdefault(key, {})
        self._bytes[key] = self._bytes.get(key, 0) + len(piece.body) - len(parts.get(piece.part, b""))
        parts[piece.part] = piece.body
        if self._bytes[key] > limit:
            self._drop(key)
            raise PeerError(f"message of more than the {limit} bytes that are expected: ignored")
        if len(parts) == piece.parts:
            self._drop(key)
            return b"".join(parts[i] for i in range(piece.parts)) if max(parts) < piece.parts else None
        while len(self._open) > MOST_OPEN:
            self._drop(next(iter(self._open)))
        return None

    def _drop(self, key: tuple[bytes, int]) -> None:
        self._open.pop(key, None)
        self._bytes.pop(key, None)


def pack_answers(answers: list[bytes] | None) -> bytes:
    """All answers to one message; None: the agent ignored the message, which did not fit its state."""
    return _encoder.encode(answers)


def unpack_answers(data: bytes) -> list[bytes] | None:
    try:
        answers: list[bytes] | None = _answers.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PeerError(f"{len(data)} bytes that do not decode as answers: ignored") from None
    return answers
