"""Every message that crosses between the aggregator and an agent, as frozen structs with strict decoding.

Agents speak only to the aggregator, which adds and relays: ToAgent and ToAggregator say what goes which way. A message
carries no sender: the transport knows it. Sizes are known from the plan, so a reader gives the limit before anything is
decoded.
"""

from typing import TypeVar

import msgspec

from atdm.errors import PeerError
from atdm.protocol.plan import AnyPlan


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Base of all messages; the tag on the wire is the class name."""


class RunMessage(Message, frozen=True):
    run: bytes  # its id


class StepMessage(RunMessage, frozen=True):
    step: int  # its place in the run


class Seal(StepMessage, frozen=True):
    """The numbers that are to be released, from the leader to the other agents of `blind`, under a key of the group."""

    box: bytes


class Announce(Message, frozen=True):
    """The plan, for the agents of the roster with this hash."""

    plan: AnyPlan
    roster: bytes
    attempt: int = 0  # counts up from run to run, so that a late copy of an old announcement ends no run


class Keys(Message, frozen=True):
    """The company and the days of the run, and what each member answered to the announcement, in the order of the
    roster: its days, and 32, 32 and 64 bytes."""

    company: bytes  # a bit for each agent of the roster
    days: bytes  # a bit for each day of the plan
    answers: bytes
    nonces: bytes
    exchange: bytes
    signatures: bytes


class Secret(RunMessage, frozen=True):
    """The group secret as the leader sealed it for one agent."""

    box: bytes


class Total(StepMessage, frozen=True):
    """The sum of everybody's masked words of one step."""

    words: bytes


class Ask(StepMessage, frozen=True):
    """The next sum the aggregator wants to open (`paper`, `moments`), with the numbers it depends on."""

    what: str
    values: bytes  # float64, little-endian


class Receipts(StepMessage, frozen=True):
    """The tags with which an agent's neighbours say that they sent their part of this step."""

    tags: bytes


class Finished(RunMessage, frozen=True):
    """The run is over; keys can be forgotten."""


class Abort(RunMessage, frozen=True):
    """The run ended without a result; one that has no id yet goes by the hash of its announcement."""

    reason: str


class Ready(Message, frozen=True):
    """An agent's answer to an announcement: the days it is in on, why not on others, its nonce and exchange key for
    this run; signed together with the announcement, but for the reason."""

    days: bytes  # a bit for each day of the plan
    reason: str  # one of a few fixed texts; empty where it is in on all days
    nonce: bytes
    exchange: bytes
    signature: bytes


class Secrets(RunMessage, frozen=True):
    """From the leader, the first member: the group secret sealed for each of the others, in order."""

    boxes: bytes


class Masked(StepMessage, frozen=True):
    """An agent's masked words of one step; in opened sums also a tag for each neighbour."""

    phase: str
    words: bytes
    tags: bytes = b""


class Release(StepMessage, frozen=True):
    """An agent's masked part of the key to the leader's box, and its word for the numbers in it: a hash under its
    signature, not summed, because whatever is summed can be corrected by one liar."""

    words: bytes
    hash: bytes
    signature: bytes
    box: bytes = b""  # the leader's: the released numbers, h and s


class Consent(StepMessage, frozen=True):
    """The seed of an agent's self mask, sent once it has seen all neighbours' receipts."""

    seed: bytes


class Answer(StepMessage, frozen=True):
    """Numbers an agent returns in the clear (`paper`: its weight)."""

    values: bytes


class Refuse(Message, frozen=True):
    """An agent will not go on, and why, in one line without any value of its data."""

    reason: str


ToAgent = Announce | Keys | Secret | Seal | Total | Ask | Receipts | Finished | Abort
ToAggregator = Ready | Secrets | Seal | Masked | Release | Consent | Answer | Refuse

OVERHEAD = 4096  # bytes beyond the packed arrays: tags, names, plan
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
_to_aggregator: msgspec.msgpack.Decoder[ToAggregator] = msgspec.msgpack.Decoder(ToAggregator)
_encoder = msgspec.msgpack.Encoder()
M = TypeVar("M")


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_to_agent(data: bytes, limit: int) -> ToAgent:
    return _decode(_to_agent, data, limit)


def decode_to_aggregator(data: bytes, limit: int) -> ToAggregator:
    return _decode(_to_aggregator, data, limit)


def _decode(decoder: "msgspec.msgpack.Decoder[M]", data: bytes, limit: int) -> M:
    if len(data) > limit + OVERHEAD:
        raise PeerError(f"message of {len(data)} bytes where at most {limit + OVERHEAD} are expected: ignored")
    try:
        message = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"message does not decode ({one_line(str(error), 80)}): ignored") from None
    if _encoder.encode(message) != data:  # one meaning, one encoding: a resend is byte-identical
        raise PeerError("message is not in canonical form: ignored")
    return message


def one_line(text: str, most: int = 300) -> str:
    """Another party's words as they may be shown: one line, printable, not too long."""
    return "".join(c if c.isprintable() else " " for c in text[:most])


def expect(message: object, kind: type[M]) -> M:
    if not isinstance(message, kind):
        raise PeerError(f"{type(message).__name__} where {kind.__name__} was expected: ignored")
    return message
