"""The command line: parse, call, print. No logic lives here."""

import json
import logging
import os
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pandas as pd
import typer
from rich.console import Console

import atdm
from atdm.data import quality
from atdm.data.clock import duration
from atdm.data.format import Format
from atdm.deploy import agent as agents
from atdm.deploy import aggregator as deploy
from atdm.deploy import enrolment
from atdm.deploy import rehearse as rehearsal
from atdm.deploy.events import Said
from atdm.deploy.observe import BACK
from atdm.deploy.own import weather_from
from atdm.deploy.watch import Seeing, parse_end, watch_rows
from atdm.errors import AtdmError, RunAborted
from atdm.kernel.descent import Status
from atdm.lab.bench import bench as run_bench
from atdm.lab.bench import parse_sizes
from atdm.lab.compare import compare as compare_protocols
from atdm.lab.compare import parse_protocols
from atdm.lab.reproduce import page as reproduction_page
from atdm.lab.reproduce import reproduce as reproduction
from atdm.lab.reproduce import tables
from atdm.model.diagnostics import Diagnostics
from atdm.report.account_text import account_table, statement
from atdm.report.bench_figure import bench_figure
from atdm.report.compare_text import bench_table, compare_table
from atdm.report.evidence import diagnosis
from atdm.report.findings import findings_table
from atdm.report.folder import check_folder, check_writable, write_file, write_folder
from atdm.report.page import compare_page, fit_page
from atdm.report.rehearsal import rehearsal_summary, verdict
from atdm.report.reproduce_figures import figures
from atdm.report.reproduce_page import html_page
from atdm.report.text import quality_table, summary
from atdm.report.use_text import (
    diagnostics_text,
    flexibility_table,
    forecast_table,
    observation_text,
    selection_table,
)  # fmt: skip
from atdm.run import one_blas_thread, without_nan
from atdm.ui.serve import DEFAULT as PAGE
from atdm.ui.serve import Watch, watching
from atdm.use.forecast import trained
from atdm.use.ready import short_of
from atdm.use.series import (
    parse_initial,
    parse_list,
    parse_range,
    parse_start,
    read_future,
    read_observed,
    read_series,
    with_rows,
)  # fmt: skip

