# Each target sets up what it needs in .venv; nothing but Python >= 3.11 and make is assumed.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS ?= test

.PHONY: demo test paper bench bench-docs format clean

# Shows a command, and runs it
shown = @echo; echo '$$ $(1)'; PATH="$(abspath $(BIN)):$$PATH" sh -c '$(1)'

demo: .venv/core
	@mkdir -p demo && rm -f demo/channel.hmm
	@echo "An ion channel that is closed, half open or open, in noise; simulated, then learned in one pass"
	$(call shown,hmmstream sample ion-channel --rows 500000 --output demo/channel.csv)
	$(call shown,hmmstream learn demo/channel.csv --states 3 --checkpoint demo/channel.hmm --plot demo/channel.png)
	@echo; echo "More of the same, live: what is the channel doing, how surprising was that, what comes next?"
	$(call shown,hmmstream sample ion-channel --rows 1000 --seed 7 | hmmstream watch - --checkpoint demo/channel.hmm --every 250)
	@echo; echo "The picture is demo/channel.png; docs/command-line.md tells more"

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -W error -n 2 --dist loadfile --no-loadscope-reorder --durations 10  # a file's tests share what they compile

paper: .venv/paper
	$(BIN)/python -m paper

bench: .venv/bench
	$(BIN)/python -m benchmarks

# The same, into the documentation and the README
bench-docs: .venv/bench
	$(BIN)/python -m benchmarks --docs docs/benchmarks --readme README.md

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
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

.venv/paper: .venv/core
	@echo "Installing what the report needs into .venv (once)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[paper]'
	@touch $@

.venv/bench: .venv/test
	@echo "Installing the peers that the benchmarks run beside into .venv (once)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	@touch $@

clean:
	rm -rf .venv demo paper/results benchmarks/results .mypy_cache .ruff_cache .pytest_cache
