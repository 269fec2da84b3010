"""The tables of docs/model-quality.md, measured on clusters: python tools/model_quality.py FOLDER [FOLDER …]

Each folder has zones.parquet and weather.parquet (or the weather one level up). Everything is estimated and chosen on
training rows; the rows after them are looked at to judge.
"""

import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd

import atdm
from atdm.kernel.blas import one_blas_thread
from atdm.model.bands import LEVELS, Kind, half_widths, held
from atdm.model.diagnostics import impulse_filter, roots, steady_gains, step_response
from atdm.types import FloatArray
from atdm.use.forecast import with_observed
from atdm.use.planned import load_model

DAY = pd.Timedelta(days=1)
WEEK = pd.Timedelta(days=7)
HOURS = (1, 6, 12, 24)
Shares = dict[tuple[Kind, str], FloatArray]


def read(folder: str) -> atdm.Cluster:
    here = Path(folder)
    weather = here / "weather.parquet"
    return atdm.read_cluster(here / "zones.parquet", weather if weather.exists() else here.parent / "weather.parquet")


def geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def chosen(name: str, fit: atdm.Fit) -> float:
    began = perf_counter()
    model = fit.chosen
    seconds = perf_counter() - began
    new, old = fit.horizons["chosen"], fit.horizons["estimated"]
    gains, day = steady_gains(model.coefficients), round(24 / model.calendar.step_hours)
    both = zip(new, old, strict=True)
    errors = " | ".join(f"{o.rmse:.3f} / {c.rmse:.3f} / {c.persistence_rmse:.3f}" for c, o in both)
    print(f"| {name} | {model.words().split(', chosen')[0]}{', refined' if model.made == 'refined' else ''} | "
          f"{np.abs(roots(fit.model.alpha)).max():.4f} / {np.abs(roots(model.alpha)).max():.4f} | "
          f"{steady_gains(fit.model.coefficients)['outdoor']:.2f} / {gains['outdoor']:.2f} | "
          f"{step_response(model.coefficients, day)['load']:+.4f} | {errors} | {seconds:.1f} s |")  # fmt: skip
    return new[-1].rmse / old[-1].rmse


def updated_daily(model: atdm.Model, rows: pd.DataFrame, weather: pd.DataFrame) -> atdm.Model:
    for stop in pd.date_range(rows.index[0] + DAY, rows.index[-1] + DAY, freq=DAY):
        new = rows[(rows.index > model.until) & (rows.index < stop)]
        if len(new):
            model = atdm.update(model, new, weather, half_life=None).model
    return model


def bands(name: str, cluster: atdm.Cluster, weights: str, updated: bool) -> list[float]:
    """Trained on half of the rows, observed for a week; then bands of 24 h at every origin of the rest."""
    fit = atdm.fit(cluster, "plain", weights=weights, train=0.5)
    rows = pd.DataFrame({"aggregate_temp_c": fit.state, "load_kw": fit.load})
    train = fit.inputs.train
    start = fit.state.index[train] + WEEK
    model = replace(fit.chosen, released=fit.chosen.released.between(None, fit.state.index[train]))
    model = replace(model, record=model.record.before(fit.state.index[train]))
    later_rows = rows.iloc[train:]
    if updated:
        record = updated_daily(model, later_rows, cluster.weather).record
    else:
        record = with_observed(model, later_rows, cluster.weather)
    answer = []
    for level in (0.80, 0.95):
        drawn = held(record, level).at_origins[:, -1]
        error = np.abs(record.errors["planned"][:, -1])
        later = np.asarray(record.time >= start) & np.isfinite(error)
        answer += [float((error <= drawn)[later].mean()), float(2 * drawn[later].mean())]
    return answer


def bands_without_a_plan(cluster: atdm.Cluster, train: float, after: atdm.Cluster, updated: bool) -> Shares:
    """Bands at every origin of the rows of `after` that follow the training rows of `cluster`, where the load is
    forecast too: (kind, level) → by HOURS the share held without learning, the share held, and the mean width."""
    fit = atdm.fit(cluster, "plain", weights="equal", train=train)
    start = fit.state.index[fit.inputs.train]
    rows = pd.DataFrame({"aggregate_temp_c": after.temperature.mean(axis=1), "load_kw": after.load.sum(axis=1)})
    rows = rows.loc[start:]
    model = fit.chosen
    model = replace(model, released=model.released.between(None, start), record=model.record.before(start))
    if updated:
        record = updated_daily(model, rows, cluster.weather).record
    else:
        record = with_observed(model, rows, cluster.weather, load_model(model))
    at = [round(hours / model.calendar.step_hours) - 1 for hours in HOURS]
    answer = {}
    for kind in ("unplanned", "load"):
        size = np.abs(record.errors[kind])[:, at]
        known = np.isfinite(size)
        for name, level in LEVELS.items():
            drawn = held(record, level, kind).at_origins[:, at]
            fixed = held(record.before(start), level, kind).now[at]
            inside = [((size <= half) & known).sum(axis=0) / known.sum(axis=0) for half in (fixed, drawn)]
            answer[kind, name] = np.stack([*inside, 2 * np.nanmean(np.where(known, drawn, np.nan), axis=0)])
    return answer


def two_days_without_a_plan(name: str, cluster: atdm.Cluster) -> None:
    """The temperature 48 h ahead, beyond what errors are kept of; trained on half, observed to each origin."""
    fit = atdm.fit(cluster, "plain", weights="equal", train=0.5)
    model, start = fit.chosen, fit.state.index[fit.inputs.train]
    record, inputs = model.record, model.released.inputs(model.calendar)
    origins = np.flatnonzero(model.released.time.isin(record.time))
    far = 2 * record.steps
    error = np.abs(load_model(model).errors(model.coefficients, inputs, model.released.state, origins, far)[1][:, -1])
    cells = []
    for level in LEVELS.values():
        drawn = held(record, level, "unplanned").at_origins
        half = np.array([half_widths(model.coefficients, row, far)[-1] for row in drawn])
        known = np.isfinite(error) & np.asarray(record.time >= start)
        cells.append(f"{(error <= half)[known].mean():.0%}, {2 * half[known].mean():.2f}")
    print(f"| {name} | " + " | ".join(cells) + " |")