WIDE = 160  # columns where nobody looks at a screen: no table is cut in a pipe or a log
app = typer.Typer(
    help="Learn the aggregate thermal model of a building cluster without anyone seeing any building's data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(width=None if sys.stdout.isatty() else WIDE)


class Protocol(StrEnum):
    blind = "blind"
    moments = "moments"
    paper = "paper"
    plain = "plain"


class Sign(StrEnum):
    ridge = "ridge"
    exact = "exact"
    free = "free"


class Weights(StrEnum):
    fitted = "fitted"
    equal = "equal"


SIGNS: dict[Sign, Literal["ridge", "exact", False]] = {
    Sign.ridge: "ridge", Sign.exact: "exact", Sign.free: False,
}  # fmt: skip

ZonesFile = Annotated[Path, typer.Argument(help="Table of time, agent, indoor_temp_c, load_kw[, building].")]
WeatherFile = Annotated[Path, typer.Argument(help="Table of time, outdoor_temp_c, solar_w_m2.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
By = Annotated[str, typer.Option("--by", help="Who is an agent: zone, or building (mean temperature, summed load).")]
Timezone = Annotated[str | None, typer.Option(help="Time zone of the stamps, and the clock the season follows.")]
Sort = Annotated[bool, typer.Option("--sort", help="Sort rows that are not in the order of time.")]
Delimiter = Annotated[str, typer.Option(help="CSV column separator.")]
Decimal = Annotated[str, typer.Option(help="CSV decimal mark.")]
Order = Annotated[int, typer.Option(help="Order M of the model.")]
Ridge = Annotated[float, typer.Option(help="Ridge λ on the weights.")]
Season = Annotated[str, typer.Option(help="Length of the season, e.g. 24h.")]
Weighting = Annotated[
    Weights, typer.Option("--weights", help="Of the aggregate temperature: fitted by the agents, or equal (the mean).")
]
Nonnegative = Annotated[
    Sign, typer.Option(help="Fitted weights: ridge (raise λ until none is negative), exact (ξ ≥ 0) or free.")
]
SolverTolerance = Annotated[float, typer.Option(help="Residual at which blind stops adding totals.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the model, tables and report.")]
MinimumNorm = Annotated[bool, typer.Option("--minimum-norm", help="Fit even where inputs are collinear.")]
WriteAnyway = Annotated[bool, typer.Option("--write-anyway", help="Write results that did not converge.")]
Train = Annotated[float, typer.Option(help="Share of the rows used for training.")]
Dither = Annotated[float, typer.Option(help="Width of the agents' secret dither, in sensor quanta (blind).")]


ModelFile = Annotated[Path, typer.Argument(help="model.json written by atdm fit.")]
Future = Annotated[Path, typer.Option("--weather", help="Table of time, outdoor_temp_c, solar_w_m2.")]
Observed = Annotated[
    Path | None, typer.Option(help="observed.csv of atdm observe: go on from its last M rows; no --initial needed.")
]
Initial = Annotated[
    str | None,
    typer.Option(help="Aggregate temperature at the first M stamps: numbers, or a table of time, aggregate_temp_c."),
]
Start = Annotated[str | None, typer.Option(help="First stamp to use, e.g. 2024-01-31T13:30Z.")]


def read(zones: Path, weather: Path, by: str, timezone: str | None, sort: bool, delimiter: str, decimal: str) -> Any:
    cluster = atdm.read_cluster(zones, weather, timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal)
    if by not in ("zone", "building"):
        raise atdm.UsageError(f"--by {by}: choose zone or building")
    return cluster.by_building() if by == "building" else cluster


def dumped(content: dict[str, Any]) -> str:
    return json.dumps(without_nan(content), indent=2, allow_nan=False, default=str)


def show(content: dict[str, Any]) -> None:
    print(dumped(content))


def version(wanted: bool) -> None:
    if wanted:
        print(f"atdm {atdm.__version__}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "warning",
) -> None:
    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise atdm.UsageError(f"--log-level {log_level}: choose debug, info, warning or error")
    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)


@app.command()
def fit(
    zones: ZonesFile,
    weather: WeatherFile,
    output: Output = None,
    protocol: Annotated[Protocol, typer.Option(help="Who learns what: see `atdm compare`.")] = Protocol.blind,
    order: Order = 2,
    ridge: Ridge = 100.0,
    season: Season = "24h",
    weights: Weighting = Weights.fitted,
    nonnegative: Nonnegative = Sign.ridge,
    tolerance: Annotated[float, typer.Option(help="Stopping gap of the descent.")] = 1e-12,
    solver_tolerance: SolverTolerance = 0.03,
    train: Train = 0.75,
    dither: Dither = 0.1,
    minimum_norm: MinimumNorm = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder in which the agents keep their keys and their accounts."),
    ] = None,
    write_anyway: WriteAnyway = False,
    by: By = "zone",
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """Fit the model of a cluster, every agent simulated in this process."""
    cluster = read(zones, weather, by, timezone, sort, delimiter, decimal)
    check_folder(output)
    result = atdm.fit(
        cluster, protocol.value, order=order, ridge=ridge,
        season=season, weights=weights.value, nonnegative=SIGNS[nonnegative], tolerance=tolerance,
        train=train, solver_tolerance=solver_tolerance, dither=dither, minimum_norm=minimum_norm,
        progress=not as_json and sys.stderr.isatty(), state=state,
    )  # fmt: skip
    finish(result, named(zones), output, as_json, write_anyway, cluster)


@app.command()
def check(
    zones: ZonesFile,
    weather: WeatherFile,
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """Data quality before anything leaves; exits with 1 when these tables would be refused."""
    found = quality(zones, weather, timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal)
    if as_json:
        notes = (*found.notes, *short_of(found))
        show({"agents": [asdict(a) for a in found.agents], "problems": found.problems, "notes": notes})
    else:
        out.print(quality_table(found))
    raise typer.Exit(1 if found.problems else 0)


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
def select(
    zones: ZonesFile,
    weather: WeatherFile,
    orders: Annotated[str, typer.Option(help="Orders M to compare.")] = "1,2,3",
    ridges: Annotated[str, typer.Option(help="Ridge λ; several to compare under plain.")] = "100",
    seasons: Annotated[str, typer.Option(help="Seasons to compare, e.g. 24h,7d.")] = "24h",
    horizon: Annotated[str, typer.Option(help="Length of the validation runs.")] = "24h",
    every: Annotated[str, typer.Option(help="Time between their origins.")] = "24h",
    protocol: Annotated[Protocol, typer.Option(help="Of the fit whose released series is looked at.")] = Protocol.blind,
    weights: Weighting = Weights.fitted,
    nonnegative: Nonnegative = Sign.ridge,
    train: Train = 0.75,
    by: By = "zone",
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Choose order and season on the training rows of what was released; then look at the test part once."""
    cluster = read(zones, weather, by, timezone, sort, delimiter, decimal)
    check_folder(output)
    found = atdm.select(
        cluster, parse_list(orders, int),
        parse_list(ridges, float), parse_list(seasons, str), horizon=horizon, every=every,
        protocol=protocol.value, weights=weights.value, train=train, nonnegative=SIGNS[nonnegative],
        progress=not as_json and sys.stderr.isatty(),
    )  # fmt: skip
    if output is not None:
        page = fit_page(found.fit, named(zones), cluster=cluster)
        write_folder(output, results(found.fit, diagnosis(found.fit), page))
    show(found.as_dict()) if as_json else out.print(selection_table(found))


@app.command()
def forecast(
    model: ModelFile,
    weather: Future,
    load: Annotated[Path, typer.Option(help="Load plan of the cluster: table of time, load_kw.")],
    initial: Initial = None,
    truth: Annotated[
        Path | None, typer.Option(help="Table of time, aggregate_temp_c: judge the forecast, and start from it.")
    ] = None,
    observed: Observed = None,
    start: Start = None,
    horizon: Annotated[str | None, typer.Option(help="How far to forecast, e.g. 7d; all rows if not given.")] = None,
    timezone: Timezone = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="CSV file for the trajectory.")] = None,
    as_json: Json = False,
) -> None:
    """Forecast the aggregate temperature with 80 % and 95 % bands."""
    found = atdm.forecast(
        atdm.Model.load(model), read_series(load, "load_kw", timezone=timezone),
        read_future(weather, timezone=timezone), parse_initial(initial) if initial else None,
        truth=read_series(truth, "aggregate_temp_c", timezone=timezone) if truth else None,
        start=parse_start(start, timezone), horizon=duration(horizon) if horizon else None,
        observed=read_observed(observed, timezone=timezone) if observed else None,
    )  # fmt: skip
    if output is not None:
        write_file(output, found.table.to_csv())
    show(found.as_dict()) if as_json else out.print(forecast_table(found))


@app.command()
def flexibility(
    model: ModelFile,
    weather: Future,
    comfort: Annotated[str, typer.Option(help="Comfort band of the aggregate temperature, LOW:HIGH in °C.")],
    initial: Initial = None,
    observed: Observed = None,
    price: Annotated[Path | None, typer.Option(help="Table of time, price_per_kwh.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Load without flexibility: time, load_kw. Default: least energy for comfort.")
    ] = None,
    power: Annotated[str | None, typer.Option(help="Limits of the load, LOW:HIGH in kW.")] = None,
    start: Start = None,
    horizon: Annotated[str, typer.Option(help="Length of the offer.")] = "24h",
    storage: Annotated[Path | None, typer.Option(help="Write the FlexMeasures storage flex-model here.")] = None,
    timezone: Timezone = None,
    as_json: Json = False,
) -> None:
    """Power and energy the cluster can offer while it stays comfortable, and the cheapest schedule."""
    found = atdm.flexibility(
        atdm.Model.load(model), read_future(weather, timezone=timezone), parse_range(comfort, "--comfort"),
        initial=parse_initial(initial) if initial else None,
        price=read_series(price, "price_per_kwh", timezone=timezone) if price else None,
        baseline=read_series(baseline, "load_kw", timezone=timezone) if baseline else None,
        power=parse_range(power, "--power") if power else None, start=parse_start(start, timezone),
        horizon=duration(horizon),
        observed=read_observed(observed, timezone=timezone) if observed else None,
    )  # fmt: skip
    if storage is not None:
        write_file(storage, dumped(found.flex_model()) + "\n")
    show(found.as_dict()) if as_json else out.print(flexibility_table(found))


@app.command()
def compare(
    zones: ZonesFile,
    weather: WeatherFile,
    output: Output = None,
    protocols: Annotated[str, typer.Option(help="Which, separated by commas.")] = "plain,paper,moments,blind",
    order: Order = 2,
    ridge: Ridge = 100.0,
    season: Season = "24h",
    nonnegative: Nonnegative = Sign.ridge,
    train: Train = 0.75,
    by: By = "zone",
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """All protocols side by side: accuracy against plain, cost, who learned what."""
    with Console(stderr=True).status("compare") as line:
        rows = compare_protocols(
            read(zones, weather, by, timezone, sort, delimiter, decimal), parse_protocols(protocols),
            report=lambda name: line.update(f"compare: {name}"), order=order, ridge=ridge, season=season,
            nonnegative=SIGNS[nonnegative], train=train,
        )  # fmt: skip
    if output is not None:
        write_folder(output, {"compare.html": compare_page(rows, f"Protocols on {named(zones)}")})
    if as_json:
        show({"rows": rows})
    else:
        out.print(compare_table(rows))


@app.command()
def audit(
    zones: ZonesFile,
    weather: WeatherFile,
    protocol: Annotated[str, typer.Option(help="blind, moments, paper, plain or all.")] = "all",
    weights: Annotated[str, typer.Option(help="Of blind: fitted, equal or all.")] = "all",
    order: Order = 2,
    ridge: Ridge = 100.0,
    season: Season = "24h",
    train: Train = 0.75,
    minimum_norm: MinimumNorm = False,
    by: By = "zone",
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """Mount the attacks and say what an aggregator could learn about single agents."""
    with Console(stderr=True).status("audit") as line:
        findings = atdm.audit(
            read(zones, weather, by, timezone, sort, delimiter, decimal), cast(Any, protocol), order=order, ridge=ridge,
            season=season, train=train, minimum_norm=minimum_norm, weights=cast(Any, weights),
            report=lambda text: line.update(f"audit: {text}"),
        )  # fmt: skip
    rows = [finding.as_dict() for finding in findings]
    if as_json:
        show({"findings": rows})
    else:
        out.print(findings_table(rows, f"Audit of {named(zones)}"))


@app.command()
def reproduce(
    zones: ZonesFile,
    weather: WeatherFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the page and the figures.")] = Path("out"),
    starts: Annotated[int, typer.Option(help="Starts of each inference by least squares.")] = 20,
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """The paper's tables and figures from this data, beside the numbers it prints."""
    with Console(stderr=True).status("reproduce") as line:
        found = reproduction(
            read(zones, weather, "zone", timezone, sort, delimiter, decimal), named(zones), starts=starts,
            report=lambda text: line.update(f"reproduce: {text}"),
        )  # fmt: skip
        drawn = figures(found)
    written = {"reproduction.html": html_page(found), "reproduction.md": reproduction_page(found)}
    write_folder(output, {**written, **drawn})
    if as_json:
        show(found.as_dict())
    else:
        out.print(tables(found), highlight=False, markup=False, soft_wrap=True)
        out.print(f"wrote {output}/reproduction.html, reproduction.md and its figures", highlight=False)


@app.command()
def bench(
    agents: Annotated[str, typer.Option(help="Numbers of agents, separated by commas.")] = "64,200,1000",
    seed: Annotated[int, typer.Option(help="Of the synthetic cluster.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Plot time, bytes and floor against agents: an SVG.")] = None,
    as_json: Json = False,
) -> None:
    """Speed, bytes and scaling on a synthetic cluster, beside the floor measured in the same run."""
    with Console(stderr=True).status("bench") as line:
        rows = list(run_bench(parse_sizes(agents), seed=seed, report=lambda text: line.update(f"bench: {text}")))
    if figure is not None:
        bench_figure(rows, figure)
    if as_json:
        show({"rows": rows})
    else:
        out.print(bench_table(rows))


def named(zones: Path) -> str:
    """What a cluster is called: its file, or the folder of one that is called zones."""
    return zones.stem if zones.stem != "zones" else zones.resolve().parent.name


def results(fit: atdm.Fit, found: Diagnostics | None, report: str) -> dict[str, str]:
    """The files of a fit; found: its diagnosis."""
    return {
        "model.json": (trained(fit) if found else fit.model).to_json(),
        "metrics.json": dumped({**fit.metrics, "diagnostics": found and found.as_dict()}) + "\n",
        "series.csv": fit.series().to_csv(),
        "ledger.json": json.dumps(fit.ledger, indent=2) + "\n",
        "report.html": report,
    }


def finish(
    result: atdm.Fit,
    name: str,
    output: Path | None,
    as_json: bool,
    write_anyway: bool,
    cluster: atdm.Cluster | None = None,  # of a simulation, whose report shows zones; a deployed aggregator has none
    document: dict[str, Any] | None = None,  # for --json, where it is more than the fit's own
    watch: Watch | None = None,  # whoever watched the run is shown its report
) -> None:
    if result.status is Status.NOT_CONVERGED and not write_anyway:
        raise RunAborted("the descent did not converge: raise the tolerance or the ridge, or pass --write-anyway")
    found = diagnosis(result)  # None where a refit was shown too few rows for it
    shown = watch is not None and watch.site is not None
    report = fit_page(result, name, cluster=cluster) if output is not None or shown else ""
    if output is not None:
        write_folder(output, results(result, found, report))
    if watch is not None:
        watch.written(report, output and output / "report.html")
    if as_json:
        show(result.as_dict() if document is None else document)
        return
    out.print(summary(result, name))
    if found:
        out.print(diagnostics_text(found))
    if output is not None:
        out.print(f"wrote {output}/model.json, metrics.json, series.csv, ledger.json and report.html", highlight=False)


# A deployment over NATS

enroll = typer.Typer(help="Keys, roster and NATS server of a deployment: docs/deploy.md.", no_args_is_help=True)
app.add_typer(enroll, name="enroll")

Folder = Annotated[Path, typer.Argument(help="Folder for keys; it stays with the party it belongs to.")]
Authority = Annotated[Path | None, typer.Option(help="authority.json of the authority, if not in the folder.")]
ForRehearsal = Annotated[bool, typer.Option("--rehearsal", help="Authority and aggregator in one folder, for a trial.")]
Roster = Annotated[Path, typer.Option(help="roster.json signed by the enrolment authority.")]
OwnWeather = Annotated[Path, typer.Option("--weather", help="Table of time, outdoor_temp_c, solar_w_m2.")]
Servers = Annotated[list[str], typer.Option("--nats", help="tls://host:port; repeat for the servers of a cluster.")]
LeastAgents = Annotated[int, typer.Option(help="Owners below which this agent takes part in no `blind` run.")]


Ui = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:PORT]",
        help=f"Show the run live on a web page; {PAGE} if no address follows. An address that others can reach needs "
        "the token printed with it.",
    ),
]
Linger = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds the live page stays after the end; without this option until Ctrl-C."),
]


