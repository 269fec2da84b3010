"""Aggregate thermal dynamic model of a building cluster, learned without seeing any building's data."""

from atdm.data import Cluster, load_sample, read_cluster
from atdm.errors import AtdmError, DataError, PeerError, RunAborted, UsageError
from atdm.model import Model
from atdm.protocol.rules import Rules
from atdm.run import Cost, Fit, fit

__version__ = "0.1.0"

__all__ = [
    "AtdmError", "Cluster", "Cost", "DataError", "Fit", "Model", "PeerError", "Rules", "RunAborted", "UsageError",
    "fit", "load_sample", "read_cluster",
]  # fmt: skip
