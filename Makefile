# The project's front door. `make demo` and `make test` need only git, make and Python 3.11 or newer.
#
# They install the exact, hashed versions of requirements/ci.txt, for anybody: a linter that is newer
# finds things that are no fault of this tree. Tests and types need requirements/extras.txt besides,
# of which PySpark is large: 455 MB, and a minute or two to build. `make lock` renews both.
#
# Variables: PYTHON=python3.12 picks an interpreter; HYPOTHESIS_PROFILE=dev|ci|nightly, how long the
# properties are tried; LOGHUB=<folder>, real logs as input of the demo and of tests; WORKERS=1, how
# many tests run at a time: unless it is given, half as many again as processors, but four at most.

.DEFAULT_GOAL := help
# Tests start hundreds of servers, each of which would compile it all.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := $(VENV)/.installed-extras
CLASSES := build/.spark-classes
REWRITTEN := build/.rewritten-tests
CODE := conftest.py $(wildcard poe tests properties torture examples bench tools)
TYPED := $(filter-out examples,$(CODE))
# Quick: what a developer waits for. The full set runs in `make test`.
QUICK := not slow and not spark and not kafka and not erlang and not conformance and not cluster and not browser
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist worksteal
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo demo-cluster test check format lint types imports props torture conformance bench docs run lock test-lowest clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml requirements/ci.txt
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Poe needs Python 3.11 or newer; install it, or name it: make PYTHON=/path/to/python3.11"; exit 2; fi
	@if ! $(PYTHON) -m ensurepip --version >/dev/null 2>&1; then \
		echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 2; fi
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements/ci.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# PySpark comes as source only. It is built with the setuptools of ci.txt: a build environment of its
# own would hold whatever version is newest. pip keeps what it built for the next installation.
$(EXTRAS): $(STAMP) requirements/extras.txt
	$(PIP) install --require-hashes --use-pep517 --no-build-isolation -r requirements/extras.txt
	@touch $(EXTRAS)

# With the classes of Spark written down its JVMs start with a third less of the processor's time.
# Where that fails they start without.
$(CLASSES): $(EXTRAS)
	-$(BIN)/python -m tests.spark.class_archive
	@mkdir -p $(@D) && touch $(CLASSES)

# pytest compiles each file of tests in a way of its own, and keeps that. Each worker would, at once.
$(REWRITTEN): $(EXTRAS)
	-@$(BIN)/python -m pytest --collect-only -qq >/dev/null
	@mkdir -p $(@D) && touch $(REWRITTEN)

# Each process of numpy has threads for linear algebra, which begin by looking for work without a rest.
test check props: export OPENBLAS_NUM_THREADS := 1

demo: $(STAMP)  ## run the main job: a real server, real logs, a kill in the middle
	$(BIN)/python examples/demo.py

demo-cluster: $(EXTRAS)  ## three nodes, a kill and nothing lost: a queue, then a replicated topic
	$(BIN)/python examples/cluster.py
	$(BIN)/python examples/replicated_log.py

test: $(EXTRAS) lint types imports $(CLASSES) $(REWRITTEN)  ## everything: lint, types, imports, tests, properties, torture's CI column
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST)

check: $(EXTRAS) lint types imports  ## the same without slow tests, in a minute and a half
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-dev} $(PYTEST) -q -p no:schemathesis -m '$(QUICK)' tests

format: $(STAMP)  ## rewrite the code in the project's format
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint: $(STAMP)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

types: $(EXTRAS)
	$(BIN)/mypy $(TYPED)

imports: $(STAMP)
	$(BIN)/lint-imports

props: $(EXTRAS)  ## all tests and properties with the long profile, torture included
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-nightly} $(PYTEST) --timeout 3600

torture: $(STAMP)  ## break it in every way, for hours; ARGS='crash --count 10' for one scenario
	$(BIN)/python -m torture $(or $(ARGS),all --column release --json torture-report.json)

conformance: $(STAMP)  ## Thespian's own tests on its simple base and on ours, downloaded with pip
	$(BIN)/python -m tools.thespian_tests $(ARGS)

# Its path has the nats-server that the extra `log` brings.
bench: $(EXTRAS)  ## server, limit, Redis and NATS side by side; ARGS='--quick' for a short look
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.run $(ARGS)

docs: $(STAMP)  ## check that links, options and code blocks in the documents are true
	$(BIN)/python -m pytest -q tests/test_docs.py

run: $(STAMP)  ## a server on the default port with data in ./.poe-data
	$(BIN)/poe serve --dir .poe-data $(ARGS)

LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --upgrade

lock: $(STAMP)  ## renew requirements/ci.txt and extras.txt: exact versions with hashes
	$(PIP) install uv
	$(LOCK) --extra check --output-file requirements/ci.txt pyproject.toml requirements/build.in
	$(LOCK) $(addprefix --extra ,spark examples kafka http mapping metrics cluster log tls test) --constraint requirements/ci.txt \
		--output-file requirements/extras.txt pyproject.toml

test-lowest:  ## run the tests with the oldest dependencies that pyproject.toml allows
	$(PYTHON) -m venv .venv/lowest
	.venv/lowest/bin/python -m pip --quiet install -c requirements/lowest.txt -e '.[dev]'
	.venv/lowest/bin/python -m pytest -q -m '$(QUICK)' tests

clean:  ## remove everything that can be made again
	rm -rf $(VENV) build dist bench/build .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