def log_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@enroll.command("authority")
def enroll_authority(folder: Folder, rehearsal: ForRehearsal = False) -> None:
    """Make the party that says who takes part; not the aggregator."""
    path = enrolment.create_authority(folder, os.urandom, rehearsal=rehearsal)
    print(f"wrote {path}: give it to every party; {folder} stays private")


@enroll.command("agent")
def enroll_agent(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Name of the agent, as in the `agent` column of its file.")],
    owner: Annotated[str | None, typer.Option(help="Home or building it belongs to; itself if not given.")] = None,
    authority: Authority = None,
) -> None:
    """Make the keys of one agent, beside its data."""
    path = enrolment.create_agent(folder, name, os.urandom, owner=owner, authority=authority)
    print(f"wrote {path}: send it to the enrolment authority; the *.key files beside it stay here")


@enroll.command("aggregator")
def enroll_aggregator(folder: Folder, authority: Authority = None, rehearsal: ForRehearsal = False) -> None:
    """Make the keys of the aggregator."""
    path = enrolment.create_aggregator(folder, os.urandom, authority=authority, rehearsal=rehearsal)
    print(f"wrote {path}: send it to the enrolment authority; the *.key files beside it stay here")


@enroll.command("roster")
def enroll_roster(
    folder: Folder,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the roster.")] = Path("roster.json"),
    host: Annotated[
        list[str], typer.Option(help="Name or address agents reach the NATS server under; repeat for more.")
    ] = ["127.0.0.1", "localhost"],  # noqa: B006 - typer copies it
    since: Annotated[
        str | None, typer.Option(help="First day that keys new since the last roster give; tomorrow if not given.")
    ] = None,
) -> None:
    """Sign the roster of everybody whose enrolment.json is in the authority's folder; configure its NATS server."""
    roster, nats = enrolment.create_roster(folder, output, host, deploy.parse_day(since, "--since"))
    print(f"wrote {output}: roster {roster.serial}, {len(roster)} agents of {roster.owners()} owners")
    if nats is None:
        print("no aggregator has enrolled yet: run `atdm enroll aggregator`, then this again")
    else:
        print(f"wrote {nats}: the NATS server's folder; start nats-server -c server.conf in it")


