# make demo   find the leak in examples/leaky.py
# make test   run the tests; WHERE=tests/probes a part of them, SEED=3 in another order
# make check  formatting, lint, types, generated documents
# make docs   write the generated documents again
# make site   build the documentation as a site, below build/site
# make bench  what torchvet costs, beside other tools
# make proofs measure again what the rules' pages claim
# make test-torch TORCH=2.6.0 [PYTHON=python3.10]   try what torchvet promises on another torch
# Each makes .venv first if need be; PYTHON picks the interpreter that makes it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= auto
TORCH ?= 2.6.0
OTHER = .venv-torch/$(TORCH)-py$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
WHERE ?=
SEED ?=

.PHONY: demo test fuzz check docs site bench proofs test-torch torch-env compatibility clean

# The dev extra pins torch exactly, for the demo as for the tests: one resolution, one download.
$(STAMP): pyproject.toml
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# A leak is found: exit status 1 is the demonstration's success, anything else its failure.
demo: $(STAMP)
	@$(BIN)/torchvet run examples/leaky.py; status=$$?; \
	if [ $$status -ne 1 ]; then echo "make demo: expected findings (exit status 1), got $$status" >&2; exit 1; fi

# One thread per worker: torch's own thread pools would fight over the cores.
test: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(if $(SEED),--shuffle $(SEED)) $(WHERE); status=$$?; \
	if [ $$status -eq 5 ]; then echo "make test: no test was collected, and there are tests: a failure" >&2; fi; \
	exit $$status

# Hostile input that no run has tried yet. What fails becomes an `@example`.
fuzz: $(STAMP)
	@TORCHVET_FUZZ=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $$(grep -rl hypothesis tests --include='test_*.py')

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m torchvet.docgen --check

docs: $(STAMP)
	$(BIN)/python -m torchvet.docgen
	$(BIN)/torchvet skill install --plugin plugin

site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/overhead.py

proofs: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m casebook.proofs

# An environment for each torch and Python. What pip brings is the CUDA build, up to 7 GB of it.
torch-env:
	@$(OTHER)/bin/python -c 'import torch, torchvet' 2>/dev/null || { \
	  $(PYTHON) -m venv --clear $(OTHER) && $(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --no-cache-dir --editable . 'torch==$(TORCH)' 'numpy>=1.26'; }

test-torch: torch-env
	@mkdir -p .venv-torch/results
	OMP_NUM_THREADS=1 $(OTHER)/bin/python tests/compatibility/contract.py --json .venv-torch/results/$(notdir $(OTHER)).json

# docs/compatibility.md from the results kept in tests/compatibility/results
compatibility:
	$(BIN)/python tests/compatibility/table.py

clean:
	rm -rf $(VENV) .venv-torch build dist .pytest_cache .mypy_cache .ruff_cache
