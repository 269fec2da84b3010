"""One exception tree; the type says who can mend it.

Every message is one line: what, where, and the way out.
"""


class AtdmError(Exception):
    """Base of all errors this package raises on purpose."""

    exit_code = 1


class UsageError(AtdmError):
    """You asked for something that cannot be done as asked."""

    exit_code = 2


class DataError(AtdmError):
    """A file of yours cannot be used as it is."""


class PeerError(AtdmError):
    """Another party sent something it must not send."""


class RunAborted(AtdmError):
    """The run ended without a result; nothing was released."""


class NotConverged(AtdmError):
    """The run ended with a result that is not to be relied on."""