@enroll.command("weather")
def enroll_weather(
    folder: Folder,
    weather: WeatherFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the signature.")] = Path(
        "weather.json"
    ),
    timezone: Timezone = None,
) -> None:
    """Vouch for a weather file, for agents that have none of their own."""
    path = enrolment.sign_weather(folder, weather_from(weather, Format(timezone=timezone)), output)
    print(f"wrote {path}: give it to the agents together with {weather}")


@app.command()
def agent(
    identity: Annotated[list[Path], typer.Option(help="Folder made by `atdm enroll agent`; repeat for more agents.")],
    roster: Roster,
    data: Annotated[list[Path], typer.Option(help="The agent's own readings, one file for each identity.")],
    weather: OwnWeather,
    nats: Servers,
    state: Annotated[
        list[Path], typer.Option(help="Folder where the agent records what it released; in its identity if not given.")
    ] = [],  # noqa: B006 - typer copies it
    signed_weather: Annotated[Path | None, typer.Option(help="File written by `atdm enroll weather`.")] = None,
    protocol: Annotated[
        list[Protocol], typer.Option(help="What it takes part in; others show the aggregator more. Repeat for more.")
    ] = [Protocol.blind],  # noqa: B006 - as above
    weights: Annotated[
        Weights, typer.Option(help="Equal weights only, or also fitted ones, whose claim is weaker: docs/protocols.md.")
    ] = Weights.equal,
    dither: Dither = 0.1,
    quantum: Annotated[float | None, typer.Option(help="Resolution of the sensor in °C, if not from the data.")] = None,
    least_agents: LeastAgents = 10,
    colluders: Annotated[int, typer.Option(help="Other agents assumed to share what they see.")] = 1,
    days_after_fit: Annotated[int, typer.Option(help="Days after a fit for which its weights may be used.")] = 92,
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
) -> None:
    """Take part: answer the aggregator from beside the data, until stopped. Prints what was asked and what was sent."""
    rules = atdm.Rules(
        protocols=tuple(p.value for p in protocol), weights=weights.value, dither=dither, quantum=quantum,
        least_agents=least_agents, colluders=colluders, days_after_fit=days_after_fit,
    )  # fmt: skip
    declared = Format(timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal)
    files = agents.agent_files(identity, data, state)
    agents.serve_files(files, roster, weather, rules, nats, log_line, declared=declared, signed_weather=signed_weather)


