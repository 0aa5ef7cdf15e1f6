# make demo   find the leak in examples/leaky.py
# make test   run the tests; WHERE=tests/probes a part of them, SEED=3 in another order
# make check  formatting, lint, types, generated documents
# make docs   write the generated documents again
# make bench  what torchvet costs, beside other tools
# Each makes .venv first if need be; PYTHON picks the interpreter that makes it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= auto
WHERE ?=
SEED ?=

.PHONY: demo test check docs bench clean

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

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m torchvet.docs --check

docs: $(STAMP)
	$(BIN)/python -m torchvet.docs

bench: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/overhead.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
