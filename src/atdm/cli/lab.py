"""Commands that try the method: compare, audit, reproduce, bench."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

import atdm
from atdm.cli.options import FITTED, By, Declared, Json, Output, WeatherFile, ZonesFile, grouped
from atdm.cli.output import named, read
from atdm.cli.printing import out, show
from atdm.lab.bench import bench as run_bench
from atdm.lab.bench import parse_sizes
from atdm.lab.compare import compare_rows, parse_protocols
from atdm.lab.footprint import footprint
from atdm.lab.reproduce import reproduce as reproduction
from atdm.options import FitOptions
from atdm.report.bench_page import bench_page, bench_table, footprint_table
from atdm.report.blocks import terminal_table, terminal_tables
from atdm.report.compare_text import compare_table
from atdm.report.findings import findings_table
from atdm.report.folder import check_folder, check_writable, write_file, write_folder
from atdm.report.page import compare_page
from atdm.report.reproduce_page import reproduce_page, sections

app = typer.Typer()


@app.command()
@grouped
def compare(
    zones: ZonesFile,
    weather: WeatherFile,
    options: Annotated[FitOptions, FITTED.only("order", "ridge", "season", "nonnegative", "train")],
    declared: Declared,
    output: Output = None,
    protocols: Annotated[str, typer.Option(help="Which, separated by commas.")] = "plain,paper,moments,blind",
    by: By = "zone",
    as_json: Json = False,
) -> None:
    """All protocols side by side: accuracy against plain, cost, who learned what."""
    with Console(stderr=True).status("compare") as line:
        cluster, chosen = read(zones, weather, by, declared), parse_protocols(protocols)
        rows = compare_rows(cluster, chosen, options, report=lambda name: line.update(f"compare: {name}"))
    if output is not None:
        write_folder(output, {"compare.html": compare_page(rows, f"Protocols on {named(zones)}")})
    if as_json:
        show({"rows": rows})
    else:
        out.print(compare_table(rows))


@app.command()
@grouped
def audit(
    zones: ZonesFile,
    weather: WeatherFile,
    options: Annotated[FitOptions, FITTED.only("order", "ridge", "season", "train", "minimum_norm")],
    declared: Declared,
    protocol: Annotated[str, typer.Option(help="blind, moments, paper, plain or all.")] = "all",
    weights: Annotated[str, typer.Option(help="Of blind: fitted, equal or all.")] = "all",
    attack: Annotated[list[str] | None, typer.Option(help="On blind: this one only; may be given again.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the agents' keys and of attacks that depend on luck.")] = 0,
    by: By = "zone",
    as_json: Json = False,
) -> None:
    """Mount the attacks and say what an aggregator could learn about single agents."""
    with Console(stderr=True).status("audit") as line:
        findings = atdm.audit(
            read(zones, weather, by, declared), cast(Any, protocol), order=options.order, ridge=options.ridge,
            season=options.season, train=options.train, minimum_norm=options.minimum_norm, weights=cast(Any, weights),
            attacks=attack or (), seed=seed, report=lambda text: line.update(f"audit: {text}"),
        )  # fmt: skip
    rows = [finding.as_dict() for finding in findings]
    if as_json:
        show({"findings": rows})
    else:
        out.print(findings_table(rows, f"Audit of {named(zones)}"))


@app.command()
@grouped
def reproduce(
    zones: ZonesFile,
    weather: WeatherFile,
    declared: Declared,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the page.")] = Path("out"),
    starts: Annotated[int, typer.Option(help="Starts of each inference by least squares.")] = 20,
    as_json: Json = False,
) -> None:
    """The paper's tables and figures from this data, beside the numbers it prints."""
    check_folder(output)
    with Console(stderr=True).status("reproduce") as line:
        found = reproduction(
            read(zones, weather, "zone", declared), named(zones), starts=starts,
            report=lambda text: line.update(f"reproduce: {text}"),
        )  # fmt: skip
    write_folder(output, {"reproduction.html": reproduce_page(found)})
    if as_json:
        show(found.as_dict())
    else:
        out.print(terminal_tables(sections(found)))
        out.print(f"wrote {output}/reproduction.html", highlight=False)


@app.command()
def bench(
    agents: Annotated[str, typer.Option(help="Numbers of agents, separated by commas.")] = "64,200,1000",
    seed: Annotated[int, typer.Option(help="Seed of the synthetic cluster.")] = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Plot time, bytes and floor against agents: an HTML page.")
    ] = None,
    small: Annotated[
        bool, typer.Option("--footprint", help="Instead: CPU seconds to start, and memory of an agent that waits.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Speed, bytes and scaling on a synthetic cluster, beside the least time its masks can take."""
    if small:
        rows = footprint()
        show({"rows": rows}) if as_json else out.print(terminal_table(footprint_table(rows)))
        return
    sizes = parse_sizes(agents)
    if figure is not None:
        check_writable(figure)
    with Console(stderr=True).status("bench") as line:
        rows = list(run_bench(sizes, seed=seed, report=lambda text: line.update(f"bench: {text}")))
    if figure is not None:
        write_file(figure, bench_page(rows))
    if as_json:
        show({"rows": rows})
    else:
        out.print(terminal_table(bench_table(rows)))
