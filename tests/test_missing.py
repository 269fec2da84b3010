"""What missing readings cost: the 24 h R² of a fit, beside that of complete data.

    python -m tests.test_missing            prints the figures (sample64, and refit64 where it is)

R² is of the aggregate temperature 24 h ahead, forecast from every origin among the test rows whose rows are all there,
with the true load and weather; by this file's own loop over Eq. (2), not by the package's metrics.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import atdm

AHEAD = pd.Timedelta("24h")
KINDS = {"1 %": 0.02, "2 %": 0.02, "5 %": 0.05, "outages": 0.02, "joins halfway": 0.02}  # how far R² may be off


class Measured(NamedTuple):
    r2: float
    origins: int
    fit: atdm.Fit
    cluster: atdm.Cluster


def holes(cluster: atdm.Cluster, kind: str, seed: int) -> atdm.Cluster:
    """The cluster as it would be read with readings missing."""
    rng = np.random.default_rng(seed)
    rows, homes = cluster.temperature.shape
    gone = np.zeros((rows, homes), dtype=bool)
    if kind.endswith("%"):
        gone = rng.random((rows, homes)) < float(kind.split()[0]) / 100
    elif kind == "outages":  # of 12 to 35 h in 3 % of the homes
        for home in rng.choice(homes, round(0.03 * homes), replace=False):
            length = int(pd.Timedelta(hours=int(rng.integers(12, 36))) // cluster.step)
            start = rng.integers(0, rows - length)
            gone[start : start + length, home] = True
    else:
        gone[: rows // 2, rng.integers(homes)] = True
    return atdm.Cluster.from_frames(
        cluster.temperature.mask(gone), cluster.load.mask(gone), cluster.outdoor, cluster.solar, owner=cluster.owner
    )


def forecast(model: atdm.Model, state: np.ndarray, load: np.ndarray, sky: np.ndarray, phase: np.ndarray) -> float:
    """s[t] = Σ α s[t−m] + Σ β h[t−m] + γ o[t−m] + θ r[t−m] + occ[phase], from the first M values to the last row."""
    order, found = model.order, list(state[: model.order])
    for t in range(order, len(load)):
        lags = t - np.arange(order + 1)
        past = sum(a * found[t - m] for m, a in enumerate(model.alpha, 1))
        inputs = model.beta @ load[lags] + model.gamma @ sky[lags, 0] + model.theta @ sky[lags, 1]
        found.append(past + inputs + model.occupancy[phase[t]])
    return float(found[-1])


def measure(cluster: atdm.Cluster) -> Measured:
    fit = atdm.fit(cluster, "plain")
    model, steps = fit.model, int(AHEAD // cluster.step)
    state = cluster.temperature.to_numpy() @ fit.weights.to_numpy()
    load = cluster.load.sum(axis="columns").to_numpy()
    sky = np.column_stack([cluster.outdoor, cluster.solar])
    phase = cluster.phase(len(model.occupancy))
    length = steps + model.order
    first = np.arange(len(fit.train), len(state) - length + 1)
    origins = first[cluster.time[first + length - 1] - cluster.time[first] == (length - 1) * cluster.step]
    rows = [slice(origin, origin + length) for origin in origins]
    found = np.array([forecast(model, state[row], load[row], sky[row], phase[row]) for row in rows])
    true = state[origins + length - 1]
    r2 = 1 - ((found - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    return Measured(float(r2), len(origins), fit, cluster)


def line(kind: str, seed: int, found: Measured, complete: Measured) -> str:
    return (
        f"{kind} (seed {seed}): {found.fit.agents} homes, {len(found.fit.state)} rows, "
        f"{int(found.cluster.filled.sum())} readings filled; "
        f"24 h R² {found.r2:.4f} from {found.origins} origins, {found.r2 - complete.r2:+.4f}"
    )


@pytest.fixture(scope="module", params=["sample", "refit64"])
def complete(request: pytest.FixtureRequest) -> Measured:
    return measure(request.getfixturevalue(request.param))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_missing_readings_cost_little(complete: Measured, kind: str, seed: int) -> None:
    found = measure(holes(complete.cluster, kind, seed))
    print(line(kind, seed, found, complete))
    assert abs(found.r2 - complete.r2) < KINDS[kind]
    filled = [note for note in found.fit.notes if "filled across gaps" in note]
    assert bool(filled) == kind.endswith("%") == bool(found.cluster.filled.sum())
    assert len(found.fit.state) + found.cluster.rows_dropped >= len(complete.fit.state) - 2


def test_two_percent_missing_are_fitted_privately_too(sample: atdm.Cluster) -> None:
    found = atdm.fit(holes(sample, "2 %", 0))
    assert found.agents == 64 and any("readings of 64 agents filled" in note for note in found.notes)


if __name__ == "__main__":
    import os
    from pathlib import Path

    clusters = {"sample64": atdm.load_sample()}
    if folder := os.environ.get("ATDM_REFIT64"):
        clusters["refit64"] = atdm.read_cluster(Path(folder) / "zones.parquet", Path(folder) / "weather.parquet")
    for name, cluster in clusters.items():
        whole = measure(cluster)
        print(f"{name}: complete, 24 h R² {whole.r2:.4f} from {whole.origins} origins")
        for kind in KINDS:
            for seed in range(4):
                print(" ", line(kind, seed, measure(holes(cluster, kind, seed)), whole))
