"""Results on disk: a folder that appears only when everything in it is written."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from atdm.errors import UsageError, write_error


def write_folder(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write all files beside the folder first, then move them in; an existing folder keeps its other files."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise write_error(error, f"cannot write beside {folder}") from None
    try:
        for name, content in files.items():
            target = staging / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        staging.chmod(0o755)
        if not folder.exists():
            os.replace(staging, folder)
            return
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, folder / name)
    except OSError as error:
        raise write_error(error, f"cannot write {folder}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_folder(folder: Path | None) -> None:
    """Refuse a folder that cannot be written to before what shall stand in it is made."""
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"cannot write {folder}: it is a file; choose a folder")
        check_writable((folder if folder.exists() else folder.parent) / ".atdm")


def write_file(path: Path, content: str) -> None:
    """Write one file; it appears whole or not at all."""
    with _partial(path) as partial:
        partial.write_text(content, encoding="utf-8")
        partial.replace(path)


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written to before what shall stand there is made."""
    with _partial(path) as partial:
        partial.touch()
        partial.unlink()
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


@contextlib.contextmanager
def _partial(path: Path) -> Iterator[Path]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path.with_name(path.name + ".partial")
    except OSError as error:
        raise write_error(error, f"cannot write {path}", "choose a file you may write") from None
