"""Aggregate thermal dynamic model of a building cluster, learned without seeing any building's data."""

from atdm.data import Cluster, load_sample, read_cluster
from atdm.deploy.observe import Observation, observe
from atdm.errors import AtdmError, DataError, PeerError, RunAborted, UsageError
from atdm.lab.attacks.score import Finding
from atdm.lab.audit import audit
from atdm.model.diagnostics import diagnose
from atdm.model.fitted import Model
from atdm.protocol.rules import Rules
from atdm.run import Cost, Fit, fit
from atdm.use.flexibility import flexibility
from atdm.use.forecast import forecast
from atdm.use.select import select

__version__ = "0.1.0"

__all__ = [
    "AtdmError", "Cluster", "Cost", "DataError", "Finding", "Fit", "Model", "Observation", "PeerError", "Rules",
    "RunAborted", "UsageError", "audit", "diagnose", "fit", "flexibility", "forecast", "load_sample", "observe",
    "read_cluster", "select",
]  # fmt: skip
