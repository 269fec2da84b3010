"""Commands of the enrolment authority, and of parties that make their keys: enroll."""

import os
from pathlib import Path
from typing import Annotated

import typer

from atdm.cli.options import Json, Timezone, WeatherFile
from atdm.cli.printing import out, show
from atdm.data.format import Format
from atdm.deploy import enrolment
from atdm.deploy.own import weather_from
from atdm.deploy.server import reload_server
from atdm.report.enrolment_text import shown_key, status_table

app = typer.Typer()
enroll = typer.Typer(help="Keys, roster and NATS server of a deployment: docs/deploy.md.", no_args_is_help=True)
app.add_typer(enroll, name="enroll")

SIGN = "sign the roster: atdm enroll roster {}, with -o and --host as before"
Folder = Annotated[Path, typer.Argument(help="Folder for keys; it stays with the party it belongs to.")]
AuthorityFolder = Annotated[Path, typer.Argument(help="The authority's folder, made by `atdm enroll authority`.")]
Authority = Annotated[Path | None, typer.Option(help="authority.json of the authority, if not in the folder.")]
ForRehearsal = Annotated[bool, typer.Option("--rehearsal", help="Authority and aggregator in one folder, for a trial.")]


@enroll.command("authority")
def enroll_authority(folder: Folder, rehearsal: ForRehearsal = False) -> None:
    """Make the party that says who takes part; not the aggregator."""
    path = enrolment.create_authority(folder, os.urandom, rehearsal=rehearsal)
    print(f"wrote {path}: give it to every party; everything else in {folder} stays there")


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
    key = enrolment.read_agent(path.parent).identity.public.hex()
    print(
        f"its public key begins with {shown_key(key)}: the authority will ask for that, and sees it in its own status"
    )


@enroll.command("aggregator")
def enroll_aggregator(folder: Folder, authority: Authority = None, rehearsal: ForRehearsal = False) -> None:
    """Make the keys of the aggregator."""
    path = enrolment.create_aggregator(folder, os.urandom, authority=authority, rehearsal=rehearsal)
    print(f"wrote {path}: send it to the enrolment authority; the *.key files beside it stay here")


@enroll.command("roster")
def enroll_roster(
    folder: AuthorityFolder,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the roster.")] = Path("roster.json"),
    host: Annotated[
        list[str], typer.Option(help="Name or address agents reach the NATS server under; repeat for more.")
    ] = ["127.0.0.1", "localhost"],  # noqa: B006 - typer copies it
    since: Annotated[
        str | None, typer.Option(help="First day that keys new since the last roster give; tomorrow if not given.")
    ] = None,
) -> None:
    """Sign the roster of everybody whose enrolment.json is in the authority's folder; configure its NATS server."""
    from atdm.deploy.aggregator import parse_day  # with pandas, which a home that makes its keys does without

    roster, nats = enrolment.create_roster(folder, output, host, parse_day(since, "--since"))
    print(f"wrote {output}: roster {roster.serial}, {len(roster)} agents of {roster.owners()} owners")
    if (note := enrolment.growth_note(roster, enrolment.today())) is not None:
        print(note)
    if nats is None:
        print("no aggregator has enrolled yet: run `atdm enroll aggregator`, then this again")
    else:
        reached = f"reached as {', '.join(host)} (--host)"
        print(f"wrote {nats}: the NATS server's folder, {reached}; start nats-server -c server.conf in it")
        if reload_server(nats):
            print("the NATS server that runs there was told to read it again")
        elif roster.serial > 1:
            print("where it runs already: replace its folder by this one, then nats-server --signal reload")


@enroll.command("replace")
def enroll_replace(folder: AuthorityFolder, name: Annotated[str, typer.Option(help="Name of the agent.")]) -> None:
    """The same home with a new key, whose enrolment.json is in the authority's folder: the old key is out for good."""
    old = enrolment.replace_key(folder, name)
    print(f"{name} of owner {old.owner}: the old key is out for good; {SIGN.format(folder)}")


@enroll.command("retire")
def enroll_retire(folder: AuthorityFolder, name: Annotated[str, typer.Option(help="Name of the agent.")]) -> None:
    """A home leaves: its key is in no later roster and never enrols again."""
    old = enrolment.retire_key(folder, name)
    print(f"{name} of owner {old.owner}: its key is out for good; {SIGN.format(folder)}")


@enroll.command("status")
def enroll_status(folder: AuthorityFolder, as_json: Json = False) -> None:
    """Who is enrolled, since when, replaced by whom, retired when, as the authority's folder says."""
    found = enrolment.enrolment_status(folder)
    show(found) if as_json else out.print(status_table(found))


@enroll.command("weather")
def enroll_weather(
    folder: AuthorityFolder,
    weather: WeatherFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the signed rows.")] = Path(
        "weather.json"
    ),
    timezone: Timezone = None,
) -> None:
    """Sign rows of weather, for agents that have none of their own: atdm aggregator --publish-weather."""
    path = enrolment.sign_weather(folder, weather_from(weather, Format(timezone=timezone)), output)
    print(f"wrote {path}: give it to the aggregator, who sends it to agents that lack it")
