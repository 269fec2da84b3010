"""What an owner decides for its agent and sees of it, in the agent's state folder.

    paused, left     files that are there while the owner stays out; each holds since when
    history.jsonl    what the agent was asked and what it sent: names and sizes, never values; the newest lines

Rule 1: leaving is for good: the file `left` is never taken away. A pause ends with its file.
Rule 2: the agent looks at each announcement, so that a switch needs no restart; a run that is under way is finished.
Rule 3: history is for people. Where it cannot be written the agent goes on: limits rest on the account, not on it.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from atdm.errors import AtdmError, DataError, UsageError, write_error
from atdm.options import OwnerChoice
from atdm.protocol.company import flags
from atdm.protocol.messages import one_line
from atdm.protocol.plan import AnyPlan, day_count
from atdm.transport.disk import replace_file

MOST_LINES = 10_000  # of the history; older ones are dropped
SLACK = 1000  # lines over that before the file is written anew
JOURNAL = "journal"  # file of the account: transport/disk.py
MOST_SHOWN = 1 << 16  # bytes of a field that people are told of

UNREADABLE = (msgspec.MsgspecError, RecursionError, TypeError, KeyError, ValueError, OverflowError)


def choice_of(state: Path) -> OwnerChoice:
    """Whether the home takes part."""
    if (state / "left").exists():
        return "left"
    return "paused" if (state / "paused").exists() else "takes part"


def chosen_since(state: Path) -> str | None:
    """Since when it stays out: a time stamp; None while it takes part."""
    try:
        return one_line((state / choice_of(state)).read_text(encoding="utf-8").strip(), 40)
    except (OSError, UnicodeDecodeError):
        return None


def no_account(state: Path) -> DataError:
    """Somebody gave a folder that is not an agent's state."""
    inside = state / "state"
    where = f"in it, {inside}" if (inside / JOURNAL).exists() else "of `atdm agent`"
    return DataError(f"{state}: is missing or holds no account: give the state folder {where}")


def choose(state: Path, wanted: OwnerChoice) -> None:
    """Pause, go on, or leave for good; from the next announcement on."""
    if not (state / JOURNAL).exists():
        raise no_account(state)
    if choice_of(state) == "left" and wanted != "left":
        raise UsageError(f"{state}: this home has left for good: to return, enrol it anew with a new state folder")
    if wanted == "takes part":
        try:
            (state / "paused").unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot change {state}: {error.strerror}; it stays paused") from None
    elif choice_of(state) != wanted:
        replace_file(state / wanted, f"{stamp_now()}\n".encode())


def stamp_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Asked(msgspec.Struct, frozen=True):
    """What an announcement asks for."""

    protocol: str
    weights: str
    rows: int  # of the window
    start: int  # s since 1970
    end: int  # of the last row
    step: int  # s


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to the agent and what it sent back."""

    time: str
    message: str  # by name
    received: int  # bytes
    sent: tuple[str, ...] = ()  # by name
    bytes: int = 0  # sent
    ignored: bool = False  # it did not belong here, and changed nothing
    reason: str = ""  # to stay out, to refuse, to ignore, or to end the run
    asked: Asked | None = None
    days: tuple[int, int] = (0, 0)  # of an announcement: days it is in on, of so many


def exchange(message: bytes, replies: Sequence[bytes] | None, why: str = "") -> Exchange:
    """One line of history; replies: None where the agent ignored the message, and why."""
    head, answers = _read(message), [_read(reply) for reply in replies or ()]
    asked, days = None, (0, 0)
    if head.get("type") == "Announce":
        try:
            plan = msgspec.convert(head["plan"], AnyPlan)
            last = plan.start + (plan.length - 1) * plan.step_seconds
            asked = Asked(plan.protocol, plan.weights, plan.length, plan.start, last, plan.step_seconds)
            for answer in answers:
                if answer.get("type") == "Ready":
                    days = int(flags(answer["days"], day_count(plan)).sum()), day_count(plan)
        except (*UNREADABLE, AtdmError):
            asked = None
    reasons = [why, *(str(part.get("reason", "")) for part in (*answers, head))]
    return Exchange(
        stamp_now(), _name(head), len(message), tuple(_name(answer) for answer in answers),
        sum(map(len, replies or ())), replies is None, one_line(next(filter(None, reasons), "")), asked, days,
    )  # fmt: skip


_NONE = msgspec.Raw()  # a field that is not there


class _Head(msgspec.Struct, frozen=True):
    """What people are told of a message; its other fields are skipped and take no memory."""

    type: msgspec.Raw = _NONE
    phase: msgspec.Raw = _NONE
    what: msgspec.Raw = _NONE
    step: msgspec.Raw = _NONE
    reason: msgspec.Raw = _NONE
    plan: msgspec.Raw = _NONE
    attempt: msgspec.Raw = _NONE
    days: msgspec.Raw = _NONE


_heads = msgspec.msgpack.Decoder(_Head)


def read_head(data: bytes) -> dict[str, Any]:
    """Fields of a message for people, also of one that was refused for its size: decoded whole and without a type, it
    could take a hundred times its bytes. Raises one of UNREADABLE."""
    fields = msgspec.structs.asdict(_heads.decode(data))
    return {name: msgspec.msgpack.decode(raw) for name, raw in fields.items() if 0 < len(raw) <= MOST_SHOWN}


def _read(data: bytes) -> dict[str, Any]:
    try:
        return read_head(data)
    except UNREADABLE:
        return {}


def _name(message: dict[str, Any]) -> str:
    words = [str(message[key]) for key in ("type", "phase", "what") if isinstance(message.get(key), str)]
    return one_line(" ".join(words), 60) or "something unreadable"


class History:
    """What an agent was asked and sent, on disk. One process writes it; any may read."""

    def __init__(self, state: Path) -> None:
        self.path = state / "history.jsonl"
        known = self._read()
        self._lines, self._cut = len(known), bool(known) and not known[-1].endswith(b"\n")  # cut: by a crash
        self.version = 0  # grows with each line

    def add(self, new: Exchange) -> None:
        """Raises where it cannot be written."""
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(b"\n" * self._cut + msgspec.json.encode(new) + b"\n")
        except OSError as error:
            raise write_error(error, f"cannot write {self.path}, this line of its history is lost") from None
        self._lines, self._cut = self._lines + 1, False
        self.version += 1
        if self._lines > MOST_LINES + SLACK:
            kept = self._read()[-MOST_LINES:]
            replace_file(self.path, b"".join(kept))
            self._lines = len(kept)

    def last(self, most: int) -> list[Exchange]:
        """The newest lines, oldest first; one cut short by a crash is left out."""
        found = []
        for line in self._read()[-most:]:
            try:
                found.append(msgspec.json.decode(line, type=Exchange))
            except UNREADABLE:
                continue
        return found

    def _read(self) -> list[bytes]:
        try:
            return self.path.read_bytes().splitlines(keepends=True)
        except OSError:
            return []
