# Every target creates .venv when it is missing and installs the tested set into it.
PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0
export DAGSTER_HOME ?= $(CURDIR)/.dagster

.PHONY: install demo test test-all ui lint bench

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
# agml asks for both OpenCV wheels; they overwrite one another, and only the headless one needs no libGL.
	$(BIN)/pip uninstall --quiet --yes opencv-python
	$(BIN)/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps -c constraints.txt opencv-python-headless
	touch $@

install: .venv/installed .dagster/dagster.yaml

.dagster/dagster.yaml:
	mkdir -p .dagster
	ln -sf ../dagster.yaml $@

# A scored report of a real run: 300 drawn leaves with planted faults; no network needed.
demo: install
	$(BIN)/python -m agml_assets.demo

# The Dagster UI on http://127.0.0.1:3000
ui: install
	$(BIN)/dagster dev -w workspace.yaml

# Two files at a time; those that share a cluster come after one another.
test: install
	$(BIN)/pytest -m "not slow" -n 2 --dist loadfile

test-all: test
	$(BIN)/pytest -m slow -n 2 --dist loadfile --ignore tests/slurm
	$(BIN)/pytest tests/slurm

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Ratios against the obvious way, into docs/speed.md.
bench: install
	$(BIN)/python benchmarks/make_table.py
