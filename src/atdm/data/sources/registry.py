"""From words to a source: `mine.csv`, `homeassistant:…`, `sql:…`, somebody else's, or a file that says which.

PATH              a table of ours (parquet, .csv, .csv.gz) with one home
NAME:ADDRESS      homeassistant, sql, or an entry point of the group `atdm.sources`
PATH.toml         source = "NAME:ADDRESS" and its options, so that command lines stay short
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from atdm.data.format import Format
from atdm.data.settings import read_toml
from atdm.data.sources.source import Source
from atdm.errors import DataError, UsageError

GROUP = "atdm.sources"  # of entry points: name -> class or function of (address, **options) that gives a Source

_OWN = {  # loaded when asked for: an agent holds in memory only what it reads with
    "homeassistant": ("atdm.data.sources.homeassistant", "HomeAssistant"),
    "sql": ("atdm.data.sources.sql", "Sql"),
}


def names() -> list[str]:
    """What may stand before the colon."""
    return sorted({*_OWN, *(point.name for point in entry_points(group=GROUP))})


def is_named(spec: str) -> bool:
    """Whether a text names a kind of source (`sql:…`) and is not a path."""
    kind, colon, _ = spec.partition(":")
    return bool(colon) and kind in names()


def open_source(
    spec: str, options: Mapping[str, Any] | None = None, *, declared: Format | None = None, agent: str | None = None
) -> Source:
    """Open the source that a text names; nothing is read before its `rows`.

    Parameters
    ----------
    spec : str
        Path of a table with one home, "homeassistant:…", "sql:…", "NAME:ADDRESS" of an installed source, or a .toml
        file with `source` and options.
    options : mapping, optional
        Options of that source by name; they count more than those of a .toml file.
    declared : Format, optional
        How a table is written; a table alone has it.
    agent : str, optional
        Whose table it must be.

    Returns
    -------
    Source
        To ask for rows.
    """
    given = dict(options or {})
    if spec.lower().endswith(".toml"):
        spec, given = _described(Path(spec), given)
    kind, colon, address = spec.partition(":")
    if is_named(spec):
        return _made(kind, _maker(kind), address, given)
    if colon and kind.isalnum() and len(kind) > 1 and not Path(spec).exists():  # one letter: a drive
        raise UsageError(f"{kind}: unknown kind of source: use a path, {', '.join(n + ':' for n in names())}")
    from atdm.data.sources.table import Table

    if spec in _OWN or spec.lower().endswith((".db", ".sqlite", ".sqlite3")):
        kind, path = (spec, "ADDRESS") if spec in _OWN else ("homeassistant", spec)
        raise UsageError(f"{spec}: is no table of ours: write {kind}:{path}")
    if given:
        raise UsageError(f"{spec}: is a table of ours and takes no option {next(iter(given))!r}: leave it out")
    return Table(spec, agent=agent, declared=declared)


def _described(path: Path, more: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a TOML file says; options given besides count more."""
    content = read_toml(path, 'write lines like source = "homeassistant:home.db"')
    spec = content.pop("source", None)
    if not isinstance(spec, str):
        raise DataError(f'{path}: does not say its source: write a line like source = "homeassistant:home.db"')
    return spec, {**content, **more}


def _maker(kind: str) -> Callable[..., Source]:
    if kind in _OWN:
        module, name = _OWN[kind]
        made: Callable[..., Source] = getattr(import_module(module), name)
        return made
    [point, *_] = entry_points(group=GROUP, name=kind)
    try:
        found: Callable[..., Source] = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{kind}: {point.value} cannot be loaded ({error}): reinstall its package") from None
    return found


def _made(kind: str, maker: Callable[..., Source], address: str, options: Mapping[str, Any]) -> Source:
    [_, *parameters] = inspect.signature(maker).parameters.values()
    taken = [parameter.name for parameter in parameters]
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
        for name in options:
            if name not in taken:
                raise UsageError(f"{kind}: has no option {name!r}: it takes {', '.join(taken) or 'none'}")
    source = maker(address, **options)
    if not isinstance(source, Source):
        raise UsageError(f"{kind}: gives a {type(source).__name__}, not a Source: mend its package")
    return source


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a command line says of a source."""

    temperature: list[str] = field(default_factory=list)
    heat: list[str] = field(default_factory=list)
    query: str | None = None
    step: str | None = None
    option: list[str] = field(default_factory=list)  # NAME=VALUE

    def given(self) -> dict[str, Any]:
        """By name, those that were said."""
        named = {"temperature": self.temperature, "heat": self.heat, "query": self.query, "step": self.step}
        return {**{name: value for name, value in named.items() if value}, **parse_options(self.option)}


def open_sources(specs: Sequence[str], options: SourceOptions, declared: Format) -> list[Source]:
    """One source or several; of several each is described by a file of its own."""
    given = options.given()
    if given and len(specs) > 1:
        raise UsageError(
            f"option {next(iter(given))} is for one source, but several are given: describe each in its own .toml file"
        )
    return [open_source(spec, given, declared=declared) for spec in specs]


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` texts of a command line."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--option {text}: write NAME=VALUE")
        found[name.strip().replace("-", "_")] = value.strip()
    return found
