"""The documentation can fail: examples run, references are current, links lead somewhere."""

import importlib
import importlib.util
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from atdm import cli
from atdm.protocol.ledger import What
from atdm.report.learned import MEANING

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
WRITTEN = "cli.md"  # from the code: nothing in it is an example
OFFLINE = ("deploy.md", "homeassistant.md")  # their commands need a server and keys; tests/deploy runs them


def load(tool: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(tool, ROOT / "tools" / f"{tool}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[tool] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def examples(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(python|console)\n(.*?)^```", text, re.S | re.M)


EXAMPLES = [page for page in PAGES if page not in (WRITTEN, *OFFLINE) and examples(page)]


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom, in an empty folder: Python blocks share one namespace, commands see its files."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, body in examples(page):
        if language == "python":
            exec(compile(body, f"docs/{page}", "exec"), names)
            continue
        for line in body.splitlines():
            if line.startswith("$ atdm "):
                expected = re.search(r"# exit (\d+)", line)
                code = run(shlex.split(line[2:], comments=True), monkeypatch)
                assert code == (int(expected[1]) if expected else 0), line


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", words)
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_the_reference_of_commands_is_current() -> None:
    expected = load("reference").cli_page()
    assert (DOCS / WRITTEN).read_text(encoding="utf-8") == expected, "run python tools/reference.py"


def test_every_command_is_in_the_reference() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name, _ in load("reference").commands():
        assert f"## {name}\n" in text


@pytest.mark.parametrize("tool", ["flow_figure", "import_graph"])
def test_figures_are_current(tool: str) -> None:
    for name, content in load(tool).figures().items():
        assert (DOCS / "figures" / name).read_text(encoding="utf-8") == content, f"run python tools/{tool}.py"


def test_no_room_imports_one_that_comes_after_it() -> None:
    graph = load("import_graph")
    rooms = graph.rooms_of_the_code()
    folders = {path.stem for path in (ROOT / "src" / "atdm").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {*rooms, *graph.ENTRY} == folders - {"__pycache__", "py"}, "a room is missing in the figure"
    assert graph.against(rooms) == []


def test_every_room_says_its_purpose_and_is_on_the_page_of_rooms() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    for room in load("import_graph").rooms_of_the_code():
        assert inspect.getdoc(importlib.import_module(f"atdm.{room}")), f"atdm.{room} has no docstring"
        assert f"| `{room}" in page, f"docs/architecture.md has no row for {room}"


def test_every_file_that_the_page_of_rooms_names_exists() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    now = page.replace(page[page.index("### Before") : page.index("## One fit")], "")
    for name in re.findall(r"`((?:src|tests|tools|docs|vectors)?/?[\w/]+\.(?:py|md|toml|json))`", now):
        assert any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "atdm")), name


def test_the_specification_has_every_message_of_blind_and_its_figure() -> None:
    spec = (DOCS / "spec.md").read_text(encoding="utf-8")
    drawn = load("state_diagrams").PHASES
    phases = [*drawn["blind"], *drawn["collect"]]
    assert [m.phase for m in load("flow_figure").MESSAGES] == phases
    for phase in phases:
        assert f"figures/blind-{phase}.svg" in spec and re.search(rf"^### .*\b{phase}\b", spec, re.M), phase


def test_the_report_has_words_for_everything_the_ledger_can_hold() -> None:
    assert set(MEANING) == set(What.__args__)  # type: ignore[attr-defined]


