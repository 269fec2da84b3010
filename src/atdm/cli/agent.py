"""Commands of a home: agent, account."""

from pathlib import Path
from typing import Annotated

import typer

from atdm.cli.options import (
    SPEC,
    Declared,
    Dither,
    Json,
    LeastAgents,
    Log,
    Servers,
    Sourced,
    grouped,
)  # fmt: skip
from atdm.cli.printing import out, show
from atdm.data.sources.registry import open_sources
from atdm.deploy.agent import agent_files, names_in, read_account, serve_files
from atdm.deploy.log import start_log
from atdm.deploy.notices import OwnWeather
from atdm.deploy.own import HISTORY
from atdm.deploy.owner import choice_of, choose, chosen_since
from atdm.errors import UsageError
from atdm.options import OwnerChoice, WeightsName
from atdm.protocol.rules import Rules
from atdm.report.account_text import account_table, choice_text, statement
from atdm.ui import DEFAULT as PAGE
from atdm.ui import owners_page

app = typer.Typer()


@app.command()
@grouped
def agent(
    identity: Annotated[list[Path], typer.Option(help="Folder made by `atdm enroll agent`; repeat for more agents.")],
    nats: Servers,
    declared: Declared,
    sourced: Sourced,
    data: Annotated[
        list[Path], typer.Option(help="The agent's own readings as a table, one for each identity; or --source.")
    ] = [],  # noqa: B006 - typer copies it
    source: Annotated[list[str], typer.Option(help=f"{SPEC}; one for each identity.")] = [],  # noqa: B006 - as above
    state: Annotated[
        list[Path],
        typer.Option(help="Folder where the agent records what it released; `state` beside its keys if not given."),
    ] = [],  # noqa: B006 - as above
    roster: Annotated[
        Path | None, typer.Option(help="roster.json; without it the one kept, or the first that is published.")
    ] = None,
    weather: Annotated[
        Path | None,
        typer.Option(
            help="Table of time, outdoor_temp_c, solar_w_m2; only fitted weights need one, or published rows."
        ),
    ] = None,
    weather_tolerance: Annotated[
        float, typer.Option(help="K that published outdoor temperatures may be off those in --weather.")
    ] = 5.0,
    solar_tolerance: Annotated[
        float, typer.Option(help="W/m² that published solar irradiance may be off that in --weather.")
    ] = 500.0,
    history: Annotated[
        int, typer.Option(min=1, help="Days of readings that are asked of a source where no --weather bounds them.")
    ] = HISTORY,
    protocol: Annotated[
        list[str],
        typer.Option(help="Protocol to take part in; others than blind show the aggregator more. Repeat for more."),
    ] = ["blind"],  # noqa: B006 - as above
    weights: Annotated[
        WeightsName,
        typer.Option(help="Equal weights only, or also fitted ones, whose claim is weaker: docs/protocols.md."),
    ] = "equal",
    dither: Dither = 0.1,
    quantum: Annotated[
        float | None,
        typer.Option(
            help="Step of the sensor in °C; if not given, the coarsest found in the readings, or in the values that a "
            "source makes means of."
        ),
    ] = None,
    least_agents: LeastAgents = 10,
    colluders: Annotated[int, typer.Option(help="Other agents assumed to share what they see.")] = 1,
    least_days: Annotated[float, typer.Option(help="Days of rows, at least, for fitted weights.")] = 28.0,
    days_after_fit: Annotated[int, typer.Option(help="Days after a fit for which its weights may be used.")] = 92,
    ui: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:PORT]",
            help=f"Show the owner what was asked and given, with switches to pause and to leave, on a web page; {PAGE} "
            "if no address follows. An address that others can reach needs the token in the agent's state folder.",
        ),
    ] = None,
    log: Log = "text",
) -> None:
    """Take part: answer the aggregator from beside the data, until stopped. Prints what was asked and what was sent."""
    rules = Rules(
        protocols=tuple(protocol), weights=weights, dither=dither, quantum=quantum, least_agents=least_agents,
        colluders=colluders, least_days=least_days, days_after_fit=days_after_fit,
    )  # fmt: skip
    files = agent_files(identity, data, open_sources(source, sourced, declared), state)
    sky = OwnWeather(path=weather, declared=declared, outdoor=weather_tolerance, solar=solar_tolerance)
    say = start_log(log)
    serve_files(
        files, roster, sky, rules, nats, say, declared=declared, history=history, page=owners_page(ui, say)
    )  # fmt: skip


@app.command()
def account(
    state: Annotated[
        Path, typer.Argument(help="State folder of an agent; without --state the folder `state` beside its keys.")
    ],
    roster: Annotated[
        Path | None, typer.Option(help="roster.json, to show the others by name; the one the agent keeps if not given.")
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Stay out of every run from the next one on.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="End the pause.")] = False,
    leave: Annotated[bool, typer.Option("--leave", help="Stay out for good; asks first.")] = False,
    as_json: Json = False,
) -> None:
    """What this home has given of each day, with whom, and what is left. Values of readings are not shown."""
    switches: dict[OwnerChoice, bool] = {"paused": pause, "takes part": resume, "left": leave}
    wanted = [choice for choice, given in switches.items() if given]
    if len(wanted) > 1:
        raise UsageError("give one of --pause, --resume and --leave")
    if leave:
        typer.confirm("Leave for good? Only a new enrolment undoes it", abort=True, err=True)
    for choice in wanted:
        choose(state, choice)
    if wanted and not as_json:
        out.print(choice_text(choice_of(state), chosen_since(state)), highlight=False, markup=False, soft_wrap=True)
        return
    found = statement(read_account(state), names_in(state, roster), choice_of(state), chosen_since(state))
    show(found) if as_json else out.print(account_table(found))
