"""Readings in our names and units: one file per source, each giving a Cluster.

What it hands out is imported when first used: an agent reads its own source without pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atdm.data.check import quality
    from atdm.data.cluster import Cluster
    from atdm.data.refit import read_refit
    from atdm.data.sample import load_sample
    from atdm.data.tables import read_cluster

_PLACES = {
    "Cluster": "cluster", "load_sample": "sample", "quality": "check", "read_cluster": "tables", "read_refit": "refit",
}  # fmt: skip

__all__ = ["Cluster", "load_sample", "quality", "read_cluster", "read_refit"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'atdm.data' has no attribute {name!r}")
    found = getattr(import_module(f"atdm.data.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