def all_without_a_plan(folders: list[str], clusters: dict[str, atdm.Cluster]) -> None:
    cases = {name: (cluster, 0.5, cluster) for name, cluster in clusters.items()}
    for folder, (name, cluster) in zip(folders, clusters.items(), strict=True):
        for run in ("events", "off"):
            if name.endswith("passive") and (Path(folder).resolve().parent / run).exists():
                cases[f"{name}, then {run}"] = (cluster, 0.75, read(str(Path(folder).resolve().parent / run)))
    for updated in (False, True):
        found = {name: bands_without_a_plan(*case, updated) for name, case in cases.items()}
        for kind, words in (("unplanned", "temperature [K]"), ("load", "load [kW]")):
            for level, share in LEVELS.items():
                print(f"\n{level} % bands without a load plan, {'updated daily' if updated else 'as it was'}: {words} "
                      f"after {HOURS} h: held without learning, held, mean width")  # fmt: skip
                for name, by in found.items():
                    fixed, learned, width = by[kind, level]
                    cells = zip(fixed, learned, width, strict=True)
                    print(f"| {name} | " + " | ".join(f"{a:.0%}, {b:.0%}, {w:.2f}" for a, b, w in cells) + " |")
                for which, names in (("nobody intervened", clusters), ("all", cases)):
                    off = 100 * np.mean([np.abs(found[name][kind, level][:2] - share) for name in names], axis=0)
                    print(f"mean miss, {which}: " + " | ".join(f"{a:.1f}, {b:.1f}" for a, b in off.T) + " points")
    print("\nbands without a load plan after 48 h, as it was: held and width at 80 %, at 95 %")
    for name, cluster in clusters.items():
        two_days_without_a_plan(name, cluster)


def updating(name: str, cluster: atdm.Cluster, weights: str) -> None:
    """Started from 14 days, then updated every day."""
    share = 14 * 24 / (len(cluster.time) * cluster.step.total_seconds() / 3600)
    fit = atdm.fit(cluster, "plain", weights=weights, train=share)
    rows = pd.DataFrame({"aggregate_temp_c": fit.state, "load_kw": fit.load}).iloc[fit.inputs.train :]
    for words, half_life in (("30 d", pd.Timedelta(days=30)), ("none", None)):
        found = atdm.update(fit.chosen, rows, cluster.weather, half_life=half_life)
        errors = f"{found.old_rmse['24h']:.3f} | {found.new_rmse['24h']:.3f} | {-100 * found.helped:+.0f} %"
        drifted, time = "yes" if found.drifted else "no", 1000 * found.seconds / found.rows
        print(f"| {name}, {weights} | {words} | {errors} | {drifted} | {time:.1f} ms |")


def moved(folder: Path, cluster: atdm.Cluster) -> None:
    """Predicted over true change of temperature when heating is moved, where a run of the same homes has it."""
    for run in ("events", "off"):
        if not (folder.parent / run).exists():
            continue
        other = read(str(folder.parent / run))
        for weights in ("fitted", "equal"):
            fit = atdm.fit(cluster, "plain", weights=weights)
            change = (other.temperature - cluster.temperature) @ fit.weights
            load = (other.load - cluster.load).sum(axis=1).to_numpy()
            slopes = []
            for model in (fit.model, fit.chosen):
                push = np.convolve(load, model.beta)[: len(load)]
                told = impulse_filter(model.alpha, push)
                slopes.append(float(told @ change / (change @ change)))
            print(f"| {run}, {weights} | {slopes[0]:.2f} | {slopes[1]:.2f} |")


def main(folders: list[str]) -> None:
    clusters = {"/".join(Path(f).resolve().parts[-2:]).removeprefix("data/"): read(f) for f in folders}
    for weights in ("fitted", "equal"):
        print(f"\nchosen, {weights} weights: largest root, outdoor gain, K per kW after 24 h, errors [K], time")
        ratios = [chosen(name, atdm.fit(c, "plain", weights=weights)) for name, c in clusters.items()]
        print(f"geometric mean of the 24 h ratio {geometric(ratios):.3f}")
    for updated in (False, True):
        print(f"\nbands after 24 h, {'updated daily' if updated else 'as it was'}: held and width at 80 %, at 95 %")
        misses = []
        for name, cluster in clusters.items():
            for weights in ("fitted", "equal"):
                found = bands(name, cluster, weights, updated)
                misses.append([abs(found[0] - 0.80), abs(found[2] - 0.95)])
                print(f"| {name}, {weights} | {found[0]:.0%} | {found[1]:.2f} K | {found[2]:.0%} | {found[3]:.2f} K |")
        print("mean miss {:.1f} and {:.1f} points".format(*(100 * np.mean(misses, axis=0))))
    all_without_a_plan(folders, clusters)
    print("\nchange of temperature when heating is moved, predicted over true: as estimated, chosen")
    for folder in folders:
        moved(Path(folder).resolve(), read(folder))
    print("\nupdating from 14 days: half-life, 24 h error of the model as it was, updated, change, drifted, time a row")
    for name, cluster in clusters.items():
        for weights in ("fitted", "equal"):
            updating(name, cluster, weights)


if __name__ == "__main__":
    with one_blas_thread():
        main(sys.argv[1:])
