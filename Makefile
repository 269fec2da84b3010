# `make demo` and `make test` do all the set-up on a machine with Python >= 3.11, pip and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-minimum soak models coverage bench docs audit release browser clean

demo: .venv/demo.stamp
	$(BIN)/atdm demo

test: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not soak"

soak: .venv/dev.stamp
	$(BIN)/pytest -m soak -rP  # -rP: the figures of docs/reliability.md, printed at the end

# The quick part of the tests with every dependency at its lower bound; `make test` has the newest. Old packages beside
# new ones warn, so warnings are no errors here.
test-minimum: .venv-minimum/bin/python
	.venv-minimum/bin/uv pip install --quiet --python .venv-minimum/bin/python --resolution lowest-direct -e ".[dev]"
	.venv-minimum/bin/pytest -m "not soak" -o filterwarnings=default tests/crypto tests/data tests/kernel tests/model \
		tests/transport tests/protocol/test_agreement.py tests/protocol/test_blind.py
	.venv-minimum/bin/atdm doctor

# Every state of the models, the real account and small rings: the figures of docs/assurance.md. Wants spin and gcc.
models: .venv/dev.stamp
	$(BIN)/python -m tests.assurance

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

# Known weaknesses of what is installed; a package that cannot be looked up fails it too.
audit: .venv/release.stamp
	mkdir -p out
	$(BIN)/pip freeze --exclude-editable > out/installed.txt
	$(BIN)/pip-audit --strict --disable-pip --no-deps -r out/installed.txt

# Wheel, source and a list of everything a plain installation brings, with their hashes; the same bytes from the same commit.
release: .venv/release.stamp
	rm -rf dist out/release
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv --without-pip out/release
	$(BIN)/pip --python out/release/bin/python install --quiet --disable-pip-version-check dist/*.whl
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/cyclonedx-py environment --output-reproducible \
		-o dist/sbom.json out/release/bin/python
	cd dist && sha256sum * > SHA256SUMS

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

.venv/release.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[release]"
	touch $@

.venv-minimum/bin/python:
	$(PYTHON) -m venv .venv-minimum
	.venv-minimum/bin/pip install --quiet --disable-pip-version-check uv

clean:
	rm -rf .venv .venv-minimum out dist docs/generated
