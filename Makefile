# Every verb a newcomer needs; CONTRIBUTING.md explains them in one page.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup up test check sim soak docs codegen clean

help:
	@echo "make up       set up and run the broker        make quick    what tells most, in 90 seconds"
	@echo "make test     set up and run all tests         make check    lint, types, import contracts"
	@echo "make sim      more simulation seeds (SEEDS=n)  make clients  foreign clients and the oracle"
	@echo "make bench    side by side with Apache Kafka   make soak     the long forms (PART=...)"
	@echo "make docs     regenerate generated pages       make codegen  regenerate the wire codecs"
	@echo "make setup    only install the broker"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The broker alone: no test tools, no Spark, no Java.
$(VENV)/.broker: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install -e ".[dev]"
	@touch $@ $(VENV)/.broker

setup: $(VENV)/.broker

up: setup
	$(BIN)/penstock up $(ARGS)

test: $(VENV)/.dev
	@$(BIN)/python -m compileall -q src  # once, not in each of a thousand processes
	@# What pytest makes of the tests is kept for the next run, whatever the shell says: thirty seconds of each worker.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 -m "not clients and not soak" $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_seams.py

SEEDS ?= 1000
sim: $(VENV)/.dev
	PENSTOCK_SIM_SEEDS=$(SEEDS) $(BIN)/python -m pytest tests/sim $(ARGS)

docs: $(VENV)/.dev
	$(BIN)/python tools/gen_docs.py

codegen: $(VENV)/.dev
	$(BIN)/python -m tools.codegen

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache

-include benchmarks/bench.mk
-include tests/clients/clients.mk
-include tests/soak.mk
-include tests/quick.mk
