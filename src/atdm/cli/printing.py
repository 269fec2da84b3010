"""What every command prints with."""

import json
import sys
from typing import Any

from rich.console import Console

from atdm.kernel.finite import without_nan

WIDE = 100_000  # columns where nobody looks at a screen: no name is cut and no line broken in a pipe or a log
out = Console(width=None if sys.stdout.isatty() else WIDE, markup=False)  # [s] is a unit, and [a] part of a name


def dumped(content: dict[str, Any]) -> str:
    return json.dumps(without_nan(content), indent=2, allow_nan=False, default=str)


def show(content: dict[str, Any]) -> None:
    print(dumped(content))


def log_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
