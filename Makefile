# drolearn: `make demo` shows what it does, `make test` checks that it does it.
# Both create .venv when there is none and reuse it as long as nothing it depends on changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Data sets that are not part of the package; tests that need one skip where it is absent.
ifneq ($(wildcard ../shared/datasets),)
export DROLEARN_DATA ?= $(abspath ../shared/datasets)
endif

.PHONY: demo test lint format bench paper clean

demo: $(VENV)/.demo  ## stress a model on real data: a table and demo.png
	@echo "Running examples/demo.py (the first time, compiling takes some 20 seconds)"
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest

lint: $(VENV)/.dev  ## style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## measure speed; rewrites benchmarks/results and docs/benchmarks.md
	$(BIN)/python -m benchmarks

paper: $(VENV)/.dev  ## the paper's tables and figures (about an hour); goes on where it was stopped
	$(BIN)/drolearn reproduce all --out results/paper --page docs/paper.md

$(VENV)/bin/python:
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing drolearn and what the demo needs into $(VENV) (a minute or so)"
	$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing drolearn and what tests and checks need into $(VENV) (some minutes)"
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) demo.png .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
