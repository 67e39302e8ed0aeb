# drolearn: `make demo` shows what it does, `make test` checks that it does it.
# Both create .venv when there is none and reuse it as long as nothing it depends on changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The core is compiled here when a file of it changed, and not when it is imported
# (editable.rebuild): tests import the package in many processes, each of which would call CMake,
# wait for the others, and fail where it may not write. Build tools come from .venv and objects stay
# in .venv/build, so that only what changed is compiled. Compilers are heard only if they fail; what
# CMake found out is forgotten then.
CORE := CMakeLists.txt tools/compiler.py $(wildcard src/core/*)
define install
@cxx=$$($(BIN)/python tools/compiler.py) && \
CXX="$$cxx" SKBUILD_BUILD_DIR="$(abspath $(VENV))/build/$$(basename "$$cxx")" \
$(INSTALL) --no-build-isolation -e $(1) || { rm -f $(VENV)/build/*/CMakeCache.txt; exit 1; }
endef

# How tests share the processors; those that start processes of their own are in one group.
PYTEST ?= -n auto --maxprocesses 8 --dist loadgroup
# The tests that reach all of the core.
SANITIZED ?= tests/test_core.py tests/test_divergence.py tests/test_draws.py tests/test_loss.py \
  tests/test_threads.py

# Data sets that are not part of the package; tests that need one skip where it is absent.
ifneq ($(wildcard ../shared/datasets),)
export DROLEARN_DATA ?= $(abspath ../shared/datasets)
endif

.PHONY: demo test lint format stubs sanitize wheel bench paper clean
.NOTPARALLEL:

demo: $(VENV)/.demo  ## stress a model on real data: a table and demo.png
	@echo "Running examples/demo.py"
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest $(PYTEST)

lint: $(VENV)/.dev  ## style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(wildcard src/core/*)
	$(BIN)/python tools/stubs.py --check
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(wildcard src/core/*)

stubs: $(VENV)/.dev  ## rewrite src/drolearn/_core.pyi, the types of the core
	$(BIN)/python tools/stubs.py

sanitize: $(VENV)/.dev  ## tests of the core with checks of every access to memory (needs g++)
	@tools/sanitize/run $(BIN)/python $(PYTEST) $(SANITIZED)

wheel: $(VENV)/.tools  ## a wheel in dist, tried in an empty environment
	@tools/wheel $(BIN)/python

bench: $(VENV)/.dev  ## measure speed; rewrites benchmarks/results and docs/benchmarks.md
	$(BIN)/python -m benchmarks

paper: $(VENV)/.dev  ## the paper's tables and figures (about an hour); goes on where it was stopped
	$(BIN)/drolearn reproduce all --out results/paper --page docs/paper.md

$(VENV)/bin/python:
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# scikit-build-core tells what else it needs: CMake and ninja, where the system's are too old.
$(VENV)/.tools: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing what builds the core into $(VENV)"
	@$(INSTALL) nanobind scikit-build-core
	@$(INSTALL) scikit-build-core $$($(BIN)/python -c \
	  'from scikit_build_core.build import *; print(*get_requires_for_build_editable())')
	@touch $@

$(VENV)/.demo: $(CORE) pyproject.toml constraints.txt $(VENV)/.tools
	@echo "Installing drolearn and what the demo needs into $(VENV), compiling the core (two minutes or so)"
	$(call install,'.[demo]')
	@touch $@

$(VENV)/.dev: $(CORE) pyproject.toml constraints.txt $(VENV)/.tools
	@echo "Installing drolearn and what tests and checks need into $(VENV), compiling the core (some minutes)"
	$(call install,'.[dev]')
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist demo.png .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
