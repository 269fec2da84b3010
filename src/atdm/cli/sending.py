"""The command that carries results to where they are used."""

import json
from pathlib import Path
from typing import Annotated

import typer

import atdm
from atdm.cli.options import Json, Timezone
from atdm.cli.printing import out, show
from atdm.cli.using import Future, ModelFile, ObservedRows
from atdm.data.clock import duration
from atdm.errors import RunAborted
from atdm.report.folder import check_writable, write_file
from atdm.sinks.results import compute
from atdm.sinks.send import Sinks, dry_run
from atdm.sinks.settings import choose_sinks
from atdm.use.series import instant, parse_range, read_future, read_observed

app = typer.Typer()


@app.command()
def send(
    model: ModelFile,
    observed: ObservedRows,
    weather: Future,
    to: Annotated[
        list[str] | None,
        typer.Option(help="flexmeasures, s2 or mqtt; repeat for several. All of --settings if not given."),
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="TOML file with a table for each sink: docs/sinks.md.")] = None,
    comfort: Annotated[
        str | None, typer.Option(help="Comfort band, LOW:HIGH in °C: offer flexibility too, and ask for schedules.")
    ] = None,
    power: Annotated[str | None, typer.Option(help="Limits of the load, LOW:HIGH in kW.")] = None,
    horizon: Annotated[str, typer.Option(help="Length of the forecast and of the offer.")] = "24h",
    assume_gain: Annotated[
        float | None,
        typer.Option(metavar="K_PER_KW", help="Steady warming per kW that you know, where the rows do not show it."),
    ] = None,
    made: Annotated[
        str | None, typer.Option(help="When the forecast counts as made, to send old ones; now if not given.")
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Print the messages, one JSON object a line; send nothing.")
    ] = False,
    timezone: Timezone = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="CSV file for the schedule that comes back.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Send state, forecast and flexibility to FlexMeasures, S2 energy managers or Home Assistant."""
    if output is not None:
        check_writable(output)
    sinks = choose_sinks(settings, to or ())
    found = compute(
        atdm.Model.load(model), read_future(weather, timezone=timezone), read_observed(observed, timezone=timezone),
        made=instant(made, timezone or "UTC") if made else None,
        comfort=parse_range(comfort, "--comfort") if comfort else None,
        power=parse_range(power, "--power") if power else None, horizon=duration(horizon), assume_gain=assume_gain,
    )  # fmt: skip
    if dry:
        for message in dry_run(sinks, found):
            print(json.dumps(message, ensure_ascii=False, allow_nan=False))
        return
    sender = Sinks(sinks, lasting=False)
    try:
        done = sender.send(found)
    finally:
        sender.close()
    planned = next((sent.schedule for sent in done if sent.schedule is not None), None)
    if output is not None and planned is not None:
        write_file(output, planned.to_csv())
    if as_json:
        show({"sent": [sent.as_dict() for sent in done]})
    else:
        out.print("\n".join(sent.words() for sent in done), highlight=False, markup=False, soft_wrap=True)
    if any(sent.failed for sent in done):
        raise typer.Exit(RunAborted.exit_code)
