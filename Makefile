# `make demo` and `make test` do all the set-up on a machine with Python >= 3.11, pip and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test soak coverage bench docs browser clean

demo: .venv/demo.stamp
	$(BIN)/atdm demo

test: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not soak"

soak: .venv/dev.stamp
	$(BIN)/pytest -m soak -rP  # -rP: the figures of docs/reliability.md, printed at the end

coverage: .venv/dev.stamp
	$(BIN)/coverage run -m pytest -m "not soak" tests/crypto tests/protocol tests/reliability
	$(BIN)/coverage report --show-missing --skip-covered --fail-under=95
	$(BIN)/coverage json -q -o .venv/figures.json
	$(BIN)/python -m tests.reliability.figures .venv/figures.json

bench: .venv/dev.stamp
	$(BIN)/atdm bench

docs: .venv/dev.stamp
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/flow_figure.py
	$(BIN)/python tools/state_diagrams.py
	$(BIN)/python tools/import_graph.py
	rm -rf docs/generated  # pages of names that are gone would be built too
	$(BIN)/sphinx-build -W --keep-going -q -d out/doctrees docs out/site

# The report's tests use a chromium that is there; this tries to install Debian's where it is not.
browser:
	command -v chromium || (apt-get update && apt-get install -y chromium)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@ .venv/demo.stamp

clean:
	rm -rf .venv out dist docs/generated
