# drolearn: `make demo` shows what the library does, `make test` runs all tests.
# Both create .venv if it does not exist, and update it when its requirements change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
QUIET := --quiet --disable-pip-version-check
INSTALL := $(BIN)/python -m pip install $(QUIET) -c constraints.txt

# `$(call build,pip command,what to build)` compiles the core. Make does this when a file of the core
# changed. Compiling on import (editable.rebuild) does not work here: tests import the package in many
# processes, each of which would call CMake, wait for the others, and fail on read-only folders. Build
# tools come from .venv and objects stay in .venv/build, so only changed files are compiled. Compiler
# output is shown only if the build fails; the cache of CMake is then deleted.
CORE := CMakeLists.txt tools/compiler.py $(wildcard src/core/*)
define build
@cxx=$$($(BIN)/python tools/compiler.py) && \
CXX="$$cxx" SKBUILD_BUILD_DIR="$(abspath $(VENV))/build/$$(basename "$$cxx")" \
$(1) --no-build-isolation $(2) || { rm -f $(VENV)/build/*/CMakeCache.txt; exit 1; }
endef

# Tests run on all processors; tests that start processes themselves are in one xdist group.
PYTEST ?= -n auto --maxprocesses 8 --dist loadgroup
# The tests that reach all of the core.
SANITIZED ?= tests/test_core.py tests/test_divergence.py tests/test_draws.py tests/test_fuzz_core.py \
  tests/test_group_draws.py tests/test_loss.py tests/test_small_radii.py tests/test_threads.py

# Data sets that are not part of the package; tests that need them are skipped without them.
ifneq ($(wildcard ../shared/datasets),)
export DROLEARN_DATA ?= $(abspath ../shared/datasets)
endif

.PHONY: demo test test-oldest soak coverage lint format stubs sanitize wheel reproducible audit docs bench bench-compare paper clean
.NOTPARALLEL:

demo: $(VENV)/.demo  ## a shift, worst cases and the paper's methods on real data: tables and demo.png
	@echo "Running examples/demo"
	@$(BIN)/python -m examples.demo

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest $(PYTEST)

test-oldest: $(OLDEST)/.installed  ## tests of core and estimators with the oldest dependencies
	$(OLDEST)/bin/python -m pytest $(PYTEST) @tools/oldest-tests.txt

# The tests that try more if DROLEARN_SOAK is set; see tests/soak.py.
SOAK ?= tests/test_fuzz_core.py tests/test_fuzz_readers.py tests/test_kills.py tests/test_load.py \
  tests/test_random_parameters.py

soak: $(VENV)/.dev  ## kills, loads and random input for hours; the core under sanitizers, too
	@$(INSTALL) atheris
	DROLEARN_SOAK=1 $(BIN)/python -m pytest $(PYTEST) $(SOAK)
	DROLEARN_SOAK=1 tools/sanitize/run $(BIN)/python $(PYTEST) tests/test_fuzz_core.py

coverage: $(VENV)/.dev  ## all tests, and which lines of the Python code they run
	$(BIN)/python -m pytest $(PYTEST) --cov --cov-report term:skip-covered

lint: $(VENV)/.dev  ## style, spelling, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/clang-format --dry-run -Werror $(wildcard src/core/*)
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python tools/docstrings.py
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(wildcard src/core/*)

stubs: $(VENV)/.dev  ## rewrite src/drolearn/_core.pyi, the types of the core
	$(BIN)/python tools/stubs.py

sanitize: $(VENV)/.dev  ## tests of the core under the address and undefined behaviour sanitizers (needs g++)
	@tools/sanitize/run $(BIN)/python $(PYTEST) $(SANITIZED)

wheel: $(VENV)/.tools  ## a wheel in dist, tried in an empty environment
	@tools/wheel $(BIN)/python

reproducible: $(VENV)/.tools  ## build sdist and wheel twice in different folders and compare their bytes
	@tools/reproducible $(BIN)/python

audit: $(VENV)/bin/python  ## known vulnerabilities of the versions in constraints.txt; needs a network
	@tools/audit $(BIN)/python

docs: $(VENV)/.dev  ## the documentation site in build/site, with its gallery; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going --quiet docs build/site
	@echo "Open build/site/index.html"

bench: $(VENV)/.dev  ## measure speed; rewrites benchmarks/results and docs/benchmarks.md
	$(BIN)/python -m benchmarks

bench-compare: $(VENV)/.dev  ## time two commits, BEFORE and AFTER (HEAD), side by side
	@cxx=$$($(BIN)/python tools/compiler.py) && CXX="$$cxx" \
	$(BIN)/python -m benchmarks.compare $(or $(BEFORE),HEAD~1) $(or $(AFTER),HEAD) $(COMPARE)

paper: $(VENV)/.dev  ## the paper's tables and figures (about an hour); resumes after a stop
	$(BIN)/drolearn reproduce all --out results/paper --page docs/paper.md

$(VENV)/bin/python:
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# scikit-build-core also needs CMake and ninja, unless the system's are new enough.
$(VENV)/.tools: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing build tools into $(VENV)"
	@$(INSTALL) nanobind scikit-build-core
	@$(INSTALL) scikit-build-core $$($(BIN)/python -c \
	  'from scikit_build_core.build import *; print(*get_requires_for_build_editable())')
	@touch $@

# The list of modules. An editable installation finds only modules that existed when it was made, so it
# is repeated when a module is added or removed.
$(VENV)/.modules: FORCE | $(VENV)/bin/python
	@find src/drolearn -name '*.py' | LC_ALL=C sort >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

FORCE:

# The time stamps are those of the start: what is edited during a build is built next time.
$(VENV)/.demo: $(CORE) pyproject.toml constraints.txt $(VENV)/.modules $(VENV)/.tools
	@echo "Installing drolearn and what the demo needs into $(VENV), compiling the core (two minutes or so)"
	@touch $@.new
	$(call build,$(INSTALL),-e '.[demo]')
	@mv $@.new $@

$(VENV)/.dev: $(CORE) pyproject.toml constraints.txt $(VENV)/.modules $(VENV)/.tools
	@echo "Installing drolearn and what tests and checks need into $(VENV), compiling the core (some minutes)"
	@touch $@.new
	$(call build,$(INSTALL),-e '.[dev]')
	@touch -r $@.new $(VENV)/.demo
	@mv $@.new $@

# The wheel is built in .venv, where the core is compiled already, and installed together with the
# oldest dependencies. pip would keep an installed wheel of the same version.
$(OLDEST)/.installed: $(CORE) $(shell find src/drolearn -type f -not -name '*.pyc') pyproject.toml \
  constraints-oldest.txt $(VENV)/.modules $(VENV)/.tools
	@echo "Installing drolearn and its oldest dependencies into $(OLDEST)"
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@echo '*' >$(OLDEST)/.gitignore
	@rm -rf $(OLDEST)/wheel
	$(call build,$(BIN)/python -m pip wheel $(QUIET),--no-deps -w $(OLDEST)/wheel .)
	@$(OLDEST)/bin/python -m pip install $(QUIET) --no-deps --force-reinstall $(OLDEST)/wheel/*.whl
	@$(OLDEST)/bin/python -m pip install $(QUIET) -c constraints-oldest.txt \
	  "$$(echo $(OLDEST)/wheel/*.whl)[test]"
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) build dist docs/api docs/gallery demo.png .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
