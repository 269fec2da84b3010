"""What is published works without the checkout: built, installed into an empty environment, run from elsewhere."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


def call(*words: object, cwd: Path) -> str:
    quiet = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=quiet, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel made from the source distribution, not from the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def installed(folder: Path, *packages: object) -> Path:
    venv.create(folder, with_pip=True)
    call(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages, cwd=folder)
    return folder / "bin"


@pytest.mark.soak
def test_the_distributions_have_everything_and_nothing_else(built: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"atdm"}
    assert "atdm/py.typed" in names and any(name.endswith(".parquet") for name in names)
    (source,) = built.glob("*.tar.gz")
    inside = {name.partition("/")[2] for name in tarfile.open(source).getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "docs/reliability.md", "tests/clusters.py"} <= inside


@pytest.mark.soak
def test_wheel_and_source_built_twice_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From two copies in folders of other names, with files of other times and modes: what is published follows from
    the source alone."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    found: list[dict[str, bytes]] = []
    for name, umask in (("one", 0o022), ("another", 0o077)):
        source, dist = tmp_path / name / "source", tmp_path / name / "dist"
        ignored = shutil.ignore_patterns(".venv*", ".git", "out", "dist", "generated", "__pycache__", ".*_cache")
        before = os.umask(umask)
        try:
            shutil.copytree(ROOT, source, ignore=ignored, copy_function=shutil.copyfile)  # without times and modes
            call(sys.executable, "-m", "build", "--outdir", dist, source, cwd=tmp_path)
        finally:
            os.umask(before)
        found.append({path.name: path.read_bytes() for path in dist.iterdir()})
    assert len(found[0]) == 2 and found[0].keys() == found[1].keys()
    for name, content in found[0].items():
        assert content == found[1][name], f"{name} differs between two builds"


@pytest.mark.soak
def test_the_demo_runs_from_a_wheel_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    commands = installed(tmp_path / "venv", wheel)
    printed = call(commands / "atdm", "demo", cwd=tmp_path)
    assert "protocol blind" in printed and (tmp_path / "out" / "report.html").stat().st_size > 10_000
    where = call(commands / "python", "-c", "import atdm; print(atdm.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
    for words in (("--help",), ("--version",), ("fit", "--help"), ("rehearse", "--help")):
        call(commands / "atdm", *words, cwd=tmp_path)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def oldest(declared: list[str]) -> list[str]:
    return [name.replace(">=", "==") + (".*" if name.count(".") < 2 else "") for name in declared]


PAGE = """
import urllib.request
from atdm.ui.live import LiveState
from atdm.ui.serve import Address, serving
said = []
with serving(LiveState(), Address("127.0.0.1", 0), said.append):
    print(urllib.request.urlopen(said[0].removeprefix("live page: "), timeout=20).read().decode())
"""


@pytest.mark.soak
def test_the_oldest_server_of_the_live_page_that_is_promised_is_enough(wheel: Path, tmp_path: Path) -> None:
    try:
        commands = installed(tmp_path / "venv", wheel, *oldest(project()["optional-dependencies"]["ui"]))
    except AssertionError as error:
        if "No matching distribution" in str(error) or "Could not find a version" in str(error):
            pytest.skip("the package index here does not offer the oldest versions")
        raise
    assert "<title>atdm, live</title>" in call(commands / "python", "-c", PAGE, cwd=tmp_path)


@pytest.mark.soak
def test_the_oldest_dependencies_that_are_promised_are_enough(wheel: Path, tmp_path: Path) -> None:
    try:
        commands = installed(tmp_path / "venv", wheel, *oldest(project()["dependencies"]))
    except AssertionError as error:
        if "No matching distribution" in str(error) or "Could not find a version" in str(error):
            pytest.skip("the package index here does not offer the oldest versions")
        raise
    assert "protocol blind" in call(commands / "atdm", "demo", cwd=tmp_path)
