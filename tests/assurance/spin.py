"""Spin on questions.pml and companies.pml: every state of a small world, and every rule left out in turn.

Spin 6 (Debian: apt install spin) and a C compiler are needed. python -m tests.assurance prints what they find.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from atdm.protocol import account, company, plan
from atdm.protocol.rules import Rules

FOLDER = Path(__file__).parent
SECONDS = 600  # a world that takes longer is too large

CONSTANTS = {  # of a model → what the code says; a model's own #define is the same number
    "questions": {
        "TOTALS": Rules().totals, "SIGNS": plan.MOST_SIGNS, "ASKINGS": account.MOST_ASKINGS,
    },
    "companies": {
        "BLOCK": account.BLOCK, "LEAST": Rules().least_agents, "PART": company.OWNERS_SHARE[0],
        "WHOLE": company.OWNERS_SHARE[1],
    },
}  # fmt: skip

# Worlds that are searched whole. One constant at a time has its real value: no rule looks at two of them.
SMALL = {"TOTALS": 2, "SIGNS": 1, "ASKINGS": 1, "DAYS": 2}
ONE_DAY = {"TOTALS": 1, "SIGNS": 1, "ASKINGS": 2, "DAYS": 1}
FEW = {"BLOCK": 2, "LEAST": 2}
WORLDS: tuple[tuple[str, dict[str, int]], ...] = (
    ("questions", SMALL),
    *(("questions", {**ONE_DAY, name: value}) for name, value in CONSTANTS["questions"].items()),
    ("companies", {**FEW, "HONEST": 3, "MEMBERS": 3, "DAYS": 2}),
    ("companies", {**FEW, "HONEST": 2, "MEMBERS": 4, "DAYS": 2}),
    ("companies", {**FEW, "HONEST": 2, "MEMBERS": 3, "DAYS": 3}),
)

# Every rule of the models, and a world in which its absence shows.
WITHOUT: tuple[tuple[str, str, dict[str, int]], ...] = (
    *(("questions", rule, SMALL) for rule in (
        "ONE_WEIGHTING", "ONE_GRID", "ONE_PLAN", "ONE_FIT", "ONE_MODEL", "ONE_RELEASE", "MOST_TOTALS", "MOST_SIGNS",
        "MOST_ASKINGS", "MOST_SHOWINGS", "BOOKED_FIRST",
    )),
    ("companies", "ONE_COMPANY", {**FEW, "DAYS": 1}),
    ("companies", "SHRINK_LATER", {**FEW, "HONEST": 2, "DAYS": 2}),
    ("companies", "SHRINK_EARLIER", {**FEW, "HONEST": 2, "DAYS": 2}),
    ("companies", "LARGE", {**FEW, "LEAST": 3, "DAYS": 1}),
    ("companies", "SHARE", {**FEW, "MEMBERS": 4, "DAYS": 1}),
    ("companies", "HOLE", {**FEW, "HONEST": 2, "DAYS": 2}),
    ("companies", "BOOKED_FIRST", {**FEW, "DAYS": 1}),
)  # fmt: skip


class Checked(NamedTuple):
    states: int
    violation: str  # the assertion, empty: none


def there() -> bool:
    return all(shutil.which(name) for name in ("spin", "gcc"))


def defaults(model: str) -> dict[str, int]:
    """Numbers of a model's own #define lines."""
    text = (FOLDER / f"{model}.pml").read_text(encoding="utf-8")
    return {name: int(value) for name, value in re.findall(r"^#define (\w+) (\d+)\b", text, re.M)}


def rules(model: str) -> list[str]:
    """The switches that a model lists under its rules."""
    text = (FOLDER / f"{model}.pml").read_text(encoding="utf-8")
    return re.findall(r"^#ifndef (\w+)$", text[text.index("/* The rules. */") :], re.M)


def check(model: str, world: dict[str, int], without: str = "") -> Checked:
    """Every state of a world; without a rule, breadth first to the first violation."""
    given = {**world, **({without: 0} if without else {})}
    with tempfile.TemporaryDirectory() as folder:
        _call(folder, "spin", "-a", *_defined(given), str(FOLDER / f"{model}.pml"))
        shape = ["-DBFS"] if without else []
        _call(
            folder,
            "gcc",
            "-w",
            "-O0" if without else "-O1",
            "-DSAFETY",
            "-DCOLLAPSE",
            "-DMEMLIM=2000",
            *shape,
            "-o",
            "pan",
            "pan.c",
        )
        said = _call(folder, "./pan", "-m200000")
    errors, states = re.search(r"errors: (\d+)", said), re.search(r"(\d+) states, stored", said)
    cut_short = "Search not completed" in said or "max search depth" in said
    if errors is None or states is None or (cut_short and errors[1] == "0"):
        raise AssertionError(f"{model} {given}: the search was not completed\n{said}")
    violated = re.search(r"assertion violated (.+) \(at depth", said)
    if int(errors[1]) and violated is None:
        raise AssertionError(f"{model} {given}: another error than a violated assertion\n{said}")
    return Checked(int(states[1]), violated[1] if violated else "")


def simulated(model: str, world: dict[str, int], seed: int, steps: int) -> str:
    """The events of one random run."""
    with tempfile.TemporaryDirectory() as folder:
        return _call(folder, "spin", f"-n{seed}", f"-u{steps}", *_defined(world), str(FOLDER / f"{model}.pml"))


def _defined(world: dict[str, int]) -> list[str]:
    return [f"-D{name}={value}" for name, value in world.items()]


def _call(folder: str, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise AssertionError(f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
