"""The tables of docs/planning.md about acceptance by length of rows: python tools/planning_quality.py FOLDER [FOLDER …]

Each folder has zones.parquet and weather.parquet (or the weather one level up), half-hours. Rows are made longer by the
mean of whole rows, where longer ones can be cut in more than one way from two starts. A folder with the runs passive,
probed, events and off is taken apart: every set of its buildings, and MIXED clusters of zones drawn at random. There
the slope is known: predicted over true change of the mean temperature in the rows after training, by least squares
through zero, in `events` and in `off`. Everything else is judged without the truth.
"""

import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from model_quality import read

import atdm
from atdm.kernel.blas import one_blas_thread
from atdm.kernel.design import lagged_rows
from atdm.kernel.thermal import Coefficients
from atdm.model import planning
from atdm.model.diagnostics import impulse_filter
from atdm.model.physical import estimate_physical

CUTS = {"30 min": (1, 0), "1 h": (2, 0), "1 h, half an hour on": (2, 1), "2 h": (4, 0), "2 h, an hour on": (4, 2)}
EXPERIMENT = ("2018-01-26", "2018-01-31")  # of the run `probed`, UTC
TRAINED = {"passive": ("passive", False), "steps": ("probed", False), "steps, marked": ("probed", True)}
MOVED = ("events", "off")
MIXED, ZONES = 8, 20  # clusters drawn, and zones of each
CLOSE, FAR = (0.8, 1.25), (2 / 3, 1.5)  # slopes to plan with, and slopes that mislead

Runs = dict[str, atdm.Cluster]


def longer(cluster: atdm.Cluster, names: list[str], together: int, start: int) -> atdm.Cluster:
    """These zones with rows that are the mean of `together` rows from row `start` on."""

    def mean(values: pd.DataFrame | pd.Series) -> pd.DataFrame | pd.Series:
        whole = values.iloc[start : start + (len(values) - start) // together * together]
        return whole.groupby(np.arange(len(whole)) // together).mean().set_axis(whole.index[together - 1 :: together])

    return atdm.Cluster.from_frames(
        mean(cluster.temperature[names]), mean(cluster.load[names]), mean(cluster.outdoor), mean(cluster.solar),
        owner=cluster.owner[names],
    )  # fmt: skip


def fitted(cluster: atdm.Cluster, marked: bool) -> atdm.Fit:
    start, stop = (pd.Timestamp(day, tz="UTC") for day in EXPERIMENT)
    probed = pd.DataFrame({"time": [start], "until": [stop], "setpoint_offset_k": [1.0]}) if marked else None
    return atdm.fit(cluster, "plain", weights="equal", probed=probed)


def estimated(fit: atdm.Fit) -> Coefficients:
    """What would be planned with, refused or not."""
    rows, calendar = fit.released, fit.judged.calendar
    inputs = rows.inputs(calendar, fit.inputs.train).training_part()
    used = lagged_rows(inputs.segment, planning.ORDER, 0, inputs.train)
    weights = planning._weights(rows.probed_rows()[used])
    return estimate_physical(inputs, rows.state[: inputs.train], planning.ORDER, calendar, rows=used, weights=weights)


def slopes(c: Coefficients, runs: Runs, first: int) -> list[float]:
    """Predicted over true change of the mean temperature in the rows from `first` on."""
    base, found = runs["passive"], []
    for run in MOVED:
        change = (runs[run].load.sum(axis=1) - base.load.sum(axis=1)).to_numpy()
        truth = (runs[run].temperature.mean(axis=1) - base.temperature.mean(axis=1)).to_numpy()[first:]
        told = impulse_filter(c.alpha, np.convolve(change, c.beta)[: len(change)])[first:]
        found.append(float(told @ truth / (truth @ truth)))
    return found


def verdict(fit: atdm.Fit) -> str:
    if fit.judged is None:
        return "refused: rows"
    reasons = [refusal.reason for refusal in fit.judged.refusals]
    return "planned with" if not reasons else f"refused: {', '.join(reasons)}"


def parts(cluster: atdm.Cluster) -> Iterator[tuple[str, list[str]]]:
    """Every set of the buildings."""
    buildings = list(dict.fromkeys(cluster.owner))
    for count in range(1, len(buildings) + 1):
        for chosen in combinations(buildings, count):
            yield " + ".join(chosen), [name for name in cluster.agents if cluster.owner[name] in chosen]


def mixtures(cluster: atdm.Cluster) -> Iterator[tuple[str, list[str]]]:
    """Zones drawn at random, with shares of the buildings that are drawn too."""
    rng = np.random.default_rng(0)
    of = {b: [name for name in cluster.agents if cluster.owner[name] == b] for b in dict.fromkeys(cluster.owner)}
    for i in range(MIXED):
        shares = rng.dirichlet([0.7] * len(of))
        counts = [min(len(names), round(ZONES * share)) for names, share in zip(of.values(), shares, strict=True)]
        drawn = [rng.choice(names, n, replace=False) for names, n in zip(of.values(), counts, strict=True)]
        yield f"mixture {i + 1}: {' + '.join(map(str, counts))} zones", np.concatenate(drawn).tolist()


def with_truth(folder: Path) -> None:
    runs = {run: read(str(folder / run)) for run in ("passive", "probed", *MOVED)}
    tally: dict[str, list[list[float]]] = {}
    for group, clusters in (("buildings", parts(runs["passive"])), ("mixtures", mixtures(runs["passive"]))):
        for name, names in clusters:
            for cut, (together, start) in CUTS.items():
                if group == "mixtures" and together > 2:
                    continue
                own = {run: longer(cluster, names, together, start) for run, cluster in runs.items()}
                for words, (run, marked) in TRAINED.items():
                    fit = fitted(own[run], marked)
                    found = slopes(estimated(fit), own, fit.inputs.train) if fit.judged else []
                    shown = ", ".join(f"{slope:.2f}" for slope in found)
                    print(f"| {name} | {words} | {cut} | {shown} | {verdict(fit)} |", flush=True)
                    if fit.planning is not None:
                        tally.setdefault(f"{group}, {cut}", []).append(found)
    print("\nplanned with, of these both slopes within 0.8 and 1.25, one outside 2/3 and 3/2; range of `events`, `off`")
    for what, found in tally.items():
        every = np.array(found)
        close = ((every >= CLOSE[0]) & (every <= CLOSE[1])).all(axis=1).sum()
        far = ((every < FAR[0]) | (every > FAR[1])).any(axis=1).sum()
        ranges = " | ".join(f"{low:.2f} to {high:.2f}" for low, high in zip(every.min(0), every.max(0), strict=True))
        print(f"| {what} | {len(every)} | {close} | {far} | {ranges} |")


def main(folders: list[str]) -> None:
    print("cluster, trained on, rows, slopes in `events` and `off`, what atdm says")
    for folder in map(Path, folders):
        if (folder / "passive").exists():
            with_truth(folder)
            continue
        cluster = read(str(folder))
        for cut, (together, start) in CUTS.items():
            fit = fitted(longer(cluster, list(cluster.agents), together, start), False)
            print(f"| {folder.resolve().name} | as it is | {cut} |  | {verdict(fit)} |", flush=True)


if __name__ == "__main__":
    with one_blas_thread():
        main(sys.argv[1:])