@app.command()
def account(
    state: Annotated[Path, typer.Argument(help="State folder of an agent; NAME/state where --state was not given.")],
    roster: Annotated[Path | None, typer.Option(help="roster.json, to name those it took part with.")] = None,
    as_json: Json = False,
) -> None:
    """What this home has given of each day, with whom, and what is left. Values of readings are not shown."""
    found = statement(agents.read_account(state), agents.names_in(roster))
    show(found) if as_json else out.print(account_table(found))


@app.command()
def aggregator(
    identity: Annotated[Path, typer.Option(help="Folder made by `atdm enroll aggregator`.")],
    roster: Roster,
    weather: OwnWeather,
    nats: Servers,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results; rows are released once.")],
    protocol: Annotated[Protocol, typer.Option(help="Who learns what: see `atdm compare`.")] = Protocol.blind,
    start: Annotated[str | None, typer.Option(help="First time stamp; that of the weather if not given.")] = None,
    end: Annotated[str | None, typer.Option(help="Last time stamp; that of the weather if not given.")] = None,
    order: Order = 2,
    ridge: Ridge = 100.0,
    season: Season = "24h",
    weights: Weighting = Weights.equal,
    nonnegative: Nonnegative = Sign.ridge,
    tolerance: Annotated[float, typer.Option(help="Stopping gap of the descent.")] = 1e-12,
    solver_tolerance: SolverTolerance = 0.03,
    train: Train = 0.75,
    minimum_norm: MinimumNorm = False,
    wait: Annotated[float, typer.Option(help="Seconds absent agents are waited for; then they are out.")] = deploy.WAIT,
    deadline: Annotated[float, typer.Option(help="Seconds for agents to answer a message.")] = deploy.DEADLINE,
    write_anyway: WriteAnyway = False,
    ui: Ui = None,
    linger: Linger = None,
    events: Annotated[
        Path | None, typer.Option(help="File to append what happens to, as the live page shows it: JSON lines.")
    ] = None,
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """Ask the agents of a roster for the model of their cluster."""
    plan, sky = deploy.plan_from(
        weather, protocol.value, start=start, end=end, order=order, ridge=ridge, season=season, weights=weights.value,
        declared=Format(timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal),
        nonnegative=SIGNS[nonnegative], tolerance=tolerance, train=train, solver_tolerance=solver_tolerance,
        minimum_norm=minimum_norm,
    )  # fmt: skip
    check_folder(output)  # rows are released once: not before they can be written down
    config = deploy.AggregatorConfig(
        identity=identity, roster=roster, servers=tuple(nats), wait=wait, deadline=deadline
    )
    with watching(ui, linger, events, log_line) as watch:
        result = deploy.aggregate(config, plan, sky, watch.say, watch.report)
        finish(result.fit, "deployment", output, as_json, True, document=result.as_dict(), watch=watch)
    if result.fit.status is Status.NOT_CONVERGED and not write_anyway:
        raise RunAborted(f"the descent did not converge: {output} has what was released, but no model to rely on")


@app.command()
def observe(
    model: Annotated[Path, typer.Argument(help="model.json of a blind fit by `atdm aggregator`.")],
    identity: Annotated[Path, typer.Option(help="Folder made by `atdm enroll aggregator`.")],
    roster: Roster,
    nats: Servers,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Table that grows; observed.csv beside the model by default.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="Last time stamp; the last that is over if not given.")] = None,
    back: Annotated[str, typer.Option(help="For how long to ask again for rows that some agent lacked.")] = BACK,
    weights: Annotated[
        Weights | None, typer.Option(help="Equal, or fitted (those of the model); the model's own way if not given.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with every new row until stopped.")] = False,
    patience: Annotated[str, typer.Option(help="How long a silent home is waited for before it is left out.")] = "24h",
    settle: Annotated[float, typer.Option(help="Seconds after a row until its readings are in agents' files.")] = 60.0,
    wait: Annotated[float, typer.Option(help="Seconds for agents to gather.")] = 300.0,
    deadline: Annotated[float, typer.Option(help="Seconds for agents to answer a message.")] = 300.0,
    as_json: Json = False,
) -> None:
    """Ask the agents for the aggregate temperature and load of the rows since a fit."""
    target = model.with_name("observed.csv") if output is None else output
    check_writable(target)  # a table that cannot grow is refused before any row is asked for

    def known() -> pd.DatetimeIndex:
        return pd.DatetimeIndex(read_observed(target).index if target.exists() else [])

    known()

    def keep(found: atdm.Observation) -> None:
        try:
            write_file(target, with_rows(target, found.table).to_csv())
        except AtdmError:
            show(found.as_dict())  # released once for ever: better here than nowhere
            raise
        show(found.as_dict()) if as_json else out.print(observation_text(found, target), highlight=False)

    config = deploy.AggregatorConfig(
        identity=identity, roster=roster, servers=tuple(nats), wait=wait, deadline=deadline
    )
    seeing = Seeing(
        back=duration(back), known=known, weights=weights.value if weights else None, until=parse_end(end),
        follow=follow, settle=settle, patience=duration(patience, zero=True).total_seconds(),
    )  # fmt: skip
    watch_rows(config, atdm.Model.load(model), log_line, keep, seeing)


