"""Readings in our names and units: one file per source, each giving a Cluster."""

from atdm.data.check import quality
from atdm.data.cluster import Cluster
from atdm.data.refit import read_refit
from atdm.data.sample import load_sample
from atdm.data.tables import read_cluster

__all__ = ["Cluster", "load_sample", "quality", "read_cluster", "read_refit"]
