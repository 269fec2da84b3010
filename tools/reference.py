"""Write docs/cli.md from the commands themselves.

    python tools/reference.py            writes the page
    python tools/reference.py --check    exits with 1 if it is not current

The Python reference needs no tool: Sphinx makes it from the docstrings (docs/api.md).
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from atdm.cli import FILES, app

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"


def cli_page() -> str:
    lines = ["# Commands", "", str(app.info.help), "",
             "Written from the commands themselves by `tools/reference.py`. "
             "Exit codes: [exit-codes.md](exit-codes.md).", "",
             "```", "atdm [--version] [--log-level LEVEL] COMMAND …", "```", ""]  # fmt: skip
    for name, callback in sorted(commands()):
        lines += list(_command(name, callback))
    return "\n".join(lines).rstrip() + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with the function behind it, sub-commands included."""
    for file in dict.fromkeys(file for file, _ in FILES.values()):
        yield from _of_group(importlib.import_module(f"atdm.cli.{file}").app)


def _of_group(group: typer.Typer, prefix: str = "atdm") -> Iterator[tuple[str, Any]]:
    for info in group.registered_commands:
        if not info.hidden and info.callback is not None:
            yield f"{prefix} {info.name or info.callback.__name__.replace('_', '-')}", info.callback
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            yield from _of_group(inner.typer_instance, f"{prefix} {inner.name or inner.typer_instance.info.name}")


def _command(name: str, callback: Any) -> Iterator[str]:
    parameters = [(p, *_declared(p)) for p in inspect.signature(callback, eval_str=True).parameters.values()]
    arguments = [(p, info) for p, _, info in parameters if isinstance(info, ArgumentInfo)]
    options = [(p, kind, info) for p, kind, info in parameters if isinstance(info, OptionInfo) and not info.hidden]
    usage = " ".join([name, *(_placeholder(p) for p, _ in arguments), *(["[OPTIONS]"] if options else [])])
    yield from (f"## {name}", "", _doc(callback), "", "```", usage, "```", "")
    if arguments:
        yield from ("| argument | meaning |", "|---|---|")
        yield from (f"| `{_placeholder(p)}` | {_cell(info.help or '')} |" for p, info in arguments)
        yield ""
    if options:
        yield from ("| option | default | meaning |", "|---|---|---|")
        yield from (f"| {_names(p, kind, info)} | {_default(p)} | {_cell(info.help or '')} |"
                    for p, kind, info in options)  # fmt: skip
        yield ""


def _declared(parameter: inspect.Parameter) -> tuple[Any, ParameterInfo]:
    """The type of a parameter and what typer was told about it."""
    annotation = parameter.annotation
    if get_origin(annotation) is Annotated:
        kind, *notes = get_args(annotation)
        found = next((note for note in notes if isinstance(note, ParameterInfo)), None)
        if found is not None:
            return kind, found
    return annotation, ArgumentInfo() if parameter.default is parameter.empty else OptionInfo()


def _placeholder(parameter: inspect.Parameter) -> str:
    name = parameter.name.upper()
    return name if parameter.default is parameter.empty else f"[{name}]"


def _names(parameter: inspect.Parameter, kind: Any, info: OptionInfo) -> str:
    # inside Annotated typer keeps the first name where a default would stand
    given = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    names = [f"`{name}`" for name in given or [f"--{parameter.name.replace('_', '-')}"]]
    return ", ".join(names) + ("" if kind is bool else f" {_value(str if info.parser else kind)}")


def _value(kind: Any) -> str:
    for part in get_args(kind) or (kind,):
        if inspect.isclass(part) and issubclass(part, Enum):
            return "\\|".join(str(choice.value) for choice in part)
        if part is not type(None):
            return {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}.get(part, "VALUE")
    return "VALUE"


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is parameter.empty:
        return "required"
    if isinstance(value, list):
        value = " ".join(str(each) for each in value)
    return "" if value is None or value is False or value == "" else f"`{getattr(value, 'value', value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def main() -> None:
    page = cli_page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        sys.exit("docs/cli.md: not current: run python tools/reference.py")


if __name__ == "__main__":
    main()
