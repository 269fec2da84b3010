"""Aggregate thermal dynamic model of a building cluster, learned without seeing any building's data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from atdm.errors import AtdmError, DataError, NotConverged, PeerError, RunAborted, UsageError

if TYPE_CHECKING:
    from atdm import report
    from atdm.data import Cluster, load_sample, read_cluster
    from atdm.data.importing import Imported, import_tables
    from atdm.deploy.observe import Observation, observe
    from atdm.lab.attacks.score import Finding
    from atdm.lab.audit import audit
    from atdm.lab.compare import compare
    from atdm.model.current import Update
    from atdm.model.diagnostics import Diagnostics, diagnose
    from atdm.model.fitted import Model
    from atdm.protocol.rules import Rules
    from atdm.result import Cost, Fit
    from atdm.run import fit
    from atdm.use.drift import Drift, drift
    from atdm.use.flexibility import Flexibility, flexibility
    from atdm.use.forecast import Forecast, forecast
    from atdm.use.update import update

__version__ = "0.1.0"

# Public names and where they live. They are imported when first used: an agent that waits needs few of them.
_PLACES = {
    "Cluster": "data", "load_sample": "data", "read_cluster": "data",
    "Imported": "data.importing", "import_tables": "data.importing",
    "Observation": "deploy.observe", "observe": "deploy.observe",
    "Finding": "lab.attacks.score", "audit": "lab.audit", "compare": "lab.compare",
    "Diagnostics": "model.diagnostics", "diagnose": "model.diagnostics", "Model": "model.fitted",
    "Rules": "protocol.rules",
    "report": "report",
    "Cost": "result", "Fit": "result", "fit": "run",
    "Flexibility": "use.flexibility", "flexibility": "use.flexibility",
    "Forecast": "use.forecast", "forecast": "use.forecast",
    "Update": "model.current", "update": "use.update", "Drift": "use.drift", "drift": "use.drift",
}  # fmt: skip

__all__ = [
    "AtdmError", "Cluster", "Cost", "DataError", "Diagnostics", "Drift", "Finding", "Fit", "Flexibility", "Forecast",
    "Imported", "Model", "NotConverged", "Observation", "PeerError", "Rules", "RunAborted", "Update", "UsageError",
    "audit", "compare", "diagnose", "drift", "fit", "flexibility", "forecast", "import_tables", "load_sample",
    "observe", "read_cluster", "report", "update",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'atdm' has no attribute {name!r}")
    module = import_module(f"atdm.{_PLACES[name]}")
    found = module if name == "report" else getattr(module, name)  # a room that is public as it is
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
