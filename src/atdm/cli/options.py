"""Options that several commands share, declared once. A command takes a group of them as one parameter:

@app.command()
@grouped
def fit(zones: ZonesFile, weather: WeatherFile, options: Fitted, declared: Declared) -> None: ...
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from atdm.data.format import Format
from atdm.data.seconds import length_or_number
from atdm.data.sources.registry import SourceOptions
from atdm.deploy.log import LogFormat
from atdm.options import FitOptions, NonnegativeName, ProtocolName, WeightsName
from atdm.protocol.registry import REGISTRY
from atdm.ui import DEFAULT as PAGE

ZonesFile = Annotated[Path, typer.Argument(help="Table of time, agent, indoor_temp_c, load_kw[, building].")]
WeatherFile = Annotated[Path, typer.Argument(help="Table of time, outdoor_temp_c, solar_w_m2.")]
OwnWeather = Annotated[
    Path | None, typer.Argument(help="Table of time, outdoor_temp_c, solar_w_m2; without it zones are judged alone.")
]
WeatherOption = Annotated[Path, typer.Option("--weather", help="Table of time, outdoor_temp_c, solar_w_m2.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the model, tables and report.")]
WriteAnyway = Annotated[bool, typer.Option("--write-anyway", help="Write results that did not converge.")]
Dither = Annotated[
    float,
    typer.Option(
        help="Width of the secret noise on every reading (dither), in steps of the sensor; a whole one where others "
        "have finer ones (blind)."
    ),
]
Timezone = Annotated[str | None, typer.Option(help="Time zone of the stamps, and the clock the season follows.")]
By = Annotated[str, typer.Option("--by", help="Who is an agent: zone, or building (mean temperature, summed load).")]
Holidays = Annotated[
    str | None,
    typer.Option(help="Public holidays that may count as Sundays: a country or region (GB, US/IL) or a file."),
]
LeastAgents = Annotated[int, typer.Option(help="Least owners in a `blind` run: with fewer an agent stays out.")]
RosterFile = Annotated[Path, typer.Option("--roster", help="roster.json signed by the enrolment authority.")]
Log = Annotated[
    LogFormat, typer.Option("--log", help="How the log on standard error is written: json is an object a line.")
]
Servers = Annotated[list[str], typer.Option("--nats", help="tls://host:port; repeat for the servers of a cluster.")]


def lasting(text: str) -> Any:
    """An option that is a length of time, kept in seconds."""
    return typer.Option(parser=length_or_number, metavar="TEXT", help=f"{text} (5min, 72h; a bare number is seconds).")


REVEALED = "; ".join(f"{name}: {REGISTRY[name].reveals}" for name in ("blind", "moments", "paper", "plain"))


class Group:
    """Options that a command takes as one value: a name and an annotation each. The value's class has the defaults."""

    def __init__(self, options: dict[str, Any], defaults: dict[str, Any] | None = None) -> None:
        self.options, self.defaults = options, defaults or {}

    def only(self, *names: str) -> "Group":
        return Group({name: self.options[name] for name in names}, self.defaults)

    def but(self, **defaults: Any) -> "Group":
        """With other defaults, or with defaults where the class has none."""
        return Group(self.options, {**self.defaults, **defaults})

    def parameters(self, kind: type) -> list[inspect.Parameter]:
        usual = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
        defaults = {**usual, **self.defaults}
        return [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation,
                default=defaults.get(name, inspect.Parameter.empty),
            )
            for name, annotation in self.options.items()
        ]  # fmt: skip


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of each group in the place of its parameter."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, list[inspect.Parameter]]] = {}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind, *marks = get_args(hints[parameter.name]) or (None,)
        group = next((mark for mark in marks if isinstance(mark, Group)), None)
        if group is None:
            plain = parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            shown.append(plain)
        else:
            groups[parameter.name] = kind, group.parameters(kind)
            shown += groups[parameter.name][1]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, (kind, options) in groups.items():
            given[name] = kind(**{option.name: given.pop(option.name) for option in options})
        command(**given)

    signature = inspect.Signature(shown)
    called.__signature__ = signature  # type: ignore[attr-defined] # what typer reads
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return called


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Where a run is shown while it goes on."""

    ui: str | None = None
    linger: float | None = None


DECLARED = Group({
    "timezone": Timezone,
    "sort": Annotated[bool, typer.Option("--sort", help="Sort rows that are not in the order of time.")],
    "delimiter": Annotated[str, typer.Option(help="CSV column separator.")],
    "decimal": Annotated[str, typer.Option(help="CSV decimal mark.")],
    "fill": Annotated[str, typer.Option(help="Longest gap that a home fills by itself, linearly; 0 fills nothing.")],
})  # fmt: skip
FITTED = Group({
    "protocol": Annotated[
        ProtocolName,
        typer.Option(help=f"What the aggregator learns beside load, aggregate temperature and model: {REVEALED}."),
    ],
    "order": Annotated[int, typer.Option(help="Order M of the model.")],
    "ridge": Annotated[float, typer.Option(help="Ridge λ: penalty on unequal weights [K²].")],
    "season": Annotated[str, typer.Option(help="Period of the occupants' pattern, e.g. 24h.")],
    "weights": Annotated[
        WeightsName, typer.Option(help="Of the aggregate temperature: fitted by the agents, or equal (the mean).")
    ],
    "nonnegative": Annotated[
        NonnegativeName,
        typer.Option(help="Fitted weights: ridge (raise λ until none is negative), exact (ξ ≥ 0) or free."),
    ],
    "tolerance": Annotated[
        float, typer.Option(help="The descent stops when an iteration lowers the objective by less.")
    ],
    "solver_tolerance": Annotated[
        float, typer.Option(help="Relative residual of the weights at which blind asks for no further total.")
    ],
    "train": Annotated[float, typer.Option(help="Share of the rows used for training.")],
    "minimum_norm": Annotated[
        bool, typer.Option("--minimum-norm", help="Where inputs are collinear take the smallest solution.")
    ],
})  # fmt: skip
SHOWN = Group({
    "ui": Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:PORT]",
            help=f"Show the run live on a web page; {PAGE} if no address follows. An address that others can reach "
            "needs the token printed with it.",
        ),
    ],
    "linger": Annotated[
        float | None, lasting("How long the live page stays after the end; without this option until Ctrl-C")
    ],
})  # fmt: skip

SOURCED = Group({
    "temperature": Annotated[
        list[str], typer.Option(help="Source: entity of a room's temperature; repeat for more rooms.")
    ],
    "heat": Annotated[list[str], typer.Option(help="Source: entity of the heat; repeat for more meters.")],
    "query": Annotated[str | None, typer.Option(help="Source: SQL of the columns time, temperature, load.")],
    "step": Annotated[str | None, typer.Option(help="Source: step of the rows, e.g. 30min.")],
    "option": Annotated[
        list[str], typer.Option("--option", metavar="NAME=VALUE", help="Source: any other option of it; repeat.")
    ],
}, {"temperature": [], "heat": [], "option": []})  # fmt: skip
SPEC = "Where the readings are: a table, homeassistant:…, sql:…, or a .toml file that says so (docs/deploy.md)"

Declared = Annotated[Format, DECLARED]
Sourced = Annotated[SourceOptions, SOURCED]
Fitted = Annotated[FitOptions, FITTED]
Shown = Annotated[Live, SHOWN]
