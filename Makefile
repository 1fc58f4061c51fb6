# make demo: train a real model on this machine. make test: what CI runs. make test-full: everything.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN = .venv/bin
PIP = PIP_CONSTRAINT=$(abspath $(CONSTRAINTS)) $(BIN)/pip --disable-pip-version-check

# One process a core; a file's tests stay together, and share what its fixtures make.
PARALLEL = -n auto --dist loadfile --durations 20

.PHONY: install demo test test-full lint clean

install: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install -q -e .
	touch $@

.venv/.dev: .venv/.installed
	$(PIP) install -q -e .[dev]
	touch $@

demo: install
	$(BIN)/truing train recipes/demo.toml

test: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/pytest $(PARALLEL) -m "not slow and not gpu"

test-full: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/pytest $(PARALLEL)

lint: .venv/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build src/*.egg-info