@app.command()
def rehearse(
    zones: ZonesFile,
    weather: WeatherFile,
    output: Output = None,
    agents_per_process: Annotated[int, typer.Option(help="Agents in one process.")] = rehearsal.AGENTS_PER_PROCESS,
    protocol: Annotated[Protocol, typer.Option(help="Who learns what: see `atdm compare`.")] = Protocol.blind,
    order: Order = 2,
    ridge: Ridge = 100.0,
    season: Season = "24h",
    weights: Weighting = Weights.equal,
    nonnegative: Nonnegative = Sign.ridge,
    train: Train = 0.75,
    dither: Dither = 0.1,
    least_agents: LeastAgents = 10,
    minimum_norm: MinimumNorm = False,
    observe: Annotated[int, typer.Option(help="Keep so many last rows out of the fit, then observe them.")] = 0,
    ui: Ui = None,
    linger: Linger = None,
    by: By = "zone",
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """The whole deployment on this machine: server, enrolment, a process for some agents each; beside `atdm fit`."""
    cluster = read(zones, weather, by, timezone, sort, delimiter, decimal)
    check_folder(output)
    with watching(ui, linger, None, log_line) as watch:
        done = rehearsal.rehearse(
            cluster, weather, protocol.value, watch.say, report=watch.report,
            declared=Format(timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal),
            rules=atdm.Rules(dither=dither, least_agents=least_agents), agents_per_process=agents_per_process,
            observe=observe, order=order, ridge=ridge, season=season, weights=weights.value,
            nonnegative=SIGNS[nonnegative], train=train, minimum_norm=minimum_norm,
        )  # fmt: skip
        if output is not None:
            write_folder(output, done.files)
        watch.report(Said(f"over NATS and in one process: {verdict(done)}"))
        watch.written(done.files["report.html"].decode(), output and output / "report.html")
        if as_json:
            show(done.as_dict())
        else:
            out.print(rehearsal_summary(done))


def with_address(arguments: list[str]) -> list[str]:
    """A bare --ui means the usual address: typer has no options whose value may be left out."""
    said: list[str] = []
    for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
        bare = word == "--ui" and (following.startswith("-") or ":" not in following)
        said.append(f"--ui={PAGE}" if bare else word)
    return said


def main() -> None:
    try:
        with one_blas_thread():
            code = app(with_address(sys.argv[1:]), standalone_mode=False)  # the number of a typer.Exit, None otherwise
    except AtdmError as error:
        print(f"atdm: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - click's own usage errors carry their exit code
        if hasattr(error, "exit_code") and hasattr(error, "format_message"):
            if message := error.format_message():  # none where the help was asked for by saying nothing
                print(f"atdm: {message}", file=sys.stderr)
            sys.exit(error.exit_code)
        raise
    sys.exit(code)
