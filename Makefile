# Everything runs from `.venv`, made from the committed lock file; nothing else on the machine is touched.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint check format lock clean

demo: $(READY)  ## run the whole pipeline on real events
	$(BIN)/headworks demo

test: $(READY)  ## run every test
	$(BIN)/pytest -n 2 --dist loadfile

lint: $(READY)  ## formatting, lint rules and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test  ## all that must be green before a change lands

format: $(READY)  ## format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(READY)  ## renew requirements.lock from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras \
	    --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	    pyproject.toml --output-file requirements.lock

clean:  ## remove the environment and what tests leave
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headworks needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)
