"""Clusters the tests use. Two of them may not be committed: tests that need them skip with a visible reason."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import atdm


def _outside(variable: str) -> atdm.Cluster:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} is not set to the folder of this cluster")
    return atdm.read_cluster(Path(folder) / "zones.parquet", Path(folder) / "weather.parquet")


@pytest.fixture(scope="session")
def sample() -> atdm.Cluster:
    return atdm.load_sample()


@pytest.fixture(scope="session")
def refit64() -> atdm.Cluster:
    return _outside("ATDM_REFIT64")


@pytest.fixture(scope="session")
def experiment() -> Callable[[str], atdm.Cluster]:
    """One of the runs of the same buildings: passive, probed, events or off."""
    folder = os.environ.get("ATDM_EXPERIMENTS")
    if not folder:
        pytest.skip("ATDM_EXPERIMENTS is not set to the folder of the experiments")
    return lambda run: atdm.read_cluster(Path(folder) / run / "zones.parquet", Path(folder) / "weather.parquet")


@pytest.fixture(scope="session")
def twin_houses() -> atdm.Cluster:
    return _outside("ATDM_TWIN_HOUSES")