def test_numbers_of_the_specification_are_those_of_the_code() -> None:
    from atdm.crypto.graph import SIGMA
    from atdm.crypto.ring import CHECK_WORDS
    from atdm.kernel.descent import LADDER
    from atdm.protocol import account, plan, rules
    from atdm.protocol.blind import direction, layouts, release, script

    spec = (DOCS / "spec.md").read_text(encoding="utf-8")
    own = rules.Rules()
    for words in (
        f"the {CHECK_WORDS} check words", f"| {layouts.TOTAL_BITS}, no more;",
        f"| {layouts.SQUARE_BITS}, (2¹⁴ − 1)/K |",
        f"| {len(LADDER)} under `nonnegative", f"j = −{-LADDER[0]} … {LADDER[-1]}",
        f"{direction.CONTRACTION} √Σ raw²", f"passes {script.ILL_CONDITIONED:.0e}".replace("e+06", "e6"),
        f"min(⌊(owners − c)/{own.agents_per_total}⌋, {own.totals})",
        f"{release.VERIFY:.0e} relative".replace("e-09", "e-9"),
        f"| {plan.MOST_SIGNS} `signs` |", f"| {account.BLOCK} days (UTC day number div {account.BLOCK}) |",
        f"| {account.HOLE // 3600} h |", f"| {account.MOST_ASKINGS} times in all |",
        f"| {account.FITTED_DAYS} of any {account.OF_DAYS} days; {own.days_after_fit} days |",
        f"| `least_agents` | {own.least_agents} |", f"| `day_share` | {own.day_share} |", f"| `clip` | {own.clip:g} |",
        f"| `weights` | `{own.weights}` |", f"| `rows_per_parameter` | {own.rows_per_parameter:g} |",
        f"| `least_days` | {own.least_days:g} |", "| `ridge`, `train`, `order` | {:g} … {:g}, ".format(*own.ridge),
        f"| `version` | {plan.VERSION} |", f"| metrics | {len(layouts.METRICS)} |",
        f"a step of at least {plan.LEAST_STEP // 60} min", "a chance of 2⁻⁸⁰" if SIGMA == 80 else "?",
    ):  # fmt: skip
        assert words in spec, words


def test_every_rule_of_an_agent_is_in_the_specification() -> None:
    from dataclasses import fields

    from atdm.protocol.rules import Rules

    spec = (DOCS / "spec.md").read_text(encoding="utf-8")
    section = spec[spec.index("## 8. Agents' rules") : spec.index("## 9. ")]
    for field in fields(Rules):
        assert f"`{field.name}`" in section, field.name


def test_every_message_and_field_is_in_the_specification() -> None:
    import msgspec

    from atdm.protocol.messages import ToAgent, ToAggregator
    from atdm.protocol.plan import Collect, Plan
    from atdm.protocol.roster import Member, Roster

    spec = (DOCS / "spec.md").read_text(encoding="utf-8")
    section = spec[spec.index("## 3. Parties") : spec.index("## 4. ")]
    messages = {*ToAgent.__args__, *ToAggregator.__args__}  # type: ignore[attr-defined]
    for kind in messages:
        assert f"`{kind.__name__}`" in section, kind.__name__
    for kind in (*messages, Plan, Collect, Roster, Member):
        for field in msgspec.structs.fields(kind):
            assert f"`{field.name}`" in section, f"{kind.__name__}.{field.name}"


def test_the_walk_of_a_fit_names_real_functions_and_says_why_it_returns() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    seen: set[str] = set()
    for number, (step, file, words) in enumerate(re.findall(r"^\| (\d+) \| `(\S+)` \| (.+) \|$", page, re.M), 1):
        assert int(step) == number
        source = (ROOT / "src" / "atdm" / file).read_text(encoding="utf-8")
        for function in re.findall(r"`(\w+)\(\)`", words):
            assert f"def {function}(" in source, f"step {step}: {file} has no {function}"
        assert (file in seen) == words.startswith("↩ "), f"step {step}: {file}"
        assert not words.startswith("↩ ") or "Back here because" in words, f"step {step}: why does it return?"
        seen.add(file)
    assert len(seen) > 15


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (DOCS / page).read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (DOCS / target).exists(), f"{page} links to {target}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Every page in the navigation, every link and anchor found, every docstring understood."""
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("generated"))
    site = tmp_path / "site"
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(tmp_path / "docs"), str(site)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert 'href="spec.html#threat-model"' in (site / "using.html").read_text(encoding="utf-8")
    assert 'id="threat-model"' in (site / "spec.html").read_text(encoding="utf-8")
    assert "solver_tolerance" in (site / "generated" / "atdm.fit.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        asked = re.findall(r'(?:src|href)="(https?:[^"]*\.(?:js|css|woff2?|png|svg))', page.read_text(encoding="utf-8"))
        assert not asked, f"{page.name} asks another server for {asked}"
