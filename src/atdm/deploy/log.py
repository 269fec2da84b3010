"""The log of commands that run for long: one line for each thing that happens, for people or for machines.

    text    2026-11-16T07:12:46+01:00 info home-17: connected to tls://nats.example.org:4222
    json    {"time": "2026-11-16T07:12:46+01:00", "level": "info", "event": "connected", "agent": "home-17", "text": …}

Rule 1: names, sizes, times and reasons; no reading, weight or key at any level.
Rule 2: a command says things with `say`; lines of libraries and of transport/ come in through `logging` and look alike.
"""

import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Literal

import msgspec

LogFormat = Literal["text", "json"]


class Line(str):
    """A line for people which also tells machines what happened, and to which agent."""

    event: str
    agent: str
    level: int

    def __new__(cls, text: str, *, event: str, agent: str = "", level: int = logging.INFO) -> "Line":
        line = super().__new__(cls, f"{agent}: {text}" if agent else text)
        line.event, line.agent, line.level = event, agent, level
        return line

    @property
    def text(self) -> str:
        """Without the agent, which machines find beside it."""
        return self.removeprefix(f"{self.agent}: ") if self.agent else str(self)


def start_log(form: LogFormat) -> Callable[[str], None]:
    """Log to standard error from here on, in one form; gives what a command says lines with."""
    root, log, handler = logging.getLogger(), logging.getLogger("atdm"), _Stderr()
    handler.setFormatter(_Json() if form == "json" else _Text())
    for before in [each for each in root.handlers if type(each) in (logging.StreamHandler, _Stderr)]:
        root.removeHandler(before)
    root.addHandler(handler)
    if log.level == logging.NOTSET:  # unless --log-level was given
        log.setLevel(logging.INFO)

    def say(text: str) -> None:
        line = text if isinstance(text, Line) else Line(text, event="said")
        log.log(line.level, "%s", line.text, extra={"event": line.event, "agent": line.agent})

    return say


def in_json() -> bool:
    """Whether lines are for machines: then a command's last words are, too."""
    return any(isinstance(handler.formatter, _Json) for handler in logging.getLogger().handlers)


class _Stderr(logging.Handler):
    """Whatever standard error is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self.handleError(record)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        agent = getattr(record, "agent", "")
        return f"{_time(record)} {record.levelname.lower()} {f'{agent}: ' if agent else ''}{_words(record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode({
            "time": _time(record), "level": record.levelname.lower(), "event": getattr(record, "event", record.name),
            "agent": getattr(record, "agent", ""), "text": _words(record),
        }).decode()  # fmt: skip


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="seconds")


def _words(record: logging.LogRecord) -> str:
    """One line; of an exception its type alone, because its words may quote anything."""
    failed = record.exc_info[0] if record.exc_info else None
    words = record.getMessage() + (f" ({failed.__name__})" if failed is not None else "")
    return "".join(c if c.isprintable() else " " for c in words)
