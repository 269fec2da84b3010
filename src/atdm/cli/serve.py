"""The command of the aggregator's desk: serve."""

import time
from pathlib import Path
from typing import Annotated

import typer

import atdm
from atdm.cli.options import Log
from atdm.cli.printing import out
from atdm.deploy.log import start_log
from atdm.deploy.service_rules import EXAMPLE, read_rules
from atdm.deploy.serving import check as checked
from atdm.deploy.serving import check_files
from atdm.deploy.serving import serve as run
from atdm.errors import UsageError
from atdm.ui.desk import address_of, served

app = typer.Typer()


@app.command()
def serve(
    rules: Annotated[Path | None, typer.Argument(help="The desk's rules, a TOML file; --example prints one.")] = None,
    model: Annotated[
        Path | None, typer.Argument(help="model.json of a fit with equal weights to begin with; else one is made.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the rules and say what they do; nobody is asked.")
    ] = False,
    example: Annotated[bool, typer.Option("--example", help="Print rules to begin with, every one explained.")] = False,
    log: Log = "text",
) -> None:
    """The aggregator's desk: collect, keep the model current, forecast, offer flexibility; a page and an HTTP API."""
    if example:
        print(EXAMPLE, end="")
        return
    if rules is None:
        raise UsageError("give the rules of the desk: atdm serve --example > rules.toml prints some to begin with")
    found = read_rules(rules)
    if check:
        check_files(found, model)
    given = None if model is None else atdm.Model.load(model)
    address_of(found)
    if check:
        for line in checked(found, given, time.time()):
            out.print(line, highlight=False, soft_wrap=True)
        return
    say = start_log(log)
    with served(found, say) as board:
        run(found, given, say, board.put)
