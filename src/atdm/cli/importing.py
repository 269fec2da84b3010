"""Commands that bring readings into our names and units: import."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from atdm.cli.options import SPEC, Json, Sourced, grouped
from atdm.cli.printing import out, show
from atdm.data.importing import Imported, import_source, import_tables
from atdm.data.sources import open_source
from atdm.data.sources.registry import is_named
from atdm.errors import UsageError
from atdm.report.folder import check_folder, write_folder
from atdm.report.import_text import import_text


class Sources(TyperGroup):
    """`atdm import FILES` and `atdm import homeassistant:…` are enough: which of the two it is can be seen."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        kind = "source" if any(is_named(word) or word.endswith(".toml") for word in args) else "tables"
        return super().parse_args(ctx, args if named or not args else [kind, *args])


app = typer.Typer()
sources = typer.Typer(cls=Sources, no_args_is_help=True)
app.add_typer(
    sources,
    name="import",
    help="""Other people's readings → zones.parquet and weather.parquet.

    `atdm import FILES… -o data` is `atdm import tables FILES… -o data`; its options: `atdm import tables --help`.
    """,
)


@sources.command("tables")
def tables(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Homes' files: .csv, .xlsx, .parquet, .jsonl; folders and patterns too. Or none."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for zones.parquet and weather.parquet.")
    ] = None,
    weather: Annotated[list[str], typer.Option(help="A weather file, folder or pattern; repeat for more.")] = [],  # noqa: B006
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show the first rows before and after.")
    ] = False,
    time: Annotated[str | None, typer.Option(help="Column of the time stamp; 'DATE+TIME' joins two.")] = None,
    temperature: Annotated[
        str | None,
        typer.Option(help="Column of the indoor temperature; '{agent} Temp' if each home has one; 'FILE:COLUMN'."),
    ] = None,
    load: Annotated[str | None, typer.Option(help="Column of the heating power or energy; as --temperature.")] = None,
    agent: Annotated[
        str | None, typer.Option(help="Column of the home's name; '{agent}_*' takes it from the file's name.")
    ] = None,
    building: Annotated[str | None, typer.Option(help="Column of the building a home is in.")] = None,
    outdoor: Annotated[str | None, typer.Option(help="Weather: column of the outdoor temperature.")] = None,
    solar: Annotated[str | None, typer.Option(help="Weather: column of the global horizontal irradiance.")] = None,
    temperature_unit: Annotated[
        list[str], typer.Option(help="°C, °F, K, 0.1°C; 'HOME=°F' for one home; repeat for more.")
    ] = [],  # noqa: B006
    load_unit: Annotated[
        list[str], typer.Option(help="W, kW, MW, Wh, kWh, MJ, …; 'HOME=W' for one home; repeat for more.")
    ] = [],  # noqa: B006
    outdoor_unit: Annotated[str | None, typer.Option(help="°C, °F, K, 0.1°C.")] = None,
    solar_unit: Annotated[str | None, typer.Option(help="W/m², kW/m², Wh/m², J/cm², …")] = None,
    load_kind: Annotated[
        Literal["interval", "counter"] | None,
        typer.Option(help="Whether energy is that of each interval, or a counter."),
    ] = None,
    interval: Annotated[str | None, typer.Option(help="Time that one value of energy is for, e.g. 30min.")] = None,
    time_format: Annotated[
        str | None, typer.Option(help="Format of the stamps: 'DD.MM.YYYY HH:mm', 'MM/DD/YYYY hh:mm AM/PM', 'epoch s'.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Time zone of stamps without offset, e.g. Europe/Berlin.")
    ] = None,
    offset: Annotated[str | None, typer.Option(help="Column of the stamps' offsets from UTC.")] = None,
    label: Annotated[
        Literal["start", "end"], typer.Option(help="Whether a stamp is the start or the end of its value's interval.")
    ] = "start",
    ambiguous: Annotated[
        Literal["refuse", "leave out"],
        typer.Option(help="Rows of the hour a clock change repeats, if nothing tells which."),
    ] = "refuse",
    repeated: Annotated[
        Literal["refuse", "first", "last", "mean"], typer.Option(help="What to do with several values of one stamp.")
    ] = "refuse",
    weather_time: Annotated[str | None, typer.Option(help="As --time, of the weather.")] = None,
    weather_time_format: Annotated[str | None, typer.Option(help="As --time-format, of the weather.")] = None,
    weather_timezone: Annotated[str | None, typer.Option(help="As --timezone, of the weather, if another.")] = None,
    weather_offset: Annotated[str | None, typer.Option(help="As --offset, of the weather.")] = None,
    weather_label: Annotated[
        Literal["start", "end"] | None, typer.Option(help="As --label, of the weather, if the other.")
    ] = None,
    weather_delimiter: Annotated[str | None, typer.Option(help="As --delimiter, of the weather.")] = None,
    weather_decimal: Annotated[str | None, typer.Option(help="As --decimal, of the weather.")] = None,
    weather_encoding: Annotated[str | None, typer.Option(help="As --encoding, of the weather.")] = None,
    weather_sheet: Annotated[str | None, typer.Option(help="As --sheet, of the weather.")] = None,
    weather_skip_rows: Annotated[int | None, typer.Option(help="As --skip-rows, of the weather.")] = None,
    step: Annotated[
        str | None, typer.Option(help="Step of the tables made, e.g. 30min; from the readings if not given.")
    ] = None,
    hold: Annotated[
        str | None, typer.Option(help="How long a reading holds until the next one; from the readings if not given.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Character between columns of text; guessed if not given.")
    ] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal mark of text; guessed if not given.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of text; guessed if not given.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Sheet of a workbook; '*' if each sheet is a home.")] = None,
    skip_rows: Annotated[int | None, typer.Option(help="Lines before the header; guessed if not given.")] = None,
    missing: Annotated[list[str], typer.Option(help="A cell that means no reading, e.g. -99.9; repeat for more.")] = [],  # noqa: B006
    without: Annotated[list[str], typer.Option(help="A home that is not wanted; repeat for more.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Other people's tables → zones.parquet and weather.parquet in our names and units, with an account of it.

    What no option says is guessed, and every guess is printed. The word `tables` can be left out.
    """
    declared = {name: value for name, value in locals().items() if name not in ("output", "dry_run", "as_json")}
    check_target(output, dry_run)
    found = import_tables(**{name: value for name, value in declared.items() if value is not None})
    keep(found, output, dry_run, as_json)


@sources.command("source")
@grouped
def source(
    spec: Annotated[str, typer.Argument(metavar="SOURCE", help=f"{SPEC}.")],
    sourced: Sourced,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for zones.parquet.")] = None,
    agent: Annotated[str, typer.Option(help="Name of the home.")] = "home",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show the first rows.")] = False,
    as_json: Json = False,
) -> None:
    """One home's readings, from Home Assistant, a database or elsewhere → zones.parquet, with an account of it.

    The word `source` can be left out.
    """
    check_target(output, dry_run)
    keep(import_source(open_source(spec, sourced.given()), agent), output, dry_run, as_json)


def check_target(output: Path | None, dry_run: bool) -> None:
    if output is None and not dry_run:
        raise UsageError("nowhere to write: say -o FOLDER, or --dry-run to look only")
    check_folder(None if dry_run else output)


def keep(found: Imported, output: Path | None, dry_run: bool, as_json: bool) -> None:
    if output is not None and not dry_run:
        write_folder(output, found.files())
    if as_json:
        show(found.as_dict())
    else:
        out.print(import_text(found, rows=dry_run), highlight=False, markup=False, soft_wrap=True)
        if output is not None and not dry_run:
            out.print(f"wrote {' and '.join(f'{output}/{name}' for name in found.files())}", highlight=False)
