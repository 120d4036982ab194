# make demo   train and explain on generated molecules, and write a page      (about a minute)
# make test   run the tests, and the examples in docstrings, on two workers    (about 5 minutes)
# make test-cluster   kill parts of a Ray cluster on this machine              (about 2 minutes)
# make lint   ruff and strict mypy
# make docs   build the pages of docs/ into build/site
# Each creates its own virtual environment in .venv and installs what is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: demo test test-cluster lint docs format clean

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

test: $(STAMP)
	@$(BIN)/python -m pytest -n 2 -m "not cluster"

test-cluster: $(STAMP)
	@$(BIN)/python -m pytest -m cluster tests/screening

lint: $(STAMP)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Look at build/site/index.html"

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) demo-output build .pytest_cache .mypy_cache .ruff_cache

# torch goes first, by its pinned version: a range would take a build with gigabytes of CUDA
$(STAMP): pyproject.toml src/nicegnn_lab/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing nicegnn and what it needs into $(VENV) (a few minutes the first time) ..."
	@$(PIP) install -c constraints.txt setuptools wheel
	@$(PIP) install -c constraints.txt torch
	@$(PIP) install -c constraints.txt --no-build-isolation -e ".[dev]" -e src/nicegnn_lab
	@touch $@
