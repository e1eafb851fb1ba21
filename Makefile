# Two commands matter: `make demo` and `make test`. Each sets everything up by itself and reuses .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The installed library must be the checkout's, whatever the caller's environment says.
unexport PYTHONPATH PYTHONHOME

CORE := CMakeLists.txt pyproject.toml $(wildcard csrc/* bindings/*)

.PHONY: demo test lint bench models format clean

demo: $(VENV)/.ready
	@$(BIN)/pytrace models pull tiny
	@$(BIN)/python examples/demo.py

test: $(VENV)/.ready-test
	@$(BIN)/pytrace models pull tiny
	$(BIN)/python -m pytest

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest pytrace._core
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/clang-format --dry-run --Werror $(wildcard csrc/*.h csrc/*.cc bindings/*.h bindings/*.cpp)

bench: $(VENV)/.ready-test
	$(BIN)/pip install --quiet --editable '.[bench]'
	$(BIN)/pytrace bench

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(wildcard csrc/*.h csrc/*.cc bindings/*.h bindings/*.cpp)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'

# Editable: the Python layer runs from the checkout, the core is rebuilt when its sources change.
$(VENV)/.ready: $(BIN)/python $(CORE)
	$(BIN)/pip install --editable '.[cpu]' --config-settings=cmake.define.PYTRACE_WERROR=ON
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(BIN)/pip install --quiet --group test
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-test
	$(BIN)/pip install --quiet --group dev
	@touch $@

clean:
	rm -rf build dist .venv .pytest_cache .mypy_cache .ruff_cache
