"""Passwords and tokens: from a file that nobody else may read, or from the environment; never from an argument list."""

import os
import stat
from pathlib import Path

from atdm.errors import DataError, UsageError

MOST_BYTES = 4096  # of a file with one password or token


class Secret:
    """A text that no repr, message or log shows. `blot` removes it from another program's messages."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def blot(self, message: str) -> str:
        return message.replace(self._text, "***") if self._text else message

    def __repr__(self) -> str:
        return "Secret(***)"


def read_secret(path: str | None, variable: str) -> Secret | None:
    """What a file holds, else what the environment variable does; None where neither is there."""
    if path is None:
        text = os.environ.get(variable)
        return Secret(text) if text else None
    file = Path(path)
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
                raise UsageError(f"{file}: others may read it: chmod 600 {file}")
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}): check the path") from None
    try:
        text = content.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise DataError(f"{file}: is not text: write the password or token into it, and nothing else") from None
    if not text or len(content) > MOST_BYTES or len(text.splitlines()) > 1:
        raise DataError(f"{file}: holds no single line: write the password or token into it, and nothing else")
    return Secret(text)
