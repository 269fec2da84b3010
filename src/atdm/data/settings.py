"""Settings that a person wrote as TOML."""

import tomllib
from pathlib import Path
from typing import Any

from atdm.errors import DataError


def read_toml(path: Path, example: str) -> dict[str, Any]:
    """What a file says; example: what to write in it, for whoever gave something else."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): check the path; {example}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is not TOML ({error}): {example}") from None
