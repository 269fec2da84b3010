"""The command for bug reports: doctor."""

import json
from pathlib import Path
from typing import Annotated

import typer

from atdm import __version__
from atdm.cli.options import Json
from atdm.deploy.doctor import examine
from atdm.report.doctor_text import doctor_text

app = typer.Typer()


@app.command()
def doctor(
    identity: Annotated[Path | None, typer.Option(help="Folder made by `atdm enroll`.")] = None,
    state: Annotated[Path | None, typer.Option(help="State folder of an agent, where --state was given.")] = None,
    nats: Annotated[
        list[str], typer.Option("--nats", help="tls://host:port of a NATS server to reach; repeat for more.")
    ] = [],  # noqa: B006 - typer copies it
    as_json: Json = False,
) -> None:
    """What a bug report needs and no secret: versions, clock, file modes, servers in reach. Exits with 1 when something
    keeps a party from running. No key, reading, name or address is printed."""
    folders = {name: path for name, path in (("identity", identity), ("state", state)) if path is not None}
    found = examine(__version__, folders, nats, identity and identity / "authority.json")
    print(json.dumps(found, indent=2) if as_json else doctor_text(found))  # `show` needs pandas, which a home may lack
    raise typer.Exit(1 if found["problems"] else 0)
