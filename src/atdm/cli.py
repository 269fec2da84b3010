"""The command line: parse, call, print. No logic lives here."""

import json
import logging
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

import atdm
from atdm.data import quality
from atdm.errors import AtdmError, RunAborted
from atdm.kernel.descent import Status
from atdm.report.folder import write_folder
from atdm.report.page import fit_page
from atdm.report.text import quality_table, summary
from atdm.run import without_nan

app = typer.Typer(
    help="Learn the aggregate thermal model of a building cluster without anyone seeing any building's data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()


class Protocol(StrEnum):
    blind = "blind"
    moments = "moments"
    paper = "paper"
    plain = "plain"


class Weights(StrEnum):
    ridge = "ridge"
    exact = "exact"
    free = "free"


CHOICES: dict[Weights, Literal["ridge", "exact", False]] = {
    Weights.ridge: "ridge", Weights.exact: "exact", Weights.free: False,
}  # fmt: skip

Zones = Annotated[Path, typer.Argument(help="Table of time, agent, indoor_temp_c, load_kw[, building].")]
Weather = Annotated[Path, typer.Argument(help="Table of time, outdoor_temp_c, solar_w_m2.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
By = Annotated[str, typer.Option("--by", help="Who is an agent: zone, or building (mean temperature, summed load).")]
Timezone = Annotated[str | None, typer.Option(help="Time zone of the stamps, and the clock the season follows.")]
Sort = Annotated[bool, typer.Option("--sort", help="Sort rows that are not in the order of time.")]
Delimiter = Annotated[str, typer.Option(help="CSV column separator.")]
Decimal = Annotated[str, typer.Option(help="CSV decimal mark.")]
Order = Annotated[int, typer.Option(help="Order M of the model.")]
Ridge = Annotated[float, typer.Option(help="Ridge λ on the weights.")]
Season = Annotated[str, typer.Option(help="Length of the season, e.g. 24h.")]
Nonnegative = Annotated[
    Weights, typer.Option(help="Weights: ridge (raise λ until none is negative), exact (ξ ≥ 0) or free.")
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the model, tables and report.")]
MinimumNorm = Annotated[bool, typer.Option("--minimum-norm", help="Accept inputs the data cannot tell apart.")]
WriteAnyway = Annotated[bool, typer.Option("--write-anyway", help="Write results that did not converge.")]
Train = Annotated[float, typer.Option(help="Share of the rows used for training.")]
Dither = Annotated[float, typer.Option(help="Width of the agents' secret dither, in sensor quanta (blind).")]


def read(zones: Path, weather: Path, by: str, timezone: str | None, sort: bool, delimiter: str, decimal: str) -> Any:
    cluster = atdm.read_cluster(zones, weather, timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal)
    if by not in ("zone", "building"):
        raise atdm.UsageError(f"--by {by}: choose zone or building")
    return cluster.by_building() if by == "building" else cluster


def show(document: dict[str, Any]) -> None:
    print(json.dumps(without_nan(document), indent=2, allow_nan=False, default=str))


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
    zones: Zones,
    weather: Weather,
    output: Output = None,
    protocol: Annotated[Protocol, typer.Option(help="Who learns what: see `atdm compare`.")] = Protocol.blind,
    order: Order = 2,
    ridge: Ridge = 100.0,
    season: Season = "24h",
    nonnegative: Nonnegative = Weights.ridge,
    tolerance: Annotated[float, typer.Option(help="Stopping gap of the descent.")] = 1e-12,
    solver_tolerance: Annotated[float, typer.Option(help="Residual at which blind stops adding totals.")] = 5e-5,
    train: Train = 0.75,
    dither: Dither = 0.1,
    minimum_norm: MinimumNorm = False,
    write_anyway: WriteAnyway = False,
    by: By = "zone",
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """Fit the model of a cluster, every agent simulated in this process."""
    result = atdm.fit(
        read(zones, weather, by, timezone, sort, delimiter, decimal), protocol.value, order=order, ridge=ridge,
        season=season, nonnegative=CHOICES[nonnegative], tolerance=tolerance,
        train=train, solver_tolerance=solver_tolerance, dither=dither, minimum_norm=minimum_norm,
        progress=not as_json and sys.stderr.isatty(),
    )  # fmt: skip
    finish(result, zones.stem if zones.stem != "zones" else zones.resolve().parent.name, output, as_json, write_anyway)


@app.command()
def check(
    zones: Zones,
    weather: Weather,
    timezone: Timezone = None,
    sort: Sort = False,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    as_json: Json = False,
) -> None:
    """Data quality before anything leaves; exits with 1 when a fit would be refused."""
    found = quality(zones, weather, timezone=timezone, sort=sort, delimiter=delimiter, decimal=decimal)
    if as_json:
        show({"agents": [asdict(a) for a in found.agents], "problems": found.problems, "notes": found.notes})
    else:
        out.print(quality_table(found))
    raise typer.Exit(1 if found.problems else 0)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Fit the bundled sample privately, print the summary, write the report."""
    result = atdm.fit(atdm.load_sample(), progress=not as_json and sys.stderr.isatty())
    finish(result, "bundled sample", output, as_json, False)


def finish(result: atdm.Fit, name: str, output: Path | None, as_json: bool, write_anyway: bool) -> None:
    if result.status is Status.NOT_CONVERGED and not write_anyway:
        raise RunAborted("the descent did not converge: raise the tolerance or the ridge, or pass --write-anyway")
    if output is not None:
        write_folder(output, {
            "model.json": result.model.to_json(),
            "metrics.json": json.dumps(result.as_dict()["metrics"], indent=2) + "\n",
            "ledger.json": json.dumps(result.ledger, indent=2) + "\n",
            "report.html": fit_page(result, name),
        })  # fmt: skip
    if as_json:
        show(result.as_dict())
        return
    out.print(summary(result, name))
    if output is not None:
        out.print(f"wrote {output}/model.json, metrics.json, ledger.json and report.html", highlight=False)


def main() -> None:
    try:
        app(standalone_mode=False)
    except AtdmError as error:
        print(f"atdm: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - click's own usage errors carry their exit code
        if hasattr(error, "exit_code") and hasattr(error, "format_message"):
            print(f"atdm: {error.format_message()}", file=sys.stderr)
            sys.exit(error.exit_code)
        raise
