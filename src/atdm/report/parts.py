"""What every page is made of: its style and script as files, and how sizes are written. Needs no library."""

import base64
import hashlib
from functools import cache
from importlib.resources import files


@cache
def static(name: str) -> str:
    return files("atdm.report").joinpath("static", name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """A style or script as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def byte_count(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
