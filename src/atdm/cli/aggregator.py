"""Commands of the aggregator: aggregator, observe, and the rehearsal of a whole deployment."""

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

import atdm
from atdm.cli.options import (
    DECLARED,
    FITTED,
    By,
    Declared,
    Dither,
    Group,
    Json,
    LeastAgents,
    Log,
    Output,
    RosterFile,
    Servers,
    Shown,
    WeatherFile,
    WeatherOption,
    ZonesFile,
    grouped,
    lasting,
)
from atdm.cli.output import finish, read
from atdm.cli.printing import log_line, out, show
from atdm.data.clock import duration
from atdm.data.format import Format
from atdm.deploy.aggregator import aggregate, parse_stamp, plan_from, read_plan
from atdm.deploy.conductor import AggregatorConfig
from atdm.deploy.events import Said
from atdm.deploy.fleet import OUTAGES, OutagesName
from atdm.deploy.log import start_log
from atdm.deploy.observe import BACK
from atdm.deploy.own import weather_from
from atdm.deploy.rehearse import AGENTS_PER_PROCESS
from atdm.deploy.rehearse import rehearse as rehearsal
from atdm.deploy.watch import Seeing, parse_end, watch_rows
from atdm.errors import AtdmError, NotConverged
from atdm.kernel.descent import Status
from atdm.model.horizons import Horizon
from atdm.options import FitOptions, WeightsName
from atdm.protocol.rules import Rules
from atdm.report.folder import check_folder, check_writable, write_file, write_folder
from atdm.report.rehearsal import rehearsal_summary, verdict
from atdm.report.use_text import observation_text
from atdm.report.words import goodness
from atdm.ui.serve import watching
from atdm.use.series import read_observed, with_rows

app = typer.Typer()
ONE_MINUTE: Any = "1min"  # read by the option, like what a person writes
ASKING = Group({
    "identity": Annotated[Path, typer.Option(help="Folder made by `atdm enroll aggregator`.")],
    "roster": RosterFile,
    "servers": Servers,
    "wait": Annotated[
        float, lasting("How long silent agents are waited for before readings are asked for; then out")
    ],
    "deadline": Annotated[float, lasting("How long agents may take to answer once readings were asked for")],
    "at_least": Annotated[
        int, typer.Option(help="Least number of homes there after --wait, or nobody is asked; agents want 10 owners.")
    ],
    "portion": Annotated[
        int, typer.Option(help="Days of rows asked for at once: what a home that falls silent for good can cost.")
    ],
}, {"wait": "1h", "deadline": "72h"})  # fmt: skip
PUBLISHING = Group({
    **ASKING.options,
    "publish_weather": Annotated[
        Path | None,
        typer.Option(help="Rows of --weather signed by `atdm enroll weather`, sent to agents that lack them."),
    ],
}, ASKING.defaults)  # fmt: skip


@app.command()
@grouped
def aggregator(
    config: Annotated[AggregatorConfig, PUBLISHING],
    weather: WeatherOption,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder for the results; agents give a row four times at most, so keep it."
        ),
    ],
    options: Annotated[FitOptions, FITTED.but(weights="equal")],
    declared: Annotated[Format, DECLARED.only("timezone", "sort", "delimiter", "decimal")],
    live: Shown,
    start: Annotated[str | None, typer.Option(help="First time stamp; that of the weather if not given.")] = None,
    end: Annotated[str | None, typer.Option(help="Last time stamp; that of the weather if not given.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Plan as JSON, in place of --start, --end and the options of the fit.")
    ] = None,
    write_anyway: Annotated[
        bool,
        typer.Option(
            "--write-anyway", help="Exit with 0 even if the descent did not converge; results are written either way."
        ),
    ] = False,
    events: Annotated[
        Path | None, typer.Option(help="File to append what happens to, as the live page shows it: JSON lines.")
    ] = None,
    log: Log = "text",
    as_json: Json = False,
) -> None:
    """Ask the agents of a roster for the model of their cluster."""
    if plan is None:
        asked, sky = plan_from(
            weather, options, declared=declared, start=parse_stamp(start, declared, "--start"),
            end=parse_stamp(end, declared, "--end"),
        )  # fmt: skip
    else:
        asked, sky = read_plan(plan), weather_from(weather, declared)
    check_folder(output)  # agents give a row a few times only: ask for none before the folder can be written
    with watching(live.ui, live.linger, events, start_log(log)) as watch:
        result = aggregate(config, asked, sky, watch.say, watch.report)
        finish(result.fit, "deployment", output, as_json, True, document=result.as_dict(), watch=watch)
    if result.fit.status is Status.NOT_CONVERGED and not write_anyway:
        raise NotConverged(f"the descent did not converge: {output} has what was released, but no model to rely on")


@app.command()
@grouped
def observe(
    model: Annotated[Path, typer.Argument(help="model.json of a blind fit by `atdm aggregator`.")],
    config: Annotated[AggregatorConfig, ASKING.but(wait="5min", deadline="5min")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Table that grows; observed.csv beside the model by default.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="Last time stamp; the last row that has ended if not given.")] = None,
    back: Annotated[str, typer.Option(help="For how long to ask again for rows that some agent lacked.")] = BACK,
    weights: Annotated[
        WeightsName | None,
        typer.Option(help="Equal, or fitted (those of the model); as the model was fitted if not given."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with every new row until stopped.")] = False,
    outages: Annotated[
        OutagesName,
        typer.Option(help="Of a home: wait for it and lose rows, leave it out for up to 28 days, or balance."),
    ] = "balance",
    settle: Annotated[float, lasting("How long after a row its readings are in agents' files")] = ONE_MINUTE,
    log: Log = "text",
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
            show(found.as_dict())  # agents may not give these rows again: print what cannot be written
            raise
        show(found.as_dict()) if as_json else out.print(observation_text(found, target), highlight=False)

    seeing = Seeing(
        back=duration(back), known=known, weights=weights, until=parse_end(end),
        follow=follow, settle=settle, outages=OUTAGES[outages],
    )  # fmt: skip
    watch_rows(config, atdm.Model.load(model), start_log(log), keep, seeing)


@app.command()
@grouped
def rehearse(
    zones: ZonesFile,
    weather: WeatherFile,
    options: Annotated[FitOptions, FITTED.but(weights="equal")],
    declared: Declared,
    live: Shown,
    output: Output = None,
    agents_per_process: Annotated[int, typer.Option(help="Agents in one process.")] = AGENTS_PER_PROCESS,
    dither: Dither = 0.1,
    least_agents: LeastAgents = 10,
    observe: Annotated[int, typer.Option(help="Keep this many rows at the end out of the fit, then observe them.")] = 0,
    by: By = "zone",
    as_json: Json = False,
) -> None:
    """The whole deployment on this machine: server, enrolment, agents in processes; compared with `atdm fit`."""
    cluster = read(zones, weather, by, declared)
    check_folder(output)
    with watching(live.ui, live.linger, None, log_line) as watch:
        done = rehearsal(
            cluster, weather, options, watch.say, report=watch.report, declared=declared,
            rules=Rules(dither=dither, least_agents=least_agents), agents_per_process=agents_per_process,
            observe=observe,
        )  # fmt: skip
        if output is not None:
            write_folder(output, done.files)
        watch.report(Said(f"over NATS and in one process: {verdict(done)}"))
        judged = [Horizon(**each) for each in done.deployed["metrics"]["horizons"]["chosen"]]
        watch.written(done.files["report.html"].decode(), output and output / "report.html", goodness(judged))
        if as_json:
            show(done.as_dict())
        else:
            out.print(rehearsal_summary(done))
