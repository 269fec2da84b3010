"""The README can be believed: its Python example runs, its commands exist, its links lead somewhere."""

import re
from pathlib import Path

import pytest

from atdm.cli import FILES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(program, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert 0.87 < float(lines[0]) < 0.89
    assert any(line.startswith("aggregator state") for line in lines)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"(?:`|^    )atdm ([a-z]+) ", README, flags=re.MULTILINE))))
def test_every_command_named_exists(name):
    assert name in FILES


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_every_link_leads_to_a_file(target):
    assert (ROOT / target).exists()
