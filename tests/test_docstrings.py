"""The Python reference says what everything public takes and gives: every parameter, its unit and its default."""

import dataclasses
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numpydoc.docscrape import NumpyDocString, Parameter

import atdm

API = (Path(__file__).parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
PUBLIC = re.findall(r"^   (atdm\.\S+)$", API, re.M)
NUMBERS = ("float", "pandas.Series", "pandas.DataFrame")  # types whose descriptions must name a unit, as in [kW]


def named(name: str) -> Any:
    room, _, last = name.rpartition(".")
    return getattr(importlib.import_module(room), last)


def functions() -> Iterator[tuple[str, Any]]:
    """Public functions, and the methods of public classes."""
    for name in PUBLIC:
        thing = named(name)
        if inspect.isfunction(thing):
            yield name, thing
        elif not issubclass(thing, BaseException):
            for key, member in vars(thing).items():
                function = getattr(member, "__func__", member)
                if not key.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{key}", function


def classes() -> list[str]:
    return [name for name in PUBLIC if dataclasses.is_dataclass(named(name))]


def check(where: str, entry: Parameter) -> None:
    """An entry has a type, words, and a unit where it is a number with one."""
    words = " ".join(entry.desc)
    assert entry.type and words.strip(), f"{where}: {entry.name} has no type or no description"
    kinds = re.sub(r"\{.*\}|, default .*", "", entry.type)  # without the choices and the default
    if any(kind in kinds for kind in NUMBERS):
        assert re.search(r"\[[^\]]+\]|→", words), f"{where}: {entry.name} has no unit, such as [kW] or [-]"


def test_every_public_name_is_in_the_reference() -> None:
    for name in atdm.__all__:
        thing = getattr(atdm, name)
        inside = [f"{name}.{each}" for each in thing.__all__] if inspect.ismodule(thing) else [name]
        assert {f"atdm.{each}" for each in inside} <= set(PUBLIC), name
    for name in PUBLIC:
        assert inspect.getdoc(named(name)), name


@pytest.mark.parametrize("name, function", [pytest.param(*each, id=each[0]) for each in functions()])
def test_every_parameter_is_described_with_its_default(name: str, function: Any) -> None:
    signature, documented = inspect.signature(function), NumpyDocString(inspect.getdoc(function) or "")
    assert documented["Summary"], name
    asked = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    given = {each.lstrip("*"): entry for entry in documented["Parameters"] for each in entry.name.split(", ")}
    assert list(given) == [p.name for p in asked], f"{name}: Parameters are not those of the signature"
    for parameter in asked:
        entry = given[parameter.name]
        if parameter.kind is parameter.VAR_KEYWORD:
            assert " ".join(entry.desc).strip(), name
            continue
        check(name, entry)
        if parameter.default is None:
            assert entry.type.endswith((", optional", "None")), f"{name}: {parameter.name} may be left out"
        elif parameter.default is not parameter.empty:
            said = re.search(r", default (.+)$", entry.type)
            assert said is not None, f"{name}: {parameter.name} has a default"
            if isinstance(parameter.default, str | int | float | tuple):
                assert said[1] == repr(parameter.default).replace("'", '"'), f"{name}: default of {parameter.name}"
    if asked and signature.return_annotation not in (None, inspect.Signature.empty):
        assert documented["Returns"], f"{name}: what does it return?"
        for entry in documented["Returns"]:
            check(name, entry)


@pytest.mark.parametrize("name", classes())
def test_every_field_is_described_with_its_unit(name: str) -> None:
    thing = named(name)
    documented = NumpyDocString(inspect.getdoc(thing) or "")
    entries = {entry.name: entry for entry in (*documented["Parameters"], *documented["Attributes"])}
    shown = [field for field in dataclasses.fields(thing) if field.init]  # the others are worked out
    assert list(entries) == [field.name for field in shown]
    for field in shown:
        entry = entries[field.name]
        check(name, entry)
        said = re.search(r", default (.+)$", entry.type)
        if said is not None:
            assert said[1] == repr(field.default).replace("'", '"'), f"{name}: default of {field.name}"
        elif documented["Parameters"]:
            assert field.default in (None, dataclasses.MISSING), f"{name}: {field.name} has a default"


@pytest.mark.parametrize("name", classes())
def test_every_property_says_what_it_is(name: str) -> None:
    for key, member in vars(named(name)).items():
        if isinstance(member, property) and not key.startswith("_"):
            assert inspect.getdoc(member), f"{name}.{key}"


def test_examples_of_docstrings_run() -> None:
    examples = [test for name in PUBLIC for test in doctest.DocTestFinder(recurse=False).find(named(name), name)]
    assert any(test.examples for test in examples)
    for test in examples:
        assert doctest.DocTestRunner().run(test).failed == 0, test.name
