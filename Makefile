# Each target sets up what it needs in .venv; nothing but Python >= 3.11 and make is assumed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test bench format clean

demo: .venv/core
	@$(BIN)/python examples/demo.py

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -W error -n 2 --durations 10

bench: .venv/bench
	$(BIN)/python -m benchmarks

format: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/core: pyproject.toml
	@echo "Setting up .venv (once; a minute or so)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/test: .venv/core
	@echo "Installing the test tools into .venv (once)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

.venv/bench: .venv/test
	@echo "Installing the peers that the benchmarks run beside into .venv (once)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
