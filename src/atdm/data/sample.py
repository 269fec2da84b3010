"""The bundled cluster: 64 zones of 7 commercial buildings, 30 winter days. sample64/PROVENANCE.md says where from."""

from importlib import resources

from atdm.data.cluster import Cluster
from atdm.data.tables import read_cluster


def load_sample() -> Cluster:
    """The bundled sample: 64 zones of 7 commercial buildings, 30 winter days in half-hours.

    Returns
    -------
    Cluster
        The sample, as `read_cluster` reads it.
    """
    with resources.as_file(resources.files("atdm.data") / "sample64") as folder:
        return read_cluster(folder / "zones.parquet", folder / "weather.parquet")
