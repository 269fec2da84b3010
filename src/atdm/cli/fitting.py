"""Commands on a cluster of which this machine holds every home: demo, fit, check, select."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import atdm
from atdm.cli.options import (
    FITTED,
    SPEC,
    By,
    Declared,
    Dither,
    Fitted,
    Holidays,
    Json,
    Output,
    OwnWeather,
    Sourced,
    WeatherFile,
    WriteAnyway,
    ZonesFile,
    grouped,
)
from atdm.cli.output import finish, named, read, results
from atdm.cli.printing import out, show
from atdm.data import quality
from atdm.data.holidays import days_of
from atdm.data.probe import read_probe, windows_of
from atdm.data.sources import open_source
from atdm.errors import UsageError
from atdm.options import FitOptions
from atdm.protocol.rules import Rules
from atdm.report.evidence import diagnosis
from atdm.report.folder import check_folder, write_folder
from atdm.report.page import fit_page
from atdm.report.text import quality_dict, quality_table
from atdm.report.use_text import choice_table
from atdm.result import LoadKind
from atdm.run import fit_cluster
from atdm.use.ready import problems

app = typer.Typer()


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Fit the bundled sample privately, print the summary, write the report."""
    cluster = atdm.load_sample()
    result = atdm.fit(cluster, progress=not as_json and sys.stderr.isatty())
    finish(result, "bundled sample", output, as_json, False, cluster)


@app.command()
@grouped
def fit(
    zones: ZonesFile,
    weather: WeatherFile,
    options: Fitted,
    declared: Declared,
    output: Output = None,
    dither: Dither = 0.1,
    state: Annotated[
        Path | None, typer.Option(help="Folder in which the agents keep their keys and their accounts.")
    ] = None,
    write_anyway: WriteAnyway = False,
    holidays: Holidays = None,
    load: Annotated[
        LoadKind, typer.Option(help="What the load is; electricity: the model has the heat pumps' COP curve.")
    ] = "heat",
    probed: Annotated[
        Path | None, typer.Option(help="probe.csv of an experiment that went on in the window: planning counts on it.")
    ] = None,
    by: By = "zone",
    as_json: Json = False,
) -> None:
    """Fit the model of a cluster, every agent simulated in this process; choose the one to use."""
    cluster = read(zones, weather, by, declared)
    check_folder(output)
    days, progress = days_of(holidays, cluster.time), not as_json and sys.stderr.isatty()
    moved = windows_of(read_probe(probed, timezone=declared.timezone)) if probed else ()
    result = fit_cluster(
        cluster, options, Rules(dither=dither), progress=progress, state=state, holidays=days, probed=moved,
        load_kind=load,
    )  # fmt: skip
    finish(result, named(zones), output, as_json, write_anyway, cluster)


@app.command()
@grouped
def check(
    declared: Declared,
    sourced: Sourced,
    zones: Annotated[
        Path | None, typer.Argument(help="Table of time, agent, indoor_temp_c, load_kw[, building]; not with --source.")
    ] = None,
    weather: OwnWeather = None,
    source: Annotated[str | None, typer.Option(help=f"One home's readings instead of zones. {SPEC}.")] = None,
    as_json: Json = False,
) -> None:
    """Data quality before anything is sent; exits with 1 if a fit would refuse the cluster, or an agent its own home's
    file or source."""
    if source is not None:
        home, weather = open_source(source, sourced.given(), declared=declared), weather or zones
        found = quality(home, weather, **asdict(declared))
    elif zones is not None:
        found = quality(zones, weather, **asdict(declared))
    else:
        raise UsageError("give a table of zones, or --source for one home")
    show(quality_dict(found)) if as_json else out.print(quality_table(found))
    raise typer.Exit(1 if problems(found) else 0)


@app.command()
@grouped
def select(
    zones: ZonesFile,
    weather: WeatherFile,
    options: Annotated[FitOptions, FITTED.only("protocol", "ridge", "season", "weights", "nonnegative", "train")],
    declared: Declared,
    holidays: Holidays = None,
    by: By = "zone",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """How the model to use was chosen on the training rows of the released series; then its test part, once."""
    cluster = read(zones, weather, by, declared)
    check_folder(output)
    days = days_of(holidays, cluster.time)
    found = fit_cluster(cluster, options, progress=not as_json and sys.stderr.isatty(), holidays=days)
    if output is not None:
        write_folder(output, results(found, diagnosis(found), fit_page(found, named(zones), cluster=cluster)))
    show(found.choice_document()) if as_json else out.print(choice_table(found))
