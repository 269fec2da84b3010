"""A cluster from a known two-state model, fitted once, and its files as the commands read them."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

import atdm
from tests.use.two_state import two_state


class World(NamedTuple):
    cluster: atdm.Cluster
    fit: atdm.Fit
    model: atdm.Model
    weather: pd.DataFrame  # all rows
    start: pd.Timestamp  # first of the test part


@pytest.fixture(scope="session")
def world() -> World:
    cluster = two_state(days=20, agents=6, step_hours=1.0)
    fit = atdm.fit(cluster, "plain", train=0.7, weights="equal")
    weather = pd.DataFrame({"outdoor_temp_c": cluster.outdoor, "solar_w_m2": 1000 * cluster.solar})
    return World(cluster, fit, fit.chosen, weather, fit.test.index[0])


@pytest.fixture(scope="session")
def files(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("use")
    cluster = world.cluster
    stacked = cluster.temperature.stack().rename("indoor_temp_c").to_frame()
    zones = stacked.assign(load_kw=cluster.load.stack()).reset_index()
    zones.to_parquet(folder / "zones.parquet")
    world.weather.reset_index().to_csv(folder / "weather.csv", index=False)
    world.model.save(folder / "model.json")
    world.fit.series().to_csv(folder / "series.csv")
    price = pd.DataFrame({"price_per_kwh": 0.2 + 0.2 * (world.weather.index.hour >= 16)}, index=world.weather.index)
    price.to_csv(folder / "price.csv")
    return folder
