"""One exception tree; the type says who can mend it.

Every message is one line: what, where, and the way out.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

# A disk that is full, over its quota or failing, too many open files: nobody asked for anything wrong, and it may pass
PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})


class AtdmError(Exception):
    """Base of all errors this package raises on purpose."""

    exit_code = 1


class UsageError(AtdmError):
    """You asked for something that cannot be done as asked."""

    exit_code = 2


class DataError(AtdmError):
    """A file of yours cannot be used as it is, or the disk cannot take it now."""


class PeerError(AtdmError):
    """Another party sent something it must not send."""


class RunAborted(AtdmError):
    """The run ended without a result; nothing was released."""


class NotConverged(AtdmError):
    """The run ended with a result that is not to be relied on."""


@contextmanager
def ending_the_run() -> Iterator[None]:
    """Around what follows from words that were accepted: what a peer must not send cannot be ignored any more."""
    try:
        yield
    except PeerError as error:
        raise RunAborted(str(error)) from None


def write_error(error: OSError, what: str, remedy: str = "choose a folder you may write to") -> DataError | UsageError:
    """Why something could not be written. What may pass is not the user's mistake: a service that ends with it is
    started again (docs/exit-codes.md)."""
    if error.errno in PASSING:
        return DataError(f"{what}: {error.strerror}; this may pass: free the disk or close files, and start again")
    return UsageError(f"{what}: {error.strerror}; {remedy}")
