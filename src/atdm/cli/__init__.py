"""The command line: parse, call, print. No logic lives here.

    options    options that several commands share, declared once
    output     what commands print and write
    fitting, importing, using, sending, lab, agent, aggregator, serve, enrolment, doctor   the commands, a file a group

A file of commands is imported when one of them runs: `atdm --help` needs none of the libraries behind them.
"""

import logging
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from atdm import __version__
from atdm.errors import AtdmError, UsageError
from atdm.ui import DEFAULT as PAGE

FILES = {  # command → the file it is in, and how its help begins
    "demo": ("fitting", "Fit the bundled sample privately, print the summary, write the report."),
    "fit": ("fitting", "Fit the model of a cluster, every agent simulated in this process"),
    "check": ("fitting", "Data quality before anything is sent; exits with 1 if a fit would refuse the cluster"),
    "import": ("importing", "Other people's readings → zones.parquet and weather.parquet."),
    "select": ("fitting", "How the model to use was chosen on the training rows of the released series"),
    "forecast": ("using", "Forecast the aggregate temperature, and the load where no plan is given"),
    "update": ("using", "Keep a model current from observed rows; no agent is asked."),
    "drift": ("using", "Whether the cluster still behaves as it did: coefficients by window of released rows."),
    "flexibility": ("using", "Power and energy the cluster can offer while it stays comfortable"),
    "probe": ("using", "Plan an experiment that shows what heat does: common set-point steps, seeded, within comfort."),
    "send": ("sending", "Send state, forecast and flexibility to FlexMeasures, S2 energy managers or Home Assistant."),
    "compare": ("lab", "All protocols side by side: accuracy against plain, cost, who learned what."),
    "audit": ("lab", "Mount the attacks and say what an aggregator could learn about single agents."),
    "reproduce": ("lab", "The paper's tables and figures from this data, beside the numbers it prints."),
    "bench": ("lab", "Speed, bytes and scaling on a synthetic cluster, beside the least time its masks can take."),
    "agent": ("agent", "Take part: answer the aggregator from beside the data, until stopped."),
    "account": ("agent", "What this home has given of each day, with whom, and what is left."),
    "aggregator": ("aggregator", "Ask the agents of a roster for the model of their cluster."),
    "observe": ("aggregator", "Ask the agents for the aggregate temperature and load of the rows since a fit."),
    "serve": ("serve", "The aggregator's desk: collect, keep the model current, forecast, offer flexibility"),
    "rehearse": ("aggregator", "The whole deployment on this machine: server, enrolment, agents in processes"),
    "enroll": ("enrolment", "Keys, roster and NATS server of a deployment: docs/deploy.md."),
    "doctor": ("doctor", "What a bug report needs and no secret: versions, clock, file modes, servers in reach."),
}  # fmt: skip


def load(name: str) -> Any:
    """The command with its options, from its file."""
    try:
        group: Any = get_group(import_module(f"atdm.cli.{FILES[name][0]}").app)
    except ModuleNotFoundError as error:
        if error.name not in ("pandas", "pyarrow"):
            raise
        raise UsageError(f"atdm {name} needs {error.name}, which atdm-agent leaves out: pip install atdm") from None
    import_module("atdm.kernel.blas").one_blas_thread()
    return group.commands[name]


class Commands(TyperGroup):
    """All commands by name and purpose; one is imported when it is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: typer.core.TyperCommand(name, help=purpose) for name, (_, purpose) in FILES.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(str(name)), rest


app = typer.Typer(
    cls=Commands,
    help="Learn the aggregate thermal model of a building cluster without anyone seeing any building's data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def version(wanted: bool) -> None:
    if wanted:
        print(f"atdm {__version__}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(help="debug, info, warning or error; if not given info where there is --log, else warning."),
    ] = None,
) -> None:
    level = (log_level or "warning").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise UsageError(f"--log-level {log_level}: choose debug, info, warning or error")
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("atdm").setLevel(level if log_level else logging.NOTSET)


def with_address(arguments: list[str]) -> list[str]:
    """A bare --ui means the usual address: typer has no options whose value may be left out."""
    said: list[str] = []
    for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
        bare = word == "--ui" and (following.startswith("-") or ":" not in following)
        said.append(f"--ui={PAGE}" if bare else word)
    return said


def _say_last(text: str) -> None:
    """Why a command ends: in the form of its log, if that is for machines."""
    log = sys.modules.get("atdm.deploy.log")
    if log is not None and log.in_json():
        logging.getLogger("atdm").error("%s", text, extra={"event": "failed"})
    else:
        print(f"atdm: {text}", file=sys.stderr)


IN_OUR_WORDS = {  # what the parser says of a value, and what a person can do
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "write a whole number",
    "Input should be a valid number, unable to parse string as a number": "write a number, with a decimal point",
}


def _mistyped(message: str, context: Any) -> str:
    """A mistake in a command line, in one line with the way out."""
    for theirs, ours in IN_OUR_WORDS.items():
        message = message.replace(theirs, ours)
    end = "" if message.endswith("?") else ";"
    return f"{message.removesuffix('.')}{end} see {'atdm' if context is None else context.command_path} --help"


def main() -> None:
    try:
        # the number of a typer.Exit, None otherwise
        code = app(with_address(sys.argv[1:]), standalone_mode=False, prog_name="atdm")
    except AtdmError as error:
        _say_last(str(error))
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - click's own usage errors carry their exit code
        if hasattr(error, "exit_code") and hasattr(error, "format_message"):
            if message := error.format_message():  # none where the help was asked for by saying nothing
                print(f"atdm: {_mistyped(message, getattr(error, 'ctx', None))}", file=sys.stderr)
            sys.exit(error.exit_code)
        raise
    sys.exit(code)
